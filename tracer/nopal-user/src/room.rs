//! Where in the target's address space something may be put: free, and not in the way of what is going to grow.

use super::error::{Error, Result};
use super::maps::Maps;
use super::process;

const PAGE: u64 = 4096;
/// Nothing may be mapped below this (vm.mmap_min_addr) nor above the end of user space.
const LOWEST: u64 = 0x1_0000;
const HIGHEST: u64 = 0x7fff_ffff_f000;
/// What the heap may still grow by before it meets a page of ours; malloc then falls back to mmap.
const HEAP_MARGIN: u64 = 128 << 20;
/// The same where a site could not be opened otherwise.
const NARROW_HEAP_MARGIN: u64 = 32 << 20;
/// What an unlimited stack is left.
const STACK_MARGIN: u64 = 1 << 30;
/// The kernel keeps a gap below a growing stack.
const STACK_GAP: u64 = 256 * PAGE;
/// The reach of a jump, less what may lie between a site and the far end of a space.
const REACH: u64 = (2 << 30) - (64 << 20);

/// The address space of one process at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    pid: i32,
    pub maps: Maps,
    heap: (u64, u64),
    stack: (u64, u64),
}

impl Room {
    pub(crate) fn read(pid: i32) -> Result<Room> {
        let maps = Maps::read(pid)?;
        let start = process::heap_start(pid).unwrap_or(0);
        Ok(Room::new(pid, maps, start, process::stack_limit(pid)))
    }

    fn new(pid: i32, maps: Maps, heap_start: u64, stack_limit: Option<u64>) -> Room {
        let named = |name: &str| maps.ranges.iter().find(|r| r.is_called(name));
        let heap = match named("[heap]") {
            Some(range) => (range.start, range.end.saturating_add(HEAP_MARGIN)),
            None if heap_start != 0 => (heap_start, heap_start.saturating_add(HEAP_MARGIN)),
            None => (0, 0),
        };
        let stack = named("[stack]").map_or((0, 0), |range| {
            let growth = stack_limit.unwrap_or(STACK_MARGIN).max(range.end - range.start) + STACK_GAP;
            (range.end.saturating_sub(growth), range.end)
        });
        Room { pid, maps, heap, stack }
    }

    /// `Ok` if `start..start + len` can be mapped without being in anybody's way; else who is there.
    pub(crate) fn check(&self, start: u64, len: u64) -> std::result::Result<(), String> {
        self.check_beside(self.heap, start, len)
    }

    /// The same, leaving the heap no more room than it needs for a while.
    pub(crate) fn check_narrowly(&self, start: u64, len: u64) -> std::result::Result<(), String> {
        let heap = (self.heap.0, self.heap.1.saturating_sub(HEAP_MARGIN - NARROW_HEAP_MARGIN));
        self.check_beside(heap, start, len)
    }

    fn check_beside(&self, heap: (u64, u64), start: u64, len: u64) -> std::result::Result<(), String> {
        let end = start.checked_add(len).ok_or("the end of the address space")?;
        if start < LOWEST {
            return Err("the lowest addresses, which no process may map".into());
        }
        if end > HIGHEST {
            return Err("addresses above user space".into());
        }
        let overlaps = |zone: (u64, u64)| start < zone.1 && zone.0 < end;
        if overlaps(heap) {
            return Err("the heap, which grows there".into());
        }
        if overlaps(self.stack) {
            return Err("the stack, which grows there".into());
        }
        let at = self.maps.ranges.partition_point(|r| r.end <= start);
        match self.maps.ranges.get(at) {
            Some(range) if range.start < end => Err(if range.is_called("") {
                "the program's own memory".into()
            } else {
                range.path.display().to_string()
            }),
            _ => Ok(()),
        }
    }

    /// A free stretch of `len` bytes from which every address in `text` can be reached, and the other way round.
    /// Directly below the code if possible, since nothing grows there; else as near above as can be.
    pub(crate) fn near(&self, text: (u64, u64), len: u64) -> Result<u64> {
        let low = text.1.saturating_sub(REACH).max(LOWEST);
        let high = text.0.saturating_add(REACH).min(HIGHEST);
        let gaps = self.maps.gaps(low, high);
        let align = |address: u64| address & !(PAGE - 1);
        let below = gaps.iter().rev().filter(|gap| gap.0 < text.0).flat_map(|gap| {
            let end = gap.1.min(text.0);
            // Some distance first: the kernel maps new memory at the upper end of a gap.
            let distances = [256 << 20, 16 << 20, 1 << 20, 0];
            distances.map(|distance: u64| (end.saturating_sub(len + distance), *gap))
        });
        let above = gaps.iter().filter(|gap| gap.1 > text.1).flat_map(|gap| {
            let far = gap.1.saturating_sub(len);
            [gap.0.max(self.heap.1).max(text.1) + (1 << 20), far].map(|start| (start, *gap))
        });
        below
            .chain(above)
            .map(|(start, gap)| (align(start), gap))
            .find(|(start, gap)| *start >= gap.0 && start + len <= gap.1 && self.check(*start, len).is_ok())
            .map(|(start, _)| start)
            .ok_or(Error::NoRoom { pid: self.pid, near: text.0 })
    }
}

/// A free stretch where no jump of a site can land, if there is one: as far below everything as jumps reach, and farther.
pub(crate) fn far_from_code(maps: &Maps, len: u64) -> Option<u64> {
    const DISTANCE: u64 = 8 << 30;
    let gaps = maps.gaps(LOWEST, HIGHEST);
    let largest = gaps.iter().max_by_key(|gap| gap.1 - gap.0)?;
    let start = largest.1.checked_sub(DISTANCE + len)? & !(PAGE - 1);
    (start >= largest.0.checked_add(DISTANCE)?).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_need_not_be_near_is_far() {
        let maps = Maps::parse(SAMPLE);
        let far = far_from_code(&maps, 1 << 20).expect("room");
        let is_far = |range: &nopal_proc::Mapping| {
            range.end + (8 << 30) <= far || far + (1 << 20) + (8 << 30) <= range.start
        };
        assert!(maps.ranges.iter().all(is_far), "{far:#x}");
        assert_eq!(far_from_code(&Maps::parse(SAMPLE), 1 << 47), None);
    }

    const SAMPLE: &str = "\
00400000-00500000 r-xp 00000000 fe:00 1 /bin/fixed
01000000-01100000 rw-p 00000000 00:00 0 [heap]
555555000000-555555100000 r-xp 00000000 fe:00 2 /bin/moved
7f0000000000-7f0010000000 r-xp 00000000 fe:00 3 /lib/a.so
7ffffff00000-7ffffff21000 rw-p 00000000 00:00 0 [stack]
";

    fn room() -> Room {
        Room::new(1, Maps::parse(SAMPLE), 0, Some(8 << 20))
    }

    #[test]
    fn what_is_in_the_way() {
        for (start, expected) in [
            (0x1000, "Err(\"the lowest addresses, which no process may map\")"),
            (0x400000, "Err(\"/bin/fixed\")"),
            (0x3ff000, "Ok(())"),
            (0x3ff800, "Err(\"/bin/fixed\")"),
            (0x1100000, "Err(\"the heap, which grows there\")"),
            (0xa000000, "Ok(())"),
            (0x7fffff900000, "Err(\"the stack, which grows there\")"),
            (0x7ffff0000000, "Ok(())"),
            (0xffff_f000_0000_0000, "Err(\"addresses above user space\")"),
            (u64::MAX, "Err(\"the end of the address space\")"),
        ] {
            assert_eq!(format!("{:?}", room().check(start, 4096)), expected, "{start:#x}");
        }
    }

    #[test]
    fn the_heap_is_left_less_room_where_it_must_be() {
        for (start, is_free) in
            [(0x1100000, false), (0x1100000 + (31 << 20), false), (0x1100000 + (32 << 20), true)]
        {
            assert!(room().check(start, 4096).is_err());
            assert_eq!(room().check_narrowly(start, 4096).is_ok(), is_free, "{start:#x}");
        }
        assert!(room().check_narrowly(0x400000, 4096).is_err());
    }

    #[test]
    fn space_is_found_on_the_safe_side() {
        let len = 4 << 20;
        for text in [(0x555555000000, 0x555555100000), (0x7f0000000000, 0x7f0010000000)] {
            let start = room().near(text, len).unwrap();
            assert!(
                start + len <= text.0 && text.1 - start < 2 << 30,
                "{start:#x} is just below {:#x}",
                text.0
            );
        }
        // Below a fixed program there is no room; between it and its heap there is, or behind all the heap may take.
        let start = room().near((0x400000, 0x500000), len).unwrap();
        assert!(start >= 0x500000 && start + len <= 0x1000000, "{start:#x} is between program and heap");
        let start = room().near((0x400000, 0x500000), 16 << 20).unwrap();
        assert!(
            (0x1100000 + HEAP_MARGIN..0x400000 + (2 << 30)).contains(&start),
            "{start:#x} is behind the heap"
        );
    }

    #[test]
    fn a_full_neighbourhood_is_said_to_be_full() {
        let text = "10000-200000000 rw-p 00000000 00:00 0 \n";
        let room = Room::new(7, Maps::parse(text), 0, None);
        assert!(matches!(room.near((0x400000, 0x500000), 4096), Err(Error::NoRoom { pid: 7, .. })));
    }
}
