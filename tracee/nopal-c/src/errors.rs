//! Errors as numbers and as the text of a thread's last one; and the fence that no panic passes.
//!
//! The text is kept in a place of fixed size: a probe may be fired in a signal handler, where nothing can be allocated.

use nopal_runtime::Error;
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Stands for the number of the error, in [`guarded`].
pub(crate) const FAILED: c_int = c_int::MIN;

/// What can be wrong with a call, beyond what the provider finds.
#[derive(Debug)]
pub(crate) enum Problem {
    Null(&'static str),
    Type { index: usize, number: u32 },
    Provider(Error),
    Panic,
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Problem::Provider(error)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Null(what) => write!(f, "{what} is NULL"),
            Problem::Type { index, number } => {
                write!(f, "argument {index} has type {number}, which is none: use NOPAL_INT8 to NOPAL_TEXT")
            }
            Problem::Provider(error) => error.fmt(f),
            Problem::Panic => f.write_str("a defect in libnopal; please report it"),
        }
    }
}

impl Problem {
    /// The number in `nopal.h`.
    fn number(&self) -> c_int {
        match self {
            Problem::Null(_) | Problem::Type { .. } => -1,
            Problem::Provider(Error::Name { .. } | Error::Taken { .. }) => -1,
            Problem::Provider(Error::TooManyOperands { .. } | Error::WrongNumber { .. }) => -2,
            Problem::Provider(Error::NotLoaded) => -3,
            Problem::Provider(Error::Unsupported) => -5,
            Problem::Provider(_) | Problem::Panic => -4,
        }
    }
}

const CAPACITY: usize = 512;

thread_local! {
    static TEXT: UnsafeCell<[u8; CAPACITY]> = const { UnsafeCell::new([0; CAPACITY]) };
}

/// Keeps the error's text and returns its number.
#[cold]
pub(crate) fn fail(problem: &Problem) -> c_int {
    TEXT.with(|text| {
        // SAFETY: this thread's own, and no reference to it lives longer than a call. A signal handler that fails in between
        // makes a text of both errors, but never one without its NUL: the last byte is always zero.
        let text = unsafe { &mut *text.get() };
        let mut rest = &mut text[..CAPACITY - 1];
        // A text that is too long is cut.
        let _ = write!(rest, "{problem}");
        let end = CAPACITY - 1 - rest.len();
        text[end] = 0;
    });
    problem.number()
}

pub(crate) fn text() -> *const c_char {
    TEXT.with(|text| text.get().cast_const().cast())
}

/// What a function may answer.
pub(crate) trait Answer: Copy {
    /// The answer for an error of this number.
    fn of_error(self, number: c_int) -> Self;
}

impl Answer for c_int {
    fn of_error(self, number: c_int) -> Self {
        number
    }
}

impl Answer for () {
    fn of_error(self, _: c_int) -> Self {}
}

impl<T> Answer for *const T {
    fn of_error(self, _: c_int) -> Self {
        self
    }
}

impl<T> Answer for *mut T {
    fn of_error(self, _: c_int) -> Self {
        self
    }
}

/// Runs `body`; an error is kept as this thread's last, and so is a panic.
pub(crate) fn guarded<A: Answer>(failed: A, body: impl FnOnce() -> Result<A, Problem>) -> A {
    // A panic leaves locks poisoned, which nobody minds, and nothing else half done.
    match catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Problem::Panic)) {
        Ok(answer) => answer,
        Err(problem) => failed.of_error(fail(&problem)),
    }
}
