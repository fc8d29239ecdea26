//! What is wrong with a `.d` file, where, and how it is shown: position, the source line, a caret. Prints nothing.

use std::fmt;

/// Errors beyond this many are counted, not kept: a broken file must not fill the screen or the memory.
const KEPT: usize = 50;
/// Characters of a source line that are shown.
const SHOWN: usize = 120;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Of interest to the author of the file, not to a build that uses it.
    Note,
    Warning,
    Error,
}

/// One finding with its place. `Display` renders it with the source line and a caret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub message: String,
    pub help: Option<String>,
    pub file: String,
    /// Both count from 1; columns count characters.
    pub line: u32,
    pub column: u32,
    /// The source line, or the part of it around the caret.
    pub excerpt: String,
    /// Characters of the excerpt in front of the caret, and under it.
    pub caret: (usize, usize),
}

/// The text of a file must not steer the terminal. One sign for each, so that the caret stands where it should.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let (file, message) = (shown(&self.file), shown(&self.message));
        writeln!(f, "{file}:{}:{}: {word}: {message}", self.line, self.column)?;
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        writeln!(f, " {number} | {}", shown(&self.excerpt))?;
        // A tab stays a tab, so that the caret stands under its character in any terminal.
        let lead: String =
            self.excerpt.chars().take(self.caret.0).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        write!(f, " {gutter} | {lead}{}", "^".repeat(self.caret.1.max(1)))?;
        if let Some(help) = &self.help {
            write!(f, "\n {gutter} = help: {}", shown(help))?;
        }
        Ok(())
    }
}

/// A `.d` file that cannot be used: all of its findings, at least one of them an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    pub diagnostics: Vec<Diagnostic>,
    /// Errors that are not in `diagnostics` because there were too many.
    pub n_left_out: usize,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.diagnostics.iter().filter(|d| d.severity > Severity::Note).enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{diagnostic}")?;
        }
        if self.n_left_out > 0 {
            write!(f, "\n{} more errors are not shown", self.n_left_out)?;
        }
        Ok(())
    }
}

impl std::error::Error for ParseError {}

/// `# 12 "probes.d"` as a preprocessor leaves it: the next line is line 12 of that file.
#[derive(Debug)]
pub(crate) struct LineMarker {
    /// Offset of the line after the marker.
    pub offset: usize,
    pub line: u32,
    /// Where the file's name stands in the text.
    pub file: (usize, usize),
}

/// Collects findings and knows their places.
#[derive(Debug)]
pub(crate) struct Reporter<'a> {
    name: &'a str,
    text: &'a str,
    pub markers: Vec<LineMarker>,
    diagnostics: Vec<(usize, Diagnostic)>,
    n_errors: usize,
    n_left_out: usize,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(name: &'a str, text: &'a str) -> Self {
        Reporter { name, text, markers: Vec::new(), diagnostics: Vec::new(), n_errors: 0, n_left_out: 0 }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.n_errors > 0
    }

    /// Reports something about `text[start..end]`; at most one error is kept for one place.
    pub(crate) fn report(
        &mut self,
        severity: Severity,
        (start, end): (usize, usize),
        message: String,
        help: Option<String>,
    ) {
        if severity == Severity::Error {
            if self.diagnostics.iter().any(|(at, d)| *at == start && d.severity == Severity::Error) {
                return;
            }
            self.n_errors += 1;
        }
        let is_error = severity == Severity::Error;
        // Errors have room of their own: warnings must not push them out.
        if self.diagnostics.iter().filter(|(_, d)| (d.severity == Severity::Error) == is_error).count()
            >= KEPT
        {
            self.n_left_out += usize::from(is_error);
            return;
        }
        let text = self.text;
        let (start, end) = (start.min(text.len()), end.min(text.len()));
        let line_start = text[..start].rfind('\n').map_or(0, |i| i + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |i| start + i);
        let column = text[line_start..start].chars().count();
        let (file, line) = self.place(line_start);
        // A very long line is cut around the caret.
        let skipped = column.saturating_sub(if column > SHOWN { SHOWN / 2 } else { SHOWN });
        let excerpt: String =
            text[line_start..line_end].trim_end().chars().skip(skipped).take(SHOWN).collect();
        let before = column - skipped;
        let under =
            text[start..end.clamp(start, line_end)].chars().take(SHOWN - before.min(SHOWN - 1)).count();
        let caret = (before, under);
        let column = u32::try_from(column + 1).unwrap_or(u32::MAX);
        let diagnostic = Diagnostic { severity, message, help, file, line, column, excerpt, caret };
        self.diagnostics.push((start, diagnostic));
    }

    pub(crate) fn error(&mut self, at: (usize, usize), message: impl Into<String>) {
        self.report(Severity::Error, at, message.into(), None);
    }

    pub(crate) fn error_help(
        &mut self,
        at: (usize, usize),
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.report(Severity::Error, at, message.into(), Some(help.into()));
    }

    pub(crate) fn warning(&mut self, at: (usize, usize), message: impl Into<String>, help: Option<String>) {
        self.report(Severity::Warning, at, message.into(), help);
    }

    /// File and line of the line that starts at `line_start`.
    fn place(&self, line_start: usize) -> (String, u32) {
        let count = |from: usize| -> u32 {
            let lines = self.text[from..line_start].bytes().filter(|b| *b == b'\n').count();
            u32::try_from(lines).unwrap_or(u32::MAX)
        };
        match self.markers.iter().rev().find(|m| m.offset <= line_start) {
            Some(marker) => (
                self.text[marker.file.0..marker.file.1].to_owned(),
                marker.line.saturating_add(count(marker.offset)).max(1),
            ),
            None => (self.name.to_owned(), count(0) + 1),
        }
    }

    /// All findings in the order of the text, and the number of errors left out.
    pub(crate) fn finish(mut self) -> (Vec<Diagnostic>, usize) {
        self.diagnostics.sort_by_key(|(start, _)| *start);
        (self.diagnostics.into_iter().map(|(_, d)| d).collect(), self.n_left_out)
    }
}
