//! What the tables of a database are made of, shared with the threads that read recordings.

use crate::tables::TableInfo;
use nopal_spans::{Available, Span, Unmatched};
use nopal_trace::{Counts, Range, Recording, Report};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, OnceLock, PoisonError};

/// What the tables are made of; the threads that read have it, too.
#[derive(Debug)]
pub(crate) struct Shared {
    pub recordings: Vec<(PathBuf, Recording)>,
    pub available: Available,
    pub spans: Vec<Span>,
    pub tables: Vec<TableInfo>,
    counts: OnceLock<Result<Vec<Counts>, String>>,
    /// What reading found out, of each recording that was read to its end.
    reports: Mutex<Vec<Option<(Report, u64)>>>,
    unmatched: Mutex<Unmatched>,
    /// Why a recording could not be read.
    failed: Mutex<Option<String>>,
    is_stopped: fn() -> bool,
}

impl Shared {
    pub(crate) fn new(
        recordings: Vec<(PathBuf, Recording)>,
        available: Available,
        tables: Vec<TableInfo>,
        is_stopped: fn() -> bool,
    ) -> Shared {
        let n = recordings.len();
        Shared {
            spans: available.spans.clone(),
            recordings,
            available,
            tables,
            counts: OnceLock::new(),
            reports: Mutex::new(vec![None; n]),
            unmatched: Mutex::default(),
            failed: Mutex::default(),
            is_stopped,
        }
    }

    /// Why a recording could not be read, if that is so; told once.
    pub(crate) fn take_failure(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        (self.is_stopped)()
    }

    /// The number of events of each type, by recording, and what is missing.
    pub(crate) fn counts(&self) -> Result<&[Counts], String> {
        let count = || {
            let never = AtomicBool::new(false);
            let of = |(dir, recording): &(PathBuf, Recording)| {
                let counted = recording.count(Range::default(), |_| true, &never);
                counted.map_err(|error| format!("{}: {error}", dir.display()))
            };
            self.recordings.iter().map(of).collect::<Result<Vec<_>, _>>()
        };
        self.counts.get_or_init(count).as_deref().map_err(Clone::clone)
    }

    pub(crate) fn reports(&self) -> Vec<Option<(Report, u64)>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn unmatched(&self) -> Unmatched {
        *self.unmatched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn was_read(&self, recording: usize, report: Report, n_damaged: u64) {
        let mut reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        reports[recording] = Some((report, n_damaged));
    }

    pub(crate) fn has_failed(&self, why: &str) {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }

    pub(crate) fn was_paired(&self, unmatched: Unmatched) {
        *self.unmatched.lock().unwrap_or_else(PoisonError::into_inner) = unmatched;
    }
}
