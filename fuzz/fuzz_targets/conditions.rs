//! Words of command lines and sessions: conditions (`PROBE if CONDITION`, LTTng's filters), which are decided for values of
//! every kind, and the small languages of triggers, comparisons and names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_answers::difference;
use nopal_answers::trigger::{self, TriggerText};
use nopal_live::functions::FunctionPattern;
use nopal_live::predicate::{Context, Fields, Glob, Predicate, Source, Value, fit};
use nopal_live::registry::Choice;
use nopal_sdt::pattern::Pattern;
use nopal_spans::{KeyField, ProbeName, Unit};
use nopal_trace::{Label, localtime};

/// A number, a text, an array and a number with names.
struct Known([Label; 1]);

impl Fields for Known {
    fn names(&self) -> Vec<&str> {
        vec!["n", "s", "list", "state"]
    }

    fn is_text(&self, field: usize) -> bool {
        field == 1
    }

    fn has_elements(&self, field: usize) -> bool {
        field == 2
    }

    fn labels(&self, field: usize) -> &[Label] {
        if field == 3 { &self.0 } else { &[] }
    }
}

fn value(source: Source, kind: usize) -> Value<'static> {
    let all = [
        Value::Int(-1),
        Value::Int(i128::from(u64::MAX)),
        Value::Float(f64::NAN),
        Value::Text(b"get\xff*"),
        Value::Cut(b"ge"),
        Value::Absent,
    ];
    let at = match source {
        Source::Field(field) => field,
        Source::Element { field, index } => field ^ index,
        Source::Context(Context::Procname) => 3,
        Source::Context(_) => 0,
    };
    all[(at ^ kind) % all.len()]
}

fuzz_target!(|text: &str| {
    let label = Label { text: "ON".to_owned(), first: 1, last: 1 };
    let fields = Known([label]);
    match fit(text, &fields) {
        Ok(predicate) => decide(&predicate),
        Err(error) => assert!(error.offset <= text.len() && !error.reason.is_empty()),
    }
    if let Ok(predicate) = Predicate::parse(text, &|name| name.len().checked_sub(1)) {
        decide(&predicate);
    }
    let glob = Glob::new(text.as_bytes());
    let _ = (glob.matches(text.as_bytes()), glob.matches(b"get*aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"));
    let pattern = Pattern::parse(text);
    let _ = pattern.matches("provider", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab");
    let _ = (Choice::parse(text), FunctionPattern::parse(text).map(|function| function.provider()));
    if let Err(wrong) = TriggerText::parse(text) {
        assert!(!wrong.to_string().is_empty());
    }
    let _ = (trigger::duration_ns(text), localtime::parse(text, 0, true), difference::Rule::parse(text));
    let _ = (ProbeName::parse(text, "p"), KeyField::parse(text), Unit::parse(text));
});

fn decide(predicate: &Predicate) {
    for kind in 0..6 {
        predicate.decide(&|source| value(source, kind));
    }
}
