//! `bpftrace -l` and `--info` as release 0.27 has them. What it printed is written down here; Debian's is older.

use super::shim::{call, link, text};
use nopal_tests::scratch;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SOURCE: &str = "\
#include <unistd.h>
#include <sys/sdt.h>
struct Foo { int a; char b; };
int first(int *n, char c) { return *n + c; }
int second(struct Foo *foo, const char *name, char **more) { return foo->a + *name + **more; }
int main(int argc, char **argv) {
  int n = argc;
  struct Foo foo = { first(&n, 'x'), 'y' };
  DTRACE_PROBE1(zoo, cat, n);
  DTRACE_PROBE1(zoo, dog, n);
  write(1, \"up\\n\", 3);
  if (argc > 1) pause();
  return second(&foo, \"name\", argv) == 0;
}
";

/// Builds `app` and `app-two` in a folder of its own.
fn programs(name: &str) -> PathBuf {
    let folder = scratch(name);
    fs::write(folder.join("app.c"), SOURCE).unwrap();
    for program in ["app", "app-two"] {
        let mut cc = Command::new("cc");
        cc.args(["-g", "-O0", "-o", program, "app.c"]).current_dir(&folder);
        assert!(cc.status().unwrap().success());
    }
    folder
}

#[track_caller]
fn listed(ours: &Path, folder: &Path, args: &[&str]) -> Vec<String> {
    let output = call(ours, folder, args);
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn files_by_patterns_and_the_arguments_of_functions() {
    let folder = programs("shim_list_files");
    let ours = link(&folder);
    let probes = |file: &str| ["cat", "dog"].map(|name| format!("usdt:./{file}:zoo:{name}")).to_vec();
    let both = [probes("app-two"), probes("app")].concat();
    assert_eq!(listed(&ours, &folder, &["-l", "usdt:./app:*"]), probes("app"));
    assert_eq!(listed(&ours, &folder, &["-l", "usdt:./app*:*"]), both);
    assert_eq!(listed(&ours, &folder, &["-l", "usdt:./app*:zoo:ca*"]).len(), 2);
    let mixed = listed(&ours, &folder, &["-l", "*:./app:*"]);
    for name in ["usdt:./app:zoo:cat", "uprobe:./app:main", "uprobe:./app:first"] {
        assert!(mixed.iter().any(|line| line == name), "{name}: {mixed:?}");
    }
    assert_eq!(
        listed(&ours, &folder, &["-lv", "uprobe:./app:*s*t,uprobe:./app:second"]).join("\n"),
        "uprobe:./app:_start\nuprobe:./app:first\n    int* n\n    char c\nuprobe:./app:second\n    struct Foo* foo\n    const char* name\n    char** more"
    );
    assert_eq!(listed(&ours, &folder, &["-l", "uprobe:./none*:*"]), Vec::<String>::new());
}

#[test]
fn scripts_are_listed_by_their_points() {
    let folder = programs("shim_list_scripts");
    let ours = link(&folder);
    let script = "begin {} i:s:1 {} profile:hz:99 {} u:./app:first {} uprobe:./app:*s*t {} software:cpu:100 {} U:./app:* {} h:cache-misses:10 {}";
    let want = [
        "interval:s:",
        "profile:hz:",
        "uprobe:./app:first",
        "uprobe:./app:_start",
        "uprobe:./app:first",
        "software:cpu:",
        "usdt:./app:zoo:cat",
        "usdt:./app:zoo:dog",
        "hardware:cache-misses:",
    ];
    assert_eq!(listed(&ours, &folder, &["-l", "-e", script]), want);
    fs::write(folder.join("some.bt"), script).unwrap();
    assert_eq!(listed(&ours, &folder, &["-l", "some.bt"]), want);
    let output = call(&ours, &folder, &["-l", "none.bt"]);
    assert_eq!(
        text(&output.stderr),
        "WARNING: It appears that 'none.bt' is a filename but the file does not exist. Treating 'none.bt' as a search pattern.\n"
    );
    assert!(output.status.success() && output.stdout.is_empty());
}

#[test]
fn a_process_has_its_own_files() {
    let folder = programs("shim_list_process");
    let ours = link(&folder);
    let mut app = Command::new("./app");
    app.arg("stay").current_dir(&folder).stdout(Stdio::piped());
    let mut app = app.spawn().unwrap();
    let mut up = [0; 3];
    std::io::Read::read_exact(app.stdout.as_mut().unwrap(), &mut up).unwrap();
    let pid = app.id().to_string();
    let path = fs::canonicalize(folder.join("app")).unwrap();
    let file = format!("/proc/{pid}/root{}", path.display());
    let cat = format!("usdt:{file}:zoo:cat");
    let first = format!("uprobe:{file}:first");
    for (args, want, other) in [
        (&["-l", "-p", &pid][..], &cat, Some(&first)),
        (&["-l", "usdt:*", "-p", &pid], &cat, None),
        (&["-l", "usdt:*:zoo:*", "-p", &pid], &cat, None),
        (&["-l", "uprobe:*", "-p", &pid], &first, None),
        (&["-l", "-e", "uprobe:*:firs* { exit(); }", "-p", &pid], &first, None),
    ] {
        let lines = listed(&ours, &folder, args);
        for name in [Some(want), other].into_iter().flatten() {
            assert!(lines.contains(name), "{args:?}: no {name} in {} lines", lines.len());
        }
    }
    // The name that is listed can be attached to.
    let script = format!("{first} {{ exit(); }}");
    let attached = call(&ours, &folder, &["--dry-run", "-e", &script]);
    assert!(attached.status.success(), "{}", text(&attached.stderr));
    app.kill().unwrap();
    app.wait().unwrap();
}

#[test]
fn points_and_types_of_the_kernel() {
    let folder = scratch("shim_list_kernel");
    let ours = link(&folder);
    let words = |kind: &str, names: &[&str]| -> Vec<String> {
        names.iter().map(|name| format!("{kind}:{name}:")).collect()
    };
    assert_eq!(listed(&ours, &folder, &["-l", "interval:*"]), words("interval", &["hz", "ms", "s", "us"]));
    assert_eq!(listed(&ours, &folder, &["-l", "profile:*"]), words("profile", &["hz", "ms", "s", "us"]));
    assert_eq!(listed(&ours, &folder, &["-l", "self:*"]), ["self:signal:SIGUSR1"]);
    let wares = listed(&ours, &folder, &["-l", "*ware:*"]);
    assert_eq!((wares.len(), wares[0].as_str()), (26, "hardware:backend-stalls:"), "{wares:?}");
    assert_eq!(
        listed(&ours, &folder, &["-lv", "tracepoint:sched:sched_process_exec"])[..2],
        ["tracepoint:sched:sched_process_exec", "    __data_loc char[] filename"]
    );
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        println!("this kernel does not describe its types");
        return;
    }
    for (args, want) in [
        (
            "fexit:vfs_read",
            "fexit:vmlinux:vfs_read\n    struct file * file\n    char * buf\n    size_t count\n    loff_t * pos\n    ssize_t retval",
        ),
        (
            "kprobe:vfs_read,kretprobe:vfs_read",
            "kprobe:vfs_read\n    struct file * arg0\n    char * arg1\n    size_t arg2\n    loff_t * arg3\nkretprobe:vfs_read\n    ssize_t retval",
        ),
        (
            "rawtracepoint:sched_process_exit",
            "rawtracepoint:vmlinux:sched_process_exit\n    struct task_struct * p",
        ),
        ("union sigval", "vmlinux: union sigval {\n\tint sival_int;\n\tvoid *sival_ptr;\n};\n"),
    ] {
        let lines = listed(&ours, &folder, &["-lv", args]).join("\n");
        // Later kernels may give a tracepoint more parameters.
        assert!(lines.starts_with(want), "{args}: {lines}");
    }
    assert_eq!(
        listed(&ours, &folder, &["-l", "struct file,enum pid_type"]),
        ["struct file", "enum pid_type"]
    );
}

#[test]
fn a_pattern_over_files_attaches_to_each() {
    let folder = programs("shim_list_attach");
    let ours = link(&folder);
    let script = "usdt:./app*::cat { @[probe] = count(); }";
    let output = call(&ours, &folder, &["-e", script, "-c", "./app"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("@[usdt:./app:zoo:cat]: 1"), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("Attached 2 probes"), "{}", text(&output.stderr));
}

#[test]
fn info_has_the_keys_of_the_release() {
    let folder = scratch("shim_info");
    let output = call(&link(&folder), &folder, &["--info"]);
    let shown = text(&output.stdout);
    for key in [
        "  version: v0.27.0",
        "  libdw (DWARF support): yes",
        "  dwunwind (DWARF stack unwinding): yes",
        "  dpath: no                        get_tai_ns: ",
        "  Instruction limit: 1000000       btf: ",
        "  kprobe_multi: no                 uprobe_multi: ",
        "  kprobe_session: no               iter: no",
    ] {
        assert!(shown.lines().any(|line| line.starts_with(key)), "{key} is not in\n{shown}");
    }
    let has = |key: &str| shown.contains(&format!("{key}: yes"));
    // Each came with a release of the kernel, and a later one has what an earlier one has.
    assert!(has("get_func_ip") >= has("lookup_percpu_elem") && has("loop") >= has("lookup_percpu_elem"));
}

#[test]
fn a_signal_to_the_tracer_is_a_point() {
    let folder = scratch("shim_self_signal");
    let script = "self:signal:SIGUSR1 { printf(\"first\"); @n = 1; } self:signal:SIGUSR1 { printf(\" second\\n\"); exit(); }";
    let mut ours = Command::new(link(&folder));
    ours.args(["-e", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut ours = ours.spawn().unwrap();
    let mut attached = String::new();
    BufReader::new(ours.stderr.as_mut().unwrap()).read_line(&mut attached).unwrap();
    assert_eq!(attached, "Attached 2 probes\n");
    let sent = Command::new("kill").args(["-USR1", &ours.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let output = ours.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(text(&output.stdout).trim_end(), "first second\n\n\n@n: 1");
    let wrong = call(&link(&folder), &folder, &["-e", "self:signal:SIGINT { exit(); }"]);
    assert!(
        text(&wrong.stderr).contains("ERROR: SIGINT is not a supported signal"),
        "{}",
        text(&wrong.stderr)
    );
}

#[test]
fn points_that_cannot_be_attached_are_refused_with_the_reason() {
    let folder = scratch("shim_unattached");
    let ours = link(&folder);
    for (point, why) in [
        ("fentry:vfs_read", "fentry:vfs_read cannot be attached"),
        ("f:vmlinux:vfs_read", "fentry:vmlinux:vfs_read cannot be attached"),
        ("rawtracepoint:sched_switch", "nopal has no raw tracepoints"),
        ("iter:task", "nopal does not iterate"),
        ("watchpoint:0x1000:3:w", "the length is 1, 2, 4 or 8 bytes"),
        ("bench:a", "clauses are measured"),
        ("hardware:no-such", "there is no hardware event `no-such`"),
    ] {
        let output = call(&ours, &folder, &["-e", &format!("{point} {{ exit(); }}")]);
        assert_eq!(output.status.code(), Some(1), "{point}");
        assert!(text(&output.stderr).contains(why), "{point}: {}", text(&output.stderr));
    }
}

#[test]
fn only_the_probes_that_a_filter_finds() {
    let folder = scratch("shim_filter");
    let ours = link(&folder);
    let script = "BEGIN { printf(\"begin\\n\"); } interval:ms:10 { printf(\"bad\\n\"); exit(); } \
                  i:ms:20 { printf(\"a\\n\"); exit(); } END { printf(\"end\\n\"); }";
    for filter in [":20", "^interval:ms:(20|30)$", "ms:2[0-9]"] {
        let output = call(&ours, &folder, &["--probe-filter", filter, "-e", script]);
        let lines = text(&output.stdout);
        assert_eq!(lines.split_whitespace().collect::<Vec<_>>(), ["begin", "a", "end"], "{filter}");
    }
    for (args, want) in [
        (&["--probe-filter", "zzz", "-e", "i:ms:20 { exit(); }"][..], "No probes to attach\n"),
        (&["--probe-filter", "(", "-e", "i:ms:20 { exit(); }"], "ERROR: Invalid --probe-filter regex '(': "),
        (&["no_such.bt"], "ERROR: failed to open file 'no_such.bt': No such file or directory\n"),
        (&["-p", "a1", "-e", "begin {}"], "ERROR: Failed to parse pid: invalid integer: a1\n"),
        (&["-p", "11a1", "-e", "begin {}"], "ERROR: Failed to parse pid: invalid trailing bytes: 11a1\n"),
        (&["-p", "5000000", "-e", "begin {}"], "ERROR: Pid out of range: 5000000\n"),
        (
            &["-p", "4194303", "-e", "begin {}"],
            "ERROR: Failed to attach to pid: Unable to open pidfd (No such process)\n",
        ),
    ] {
        let output = call(&ours, &folder, args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).starts_with(want), "{args:?}: {}", text(&output.stderr));
    }
}

#[test]
fn addresses_are_watched_in_all_threads() {
    let folder = scratch("shim_watch");
    let source = "\
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
static volatile char *place;
static void *other(void *unused) { *place = 2; return unused; }
int main(void) {
  place = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  *place = 1;
  pthread_t thread;
  pthread_create(&thread, 0, other, 0);
  pthread_join(thread, 0);
  place[64] = 3;
  return *place != 2;
}
";
    fs::write(folder.join("writes.c"), source).unwrap();
    let built =
        Command::new("cc").args(["-pthread", "-o", "writes", "writes.c"]).current_dir(&folder).status();
    assert!(built.unwrap().success());
    let script = "watchpoint:0x10000000:1:w { @[(uint64)(tid != pid)] = count(); }";
    let output = call(&link(&folder), &folder, &["-e", script, "-c", "./writes"]);
    let shown = text(&output.stdout);
    if text(&output.stderr).contains("No space left on device") {
        println!("this machine has no debug registers");
        return;
    }
    // Once in the first thread, once in the other.
    assert!(shown.contains("@[0]: 1") && shown.contains("@[1]: 1"), "{shown}{}", text(&output.stderr));
}

#[test]
fn a_probe_may_come_from_the_command_line() {
    let folder = scratch("shim_given_probe");
    let ours = link(&folder);
    let body = "{ printf(\"hello\\n\"); exit(); }";
    for (point, given) in [("$1", "i:ms:1"), ("BEG$1", "IN"), ("i:$1:1", "ms"), ("$1:1", "interval:ms")] {
        let output = call(&ours, &folder, &["-e", &format!("{point} {body}"), given]);
        assert!(text(&output.stdout).contains("hello"), "{point} {given}: {}", text(&output.stderr));
    }
    let output = call(&ours, &folder, &["-e", &format!("$1 {body}")]);
    assert!(text(&output.stderr).contains("`$1` is part of a probe but was not given"));
}
