//! What is wrong with a script, where, and what to do about it; shown with the source line and a caret.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use std::ops::Range;

/// Bytes of the script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    /// From the beginning of this to the end of the other.
    pub(crate) fn to(self, other: Span) -> Span {
        Span { start: self.start, end: other.end.max(self.end) }
    }

    /// Its line and columns.
    pub fn place(self, source: &str) -> Place<'_> {
        let range = self.range(source);
        let line_start = source[..range.start].rfind('\n').map_or(0, |at| at + 1);
        let line_no = source[..line_start].matches('\n').count() + 1;
        let line = source[line_start..].lines().next().unwrap_or_default();
        let column = source[line_start..range.start].chars().count();
        let last = range.end.min(line_start + line.len()).max(range.start);
        let width = source[range.start..last].chars().count().max(1);
        Place { line_no, column, width, line }
    }

    /// Within the text, on the boundaries of its characters.
    fn range(self, text: &str) -> Range<usize> {
        let mut start = (self.start as usize).min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let mut end = (self.end as usize).clamp(start, text.len());
        while !text.is_char_boundary(end) {
            end += 1;
        }
        start..end
    }
}

/// Where bytes of a script are for its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// From 1.
    pub line_no: usize,
    /// Characters before it in its line.
    pub column: usize,
    /// Characters of it in its line.
    pub width: usize,
    pub line: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Severity {
    Error,
    Warning,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    pub message: String,
    pub span: Span,
    /// Stands at the caret.
    pub label: String,
    /// Other places that have to do with it, and what they are.
    pub related: Vec<(Span, String)>,
    /// The next step.
    pub help: Option<String>,
}

impl Diagnostic {
    pub(crate) fn error(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            message: message.into(),
            span,
            label: String::new(),
            related: Vec::new(),
            help: None,
        }
    }

    pub(crate) fn warning(span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(span, message) }
    }

    pub(crate) fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn related(mut self, span: Span, what: impl Into<String>) -> Diagnostic {
        self.related.push((span, what.into()));
        self
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// As bpftrace tells it: `FILE:LINE:COLUMNS: ERROR: MESSAGE`, the line, and a mark below.
    pub fn render_as_bpftrace(&self, source: &str, file: &str) -> String {
        let Place { line_no, column, width, line } = self.span.place(source);
        let level = match self.severity {
            Severity::Error => "ERROR",
            Severity::Warning => "WARNING",
        };
        if self.span == Span::default() {
            // It is of the command line or the environment.
            let help = self.help.as_ref().map(|help| format!("\nHINT: {help}")).unwrap_or_default();
            return format!("{level}: {}{help}", self.message);
        }
        let mut text = format!(
            "{file}:{line_no}:{}-{}: {level}: {}\n{line}\n{}{}",
            column + 1,
            column + 1 + width,
            self.message,
            " ".repeat(column),
            "~".repeat(width)
        );
        if let Some(help) = &self.help {
            text.push_str(&format!("\nHINT: {help}"));
        }
        text
    }

    /// The source line with a caret below what is wrong, without a line end.
    pub fn render(&self, source: &str, file: &str, is_colour: bool) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut snippet = Snippet::source(source).path(file).fold(true);
        let primary = AnnotationKind::Primary.span(self.span.range(source));
        snippet =
            snippet.annotation(if self.label.is_empty() { primary } else { primary.label(&self.label) });
        for (span, what) in &self.related {
            snippet = snippet.annotation(AnnotationKind::Context.span(span.range(source)).label(what));
        }
        let mut group = level.primary_title(&self.message).element(snippet);
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help));
        }
        let report: [Group<'_>; 1] = [group];
        if is_colour { Renderer::styled().render(&report) } else { Renderer::plain().render(&report) }
    }
}

/// Of the known names the one most like what was written, if it is near.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (name.len() / 3).max(1);
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(edits, _)| *edits <= limit)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, candidate)| candidate)
}

/// Edits from one to the other, a swap of neighbours counted as one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_near() {
        let known = ["printf", "print", "strncmp", "hist"];
        let near = |name| nearest(name, known.into_iter());
        assert_eq!(near("prinft"), Some("printf"));
        assert_eq!(near("hits"), Some("hist"));
        assert_eq!(near("banana"), None);
    }

    #[test]
    fn shows_the_line_the_caret_and_the_next_step() {
        let source = "BEGIN {\n  prinft(\"x\");\n}\n";
        let diagnostic =
            Diagnostic::error(Span::new(10, 16), "no function `prinft`").help("did you mean `printf`?");
        let expected = "error: no function `prinft`
 --> a.bt:2:3
  |
2 |   prinft(\"x\");
  |   ^^^^^^
  |
  = help: did you mean `printf`?";
        assert_eq!(diagnostic.render(source, "a.bt", false), expected);
        assert!(diagnostic.render(source, "a.bt", true).contains('\x1b'));
        // A place outside the text, or in the middle of a character, is shown as near as can be.
        Diagnostic::error(Span::new(900, 1000), "x").render("é", "a.bt", false);
        Diagnostic::error(Span::new(1, 1), "x").render("é", "a.bt", false);
    }
}
