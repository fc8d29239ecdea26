//! `nopal doctor` finds each problem that is planted, and says what to do about it.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{copy_program, nopal, root, run, scratch};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the doctor says of something, and whether it ends with success.
fn examine(args: &[&str]) -> (Vec<Value>, bool) {
    let output = Command::new(nopal()).arg("doctor").args(args).arg("--json").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let said: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{args:?}: {error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    });
    (said["findings"].as_array().unwrap().clone(), output.status.success())
}

/// That one of the findings is this one, that it has a remedy, and that the exit status agrees.
#[track_caller]
fn finds(args: &[&str], code: &str, level: &str) {
    let (findings, is_well) = examine(args);
    let found = findings.iter().find(|finding| finding["code"] == code);
    let found = found.unwrap_or_else(|| panic!("{args:?}: no {code} in {findings:#?}"));
    assert_eq!(found["level"], level, "{findings:#?}");
    assert_eq!(found["remedy"].is_string(), level != "fine", "{found}");
    let has_problem = findings.iter().any(|finding| finding["level"] == "problem");
    assert_eq!(is_well, !has_problem, "{findings:#?}");
}

fn patient(name: &str) -> PathBuf {
    let program = scratch(name).join("patient");
    copy_program(&build("patient", &["patient.c"], Build::Pie), &program);
    program
}

#[test]
fn problems_of_files() {
    let folder = scratch("doctor_files");
    let (program, changed) = (patient("doctor_files_program"), folder.join("changed"));
    let path = |path: &Path| path.to_str().unwrap().to_owned();
    finds(&[&path(&program)], "probes", "fine");
    // The section that tells where the file was linked.
    run(Command::new("objcopy").args(["--remove-section", ".stapsdt.base"]).arg(&program).arg(&changed));
    finds(&[&path(&changed)], "no-base", "notice");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(&changed));
    finds(&[&path(&changed)], "debug-file", "problem");
    finds(&["/bin/true"], "no-probes", "notice");
    // systemtap's header leaves a note of what the linker throws away; an operand that nobody can read; a 5-byte nop; two
    // semaphores of one probe.
    let text = "
        .macro probe location semaphore args:vararg
        .pushsection .note.stapsdt, \"\", \"note\"
        .balign 4
        .4byte 8, 3f-2f, 3
        .asciz \"stapsdt\"
        2: .8byte \\location, _.stapsdt.base, \\semaphore
        .asciz \"p\"
        .asciz \"n\"
        .asciz \"\\args\"
        3: .balign 4
        .popsection
        .endm
        .globl main
        main: .byte 0x0f, 0x1f, 0x44, 0, 0
        xor %eax, %eax
        1: nop
        ret
        probe main one -4@%zmm99
        probe 1b two 4@%eax
        probe 0 0 4@%eax
        .section .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat
        .weak _.stapsdt.base
        .hidden _.stapsdt.base
        _.stapsdt.base: .space 1
        .data
        one: .2byte 0
        two: .2byte 0
        .section .note.GNU-stack";
    let source = folder.join("odd.s");
    fs::write(&source, format!("{text}\n")).unwrap();
    run(Command::new("gcc").arg(&source).arg("-o").arg(&changed));
    for (code, level) in
        [("arguments", "notice"), ("nop5", "notice"), ("semaphores", "notice"), ("ghosts", "notice")]
    {
        finds(&[&path(&changed)], code, level);
    }
    let header = format!("-I{}", root().join("include").display());
    let arm = folder.join("arm");
    let source = "#include <sys/sdt.h>\nint main(void) { STAP_PROBE(p, n); return 0; }\n";
    fs::write(folder.join("arm.c"), source).unwrap();
    run(Command::new("aarch64-linux-gnu-gcc").arg(header).arg(folder.join("arm.c")).arg("-o").arg(&arm));
    finds(&[&path(&arm)], "machine", "problem");
}

#[test]
fn problems_of_processes() {
    finds(&["-p", "4194304"], "no-such-process", "problem");
    let kernel_thread = fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd");
    if kernel_thread {
        finds(&["-p", "2"], "kernel-thread", "problem");
    }
    let program = patient("doctor_processes");
    let target = Running::start(&mut Command::new(&program));
    let pid = target.pid().to_string();
    finds(&["-p", &pid], "probes", "fine");
    finds(&["-p", &pid, "patient:pulse"], "fires", "fine");
    finds(&["-p", &pid, "patient:never", "--wait", "300ms"], "silent", "problem");
    let (findings, _) = examine(&["-p", &pid, "patient:puls"]);
    assert!(
        findings.iter().any(|f| f["code"] == "not-mapped" && f["remedy"] == "did you mean `patient:pulse`?")
    );
    // Its own file replaced.
    let other = program.with_extension("new");
    copy_program(Path::new("/bin/true"), &other);
    fs::rename(&other, &program).unwrap();
    finds(&["-p", &pid], "deleted", "notice");
    stop(target.pid(), libc::SIGSTOP);
    wait_until("it is stopped", 10, || state_of(target.pid()) == "T");
    finds(&["-p", &pid], "stopped", "notice");
    stop(target.pid(), libc::SIGCONT);
    let plain = Running::start(Command::new("sleep").arg("60"));
    finds(&["-p", &plain.pid().to_string()], "no-probes", "problem");
    let locked = Running::start(Command::new(build("patient", &["patient.c"], Build::Pie)).arg("seccomp"));
    wait_until("it has locked itself in", 10, || {
        let status = fs::read_to_string(format!("/proc/{}/status", locked.pid())).unwrap();
        status.contains("Seccomp:\t2")
    });
    finds(&["-p", &locked.pid().to_string()], "sandbox", "notice");
}

#[test]
fn other_tools_and_what_they_left() {
    let program = patient("doctor_tools");
    let target = Running::start(&mut Command::new(&program));
    let pid = target.pid().to_string();
    // A semaphore that somebody raised and did not lower.
    let object = nopal_sdt::read(fs::read(&program).unwrap().as_slice()).unwrap();
    let semaphore = object.probe("patient", "pulse").unwrap().sites[0].semaphore.unwrap();
    let mapped = nopal_proc::mapped_objects(target.pid()).unwrap();
    let bias = mapped.iter().find(|o| o.path == program).unwrap().load_biases(&object)[0];
    let memory = fs::OpenOptions::new().write(true).open(format!("/proc/{pid}/mem")).unwrap();
    memory.write_all_at(&1u16.to_le_bytes(), semaphore.address + bias).unwrap();
    finds(&["-p", &pid, "patient:pulse"], "semaphore", "notice");
    memory.write_all_at(&0u16.to_le_bytes(), semaphore.address + bias).unwrap();
    // A uprobe.
    let script = format!("usdt:{}:patient:pulse {{ @ = count(); }}", program.display());
    let mut bpftrace =
        Running::start(Command::new("bpftrace").args(["-p", &pid, "-e", &script]).stdout(Stdio::null()));
    let site = object.probe("patient", "pulse").unwrap().sites[0].address + bias;
    let reader = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let bytes_of_site = || {
        let mut bytes = [0; 11];
        reader.read_exact_at(&mut bytes, site).unwrap();
        bytes
    };
    wait_until("bpftrace is there", 60, || bytes_of_site()[0] == 0xcc);
    finds(&["-p", &pid, "patient:pulse"], "breakpoint", "notice");
    stop(bpftrace.pid(), libc::SIGINT);
    bpftrace.0.wait().unwrap();
    // A debugger.
    let strace = Running::start(
        Command::new("strace")
            .args(["-p", &pid, "-e", "trace=none"])
            .stderr(Stdio::null())
            .stdout(Stdio::null()),
    );
    wait_until("strace is there", 20, || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.contains(&format!("TracerPid:\t{}", strace.pid()))
    });
    finds(&["-p", &pid], "traced", "problem");
    stop(strace.pid(), libc::SIGINT);
    drop(strace);
    // A tracer of ours that was killed.
    let untouched = bytes_of_site();
    let mut tracer = Running::start(
        Command::new(nopal())
            .args(["trace", "--door", "user", "-p", &pid, "patient:pulse"])
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    wait_until("nopal is there", 60, || bytes_of_site() != untouched);
    stop(tracer.pid(), libc::SIGKILL);
    tracer.0.wait().unwrap();
    finds(&["-p", &pid], "leftovers", "notice");
    run(Command::new(nopal()).args(["detach", "-p", &pid]));
    finds(&["-p", &pid], "nopal", "notice");
    finds(&["-p", &pid, "patient:pulse"], "fires", "fine");
}

#[test]
fn the_machine_is_fit_and_both_doors_pass_their_test() {
    finds(&["--self-test"], "self-test-user", "fine");
    finds(&["--self-test"], "self-test-kernel", "fine");
    let output = run(Command::new(nopal()).args(["doctor", "/bin/true"]));
    assert!(output.contains("    note  /bin/true has no probes\n"), "{output}");
}

/// In a place of its own, where nothing runs but one program: `nopal` shows it, and what it says to try works as it stands.
#[test]
fn the_first_word_shows_what_runs_and_what_to_try() {
    let program = patient("doctor_first");
    let script = format!(
        "{} & sleep 0.5; nopal; nopal | sed -n 's/^  \\(nopal .*[^ ]\\)  .*/\\1/p' > tried; \
         while read -r line; do echo \"+ $line\"; timeout 20 sh -c \"$line\" 2>&1 < /dev/null; done < tried; kill $!",
        program.display()
    );
    let path = format!("{}:{}", nopal().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let text = run(Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc", "sh", "-c", &script])
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .current_dir(program.parent().unwrap()));
    let row = text.lines().find(|line| line.contains("patient ")).unwrap_or_else(|| panic!("{text}"));
    assert!(row.split_whitespace().nth(2) == Some("2"), "two probes: {text}");
    assert!(text.contains("+ nopal list -p ") && text.contains("patient:pulse"), "{text}");
    let events = text.lines().filter(|line| line.contains("] (") && line.contains("patient:")).count();
    assert_eq!(events, 10, "{text}");
    let mut overview = text.lines().take_while(|line| !line.starts_with('+'));
    assert!(overview.all(|line| line.chars().count() <= 80), "{text}");
}

fn stop(pid: u32, signal: i32) {
    // SAFETY: a signal for a process that this test has started.
    unsafe { libc::kill(pid as i32, signal) };
}

fn state_of(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit(") ").next().unwrap_or("").chars().take(1).collect()
}

/// A terminal that is closed while `nopal top` has it.
#[test]
fn a_screen_ends_with_its_terminal() {
    let target = Running::start(&mut Command::new(patient("doctor_screen")));
    let script = "
import fcntl, os, pty, select, struct, sys, termios, time
pid, terminal = pty.fork()
if pid == 0:
    os.environ['TERM'] = 'xterm'
    os.execv(sys.argv[1], ['nopal', 'top', '-p', sys.argv[2]])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 24, 80, 0, 0))
shown, end = b'', time.time() + 60
while b'patient' not in shown and time.time() < end:
    if select.select([terminal], [], [], 0.2)[0]:
        shown += os.read(terminal, 65536)
assert b'patient' in shown, shown
os.close(terminal)
end = time.time() + 60
while time.time() < end:
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended:
        sys.exit(0 if os.waitstatus_to_exitcode(status) in (0, 1) else f'ended with {status:#x}')
    time.sleep(0.05)
os.kill(pid, 9)
sys.exit('it goes on')
";
    run(Command::new("python3").args(["-c", script]).arg(nopal()).arg(target.pid().to_string()));
    let state = fs::read_to_string(format!("/proc/{}/maps", target.pid())).unwrap();
    assert!(state.contains("patient"), "the program goes on");
    finds(&["-p", &target.pid().to_string(), "patient:pulse"], "fires", "fine");
}
