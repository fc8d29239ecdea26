#!/usr/bin/env python3
"""Reading speed: `nopal view` beside babeltrace2 on the same recording, in events per CPU second.

    bench/view/run.py [--events 5000000] [--repeat 3]

Bars: text at least 8 times babeltrace2's, counting at least 10 times its counter. Exit code 1 if one is missed.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from common import bar, end, table

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def cpu_seconds(command, repeat):
    """The least CPU time of `repeat` runs, with the wall time and peak memory of that run."""
    best = None
    for _ in range(repeat):
        start = time.monotonic()
        with open(os.devnull, "w") as null:
            child = subprocess.Popen(command, stdout=null, stderr=subprocess.DEVNULL)
            _, status, usage = os.wait4(child.pid, 0)
        wall = time.monotonic() - start
        if status != 0:
            sys.exit(f"{command}: exit status {status}")
        cpu = usage.ru_utime + usage.ru_stime
        if best is None or cpu < best[0]:
            best = (cpu, wall, usage.ru_maxrss / 1024)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "nopal-cli"], cwd=ROOT, check=True)
    subprocess.run(
        ["cargo", "build", "--release", "--quiet", "-p", "nopal-trace", "--example", "make_recording"],
        cwd=ROOT,
        check=True,
    )
    folder = TARGET / "bench-view"
    shutil.rmtree(folder, ignore_errors=True)
    recording = folder / "recording"
    start = time.monotonic()
    subprocess.run([TARGET / "release/examples/make_recording", recording, str(args.events)], check=True)
    took = time.monotonic() - start
    size = sum(f.stat().st_size for f in recording.glob("channel*"))
    print(f"{args.events} events of (u64, u64), {size / args.events:.2f} bytes each, written in {took:.2f} s")

    nopal = TARGET / "release/nopal"
    counter = ["--component", "sink.utils.counter"]
    cases = [
        ("babeltrace2 text", ["babeltrace2", recording]),
        ("nopal view", [nopal, "view", recording]),
        ("nopal view --json", [nopal, "view", "--json", recording]),
        ("babeltrace2 counter", ["babeltrace2", recording, *counter]),
        ("nopal view --count", [nopal, "view", "--count", recording]),
    ]
    rates = {}
    rows = []
    for name, command in cases:
        cpu, wall, peak = cpu_seconds(command, args.repeat)
        rates[name] = args.events / cpu
        rows.append((name, f"{cpu:.2f}", f"{wall:.2f}", f"{rates[name] / 1e6:.2f}", peak))
    table(f"{args.events} events read", ["reader", "CPU s", "wall s", "million events a CPU second", "peak MiB"], rows)
    text = rates["nopal view"] / rates["babeltrace2 text"]
    count = rates["nopal view --count"] / rates["babeltrace2 counter"]
    bar("events as text a CPU second: times babeltrace2's", text, 8, at_least=True)
    bar("events counted a CPU second: times babeltrace2's", count, 10, at_least=True)
    shutil.rmtree(folder, ignore_errors=True)
    end()


if __name__ == "__main__":
    main()
