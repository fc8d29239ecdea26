//! The address space of a process: what is where, and where there is room.

use super::error::{Error, Result};
use std::fs;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    pub start: u64,
    pub end: u64,
    pub is_readable: bool,
    pub is_writable: bool,
    pub is_executable: bool,
    pub is_shared: bool,
    pub offset: u64,
    pub inode: u64,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maps {
    pub ranges: Vec<Range>,
}

impl Maps {
    pub fn read(pid: i32) -> Result<Maps> {
        match fs::read(format!("/proc/{pid}/maps")) {
            Ok(text) if text.is_empty() => Err(Error::Gone { pid }),
            Ok(text) => Ok(Maps::parse(&String::from_utf8_lossy(&text))),
            Err(e) if matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                Err(super::process::why_not_allowed(pid))
            }
            Err(_) => Err(Error::Gone { pid }),
        }
    }

    pub fn parse(text: &str) -> Maps {
        Maps { ranges: text.lines().filter_map(parse_line).collect() }
    }

    pub fn find_index(&self, address: u64) -> Option<(usize, &Range)> {
        let at = self.ranges.partition_point(|r| r.end <= address);
        self.ranges.get(at).filter(|r| r.start <= address).map(|r| (at, r))
    }

    pub fn find(&self, address: u64) -> Option<&Range> {
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

fn parse_line(line: &str) -> Option<Range> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?.as_bytes();
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let _device = fields.next()?;
    let inode = fields.next()?.parse().ok()?;
    let name = fields.next().unwrap_or("").trim_start().to_string();
    if rights.len() < 4 {
        return None;
    }
    Some(Range {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        is_readable: rights[0] == b'r',
        is_writable: rights[1] == b'w',
        is_executable: rights[2] == b'x',
        is_shared: rights[3] == b's',
        offset,
        inode,
        name,
    })
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
        assert_eq!(maps.ranges[0].name, "/usr/bin/a b");
        assert!(maps.ranges[1].is_executable && !maps.ranges[1].is_shared);
        assert_eq!((maps.ranges[2].inode, maps.ranges[2].offset), (77, 0x2000));
        assert_eq!(maps.find(0x7ffc00020fff).map(|r| r.name.as_str()), Some("[stack]"));
        assert_eq!(maps.find(0x7ffc00021000), None);
        assert!(maps.is_free(0x55a000002000, 0x1000));
        assert!(!maps.is_free(0x559fffffffff, 2));
        assert_eq!(maps.gaps(0x55a000001000, 0x55a000004000), [(0x55a000002000, 0x55a000004000)]);
    }
}
