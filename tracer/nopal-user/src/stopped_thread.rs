//! A thread of the target held by ptrace, and all threads of it held at once.

use super::error::{Error, Result};
use super::process;
use super::stop_watch;
use nopal_proc::ptrace::{self, Stop};
use std::time::{Duration, Instant};

/// How long a thread may take to stop before it counts as stuck in the kernel.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long, before it is asked what keeps it.
const BEFORE_QUESTIONS: Duration = Duration::from_millis(50);
/// How long one may take that is ready to run but gets no CPU, on a machine where more important work leaves none.
const STARVED_PATIENCE: Duration = Duration::from_secs(20);

/// A thread that is seized and stopped. Dropping it lets it go on untraced.
#[derive(Debug)]
pub struct StoppedThread {
    pub pid: i32,
    pub tid: i32,
    /// The process had been stopped by job control before we came, and will be again when we leave.
    pub is_group_stopped: bool,
    /// Not to be let go when dropped.
    pub is_kept: bool,
    /// It was ours before it was stopped, and stays so when dropped.
    pub is_lock: bool,
    /// When it was found to stand still; `None` while it runs.
    pub since: Option<Instant>,
}

impl StoppedThread {
    /// Stops one thread. `Ok(None)`: it ended meanwhile or does not react (uninterruptible sleep).
    pub fn stop(pid: i32, tid: i32) -> Result<Option<StoppedThread>> {
        match Stopping::begin(pid, tid)? {
            Some(stopping) => stopping.finish(),
            None => Ok(None),
        }
    }

    /// Waits until the thread stands still because of our interrupt. Signals on their way are delivered first.
    pub fn settle(&mut self) -> Result<bool> {
        let end = Instant::now() + STARVED_PATIENCE;
        let mut patience = BEFORE_QUESTIONS;
        loop {
            let stop =
                ptrace::wait_stop(self.tid, patience).map_err(Error::on(self.pid, "wait for a thread"))?;
            match stop {
                // The child may itself wait for us, where we hold programs at their start.
                None if process::waits_for_child(self.pid, self.tid) => return Ok(false),
                None if patience < PATIENCE => patience = PATIENCE,
                None if Instant::now() < end && is_runnable(self.pid, self.tid) => {}
                None => return Ok(false),
                Some(Stop::Interrupted) => {
                    self.is_group_stopped = false;
                    return Ok(true);
                }
                Some(Stop::Group(_)) => {
                    self.is_group_stopped = true;
                    return Ok(true);
                }
                Some(Stop::Signal(signal)) => {
                    // The stop used up our interrupt; ask again before letting the signal through.
                    ptrace::interrupt(self.tid).map_err(Error::on(self.pid, "interrupt"))?;
                    ptrace::resume(self.tid, signal).map_err(Error::on(self.pid, "resume"))?;
                }
                Some(Stop::Event(_)) => {
                    ptrace::interrupt(self.tid).map_err(Error::on(self.pid, "interrupt"))?;
                    ptrace::resume(self.tid, 0).map_err(Error::on(self.pid, "resume"))?;
                }
                Some(Stop::Ended) => return Err(Error::Gone { pid: self.pid }),
            }
        }
    }
}

impl Drop for StoppedThread {
    fn drop(&mut self) {
        self.since.take().into_iter().for_each(stop_watch::note);
        // These fail only if the thread has ended.
        let _ = match (self.is_kept, self.is_lock, self.is_group_stopped) {
            (true, ..) => Ok(()),
            (false, true, false) => ptrace::resume(self.tid, 0),
            (false, true, true) => ptrace::listen(self.tid),
            (false, false, _) => ptrace::detach(self.tid, 0),
        };
    }
}

/// A thread that was told to stop. If nobody waits for it, the kernel lets it go when our thread ends.
struct Stopping {
    pid: i32,
    tid: i32,
    is_lock: bool,
}

impl Stopping {
    /// `Ok(None)`: it has ended.
    fn begin(pid: i32, tid: i32) -> Result<Option<Stopping>> {
        let is_lock = match ptrace::seize(tid, 0) {
            Ok(()) => false,
            Err(_) if is_ours(pid, tid) => true,
            Err(e) => return refused(pid, tid, e).map(|_| None),
        };
        Ok(ptrace::interrupt(tid).is_ok().then_some(Stopping { pid, tid, is_lock }))
    }

    /// `Ok(None)`: it ended meanwhile or does not react.
    fn finish(self) -> Result<Option<StoppedThread>> {
        let Stopping { pid, tid, is_lock } = self;
        let mut held =
            StoppedThread { pid, tid, is_group_stopped: false, is_kept: false, is_lock, since: None };
        match held.settle() {
            Ok(true) => {
                held.since = Some(Instant::now());
                Ok(Some(held))
            }
            Ok(false) => {
                // Not stopped, so it cannot be detached; the kernel does it when this thread ends.
                std::mem::forget(held);
                Ok(None)
            }
            Err(Error::Gone { .. }) if process::is_alive(pid) => {
                std::mem::forget(held);
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

/// Lets a thread go on that is ours and was not told to stop: a signal stops it on its way to be delivered.
pub(crate) fn attend(tid: i32) {
    // If one fails the thread has ended.
    let _ = match ptrace::poll_stop(tid) {
        Ok(Some(Stop::Signal(signal))) => ptrace::resume(tid, signal),
        Ok(Some(Stop::Group(_))) => ptrace::listen(tid),
        Ok(Some(Stop::Interrupted | Stop::Event(_))) => ptrace::resume(tid, 0),
        Ok(Some(Stop::Ended) | None) | Err(_) => Ok(()),
    };
}

/// Whether a thread would go on if it had a CPU.
pub(crate) fn is_runnable(pid: i32, tid: i32) -> bool {
    process::thread_status(pid, tid).is_ok_and(|status| status.state == 'R')
}

fn is_ours(pid: i32, tid: i32) -> bool {
    // SAFETY: gettid has no arguments and cannot fail.
    let me = unsafe { libc::gettid() };
    process::thread_status(pid, tid).is_ok_and(|s| s.tracer_pid == me)
}

/// Keeps other tracers out of a process: its first live thread is seized, but not stopped. Ends with the thread that
/// made it.
#[derive(Debug)]
pub(crate) struct Lock {
    pub tid: i32,
}

impl Lock {
    /// Waits a moment for another nopal to finish.
    pub(crate) fn take(pid: i32) -> Result<Lock> {
        let end = Instant::now() + PATIENCE;
        loop {
            let mut failure = Error::Gone { pid };
            for tid in process::threads(pid)? {
                match ptrace::seize(tid, 0) {
                    Ok(()) => return Ok(Lock { tid }),
                    Err(e) => match refused(pid, tid, e) {
                        // It has ended; the next one then.
                        Ok(_) => continue,
                        Err(e) => failure = e,
                    },
                }
                break;
            }
            let is_traced = matches!(failure, Error::AlreadyTraced { .. });
            if !is_traced || Instant::now() > end {
                return Err(failure);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn refused(pid: i32, tid: i32, error: std::io::Error) -> Result<Option<StoppedThread>> {
    match error.raw_os_error() {
        Some(libc::ESRCH) => Ok(None),
        Some(libc::EPERM | libc::EACCES) => match process::thread_status(pid, tid) {
            Ok(s) if matches!(s.state, 'Z' | 'X') => Ok(None),
            Ok(s) if s.tracer_pid != 0 => Err(process::already_traced(pid, s.tracer_pid)),
            Ok(_) => Err(process::why_not_allowed(pid)),
            Err(Error::NoSuchProcess { .. }) => Ok(None),
            Err(error) => Err(error),
        },
        _ => Err(Error::Io { what: format!("seize thread {tid} of process {pid}"), source: error }),
    }
}

/// Stops every thread of the process, including those created while we do so. `already` are not stopped again.
pub(crate) fn stop_all(pid: i32, already: &[i32]) -> Result<Vec<StoppedThread>> {
    let mut held: Vec<StoppedThread> = Vec::new();
    loop {
        let fresh: Vec<i32> = process::threads(pid)?
            .into_iter()
            .filter(|tid| !already.contains(tid) && !held.iter().any(|h| h.tid == *tid))
            .filter(|tid| process::is_alive_thread(pid, *tid))
            .collect();
        if fresh.is_empty() {
            return Ok(held);
        }
        // All are told before the first is waited for: one that stands still already waits for the others, too.
        let mut stopping = Vec::with_capacity(fresh.len());
        for tid in fresh {
            stopping.extend(Stopping::begin(pid, tid)?);
        }
        for one in stopping {
            let tid = one.tid;
            match one.finish()? {
                Some(thread) => held.push(thread),
                None if process::is_alive_thread(pid, tid) => {
                    return Err(Error::NoSafeThread {
                        pid,
                        reason: format!("thread {tid} does not stop; it waits in the kernel"),
                    });
                }
                None => {}
            }
        }
    }
}
