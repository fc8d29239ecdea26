"""Providers and probes."""

import ctypes
import threading

from . import _library, _types

# What a probe that nobody can listen to looks at.
_ZERO = ctypes.c_uint16(0)


class _Handle:
    """The native provider. It is destroyed when neither the provider nor a probe that is just firing has it."""

    __slots__ = ("__weakref__", "_destroy", "pointer")

    def __init__(self, library, name):
        self.pointer = library.nopal_provider_new(name.encode())
        if not self.pointer:
            raise _library.NopalError(f"provider {name}: {_library.last_error(library)}")
        self._destroy = library.nopal_provider_destroy

    def __del__(self):
        if self.pointer:
            self._destroy(self.pointer)
            self.pointer = None


class Provider:
    """A namespace of probes. They can be seen after :meth:`load`.

    Several providers may have one name: tracers see the probes of all. Use it in a ``with`` statement to have it loaded
    inside and closed at the end.
    """

    def __init__(self, name):
        if not isinstance(name, str):
            raise TypeError(f"the name of a provider is a str, not {name!r:.100}")
        self._name = name
        self._probes = {}
        self._is_loaded = False
        self._is_closed = False
        self._lock = threading.RLock()
        self._library = _library.native()
        self._handle = _Handle(self._library, name) if self._library else None

    @property
    def name(self):
        return self._name

    @property
    def probes(self):
        """The probes by name."""
        return dict(self._probes)

    @property
    def is_loaded(self):
        return self._is_loaded

    @property
    def path(self):
        """Where tracers find the provider: /proc/PID/fd/N. Empty while nothing is loaded."""
        if not self._handle:
            return ""
        path = self._library.nopal_provider_path(self._handle.pointer)
        return path.decode() if path else ""

    def add_probe(self, name, /, *types, **named_types):
        """Declares a probe. Types are ``int``, ``float``, ``str``, ``bytes`` or members of :class:`Type`; by keyword they
        give the arguments names, which tracers show. If the provider is loaded, the probe is so at once.

        A probe of that name and these types that is there already is returned as it is.
        """
        kinds = tuple(_types.find(declared) for declared in (*types, *named_types.values()))
        names = [None] * len(types) + list(named_types)
        if _types.words(kinds) > _types.MAX_ARGUMENTS:
            raise ValueError(
                f"{self._name}:{name} has {_types.words(kinds)} arguments; {_types.MAX_ARGUMENTS} are possible"
            )
        with self._lock:
            self._check_open()
            known = self._probes.get(name)
            if known is not None:
                if known.types != kinds:
                    raise ValueError(f"{self._name}:{name} is already declared with other arguments")
                return known
            probe = Probe(self, name, kinds)
            if self._library:
                probe._pointer = self._add(name, kinds, names)
            self._probes[name] = probe
            if self._is_loaded:
                self._load([probe])
            return probe

    def load(self):
        """Makes the probes visible to tracers. Harmless if they are so already."""
        with self._lock:
            self._check_open()
            if not self._is_loaded:
                self._load(self._probes.values())
                self._is_loaded = True

    def unload(self):
        """Hides the probes; firing them does nothing until the next :meth:`load`."""
        with self._lock:
            if self._handle:
                for probe in self._probes.values():
                    probe._counter = _ZERO
                self._checked(self._library.nopal_provider_unload(self._handle.pointer))
            self._is_loaded = False

    def close(self):
        """Ends the provider and its probes for good."""
        with self._lock:
            if self._is_closed:
                return
            self.unload()
            for probe in self._probes.values():
                probe._close()
            self._handle = None
            self._is_closed = True

    def __enter__(self):
        self.load()
        return self

    def __exit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<nopal.Provider {self._name}: {len(self._probes)} probes>"

    def _load(self, probes):
        """Makes all probes visible, of which these were not so before."""
        if self._library:
            self._checked(self._library.nopal_provider_load(self._handle.pointer))
            for probe in probes:
                probe._watch(self._library, self._handle)

    def _check_open(self):
        if self._is_closed:
            raise _library.NopalError(f"provider {self._name} is closed")

    def _checked(self, result):
        if result:
            raise _library.NopalError(f"provider {self._name}: {_library.last_error(self._library)}")

    def _add(self, name, kinds, names):
        declared = (_library.Argument * len(kinds))(
            *(_library.Argument(given and given.encode(), kind, 0) for given, kind in zip(names, kinds))
        )
        pointer = self._library.nopal_provider_add(self._handle.pointer, name.encode(), declared, len(kinds))
        if not pointer:
            raise _library.NopalError(f"probe {self._name}:{name}: {_library.last_error(self._library)}")
        return pointer


class Probe:
    """A probe; made by :meth:`Provider.add_probe`."""

    __slots__ = ("_checks", "_counter", "_fill", "_fire", "_handle", "_pointer", "name", "provider", "types")

    def __init__(self, provider, name, kinds):
        self.provider = provider
        self.name = name
        self.types = kinds
        self._checks = tuple(_types.checker(kind) for kind in kinds)
        self._fill = _types.filler(kinds)
        self._counter = _ZERO
        self._handle = None
        self._pointer = None
        self._fire = None

    @property
    def is_enabled(self):
        """Whether somebody listens."""
        return self._counter.value != 0

    def fire(self, *values):
        """Fires, if somebody listens: True if so.

        Values are checked even if nobody does, so that a mistake shows before production: TypeError, or OverflowError for
        an integer that does not fit.
        """
        checks = self._checks
        if len(values) != len(checks):
            raise TypeError(f"{self.provider.name}:{self.name} takes {len(checks)} values, {len(values)} were fired")
        for check, value in zip(checks, values):
            check(value)
        return self._counter.value != 0 and self._emit(values)

    def fire_lazy(self, values):
        """Fires what the function ``values`` returns, a tuple. It is called only while somebody listens."""
        if self._counter.value == 0:
            return False
        given = values()
        return self.fire(*given) if isinstance(given, tuple) else self.fire(given)

    def __repr__(self):
        return f"<nopal.Probe {self.provider.name}:{self.name}>"

    def _emit(self, values):
        return self._emit_laid_out(self._fill(*values))

    def _emit_laid_out(self, values):
        # Another thread may close the provider now; this keeps the native side until the probe has fired.
        handle = self._handle
        if handle is None:
            return False
        return self._fire(self._pointer, values, len(self.types)) > 0

    def _watch(self, library, handle):
        self._handle = handle
        self._fire = library.nopal_probe_fire
        address = library.nopal_probe_semaphore(self._pointer)
        if address:
            counter = ctypes.c_uint16.from_address(address)
            # The memory lives as long as the provider's.
            counter.handle = handle
            self._counter = counter
        else:
            self._counter = _ZERO

    def _close(self):
        self._counter = _ZERO
        self._handle = None
