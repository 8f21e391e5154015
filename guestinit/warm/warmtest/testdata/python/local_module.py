import sys
import helper_module
print(helper_module.NAME, helper_module.__file__, helper_module.__name__)
