//! Tables of few rows: what was lost, and what is queried. Both come of counting all events.

use super::Sender;
use crate::batch::Datum;
use crate::plan::Ask;
use crate::shared::Shared;
use nopal_trace::Range;

/// A row of values, of which those in use are sent.
fn send(row: &[Put<'_>], ask: &Ask, sender: &mut Sender) {
    for (_, value) in row.iter().enumerate().filter(|(column, _)| ask.uses(*column)) {
        match value {
            Put::Number(Some(n)) => sender.batch.put(Datum::Integer(*n)),
            Put::Number(None) => sender.batch.put(Datum::Null),
            Put::Text(text) => sender.batch.put_text(text.as_bytes()),
        }
    }
    sender.end_row();
}

enum Put<'a> {
    Number(Option<i64>),
    Text(&'a str),
}

fn number(n: u64) -> Put<'static> {
    Put::Number(i64::try_from(n).ok())
}

pub(crate) fn losses(shared: &Shared, ask: &Ask, sender: &mut Sender) -> Result<(), String> {
    for (at, counts) in shared.counts()?.iter().enumerate() {
        let report = &counts.report;
        for loss in &report.losses {
            let what = if loss.is_packets { "packets" } else { "events" };
            let row = [
                Put::Number(Some(loss.from_ns)),
                Put::Number(Some(loss.to_ns.saturating_sub(loss.from_ns))),
                Put::Number(loss.cpu.and_then(|cpu| i64::try_from(cpu).ok())),
                number(loss.count),
                Put::Text(what),
                Put::Number(Some(at as i64 + 1)),
            ];
            send(&row, ask, sender);
        }
        // Only the first gaps are listed one by one; the rest is one row without a time.
        let listed = |is_packets: bool| {
            report
                .losses
                .iter()
                .filter(|loss| loss.is_packets == is_packets)
                .map(|loss| loss.count)
                .sum::<u64>()
        };
        let rests = [
            (report.verdict.n_all_lost().saturating_sub(listed(false)), "events"),
            (report.verdict.n_lost_packets.saturating_sub(listed(true)), "packets"),
        ];
        for (rest, what) in rests.into_iter().filter(|(rest, _)| *rest > 0) {
            let none = || Put::Number(None);
            let row =
                [none(), none(), none(), number(rest), Put::Text(what), Put::Number(Some(at as i64 + 1))];
            send(&row, ask, sender);
        }
    }
    Ok(())
}

pub(crate) fn recordings(shared: &Shared, ask: &Ask, sender: &mut Sender) -> Result<(), String> {
    let counts = shared.counts()?;
    for (at, ((dir, recording), counts)) in shared.recordings.iter().zip(counts).enumerate() {
        let trace = recording.traces().first();
        let env = |key: &str| trace.and_then(|trace| trace.env_text(key)).unwrap_or_default();
        let first =
            recording.events(Range::default()).and_then(|mut events| Ok(events.next()?.and_then(|e| e.ns())));
        let report = &counts.report;
        let notes: Vec<String> = report
            .verdict
            .notes
            .iter()
            .map(ToString::to_string)
            .chain(report.verdict.gaps.iter().map(|(_, what)| what.clone()))
            .chain(
                report
                    .verdict
                    .is_unfinished
                    .then(|| "its recorder was ended before it could finish, or is still at work".to_owned()),
            )
            .collect();
        let row = [
            Put::Number(Some(at as i64 + 1)),
            Put::Text(&dir.display().to_string()),
            Put::Text(env("hostname")),
            Put::Text(env("tracer_name")),
            Put::Number(first.map_err(|error| format!("{}: {error}", dir.display()))?),
            number(counts.total()),
            number(recording.event_classes().len() as u64),
            number(report.verdict.n_all_lost()),
            number(report.verdict.n_gaps),
            number(report.verdict.is_complete().into()),
            Put::Text(&notes.join("; ")),
        ];
        send(&row, ask, sender);
    }
    Ok(())
}
