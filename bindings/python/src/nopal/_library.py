"""Finds and opens libnopal.so. The order:

1. ``NOPAL_LIBRARY``: the file, or a folder that holds it. If it is set, nothing else is tried.
2. Beside this module.
3. What the system finds by name: ``LD_LIBRARY_PATH``, the cache of ldconfig, /lib and /usr/lib.
4. /usr/local/lib, /usr/lib/nopal, /opt/nopal/lib.
5. In a source tree of nopal: target/release, then target/debug.

The variable ``NOPAL`` decides what happens without it: ``off`` makes every probe a no-op and looks for nothing;
``optional`` makes them no-ops if there is no library, with one warning; otherwise a missing library is an error, raised
when the first provider is made and never later. On other systems than Linux every probe is a no-op.
"""

import ctypes
import os
import sys
import threading
import warnings

NAME = "libnopal.so"
FOLDERS = ("/usr/local/lib", "/usr/lib/nopal", "/opt/nopal/lib")

_lock = threading.Lock()
_decided = False
_library = None


class NopalError(Exception):
    """The native library refused; the message says why."""


class LibraryMissing(NopalError, ImportError):
    """The native library is nowhere to be found, or is not one that this package can use."""


def native():
    """The native library with its functions declared, or None where probes are off."""
    global _decided, _library
    if not _decided:
        with _lock:
            if not _decided:
                _library = _decide()
                _decided = True
    return _library


def last_error(library):
    return library.nopal_error().decode("utf-8", "replace") or "the native library gives no reason"


def _decide():
    wish = os.environ.get("NOPAL", "").lower()
    if wish in ("off", "0", "false", "no"):
        return None
    if wish not in ("", "on", "1", "true", "yes", "optional"):
        warnings.warn(f"NOPAL={wish} means nothing; possible are `off` and `optional`", RuntimeWarning, stacklevel=4)
    if not sys.platform.startswith("linux"):
        return None
    try:
        return _open()
    except LibraryMissing as missing:
        if wish != "optional":
            raise
        warnings.warn(f"static tracing does nothing: {missing}", RuntimeWarning, stacklevel=4)
        return None


def candidates():
    named = os.environ.get("NOPAL_LIBRARY")
    if named:
        return [os.path.join(named, NAME) if os.path.isdir(named) else os.path.abspath(named)]
    here = os.path.dirname(os.path.abspath(__file__))
    found = [os.path.join(here, NAME), NAME]
    found += [os.path.join(folder, NAME) for folder in FOLDERS]
    root = os.path.abspath(os.path.join(here, "../../../.."))
    if os.path.isdir(os.path.join(root, "tracee/nopal-runtime")):
        found += [os.path.join(root, "target", profile, NAME) for profile in ("release", "debug")]
    return found


def _open():
    failures = []
    for path in candidates():
        if "/" in path and not os.path.isfile(path):
            failures.append(f"{path}: not there")
            continue
        try:
            # The interpreter's lock is kept during calls: they are short, and a value must not change under them.
            library = ctypes.PyDLL(path)
        except OSError as error:
            failures.append(str(error) if path in str(error) else f"{path}: {error}")
            continue
        return _declare(library, path)
    tried = "\n  ".join(failures)
    raise LibraryMissing(
        "nopal's native library was not found, so probes cannot be made. "
        f"Set NOPAL_LIBRARY to {NAME}, or NOPAL=off to run without probes. Tried:\n  {tried}"
    )


class Argument(ctypes.Structure):
    """``nopal_arg`` of nopal.h."""

    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_uint32), ("reserved", ctypes.c_uint32)]


def _declare(library, path):
    pointer, text, size, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int
    functions = {
        "nopal_provider_new": (pointer, [text]),
        "nopal_provider_add": (pointer, [pointer, text, ctypes.POINTER(Argument), size]),
        "nopal_provider_load": (number, [pointer]),
        "nopal_provider_unload": (number, [pointer]),
        "nopal_provider_destroy": (None, [pointer]),
        "nopal_provider_path": (text, [pointer]),
        "nopal_probe_fire": (number, [pointer, pointer, size]),
        "nopal_probe_semaphore": (pointer, [pointer]),
        "nopal_error": (text, []),
    }
    for name, (result, arguments) in functions.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise LibraryMissing(f"{path} was found but is not one that this package can use: {error}") from None
        function.restype = result
        function.argtypes = arguments
    return library
