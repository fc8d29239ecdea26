//! `nopal list -u`: the running programs that have probes, as far as they may be read.

use super::text::{arguments, printable};
use super::{is_coloured, print};
use crate::commands::answers::render::width;
use crate::failure::Failure;
use crate::words::wrapped;
use clap::builder::styling::Style;
use nopal_proc::TargetError;
use nopal_sdt::Pattern;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write;
use std::rc::Rc;

#[derive(Serialize)]
struct Program {
    pid: u32,
    command: String,
    program: String,
    providers: Vec<ProviderJson>,
}

#[derive(Serialize, Clone)]
struct ProviderJson {
    provider: String,
    probes: usize,
    file: String,
    names: Vec<Name>,
}

#[derive(Serialize, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_level: Option<i32>,
    /// The arguments, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<String>>,
}

/// More of one provider are shown with -v only.
const FEW: usize = 12;

/// Providers and names of a file's probes; the same file is read once for all processes that map it.
type Names = Rc<Vec<(String, Name)>>;
type FileId = (u32, u32, u64);

/// What is shown beside the names.
#[derive(Clone, Copy)]
pub(super) struct Detail {
    pub(super) is_verbose: bool,
    pub(super) has_fields: bool,
}

impl Detail {
    fn is_whole(self) -> bool {
        self.is_verbose || self.has_fields
    }
}

pub(super) fn run(patterns: &[Pattern], is_json: bool, detail: Detail) -> Result<(), Failure> {
    let mut files: HashMap<FileId, Names> = HashMap::new();
    let mut programs = Vec::new();
    let mut n_not_permitted = 0;
    let me = std::process::id();
    for process in nopal_proc::processes().into_iter().filter(|process| process.pid != me) {
        let objects = match nopal_proc::mapped_objects(process.pid) {
            Ok(objects) => objects,
            Err(TargetError::NotPermitted { .. }) => {
                n_not_permitted += 1;
                continue;
            }
            // It has ended meanwhile.
            Err(_) => continue,
        };
        let providers: Vec<_> =
            objects.iter().flat_map(|object| providers(&mut files, object, patterns, detail)).collect();
        if !providers.is_empty() {
            programs.push(Program {
                pid: process.pid,
                command: process.command_line(),
                program: process.program().unwrap_or_default().to_string_lossy().into_owned(),
                providers,
            });
        }
    }
    let output = match is_json {
        true => {
            let json = serde_json::to_string_pretty(&programs);
            json.expect("strings, numbers and lists become JSON") + "\n"
        }
        false => render(&programs, detail),
    };
    print(&output)?;
    if n_not_permitted > 0 && !is_json {
        let processes = if n_not_permitted == 1 { "process" } else { "processes" };
        tell!("nopal: {n_not_permitted} {processes} not read: of another user, or protected");
    }
    if programs.is_empty() {
        let what = if patterns.is_empty() { "has probes" } else { "has such a probe" };
        return Err(Failure::new("no-probes", format!("no running program that may be read {what}"))
            .hint("`nopal list FILE` shows the probes of a program that is not running"));
    }
    Ok(())
}

/// How many probes of which provider a mapped file has.
fn providers(
    files: &mut HashMap<FileId, Names>,
    object: &nopal_proc::MappedObject,
    patterns: &[Pattern],
    detail: Detail,
) -> Vec<ProviderJson> {
    let first = &object.mappings[0];
    let id = (first.device_major, first.device_minor, first.inode);
    let names = files.entry(id).or_insert_with(|| {
        let probes = object.open().ok().and_then(|image| nopal_sdt::read(image.bytes()).ok());
        let mut probes = probes.map(|object| object.probes).unwrap_or_default();
        if detail.has_fields {
            nopal_sdt::describe(&mut probes, &[]);
        }
        let named = |probe: nopal_sdt::probe::Probe| {
            let log_level = probe.description.as_ref().and_then(|description| description.log_level);
            let fields = detail.has_fields.then(|| arguments(&probe));
            (probe.provider, Name { name: probe.name, log_level, fields })
        };
        Rc::new(probes.into_iter().map(named).collect())
    });
    let mut by_provider: BTreeMap<&str, Vec<Name>> = BTreeMap::new();
    for (provider, name) in names.iter() {
        let is_wanted = |pattern: &Pattern| {
            pattern.matches(provider, &name.name) || pattern.is_part_of(provider, &name.name)
        };
        if patterns.is_empty() || patterns.iter().any(is_wanted) {
            by_provider.entry(provider).or_default().push(name.clone());
        }
    }
    let file = object.path.to_string_lossy();
    let rows = by_provider.into_iter();
    rows.map(|(provider, names)| ProviderJson {
        provider: provider.to_owned(),
        probes: names.len(),
        file: file.to_string(),
        names,
    })
    .collect()
}

fn render(programs: &[Program], detail: Detail) -> String {
    if programs.is_empty() {
        return String::new();
    }
    let quiet = if is_coloured() { Style::new().dimmed() } else { Style::new() };
    let bold = if is_coloured() { Style::new().bold() } else { Style::new() };
    let mut out = format!("{quiet}{:>7}  PROVIDERS AND PROBES; COMMAND{quiet:#}\n", "PID");
    for Group { program, names, more } in groups(programs) {
        let counted =
            |(provider, names): (&&str, &BTreeSet<&Name>)| format!("{} {}", printable(provider), names.len());
        let providers: Vec<String> = names.iter().map(counted).collect();
        let command = if program.command.is_empty() { &program.program } else { &program.command };
        let width = width();
        let mut command: String = printable(command).chars().take(width.saturating_sub(9).min(80)).collect();
        command.truncate(command.trim_end().len());
        let _ =
            writeln!(out, "{bold}{:>7}{bold:#}  {}", program.pid, wrapped(&providers.join(", "), 9, width));
        let _ = writeln!(out, "{:>7}  {quiet}{command}{quiet:#}", "");
        if !more.is_empty() {
            let _ = writeln!(
                out,
                "{:>7}  {quiet}the same in {}{quiet:#}",
                "",
                in_short(&more, detail.is_verbose)
            );
        }
        for (provider, names) in &names {
            let n_shown = if detail.is_whole() { names.len() } else { FEW };
            let mut shown: Vec<String> =
                names.iter().take(n_shown).map(|name| in_words(name, detail.is_verbose)).collect();
            if names.len() > n_shown {
                shown.push(format!("{} more (-v shows them)", names.len() - n_shown));
            }
            let line = format!("{}: {}", printable(provider), shown.join(", "));
            let _ = writeln!(out, "{:>7}  {}", "", wrapped(&line, 9, width));
        }
    }
    out
}

type NamesOf<'a> = BTreeMap<&'a str, BTreeSet<&'a Name>>;

/// Processes of one program with the same probes, such as those of a server.
struct Group<'a> {
    program: &'a Program,
    names: NamesOf<'a>,
    /// The numbers of the others.
    more: Vec<u32>,
}

/// In the order of their first processes; last the programs that have nothing but the probes of a library that all of their
/// language have, as one.
fn groups(programs: &[Program]) -> Vec<Group<'_>> {
    let (mut groups, mut plain): (Vec<Group<'_>>, Vec<Group<'_>>) = (Vec::new(), Vec::new());
    for program in programs {
        // Two files of a process may have probes of one provider, often the same ones.
        let mut names = NamesOf::new();
        for row in &program.providers {
            names.entry(&row.provider).or_default().extend(&row.names);
        }
        let is_plain = names.keys().all(|provider| *provider == "libstdcxx");
        let among = if is_plain { &mut plain } else { &mut groups };
        let same = |group: &&mut Group<'_>| {
            (is_plain || group.program.program == program.program) && group.names == names
        };
        match among.iter_mut().find(same) {
            Some(group) => group.more.push(program.pid),
            None => among.push(Group { program, names, more: Vec::new() }),
        }
    }
    groups.extend(plain);
    groups
}

fn in_short(pids: &[u32], is_verbose: bool) -> String {
    let n_shown = if is_verbose { pids.len() } else { FEW };
    let shown: Vec<String> = pids.iter().take(n_shown).map(u32::to_string).collect();
    match pids.len().saturating_sub(n_shown) {
        0 => shown.join(", "),
        more => format!("{} and {more} more (-v shows them)", shown.join(", ")),
    }
}

fn in_words(name: &Name, is_verbose: bool) -> String {
    let fields =
        name.fields.as_ref().map_or(String::new(), |fields| format!("({})", printable(&fields.join(", "))));
    match name.log_level {
        Some(level) if is_verbose => format!("{}{fields} (log level {level})", printable(&name.name)),
        _ => format!("{}{fields}", printable(&name.name)),
    }
}
