//! One budget for all rings of a session: how large those of each channel may be.

use super::config::SessionConfig;
use super::error::SessionError;
use nopal_live::memory_bytes;

/// What a channel may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Of the ring of one CPU.
    pub ring_bytes: u64,
    /// Rings for processes with different credentials.
    pub max_rings: usize,
}

/// A ring has at least room for some long records.
const MIN_RING_BYTES: u64 = 64 << 10;
const MAX_RING_BYTES: u64 = 1 << 30;

/// Processes of one user have one ring, and those of them that are guarded from the others another; in a control group there
/// may be several users.
fn wanted_rings(config: &SessionConfig) -> usize {
    let track = &config.track;
    let is_one_user = track.users.len() == 1 && track.cgroups.is_empty() && track.containers.is_empty();
    if is_one_user { 2 } else { 4 }
}

/// What each of so many channels may have, if the session has a budget. `n_cpus` is how many rings there are of each.
pub(crate) fn share(
    config: &SessionConfig,
    n_channels: usize,
    n_cpus: u32,
) -> Result<Option<Share>, SessionError> {
    let Some(memory) = config.memory_bytes else { return Ok(None) };
    let n_channels = n_channels.max(1) as u64;
    let room = memory / n_channels;
    let fits = |share: &Share| used_bytes(*share, n_cpus).is_some_and(|bytes| bytes <= room);
    // Rather fewer rings than none that is of any use.
    let mut max_rings = wanted_rings(config);
    while max_rings > 1 && !fits(&Share { ring_bytes: MIN_RING_BYTES, max_rings }) {
        max_rings -= 1;
    }
    let sizes = std::iter::successors(Some(MIN_RING_BYTES), |bytes| Some(bytes * 2));
    let shares =
        sizes.take_while(|bytes| *bytes <= MAX_RING_BYTES).map(|ring_bytes| Share { ring_bytes, max_rings });
    shares.take_while(fits).last().map(Some).ok_or_else(|| {
        let least = Share { ring_bytes: MIN_RING_BYTES, max_rings: 1 };
        let needed = used_bytes(least, n_cpus).unwrap_or(u64::MAX).saturating_mul(n_channels);
        let text = format!(
            "{} KiB of memory are too few for {n_channels} sets of rings (channels and triggers) on {n_cpus} CPUs",
            memory >> 10
        );
        SessionError::new("memory", text).hint(format!("give it at least {} KiB", needed.div_ceil(1024)))
    })
}

/// With the hits that no ring keeps, for which there is as much room as in the ring of one CPU.
fn used_bytes(share: Share, n_cpus: u32) -> Option<u64> {
    Some(memory_bytes(n_cpus, share.ring_bytes, share.max_rings)? + share.ring_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Rotation, Tracked};
    use std::path::PathBuf;

    fn config(memory_bytes: Option<u64>, n_users: u32) -> SessionConfig {
        let track = Tracked { users: (0..n_users).collect(), ..Tracked::default() };
        let (name, output) = ("s".to_owned(), PathBuf::from("/x"));
        let (triggers, channels) = (Vec::new(), Vec::new());
        let rotation = Rotation::default();
        SessionConfig { name, output, snapshot: true, memory_bytes, triggers, rotation, track, channels }
    }

    #[test]
    fn shares_fit_and_no_larger_one_would() {
        for memory in [1 << 20, 3 << 20, 16 << 20, 64 << 20, 1 << 30] {
            for (n_users, n_channels, n_cpus) in [(1, 1, 2), (2, 1, 2), (1, 3, 2), (1, 2, 1), (2, 2, 1)] {
                let case = format!("{memory} {n_users} {n_channels} {n_cpus}");
                let given = share(&config(Some(memory), n_users), n_channels, n_cpus);
                let Ok(Some(given)) = given else {
                    assert!(memory <= 1 << 20, "{case}");
                    continue;
                };
                let used = |share: Share| used_bytes(share, n_cpus).unwrap() * n_channels as u64;
                assert!(used(given) <= memory, "{case}");
                assert!(used(Share { ring_bytes: given.ring_bytes * 2, ..given }) > memory, "{case}");
                assert!(given.ring_bytes.is_power_of_two());
            }
        }
    }

    #[test]
    fn too_little_is_said_with_what_would_do() {
        let error = share(&config(Some(64 << 10), 1), 2, 2).unwrap_err();
        let hint = error.hint.unwrap();
        let needed: u64 = hint.split_whitespace().find_map(|word| word.parse().ok()).unwrap();
        assert!(share(&config(Some(needed << 10), 1), 2, 2).unwrap().is_some(), "{hint}");
        assert_eq!(share(&config(None, 1), 1, 2), Ok(None));
    }
}
