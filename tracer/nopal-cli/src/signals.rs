//! Signals that end tracing or ask for something, each as a flag that the verb's loop looks at.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);
static PRINT: AtomicBool = AtomicBool::new(false);
static RELOAD: AtomicBool = AtomicBool::new(false);

extern "C" fn on_stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

extern "C" fn on_print(_: libc::c_int) {
    PRINT.store(true, Ordering::Relaxed);
}

extern "C" fn on_reload(_: libc::c_int) {
    RELOAD.store(true, Ordering::Relaxed);
}

/// For the handlers above only.
fn set_handler(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handlers above only store to an atomic, which is safe at any moment.
    unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
}

/// Ctrl-C, SIGTERM and SIGHUP end tracing instead of the program: what was gathered is printed and the target restored.
pub(crate) fn stop_on_signals() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        set_handler(signal, on_stop);
    }
}

/// SIGUSR1 asks a script for its maps.
pub(crate) fn print_on_signal() {
    set_handler(libc::SIGUSR1, on_print);
}

/// From now on SIGHUP asks for the settings to be read again, and ends nothing.
pub(crate) fn reload_on_signal() {
    set_handler(libc::SIGHUP, on_reload);
}

/// Whether SIGUSR1 has come since this was last asked.
pub(crate) fn take_print_signal() -> bool {
    PRINT.swap(false, Ordering::Relaxed)
}

/// Whether SIGHUP has come since this was last asked.
pub(crate) fn take_reload_signal() -> bool {
    RELOAD.swap(false, Ordering::Relaxed)
}

/// Ends tracing as Ctrl-C does.
pub(crate) fn stop() {
    STOP.store(true, Ordering::Relaxed);
}

/// Forgets a Ctrl-C that ended one of several things.
pub(crate) fn go_on() {
    STOP.store(false, Ordering::Relaxed);
}

pub(crate) fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}
