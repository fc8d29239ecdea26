//! How long threads of a traced process stand still at a time. All work on a process is done in one thread of ours, which
//! adds up what it holds.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The stops that one piece of work has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stops {
    pub count: u32,
    pub longest: Duration,
}

impl Stops {
    fn add(&mut self, held: Duration) {
        self.count += 1;
        self.longest = self.longest.max(held);
    }
}

thread_local! {
    static OF_THIS_THREAD: Cell<Stops> = const { Cell::new(Stops { count: 0, longest: Duration::ZERO }) };
}

/// Notes that something that stood still since then goes on now.
pub(crate) fn note(since: Instant) {
    OF_THIS_THREAD.with(|stops| {
        let mut all = stops.get();
        all.add(since.elapsed());
        stops.set(all);
    });
}

/// What this thread has stopped since this was last asked.
pub(crate) fn take() -> Stops {
    OF_THIS_THREAD.with(Cell::take)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_counted_for_each_thread_of_ours() {
        note(Instant::now());
        note(Instant::now() - Duration::from_secs(3));
        assert_eq!(std::thread::spawn(take).join().unwrap(), Stops::default());
        let stops = take();
        assert_eq!(stops.count, 2);
        assert!(stops.longest >= Duration::from_secs(3));
        assert_eq!(take(), Stops::default());
    }
}
