"""What the tests share. They need the native library and no tracer: where somebody must listen, the test raises the
semaphore itself and looks at what is about to be fired."""

import contextlib
import ctypes
import os
import subprocess
import sys

from nopal import Probe, _library

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../src"))


@contextlib.contextmanager
def listening_to(*probes):
    """Raises the semaphores of probes, as a tracer does; gives the list of what they fire meanwhile."""
    fired = []
    emit = Probe._emit

    def recording(self, values):
        fired.append((f"{self.provider.name}:{self.name}", values))
        return emit(self, values)

    counters = [semaphore(probe) for probe in probes]
    Probe._emit = recording
    for counter in counters:
        counter.value += 1
    try:
        yield fired
    finally:
        for counter in counters:
            counter.value -= 1
        Probe._emit = emit


def semaphore(probe):
    address = _library.native().nopal_probe_semaphore(probe._pointer)
    assert address, f"{probe} is not loaded"
    return ctypes.c_uint16.from_address(address)


def python(code, **environment):
    """Runs code in a process of its own: what it printed, its errors, its status."""
    variables = {**os.environ, "PYTHONPATH": SOURCE, **environment}
    variables = {name: value for name, value in variables.items() if value is not None}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    return done.stdout, done.stderr, done.returncode
