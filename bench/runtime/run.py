#!/usr/bin/env python3
"""Probes that are declared at run time: what they cost from C, Ruby and Python.

    bench/runtime/run.py [--built FOLDER] [--libstapsdt FOLDER] [LANGUAGE ...]      languages: c stapsdt ruby python

Rows: asking and firing while nobody listens, firing while nopal listens through each door, declaring and loading 1 to 1,000
probes. `stapsdt` is C through libstapsdt's functions in our library; with --libstapsdt, a folder that holds a
libstapsdt.so.0, that library is measured beside it.

Exit code 1 if a bar is missed. Needs root for the kernel door. Traces only what it starts.
"""
import argparse
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
from common import LIMIT_S, bar, end, table


ALL_CPUS = os.sched_getaffinity(0)
# The program has the last CPU; the tracer that drains its buffers has the others.
PROGRAM_CPU = max(ALL_CPUS)
OTHER_CPUS = ALL_CPUS - {PROGRAM_CPU} or ALL_CPUS

# Of the C programs, the best burst.
LIMITS = [
    ("c", "fire_ns", 4.0),
    ("c", "is_enabled_ns", 4.0),
    ("c", "user", 45.0),
    ("stapsdt", "fire_ns", 4.0),
]


def build(folder, built, peer):
    """The programs, each a command and its environment, by name."""
    flags = ["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "include", HERE / "native.c"]
    libraries = folder / "lib"
    libraries.mkdir()
    for name, copy in [("libnopal.so", "libnopal.so"), ("libstapsdt.so", "libstapsdt.so"), ("libstapsdt.so", "libstapsdt.so.0")]:
        shutil.copy(built / name, libraries / copy)
    find = [f"-L{libraries}"]
    subprocess.run(["gcc", *flags, "-o", folder / "c", *find, "-lnopal"], check=True)
    subprocess.run(["gcc", *flags, "-DSTAPSDT", "-o", folder / "stapsdt", *find, "-lstapsdt"], check=True)
    ours = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "NOPAL_LIBRARY": str(libraries / "libnopal.so")}
    programs = {"c": ([folder / "c"], ours), "stapsdt": ([folder / "stapsdt"], ours)}
    if peer:
        theirs = {**os.environ, "LD_LIBRARY_PATH": str(peer)}
        programs["libstapsdt itself"] = ([folder / "stapsdt"], theirs)
    if shutil.which("ruby"):
        programs["ruby"] = (["ruby", HERE / "ruby.rb"], ours)
    programs["python"] = ([sys.executable, HERE / "python.py"], ours)
    return programs


def start(command, env, cpus):
    return subprocess.Popen(
        [str(word) for word in command],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
    )


def result(child, what):
    stdout, stderr = child.communicate(timeout=LIMIT_S)
    if child.returncode:
        raise RuntimeError(f"{what}: exit {child.returncode}: {stderr[-500:]}")
    return json.loads(stdout.strip().splitlines()[-1])


def quiet(program):
    command, env = program
    return result(start(command, env, {PROGRAM_CPU}), command)


def traced(program, door, nopal, folder):
    """The cost of a hit while `nopal record` listens through a door."""
    command, env = program
    child = start([*command, "enabled"], env, {PROGRAM_CPU})
    try:
        ready = child.stdout.readline().split()
        out = folder / "recording"
        shutil.rmtree(out, ignore_errors=True)
        record = [nopal, "record", "-e", "bench:event", "-p", ready[1], "-o", out, "--door", door]
        tracer = start(record, os.environ, OTHER_CPUS)
        try:
            return result(child, command)["enabled_fire_ns"]
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate(timeout=LIMIT_S)
    finally:
        child.kill()
        child.communicate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--built", type=pathlib.Path, help="the folder with nopal and the libraries")
    parser.add_argument("--libstapsdt", type=pathlib.Path, help="a folder with a libstapsdt.so.0 to measure beside ours")
    parser.add_argument("languages", nargs="*", help="all of them by default")
    args = parser.parse_args()
    built = args.built
    if not built:
        packages = [word for name in ("nopal-cli", "nopal-c", "nopal-stapsdt") for word in ("-p", name)]
        subprocess.run(["cargo", "build", "--release", "--quiet", *packages], cwd=ROOT, check=True)
        built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"

    figures = {}
    with tempfile.TemporaryDirectory(prefix="nopal-bench-") as name:
        folder = pathlib.Path(name)
        programs = build(folder, built.resolve(), args.libstapsdt and args.libstapsdt.resolve())
        unknown = set(args.languages) - set(programs)
        if unknown:
            sys.exit(f"no such language: {', '.join(sorted(unknown))}; there are {', '.join(programs)}")
        for language in args.languages or programs:
            row = quiet(programs[language])
            for door in ("user", "kernel"):
                row[door] = traced(programs[language], door, built.resolve() / "nopal", folder)
            figures[language] = row
            time.sleep(0.1)

    calls = {"is_enabled_ns": "is enabled", "fire_ns": "fire, nobody listens", "user": "fire, user door", "kernel": "fire, kernel door"}
    rows = [(language, *(f"{row[key]:.1f}" for key in calls)) for language, row in figures.items()]
    table("A call: ns, best burst", ["", *calls.values()], rows)
    sizes = ("1", "10", "100", "1000")
    rows = [(language, *(f"{row['registration_us'][n]:.0f}" for n in sizes), f"{row['registration_us']['1000'] / 1000:.2f}")
            for language, row in figures.items()]
    table("Probes declared and loaded: us", ["", *sizes, "a probe, of 1000"], rows)
    for language, key, at_most in LIMITS:
        if language in figures:
            bar(f"probes declared at run time, {language}, {calls[key]}: ns", figures[language][key], at_most)
    for language, row in figures.items():
        # Linear, with what a load costs alone: ten times the probes take at most eleven times as long.
        took = row["registration_us"]
        if language != "libstapsdt itself":
            bar(f"1,000 probes declared, {language}: times as long as 100", took["1000"] / took["100"], 11)
    end()


main()
