"""Takes the page faults of a job before there is one.

A fork leaves every page of its parent's own write-protected, also when the
child is long gone; the next write to each costs a fault, and every restored
machine would take them all again.
"""

import ctypes
import itertools
import mmap

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, Linux 5.14


def make_writable():
    """Makes all private pages that are in memory writable at once, as a write
    to each would, but touches no content."""
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mincore.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    with open("/proc/self/maps") as file:
        mappings = [line.split(maxsplit=2)[:2] for line in file]
    for where, access in mappings:
        if access != "rw-p":
            continue
        start, end = (int(bound, 16) for bound in where.split("-"))
        present = ctypes.create_string_buffer((end - start) // mmap.PAGESIZE)
        if libc.mincore(start, end - start, present) != 0:
            continue
        for there, run in itertools.groupby(present.raw, lambda byte: byte & 1):
            size = sum(1 for _ in run) * mmap.PAGESIZE
            if there:
                # A kernel without it takes the faults one by one, later.
                libc.madvise(start, size, _POPULATE_WRITE)
            start += size


def join_program():
    """Makes the code and constants of the interpreter's program one mapping: the
    kernel maps a huge page only within one, and the blocks of 2 MiB that programs
    use most lie across the borders. Constants can be executed then."""
    libc = ctypes.CDLL(None)
    libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    parts = []
    with open("/proc/self/maps") as file:
        for line in file:
            where, access, offset, _, inode = line.split(maxsplit=5)[:5]
            start, end = (int(bound, 16) for bound in where.split("-"))
            place = start - int(offset, 16), inode
            # The program comes first, and what it writes to last.
            if access not in ("r--p", "r-xp") or parts and (parts[-1][1] != start or parts[-1][2] != place):
                break
            parts.append((start, end, place))
    if len(parts) > 1:
        libc.mprotect(parts[0][0], parts[-1][1] - parts[0][0], mmap.PROT_READ | mmap.PROT_EXEC)
