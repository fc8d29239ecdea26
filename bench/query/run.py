#!/usr/bin/env python3
"""Recordings asked and shown: `nopal query` beside babeltrace2's text through awk and into SQLite, and `nopal report`, in CPU seconds;
and how long Chromium takes to open the report.

    bench/query/run.py [--events 10000000] [--nopal PATH] [group] [report]

Bars: GROUP BY at least 20 times as fast as the faster of the two, at most 300 MB of memory; a report in 20 s, opened
in 2 s. Exit code 1 if one is missed.
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
sys.path.insert(0, str(ROOT / "tests/fixtures/readers"))
sys.path.insert(0, str(ROOT / "bench"))
from browser import Browser, check_charts
from common import bar, end, table

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SQL = "SELECT event, cpu, count(*), min(ts), max(ts) FROM events GROUP BY event, cpu"
# Others that are answered without SQLite seeing the rows, and one that is not.
MORE = [
    "SELECT first % 1000, count(*), avg(first) FROM bench_pair WHERE first > 1000 GROUP BY 1",
    "SELECT cpu, percentile_cont(0.99) WITHIN GROUP (ORDER BY first) FROM bench_pair GROUP BY cpu",
    "SELECT cpu, count(*) FROM bench_pair WHERE +cpu >= 0 GROUP BY cpu",
]
AWK = r"""{ ts = substr($1, 2); match($0, /cpu_id = [0-9]+/); k = $3 substr($0, RSTART, RLENGTH);
            n[k]++; if (!(k in a)) a[k] = ts; b[k] = ts } END { for (k in n) print k, n[k], a[k], b[k] }"""
MAX_REPORT_S = 20
MAX_OPEN_S = 2


def measured(command):
    """CPU time of a command with all its children, wall time, and its output."""
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


COLUMNS = ["", "CPU s", "wall s", "CPU ns an event", ""]


def row(name, cpu, wall, events, note=""):
    return (name, f"{cpu:.2f}", f"{wall:.2f}", f"{cpu / events * 1e9:.0f}", note)


def group(args, folder, make):
    recording = folder / "recording"
    subprocess.run([make, recording, str(args.events)], check=True)
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
    cpu, rows = {}, []
    for name, command in cases:
        cpu[name], wall, out = measured(command)
        rows.append(row(name, cpu[name], wall, args.events, f"{len(out.splitlines())} lines"))
    for sql in MORE:
        seconds, wall, _ = measured([args.nopal, "query", recording, sql, "--csv"])
        rows.append(row("nopal query", seconds, wall, args.events, f"`{sql}`"))
    table(f"Groups of {args.events} events", COLUMNS, rows)
    peak = max(peak_mb([args.nopal, "query", recording, sql, "--csv"]) for sql in [SQL, MORE[0], MORE[1]])
    times = min(cpu["babeltrace2 | awk"], cpu["babeltrace2 | sqlite3"]) / cpu["nopal query"]
    bar("GROUP BY: times as fast as the faster of babeltrace2 into awk and into SQLite", times, 20, at_least=True)
    bar("GROUP BY: peak memory", peak, 300, " MB", form="{:.0f}")


def report(args, folder, make):
    recording, page = folder / "spans", folder / "report.html"
    subprocess.run([make, recording, str(args.events), "spans"], check=True)
    command = [args.nopal, "report", recording, "-o", page]
    cpu, wall, _ = measured(command)
    size = page.stat().st_size / 1e6
    opened = min(opening(page) for _ in range(3))
    page.unlink()
    peak = peak_mb(command)
    note = f"{size:.1f} MB of page, peak {peak:.0f} MB"
    table(f"A report of {args.events} events", COLUMNS, [row("nopal report", cpu, wall, args.events, note)])
    bar("a report written: CPU", cpu, MAX_REPORT_S, " s")
    bar("a report opened in Chromium", opened, MAX_OPEN_S, " s", form="{:.2f}")


def opening(page):
    """From asking a Chromium that runs for a page until all of it is drawn."""
    browser = Browser()
    try:
        start = time.monotonic()
        browser.open(page)
        took = time.monotonic() - start
        check_charts(browser)
        return took
    finally:
        browser.close()


PARTS = {"group": group, "report": report}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--nopal", type=pathlib.Path)
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    args = parser.parse_args()
    if unknown := [part for part in args.parts if part not in PARTS]:
        parser.error(f"no such part: {' '.join(unknown)}; there are {' '.join(PARTS)}")
    if args.nopal is None:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "nopal-cli"], cwd=ROOT, check=True)
        args.nopal = TARGET / "release/nopal"
    build = ["cargo", "build", "--release", "--quiet", "-p", "nopal-trace", "--example", "make_recording"]
    subprocess.run(build, cwd=ROOT, check=True)
    make = TARGET / "release/examples/make_recording"
    folder = TARGET / "bench-query"
    for part in args.parts or PARTS:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        PARTS[part](args, folder, make)
    shutil.rmtree(folder, ignore_errors=True)
    end()


if __name__ == "__main__":
    main()
