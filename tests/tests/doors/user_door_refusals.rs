//! What the user door will not do: one clear sentence each, and the target goes on untouched.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::user_door::Door;
use nopal_user::Error;
use std::process::{Command, Stdio};

fn refusal(pid: u32) -> (Error, String) {
    let error = Door::open(pid, "*:*").expect_err("this process must be refused");
    let text = error.to_string();
    (error, text)
}

fn mapped(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default().contains("memfd:nopal")
}

#[test]
fn processes_that_are_not_there() {
    let (error, text) = refusal(1 << 22);
    assert!(matches!(error, Error::NoSuchProcess { .. }), "{text}");
    let mut ended = Running::start(&mut Command::new("true"));
    wait_until("the child to end", 10, || {
        std::fs::read_to_string(format!("/proc/{}/stat", ended.pid())).is_ok_and(|s| s.contains(") Z "))
    });
    let (error, text) = refusal(ended.pid());
    assert!(matches!(error, Error::Gone { .. }), "a zombie: {text}");
    let _ = ended.0.wait();
}

#[test]
fn a_process_under_a_debugger_names_it() {
    let program = build("busy", &["busy.c", "own.c"], Build::Pie);
    let running = Running::start(Command::new(program).args(["-q", "-t", "1"]).stdout(Stdio::null()));
    let mut gdb = Running::start(
        Command::new("gdb")
            .args(["-q", "-nx", "-batch", "-p", &running.pid().to_string(), "-ex", "continue"])
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    let tracer = || nopal_user::process::status(running.pid() as i32).unwrap().tracer_pid;
    wait_until("gdb to attach", 30, || tracer() != 0);
    let (error, text) = refusal(running.pid());
    assert!(matches!(error, Error::AlreadyTraced { tracer, .. } if tracer == gdb.pid() as i32), "{text}");
    assert!(text.contains("(gdb)"), "{text}");
    // SAFETY: a pid we started and have not reaped.
    unsafe { libc::kill(gdb.pid() as i32, libc::SIGINT) };
    let _ = gdb.0.wait();
    wait_until("gdb to leave", 30, || tracer() == 0);
    assert!(!mapped(running.pid()));
    let mut door = Door::open(running.pid(), "busy:own").unwrap();
    let mut hits = Vec::new();
    wait_until("hits afterwards", 20, || {
        door.read(&mut hits);
        !hits.is_empty()
    });
}

#[test]
fn filtered_system_calls_are_respected() {
    let program = build("sandboxed", &["sandboxed.c"], Build::Pie);
    let mut running = Running::start(Command::new(program).stdout(Stdio::null()));
    let is_sandboxed = || {
        std::fs::read_to_string(format!("/proc/{}/status", running.pid()))
            .is_ok_and(|s| s.contains("Seccomp:\t2"))
    };
    wait_until("the filter", 10, is_sandboxed);
    let (error, text) = refusal(running.pid());
    assert!(matches!(error, Error::Seccomp { mode: 2, .. }), "{text}");
    assert!(!mapped(running.pid()));
    assert!(running.0.try_wait().unwrap().is_none(), "it lives");
}

/// What every container is that podman or Docker starts without further words.
#[test]
fn a_program_behind_a_filter_is_the_kernel_doors_by_itself() {
    let running = Running::start(Command::new(build("patient", &["patient.c"], Build::Pie)).arg("seccomp"));
    let pid = running.pid().to_string();
    wait_until("the filter", 10, || {
        std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|s| s.contains("Seccomp:\t2"))
    });
    let trace = |more: &[&str]| {
        let words = ["trace", "--limit", "3", "-p", &pid, "patient:pulse"];
        let output = Command::new(nopal_tests::nopal()).args(words).args(more).output().unwrap();
        let [out, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), out.lines().count(), said)
    };
    let (is_traced, n_events, said) = trace(&[]);
    assert!(is_traced && n_events == 3 && said.contains("sites: 1 kernel door"), "{said}");
    let (is_traced, _, said) = trace(&["--door", "user"]);
    assert!(!is_traced && said.contains("seccomp mode 2") && said.contains("--door kernel"), "{said}");
    assert!(!mapped(running.pid()));
}

#[test]
fn kernel_threads_have_no_user_code() {
    // Process 2 is kthreadd wherever the kernel's processes can be seen.
    if std::fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        let (error, text) = refusal(2);
        assert!(matches!(error, Error::KernelThread { .. }), "{text}");
    }
}

/// Not a test of its own: what the next one runs as another user.
#[test]
fn tracer_as_another_user() {
    let Ok(pid) = std::env::var("NOPAL_TEST_PID") else { return };
    let (error, text) = refusal(pid.parse().unwrap());
    assert!(matches!(error, Error::Permission { .. }), "{text}");
    assert!(text.contains("belongs to user 0"), "{text}");
}

#[test]
fn another_users_process_is_out_of_reach() {
    // SAFETY: geteuid has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        // Process 1 is not ours.
        let (error, text) = refusal(1);
        assert!(matches!(error, Error::Permission { .. }), "{text}");
        return;
    }
    let running = Running::start(Command::new("sleep").arg("60"));
    // The test binary may lie where another user cannot reach it.
    let copy = std::env::temp_dir().join(format!("nopal-refusals-{}", std::process::id()));
    nopal_tests::copy_program(&std::env::current_exe().unwrap(), &copy);
    let output = Command::new("setpriv")
        .args(["--reuid", "nobody", "--clear-groups"])
        .arg(&copy)
        .args([&nopal_tests::test_name(module_path!(), "tracer_as_another_user"), "--exact"])
        .env("NOPAL_TEST_PID", running.pid().to_string())
        .output()
        .unwrap();
    let _ = std::fs::remove_file(&copy);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// An ELF program of 32 bits that waits for ever: a header, one segment, and `1: pause(); goto 1`.
fn program_of_32_bits() -> Vec<u8> {
    let code = [0xb8u8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7];
    let (base, at) = (0x0804_8000u32, 84u32);
    let mut file = Vec::new();
    file.extend_from_slice(&[0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for half in [2u16, 3] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    for word in [1, base + at, 52, 0, 0] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for half in [52u16, 32, 1, 0, 0, 0] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    let size = at + code.len() as u32;
    for word in [1, 0, base, base, size, size, 5, 4096] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&code);
    file
}

#[test]
fn programs_of_32_bits_are_named_as_such() {
    use std::os::unix::fs::PermissionsExt;
    let program = nopal_tests::scratch("user-door-32").join("waits");
    std::fs::write(&program, program_of_32_bits()).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut running = match Command::new(&program).spawn() {
        Ok(child) => Running(child),
        Err(e) if e.raw_os_error() == Some(libc::ENOEXEC) => {
            println!("this kernel runs no 32-bit programs, so there is none to refuse");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    let (error, text) = refusal(running.pid());
    assert!(matches!(error, Error::ThirtyTwoBit { .. }), "{text}");
    assert!(running.0.try_wait().unwrap().is_none(), "it lives");
}
