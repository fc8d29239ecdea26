//! The address space of a process: what is where, and where there is room.

use super::error::{Error, Result};
use super::ring;
use nopal_proc::{self, Mapping};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maps {
    pub ranges: Vec<Mapping>,
}

/// Whether this is a memfd of that name, as `/proc/PID/maps` writes it. Its inode is then one that no other live memfd has; a
/// file that somebody has called so is on another device, where he may choose its inode.
pub fn is_memfd(range: &Mapping, name: &str) -> bool {
    static DEVICE: OnceLock<Option<u64>> = OnceLock::new();
    let device = || Some(File::from(ring::memfd(c"nopal-device").ok()?).metadata().ok()?.dev());
    let of_range = libc::makedev(range.device_major, range.device_minor);
    range.is_called(name) && DEVICE.get_or_init(device).is_none_or(|device| device == of_range)
}

impl Maps {
    pub fn read(pid: i32) -> Result<Maps> {
        match nopal_proc::maps(pid as u32) {
            // A zombie has none.
            Ok(ranges) if ranges.is_empty() => Err(Error::Gone { pid }),
            Ok(ranges) => Ok(Maps { ranges }),
            Err(error) => Err(Error::of_target(pid, error)),
        }
    }

    pub fn parse(text: &str) -> Maps {
        Maps { ranges: nopal_proc::parse_maps(text.as_bytes()) }
    }

    pub fn find_index(&self, address: u64) -> Option<(usize, &Mapping)> {
        let at = self.ranges.partition_point(|r| r.end <= address);
        self.ranges.get(at).filter(|r| r.start <= address).map(|r| (at, r))
    }

    pub fn find(&self, address: u64) -> Option<&Mapping> {
        self.find_index(address).map(|(_, r)| r)
    }

    /// True if nothing is mapped in `start..start + len`.
    pub fn is_free(&self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        let at = self.ranges.partition_point(|r| r.end <= start);
        self.ranges.get(at).is_none_or(|r| r.start >= end)
    }

    /// The unmapped stretches between `low` and `high`.
    pub fn gaps(&self, low: u64, high: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut from = low;
        for range in &self.ranges {
            if range.start > from && from < high {
                gaps.push((from, range.start.min(high)));
            }
            from = from.max(range.end);
        }
        if from < high {
            gaps.push((from, high));
        }
        gaps
    }
}

/// The code a process maps from files.
pub(super) fn code_mappings(pid: i32) -> Vec<(u64, u64)> {
    let Ok(maps) = Maps::read(pid) else { return Vec::new() };
    maps.ranges
        .iter()
        .filter(|r| r.is_executable && r.inode != 0 && !r.is_shared)
        .map(|r| (r.start, r.inode))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
55a000000000-55a000001000 r--p 00000000 fe:00 1234                       /usr/bin/a b
55a000001000-55a000002000 r-xp 00001000 fe:00 1234                       /usr/bin/a b
7f0000000000-7f0000001000 rw-s 00002000 00:01 77 /memfd:nopal (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn lines_and_gaps() {
        let maps = Maps::parse(SAMPLE);
        assert_eq!(maps.ranges.len(), 4);
        assert!(maps.ranges[0].is_called("/usr/bin/a b"));
        assert!(maps.ranges[1].is_executable && !maps.ranges[1].is_shared);
        assert_eq!((maps.ranges[2].inode, maps.ranges[2].offset), (77, 0x2000));
        assert!(maps.find(0x7ffc00020fff).is_some_and(|r| r.is_called("[stack]")));
        assert_eq!(maps.find(0x7ffc00021000), None);
        assert!(maps.is_free(0x55a000002000, 0x1000));
        assert!(!maps.is_free(0x559fffffffff, 2));
        assert_eq!(maps.gaps(0x55a000001000, 0x55a000004000), [(0x55a000002000, 0x55a000004000)]);
    }
}
