"""A project's own tests assert on its probes: how often they come, in which order, with which values. Needs no root.

    from nopal.testing import listen

    def test_a_sale_is_seen():
        with listen("shop:*") as hits:
            checkout(cart)
        hits.assert_count("shop:sale", 1)
        hits.assert_order("shop:sale__start", "shop:sale__done")
        hits.assert_values("shop:sale", "customer", ["Ada"])

``listen`` has the command ``nopal`` trace this process, and the processes it starts, until the block ends; with ``pid=`` it
listens to another one, such as a server that the test has started. The command is found in ``PATH``, or named by
``NOPAL_COMMAND``.

What was not seen cannot be asserted on: if events were lost or a site could not be opened, the block ends with ``Incomplete``.
"""

import contextlib
import ctypes
import dataclasses
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

__all__ = ["CannotListen", "Hit", "Hits", "Incomplete", "listen"]

# How long the command may take to open the sites, or to end.
_PATIENCE_S = 120
_LINES_SHOWN = 20


class CannotListen(RuntimeError):
    """The command `nopal` is not there, or cannot trace this process; its own words say why."""


class Incomplete(RuntimeError):
    """Some hits were not seen, so that nothing can be said about them all."""


@dataclasses.dataclass(frozen=True)
class Hit:
    """One hit of a probe."""

    probe: str
    args: dict
    pid: int
    tid: int
    ns: int

    def __str__(self):
        return " ".join([self.probe, *(f"{name}={value!r}" for name, value in self.args.items())])


class Hits:
    """The hits of a block, in the order of time. Probes are named as `provider:name`, with `*` and `?`."""

    def __init__(self):
        self._hits = []
        self._known = set()

    def __iter__(self):
        return iter(self._hits)

    def __len__(self):
        return len(self._hits)

    def __getitem__(self, index):
        return self._hits[index]

    def __repr__(self):
        return f"Hits({', '.join(map(str, self._hits))})"

    def of(self, probe):
        """The hits of one probe, or of a pattern."""
        __tracebackhide__ = True
        found = [hit for hit in self._hits if fnmatch.fnmatchcase(hit.probe, probe)]
        if not found and not any(fnmatch.fnmatchcase(name, probe) for name in self._known):
            there = ", ".join(sorted(self._known)) or "none"
            # Otherwise a test that a probe does not come would hold for a probe that does not exist.
            raise AssertionError(f"no probe matches {probe!r}; listened to: {there}")
        return found

    def on_thread(self, tid=None):
        """The hits of one thread, by default the one that asks."""
        tid = threading.get_native_id() if tid is None else tid
        hits = Hits()
        hits._known = self._known
        hits._hits = [hit for hit in self._hits if hit.tid == tid]
        return hits

    def count(self, probe):
        __tracebackhide__ = True
        return len(self.of(probe))

    def values(self, probe, argument):
        """What an argument was at each hit."""
        __tracebackhide__ = True
        hits = self.of(probe)
        for hit in hits:
            if argument not in hit.args:
                raise AssertionError(f"{hit.probe} has no argument {argument!r}; it has: {', '.join(hit.args) or 'none'}")
        return [hit.args[argument] for hit in hits]

    def assert_count(self, probe, expected=None, *, at_least=None, at_most=None):
        """Fails unless the probe came that often."""
        __tracebackhide__ = True
        n = self.count(probe)
        for wanted, holds, word in [
            (expected, n == expected, ""),
            (at_least, at_least is None or n >= at_least, "at least "),
            (at_most, at_most is None or n <= at_most, "at most "),
        ]:
            if wanted is not None and not holds:
                self._fail(f"{probe} came {_times(n)}, expected {word}{_times(wanted)}")

    def assert_order(self, *probes):
        """Fails unless the first comes, later the second, and so on. Others may come in between."""
        __tracebackhide__ = True
        for probe in probes:
            self.of(probe)
        rest = iter(self._hits)
        for i, probe in enumerate(probes):
            if not any(fnmatch.fnmatchcase(hit.probe, probe) for hit in rest):
                after = f" after {' -> '.join(probes[:i])}" if i else ""
                self._fail(f"{probe} did not come{after}")

    def assert_values(self, probe, argument, expected):
        """Fails unless an argument had these values, hit by hit."""
        __tracebackhide__ = True
        came = self.values(probe, argument)
        if came != list(expected):
            self._fail(f"{argument} of {probe} was {came!r}, expected {list(expected)!r}")

    def _fail(self, reason):
        __tracebackhide__ = True
        shown = [f"  {hit}" for hit in self._hits[:_LINES_SHOWN]]
        if len(self._hits) > _LINES_SHOWN:
            shown.append(f"  and {len(self._hits) - _LINES_SHOWN} more")
        came = f"what came, {len(self._hits)} in all:" if shown else "nothing came"
        raise AssertionError("\n".join([reason, came, *shown]))

    def _add(self, text):
        for line in text.splitlines():
            event = json.loads(line)
            probe = f"{event['provider']}:{event['name']}"
            self._hits.append(Hit(probe, event["args"], event["pid"], event["tid"], event["ts"]))
            self._known.add(probe)


# A process can be traced by one at a time.
_turn = threading.Lock()


@contextlib.contextmanager
def listen(*probes, pid=None, options=()):
    """Gives the hits of these probes, of this process (or another) and those it starts, from the start of the block to its end.

    Probes that a program declares while it runs are loaded before. ``options`` are more options of ``nopal trace``, such as ``["--max-string", "1k"]``.
    """
    if pid is None:
        _allow_tracing()
    hits = Hits()
    with _turn, tempfile.TemporaryDirectory() as folder:
        said, printed = os.path.join(folder, "said"), os.path.join(folder, "printed")
        with open(said, "wb") as stderr, open(printed, "wb") as stdout:
            command = [_command(), "trace", "--json", "--announce", "-p", str(pid or os.getpid()), *options, *probes]
            # A group of its own: Ctrl-C ends the tests, and they end the command.
            nopal = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True
            )
        try:
            opened = _wait_until_open(nopal, said)
            hits._known.update(site["probe"] for site in opened)
            yield hits
        finally:
            _end(nopal)
        hits._add(_read(printed))
        closed = sorted({f"{site['probe']}: {site['closed']}" for site in opened if site["door"] is None})
        _check(nopal.returncode, _read(said), closed)


def _command():
    named = os.environ.get("NOPAL_COMMAND")
    found = shutil.which(named or "nopal")
    if found is None:
        raise CannotListen(
            f"NOPAL_COMMAND is {named!r}, which is not a program"
            if named
            else "the command `nopal` is not in PATH; install it, or set NOPAL_COMMAND to it"
        )
    return found


def _allow_tracing():
    # Where Yama restricts ptrace a child may not trace its parent unless the parent says so. Kernels without Yama refuse.
    set_ptracer, any_process = 0x59616D61, ctypes.c_ulong(-1)
    ctypes.CDLL(None).prctl(set_ptracer, any_process, 0, 0, 0)


def _read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _wait_until_open(nopal, said):
    end = time.monotonic() + _PATIENCE_S
    while True:
        has_ended = nopal.poll() is not None
        text = _read(said)
        for line in text.splitlines(keepends=True):
            if line.endswith("\n") and line.startswith('{"opened"'):
                return json.loads(line)["opened"]
        if has_ended or time.monotonic() > end:
            raise CannotListen(_in_words(text) or "nopal said nothing")
        time.sleep(0.005)


def _in_words(text):
    """What the command said, its errors as it tells them to people."""
    lines = []
    for line in text.splitlines():
        if line.startswith('{"error"'):
            error = json.loads(line)["error"]
            line = "; ".join(filter(None, [error["message"], error.get("hint")]))
        lines.append(line)
    return "\n".join(lines)


def _end(nopal):
    if nopal.poll() is None:
        nopal.send_signal(signal.SIGINT)
    try:
        nopal.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        nopal.kill()
        nopal.wait()


def _check(status, said, closed):
    verdicts = [line for line in said.splitlines() if line.startswith('{"complete"')]
    if status != 0 or not verdicts:
        raise Incomplete(f"nopal ended with status {status}: {_in_words(said)}")
    verdict = json.loads(verdicts[-1])
    if not verdict["complete"]:
        facts = ", ".join(f"{name} {n}" for name, n in verdict.items() if n and name not in ("complete", "events", "cut"))
        raise Incomplete(f"not every hit was seen: {facts}; a larger --buffer-size loses less (options=)")
    if closed:
        raise Incomplete("not every site could be opened:\n  " + "\n  ".join(closed))


def _times(n):
    return "once" if n == 1 else f"{n} times"
