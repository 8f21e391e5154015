"""The warm interpreter of Thaw: a Python that waits for its job.

server      starts, warms up, serves the control socket
control     frames of the control socket
generation  makes the default random generators new after a restore
command     decides whether a command line can run here or needs a cold start
job         runs a program as `python3 main.py` would
finish      ends the process as Py_FinalizeEx would, without taking it apart
cell        runs cells of a stateful context

Nothing here may write to standard output or error of its own: they are the
job's.
"""
