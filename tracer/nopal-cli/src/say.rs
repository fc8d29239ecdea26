//! Lines for people and JSON for programs. What comes from files, programs and recordings may hold anything; it is shown, not
//! obeyed.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// A line on standard error.
macro_rules! tell {
    ($($arg:tt)*) => { $crate::say::line(nopal_trace::escape_lines(&format!($($arg)*)).into()) };
}

/// A line on standard output.
macro_rules! show {
    ($($arg:tt)*) => { anstream::println!("{}", nopal_trace::escape_lines(&format!($($arg)*))) };
}

/// JSON on a line of standard output. A terminal may be there, too.
macro_rules! show_json {
    ($json:expr) => {
        anstream::println!("{}", nopal_trace::escape_json(&$json.to_string()))
    };
}

/// The same on standard error.
macro_rules! tell_json {
    ($json:expr) => {
        anstream::eprintln!("{}", nopal_trace::escape_json(&$json.to_string()))
    };
}

/// Lines that wait while a screen has the terminal.
static HELD: Mutex<Option<Vec<String>>> = Mutex::new(None);
const MAX_HELD: usize = 1000;

/// Prints a line, or keeps it for later.
pub(crate) fn line(text: String) {
    match &mut *HELD.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(held) if held.len() < MAX_HELD => held.push(text),
        Some(_) => {}
        // A terminal that has gone takes no more lines, and is not a reason to panic.
        None => {
            clear_status();
            _ = writeln!(anstream::stderr(), "{text}");
        }
    }
}

/// A line of [`status`] stands on the terminal.
static HAS_STATUS: AtomicBool = AtomicBool::new(false);

/// Shows something to see while waiting, in the place of what was shown before.
pub(crate) fn status(text: &str) {
    HAS_STATUS.store(true, Ordering::Relaxed);
    _ = write!(anstream::stderr(), "\r\x1b[K{text}");
}

/// Makes room for lines that stay, on whichever output.
pub(crate) fn clear_status() {
    if HAS_STATUS.swap(false, Ordering::Relaxed) {
        _ = write!(anstream::stderr(), "\r\x1b[K");
    }
}

/// From now on lines wait.
pub(crate) fn hold() {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default();
}

pub(crate) fn is_held() -> bool {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).is_some()
}

/// The newest of the lines that wait.
pub(crate) fn last_held() -> Option<String> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.last().cloned()
}

/// Prints what has waited.
pub(crate) fn release() {
    let held = HELD.lock().unwrap_or_else(PoisonError::into_inner).take();
    held.into_iter().flatten().for_each(line);
}
