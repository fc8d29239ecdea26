//! Which points a script's names stand for: what `probe` calls them live and over a recording, functions of C++ and of libraries
//! that have moved, and what may not be attached to.

use nopal_tests::targets::{Build, build};
use nopal_tests::{copy_program, nopal, run, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn nopal_run(arguments: &[&str]) -> Output {
    Command::new(nopal()).arg("run").args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The lines of a run that went well, in no order.
fn lines(output: &Output) -> BTreeSet<String> {
    assert!(output.status.success() && errors(output).ends_with("complete\n"), "{}", errors(output));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn a_recording_calls_probes_as_the_program_does() {
    let folder = scratch("run_points_recording");
    let program = build("script", &["script.c"], Build::Pie);
    let file = program.to_str().unwrap();
    let recording = folder.join("recording");
    let since = nopal_trace::clock::monotonic_ns() as i64 + nopal_trace::clock::monotonic_to_epoch_ns();
    run(Command::new(nopal())
        .args(["record", "-e", "script:*", "-o"])
        .arg(&recording)
        .args(["--", file, "100"]));
    let recording = recording.to_str().unwrap();
    let script = format!(
        "usdt:{file}:script:request {{ @one[probe] = count(); }}
         usdt:{file}:script:* {{ @all[probe] = count(); }} usdt:{file}:script:* {{ @all[probe] = count(); }}
         usdt:script:done {{ @provider[probe] = count(); }} usdt::script:done {{ @provider[probe] = count(); }}"
    );
    let over_recording = lines(&nopal_run(&["-e", &script, "--recording", recording]));
    for line in [
        format!("@one[usdt:{file}:script:request]: 100"),
        format!("@all[usdt:{file}:script:done]: 200"),
        "@provider[usdt:script:done]: 200".to_owned(),
    ] {
        assert!(over_recording.contains(&line), "{line} in {over_recording:?}");
    }
    for door in ["user", "kernel"] {
        let live = lines(&nopal_run(&["--door", door, "-e", &script, "--", file, "100"]));
        assert_eq!(live, over_recording, "{door}");
    }
    // Which of two files an event is of, it does not say.
    let two =
        format!("usdt:{file}:script:done {{ @a = count(); }} usdt:./other:script:done {{ @b = count(); }}");
    let refused = nopal_run(&["-e", &two, "--recording", recording]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("`./other` cannot be told apart"), "{}", errors(&refused));
    // Its times are since the epoch.
    let now = lines(&nopal_run(&["-e", "usdt:script:done { @ = max(nsecs); }", "--recording", recording]));
    let ns: i64 = now.first().unwrap().strip_prefix("@: ").unwrap().parse().unwrap();
    assert!(ns > since, "{ns} {since}");
}

#[test]
fn operators_of_cpp_have_names_with_a_plus() {
    let folder = scratch("run_points_operator");
    let (source, program) = (folder.join("a.cc"), folder.join("a"));
    let text = "struct Number { int n; __attribute__((noinline)) Number operator+(const Number &o) const { asm volatile(\"\"); return {n + o.n}; }
        __attribute__((noinline)) Number operator*(int by) const { asm volatile(\"\"); return {n * by}; } };
        int main() { Number sum{0}; for (int i = 0; i < 7; i++) sum = (sum + Number{i}) * 1; return sum.n != 21; }";
    fs::write(&source, text).unwrap();
    run(Command::new("g++").args(["-O1", "-o"]).arg(&program).arg(&source));
    let file = program.to_str().unwrap();
    let script = format!(
        "uprobe:{file}:\"Number::operator+(Number const&) const\" {{ @full = count(); }}
         uprobe:{file}:Number::operator+ {{ @short = count(); }}
         uprobe:{file}:\"Number::operator*(int) const\" {{ @times = count(); }}
         uprobe:{file}:\"Number::operator+(Number const&) const+0\" {{ @offset = count(); }}"
    );
    let want: BTreeSet<String> =
        ["@full: 7", "@offset: 7", "@short: 7", "@times: 7"].map(str::to_owned).into();
    assert_eq!(lines(&nopal_run(&["-e", &script, "--", file])), want);
}

#[test]
fn where_a_program_begins_nothing_returns() {
    let program = build("script", &["script.c"], Build::Pie);
    let file = program.to_str().unwrap();
    let header = run(Command::new("readelf").args(["-h", file]));
    let entry =
        header.lines().find_map(|line| line.trim().strip_prefix("Entry point address:")).unwrap().trim();
    for point in ["_start", entry] {
        let script = format!("uretprobe:{file}:{point} {{ @ = count(); }}");
        let named = nopal_run(&["-e", &script, "--", file, "5"]);
        assert_eq!(named.status.code(), Some(1));
        assert!(errors(&named).contains("argc"), "{}", errors(&named));
    }
    let among =
        nopal_run(&["-e", &format!("uretprobe:{file}:*a* {{ @[func] = count(); }}"), "--", file, "5"]);
    assert!(lines(&among).contains("@[main]: 1"), "{among:?}");
    assert!(errors(&among).contains(":_start is left out: "), "{}", errors(&among));
}

#[test]
fn functions_that_have_moved_to_libc_are_found() {
    let folder = scratch("run_points_libpthread");
    let (source, program) = (folder.join("a.c"), folder.join("a"));
    let text = "#include <pthread.h>\nstatic void *f(void *a) { return a; }\nint main() { for (int i = 0; i < 3; i++) { pthread_t t; \
                pthread_create(&t, 0, f, 0); pthread_join(t, 0); } return 0; }";
    fs::write(&source, text).unwrap();
    run(Command::new("gcc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source));
    // As bpftrace's threadsnoop.bt has it.
    for points in [
        "uprobe:libpthread:pthread_create",
        "uprobe:libpthread:pthread_create, uprobe:libc:pthread_create",
        "uprobe:libc:pthread_create, uprobe:libpthread:pthread_create",
    ] {
        let script = format!("{points} {{ @[comm] = count(); }}");
        let output = nopal_run(&["-e", &script, "--", program.to_str().unwrap()]);
        assert_eq!(lines(&output), BTreeSet::from(["@[a]: 3".to_owned()]), "{points}");
    }
}

#[test]
fn without_privilege_a_tracepoint_says_what_is_missing() {
    let place = std::env::temp_dir().join(format!("nopal-points-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    copy_program(nopal(), &place.join("nopal"));
    run(Command::new("chmod").args(["-R", "a+rX"]).arg(&place));
    if !Path::new("/sys/kernel/tracing/events").exists() {
        run(Command::new("mount").args(["-t", "tracefs", "nodev", "/sys/kernel/tracing"]));
    }
    let output = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"])
        .arg(place.join("nopal"))
        .args(["run", "-e", "tracepoint:sched:sched_switch { @ = count(); }"])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    fs::remove_dir_all(&place).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = errors(&output);
    assert!(said.contains("root, or CAP_BPF, CAP_PERFMON") && !said.contains("mount"), "{said}");
}

#[test]
fn a_symbol_is_read_with_the_size_it_has() {
    let folder = scratch("run_points_uaddr");
    let source = folder.join("sizes.c");
    // Behind each there is something that a read of eight bytes would take along.
    let text = "#include <sys/sdt.h>
signed char one = -3; short two = -300; int four = -70000; long eight = -5000000000;
int main(void) { one--; two--; four--; eight--; DTRACE_PROBE(sizes, hit); return 0; }";
    fs::write(&source, text).unwrap();
    let program = folder.join("sizes");
    let include = format!("-I{}", nopal_tests::root().join("include").display());
    // Where it was linked to be, and where the kernel puts it.
    for kind in ["-no-pie", "-pie"] {
        run(Command::new("gcc").args([&include, "-O1", "-fPIE", kind, "-o"]).arg(&program).arg(&source));
        let file = program.to_str().unwrap();
        let script = format!(
            "usdt:{file}:sizes:hit {{ printf(\"%d %d %d %d\\n\", *uaddr(\"one\"), *uaddr(\"two\"), *uaddr(\"four\"), *uaddr(\"eight\")); }}"
        );
        for door in ["auto", "kernel"] {
            let output = nopal_run(&["--door", door, "-e", &script, "--", file]);
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(printed, "-4 -301 -70001 -5000000001\n", "{kind} {door}: {}", errors(&output));
        }
        let script = format!("uprobe:{file}:main {{ print(*uaddr(\"one\")); }}");
        let output = nopal_run(&["-e", &script, "--", file]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "-3\n", "{kind}: {}", errors(&output));
    }
}

#[test]
fn the_verdict_has_a_line_of_its_own() {
    let script = "BEGIN { printf(\"abc\"); exit(); }";
    let apart = nopal_run(&["-e", script, "--", "/bin/true"]);
    assert_eq!(String::from_utf8_lossy(&apart.stdout), "abc");
    let joined = Command::new("sh")
        .args(["-c", "\"$0\" run -e \"$1\" -- /bin/true 2>&1 | cat"])
        .arg(nopal())
        .arg(script)
        .output()
        .unwrap();
    let joined = String::from_utf8_lossy(&joined.stdout).into_owned();
    assert!(joined.ends_with("abc\ncomplete\n"), "{joined}");
}
