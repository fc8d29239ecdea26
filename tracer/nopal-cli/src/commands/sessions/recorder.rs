//! `nopal recorder`: the process that holds a started session. Started by `nopal start`, not by people.

use super::in_words;
use crate::failure::Failure;
use crate::tracing;
use nopal_session::Session;
use nopal_session::recorder_process::{self, Surroundings};
use nopal_trace::localtime::{ClockText, text_of};
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The session's folder.
    pub dir: PathBuf,
}

pub fn run(args: Args) -> Result<(), Failure> {
    close_inherited();
    // SAFETY: setsid has no preconditions; it fails only for a leader of a group, which a fresh child is not. From here
    // on the terminal's end is not ours.
    unsafe { libc::setsid() };
    // Started through `/proc/self/exe` it would be called `exe`; other nopals wait for one of their name.
    // SAFETY: the name is a C string that lives for ever.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"nopal".as_ptr()) };
    tracing::stop_on_signals();
    nopal_kernel::leftovers::sweep();
    let session = Session::at(&args.dir)?;
    let mut log = |text: &str| {
        let now = nopal_trace::clock::monotonic_ns() as i64 + nopal_trace::clock::monotonic_to_epoch_ns();
        tell!("[{}] {text}", text_of(now, ClockText::Date, false));
    };
    let surroundings = Surroundings { in_words, is_stopped: tracing::is_stopped, log: &mut log };
    let ended = recorder_process::hold(&session, surroundings, |started| {
        let line = serde_json::to_string(&started).expect("it has only text and numbers");
        let mut out = std::io::stdout();
        // Whoever started us may have gone; the session goes on.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        close_stdout();
    });
    ended.map_err(Failure::from)
}

/// What a shell or a script has open at `nopal start` is not kept open until `nopal stop`: others may wait for its end.
fn close_inherited() {
    // SAFETY: nothing in this process has opened a descriptor yet, so that none above standard error is ours. A kernel
    // that does not know the call closes none.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
}

/// The command that started us waits for the end of what we say to it.
fn close_stdout() {
    let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") else { return };
    // SAFETY: both are open descriptors; dup2 replaces the pipe behind standard output.
    unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), libc::STDOUT_FILENO) };
}
