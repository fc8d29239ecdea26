//! Doc comments: their text, and the tags `@param`, `@length`, `@pair`, `@enum`.

use crate::ast::{Arg, Kind, Label, Pair, Probe, Role};
use crate::diagnostic::Severity;
use crate::lex::Lexer;

/// The text of a comment without its decoration: a line for each paragraph.
pub(crate) fn text(comment: &str) -> String {
    let mut text = String::new();
    for (_, line) in lines(comment) {
        push_line(&mut text, line);
    }
    text.trim_end().to_owned()
}

/// Takes the comment in `span` for the documentation of `probe`.
pub(crate) fn apply(probe: &mut Probe, lexer: &mut Lexer<'_>, span: (usize, usize)) {
    let comment = lexer.text_of(span);
    let mut body = String::new();
    let mut tags: Vec<Tag<'_>> = Vec::new();
    let mut is_in_tag = false;
    for (offset, line) in lines(comment) {
        if let Some(tag) = Tag::open(line, (span.0 + offset, span.0 + offset + line.len())) {
            tags.push(tag);
            is_in_tag = true;
        } else if is_in_tag && !line.is_empty() {
            let tag = tags.last_mut().expect("is_in_tag is set when a tag is pushed");
            push_line(&mut tag.text, line);
        } else {
            is_in_tag = false;
            push_line(&mut body, line);
        }
    }
    probe.doc = body.trim_end().to_owned();
    let mut unmatched = Vec::new();
    for tag in tags {
        match tag.word {
            "param" => {
                let (name, text) = split_word(&tag.text);
                match find_arg(probe, name) {
                    Some(at) => probe.args[at].doc = text.to_owned(),
                    None => unmatched.push(tag),
                }
            }
            "length" => length(probe, lexer, &tag),
            "pair" => match split_word(&tag.text).0 {
                "" => lexer.reporter.warning(tag.at, "`@pair` needs the name of a probe", None),
                // Which end this is, and whether the partner exists, is known when the provider has been read.
                partner => probe.pair = Some(Pair { role: Role::Start, partner: partner.to_owned() }),
            },
            "enum" => labels(probe, lexer, &tag),
            word => {
                push_line(&mut probe.doc, "");
                push_line(&mut probe.doc, format!("@{word} {}", tag.text).trim_end());
            }
        }
    }
    unmatched_params(probe, lexer, unmatched);
}

/// `@param` with a name that no argument has: by position if the counts agree, else kept as text.
fn unmatched_params(probe: &mut Probe, lexer: &mut Lexer<'_>, tags: Vec<Tag<'_>>) {
    let free: Vec<usize> = (0..probe.args.len()).filter(|i| probe.args[*i].doc.is_empty()).collect();
    let is_positional = free.len() == tags.len();
    for (i, tag) in tags.iter().enumerate() {
        let (name, text) = split_word(&tag.text);
        let message = format!("probe `{}` has no argument `{name}`", probe.name);
        lexer.reporter.report(Severity::Note, tag.at, message, None);
        if is_positional {
            probe.args[free[i]].doc = text.to_owned();
        } else {
            push_line(&mut probe.doc, "");
            push_line(&mut probe.doc, format!("{name}: {text}").trim_end());
        }
    }
}

/// `@length KEY KEYLEN`: KEYLEN holds KEY's length in bytes.
fn length(probe: &mut Probe, lexer: &mut Lexer<'_>, tag: &Tag<'_>) {
    let (name, rest) = split_word(&tag.text);
    let (length_name, _) = split_word(rest);
    let (Some(at), Some(length_at)) = (find_arg(probe, name), find_arg(probe, length_name)) else {
        let message = "`@length` needs two arguments of this probe: the text and its length";
        return lexer.reporter.warning(tag.at, message, None);
    };
    let kind = match probe.args[at].kind {
        Kind::CString | Kind::Str => Kind::Str,
        Kind::Pointer | Kind::Bytes | Kind::Unknown => Kind::Bytes,
        Kind::Signed | Kind::Unsigned | Kind::Bool | Kind::Float | Kind::Enum | Kind::Char => {
            let message = format!("`@length`: `{name}` is not a pointer");
            return lexer.reporter.warning(tag.at, message, None);
        }
    };
    if !matches!(probe.args[length_at].kind, Kind::Signed | Kind::Unsigned | Kind::Unknown) {
        let message = format!("`@length`: `{length_name}` is not an integer");
        return lexer.reporter.warning(tag.at, message, None);
    }
    probe.args[at].kind = kind;
    probe.args[at].length = Some(length_at);
}

/// `@enum ARG 0=A 1=B`.
fn labels(probe: &mut Probe, lexer: &mut Lexer<'_>, tag: &Tag<'_>) {
    let (name, rest) = split_word(&tag.text);
    let Some(at) = find_arg(probe, name) else {
        let message = format!("`@enum`: probe `{}` has no argument `{name}`", probe.name);
        return lexer.reporter.warning(tag.at, message, None);
    };
    let mut labels = Vec::new();
    for entry in rest.split_ascii_whitespace() {
        let entry = entry.trim_end_matches(',');
        match entry.split_once('=').and_then(|(value, text)| Some((integer(value)?, text))) {
            Some((value, text)) if !text.is_empty() => labels.push(Label { value, text: text.to_owned() }),
            _ => {
                let message = format!("`@enum`: `{entry}` is not of the form VALUE=NAME");
                return lexer.reporter.warning(tag.at, message, None);
            }
        }
    }
    let arg: &mut Arg = &mut probe.args[at];
    arg.kind = Kind::Enum;
    arg.labels = labels;
}

fn integer(text: &str) -> Option<i64> {
    let (digits, sign) = text.strip_prefix('-').map_or((text, 1), |rest| (rest, -1));
    let value = match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16),
        None => digits.parse::<i64>(),
    };
    value.ok().filter(|_| !digits.starts_with('-')).map(|v| v * sign)
}

/// By name, or as `arg0`, `arg1`, ... if the argument has no name.
fn find_arg(probe: &Probe, name: &str) -> Option<usize> {
    probe.args.iter().position(|a| a.name.as_deref() == Some(name)).or_else(|| {
        let at: usize = name.strip_prefix("arg")?.parse().ok()?;
        probe.args.get(at).filter(|a| a.name.is_none()).map(|_| at)
    })
}

struct Tag<'a> {
    word: &'a str,
    text: String,
    at: (usize, usize),
}

impl<'a> Tag<'a> {
    fn open(line: &'a str, at: (usize, usize)) -> Option<Self> {
        let line = line.strip_prefix('@')?;
        let (word, text) = split_word(line);
        // `@param[in]` is how doxygen tells the direction.
        let word = word.split('[').next().unwrap_or_default();
        (!word.is_empty()).then(|| Tag { word, text: text.to_owned(), at })
    }
}

fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    match text.find(char::is_whitespace) {
        Some(at) => (&text[..at], text[at..].trim_start()),
        None => (text, ""),
    }
}

/// Appends a line to a paragraph; an empty line closes the paragraph.
fn push_line(text: &mut String, line: &str) {
    if line.is_empty() {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        return;
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push(' ');
    }
    text.push_str(line);
}

/// The lines of a comment without stars and slashes, each with its offset in the comment.
fn lines(comment: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_block = comment.starts_with("/*");
    let body_end =
        if is_block { comment.strip_suffix("*/").map_or(comment.len(), str::len) } else { comment.len() };
    let mut offset = 0;
    comment[..body_end].split_inclusive('\n').map(move |line| {
        let line_start = offset;
        offset += line.len();
        let mut clean = line.trim();
        clean = match is_block {
            true if line_start == 0 => clean.trim_start_matches('/').trim_start_matches('*'),
            true => clean.trim_start_matches('*'),
            false => clean.trim_start_matches('/'),
        };
        clean = clean.trim();
        (line_start + (clean.as_ptr() as usize - line.as_ptr() as usize), clean)
    })
}
