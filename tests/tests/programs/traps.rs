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
