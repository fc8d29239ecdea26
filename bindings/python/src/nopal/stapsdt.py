"""The names of the package ``stapsdt``, for programs that were written for it::

    from nopal import stapsdt

    provider = stapsdt.Provider("pythonapp")
    probe = provider.add_probe("first", stapsdt.ArgTypes.uint64, stapsdt.ArgTypes.int32)
    provider.load()
    probe.fire("text", 3)

It does what that package does: ``load`` and ``unload`` return False when they succeed, a text may be given for an integer
and is then its address, values that are too large are cut. Unlike it, there may be 12 arguments and not 6, integers are
passed with all 64 bits, and probes may be added to a loaded provider, to be seen after the next ``load``.
"""

import ctypes
from enum import IntEnum

from . import _library, _types
from .provider import Provider as _Provider

__all__ = ["ArgTypes", "Probe", "Provider"]


class ArgTypes(IntEnum):
    noarg = 0
    uint8 = 1
    int8 = -1
    uint16 = 2
    int16 = -2
    uint32 = 4
    int32 = -4
    uint64 = 8
    int64 = -8


_KINDS = {
    ArgTypes[kind.name.lower()]: kind for kind in _types.Type if "INT" in kind.name
}
_WORD = (1 << 64) - 1


class Provider:
    def __init__(self, name):
        self._provider = _Provider(name)
        self.name = name
        self._probes = []

    def __str__(self):
        return self.name

    def add_probe(self, name, *args):
        probe = Probe(self, name, *args)
        self._probes.append(probe)
        return probe

    def load(self):
        """False if it succeeds, as in that package."""
        try:
            self._provider.load()
        except _library.NopalError:
            return True
        return False

    def unload(self):
        """False if it succeeds, as in that package."""
        try:
            self._provider.unload()
        except _library.NopalError:
            return True
        return False

    def __del__(self):
        provider = getattr(self, "_provider", None)
        if provider is not None:
            provider.close()


class Probe:
    def __init__(self, provider, name, *args):
        kinds = [_KINDS[ArgTypes(arg)] for arg in args if arg != ArgTypes.noarg]
        self._probe = provider._provider.add_probe(name, *kinds)
        self._values = ctypes.c_uint64 * (2 * len(kinds))

    def fire(self, *args):
        if not self._probe.is_enabled:
            return False
        # Texts must live until the probe has fired.
        texts = []
        values = self._values()
        for i, arg in enumerate(args[: len(self._probe.types)]):
            if isinstance(arg, (str, bytes)):
                texts.append(ctypes.c_char_p(arg.encode("utf-8", "backslashreplace") if isinstance(arg, str) else arg))
                arg = ctypes.cast(texts[-1], ctypes.c_void_p).value
            values[2 * i] = int(arg) & _WORD
        return self._probe._emit_laid_out(values)

    @property
    def is_enabled(self):
        return self._probe.is_enabled
