//! Where the line of a source begins in the code.

use crate::info::DebugInfo;
use crate::part::Part;
use std::fmt;

/// Why a line has no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoLine {
    /// No unit was compiled from such a file.
    NoSource,
    /// Several files end like this.
    Ambiguous { first: String, second: String },
    /// Nothing was made of the line. The next one that has code, if there is one.
    NoCode { next: Option<u64> },
}

/// A row of a line table.
struct Row {
    address: u64,
    line: u64,
    column: u64,
}

impl DebugInfo {
    /// The first address that the line of a source has. `source` is the end of its path; `column` 0 is any.
    pub fn line_address(&self, source: &str, line: u64, column: u64) -> Result<u64, NoLine> {
        let own = &self.files[0];
        let mut known: Option<String> = None;
        let mut next: Option<u64> = None;
        for index in 0..own.headers.len() {
            for path in own.sources(index) {
                if !ends_with(&path, source) {
                    continue;
                }
                match &known {
                    Some(first) if *first != path => {
                        return Err(NoLine::Ambiguous { first: first.clone(), second: path });
                    }
                    Some(_) => {}
                    None => known = Some(path),
                }
            }
        }
        let Some(path) = known else { return Err(NoLine::NoSource) };
        for index in 0..own.headers.len() {
            for row in own.rows(index, &path) {
                if row.line == line && (column == 0 || row.column == column) {
                    return Ok(row.address);
                }
                if row.line > line && next.is_none_or(|next| row.line < next) {
                    next = Some(row.line);
                }
            }
        }
        Err(NoLine::NoCode { next })
    }
}

impl Part {
    /// The files that the lines of a unit are of.
    fn sources(&self, index: usize) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        if let Some(unit) = self.unit(index)
            && let Some(program) = &unit.line_program
        {
            // Until DWARF 4 the first file has the number 1.
            for n in 0..=program.header().file_names().len() as u64 {
                let path = program.header().file(n).and_then(|file| self.path(&unit, program.header(), file));
                found.extend(path);
            }
        }
        found.dedup();
        found
    }

    /// The rows of a unit that are of one file, in their order. None of code that the linker has left out.
    fn rows(&self, index: usize, path: &str) -> Vec<Row> {
        let mut found = Vec::new();
        let Some(unit) = self.unit(index) else { return found };
        let Some(program) = unit.line_program.clone() else { return found };
        let mut rows = program.rows();
        let mut is_wanted: Vec<Option<bool>> = Vec::new();
        while let Ok(Some((header, row))) = rows.next_row() {
            let number = usize::try_from(row.file_index()).unwrap_or(usize::MAX);
            if row.end_sequence() || row.address() == 0 || number > header.file_names().len() {
                continue;
            }
            if is_wanted.len() <= number {
                is_wanted.resize(number + 1, None);
            }
            let is_of_path = *is_wanted[number].get_or_insert_with(|| {
                row.file(header)
                    .and_then(|file| self.path(&unit, header, file))
                    .is_some_and(|known| known == path)
            });
            let Some(line) = row.line().filter(|_| is_of_path) else { continue };
            let column = match row.column() {
                gimli::ColumnType::LeftEdge => 0,
                gimli::ColumnType::Column(column) => column.get(),
            };
            found.push(Row { address: row.address(), line: line.get(), column });
        }
        found
    }

    /// A file of a line table, with the folders it is in.
    fn path(
        &self,
        unit: &gimli::Unit<crate::find::Reader>,
        header: &gimli::LineProgramHeader<crate::find::Reader>,
        file: &gimli::FileEntry<crate::find::Reader>,
    ) -> Option<String> {
        let text = |value| self.dwarf.attr_string(unit, value).ok().map(|text| crate::place::text(&text));
        let name = text(file.path_name())?;
        let folder = file.directory(header).and_then(text).unwrap_or_default();
        let compiled_in = unit.comp_dir.as_ref().map(crate::place::text).unwrap_or_default();
        Some(joined(&joined(&compiled_in, &folder), &name))
    }
}

/// A path as it is seen from a folder, without `.` and `..`.
fn joined(folder: &str, path: &str) -> String {
    let whole = if path.starts_with('/') { path.to_owned() } else { format!("{folder}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    format!("{}{}", if whole.starts_with('/') { "/" } else { "" }, parts.join("/"))
}

/// Whether a path ends with these folders and this file: `src/main.c` is an end of `/a/src/main.c`, and `in.c` is none.
fn ends_with(path: &str, end: &str) -> bool {
    let end = end.strip_prefix("./").unwrap_or(end);
    !end.is_empty()
        && path.strip_suffix(end).is_some_and(|rest| {
            rest.is_empty() || rest.ends_with('/') || (end.starts_with('/') && rest.is_empty())
        })
}

impl fmt::Display for NoLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoLine::NoSource => f.write_str("nothing in it was compiled from such a file"),
            NoLine::Ambiguous { first, second } => write!(f, "it may be {first} or {second}"),
            NoLine::NoCode { .. } => f.write_str("the line has no code"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_named_by_the_end_of_its_path() {
        let cases = [
            ("/a/src/main.c", "main.c", true),
            ("/a/src/main.c", "./main.c", true),
            ("/a/src/main.c", "src/main.c", true),
            ("/a/src/main.c", "/a/src/main.c", true),
            ("/a/src/main.c", "in.c", false),
            ("/a/src/main.c", "/src/main.c", false),
            ("/a/src/main.c", "", false),
            ("main.c", "main.c", true),
        ];
        for (path, end, expected) in cases {
            assert_eq!(ends_with(path, end), expected, "{path} {end}");
        }
    }

    #[test]
    fn folders_are_joined_as_compilers_mean_them() {
        let cases = [
            ("/a/b", "c.c", "/a/b/c.c"),
            ("/a/b", "/x/c.c", "/x/c.c"),
            ("/a/b", "../c.c", "/a/c.c"),
            ("/a/b", "./d/../c.c", "/a/b/c.c"),
            ("", "c.c", "/c.c"),
        ];
        for (folder, path, expected) in cases {
            assert_eq!(joined(folder, path), expected);
        }
    }
}
