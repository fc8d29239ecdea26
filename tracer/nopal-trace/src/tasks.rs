//! Processes and threads of other pid namespaces. Events have the numbers that a process knows of itself; which ones those
//! are for the tracer is in a small text file beside the streams, a line for each thread: `vpid vtid pid tid`.

use crate::error::Error;
use nopal_files::foreign;
use nopal_files::own::Folder;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

const FOLDER: &str = "nopal";
const FILE: &str = "tasks";
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A process and a thread of it.
pub type Numbers = (i64, i64);

/// By the numbers of their own: the tracer's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskTable(HashMap<Numbers, Numbers>);

impl TaskTable {
    pub(crate) fn read(dir: &Path) -> TaskTable {
        let text = foreign::read_text(&dir.join(FOLDER).join(FILE), MAX_FILE_BYTES);
        text.map_or_else(|_| TaskTable::default(), |text| TaskTable::parse(&text))
    }

    /// A line that was cut short or makes no sense is passed over.
    pub(crate) fn parse(text: &str) -> TaskTable {
        let line = |line: &str| {
            let numbers: Vec<i64> = line.split(' ').map_while(|word| word.parse().ok()).collect();
            let [vpid, vtid, pid, tid] = numbers[..] else { return None };
            Some(((vpid, vtid), (pid, tid)))
        };
        // Without its newline the last number may be half of one.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        TaskTable(whole.lines().filter_map(line).collect())
    }

    pub fn get(&self, own: Numbers) -> Option<Numbers> {
        self.0.get(&own).copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The file of a recording in the making.
#[derive(Debug)]
pub struct TaskFile {
    file: File,
    path: PathBuf,
}

impl TaskFile {
    pub fn create(dir: &Folder) -> Result<TaskFile, Error> {
        let path = dir.path().join(FOLDER).join(FILE);
        let made = dir.make_below(FOLDER).and_then(|folder| folder.create_new_to_append(FILE));
        let file = made.map_err(|e| Error::io(&path, "make", e))?;
        Ok(TaskFile { file, path })
    }

    pub fn add(&mut self, (vpid, vtid): Numbers, (pid, tid): Numbers) -> Result<(), Error> {
        self.file
            .write_all(format!("{vpid} {vtid} {pid} {tid}\n").as_bytes())
            .map_err(|e| Error::io(&self.path, "write", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_make_no_sense_are_passed_over() {
        let table = TaskTable::parse("1 1 4242 4242\n1 7 4242\nx\n\n1 2 3 4 5\n1 9 4242 4250\n2 2 17");
        assert_eq!(table.get((1, 1)), Some((4242, 4242)));
        assert_eq!(table.get((1, 9)), Some((4242, 4250)));
        assert_eq!((table.get((1, 7)), table.get((2, 2)), table.0.len()), (None, None, 2));
        assert!(TaskTable::parse("1 1 2 2").is_empty(), "half a line");
    }
}
