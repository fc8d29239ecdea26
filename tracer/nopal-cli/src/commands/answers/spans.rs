//! `nopal spans`: the spans one can ask for.

use super::source::open_recording;
use super::{print, print_json, render};
use crate::failure::Failure;
use crate::known::declared;
use crate::processes::ProcessArgs;
use crate::reading::{cannot_read, provider_file};
use crate::words::counted;
use nopal_answers::inventory;
use nopal_spans::span::{Mode, ProbeName, Shape};
use nopal_spans::{Available, Span};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Lists the spans of a process, a program or a recording: what one can ask `latency`, `top` and `tree` for.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal spans -n postgres                 of a running program, with its libraries
  nopal spans /usr/lib/postgresql/15/bin/postgres
  nopal spans pg.rec                      of a recording
  nopal spans -p 1234 --json | jq -r '.rows[].span'

Where a definition comes from, the first wins: a file given with --spans or found as nopal.toml, the notes of the
binary, the catalog of well-known programs, .d files, names such as x__start and x__done. See docs/spans.md.")]
pub(crate) struct Args {
    /// A program, a library, or the folder of a recording.
    #[arg(value_name = "FILE|DIR")]
    pub what: Option<OsString>,
    #[command(flatten)]
    pub processes: ProcessArgs,
    /// A file that declares spans; without it `nopal.toml` here, if there is one.
    #[arg(long = "spans", value_name = "FILE.toml")]
    pub spans_file: Option<PathBuf>,
    /// A `.d` file that describes probes; may be given several times.
    #[arg(long = "provider", value_name = "FILE.d")]
    pub providers: Vec<PathBuf>,
    /// Says what each span is, and where its definition comes from.
    #[arg(short, long)]
    pub verbose: bool,
    /// Prints one JSON object with described columns.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    if args.what.is_some() && !args.processes.is_empty() {
        return Err(Failure::usage("a file or recording cannot be combined with -p, -n and the like"));
    }
    args.processes.resolve(false)?;
    let files = declared(args.spans_file.as_deref())?;
    let given = args.providers.iter().map(|path| provider_file(path)).collect::<Result<Vec<_>, _>>()?;
    let probes = match &args.what {
        Some(what) if Path::new(what).is_dir() => inventory::of_recording(&open_recording(Path::new(what))?),
        Some(what) => {
            let path = Path::new(what);
            let probes = inventory::of_targets(&[], Some(path), &given).map_err(|e| cannot_read(&e))?;
            if probes.is_empty() {
                // Says what is wrong with the file, if something is.
                crate::reading::read_file(path)?;
            }
            probes
        }
        None if args.processes.is_empty() => {
            return Err(Failure::usage("no process, program or recording is named")
                .hint("name one: -p PID, -n NAME, a FILE, or the DIR of a recording"));
        }
        None => {
            inventory::of_targets(&args.processes.pids, None, &given).map_err(|error| cannot_read(&error))?
        }
    };
    let n_probes = probes.len();
    let available = Available::new(files, probes, false);
    if args.json {
        return print_json(&format!("{}\n", object(&available)));
    }
    let mut text = String::new();
    for span in &available.spans {
        one(span, &available, args.verbose, &mut text);
    }
    print(&text)?;
    tell!(
        "{} in {}{}",
        counted(available.spans.len() as u64, "span"),
        counted(n_probes as u64, "probe"),
        if available.spans.is_empty() { "; two probes make one: `nopal latency BEGIN END`" } else { "" }
    );
    Ok(())
}

fn one(span: &Span, available: &Available, is_verbose: bool, text: &mut String) {
    let _ = writeln!(text, "{}", render::heading(&span.full_name()));
    if is_verbose && !span.doc.is_empty() {
        let _ = writeln!(text, "    {}", span.doc);
    }
    let mut line = |what: &str, value: String| {
        if !value.is_empty() {
            let line = format!("    {what:<7} {value}");
            let _ = writeln!(text, "{}", if is_verbose { line } else { render::cut(&line, render::width()) });
        }
    };
    match &span.shape {
        Shape::Pair { .. } => {
            line("between", format!("{} and {}", names(span, span.begins()), names(span, span.ends())))
        }
        Shape::Whole { duration, unit, .. } => {
            let unit =
                nopal_spans::Unit::ALL.iter().find(|(_, known)| known == unit).map_or("", |(name, _)| name);
            line("event", format!("{} with {duration} in {unit}", names(span, span.begins())));
        }
    }
    line("pairs", pairs(span));
    line("fields", fields(span, available).join(", "));
    line("error", error(span));
    line(
        "costs",
        if span.is_by_name {
            "much: not among all spans, asked for by name only".to_owned()
        } else {
            String::new()
        },
    );
    if is_verbose {
        line("from", span.source.to_string());
    }
}

/// Probes of the span's own provider by their names alone.
fn names(span: &Span, probes: &[ProbeName]) -> String {
    let name = |probe: &ProbeName| match probe.provider == span.provider {
        true => probe.name.clone(),
        false => probe.to_string(),
    };
    probes.iter().map(name).collect::<Vec<_>>().join(" or ")
}

fn pairs(span: &Span) -> String {
    let keys = || span.key().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match (&span.shape, &span.mode) {
        (Shape::Whole { .. }, _) => String::new(),
        (Shape::Pair { .. }, Mode::Key(_)) => format!("by {}", keys()),
        (Shape::Pair { .. }, Mode::Thread { matching }) if matching.is_empty() => "by thread".to_owned(),
        (Shape::Pair { .. }, Mode::Thread { .. }) => format!("by thread and {}", keys()),
    }
}

/// Those worth showing first, then the others.
fn fields(span: &Span, available: &Available) -> Vec<String> {
    let mut names: Vec<String> = span.fields.clone();
    let known = available.fields_of(span).unwrap_or_default();
    names.retain(|name| known.iter().any(|field| field.name == *name));
    for field in known {
        if !names.contains(&field.name) {
            names.push(field.name);
        }
    }
    names
}

fn error(span: &Span) -> String {
    let fails = (!span.fails.is_empty()).then(|| format!("ended by {}", names(span, &span.fails)));
    fails.into_iter().chain(span.error.clone()).collect::<Vec<_>>().join(", or ")
}

fn object(available: &Available) -> Value {
    let names = ["span", "begin", "end", "fail", "duration", "by", "key", "fields", "error", "by_name_only"];
    let columns: Vec<Value> = names
        .into_iter()
        .chain(["source", "doc"])
        .map(|name| json!({ "name": name, "unit": "", "class": "text" }))
        .collect();
    let texts = |probes: &[ProbeName]| probes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let rows: Vec<Value> = available
        .spans
        .iter()
        .map(|span| {
            let duration = match &span.shape {
                Shape::Pair { .. } => Value::Null,
                Shape::Whole { duration, .. } => Value::from(duration.as_str()),
            };
            json!({
                "span": span.full_name(),
                "begin": texts(span.begins()),
                "end": texts(span.ends()),
                "fail": texts(&span.fails),
                "duration": duration,
                "by": if matches!(span.mode, Mode::Key(_)) { "key" } else { "thread" },
                "key": span.key().iter().map(ToString::to_string).collect::<Vec<_>>(),
                "fields": fields(span, available),
                "error": span.error,
                "by_name_only": span.is_by_name,
                "source": span.source.to_string(),
                "doc": span.doc,
            })
        })
        .collect();
    json!({ "complete": true, "lost": 0, "unmatched": 0, "columns": columns, "rows": rows })
}
