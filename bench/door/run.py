#!/usr/bin/env python3
"""The doors: what recording costs the traced program, beside LTTng-UST and bpftrace, in one run.

    bench/door/run.py [--rounds 5] [--quick] [PART ...]      parts: hit loss size postgres turns; all of them by default

Prints a Markdown table for each part and for the bars; exit code 1 if a bar is missed. Needs root (bpftrace, the kernel
door) and the packages of bench/packages.txt. Traces only programs that it builds or starts itself.

Times are ns per hit as the traced program sees them: min is the best chunk of all rounds, median the middle one of the
rounds' medians. On a machine with other load min is what can be compared.
"""
import argparse
import contextlib
import glob
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
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from common import (
    LIMIT_S, OTHER_CPUS, bar, before_others, bpftrace, end, note, obeying, postgres, run, started, table, traced_in_turns,
    wait_for,
)

FOLDER = pathlib.Path()  # Of this run; set in main.
ARGS = argparse.Namespace()


@contextlib.contextmanager
def target(name):
    with obeying(FOLDER / name, env={**os.environ, "LTTNG_UST_REGISTER_TIMEOUT": "-1"}) as t:
        yield t


def build():
    if not ARGS.nopal:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "nopal-cli"], cwd=ROOT, check=True)
        ARGS.nopal = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/nopal"
    flags = ["-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-parameter"]
    source = HERE / "targets"
    ours = ["-I", ROOT / "include"]
    run("gcc", *flags, *ours, source / "sdt.c", "-o", FOLDER / "nop10")
    run("gcc", *flags, source / "sdt.c", "-o", FOLDER / "nop1")
    run("gcc", *flags, *ours, source / "named.c", "-o", FOLDER / "named")
    ust = [source / "ust.c", source / "ust_events.c", "-I", source, "-llttng-ust", "-ldl"]
    run("gcc", *flags, *ust, "-o", FOLDER / "ust")


# ---- tracers: each a block in which the target is traced; what came of it is in the dict when the block has ended ----


def stream_bytes(folder, pattern):
    files = glob.glob(f"{folder}/**/{pattern}", recursive=True)
    return sum(os.path.getsize(f) for f in files if "/index/" not in f)


@contextlib.contextmanager
def nopal(traced, *options, probe="door:*"):
    """`nopal record` attached to a running process."""
    out = FOLDER / "nopal.rec"
    shutil.rmtree(out, ignore_errors=True)
    command = [ARGS.nopal, "record", "--json", "-e", probe, "-p", traced, "-o", out, *options]
    result = {}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(*command, end_with=signal.SIGINT, **pipes) as child:
        # The metadata is written when every site is open.
        wait_for("nopal to attach", lambda: (out / "metadata").exists() or child.poll() is not None)
        if child.poll() is not None:
            raise RuntimeError(f"nopal record: {child.stderr.read()}")
        yield result
        child.send_signal(signal.SIGINT)
        stdout, stderr = child.communicate(timeout=LIMIT_S)
        if child.returncode:
            raise RuntimeError(f"nopal record: exit {child.returncode}: {stderr}")
        result.update(json.loads(stdout))
        usage = resource_of_children()
        result["cpu_s"] = usage - result.pop("cpu_before", usage)
    result["disk"] = stream_bytes(out, "channel*")
    shutil.rmtree(out)


def resource_of_children():
    times = os.times()
    return times.children_user + times.children_system


@contextlib.contextmanager
def session_daemon():
    pidfile = FOLDER / "sessiond.pid"
    run("taskset", "-c", ",".join(map(str, OTHER_CPUS)), "lttng-sessiond", "--daemonize", "--pidfile", pidfile)
    pid = int(pidfile.read_text())
    group = pathlib.Path(f"/proc/{pid}/autogroup")
    if group.exists():
        group.write_text("-15")  # As a daemon it has a session of its own; see before_others.
    try:
        yield
    finally:
        os.kill(pid, signal.SIGTERM)
        wait_for("lttng-sessiond to end", lambda: not os.path.exists(f"/proc/{pid}"))


@contextlib.contextmanager
def lttng(*contexts):
    """A session of LTTng with its default channel: buffers per user, 4 of 512 KiB a CPU, discarding."""
    out = FOLDER / "lttng.rec"
    result = {}
    run("lttng", "create", "door", f"--output={out}")
    try:
        run("lttng", "enable-channel", "-u", "ch")
        run("lttng", "enable-event", "-u", "-c", "ch", "door:*")
        if contexts:
            run("lttng", "add-context", "-u", "-c", "ch", *(f"--type={c}" for c in contexts))
        run("lttng", "start")
        yield result
        run("lttng", "stop")
        result["lost"] = sum(map(int, re.findall(r"Discarded events: (\d+)", run("lttng", "list", "door"))))
    finally:
        run("lttng", "destroy", "door")
    result["disk"] = stream_bytes(out, "ch_*")
    shutil.rmtree(out)


@contextlib.contextmanager
def by_script(name, pid, action):
    """bpftrace on a probe of the target; counts the events."""
    with bpftrace(FOLDER, pid, f"usdt:{FOLDER / name}:door:{action}") as result:
        yield result
    counted = re.search(r"^@c: (\d+)", result["text"], re.M)
    lines = result["text"].splitlines()
    result["events"] = int(counted[1]) if counted else sum(line.startswith("ev ") for line in lines)


# ---- the parts ----

# By program: nopal's header, systemtap's, nopal.h.
SITES = {"nop10": "nop, nop10", "nop1": "1-byte nop", "named": "nop, nop10"}


def hit_part():
    """What one hit costs."""
    ours = ["--provider", HERE / "targets/door.d"]
    fast, slow = (4000, 150, 3000), (500, 60, 2000)

    def by_nopal(name, mode, sizes, *options):
        with target(name) as t, nopal(t.pid, *options) as result:
            timing = t.burst(mode, *sizes)
        # What is lost and said to be is one thing, what is missing in silence another.
        if t.hits != result["events"] + result["lost"]:
            raise RuntimeError(f"{t.hits} hits, {result['events']} recorded and {result['lost']} lost")
        return {**timing, "missing": result["lost"]}

    def by_lttng(mode, *contexts):
        with lttng(*contexts) as result, target("ust") as t:
            timing = t.burst(mode, *fast)
        return {**timing, "missing": result["lost"]}

    def by_bpftrace(name, mode, action):
        for _ in range(3):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return by_bpftrace_once(name, mode, action)
        raise RuntimeError("bpftrace hung three times")

    def by_bpftrace_once(name, mode, action):
        with target(name) as t, by_script(name, t.pid, f"{mode} {{ {action}; }}") as result:
            timing = t.burst(mode, *slow)
        return {**timing, "missing": t.hits - result["events"]}

    def untraced(name):
        with target(name) as t:
            return {**t.burst("u2", *fast), "missing": 0}

    user, kernel = ["--door", "user", *ours], ["--door", "kernel", *ours]
    two, text = "(u64, u64)", "(20-byte string, u64)"
    show2, show = 'printf("ev %lu %lu\\n", arg0, arg1)', 'printf("ev %s %lu\\n", str(arg0), arg1)'
    cases = [("untraced", two, SITES[name], lambda name=name: untraced(name)) for name in ("nop10", "nop1")]
    for mode, fields, show in (("u2", two, show2), ("str", text, show)):
        for name in ("nop10", "nop1"):
            cases.append(("nopal, user door", fields, SITES[name],
                          lambda name=name, mode=mode: by_nopal(name, mode, fast, *user)))
        if mode == "str":
            cases.append(("nopal, user door, string vouched for by nopal.h", fields, SITES["named"],
                          lambda: by_nopal("named", "str", fast, "--door", "user")))
        cases.append(("LTTng-UST", fields, "-", lambda mode=mode: by_lttng(mode)))
        cases.append(("LTTng-UST, vpid and vtid", fields, "-", lambda mode=mode: by_lttng(mode, "vpid", "vtid")))
        for name in ("nop10", "nop1"):
            cases.append(("nopal, kernel door", fields, SITES[name],
                          lambda name=name, mode=mode: by_nopal(name, mode, slow, *kernel)))
        for name in ("nop10", "nop1"):
            for label, action in (("bpftrace count()", "@c = count()"), ("bpftrace printf", show)):
                cases.append((label, fields, SITES[name],
                              lambda name=name, mode=mode, action=action: by_bpftrace(name, mode, action)))
    runs = {case[:3]: [] for case in cases}
    with session_daemon():
        for round_ in range(ARGS.rounds):
            for *key, once in cases:
                if "bpftrace" in key[0] and round_ >= 2:
                    continue  # An attach and a detach of it take half a second; nothing here hangs on its last nanosecond.
                note(f"  round {round_ + 1}: {', '.join(key)}")
                runs[tuple(key)].append(once())
    low = {key: min(r["min"] for r in results) for key, results in runs.items()}
    rows = []
    for key, results in runs.items():
        ratio = f"{low[key] / low[('LTTng-UST', key[1], '-')]:.2f}"
        missing = max(r["missing"] for r in results)
        rows.append((*key, low[key], statistics.median(r["median"] for r in results), ratio, missing))
    columns = ["tracer", "fields", "site", "min ns", "median ns", "of LTTng's min", "events lost"]
    table("One hit, with time stamp; nopal with pid and tid", columns, rows)
    for name in ("nop10", "nop1"):
        ours = low[("nopal, user door", two, SITES[name])]
        bar(f"{two}, {SITES[name]}: ns a hit", ours, 30)
        bar(f"{two}, {SITES[name]}: of LTTng-UST without tid", ours / low[("LTTng-UST", two, "-")], 0.25, form="{:.3f}")
        bar(f"{text}, {SITES[name]}: ns a hit", low[("nopal, user door", text, SITES[name])], 170)
    trusted = low[("nopal, user door, string vouched for by nopal.h", text, SITES["named"])]
    bar(f"{text}, vouched for: ns a hit", trusted, 45)
    lost = [row for row in rows if row[0].startswith("nopal, user") and row[6]]
    bar("bursts by the user door: events lost", sum(row[6] for row in lost), 0, form="{:.0f}")


def loss_part():
    """No loss at 5 million events a second."""
    seconds = 2 if ARGS.quick else 10
    rows, missing = [], {}
    # 16M is the default on a machine of up to four CPUs and holds 80 ms of this.
    for name, ring in (("nop10", "16M"), ("nop1", "16M"), ("nop1", "4M")):
        note(f"  {seconds} s at 5 M/s, {name}, {ring}")
        with target(name) as t, nopal(t.pid, "--door", "user", "--buffer-size", ring) as result:
            result["cpu_before"] = resource_of_children()
            (took,) = t.order(f"pace u2 5000000 {seconds}")
        missing[ring] = missing.get(ring, 0) + abs(t.hits - result["events"])
        rows.append((SITES[name], ring, t.hits, took, t.hits / took / 1e6, result["events"], result["lost"],
                     result["cpu_s"] * 1e9 / t.hits))
    columns = ["site", "ring a CPU", "hits", "s", "M/s", "recorded", "lost", "recorder's CPU ns an event"]
    table("Loss, one thread, (u64, u64) with time, pid and tid", columns, rows)
    bar(f"{seconds} s of 5 M/s, default ring: events not in the recording", missing["16M"], 0, form="{:.0f}")


def size_part():
    """Bytes of an event on disk."""
    rows, ratios = [], []
    sizes = (4000, 150, 1000)
    with session_daemon():
        for mode, fields in (("u2", "(u64, u64)"), ("str", "(20-byte string, u64)")):
            for label, option, contexts in (("no context", ["--no-context"], ()), ("vpid, vtid", [], ("vpid", "vtid"))):
                note(f"  bytes of {fields}, {label}")
                with target("nop10") as t, nopal(t.pid, "--provider", HERE / "targets/door.d", *option) as mine:
                    t.burst(mode, *sizes)
                ours = mine["disk"] / mine["events"]
                with lttng(*contexts) as theirs, target("ust") as t:
                    t.burst(mode, *sizes)
                other = theirs["disk"] / (t.hits - theirs["lost"])
                rows.append((fields, label, f"{ours:.2f}", f"{other:.2f}", f"{ours / other:.3f}"))
                ratios.append(ours / other)
    table("Bytes of an event on disk, packet headers included", ["fields", "context", "nopal", "LTTng", "ratio"], rows)
    bar("bytes of an event: nopal of LTTng, worst case", max(ratios), 1, form="{:.3f}")


def postgres_part():
    """CPU of a transaction of PostgreSQL with every probe recorded."""
    seconds, rounds = 2, 2 * ARGS.rounds
    ways = {
        "user": "every site the user door opens",
        "auto": "every site, the rest by the kernel door",
        "kernel": "kernel door alone",
    }
    costs, seen = {way: [] for way in (None, *ways)}, {}
    with postgres() as pg:
        pg.transactions(1)  # Warms up.
        for round_ in range(rounds):
            note(f"  PostgreSQL, round {round_ + 1}")
            costs[None] += pg.transactions(seconds)[0]
            for door in ways if round_ < 2 else ("auto",):
                with nopal(pg.server.pid, "--door", door, probe="postgresql:*") as result:
                    cost, count = pg.transactions(seconds)
                costs[door] += cost
                sites = result["sites"]
                seen[door] = (f"{result['events'] / count:.1f}", result["lost"], f"{sites['user']} + {sites['kernel']}")
    rows, more = [], {}
    plain = costs[None]
    for door, label in ((None, "untraced"), *ways.items()):
        more[door] = (min(costs[door]) / min(plain) - 1) * 100
        median = statistics.median(costs[door])
        rows.append((label, f"{min(costs[door]):.2f}", f"{median:.2f}", f"{more[door]:+.1f} %",
                     f"{(median / statistics.median(plain) - 1) * 100:+.1f} %", *seen.get(door, ("", "", ""))))
    columns = ["", "CPU us a transaction, min", "median", "more, min", "more, median", "events a transaction",
               "lost", "sites, user + kernel"]
    table(f"PostgreSQL 15, pgbench -S, prepared, 1 client, {seconds} s runs, {rounds} rounds in turns", columns, rows)
    bar("PostgreSQL, user door: more CPU a transaction", more["user"], 6, " %")
    bar("PostgreSQL, every site: more CPU a transaction", more["auto"], 6, " %")


def turns_part():
    """CPU of a backend of PostgreSQL with every probe recorded, in turns with one that nobody traces."""
    options, seen = ["-S", "-M", "prepared"], {}

    @contextlib.contextmanager
    def recorded(backend):
        with nopal(backend, probe="postgresql:*") as result:
            yield
        seen.update(result)

    with postgres() as pg:
        traced, untraced = traced_in_turns(pg, options, max(ARGS.rounds, 3), recorded)
    more, sites = statistics.median(traced), seen["sites"]
    table("PostgreSQL 15, all probes of one of two backends recorded, in turns",
          ["work", "% more CPU an answer", "least", "most", "% while neither is traced", "sites, user + kernel", "lost"],
          [("pgbench -S -M prepared", more, min(traced), max(traced), statistics.median(untraced),
            f"{sites['user']} + {sites['kernel']}", seen["lost"])])
    bar("PostgreSQL, every site recorded, in turns: more CPU an answer", more, 12, " %")


PARTS = {"hit": hit_part, "loss": loss_part, "size": size_part, "postgres": postgres_part, "turns": turns_part}


def main():
    global FOLDER, ARGS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="5 by default, 2 with --quick")
    parser.add_argument("--quick", action="store_true", help="shorter; good for a look, not for figures")
    parser.add_argument("--nopal", type=pathlib.Path, help="a release build; without it one is made")
    parser.add_argument("parts", nargs="*", metavar="PART", help=" ".join(PARTS))
    ARGS = parser.parse_args()
    unknown = set(ARGS.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {' '.join(unknown)}; there are {' '.join(PARTS)}")
    ARGS.rounds = ARGS.rounds or (2 if ARGS.quick else 5)
    if os.geteuid() != 0:
        sys.exit("bench/door needs root: bpftrace and the kernel door do")
    if "BENCH_DOOR_INSIDE" not in os.environ:
        # As root, LTTng's daemon has fixed places for its sockets and buffers; ours gets a private view of them, and
        # meets no other.
        inside = """
            mount -t tmpfs none /run && mkdir /run/lttng && mount -t tmpfs none /dev/shm
            [ -e /sys/kernel/tracing/uprobe_events ] || mount -t tracefs none /sys/kernel/tracing
            exec "$@"
        """
        os.environ["BENCH_DOOR_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "sh", "-ec", inside, "sh", sys.executable, *sys.argv])
    with before_others(), tempfile.TemporaryDirectory(prefix="nopal-bench-door") as name:
        FOLDER = pathlib.Path(name)
        note("building")
        build()
        os.environ["HOME"] = os.environ["LTTNG_HOME"] = name
        print(f"{os.cpu_count()} CPUs, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f}")
        for part in ARGS.parts or PARTS:
            note(f"{part}: {PARTS[part].__doc__}")
            PARTS[part]()
    end()


if __name__ == "__main__":
    main()
