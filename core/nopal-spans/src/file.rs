//! Spans declared in a file: the `[spans]` tables of a `nopal.toml`. `docs/spans.md` shows every key.

use crate::span::{Carry, KeyField, Mode, ProbeName, Shape, Source, Span, Unit};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// Why a file of spans cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileError {
    /// Not TOML, or a key that spans do not have; line and place are in the text.
    Toml(String),
    /// A definition that makes no sense.
    Span { name: String, reason: String },
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Toml(reason) => f.write_str(reason.trim_end()),
            FileError::Span { name, reason } => write!(f, "span `{name}`: {reason}"),
        }
    }
}

impl std::error::Error for FileError {}

/// Why a probe may be silent although the program does what it tells of.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trap {
    /// Names of probes, with `*`.
    pub probes: Vec<String>,
    /// What it needs, as a sentence.
    pub needs: String,
    /// How a process is started that has what it needs: options of a JVM (`-XX:+NAME`) and variables (`NAME=VALUE`), any of them.
    #[serde(default)]
    pub unless: Vec<String>,
    /// A probe that must be traced beside it.
    #[serde(default)]
    pub with: Option<Companion>,
}

/// A probe that is traced so that others fire.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Companion {
    pub probe: String,
    /// A condition on one of its fields that its hits do not meet, so that they cost little.
    pub never: String,
}

#[derive(Debug, Deserialize)]
struct Document {
    #[serde(default)]
    spans: BTreeMap<String, Table>,
    #[serde(default)]
    traps: Vec<Trap>,
    /// A `nopal.toml` may hold more than spans.
    #[serde(flatten)]
    _other: BTreeMap<String, toml::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    doc: String,
    begin: Option<Words>,
    end: Option<Words>,
    #[serde(default)]
    fail: Words,
    event: Option<String>,
    duration: Option<String>,
    unit: Option<String>,
    key: Option<Words>,
    #[serde(rename = "match")]
    matching: Option<Words>,
    #[serde(default)]
    fields: Words,
    error: Option<String>,
    #[serde(default)]
    carry: BTreeMap<String, String>,
    parent: Option<String>,
    #[serde(default)]
    outermost: bool,
    #[serde(default)]
    by_name: bool,
}

/// One word or several.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "OneOrMany")]
struct Words(Vec<String>);

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl From<OneOrMany> for Words {
    fn from(words: OneOrMany) -> Words {
        match words {
            OneOrMany::One(word) => Words(vec![word]),
            OneOrMany::Many(words) => Words(words),
        }
    }
}

/// Reads the spans of a file.
pub fn parse(text: &str, source: &Source) -> Result<Vec<Span>, FileError> {
    parse_all(text, source).map(|(spans, _)| spans)
}

pub(crate) fn parse_all(text: &str, source: &Source) -> Result<(Vec<Span>, Vec<Trap>), FileError> {
    let document: Document = toml::from_str(text).map_err(|e| FileError::Toml(e.to_string()))?;
    let spans = document.spans.into_iter().map(|(name, table)| span(&name, table, source.clone()));
    Ok((spans.collect::<Result<_, _>>()?, document.traps))
}

fn span(full_name: &str, table: Table, source: Source) -> Result<Span, FileError> {
    let fail = |reason: String| FileError::Span { name: full_name.to_owned(), reason };
    let (provider, name) = full_name.split_once(':').unwrap_or(("", full_name));
    let probe = |text: &str| {
        let probe = ProbeName::parse(text, provider);
        match probe.provider.is_empty() || probe.name.is_empty() {
            true => Err(fail(format!("`{text}` is not a probe; write PROVIDER:NAME"))),
            false => Ok(probe),
        }
    };
    let probes = |words: &Words| words.0.iter().map(|text| probe(text)).collect::<Result<Vec<_>, _>>();
    let shape = match (&table.begin, &table.end, &table.event) {
        (Some(begin), Some(end), None) => {
            if table.duration.is_some() || table.unit.is_some() {
                return Err(fail(
                    "`duration` and `unit` belong to an `event`, not to `begin` and `end`".into(),
                ));
            }
            Shape::Pair { begins: probes(begin)?, ends: probes(end)? }
        }
        (None, None, Some(event)) => {
            let duration = table.duration.clone().ok_or_else(|| {
                fail("`event` needs `duration`: the field that says how long it took".into())
            })?;
            let unit = table.unit.as_deref().unwrap_or("ns");
            let unit = Unit::parse(unit)
                .ok_or_else(|| fail(format!("`{unit}` is not a unit of time; use ns, us, ms or s")))?;
            Shape::Whole { probe: probe(event)?, duration, unit }
        }
        _ => {
            return Err(fail("it needs `begin` and `end`, or `event` and `duration`".into()));
        }
    };
    let keys = |words: Words| words.0.iter().map(|text| KeyField::parse(text)).collect::<Vec<_>>();
    let mode = match (table.key, table.matching) {
        (Some(_), Some(_)) => return Err(fail("`key` and `match` cannot be combined".into())),
        (Some(key), None) => Mode::Key(keys(key)),
        (None, matching) => Mode::Thread { matching: keys(matching.unwrap_or_default()) },
    };
    let mut carries = Vec::new();
    for (name, from) in table.carry {
        let Some((from, field)) = from.rsplit_once('.') else {
            return Err(fail(format!("`carry.{name}` must be PROBE.FIELD, not `{from}`")));
        };
        carries.push(Carry { name, probe: probe(from)?, field: field.to_owned() });
    }
    Ok(Span {
        provider: provider.to_owned(),
        name: name.to_owned(),
        doc: table.doc,
        shape,
        mode,
        fails: probes(&table.fail)?,
        error: table.error,
        fields: table.fields.0,
        carries,
        parent: table.parent,
        is_outermost: table.outermost,
        is_by_name: table.by_name,
        is_call: false,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        parse(text, &Source::File("nopal.toml".into())).expect_err("it is wrong").to_string()
    }

    #[test]
    fn a_span_of_every_kind() {
        let text = r#"
            [spans."shop:order"]
            doc = "From the click to the receipt."
            begin = "order__placed"
            end = ["order__done", "billing:refunded"]
            fail = "order__failed"
            key = ["id", "shop=store"]
            fields = ["id"]
            error = "status != 0"
            carry = { user = "login.name" }

            [spans.slow]
            event = "shop:query"
            duration = "took"
            unit = "us"
            by_name = true

            [other]
            anything = "goes"
        "#;
        let spans = parse(text, &Source::File("nopal.toml".into())).expect("it is right");
        let order = spans.iter().find(|s| s.name == "order").unwrap();
        assert_eq!(order.full_name(), "shop:order");
        assert_eq!(order.begins(), [ProbeName::new("shop", "order__placed")]);
        assert_eq!(order.ends()[1], ProbeName::new("billing", "refunded"));
        assert_eq!(order.fails, [ProbeName::new("shop", "order__failed")]);
        assert_eq!(order.key()[1], KeyField { begin: "shop".into(), end: "store".into(), less: None });
        assert_eq!(order.carries[0].probe, ProbeName::new("shop", "login"));
        let slow = spans.iter().find(|s| s.name == "slow").unwrap();
        assert_eq!(
            slow.shape,
            Shape::Whole { probe: ProbeName::new("shop", "query"), duration: "took".into(), unit: Unit::Us }
        );
        assert!(slow.is_by_name && !order.is_by_name);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, wanted) in [
            ("[spans.x]\nbegin = 'a:b'", "it needs `begin` and `end`, or `event` and `duration`"),
            ("[spans.x]\nbegin = 'b'\nend = 'a:c'", "`b` is not a probe; write PROVIDER:NAME"),
            ("[spans.'a:x']\nevent = 'e'", "`event` needs `duration`"),
            (
                "[spans.'a:x']\nevent = 'e'\nduration = 'd'\nunit = 'sec'",
                "`sec` is not a unit of time; use ns, us, ms or s",
            ),
            ("[spans.'a:x']\nbegin = 'b'\nend = 'c'\nkey = 'i'\nmatch = 'j'", "cannot be combined"),
            ("[spans.'a:x']\nbegin = 'b'\nend = 'c'\nunit = 's'", "belong to an `event`"),
            ("[spans.'a:x']\nbegin = 'b'\nend = 'c'\ncarry = { u = 'v' }", "must be PROBE.FIELD"),
            ("[spans.'a:x']\nbegn = 'b'", "unknown field `begn`"),
            ("[spans", "TOML parse error"),
        ] {
            let said = error_of(text);
            assert!(said.contains(wanted), "{said}");
        }
    }
}
