//! What goes into a live session and what comes out of it.

use super::way::{Closed, Way};
use crate::plan::Limits;
use crate::registry::{Choice, SpanRoles, Unfit};
use nopal_capture::Loss;
use nopal_kernel::KernelError;
use nopal_proc::TargetError;
use nopal_proc::launch::LaunchError;
use nopal_trace::Verdict;
use nopal_trace::clock::epoch_ns;
use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

/// Which way into a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Door {
    /// The user door, and the kernel door for the sites it cannot open.
    #[default]
    Auto,
    User,
    Kernel,
}

/// What is to be traced, and how.
#[derive(Debug)]
pub struct Request {
    pub choices: Vec<Choice>,
    /// `.d` files that name the arguments of probes.
    pub given: Vec<nopal_provider::File>,
    pub limits: Limits,
    pub options: Options,
    /// Spans that the user door keeps at the source.
    pub spans: Option<SpanRoles>,
    /// Probes, by provider and name, of whose hits only time and thread matter: without a condition on them their arguments
    /// are not read.
    pub without_arguments: HashSet<(String, String)>,
}

/// How sites are opened and hits are kept.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub door: Door,
    /// Not the live descendants of a process.
    pub without_children: bool,
    /// Lets the user door move instructions where nothing else helps.
    pub can_relocate: bool,
    /// Per CPU.
    pub ring_bytes: u64,
    /// Rings for processes with different credentials: so many at most, whatever their size.
    pub max_rings: Option<usize>,
    /// Per CPU, for aggregates that stubs keep.
    pub cells_bytes: u32,
    /// Spans that stubs keep.
    pub n_spans: u32,
    /// A command does not begin unless all of its spans can be kept.
    pub needs_user_door: bool,
    /// Keeps the newest hits and hands them out by [`Live::snapshot`](super::Live::snapshot) only.
    pub is_overwriting: bool,
    /// Whether processes are entered that have nothing wanted yet.
    pub is_patient: bool,
    /// Whether every record has its time, and its task.
    pub has_time: bool,
    pub has_task: bool,
}

impl Options {
    /// A process with its descendants, records with time and task, nothing unusual.
    pub fn new(door: Door, ring_bytes: u64) -> Options {
        Options {
            door,
            without_children: false,
            can_relocate: false,
            ring_bytes,
            max_rings: None,
            cells_bytes: 0,
            n_spans: 0,
            needs_user_door: false,
            is_overwriting: false,
            is_patient: false,
            has_time: true,
            has_task: true,
        }
    }
}

/// How a site was opened.
#[derive(Debug, Clone)]
pub struct Opened {
    pub pid: u32,
    pub probe: String,
    pub path: PathBuf,
    /// Link-time address.
    pub address: u64,
    pub way: Way,
}

#[derive(Debug)]
pub enum LiveError {
    User(nopal_user::Error),
    Kernel(KernelError),
    Target(TargetError),
    /// A command could not be started.
    Launch(LaunchError),
    /// A pattern or a condition fits no probe.
    Unfit(Unfit),
    /// There are probes, and no door opens any.
    AllClosed(Closed),
    /// A command has spans that cannot be kept at the source; nothing of it has run.
    NotKept(NotKeptHere),
    /// How many CPUs there are cannot be read.
    Cpus(std::io::Error),
    /// The time stamp counter cannot serve as a clock, which the user door needs.
    UnsteadyTsc,
}

impl fmt::Display for LiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LiveError::User(error) => write!(f, "{error}"),
            LiveError::Kernel(error) => write!(f, "{error}"),
            LiveError::Target(error) => write!(f, "{error}"),
            LiveError::Launch(error) => write!(f, "{error}"),
            LiveError::Unfit(unfit) => write!(f, "{unfit}"),
            LiveError::AllClosed(why) => write!(f, "no site could be opened: {why}"),
            LiveError::NotKept(why) => write!(f, "{why}"),
            LiveError::Cpus(error) => write!(f, "cannot tell how many CPUs there are: {error}"),
            LiveError::UnsteadyTsc => f.write_str("this machine's time stamp counter does not run steadily"),
        }
    }
}

impl std::error::Error for LiveError {}

/// Why the spans of a command cannot be kept at the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotKeptHere {
    /// The user door does not open each site of this probe.
    Site(String),
    /// It begins without this probe, which what it loads or starts may have.
    NotYet(String),
    /// It is held before its first thread has a number.
    Static,
    /// What is asked of this field cannot be told by a stub.
    Field { field: String, probe: String },
}

impl fmt::Display for NotKeptHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotKeptHere::Site(probe) => write!(f, "the user door does not open each site of {probe}"),
            NotKeptHere::Static => f.write_str(
                "the command is linked statically, and its threads have no numbers yet when it begins; -p keeps",
            ),
            NotKeptHere::Field { field, probe } => {
                write!(f, "`{field}` of {probe} is not a plain integer that the program could compare itself")
            }
            NotKeptHere::NotYet(probe) => {
                write!(
                    f,
                    "the command begins without {probe}, and which door opens it is known once it is there"
                )
            }
        }
    }
}

/// Something that happened while tracing.
#[derive(Debug)]
pub enum News {
    Opened(Vec<Opened>),
    /// Hits may be missing.
    Gap(String),
    /// A process or its program was started while tracing, and this many sites could be opened only afterwards; none if it
    /// ended before.
    Late {
        pid: u32,
        n_sites: usize,
    },
    /// A process or a library that came while tracing could not be opened.
    NotFollowed {
        pid: u32,
        error: LiveError,
    },
    Message(String),
}

/// [`News::Late`] for people.
pub fn late_in_words(pid: u32, n_sites: usize) -> String {
    match n_sites {
        0 => format!("process {pid}: it or tracing ended before the sites of its program could be opened"),
        n => format!(
            "process {pid}: {n} sites were opened a moment after their program or library had started"
        ),
    }
}

/// What is missing because no door opens it, if something is.
pub fn closed_in_words(opened: &[Opened]) -> Option<String> {
    let mut closed = opened.iter().filter_map(|site| match &site.way {
        Way::Closed(why) => Some((site, why)),
        Way::User(_) | Way::Kernel { .. } => None,
    });
    let (first, why) = closed.next()?;
    let probe = nopal_trace::escape(&first.probe);
    let first = format!("{probe} at {:#x} in process {}: {why}", first.address, first.pid);
    Some(match closed.count() {
        0 => format!("a site is not open, its hits are missing: {first}"),
        n => format!("{} sites are not open, their hits are missing; the first is {first}", n + 1),
    })
}

/// What one look at the rings gave beside hits.
#[derive(Debug, Default)]
pub struct Polled {
    pub n_hits: u64,
    pub losses: Vec<Loss>,
    /// Places where a ring made no sense, and records that dying threads never finished.
    pub n_damaged: u64,
    /// Hits of which it is not known whether they came before others that they are near to ([`DoorOrder`](crate::DoorOrder)),
    /// as far as their order matters to whoever took them.
    pub n_unordered: u64,
    /// The same, where only the nesting of spans depends on it.
    pub n_nesting: u64,
}

impl Polled {
    /// Adds what is missing.
    pub fn count(&self, verdict: &mut Verdict) {
        verdict.n_malformed += self.n_damaged;
        verdict.n_unordered += self.n_unordered;
        verdict.n_nesting += self.n_nesting;
        for loss in &self.losses {
            verdict.lose(loss.count, epoch_ns(loss.first_ns), epoch_ns(loss.last_ns));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::{NotByKernel, NotByUser};
    use nopal_kernel::refusal::Refusal;

    #[test]
    fn errors_are_said_in_words() {
        let pattern = "p:nmae".to_owned();
        let kernel = Some(NotByKernel::Site(Refusal::NoFile { name: "/x".to_owned() }));
        let closed = Closed { user: NotByUser::AskedFor, kernel };
        let unfit = Unfit::NoProbe { pattern, suggestion: Some("p:name".into()), has_probes: true };
        for (error, said) in [
            (LiveError::AllClosed(closed), "no site could be opened: there is no file /x"),
            (LiveError::Unfit(unfit), "no probe matches `p:nmae` in what is traced"),
            (LiveError::UnsteadyTsc, "this machine's time stamp counter does not run steadily"),
        ] {
            assert_eq!(error.to_string(), said);
        }
    }
}
