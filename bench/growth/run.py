#!/usr/bin/env python3
"""Growth: what more probes, threads, processes and events cost.

    bench/growth/run.py [--quick] [--nopal FILE] [--curves FILE] [PART ...]      parts: probes threads processes events

Prints a Markdown table for each part and for the bars; exit code 1 if a bar is missed. With --curves the figures are also
written as JSON, to be drawn. Needs root (bpftrace) and the packages of bench/packages.txt. Traces only programs that it
builds or starts itself.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from common import LIMIT_S, Target, bar, before_others, bpftrace, end, note, obeying, run, started, table, wait_for

FOLDER = pathlib.Path()  # Of this run; set in main.
ARGS = argparse.Namespace()
CURVES = []  # What is drawn: title, axes, and lines of points.


def curve(title, x, y, lines):
    CURVES.append({"title": title, "x": x, "y": y, "lines": {name: points for name, points in lines.items() if points}})


def build():
    if not ARGS.nopal:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "nopal-cli"], cwd=ROOT, check=True)
        ARGS.nopal = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/nopal"
    flags = ["-O2", "-g", "-std=gnu11", "-Wall", "-I", ROOT / "include", "-I", ROOT / "bench/door/targets"]
    run("gcc", *flags, "-pthread", HERE / "targets/threads.c", "-o", FOLDER / "threads")
    run("gcc", *flags, "-Wno-unused-parameter", ROOT / "bench/door/targets/sdt.c", "-o", FOLDER / "one")


@contextlib.contextmanager
def recorded(pids, probe):
    """`nopal record` on running processes, from when all sites are open; what it said is in the dict when the block has
    ended, with the seconds it took to open and to leave."""
    out = FOLDER / "rec"
    shutil.rmtree(out, ignore_errors=True)
    command = [ARGS.nopal, "record", "--json", "-e", probe, "-o", out, "--door", "user", "-p", ",".join(map(str, pids))]
    result = {"recording": out}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    start = time.monotonic()
    with started(*command, end_with=signal.SIGINT, **pipes) as child:
        # The metadata is written when every site is open.
        wait_for("nopal to attach", lambda: (out / "metadata").exists() or child.poll() is not None)
        if child.poll() is not None:
            raise RuntimeError(f"nopal record: {child.stderr.read()}")
        result["open_s"] = time.monotonic() - start
        yield result
        status = pathlib.Path(f"/proc/{child.pid}/status").read_text()
        result["memory_mb"] = int(status.split("VmHWM:")[1].split()[0]) / 1024
        start = time.monotonic()
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=LIMIT_S)
        result["leave_s"] = time.monotonic() - start
        if child.returncode:
            raise RuntimeError(f"nopal record: exit {child.returncode}: {stderr}")
        result.update(json.loads(stdout))


def many_sites(n):
    """A program with so many probes, each in a function of its own, which are hit one after the other."""
    source = FOLDER / f"sites{n}.c"
    functions = [f"static void f{i}(uint64_t x) {{ DTRACE_PROBE1(grow, p{i}, x); }}" for i in range(n)]
    table_of_all = f"static void (*const all[{n}])(uint64_t) = {{ {', '.join(f'f{i}' for i in range(n))} }};"
    source.write_text(
        '#define _GNU_SOURCE\n#include "harness.h"\n#include <sys/sdt.h>\n' + "\n".join([*functions, table_of_all]) +
        f"\nstatic uint64_t next;\nMODE(run_all, all[next](i); if (++next == {n}) next = 0)\n"
        "static const struct mode modes[] = { { \"all\", run_all } };\nint main(void) { return obey(modes, 1); }\n"
    )
    program = FOLDER / f"sites{n}"
    run("gcc", "-O1", "-I", ROOT / "include", "-I", ROOT / "bench/door/targets", source, "-o", program)
    return program


def probes_part():
    """From one probe to ten thousand in one process: how long opening and leaving takes, and what a hit of one of them costs."""
    sizes = [1, 10, 100, 1000] if ARGS.quick else [1, 10, 100, 1000, 10_000]
    rows, opened, left, hits, theirs = [], [], [], [], []
    for n in sizes:
        note(f"  {n} probes")
        program = many_sites(n)
        # Each of them at least once in a burst.
        sizes_of_bursts = (max(4000, n), 60, 3000)
        with obeying(program) as t:
            untraced = t.burst("all", *sizes_of_bursts)["min"]
        with obeying(program) as t, recorded([t.pid], "grow:*") as result:
            low = t.burst("all", *sizes_of_bursts)["min"]
        missing = t.hits - result["events"] - result["lost"]
        if missing:
            raise RuntimeError(f"{t.hits} hits of {n} probes, {missing} are missing in silence")
        peer = None
        if n <= (10 if ARGS.quick else 100):
            with contextlib.suppress(subprocess.TimeoutExpired), obeying(program) as t:
                start = time.monotonic()
                with bpftrace(FOLDER, t.pid, f"usdt:{program}:grow:* {{ @c = count(); }}"):
                    peer = time.monotonic() - start
        sites = result["sites"]
        rows.append((n, f"{result['open_s']:.3f}", f"{result['leave_s']:.3f}", f"{low - untraced:.1f}", result["lost"],
                     f"{sites['user']} + {sites['kernel']}", f"{result['memory_mb']:.0f}", f"{peer:.2f}" if peer else ""))
        opened.append((n, result["open_s"]))
        left.append((n, result["leave_s"]))
        hits.append((n, low - untraced))
        theirs += [(n, peer)] if peer else []
    table("More probes in one process, recorded",
          ["probes", "opened, s", "left, s", "ns a hit", "lost", "sites, user + kernel", "MB", "bpftrace, opened, s"], rows)
    curve("Opening probes", "probes", "seconds", {"nopal, opened": opened, "nopal, left": left, "bpftrace, opened": theirs})
    curve("A hit, by the number of probes that are hit in turn", "probes", "ns a hit", {"nopal, recorded": hits})


def threads_part():
    """From one thread to two hundred that hit one probe."""
    sizes = [1, 4, 20, 200] if ARGS.quick else [1, 2, 5, 10, 20, 50, 100, 200]
    rows, points, plain = [], [], []
    for n in sizes:
        note(f"  {n} threads")
        bursts, hits = max(10, 200 // n), 1000

        def once(around):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            with started(FOLDER / "threads", n, bursts, hits, cpus=os.sched_getaffinity(0), **pipes) as child:
                child.stdout.readline()
                with around(child.pid) as result:
                    child.stdin.write("\n")
                    child.stdin.flush()
                    answer = child.stdout.readline().split()
                child.stdin.write("\n")
                child.stdin.flush()
                child.wait(LIMIT_S)
            return result, [float(word) for word in answer]

        _, (_, bare, _) = once(lambda _: contextlib.nullcontext({}))
        result, (n_hits, low, median) = once(lambda pid: recorded([pid], "grow:*"))
        if n_hits != result["events"] + result["lost"]:
            raise RuntimeError(f"{n_hits} hits, {result['events']} recorded and {result['lost']} lost")
        rows.append((n, f"{bare:.1f}", low, median, int(n_hits), result["lost"], f"{result['memory_mb']:.0f}"))
        points.append((n, median))
        plain.append((n, bare))
    table("More threads, one probe, recorded",
          ["threads", "untraced, ns", "a hit, CPU ns, best thread", "median thread", "hits", "lost", "MB"], rows)
    curve("A hit, by the number of threads", "threads", "CPU ns a hit", {"nopal, recorded": points, "untraced": plain})


def processes_part():
    """From one process to a hundred, recorded together."""
    sizes = [1, 10, 100] if ARGS.quick else [1, 3, 10, 30, 100]
    rows, opened, left, memory = [], [], [], []
    for n in sizes:
        note(f"  {n} processes")
        with contextlib.ExitStack() as stack:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            targets = [Target(stack.enter_context(started(FOLDER / "one", **pipes))) for _ in range(n)]
            with recorded([t.pid for t in targets], "door:u2") as result:
                for t in targets:
                    t.child.stdin.write("pace u2 10000 1\n")
                    t.child.stdin.flush()
                hits = sum(int(t.child.stdout.readline().split()[0]) for t in targets)
        if hits != result["events"] + result["lost"]:
            raise RuntimeError(f"{hits} hits, {result['events']} recorded and {result['lost']} lost")
        rows.append((n, f"{result['open_s']:.3f}", f"{result['leave_s']:.3f}", f"{result['memory_mb']:.0f}", hits, result["lost"]))
        opened.append((n, result["open_s"]))
        left.append((n, result["leave_s"]))
        memory.append((n, result["memory_mb"]))
    table("More processes, recorded together", ["processes", "opened, s", "left, s", "nopal's memory, MB", "hits", "lost"], rows)
    curve("Opening processes", "processes", "seconds", {"nopal, opened": opened, "nopal, left": left})
    curve("Memory of the recorder", "processes", "MB", {"nopal": memory})


def cpu_of(*command):
    """CPU seconds and peak MB of a command."""
    with open(os.devnull, "w") as null:
        child = subprocess.Popen([str(c) for c in command], stdout=null, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"{command}: status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def events_part():
    """From a thousand events to a hundred million: recorded at 5 million a second, counted, added up."""
    powers = range(3, 7 if ARGS.quick else 9)
    rows, counted, grouped, theirs, memory, n_missing = [], [], [], [], [], 0
    sql = "SELECT event, cpu, count(*) FROM events GROUP BY event, cpu"
    for power in powers:
        n = 10**power
        note(f"  {n} events")
        with obeying(FOLDER / "one") as t, recorded([t.pid], "door:u2") as result:
            t.order(f"pace u2 5000000 {n / 5e6}")
        n_missing += abs(t.hits - result["events"])
        recording = result["recording"]
        size = sum(file.stat().st_size for file in recording.glob("channel*"))
        count_s, count_mb = cpu_of(ARGS.nopal, "view", "--count", recording)
        query_s, query_mb = cpu_of(ARGS.nopal, "query", recording, sql, "--csv")
        peer_s = None
        if power <= (5 if ARGS.quick else 7):
            peer_s, _ = cpu_of("babeltrace2", recording, "--component", "sink.utils.counter")
            theirs.append((n, peer_s))
        rows.append((f"10^{power}", t.hits - result["events"], f"{size / 1e6:.2f}", f"{count_s:.3f}", f"{query_s:.3f}",
                     f"{max(count_mb, query_mb):.0f}", f"{peer_s:.3f}" if peer_s else ""))
        counted.append((n, count_s))
        grouped.append((n, query_s))
        memory.append((n, max(count_mb, query_mb)))
        shutil.rmtree(recording)
    table("More events: recorded at 5 million a second, then read",
          ["events", "not in the recording", "MB", "`view --count`, CPU s", "`query` GROUP BY, CPU s", "peak MB reading",
           "babeltrace2's counter, CPU s"], rows)
    curve("Reading a recording", "events", "CPU seconds",
          {"nopal view --count": counted, "nopal query, GROUP BY": grouped, "babeltrace2, counter": theirs})
    curve("Memory of reading", "events", "MB", {"nopal": memory})
    bar(f"10^3 to 10^{powers[-1]} events at 5 million a second: not in the recording", n_missing, 0, form="{:.0f}")


PARTS = {"probes": probes_part, "threads": threads_part, "processes": processes_part, "events": events_part}


def main():
    global FOLDER, ARGS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--nopal", type=pathlib.Path, help="a release build; without it one is made")
    parser.add_argument("--curves", type=pathlib.Path, help="where the figures go as JSON")
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    ARGS = parser.parse_args()
    if unknown := set(ARGS.parts) - set(PARTS):
        parser.error(f"no such part: {' '.join(unknown)}; there are {' '.join(PARTS)}")
    if os.geteuid() != 0:
        sys.exit("bench/growth needs root: bpftrace does")
    with before_others(), tempfile.TemporaryDirectory(prefix="nopal-bench-growth", dir=ROOT / "target") as name:
        FOLDER = pathlib.Path(name)
        note("building")
        build()
        for part in ARGS.parts or PARTS:
            note(f"{part}: {PARTS[part].__doc__}")
            PARTS[part]()
    if ARGS.curves:
        ARGS.curves.write_text(json.dumps(CURVES))
    end()


if __name__ == "__main__":
    main()
