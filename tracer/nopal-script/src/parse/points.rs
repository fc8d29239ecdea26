//! The list of points before a body: `usdt:./app:prov:name, uprobe:libc:malloc`. Read from the text, since paths hold
//! characters that mean something else in a body.

use super::{Parsed, Parser};
use crate::ast::PointRef;
use crate::catalog::PointSpec;
use crate::diagnostic::{Diagnostic, Span, nearest};

/// Names, with bpftrace's short ones, the parts that may follow, and how they are written.
const KINDS: [(&[&str], &str, std::ops::RangeInclusive<usize>, &str); 19] = [
    (&["BEGIN", "begin"], "BEGIN", 0..=0, "BEGIN"),
    (&["END", "end"], "END", 0..=0, "END"),
    (&["usdt", "U"], "usdt", 1..=3, "usdt:FILE:PROVIDER:NAME, or usdt:PROVIDER:NAME"),
    (&["uprobe", "u"], "uprobe", 2..=3, "uprobe:FILE:FUNCTION, or uprobe:FILE:FUNCTION+OFFSET"),
    (&["uretprobe", "ur"], "uretprobe", 2..=3, "uretprobe:FILE:FUNCTION"),
    (&["tracepoint", "t"], "tracepoint", 2..=2, "tracepoint:CATEGORY:NAME"),
    (&["kprobe", "k"], "kprobe", 1..=2, "kprobe:FUNCTION, or kprobe:FUNCTION+OFFSET"),
    (&["kretprobe", "kr"], "kretprobe", 1..=2, "kretprobe:FUNCTION"),
    (&["interval", "i"], "interval", 1..=2, "interval:s:1 (or ms, us, hz)"),
    (&["profile", "p"], "profile", 1..=2, "profile:hz:99 (or s, ms, us)"),
    (&["software", "s"], "software", 1..=2, "software:EVENT:COUNT"),
    (&["hardware", "h"], "hardware", 1..=2, "hardware:EVENT:COUNT"),
    (&["self"], "self", 2..=2, "self:signal:SIGUSR1"),
    (&["fentry", "f", "kfunc"], "fentry", 1..=3, "fentry:FUNCTION, or fentry:MODULE:FUNCTION"),
    (&["fexit", "fr", "kretfunc"], "fexit", 1..=3, "fexit:FUNCTION, or fexit:MODULE:FUNCTION"),
    (&["rawtracepoint", "rt"], "rawtracepoint", 1..=2, "rawtracepoint:NAME, or rawtracepoint:MODULE:NAME"),
    (&["iter", "it"], "iter", 1..=2, "iter:OBJECT, or iter:OBJECT:PIN"),
    (&["watchpoint", "w", "asyncwatchpoint", "aw"], "watchpoint", 3..=3, "watchpoint:ADDRESS:LENGTH:MODE"),
    (&["bench"], "bench", 1..=1, "bench:NAME"),
];

/// Whether a word begins a probe.
pub(super) fn is_probe_kind(word: &str) -> bool {
    KINDS.iter().any(|(names, ..)| names.contains(&word))
}

impl Parser<'_> {
    /// Ends before the predicate or the body.
    pub(super) fn points(&mut self) -> Parsed<Vec<PointRef>> {
        let mut points = Vec::new();
        loop {
            self.lexer.skip_blank()?;
            points.push(self.point(false)?);
            self.lexer.skip_blank()?;
            if !self.lexer.rest().starts_with(',') {
                return Ok(points);
            }
            self.lexer.at += 1;
            self.lexer.skip_blank()?;
            // A comma may stand after the last one.
            if self.lexer.rest().starts_with(['{', '/']) {
                return Ok(points);
            }
        }
    }

    /// One point. In parentheses a `)` ends it too.
    pub(super) fn point(&mut self, is_in_parens: bool) -> Parsed<PointRef> {
        let start = self.lexer.at;
        let mut word = self.lexer.word();
        // The type may come from the command line, and with it what follows: `$1 { ... }`.
        while self.is_at_parameter() {
            word.push_str(&self.parameter()?);
            word.push_str(&self.lexer.word());
        }
        let word_span = Span::new(start, self.lexer.at);
        let mut given = word.split(':').map(str::to_owned);
        let word = given.next().unwrap_or_default();
        let mut parts: Vec<String> = given.collect();
        let takes_path = matches!(word.as_str(), "usdt" | "U" | "uprobe" | "u" | "uretprobe" | "ur");
        while self.lexer.rest().starts_with(':') {
            self.lexer.at += 1;
            let is_path = takes_path && parts.is_empty();
            parts.push(self.part(is_path, is_in_parens)?);
        }
        let span = Span::new(start, self.lexer.at);
        let Some((_, kind, n_parts, form)) = KINDS.iter().find(|(names, ..)| names.contains(&word.as_str()))
        else {
            return Err(no_kind(&word, word_span, !parts.is_empty()));
        };
        // With a process there need be no file: `usdt::app:request`.
        let may_be_empty = |i: usize| parts.len() == 3 && (i == 1 || (i == 0 && *kind == "usdt"));
        if !n_parts.contains(&parts.len())
            || parts.iter().enumerate().any(|(i, part)| part.is_empty() && !may_be_empty(i))
        {
            return Err(Diagnostic::error(span, format!("`{kind}` is written {form}")));
        }
        let spec = self.script.specs.len();
        self.script.specs.push(PointSpec { kind: (*kind).to_string(), parts });
        Ok(PointRef { spec, span })
    }

    /// `$1`
    fn is_at_parameter(&self) -> bool {
        let rest = self.lexer.rest().strip_prefix('$');
        rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// What the command line has for it.
    fn parameter(&mut self) -> Parsed<String> {
        let start = self.lexer.at;
        self.lexer.at += 1;
        let number = self.lexer.word();
        let index = number.parse::<usize>().unwrap_or(0);
        match index.checked_sub(1).and_then(|i| self.script.parameters.get(i)) {
            Some(value) => Ok(value.clone()),
            None => {
                let span = Span::new(start, self.lexer.at);
                let message = format!("`${number}` is part of a probe but was not given");
                Err(Diagnostic::error(span, message).help("give it after the script"))
            }
        }
    }

    /// Up to a colon, a blank, a comma or what begins a predicate or body. `"..."` may hold any of them; `$1` is replaced.
    fn part(&mut self, is_path: bool, is_in_parens: bool) -> Parsed<String> {
        let mut out = String::new();
        let mut n_open = 0u32;
        while let Some(next) = self.lexer.rest().chars().next() {
            match next {
                '"' => {
                    let start = self.lexer.at;
                    self.lexer.at += 1;
                    let rest = self.lexer.rest();
                    let Some((text, length)) = quoted(rest) else {
                        return Err(Diagnostic::error(Span::new(start, start + 1), "string without an end"));
                    };
                    out.push_str(&text);
                    self.lexer.at += length;
                    continue;
                }
                '$' if self.is_at_parameter() => {
                    out.push_str(&self.parameter()?);
                    continue;
                }
                ':' if self.lexer.rest().starts_with("::") => {
                    // Names of C++ and Rust: `ns::function`.
                    if out.is_empty() || is_path {
                        break;
                    }
                    out.push_str("::");
                    self.lexer.at += 2;
                    continue;
                }
                ':' | ',' | '{' => break,
                '/' if !is_path => break,
                '(' => n_open += 1,
                ')' if n_open > 0 => n_open -= 1,
                ')' if is_in_parens => break,
                _ if next.is_whitespace() => break,
                _ => {}
            }
            out.push(next);
            self.lexer.at += next.len_utf8();
        }
        Ok(out)
    }
}

/// The text up to the closing quote, where `\"` is a quote and `\\` a backslash, and how much of the script it takes.
fn quoted(rest: &str) -> Option<(String, usize)> {
    let mut text = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((text, at + 1)),
            '\\' if rest[at + 1..].starts_with(['"', '\\']) => text.push(chars.next()?.1),
            other => text.push(other),
        }
    }
    None
}

fn no_kind(word: &str, word_span: Span, has_parts: bool) -> Diagnostic {
    if word.is_empty() {
        let span = Span { end: word_span.start + 1, ..word_span };
        return Diagnostic::error(span, "expected a probe")
            .help("a script is made of `probe { statements }`, such as `BEGIN { printf(\"hello\\n\"); }`");
    }
    let names = KINDS.iter().flat_map(|(names, ..)| names.iter().copied()).filter(|name| name.len() > 2);
    let message = format!("there is no type of probe `{word}`");
    match nearest(word, names) {
        Some(near) => Diagnostic::error(word_span, message).help(format!("did you mean `{near}`?")),
        None => {
            let kinds = "use BEGIN, END, usdt, uprobe, uretprobe, tracepoint, kprobe, kretprobe, interval, profile or software";
            // A static probe as the other verbs take it.
            let as_usdt = has_parts.then(|| {
                format!("; a static probe is `usdt:{word}:NAME {{ ... }}`, and `nopal trace {word}:NAME` needs no script")
            });
            Diagnostic::error(word_span, message).help(format!("{kinds}{}", as_usdt.unwrap_or_default()))
        }
    }
}
