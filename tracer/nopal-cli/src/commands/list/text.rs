//! The list as people read it: one line a probe, more with `-v`.

use super::findings::Found;
use crate::needs::started_as;
use crate::words::wrapped;
use clap::builder::styling::{AnsiColor, Style};
use nopal_sdt::operand::Operand;
use nopal_sdt::probe::{ArgDescription, Kind, PairRole, Probe, Site};
use nopal_spans::catalog;
use nopal_spans::file::Trap;
use std::fmt::Write;

/// Names longer than this do not push the columns of all others to the right.
const WIDEST_NAME: usize = 56;
/// Arguments that have less room than this behind the other columns stand on lines of their own.
const LEAST_ROOM: usize = 36;
/// Where lines about a probe begin.
const INDENT: usize = 6;

struct Styles {
    file: Style,
    provider: Style,
    name: Style,
    quiet: Style,
}

impl Styles {
    fn new(is_coloured: bool) -> Self {
        let plain = Style::new();
        if !is_coloured {
            return Styles { file: plain, provider: plain, name: plain, quiet: plain };
        }
        Styles {
            file: plain.bold(),
            provider: AnsiColor::Cyan.on_default(),
            name: AnsiColor::Green.on_default(),
            quiet: plain.dimmed(),
        }
    }
}

/// For a screen of so many columns.
pub(super) fn render(all: &[Found], is_verbose: bool, is_coloured: bool, screen: usize) -> String {
    let styles = Styles::new(is_coloured);
    let names = all.iter().flat_map(|found| &found.object.probes);
    let width = names.map(full_width).filter(|&width| width <= WIDEST_NAME).max().unwrap_or(0).max(5);
    let mut out = String::new();
    for (idx, found) in all.iter().enumerate() {
        if idx > 0 {
            out.push('\n');
        }
        heading(&mut out, found, is_verbose, &styles, screen);
        let quiet = styles.quiet;
        let _ = writeln!(out, "  {quiet}{:width$}  SITES  SEMAPHORE  ARGUMENTS{quiet:#}", "PROBE");
        for probe in &found.object.probes {
            line(&mut out, probe, width, &styles, screen);
            if is_verbose {
                details(&mut out, found, probe, &styles, screen);
            }
        }
    }
    out
}

fn heading(out: &mut String, found: &Found, is_verbose: bool, styles: &Styles, screen: usize) {
    let object = &found.object;
    let file = styles.file;
    let path = printable(&found.path.to_string_lossy());
    let mut parts = vec![count(object.probes.len(), "probe"), count(object.n_sites(), "site")];
    if object.n_ghosts > 0 {
        parts.push(format!("{} of discarded code left out", count(object.n_ghosts, "note")));
    }
    if is_verbose && object.n_duplicates > 0 {
        parts.push(format!("{} left out", count(object.n_duplicates, "duplicate note")));
    }
    if let (true, Some(pid)) = (is_verbose, found.pid) {
        parts.push(format!("in process {pid}"));
    }
    if let (true, Some(bias)) = (is_verbose, found.bias) {
        parts.push(format!("loaded at {bias:#x}"));
    }
    if let (true, Some(build_id)) = (is_verbose, &object.build_id) {
        let digits: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        parts.push(format!("build ID {digits}"));
    }
    let text = whole(parts).join(", ");
    let column = path.chars().count() + 2;
    let is_fit = text.chars().count() + column <= screen;
    let text = if is_fit { text } else { format!("\n  {}", wrapped(&text, 2, screen)) };
    let gap = if is_fit { " " } else { "" };
    let _ = writeln!(out, "{file}{path}{file:#}:{gap}{}", with_spaces(&text));
}

/// Parts that stay on one line each.
fn whole(parts: Vec<String>) -> Vec<String> {
    parts.into_iter().map(|part| part.replace(' ', "\u{a0}")).collect()
}

fn with_spaces(text: &str) -> String {
    text.replace('\u{a0}', " ")
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn full_width(probe: &Probe) -> usize {
    probe.provider.chars().count() + 1 + probe.name.chars().count()
}

fn line(out: &mut String, probe: &Probe, width: usize, styles: &Styles, screen: usize) {
    let (provider, name) = (styles.provider, styles.name);
    let _ = write!(
        out,
        "  {provider}{}{provider:#}:{name}{}{name:#}",
        printable(&probe.provider),
        printable(&probe.name)
    );
    let padding = width.saturating_sub(full_width(probe));
    let has_semaphore = probe.sites.iter().any(|site| site.semaphore.is_some());
    let semaphore = if has_semaphore { "yes" } else { "-" };
    let _ = write!(out, "{:padding$}  {:>5}  ", "", probe.sites.len());
    let args = whole(arguments(probe).iter().map(|arg| printable(arg)).collect()).join(", ");
    let column = width.max(full_width(probe)) + "    12345  SEMAPHORE  ".len();
    let room = screen.saturating_sub(column);
    // No blanks at the end of a line.
    let _ = if args.is_empty() {
        writeln!(out, "{semaphore}")
    } else if room >= LEAST_ROOM || args.chars().count() <= room {
        writeln!(out, "{semaphore:9}  {}", with_spaces(&wrapped(&args, column, screen)))
    } else {
        writeln!(out, "{semaphore}\n{:INDENT$}{}", "", with_spaces(&wrapped(&args, INDENT, screen)))
    };
}

fn details(out: &mut String, found: &Found, probe: &Probe, styles: &Styles, screen: usize) {
    let description = probe.description.as_ref();
    if let Some(description) = description {
        for line in description.doc.lines() {
            let _ = writeln!(out, "      {}", wrapped(&printable(line), INDENT, screen));
        }
        for arg in &description.args {
            argument_details(out, arg, screen);
        }
        if let Some(pair) = &description.pair {
            let role = match pair.role {
                PairRole::Start => "begins what ends with",
                PairRole::End => "ends what begins with",
            };
            let _ = writeln!(out, "      {role} {}:{}", printable(&probe.provider), printable(&pair.partner));
        }
    }
    // A process that was started as its probes need it has nothing to be told.
    let is_met = |trap: &Trap| found.pid.is_some_and(|pid| started_as(pid).has_what_it_needs(trap));
    if let Some(trap) = catalog::trap(&probe.provider, &probe.name).filter(|trap| !is_met(trap)) {
        let _ = writeln!(out, "      note: {}", wrapped(&trap.needs, INDENT + "note: ".len(), screen));
    }
    let quiet = styles.quiet;
    for site in &probe.sites {
        let mut facts = vec![("site", format!("{:#x}", site.address))];
        if !found.object.is_debug_copy {
            facts.push(("offset", format!("{:#x}", site.file_offset)));
        }
        if let Some(bias) = found.bias.filter(|&bias| bias != 0) {
            facts.push(("in memory", format!("{:#x}", site.address.wrapping_add(bias))));
        }
        if let Some(semaphore) = site.semaphore {
            facts.push(("semaphore", format!("{:#x}", semaphore.address)));
            facts.push(("offset", format!("{:#x}", semaphore.file_offset)));
        }
        let operands: Vec<&str> = site.args.iter().map(|arg| arg.text.as_str()).collect();
        if !operands.is_empty() {
            facts.push(("operands", printable(&operands.join(" "))));
        }
        facts_of_site(out, &facts, quiet, screen);
        for (number, arg) in (1..).zip(&site.args) {
            if let Err(error) = &arg.operand {
                let reason = printable(&error.reason);
                let _ = writeln!(out, "        argument {number} cannot be read: {reason}");
            }
        }
    }
}

/// What is known of a site, in as many lines as it needs.
fn facts_of_site(out: &mut String, facts: &[(&str, String)], quiet: Style, screen: usize) {
    let mut column = 0;
    for (name, value) in facts {
        let n = name.chars().count() + 1 + value.chars().count();
        if column > 0 && column + 1 + n > screen {
            out.push('\n');
            column = 0;
        }
        let indent = if column == 0 { INDENT + if *name == "site" { 0 } else { 2 } } else { 1 };
        let value = wrapped(value, INDENT + 4, screen.saturating_sub(name.len()));
        let _ = write!(out, "{:indent$}{quiet}{name}{quiet:#} {value}", "");
        column += indent + n;
    }
    out.push('\n');
}

fn argument_details(out: &mut String, arg: &ArgDescription, screen: usize) {
    if arg.doc.is_empty() && arg.labels.is_empty() {
        return;
    }
    let labels: Vec<String> = arg
        .labels
        .iter()
        .map(|label| match label.first == label.last {
            true => format!("{} {}", label.first, label.text),
            false => format!("{}-{} {}", label.first, label.last, label.text),
        })
        .collect();
    let doc = arg.doc.split_whitespace().collect::<Vec<_>>().join(" ");
    let separator = if doc.is_empty() || labels.is_empty() { "" } else { "; " };
    let text = printable(&format!("{}: {doc}{separator}{}", arg.name, labels.join(", ")));
    let _ = writeln!(out, "      {}", wrapped(&text, INDENT, screen));
}

/// The arguments as a C programmer would declare them; those nobody named by the type of their operand.
pub(super) fn arguments(probe: &Probe) -> Vec<String> {
    let n_operands = probe.sites.iter().map(|site| site.args.len()).max().unwrap_or(0);
    let Some(description) = &probe.description else {
        return (0..n_operands).map(|idx| machine_type(&probe.sites, idx)).collect();
    };
    let machine_type_of = |arg: &ArgDescription| match arg.operand {
        Some(operand) => machine_type(&probe.sites, usize::from(operand).saturating_sub(1)),
        None => kind_name(arg.kind).to_owned(),
    };
    // A probe with a packed block tells of all it has; operands of no field only fill places.
    if description.packed.is_some() {
        return description.args.iter().map(|arg| declaration(arg, || machine_type_of(arg))).collect();
    }
    let is_hidden = |operand: u8| description.args.iter().any(|arg| arg.length_operand == Some(operand));
    let mut shown = Vec::new();
    for idx in 0..n_operands {
        let operand = u8::try_from(idx + 1).unwrap_or(u8::MAX);
        match description.args.iter().find(|arg| arg.operand == Some(operand)) {
            Some(arg) => shown.push(declaration(arg, || machine_type_of(arg))),
            None if is_hidden(operand) => {}
            None => shown.push(machine_type(&probe.sites, idx)),
        }
    }
    shown
}

fn declaration(arg: &ArgDescription, machine_type: impl FnOnce() -> String) -> String {
    let c_type = if arg.c_type.is_empty() { machine_type() } else { arg.c_type.clone() };
    let brackets = brackets(arg);
    match (arg.name.is_empty(), c_type.ends_with('*')) {
        (true, _) => c_type + &brackets,
        (false, true) => format!("{c_type}{}{brackets}", arg.name),
        (false, false) => format!("{c_type} {}{brackets}", arg.name),
    }
}

/// What makes an array of its type: `[3]`, or `[]` for a sequence.
pub(super) fn brackets(arg: &ArgDescription) -> String {
    match (arg.kind, arg.element) {
        (Kind::Array, Some(element)) => format!("[{}]", element.count),
        (Kind::Sequence, _) => "[]".to_owned(),
        _ => String::new(),
    }
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Unknown => "?",
        Kind::Signed => "int",
        Kind::Unsigned => "unsigned",
        Kind::Pointer => "void *",
        Kind::Bool => "bool",
        Kind::CString | Kind::Str => "string",
        Kind::Bytes => "bytes",
        Kind::Float => "float",
        Kind::Enum => "enum",
        Kind::Array => "array",
        Kind::Sequence => "sequence",
        Kind::Char => "char",
    }
}

/// The sites of a probe may differ in the width of an argument; then all widths are named.
fn machine_type(sites: &[Site], idx: usize) -> String {
    let mut types: Vec<String> = Vec::new();
    for arg in sites.iter().filter_map(|site| site.args.get(idx)) {
        let name = arg.operand.as_ref().map_or_else(|_| "?".to_owned(), operand_type);
        if !types.contains(&name) {
            types.push(name);
        }
    }
    types.join("/")
}

pub(super) fn operand_type(operand: &Operand) -> String {
    let kind = match (operand.is_float, operand.is_signed) {
        (true, _) => "float",
        (false, true) => "int",
        (false, false) => "uint",
    };
    format!("{kind}{}", u32::from(operand.size_bytes) * 8)
}

/// Text from a file must not steer the terminal.
pub(super) fn printable(text: &str) -> String {
    nopal_trace::escape(text).into_owned()
}
