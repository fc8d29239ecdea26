//! `nopal` on processes that are in no state to be traced, and under limits: it works or says one clear sentence, and the
//! program never notices.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::user_door::text;
use nopal_tests::{nopal, scratch};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Output, Stdio};
use std::time::Duration;

/// A program that checks itself.
struct Busy {
    running: Running,
    out: BufReader<ChildStdout>,
    before: nopal_tests::user_door::Text,
}

fn program() -> PathBuf {
    build("busy", &["busy.c", "own.c"], Build::Pie)
}

impl Busy {
    fn start() -> Busy {
        Busy::of(&program())
    }

    fn of(program: &Path) -> Busy {
        Busy::by(&mut Command::new(program))
    }

    fn by(command: &mut Command) -> Busy {
        let mut running = Running::start(command.args(["-q", "-t", "2"]).stdout(Stdio::piped()));
        let mut out = BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let before = text(running.pid());
        Busy { running, out, before }
    }

    fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn signal(&self, signal: i32) {
        send(self.pid(), signal);
    }

    /// Its code is what it was, it ends when it is asked to, and it has seen no error.
    fn end(mut self) {
        text(self.pid()).assert_is(&self.before);
        self.signal(libc::SIGTERM);
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        assert!(self.running.0.wait().unwrap().success() && said.contains("errors=0"), "{said}");
    }
}

pub(super) fn send(pid: u32, signal: i32) {
    // SAFETY: a pid we started and have not reaped.
    unsafe { libc::kill(pid as i32, signal) };
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Records for a moment, through a shell that sets the limits first.
fn record(pid: u32, limits: &str, more: &str) -> Output {
    let folder = scratch(&format!("hostile-{pid}"));
    let script = format!(
        "{limits} exec {} record --duration 0.3 -e 'busy:*' -p {pid} -o {}/rec {more}",
        nopal().display(),
        folder.display()
    );
    let mut shell = Command::new("sh");
    // What the test itself has inherited must not count against the limits.
    // SAFETY: a system call on numbers, between fork and exec.
    unsafe {
        shell.pre_exec(|| {
            libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32);
            Ok(())
        });
    }
    shell.args(["-c", &script]).stdin(Stdio::null()).output().unwrap()
}

/// Not more than a sentence and what to do next.
#[track_caller]
fn assert_refused(output: &Output, why: &str) {
    let said = said(output);
    assert!(!output.status.success() && said.contains(why), "{said}");
    assert!(said.lines().count() <= 2 && !said.contains("panicked"), "{said}");
}

#[track_caller]
fn assert_recorded(output: &Output) {
    assert!(output.status.success() && said(output).contains("user door"), "{}", said(output));
}

#[test]
fn under_limits() {
    let busy = Busy::start();
    assert_recorded(&record(busy.pid(), "ulimit -n 64;", ""));
    assert_recorded(&record(busy.pid(), "unset LANG LC_ALL HOME TERM;", ""));
    assert_refused(&record(busy.pid(), "ulimit -v 50000;", ""), "Cannot allocate memory");
    // Not enough to begin, to open the process, to write the recording, and enough: what was opened is always closed.
    for n in 8..36 {
        let output = record(busy.pid(), &format!("ulimit -n {n};"), "");
        let said = said(&output);
        assert!(
            output.status.success() || said.to_lowercase().contains("too many open files"),
            "{n}: {said}"
        );
        assert!(!said.contains("disk") && !said.contains("panicked"), "{n}: {said}");
        assert!(text(busy.pid()) == busy.before, "{n}: the code is what it was: {said}");
    }
    busy.end();
}

#[test]
fn programs_under_limits() {
    let busy = Busy::start();
    let limit = |what: &str| {
        nopal_tests::run(Command::new("prlimit").args([&format!("--pid={}", busy.pid()), what]));
    };
    let status = fs::read_to_string(format!("/proc/{}/status", busy.pid())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    limit(&format!("--as={}:unlimited", (kib + 64) << 10));
    assert_refused(&record(busy.pid(), "", "--door user"), "could not map");
    limit("--as=unlimited:unlimited");
    limit("--nofile=3:1024");
    let refused = record(busy.pid(), "", "--door user");
    limit("--nofile=1024:1024");
    assert_refused(&refused, "Too many open files");
    assert_recorded(&record(busy.pid(), "", ""));
    // What it wanted to open meanwhile is its own affair.
    text(busy.pid()).assert_is(&busy.before);
}

#[test]
fn a_stopped_program_stays_stopped() {
    let busy = Busy::start();
    busy.signal(libc::SIGSTOP);
    let state = || nopal_user::process::status(busy.pid() as i32).unwrap().state;
    wait_until("it to stop", 10, || state() == 'T');
    assert_recorded(&record(busy.pid(), "", ""));
    assert_eq!(state(), 'T');
    busy.signal(libc::SIGCONT);
    busy.end();
}

#[test]
fn a_program_under_strace_names_it() {
    let busy = Busy::start();
    let mut strace = Running::start(
        Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-p", &busy.pid().to_string()])
            .stderr(Stdio::null()),
    );
    let tracer = || nopal_user::process::status(busy.pid() as i32).unwrap().tracer_pid;
    wait_until("strace to attach", 20, || tracer() != 0);
    assert_refused(&record(busy.pid(), "", ""), "(strace)");
    send(strace.pid(), libc::SIGINT);
    let _ = strace.0.wait();
    assert_recorded(&record(busy.pid(), "", ""));
    busy.end();
}

#[test]
fn a_program_in_valgrind_is_left_alone() {
    // It translates what stands in the code: a breakpoint of the kernel would be the program's own, and its end.
    let mut command = Command::new("valgrind");
    command.args(["-q", "--tool=none"]).arg(program());
    let busy = Busy::by(&mut command);
    for door in ["auto", "user", "kernel"] {
        let refused = record(busy.pid(), "", &format!("--door {door}"));
        assert_refused(&refused, "runs in valgrind");
    }
    busy.end();
}

#[test]
fn a_zombie_has_ended() {
    let ended = Running::start(&mut Command::new("true"));
    wait_until("the child to end", 10, || {
        fs::read_to_string(format!("/proc/{}/stat", ended.pid())).is_ok_and(|s| s.contains(") Z "))
    });
    assert_refused(&record(ended.pid(), "", ""), "has ended");
    let detached = Command::new(nopal()).args(["detach", "-p", &ended.pid().to_string()]).output().unwrap();
    assert_refused(&detached, "has ended");
}

#[test]
fn a_program_whose_file_was_replaced() {
    let folder = scratch("hostile-upgraded");
    let path = folder.join("upgraded");
    nopal_tests::copy_program(&program(), &path);
    let busy = Busy::of(&path);
    fs::remove_file(&path).unwrap();
    assert_recorded(&record(busy.pid(), "", ""));
    // Another program has its place now.
    nopal_tests::copy_program(Path::new("/bin/true"), &path);
    assert_recorded(&record(busy.pid(), "", ""));
    // And a tracer that was killed is cleaned up after by what the process itself has of the file.
    let mut killed = started(&busy, &folder.join("killed"));
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let restored = detach(busy.pid());
    assert!(restored.contains("restored"), "{restored}");
    busy.end();
}

/// `nopal record` that is at work.
fn started(busy: &Busy, recording: &Path) -> Running {
    let messages = recording.with_extension("messages");
    let running = Running::start(
        Command::new(nopal())
            .args(["record", "-v", "-e", "busy:*", "-p", &busy.pid().to_string(), "-o"])
            .arg(recording)
            .stdout(Stdio::null())
            .stderr(fs::File::create(&messages).unwrap()),
    );
    wait_until("nopal to be at work", 60, || fs::read_to_string(&messages).unwrap().contains("sites: "));
    running
}

fn detach(pid: u32) -> String {
    let output = Command::new(nopal()).args(["detach", "-p", &pid.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

#[test]
fn several_tracers_of_which_one_is_killed() {
    let folder = scratch("hostile-several");
    let busy = Busy::start();
    let mut first = started(&busy, &folder.join("first"));
    let mut second = started(&busy, &folder.join("second"));
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    // What the dead one left is put back, and the living one goes on.
    let restored = detach(busy.pid());
    assert!(restored.contains(&format!("process {} is tracing it and goes on", second.pid())), "{restored}");
    let size = || {
        let files = fs::read_dir(folder.join("second")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>()
    };
    let then = size();
    wait_until("the other to go on", 20, || size() > then);
    // A terminal that is closed ends it as Ctrl-C does.
    send(second.pid(), libc::SIGHUP);
    assert!(second.0.wait().unwrap().success());
    let nothing = detach(busy.pid());
    assert!(nothing.contains("nothing to restore") && !nothing.contains("goes on"), "{nothing}");
    assert_recorded(&record(busy.pid(), "", ""));
    busy.end();
}

#[test]
fn the_commands_are_killed_at_random_moments() {
    let folder = scratch("hostile-killed");
    let mut chance = nopal_tests::cycles::Chance::new("kills");
    let mut busy = Busy::start();
    for i in 0..nopal_tests::cycles::kills(8) {
        let mut tracer = Running::start(
            Command::new(nopal())
                .args(["record", "-e", "busy:*", "-p", &busy.pid().to_string(), "-o"])
                .arg(folder.join(format!("recording-{i}")))
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        );
        std::thread::sleep(Duration::from_micros(2000 + chance.below(120_000)));
        tracer.0.kill().unwrap();
        tracer.0.wait().unwrap();
        assert!(busy.running.0.try_wait().unwrap().is_none(), "kill {i}: the program lives");
        detach(busy.pid());
        if i % 4 == 0 {
            let traced = Command::new(nopal())
                .args(["trace", "--limit", "3", "-p", &busy.pid().to_string(), "busy:own"])
                .output()
                .unwrap();
            let events = String::from_utf8_lossy(&traced.stdout).lines().count();
            assert!(traced.status.success() && events == 3, "kill {i}: {}", said(&traced));
        }
        let _ = fs::remove_dir_all(folder.join(format!("recording-{i}")));
    }
    wait_until("the code to be what it was, once no borrowed thread is in it", 30, || {
        detach(busy.pid());
        text(busy.pid()) == busy.before
    });
    busy.end();
}

#[test]
fn programs_that_are_about_to_end_or_start_another() {
    let life = build("life", &["life.c"], Build::Pie);
    for rounds in 0..12 {
        let mut command = Command::new(&life);
        command.arg((rounds * 7).to_string());
        if rounds % 2 == 0 {
            // It then starts itself once more.
            command.arg("--").arg(&life).arg("40");
        }
        let mut running = Running::start(command.stdout(Stdio::null()));
        let traced = Command::new(nopal())
            .args(["trace", "--duration", "0.5", "-p", &running.pid().to_string(), "life:*"])
            .output()
            .unwrap();
        let words = said(&traced);
        assert!(!words.contains("panicked") && words.lines().count() <= 4, "{words}");
        assert!(running.0.wait().unwrap().success(), "{words}");
    }
}

#[test]
fn a_forged_journal_holds_nobody_up() {
    let forged = build("forged", &["forged.c"], Build::Pie);
    // As many as a stub space of ours has, and as many as fit into one.
    for n_entries in ["8192", "65000"] {
        let mut running = Running::start(Command::new(&forged).arg(n_entries).stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let pid = running.pid().to_string();
        for command in [
            &["trace", "--door", "user", "--limit", "3", "-p", &pid, "forged:*"][..],
            &["detach", "-p", &pid],
            &["trace", "--limit", "3", "-p", &pid, "forged:*"],
        ] {
            let output = Command::new(nopal()).args(command).output().unwrap();
            let words = said(&output);
            assert!(!words.contains("panicked") && words.lines().count() <= 4, "{command:?}: {words}");
            assert!(running.0.try_wait().unwrap().is_none(), "{command:?}: the program lives: {words}");
        }
    }
}
