//! The verbs that answer questions: what they share. One file per verb.

pub(super) mod count;
mod functions;
pub(super) mod hist;
pub(super) mod latency;
pub(super) mod measure;
pub(super) mod numbers;
mod picture;
pub(super) mod render;
#[cfg(feature = "screen")]
mod screen;
pub(super) mod source;
pub(super) mod spans;
pub(super) mod top;
pub(super) mod tree;

use crate::failure::Failure;
use crate::signals;
use crate::target_args::TargetArgs;
use nopal_answers::Wrong;
use std::io::IsTerminal;
use std::path::PathBuf;

/// What an answer is made of.
#[derive(Debug, clap::Args)]
pub(super) struct AnswerArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Answers from recordings instead of processes; may be given several times.
    #[arg(long = "recording", value_name = "DIR", num_args = 1)]
    pub recordings: Vec<PathBuf>,
    /// A file that declares spans; without it `nopal.toml` here, if there is one.
    #[arg(long = "spans", value_name = "FILE.toml")]
    pub spans_file: Option<PathBuf>,
    /// Prints one JSON object with described columns.
    #[arg(long)]
    pub json: bool,
    /// With --json: integers above 2^53 as strings.
    #[arg(long, requires = "json")]
    pub json_strings: bool,
}

impl From<Wrong> for Failure {
    fn from(wrong: Wrong) -> Failure {
        Failure::new(wrong.code(), wrong.to_string()).hint(wrong.hint())
    }
}

/// `10ms`, `500us`, `2s`; a bare number is seconds.
pub(super) fn time(text: &str) -> Result<u64, String> {
    nopal_answers::trigger::duration_ns(text)
        .ok_or_else(|| format!("not a valid duration: `{text}`; use `500us`, `10ms`, `2s` or `1m`"))
}

/// The same where a bare number might have been meant in another unit.
pub(super) fn time_with_unit(text: &str) -> Result<u64, String> {
    nopal_answers::trigger::duration_with_unit_ns(text)
        .ok_or_else(|| format!("not a time with its unit: `{text}`; use `500us`, `10ms`, `2s` or `1m`"))
}

/// The same for what must be longer than nothing.
pub(super) fn positive_time(text: &str) -> Result<u64, String> {
    match time(text)? {
        0 => Err(format!("`{text}` is not a duration; use `500ms`, `1s` or `1m`")),
        ns => Ok(ns),
    }
}

/// A length of time for people.
pub(super) fn duration(ns: u64) -> String {
    numbers::duration(ns)
}

/// Text for people on standard output: names and values of others are shown, not obeyed.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    write(&nopal_trace::escape_styled(text))
}

/// JSON on standard output, which may be a terminal, too.
pub(super) fn print_json(text: &str) -> Result<(), Failure> {
    write(&nopal_trace::escape_json(text))
}

/// What other programs read: as it is, but for a terminal.
pub(super) fn print_data(text: &str) -> Result<(), Failure> {
    match std::io::stdout().is_terminal() {
        true => write(&nopal_trace::escape_lines(text)),
        false => write(text),
    }
}

/// Standard output, in one go. A reader that has seen enough, such as `head`, is not a failure.
fn write(text: &str) -> Result<(), Failure> {
    use std::io::{ErrorKind, Write};
    crate::say::clear_status();
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            signals::stop();
            Ok(())
        }
        Err(error) => Err(Failure::new("output", format!("cannot print: {error}"))),
        Ok(()) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ns) in
            [("1", 1_000_000_000), ("10ms", 10_000_000), ("1.5us", 1_500), ("7ns", 7), ("1m", 60_000_000_000)]
        {
            assert_eq!(time(text), Ok(ns), "{text}");
        }
        for text in ["10x", "ms", "", "-1s", "1e99h", "5sec"] {
            let said = time(text).expect_err(text);
            assert!(said.contains("use `500us`"), "{said}");
        }
        assert!(time_with_unit("300").is_err() && time_with_unit("300us") == Ok(300_000));
        assert!(positive_time("0").is_err() && positive_time("1ms").is_ok());
    }
}
