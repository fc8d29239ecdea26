//! Reads recordings into an exporter.

use crate::out::Out;
use nopal_answers::At;
use nopal_answers::recorded::{Reached, read_filtered};
use nopal_answers::slices::{Slice, Slices, Taker, Wish};
use nopal_spans::{Available, Fields, Span, Unmatched};
use nopal_trace::{Error, EventType, Loss, Recording, Report, Selection};
use std::io;

/// A format being written.
pub trait Exporter: Taker {
    /// A recording follows, of which these events are wanted.
    fn recording(&mut self, recording: &Recording, selection: &Selection);

    /// What was lost in it, after its events.
    fn losses(&mut self, _losses: &[Loss]) {}

    /// After the last recording.
    fn finish(&mut self) {}

    fn out(&mut self) -> &mut Out;
}

impl Taker for Box<dyn Exporter> {
    fn class(&mut self, class: usize, ty: &EventType) -> Wish {
        (**self).class(class, ty)
    }
    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        (**self).event(at, class, fields);
    }
    fn slice(&mut self, slice: &Slice) {
        (**self).slice(slice);
    }
    fn close(&mut self, slice: &Slice) {
        (**self).close(slice);
    }
}

/// Whether the events of a class are wanted.
pub fn is_wanted(selection: &Selection, class: usize) -> bool {
    selection.is_wanted.get(class) != Some(&false)
}

/// What is exported.
#[derive(Debug)]
pub struct Plan<'a> {
    /// With the part of each that is wanted.
    pub recordings: Vec<(&'a Recording, Selection)>,
    pub spans: &'a [Span],
    pub available: &'a Available,
}

/// How it ended.
#[derive(Debug, Default)]
pub struct Ended {
    pub n_events: u64,
    pub n_slices: u64,
    pub n_bytes: u64,
    pub n_damaged: u64,
    pub unmatched: Unmatched,
    /// By recording.
    pub reports: Vec<Report>,
    /// It was asked to end before its end.
    pub is_stopped: bool,
}

/// What can go wrong.
#[derive(Debug)]
pub enum Failed {
    /// The number of the recording, and why.
    Recording(usize, Error),
    Output(io::Error),
    Question(nopal_answers::Wrong),
}

/// Exports. `goes_on` is asked now and then, with how far it has come of all, from 0 to 1, and the events so far.
pub fn export(
    plan: &Plan<'_>,
    exporter: Box<dyn Exporter>,
    mut goes_on: impl FnMut(f64, u64) -> bool,
) -> Result<Ended, Failed> {
    let mut slices = Slices::new(plan.spans, plan.available, exporter, true).map_err(Failed::Question)?;
    let mut ended = Ended::default();
    let n = plan.recordings.len().max(1) as f64;
    for (at, (recording, selection)) in plan.recordings.iter().enumerate() {
        slices.taker().recording(recording, selection);
        let before = ended.n_events;
        let goes_on = |slices: &mut Slices<Box<dyn Exporter>>, reached: &Reached| {
            let share = (at as f64 + reached.share) / n;
            ended.is_stopped = !goes_on(share, before + reached.n_events);
            !ended.is_stopped && !slices.taker().out().has_failed()
        };
        let filter = selection.filter.as_deref();
        let read = read_filtered(recording, selection.range, filter, &mut slices, goes_on);
        let read = read.map_err(|error| Failed::Recording(at, error))?;
        slices.taker().losses(&read.report.losses);
        ended.n_events += read.n_events;
        ended.n_damaged += read.n_damaged;
        ended.reports.push(read.report);
        if ended.is_stopped || slices.taker().out().has_failed() {
            break;
        }
    }
    ended.n_slices = slices.n_slices();
    ended.unmatched = slices.pairing().unmatched();
    let mut exporter = slices.into_taker();
    exporter.finish();
    ended.n_bytes = exporter.out().finish().map_err(Failed::Output)?;
    Ok(ended)
}

/// The host of each class.
pub fn hosts(recording: &Recording) -> Vec<String> {
    recording.event_classes().iter().map(|class| recording.host_of(class).to_owned()).collect()
}
