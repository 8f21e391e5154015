"""Keeps counts of references to what is loaded from being written.

Whoever only uses an object counts its reference up and down again, and the page that
it lies in is then a copy that each restored machine makes for itself, though nothing
in it has changed. An immortal object (PEP 683) is not counted. It is never freed
either, so only what stays loaded is made one, and of that only what takes nothing
else with it when it ends.
"""

import ctypes
import gc
import sys
import types

# The count of an immortal object, as Include/object.h of these versions has it for 64 bits.
_IMMORTAL = 0xFFFFFFFF
_VERSIONS = ((3, 12), (3, 13))
_HEADER = 16  # bytes: the count, which comes first, and the type

_KINDS = frozenset({
    types.FunctionType, types.CodeType, types.ModuleType, types.BuiltinFunctionType,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType,
    property, classmethod, staticmethod, str, bytes, int, float, complex, tuple, frozenset,
})


def make():
    """Makes what is loaded immortal, as far as it is code, types, or constants.

    Preconditions: garbage was collected; no other thread runs.
    """
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in _VERSIONS or sys.maxsize < 1 << 32:
        return
    if object.__basicsize__ != _HEADER:
        return  # built without the GIL, or to trace references: the count is elsewhere
    # Nothing is kept of what was seen: it would leave the heap with holes all over, which
    # programs would fill.
    for container in gc.get_objects():
        found = [container, *gc.get_referents(container)]
        while found:
            thing = found.pop()
            kind = type(thing)
            if kind not in _KINDS and not issubclass(kind, type):
                continue
            count = ctypes.c_uint32.from_address(id(thing))
            if count.value == _IMMORTAL:
                continue
            count.value = _IMMORTAL
            if kind is types.CodeType:  # not known to the collector
                found += thing.co_consts, thing.co_names, thing.co_filename, thing.co_name, thing.co_qualname
            elif kind is tuple or kind is frozenset:
                found += thing
