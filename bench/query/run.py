#!/usr/bin/env python3
"""GROUP BY over a recording: `nopal query` beside babeltrace2's text through awk and into SQLite, in CPU seconds.

    bench/query/run.py [--events 10000000] [--nopal PATH]

Bars: at least 20 times as fast as the faster of the two, at most 300 MB of memory. Exit code 1 if one is missed.
"""
import argparse
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SQL = "SELECT event, cpu, count(*), min(ts), max(ts) FROM events GROUP BY event, cpu"
AWK = r"""{ ts = substr($1, 2); match($0, /cpu_id = [0-9]+/); k = $3 substr($0, RSTART, RLENGTH);
            n[k]++; if (!(k in a)) a[k] = ts; b[k] = ts } END { for (k in n) print k, n[k], a[k], b[k] }"""


def measured(command):
    """CPU time of a command with all its children, wall time, peak memory in MB of the largest, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    done = subprocess.run(command, shell=isinstance(command, str), check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, time.monotonic() - start, done.stdout


def peak_mb(command):
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{command}: exit status {status}")
    return usage.ru_maxrss / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--nopal", type=pathlib.Path)
    args = parser.parse_args()
    if args.nopal is None:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "nopal-cli"], cwd=ROOT, check=True)
        args.nopal = TARGET / "release/nopal"
    make = ["cargo", "build", "--release", "--quiet", "-p", "nopal-trace", "--example", "make_recording"]
    subprocess.run(make, cwd=ROOT, check=True)
    folder = TARGET / "bench-query"
    shutil.rmtree(folder, ignore_errors=True)
    recording = folder / "recording"
    subprocess.run([TARGET / "release/examples/make_recording", recording, str(args.events)], check=True)
    text = f"babeltrace2 --clock-seconds --no-delta {recording}"
    awk = folder / "group.awk"
    awk.write_text(AWK)
    load = (
        f"""{text} | sed -E 's/^\\[([0-9.]+)\\] [^ ]* ?([^ ]+:[^ ]+): .*cpu_id = ([0-9]+).*/\\1,\\2,\\3/' """
        f"""| sqlite3 -csv {folder}/db 'CREATE TABLE e(ts REAL, event TEXT, cpu INTEGER)' '.import /dev/stdin e' """
        f"""'SELECT event, cpu, count(*), min(ts), max(ts) FROM e GROUP BY event, cpu'"""
    )
    query = [args.nopal, "query", recording, SQL, "--csv"]
    cases = [("nopal query", query), ("babeltrace2 | awk", f"{text} | awk -f {awk}"), ("babeltrace2 | sqlite3", load)]
    print(f"{args.events} events; {'':<10}{'cpu s':>8}{'wall s':>8}{'ns an event':>13}")
    cpu = {}
    for name, command in cases:
        cpu[name], wall, out = measured(command)
        n = sum(1 for _ in out.splitlines())
        print(f"{name:<26}{cpu[name]:>8.2f}{wall:>8.2f}{cpu[name] / args.events * 1e9:>13.0f}   {n} lines")
    peak = peak_mb(query)
    times = min(cpu["babeltrace2 | awk"], cpu["babeltrace2 | sqlite3"]) / cpu["nopal query"]
    print(f"{times:.1f} times the faster of the two (bar 20); peak {peak:.0f} MB (bar 300)")
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if times >= 20 and peak <= 300 else 1)


if __name__ == "__main__":
    main()
