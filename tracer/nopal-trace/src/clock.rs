//! Clocks of this machine: CLOCK_MONOTONIC, which is the clock of recordings, its distance to the wall clock, and the
//! time stamp counter turned into it.

use std::fs;

/// What is to be added to CLOCK_MONOTONIC to get nanoseconds since the epoch, as of now.
pub fn monotonic_to_epoch_ns() -> i64 {
    let (wall, monotonic) = closest(|| now_ns(libc::CLOCK_REALTIME));
    wall - monotonic
}

/// CLOCK_MONOTONIC, the clock of recordings.
pub fn monotonic_ns() -> u64 {
    now_ns(libc::CLOCK_MONOTONIC) as u64
}

fn now_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is a live timespec of this frame, and both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Reads another clock between two readings of CLOCK_MONOTONIC; of several tries the tightest counts.
fn closest<T>(mut read: impl FnMut() -> T) -> (T, i64) {
    let mut best: Option<(i64, T, i64)> = None;
    for _ in 0..16 {
        let before = now_ns(libc::CLOCK_MONOTONIC);
        let value = read();
        let width = now_ns(libc::CLOCK_MONOTONIC) - before;
        match &best {
            Some((least, _, _)) if width >= *least => {}
            _ => best = Some((width, value, before + width / 2)),
        }
    }
    let (_, value, monotonic) = best.expect("the loop runs 16 times");
    (value, monotonic)
}

/// Turns the time stamp counter into CLOCK_MONOTONIC. The rate is taken from two readings of both clocks, the further
/// apart the better, so [`TscClock::update`] is worth calling now and then; it never makes time go back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TscClock {
    /// The reading that the rate is measured from.
    first: Sample,
    /// The reading that times are counted from.
    base: Sample,
    /// Nanoseconds a tick, times 2^32.
    ns_per_tick: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample {
    tsc: u64,
    ns: i64,
}

impl TscClock {
    /// `None` where the counter cannot be trusted: not x86-64, it stops or changes its rate, or the kernel itself has
    /// turned away from it. Then stubs must take their time from elsewhere. Takes 10 ms.
    pub fn calibrate() -> Option<TscClock> {
        if !is_tsc_stable() {
            return None;
        }
        let first = sample()?;
        std::thread::sleep(std::time::Duration::from_millis(10));
        let mut clock = TscClock { first, base: first, ns_per_tick: 0 };
        clock.ns_per_tick = rate(first, sample()?)?;
        Some(clock)
    }

    /// Measures the rate anew. Times from here on are the better for it; times already given out stay before them.
    pub fn update(&mut self) {
        let Some(now) = sample() else { return };
        let Some(rate) = rate(self.first, now) else { return };
        // From the present of the old line on, so that the two meet.
        self.base = Sample { tsc: now.tsc, ns: self.ns(now.tsc) as i64 };
        // The old line may be off by then; the new one makes up for it over the next second.
        let error_ns = now.ns - self.base.ns;
        let correction = (i128::from(rate) * i128::from(error_ns) / 1_000_000_000)
            .clamp(-i128::from(rate / 100), i128::from(rate / 100));
        self.ns_per_tick = (i128::from(rate) + correction) as u64;
    }

    /// CLOCK_MONOTONIC at the moment when the counter was `tsc`.
    #[inline]
    pub fn ns(&self, tsc: u64) -> u64 {
        let ticks = i128::from(tsc) - i128::from(self.base.tsc);
        let ns = i128::from(self.base.ns) + ((ticks * i128::from(self.ns_per_tick)) >> 32);
        u64::try_from(ns.max(0)).unwrap_or(u64::MAX)
    }

    pub fn ticks_per_second(&self) -> u64 {
        ((1_000_000_000u128 << 32) / u128::from(self.ns_per_tick.max(1))) as u64
    }
}

fn rate(from: Sample, to: Sample) -> Option<u64> {
    let ticks = to.tsc.checked_sub(from.tsc).filter(|t| *t > 0)?;
    let ns = u128::try_from(to.ns.checked_sub(from.ns)?).ok().filter(|ns| *ns > 0)?;
    u64::try_from((ns << 32) / u128::from(ticks)).ok().filter(|rate| *rate > 0)
}

fn sample() -> Option<Sample> {
    let (tsc, ns) = closest(read_tsc);
    Some(Sample { tsc: tsc?, ns })
}

#[cfg(target_arch = "x86_64")]
fn read_tsc() -> Option<u64> {
    // SAFETY: every x86-64 CPU has rdtsc, and it touches no memory.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn read_tsc() -> Option<u64> {
    None
}

/// The CPU promises a constant rate that never stops, and the kernel has not found it broken.
fn is_tsc_stable() -> bool {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| {
        cpu.lines().find(|l| l.starts_with("flags")).is_some_and(|l| l.split(' ').any(|word| word == flag))
    };
    // The kernel takes an unstable counter off this list. (It may prefer another clock, as guests often do.)
    let sources = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/available_clocksource");
    let is_offered = sources.map_or(true, |list| list.split_whitespace().any(|name| name == "tsc"));
    has("constant_tsc") && has("nonstop_tsc") && is_offered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_leads_to_the_wall_clock() {
        let offset = monotonic_to_epoch_ns();
        let wall =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64;
        let apart = (monotonic_ns() as i64 + offset - wall).abs();
        assert!(apart < 1_000_000_000, "{apart} ns apart");
    }

    #[test]
    fn the_counter_becomes_the_monotonic_clock() {
        let Some(mut clock) = TscClock::calibrate() else {
            assert!(!is_tsc_stable());
            return;
        };
        let mut last = 0;
        for _ in 0..5 {
            let before = monotonic_ns();
            let Some(tsc) = read_tsc() else { return };
            let after = monotonic_ns();
            let ns = clock.ns(tsc);
            // A microsecond of tolerance, and what the two readings themselves leave open.
            assert!(before.saturating_sub(1_000) <= ns && ns <= after + 1_000, "{before} {ns} {after}");
            assert!(ns >= last);
            last = ns;
            clock.update();
            assert!(clock.ns(tsc).abs_diff(ns) <= 1_000, "a time given out stays where it is");
        }
    }

    #[test]
    fn an_update_never_makes_time_go_back() {
        let first = Sample { tsc: 1_000, ns: 5_000 };
        let clock = TscClock { first, base: first, ns_per_tick: (1 << 32) / 2 };
        assert_eq!(clock.ns(1_000), 5_000);
        assert_eq!(clock.ns(3_000), 6_000);
        assert_eq!(clock.ns(0), 4_500);
        assert_eq!(clock.ticks_per_second(), 2_000_000_000);
        assert_eq!(rate(first, Sample { tsc: 1_000, ns: 6_000 }), None);
        assert_eq!(rate(first, Sample { tsc: 3_000, ns: 4_000 }), None);
        assert_eq!(rate(first, Sample { tsc: 3_000, ns: 6_000 }), Some((1 << 32) / 2));
    }
}
