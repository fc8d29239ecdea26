//! Parameters and results of functions of Go by name and type. What is expected is what the program says itself that it was given, or
//! follows from its rounds.

use super::function_go::{built, built_with};
use super::function_types::{N_ROUNDS, compared};
use nopal_tests::{nopal, run, scratch};
use serde_json::Value;
use std::process::Command;

/// What each event must have, in the order of the fields, and what lies between does not matter.
fn has(line: &str, parts: &[String]) -> bool {
    let mut rest = line;
    parts.iter().all(|part| match rest.split_once(part.as_str()) {
        Some((_, behind)) => {
            rest = behind;
            true
        }
        None => false,
    })
}

fn truth(is_true: bool) -> &'static str {
    if is_true { "( \"true\" : container = 1 )" } else { "( \"false\" : container = 0 )" }
}

/// Of the round with this number, where a function is entered or left.
fn expected(event: &str, i: i64) -> Vec<String> {
    let text = format!("\"round {i}\"");
    match event {
        "tText__entry" => {
            let key = &format!("round {i} of many")[6..8];
            let numbers = format!("n = {}, ok = {}, key = \"{key}\", sp = ", i - 20, truth(i % 3 == 0));
            vec![format!("name = {text}, {numbers}")]
        }
        // Every other one comes without an error.
        "tText__return" if i % 2 == 0 => {
            vec![format!("retval = \"round {i}!\", retval1_tab = 0x"), "sp = ".into()]
        }
        "tText__return" => {
            vec![format!("retval = \"round {i}?\", retval1_tab = 0x0, retval1_data = 0x0, sp = ")]
        }
        "tSlices__entry" => vec![
            format!("[0] = 0x1, [1] = 0x{:X}, [2] = 0xFF", i as u8),
            format!("[0] = {i}, [1] = -7, [2] = {}", 1 << 30),
            "words = 0x".into(),
            format!("words_len = 2, last = {}, sp = ", -i),
        ],
        "tSlices__return" => vec!["retval = 3, sp = ".into()],
        "(*point).tMethod__entry" => vec![
            "p = 0x".into(),
            format!("v_Kind = {}, v_Name = {text}, v_Live = {}", -i % 100, truth(i % 2 == 0)),
            "rest = 0x".into(),
            "rest_len = 3, sp = ".into(),
        ],
        "(*point).tMethod__return" => vec![format!("retval = {}, sp = ", i + 1)],
        "tMany__entry" => vec![
            format!(
                "a = {i}, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = {}, j = {}, ",
                i + 9,
                i + 10
            ),
            // A text on the stack is not read.
            format!("k = {}, sp = ", i as u8),
        ],
        "tMany__return" => vec![format!("retval = {}, sp = ", i + 10)],
        "tWhole__entry" => vec![
            format!("w_A = {i}, w_B = 0, "),
            format!("w_J = {}, after = {}, one = {}, last = {}, sp = ", -i, i * 2, i + 1, (i + 60000) as u16),
        ],
        "tWhole__return" => vec![format!("retval_X = {}, retval_Y = {}, sp = ", i + 2, -i)],
        "tSmall__entry" => vec![format!("a = {i}, key = {text}, sp = ")],
        "tFive__entry" => vec![format!("v_A = {i}, v_B = 2, v_C = 3, v_D = 4, v_E = 5, sp = ")],
        other => panic!("{other} was not asked for"),
    }
}

#[test]
fn events_have_what_functions_of_go_are_given_and_return() {
    for (mode, flags, door) in
        [("pie", "", "auto"), ("pie", "", "kernel"), ("exe", "", "auto"), ("pie", "-N -l", "auto")]
    {
        let program = built_with("given", mode, false, flags);
        let what = format!("{}-{door}", program.file_name().unwrap().display());
        let recording = scratch(&format!("function_go_types_{what}")).join("rec");
        let mut command = Command::new(nopal());
        command.args(["record", "-v", "--door", door, "-e"]);
        command.arg(format!("function:{}:main.*t[A-Z]*", program.display())).arg("-o").arg(&recording);
        let output = command.arg("--").arg(&program).arg(N_ROUNDS.to_string()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {errors}");
        // It escapes question marks.
        let text = run(Command::new("babeltrace2").arg(&recording)).replace("\\?", "?");
        for event in [
            "tText__entry",
            "tText__return",
            "tSlices__entry",
            "tSlices__return",
            "(*point).tMethod__entry",
            "(*point).tMethod__return",
            "tMany__entry",
            "tMany__return",
            "tWhole__entry",
            "tWhole__return",
            "tFive__entry",
            "tSmall__entry",
        ] {
            // Code that is not optimized has these in its frame, where they are copied behind the entry; and it calls every function.
            let is_unknown = ["(*point).tMethod__entry", "tMany__entry", "tSmall__entry"].contains(&event);
            if !flags.is_empty() && is_unknown {
                continue;
            }
            let is_one = |line: &&str| line.contains(&format!("main.{event}"));
            let lines: Vec<&str> = text.lines().filter(is_one).collect();
            assert_eq!(lines.len(), N_ROUNDS, "{what}: {event}: {errors}");
            for (line, i) in lines.iter().zip(0..) {
                assert!(has(line, &expected(event, i)), "{what}: {line}\n{:?}", expected(event, i));
            }
        }
        // Both doors must have seen some; nobody knows where a float is.
        assert!(!text.contains(" x = "), "{what}");
    }
}

#[test]
fn scripts_read_what_functions_of_go_are_given() {
    for mode in ["pie", "exe"] {
        let program = built("given", mode, false);
        let file = program.display();
        let text = format!(
            r#"uprobe:{file}:main.tText {{ printf("seen tText name=\"%s\" n=%d ok=%s key=\"%s\"\n", args.name, args.n, args.ok ? "true" : "false", str(args.key)); }}"#
        );
        compared(&program, "kernel", &text, "tText");
        compared(&program, "auto", &text, "tText");
        let method = format!(
            r#"uprobe:{file}:"main.(*point).tMethod" {{ printf("seen tMethod v=%d \"%s\" %s p=%d rest=3\n", args.v_Kind, args.v_Name, args.v_Live ? "true" : "false", args.p->X); }}"#
        );
        compared(&program, "auto", &method, "tMethod");
    }
}

#[test]
fn signatures_of_go_are_shown_as_go_has_them() {
    let program = built("given", "pie", false);
    let mut command = Command::new(nopal());
    let shown = run(command.args(["list", "--functions", "-v"]).arg(&program).arg("main.*t[A-Z]*"));
    for signature in [
        "func (name string, n int32, ok bool, key string) (string, error)",
        "func (bytes []uint8, items []int32, words []string, last int64) int",
        "func (p *main.point, v main.named, rest []string) int",
        "func (v main.five, x float64 [not read]) float64",
        "func (w main.wide, after int, pair [2]int [not read], one [1]int, last uint16) main.point",
    ] {
        assert!(shown.contains(signature), "{signature}: {shown}");
    }
    let mut command = Command::new(nopal());
    let json = run(command.args(["list", "--functions", "--json"]).arg(&program).arg("main.tSlices"));
    let list: Value = serde_json::from_str(&json).unwrap();
    let places: Vec<&str> = list[0]["signature"]["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|parameter| parameter["place"].as_str().unwrap())
        .collect();
    assert_eq!(places, ["rax, rbx, rcx", "rdi, rsi, r8", "r9, r10, r11", "8(%rsp)"], "{json}");
}
