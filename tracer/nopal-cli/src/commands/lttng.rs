//! nopal called as `lttng`: takes LTTng's command lines and gives them to nopal's verbs, which have LTTng's names and most of
//! its options. What nopal has not is refused, with what it has instead.

mod words;

use crate::failure::Failure;
use nopal_session::Home;
use std::ffi::OsString;
use std::process::ExitCode;
use words::Asked;

/// The release whose commands this follows.
const VERSION: &str = "2.13";

const USAGE: &str = "\
lttng, by nopal: LTTng's command lines for user space, without its daemons

USAGE:
    lttng [--quiet] COMMAND [OPTIONS]

COMMANDS:
    create, destroy, set-session, status, list      recording sessions
    enable-event, disable-event                     what they record
    enable-channel, disable-channel, add-context
    track, untrack                                  of which processes; without them those of the user who calls it
    start, stop, clear, view
    rotate, enable-rotation, disable-rotation
    snapshot record
    save, load
    version, help [COMMAND]

Sessions are nopal's: `nopal status` shows the same ones. docs/lttng.md says what is different.
";

pub(super) fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match words::parse(args) {
        Ok(Asked::Help) => {
            show!("{}", USAGE.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Asked::Version) => {
            show!("lttng {VERSION} (nopal {})", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Ok(Asked::Lines(lines)) => all(lines),
        Ok(Asked::Start { session, line }) => match tracked(session.as_deref()) {
            Ok(first) => all(first.into_iter().chain([line]).collect()),
            Err(failure) => refuse(&failure),
        },
        Err(failure) => refuse(&failure),
    }
}

/// One after another, up to the first that fails.
fn all(lines: Vec<Vec<OsString>>) -> ExitCode {
    for line in lines {
        let code = super::run([OsString::from("nopal")].into_iter().chain(line).collect());
        if code != ExitCode::SUCCESS {
            return code;
        }
    }
    ExitCode::SUCCESS
}

/// LTTng records every process of the user unless some are named.
fn tracked(session: Option<&str>) -> Result<Option<Vec<OsString>>, Failure> {
    let session = Home::find()?.get(session)?;
    if !session.config()?.track.is_empty() {
        return Ok(None);
    }
    // SAFETY: getuid has no preconditions.
    let user = unsafe { libc::getuid() }.to_string();
    let line = ["track", "--userspace", "--session", &session.name, "--user", &user];
    Ok(Some(line.map(OsString::from).to_vec()))
}

fn refuse(failure: &Failure) -> ExitCode {
    let hint = failure.hint.as_ref().map(|hint| format!("\n  {hint}")).unwrap_or_default();
    tell!("Error: {}{hint}", failure.message);
    ExitCode::from(failure.exit)
}
