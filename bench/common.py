"""What the benchmarks share: processes on CPUs of their own, tables, bars."""
import contextlib
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

LIMIT_S = 120  # No single step of a measurement takes longer.

LIBC = ctypes.CDLL(None)
ALL_CPUS = os.sched_getaffinity(0)
# The traced program has the last CPU; its clients and whoever drains its buffers have the others.
TARGET_CPU = max(ALL_CPUS)
OTHER_CPUS = ALL_CPUS - {TARGET_CPU} or ALL_CPUS

BARS = []  # (what, measured, limit, is met)


def note(text):
    print(text, file=sys.stderr, flush=True)


# ---- processes ----


def in_child(cpus):
    """Before exec: no child outlives the benchmark, however that ends."""
    LIBC.prctl(1, signal.SIGKILL)
    os.sched_setaffinity(0, cpus)


def run(*command, cpus=OTHER_CPUS, limit_s=LIMIT_S, **options):
    """What a command that must succeed prints."""
    command = [str(c) for c in command]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=limit_s,
        preexec_fn=lambda: in_child(cpus), **options,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr[-800:]}")
    return done.stdout


@contextlib.contextmanager
def started(*command, cpus=OTHER_CPUS, end_with=signal.SIGKILL, **options):
    """A process that has ended when the block has."""
    child = subprocess.Popen([str(c) for c in command], text=True, preexec_fn=lambda: in_child(cpus), **options)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(end_with)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def wait_for(what, is_so):
    end = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {LIMIT_S} s for {what}")
        time.sleep(0.01)


@contextlib.contextmanager
def before_others():
    """Programs, tracers and daemons of this run alike go before what else the machine has to do; root may ask for that."""
    if os.geteuid() != 0:
        yield
        return
    os.nice(-15)
    # Where sessions are scheduled as groups, niceness counts only within one's own; the group has one, too.
    group = pathlib.Path("/proc/self/autogroup")
    found = re.search(r"nice (-?\d+)", group.read_text()) if group.exists() else None
    try:
        if found:
            group.write_text("-15")
        yield
    finally:
        if found:
            group.write_text(found[1])


# ---- tables and bars ----


def bar(what, value, limit, unit="", form="{:.1f}"):
    """A figure and the most it may be."""
    BARS.append((what, form.format(value) + unit, form.format(limit) + unit, value <= limit))


def table(title, columns, rows):
    print(f"\n### {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(f'{c:.1f}' if isinstance(c, float) else str(c) for c in row)} |")
    sys.stdout.flush()


def end():
    """The bars; exit code 1 if one is missed."""
    rows = [(what, value, limit, "PASS" if is_met else "FAIL") for what, value, limit, is_met in BARS]
    table("Bars", ["bar", "measured", "at most", ""], rows)
    sys.exit(any(row[3] == "FAIL" for row in rows))
