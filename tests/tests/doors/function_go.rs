//! Functions of Go: goroutines go from thread to thread, their stacks move, and panics pass their calls. What must be counted
//! is in the program's own plan.

use super::functions::{attach, code_of, end, stop};
use nopal_tests::cycles::cycles;
use nopal_tests::process::{Running, wait_until};
use nopal_tests::{nopal, root, scratch, target_dir};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const N_ROUNDS: i64 = 4000;
/// Calls of `main.tDeep` in a round.
const DEPTH: i64 = 61;

/// The program, with addresses of its own or with fixed ones.
pub(super) fn program(mode: &str) -> PathBuf {
    built("goroutines", mode, false)
}

pub(super) fn built(name: &str, mode: &str, has_c: bool) -> PathBuf {
    built_with(name, mode, has_c, "")
}

/// `flags` are for the compiler.
pub(super) fn built_with(name: &str, mode: &str, has_c: bool, flags: &str) -> PathBuf {
    let folder = target_dir().join("lab/go");
    fs::create_dir_all(&folder).unwrap();
    let lock = fs::File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let program = folder.join(format!("{name}-{mode}{}", if flags.is_empty() { "" } else { "-plain" }));
    let mut command = Command::new("go");
    command.args(["build", &format!("-buildmode={mode}"), &format!("-gcflags={flags}"), "-o"]).arg(&program);
    command.arg(root().join(format!("tests/fixtures/targets/{name}.go")));
    command
        .env("GOCACHE", folder.join("cache"))
        .env("GOPATH", folder.join("path"))
        .env("CGO_ENABLED", if has_c { "1" } else { "0" });
    command.env("GO111MODULE", "off").current_dir(&folder);
    let output = command.output().expect("Go is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Runs it with so many rounds under nopal; what nopal answers, and what it says.
fn traced(mode: &str, arguments: &[&str]) -> (Value, String) {
    traced_program(&program(mode), arguments)
}

fn traced_program(program: &Path, arguments: &[&str]) -> (Value, String) {
    let mut command = Command::new(nopal());
    command.args(arguments).args(["-v", "--json", "--"]);
    command.arg(program).arg(N_ROUNDS.to_string()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{out}{log}");
    assert!(out.contains(&format!("rounds={N_ROUNDS} errors=0")), "{out}{log}");
    (serde_json::from_str(out.lines().last().unwrap()).unwrap(), log)
}

fn planned(function: &str) -> [i64; 2] {
    match function {
        "tHops" | "tGuards" => [N_ROUNDS; 2],
        "tDeep" => [N_ROUNDS * DEPTH; 2],
        "tThrows" => [N_ROUNDS, N_ROUNDS / 4 * 3],
        other => panic!("{other} was not asked for"),
    }
}

fn functions_are_entered_and_left_as_planned(mode: &str) {
    let file = program(mode).display().to_string();
    let script = format!(
        "uprobe:{file}:main.t* {{ @in[probe] = count(); }} uretprobe:{file}:main.t* {{ @out[probe] = count(); }}
         uprobe:{file}:main.tDeep {{ @sum += arg0; @deep += arg1; }} uprobe:{file}:main.tHops {{ @sum += arg0; }}"
    );
    let (answer, log) = traced(mode, &["run", "-e", &script]);
    // What comes by two doors at once has no order; nothing else may be wrong.
    let is_all = answer["lost"] == 0 && answer["gaps"] == 0;
    assert!(is_all && (answer["complete"] == true || answer["unordered"] != 0), "{answer}{log}");
    let rows = answer["rows"].as_array().unwrap();
    for function in ["tHops", "tDeep", "tThrows", "tGuards"] {
        let count = |map: &str| {
            let is_it = |row: &&Value| {
                row["map"] == map && row["key"][0].as_str().is_some_and(|key| key.ends_with(function))
            };
            rows.iter().find(is_it).and_then(|row| row["value"].as_i64())
        };
        assert_eq!([count("@in"), count("@out")], planned(function).map(Some), "{function}: {log}");
    }
    let value = |map: &str| rows.iter().find(|row| row["map"] == map).and_then(|row| row["value"].as_i64());
    // What each call of a round is given: how deep it still goes, and the sum of how deep it went.
    let depths = || (0..DEPTH).rev();
    let sums = depths().scan(0, |sum, left| Some(std::mem::replace(sum, *sum + left)));
    let rounds: i64 = (0..N_ROUNDS).sum();
    assert_eq!(value("@sum"), Some(rounds + N_ROUNDS * depths().sum::<i64>()), "{log}");
    assert_eq!(value("@deep"), Some(N_ROUNDS * sums.sum::<i64>()), "{log}");
}

#[test]
fn functions_of_go_are_entered_and_left_as_planned() {
    functions_are_entered_and_left_as_planned("pie");
}

#[test]
fn functions_of_go_at_fixed_addresses_are_entered_and_left_as_planned() {
    functions_are_entered_and_left_as_planned("exe");
}

/// By goroutine and depth: by thread or by address calls would be taken for others.
#[test]
fn calls_of_goroutines_are_spans() {
    for mode in ["pie", "exe"] {
        let name = |function: &str| format!("goroutines-{mode}:main.{function}");
        let asked = ["tHops", "tDeep", "tThrows", "tGuards"].map(name);
        let mut arguments = vec!["latency"];
        arguments.extend(asked.iter().map(String::as_str));
        let (answer, log) = traced(mode, &arguments);
        for function in ["tHops", "tDeep", "tThrows", "tGuards"] {
            let rows = answer["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row["span"] == name(function).as_str());
            let count = row.and_then(|row| row["count"].as_i64());
            assert_eq!(count, Some(planned(function)[1]), "{function}: {answer}{log}");
        }
        assert_eq!(answer["unmatched"], N_ROUNDS / 4, "{answer}{log}");
        assert_eq!(answer["complete"], true, "{answer}{log}");
    }
}

/// The kernel sees a function return by an address of its own on the stack, which Go does not know when the stack moves.
#[test]
fn the_kernel_does_not_wait_for_returns_of_go() {
    let file = program("pie").display().to_string();
    let script = format!(
        "uprobe:{file}:main.tDeep {{ @in = count(); }} uretprobe:{file}:main.tDeep {{ @out = count(); }}"
    );
    let mut command = Command::new(nopal());
    command.args(["run", "--door", "kernel", "--json", "-e", &script, "--"]);
    let output = command.arg(file).arg(N_ROUNDS.to_string()).output().unwrap();
    let (out, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(out.contains(&format!("rounds={N_ROUNDS} errors=0")), "{out}{log}");
    assert!(log.contains("would end a program of Go when its stack moves"), "{log}");
    let answer: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(answer["complete"], false, "{answer}{log}");
    let row = answer["rows"].as_array().unwrap().iter().find(|row| row["map"] == "@in");
    assert_eq!(row.and_then(|row| row["value"].as_i64()), Some(N_ROUNDS * DEPTH), "{answer}{log}");
}

#[test]
fn functions_of_go_are_opened_and_closed_under_load() {
    for mode in ["pie", "exe"] {
        let program = program(mode);
        let mut command = Command::new(&program);
        command.arg("0").stdout(Stdio::piped());
        let target = Running::start(&mut command);
        let log = scratch("function_go_toggles").join(mode);
        let patterns = ["main.t*", "runtime.ma*", "main.*", "runtime.ch*"];
        for pattern in patterns.iter().cycle().take(cycles(8) as usize) {
            let file = program.display();
            let script = format!(
                "uprobe:{file}:{pattern} {{ @in = count(); }} uretprobe:{file}:{pattern} {{ @out = count(); }}"
            );
            stop(attach(target.pid(), &script, &log));
            let (_, then, now) = code_of(target.pid(), &program);
            assert!(then == now, "all bytes are back after {pattern}");
        }
        end(target);
    }
}

/// Calls of `main.tBack` in a round of the program with C in it.
const BACK: i64 = 21;

fn with_c(mode: &str) -> PathBuf {
    built("with_c", mode, true)
}

/// Both are in one file: those of C have C's registers and names, and return as C does.
#[test]
fn functions_of_c_in_a_program_of_go_have_arguments_of_c() {
    for (mode, door) in [("pie", "auto"), ("exe", "auto"), ("pie", "kernel")] {
        let program = with_c(mode);
        let file = program.display().to_string();
        let script = format!(
            "uprobe:{file}:c_answer {{ @first = sum(arg0); @second = sum(args.second); }}
             uprobe:{file}:c_length /str(arg0) == \"round 7\"/ {{ @seventh = count(); }}
             uretprobe:{file}:c_answer {{ @left = count(); @answers = sum(retval); }}
             uprobe:{file}:main.tAsks {{ @asked = sum(arg0); }} uprobe:{file}:main.tBack {{ @back = count(); }}"
        );
        let (answer, log) = traced_program(&program, &["run", "--door", door, "-e", &script]);
        let is_all = answer["lost"] == 0 && answer["gaps"] == 0;
        assert!(is_all && (answer["complete"] == true || answer["unordered"] != 0), "{answer}{log}");
        let value = |map: &str| {
            let row = answer["rows"].as_array().unwrap().iter().find(|row| row["map"] == map);
            row.and_then(|row| row["value"].as_i64())
        };
        let rounds = || 0..N_ROUNDS;
        let answered = |round: i64| 3 * round + 2 * (round + 1) + format!("round {round}").len() as i64;
        for (map, expected) in [
            ("@first", rounds().sum()),
            ("@second", rounds().map(|round| round + 1).sum()),
            ("@seventh", 1),
            ("@left", N_ROUNDS),
            ("@answers", rounds().map(answered).sum()),
            ("@asked", rounds().sum()),
            ("@back", N_ROUNDS * BACK),
        ] {
            assert_eq!(value(map), Some(expected), "{map} of {mode} by {door}: {answer}{log}");
        }
    }
}

/// Calls of C by thread and stack, those of Go by goroutine, which goes on in another thread when it is back.
#[test]
fn calls_of_c_and_of_go_in_one_program_are_spans() {
    for mode in ["pie", "exe"] {
        let planned = [("main.tAsks", 1), ("c_answer", 1), ("main.tBack", BACK), ("c_length", 1)];
        let name = |function: &str| format!("with_c-{mode}:{function}");
        let asked = planned.map(|(function, _)| name(function));
        let mut arguments = vec!["latency"];
        arguments.extend(asked.iter().map(String::as_str));
        let (answer, log) = traced_program(&with_c(mode), &arguments);
        for (function, n_of_round) in planned {
            let rows = answer["rows"].as_array().unwrap();
            let row = rows.iter().find(|row| row["span"] == name(function).as_str());
            let count = row.and_then(|row| row["count"].as_i64());
            assert_eq!(count, Some(N_ROUNDS * n_of_round), "{function}: {answer}{log}");
        }
        assert_eq!((&answer["unmatched"], &answer["complete"]), (&0.into(), &true.into()), "{answer}{log}");
    }
}

/// Without C there is no stack of a C library in a program, and where its first thread waits it is on a goroutine's.
#[test]
fn a_program_of_go_is_entered_while_its_first_thread_waits() {
    let program = built("waits", "pie", false);
    let folder = scratch("function_go_waits");
    let said = folder.join("said");
    let mut command = Command::new(&program);
    let spawned = command.stdin(Stdio::piped()).stdout(fs::File::create(&said).unwrap()).spawn();
    let mut target = Running(spawned.unwrap());
    wait_until("it waits in a call", 60, || {
        let call =
            fs::read_to_string(format!("/proc/{0}/task/{0}/syscall", target.pid())).unwrap_or_default();
        call.starts_with("0 0x0 ")
    });
    let file = program.display();
    let script = format!(
        "uprobe:{file}:main.tAnswer {{ @in = count(); }} uretprobe:{file}:main.tAnswer {{ @out = count(); }}"
    );
    for _ in 0..cycles(10) {
        let mut command = Command::new(nopal());
        command.args(["run", "-v", "--json", "--duration", "300ms", "-e", &script, "-p"]);
        let output = command.arg(target.pid().to_string()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.contains("door: user"), "{errors}");
        let n_by_user = errors.lines().filter(|line| line.contains(": user door: ")).count();
        assert!(n_by_user >= 2, "{errors}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let counted = answer["rows"].as_array().unwrap().iter().all(|row| row["value"].as_i64() > Some(10));
        assert!(counted && answer["rows"].as_array().unwrap().len() == 2, "{answer}{errors}");
    }
    std::io::Write::write_all(&mut target.0.stdin.take().unwrap(), b"go\n").unwrap();
    assert!(target.0.wait().unwrap().success());
    let said = fs::read_to_string(said).unwrap();
    assert!(said.contains("errors=0"), "{said}");
}
