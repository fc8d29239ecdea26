//! Child processes that end with the test, and waiting for a fact with a bound.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child that is killed and reaped when the test is over.
#[derive(Debug)]
pub struct Running(pub Child);

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null());
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        // The kernel lets the parent go on before the new program is mapped; the vDSO comes last.
        let file = |name: &str| std::fs::read_to_string(format!("/proc/{}/{name}", child.id()));
        let start = Instant::now();
        wait_until("the program is mapped", 60, || {
            let is_mapped = file("maps").is_ok_and(|text| text.contains("[vdso]"));
            // One that has ended is not waited for: the test may want it as it is. Valgrind takes the vDSO away.
            let has_ended = file("stat").is_ok_and(|text| text.contains(") Z "));
            is_mapped || has_ended || start.elapsed() > Duration::from_secs(2)
        });
        Running(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if the child has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// So long a machine may stand still while its disk takes in what a build has written; that is nobody's fault.
const STANDSTILL_S: u64 = 180;

/// Asks again every 10 ms until `fact` holds; panics with `what` after `seconds`, or more where a machine may stand still.
#[track_caller]
pub fn wait_until(what: &str, seconds: u64, mut fact: impl FnMut() -> bool) {
    let seconds = seconds.max(STANDSTILL_S);
    let end = Instant::now() + Duration::from_secs(seconds);
    while !fact() {
        assert!(Instant::now() < end, "not within {seconds} s: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A TCP port on loopback that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// A control group of our own, which is removed when it is empty.
#[derive(Debug)]
pub struct Cgroup(pub PathBuf);

impl Cgroup {
    /// Its name begins so, and is no other test's.
    pub fn new(name: &str) -> Cgroup {
        let mounts = fs::read_to_string("/proc/mounts").expect("there are mounts");
        let tree = mounts.lines().find_map(|line| {
            let mut words = line.split(' ');
            let at = words.nth(1)?;
            (words.next()? == "cgroup2").then(|| at.to_owned())
        });
        let name = format!("{name}-{}", std::process::id());
        let folder = Path::new(&tree.expect("control groups are mounted")).join(name);
        fs::create_dir(&folder)
            .unwrap_or_else(|e| panic!("{}: {e}; run the tests as root", folder.display()));
        Cgroup(folder)
    }

    pub fn members(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }

    pub fn add(&self, pid: u32) {
        fs::write(self.members(), pid.to_string()).expect("a process can be added");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Processes that were ended a moment ago are still counted.
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
