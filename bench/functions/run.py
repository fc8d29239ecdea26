#!/usr/bin/env python3
"""Functions: what an entry and a timed call cost, how long opening a thousand of them takes and stops a program, and how many of
them the user door opens.

    bench/functions/run.py [--rounds 5] [--quick] [PART ...]      parts: call postgres coverage; all by default

Prints a Markdown table for each part and for the bars; exit code 1 if a bar is missed. Needs root (bpftrace) and the packages
of bench/packages.txt. Traces only programs that it builds or starts itself.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from common import (
    LIMIT_S, PG, TARGET_CPU, Target, bar, before_others, bpftrace, end, note, obeying, postgres, run, started, table,
)

FOLDER = pathlib.Path()  # Of this run; set in main.
ARGS = argparse.Namespace()
N_FUNCTIONS = 1000


def build():
    if not ARGS.nopal:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "nopal-cli"], cwd=ROOT, check=True)
        ARGS.nopal = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/nopal"
    flags = ["-O2", "-g", "-std=gnu11", "-Wall", "-I", ROOT / "bench/door/targets", HERE / "targets/calls.c"]
    run("gcc", *flags, "-o", FOLDER / "calls")
    run("gcc", "-pg", *flags, "-o", FOLDER / "calls-pg")


@contextlib.contextmanager
def nopal(pid, *command):
    """nopal on a running process, from when its sites are open; what it says is in the dict when the block has ended."""
    result = {}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(ARGS.nopal, *command, "-v", "--json", "-p", pid, end_with=signal.SIGINT, **pipes) as child:
        said = ""
        for line in child.stderr:
            said += line
            if line.startswith("sites:"):
                break
        else:
            raise RuntimeError(f"nopal {command[0]}: {said}")
        result["sites"] = re.search(r"^sites: (.*)", said, re.M)[1]
        yield result
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=LIMIT_S)
        if child.returncode:
            raise RuntimeError(f"nopal {command[0]}: exit {child.returncode}: {stderr}")
        result.update(json.loads(stdout.splitlines()[-1]))


@contextlib.contextmanager
def uftrace():
    """The program built for uftrace, which records each call."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    command = ["uftrace", "record", "--no-pager", "-d", FOLDER / "uftrace.data", FOLDER / "calls-pg"]
    with started(*command, cpus={TARGET_CPU}, **pipes) as child:
        yield Target(child)
        child.stdin.close()
        child.wait(LIMIT_S)


def call_part():
    """A call that is counted at its entry, at entry and exit, and timed."""
    fast, slow = (4000, 100, 1000), (500, 60, 1000)
    program = FOLDER / "calls"
    entry, left = f"uprobe:{program}:fun_work", f"uretprobe:{program}:fun_work"

    def counted(script, maps, options=()):
        with obeying(program) as t, nopal(t.pid, "run", *options, "-e", script) as answer:
            timing = t.burst("call", *fast)
        counts = [row["value"] for row in answer["rows"]]
        if counts != [t.hits] * maps or not answer["complete"] or "kernel" in answer["sites"]:
            raise RuntimeError(f"{script}: {counts} of {t.hits}: {answer['sites']}")
        return timing

    def timed(*options):
        with obeying(program) as t, nopal(t.pid, "latency", f"{program}:fun_work", "--slowest", 0, *options) as answer:
            timing = t.burst("call", *fast)
        n = answer["rows"][0]["count"] if answer["rows"] else 0
        if answer["complete"] and n != t.hits or "kernel" in answer["sites"]:
            raise RuntimeError(f"latency: {n} of {t.hits}: {answer['sites']}")
        return timing

    def by_bpftrace(script):
        for _ in range(3):
            # Now and then bpftrace 0.17 hangs when told to end; then it is measured again.
            with contextlib.suppress(subprocess.TimeoutExpired):
                with obeying(program) as t, bpftrace(FOLDER, t.pid, script):
                    timing = t.burst("call", *slow)
                return timing
        raise RuntimeError("bpftrace did not end, three times")

    def by_uftrace():
        with uftrace() as t:
            return t.burst("call", *slow)

    def untraced():
        with obeying(program) as t:
            return t.burst("call", *fast)

    map_script = f"{entry} {{ @s[tid] = nsecs; }} {left} /@s[tid]/ {{ @h = hist(nsecs - @s[tid]); delete(@s[tid]); }}"
    cases = {
        "untraced": untraced,
        "nopal, entry counted": lambda: counted(f"{entry} {{ @ = count(); }}", 1),
        "nopal, entry and exit counted": lambda: counted(f"{entry} {{ @a = count(); }} {left} {{ @b = count(); }}", 2),
        "nopal latency, a timed call": timed,
        "bpftrace, uprobe counted": lambda: by_bpftrace(f"{entry} {{ @ = count(); }}"),
        "bpftrace, uretprobe counted": lambda: by_bpftrace(f"{left} {{ @ = count(); }}"),
        "bpftrace, a timed call, hist()": lambda: by_bpftrace(map_script),
    }
    if shutil.which("uftrace"):
        cases["uftrace record, built with -pg"] = by_uftrace
    else:
        note("  uftrace is not installed, and is left out")
    runs = {case: [] for case in cases}
    for round_ in range(ARGS.rounds):
        for case, once in cases.items():
            note(f"  round {round_ + 1}: {case}")
            runs[case].append(once())
    low = {case: min(r["min"] for r in results) for case, results in runs.items()}
    own = {case: value - low["untraced"] for case, value in low.items()}
    rows = [
        (case, low[case], statistics.median(r["median"] for r in results), own[case]) for case, results in runs.items()
    ]
    table("A call", ["tracer", "min ns", "median ns", "min ns more than untraced"], rows)
    bar("an entry: ns", own["nopal, entry counted"], 15)
    bar("a timed call: ns", own["nopal latency, a timed call"], 45)


class Stops(threading.Thread):
    """How long threads of a process are stopped by a tracer at a time, as far as looking tells."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self.files = [open(f"/proc/{pid}/stat", "rb", buffering=0) for pid in pids]
        self.is_over, self.longest_ms, self.n_stops = False, 0.0, 0

    def run(self):
        since = [None] * len(self.files)
        while not self.is_over:
            for at, file in enumerate(self.files):
                try:
                    file.seek(0)
                    state = file.read(200).rsplit(b") ", 1)[1][:1]
                except (OSError, IndexError):
                    continue
                now = time.monotonic()
                if state == b"t":
                    self.n_stops += since[at] is None
                    since[at] = since[at] or now
                    self.longest_ms = max(self.longest_ms, (now - since[at]) * 1000)
                else:
                    since[at] = None

    def end(self):
        self.is_over = True
        self.join(10)


def postgres_part():
    """A thousand functions of a running PostgreSQL, from the start of nopal until they are open."""
    file = PG / "postgres"
    listed = json.loads(run(ARGS.nopal, "list", "--functions", "--json", file))
    firsts = {}
    for row in listed:
        name = row.get("symbol") or row["name"]
        firsts.setdefault(name[0], []).append(name)
    letters, n = "", 0
    for letter, names in sorted(firsts.items(), key=lambda item: len(item[1])):
        if n < N_FUNCTIONS and letter.isalpha():
            letters, n = letters + letter, n + len(names)
    script = f"uprobe:{file}:[{letters}]* {{ @ = count(); }}"
    seconds, stops, sites = [], [], ""
    with postgres() as pg:
        pg.transactions(1)
        for round_ in range(ARGS.rounds):
            note(f"  PostgreSQL, round {round_ + 1}")
            watch = Stops([pg.server.pid, *pg.children()])
            watch.start()
            start = time.monotonic()
            with nopal(pg.server.pid, "run", "-e", script) as answer:
                seconds.append(time.monotonic() - start)
                pg.transactions(1)
            watch.end()
            stops.append(watch.longest_ms)
            sites = answer["sites"]
    table(f"{n} functions of PostgreSQL 15 at their entries, {sites}",
          ["", "min", "median", "max"],
          [(what, min(values), statistics.median(values), max(values))
           for what, values in (("opened: s", seconds), ("longest stop of a process: ms", stops))])
    bar(f"{n} functions opened on a running PostgreSQL", min(seconds), 2, " s", form="{:.2f}")
    bar("longest stop meanwhile", min(stops), 5, " ms")


# Looked for where Debian installs them; what is not there is left out.
COVERED = [
    PG / "postgres", "/usr/bin/python3.11", "/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libssl.so.3",
    "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1",
    "/usr/lib/x86_64-linux-gnu/libstdc++.so.6", "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so",
]


def coverage_part():
    """Functions that have a name, and how many of them the user door opens at their entry, and at all their edges."""
    rows = []
    for file in map(pathlib.Path, [*COVERED, ARGS.nopal]):
        if not file.exists():
            continue
        functions = json.loads(run(ARGS.nopal, "list", "--functions", "--json", file))
        entered = sum(row["entry"]["door"] == "user" for row in functions)
        whole = sum(row["entry"]["door"] == "user" and row["exits"]["kernel"] == 0 and "reason" not in row["exits"]
                    for row in functions)
        percent = [f"{100 * n / len(functions):.1f}" for n in (entered, whole)]
        rows.append((file.name, len(functions), *percent))
    table("Functions that the user door opens", ["file", "functions", "entries, %", "with all exits, %"], rows)


PARTS = {"call": call_part, "postgres": postgres_part, "coverage": coverage_part}


def main():
    global FOLDER, ARGS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="5 by default, 2 with --quick")
    parser.add_argument("--quick", action="store_true", help="shorter; good for a look, not for figures")
    parser.add_argument("--nopal", type=pathlib.Path, help="a release build; without it one is made")
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    ARGS = parser.parse_args()
    if unknown := set(ARGS.parts) - set(PARTS):
        parser.error(f"no such part: {' '.join(unknown)}; there are {' '.join(PARTS)}")
    ARGS.rounds = ARGS.rounds or (2 if ARGS.quick else 5)
    if os.geteuid() != 0:
        sys.exit("bench/functions needs root: bpftrace does")
    with before_others(), tempfile.TemporaryDirectory(prefix="nopal-bench-functions") as name:
        FOLDER = pathlib.Path(name)
        FOLDER.chmod(0o755)
        note("building")
        build()
        print(f"{os.cpu_count()} CPUs, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f}")
        for part in ARGS.parts or PARTS:
            note(f"{part}: {PARTS[part].__doc__}")
            PARTS[part]()
    end()


if __name__ == "__main__":
    main()
