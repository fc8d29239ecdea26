//! Children whose output goes to files, and waiting with a bound.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything takes on a machine that has much else to do.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// A child whose output goes to files, and that is killed with its round, or with whoever runs rounds.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    status: Option<ExitStatus>,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    pub(crate) fn start(command: &mut Command, dir: &Path, name: &str) -> Result<Process, String> {
        let (stdout, stderr) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.err")));
        let words = |error: std::io::Error| format!("{name}: {error}");
        let out = fs::File::create(&stdout).map_err(words)?;
        let err = fs::File::create(&stderr).map_err(words)?;
        let with_us = || {
            // SAFETY: plain numbers; it is one system call, which a forked child may make.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            Ok(())
        };
        // SAFETY: what is done in the child is that alone.
        unsafe { command.pre_exec(with_us) };
        let child = command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().map_err(words)?;
        Ok(Process { child, status: None, stdout, stderr })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stdout(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stdout).unwrap_or_default()).into_owned()
    }

    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stderr).unwrap_or_default()).into_owned()
    }

    /// How it ended, if it has.
    pub(crate) fn status(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Whether it was there to take it.
    pub(crate) fn signal(&mut self, signal: i32) -> bool {
        // SAFETY: a child of ours that we have not reaped.
        self.status().is_none() && unsafe { libc::kill(self.pid() as i32, signal) } == 0
    }

    pub(crate) fn wait(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait_for(limit, || self.status().is_some());
        self.status()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.status().is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether it became a fact in time.
pub(crate) fn wait_for(limit: Duration, mut fact: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !fact() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    true
}

/// Whether there is such a process, and it has not ended.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    !matches!(state, None | Some('Z' | 'X'))
}
