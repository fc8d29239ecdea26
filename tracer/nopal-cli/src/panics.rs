//! What follows a panic of nopal itself: its message, and then the programs that it traced are put back as they were.
//!
//! Nothing is left to destructors: builds that are given to others abort. The process becomes `nopal detach` instead, by
//! exec, which ends all other threads and with them whatever they hold by ptrace; whoever waits for nopal waits for that, too.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How the process that follows is called. It looks for what has the number of its own process.
pub(crate) const AFTER_PANIC: &str = "--after-panic";
/// The exit code, which is that of every Rust program.
pub(crate) const EXIT_CODE: i32 = 101;
/// For the thread that was first; it takes a millisecond.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn put_back_after() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);
        if IS_UNDER_WAY.swap(true, Ordering::Relaxed) {
            return std::thread::sleep(PATIENCE);
        }
        // Not by the thread that panicked: the kernel would leave it what it holds by ptrace.
        if let Ok(thread) = std::thread::Builder::new().spawn(become_detach) {
            let _ = thread.join();
        }
        become_detach();
    }));
}

/// Returns if there is no exec to be had; then the programs are left as by a tracer that was killed.
fn become_detach() {
    let _ = Command::new("/proc/self/exe").arg0("nopal").args(["detach", AFTER_PANIC]).exec();
}
