//! `nopal view --live`: follows a started session by reading its recordings as they grow. The recorder says up to when
//! they are whole; a viewer that is slow or goes away costs it nothing.

use super::{Args, NO_SUCH_EVENT, STOP, failure_of, print_failure, print_to, select};
use crate::failure::Failure;
use crate::words::counted;
use nopal_session::Session;
use nopal_session::control::{Reply, Request, ask};
use nopal_trace::{Error, PrintError, Printed, Range, Recording};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

const LOOK: Duration = Duration::from_millis(200);

pub(super) fn run(session: &Session, dir: &Path, args: &Args) -> Result<(), Failure> {
    // Only what comes from now on.
    let mut from_ns = match ask(session, &Request::Flush)? {
        Reply::Flushed { until_ns } => until_ns,
        other => return Err(other.unexpected().into()),
    };
    let mut n_events = 0;
    let mut last_ns = None;
    let mut is_over = false;
    let mut failure = None;
    while !is_over && !STOP.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        let to_ns = match ask(session, &Request::Flush) {
            Ok(Reply::Flushed { until_ns }) => until_ns - 1,
            // It was stopped: what is left is all there is.
            Ok(_) => {
                is_over = true;
                i64::MAX
            }
            Err(error) => {
                is_over = true;
                failure = Some(error).filter(|error| error.code != "not-started");
                i64::MAX
            }
        };
        let limit = args.limit.map(|limit| limit - n_events);
        let Some(shown) = show(dir, args, Range { from_ns, to_ns }, limit, last_ns)? else { return Ok(()) };
        n_events += shown.n_events;
        last_ns = shown.last_ns.or(last_ns);
        from_ns = to_ns.saturating_add(1);
        is_over |= args.limit.is_some_and(|limit| n_events >= limit);
    }
    tell!("nopal: {} shown", counted(n_events, "event"));
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// Prints the events of a span of time, in its order; nothing if nobody reads them any more.
fn show(
    dir: &Path,
    args: &Args,
    range: Range,
    limit: Option<u64>,
    last_ns: Option<i64>,
) -> Result<Option<Printed>, Failure> {
    let recording = match Recording::open(dir) {
        Ok(recording) => recording,
        // Nothing has been written yet.
        Err(Error::NotARecording { .. }) => return Ok(Some(Printed::default())),
        Err(error) => return Err(failure_of(&error, dir)),
    };
    let mut selection = match select(&recording, &args.patterns) {
        Ok((selection, _)) => selection,
        // An event that is not there yet may come with the next library.
        Err(failure) if failure.code == NO_SUCH_EVENT => return Ok(Some(Printed::default())),
        Err(failure) => return Err(failure),
    };
    selection.range = range;
    selection.limit = limit;
    selection.last_ns = last_ns;
    let mut out = io::stdout().lock();
    let printed = print_to(&recording, &selection, args, &mut out)
        .and_then(|printed| out.flush().map(|()| printed).map_err(PrintError::Output));
    match printed {
        Ok(printed) => Ok(Some(printed)),
        Err(PrintError::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => Ok(None),
        Err(e) => Err(print_failure(e, dir)),
    }
}
