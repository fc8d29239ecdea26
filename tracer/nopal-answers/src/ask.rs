//! What the words of a question mean: spans, probes, fields, conditions; and what is wrong with those that mean nothing.

use nopal_live::plan::thread_context_names;
use nopal_live::predicate::PredicateError;
use nopal_sdt::pattern::nearest;
use nopal_spans::{Available, FieldKind, KeyField, KnownField, Mode, NoSpan, Shape, Span};
use std::fmt;

/// A question that cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    Span(NoSpan),
    NoField {
        of: String,
        field: String,
        fields: Vec<String>,
    },
    NotANumber {
        of: String,
        field: String,
        numbers: Vec<String>,
    },
    /// A key that one of the probes of a span lacks.
    NoKey {
        span: String,
        field: String,
        probe: String,
        fields: Vec<String>,
    },
    /// A key is of no use to a span that one event makes.
    KeyOfWhole {
        span: String,
    },
    Condition {
        of: String,
        text: String,
        error: PredicateError,
        fields: Vec<String>,
    },
    /// Not of the form `latency(SPAN) > TIME`.
    Trigger {
        text: String,
        why: &'static str,
    },
    /// What a test expects, in no form that is known.
    Rule {
        text: String,
        why: &'static str,
        form: &'static str,
    },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Span(no_span) => no_span.fmt(f),
            Wrong::NoField { of, field, .. } => write!(f, "{of} has no field `{field}`"),
            Wrong::NotANumber { of, field, .. } => write!(f, "`{field}` of {of} is not a number"),
            Wrong::NoKey { span, field, probe, .. } => {
                write!(f, "{span} cannot pair by `{field}`: {probe} has no such field")
            }
            Wrong::KeyOfWhole { span } => {
                write!(f, "{span} is a single event that carries its duration; there is nothing to pair")
            }
            Wrong::Rule { text, why, .. } => write!(f, "not a valid rule: `{text}`: {why}"),
            Wrong::Trigger { text, why } => write!(f, "not a valid trigger: `{text}`: {why}"),
            Wrong::Condition { of, text, error, .. } => {
                write!(f, "{of}: in `{text}` at column {}: {}", error.offset + 1, error.reason)
            }
        }
    }
}

impl Wrong {
    /// A word for scripts.
    pub fn code(&self) -> &'static str {
        match self {
            Wrong::Span(NoSpan::NoProbe { .. } | NoSpan::SeveralProbes { .. }) => "no-such-probe",
            Wrong::Span(_) => "no-such-span",
            Wrong::NoField { .. } => "no-such-field",
            Wrong::NotANumber { .. } => "not-a-number",
            Wrong::NoKey { .. } | Wrong::KeyOfWhole { .. } => "bad-key",
            Wrong::Condition { .. } => "bad-condition",
            Wrong::Trigger { .. } => "bad-trigger",
            Wrong::Rule { .. } => "bad-rule",
        }
    }

    /// The next step.
    pub fn hint(&self) -> String {
        let has = |fields: &[String]| match fields {
            [] => "it has no fields".to_owned(),
            fields => format!("its fields are {}", fields.join(", ")),
        };
        match self {
            Wrong::Span(no_span) => no_span.hint(),
            Wrong::NoField { field, fields, .. } if is_of_thread_context(field) => {
                format!("--otel adds it, where it is traced or recorded; {}", has(fields))
            }
            Wrong::NoField { field, fields, .. } | Wrong::NoKey { field, fields, .. } => {
                match nearest(field, fields.iter().map(String::as_str)) {
                    Some(near) => format!("did you mean `{near}`? {}", has(fields)),
                    None => has(fields),
                }
            }
            Wrong::NotANumber { numbers, .. } => match &numbers[..] {
                [] => {
                    "none of its fields is a number; `nopal count PROBE --by FIELD` counts texts".to_owned()
                }
                numbers => format!("its numbers are {}", numbers.join(", ")),
            },
            Wrong::KeyOfWhole { .. } => "leave out --key".to_owned(),
            Wrong::Rule { form, .. } => format!("write `{form}`"),
            Wrong::Trigger { .. } => {
                "write `latency(SPAN) > 10ms`; `nopal spans -p PID` shows the spans".to_owned()
            }
            Wrong::Condition { fields, .. } => has(fields),
        }
    }
}

/// Whether a field is one that every event has where the thread context of OpenTelemetry is read.
fn is_of_thread_context(field: &str) -> bool {
    let field = field.strip_prefix("begin.").or(field.strip_prefix("end.")).unwrap_or(field);
    thread_context_names(|_| false).iter().any(|name| name == field)
}

/// The spans that words name; two probes are the ends of a span of their own. A key given replaces theirs.
pub fn spans(available: &Available, words: &[String], key: &[String]) -> Result<Vec<Span>, Wrong> {
    let key: Vec<KeyField> = key.iter().map(|text| KeyField::parse(text)).collect();
    let mut spans = Vec::new();
    match words {
        [begin, end] if is_pair(available, begin, end) => {
            spans.push(available.pair(begin, end, &key).map_err(Wrong::Span)?);
        }
        words => {
            for word in words {
                for span in available.find(word).map_err(Wrong::Span)? {
                    if !spans.contains(&span) {
                        spans.push(span);
                    }
                }
            }
        }
    }
    for span in &mut spans {
        if !key.is_empty() {
            if let Shape::Whole { .. } = span.shape {
                return Err(Wrong::KeyOfWhole { span: span.full_name() });
            }
            span.mode = Mode::Key(key.clone());
        }
        check(available, span)?;
    }
    Ok(spans)
}

/// The spans that words name, each for itself.
pub fn spans_one_by_one(available: &Available, words: &[String]) -> Result<Vec<Span>, Wrong> {
    let mut all = Vec::new();
    for word in words {
        all.extend(spans(available, std::slice::from_ref(word), &[])?);
    }
    Ok(all)
}

/// Whether two words are the two ends of a span, and not two spans.
fn is_pair(available: &Available, begin: &str, end: &str) -> bool {
    let is_probe = |word| available.find_probe(word).is_ok() && !available.is_name(word);
    // One probe and one word that is nothing at all was meant as a pair, too.
    match (is_probe(begin), is_probe(end)) {
        (true, true) => true,
        (true, false) => available.find(end).is_err(),
        (false, true) => available.find(begin).is_err(),
        (false, false) => available.to_come(begin).is_some() && available.to_come(end).is_some(),
    }
}

/// Whether the fields that a span is paired and measured by are there.
fn check(available: &Available, span: &Span) -> Result<(), Wrong> {
    let names = |fields: &[KnownField]| fields.iter().map(|field| field.name.clone()).collect::<Vec<_>>();
    let has = |fields: &[KnownField], name: &str| position(fields, name).is_some();
    for (probes, is_begin) in [(span.begins(), true), (span.ends(), false)] {
        for probe in probes.iter().filter_map(|probe| available.probe(probe)) {
            for key in span.key() {
                let field = if is_begin { &key.begin } else { &key.end };
                if !has(&probe.fields, field) {
                    return Err(Wrong::NoKey {
                        span: span.full_name(),
                        field: field.clone(),
                        probe: probe.name.to_string(),
                        fields: names(&probe.fields),
                    });
                }
            }
        }
    }
    if let Shape::Whole { probe, duration, .. } = &span.shape
        && let Some(probe) = available.probe(probe)
    {
        number(&probe.name.to_string(), &probe.fields, duration)?;
    }
    Ok(())
}

/// Checks that a field is there and a number.
pub fn number(of: &str, fields: &[KnownField], name: &str) -> Result<(), Wrong> {
    let is_number = |field: &&KnownField| matches!(field.kind, FieldKind::Number | FieldKind::Label);
    match position(fields, name).map(|at| &fields[at]) {
        None => Err(no_field(of, fields, name)),
        Some(field) if is_number(&field) => Ok(()),
        Some(field) => Err(Wrong::NotANumber {
            of: of.to_owned(),
            field: field.name.clone(),
            numbers: fields.iter().filter(is_number).map(|field| field.name.clone()).collect(),
        }),
    }
}

pub(crate) fn no_field(of: &str, fields: &[KnownField], name: &str) -> Wrong {
    let fields = fields.iter().map(|field| field.name.clone()).collect();
    Wrong::NoField { of: of.to_owned(), field: name.to_owned(), fields }
}

/// By name, `begin.NAME`, `end.NAME`, or `argN` by position.
pub(crate) fn position(fields: &[KnownField], name: &str) -> Option<usize> {
    let name = name.strip_prefix("begin.").or(name.strip_prefix("end.")).unwrap_or(name);
    fields.iter().position(|field| field.name == name).or_else(|| {
        let at = name.strip_prefix("arg")?.parse::<usize>().ok()?;
        (at < fields.len()).then_some(at)
    })
}

/// The field of a span that says most of it: what its definition names first, else its first.
pub(crate) fn telling_field(available: &Available, span: &Span) -> Option<String> {
    let known = available.fields_of(span);
    let is_there = |name: &&String| known.as_ref().is_none_or(|known| position(known, name).is_some());
    let named = span.fields.iter().find(is_there).cloned();
    named.or_else(|| known.as_ref()?.first().map(|field| field.name.clone()))
}

/// What spans and events are grouped by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Pid,
    Tid,
    Cpu,
    /// A field by its number.
    Field(usize),
}

/// What a word after --by means: a field if there is one, else something known of every event.
pub(crate) fn by(
    of: &str,
    fields: Option<&[KnownField]>,
    name: &str,
    want: impl FnOnce(&str) -> usize,
) -> Result<By, Wrong> {
    if fields.is_some_and(|fields| position(fields, name).is_some()) {
        return Ok(By::Field(want(name)));
    }
    match (name, fields) {
        ("pid", _) => Ok(By::Pid),
        ("tid", _) => Ok(By::Tid),
        ("cpu", _) => Ok(By::Cpu),
        (name, Some(fields)) => Err(no_field(of, fields, name)),
        (name, None) => Ok(By::Field(want(name))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_spans::{KnownProbe, ProbeName};

    #[test]
    fn two_probes_that_nothing_has_yet_are_those_of_what_a_command_starts() {
        let probe = KnownProbe { name: ProbeName::new("here", "a__start"), fields: Vec::new(), pair: None };
        let words = |words: [&str; 2]| words.map(str::to_owned).to_vec();
        let ask = |is_open: bool, names: [&str; 2]| {
            let available = Available::new(Vec::new(), vec![probe.clone()], is_open);
            spans(&available, &words(names), &[])
        };
        let found = ask(true, ["app:job__begin", "app:job-end"]).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].full_name(), "app:job");
        assert_eq!(found[0].begins(), [ProbeName::new("app", "job__begin")]);
        assert_eq!(found[0].ends(), [ProbeName::new("app", "job__end")]);
        // A provider that is here has no others; a process that runs has all that it has.
        for (is_open, names) in [
            (true, ["here:job__begin", "here:job__end"]),
            (true, ["app:job__*", "app:job__end"]),
            (false, ["app:job__begin", "app:job__end"]),
        ] {
            assert!(matches!(ask(is_open, names), Err(Wrong::Span(_))), "{names:?}");
        }
    }
}
