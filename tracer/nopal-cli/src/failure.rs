//! A failure as the user sees it: what is wrong, and the next thing to do.

use nopal_live::registry::Unfit;
use nopal_live::{Closed, LiveError, NotByUser};
use nopal_proc::TargetError;
use nopal_proc::launch::LaunchError;
use nopal_trace::{escape_json, escape_lines, escape_styled};
use std::fmt;

/// Printed as `nopal: MESSAGE` and `  HINT`, or as one JSON object with `--json`.
#[derive(Debug)]
pub(crate) struct Failure {
    /// A short word for scripts, such as `no-such-process`.
    pub code: &'static str,
    pub message: String,
    pub hint: Option<String>,
    pub exit: u8,
    /// The message has colours of our own.
    pub is_styled: bool,
}

impl Failure {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Failure { code, message: message.into(), hint: None, exit: 1, is_styled: false }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Exit code 2 is kept for a command line that cannot be understood.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Failure { code: "usage", message: message.into(), hint: None, exit: 2, is_styled: false }
    }

    pub(crate) fn to_json(&self) -> String {
        let error = serde_json::json!({ "code": self.code, "message": self.message, "hint": self.hint });
        escape_json(&serde_json::json!({ "error": error }).to_string()).into_owned()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = match self.is_styled {
            true => escape_styled(&self.message),
            false => escape_lines(&self.message),
        };
        write!(f, "nopal: {message}")?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  {}", escape_lines(hint))?;
        }
        Ok(())
    }
}

/// The failure in the user's words.
pub(crate) fn failure_of(error: &LiveError) -> Failure {
    match error {
        LiveError::User(error) => user_failure(error),
        LiveError::Kernel(_) => Failure::new("kernel-door", error.to_string())
            .hint("--door user needs no privilege for your own processes"),
        LiveError::Target(error) => target_failure(error),
        LiveError::Launch(error) => launch_failure(error),
        LiveError::Unfit(Unfit::Condition(e)) => Failure::new("bad-condition", error.to_string())
            .hint(format!("its arguments are: {}", e.arguments.join(", "))),
        LiveError::Unfit(Unfit::NoProbe { pattern, suggestion, has_probes }) => {
            let failure = Failure::new("no-such-probe", error.to_string());
            match (suggestion, has_probes) {
                (Some(suggestion), _) if suggestion == pattern => {
                    failure.hint("it is there, but excluded, or less severe than the log level asked for")
                }
                _ if pattern.contains('{') || pattern.ends_with(".bt") => {
                    failure.hint("it looks like a script: `nopal run -e SCRIPT` or `nopal run FILE` runs those")
                }
                (Some(suggestion), _) => failure.hint(format!("did you mean `{suggestion}`?")),
                (None, _) if pattern.starts_with("function:") => failure.hint(
                    "`nopal list --functions FILE` shows the functions of a program or library",
                ),
                (None, true) => failure.hint(
                    "`nopal list -p PID` shows the probes of a process, `nopal list FILE` of a program",
                ),
                (None, false) => failure.hint("neither the program nor its libraries have probes"),
            }
        }
        LiveError::AllClosed(Closed { user: NotByUser::Process(cause), kernel: Some(_) })
            if matches!(**cause, nopal_user::Error::Seccomp { .. }) =>
        {
            Failure::new("seccomp", error.to_string()).hint(
                "the kernel door traces it, as root on the host; or start it without a filter, a container with \
                 --security-opt seccomp=unconfined",
            )
        }
        LiveError::AllClosed(_) => Failure::new("closed", error.to_string()),
        LiveError::UnsteadyTsc => Failure::new("unsteady-clock", error.to_string())
            .hint("use --door kernel, which takes the kernel's clock"),
        LiveError::NotKept(_) => Failure::new("not-kept", error.to_string()),
        LiveError::Cpus(_) => Failure::new("cpus", error.to_string()),
    }
}

fn launch_failure(error: &LaunchError) -> Failure {
    let failure = Failure::new("not-started", error.to_string());
    match error {
        LaunchError::NotStarted { .. } => {
            failure.hint("check its path (`./program` for one in this folder) and that it may be executed")
        }
        _ => failure,
    }
}

fn user_failure(error: &nopal_user::Error) -> Failure {
    if let nopal_user::Error::Launch(error) = error {
        return launch_failure(error);
    }
    let code = match error {
        nopal_user::Error::NoSuchProcess { .. } => "no-such-process",
        nopal_user::Error::Gone { .. } | nopal_user::Error::EndedEarly { .. } => "gone",
        nopal_user::Error::Permission { .. } => "not-permitted",
        nopal_user::Error::AlreadyTraced { .. } => "already-traced",
        nopal_user::Error::ThirtyTwoBit { .. } => "32-bit",
        nopal_user::Error::Seccomp { .. } => "seccomp",
        _ => "user-door",
    };
    let errno = match error {
        nopal_user::Error::Io { source, .. } => source.raw_os_error(),
        _ => None,
    };
    match errno {
        Some(libc::ENOMEM) => {
            Failure::new("no-memory", error.to_string()).hint("a smaller --buffer-size helps")
        }
        Some(libc::EMFILE) => {
            Failure::new("no-descriptors", error.to_string()).hint("a higher `ulimit -n` helps")
        }
        _ => {
            let failure = Failure::new(code, error.cause().to_string());
            match error.next_step() {
                Some(next) => failure.hint(next),
                None => failure,
            }
        }
    }
}

/// The same of a process or a file that cannot be looked at.
pub(crate) fn target_failure(error: &TargetError) -> Failure {
    let failure = Failure::new("target", error.to_string());
    match error {
        TargetError::NoSuchProcess { .. } => {
            failure.hint("`nopal list -u` shows running programs that have probes")
        }
        TargetError::Translated { by, .. } => failure.hint(format!("trace it without {by}")),
        TargetError::NotPermitted { .. } => failure.hint(TargetError::ask_for_permission()),
        TargetError::Deleted { .. } => failure.hint("root may read it"),
        TargetError::Zombie { .. }
        | TargetError::KernelThread { .. }
        | TargetError::Is32Bit { .. }
        | TargetError::NotAFile { .. }
        | TargetError::Io { .. } => failure,
    }
}
