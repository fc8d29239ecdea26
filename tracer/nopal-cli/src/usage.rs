//! A command line that cannot be understood: what is wrong with it, and what shows what is missing.

use crate::failure::Failure;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

/// What the parser of numbers says, and what people would.
const NO_NUMBER: [(&str, &str); 3] = [
    ("invalid digit found in string", "not a whole number"),
    ("cannot parse integer from empty string", "not a whole number"),
    ("number too large to fit in target type", "too large a number"),
];

/// Prints what is wrong, and where to find what is missing. Help and version are errors to clap that succeed.
pub(crate) fn refuse(error: &clap::Error, args: &[OsString]) -> ExitCode {
    if error.exit_code() == 0 {
        error.exit();
    }
    let text = in_plain_words(error.render().ansi().to_string());
    // A terminal that has gone takes no more lines.
    let _ = write!(anstream::stderr(), "{text}");
    if let Some(hint) = hint(error, args) {
        let _ = writeln!(anstream::stderr(), "{hint}");
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// The same as one failure: clap says more than one thing.
pub(crate) fn failure(error: &clap::Error, args: &[OsString]) -> Failure {
    let text = in_plain_words(error.to_string());
    let mut parts = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let message = parts.next().unwrap_or_default();
    let rest = parts.filter(|part| !part.is_empty() && !part.starts_with("For more information"));
    let rest: Vec<String> = rest.chain(hint(error, args).map(str::to_owned)).collect();
    let mut failure = Failure::usage(message.trim_start_matches("error: "));
    failure.hint = (!rest.is_empty()).then(|| rest.join("; "));
    failure
}

fn in_plain_words(text: String) -> String {
    NO_NUMBER.iter().fold(text, |text, (said, meant)| text.replace(said, meant))
}

/// How to find what a command line lacks.
fn hint(error: &clap::Error, args: &[OsString]) -> Option<&'static str> {
    let verb = args.get(1)?.to_str()?;
    let is_target = args.last().is_some_and(|last| last == "-p" || last == "--pid");
    match (error.kind(), verb) {
        _ if is_target => Some("`nopal list -u` shows the processes that have probes"),
        (ErrorKind::MissingRequiredArgument, "trace" | "record" | "count" | "hist") => {
            Some("`nopal list -p PID` shows the probes of a process, `nopal list FILE` of a program")
        }
        (ErrorKind::MissingRequiredArgument, "latency" | "tree") => {
            Some("`nopal spans -p PID` shows the spans of a process")
        }
        (ErrorKind::MissingRequiredArgument, "export") => Some("`nopal export --help` has the formats"),
        _ => None,
    }
}
