"""Fills the holes of the heap, so that what runs later writes to few pages.

An allocator hands out what was freed last: after hundreds of modules were loaded those are
places all over the heap. Each page that is written is a fault and a copy in every restored
machine, also if it is for an object of 32 bytes that is gone a moment later. So the free
places among used ones, about a megabyte in all, are taken and never given back, and what
comes later lies together.

What is taken is not known to the garbage collector.
"""

import collections
import ctypes
import itertools
import os
import sys

# Python's own allocator for small objects, as Objects/obmalloc.c of these versions has it
# for 64 bits. Blocks of one size lie in a pool. Its header (struct pool_header of
# pycore_obmalloc.h): u32 of blocks in use, three pointers, u32 of arena, size, where unused
# blocks begin, and the last such place.
_VERSIONS = ((3, 12), (3, 13))
_POOL = 16 << 10
_HEADER = 48
_SIZE_AT, _LAST_AT = 36, 44
_SIZES = range(16, 512 + 1, 16)
_BYTES = 33  # what a bytes object has beside its bytes

# Python's own calls and numbers take that many blocks of a size at most, for as long as the
# code here runs.
_OWN = 4

# What is taken at most: blocks of a size, and bytes of the C library's allocator.
_MOST_BLOCKS = 16 << 10
_MOST_BYTES = 4 << 20

# Free places of the C library's that are larger stay: they lie together as they are.
_LARGE = 16 << 10

_take = ctypes.pythonapi.PyObject_Malloc
_take.argtypes, _take.restype = [ctypes.c_size_t], ctypes.c_void_p
_give = ctypes.pythonapi.PyObject_Free
_give.argtypes, _give.restype = [ctypes.c_void_p], None

_pools = {}  # of each size the one that the next blocks come from
_kept = []


def fill(last=False):
    """Takes what is free among what is used; last says that nothing is made ready after it.

    Preconditions: garbage was collected; no other thread runs.
    """
    _fill_c()
    if not _known():
        return
    for _ in range(2):  # once more, since filling one size uses and frees blocks of others
        for size in _SIZES:
            _fill_blocks(size, last)
    if last:
        _fill_last()


def _known():
    """Tells whether Python's allocator is what this code takes it for."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in _VERSIONS or sys.maxsize < 1 << 32:
        return False
    if sys.flags.dev_mode or "PYTHONMALLOC" in os.environ or sys.getallocatedblocks() < 1000:
        return False  # another one, or with words of its own around each block
    block = _take(_SIZES[1])
    pool = block & -_POOL
    fits = (_number(pool + _SIZE_AT) == 1 and _number(pool + _LAST_AT) == _POOL - _SIZES[1]
            and (block - pool - _HEADER) % _SIZES[1] == 0)
    _give(block)
    return fits


def _number(place):
    return ctypes.c_uint32.from_address(place).value


def _fill_blocks(size, last):
    """Takes all free blocks of a size, but those of one pool."""
    count = (_POOL - _HEADER) // size
    own, taken = _pools.get(size), bytearray(count)
    for _ in range(_MOST_BLOCKS):
        block = _take(size)
        pool = block & -_POOL
        if pool == own:
            taken[(block - pool - _HEADER) // size] = 1
        elif _number(pool) <= _OWN:
            break  # an empty one: there are no others
    else:
        return
    if sum(taken) > count // 3:
        _give(block)  # enough is left of the pool that there was
    else:
        # The block stays, and so the pool keeps its place. A few others are not taken: where a
        # pool is full, the code here would begin another one for itself.
        own, taken = pool, bytearray(count)
        for _ in range(count - 3 * _OWN):
            block = _take(size)
            if block & -_POOL == own:
                taken[(block - own - _HEADER) // size] = 1
    _pools[size] = own
    # The one that is given back last is used first: while all is made ready the last of the
    # pool, and then the first, beside its header.
    for i in reversed(range(count)) if last else range(count):
        if taken[i]:
            _give(own + _HEADER + i * size)


def _fill_last():
    """Takes the free blocks that the code here itself lets go of and takes again with each
    call, whose pools it never finds without a hole. Nothing that is made here goes again."""
    made = collections.deque()
    # Of 16 bytes, of 32, and of each size from there on.
    sources = [itertools.starmap(object, itertools.repeat((), 2 * _OWN)), map(complex, itertools.repeat(1.5, 2 * _OWN))]
    sources += [map(bytes, itertools.repeat(size - _BYTES, 2 * _OWN)) for size in _SIZES[2:]]
    _kept.append((made, sources))
    i = 0
    while i < len(sources):  # without an iterator
        made.extend(sources[i])
        i += 1


class _Info(ctypes.Structure):
    """struct mallinfo2."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]


def _fill_c():
    """Takes the free places of the C library's allocator."""
    libc = ctypes.CDLL(None)
    try:
        info = libc.mallinfo2  # glibc 2.33
    except AttributeError:
        return
    info.argtypes, info.restype = [], _Info
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes, libc.free.restype = [ctypes.c_void_p], None
    libc.sbrk.argtypes, libc.sbrk.restype = [ctypes.c_ssize_t], ctypes.c_void_p
    left = _MOST_BYTES

    def drain(size):
        """Takes places until one comes from the end, behind which all is free."""
        nonlocal left
        end = libc.sbrk(0) - info().keepcost
        while left > 0:
            place = libc.malloc(size)
            if not place or place >= end:
                libc.free(place)
                return
            left -= size
            yield place

    # From large to small, since a small one is cut off a large one where there is no other.
    large = [place for size in (96 << 10, 64 << 10, 48 << 10, 32 << 10, 24 << 10, _LARGE) for place in drain(size)]
    # A place is a multiple of 16 bytes, of which 8 are the allocator's: each size fills one.
    for size in range(_LARGE - 24, 0, -16):
        collections.deque(drain(size), 0)
    for place in large:
        libc.free(place)
