//! Probes that are declared while a program runs, through `nopal.h` and `libnopal.so`: what tracers see of them and read
//! from them, and what may happen meanwhile.

use nopal_tests::process::wait_until;
use nopal_tests::runtime::{Talk, compile, libraries};
use nopal_tests::{nopal, root, run, scratch, tools};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// The lines of `/proc/PID/maps` with the object of a provider.
fn mapped(pid: u32, provider: &str) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process lives");
    maps.lines().filter(|l| l.contains(&format!("/memfd:nopal:{provider} "))).map(str::to_owned).collect()
}

/// The first `n` events that nopal sees through a door.
fn trace(pid: u32, probes: &str, door: &str, n: usize) -> Vec<Value> {
    let text = run(Command::new("timeout").arg("60").arg(nopal()).args([
        "trace",
        "--json",
        "--door",
        door,
        "--limit",
        &n.to_string(),
        "-p",
        &pid.to_string(),
        probes,
    ]));
    text.lines().filter(|l| l.starts_with('{')).map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// `nopal trace`, from the moment on at which it listens to the probe.
struct Tracing {
    child: Child,
    /// What it says on standard error while it traces.
    rest: JoinHandle<String>,
}

impl Tracing {
    fn start(talk: &mut Talk, probes: &str, door: &str, probe: &str) -> Tracing {
        let mut child = Command::new("timeout")
            .arg("100")
            .arg(nopal())
            .args(["trace", "--json", "-v", "--door", door, "-p", &talk.pid().to_string(), probes])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until("nopal listens", 30, || talk.ask(&format!("enabled {probe}")) == "1");
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        // A program knows of a listener a moment before all its sites are open and tracing begins.
        let last = if door == "user" { "libraries loaded later" } else { "sites: " };
        let mut line = String::new();
        while !line.contains(last) {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "nopal has ended");
        }
        // What follows must not fill the pipe.
        let rest = std::thread::spawn(move || std::io::read_to_string(lines).unwrap_or_default());
        Tracing { child, rest }
    }

    /// Ends it as Ctrl-C does and returns the names of the probes that it has seen fire, in their order.
    fn end(self) -> Vec<String> {
        let pid = self.child.id();
        // `timeout` hands the signal on.
        run(Command::new("kill").args(["-INT", &pid.to_string()]));
        let output = self.child.wait_with_output().unwrap();
        let verdict = self.rest.join().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let event = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        let names: Vec<String> = text
            .lines()
            .filter(|l| l.starts_with('{'))
            .map(|l| event(l)["name"].as_str().unwrap().to_owned())
            .collect();
        let told = format!("\"events\":{}", names.len());
        assert!(!names.is_empty() && verdict.contains(&told), "{}: {verdict}", output.status);
        names
    }
}

/// All types, in twelve operands.
const ALL: &str = "1:i8 2:u8 3:i16 4:u16 5:i32 6:u32 7:i64 8:u64 9:single 10:whole 11:text 11";
const ALL_VALUES: &str =
    "i-8 i200 i-300 i60000 i-70000 i4000000000 i-5000000000 i18446744073709551615 f1.5 d-2.25 shello n";

const NOT_LOADED: &str = "-3 the probe is not loaded: load its provider (again) before firing it";

#[test]
fn all_types_and_twelve_operands() {
    let mut talk = Talk::start();
    talk.expect(&[
        ("provider app", "0"),
        (&format!("probe 0 all {ALL}"), "0"),
        ("probe 0 spans 12:data 13:part 12:nothing", "1"),
        ("probe 0 none", "2"),
        ("load 0", "0"),
        (&format!("often 0 {ALL_VALUES}"), "0"),
        ("often 1 bab spart n", "0"),
    ]);
    let all = json!({"i8": -8, "u8": 200, "i16": -300, "u16": 60000, "i32": -70000, "u32": 4_000_000_000u32,
        "i64": -5_000_000_000i64, "u64": u64::MAX, "single": 1.5, "whole": -2.25, "text": "hello", "arg11": "(null)"});
    for door in ["user", "kernel"] {
        let events = trace(talk.pid(), "app:all", door, 3);
        assert_eq!(events.len(), 3, "{door}");
        for event in events {
            assert_eq!(event["args"], all, "{door}");
        }
        let events = trace(talk.pid(), "app:spans", door, 1);
        assert_eq!(events[0]["args"]["data"], json!([97, 98]), "{door}: {events:?}");
        assert_eq!(events[0]["args"]["part"], "part", "{door}: {events:?}");
        assert_eq!(events[0]["args"]["nothing"], json!([]), "{door}: {events:?}");
    }
    // bpftrace 0.17 reads the first six operands; gdb is asked for the others.
    let path = talk.ask("path 0");
    let script = format!(
        "usdt:{path}:app:all {{ printf(\"%d %d %d %d %d %u\\n\", arg0, arg1, arg2, arg3, arg4, arg5); exit(); }}"
    );
    let pid = talk.pid().to_string();
    let text = run(Command::new("timeout").args(["60", "bpftrace", "-p", &pid, "-e", &script]));
    assert!(text.contains("-8 200 -300 60000 -70000 4000000000"), "{text}");

    let mut gdb = Command::new("timeout");
    gdb.args(["60", "gdb", "-nx", "-batch", "-p", &pid, "-ex", "info probes stap app"]);
    gdb.args(["-ex", "break -probe-stap app:all", "-ex", "continue", "-ex", "print $_probe_argc"]);
    for argument in [0, 5, 6, 7] {
        gdb.args(["-ex", &format!("print $_probe_arg{argument}")]);
    }
    gdb.args(["-ex", "x/s $_probe_arg10", "-ex", "print $_probe_arg11"]);
    let text = run(&mut gdb);
    for want in
        ["= 12", "= -8", "= 4000000000", "= -5000000000", "= 18446744073709551615", "\"hello\"", "= 0"]
    {
        assert!(text.contains(want), "{want}: {text}");
    }
    for name in ["all", "spans", "none"] {
        assert!(text.lines().any(|l| l.starts_with("stap app") && l.contains(name)), "{name}: {text}");
    }
}

#[test]
fn every_tool_reads_the_object() {
    let folder = scratch("runtime-tools");
    let mut talk = Talk::start();
    talk.expect(&[
        ("provider app", "0"),
        (&format!("probe 0 all {ALL}"), "0"),
        ("probe 0 save!", "1"),
        ("probe 0 größe 8:bytes", "2"),
        ("load 0", "0"),
    ]);
    let path = PathBuf::from(talk.ask("path 0"));
    let warnings = Command::new("readelf").args(["-aW"]).arg(&path).output().unwrap();
    assert!(warnings.stderr.is_empty(), "{}", String::from_utf8_lossy(&warnings.stderr));

    let notes = tools::readelf(&path);
    let sites: BTreeSet<_> = notes.iter().map(|n| n.site.clone()).collect();
    let probes: BTreeSet<_> = sites.iter().map(|s| s.probe.clone()).collect();
    let names = ["app:all", "app:größe", "app:save!"].map(str::to_owned);
    assert_eq!(probes.iter().cloned().collect::<Vec<_>>(), names);
    for note in &notes {
        let site = [0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0xc3];
        assert_eq!(tools::code_at(&path, note.site.address, 12), site, "{note:?}");
        assert_eq!(note.base, tools::section(&path, ".stapsdt.base").unwrap().0, "{note:?}");
        let (start, _, size) = tools::section(&path, ".probes").unwrap();
        assert!((start..start + size).contains(&note.site.semaphore), "{note:?}");
    }
    let gdb: BTreeSet<_> = tools::gdb_sites(&path).into_iter().collect();
    assert_eq!(gdb, sites, "gdb");
    assert_eq!(tools::bpftrace_list(&path), probes, "bpftrace");
    let tplist = tools::tplist(&path);
    assert_eq!(tplist.iter().map(|(site, _)| site.clone()).collect::<BTreeSet<_>>(), sites, "tplist");
    assert!(tplist.iter().any(|(site, n_args)| site.probe == "app:all" && *n_args == 12), "{tplist:?}");
    assert_eq!(tools::tplist_process(talk.pid(), &path), probes, "tplist -p");
    // perf and stap want a file with a name.
    let copy = folder.join("app.so");
    fs::copy(&path, &copy).unwrap();
    let stap = tools::stap_list(&copy, &folder.join("stap"));
    assert_eq!(stap["app:all"], 12, "{stap:?}");
    let ours: BTreeSet<_> = tools::nopal_list(nopal(), &path).into_iter().collect();
    assert_eq!(ours, notes.into_iter().map(|n| (n.site, n.args)).collect(), "nopal list");
    let listed = run(Command::new(nopal()).args(["list", "-p", &talk.pid().to_string(), "app:*"]));
    let want = "int8_t i8, uint8_t u8, int16_t i16, uint16_t u16, int32_t i32, uint32_t u32, int64_t i64, uint64_t u64, \
                float single, double whole, const char *text, const char *arg11";
    assert!(listed.contains(want), "{listed}");
}

#[test]
fn probes_added_later_leave_the_others_and_their_tracers_alone() {
    for door in ["user", "kernel"] {
        let mut talk = Talk::start();
        talk.expect(&[("provider app", "0"), ("probe 0 one 8:n", "0"), ("load 0", "0")]);
        let before = talk.ask("semaphore 0");
        let tracing = Tracing::start(&mut talk, "app:*", door, "0");
        assert_eq!(talk.ask("semaphore 0"), before.replace(" 0", " 1"), "{door}");
        talk.expect(&[("fire 0 5 i1", "1"), ("probe 0 two 8:n", "1"), ("load 0", "0"), ("fire 0 6 i2", "1")]);
        assert_eq!(talk.ask("semaphore 0"), before.replace(" 0", " 1"), "{door}: it is where it was");
        // nopal hears of the new object from the dynamic linker.
        wait_until("nopal listens to the new probe", 30, || talk.ask("enabled 1") == "1");
        talk.expect(&[("fire 1 7 i3", "1"), ("fire 0 1 i3", "1")]);
        let names = tracing.end();
        let count = |name: &str| names.iter().filter(|n| *n == name).count();
        assert_eq!((count("one"), count("two")), (12, 7), "{door}");
        assert_eq!(talk.ask("semaphore 0"), before, "{door}: nobody listens any more");
        talk.expect(&[("enabled 0", "0"), ("enabled 1", "0"), ("fire 0 1 i4", "0")]);
    }
}

#[test]
fn unloaded_probes_vanish_and_come_back_where_they_were() {
    let mut talk = Talk::start();
    let not_loaded = NOT_LOADED;
    talk.expect(&[
        ("provider app", "0"),
        ("probe 0 one 8:n", "0"),
        ("path 0", "NULL"),
        ("semaphore 0", "(nil) -1"),
        ("fire 0 1 i1", not_loaded),
        ("enabled 0", "0"),
        ("unload 0", "0"),
        ("load 0", "0"),
    ]);
    let (place, pages) = (talk.ask("semaphore 0"), mapped(talk.pid(), "app"));
    assert_eq!(pages.len(), 2, "{pages:?}");
    // A tracer that is attached hears the probe again, once it is back.
    for door in ["kernel", "user"] {
        let tracing = Tracing::start(&mut talk, "app:*", door, "0");
        talk.expect(&[
            ("fire 0 3 i1", "1"),
            ("unload 0", "0"),
            ("fire 0 1 i1", not_loaded),
            ("enabled 0", "0"),
        ]);
        assert_eq!(mapped(talk.pid(), "app"), [""; 0], "no tracer finds it");
        talk.expect(&[("path 0", "NULL"), ("semaphore 0", "(nil) -1"), ("load 0", "0")]);
        assert_eq!(talk.ask("semaphore 0").split(' ').next(), place.split(' ').next());
        assert_eq!(mapped(talk.pid(), "app")[0], pages[0]);
        // The kernel sets its breakpoint again when the file is mapped, nopal its jump when it next looks.
        if door == "kernel" {
            talk.expect(&[("enabled 0", "1")]);
        }
        wait_until("nopal listens again", 30, || talk.ask("enabled 0") == "1");
        talk.expect(&[("fire 0 4 i1", "1")]);
        assert_eq!(tracing.end().len(), 7, "{door}");
        assert_eq!(talk.ask("semaphore 0"), place, "{door}: not raised any more");
    }
    // Again and again: nothing grows.
    for _ in 0..50 {
        talk.expect(&[("unload 0", "0"), ("load 0", "0")]);
    }
    let descriptors = |pid: u32| fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let n_before = descriptors(talk.pid());
    assert_eq!(mapped(talk.pid(), "app")[0], pages[0]);
    for door in ["user", "kernel"] {
        talk.expect(&[("probe 0 more 8", "1")][..usize::from(door == "user")]);
        talk.expect(&[("load 0", "0")]);
        let tracing = Tracing::start(&mut talk, "app:one", door, "0");
        talk.expect(&[("fire 0 2 i1", "1")]);
        assert_eq!(tracing.end(), ["one"; 2], "{door}");
    }
    talk.expect(&[("destroy 0", "0")]);
    assert_eq!(mapped(talk.pid(), "app"), [""; 0]);
    assert_eq!(descriptors(talk.pid()), n_before - 1);
}

#[test]
fn a_forked_child_has_the_probes_under_its_own_pid() {
    let mut talk = Talk::start();
    talk.expect(&[("provider app", "0"), ("probe 0 one 8:n", "0"), ("load 0", "0")]);
    // The parent ends, so that nothing can be found through it.
    let child: u32 = talk.ask("daemon").parse().unwrap();
    assert_ne!(child, talk.pid());
    let path = talk.ask("path 0");
    assert!(path.starts_with(&format!("/proc/{child}/fd/")), "{path}");
    talk.expect(&[("often 0 i7", "0"), ("probe 0 two", "1"), ("load 0", "0")]);
    for door in ["user", "kernel"] {
        assert_eq!(trace(child, "app:one", door, 1)[0]["args"], json!({"n": 7}), "{door}");
    }
    let pid = child.to_string();
    let script = "usdt:app:one { printf(\"got %d\\n\", arg0); exit(); }".replace("usdt:", "usdt::");
    let text = run(Command::new("timeout").args(["60", "bpftrace", "-p", &pid, "-e", &script]));
    assert!(text.contains("got 7"), "{text}");
    let text = run(Command::new("gdb").args(["-nx", "-batch", "-p", &pid, "-ex", "info probes stap app"]));
    for name in ["one", "two"] {
        let is_there =
            |l: &str| l.starts_with("stap app") && l.contains(name) && l.contains(&format!("/proc/{child}/"));
        assert!(text.lines().any(is_there), "{text}");
    }
    // The child of the daemon is nobody's to wait for.
    let quit = talk.process.0.try_wait();
    talk.expect(&[("enabled 0", "0")]);
    drop(talk);
    wait_until("the child sees the end of its input", 10, || {
        !Path::new(&format!("/proc/{child}/fd/0")).exists()
    });
    assert!(quit.is_ok());
}

#[test]
fn two_providers_of_one_name_are_seen_as_one() {
    let mut talk = Talk::start();
    talk.expect(&[
        ("provider app", "0"),
        ("provider app", "1"),
        ("probe 0 same 8:n", "0"),
        ("probe 1 same 8:n", "1"),
        ("probe 1 other", "2"),
        ("load 0", "0"),
        ("load 1", "0"),
    ]);
    assert_ne!(talk.ask("path 0"), talk.ask("path 1"));
    let tracing = Tracing::start(&mut talk, "app:same", "user", "0");
    wait_until("both are enabled", 30, || talk.ask("enabled 1") == "1");
    talk.expect(&[("enabled 2", "0"), ("fire 0 2 i1", "1"), ("destroy 0", "0"), ("fire 1 3 i1", "1")]);
    assert_eq!(tracing.end(), ["same"; 5]);
}

#[test]
fn errors_say_what_to_do() {
    let mut talk = Talk::start();
    let too_long = "x".repeat(201);
    let name_rule = "cannot name a provider, a probe or an argument: use 1 to 200 bytes of UTF-8 without blanks, colons and \
                     control characters";
    talk.expect(&[
        ("provider", "NULL the provider's name is NULL"),
        ("provider a:b", &format!("NULL \"a:b\" {name_rule}")),
        (&format!("provider {too_long}"), &format!("NULL \"{}\" {name_rule}", &too_long[..200])),
        ("provider \u{85}", &format!("NULL \"\\u{{85}}\" {name_rule}")),
        ("provider app", "0"),
        ("probe 5 x", "NULL the provider is NULL"),
        ("load 5", "-1 the provider is NULL"),
        ("unload 5", "-1 the provider is NULL"),
        ("destroy 5", "0"),
        ("path 5", "NULL"),
        ("fire 5 1", "-1 the probe is NULL"),
        ("enabled 5", "0"),
        ("semaphore 5", "(nil) -1"),
        ("probe 0", "NULL the probe's name is NULL"),
        ("probe 0 a:b", &format!("NULL \"a:b\" {name_rule}")),
        ("probe 0 x 8:a\tb", &format!("NULL \"a\\tb\" {name_rule}")),
        ("probe 0 x 0", "NULL argument 0 has type 0, which is none: use NOPAL_INT8 to NOPAL_TEXT"),
        ("probe 0 x 8 14", "NULL argument 1 has type 14, which is none: use NOPAL_INT8 to NOPAL_TEXT"),
        (
            "probe 0 x 1 1 1 1 1 1 1 1 1 1 1 1 1",
            "NULL probe x would have 13 operands, and tracers read 12: pass fewer arguments; bytes and text with a length \
             take two",
        ),
        (
            "probe 0 x 1 1 1 1 1 1 1 1 1 1 1 12",
            "NULL probe x would have 13 operands, and tracers read 12: pass fewer arguments; bytes and text with a length \
             take two",
        ),
        ("probe 0 x 1 1 1 1 1 1 1 1 1 1 1 1", "0"),
        ("probe 0 x", "NULL provider app already has a probe x: fire that one, or choose another name"),
        ("probe 0 y 8 8", "1"),
        ("load 0", "0"),
        // Nobody listens, and so nobody looks at the values.
        ("fire 1 1", "0"),
    ]);
    let tracing = Tracing::start(&mut talk, "app:y", "user", "1");
    talk.expect(&[
        ("fire 1 1 i1", "-2 the probe has 2 arguments, but 1 values were given"),
        ("fire 1 1 i1 i2 i3", "-2 the probe has 2 arguments, but 3 values were given"),
        ("fire 1 1 i1 i2", "1"),
    ]);
    assert_eq!(tracing.end(), ["y"]);
    // A program that closes descriptors it does not know.
    let fd = talk.ask("path 0").rsplit('/').next().unwrap().to_owned();
    talk.expect(&[
        (&format!("close {fd}"), "0"),
        ("provider late", "1"),
        ("probe 1 z", "2"),
        ("load 1", "0"),
    ]);
    assert_ne!(
        talk.ask("path 1"),
        talk.ask("path 0"),
        "the number is taken, as far as the dynamic linker knows"
    );
    talk.expect(&[
        ("unload 0", "0"),
        (
            "load 0",
            "-4 cannot load again what was loaded: the program has closed the object's file descriptor: Bad file descriptor \
             (os error 9)",
        ),
        ("destroy 0", "0"),
        ("destroy 1", "0"),
    ]);
}

#[test]
fn loading_leaves_the_program_half_of_its_file_descriptors() {
    let program = Talk::program();
    let mut talk = Talk::with(Command::new("prlimit").args(["--nofile=40"]).arg(program));
    talk.expect(&[("provider app", "0")]);
    let mut last = String::new();
    for n in 0..=20 {
        assert!(talk.ask(&format!("probe 0 p{n}")).parse::<u32>().is_ok());
        last = talk.ask("load 0");
        assert!(n == 20 || last == "0", "{n}: {last}");
    }
    let want = "-4 20 objects with probes are loaded, and each takes one of the program's file descriptors: add probes before \
                loading, not one after the other";
    assert_eq!(last, want);
    talk.expect(&[("enabled 0", "0"), ("fire 0 1", "0"), ("fire 20 1", NOT_LOADED), ("destroy 0", "0")]);
    talk.expect(&[("provider app", "1"), ("probe 1 p", "21"), ("load 1", "0")]);
}

#[test]
fn threads_signals_and_forks_while_probes_come_and_go() {
    let program = compile("storm", &["-lnopal"]);
    let tracing = |door: &'static str, program: PathBuf| {
        std::thread::spawn(move || {
            let mut child = Command::new("timeout")
                .args(["120", "stdbuf", "-oL"])
                .arg(program)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let pid = lines.next().unwrap().unwrap();
            // Comes and goes with the storm, and may find nothing at the moment it looks.
            let mut n_seen = 0;
            while !door.is_empty() && child.try_wait().unwrap().is_none() {
                let output = Command::new("timeout")
                    .arg("20")
                    .arg(nopal())
                    .args([
                        "trace",
                        "--json",
                        "--only",
                        "--door",
                        door,
                        "--duration",
                        "300ms",
                        "-p",
                        &pid,
                        "storm:*",
                    ])
                    .output()
                    .unwrap();
                n_seen += output.stdout.iter().filter(|b| **b == b'\n').count();
            }
            let rest: Vec<String> = lines.map(|l| l.unwrap()).collect();
            let status = child.wait().unwrap();
            assert!(status.success(), "{door}: {status} {rest:?}");
            assert_eq!(rest, ["done"], "{door}");
            n_seen
        })
    };
    for door in ["", "user", "kernel"] {
        let n_seen = tracing(door, program.clone()).join().unwrap();
        assert!(door.is_empty() || n_seen > 0, "{door}: saw the probes fire now and then");
    }
}

#[test]
fn nothing_is_left_in_any_folder() {
    let folder = scratch("runtime-temporary");
    let mut talk = Talk::with(
        Command::new(Talk::program()).env("TMPDIR", &folder).env("HOME", &folder).current_dir(&folder),
    );
    talk.expect(&[("provider leaves_nothing", "0"), ("probe 0 one", "0"), ("load 0", "0")]);
    talk.process.0.kill().unwrap();
    talk.process.0.wait().unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    for place in ["/tmp", "/var/tmp", "/dev/shm"] {
        let Ok(entries) = fs::read_dir(place) else { continue };
        let names: Vec<_> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        assert!(!names.iter().any(|n| n.contains("leaves_nothing")), "{place}: {names:?}");
    }
}

#[test]
fn the_library_exports_the_header_and_nothing_else() {
    let text = run(Command::new("nm").args(["-D", "--defined-only"]).arg(libraries().join("libnopal.so")));
    let exported: BTreeSet<&str> = text.lines().filter_map(|l| l.split(' ').next_back()).collect();
    let header = fs::read_to_string(root().join("include/nopal.h")).unwrap();
    let declared: BTreeSet<&str> = header
        .split("extern \"C\" {")
        .last()
        .unwrap()
        .lines()
        .filter(|line| line.ends_with(");"))
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
        .collect();
    assert_eq!(exported, declared);
    let text = run(Command::new("readelf").arg("-dlW").arg(libraries().join("libnopal.so")));
    assert!(text.contains("NODELETE") && text.contains("[libnopal.so]"), "{text}");
    let stack = text.lines().find(|l| l.contains("GNU_STACK")).unwrap();
    assert!(!stack.contains('E'), "{stack}");
}

#[test]
fn a_provider_that_only_a_worker_has_is_no_gap_in_its_parent() {
    let mut talk = Talk::start();
    let worker: u32 = talk.ask("fork").parse().unwrap();
    assert_ne!(worker, talk.pid());
    talk.expect(&[("provider worker", "0"), ("probe 0 one 8:n", "0"), ("load 0", "0"), ("often 0 i7", "0")]);
    let script = "usdt:*:worker:one { @ = count(); } interval:ms:300 { exit(); }";
    for door in ["kernel", "user"] {
        let pid = talk.pid().to_string();
        let output = Command::new("timeout")
            .arg("60")
            .arg(nopal())
            .args(["run", "--json", "--door", door, "-p", &pid, "-e", script])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let answer: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert!(answer["rows"][0]["value"].as_u64().unwrap() > 0, "{door}: {answer}");
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((&answer["complete"], &answer["gaps"]), (&json!(true), &json!(0)), "{door}: {why}");
    }
}
