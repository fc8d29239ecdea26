#!/usr/bin/env python3
"""Valkey: what its tracepoints cost a GET, built with nopal's headers and with LTTng's, untraced and traced, in one run.

    bench/valkey/run.py [--rounds 6] [--quick] [--build] [PART ...]    parts: instructions cpu; both by default

Builds Valkey three times from Debian's source package (without LTTng, with nopal's headers, with LTTng's), kept below the
target folder; --build does only that. Prints a Markdown table for each part and for the bars; exit code 1 if a bar is missed.
Needs root: LTTng's daemon gets a mount namespace of its own. Traces only the servers that it starts.
"""
import argparse
import contextlib
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from common import (
    ALL_CPUS, BARS, LIMIT_S, OTHER_CPUS, TARGET_CPU, before_others, end, note, run, started, table, wait_for,
)

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
LAB = TARGET / "lab/bench-valkey"
SUITE = "sid"  # The Debian suite with Valkey 9.1.
PROGRAMS = ["valkey-server", "valkey-cli", "valkey-benchmark"]
ARGS = argparse.Namespace()
FOLDER = pathlib.Path()  # Of this run; set in main.
PAIRS = 10  # Slices of a configuration, each between two of the plain server, before it is another's turn.


# ---- builds ----


def source():
    """Valkey's tree; the tests keep it at the same place."""
    folder = TARGET / "lab/sources/valkey"
    folder.mkdir(parents=True, exist_ok=True)
    trees = [path for path in folder.iterdir() if path.is_dir()]
    if trees:
        return trees[0]
    note("fetching the source package")
    apt = TARGET / f"lab/apt-{SUITE}"
    for name in ["lists/partial", "cache/archives/partial", "sources.d"]:
        (apt / name).mkdir(parents=True, exist_ok=True)
    files = [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*")]
    words = " ".join(f.read_text() for f in files if f.is_file()).split()
    mirror = next(w for w in words if "://" in w and w.rstrip("/").endswith("/debian"))
    (apt / "sources.d/one.sources").write_text(
        f"Types: deb-src\nURIs: {mirror}\nSuites: {SUITE}\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )
    (apt / "sources.list").write_text("")
    (apt / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{apt}/sources.list";\nDir::Etc::SourceParts "{apt}/sources.d";\n'
        f'Dir::State::Lists "{apt}/lists";\nDir::Cache "{apt}/cache";\n'
    )
    run("apt-get", "-c", apt / "apt.conf", "-qq", "update")
    run("apt-get", "-c", apt / "apt.conf", "-qq", "source", "valkey", cwd=folder)
    return next(path for path in folder.iterdir() if path.is_dir())


def build():
    """Three that differ in the tracepoints alone."""
    LAB.mkdir(parents=True, exist_ok=True)
    with open(LAB / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed = LAB / "installed"
        run(ROOT / "tracee/nopal-lttng/install", installed)
        headers = sorted([*(installed / "include").rglob("*.h"), *(ROOT / "tracee/nopal-lttng").glob("*.c")])
        ours = "".join(path.read_text() for path in headers)
        for name, flags, ingredients in [
            ("plain", {}, ""),
            ("nopal", {"USE_LTTNG": "yes", "CFLAGS": f"-I{installed}/include", "LDFLAGS": f"-L{installed}/lib"}, ours),
            ("lttng", {"USE_LTTNG": "yes"}, ""),
        ]:
            folder, stamp = LAB / name, LAB / f"{name}.stamp"
            if stamp.exists() and stamp.read_text() == ingredients:
                continue
            note(f"building Valkey, {name}")
            shutil.rmtree(folder, ignore_errors=True)
            tree = LAB / "tree"
            shutil.rmtree(tree, ignore_errors=True)
            shutil.copytree(source(), tree, symlinks=True)
            run("make", f"-j{len(ALL_CPUS)}", *PROGRAMS, cwd=tree / "src", cpus=ALL_CPUS, limit_s=3600,
                env={**os.environ, **flags})
            folder.mkdir()
            for program in PROGRAMS:
                shutil.copy(tree / "src" / program, folder / program)
            shutil.rmtree(tree)
            stamp.write_text(ingredients)


# ---- a server, a load, two tracers ----


class Server:
    def __init__(self, name, port, child):
        self.folder, self.port, self.child = LAB / name, port, child

    def cli(self, *words):
        done = subprocess.run(
            [self.folder / "valkey-cli", "-p", str(self.port), *words], capture_output=True, text=True
        )
        return done.stdout.strip()

    def load(self, n, pipeline):
        """`valkey-benchmark -t get`; requests a second."""
        out = run(self.folder / "valkey-benchmark", "-p", self.port, "-t", "get", "-n", n, "-P", pipeline, "-c", 50, "--csv")
        return float(out.splitlines()[-1].split(",")[1].strip('"'))

    def cpu_ns(self):
        """Of the thread that serves."""
        return int(pathlib.Path(f"/proc/{self.child.pid}/task/{self.child.pid}/schedstat").read_text().split()[0])


@contextlib.contextmanager
def server(name, under=(), options=()):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*under, LAB / name / "valkey-server", "--port", port, "--save", "", "--dir", FOLDER, *options]
    with started(*command, cpus={TARGET_CPU}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, end_with=signal.SIGTERM) as child:
        one = Server(name, port, child)
        wait_for("the server", lambda: one.cli("PING") == "PONG")
        yield one


@contextlib.contextmanager
def nopal_records(one, result):
    out = FOLDER / "nopal"
    shutil.rmtree(out, ignore_errors=True)
    command = [ARGS.nopal, "record", "--json", "-e", "valkey_commands:*", "-p", one.child.pid, "-o", out]
    with open(FOLDER / "record.log", "w+") as log:
        with started(*command, cpus=OTHER_CPUS, end_with=signal.SIGINT, stdout=subprocess.PIPE, stderr=log) as child:
            wait_for("the sites to be open", lambda: "sites:" in (FOLDER / "record.log").read_text()
                     or (out / "metadata").exists())
            time.sleep(0.2)
            yield
            child.send_signal(signal.SIGINT)
            said = child.communicate(timeout=LIMIT_S)[0]
    last = json.loads(said.strip().splitlines()[-1])
    result.update(events=last["events"], lost=last["lost"])


@contextlib.contextmanager
def lttng_records(one, result):
    out = FOLDER / "lttng"
    shutil.rmtree(out, ignore_errors=True)
    run("lttng", "create", "bench", "--output", out)
    run("lttng", "enable-event", "-u", "valkey_commands:*")
    run("lttng", "track", "-u", "-p", one.child.pid)
    run("lttng", "start")
    time.sleep(0.2)
    yield
    said = run("lttng", "stop") + run("lttng", "destroy", "bench")
    events = run(ARGS.nopal, "view", "--count", out).split("total")[0].split()[-1]
    result.update(events=int(events), said=said)


# ---- parts ----


def part_instructions():
    """instructions of a GET, by callgrind"""
    counts = {}
    small, large = (4_000, 20_000) if ARGS.quick else (10_000, 50_000)
    for name in ["plain", "nopal", "lttng"]:
        totals = []
        for n in [small, large]:
            under = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
            # What the server does by the clock is no part of a request.
            with server(name, under, ["--hz", "1"]) as one:
                one.load(n, 16)
                one.cli("SHUTDOWN", "NOSAVE")
                said = one.child.communicate(timeout=LIMIT_S)[1]
            totals.append(int(re.search(r"Collected\s*:\s*(\d+)", said).group(1)))
        counts[name] = (totals[1] - totals[0]) / (large - small)
    rows = [(name, f"{count:.0f}", f"{count / counts['plain']:.4f}") for name, count in counts.items()]
    table(f"User instructions of a GET, P16, nothing traced ({small:,} to {large:,} requests)",
          ["Valkey built with", "instructions", "of plain"], rows)
    ratio = counts["nopal"] / counts["plain"]
    BARS.append(("instructions of a GET, built in and not traced", f"{(ratio - 1) * 100:+.2f} %", "0.5 %", ratio <= 1.005))


PLAIN = "no LTTng built in"
RECORDED = "nopal's headers, nopal records commands"
CONFIGURATIONS = [
    ("nopal's headers, not traced", "nopal", None),
    (RECORDED, "nopal", nopal_records),
    ("LTTng's headers, not traced", "lttng", None),
    ("LTTng's headers, LTTng records commands", "lttng", lttng_records),
]


def part_cpu():
    """server CPU of a GET, and loss"""
    for pipeline, n in [(1, 10_000), (16, 60_000)]:
        cpu, rate, ratios, lost = {PLAIN: []}, {PLAIN: []}, {}, {}

        def slice_of(what, one):
            before = one.cpu_ns()
            rate.setdefault(what, []).append(one.load(n, pipeline))
            cpu.setdefault(what, []).append((one.cpu_ns() - before) / n)
            return cpu[what][-1]

        for _ in range(ARGS.rounds):
            # Where a server's code and data come to lie is drawn at its start and worth some percent, and so is what else
            # the machine has to do: new servers every round, all of them up at once, and short slices, each between two
            # of the plain server.
            with contextlib.ExitStack() as up:
                servers = {name: up.enter_context(server(name)) for name in ["plain", "nopal", "lttng"]}
                for one in servers.values():
                    one.load(n, pipeline)
                for what, name, tracer in CONFIGURATIONS:
                    result = {}
                    with tracer(servers[name], result) if tracer else contextlib.nullcontext():
                        before = slice_of(PLAIN, servers["plain"])
                        for _ in range(PAIRS):
                            own = slice_of(what, servers[name])
                            after = slice_of(PLAIN, servers["plain"])
                            ratios.setdefault(what, []).append(own / ((before + after) / 2))
                            before = after
                    if tracer:
                        # The client sends a few commands of its own.
                        missing = max(0, n * PAIRS - result["events"], result.get("lost", 0))
                        lost[what] = lost.get(what, 0) + missing

        def row(what):
            of_plain = ""
            if what in ratios:
                low, middle, high = statistics.quantiles(ratios[what])
                of_plain = f"{middle:.3f} ({low:.3f} to {high:.3f})"
            loss = f"{lost[what]:,} ({lost[what] / (n * len(cpu[what])):.1%})" if what in lost else ""
            return (what, f"{min(cpu[what]) / 1000:.3f}", f"{statistics.median(cpu[what]) / 1000:.3f}", of_plain,
                    f"{statistics.median(rate[what]):,.0f}", loss)

        table(f"`valkey-benchmark -t get -P {pipeline}`, {len(cpu[RECORDED])} slices of {n:,} requests, "
              f"{ARGS.rounds} starts of each server",
              ["", "server CPU us, min", "median", "of plain beside it, median (quartiles)", "requests a second", "events lost"],
              [row(what) for what in [PLAIN, *(what for what, *_ in CONFIGURATIONS)]])
        if pipeline == 16:
            ratio = statistics.median(ratios[RECORDED])
            BARS.append(("server CPU of a GET at P16, commands recorded", f"{ratio:.3f}x", "1.10x", ratio <= 1.10))
        BARS.append((f"events lost at P{pipeline}", f"{lost[RECORDED]:,}", "0", lost[RECORDED] == 0))


PARTS = {"instructions": part_instructions, "cpu": part_cpu}


def main():
    global FOLDER, ARGS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--quick", action="store_true", help="shorter; good for a look, not for figures")
    parser.add_argument("--build", action="store_true", help="build Valkey and end")
    parser.add_argument("--nopal", type=pathlib.Path, help="a release build; without it one is made")
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    ARGS = parser.parse_args()
    unknown = set(ARGS.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {' '.join(unknown)}; there are {' '.join(PARTS)}")
    if ARGS.quick:
        ARGS.rounds = 2
    if os.geteuid() != 0:
        sys.exit("bench/valkey needs root: LTTng's daemon gets a mount namespace of its own")
    build()
    if ARGS.build:
        return
    if not ARGS.nopal:
        run("cargo", "build", "--release", "--quiet", "-p", "nopal-cli", cwd=ROOT, cpus=ALL_CPUS, limit_s=3600)
        ARGS.nopal = TARGET / "release/nopal"
    ARGS.nopal = ARGS.nopal.absolute()
    if "BENCH_VALKEY_INSIDE" not in os.environ:
        # As root, LTTng's daemon has fixed places for its sockets and buffers; ours gets a private view of them, and
        # meets no other.
        inside = 'mount -t tmpfs none /run && mkdir /run/lttng && mount -t tmpfs none /dev/shm && exec "$@"'
        os.environ["BENCH_VALKEY_INSIDE"] = "1"
        # The last --nopal counts.
        os.execvp("unshare", ["unshare", "--mount", "sh", "-ec", inside, "sh", sys.executable, *sys.argv,
                              "--nopal", str(ARGS.nopal)])
    with before_others(), tempfile.TemporaryDirectory(prefix="nopal-bench-valkey") as name:
        FOLDER = pathlib.Path(name)
        os.environ["HOME"] = os.environ["LTTNG_HOME"] = name
        print(f"{os.cpu_count()} CPUs, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f}")
        daemon = ["lttng-sessiond", "--quiet"]
        with started(*daemon, end_with=signal.SIGTERM, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
            wait_for("LTTng's daemon", lambda: pathlib.Path("/run/lttng/client-lttng-sessiond").exists())
            for part in ARGS.parts or PARTS:
                note(PARTS[part].__doc__)
                PARTS[part]()
    end()


if __name__ == "__main__":
    main()
