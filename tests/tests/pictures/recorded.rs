//! Recordings for the tests of this folder, and the readers of other people.

use nopal_tests::targets::{Build, build};
use nopal_tests::{lab, nopal, root, run, scratch};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// A program that plans its own spans, recorded once for all tests.
pub(crate) struct Planned {
    pub dir: PathBuf,
    /// What the program says must come of it.
    pub plan: PathBuf,
}

pub(crate) fn planned() -> &'static Planned {
    static MADE: OnceLock<Planned> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = scratch("pictures-planned");
        let program = build("spans", &["spans.c"], Build::Pie);
        let planned = Planned { dir: folder.join("rec"), plan: folder.join("plan") };
        let provider = root().join("tests/fixtures/targets/spans.d");
        let mut record = Command::new(nopal());
        record.args(["record", "-e", "plan:*", "--provider"]).arg(provider).arg("-o").arg(&planned.dir);
        run(record.arg("--").arg(program).arg(&planned.plan));
        planned
    })
}

/// The file that says what spans the planned program has.
pub(crate) fn spans_file() -> PathBuf {
    root().join("tests/fixtures/targets/spans.toml")
}

/// Python with the readers of other people.
pub(crate) fn python() -> PathBuf {
    const PACKAGES: [&str; 5] = [
        "perfetto==0.59.1",
        "protobuf==7.36.2",
        "pyarrow==26.0.1",
        "duckdb==2.0.0",
        "opentelemetry-proto==1.45.2",
    ];
    let folder = lab::cached("python-readers", &PACKAGES, |folder| {
        run(Command::new("python3").args(["-m", "venv"]).arg(folder));
        run(Command::new(folder.join("bin/pip")).args(["install", "--quiet"]).args(PACKAGES));
    });
    folder.join("bin/python")
}

/// Runs a script of `tests/fixtures/readers`, which checks and fails by itself.
#[track_caller]
pub(crate) fn check(script: &str, arguments: &[&dyn AsRef<OsStr>]) -> String {
    let mut command = Command::new(python());
    command.arg(root().join("tests/fixtures/readers").join(script));
    run(command.args(arguments.iter().map(AsRef::as_ref)))
}

#[track_caller]
pub(crate) fn output(arguments: &[&dyn AsRef<OsStr>]) -> Output {
    Command::new(nopal()).args(arguments.iter().map(AsRef::as_ref)).output().expect("nopal can be run")
}

/// What a command prints that must succeed.
#[track_caller]
pub(crate) fn said(arguments: &[&dyn AsRef<OsStr>]) -> String {
    let output = output(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// What a command says that must fail: its words, and its exit code.
#[track_caller]
pub(crate) fn refusal(arguments: &[&dyn AsRef<OsStr>]) -> (String, i32) {
    let output = output(arguments);
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code().expect("not killed"))
}

/// The text that babeltrace2 makes of a recording.
pub(crate) fn babeltrace(dir: &Path, into: &Path) {
    let text = run(Command::new("babeltrace2").args(["--clock-seconds", "--no-delta"]).arg(dir));
    std::fs::write(into, text).expect("the scratch folder can be written");
}
