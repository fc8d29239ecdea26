"""The types of arguments: how a declaration names them, which values fit, and how a value lies in ``nopal_value``."""

import ctypes
import enum
import struct


class Type(enum.IntEnum):
    """An exact type, with its number in nopal.h. ``int``, ``float``, ``str`` and ``bytes`` mean INT64, DOUBLE, STRING and BYTES."""

    INT8 = 1
    UINT8 = 2
    INT16 = 3
    UINT16 = 4
    INT32 = 5
    UINT32 = 6
    INT64 = 7
    UINT64 = 8
    FLOAT = 9
    DOUBLE = 10
    STRING = 11
    BYTES = 12


MAX_ARGUMENTS = 12
BY_CLASS = {int: Type.INT64, float: Type.DOUBLE, str: Type.STRING, bytes: Type.BYTES}

_RANGES = {
    kind: (-(1 << bits - 1), (1 << bits - 1) - 1) if kind.name[0] == "I" else (0, (1 << bits) - 1)
    for kind in Type
    if "INT" in kind.name
    for bits in [int(kind.name.partition("INT")[2])]
}

# Not of floats: what is too large for one is to be infinite, and no error.
_PACKED = {Type.DOUBLE: "d8x", **{kind: "Q8x" if kind.name[0] == "U" else "q8x" for kind in _RANGES}}


def find(declared):
    """The type that a declaration means."""
    if isinstance(declared, Type):
        return declared
    try:
        return BY_CLASS[declared]
    except (KeyError, TypeError):
        names = ", ".join(["int", "float", "str", "bytes"] + [f"Type.{kind.name}" for kind in Type])
        raise TypeError(f"no type of an argument: {declared!r}; possible are {names}") from None


def words(kinds):
    """How many of the possible arguments these take: bytes come with a length."""
    return sum(2 if kind is Type.BYTES else 1 for kind in kinds)


def layout(kinds):
    """A ctypes structure with the memory of an array of ``nopal_value``. It keeps alive what it points to."""
    fields = []
    for i, kind in enumerate(kinds):
        if kind is Type.FLOAT:
            fields += [(f"word{i}", ctypes.c_float), (f"upper{i}", ctypes.c_uint32)]
        elif kind is Type.DOUBLE:
            fields.append((f"word{i}", ctypes.c_double))
        elif kind in (Type.STRING, Type.BYTES):
            fields.append((f"word{i}", ctypes.c_char_p))
        else:
            fields.append((f"word{i}", ctypes.c_uint64 if kind.name[0] == "U" else ctypes.c_int64))
        fields.append((f"length{i}", ctypes.c_uint64))
    return type("Values", (ctypes.Structure,), {"_fields_": fields})


def checker(kind):
    """A function that raises TypeError or OverflowError for a value that is not of this type."""
    if kind in _RANGES:
        low, high = _RANGES[kind]

        def check(value):
            if not isinstance(value, int):
                raise TypeError(f"{value!r:.100} is no integer")
            if not low <= value <= high:
                raise OverflowError(f"{value} is not between {low} and {high}")

        return check
    wanted = {Type.STRING: (str, bytes), Type.BYTES: (bytes, bytearray, memoryview)}.get(kind, (int, float))
    name = {Type.STRING: "str", Type.BYTES: "bytes"}.get(kind, "float")

    def check(value):
        if not isinstance(value, wanted):
            raise TypeError(f"{value!r:.100} is no {name}")
        if isinstance(value, int):
            # OverflowError if it is too large.
            float(value)

    return check


def filler(kinds):
    """A function that turns values of these types into the memory of an array of ``nopal_value``."""
    if _PACKED.keys() >= set(kinds):
        # Numbers alone need nothing to be kept alive, and are packed in a sixth of the time.
        return struct.Struct("=" + "".join(_PACKED[kind] for kind in kinds)).pack
    values_of = layout(kinds)

    def fill(*values):
        laid_out = []
        for kind, value in zip(kinds, values):
            if kind is Type.STRING and isinstance(value, str):
                value = value.encode("utf-8", "backslashreplace")
            elif kind is Type.BYTES and not isinstance(value, bytes):
                # What can be changed is copied, whole: views may have gaps and wider elements.
                value = bytes(value)
            if kind is Type.FLOAT:
                laid_out += (value, 0, 0)
            else:
                laid_out += (value, len(value) if kind is Type.BYTES else 0)
        return ctypes.byref(values_of(*laid_out))

    return fill
