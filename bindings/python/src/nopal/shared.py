"""Providers and probes that decorators and context managers declare by name, from anywhere in a program."""

import threading

from . import _types
from .provider import Provider

_lock = threading.Lock()
_providers = {}
_probes = {}


def provider_of(given):
    """A provider that was given is its owner's to load; one that was named is shared, and loaded."""
    if isinstance(given, Provider):
        return given
    with _lock:
        provider = _providers.get(given)
        if provider is None:
            provider = _providers[given] = Provider(given)
            provider.load()
        return provider


def probe_of(provider, name, kind, /, **types):
    """The probe of this name. If something of another kind has the name already, as when a function is decorated twice, that
    of this kind has it added: ``checkout__stack``.
    """
    probe = _probes.get((provider, name, kind))
    if probe is None:
        owner = provider_of(provider)
        known = owner.probes.get(name)
        is_other = known is not None and known.types != tuple(map(_types.find, types.values()))
        probe = owner.add_probe(f"{name}__{kind}" if is_other else name, **types)
        _probes[provider, name, kind] = probe
    return probe


def function_probe(provider, name, kind, function, /, **types):
    """The probe of a decorated function, and what it is called in events."""
    if name is not None:
        return probe_of(provider, name, kind, **types), name
    # A probe's name has letters, digits and underscores alone; `<lambda>` has others.
    plain = "".join(c if c.isalnum() and c.isascii() else "_" for c in function.__name__)
    return probe_of(provider, plain, kind, **types), function.__qualname__
