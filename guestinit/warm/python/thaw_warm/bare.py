"""Runs something with no frame of ours below it.

A program can see the frames below its own: in traceback.print_stack(), in
warnings with a stacklevel, in sys._getframe(). In a cold interpreter there
are none below `<module>`, so for the time of the call the thread's current
frame is set to null. Where it lies is told by the table that CPython 3.13 and
later keep for debuggers (Include/internal/pycore_debug_offsets.h). Without it
the call is made plainly, and the program can see a few frames more. The count
of what is left to the recursion limit is set alike.
"""

import collections
import ctypes
import functools
import operator
import sys

_COOKIE = b"xdebugpy"
# Words of the table behind the cookie and the version: one for the kind of
# build, 3 about the runtime, 13 about interpreters; then size, prev, next,
# interp and current_frame of thread states.
_SIZE_WORD, _FRAME_WORD = 17, 21
_TABLE_VERSIONS = ((3, 13),)


def _find():
    """Returns the address of the slot, or None if this build is not known."""
    if sys.version_info[:2] not in _TABLE_VERSIONS:
        return None
    api = ctypes.pythonapi
    try:
        base = ctypes.addressof(ctypes.c_char.in_dll(api, "_PyRuntime"))
    except ValueError:
        return None
    if ctypes.string_at(base, 8) != _COOKIE:
        return None
    if ctypes.c_uint64.from_address(base + 8).value != sys.hexversion:
        return None
    words = (ctypes.c_uint64 * 24).from_address(base + 16)
    size, offset = words[_SIZE_WORD], words[_FRAME_WORD]
    if not 0 < offset <= size - 8 <= 4096 or offset % 8:
        return None
    state = ctypes.PyDLL(None).PyThreadState_Get
    state.restype = ctypes.c_void_p
    state = state()
    return state + offset, _find_depth(state, offset)


def _find_depth(state, frame):
    """Returns the address of py_recursion_remaining, which the limit follows.

    The table does not have it; it lies before the current frame, and is taken
    only if the one place that looks like it is there.
    """
    limit = sys.getrecursionlimit()
    numbers = (ctypes.c_int * (frame // 4)).from_address(state)
    fits = [i for i in range(8, len(numbers) - 1) if numbers[i + 1] == limit and limit - 32 < numbers[i] < limit]
    return state + 4 * fits[0] if len(fits) == 1 else None


_slot = None
_depth = None


def prepare():
    """Finds the places. Call it on the main thread."""
    global _slot, _depth
    found = _find()
    if found is None:
        return
    _slot = ctypes.c_void_p.from_address(found[0])
    if found[1] is not None:
        _depth = (ctypes.c_int * 2).from_address(found[1])


def call(function):
    """Calls a C function without arguments. Returns its result and None, or
    None and the exception, whose traceback starts with the program's frame.
    """
    saved, used = None, 0
    steps = [function]
    if _slot is not None:
        saved = _slot.value
        steps.insert(0, functools.partial(setattr, _slot, "value", None))
    if _depth is not None:
        used = _depth[1] - _depth[0]
        steps.insert(0, functools.partial(operator.setitem, _depth, 0, _depth[1]))
    result, failed = None, None
    try:
        # One C loop takes all steps, so that this frame does not run between.
        (result,) = collections.deque(map(operator.call, steps), 1)
    except BaseException as e:
        failed = e
    if saved is not None:
        _slot.value = saved
    if used:
        _depth[0] = _depth[1] - used
    if failed is not None and failed.__traceback__ is not None:
        failed.__traceback__ = failed.__traceback__.tb_next
    return result, failed
