//! `/proc/PID/maps`: one line for each mapping.

use super::TargetError;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One mapping of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub is_readable: bool,
    pub is_writable: bool,
    pub is_executable: bool,
    pub is_shared: bool,
    /// Where in the file it begins.
    pub offset: u64,
    pub device_major: u32,
    pub device_minor: u32,
    /// 0: not of a file.
    pub inode: u64,
    /// As the process sees it, in its own mount namespace; empty for anonymous memory, `[stack]` and the like for
    /// what the kernel made.
    pub path: PathBuf,
    /// The file has no name any more; a memfd never had one.
    pub is_deleted: bool,
}

impl Mapping {
    pub fn is_of_file(&self) -> bool {
        self.inode != 0
    }

    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Whether the kernel or the process gives it this name: `[heap]`, `/memfd:NAME`.
    pub fn is_called(&self, name: &str) -> bool {
        self.path.as_os_str() == name
    }
}

/// The mappings of a process in the order of their addresses. A zombie or a kernel thread has none.
pub fn maps(pid: u32) -> Result<Vec<Mapping>, TargetError> {
    let path = PathBuf::from(format!("/proc/{pid}/maps"));
    let text = read_whole(&path).map_err(|error| TargetError::of_process(pid, &path, &error))?;
    Ok(parse(&text))
}

/// The lines of a maps file.
pub fn parse(text: &[u8]) -> Vec<Mapping> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

/// The kernel hands out whole lines of one moment per read, so that few large reads give a truer picture than many
/// small ones.
fn read_whole(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(64 << 10);
    File::open(path)?.read_to_end(&mut text)?;
    Ok(text)
}

/// `55d0-55e0 r-xp 00001000 fe:00 1234   /usr/bin/x (deleted)`. `None` for a line that is none.
fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut field = || {
        let from = rest.iter().position(|&byte| byte != b' ')?;
        let len = rest[from..].iter().position(|&byte| byte == b' ').unwrap_or(rest.len() - from);
        let (field, after) = rest[from..].split_at(len);
        rest = after;
        std::str::from_utf8(field).ok()
    };
    let (start, end) = field()?.split_once('-')?;
    let &[readable, writable, executable, shared] = field()?.as_bytes() else { return None };
    let offset = field()?;
    let (major, minor) = field()?.split_once(':')?;
    let inode = field()?.parse().ok()?;
    // The path is all the rest, blanks included; it is separated by at least one blank.
    let path = rest.trim_ascii_start();
    let (path, is_deleted) = match path.strip_suffix(b" (deleted)") {
        Some(path) if inode != 0 => (path, true),
        _ => (path, false),
    };
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        is_readable: readable == b'r',
        is_writable: writable == b'w',
        is_executable: executable == b'x',
        is_shared: shared == b's',
        offset: u64::from_str_radix(offset, 16).ok()?,
        device_major: u32::from_str_radix(major, 16).ok()?,
        device_minor: u32::from_str_radix(minor, 16).ok()?,
        inode,
        path: PathBuf::from(OsString::from_vec(unescape(path))),
        is_deleted,
    })
}

/// The kernel writes a newline in a path as `\012` and leaves every other byte as it is.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, after)) = rest.split_first() {
        match rest.strip_prefix(b"\\012") {
            Some(after) => {
                plain.push(b'\n');
                rest = after;
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let show = |line: &str| {
            parse_line(line.as_bytes()).map(|m| {
                format!(
                    "{:x}-{:x} {}{}{}{} {:x} {:x}:{:x} {} {:?}{}",
                    m.start,
                    m.end,
                    if m.is_readable { 'r' } else { '-' },
                    if m.is_writable { 'w' } else { '-' },
                    if m.is_executable { 'x' } else { '-' },
                    if m.is_shared { 's' } else { 'p' },
                    m.offset,
                    m.device_major,
                    m.device_minor,
                    m.inode,
                    m.path,
                    if m.is_deleted { " deleted" } else { "" }
                )
            })
        };
        for (line, want) in [
            (
                "55d0a000-55d0b000 r-xp 00001000 fe:00 1234                       /usr/bin/my program",
                "55d0a000-55d0b000 r-xp 1000 fe:0 1234 \"/usr/bin/my program\"",
            ),
            (
                "7f00-8000 rw-s 00000000 00:01 77 /memfd:nopal (deleted)",
                "7f00-8000 rw-s 0 0:1 77 \"/memfd:nopal\" deleted",
            ),
            ("7f00-8000 rw-p 00000000 00:00 0 ", "7f00-8000 rw-p 0 0:0 0 \"\""),
            ("7f00-8000 rw-p 00000000 00:00 0 [heap]", "7f00-8000 rw-p 0 0:0 0 \"[heap]\""),
            ("1-2 r--p 0 0:1 7 /a\\012b", "1-2 r--p 0 0:1 7 \"/a\\nb\""),
        ] {
            assert_eq!(show(line).as_deref(), Some(want), "{line}");
        }
        for line in
            ["", "x", "1-2", "1-2 r--p", "1-2 r--p 0 0:1", "g-2 r--p 0 0:1 7 /a", "1-2 r-p 0 0:1 7 /a"]
        {
            assert_eq!(show(line), None, "{line}");
        }
    }

    #[test]
    fn this_process_maps_its_own_program() {
        let program = std::env::current_exe().expect("the test has a path");
        let maps = maps(std::process::id()).expect("a process may read itself");
        assert!(maps.iter().any(|m| m.path == program && m.is_executable));
        assert!(maps.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }

    #[test]
    fn a_pid_that_nobody_has() {
        assert_eq!(maps(u32::MAX), Err(TargetError::NoSuchProcess { pid: u32::MAX }));
    }
}
