//! What can go wrong with a provider, each with the next thing to do.

use std::fmt;

/// An error of this crate.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A name that tracers could not tell from the text around it.
    Name { name: String },
    /// The provider has a probe of this name.
    Taken { provider: String, name: String },
    /// More operands than other tracers read.
    TooManyOperands { probe: String, n_operands: usize },
    /// Not as many values as the probe has arguments.
    WrongNumber { n_expected: usize, n_given: usize },
    /// Half of the file descriptors that the program may have are taken by loaded objects.
    TooManyObjects { n_objects: usize },
    /// Fired while the provider was not loaded.
    NotLoaded,
    /// The kernel refused.
    System { what: &'static str, errno: i32 },
    /// The dynamic linker refused.
    Linker { what: &'static str, message: String },
    /// Not Linux on x86-64 or arm64.
    Unsupported,
}

pub type Result<T> = std::result::Result<T, Error>;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Name { name } => write!(
                f,
                "{name:?} cannot name a provider, a probe or an argument: use 1 to 200 bytes of UTF-8 without blanks, \
                 colons and control characters"
            ),
            Error::Taken { provider, name } => write!(
                f,
                "provider {provider} already has a probe {name}: fire that one, or choose another name"
            ),
            Error::TooManyOperands { probe, n_operands } => write!(
                f,
                "probe {probe} would have {n_operands} operands, and tracers read {}: pass fewer arguments; bytes and \
                 text with a length take two",
                crate::MAX_OPERANDS
            ),
            Error::WrongNumber { n_expected, n_given } => {
                write!(f, "the probe has {n_expected} arguments, but {n_given} values were given")
            }
            Error::TooManyObjects { n_objects } => write!(
                f,
                "{n_objects} objects with probes are loaded, and each takes one of the program's file descriptors: add \
                 probes before loading, not one after the other"
            ),
            Error::NotLoaded => {
                f.write_str("the probe is not loaded: load its provider (again) before firing it")
            }
            Error::System { what, errno } => {
                write!(f, "cannot {what}: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Error::Linker { what, message } => {
                write!(f, "cannot {what}: {message} (is /proc mounted, and the program not static?)")
            }
            Error::Unsupported => f.write_str("probes can be loaded only on Linux on x86-64 and arm64"),
        }
    }
}

impl std::error::Error for Error {}
