//! Lines for people. What comes from files, programs and recordings may hold anything; it is shown, not obeyed. JSON has
//! escapes of its own and is not printed by these.

/// A line on standard error.
macro_rules! tell {
    ($($arg:tt)*) => { anstream::eprintln!("{}", nopal_trace::escape_lines(&format!($($arg)*))) };
}

/// A line on standard output.
macro_rules! show {
    ($($arg:tt)*) => { anstream::println!("{}", nopal_trace::escape_lines(&format!($($arg)*))) };
}
