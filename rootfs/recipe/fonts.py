"""Write matplotlib's font list, which it would else make at its first import.

Usage: fonts.py OUT

The list is made in the order in which folders are read, and the first of equal
fonts wins: sorting makes both the file and the choice repeatable.
"""

import os
import sys

import matplotlib
from matplotlib import font_manager

manager = font_manager._load_fontmanager(try_read_cache=False)
for fonts in (manager.ttflist, manager.afmlist):
    fonts.sort(key=lambda f: (f.fname, f.name, f.style, f.variant, str(f.weight), f.stretch, f.size))
name = f"fontlist-v{font_manager.FontManager.__version__}.json"
font_manager.json_dump(manager, os.path.join(sys.argv[1], name))
print(matplotlib.__version__)
