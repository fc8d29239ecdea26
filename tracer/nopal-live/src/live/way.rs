//! How a site was opened, or why neither door opens it.

use nopal_kernel::KernelError;
use nopal_kernel::refusal::Refusal;
use nopal_proc::TargetError;
use nopal_user::tactic::{self, Tactic};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub enum Way {
    User(Tactic),
    Kernel {
        instead: NotByUser,
        /// Lines of tracefs tell of the hits, as eBPF is not permitted.
        is_by_tracefs: bool,
    },
    Closed(Closed),
}

/// Why no door opens a site.
#[derive(Debug, Clone)]
pub struct Closed {
    pub user: NotByUser,
    /// None if it was not to be asked.
    pub kernel: Option<NotByKernel>,
}

/// Why the user door does not open a site.
#[derive(Debug, Clone)]
pub enum NotByUser {
    /// The kernel door was asked for.
    AskedFor,
    Site(tactic::Refusal),
    /// The process cannot be entered.
    Process(Arc<nopal_user::Error>),
}

/// Why the kernel door does not open a site.
#[derive(Debug, Clone)]
pub enum NotByKernel {
    Site(Refusal),
    /// Nothing can be opened.
    Door(Arc<KernelError>),
    /// Of tracefs, which is left where eBPF is not permitted: others who map the file would be slowed down.
    Others {
        n_processes: usize,
        path: PathBuf,
    },
    /// The same: it cannot tell what the site is asked for.
    Untellable {
        reason: String,
    },
    /// The same: it does not begin.
    Tracefs {
        error: String,
    },
    File(TargetError),
}

/// What people are told once.
pub const BY_TRACEFS: &str = "eBPF is not permitted, so hits are read through tracefs";

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::User(tactic) => write!(f, "user door: {tactic}"),
            Way::Kernel { instead, is_by_tracefs: false } => write!(f, "kernel door: {instead}"),
            Way::Kernel { instead: NotByUser::AskedFor, is_by_tracefs: true } => {
                write!(f, "kernel door: {BY_TRACEFS}")
            }
            Way::Kernel { instead, is_by_tracefs: true } => write!(f, "kernel door: {instead}; {BY_TRACEFS}"),
            Way::Closed(why) => write!(f, "not opened: {why}"),
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.user, &self.kernel) {
            (user, None) => write!(f, "{user}"),
            (NotByUser::AskedFor, Some(kernel)) => write!(f, "{kernel}"),
            (user, Some(kernel)) => write!(f, "{user}; {kernel}"),
        }
    }
}

impl fmt::Display for NotByUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotByUser::AskedFor => f.write_str("asked for"),
            NotByUser::Site(refusal) => write!(f, "{refusal}"),
            NotByUser::Process(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Display for NotByKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotByKernel::Site(refusal) => write!(f, "{refusal}"),
            NotByKernel::Door(error) => write!(f, "{error}"),
            NotByKernel::Others { n_processes, path } => write!(
                f,
                "{BY_TRACEFS}, and {n_processes} other processes that have {} mapped would be slowed down",
                path.display()
            ),
            NotByKernel::Untellable { reason } => write!(f, "{BY_TRACEFS}; it cannot tell this: {reason}"),
            NotByKernel::Tracefs { error } => write!(f, "tracefs: {error}"),
            NotByKernel::File(error) => write!(f, "{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_said_in_words() {
        let far = || NotByUser::Site(tactic::Refusal::Breakpoint);
        let nop = Refusal::NoFunction { name: "main".to_owned() };
        let kernel = || Some(NotByKernel::Site(nop.clone()));
        for (way, said) in [
            (Way::Kernel { instead: NotByUser::AskedFor, is_by_tracefs: false }, "kernel door: asked for"),
            (Way::Kernel { instead: NotByUser::AskedFor, is_by_tracefs: true }, "kernel door: eBPF is not"),
            (Way::Kernel { instead: far(), is_by_tracefs: true }, "; eBPF is not permitted"),
            (
                Way::Closed(Closed { user: NotByUser::AskedFor, kernel: kernel() }),
                "not opened: the file has no",
            ),
            (Way::Closed(Closed { user: far(), kernel: kernel() }), "; the file has no function main"),
        ] {
            assert!(way.to_string().contains(said), "{way}");
        }
        assert_eq!(Closed { user: far(), kernel: None }.to_string(), far().to_string());
    }
}
