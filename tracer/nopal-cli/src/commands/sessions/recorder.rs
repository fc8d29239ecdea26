//! `nopal recorder`: the process that holds a started session. Started by `nopal start`, not by people.

use super::in_words;
use crate::failure::Failure;
use crate::signals;
use nopal_answers::ordered::Ordered;
use nopal_answers::trigger::{TriggerText, Watched};
use nopal_answers::{Wrong, inventory};
use nopal_live::registry::Registry;
use nopal_live::{Consumer, Hit, Live};
use nopal_session::recorder_process::{self, Surroundings};
use nopal_session::watch::{Fired, Watch, is_watched};
use nopal_session::{Session, SessionError};
use nopal_spans::{Available, ProbeName};
use nopal_trace::localtime::{ClockText, text_of};
use std::io::Write;
use std::path::PathBuf;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session's folder.
    pub dir: PathBuf,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    close_inherited();
    // SAFETY: setsid has no preconditions; it fails only for a leader of a group, which a fresh child is not. From here
    // on the terminal's end is not ours.
    unsafe { libc::setsid() };
    // Started through `/proc/self/exe` it would be called `exe`; other nopals wait for one of their name.
    // SAFETY: the name is a C string that lives for ever.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"nopal".as_ptr()) };
    signals::stop_on_signals();
    nopal_kernel::leftovers::sweep();
    let session = Session::at(&args.dir)?;
    let mut log = |text: &str| {
        let now = nopal_trace::clock::monotonic_ns() as i64 + nopal_trace::clock::monotonic_to_epoch_ns();
        tell!("[{}] {text}", text_of(now, ClockText::Date, false));
    };
    let surroundings = Surroundings { in_words, is_stopped: signals::is_stopped, watch, log: &mut log };
    let ended = recorder_process::hold(&session, surroundings, |started| {
        let line = serde_json::to_string(&started).expect("it has only text and numbers");
        let mut out = std::io::stdout();
        // Whoever started us may have gone; the session goes on.
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        close_stdout();
    });
    ended.map_err(Failure::from)
}

/// Watches the spans that triggers are about.
fn watch(triggers: &[String], pids: &[u32]) -> Result<Option<Box<dyn Watch>>, SessionError> {
    let of_spans = triggers.iter().filter(|text| is_watched(text)).map(|text| TriggerText::parse(text));
    let error = |wrong: Wrong| SessionError::new(wrong.code(), wrong.to_string()).hint(wrong.hint());
    let of_spans = of_spans.collect::<Result<Vec<_>, _>>().map_err(error)?;
    if of_spans.is_empty() {
        return Ok(None);
    }
    let probes = inventory::of_targets(pids, None, &[]).map_err(|e| {
        SessionError::new("target", format!("the probes of what is tracked cannot be read: {e}"))
    })?;
    let watched = Watched::new(&of_spans, &Available::new(Vec::new(), probes, true)).map_err(|wrong| {
        let error = error(wrong);
        match pids.is_empty() {
            true => error.hint("no tracked process runs yet; name two probes: latency(BEGIN, END)"),
            false => error,
        }
    })?;
    Ok(Some(Box::new(SessionWatch::new(watched))))
}

/// The triggers of a session that are about spans, and those beside them that one event decides.
#[derive(Debug)]
struct SessionWatch {
    ordered: Ordered,
    watched: Watched,
    probes: Vec<ProbeName>,
}

/// Counts hits of probes that are not part of the spans: each is a reason by itself.
struct Others<'a> {
    probes: &'a [ProbeName],
    n: u64,
}

impl Consumer<Registry> for Others<'_> {
    fn hit(&mut self, registry: &Registry, hit: &Hit<'_>) {
        let ty = &registry.plans[registry.events[hit.event as usize].plan_idx].event_type;
        self.n += u64::from(!self.probes.iter().any(|probe| probe.is(&ty.provider, &ty.name)));
    }
}

impl SessionWatch {
    fn new(watched: Watched) -> SessionWatch {
        SessionWatch { ordered: Ordered::default(), probes: watched.probes(), watched }
    }
}

impl Watch for SessionWatch {
    fn patterns(&self) -> Vec<String> {
        self.probes.iter().map(ProbeName::to_string).collect()
    }

    fn poll(&mut self, live: &mut Live) -> Fired {
        let mut others = Others { probes: &self.probes, n: 0 };
        let polled = self.ordered.poll_beside(live, &mut self.watched, false, &mut others);
        let n_lost = polled.losses.iter().map(|loss| loss.count).sum();
        Fired { n: others.n + self.watched.take_ends().len() as u64, n_lost }
    }
}

/// What a shell or a script has open at `nopal start` is not kept open until `nopal stop`: others may wait for its end.
fn close_inherited() {
    // SAFETY: nothing in this process has opened a descriptor yet, so that none above standard error is ours. A kernel
    // that does not know the call closes none.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
}

/// The command that started us waits for the end of what we say to it.
fn close_stdout() {
    let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") else { return };
    // SAFETY: both are open descriptors; dup2 replaces the pipe behind standard output.
    unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&null), libc::STDOUT_FILENO) };
}
