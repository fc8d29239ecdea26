#!/usr/bin/env python3
"""What `nopal serve` costs when nothing happens: its CPU time over many processes that wait.

    bench/serve/run.py [--nopal FILE] [--processes 100] [--seconds 60]

As root it is measured for root and for an ordinary user, whom the kernel does not tell who starts a program. Prints a
Markdown table; exit code 1 if the bar is missed. Needs gcc. Traces only programs that it builds and starts itself.
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
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from common import ALL_CPUS, LIMIT_S, bar, end, note, run, started, table, wait_for

MAX_PERCENT = 0.5
ORDINARY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
SETTLE_S = 5  # Until what was done for entering the processes is over.


def cpu_s(pid):
    """User and system time of all threads, in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nopal", type=pathlib.Path)
    parser.add_argument("--processes", type=int, default=100)
    parser.add_argument("--seconds", type=int, default=60)
    args = parser.parse_args()
    if not args.nopal:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "nopal-cli"], cwd=ROOT, check=True)
        args.nopal = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release/nopal"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nopal-bench-serve-"))
    try:
        folder.chmod(0o755)
        users = {"root": [], "an ordinary user": ORDINARY} if os.geteuid() == 0 else {"this user": []}
        rows = [measure(args, folder, user, words) for user, words in users.items()]
        table("Idle", ["user", "processes", "seconds", "CPU s", "% of a CPU"], rows)
    finally:
        shutil.rmtree(folder)
    end()


def measure(args, folder, user, as_user):
    program = folder / f"idle-{os.getpid()}"
    run("gcc", "-O2", "-I", ROOT / "include", HERE / "targets/idle.c", "-o", program)
    # Where an ordinary user can read it.
    nopal = folder / "nopal"
    shutil.copy(args.nopal, nopal)
    (folder / "serve.toml").write_text(
        f'listen = "127.0.0.1:0"\n[[target]]\nprogram = "{program}"\nspans = ["idle:work"]\n'
    )
    with contextlib.ExitStack() as stack:
        for _ in range(args.processes):
            stack.enter_context(started(*as_user, program, cpus=ALL_CPUS))
        serve = stack.enter_context(
            started(*as_user, nopal, "serve", folder / "serve.toml", cpus=ALL_CPUS, end_with=signal.SIGTERM, stderr=subprocess.PIPE)
        )
        address = next(line for line in serve.stderr if "http://" in line).split("http://")[1].split("/")[0]

        def health():
            with urllib.request.urlopen(f"http://{address}/health", timeout=LIMIT_S) as answer:
                return json.load(answer)["targets"][0]

        wait_for("all processes to be served", lambda: health()["processes"] == args.processes)
        time.sleep(SETTLE_S)
        note(f"{args.processes} processes served; measuring for {args.seconds} s")
        before, since = cpu_s(serve.pid), time.monotonic()
        time.sleep(args.seconds)
        used, passed = cpu_s(serve.pid) - before, time.monotonic() - since
        state = health()
        if state["processes"] != args.processes or not state["complete"]:
            raise RuntimeError(f"it does not serve all of them: {state}")
    percent = 100 * used / passed
    bar(f"`serve` with nothing to do, {user}", percent, MAX_PERCENT, " % of a CPU", "{:.2f}")
    return [user, args.processes, f"{passed:.0f}", f"{used:.2f}", f"{percent:.2f}"]


if __name__ == "__main__":
    main()
