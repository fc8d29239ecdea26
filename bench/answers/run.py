#!/usr/bin/env python3
"""Answers: what `nopal latency` costs the traced program, and how fast it answers from a recording, beside its peers.

    bench/answers/run.py [--rounds 5] [--quick] [PART ...]

Parts: pair postgres turns recording; all of them by default.

Prints a Markdown table for each part and for the bars; exit code 1 if a bar is missed. Needs root (bpftrace, bcc) and the
packages of bench/packages.txt. Traces only programs that it builds or starts itself.
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from common import (
    LIMIT_S, bar, before_others, bpftrace, end, note, obeying, postgres, run, started, table,
    traced_in_turns, wait_for,
)

FOLDER = pathlib.Path()  # Of this run; set in main.
ARGS = argparse.Namespace()


def build():
    if not ARGS.nopal:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "nopal-cli"], cwd=ROOT, check=True)
        ARGS.nopal = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/nopal"
    includes = ["-I", ROOT / "include", "-I", ROOT / "bench/door/targets"]
    run("gcc", "-O2", "-g", "-std=gnu11", "-Wall", *includes, HERE / "targets/pair.c", "-o", FOLDER / "pair")


@contextlib.contextmanager
def latency(pid, *options):
    """`nopal latency` on a running process; its answer is in the dict when the block has ended."""
    command = [ARGS.nopal, "latency", *options, "--json", "-v", "-p", pid]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    result = {}
    with started(*command, end_with=signal.SIGINT, **pipes) as child:
        said = ""
        for line in child.stderr:
            said += line
            if line.startswith("sites:"):
                break
        else:
            raise RuntimeError(f"nopal latency: {said}")
        result["way"] = re.search(r"^spans: .*", said, re.M)[0]
        result["sites"] = re.search(r"^sites: (.*)", said, re.M)[1]
        yield result
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=LIMIT_S)
        if child.returncode:
            raise RuntimeError(f"nopal latency: exit {child.returncode}: {stderr}")
        result.update(json.loads(stdout))


class Unavailable(Exception):
    """A peer cannot run on this machine."""


@contextlib.contextmanager
def funclatency(pid):
    """bcc's tool on the function that has the span within it."""
    out = FOLDER / "funclatency.out"
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    command = ["funclatency-bpfcc", "-p", pid, f"{FOLDER / 'pair'}:ans_work"]
    with open(out, "w") as file, started(
        *command, end_with=signal.SIGINT, stdout=file, stderr=subprocess.STDOUT, env=env
    ) as child:
        wait_for("funclatency to attach", lambda: "Hit Ctrl-C" in out.read_text() or child.poll() is not None)
        if child.poll() is not None:
            said = out.read_text()
            # It compiles C for the kernel it runs on.
            raise Unavailable("no kernel headers") if "kernel headers" in said else RuntimeError(f"funclatency: {said}")
        yield


def pair_part():
    """A begin and an end, added up."""
    fast, slow = (4000, 150, 1000), (500, 60, 1000)
    names = ["ans:work__start", "ans:work__done"]
    maps = (
        f'usdt:{FOLDER / "pair"}:ans:work__start {{ @s[tid] = nsecs; }} '
        f'usdt:{FOLDER / "pair"}:ans:work__done /@s[tid]/ {{ @h = hist(nsecs - @s[tid]); delete(@s[tid]); }}'
    )

    def by_nopal(sizes, way, *options):
        with obeying(FOLDER / "pair") as t, latency(t.pid, *names, *options) as answer:
            timing = t.burst("pair", *sizes)
        counted = answer["rows"][0]["count"] if answer["rows"] else 0
        if way not in answer["way"] or counted + answer["lost"] < t.hits and answer["complete"]:
            raise RuntimeError(f"{answer['way']}: {counted} of {t.hits}")
        return {**timing, "missing": t.hits - counted}

    def by_bpftrace():
        with obeying(FOLDER / "pair") as t, bpftrace(FOLDER, t.pid, maps):
            return {**t.burst("pair", *slow), "missing": ""}

    def by_bcc():
        with obeying(FOLDER / "pair") as t, funclatency(t.pid):
            return {**t.burst("call", *slow), "missing": ""}

    def untraced(mode):
        with obeying(FOLDER / "pair") as t:
            return {**t.burst(mode, *fast), "missing": 0}

    user = ["--door", "user"]
    cases = {
        "untraced": lambda: untraced("pair"),
        "nopal, at the source": lambda: by_nopal(fast, "kept", *user),
        "nopal, at the source, --slowest 0": lambda: by_nopal(fast, "kept", *user, "--slowest", 0),
        "nopal, streamed": lambda: by_nopal(fast, "streamed", *user, "--streamed"),
        "nopal, kernel door": lambda: by_nopal(slow, "streamed", "--door", "kernel"),
        "bpftrace, nsecs in a map": by_bpftrace,
        "bcc funclatency (a function)": by_bcc,
    }
    runs, absent = {case: [] for case in cases}, {}
    for round_ in range(ARGS.rounds):
        for case, once in cases.items():
            if "nopal, at" not in case and round_ >= 2:
                continue
            note(f"  round {round_ + 1}: {case}")
            try:
                runs[case].append(once())
            except Unavailable as why:
                absent[case] = why
    rows = [(case, "-", "-", f"cannot run here: {why}") for case, why in absent.items()]
    runs = {case: results for case, results in runs.items() if results}
    for case, results in runs.items():
        median = statistics.median(r["median"] for r in results)
        rows.append((case, min(r["min"] for r in results), median, results[0]["missing"]))
    table("A begin and an end", ["tracer", "min ns", "median ns", "spans missing"], rows)
    low = {case: min(r["min"] for r in results) for case, results in runs.items()}
    bar("a pair kept at the source: ns", low["nopal, at the source"], 50)
    bar("of bpftrace's", low["nopal, at the source"] / low["bpftrace, nsecs in a map"], 0.1, form="{:.3f}")


def postgres_part():
    """CPU of a transaction of PostgreSQL with `latency` on all its spans, and on the one that is asked for by name."""
    seconds, rounds = 2, 2 * ARGS.rounds
    # The busiest site, where a lightweight lock is let go, has no room for a jump in some builds; --relocate makes it.
    ways = {
        "all": ["postgresql:*"],
        "all, --slowest 0": ["postgresql:*", "--slowest", 0],
        "lwlock, by name": ["lwlock"],
        "lwlock, by name, --relocate": ["lwlock", "--relocate"],
    }
    costs, n_spans, sites = {way: [] for way in ["untraced", *ways]}, {"untraced": 0}, {"untraced": ""}
    with postgres() as pg:
        pg.transactions(1)  # Warms up.
        for round_ in range(rounds):
            note(f"  PostgreSQL, round {round_ + 1}")
            costs["untraced"] += pg.transactions(seconds)[0]
            for way, options in ways.items():
                with latency(pg.server.pid, *options) as answer:
                    cost, count = pg.transactions(seconds)
                costs[way] += cost
                sites[way] = answer["sites"] + ("; at the source" if answer["kept_at_source"] else "; streamed")
                n_spans[way] = sum(row["count"] for row in answer["rows"]) / count
    least = min(costs["untraced"])
    more = {way: (min(cost) / least - 1) * 100 for way, cost in costs.items()}
    rows = [(way, min(cost), statistics.median(cost), more[way], n_spans[way], sites[way]) for way, cost in costs.items()]
    table("PostgreSQL 15, pgbench -S, `nopal latency`",
          ["spans", "CPU us a transaction, min", "median", "% more by the minima", "spans a transaction", "sites"], rows)


def turns_part():
    """CPU of a backend of PostgreSQL with `latency` on all its spans, in turns with one that nobody traces."""
    workloads = {"pgbench -S -M prepared": ["-S", "-M", "prepared"], "pgbench -S": ["-S"]}
    rows, more = [], {}
    with postgres() as pg:
        for workload, options in workloads.items():
            tracer = lambda backend: latency(backend, "postgresql:*")
            traced, untraced = traced_in_turns(pg, options, max(ARGS.rounds, 3), tracer)
            more[workload] = statistics.median(traced)
            rows.append((workload, more[workload], min(traced), max(traced), statistics.median(untraced)))
    table("PostgreSQL 15, `nopal latency` on all spans of one of two backends that take turns",
          ["work", "% more CPU an answer", "least", "most", "% while neither is traced"], rows)
    for workload, percent in more.items():
        bar(f"PostgreSQL, {workload}: more CPU with latency of all spans", percent, 10, " %")


def cpu_of(command):
    """CPU seconds and peak MB of a shell command."""
    with open(os.devnull, "w") as null:
        child = subprocess.Popen(["sh", "-c", command], stdout=null, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"{command}: status {status}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def recording_part():
    """An answer from a recording, beside babeltrace2 through awk."""
    n_pairs = 500_000 if ARGS.quick else 2_500_000
    recording = FOLDER / "rec"
    with obeying(FOLDER / "pair") as t:
        command = [ARGS.nopal, "record", "-e", "ans:*", "-p", t.pid, "-o", recording, "--door", "user"]
        with started(*command, end_with=signal.SIGINT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            wait_for("nopal to attach", lambda: (recording / "metadata").exists() or child.poll() is not None)
            t.order(f"pace pair 1000000 {n_pairs / 1e6}")
            child.send_signal(signal.SIGINT)
            child.wait(LIMIT_S)
    awk = FOLDER / "pairs.awk"
    awk.write_text(
        '{ split(substr($1, 2, 18), t, ":"); now = (t[1] * 60 + t[2]) * 60 + t[3]; match($0, /vtid = [0-9]+/);\n'
        '  tid = substr($0, RSTART + 7, RLENGTH - 7) }\n'
        '/work__start/ { begun[tid] = now }\n'
        '/work__done/ { n++; sum += now - begun[tid]; bucket[int(log(1e9 * (now - begun[tid]) + 1) / log(2))]++ }\n'
        'END { print n, sum; for (b in bucket) print b, bucket[b] }\n'
    )
    ours = f"{ARGS.nopal} latency ans:work__start ans:work__done --json --recording {recording}"
    counted = json.loads(run("sh", "-c", ours))["rows"][0]["count"]
    repeat = 1 if ARGS.quick else 3
    nopal_s, nopal_mb = min(cpu_of(ours) for _ in range(repeat))
    peer_s, peer_mb = min(cpu_of(f"babeltrace2 {recording} | awk -f {awk}") for _ in range(repeat))
    rows = [("nopal latency", nopal_s, nopal_mb, ""), ("babeltrace2 into awk", peer_s, peer_mb, f"{peer_s / nopal_s:.1f}")]
    table(f"{2 * counted} events answered", ["", "CPU s", "peak MB", "times"], rows)
    bar("nopal's CPU of babeltrace2's and awk's", nopal_s / peer_s, 0.05, form="{:.3f}")
    bar("peak memory", nopal_mb, 300, " MB", form="{:.0f}")


PARTS = {"pair": pair_part, "postgres": postgres_part, "turns": turns_part, "recording": recording_part}


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
        sys.exit("bench/answers needs root: bpftrace and bcc do")
    with before_others(), tempfile.TemporaryDirectory(prefix="nopal-bench-answers") as name:
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
