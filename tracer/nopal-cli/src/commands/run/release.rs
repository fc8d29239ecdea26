//! Which release of bpftrace is followed to the letter where two differ.

use crate::failure::Failure;

/// Names the release for scripts and test runners that were written for an older one.
const VARIABLE: &str = "NOPAL_BPFTRACE_VERSION";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Release {
    /// 0.17, which Debian 12 has.
    Old,
    #[default]
    New,
}

impl Release {
    pub(crate) fn of_environment() -> Result<Release, Failure> {
        match std::env::var(VARIABLE) {
            Err(_) => Ok(Release::New),
            Ok(text) => named(&text).ok_or_else(|| {
                let message = format!("{VARIABLE}={text}: nopal follows the releases 0.17 and 0.27");
                Failure::usage(message).hint(format!("leave {VARIABLE} out for 0.27"))
            }),
        }
    }

    pub(crate) fn version(self) -> &'static str {
        match self {
            Release::Old => "0.17.0",
            Release::New => "0.27.0",
        }
    }
}

/// By its first two numbers.
fn named(text: &str) -> Option<Release> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut numbers = text.split('.');
    match (numbers.next()?, numbers.next()?) {
        ("0", "17") => Some(Release::Old),
        ("0", "27") => Some(Release::New),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_by_name() {
        for (text, want) in [
            ("0.17", Some(Release::Old)),
            ("v0.17.1", Some(Release::Old)),
            ("0.27.0", Some(Release::New)),
            ("0.2", None),
            ("17", None),
            ("", None),
        ] {
            assert_eq!(named(text), want, "{text}");
        }
    }
}
