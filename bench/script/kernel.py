#!/usr/bin/env python3
"""Scripts through the kernel door beside bpftrace: what a hit costs, what printing loses, how fast probes come and go.

    bench/script/kernel.py --nopal NOPAL [ROW ...]      rows: hit loss attach

`hit`     ns a hit of `count()`, `hist()`, a keyed count and a start/end latency, by turns with bpftrace; no dearer.
`loss`    `printf` for each of a million hits as fast as they come, without a rest: nopal loses none.
`attach`  all hotspot probes of libjvm in a process that maps it: from start to the first line, and from ^C to the end.

Needs root, for both. Exit code 1 if a bar is missed. Traces only what it starts.
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
sys.path.insert(0, str(HERE.parent))
from common import LIMIT_S, bar, before_others, end, table

CPUS = sorted(os.sched_getaffinity(0))
PROGRAM_CPU, TRACER_CPU = CPUS[-1], CPUS[0]
HITS = 400_000
ROUNDS = 3
# Noise of two runs of the same thing on a quiet machine.
TOLERANCE = 1.03
ATTACH_FACTOR = 20.0

# Two probes and nothing else; classic one-byte nops, as distributions ship them.
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define NOTE(name, args) \
    ".pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 8, 9911f-9910f, 3\n.asciz \"stapsdt\"\n" \
    "9910:\n.8byte 990b, _.stapsdt.base, 0\n.asciz \"bench\"\n.asciz \"" name "\"\n.asciz \"" args "\"\n9911:\n.balign 4\n.popsection\n"
__asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n.weak _.stapsdt.base\n.hidden _.stapsdt.base\n"
        "_.stapsdt.base:\n.space 1\n.size _.stapsdt.base, 1\n.popsection\n");
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
int main(int argc, char **argv)
{
    long hits = atol(argv[1]), rest_ns = atol(argv[2]);
    char line[16];
    double best = 1e18;
    if (!fgets(line, sizeof line, stdin)) return 1;
    for (long burst = 0; burst < 100; burst++) {
        double start = now();
        for (long i = 0; i < hits / 100; i++) {
            __asm__ volatile("990: nop\n" NOTE("hit", "8@%[a] 8@%[b]") : : [a] "r"(i & 63), [b] "r"(i));
        }
        double took = (now() - start) / (hits / 100);
        if (took < best) best = took;
        struct timespec rest = {0, rest_ns};
        if (rest_ns) nanosleep(&rest, NULL);
    }
    printf("%.2f\n", best);
    fflush(stdout);
    return !fgets(line, sizeof line, stdin);
}
"""

def on_cpu(cpu):
    return lambda: os.sched_setaffinity(0, {cpu})


def wait_for(what, is_so, process, errors):
    end = time.monotonic() + LIMIT_S
    while not is_so():
        if process.poll() is not None or time.monotonic() > end:
            errors.seek(0)
            raise SystemExit(f"{what}: {errors.read().decode() or 'no answer'}")
        time.sleep(0.002)


def first_byte(pid, program, offset_of_site):
    """The byte at the site in the program's memory."""
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split()
        if len(words) > 5 and words[5] == program and words[1].startswith("r-x"):
            start, at = int(words[0].split("-")[0], 16), int(words[2], 16)
            with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
                memory.seek(start + offset_of_site - at)
                return memory.read(1)[0]
    return None


def site_offset(nopal, program):
    listed = json.loads(subprocess.run([nopal, "list", "--json", program], capture_output=True, check=True).stdout)
    offset = listed[0]["sites"][0]["offset"]
    return int(offset, 0) if isinstance(offset, str) else offset


def command(tool, script, pid):
    if tool == "bpftrace":
        return ["bpftrace", "-p", str(pid), "-e", script]
    return [tool, "run", "--door", "kernel", "-p", str(pid), "-e", script]


class Traced:
    """The program with a tracer at work; `go` gives ns a hit, `end` what the tracer printed."""

    def __init__(self, nopal, tool, program, script, hits, rest_ns=2_000_000):
        self.program = subprocess.Popen(
            [program, str(hits), str(rest_ns)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=on_cpu(PROGRAM_CPU)
        )
        pid = self.program.pid
        # Files: bpftrace says so much of what it lost that a pipe would be full.
        self.out, self.errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        self.tracer = subprocess.Popen(
            command(tool, script, pid), stdout=self.out, stderr=self.errors, preexec_fn=on_cpu(TRACER_CPU),
            env={**os.environ, "BPFTRACE_STRLEN": "64"},
        )
        offset = site_offset(nopal, program)
        wait_for(f"{tool} did not attach", lambda: first_byte(pid, program, offset) == 0xCC, self.tracer, self.errors)
        time.sleep(0.3)

    def go(self):
        self.program.stdin.write("\n")
        self.program.stdin.flush()
        return float(self.program.stdout.readline())

    def end(self):
        time.sleep(0.3)
        self.tracer.send_signal(signal.SIGINT)
        self.tracer.wait(LIMIT_S)
        self.program.kill()
        self.program.wait()
        self.out.seek(0)
        return self.out.read().decode()


def hit(nopal, program):
    probe = f"usdt:{program}:bench:hit"
    rows = [
        ("count()", f"{probe} {{ @ = count(); }}"),
        ("hist(arg1)", f"{probe} {{ @ = hist(arg1); }}"),
        ("@[arg0] = count()", f"{probe} {{ @[arg0] = count(); }}"),
        ("latency", f"{probe} {{ if (@s[tid]) {{ @ns = hist(nsecs - @s[tid]); delete(@s[tid]); }} else {{ @s[tid] = nsecs; }} }}"),
    ]
    figures = []
    for name, script in rows:
        best = {}
        for _ in range(ROUNDS):
            for tool in (nopal, "bpftrace"):
                traced = Traced(nopal, tool, program, script, HITS)
                best[tool] = min(best.get(tool, 1e9), traced.go())
                traced.end()
        ours, theirs = best[nopal], best["bpftrace"]
        figures.append((f"`{name}`", ours, theirs))
        bar(f"`{name}`, kernel door: of bpftrace's ns a hit", ours / theirs, TOLERANCE, form="{:.3f}")
    table("A hit by the kernel door", ["", "nopal, ns", "bpftrace, ns"], figures)


def loss(nopal, program):
    hits = 1_000_000
    script = f'usdt:{program}:bench:hit {{ printf("hit %d %d\\n", arg0, arg1); }}'
    lines = {}
    for tool in ("bpftrace", nopal):
        traced = Traced(nopal, tool, program, script, hits, rest_ns=0)
        traced.go()
        out = traced.end()
        lines[tool] = sum(line.startswith("hit ") for line in out.splitlines())
    table(f"{hits:,} lines printed as fast as they come", ["", "lines lost"], [("nopal", hits - lines[nopal]), ("bpftrace", hits - lines["bpftrace"])])
    bar(f"`printf`, {hits:,} hits: lines lost", hits - lines[nopal], 0, form="{:.0f}")


def libjvm():
    found = sorted(pathlib.Path("/usr/lib/jvm").glob("*/lib/server/libjvm.so")) if pathlib.Path("/usr/lib/jvm").is_dir() else []
    return str(found[0]) if found else None


def attach(nopal, folder):
    library = libjvm()
    if library is None:
        sys.exit("no libjvm.so here; install openjdk-17-jre-headless")
    source = f"{folder}/hold.c"
    pathlib.Path(source).write_text(
        "#include <dlfcn.h>\n#include <stdio.h>\nint main(int c, char **v)"
        "{ if (!dlopen(v[1], RTLD_NOW)) return 1; puts(\"ready\"); fflush(stdout); return getchar(); }"
    )
    subprocess.run(["gcc", "-O2", source, "-o", f"{folder}/hold", "-ldl"], check=True)
    script = f'usdt:{library}:hotspot:* {{ @[probe] = count(); }} interval:ms:1 {{ printf("on\\n"); exit(); }}'
    times = {}
    for tool in (nopal, "bpftrace"):
        for _ in range(3 if tool == nopal else 1):
            holder = subprocess.Popen([f"{folder}/hold", library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            holder.stdout.readline()
            before = time.perf_counter()
            done = subprocess.run(command(tool, script, holder.pid), capture_output=True, timeout=LIMIT_S)
            took = time.perf_counter() - before
            holder.kill()
            holder.wait()
            if done.returncode != 0:
                raise SystemExit(done.stderr.decode())
            times[tool] = min(times.get(tool, 1e9), took)
    factor = times["bpftrace"] / times[nopal]
    rows = [("nopal", f"{times[nopal]:.2f}"), ("bpftrace", f"{times['bpftrace']:.2f}")]
    table("All hotspot probes of libjvm 17, attached and detached", ["", "s, from start to end"], rows)
    bar("hotspot probes attached and detached: times as fast as bpftrace", factor, ATTACH_FACTOR, at_least=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nopal", required=True)
    parser.add_argument("rows", nargs="*", default=[])
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("bpftrace"):
        sys.exit("needs root and bpftrace")
    nopal = str(pathlib.Path(arguments.nopal).resolve())
    wanted = arguments.rows or ["hit", "loss", "attach"]
    with before_others(), tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/program"
        pathlib.Path(f"{program}.c").write_text(PROGRAM)
        subprocess.run(["gcc", "-O2", f"{program}.c", "-o", program], check=True)
        if "hit" in wanted:
            hit(nopal, program)
        if "loss" in wanted:
            loss(nopal, program)
        if "attach" in wanted:
            attach(nopal, folder)
    end()


if __name__ == "__main__":
    main()
