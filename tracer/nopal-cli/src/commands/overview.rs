//! `nopal` without a verb: what is running here that can be traced, what nopal may do, and what to type next.

use crate::failure::Failure;
use clap::builder::styling::Style;
use nopal_answers::inventory;
use nopal_doctor::{Finding, Level, Machine};
use nopal_proc::capability::Capability;
use nopal_proc::{MappedObject, Process, mapped_objects};
use nopal_spans::{Available, KnownProbe, Span};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::Path;

/// Rows that fit a screen with the rest.
const MAX_PROGRAMS: usize = 8;
/// What programs do for others, if they say: these come first.
const TELLING: [&str; 6] = ["query", "command", "request", "method", "function", "call"];
/// Letters of the spans of one row, so that it fits 80 columns.
const MAX_LETTERS: usize = 40;

/// The processes of one program that have probes.
pub(super) struct Program {
    pub(super) name: String,
    /// The eldest first; the others are counted.
    pub(super) pids: Vec<u32>,
    pub(super) probes: Vec<KnownProbe>,
    spans: Vec<Span>,
}

pub(super) fn run() -> Result<(), Failure> {
    let (programs, n_hidden) = programs();
    let machine = Machine::read(Path::new("/"));
    let mut out = String::new();
    table(&programs, n_hidden, &mut out);
    rights(&nopal_doctor::machine(&machine), &mut out);
    suggestions(&programs, &mut out);
    anstream::print!("{}", nopal_trace::escape_styled(&out));
    Ok(())
}

/// The running programs with probes, and how many processes could not be looked at.
pub(super) fn programs() -> (Vec<Program>, usize) {
    let me = std::process::id();
    let mut n_hidden = 0;
    // The same file is read once for all processes that map it.
    let mut files: HashMap<(u32, u32, u64), bool> = HashMap::new();
    let mut by_name: BTreeMap<String, Vec<Process>> = BTreeMap::new();
    for process in nopal_proc::processes().into_iter().filter(|process| process.pid != me) {
        let objects = match mapped_objects(process.pid) {
            Ok(objects) => objects,
            Err(nopal_proc::TargetError::NotPermitted { .. }) => {
                n_hidden += 1;
                continue;
            }
            // It has ended meanwhile.
            Err(_) => continue,
        };
        if objects.iter().any(|object| has_probes(&mut files, object)) {
            by_name.entry(process.name.clone()).or_default().push(process);
        }
    }
    let mut programs: Vec<Program> =
        by_name.into_iter().filter_map(|(name, family)| program(name, family)).collect();
    programs.sort_by_key(|program| Reverse((program.spans.len().min(1), program.probes.len())));
    (programs, n_hidden)
}

fn has_probes(files: &mut HashMap<(u32, u32, u64), bool>, object: &MappedObject) -> bool {
    let first = &object.mappings[0];
    *files.entry((first.device_major, first.device_minor, first.inode)).or_insert_with(|| {
        let read = object.open().ok().and_then(|image| nopal_sdt::read(image.bytes()).ok());
        read.is_some_and(|object| !object.probes.is_empty())
    })
}

fn program(name: String, mut family: Vec<Process>) -> Option<Program> {
    family.sort_by_key(|process| process.start_time_ticks);
    let pids: Vec<u32> = family.iter().map(|process| process.pid).collect();
    let probes = inventory::of_targets(&pids[..1], None, &[]).ok()?;
    let mut spans = Available::new(Vec::new(), probes.clone(), false).spans;
    // A library that every program of C++ has is not what people look for.
    let n_probes = |provider: &str| probes.iter().filter(|probe| probe.name.provider == provider).count();
    let rank = |name: &str| TELLING.iter().position(|telling| *telling == name).unwrap_or(usize::MAX);
    spans.sort_by_cached_key(|span| (Reverse(n_probes(&span.provider)), rank(&span.name)));
    Some(Program { name, pids, probes, spans })
}

fn table(programs: &[Program], n_hidden: usize, out: &mut String) {
    let (bold, quiet) = (Style::new().bold(), Style::new().dimmed());
    if programs.is_empty() {
        let _ = writeln!(out, "No program with probes is running here that you may look into.");
    } else {
        let _ = writeln!(out, "{quiet}{:>7}  {:<15} {:>6}  SPANS{quiet:#}", "PID", "PROGRAM", "PROBES");
    }
    for program in programs.iter().take(MAX_PROGRAMS) {
        let others = match program.pids.len() {
            1 => String::new(),
            n => format!(" {quiet}({n} processes){quiet:#}"),
        };
        let room = if others.is_empty() { MAX_LETTERS } else { MAX_LETTERS - 16 };
        let _ = writeln!(
            out,
            "{bold}{:>7}{bold:#}  {:<15} {:>6}  {}{others}",
            program.pids[0],
            program.name,
            program.probes.len(),
            spans_in(room, &program.spans)
        );
    }
    if programs.len() > MAX_PROGRAMS {
        let _ =
            writeln!(out, "         and {} more; `nopal list -u` shows all", programs.len() - MAX_PROGRAMS);
    }
    if n_hidden > 0 {
        let processes = if n_hidden == 1 { "process" } else { "processes" };
        // Who may look into any process and yet not into these is not helped by being root.
        let why = match Capability::SysPtrace.is_held() {
            true => "closed to everybody, not looked at",
            false => "of other users not looked at; root sees them",
        };
        let _ = writeln!(out, "         {n_hidden} {processes} {why}");
    }
}

/// As many names as fit, and how many do not.
fn spans_in(room: usize, spans: &[Span]) -> String {
    let mut text = String::new();
    for (n, span) in spans.iter().enumerate() {
        let more = format!("{}{}", if n == 0 { "" } else { ", " }, span.name);
        if n > 0 && text.len() + more.len() > room {
            let _ = write!(text, ", {} more", spans.len() - n);
            break;
        }
        text += &more;
    }
    text
}

fn rights(findings: &[Finding], out: &mut String) {
    let _ = writeln!(out);
    for finding in findings.iter().filter(|finding| matches!(finding.code, "yama" | "bpf")) {
        let _ = writeln!(out, "{}", sentence(&finding.what));
    }
    match findings.iter().filter(|finding| finding.level == Level::Problem).count() {
        0 => {}
        1 => _ = writeln!(out, "There is a problem: `nopal doctor` says what to do."),
        n => _ = writeln!(out, "There are {n} problems: `nopal doctor` says what to do."),
    }
}

/// With a capital letter and a full stop.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Three commands that work as they stand.
fn suggestions(programs: &[Program], out: &mut String) {
    let _ = writeln!(out, "\nTry:");
    let Some(first) = programs.first() else {
        let _ = writeln!(
            out,
            "  nopal demo                  a tour on a server of its own\n  nopal list FILE             the probes of a program\n  nopal --help                all verbs"
        );
        return;
    };
    let pid = first.pids[0];
    let mut lines = Vec::new();
    match first.spans.first() {
        Some(span) => {
            lines.push((format!("nopal top -p {pid}"), "what it is busy with"));
            lines.push((format!("nopal latency -p {pid} {}", span.full_name()), "how long that takes"));
        }
        None => lines.push((format!("nopal list -p {pid}"), "its probes and their arguments")),
    }
    let provider = first.spans.first().map(|span| span.provider.as_str());
    if let Some(provider) = provider.or(first.probes.first().map(|probe| probe.name.provider.as_str())) {
        lines.push((format!("nopal trace -p {pid} --limit 10 '{provider}:*'"), "each event as it comes"));
        if lines.len() < 3 {
            lines
                .push((format!("nopal count -p {pid} --duration 5s '{provider}:*'"), "how often each fires"));
        }
    }
    let width = lines.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    for (command, what) in lines {
        let _ = writeln!(out, "  {command:<width$}  {what}");
    }
    let _ = writeln!(out, "`nopal --help` shows all verbs.");
}
