//! `nopal stop`: ends recording.

use super::{EXIT_HELP, each, meant, say};
use crate::failure::Failure;
use crate::verdict::{self, Manner};
use crate::words::{bytes_in_words, counted};
use nopal_session::config::Mode;
use nopal_session::control::{self, Reply, Request, Status, settled};
use nopal_session::home::{Life, State};
use nopal_session::{Home, Session, SessionError};
use nopal_trace::Verdict;

/// Stops a session; `nopal start` goes on with it.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
Examples:
  nopal stop
  nopal stop valkey && nopal view valkey
  nopal stop --all

{EXIT_HELP}"))]
pub(crate) struct Args {
    /// The session, or several with `*`; without it the current one.
    #[arg(conflicts_with = "all")]
    pub name: Option<String>,
    /// All that are started.
    #[arg(short, long)]
    pub all: bool,
    /// As in LTTng; stopping never takes long here.
    #[arg(short, long)]
    pub no_wait: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// How a session ended.
pub(crate) enum Ended {
    Stopped(Status),
    /// The recorder had been killed; so many places were put back in the processes.
    WasStale {
        n_restored: usize,
    },
    WasStopped,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let home = Home::find()?;
    let mut sessions = meant(&home, args.name.as_deref(), args.all)?;
    if args.all {
        sessions.retain(|session| session.life() != Life::Stopped);
    }
    each(sessions, |session| stop(&session, args.json))
}

fn stop(session: &Session, is_json: bool) -> Result<(), Failure> {
    let config = session.config()?;
    let is_overwriting = config.channels.iter().any(|c| c.enabled && c.mode == Mode::Overwrite);
    let output = config.output;
    match end(session)? {
        Ended::Stopped(status) => {
            let totals = status.totals;
            let recorded = nopal_trace::Recording::open(&output).map(|r| r.verdict()).unwrap_or_default();
            let verdict = Verdict {
                n_lost: totals.n_lost,
                n_let_go: totals.n_let_go,
                let_go_until: totals.let_go_until_ns,
                n_gaps: status.gaps.len() as u64,
                n_cut: recorded.n_cut,
                n_undecided: recorded.n_undecided,
                is_overwriting,
                ..Verdict::default()
            };
            let held = match config.snapshot && totals.n_events == 0 {
                true => counted(status.n_snapshots.into(), "snapshot"),
                false => {
                    format!("{}, {}", counted(totals.n_events, "event"), bytes_in_words(totals.n_bytes))
                }
            };
            let text = format!(
                "Session `{}` stopped; {held} in {}, {}",
                session.name,
                output.display(),
                verdict::text(&verdict, Manner::SESSION)
            );
            let more = serde_json::json!({
                "session": session.name, "events": totals.n_events, "snapshots": status.n_snapshots,
                "path": output.display().to_string(), "gaps": status.gaps,
            });
            say(is_json, &text, verdict::json_with(&verdict, more), &verdict::remarks(&verdict, None));
            Ok(())
        }
        Ended::WasStale { n_restored } => {
            let text = format!(
                "the recorder of session `{}` had been killed; {} put back",
                session.name,
                counted(n_restored as u64, "place")
            );
            Err(SessionError::new("stale", text)
                .hint(format!("what it had recorded is whole: nopal view {}", session.name))
                .into())
        }
        Ended::WasStopped => {
            Err(SessionError::new("not-started", format!("session `{}` is not started", session.name)).into())
        }
    }
}

/// Ends whatever the session is doing. A recorder's failure is told once.
pub(crate) fn end(session: &Session) -> Result<Ended, Failure> {
    if session.life() == Life::Started {
        let answer = control::ask(session, &Request::Stop);
        // The recorder answers a moment before it ends; what follows must find it gone.
        let is_there =
            !matches!(&answer, Err(e) if e.code == "recorder") && settled(session) == Life::Started;
        match answer {
            Ok(Reply::Status(status)) => return Ok(Ended::Stopped(status)),
            Ok(other) => return Err(other.unexpected().into()),
            Err(error) if is_there || error.code == "recorder" => return Err(error.into()),
            // It was stopped or killed meanwhile, or gave up.
            Err(_) => {}
        }
    }
    match session.life() {
        // Somebody has started it again.
        Life::Started | Life::Stopped => Ok(Ended::WasStopped),
        Life::Stale => {
            let mut state = session.state();
            nopal_session::killed::count(session, &mut state);
            let swept = nopal_kernel::leftovers::sweep();
            let mut n_restored = swept.n_events;
            for pid in &state.pids {
                if let Ok(report) = nopal_user::leave::detach(*pid as i32) {
                    n_restored += report.n_restored;
                }
            }
            session.set_state(&State { is_started: false, pids: Vec::new(), ..state })?;
            Ok(Ended::WasStale { n_restored })
        }
        Life::Failed => {
            let state = session.state();
            session.set_state(&State { failure: None, ..state.clone() })?;
            let error = state.failure.unwrap_or_else(|| SessionError::new("recorder", "the recorder failed"));
            Err(Failure::from(error))
        }
    }
}
