//! Functions of code that comes, goes and changes while it is traced, of processes that multiply, and of threads that signals
//! interrupt at any moment. Each program checks its own results; what must be counted is in its plan.

use super::functions::{attach, busy_program, end, stop};
use super::thousand_functions::code_is_back;
use nopal_tests::cycles::cycles;
use nopal_tests::nopal;
use nopal_tests::process::{Running, wait_until};
use nopal_tests::scratch;
use nopal_tests::targets::{Build, build, build_with};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn program() -> PathBuf {
    build("changing", &["changing.c"], Build::Pie)
}

fn library() -> PathBuf {
    build_with("changing_plug", &["changing_plug.c"], Build::Pie, &["-shared", "-fPIC"])
}

fn both_edges(file: &Path, function: &str) -> String {
    let file = file.display();
    format!("uprobe:{file}:{function} {{ @in = count(); }} uretprobe:{file}:{function} {{ @out = count(); }}")
}

/// The program in one of its ways, until it is told to end.
fn start(way: &str) -> Running {
    let mut command = Command::new(program());
    command.arg(way).arg(library()).arg("0").stdout(Stdio::piped());
    Running::start(&mut command)
}

/// Starts the program under nopal for so many rounds: how often the function was entered and left, and all that was said.
fn counted(way: &str, n_rounds: i64, script: &str) -> ([Option<i64>; 2], Value, String) {
    let mut command = Command::new(nopal());
    command.args(["run", "-v", "--json", "-e", script, "--"]).arg(program()).arg(way).arg(library());
    let output = command.arg(n_rounds.to_string()).stdin(Stdio::null()).output().unwrap();
    let (out, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let said = format!("{out}{log}");
    assert!(output.status.success() && out.contains(&format!("rounds={n_rounds} errors=0")), "{said}");
    let answer: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let count = |map: &str| {
        let row = answer["rows"].as_array().unwrap().iter().find(|row| row["map"] == map);
        row.and_then(|row| row["value"].as_i64())
    };
    (["@in", "@out"].map(count), answer, said)
}

#[test]
fn a_library_is_unloaded_while_its_functions_are_traced() {
    let script = both_edges(&library(), "plug_value");
    let (counts, answer, said) = counted("unload", 100, &script);
    // Three calls each time that it is loaded; where it is, another library may be the next time.
    assert_eq!(counts, [Some(300); 2], "{said}");
    assert_eq!(answer["lost"], 0, "{said}");
    let target = start("unload");
    let log = scratch("function_changes_unload").join("log");
    for _ in 0..cycles(6) {
        // The library may be away just now.
        let mut tracer = Running::start(
            Command::new(nopal())
                .args(["run", "-e", &script, "-p", &target.pid().to_string(), "--duration", "300ms"])
                .stdout(Stdio::null())
                .stderr(fs::File::create(&log).unwrap()),
        );
        assert!(tracer.0.wait().unwrap().success(), "{}", fs::read_to_string(&log).unwrap());
    }
    end(target);
}

#[test]
fn both_copies_of_a_library_that_is_mapped_twice_are_traced() {
    let script = both_edges(&library(), "plug_value");
    let (counts, answer, said) = counted("twice", 500, &script);
    assert_eq!(counts, [Some(1000); 2], "{said}");
    assert_eq!(answer["lost"], 0, "{said}");
    let target = start("twice");
    let log = scratch("function_changes_twice").join("log");
    let n_copies = || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid())).unwrap();
        maps.lines().filter(|line| line.contains("changing_plug") && line.contains(" r-xp ")).count()
    };
    wait_until("both copies are there", 60, || n_copies() == 2);
    for _ in 0..cycles(3) {
        let tracer = attach(target.pid(), &script, &log);
        let said = fs::read_to_string(&log).unwrap();
        // Two edges of each copy, whichever door.
        let sites = said.lines().find_map(|line| line.strip_prefix("sites: ")).unwrap();
        let n_sites: u32 = sites.split(' ').filter_map(|word| word.parse::<u32>().ok()).sum();
        assert_eq!(n_sites, 4, "{said}");
        stop(tracer);
        code_is_back(target.pid(), "a library that is mapped twice");
    }
    end(target);
}

/// It saves the bytes of an entry, puts its own jump there and puts the bytes back: ours among them, also after we have left.
#[test]
fn a_program_that_patches_the_function_itself_goes_on() {
    let script = both_edges(&program(), "c_patched");
    let target = start("patch");
    let log = scratch("function_changes_patch").join("log");
    for _ in 0..cycles(20) {
        stop(attach(target.pid(), &script, &log));
    }
    end(target);
}

/// It puts its own jump on an entry that is traced, and keeps it there while we leave and come back.
#[test]
fn a_function_that_the_program_replaces_is_left_alone() {
    let folder = scratch("function_changes_replace");
    let log = folder.join("log");
    let mut target = start("replace");
    let mut said = std::io::BufReader::new(target.0.stdout.take().unwrap());
    let mut ask = |wanted: &str| {
        // SAFETY: sends a signal to a child that has not been waited for.
        unsafe { libc::kill(target.0.id() as i32, libc::SIGUSR1) };
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        assert_eq!(line.trim_end(), wanted);
    };
    let script = both_edges(&program(), "c_patched");
    for is_watched in [true, false] {
        let tracer = attach(target.pid(), &script, &log);
        ask("replaced");
        let is_told =
            || fs::read_to_string(&log).is_ok_and(|text| text.contains("was changed by somebody else"));
        if is_watched {
            wait_until("nopal has seen it", 60, is_told);
        }
        stop(tracer);
        // Calls go to the function that the program put in its place, whatever was there before.
        std::thread::sleep(std::time::Duration::from_millis(100));
        ask("as before");
    }
    // Whoever comes later does not get in, and says so.
    ask("replaced");
    for door in ["auto", "kernel"] {
        let mut command = Command::new(nopal());
        command.args(["run", "--door", door, "--duration", "200ms", "-e", &script]);
        let output = command.args(["-p", &target.pid().to_string()]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("its code there is no longer the file's"), "{door}: {said}");
        assert!(!said.lines().any(|line| line == "complete"), "{door}: {said}");
    }
    ask("as before");
    // SAFETY: sends a signal to a child that has not been waited for.
    unsafe { libc::kill(target.0.id() as i32, libc::SIGTERM) };
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).unwrap();
    let status = target.0.wait().unwrap();
    assert!(status.success() && rest.contains("errors=0"), "{status}: {rest}");
}

#[test]
fn children_by_fork_and_vfork_are_counted() {
    let (counts, answer, said) = counted("forks", 50, &both_edges(&program(), "c_patched"));
    assert_eq!(counts, [Some(150); 2], "{said}");
    assert_eq!(answer["complete"], true, "{said}");
}

/// Starts nopal on a process with a script that shows its maps again and again.
fn watched(pid: u32, script: &str, folder: &Path) -> (Running, PathBuf) {
    let (out, log) = (folder.join("out"), folder.join("log"));
    let mut command = Command::new(nopal());
    let script = format!("{script} interval:ms:100 {{ print(@in); }}");
    command.args(["run", "-v", "-e", &script, "-p", &pid.to_string()]);
    command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&log).unwrap());
    let tracer = Running::start(&mut command);
    wait_until("sites are open", 120, || fs::read_to_string(&log).is_ok_and(|text| text.contains("sites: ")));
    (tracer, out)
}

fn shown(out: &Path) -> u64 {
    let text = fs::read_to_string(out).unwrap();
    text.lines().rev().find_map(|line| line.strip_prefix("@in: ")?.parse().ok()).unwrap_or_default()
}

/// Handlers run in the middle of stubs, and call functions that have stubs.
#[test]
fn signals_interrupt_stubs() {
    const N_SIGNALS: u64 = 3000;
    let folder = scratch("function_changes_signals");
    let (target, program) = busy_program("function_changes_signalled", &["2000"]);
    let file = program.display();
    let script = format!(
        "uprobe:{file}:f_* {{ @all = count(); }} uretprobe:{file}:f_* {{ @r = count(); }}
         uprobe:{file}:meanwhile {{ @in = count(); }}"
    );
    let (tracer, out) = watched(target.pid(), &script, &folder);
    wait_until("many signals have come", 120, || shown(&out) >= N_SIGNALS);
    stop(tracer);
    end(target);
}

/// Whoever comes first: it sees all, and when it has gone we see all again.
#[test]
fn bpftrace_comes_before_and_after_us_on_the_same_entries() {
    // An entry with a prefix that is kept, and one where the first byte changes alone.
    let (target, program) = busy_program("function_changes_bpftrace", &[]);
    let folder = scratch("function_changes_beside");
    for function in ["f_sum", "f_length", "f_choice", "f_down", "f_many"] {
        let point = format!("uprobe:{}:{function}", program.display());
        let bpftrace = |n: u32| {
            let script = format!("{point} {{ @ = count(); }} interval:ms:{n} {{ exit(); }}");
            let mut command = Command::new("bpftrace");
            command.args(["-p", &target.pid().to_string(), "-e", &script]).stdin(Stdio::null());
            command.stdout(fs::File::create(folder.join("bpftrace")).unwrap());
            Running::start(&mut command)
        };
        let saw = || {
            let text = fs::read_to_string(folder.join("bpftrace")).unwrap();
            text.lines().find_map(|line| line.strip_prefix("@: ")?.parse::<u64>().ok()).unwrap_or_default()
        };
        let script = format!("{point} {{ @in = count(); }}");
        // After us.
        let (tracer, out) = watched(target.pid(), &script, &folder);
        wait_until("it is counted", 60, || shown(&out) > 0);
        assert!(bpftrace(300).0.wait().unwrap().success() && saw() > 0, "{function}");
        let n = shown(&out);
        wait_until("it is counted when bpftrace has gone", 60, || shown(&out) > n);
        stop(tracer);
        // Before us, and gone first.
        let mut visitor = bpftrace(2500);
        let has_come = || {
            let text = fs::read_to_string(folder.join("bpftrace")).unwrap();
            text.contains("Attaching")
        };
        wait_until("bpftrace is there", 60, has_come);
        let (tracer, out) = watched(target.pid(), &script, &folder);
        assert!(visitor.0.wait().unwrap().success() && saw() > 0, "{function}");
        let n = shown(&out);
        wait_until("it is counted when bpftrace has gone", 60, || shown(&out) > n);
        stop(tracer);
        code_is_back(target.pid(), function);
    }
    end(target);
}

/// A toggle is a site that is opened and closed again, by one byte or by several, beside three busy threads.
#[test]
fn thousands_of_toggles_disturb_nobody() {
    let (target, program) = busy_program("function_changes_toggles", &[]);
    let log = program.with_extension("log");
    let script = both_edges(&program, "f_*");
    let mut n_toggles = 0;
    for _ in 0..cycles(8) {
        stop(attach(target.pid(), &script, &log));
        let said = fs::read_to_string(&log).unwrap();
        n_toggles += said.lines().filter(|line| line.contains(": user door: ")).count();
    }
    println!("{n_toggles} toggles");
    code_is_back(target.pid(), "thousands of toggles");
    end(target);
}
