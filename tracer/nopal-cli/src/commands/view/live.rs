//! `nopal view --live`: follows a started session by reading its recordings as they grow. The recorder says up to when
//! they are whole; a viewer that is slow or goes away costs it nothing.

use super::{Args, STOP, print_failure, print_to, select};
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
        let shown = match show(dir, args, Range { from_ns, to_ns }, limit, last_ns) {
            Ok(shown) => shown,
            Err(PrintError::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(e) => return Err(print_failure(e, dir)),
        };
        n_events += shown.n_events;
        last_ns = shown.last_ns.or(last_ns);
        from_ns = to_ns.saturating_add(1);
        is_over |= args.limit.is_some_and(|limit| n_events >= limit);
    }
    tell!("nopal: {} shown", counted(n_events, "event"));
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// Prints the events of a span of time, in its order.
fn show(
    dir: &Path,
    args: &Args,
    range: Range,
    limit: Option<u64>,
    last_ns: Option<i64>,
) -> Result<Printed, PrintError> {
    let recording = match Recording::open(dir) {
        Ok(recording) => recording,
        // Nothing has been written yet.
        Err(Error::NotARecording { .. }) => return Ok(Printed::default()),
        Err(error) => return Err(error.into()),
    };
    // An event that is not there yet may come with the next library.
    let Ok(mut selection) = select(&recording, &args.patterns) else {
        return Ok(Printed::default());
    };
    selection.range = range;
    selection.limit = limit;
    selection.last_ns = last_ns;
    let mut out = io::stdout().lock();
    let printed = print_to(&recording, &selection, args, &mut out)?;
    out.flush().map_err(PrintError::Output)?;
    Ok(printed)
}
