//! Where the code of recorded addresses was: a small text file beside the streams, a line for each piece of a file that a process
//! had mapped when one of its addresses was recorded: `vpid since start end offset build-id path`, numbers in hexadecimal but for
//! the process, the time in nanoseconds since the epoch. What it says holds until another line says otherwise of the same place.

use crate::error::Error;
use nopal_files::foreign;
use nopal_files::own::Folder;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const FOLDER: &str = "nopal";
const FILE: &str = "code";
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A piece of a file in the memory of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    pub start: u64,
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// Empty if the file has none.
    pub build_id: Vec<u8>,
    pub path: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    /// Since the epoch.
    since_ns: i64,
    code: Code,
}

/// What a recording says of its addresses, by process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeTable(HashMap<i64, Vec<Line>>);

impl CodeTable {
    pub(crate) fn read(dir: &Path) -> CodeTable {
        let bytes = foreign::read(&dir.join(FOLDER).join(FILE), MAX_FILE_BYTES);
        bytes.map_or_else(|_| CodeTable::default(), |bytes| CodeTable::parse(&bytes))
    }

    /// A line that was cut short or makes no sense is passed over.
    pub(crate) fn parse(bytes: &[u8]) -> CodeTable {
        // Without its newline the last path may be half of one.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |at| &bytes[..at]);
        let mut table = CodeTable::default();
        for (pid, line) in whole.split(|byte| *byte == b'\n').filter_map(line) {
            table.0.entry(pid).or_default().push(line);
        }
        table
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn lines(&self, pid: i64) -> &[Line] {
        self.0.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// What was at an address of a process at a time.
    pub fn at(&self, pid: i64, ns: i64, address: u64) -> Option<&Code> {
        let newest = self.lines(pid).iter().rev().find(|line| line.since_ns <= ns && line.holds(address));
        newest.map(|line| &line.code)
    }

    /// What was at an address of a process all the time; nothing if that has changed.
    pub fn always_at(&self, pid: i64, address: u64) -> Option<&Code> {
        let mut holding = self.lines(pid).iter().filter(|line| line.holds(address)).map(|line| &line.code);
        let first = holding.next()?;
        let is_same = |other: &Code| {
            let distance = |code: &Code| code.start.wrapping_sub(code.offset);
            other.path == first.path && other.build_id == first.build_id && distance(other) == distance(first)
        };
        holding.all(is_same).then_some(first)
    }
}

impl Line {
    fn holds(&self, address: u64) -> bool {
        (self.code.start..self.code.end).contains(&address)
    }
}

fn line(bytes: &[u8]) -> Option<(i64, Line)> {
    let mut parts = bytes.splitn(7, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (pid, since_ns) = (text()?.parse().ok()?, text()?.parse().ok()?);
    let mut hexadecimal = || u64::from_str_radix(text()?, 16).ok();
    let (start, end, offset) = (hexadecimal()?, hexadecimal()?, hexadecimal()?);
    let build_id = text()?;
    let build_id = if build_id == "-" { Vec::new() } else { bytes_of(build_id)? };
    let path = parts.next().filter(|path| !path.is_empty())?;
    let path = PathBuf::from(OsStr::from_bytes(path));
    Some((pid, Line { since_ns, code: Code { start, end, offset, build_id, path } }))
}

fn bytes_of(hexadecimal: &str) -> Option<Vec<u8>> {
    let pairs = hexadecimal.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// The file of a recording in the making.
#[derive(Debug)]
pub struct CodeFile {
    file: File,
    path: PathBuf,
}

impl CodeFile {
    pub fn create(dir: &Folder) -> Result<CodeFile, Error> {
        let path = dir.path().join(FOLDER).join(FILE);
        let made = dir.make_below(FOLDER).and_then(|folder| folder.create_new_to_append(FILE));
        let file = made.map_err(|e| Error::io(&path, "make", e))?;
        Ok(CodeFile { file, path })
    }

    /// `since_ns`: since the epoch. A path with a line break in it is left out: there is no way to write it down.
    pub fn add(&mut self, pid: u32, since_ns: i64, code: &Code) -> Result<(), Error> {
        let path = code.path.as_os_str().as_bytes();
        if path.contains(&b'\n') {
            return Ok(());
        }
        let id: String = code.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let id = if id.is_empty() { "-" } else { &id };
        let mut line =
            format!("{pid} {since_ns} {:x} {:x} {:x} {id} ", code.start, code.end, code.offset).into_bytes();
        line.extend_from_slice(path);
        line.push(b'\n');
        self.file.write_all(&line).map_err(|e| Error::io(&self.path, "write", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_make_no_sense_are_passed_over() {
        let text = "7 100 1000 2000 0 abcd /a b\n7 100 3000\nx\n\n7 200 1000 2000 10 - /c\n8 1 0 9 0 zz /d\n9 1 0 9 0 - /e";
        let table = CodeTable::parse(text.as_bytes());
        assert_eq!((table.0.len(), table.lines(7).len()), (1, 2));
        let path = |code: Option<&Code>| code.map(|code| code.path.to_str().unwrap().to_owned());
        for (pid, ns, address, want) in [
            (7, 100, 0x1000, Some("/a b")),
            (7, 199, 0x1fff, Some("/a b")),
            (7, 200, 0x1fff, Some("/c")),
            (7, 99, 0x1000, None),
            (7, 200, 0x2000, None),
            (8, 200, 0x1000, None),
        ] {
            assert_eq!(path(table.at(pid, ns, address)).as_deref(), want, "{pid} {ns} {address:x}");
        }
        assert_eq!(table.always_at(7, 0x1000), None, "it was another file at first");
        assert_eq!(table.at(7, 100, 0x1000).unwrap().build_id, [0xab, 0xcd]);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let dir = std::env::temp_dir().join(format!("nopal-code-{}", std::process::id()));
        let code =
            Code { start: 1 << 47, end: u64::MAX, offset: 4096, build_id: vec![0, 255], path: "/x y".into() };
        let folder = Folder::make(&dir).unwrap();
        let mut file = CodeFile::create(&folder).unwrap();
        file.add(7, -5, &code).unwrap();
        file.add(7, 9, &Code { path: "/a\nb".into(), ..code.clone() }).unwrap();
        let table = CodeTable::read(&dir);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!((table.lines(7).len(), table.always_at(7, 1 << 47)), (1, Some(&code)));
    }
}
