//! Programs that traced processes start, where the kernel tells of them, and where it tells nothing: what may be missing is
//! never called complete.

use nopal_tests::process::Running;
use nopal_tests::targets::{Build, build};
use nopal_tests::{copy_program, nopal, scratch};
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const USER: u32 = 65534;

/// Files of an ordinary user, with the target and nopal.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let dir = std::env::temp_dir().join(format!("nopal-untold-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        chown(&dir, Some(USER), Some(USER)).unwrap();
        for (from, name) in
            [(nopal().to_owned(), "nopal"), (build("counted", &["counted.c"], Build::Pie), "counted")]
        {
            copy_program(&from, &dir.join(name));
            fs::set_permissions(dir.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        Place(dir)
    }

    fn counter(&self) -> PathBuf {
        self.0.join("counter")
    }

    fn n_hits(&self) -> u64 {
        u64::from_ne_bytes(fs::read(self.counter()).unwrap().try_into().unwrap())
    }

    /// Traces a target that takes these steps once it is traced, and gives (its hits, events, complete, what was said).
    fn trace(&self, steps: &[&str], can_tell: bool, waits_at_once: bool) -> (u64, u64, bool, String) {
        let go = self.0.join("go");
        let _ = fs::remove_file(&go);
        fs::write(self.counter(), [0; 8]).unwrap();
        chown(self.counter(), Some(USER), Some(USER)).unwrap();
        let mut target = Command::new(self.0.join("counted"));
        target.arg(self.counter()).arg(format!("wait:{}", go.display())).args(steps).uid(USER).gid(USER);
        let mut target = Running::start(&mut target);
        let mut trace = Command::new(self.0.join("nopal"));
        trace.args(["trace", "--json", "-v", "counted:hit", "-p", &target.pid().to_string()]);
        trace.env("HOME", &self.0).uid(USER).gid(USER).stdout(Stdio::null()).stderr(Stdio::piped());
        if !can_tell {
            // SAFETY: the filter is a system call or two on memory of its own.
            unsafe { trace.pre_exec(forbid_perf_events) };
        }
        let mut trace = trace.spawn().unwrap();
        let mut stderr = BufReader::new(trace.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("user door") {
            assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
        }
        fs::write(&go, "").unwrap();
        if waits_at_once {
            assert!(target.0.wait().unwrap().success());
        }
        stderr.read_to_string(&mut said).unwrap();
        trace.wait().unwrap();
        assert!(target.0.wait().unwrap().success());
        let last = said.lines().rfind(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{said}"));
        let last: serde_json::Value = serde_json::from_str(last).unwrap();
        let n_events = last["events"].as_u64().unwrap_or_else(|| panic!("{said}"));
        (self.n_hits(), n_events, last["complete"] == true, said)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// As a kernel that does not let ordinary users have perf events.
fn forbid_perf_events() -> io::Result<()> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const GIVE: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut steps = [
        step(LOAD, 0, 0, 0),
        step(IF_EQUAL, 0, 1, libc::SYS_perf_event_open as u32),
        step(GIVE, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EACCES as u32),
        step(GIVE, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the filter and its steps live until the calls return.
    let is_done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if is_done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[test]
fn programs_that_the_kernel_does_not_tell_of_are_never_called_complete() {
    let place = Place::new("ordinary");
    for can_tell in [true, false] {
        // What a process alone does is whole either way.
        let (n_hits, n_events, is_complete, said) = place.trace(&["fire:5:0"], can_tell, false);
        assert_eq!((n_hits, n_events, is_complete), (5, 5, true), "{can_tell}: {said}");
        // Programs that are gone at the next look.
        for waits_at_once in [true, false, true, false] {
            let steps = ["spawn", "fire:5:0"];
            let (n_hits, n_events, is_complete, said) = place.trace(&steps, can_tell, waits_at_once);
            assert!(n_hits == 5 && (n_events == 5 || !is_complete), "{can_tell}: {said}");
        }
        for waits_at_once in [true, false] {
            let steps = ["fire:2:0", "exec", "fire:5:0"];
            let (n_hits, n_events, is_complete, said) = place.trace(&steps, can_tell, waits_at_once);
            assert!(n_hits == 7 && (n_events == 7 || !is_complete), "{can_tell}: {said}");
        }
    }
    // A child that stays a copy is whole where the kernel tells.
    let (n_hits, n_events, is_complete, said) = place.trace(&["fork:3:1000", "fire:2:0"], true, false);
    assert_eq!((n_hits, n_events, is_complete), (11, 11, true), "{said}");
}

#[test]
fn a_program_that_a_copy_starts_at_the_last_moment_is_missed_aloud() {
    let dir = scratch("untold-last");
    let counter = dir.join("counter");
    let program = build("counted", &["counted.c"], Build::Pie);
    for round in 0..12 {
        let go = dir.join("go");
        let _ = fs::remove_file(&go);
        fs::write(&counter, [0; 8]).unwrap();
        let mut target = Command::new(&program);
        // The copy is seen at some look or not, before it starts the program; the program lives until it is told to end.
        let (rest, end) = (format!("rest:{}", round * 7), dir.join(format!("end{round}")));
        target
            .arg(&counter)
            .arg(format!("wait:{}", go.display()))
            .args(["daemon", "fire:1:0", &rest, "exec"]);
        target.arg("fire:5:0").arg(format!("wait:{}", end.display()));
        let mut target = Running::start(&mut target);
        let mut trace = Command::new(nopal());
        trace.args(["trace", "--json", "-v", "counted:hit", "-p", &target.pid().to_string()]);
        let mut trace = trace.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(trace.stderr.take().unwrap());
        let mut said = String::new();
        while !said.contains("user door") {
            assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
        }
        fs::write(&go, "").unwrap();
        assert!(target.0.wait().unwrap().success());
        let n_hits = || u64::from_ne_bytes(fs::read(&counter).unwrap().try_into().unwrap());
        while n_hits() < 6 {
            std::thread::yield_now();
        }
        // SAFETY: a system call with numbers; the process is our child.
        unsafe { libc::kill(trace.id() as libc::pid_t, libc::SIGINT) };
        stderr.read_to_string(&mut said).unwrap();
        trace.wait().unwrap();
        fs::write(&end, "").unwrap();
        let last = said.lines().rfind(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{said}"));
        let last: serde_json::Value = serde_json::from_str(last).unwrap();
        // The last hit may come after its count.
        let n_events = last["events"].as_u64().unwrap_or_else(|| panic!("{said}"));
        assert!(last["complete"] == false || n_events >= 5, "round {round}: {said}");
    }
}
