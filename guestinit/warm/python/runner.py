"""Entry of the warm Python interpreter; see docs/warm.md.

The agent starts `python3 runner.py [module ...]` before a template is saved,
with its control socket as descriptor 3. Everything that the interpreter does
lives in the package thaw_warm beside this file.
"""

import sys

_before = tuple(sys.modules)

from thaw_warm import server  # noqa: E402

server.main(_before, sys.argv[1:])
