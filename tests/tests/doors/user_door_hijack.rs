//! Borrowing a thread of a running program: it makes our calls and never notices, even if the tracer is killed midway.

use nopal_tests::process::Running;
use nopal_tests::targets::{Build, build, build_with};
use nopal_user::hijack::{Call, Hijack};
use nopal_user::memory::Memory;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

fn getpid() -> Call {
    Call::new("ask for its number", libc::SYS_getpid, [0; 6])
}

/// ptrace belongs to a thread; what one leaves behind ends with it.
fn in_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|s| s.spawn(work).join().expect("the tracer thread did not panic"))
}

fn busy(how: Build) -> (Running, BufReader<std::process::ChildStdout>) {
    let program = build("busy", &["busy.c", "own.c"], how);
    let mut running = Running::start(Command::new(program).stdout(Stdio::piped()));
    let mut out = BufReader::new(running.0.stdout.take().expect("stdout is a pipe"));
    let mut line = String::new();
    out.read_line(&mut line).expect("the program says that it is ready");
    (running, out)
}

/// Asks the program to end and returns its last line; it must have seen no error.
fn end(mut running: Running, mut out: BufReader<std::process::ChildStdout>) -> String {
    // SAFETY: a pid we started and have not reaped.
    unsafe { libc::kill(running.pid() as i32, libc::SIGTERM) };
    let mut text = String::new();
    out.read_to_string(&mut text).expect("the program ends");
    let status = running.0.wait().expect("the program can be waited for");
    assert!(status.success() && text.contains("errors=0"), "{status} {text}");
    text
}

#[test]
fn borrowed_threads_of_a_busy_program_do_not_notice() {
    for how in [Build::Pie, Build::NonPie, Build::Static, Build::Musl] {
        let (running, out) = busy(how);
        let pid = running.pid() as i32;
        for _ in 0..100 {
            let memory = Memory::open(pid).unwrap();
            let answer = in_a_thread(|| {
                let mut hijack = Hijack::choose(&memory, None).unwrap();
                let answer = hijack.must(getpid()).unwrap();
                assert_eq!(answer, hijack.must(getpid()).unwrap());
                answer
            });
            assert_eq!(answer, u64::from(running.pid()));
        }
        end(running, out);
    }
}

#[test]
fn a_program_that_is_still_being_loaded_survives_a_killed_tracer() {
    let library = build_with("slow", &["slow.c"], Build::Pie, &["-shared", "-fPIC"]);
    let mut program = Command::new("/bin/true");
    let mut running = Running::start(program.env("LD_PRELOAD", &library).stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "loading\n");
    let pid = running.pid() as i32;
    let memory = Memory::open(pid).unwrap();
    in_a_thread(|| {
        let mut hijack = Hijack::choose(&memory, None).unwrap();
        assert_eq!(hijack.must(getpid()).unwrap(), pid as u64);
        // As if killed: nothing is given back.
        std::mem::forget(hijack);
    });
    let status = running.0.wait().unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn sleeping_calls_go_on_after_a_hijack() {
    let program = build("blocked", &["blocked.c"], Build::Pie);
    for call in [
        "nanosleep",
        "clock_nanosleep",
        "futex",
        "futex_timed",
        "poll",
        "ppoll",
        "select",
        "read",
        // Of these a stop makes EINTR; another thread is to be borrowed.
        "recv_timed",
        "read_timed",
        "pause_free",
    ] {
        let mut running = Running::start(Command::new(&program).arg(call).stdout(Stdio::piped()));
        let mut out = BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let pid = running.pid() as i32;
        std::thread::sleep(Duration::from_millis(50));
        for _ in 0..10 {
            let memory = Memory::open(pid).unwrap();
            in_a_thread(|| {
                let mut hijack = Hijack::choose(&memory, None).unwrap();
                assert_eq!(hijack.must(getpid()).unwrap(), pid as u64);
            });
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        let status = running.0.wait().unwrap();
        assert!(status.success(), "{call}: {status} {text}");
    }
}

#[test]
fn a_stopped_process_is_still_stopped_afterwards() {
    let (running, out) = busy(Build::Pie);
    let pid = running.pid() as i32;
    // SAFETY: a pid we started and have not reaped.
    unsafe { libc::kill(pid, libc::SIGSTOP) };
    let state = || nopal_user::process::status(pid).unwrap().state;
    nopal_tests::process::wait_until("the process is stopped", 10, || state() == 'T');
    let memory = Memory::open(pid).unwrap();
    in_a_thread(|| {
        let mut hijack = Hijack::choose(&memory, None).unwrap();
        assert_eq!(hijack.must(getpid()).unwrap(), pid as u64);
    });
    nopal_tests::process::wait_until("the process is stopped again", 10, || state() == 'T');
    // SAFETY: as above.
    unsafe { libc::kill(pid, libc::SIGCONT) };
    end(running, out);
}

/// Not a test of its own: the tracer that the next test starts and kills.
#[test]
fn tracer_to_be_killed() {
    let Some(pid) = std::env::var("NOPAL_TEST_PID").ok().and_then(|p| p.parse().ok()) else { return };
    loop {
        let memory = Memory::open(pid).unwrap();
        in_a_thread(|| {
            let mut hijack = Hijack::choose(&memory, None).unwrap();
            for _ in 0..3 {
                assert_eq!(hijack.must(getpid()).unwrap(), pid as u64);
            }
        });
    }
}

#[test]
fn a_killed_tracer_leaves_the_program_running() {
    let n_kills: u32 = std::env::var("NOPAL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let (running, out) = busy(Build::Pie);
    for i in 0..n_kills {
        let mut tracer = Running::start(
            Command::new(std::env::current_exe().unwrap())
                .args([&nopal_tests::test_name(module_path!(), "tracer_to_be_killed"), "--exact"])
                .env("NOPAL_TEST_PID", running.pid().to_string())
                .stdout(Stdio::null()),
        );
        std::thread::sleep(Duration::from_micros(20_000 + u64::from(i * 7919 % 1000) * 20));
        assert!(tracer.0.try_wait().unwrap().is_none(), "the tracer was at work when it was killed");
        drop(tracer);
    }
    // Threads still in our code go back by themselves within a second.
    std::thread::sleep(Duration::from_millis(700));
    let memory = Memory::open(running.pid() as i32).unwrap();
    in_a_thread(|| nopal_user::entry::mend(&memory, &[]).unwrap());
    end(running, out);
}
