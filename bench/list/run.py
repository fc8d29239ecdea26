#!/usr/bin/env python3
"""Time of `nopal list` of libjvm.so beside `readelf -n` of the same file, process start included, in alternating rounds.

    bench/list/run.py [--nopal PATH] [--rounds 51] [FILE]

Bar: at most twice as long, by the medians. Exit code 1 if it is missed.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from common import bar, end, table

LIBJVM = pathlib.Path("/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so")


def once(*command):
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return (time.perf_counter() - start) * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nopal", type=pathlib.Path, help="a release build; without it one is made")
    parser.add_argument("--rounds", type=int, default=51)
    parser.add_argument("file", nargs="?", type=pathlib.Path, default=LIBJVM)
    args = parser.parse_args()
    if not args.nopal:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "nopal-cli"], cwd=ROOT, check=True)
        args.nopal = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/nopal"
    if not args.file.exists():
        sys.exit(f"{args.file} is missing: install openjdk-17-jre-headless")
    commands = {"nopal list": [args.nopal, "list", args.file], "readelf -n": ["readelf", "-n", args.file]}
    times = {name: [] for name in commands}
    for _ in range(args.rounds):
        for name, command in commands.items():
            times[name].append(once(*command))
    median = {name: statistics.median(values) for name, values in times.items()}
    table(f"{args.file.name} listed, {args.rounds} rounds", ["", "ms, median"], list(median.items()))
    bar("`nopal list` of libjvm.so: of readelf's time", median["nopal list"] / median["readelf -n"], 2, form="{:.2f}")
    end()


if __name__ == "__main__":
    main()
