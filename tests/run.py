#!/usr/bin/env python3
"""Builds the tests of the workspace, linted on the way, and runs them: tests/run.py [--quick] [--lanes N] [OPTION OF cargo test...] [-- NAME...]

`./x test` is what people call. One compilation serves lints, command and tests: clippy's driver compiles. What a program of tests
prints comes when it has ended. With --lanes N so many of them run at once.
"""

import json
import os
import queue
import re
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# The longest first, so that none of them is left alone at the end.
LONGEST = ["doors", "building", "scripts", "recordings", "programs", "pictures"]
# With --quick: of these programs the tests of these modules; of the other end-to-end ones none; all of the crates' own.
NEAR = {
    "doors": ["user_door::", "user_door_behind::", "kernel_door::", "tracing::", "tracing_processes::"],
    "recordings": ["recording::", "recording_view::"],
    "scripts": ["run_user::", "run_points::"],
}
RESULT = re.compile(r"^test result: \S+ (\d+) passed; (\d+) failed; (\d+) ignored", re.M)


def split(arguments):
    """Options for cargo, and for the test programs."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def near():
    """Options for cargo: what --quick builds."""
    command = ["cargo", "metadata", "--no-deps", "--offline", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    targets = [target for package in metadata["packages"] for target in package["targets"]]
    names = [target["name"] for target in targets if target["kind"] == ["test"]]
    far = set(LONGEST) - set(NEAR)
    return ["--lib", "--bins", *(word for name in names if name not in far for word in ("--test", name))]


def linting():
    """The environment in which cargo lints what it compiles, and takes no warning."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], cwd=ROOT, capture_output=True, text=True, check=True)
    driver = os.path.join(sysroot.stdout.strip(), "bin", "clippy-driver")
    if not os.path.exists(driver):
        sys.exit(f"tests: no {driver}; `rustup component add clippy` installs it")
    return {**os.environ, "RUSTC_WORKSPACE_WRAPPER": driver, "CLIPPY_ARGS": "-Dwarnings__CLIPPY_HACKERY__"}


def build(options, environment):
    """Builds everything; the programs of tests as (name, path, folder they run in), and where the command is."""
    command = ["cargo", "test", "--workspace", "--no-run", "--quiet", "--message-format", "json-render-diagnostics", *options]
    programs = []
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as cargo:
        for line in cargo.stdout:
            message = json.loads(line)
            if message.get("executable") and message["profile"]["test"]:
                folder = os.path.dirname(message["manifest_path"])
                name = message["target"]["name"]
                crate = os.path.basename(folder)
                programs.append((name if crate == "tests" else f"{crate}/{name}", message["executable"], folder))
    if cargo.returncode:
        sys.exit(cargo.returncode)
    command = ["cargo", "build", "--workspace", "--quiet", "--bins", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        sys.exit(built.returncode)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    nopal = [m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "nopal"]
    order = {name: place for place, name in enumerate(LONGEST)}
    programs.sort(key=lambda program: order.get(program[0], len(order)))
    return programs, nopal[0]


class Results:
    def __init__(self):
        self.lock = threading.Lock()
        self.rows = []
        self.failed = []

    def take(self, name, code, output, seconds):
        """Prints what a program said, and keeps its numbers."""
        counts = [sum(int(result[at]) for result in RESULT.findall(output)) for at in range(3)]
        failed = re.findall(r"^test (.*?)(?: - should panic)? \.\.\. FAILED$", output, re.M)
        if code and not failed:
            failed = [f"(ended by signal {-code})" if code < 0 else f"(ended with {code})"]
            counts[1] += 1
        with self.lock:
            if any(counts):
                print(f"\n== {name}\n{output.strip()}", flush=True)
            self.rows.append((name, counts, seconds))
            self.failed += [f"{name}: {each}" for each in failed]

    def tell(self, seconds_to_build, seconds):
        """The closing summary; whether all is well."""
        print("\npassed failed ignored seconds")
        for name, (passed, failed, ignored), took in sorted(self.rows, key=lambda row: -row[2]):
            if passed or failed or ignored:
                print(f"{passed:6} {failed:6} {ignored:7} {took:7.0f} {name}")
        passed, failed, ignored = (sum(row[1][at] for row in self.rows) for at in range(3))
        for each in self.failed:
            print(f"FAILED {each}")
        print(
            f"{passed} passed, {failed} failed, {ignored} ignored; "
            f"{seconds_to_build:.0f} s to build and lint, {seconds:.0f} s to run"
        )
        if passed + failed == 0:
            print("no test has such a name")
        return passed > 0 and not self.failed


def run(name, command, folder, environment, results):
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    results.take(name, done.returncode, done.stdout.decode(errors="replace"), time.monotonic() - start)


def main():
    options, words = split(sys.argv[1:])
    is_quick, n_lanes = False, 1
    while options[:1] in (["--quick"], ["--lanes"]):
        if options.pop(0) == "--quick":
            is_quick = True
        else:
            n_lanes = int(options.pop(0))
    is_whole = not options and not is_quick
    if is_quick:
        options = near() + options
    environment = linting()
    start = time.monotonic()
    programs, nopal = build(options, environment)
    built = time.monotonic()
    results, waiting = Results(), queue.SimpleQueue()
    # What tests compile is compiled as its users would do it.
    plain = {**os.environ, "NOPAL_BIN": nopal}
    for name, path, folder in programs:
        chosen = NEAR.get(name, []) if is_quick else []
        waiting.put((name, [path, *chosen, *words], folder, plain))
    if is_whole:
        doc = ["cargo", "test", "--workspace", "--quiet", "--doc", "--", *words]
        waiting.put(("examples in comments", doc, ROOT, environment))

    def lane():
        while not waiting.empty():
            try:
                program = waiting.get_nowait()
            except queue.Empty:
                return
            run(*program, results)

    threads = [threading.Thread(target=lane) for _ in range(n_lanes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.exit(0 if results.tell(built - start, time.monotonic() - built) else 1)


main()
