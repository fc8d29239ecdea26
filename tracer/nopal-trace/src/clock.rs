//! Clocks of this machine.

/// What is to be added to CLOCK_MONOTONIC to get nanoseconds since the epoch, as of now.
pub fn monotonic_to_epoch_ns() -> i64 {
    // The wall clock is read between two readings of the other; of several tries the one with the least between counts.
    let mut best: Option<(i64, i64)> = None;
    for _ in 0..16 {
        let before = now_ns(libc::CLOCK_MONOTONIC);
        let wall = now_ns(libc::CLOCK_REALTIME);
        let after = now_ns(libc::CLOCK_MONOTONIC);
        let width = after - before;
        if best.is_none_or(|(least, _)| width < least) {
            best = Some((width, wall - (before + width / 2)));
        }
    }
    best.map_or(0, |(_, offset)| offset)
}

fn now_ns(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: time is a live timespec of this frame, and both clocks exist on every Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// CLOCK_MONOTONIC, the clock of recordings.
pub fn monotonic_ns() -> u64 {
    now_ns(libc::CLOCK_MONOTONIC) as u64
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
