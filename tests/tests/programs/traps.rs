//! Probes that stay silent unless something else is done: an answer of nothing says so, so does `nopal list -v`, and what they
//! advise helps.

use nopal_tests::asking::{answered, number};
use nopal_tests::process::Running;
use nopal_tests::{nopal, run, scratch};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// A program whose probe is silent as it is, a file with the probe, and what it takes.
struct Silent {
    probe: &'static str,
    file: &'static str,
    command: &'static [&'static str],
    /// Found in the advice; put in front of the arguments, or into the environment.
    advice: &'static str,
}

const SILENT: [Silent; 2] = [
    Silent {
        probe: "hotspot:method__entry",
        file: "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so",
        command: &["java", "-Xshare:auto", "-version"],
        advice: "-XX:+ExtendedDTraceProbes",
    },
    Silent {
        probe: "php:function__entry",
        file: "/usr/bin/php8.2",
        command: &["php8.2", "-n", "-r", "function f() {} f(); f();"],
        advice: "USE_ZEND_DTRACE=1",
    },
];

#[test]
fn nothing_says_why_and_the_advice_helps() {
    for Silent { probe, file, command, advice } in SILENT {
        let count = |as_advised: bool| {
            let mut nopal = Command::new(nopal());
            nopal.args(["count", probe, "--json", "--", command[0]]);
            if let (true, Some((name, value))) = (as_advised, advice.split_once('=')) {
                nopal.env(name, value);
            } else if as_advised {
                nopal.arg(advice);
            }
            answered(nopal.args(&command[1..]))
        };
        let nothing = count(false);
        assert_eq!((number(&nothing["events"]), &nothing["complete"]), (0, &true.into()), "{nothing}");
        assert!(nothing["notes"].to_string().contains(advice), "{nothing}");
        let something = count(true);
        assert!(number(&something["events"]) > 1, "{something}");
        assert!(!something["notes"].to_string().contains(advice), "{something}");
        let list = run(Command::new(nopal()).args(["list", "-v", file, probe]));
        // Lines are broken where they are full.
        let words = list.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(advice), "{list}");
        let traced = scratch("traps").join("said");
        let mut trace = Command::new(nopal());
        trace.args(["trace", probe, "--"]).args(command);
        trace.stderr(fs::File::create(&traced).expect("it can be made"));
        run(&mut trace);
        let said = fs::read_to_string(&traced).expect("text");
        assert!(said.contains(advice), "{said}");
    }
}

/// Calls that Java's launcher never makes, by a JVM that would tell of them and by one that would not.
const NEVER: &str = "hotspot_jni:DefineClass__entry";
const OPTION: &str = "-XX:+ExtendedDTraceProbes";
const ADVICE: &str = "java must be started with -XX:+ExtendedDTraceProbes";

#[test]
fn a_jvm_that_was_started_for_it_is_told_nothing_of_options() {
    let folder = scratch("traps-running");
    fs::write(
        folder.join("Wait.java"),
        "class Wait { public static void main(String[] a) throws Exception { System.out.println(\"up\"); Thread.sleep(600_000); } }",
    )
    .expect("it can be written");
    run(Command::new("javac").arg("-d").arg(&folder).arg(folder.join("Wait.java")));
    for (options, variable, is_advised) in [
        (&[] as &[&str], None, true),
        (&[OPTION], None, false),
        (&[OPTION, "-XX:-ExtendedDTraceProbes"], None, true),
        (&[], Some(("JAVA_TOOL_OPTIONS", OPTION)), false),
        (&[], Some(("JDK_JAVA_OPTIONS", OPTION)), false),
    ] {
        let mut command = Command::new("java");
        command.args(options).arg("-cp").arg(&folder).arg("Wait").envs(variable).stdout(Stdio::piped());
        let mut java = Running::start(&mut command);
        let mut line = String::new();
        BufReader::new(java.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
        assert_eq!(line, "up\n");
        let pid = java.pid().to_string();
        let within = ["--duration", "1s", "-p", &pid];
        let nothing = answered(Command::new(nopal()).args(["count", NEVER, "--json"]).args(within));
        assert_eq!((number(&nothing["events"]), &nothing["complete"]), (0, &true.into()), "{nothing}");
        let traced =
            Command::new(nopal()).args(["trace", NEVER]).args(within).output().expect("nopal starts");
        let list = run(Command::new(nopal()).args(["list", "-v", "-p", &pid, NEVER]));
        assert!(list.contains("DefineClass__entry"), "{list}");
        // Lines are broken where they are full.
        let list = list.split_whitespace().collect::<Vec<_>>().join(" ");
        for said in [nothing["notes"].to_string(), String::from_utf8_lossy(&traced.stderr).into_owned(), list]
        {
            assert_eq!(said.contains(ADVICE), is_advised, "{options:?} {variable:?}: {said}");
        }
    }
}

/// A script and the doctor know what the other verbs know: that a probe of Python needs another one, and gets it.
#[test]
fn functions_of_python_are_seen_by_scripts_and_by_the_doctor() {
    let folder = scratch("traps-python");
    fs::write(folder.join("calls.py"), "def price(x): return x + 1\nfor i in range(200): price(i)\n")
        .unwrap();
    let script = "usdt::python:function__entry { @[str(args.funcname)] = count(); }";
    for door in ["user", "kernel"] {
        let mut command = Command::new(nopal());
        command.args(["run", "--json", "--door", door, "-e", script, "--", "/usr/bin/python3", "calls.py"]);
        let answer = answered(command.current_dir(&folder));
        let row = answer["rows"].as_array().and_then(|rows| rows.iter().find(|row| row["key"][0] == "price"));
        assert_eq!(row.map(|row| &row["value"]), Some(&200.into()), "{door}: {answer}");
    }
    fs::write(
        folder.join("loop.py"),
        "import time\ndef price(x): return x\nwhile price(1): time.sleep(0.001)\n",
    )
    .unwrap();
    let python = Running::start(Command::new("/usr/bin/python3").arg("loop.py").current_dir(&folder));
    let mut doctor = Command::new(nopal());
    doctor.args(["doctor", "-p", &python.pid().to_string(), "python:function__entry", "--wait", "1s"]);
    let said = run(&mut doctor);
    assert!(said.contains("python:function__entry fired "), "{said}");
}

/// What nobody but the program can do is said by scripts and by the doctor.
#[test]
fn methods_of_ruby_that_stay_silent_are_explained() {
    let ruby = Running::start(Command::new("ruby").args(["-e", "def a; end; loop { a; sleep 0.001 }"]));
    let pid = ruby.pid().to_string();
    nopal_tests::process::wait_until("Ruby runs", 60, || {
        fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("libruby"))
    });
    for door in ["user", "kernel"] {
        let script = |probe: &str| {
            let script = format!("usdt:ruby:{probe} {{ @ = count(); }}");
            let mut command = Command::new(nopal());
            command.args(["run", "--door", door, "--duration", "500ms", "-e", &script, "-p", &pid]);
            String::from_utf8(command.output().unwrap().stderr).unwrap()
        };
        assert!(script("method__entry").contains("TracePoint"), "{door}");
        assert!(!script("cmethod__entry").contains("TracePoint"), "{door}");
        let printing = "usdt:ruby:method__entry,usdt:ruby:cmethod__entry { printf(\"%d\\n\", tid); }";
        let mut command = Command::new(nopal());
        command.args(["run", "--door", door, "--duration", "500ms", "-e", printing, "-p", &pid]);
        let output = command.output().unwrap();
        assert!(!output.stdout.is_empty(), "{door}");
        assert!(!String::from_utf8_lossy(&output.stderr).contains("TracePoint"), "{door}: {output:?}");
    }
    let mut doctor = Command::new(nopal());
    doctor.args(["doctor", "-p", &pid, "ruby:method__entry", "--wait", "500ms"]);
    let output = doctor.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && said.contains("TracePoint"), "{said}");
}
