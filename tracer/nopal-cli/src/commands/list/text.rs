//! The list as people read it: one line a probe, more with `-v`.

use super::findings::Found;
use crate::needs::started_as;
use clap::builder::styling::{AnsiColor, Style};
use nopal_sdt::operand::Operand;
use nopal_sdt::probe::{ArgDescription, Kind, PairRole, Probe, Site};
use nopal_spans::catalog;
use nopal_spans::file::Trap;
use std::fmt::Write;

/// Names longer than this do not push the columns of all others to the right.
const WIDEST_NAME: usize = 56;

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

pub(super) fn render(all: &[Found], is_verbose: bool, is_coloured: bool) -> String {
    let styles = Styles::new(is_coloured);
    let names = all.iter().flat_map(|found| &found.object.probes);
    let width = names.map(full_width).filter(|&width| width <= WIDEST_NAME).max().unwrap_or(0).max(5);
    let mut out = String::new();
    for (idx, found) in all.iter().enumerate() {
        if idx > 0 {
            out.push('\n');
        }
        heading(&mut out, found, is_verbose, &styles);
        let quiet = styles.quiet;
        let _ = writeln!(out, "  {quiet}{:width$}  SITES  SEMAPHORE  ARGUMENTS{quiet:#}", "PROBE");
        for probe in &found.object.probes {
            line(&mut out, probe, width, &styles);
            if is_verbose {
                details(&mut out, found, probe, &styles);
            }
        }
    }
    out
}

fn heading(out: &mut String, found: &Found, is_verbose: bool, styles: &Styles) {
    let object = &found.object;
    let file = styles.file;
    let path = printable(&found.path.to_string_lossy());
    let _ = write!(out, "{file}{path}{file:#}: ");
    let _ = write!(out, "{}, {}", count(object.probes.len(), "probe"), count(object.n_sites(), "site"));
    if object.n_ghosts > 0 {
        let _ = write!(out, ", {} of discarded code left out", count(object.n_ghosts, "note"));
    }
    if is_verbose && object.n_duplicates > 0 {
        let _ = write!(out, ", {} left out", count(object.n_duplicates, "duplicate note"));
    }
    if let (true, Some(pid)) = (is_verbose, found.pid) {
        let _ = write!(out, ", in process {pid}");
    }
    if let (true, Some(bias)) = (is_verbose, found.bias) {
        let _ = write!(out, ", loaded at {bias:#x}");
    }
    if let (true, Some(build_id)) = (is_verbose, &object.build_id) {
        out.push_str(", build ID ");
        for byte in build_id {
            let _ = write!(out, "{byte:02x}");
        }
    }
    out.push('\n');
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn full_width(probe: &Probe) -> usize {
    probe.provider.chars().count() + 1 + probe.name.chars().count()
}

fn line(out: &mut String, probe: &Probe, width: usize, styles: &Styles) {
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
    let args = printable(&arguments(probe).join(", "));
    // No blanks at the end of a line.
    let _ = match args.is_empty() {
        true => writeln!(out, "{semaphore}"),
        false => writeln!(out, "{semaphore:9}  {args}"),
    };
}

fn details(out: &mut String, found: &Found, probe: &Probe, styles: &Styles) {
    let description = probe.description.as_ref();
    if let Some(description) = description {
        for line in description.doc.lines() {
            let _ = writeln!(out, "      {}", printable(line));
        }
        for arg in &description.args {
            argument_details(out, arg);
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
        let _ = writeln!(out, "      note: {}", trap.needs);
    }
    let quiet = styles.quiet;
    for site in &probe.sites {
        let _ = write!(out, "      {quiet}site{quiet:#} {:#x}", site.address);
        if !found.object.is_debug_copy {
            let _ = write!(out, " {quiet}offset{quiet:#} {:#x}", site.file_offset);
        }
        if let Some(bias) = found.bias.filter(|&bias| bias != 0) {
            let _ = write!(out, " {quiet}in memory{quiet:#} {:#x}", site.address.wrapping_add(bias));
        }
        if let Some(semaphore) = site.semaphore {
            let (address, offset) = (semaphore.address, semaphore.file_offset);
            let _ = write!(out, " {quiet}semaphore{quiet:#} {address:#x} {quiet}offset{quiet:#} {offset:#x}");
        }
        let operands: Vec<&str> = site.args.iter().map(|arg| arg.text.as_str()).collect();
        if !operands.is_empty() {
            let _ = write!(out, " {quiet}operands{quiet:#} {}", printable(&operands.join(" ")));
        }
        out.push('\n');
        for (number, arg) in (1..).zip(&site.args) {
            if let Err(error) = &arg.operand {
                let reason = printable(&error.reason);
                let _ = writeln!(out, "        argument {number} cannot be read: {reason}");
            }
        }
    }
}

fn argument_details(out: &mut String, arg: &ArgDescription) {
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
    let _ = writeln!(out, "      {text}");
}

/// The arguments as a C programmer would declare them; those nobody named by the type of their operand.
fn arguments(probe: &Probe) -> Vec<String> {
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
