"""Compile one shard of an image's Python files into a separate tree.

Usage: bytecode.py OUT SHARD SHARDS

Byte code is a function of the source, the interpreter and the state that the
files before it left behind (a marshalled object says whether it was shared).
So the list is sorted, the number of shards is fixed by the caller, and each
shard is one process with PYTHONHASHSEED=0: the same input gives the same bytes.
The files carry a hash that is not checked (PEP 552): an image never changes,
and time stamps in it are all alike.
"""

import importlib.util
import os
import py_compile
import sys

ROOTS = ("/usr/lib/python3", "/usr/lib/python3.13", "/usr/local/lib/python3.13")


def sources():
    for root in ROOTS:
        for folder, folders, files in os.walk(root):
            folders.sort()
            for name in sorted(files):
                if name.endswith(".py"):
                    yield os.path.join(folder, name)


def main():
    out, shard, shards = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    done = 0
    for path in list(sources())[shard::shards]:
        try:
            py_compile.compile(
                path,
                cfile=out + importlib.util.cache_from_source(path),
                dfile=path,
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )
            done += 1
        except py_compile.PyCompileError as err:
            # Templates and test data with the suffix .py: Python itself skips them too.
            print(f"skipped {path}: {err.exc_type_name}", file=sys.stderr)
    print(done)


main()
