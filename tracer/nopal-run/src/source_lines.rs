//! Points that are lines of a source: `uprobe:FILE@SOURCE:LINE` and `uprobe:FILE@SOURCE:LINE:COLUMN`.

use super::tracepoints::no_point;
use nopal_dwarf::NoLine;
use nopal_script::catalog::NoPoint;
use std::path::Path;

/// A point, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SourceLine<'p> {
    pub file: &'p str,
    /// The end of its path.
    pub source: &'p str,
    pub line: u64,
    /// 0 for any.
    pub column: u64,
}

/// `None` if the parts of a point are those of a function.
pub(super) fn source_line(parts: &[String], is_return: bool) -> Option<Result<SourceLine<'_>, NoPoint>> {
    let (first, numbers) = parts.split_first()?;
    let (file, source) = first.rsplit_once('@').filter(|_| !Path::new(first).exists())?;
    let refused = |why: &str, hint: &str| Some(Err(no_point(why.to_owned(), Some(hint.to_owned()))));
    if is_return {
        return refused("Source code location not allowed: a line does not return", "use uprobe");
    }
    if file.contains(['*', '?', '[']) {
        return refused("Cannot use wildcards with source code location", "name the file");
    }
    let number = |name: &str, text: &str| {
        let hint = "a line is written uprobe:FILE@SOURCE:LINE, or uprobe:FILE@SOURCE:LINE:COLUMN".to_owned();
        let parsed = text.parse::<u64>().ok().filter(|number| *number > 0);
        parsed.ok_or_else(|| no_point(format!("Invalid {name} number: invalid integer: {text}"), Some(hint)))
    };
    let of = |line: &str, column: Option<&String>| {
        let column = column.map_or(Ok(0), |column| number("column", column))?;
        Ok(SourceLine { file, source, line: number("line", line)?, column })
    };
    match numbers {
        [line] => Some(of(line, None)),
        [line, column] => Some(of(line, Some(column))),
        _ => None,
    }
}

impl SourceLine<'_> {
    /// As the script has it, behind the file.
    pub(super) fn shown(&self) -> String {
        let column = if self.column == 0 { String::new() } else { format!(":{}", self.column) };
        format!("{}:{}{column}", self.source, self.line)
    }

    /// Why it is not there, in the words that bpftrace has, and what to do.
    pub(super) fn missing(&self, why: Option<NoLine>) -> NoPoint {
        let (SourceLine { file, source, .. }, shown) = (self, self.shown());
        match why {
            None => no_point(
                format!("No DWARF debug info found for '{file}', cannot attach by source code location."),
                Some(
                    "build it with -g, install its debug package, or say where that is with --debuginfo DIR"
                        .to_owned(),
                ),
            ),
            Some(NoLine::NoSource) => no_point(
                format!("DWARF error: No compilation unit matches {source}"),
                Some(format!("nothing in {file} was compiled from a file whose path ends like this")),
            ),
            Some(NoLine::Ambiguous { first, second }) => no_point(
                format!("DWARF error: Ambiguous source path, matches multiple files: {first}, {second}"),
                Some("write more of its path".to_owned()),
            ),
            Some(NoLine::NoCode { next }) => {
                let hint = match next {
                    Some(next) => {
                        format!("there is no code of this line; the next with code is {source}:{next}")
                    }
                    None => "there is no code of this line, nor of one behind it".to_owned(),
                };
                no_point(format!("DWARF error: Unable to map '{shown}' to address"), Some(hint))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_from_functions() {
        let shown = |text: &str, is_return: bool| {
            let parts: Vec<String> = text.split(':').map(str::to_owned).collect();
            match source_line(&parts, is_return) {
                None => "a function".to_owned(),
                Some(Ok(line)) => format!("{} {}", line.file, line.shown()),
                Some(Err(no_point)) => no_point.reason,
            }
        };
        let cases = [
            ("./app:main", false, "a function"),
            ("./app@main.c:12", false, "./app main.c:12"),
            ("./app@src/main.c:12:3", false, "./app src/main.c:12:3"),
            ("/opt/python@3.11/python@main.c:9", false, "/opt/python@3.11/python main.c:9"),
            ("./app@main.c:x", false, "Invalid line number: invalid integer: x"),
            ("./app@main.c:0", false, "Invalid line number: invalid integer: 0"),
            ("./app@main.c:1:y", false, "Invalid column number: invalid integer: y"),
            ("./a*@main.c:1", false, "Cannot use wildcards with source code location"),
            ("./app@main.c:1", true, "Source code location not allowed: a line does not return"),
        ];
        for (text, is_return, expected) in cases {
            assert_eq!(shown(text, is_return), expected, "{text}");
        }
    }
}
