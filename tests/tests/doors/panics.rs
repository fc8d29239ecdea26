//! A panic of nopal itself: the programs that it traced are as before, and whoever waited for it is told.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build, build_with};
use nopal_tests::user_door::text;
use nopal_tests::{nopal, scratch};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

#[test]
fn a_panic_leaves_programs_as_they_were() {
    let library = build_with("refused", &["refused.c"], Build::Pie, &["-shared", "-fPIC"]);
    let dir = scratch("panics");
    for verb in [&["trace"][..], &["record", "-o", "out", "-e"]] {
        let program = build("busy", &["busy.c", "own.c"], Build::Pie);
        let mut busy = Running::start(Command::new(program).stdout(Stdio::piped()));
        let mut out = BufReader::new(busy.0.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let before = text(busy.pid());
        let (refuse, said) = (dir.join("refuse"), dir.join("said"));
        let mut command = Command::new(nopal());
        command.args(verb).args(["busy:*", "-v", "--door", "user", "-p", &busy.pid().to_string()]);
        command.env("LD_PRELOAD", &library).env("REFUSE", &refuse).current_dir(&dir);
        command.stdout(Stdio::null()).stderr(File::create(&said).unwrap());
        let mut tracer = Running::start(&mut command);
        let words = || fs::read_to_string(&said).unwrap();
        wait_until("all is open", 60, || words().contains("sites:"));
        assert!(text(busy.pid()) != before, "{}", words());
        fs::write(&refuse, "").unwrap();
        let status = tracer.0.wait().unwrap();
        assert_eq!(status.code(), Some(101), "{}", words());
        assert!(
            words().contains("panicked at") && words().contains("nopal: 1 process as before"),
            "{}",
            words()
        );
        text(busy.pid()).assert_is(&before);
        // SAFETY: kill has no preconditions; the process is a child that was not waited for.
        unsafe { libc::kill(busy.pid() as i32, libc::SIGTERM) };
        let mut told = String::new();
        out.read_to_string(&mut told).unwrap();
        assert!(busy.0.wait().unwrap().success() && told.contains("errors=0"), "{told}");
    }
}

#[test]
fn what_follows_a_panic_leaves_the_tracers_of_others_alone() {
    let program = build("busy", &["busy.c", "own.c"], Build::Pie);
    let mut busy = Running::start(Command::new(program).stdout(Stdio::piped()));
    BufReader::new(busy.0.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let said = scratch("panics-others").join("said");
    let mut command = Command::new(nopal());
    command.args(["trace", "busy:*", "-v", "--door", "user", "-p", &busy.pid().to_string()]);
    let _tracer = Running::start(command.stdout(Stdio::null()).stderr(File::create(&said).unwrap()));
    wait_until("all is open", 60, || fs::read_to_string(&said).unwrap().contains("sites:"));
    let open = text(busy.pid());
    let output = Command::new(nopal()).args(["detach", "--after-panic"]).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.len()), (Some(101), 0), "{output:?}");
    text(busy.pid()).assert_is(&open);
}
