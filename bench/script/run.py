#!/usr/bin/env python3
"""Scripts: how fast they start, what a hit costs the traced program, how many events the tracer takes a second.

    bench/script/run.py --nopal NOPAL [ROW ...]      rows: start cells events

`start`   wall time of `BEGIN { exit(); }`, nopal beside bpftrace (which needs root; left out without).
`cells`   ns a hit of `count()`, `hist()` and others that stubs do alone, by the user door, less the empty loop.
`events`  `@[arg0] = count()` of a program that hits as fast as it can: events taken in per second of the tracer's CPU.

Rows of the kernel door are in kernel.py. Exit code 1 if a bar is missed. Traces only what it starts.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from common import LIMIT_S, bar, before_others, end, table

CPUS = sorted(os.sched_getaffinity(0))
# The program has the last CPU, the tracer the first.
PROGRAM_CPU, TRACER_CPU = CPUS[-1], CPUS[0]

START_MS = 20.0
START_FACTOR = 10.0
CELL_NS = 10.0
EVENTS_PER_S = 5e6

def on_cpu(cpu):
    return lambda: os.sched_setaffinity(0, {cpu})


def start(nopal):
    def best_ms(command):
        times = []
        for _ in range(10):
            before = time.perf_counter()
            done = subprocess.run(command, capture_output=True, timeout=LIMIT_S)
            if done.returncode != 0:
                return None
            times.append((time.perf_counter() - before) * 1000)
        return min(times)

    ours = best_ms([nopal, "run", "-e", "BEGIN { exit(); }"])
    bar("`BEGIN { exit(); }`: ms", ours, START_MS)
    theirs = best_ms(["bpftrace", "-e", "BEGIN { exit(); }"]) if shutil.which("bpftrace") and os.geteuid() == 0 else None
    if theirs:
        bar("`BEGIN { exit(); }`: times as fast as bpftrace", theirs / ours, START_FACTOR, at_least=True)
    table("Start of a script", ["", "ms, best of 10"], [("nopal", ours), ("bpftrace", theirs or "not measured: it needs root")])


class Loop:
    """The program, waiting for its first line."""

    def __init__(self, program, hits, gap=0):
        self.process = subprocess.Popen(
            [program, str(hits), str(gap)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=on_cpu(PROGRAM_CPU)
        )

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.process.wait(LIMIT_S)


def traced(nopal, program, body, hits, gap=0):
    """What the loop measured, nopal's answer, and nopal's own CPU seconds."""
    loop = Loop(program, hits, gap)
    pid = loop.process.pid
    script = f"usdt:{program}:bench:hit {{ {body} }}"
    tracer = subprocess.Popen(
        [nopal, "run", "--json", "--door", "user", "-e", script, "-p", str(pid)], stdout=subprocess.PIPE, preexec_fn=on_cpu(TRACER_CPU)
    )
    end = time.monotonic() + LIMIT_S
    while "nopal-ring" not in pathlib.Path(f"/proc/{pid}/maps").read_text():
        if time.monotonic() > end or tracer.poll() is not None:
            raise SystemExit("the tracer did not attach")
        time.sleep(0.01)
    time.sleep(0.2)
    measured = loop.go()
    time.sleep(0.3)
    loop.end()
    out = tracer.stdout.read()
    _, _, usage = os.wait4(tracer.pid, 0)
    return measured, json.loads(out.splitlines()[-1]), usage.ru_utime + usage.ru_stime


def cells(nopal, program):
    empty = Loop(program, 20_000_000)
    bare = empty.go()["best_ns"]
    empty.end()
    rows = [
        ("count()", "@ = count();", CELL_NS),
        ("hist(arg1)", "@ = hist(arg1);", CELL_NS),
        ("sum(arg1)", "@ = sum(arg1);", None),
        ("min(arg1)", "@ = min(arg1);", None),
        ("lhist(arg1)", "@ = lhist(arg1, 0, 1000000, 10000);", None),
        ("count() /arg0 == 7/", None, None),
    ]
    costs = []
    for name, body, limit in rows:
        script = body or "if (arg0 == 7) { @ = count(); }"
        measured, answer, _ = traced(nopal, program, script, 20_000_000)
        assert answer["complete"], answer
        cost = measured["best_ns"] - bare
        costs.append((f"`{name}`", cost))
        if limit:
            bar(f"`{name}`, kept by the stub: ns a hit", cost, limit)
    table("A hit that a stub keeps alone, less the empty loop", ["", "ns, best burst"], costs)


def events(nopal, program):
    rows = []
    for name, body, gap in [
        ("@[arg0] = count()", "@[arg0] = count();", 40),
        ("@[arg0] = hist(arg1)", "@[arg0] = hist(arg1);", 40),
    ]:
        measured, answer, cpu_s = traced(nopal, program, body, 20_000_000, gap)
        n = sum(row["value"] if isinstance(row["value"], int) else sum(b["count"] for b in row["value"]) for row in answer["rows"])
        rate = n / cpu_s
        rows.append((f"`{name}`", rate / 1e6, f"{measured['mean_ns']:.0f}", answer["lost"]))
        if "hist" not in name:
            bar(f"`{name}`: million events a second of the tracer's CPU", rate / 1e6, EVENTS_PER_S / 1e6, at_least=True)
    table("Events that the tracer takes in", ["", "million a second of CPU", "ns between hits", "lost"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nopal", required=True)
    parser.add_argument("rows", nargs="*", default=[])
    arguments = parser.parse_args()
    nopal = str(pathlib.Path(arguments.nopal).resolve())
    wanted = arguments.rows or ["start", "cells", "events"]
    with before_others(), tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/loop"
        subprocess.run(["gcc", "-O2", "-I", ROOT / "include", HERE / "loop.c", "-o", program], check=True)
        if "start" in wanted:
            start(nopal)
        if "cells" in wanted:
            cells(nopal, program)
        if "events" in wanted:
            events(nopal, program)
    end()


if __name__ == "__main__":
    main()
