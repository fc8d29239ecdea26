//! How often the rings of running programs are read.

use std::time::Duration;

/// A reading that gave fewer hits than this is followed by a rest.
const FEW: u64 = 1000;
/// What comes in meanwhile has room in the rings.
const REST: Duration = Duration::from_millis(5);

/// Rests before the rings are read again, unless so much came that more is likely to wait. Whoever reads again at once, as long as
/// anything comes, takes a CPU from the traced programs, and from their processors the line with the ring's head.
pub(crate) fn rest(n_hits: u64) {
    if n_hits < FEW {
        std::thread::sleep(REST);
    }
}
