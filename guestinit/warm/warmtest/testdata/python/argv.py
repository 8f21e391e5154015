import sys, os
print(sys.argv, sys.orig_argv, sys.path[0], os.getcwd(), sys.executable, sys._base_executable, sys.flags, sys.prefix)
