//! Counts events per type: streams one after the other on each thread, no order of time, no value decoded.

use super::class::EventClass;
use super::recording::Recording;
use super::report::{Range, Report};
use super::stream::StreamCursor;
use crate::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// How often each event type occurs.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// By [`EventClass::index`].
    pub by_class: Vec<u64>,
    pub report: Report,
}

/// The trace of a stream that was read to its end, and how many events it has.
type Whole = Option<(usize, u64)>;

impl Counts {
    pub fn total(&self) -> u64 {
        self.by_class.iter().sum()
    }
}

impl Recording {
    /// Counts the events of a part of the recording; ends early once `stop` is set.
    pub fn count(
        &self,
        range: Range,
        is_wanted: impl Fn(&EventClass) -> bool,
        stop: &AtomicBool,
    ) -> Result<Counts, Error> {
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from).min(self.streams.len());
        let next = AtomicUsize::new(0);
        let work = || -> Result<(Counts, Vec<Whole>), Error> {
            let mut counts = Counts { by_class: vec![0; self.classes.len()], report: Report::default() };
            let mut found = Vec::new();
            while let Some(stream) = self.streams.get(next.fetch_add(1, Ordering::Relaxed)) {
                let mut cursor = StreamCursor::open(self, stream, range)?;
                let mut n_since_look: u32 = 0;
                while let Some(found) = cursor.next()? {
                    counts.by_class[found.class as usize] += 1;
                    n_since_look += 1;
                    if n_since_look == 1 << 16 {
                        n_since_look = 0;
                        if stop.load(Ordering::Relaxed) {
                            break;
                        }
                    }
                }
                counts.report.add(&cursor.report);
                found.push(cursor.n_all());
            }
            Ok((counts, found))
        };
        let parts: Vec<Result<(Counts, Vec<Whole>), Error>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (1..n_threads.max(1)).map(|_| scope.spawn(work)).collect();
            let mut parts = vec![work()];
            for thread in threads {
                match thread.join() {
                    Ok(part) => parts.push(part),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            parts
        });
        let mut all = Counts { by_class: vec![0; self.classes.len()], report: self.report() };
        let mut found = Vec::new();
        for part in parts {
            let (part, whole) = part?;
            found.extend(whole);
            for (sum, n) in all.by_class.iter_mut().zip(&part.by_class) {
                *sum += n;
            }
            all.report.add(&part.report);
        }
        let found: Option<Vec<(usize, u64)>> = found.into_iter().collect();
        self.account(found, &mut all.report.verdict);
        for (class, n) in self.classes.iter().zip(&mut all.by_class) {
            if !is_wanted(class) {
                *n = 0;
            }
        }
        Ok(all)
    }
}
