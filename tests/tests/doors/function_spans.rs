//! Functions as spans of the answers: `latency`, `top` and `tree` on programs without probes.

use nopal_tests::process::Running;
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

fn program() -> PathBuf {
    build("functions", &["functions.c"], Build::Pie)
}

/// What the program counted itself, and the answer.
fn asked(verb: &[&str], functions: &[&str], rounds: &str) -> (BTreeMap<String, i64>, Value, String) {
    let program = program();
    let mut command = Command::new(nopal());
    command.args(verb).args(functions).args(["-v", "--json", "--"]).arg(&program).arg(rounds);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let (out, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(output.status.success(), "{out}{errors}");
    let own = out.lines().find(|line| line.starts_with("f_sum=")).unwrap_or_else(|| panic!("{out}{errors}"));
    let pair = |pair: &str| {
        let (name, count) = pair.split_once('=').unwrap();
        (name.to_owned(), count.parse().unwrap())
    };
    let own: BTreeMap<String, i64> = own.split(' ').map(pair).collect();
    assert_eq!(own["errors"], 0, "{errors}");
    let answer: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    (own, answer, errors)
}

fn counts(answer: &Value) -> BTreeMap<String, i64> {
    let rows = answer["rows"].as_array().unwrap().iter();
    rows.map(|row| (row["span"].as_str().unwrap().to_owned(), row["count"].as_i64().unwrap())).collect()
}

#[test]
fn every_call_is_a_span_whichever_way_it_is_left() {
    let names = ["f_sum", "f_length", "f_tail", "f_maybe", "f_jump", "f_down"];
    let words = names.map(|name| format!("functions-pie:{name}"));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Where libraries lie may leave a jump without a place to land; then the kernel sees it, at another time, or all is streamed.
    let is_by_user = |errors: &str| !errors.contains(": kernel door: ");
    for (way, is_kept) in [(&["--slowest", "0"][..], true), (&["--streamed"], false)] {
        let verb: Vec<&str> = [&["latency"], way].concat();
        let (own, answer, errors) = (0..5)
            .map(|_| asked(&verb, &words, "600"))
            .find(|(_, answer, errors)| is_by_user(errors) && answer["kept_at_source"] == is_kept)
            .expect("the user door opens them, most of the time");
        let counts = counts(&answer);
        for name in names {
            // Every other call of this one is left by longjmp.
            let n_left = if name == "f_jump" { own[name] / 2 } else { own[name] };
            assert_eq!(counts[&format!("functions-pie:{name}")], n_left, "{name}: {answer}{errors}");
        }
        assert_eq!(
            (&answer["complete"], &answer["kept_at_source"]),
            (&true.into(), &is_kept.into()),
            "{answer}"
        );
        assert_eq!(answer["unmatched"], own["f_jump"] / 2, "{answer}{errors}");
        assert_eq!(answer["unmatched_why"]["begun_before"], 0, "{answer}");
    }
}

#[test]
fn functions_are_named_by_path_too_and_top_takes_patterns() {
    let path = program().display().to_string();
    let (own, answer, errors) = asked(&["top"], &["--functions", &format!("{path}:f_do*")], "50");
    assert_eq!(counts(&answer), [("functions-pie:f_down".to_owned(), own["f_down"])].into(), "{errors}");
    assert_eq!(answer["unmatched"], 0, "{answer}");
}

#[test]
fn a_tree_shows_which_functions_a_function_calls() {
    let verb =
        ["tree", "--pick", "all", "functions-pie:f_tail", "functions-pie:f_choice", "functions-pie:f_sum"];
    let (own, answer, errors) = asked(&verb, &[], "600");
    // A tail call is not within: the function has been left.
    let rows: Vec<(i64, &str, i64)> = answer["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            (row["depth"].as_i64().unwrap(), row["span"].as_str().unwrap(), row["count"].as_i64().unwrap())
        })
        .collect();
    assert_eq!(rows, [(0, "functions-pie:f_tail", own["f_tail"])], "{answer}{errors}");
    let (own, answer, errors) = asked(&["tree", "--pick", "all", "functions-pie:f_down"], &[], "100");
    let trees = answer["trees"].as_i64().unwrap();
    // f_down calls itself: each round is a tree of as many as it is deep, and each call within is one of its own.
    assert_eq!(trees, own["f_down"], "{answer}{errors}");
    let deepest = answer["rows"].as_array().unwrap().iter().map(|row| row["depth"].as_i64().unwrap()).max();
    assert_eq!(deepest, Some(4), "{answer}");
}

#[test]
fn a_running_program_is_asked_and_a_wrong_name_has_a_hint() {
    let mut command = Command::new(program());
    command.args(["0", "2"]).stdout(Stdio::null());
    let target = Running::start(&mut command);
    let pid = target.pid().to_string();
    let text = run(Command::new(nopal())
        .args(["latency", "functions-pie:f_length", "--json", "--duration", "1s", "-p", &pid])
        .stdin(Stdio::null()));
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert!(answer["rows"][0]["count"].as_u64() > Some(100), "{text}");
    assert_eq!(answer["rows"][0]["span"], "functions-pie:f_length", "{text}");
    // The stack pointer, by which calls are paired, tells people nothing.
    let args = answer["slowest"][0]["args"].as_object().unwrap();
    assert!(args.contains_key("text") && !args.contains_key("sp"), "{text}");
    let text = run(Command::new(nopal())
        .args(["latency", "functions-pie:f_sum", "--json", "--duration", "1s", "-p", &pid])
        .stdin(Stdio::null()));
    let answer: Value = serde_json::from_str(&text).unwrap();
    let args = answer["slowest"][0]["args"].as_object().unwrap();
    assert!(args.contains_key("retval") && args.len() > 1 && !args.contains_key("sp"), "{text}");
    for (word, hint) in
        [("function:functions-pie:f_lenght", "f_length"), ("function:nowhere:f", "no file of that")]
    {
        let output = Command::new(nopal()).args(["latency", word, "-p", &pid]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("no function matches") && said.contains(hint),
            "{said}"
        );
    }
}
