"""The warm interpreter of Thaw: a Python that waits for its job.

server      starts, serves the control socket
warmup      imports libraries, runs what jobs run, settles the memory
rehearsal   runs renewals and cells in the template
holes       fills the holes of the heap
immortal    keeps counts of references from being written
pages       takes page faults before there is a job
control     frames of the control socket
generation  makes the default random generators new after a restore
command     decides whether a command line can run here or needs a cold start
job         runs a program as `python3 main.py` would
bare        runs a program with no frame of ours below it
finish      ends the process as Py_FinalizeEx would, without taking it apart
cell        runs cells of a stateful context

Nothing here may write to standard output or error of its own: they are the
job's.
"""
