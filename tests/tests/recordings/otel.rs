//! The trace and the span of OpenTelemetry on each event: what the program says it published is what comes out.

use nopal_tests::asking::{Asked, number};
use nopal_tests::process::Running;
use nopal_tests::targets::{Build, build, build_with};
use nopal_tests::{nopal, root, run, scratch, target_dir};
use serde_json::Value;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `otel.c` published for each request; two empty texts for none.
fn plan(path: &Path) -> HashMap<u64, (String, String)> {
    let text = fs::read_to_string(path).expect("the program wrote its plan");
    let id = |word: &str| if word == "-" { String::new() } else { word.to_owned() };
    text.lines()
        .map(|line| {
            let [request, trace, span] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            (request.parse().expect("a number"), (id(trace), id(span)))
        })
        .collect()
}

/// The library with the variable, with this model of thread-local memory, and the program that uses it.
fn with_library(name: &str, flags: &[&str]) -> PathBuf {
    let folder = target_dir().join("lab/targets").join(name);
    fs::create_dir_all(&folder).expect("the folder can be made");
    let library = folder.join("libotelctx.so");
    let source = root().join("tests/fixtures/targets/otel_library.c");
    run(Command::new("gcc").args(["-O2", "-fPIC", "-shared", "-o"]).arg(&library).args(flags).arg(source));
    let [place, run_path] = ["-L", "-Wl,-rpath,"].map(|flag| format!("{flag}{}", folder.display()));
    let more = [&include()[..], "-DIN_LIBRARY", &place, &run_path, "-lotelctx"];
    build_with(name, &["otel.c"], Build::Pie, &more)
}

/// The program with the variable in itself.
fn program(how: Build) -> PathBuf {
    build_with("otel", &["otel.c"], how, &[&include()])
}

/// With our header each of its sites has room for the user door.
fn include() -> String {
    format!("-I{}", root().join("include").display())
}

/// Every event has the ids of its request, and one that came while its record was being written has none.
#[track_caller]
fn check(events: &str, plan: &HashMap<u64, (String, String)>) {
    let (mut n_events, mut n_with_ids) = (HashMap::<String, usize>::new(), 0);
    for line in events.lines() {
        let event: Value = serde_json::from_str(line).expect("JSON");
        let Some(args) = event.get("args").filter(|args| args["trace_id"].is_string()) else { continue };
        let request = number(args.get("id").or_else(|| args.get("arg0")).expect("an id"));
        let name = event["name"].as_str().expect("a name").to_owned();
        let none = (String::new(), String::new());
        let planned = if name == "half" { &none } else { &plan[&request] };
        let ids = ["trace_id", "span_id"].map(|id| args[id].as_str().unwrap_or_default().to_owned());
        assert_eq!((&ids[0], &ids[1]), (&planned.0, &planned.1), "{line}");
        n_with_ids += usize::from(!ids[0].is_empty());
        *n_events.entry(name).or_default() += 1;
    }
    let n = plan.len();
    let wanted = ["half", "req__start", "req__done"].map(|name| (name.to_owned(), n));
    assert_eq!(n_events, HashMap::from(wanted), "{}", events.lines().next().unwrap_or_default());
    assert_eq!(n_with_ids, 2 * n / 5, "a fifth of the requests has a context");
}

/// Records the program with `--otel`, attached to while it waits, and checks all events.
#[track_caller]
fn recorded(program: &Path, name: &str) -> PathBuf {
    let dir = scratch(name);
    let [plan_file, go, recording] = ["plan", "go", "rec"].map(|name| dir.join(name));
    let target = Running::start(Command::new(program).arg(&plan_file).arg(&go));
    let mut command = Command::new(nopal());
    command.args(["record", "-e", "otel:*", "--otel", "--json", "-v", "-p", &target.pid().to_string(), "-o"]);
    let tracer = Asked::start(command.arg(&recording));
    fs::write(&go, "").expect("the file can be made");
    let said = tracer.in_the_end();
    assert_eq!(number(&said["sites"]["kernel"]), 0, "{said}");
    check(&run(Command::new(nopal()).args(["view", "--json"]).arg(&recording)), &plan(&plan_file));
    recording
}

#[test]
fn a_program_with_a_thread_context() {
    let recording = recorded(&program(Build::Pie), "otel-pie");
    // Another reader sees the same fields.
    let text = run(Command::new("babeltrace2").arg(&recording));
    assert!(
        text.lines().all(|line| line.contains("trace_id = \"") && line.contains("span_id = \"")),
        "{text}"
    );
    recorded(&program(Build::Static), "otel-static");
}

#[test]
fn a_library_with_a_thread_context() {
    recorded(&with_library("otel-descriptor", &["-mtls-dialect=gnu2"]), "otel-descriptor");
    recorded(&with_library("otel-initial", &["-ftls-model=initial-exec"]), "otel-initial");
}

/// From its first instruction on, and the slowest with their ids.
#[test]
fn the_slowest_spans_have_their_ids() {
    let program = program(Build::Pie);
    let plan_file = scratch("otel-slowest").join("plan");
    let text = run(Command::new(nopal())
        .args(["latency", "otel:req__start", "otel:req__done", "--slowest", "40", "--otel", "--json", "--"])
        .arg(&program)
        .arg(&plan_file));
    let said: Value = serde_json::from_str(&text).expect("JSON");
    let plan = plan(&plan_file);
    assert_eq!(number(&said["rows"][0]["count"]), plan.len() as u64);
    let slowest = said["slowest"].as_array().expect("a list");
    assert_eq!(slowest.len(), 40);
    for slow in slowest {
        let args = &slow["args"];
        let request = number(args.get("id").or_else(|| args.get("arg0")).expect("an id"));
        let (trace, span) = &plan[&request];
        assert_eq!((args["trace_id"].as_str(), args["span_id"].as_str()), (Some(&**trace), Some(&**span)));
    }
}

/// What cannot be read is said, and nothing is made up.
#[test]
fn what_has_no_thread_context_is_said() {
    let program = with_library("otel-dynamic", &["-mtls-dialect=gnu"]);
    for (program, wanted) in [
        (program, "in dynamic thread-local memory"),
        (build("spans", &["spans.c"], Build::Pie), "publishes no thread context"),
    ] {
        let dir = scratch("otel-none");
        let [plan_file, go] = ["plan", "go"].map(|name| dir.join(name));
        let target = Running::start(Command::new(&program).arg(&plan_file).arg(&go));
        let pid = target.pid().to_string();
        let mut command = Command::new(nopal());
        let words = ["count", "*:*", "--otel", "--duration", "100ms", "-p", &pid];
        let said = command.args(words).output().expect("nopal can be run");
        let said = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(said.contains(wanted) && said.contains(&pid), "{said}");
    }
    let said = Command::new(nopal()).args(["trace", "x:y", "--otel", "--door", "kernel", "-p", "1"]).output();
    let said = String::from_utf8_lossy(&said.expect("nopal can be run").stderr).into_owned();
    assert!(said.contains("--otel cannot be combined with --door kernel"), "{said}");
}

/// The rows of an answer by a field: how many spans each value has.
fn counts_by(said: &Value, field: &str) -> HashMap<String, u64> {
    let rows = said["rows"].as_array().expect("rows").iter();
    rows.map(|row| (row[field].as_str().expect("a text").to_owned(), number(&row["count"]))).collect()
}

/// Spans group by the ids that the program published for them, live, in a recording and in a session's.
#[test]
fn spans_are_grouped_by_their_ids() {
    let program = program(Build::Pie);
    let dir = scratch("otel-by");
    let [plan_file, recording, home] = ["plan", "rec", "home"].map(|name| dir.join(name));
    let latency = ["latency", "otel:req__start", "otel:req__done", "--json", "--by"];
    let planned = |plan: &HashMap<u64, (String, String)>, is_trace: bool| {
        let mut counts: HashMap<String, u64> = HashMap::new();
        for (trace, span) in plan.values() {
            *counts.entry(if is_trace { trace } else { span }.clone()).or_default() += 1;
        }
        counts
    };
    for (field, is_trace) in [("trace_id", true), ("span_id", false)] {
        let live = run(Command::new(nopal())
            .args(latency)
            .args([field, "--otel", "--"])
            .arg(&program)
            .arg(&plan_file));
        let live: Value = serde_json::from_str(&live).expect("JSON");
        assert_eq!(live["complete"], true, "{live}");
        let wanted = planned(&plan(&plan_file), is_trace);
        assert!(wanted.len() > 20, "{wanted:?}");
        assert_eq!(counts_by(&live, field), wanted);
    }
    run(Command::new(nopal())
        .args(["record", "-e", "otel:*", "--context", "otel", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(&program)
        .arg(&plan_file));
    let by_trace = planned(&plan(&plan_file), true);
    let of_recording = |recording: &Path| -> Value {
        let text = run(Command::new(nopal()).args(latency).args(["trace_id", "--recording"]).arg(recording));
        serde_json::from_str(&text).expect("JSON")
    };
    assert_eq!(counts_by(&of_recording(&recording), "trace_id"), by_trace);

    // A session that was told to add them.
    let [session_plan, go, output] = ["session-plan", "go", "session"].map(|name| dir.join(name));
    let target = Running::start(Command::new(&program).arg(&session_plan).arg(&go));
    let session = |words: &[&str]| run(Command::new(nopal()).args(words).env("NOPAL_HOME", &home));
    fs::create_dir_all(&home).expect("the folder can be made");
    session(&["create", "otel", "--output", output.to_str().expect("UTF-8")]);
    session(&["enable-event", "-u", "otel:*"]);
    session(&["add-context", "-u", "-t", "otel"]);
    session(&["track", "-u", "-p", &target.pid().to_string()]);
    session(&["start"]);
    fs::write(&go, "").expect("the file can be made");
    let mut target = target;
    assert!(target.0.wait().expect("it ends").success());
    session(&["stop"]);
    let plan = plan(&session_plan);
    check(&run(Command::new(nopal()).args(["view", "--json"]).arg(&output)), &plan);
    assert_eq!(counts_by(&of_recording(&output), "trace_id"), planned(&plan, true));
    session(&["destroy", "otel"]);

    // Without --otel there are none, and the error says how to get them.
    let mut command = Command::new(nopal());
    let said = command.args(latency).args(["trace_id", "--"]).arg(&program).arg(&plan_file).output();
    let said = String::from_utf8_lossy(&said.expect("nopal can be run").stderr).into_owned();
    assert!(said.contains("no field `trace_id`") && said.contains("--otel"), "{said}");
}
