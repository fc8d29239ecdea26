//! A CPU can have several streams in a recording of ours; the number of each says which door its events came by.

/// The high half of a stream's instance number; the low half is the CPU.
const PART_SHIFT: u32 = 32;
const KINDS: u32 = 3;
/// Of [`KINDS`].
const BY_KERNEL: u32 = 2;

/// How the events of a stream came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamWay {
    /// By the user door, with restartable sequences.
    Rseq,
    /// By the user door, without.
    Locked,
    Kernel,
}

impl StreamWay {
    /// The number of a stream of one CPU, of rings that are numbered from 0 on.
    pub fn part(self, ring: u32) -> u32 {
        let kind = match self {
            StreamWay::Rseq => 0,
            StreamWay::Locked => 1,
            StreamWay::Kernel => BY_KERNEL,
        };
        ring * KINDS + kind
    }
}

pub(crate) fn instance(part: u32, cpu: u32) -> u64 {
    u64::from(part) << PART_SHIFT | u64::from(cpu)
}

/// Whether the events of a stream of ours came by the kernel door.
pub(crate) fn is_by_kernel(instance: u64) -> bool {
    (instance >> PART_SHIFT) as u32 % KINDS == BY_KERNEL
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_door_is_known_from_the_number() {
        for (way, ring, is_kernel) in [
            (StreamWay::Rseq, 0, false),
            (StreamWay::Locked, 0, false),
            (StreamWay::Kernel, 0, true),
            (StreamWay::Rseq, 7, false),
            (StreamWay::Kernel, 7, true),
        ] {
            assert_eq!(is_by_kernel(instance(way.part(ring), 5)), is_kernel, "{way:?} {ring}");
        }
        assert_eq!([StreamWay::Rseq, StreamWay::Locked, StreamWay::Kernel].map(|way| way.part(1)), [3, 4, 5]);
    }
}
