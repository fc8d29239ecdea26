//! Parameters of functions by name and type, as debug information has them. What is expected is what the program says itself that
//! it passed.

use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, run, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) const N_ROUNDS: usize = 40;

fn program() -> PathBuf {
    build("typed", &["typed.c"], Build::Pie)
}

/// Runs a script on the program: what the program says must be what the script prints, in its order.
#[track_caller]
pub(super) fn compared(program: &Path, door: &str, script: &str, word: &str) {
    let seen = scratch(&format!("function_types_{door}_{word}")).join("seen");
    let mut command = Command::new(nopal());
    command.args(["run", "--door", door, "-e", script, "-o"]).arg(&seen);
    let output =
        command.arg("--").arg(program).arg(N_ROUNDS.to_string()).stdin(Stdio::null()).output().unwrap();
    let (own, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && errors.contains("complete"), "{door}: {own}{errors}");
    let seen = fs::read_to_string(seen).unwrap();
    let lines = |text: &str, prefix: &str| -> Vec<String> {
        let rest = text.lines().filter_map(|line| line.strip_prefix(prefix));
        rest.filter(|line| line.starts_with(word)).map(str::to_owned).collect()
    };
    assert_eq!(lines(&own, "own ").len(), N_ROUNDS, "{own}{errors}");
    assert_eq!(lines(&own, "own "), lines(&seen, "seen "), "{door}: {errors}");
}

#[test]
fn scripts_read_parameters_by_name_through_every_door() {
    let program = program();
    let file = program.display();
    let numbers = format!(
        r#"uprobe:{file}:narrow {{ printf("seen narrow %d %d %d %d %d %u\n", args.a, args.b, args.c, args.d, args.e, args.f); }}"#
    );
    let behind = format!(
        r#"uprobe:{file}:handle {{ printf("seen %s %d %s %d %s %c %s %s %s %d %d %d %d %d\n", str(args.key), args.nkey, args.c->name,
           args.c->fd, args.is_set ? "true" : "false", args.letter, args.s == BUSY ? "BUSY" : "BROKEN", args.c->next->name,
           args.c->peer.host, args.c->x, args.c->next->peer.port, args.c->low, args.c->high, ((struct conn *)arg0)->next->fd); }}"#
    );
    // A record that is passed as a whole takes the first register.
    let last = format!(r#"uprobe:{file}:nothing {{ printf("seen last %d\n", args.last); }}"#);
    for door in ["user", "kernel", "auto"] {
        compared(&program, door, &numbers, "narrow");
        compared(&program, door, &last, "last");
    }
    // Behind two pointers only the kernel reads.
    for door in ["kernel", "auto"] {
        compared(&program, door, &behind, "key");
    }
}

#[test]
fn events_have_the_parameters_by_both_doors() {
    let program = program();
    for door in ["kernel", "auto"] {
        let recording = scratch(&format!("function_types_{door}")).join("rec");
        let mut command = Command::new(nopal());
        command.args(["record", "--door", door, "-o"]).arg(&recording);
        for name in ["handle", "narrow", "nothing", "scale"] {
            command.args(["-e", &format!("function:typed-pie:{name}")]);
        }
        let output = command.arg("--").arg(&program).arg(N_ROUNDS.to_string()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.contains("complete"), "{door}: {errors}");
        let text = run(Command::new("babeltrace2").arg(&recording));
        let events = |name: &str| -> Vec<&str> {
            text.lines().filter(|line| line.contains(&format!("typed-pie:{name}: "))).collect()
        };
        for (i, line) in events("handle__entry").iter().enumerate() {
            let (is_set, state) = match i & 1 {
                1 => ("( \"true\" : container = 1 )", "( \"BUSY\" : container = 7 )"),
                _ => ("( \"false\" : container = 0 )", "( \"BROKEN\" : container = -2 )"),
            };
            let letter = u32::from(b'a') + i as u32 % 26;
            let expected = format!(
                "key = \"key{i}\", nkey = {i}, is_set = {is_set}, letter = {letter}, s = {state}, sp = "
            );
            assert!(line.contains(&expected), "{door}: {line}\n{expected}");
        }
        for (i, line) in events("narrow__entry").iter().enumerate() {
            let expected =
                format!("{{ a = -{i}, b = 255, c = -{}, d = 65000, e = -{i}, f = 4000000000, ", 1000 + i);
            assert!(line.contains(&expected.replace("-0,", "0,")), "{door}: {line}\n{expected}");
        }
        for (i, line) in events("nothing__entry").iter().enumerate() {
            assert!(line.contains(&format!("{{ last = {}, ", 100 + i)), "{door}: {line}");
        }
        // Floating-point numbers are left out.
        for (i, line) in events("scale__entry").iter().enumerate() {
            let expected = format!("{{ n = -{i}, m = {}, sp = ", 65535 - i).replace("-0,", "0,");
            assert!(line.contains(&expected), "{door}: {line}\n{expected}");
        }
        let returned = |name: &str, value: &str| events(name).iter().filter(|l| l.contains(value)).count();
        assert_eq!(returned("handle__return", "{ retval = -7, "), N_ROUNDS, "{door}: {text}");
        assert_eq!(returned("narrow__return", "{ retval = 255, "), N_ROUNDS, "{door}: {text}");
        // It returns nothing, and the event says nothing of it.
        assert_eq!(returned("nothing__return", "{ sp = "), N_ROUNDS, "{door}: {text}");
        assert_eq!(returned("scale__entry", "{ n = "), N_ROUNDS, "{door}: {text}");
        assert_eq!(returned("scale__return", "{ sp = "), N_ROUNDS, "{door}: {text}");
    }
}

/// A program that was stripped and has its debug information beside it, as distributions install them.
#[test]
fn a_stripped_program_is_known_by_its_debug_file() {
    let folder = scratch("function_types_stripped");
    let stripped = folder.join("typed");
    fs::copy(program(), &stripped).unwrap();
    let within = |program: &str, args: &[&str]| run(Command::new(program).args(args).current_dir(&folder));
    within("objcopy", &["--only-keep-debug", "typed", "typed.debug"]);
    within("strip", &["-g", "typed"]);
    within("objcopy", &["--add-gnu-debuglink=typed.debug", "typed"]);
    let list =
        |file: &Path| run(Command::new(nopal()).args(["list", "--functions", "-v"]).arg(file).arg("handle"));
    let signature =
        "int (struct conn *c, const char *key, size_t nkey, _Bool is_set, char letter, enum state s)";
    assert!(list(&stripped).contains(signature), "{}", list(&stripped));
    let script = format!(
        r#"uprobe:{}:narrow {{ printf("seen narrow %d %d %d %d %d %u\n", args.a, args.b, args.c, args.d, args.e, args.f); }}"#,
        stripped.display()
    );
    compared(&stripped, "auto", &script, "narrow");
    fs::remove_file(folder.join("typed.debug")).unwrap();
    assert!(!list(&stripped).contains("struct conn"));
    let output = Command::new(nopal()).args(["run", "-e", &script, "--"]).arg(&stripped).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains("no debug information"), "{errors}");
}

#[test]
fn what_cannot_be_read_is_refused_with_the_reason() {
    let (typed, twins) = (program(), build("twins", &["twins.c", "twins_other.c"], Build::Pie));
    for (file, script, reason) in [
        (&typed, "uprobe:FILE:scale { print(args.x); }", "floating-point"),
        (&typed, "uprobe:FILE:nothing { print(args.p); }", "passed as a whole"),
        (&typed, "uprobe:FILE:handle { print(args.keys); }", "did you mean `args.key`?"),
        (&typed, "uprobe:FILE:handle { print(args.c->nam); }", "name"),
        (&typed, "uprobe:FILE:handle+4 { print(args.c); }", "no debug information of it"),
        (&twins, "uprobe:FILE:same { print(args.x); }", "several functions of that name"),
    ] {
        let script = script.replace("FILE", &file.display().to_string());
        let output = Command::new(nopal()).args(["run", "-e", &script, "--"]).arg(file).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(reason), "{script}: {errors}");
    }
}
