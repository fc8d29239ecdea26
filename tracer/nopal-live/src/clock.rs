//! Turns time stamp counter readings into nanoseconds of CLOCK_MONOTONIC: continuous, never backwards, corrected once a
//! second so that the two clocks do not drift apart.

use crate::door_order::NEAR_NS;
use nopal_trace::clock::monotonic_ns;
use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// One reading of both clocks at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    pub tsc: u64,
    pub monotonic_ns: u64,
}

/// From `tsc` on, time runs at `rate` nanoseconds a tick, in units of 2^-32.
#[derive(Debug, Clone, Copy)]
struct Segment {
    tsc: u64,
    ns: u64,
    rate: u64,
}

/// Converts readings between the anchors it was given, and a little beyond the last one.
#[derive(Debug, Clone)]
pub struct TscClock {
    first: Anchor,
    last: Anchor,
    segments: VecDeque<Segment>,
    /// How far it was off at the last corrections, the older ones less and less.
    error_ns: u64,
}

/// Records older than this many corrections are converted by the oldest segment that is kept.
const MAX_SEGMENTS: usize = 64;
/// A correction spreads over the time until the next one, so that time is bent and never jumps: at most this long, and as
/// long as [`GROWTH`] times what was measured so far, as a rate that was measured over a short time is less exact.
const HORIZON_NS: u64 = 1_000_000_000;
const GROWTH: u64 = 2;
/// No correction changes the rate by more than one part in this many.
const MAX_BEND: u64 = 1_000;

/// Whether the counter can serve as a clock on this machine.
pub fn is_tsc_steady() -> bool {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let sources = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/available_clocksource");
    is_steady(&cpuinfo, sources.as_deref().unwrap_or("tsc"))
}

/// The CPU promises one rate in all its states, and the kernel has not taken the counter off its list of clocks.
fn is_steady(cpuinfo: &str, clock_sources: &str) -> bool {
    let Some(flags) = cpuinfo.lines().find(|l| l.starts_with("flags")) else { return false };
    let has = |words: &str, word: &str| words.split_whitespace().any(|w| w == word);
    has(flags, "constant_tsc") && has(flags, "nonstop_tsc") && has(clock_sources, "tsc")
}

impl Anchor {
    /// Reads both clocks; of several tries the one that took the shortest time.
    pub fn now() -> Anchor {
        (0..8)
            .map(|_| {
                let before = read_tsc();
                let monotonic_ns = monotonic_ns();
                let after = read_tsc();
                (after.wrapping_sub(before), Anchor { tsc: before / 2 + after / 2, monotonic_ns })
            })
            .min_by_key(|(took, _)| *took)
            .map(|(_, anchor)| anchor)
            .expect("the range is not empty")
    }
}

fn read_tsc() -> u64 {
    // SAFETY: reading the counter has no effect on memory; user code may read it unless the kernel forbids it by prctl.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The one clock of this process as a reader has it: whoever corrects it does so for all, so that readers agree on the time
/// of a reading.
#[derive(Debug)]
pub struct SharedClock {
    copy: TscClock,
    n_corrections: u64,
}

static CLOCK: OnceLock<Mutex<TscClock>> = OnceLock::new();
/// How often it was corrected: a copy with fewer corrections is old.
static N_CORRECTIONS: AtomicU64 = AtomicU64::new(0);

impl SharedClock {
    /// The first of a process takes a few milliseconds.
    pub fn get() -> SharedClock {
        let clock = CLOCK.get_or_init(|| Mutex::new(TscClock::start()));
        let clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
        SharedClock { copy: clock.clone(), n_corrections: N_CORRECTIONS.load(Ordering::Acquire) }
    }

    /// Takes over what others have corrected, and corrects the clock if it is time, or `is_now`.
    pub fn follow(&mut self, is_now: bool) {
        let is_old = N_CORRECTIONS.load(Ordering::Acquire) != self.n_corrections;
        if !is_old && !is_now && !self.copy.is_due() {
            return;
        }
        let Some(clock) = CLOCK.get() else { return };
        let mut clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
        if is_now || clock.is_due() {
            clock.correct(Anchor::now());
            N_CORRECTIONS.fetch_add(1, Ordering::Release);
        }
        self.copy.clone_from(&clock);
        self.n_corrections = N_CORRECTIONS.load(Ordering::Acquire);
    }

    /// Nanoseconds of CLOCK_MONOTONIC at a reading of the counter.
    #[inline]
    pub fn ns(&self, tsc: u64) -> u64 {
        self.copy.ns(tsc)
    }

    /// How far it may be from CLOCK_MONOTONIC, going by how far it was off the last times.
    pub fn doubt_ns(&self) -> u64 {
        NEAR_NS.max(2 * self.copy.error_ns)
    }

    /// Nanoseconds a tick, in units of 2^-32, as far as is known by now.
    pub fn rate(&self) -> u64 {
        self.copy.rate()
    }
}

impl TscClock {
    /// Takes two readings a few milliseconds apart for a first rate.
    pub fn start() -> TscClock {
        let first = Anchor::now();
        std::thread::sleep(Duration::from_millis(5));
        TscClock::new(first, Anchor::now())
    }

    /// `second` must be later than `first`.
    pub fn new(first: Anchor, second: Anchor) -> TscClock {
        let rate = rate(first, second).unwrap_or(1 << 32);
        let segments = VecDeque::from([Segment { tsc: first.tsc, ns: first.monotonic_ns, rate }]);
        TscClock { first, last: second, segments, error_ns: 0 }
    }

    /// How long after the last reading the next one is due.
    fn horizon_ns(&self) -> u64 {
        let measured_ns = self.last.monotonic_ns.saturating_sub(self.first.monotonic_ns);
        (GROWTH * measured_ns).clamp(1_000_000, HORIZON_NS)
    }

    fn rate(&self) -> u64 {
        rate(self.first, self.last).unwrap_or(1 << 32)
    }

    /// When it is time for the next [`TscClock::correct`].
    pub fn is_due(&self) -> bool {
        monotonic_ns() >= self.last.monotonic_ns + self.horizon_ns()
    }

    /// Bends the clock so that it meets CLOCK_MONOTONIC when the next correction is due.
    pub fn correct(&mut self, now: Anchor) {
        let Some(measured) = rate(self.first, now).filter(|_| now.tsc > self.last.tsc) else { return };
        let ns = self.ns(now.tsc);
        self.last = now;
        let error = now.monotonic_ns as i128 - i128::from(ns);
        self.error_ns = now.monotonic_ns.abs_diff(ns).max(self.error_ns / 2);
        let horizon_ns = i128::from(self.horizon_ns());
        let wanted = i128::from(measured) * (horizon_ns + error) / horizon_ns;
        let bend = i128::from(measured / MAX_BEND);
        let bent = wanted.clamp(i128::from(measured) - bend, i128::from(measured) + bend);
        self.segments.push_back(Segment { tsc: now.tsc, ns, rate: bent as u64 });
        if self.segments.len() > MAX_SEGMENTS {
            self.segments.pop_front();
        }
    }

    /// Nanoseconds of CLOCK_MONOTONIC at a reading of the counter.
    #[inline]
    pub fn ns(&self, tsc: u64) -> u64 {
        let segment = self
            .segments
            .iter()
            .rev()
            .find(|s| s.tsc <= tsc)
            .unwrap_or_else(|| self.segments.front().expect("a clock has a segment"));
        let ticks = i128::from(tsc) - i128::from(segment.tsc);
        let ns = i128::from(segment.ns) + ((ticks * i128::from(segment.rate)) >> 32);
        ns.clamp(0, i128::from(u64::MAX)) as u64
    }
}

fn rate(from: Anchor, to: Anchor) -> Option<u64> {
    let ticks = u128::from(to.tsc.checked_sub(from.tsc)?);
    let ns = u128::from(to.monotonic_ns.checked_sub(from.monotonic_ns)?);
    u64::try_from((ns << 32).checked_div(ticks)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor(tsc: u64, monotonic_ns: u64) -> Anchor {
        Anchor { tsc, monotonic_ns }
    }

    #[test]
    fn all_readers_of_a_process_have_one_time() {
        let (mut one, mut other) = (SharedClock::get(), SharedClock::get());
        for _ in 0..5 {
            std::thread::sleep(Duration::from_millis(2));
            one.follow(true);
            other.follow(false);
            let now = Anchor::now().tsc;
            for tsc in [now, now - 1_000_000, now + 1_000_000_000] {
                assert_eq!(one.ns(tsc), other.ns(tsc));
            }
        }
    }

    #[test]
    fn a_reading_between_anchors_is_interpolated() {
        let clock = TscClock::new(anchor(1_000, 500), anchor(3_000, 1_500));
        assert_eq!([1_000, 2_000, 3_000, 5_000].map(|tsc| clock.ns(tsc)), [500, 1_000, 1_500, 2_500]);
        assert_eq!(clock.ns(0), 0);
    }

    #[test]
    fn corrections_bend_time_and_never_turn_it_back() {
        // The first rate is wrong by 200 parts in a million.
        let mut clock = TscClock::new(anchor(0, 0), anchor(2_000_000, 1_000_200));
        let mut before = 0;
        for second in 1..=10u64 {
            let tsc = second * 2_000_000_000;
            for step in (0..1_000).map(|i| tsc - 2_000_000_000 + i * 2_000_000) {
                let ns = clock.ns(step);
                assert!(ns >= before, "{ns} after {before}");
                before = ns;
            }
            clock.correct(anchor(tsc, second * 1_000_000_000));
        }
        let end = clock.ns(22_000_000_000);
        assert!(end.abs_diff(11_000_000_000) < 1_000, "{end}");
    }

    #[test]
    fn the_machines_clocks_agree() {
        let mut clock = TscClock::start();
        std::thread::sleep(Duration::from_millis(20));
        clock.correct(Anchor::now());
        let now = Anchor::now();
        let difference = clock.ns(now.tsc).abs_diff(now.monotonic_ns);
        assert!(difference < 100_000, "{difference} ns apart");
    }

    #[test]
    fn a_steady_counter_has_both_flags() {
        assert!(is_steady("model\nflags : fpu constant_tsc rdtscp nonstop_tsc\n", "kvm-clock tsc\n"));
        assert!(!is_steady("flags : fpu constant_tsc nonstop_tsc", "hpet acpi_pm\n"));
        assert!(!is_steady("flags : fpu constant_tsc", "tsc"));
        assert!(!is_steady("", "tsc"));
    }
}
