//! Clocks of this machine: CLOCK_MONOTONIC, which is the clock of recordings, and its distance to others.

/// What is to be added to CLOCK_MONOTONIC to get nanoseconds since the epoch, as of now.
pub fn monotonic_to_epoch_ns() -> i64 {
    let (wall, monotonic) = closest(|| now_ns(libc::CLOCK_REALTIME));
    wall - monotonic
}

/// What is to be added to CLOCK_MONOTONIC to get CLOCK_TAI, as of now.
pub fn monotonic_to_tai_ns() -> i64 {
    let (tai, monotonic) = closest(|| now_ns(libc::CLOCK_TAI));
    tai - monotonic
}

/// A time of CLOCK_MONOTONIC as nanoseconds since the epoch, by the distance of now.
pub fn epoch_ns(monotonic_ns: u64) -> i64 {
    monotonic_to_epoch_ns().saturating_add_unsigned(monotonic_ns)
}

/// CLOCK_MONOTONIC, the clock of recordings.
pub fn monotonic_ns() -> u64 {
    now_ns(libc::CLOCK_MONOTONIC) as u64
}

fn now_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is a live timespec of this frame, and these clocks exist on every Linux.
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
}
