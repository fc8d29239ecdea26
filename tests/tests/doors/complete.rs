//! `complete` is a promise: programs that count their own hits say whether it was kept, whatever happens to them and to
//! their tracer meanwhile.

use nopal_tests::cycles::{Chance, rounds};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build, build_with};
use nopal_tests::{nopal, run, scratch};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder with a counter that a target counts its hits in.
pub(crate) struct Place {
    pub(crate) dir: PathBuf,
    counter: fs::File,
}

impl Place {
    pub(crate) fn new(name: &str) -> Place {
        let dir = scratch(&format!("complete-{name}"));
        fs::write(dir.join("counter"), [0; 8]).unwrap();
        let counter = fs::File::open(dir.join("counter")).unwrap();
        Place { dir, counter }
    }

    /// How often the target says it has hit a probe.
    pub(crate) fn n_hits(&self) -> u64 {
        let mut bytes = [0; 8];
        self.counter.read_exact_at(&mut bytes, 0).unwrap();
        u64::from_ne_bytes(bytes)
    }

    /// The command line of a target.
    fn target(&self, steps: &[&str]) -> Vec<String> {
        let program = build("counted", &["counted.c"], Build::Pie);
        let mut line = vec![text(&program), text(&self.dir.join("counter"))];
        line.extend(steps.iter().map(|step| (*step).to_owned()));
        line
    }

    pub(crate) fn start(&self, steps: &[&str]) -> Running {
        let line = self.target(steps);
        Running::start(Command::new(&line[0]).args(&line[1..]))
    }

    pub(crate) fn nopal(&self, line: &[&str]) -> Command {
        let mut command = Command::new(nopal());
        command.args(line).env("NOPAL_HOME", self.dir.join("home"));
        command
    }
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The last line of JSON that a command printed on standard output or, as `trace` does, on standard error.
#[track_caller]
fn json(output: &Output, is_on_stderr: bool) -> Value {
    last_object(&String::from_utf8_lossy(if is_on_stderr { &output.stderr } else { &output.stdout }))
}

#[track_caller]
pub(crate) fn last_object(said: &str) -> Value {
    let last =
        said.lines().rfind(|line| line.starts_with('{')).unwrap_or_else(|| panic!("no object: {said}"));
    serde_json::from_str(last).unwrap_or_else(|e| panic!("{e}: {said}"))
}

#[test]
fn a_command_is_over_when_the_last_of_its_processes_is() {
    let steps = ["fire:1:0", "daemon", "fire:20:50000"];
    for door in ["auto", "user", "kernel"] {
        let place = Place::new(&format!("daemon-{door}"));
        let out = text(&place.dir.join("rec"));
        let record = ["record", "--json", "--door", door, "-e", "counted:hit", "-o", &out, "--"];
        let recorded = json(&place.nopal(&record).args(place.target(&steps)).output().unwrap(), false);
        assert_eq!((place.n_hits(), recorded["events"].as_u64()), (21, Some(21)), "{door}: {recorded}");
        assert_eq!(recorded["complete"], true, "{door}: {recorded}");

        let trace = ["trace", "--json", "--door", door, "counted:hit", "--"];
        let traced = json(&place.nopal(&trace).args(place.target(&steps)).output().unwrap(), true);
        assert_eq!((place.n_hits(), traced["events"].as_u64()), (42, Some(21)), "{door}: {traced}");

        let script = "usdt:counted:hit { @ = count(); }";
        let run = ["run", "--json", "--door", door, "-e", script, "--"];
        let ran = json(&place.nopal(&run).args(place.target(&steps)).output().unwrap(), false);
        assert_eq!((place.n_hits(), &ran["rows"][0]["value"]), (63, &Value::from(21)), "{door}: {ran}");
        assert_eq!(ran["complete"], true, "{door}: {ran}");
    }
}

#[test]
fn all_processes_behind_p_are_traced() {
    let place = Place::new("pids");
    let go = place.dir.join("go");
    let steps = [&format!("wait:{}", text(&go)), "fire:50:0"];
    // The first tick comes when all are open.
    let script = "usdt:counted:hit { @ = count(); } interval:ms:100 { printf(\"on\\n\"); }";
    type Spelling = fn(&[String]) -> Vec<String>;
    let spellings: [Spelling; 3] = [
        |pids| [&["-p".to_owned()], pids].concat(),
        |pids| vec!["-p".to_owned(), pids.join(",")],
        |pids| pids.iter().flat_map(|pid| ["-p".to_owned(), pid.clone()]).collect(),
    ];
    for (n_before, spelling) in spellings.iter().enumerate() {
        let _ = fs::remove_file(&go);
        let mut targets: Vec<Running> = (0..3).map(|_| place.start(&steps)).collect();
        let pids: Vec<String> = targets.iter().map(|target| target.pid().to_string()).collect();
        let mut running = place.nopal(&["run", "--json", "-e", script]);
        let mut running = running.args(spelling(&pids)).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(running.stdout.take().unwrap());
        let mut said = String::new();
        out.read_line(&mut said).unwrap();
        assert!(said.contains("on"), "{said}");
        fs::write(&go, "").unwrap();
        targets.iter_mut().for_each(|target| assert!(target.0.wait().unwrap().success()));
        out.read_to_string(&mut said).unwrap();
        assert!(running.wait().unwrap().success());
        let ran = last_object(&said);
        let n_hits = 150 * (n_before as u64 + 1);
        assert_eq!((place.n_hits(), &ran["rows"][0]["value"]), (n_hits, &Value::from(150)), "{ran}");
    }
}

#[test]
fn what_follows_p_is_never_misread() {
    let place = Place::new("misread");
    let target = place.start(&["wait:/no/such/file"]);
    let pid = target.pid().to_string();
    let says = |line: &[&str], parts: &[&str]| {
        let output = place.nopal(line).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line:?}: {said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{line:?}: {said}");
    };
    let with_parameter = "BEGIN { printf(\"%d\\n\", $1); exit(); }";
    says(&["run", "-p", &pid, "42", "-e", with_parameter], &["`42`", "a process or the script's $1", "-p "]);
    for verb in ["trace", "record", "run", "list", "detach", "track"] {
        says(&[verb, "-p", "postgres"], &["postgres", "-n postgres"]);
    }
    // Before -p, and behind the name of a script, parameters are what they were.
    let printed = run(&mut place.nopal(&["run", "-e", with_parameter, "42", "-p", &pid]));
    assert!(printed.contains("42"), "{printed}");
    let file = place.dir.join("script.bt");
    fs::write(&file, with_parameter).unwrap();
    let printed = run(&mut place.nopal(&["run", "-p", &pid, &text(&file), "42"]));
    assert!(printed.contains("42"), "{printed}");
}

#[test]
fn a_program_behind_a_script_that_is_soon_gone_is_not_forgotten() {
    for (n, is_path) in [(0, false), (1, true), (2, false), (3, true), (4, false), (5, true)] {
        let place = Place::new(&format!("wrapper-{n}"));
        // By its path it is known only if it can be told from others with such a name.
        let script = place.dir.join(if is_path { "wrapper-of-a-long-name" } else { "wrapper" });
        fs::write(&script, format!("#!/bin/sh\n{}\n", place.target(&["fire:8:0"]).join(" "))).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let out = text(&place.dir.join("out"));
        let name = if is_path { text(&script) } else { "wrapper".to_owned() };
        run(&mut place.nopal(&["create", "s", "-o", &out]));
        run(&mut place.nopal(&["enable-event", "-u", "counted:*"]));
        run(&mut place.nopal(&["track", "-u", "--program", &name]));
        run(&mut place.nopal(&["start"]));
        run(&mut Command::new(&script));
        let stopped = json(&place.nopal(&["stop", "--json"]).output().unwrap(), false);
        let is_all = stopped["events"] == place.n_hits();
        assert!(is_all || stopped["complete"] == false, "{} hits: {stopped}", place.n_hits());
        run(&mut place.nopal(&["destroy", "--all"]));
    }
}

/// The library that the target loads.
fn plug() -> String {
    text(&build_with("counted_plug", &["counted_plug.c"], Build::Pie, &["-shared", "-fPIC"]))
}

#[test]
fn a_library_that_comes_and_goes_is_counted_or_told_of() {
    let load = format!("load:50:{}", plug());
    // So that the tracer is too slow now and then.
    let busy = || Running::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    for n in 0..rounds(2) {
        let _busy: Vec<Running> = (0..n % 3).map(|_| busy()).collect();
        for door in ["auto", "user"] {
            let place = Place::new(&format!("plug-{door}"));
            let out = text(&place.dir.join("rec"));
            let record = ["record", "--json", "--door", door, "-e", "counted:*", "-o", &out, "--"];
            let target = place.target(&["fire:1:0", &load]);
            let recorded = json(&place.nopal(&record).args(&target).output().unwrap(), false);
            let is_all = recorded["events"] == place.n_hits();
            assert_eq!(place.n_hits(), 151);
            assert!(is_all || recorded["complete"] == false, "{door}: {recorded}");
            let script = format!("usdt:{}:counted:plug {{ @ = count(); }}", plug());
            let run = ["run", "--json", "--door", door, "-e", &script, "--"];
            let ran = json(&place.nopal(&run).args(&target).output().unwrap(), false);
            let is_all = ran["rows"][0]["value"] == 150;
            assert!(is_all || ran["complete"] == false, "{door}: {ran}");
        }
    }
}

/// Each hit once, however often the library came between two looks of a tracer.
#[test]
fn a_library_that_came_and_went_often_is_not_counted_twice() {
    for n in 0..rounds(3) {
        let place = Place::new("plug-often");
        let target = place.target(&["fire:1:0", &format!("load:{}:{}", 500 * (n + 1), plug()), "rest:300"]);
        let run = ["run", "--json", "--door", "kernel", "-e", "usdt::counted:plug { @ = count(); }", "--"];
        let ran = json(&place.nopal(&run).args(&target).output().unwrap(), false);
        let n_counted = ran["rows"].as_array().and_then(|rows| rows.first()?["value"].as_u64()).unwrap_or(0);
        assert!(n_counted < place.n_hits(), "{} hits: {ran}", place.n_hits());
        assert!(n_counted == place.n_hits() - 1 || ran["complete"] == false, "{ran}");
    }
}

#[test]
fn a_tracer_without_descriptors_ends_with_its_program() {
    let place = Place::new("no-descriptors");
    let go = place.dir.join("go");
    for door in ["user", "kernel"] {
        let _ = fs::remove_file(&go);
        let mut target = place.start(&[&format!("wait:{}", text(&go)), "fire:5:0"]);
        let trace = ["trace", "-v", "--json", "--door", door, "-p", &target.pid().to_string(), "counted:hit"];
        let mut tracer = place.nopal(&trace).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(tracer.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("sites:") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "{door}: it opens the program");
        }
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let pid = tracer.id() as i32;
        // SAFETY: a child of ours, and a limit that lives as long as the call.
        let limited = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &none, std::ptr::null_mut()) };
        assert_eq!(limited, 0);
        fs::write(&go, "").unwrap();
        assert!(target.0.wait().unwrap().success());
        wait_until("the tracer ends", 60, || tracer.try_wait().unwrap().is_some());
    }
}

/// However the moments fall at which a tracer looks: before, between or while the library is there.
#[test]
fn a_tracer_that_comes_while_a_library_comes_and_goes_hears_of_it() {
    let place = Place::new("plug-meanwhile");
    let target = place.start(&[&format!("load:1000000000:{}", plug())]);
    let pid = target.pid().to_string();
    for n in 0..rounds(10) {
        for door in ["auto", "kernel"] {
            let trace = ["trace", "--json", "--door", door, "--limit", "3", "--duration", "60s", "-p", &pid];
            let output = place.nopal(&trace).arg("counted:*").output().unwrap();
            let heard = String::from_utf8_lossy(&output.stdout).lines().count();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && heard == 3, "{n}, {door}: {heard} events: {said}");
        }
    }
}

/// Scripts that name probes of a library without its path, which is loaded only when they run already.
const UNNAMED: [&str; 4] = ["usdt::counted:plug", "usdt:*:counted:plug", "usdt:counted:pl*", "usdt:plug"];

#[test]
fn a_script_finds_the_probes_of_a_library_that_is_loaded_later() {
    let load = format!("load:20:{}", plug());
    for (n, spec) in UNNAMED.iter().enumerate() {
        let script = format!("{spec} {{ @ = count(); @sum = sum(arg0); }}");
        for door in ["auto", "user", "kernel"] {
            let place = Place::new(&format!("unnamed-{n}-{door}"));
            let run = ["run", "--json", "--door", door, "-e", &script, "--"];
            let output =
                place.nopal(&run).args(place.target(&["fire:1:0", "rest:100", &load])).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{spec} {door}: {said}");
            let ran = json(&output, false);
            assert_eq!(place.n_hits(), 61);
            let is_all = ran["rows"][0]["value"] == 60 && ran["rows"][1]["value"] == 60;
            assert!(is_all || ran["complete"] == false, "{spec} {door}: {ran} {said}");
            if door != "kernel" && !said.contains("could not be looked at") {
                assert_eq!(
                    (is_all, &ran["complete"]),
                    (true, &Value::from(true)),
                    "{spec} {door}: {ran} {said}"
                );
            }
        }
    }
}

#[test]
fn a_script_finds_the_probes_of_a_library_that_a_running_process_loads() {
    let script = "usdt::counted:plug { @ = count(); } interval:ms:100 { printf(\"on\\n\"); }";
    for door in ["auto", "user", "kernel"] {
        let place = Place::new(&format!("unnamed-running-{door}"));
        let (first, second) = (place.dir.join("first"), place.dir.join("second"));
        let load = format!("load:10:{}", plug());
        let steps = [&format!("wait:{}", text(&first)), &load, &format!("wait:{}", text(&second)), "rest:1"];
        let mut target = place.start(&steps);
        let pid = target.pid().to_string();
        let mut running = place.nopal(&["run", "--json", "--door", door, "-e", script, "-p", &pid]);
        let mut running = Running::start(running.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let mut out = BufReader::new(running.0.stdout.take().unwrap());
        let mut said = String::new();
        out.read_line(&mut said).unwrap();
        fs::write(&first, "").unwrap();
        fs::write(&second, "").unwrap();
        assert!(target.0.wait().unwrap().success());
        out.read_to_string(&mut said).unwrap();
        let mut errors = String::new();
        running.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let ran = last_object(&said);
        assert_eq!(place.n_hits(), 30);
        let is_all = ran["rows"][0]["value"] == 30;
        assert!(is_all || ran["complete"] == false, "{door}: {ran} {errors}");
        if door != "kernel" && !errors.contains("could not be looked at") {
            assert_eq!((is_all, &ran["complete"]), (true, &Value::from(true)), "{door}: {ran} {errors}");
        }
        // What came late is counted all the same, or the run says that nothing ever came.
        assert!(running.0.wait().unwrap().success() || door == "kernel", "{door}: {errors}");
    }
}

/// The library comes and goes between two looks at the process, which then ends.
#[test]
fn a_library_that_came_and_went_is_not_forgotten() {
    let script = "usdt::counted:plug { @ = count(); } interval:ms:100 { printf(\"on\\n\"); }";
    for n in 0..rounds(12) {
        let place = Place::new("came-and-went");
        let first = place.dir.join("first");
        let load = format!("load:10:{}", plug());
        let mut target = place.start(&[&format!("wait:{}", text(&first)), &load]);
        let pid = target.pid().to_string();
        let mut running = place.nopal(&["run", "--json", "--door", "kernel", "-e", script, "-p", &pid]);
        let mut running = Running::start(running.stdout(Stdio::piped()).stderr(Stdio::null()));
        let mut out = BufReader::new(running.0.stdout.take().unwrap());
        let mut said = String::new();
        out.read_line(&mut said).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(u64::from(n % 12) * 4));
        fs::write(&first, "").unwrap();
        assert!(target.0.wait().unwrap().success());
        out.read_to_string(&mut said).unwrap();
        let ran = last_object(&said);
        assert!(ran["rows"][0]["value"] == 30 || ran["complete"] == false, "round {n}: {ran}");
    }
}

/// A command is held until its probes are open, however slow its tracer is.
#[test]
fn a_tracer_that_is_stopped_while_it_starts_a_command_misses_nothing_in_silence() {
    for n in 0..rounds(16) {
        let place = Place::new("stopped-at-start");
        let out = text(&place.dir.join("rec"));
        let door = "auto";
        let mut record =
            place.nopal(&["record", "--json", "--door", door, "-e", "counted:*", "-o", &out, "--"]);
        record.args(place.target(&["fire:100:1000"]));
        let record = record.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut record = Running::start(record);
        // Somewhere between its start and that of the command; longer than a borrowed thread waits for its tracer.
        std::thread::sleep(std::time::Duration::from_millis(u64::from(n % 16) * 5));
        let pid = record.pid() as libc::pid_t;
        // SAFETY: signals to a child of ours that has not been waited for.
        unsafe { libc::kill(pid, libc::SIGSTOP) };
        std::thread::sleep(std::time::Duration::from_millis(700));
        // SAFETY: as before.
        unsafe { libc::kill(pid, libc::SIGCONT) };
        let (mut said, mut errors) = (String::new(), String::new());
        record.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        record.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(record.0.wait().unwrap().success(), "round {n}, {door}: {said} {errors}");
        let recorded = last_object(&said);
        assert_eq!(place.n_hits(), 100);
        // One that is stopped later may miss what the command loads, and says so.
        let is_all = recorded["events"] == 100;
        assert!(is_all || recorded["complete"] == false, "round {n}, {door}: {recorded} {errors}");
    }
}

#[test]
fn a_process_alone_is_followed_into_the_program_it_starts() {
    for door in ["auto", "user", "kernel"] {
        let place = Place::new(&format!("only-{door}"));
        let line = place.target(&["rest:1000", "fire:20:1000"]).join(" ");
        let shell = ["sh", "-c", &format!("sleep 0.2; exec {line}")].map(str::to_owned);
        let out = text(&place.dir.join("rec"));
        let record = ["record", "--json", "--only", "--door", door, "-e", "counted:*", "-o", &out, "--"];
        let recorded = json(&place.nopal(&record).args(&shell).output().unwrap(), false);
        let is_all = recorded["events"] == place.n_hits();
        assert!(is_all || recorded["complete"] == false, "{door}: {recorded}");
        assert_ne!(recorded["events"], 0, "{door}: {recorded}");
        let run =
            ["run", "--json", "--only", "--door", door, "-e", "usdt::counted:hit { @ = count(); }", "--"];
        let ran = json(&place.nopal(&run).args(&shell).output().unwrap(), false);
        let is_all = ran["rows"][0]["value"] == 20;
        assert!(is_all || ran["complete"] == false, "{door}: {ran}");
        assert_ne!(ran["rows"][0]["value"], 0, "{door}: {ran}");
    }
}

#[test]
fn a_library_that_cannot_be_opened_any_more_is_a_gap() {
    for door in ["auto", "user", "kernel"] {
        let place = Place::new(&format!("gone-{door}"));
        let library = place.dir.join("plug.so");
        let target = || {
            fs::copy(plug(), &library).unwrap();
            place.target(&["fire:1:0", "rest:100", &format!("gone:{}", text(&library)), "fire:1:0"])
        };
        let out = text(&place.dir.join("rec"));
        let record = ["record", "--json", "--door", door, "-e", "counted:*", "-o", &out, "--"];
        let recorded = json(&place.nopal(&record).args(target()).output().unwrap(), false);
        assert_eq!(place.n_hits(), 5);
        assert!(recorded["events"] == 5 || recorded["complete"] == false, "{door}: {recorded}");
        assert!(door != "kernel" || recorded["complete"] == false, "{recorded}");
        let run = ["run", "--json", "--door", door, "-e", "usdt::counted:* { @ = count(); }", "--"];
        let ran = json(&place.nopal(&run).args(target()).output().unwrap(), false);
        assert!(ran["rows"][0]["value"] == 5 || ran["complete"] == false, "{door}: {ran}");
        assert!(door != "kernel" || ran["complete"] == false, "{ran}");
    }
}

#[test]
fn intervals_that_are_missed_are_told_of() {
    let place = Place::new("intervals");
    let ticks = |script: &str| {
        let output = place.nopal(&["run", "--json", "--door", "user", "-e", script]).output().unwrap();
        assert!(output.status.success(), "{script}");
        let ran = json(&output, false);
        let n =
            ran["rows"].as_array().unwrap().iter().find(|row| row["map"] == "@n").unwrap()["value"].clone();
        (n.as_u64().unwrap(), ran["complete"].as_bool().unwrap(), ran["lost"].as_u64().unwrap())
    };
    // Each round takes a hundred times as long as it may.
    let busy = "$i = 0; while ($i < 3000) { $i++; }";
    for (script, n_least) in [
        ("interval:ms:1 { @n = count(); } interval:ms:500 { exit(); }".to_owned(), 499),
        ("interval:us:10 { @n = count(); } interval:ms:300 { exit(); }".to_owned(), 29_999),
        (format!("interval:us:1 {{ @n = count(); {busy} }} interval:ms:300 {{ exit(); }}"), 299_999),
    ] {
        let (n, is_complete, n_lost) = ticks(&script);
        assert!(n + n_lost >= n_least, "{script}: {n} and {n_lost}");
        assert_eq!(is_complete, n_lost == 0, "{script}: {n} and {n_lost}");
    }
}

#[test]
fn a_probe_that_never_comes_is_an_error() {
    for door in ["auto", "user", "kernel"] {
        let place = Place::new(&format!("never-{door}"));
        let script = "usdt::counted:nowhere { @ = count(); }";
        let run = ["run", "--door", door, "-e", script, "--"];
        let output = place.nopal(&run).args(place.target(&["fire:1:0"])).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{door}: {said}");
        for part in
            ["there is no `usdt:counted:nowhere` yet", "ever had `usdt:counted:nowhere`", "nopal list"]
        {
            assert!(said.contains(part), "{door}: {part} in {said}");
        }
    }
}

#[test]
fn whatever_goes_wrong_by_chance_complete_is_true() {
    let mut chance = Chance::new("complete");
    let load = format!("load:10:{}", plug());
    for n in 0..rounds(12) {
        let place = Place::new("chance");
        let (few, many) = (format!("fire:{}:500", 1 + chance.below(200)), "fire:200000:0".to_owned());
        let mut steps: Vec<&str> = Vec::new();
        for _ in 0..1 + chance.below(4) {
            let all = ["exec", "spawn", "daemon", "fork:5:2000", &load, &many, &few, "rest:20"];
            steps.push(all[chance.below(all.len() as u64) as usize]);
            steps.push(&few);
        }
        let door = ["auto", "user"][chance.below(2) as usize];
        let out = text(&place.dir.join("rec"));
        let mut record = place.nopal(&["record", "--json", "--door", door, "--buffer-size", "64k"]);
        record.args(["-e", "counted:*", "-o", &out, "--"]).args(place.target(&steps));
        let errors = place.dir.join("errors");
        let stderr = std::fs::File::create(&errors).unwrap();
        let mut record = Running::start(record.stdout(Stdio::piped()).stderr(stderr));
        let signal = [None, Some("STOP"), Some("KILL"), Some("INT")][chance.below(4) as usize];
        if let Some(signal) = signal {
            std::thread::sleep(std::time::Duration::from_millis(20 + chance.below(300)));
            let kill = |signal: &str| {
                // It may have ended before.
                let _ =
                    Command::new("kill").args([&format!("-{signal}"), &record.pid().to_string()]).output();
            };
            kill(signal);
            if signal == "STOP" {
                std::thread::sleep(std::time::Duration::from_millis(chance.below(300)));
                kill("CONT");
            }
        }
        let mut said = String::new();
        record.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let status = record.0.wait().unwrap();
        // The target goes on when its tracer is ended; nothing is asked of what came afterwards.
        if signal == Some("INT") || signal == Some("KILL") {
            if Path::new(&out).join("metadata").exists() && signal == Some("KILL") {
                let viewed = place.nopal(&["view", &out, "--count", "--json"]).output().unwrap();
                let is_over = said.contains("\"complete\":true");
                assert!(is_over || json(&viewed, false)["complete"] == false, "round {n} {steps:?}: killed");
            }
            continue;
        }
        // Who was stopped while it entered the program may refuse to; then it says why, and nothing of completeness.
        if !said.contains('{') {
            let why = std::fs::read_to_string(&errors).unwrap();
            assert!(
                !status.success() && why.contains("\"error\""),
                "round {n}, {door}, {signal:?}, {steps:?}: {why}"
            );
            eprintln!("round {n}, {door}, {signal:?}, {steps:?}: refused: {why}");
            continue;
        }
        let recorded = last_object(&said);
        let is_all = recorded["events"] == place.n_hits();
        let what = format!("round {n}, {door}, {signal:?}, {steps:?}: {} hits, {recorded}", place.n_hits());
        assert!(is_all || recorded["complete"] == false, "{what}");
    }
}

#[test]
fn what_no_door_opens_is_missing() {
    let place = Place::new("closed");
    let program = text(&build("closely", &["closely.c"], Build::Pie));
    let out = text(&place.dir.join("rec"));
    // The kernel door does not open closely:leaf.
    let record =
        ["record", "--json", "--door", "kernel", "-e", "closely:*", "-o", &out, "--", &program, "10"];
    let output = place.nopal(&record).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let recorded = json(&output, false);
    assert!(recorded["events"].as_u64() > Some(0) && said.contains("closely:leaf"), "{recorded} {said}");
    assert_eq!(recorded["complete"], false, "{recorded} {said}");
}

/// Rounds of `./x faults`: PostgreSQL, C++ with plug-ins and without, Java and Ruby, under every kind of harm.
#[test]
fn faults_of_known_seeds_do_no_harm() {
    for (seed, n_rounds) in [("16333", "1"), ("16336", "3"), ("16340", "1")] {
        let mut faults = Command::new(env!("CARGO_BIN_EXE_faults"));
        faults.args(["--seed", seed, "--rounds", n_rounds, "--lanes", "3", "-v"]).env("NOPAL_BIN", nopal());
        println!("{}", run(&mut faults));
    }
}
