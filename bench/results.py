#!/usr/bin/env python3
"""Every bar beside its peers, in one run: measures, and writes bench/RESULTS.md with its pictures.

    bench/results.py --quick | --full [--only NAME,...] [--built FOLDER] [--out FOLDER]

--quick takes about seven minutes and measures what fits into them; --full measures everything, in about an hour. With --only
some benchmarks are measured anew, and what the last run of the same kind found of the others stays.

Exit code 1 if a bar is missed, 2 if something could not be measured. Needs root and the packages of bench/packages.txt.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE))
from plot import chart

# By name: what it is about, the command, and what is added to it for each of the two kinds of runs; None: not in this one.
# BUILT and NOPAL stand for the folder of the release build and the command in it.
BENCHES = {
    "stub": ("A hit, in process", ["BUILT/nopal-bench-stub"], [], []),
    "list": ("Listing probes", ["list/run.py", "--nopal", "NOPAL"], ["--rounds", "11"], []),
    "door": ("Recording through the doors", ["door/run.py", "--nopal", "NOPAL"], ["--quick", "--rounds", "1", "hit", "size", "turns"], []),
    "answers": ("Answers", ["answers/run.py", "--nopal", "NOPAL"], ["--quick", "--rounds", "1", "pair", "turns", "recording"],
                ["--rounds", "3"]),
    "functions": ("Functions", ["functions/run.py", "--nopal", "NOPAL"], ["--quick", "--rounds", "1", "call", "coverage"], []),
    "script": ("Scripts, user door", ["script/run.py", "--nopal", "NOPAL"], ["start", "cells"], []),
    "kernel": ("Scripts, kernel door", ["script/kernel.py", "--nopal", "NOPAL"], ["loss"], []),
    "view": ("Reading recordings", ["view/run.py"], ["--events", "2000000", "--repeat", "1"], []),
    "query": ("Asking recordings", ["query/run.py", "--nopal", "NOPAL"], None, []),
    "runtime": ("Probes declared at run time", ["runtime/run.py", "--built", "BUILT"], ["c", "stapsdt"], []),
    "valkey": ("Valkey", ["valkey/run.py", "--nopal", "NOPAL"], None, []),
    "serve": ("`nopal serve`", ["serve/run.py", "--nopal", "NOPAL"], None, []),
    "growth": ("Growth", ["growth/run.py", "--nopal", "NOPAL", "--curves", "CURVES"], ["--quick"], []),
}
LIMIT_S = 3600  # No benchmark takes longer.


def tables(text):
    """The Markdown tables that a benchmark prints, by title: their lines."""
    found = {}
    for title, body in re.findall(r"^### (.+)\n\n((?:\|.*\n)+)", text, re.M):
        found[title] = body.rstrip("\n").split("\n")
    return found


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def measured(name, kind, built, curves):
    """What one benchmark says: its tables, or why there are none."""
    _, command, *more = BENCHES[name]
    places = {"BUILT": str(built), "NOPAL": str(built / "nopal"), "CURVES": str(curves)}
    words = [*command, *more[kind == "full"]]
    words = [re.sub("BUILT|NOPAL|CURVES", lambda found: places[found[0]], word) for word in words]
    words[0] = words[0] if words[0].startswith("/") else str(HERE / words[0])
    print(f"{name}: {' '.join(words[1:])}", file=sys.stderr, flush=True)
    load, start = os.getloadavg()[0], time.monotonic()
    env = {**os.environ, "CARGO_TARGET_DIR": str(built.parent)}
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", timeout=LIMIT_S, env=env)
        found, said, code = tables(done.stdout), done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        found, said, code = {}, f"it took longer than {LIMIT_S} s", 2
    result = {"load": load, "seconds": time.monotonic() - start, "tables": found}
    if code not in (0, 1) or "Bars" not in found:
        result["failure"] = said.strip().split("\n")[-1] or f"exit code {code}"
        print(said[-2000:], file=sys.stderr)
    if name == "growth" and curves.exists():
        result["curves"] = json.loads(curves.read_text())
    return result


def said_by(*command):
    """The first line of what a command says of its version."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        return (done.stdout or done.stderr).strip().split("\n")[0]
    except (OSError, subprocess.TimeoutExpired):
        return "not installed"


def machine(built):
    """What was measured, on what, and beside what."""
    is_release = built.name == "release"
    kind = "a release build" if is_release else "a build for tests, whose own CPU time says nothing; the code it puts into programs is the same"
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    memory = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) / 2**20
    system = re.search(r'PRETTY_NAME="(.*)"', pathlib.Path("/etc/os-release").read_text())[1]
    is_guest = "hypervisor" in re.search(r"^flags.*", cpu, re.M)[0]
    return [
        ("nopal", kind),
        ("processor", f"{os.cpu_count()} CPUs, {re.search(r'model name.*: (.*)', cpu)[1]}{', a virtual machine' if is_guest else ''}"),
        ("memory", f"{memory:.0f} GiB"),
        ("system", f"{system}, Linux {os.uname().release}"),
        ("bpftrace", said_by("bpftrace", "--version")),
        ("LTTng", said_by("lttng", "--version")),
        ("babeltrace2", said_by("babeltrace2", "--version")),
        ("uftrace", said_by("uftrace", "--version")),
        ("PostgreSQL", said_by("/usr/lib/postgresql/15/bin/postgres", "--version")),
        ("SQLite", said_by("sqlite3", "--version").split(" ")[0]),
    ]


def figure(results, bench, row, column=1):
    """One number of a table whose first column has a row of this name."""
    for lines in results.get(bench, {}).get("tables", {}).values():
        for line in lines:
            words = cells(line)
            if words[0] == row:
                return float(words[column])
    return None


def floor(results):
    """What two sites of a pair cost without anything done at them but reading the time."""
    clock, bare = figure(results, "stub", "one reading of the clock"), figure(results, "stub", "predicate that fails")
    empty, pair = figure(results, "stub", "no stub"), figure(results, "stub", "a begin and an end")
    if None in (clock, bare, empty, pair):
        return []
    way = bare - empty
    return [
        "## The clock, and the floor under a pair", "",
        f"One reading of the time stamp counter took **{clock:.1f} ns** in this run, by itself; a pair needs two. The way from a site to its",
        "stub and back, with registers and flags kept and one comparison that fails, took "
        f"{way:.1f} ns. So no pair can be had for less",
        f"than {2 * (clock + way):.1f} ns here; kept at the source in process it was {pair:.1f} ns: {pair - 2 * (clock + way):.1f} ns for finding the "
        "thread's place,",
        "pairing, the histogram and the sums.", "",
    ]


def page(kind, results, facts):
    """RESULTS.md, and its pictures by name."""
    pictures = {}
    out = [
        "# Results", "",
        f"Written by `./x bench --{kind}`, which measures all of this; [README.md](README.md) says how, and what earlier runs found. Times are",
        "the best of their bursts, so that what else the machine does counts as little as can be.", "",
        "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts), "",
    ]
    bars = [(name, cells(line)) for name, result in results.items() for line in result["tables"].get("Bars", [])[2:]]
    n_missed = sum(words[-1] == "FAIL" for _, words in bars)
    out += ["## Bars", "", f"{len(bars)} bars, {n_missed} missed.", "",
            "| benchmark | bar | measured | allowed | |", "|---|---|---|---|---|"]
    for name, (what, value, allowed, verdict) in bars:
        strong = "**" if verdict == "FAIL" else ""
        out.append(f"| {name} | {what} | {strong}{value}{strong} | {allowed} | {strong}{verdict}{strong} |")
    out.append("")
    failed = {name: result["failure"] for name, result in results.items() if "failure" in result}
    left_out = [name for name in BENCHES if name not in results]
    if failed:
        out += ["Could not be measured:", "", *(f"- {name}: {why}" for name, why in failed.items()), ""]
    if left_out:
        out += [f"Not a part of this run: {', '.join(left_out)}.", ""]
    out += floor(results)
    for result in results.values():
        for number, drawn in enumerate(result.get("curves", [])):
            file = f"growth-{number + 1}.svg"
            pictures[file] = chart(drawn["title"], drawn["x"], drawn["y"], drawn["lines"])
            if number == 0:
                out += ["## Growth", ""]
            out += [f"![{drawn['title']}](results/{file})", ""]
    for name, result in results.items():
        out += [f"## {BENCHES[name][0]}", "", f"`{name}`, {result['seconds']:.0f} s, at a load of {result['load']:.1f} when it began.", ""]
        for title, lines in result["tables"].items():
            if title != "Bars":
                out += [f"### {title}", "", *lines, ""]
    return "\n".join(out).rstrip("\n") + "\n", pictures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = parser.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--quick", dest="kind", action="store_const", const="quick")
    kinds.add_argument("--full", dest="kind", action="store_const", const="full")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(BENCHES), metavar="NAME,...")
    parser.add_argument("--built", type=pathlib.Path, help="the folder of a release build",
                        default=pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release")
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="where RESULTS.md goes")
    args = parser.parse_args()
    if unknown := [name for name in args.only if name not in BENCHES]:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    if os.geteuid() != 0:
        sys.exit("bench/results.py needs root: bpftrace and the kernel door do")
    built = args.built.resolve()
    kept = built.parent / f"bench-results-{args.kind}.json"
    results = json.loads(kept.read_text()) if kept.exists() and set(args.only) != set(BENCHES) else {}
    for name in args.only:
        if BENCHES[name][2 + (args.kind == "full")] is not None:
            results[name] = measured(name, args.kind, built, built.parent / "bench-curves.json")
            kept.write_text(json.dumps(results))
    results = {name: results[name] for name in BENCHES if name in results}
    text, pictures = page(args.kind, results, machine(built))
    (args.out / "RESULTS.md").write_text(text)
    folder = args.out / "results"
    folder.mkdir(exist_ok=True)
    for old in folder.glob("growth-*.svg"):
        old.unlink()
    for file, svg in pictures.items():
        (folder / file).write_text(svg)
    print(text.split("\n## The clock")[0])
    print(f"written: {args.out / 'RESULTS.md'}")
    verdicts = [cells(line)[-1] for result in results.values() for line in result["tables"].get("Bars", [])[2:]]
    sys.exit(2 if any("failure" in result for result in results.values()) else int("FAIL" in verdicts))


if __name__ == "__main__":
    main()
