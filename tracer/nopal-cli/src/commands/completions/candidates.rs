//! What the word under the cursor could be: running programs, their probes, spans and fields, sessions. Looks only.

use super::super::overview::{self, Program};
use clap::Arg;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use nopal_answers::inventory;
use nopal_proc::groups;
use nopal_spans::{Available, KnownProbe, Span};
use nopal_trace::Recording;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// What a value is, as its name in the help says.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Pid,
    Program,
    Probe,
    Span,
    SpanOrProbe,
    Field,
    Session,
    Recording,
}

/// Gives an argument of a verb the values that it can have here and now.
pub(super) fn attach(verb: &str, arg: Arg) -> Arg {
    match kind(verb, &arg) {
        Some(kind) => arg.add(ArgValueCompleter::new(kind)),
        None => arg,
    }
}

fn kind(verb: &str, arg: &Arg) -> Option<Kind> {
    let value = arg.get_value_names().and_then(|names| names.first()).map_or("", |name| name.as_str());
    match (arg.get_id().as_str(), value) {
        ("session", _) => Some(Kind::Session),
        ("name", _) if is_of_sessions(verb) => Some(Kind::Session),
        ("recording" | "recordings", _) | (_, "RECORDING") => Some(Kind::Recording),
        ("names", "NAME") => Some(Kind::Program),
        (_, "PID") => Some(Kind::Pid),
        (_, "PROBE" | "PATTERN" | "EVENT" | "EVENTS") => Some(Kind::Probe),
        (_, "SPAN") => Some(Kind::Span),
        (_, "SPAN|PROBE") => Some(Kind::SpanOrProbe),
        (_, "FIELD" | "FIELD,...") if !is_of_sessions(verb) => Some(Kind::Field),
        _ => None,
    }
}

/// Verbs whose name is that of a session which there is.
fn is_of_sessions(verb: &str) -> bool {
    matches!(
        verb,
        "start"
            | "stop"
            | "status"
            | "snapshot"
            | "rotate"
            | "clear"
            | "save"
            | "set-session"
            | "destroy"
            | "add-context"
    )
}

impl ValueCompleter for Kind {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let Some(text) = current.to_str() else { return Vec::new() };
        let words = words();
        let found = match self {
            Kind::Pid => pids(),
            Kind::Program => programs(),
            Kind::Probe => return probes_and_conditions(text, &probes(&words)),
            Kind::Span => spans(probes(&words)),
            Kind::SpanOrProbe => {
                let probes = probes(&words);
                let spans = spans(probes.clone());
                spans.into_iter().chain(named(&probes)).collect()
            }
            Kind::Field => fields(&words, probes(&words)),
            Kind::Session => sessions(),
            Kind::Recording => {
                let folders = PathCompleter::dir().complete(current);
                return beginning_with(text, sessions()).into_iter().chain(folders).collect();
            }
        };
        beginning_with(text, found)
    }
}

fn beginning_with(text: &str, found: Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    let fits = |candidate: &CompletionCandidate| candidate.get_value().to_string_lossy().starts_with(text);
    found.into_iter().filter(fits).collect()
}

/// The command line so far: the shell gives it after the first `--`.
fn words() -> Vec<String> {
    let all = std::env::args_os().skip_while(|word| word != "--").skip(1);
    all.map(|word: OsString| word.to_string_lossy().trim_matches(['\'', '"']).to_owned()).collect()
}

/// The values of an option, in each of its forms.
fn values_of<'a>(words: &'a [String], short: &str, long: &str) -> Vec<&'a str> {
    let mut values = Vec::new();
    for (i, word) in words.iter().enumerate() {
        match word.strip_prefix(long).and_then(|rest| rest.strip_prefix('=')) {
            Some(value) => values.push(value),
            None if word == short || word == long => values.extend(words.get(i + 1).map(String::as_str)),
            None => {}
        }
    }
    values
}

/// The probes of what the command line names, or else of all that runs here.
fn probes(words: &[String]) -> Vec<KnownProbe> {
    let numbers = values_of(words, "-p", "--pid").into_iter().flat_map(|list| list.split(','));
    let mut pids: Vec<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
    for name in values_of(words, "-n", "--name") {
        pids.extend(groups::of_program(name).unwrap_or_default());
    }
    if !pids.is_empty() {
        return inventory::of_targets(&pids, None, &[]).unwrap_or_default();
    }
    // `--recording DIR`, `view DIR`, `list FILE`.
    let named: Vec<KnownProbe> = words.iter().skip(2).flat_map(|word| probes_of(Path::new(word))).collect();
    match named.is_empty() {
        true => overview::programs().0.into_iter().flat_map(|program| program.probes).collect(),
        false => named,
    }
}

fn probes_of(path: &Path) -> Vec<KnownProbe> {
    if path.is_dir() {
        Recording::open(path).map(|recording| inventory::of_recording(&recording)).unwrap_or_default()
    } else if path.is_file() {
        inventory::of_targets(&[], Some(path), &[]).unwrap_or_default()
    } else {
        Vec::new()
    }
}

/// Each name once, with its help.
fn once(found: impl Iterator<Item = (String, String)>) -> Vec<CompletionCandidate> {
    let by_name: BTreeMap<String, String> = found.collect();
    let candidate = |(name, help): (String, String)| {
        CompletionCandidate::new(name).help((!help.is_empty()).then(|| help.into()))
    };
    by_name.into_iter().map(candidate).collect()
}

fn pids() -> Vec<CompletionCandidate> {
    let programs = overview::programs().0;
    let of = |program: &Program| {
        let name = program.name.clone();
        program.pids.iter().map(move |pid| (pid.to_string(), name.clone())).collect::<Vec<_>>()
    };
    once(programs.iter().flat_map(of))
}

fn programs() -> Vec<CompletionCandidate> {
    let programs = overview::programs().0;
    once(programs.iter().map(|program| (program.name.clone(), format!("{} probes", program.probes.len()))))
}

fn named(probes: &[KnownProbe]) -> Vec<CompletionCandidate> {
    once(probes.iter().map(|probe| (text_of(probe), argument_names(probe).join(", "))))
}

fn text_of(probe: &KnownProbe) -> String {
    format!("{}:{}", probe.name.provider, probe.name.name)
}

fn argument_names(probe: &KnownProbe) -> Vec<&str> {
    probe.fields.iter().map(|field| field.name.as_str()).collect()
}

/// `provider:name`, and the fields of the probe once a condition has begun: `memcached:command__get if key`.
fn probes_and_conditions(text: &str, probes: &[KnownProbe]) -> Vec<CompletionCandidate> {
    let Some((probe, condition)) = text.split_once(" if ") else {
        return beginning_with(text, named(probes));
    };
    let start = condition.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    let before = &text[..text.len() - (condition.len() - start)];
    let of = probes.iter().filter(|known| text_of(known) == probe.trim());
    let fields = of.flat_map(argument_names).map(|field| (format!("{before}{field}"), String::new()));
    beginning_with(text, once(fields))
}

fn spans(probes: Vec<KnownProbe>) -> Vec<CompletionCandidate> {
    let spans = Available::new(Vec::new(), probes, false).spans;
    once(spans.iter().map(|span| (span_text(span), String::new())))
}

/// As `nopal spans` names it.
fn span_text(span: &Span) -> String {
    if span.provider.is_empty() { span.name.clone() } else { format!("{}:{}", span.provider, span.name) }
}

/// The fields of the spans and probes that the command line names, or of all.
fn fields(words: &[String], probes: Vec<KnownProbe>) -> Vec<CompletionCandidate> {
    let available = Available::new(Vec::new(), probes, false);
    let is_named = |name: &str| words.iter().any(|word| word == name);
    let spans = available.spans.iter().filter(|span| is_named(&span.name) || is_named(&span_text(span)));
    let of_spans = spans.filter_map(|span| available.fields_of(span)).flatten().map(|field| field.name);
    let of_probes = available.probes.iter().filter(|probe| is_named(&text_of(probe)));
    let of_probes = of_probes.flat_map(argument_names).map(str::to_owned);
    let mut found: Vec<String> = of_spans.chain(of_probes).collect();
    if found.is_empty() {
        found = available.probes.iter().flat_map(argument_names).map(str::to_owned).collect();
    }
    once(found.into_iter().map(|field| (field, String::new())))
}

fn sessions() -> Vec<CompletionCandidate> {
    let all = nopal_session::home::Home::find().and_then(|home| home.all()).unwrap_or_default();
    once(all.into_iter().map(|session| (session.name, String::new())))
}
