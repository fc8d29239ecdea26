//! The verbs of sessions, in LTTng's words, one file each; here is what they share.

pub(super) mod add_context;
pub(super) mod clear;
pub(super) mod create;
pub(super) mod destroy;
pub(super) mod enable_channel;
pub(super) mod enable_event;
pub(super) mod enable_rotation;
pub(super) mod load;
pub(super) mod recorder;
pub(super) mod rotate;
pub(super) mod save;
pub(super) mod set_session;
pub(super) mod snapshot;
pub(super) mod start;
pub(super) mod status;
pub(super) mod stop;
pub(super) mod track;

use crate::failure::Failure;
use crate::failure::failure_of;
use nopal_live::LiveError;
use nopal_sdt::pattern::glob;
use nopal_session::control::{self, Reply, Request};
use nopal_session::home::Life;
use nopal_session::{Home, Session, SessionConfig, SessionError};
use std::path::Path;

/// Exit codes of what scripts want to tell apart; everything else is 1, and 2 a command line that cannot be understood.
const EXIT_CODES: [(&str, u8); 12] = [
    ("no-session", 10),
    ("no-such-session", 10),
    ("session-exists", 11),
    ("not-started", 12),
    ("already-started", 13),
    ("nothing-tracked", 14),
    ("no-event", 15),
    ("no-such-probe", 16),
    ("stale", 17),
    ("disk-full", 18),
    ("not-permitted", 19),
    ("gone", 20),
];

/// The table above as the manual has it.
pub(super) const EXIT_HELP: &str = "\
Exit codes: 0 done, 1 failed, 2 usage, 10 no such session, 11 the name is in use, 12 not started, 13 started already,
14 nothing tracked, 15 no event enabled, 16 no probe matches, 17 the recorder was killed, 18 disk full,
19 not permitted, 20 the process has ended.";

/// A code of ours again, as failures have constants.
fn constant(code: &str) -> &'static str {
    const OTHERS: [&str; 16] = [
        "bad-condition",
        "bad-name",
        "bad-session-file",
        "io",
        "kernel-door",
        "no-home",
        "no-rotation",
        "no-snapshot",
        "no-such-channel",
        "no-such-context",
        "no-such-log-level",
        "no-such-process",
        "not-yours",
        "recorder",
        "recording",
        "seccomp",
    ];
    let known = EXIT_CODES.iter().map(|(known, _)| *known).chain(OTHERS);
    known.into_iter().find(|known| *known == code).unwrap_or("session")
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Failure {
        let code = constant(&error.code);
        let exit = EXIT_CODES.iter().find(|(known, _)| *known == code).map_or(1, |(_, exit)| *exit);
        Failure { code, message: error.message, hint: error.hint, exit, is_styled: false }
    }
}

fn in_words(error: &LiveError) -> SessionError {
    let failure = failure_of(error);
    SessionError { code: failure.code.to_owned(), message: failure.message, hint: failure.hint }
}

/// Changes what a session wants and, if it is started, has its recorder do it. Gives the recorder's notes.
fn change(
    which: &Which,
    edit: impl FnOnce(&mut SessionConfig) -> Result<(), Failure>,
) -> Result<(Session, Vec<String>), Failure> {
    if which.kernel || which.jul || which.log4j || which.python {
        return Err(
            Failure::usage("nopal has only the userspace domain").hint("leave the option out, or say -u")
        );
    }
    let session = Home::find()?.get(which.session.as_deref())?;
    let _alone = session.edit()?;
    let before = session.config()?;
    let mut config = before.clone();
    edit(&mut config)?;
    session.save(&config)?;
    if session.life() != Life::Started || config == before {
        return Ok((session, Vec::new()));
    }
    match control::ask(&session, &Request::Reload) {
        Ok(Reply::Done { notes }) => Ok((session, notes)),
        Ok(_) => Ok((session, Vec::new())),
        // It was stopped or killed meanwhile, so that there is nothing to do but save.
        Err(_) if session.life() != Life::Started => Ok((session, Vec::new())),
        Err(error) => {
            // What is saved is what is done.
            session.save(&before)?;
            Err(error.into())
        }
    }
}

/// The sessions that a command names: one, the current one, all, or those whose names match.
fn meant(home: &Home, name: Option<&str>, is_all: bool) -> Result<Vec<Session>, Failure> {
    let pattern = match name {
        _ if is_all => "*",
        Some(name) if name.contains(['*', '?', '[']) => name,
        _ => return Ok(vec![home.get(name)?]),
    };
    let all = home.all()?;
    let names: Vec<String> = all.iter().map(|session| session.name.clone()).collect();
    let sessions: Vec<Session> = all.into_iter().filter(|session| glob(pattern, &session.name)).collect();
    if sessions.is_empty() && !is_all {
        let error = SessionError::new("no-such-session", format!("no session matches `{pattern}`"));
        return Err(error.hint(format!("there are {}", names.join(", "))).into());
    }
    Ok(sessions)
}

/// Does the same with each of several sessions; with the others also where one fails, whose failure is then told.
fn each(sessions: Vec<Session>, act: impl Fn(Session) -> Result<(), Failure>) -> Result<(), Failure> {
    let done: Vec<Result<(), Failure>> = sessions.into_iter().map(act).collect();
    done.into_iter().collect()
}

/// Whether `nopal save` may have written it.
fn is_session_file(path: &Path) -> bool {
    path.is_file() && path.extension().is_some_and(|extension| extension == "toml")
}

/// Says what was done: a line on standard output, or an object.
fn say(is_json: bool, text: &str, mut object: serde_json::Value, notes: &[String]) {
    if is_json {
        object["notes"] = notes.into();
        show_json!(object);
        return;
    }
    show!("{text}");
    for note in notes {
        tell!("nopal: {note}");
    }
}

/// `--session NAME` and `--json`, as every verb has them.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The session; without it the current one.
    #[arg(short, long, value_name = "NAME")]
    pub session: Option<String>,
    /// The userspace domain; nopal has no other.
    #[arg(short, long)]
    pub userspace: bool,
    /// LTTng's other domains, so that their absence can be told.
    #[arg(short, long, hide = true)]
    pub kernel: bool,
    #[arg(short, long, hide = true)]
    pub jul: bool,
    #[arg(short, long, hide = true)]
    pub log4j: bool,
    #[arg(long, hide = true)]
    pub python: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

impl Which {
    fn named(session: Option<String>, json: bool) -> Which {
        let (userspace, kernel, jul, log4j, python) = (true, false, false, false, false);
        Which { session, userspace, kernel, jul, log4j, python, json }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_exit_codes_of_the_manual() {
        for (code, exit) in EXIT_CODES {
            assert!(EXIT_HELP.contains(&format!("{exit} ")), "{code}");
            assert_eq!(Failure::from(SessionError::new(code, "x")).exit, exit);
        }
        assert_eq!(Failure::from(SessionError::new("bad-name", "x")).exit, 1);
    }
}
