//! Scripts that would take all memory or all time: they are refused, given up, or written out as they go.

use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, scratch};
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// What the tracer may have of memory that is its own.
const DATA_BYTES: u64 = 400 << 20;

/// Without more memory than that, and not for ever.
fn bounded(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "120", "prlimit", &format!("--data={DATA_BYTES}")]).arg(nopal()).arg("run");
    command.args(arguments).current_dir(dir).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_text_that_doubles_with_each_name_is_refused() {
    let dir = scratch("run-bounds-doubling");
    let mut defines = "#define A0 1\n".to_owned();
    for n in 1..12 {
        defines += &format!("#define A{n} {}\n", vec![format!("A{}", n - 1); 12].join("+"));
    }
    let condition = format!("{defines}#if A11 > 0\n#define X 1\n#endif\nBEGIN {{ exit(); }}");
    let nested = (0..26).fold("1".to_owned(), |inner, _| format!("m({inner})"));
    let nested = format!("macro m(x) {{ x + x }}\nBEGIN {{ $a = {nested}; exit(); }}");
    let mut each = "macro m0(x) { x + x }\n".to_owned();
    (1..26).for_each(|n| each += &format!("macro m{n}(x) {{ m{}(x + x) }}\n", n - 1));
    let each = format!("{each}BEGIN {{ $a = m25(pid); exit(); }}");
    for (name, script, word) in
        [("if", &condition, ""), ("nested", &nested, "too large"), ("each", &each, "too large")]
    {
        let file = dir.join(format!("{name}.bt"));
        fs::write(&file, script).unwrap();
        let output = bounded(&dir, &[file.to_str().unwrap()]).output().unwrap();
        let said = said(&output);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{name}: {} {said}", output.status);
        assert!(said.contains(word), "{name}: {said}");
    }
}

#[test]
fn headers_without_end_are_read_so_far_only() {
    let dir = scratch("run-bounds-headers");
    let includes: String = (0..401).map(|n| format!("#include \"a{n}.h\"\n")).collect();
    let mut base = includes.into_bytes();
    base.resize(4 << 20, 0xff);
    fs::write(dir.join("base.h"), &base).unwrap();
    for n in 0..401 {
        std::os::unix::fs::symlink("base.h", dir.join(format!("a{n}.h"))).unwrap();
    }
    fs::write(dir.join("x.bt"), "#include \"a0.h\"\nBEGIN { exit(); }\n").unwrap();
    let output = bounded(&dir, &["x.bt"]).output().unwrap();
    assert!(output.status.success(), "{} {}", output.status, said(&output));
}

#[test]
fn a_hit_that_prints_without_end_is_given_up() {
    let dir = scratch("run-bounds-endless");
    for print in
        ["printf(\"%1000d%1000d%1000d%1000d\\n\", $i, $i, $i, $i)", "warnf(\"%1000d%1000d\", $i, $i)"]
    {
        let script = format!("BEGIN {{ for $i : 0..9223372036854775807 {{ {print}; }} exit(); }}");
        let output =
            bounded(&dir, &["--door", "user", "-e", &script]).stdout(Stdio::null()).output().unwrap();
        let said = said(&output);
        let end = &said[said.len().saturating_sub(300)..];
        assert!(output.status.code().is_some_and(|code| code < 124), "{print}: {} {end}", output.status);
    }
}

/// Many hits that come at once, each of which prints much: what they print is all there.
#[test]
fn what_many_hits_print_is_written_as_they_go() {
    let dir = scratch("run-bounds-many");
    fs::write(dir.join("counter"), [0; 8]).unwrap();
    let program = build("counted", &["counted.c"], Build::Pie);
    let script = "usdt::counted:hit { for $i : 0..100 { printf(\"%1000d\", $i); } @n = count(); }";
    let line =
        ["--json", "--door", "user", "-e", script, "--", program.to_str().unwrap(), "counter", "fire:6000:0"];
    let output = bounded(&dir, &line).output().unwrap();
    assert!(output.status.success(), "{} {}", output.status, said(&output));
    let blanks = output.stdout.iter().filter(|byte| **byte == b' ').count();
    let text = String::from_utf8_lossy(&output.stdout[output.stdout.len() - 400..]).into_owned();
    assert!(text.contains("\"value\":6000"), "{text}");
    // 998 or 999 before each number; in JSON there are a few more.
    assert!(blanks >= 6000 * (10 * 999 + 90 * 998), "{blanks}");
}
