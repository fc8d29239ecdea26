//! `nopal trace`, `nopal record` and `nopal detach` as a person uses them, on real programs and on one that knows its truth.

use nopal_tests::process::{Running, free_port, wait_until};
use nopal_tests::{copy_program, lab, nopal, root, run, scratch};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(super) fn compile(folder: &Path, name: &str) -> PathBuf {
    let program = folder.join(name);
    run(Command::new("gcc")
        .args(["-O2", "-I"])
        .arg(root().join("include"))
        .arg(root().join(format!("tests/fixtures/targets/{name}.c")))
        .arg("-o")
        .arg(&program));
    program
}

/// Runs nopal with two newlines on standard input, which the `spoken` program waits for.
pub(super) fn nopal_with(arguments: &[&str], program: &Path, program_arguments: &[&str]) -> Output {
    let mut command = Command::new(nopal());
    command.args(arguments).arg("--").arg(program).args(program_arguments);
    output_of(&mut command)
}

pub(super) fn output_of(command: &mut Command) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that fails early does not read it.
    let _ = child.stdin.take().unwrap().write_all(b"\n\n");
    child.wait_with_output().unwrap()
}

pub(super) fn events(stdout: &[u8]) -> Vec<Value> {
    String::from_utf8_lossy(stdout)
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

pub(super) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What each round of `spoken` says through its three probes.
fn truth(rounds: i64) -> Vec<Value> {
    (0..rounds)
        .flat_map(|i| {
            [
                serde_json::json!(["values", {"arg0": -i as i8, "arg1": (i * 3) as u16, "arg2": -i * 1000, "arg3": i << 40}]),
                serde_json::json!(["texts", {"name": if i % 5 == 4 { "(null)".to_owned() } else { format!("name-{i}") },
                    "key": &"0123456789"[..(i % 11) as usize], "key_length": i % 11}]),
                serde_json::json!(["places", {"arg0": (([11, 22, 33, 44])[(i & 3) as usize]), "arg1": 77, "arg2": 5, "arg3": -6}]),
            ]
        })
        .collect()
}

fn said(event: &Value) -> Value {
    serde_json::json!([event["name"], event["args"]])
}

const NAMES: &str =
    "provider spoken { /** @length key key_length */ probe texts(char *name, char *key, int key_length); };";

#[test]
fn both_doors_tell_the_truth() {
    const ROUNDS: i64 = 60;
    let folder = scratch("tracing_doors");
    let program = compile(&folder, "spoken");
    let names = folder.join("names.d");
    fs::write(&names, NAMES).unwrap();
    for door in ["user", "kernel", "auto"] {
        let arguments =
            ["trace", "spoken:*", "--json", "--door", door, "--provider", names.to_str().unwrap()];
        let output = nopal_with(&arguments, &program, &[&ROUNDS.to_string()]);
        assert!(output.status.success(), "{door}: {}", errors(&output));
        let events = events(&output.stdout);
        let told: Vec<Value> = events.iter().map(said).collect();
        assert_eq!(told, truth(ROUNDS), "{door}: {}", errors(&output));
        assert!(events.windows(2).all(|w| w[0]["ts"].as_u64() <= w[1]["ts"].as_u64()), "{door}");
        for key in ["host", "pid", "tid", "cpu", "provider"] {
            assert!(!events[0][key].is_null(), "{door}: {key} in {}", events[0]);
        }
    }
}

#[test]
fn a_recording_is_the_same_to_babeltrace2() {
    const ROUNDS: i64 = 2_000;
    let folder = scratch("tracing_record");
    let program = compile(&folder, "spoken");
    let recording = folder.join("spoken.rec");
    let arguments = ["record", "-e", "spoken:*", "--json", "-o", recording.to_str().unwrap()];
    let output = nopal_with(&arguments, &program, &[&ROUNDS.to_string()]);
    assert!(output.status.success(), "{}", errors(&output));
    let result = events(&output.stdout).pop().unwrap();
    assert_eq!(result["events"], 3 * ROUNDS);
    assert_eq!(result["lost"], 0);
    assert_eq!(result["sites"]["user"].as_u64().unwrap() + result["sites"]["kernel"].as_u64().unwrap(), 3);
    let ours = run(Command::new(nopal()).arg("view").arg(&recording));
    let theirs = Command::new("babeltrace2").arg(&recording).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&theirs.stderr), "");
    assert_eq!(ours, String::from_utf8_lossy(&theirs.stdout));
    assert_eq!(ours.lines().count() as i64, 3 * ROUNDS);
    let again = nopal_with(&arguments, &program, &["1"]);
    assert_eq!(again.status.code(), Some(1));
    assert!(errors(&again).contains("already holds a recording"), "{}", errors(&again));
}

#[test]
fn conditions_choose_events() {
    let program = compile(&scratch("tracing_conditions"), "spoken");
    for (condition, expected) in [
        ("spoken:values if arg1 == 30", vec![10]),
        ("spoken:values if arg2 <= -97000 && arg0 < 0", vec![97, 98, 99]),
        ("spoken:values if arg1 < 6 || arg1 > 291", vec![0, 1, 98, 99]),
        ("spoken:values if !(arg3 != 0)", vec![0]),
    ] {
        for door in ["user", "kernel"] {
            let output = nopal_with(&["trace", condition, "--json", "--door", door], &program, &["100"]);
            let rounds: Vec<i64> =
                events(&output.stdout).iter().map(|e| e["args"]["arg1"].as_i64().unwrap() / 3).collect();
            assert_eq!(rounds, expected, "{condition} {door}: {}", errors(&output));
        }
    }
}

#[test]
fn every_committed_event_of_a_killed_program_is_recorded() {
    const ROUNDS: u64 = 20_000;
    let folder = scratch("tracing_dies");
    let program = compile(&folder, "dies");
    let recording = folder.join("dies.rec");
    let arguments =
        ["record", "-e", "dies:tick", "--json", "--door", "user", "-o", recording.to_str().unwrap()];
    let output = nopal_with(&arguments, &program, &[&ROUNDS.to_string()]);
    let result = events(&output.stdout).pop().unwrap_or_else(|| panic!("{}", errors(&output)));
    assert_eq!((&result["events"], &result["lost"]), (&ROUNDS.into(), &0.into()));
}

#[test]
fn an_ordinary_user_traces_a_program_of_its_own() {
    let folder = scratch("tracing_user");
    let program = compile(&folder, "spoken");
    // The user may not be able to walk into the build folder.
    let place = std::env::temp_dir().join(format!("nopal-tracing-user-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    for (from, to) in [(nopal(), "nopal"), (&program, "spoken")] {
        copy_program(from, &place.join(to));
        fs::set_permissions(place.join(to), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let output = output_of(
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(place.join("nopal"))
            .args(["trace", "spoken:values", "--json", "--"])
            .arg(place.join("spoken"))
            .arg("50")
            .current_dir("/"),
    );
    fs::remove_dir_all(&place).unwrap();
    assert_eq!(events(&output.stdout).len(), 50, "{}", errors(&output));
}

#[test]
fn memcached_commands_have_their_keys() {
    const N: usize = 300;
    let folder = scratch("tracing_memcached");
    let port = free_port();
    let server = Running::start(Command::new(lab::memcached()).args([
        "-u",
        "root",
        "-l",
        "127.0.0.1",
        "-p",
        &port.to_string(),
    ]));
    wait_until("memcached listens", 20, || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let pid = server.pid().to_string();
    let recording = folder.join("mc.rec");
    let counter = bpftrace_count(server.pid(), "memcached", &["command__set", "command__get"]);
    let recorder = Command::new(nopal())
        .args(["record", "-p", &pid, "-e", "memcached:command__*", "--json", "-o"])
        .arg(&recording)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the recording begins", 20, || recording.join("metadata").exists());
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    for i in 0..N {
        write!(client, "set key-{i} 0 0 {}\r\n{}\r\n", 1 + i % 9, "x".repeat(1 + i % 9)).unwrap();
        expect_line(&mut client, "STORED");
        write!(client, "get key-{}\r\n", i * 2).unwrap();
        while !read_line(&mut client).starts_with("END") {}
    }
    interrupt(recorder.id());
    let output = recorder.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let counted = counter.stop();
    let events = events(run(Command::new(nopal()).arg("view").arg("--json").arg(&recording)).as_bytes());
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for event in &events {
        let key = event["args"]["key"].as_str().unwrap_or_else(|| panic!("{event}"));
        by_name.entry(event["name"].as_str().unwrap()).or_default().push(key);
    }
    let expected = |step: usize| (0..N).map(|i| format!("key-{}", i * step)).collect::<Vec<_>>();
    assert_eq!(by_name["command__set"], expected(1));
    assert_eq!(by_name["command__get"], expected(2));
    for name in ["command__set", "command__get"] {
        assert_eq!(counted[name], by_name[name].len(), "{name}");
    }
    client.write_all(b"get key-3\r\n").unwrap();
    assert!(read_line(&mut client).starts_with("VALUE key-3"), "memcached goes on as before");
}

#[test]
fn wrong_requests_get_one_clear_sentence() {
    let folder = scratch("tracing_wrong");
    let program = compile(&folder, "spoken");
    let program = program.to_str().unwrap();
    let python =
        Running::start(Command::new("/usr/bin/python3.11").args(["-c", "import time; time.sleep(600)"]));
    let pid = python.pid().to_string();
    wait_until("python runs", 10, || {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("python3.11"))
    });
    for (arguments, code, message) in [
        (vec!["trace", "-p", "4194000", "x:y"], 1, "no process"),
        (vec!["trace", "x:y"], 2, "no process named"),
        (vec!["trace", "-p", &pid, "python:gc__strat"], 1, "did you mean `python:gc__start`?"),
        (vec!["trace", "-p", &pid, "python:gc__start if gen > 1"], 1, "its arguments are: generation"),
        (vec!["trace", "-p", &pid, "python:gc__start if generation > "], 1, "expected a number"),
        (vec!["trace", "-p", &pid, "python:gc__start if"], 1, "expected the name of an argument"),
        (vec!["trace", "-p", &pid, "python:line if funcname > 1"], 1, "`funcname` is a string"),
        (vec!["trace", "-p", &pid, "python:line", "--max-string", "0"], 2, "1 byte to 8k"),
        (vec!["trace", "-p", &pid, "python:line", "--buffer-size", "1"], 2, "64k to 1G"),
        (vec!["trace", "spoken:values", "--", "/no/such/program"], 1, "check its path"),
        (vec!["trace", "-p", &pid], 2, "`nopal list -p PID` shows the probes"),
        (vec!["trace", "-p", &pid, "x:y", "--limit", "few"], 2, "not a whole number"),
        (vec!["latency", "-p", &pid], 2, "`nopal spans -p PID` shows the spans"),
        (vec!["trace", "-p"], 2, "`nopal list -u` shows the processes"),
        (vec!["trace", "-p", &pid, "python:line { exit(); }"], 1, "it looks like a script"),
        (vec!["latency", "-p", &pid, "query"], 1, "no span is called `query`"),
        (vec!["trace", "spoken:nothing", "--", program], 1, "no probe matches `spoken:nothing`"),
        (vec!["record", "-e", "python:*", "-p", &pid, "-o", "/proc/nopal.rec"], 1, "/proc/nopal.rec"),
        (vec!["record", "-e", "python:*", "-p", &pid, "-o", "/etc/passwd"], 1, "/etc/passwd is not a folder"),
        (vec!["record", "-e", "python:*", "-p", &pid, "-o", "/no/such/rec"], 1, "mkdir -p /no/such"),
        (vec!["create", "-o", "/no/such/rec"], 1, "there is no folder /no/such"),
        (vec!["detach", "-p", "4194000"], 1, "no process"),
    ] {
        let output = output_of(Command::new(nopal()).args(&arguments));
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(message), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
    for (arguments, code, message, hint) in [
        (&["trace", "--json", "-p", "4194000", "x:y"][..], "no-such-process", "4194000", ""),
        (&["trace", "--json", "-p", "x", "x:y"], "usage", "invalid value 'x'", ""),
        (&["record", "--json", "--evnt", "x:y"], "usage", "'--evnt'", "Usage: nopal record"),
        (&["trace", "--json"], "usage", "<PROBE>", "Usage: nopal trace"),
        (&["trace", "--json"], "usage", "<PROBE>", "`nopal list -p PID` shows the probes"),
        (&["detach", "--json"], "usage", "no process named", "add -p PID or -n NAME"),
    ] {
        let json = output_of(Command::new(nopal()).args(arguments));
        let error: Value =
            serde_json::from_slice(&json.stderr).unwrap_or_else(|_| panic!("{}", errors(&json)));
        let error = &error["error"];
        assert_eq!(error["code"], code, "{arguments:?}: {error}");
        assert!(error["message"].as_str().unwrap().contains(message), "{arguments:?}: {error}");
        assert!(error["hint"].as_str().unwrap_or_default().contains(hint), "{arguments:?}: {error}");
    }
    let help = Command::new(nopal()).args(["trace", "--json", "--help"]).output().unwrap();
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("Usage:"));
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "the target lives");
}

#[test]
fn a_command_is_not_started_if_its_recording_cannot_be_made() {
    let folder = scratch("tracing_vain");
    let trace = folder.join("trace");
    let arguments = ["record", "-e", "spoken:*", "-o", "/proc/nopal/rec"];
    let output = nopal_with(&arguments, Path::new("/usr/bin/touch"), &[trace.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(!trace.exists(), "{}", errors(&output));
}

#[test]
fn a_full_disk_ends_the_recording_and_keeps_what_was_written() {
    let folder = scratch("tracing_full");
    let program = compile(&folder, "spoken");
    let disk = folder.join("disk");
    fs::create_dir(&disk).unwrap();
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=512k", "nopal-full"]).arg(&disk));
    let recording = disk.join("rec");
    let arguments = ["record", "--json", "-e", "spoken:*", "-o", recording.to_str().unwrap()];
    let output = nopal_with(&arguments, &program, &["20000"]);
    let verdict = verdict_of_view(&recording);
    let babeltrace = Command::new("babeltrace2").arg(&recording).output().unwrap();
    run(Command::new("umount").arg(&disk));
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(errors(&output).contains("the disk is full"), "{}", errors(&output));
    let result = events(&output.stdout).pop().expect("a result in JSON");
    let n_events = result["events"].as_u64().unwrap();
    assert!(n_events > 1000, "{result}");
    assert_eq!(babeltrace.stdout.iter().filter(|b| **b == b'\n').count() as u64, n_events);
    // What the program does after the recording has ended is nobody's loss.
    let n_lost = result["lost"].as_u64().unwrap();
    assert!(n_lost > 0 && n_events + n_lost <= 3 * 20_000, "{result}");
    same_verdict(&result, &verdict);
}

/// The last line that `nopal view --json` has on standard error.
fn verdict_of_view(recording: &Path) -> Value {
    let viewed = Command::new(nopal()).arg("view").arg("--json").arg(recording).output().unwrap();
    assert!(viewed.status.success(), "{}", errors(&viewed));
    events(&viewed.stderr).pop().unwrap_or_else(|| panic!("{}", errors(&viewed)))
}

/// What `record` says at its end is what `view` says of the recording.
#[track_caller]
fn same_verdict(recorded: &Value, viewed: &Value) {
    for key in ["events", "lost", "complete", "gaps", "late_processes"] {
        assert!(!recorded[key].is_null(), "{key}: {recorded}");
        assert_eq!(recorded[key], viewed[key], "{key}: {recorded} {viewed}");
    }
}

#[test]
fn a_recording_keeps_what_its_recorder_said() {
    let folder = scratch("tracing_verdict");
    let python = "import time\nf = lambda: 0\nfor i in range(30): f(); time.sleep(0.01)";
    // A program that begins before it is opened, and one that is opened at its start.
    let probe = r#"python:function__return if funcname == "<lambda>""#;
    for (name, command, is_complete) in [
        ("late", vec!["/bin/sh", "-c", "/usr/bin/python3.11 -c \"$0\"; true", python], false),
        ("whole", vec!["/usr/bin/python3.11", "-c", python], true),
    ] {
        let recording = folder.join(name);
        let record = || {
            let mut record = Command::new(nopal());
            record.args(["record", "--json", "-e", probe, "-o"]).arg(&recording).arg("--").args(&command);
            output_of(&mut record)
        };
        let mut output = record();
        // By chance its heap lies where the jump of a site must land, and no other door is open to everybody.
        for _ in 0..20 {
            if !errors(&output).contains("which is taken by") {
                break;
            }
            fs::remove_dir_all(&recording).unwrap();
            output = record();
        }
        let result = events(&output.stdout).pop().unwrap_or_else(|| panic!("{}", errors(&output)));
        assert_eq!(result["complete"], is_complete, "{result}");
        same_verdict(&result, &verdict_of_view(&recording));
        let babeltrace = Command::new("babeltrace2").arg(&recording).output().unwrap();
        assert_eq!(errors(&babeltrace), "");
        let text = Command::new(nopal()).arg("view").arg(&recording).output().unwrap();
        assert_eq!(errors(&text).trim().ends_with(", complete"), is_complete, "{}", errors(&text));
    }
}

#[test]
fn a_recording_whose_recorder_was_killed_is_not_called_complete() {
    let folder = scratch("tracing_killed");
    let program = compile(&folder, "spoken");
    let recording = folder.join("rec");
    let mut recorder = Running(
        Command::new(nopal())
            .args(["record", "-e", "spoken:*", "-o"])
            .arg(&recording)
            .arg("--")
            .arg(&program)
            .arg("50")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let written = || fs::metadata(recording.join("nopal/verdict")).is_ok();
    wait_until("the recording begins", 20, written);
    recorder.0.kill().unwrap();
    recorder.0.wait().unwrap();
    let verdict = verdict_of_view(&recording);
    assert_eq!(verdict["complete"], false, "{verdict}");
    assert!(verdict["notes"][0].as_str().unwrap().contains("before it could finish"), "{verdict}");
}

/// Counts hits of probes by the kernel, with bpftrace.
struct Bpftrace(std::process::Child);

fn bpftrace_count(pid: u32, provider: &str, names: &[&str]) -> Bpftrace {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let probes: Vec<String> = names
        .iter()
        .map(|name| format!("usdt:{}:{provider}:{name} {{ @[\"{name}\"] = count(); }}", exe.display()))
        .collect();
    let mut child = Command::new("bpftrace")
        .args(["-p", &pid.to_string(), "-e", &format!("BEGIN {{ printf(\"go\\n\"); }} {}", probes.join(" "))])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut seen = Vec::new();
    let stdout = child.stdout.as_mut().unwrap();
    while !seen.ends_with(b"go\n") {
        let mut byte = [0];
        assert_eq!(stdout.read(&mut byte).unwrap(), 1, "bpftrace ended early");
        seen.push(byte[0]);
    }
    Bpftrace(child)
}

impl Bpftrace {
    fn stop(mut self) -> BTreeMap<String, usize> {
        interrupt(self.0.id());
        let mut text = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        self.0.wait().unwrap();
        text.lines()
            .filter_map(|line| line.strip_prefix("@[")?.split_once("]: "))
            .map(|(name, count)| (name.to_owned(), count.trim().parse().unwrap()))
            .collect()
    }
}

fn interrupt(pid: u32) {
    // SAFETY: sends a signal to a child this test started and has not reaped.
    assert_eq!(unsafe { libc::kill(pid as i32, libc::SIGINT) }, 0);
}

fn read_line(stream: &mut TcpStream) -> String {
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") {
        stream.read_exact(&mut byte).unwrap();
        line.push(byte[0]);
    }
    String::from_utf8_lossy(&line).into_owned()
}

fn expect_line(stream: &mut TcpStream, start: &str) {
    let line = read_line(stream);
    assert!(line.starts_with(start), "{line}");
}

#[test]
fn a_call_that_a_stop_interrupts_is_named() {
    let script = "import select\nready = select.epoll()\nwhile True:\n    ready.poll(60)\n";
    let waiting = Running::start(Command::new("/usr/bin/python3.11").args(["-c", script]));
    let call = format!("/proc/{}/syscall", waiting.pid());
    wait_until("it waits", 20, || {
        fs::read_to_string(&call).is_ok_and(|text| text.starts_with(&format!("{} ", libc::SYS_epoll_wait)))
    });
    let pid = waiting.pid().to_string();
    let output =
        output_of(Command::new(nopal()).args(["trace", "-v", "-p", &pid, "python:*", "--duration", "300ms"]));
    assert!(
        errors(&output).contains("stopped in epoll_wait, which may have returned EINTR"),
        "{}",
        errors(&output)
    );
}
