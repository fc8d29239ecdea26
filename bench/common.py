"""What the benchmarks share: processes on CPUs of their own, tables, bars."""
import contextlib
import ctypes
import math
import os
import pathlib
import pwd
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

LIMIT_S = 120  # No single step of a measurement takes longer.

PG = pathlib.Path("/usr/lib/postgresql/15/bin")

LIBC = ctypes.CDLL(None)
ALL_CPUS = os.sched_getaffinity(0)
# The traced program has the last CPU; its clients and whoever drains its buffers have the others.
TARGET_CPU = max(ALL_CPUS)
OTHER_CPUS = ALL_CPUS - {TARGET_CPU} or ALL_CPUS

BARS = []  # (what, measured, limit, is met)


def note(text):
    print(text, file=sys.stderr, flush=True)


# ---- processes ----


def in_child(cpus):
    """Before exec: no child outlives the benchmark, however that ends."""
    LIBC.prctl(1, signal.SIGKILL)
    os.sched_setaffinity(0, cpus)


def run(*command, cpus=OTHER_CPUS, limit_s=LIMIT_S, **options):
    """What a command that must succeed prints."""
    command = [str(c) for c in command]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=limit_s,
        preexec_fn=lambda: in_child(cpus), **options,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr[-800:]}")
    return done.stdout


@contextlib.contextmanager
def started(*command, cpus=OTHER_CPUS, end_with=signal.SIGKILL, **options):
    """A process that has ended when the block has."""
    child = subprocess.Popen([str(c) for c in command], text=True, preexec_fn=lambda: in_child(cpus), **options)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.send_signal(end_with)
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def wait_for(what, is_so):
    end = time.monotonic() + LIMIT_S
    while not is_so():
        if time.monotonic() > end:
            raise RuntimeError(f"waited {LIMIT_S} s for {what}")
        time.sleep(0.01)


@contextlib.contextmanager
def before_others():
    """Programs, tracers and daemons of this run alike go before what else the machine has to do; root may ask for that."""
    if os.geteuid() != 0:
        yield
        return
    os.nice(-15)
    # Where sessions are scheduled as groups, niceness counts only within one's own; the group has one, too.
    group = pathlib.Path("/proc/self/autogroup")
    found = re.search(r"nice (-?\d+)", group.read_text()) if group.exists() else None
    try:
        if found:
            group.write_text("-15")
        yield
    finally:
        if found:
            group.write_text(found[1])


# ---- what is traced, and another tracer ----


class Target:
    """A program built around door/targets/harness.h, waiting for its orders."""

    def __init__(self, child):
        self.child, self.pid, self.hits = child, child.pid, 0
        if child.stdout.readline() != "ready\n":
            raise RuntimeError("the traced program did not start")

    def order(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline().split()
        if not answer:
            raise RuntimeError(f"the traced program died of `{line}`")
        self.hits = int(answer[0])
        return [float(word) for word in answer[1:]]

    def burst(self, mode, n_hits, n_chunks, gap_us):
        low, median = self.order(f"burst {mode} {n_hits} {n_chunks} {gap_us}")
        return {"min": low, "median": median}


@contextlib.contextmanager
def obeying(program, **options):
    """The program on the traced program's CPU."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started(program, cpus={TARGET_CPU}, **pipes, **options) as child:
        yield Target(child)
        child.stdin.close()
        child.wait(LIMIT_S)


@contextlib.contextmanager
def bpftrace(folder, pid, script):
    """A script on a process; what it printed is in the dict when the block has ended."""
    out = folder / "bpftrace.out"
    result = {}
    command = ["bpftrace", "-B", "line", "-p", pid, "-e", 'BEGIN { printf("ready\\n"); } ' + script]
    with open(out, "w") as file, started(
        *command, end_with=signal.SIGINT, stdout=file, stderr=subprocess.PIPE
    ) as child:
        # Its output is read only after every probe is attached.
        is_ready = lambda: "ready" in out.read_text(errors="replace")
        wait_for("bpftrace to attach", lambda: is_ready() or child.poll() is not None)
        if child.poll() is not None:
            raise RuntimeError(f"bpftrace on `{script}`: {child.stderr.read()}")
        yield result
        child.send_signal(signal.SIGINT)
        # Now and then bpftrace 0.17 hangs when told to end.
        _, stderr = child.communicate(timeout=10)
    result["text"] = out.read_text(errors="replace")
    result["lost"] = sum(map(int, re.findall(r"Lost (\d+) events", result["text"] + stderr)))


class Postgres:
    """A private cluster on a socket in its own folder."""

    def __init__(self, folder, server):
        self.folder, self.server = folder, server

    def children(self):
        return set(pathlib.Path(f"/proc/{self.server.pid}/task/{self.server.pid}/children").read_text().split())

    def transactions(self, seconds):
        """CPU microseconds of a transaction in each tenth of a second, and how many transactions there were.

        On a busy machine a run may have no tenth with transactions enough to tell; it is made again.
        """
        n_all = 0
        for _ in range(5):
            costs, count = self.transactions_once(seconds)
            n_all += count
            if costs:
                return costs, n_all
        raise RuntimeError("no run had transactions enough in a tenth of a second, counted in time: the machine is too busy")

    def transactions_once(self, seconds):
        """The same of one run, in which there may be no such tenth.

        A backend waits for its client once in each transaction, so that its waits count them.
        """
        others = self.children()
        # Client and backend on one CPU cost less than on two; which it is must not be left to chance.
        command = as_postgres(PG / "pgbench", "-h", self.folder, "-U", "postgres", "-n", "-S", "-M", "prepared", "-c", 1,
                              "-T", seconds, "postgres")
        samples, costs = [], []
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with started(*command, **pipes) as client:
            while client.poll() is None:
                for pid in self.children() - others:
                    with contextlib.suppress(OSError, TypeError):
                        samples.append((pid, cpu_us(pid), waits(pid)))
                time.sleep(0.1)
            said = client.stdout.read()
        count = int(re.search(r"actually processed: (\d+)", said)[1])
        failed = int(re.search(r"failed transactions: (\d+)", said)[1])
        if failed:
            raise RuntimeError(f"{failed} transactions failed")
        # The first tenths are those of connecting and warming up.
        for (pid, cpu, n), (next_pid, next_cpu, next_n) in zip(samples[2:], samples[3:]):
            if pid == next_pid and next_n - n > 100:
                costs.append((next_cpu - cpu) / (next_n - n))
        n_waits = samples[-1][2] if samples else 0
        if n_waits > 1.1 * count:
            raise RuntimeError(f"{count} transactions, and the backend waited {n_waits} times")
        if n_waits < 0.9 * count:
            # Whoever counts was kept waiting, too: what a tenth of a second was is not known.
            costs = []
        # A backend ends a little after its client.
        wait_for("the backend to end", lambda: self.children() <= others)
        return costs, count

    @contextlib.contextmanager
    def client(self, options):
        """A client at work, stopped until it is let go on, and the process number of its backend."""
        others = self.children()
        command = as_postgres(PG / "pgbench", "-h", self.folder, "-U", "postgres", "-n", *options, "-c", 1,
                              "-T", 10 * LIMIT_S, "postgres")
        with started(*command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
            # Its first connection is to see what there is, and ends at once.
            time.sleep(1)
            wait_for("a backend", lambda: len(self.children() - others) == 1)
            backend = next(iter(self.children() - others))
            client.send_signal(signal.SIGSTOP)
            yield client, backend
        wait_for("the backend to end", lambda: self.children() <= others)


def in_turns(clients, seconds):
    """CPU of the first client's backend for each answer by that of the second, in turns of a twentieth of a second.

    What else the machine does meanwhile is in both. On one CPU at the same time they would not be alike: whichever
    runs second finds the other's code in the caches.
    """
    found, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        costs = []
        for client, backend in clients:
            client.send_signal(signal.SIGCONT)
            time.sleep(0.005)
            cpu, n = cpu_us(backend), waits(backend)
            time.sleep(0.05)
            costs.append(((cpu_us(backend) - cpu), waits(backend) - n))
            client.send_signal(signal.SIGSTOP)
            time.sleep(0.002)
        if all(n > 100 for _, n in costs):
            found.append(costs[0][0] / costs[0][1] / (costs[1][0] / costs[1][1]))
    if not found:
        raise RuntimeError("no turn had answers enough: the machine is too busy")
    return statistics.median(found)


def traced_in_turns(pg, options, rounds, tracer):
    """Percent more CPU an answer of a backend that is traced, in each round, and the same while neither is.

    `tracer` gives a block in which the process it gets is traced.
    """
    traced, untraced = [], []
    with pg.client(options) as one, pg.client(options) as other:
        for round_ in range(rounds):
            note(f"  pgbench {' '.join(options)}, round {round_ + 1}")
            # Each is the traced one once, so that what tells the two apart does not count.
            ratios = [], []
            for pair in (one, other), (other, one):
                ratios[0].append(in_turns(pair, 2))
                with tracer(pair[0][1]):
                    ratios[1].append(in_turns(pair, 3))
            for percents, of in (untraced, ratios[0]), (traced, ratios[1]):
                percents.append((math.sqrt(of[0] * of[1]) - 1) * 100)
    return traced, untraced


def cpu_us(pid):
    return int(pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000


def waits(pid):
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def as_postgres(*command):
    # PostgreSQL refuses to run as root.
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command]


@contextlib.contextmanager
def postgres():
    with tempfile.TemporaryDirectory(prefix="nopal-bench-pg") as name:
        user = pwd.getpwnam("postgres")
        os.chown(name, user.pw_uid, user.pw_gid)
        folder = pathlib.Path(name)
        run(*as_postgres(PG / "initdb", "-A", "trust", "--no-sync", "-D", folder / "data"))
        # Workers of autovacuum would be counted among the backends.
        settings = ["-h", "", "-k", folder, "-c", "fsync=off", "-c", "autovacuum=off"]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = as_postgres(PG / "postgres", "-D", folder / "data", *settings)
        with started(*command, end_with=signal.SIGINT, cpus={TARGET_CPU}, **quiet) as server:
            ready = as_postgres(PG / "pg_isready", "-q", "-h", folder)
            wait_for("PostgreSQL", lambda: subprocess.run([str(c) for c in ready]).returncode == 0)
            run(*as_postgres(PG / "pgbench", "-h", folder, "-U", "postgres", "-i", "-q", "-s", 2, "postgres"))
            yield Postgres(folder, server)


# ---- tables and bars ----


def bar(what, value, limit, unit="", form="{:.1f}", at_least=False):
    """A figure and the most, or the least, that it may be."""
    allowed = ("at least " if at_least else "at most ") + form.format(limit) + unit
    BARS.append((what, form.format(value) + unit, allowed, value >= limit if at_least else value <= limit))


def table(title, columns, rows):
    print(f"\n### {title}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(f'{c:.1f}' if isinstance(c, float) else str(c) for c in row)} |")
    sys.stdout.flush()


def end():
    """The bars; exit code 1 if one is missed."""
    rows = [(what, value, limit, "PASS" if is_met else "FAIL") for what, value, limit, is_met in BARS]
    table("Bars", ["bar", "measured", "allowed", ""], rows)
    sys.exit(any(row[3] == "FAIL" for row in rows))
