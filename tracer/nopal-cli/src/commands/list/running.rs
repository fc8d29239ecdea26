//! `nopal list -u`: the running programs that have probes, as far as they may be read.

use super::{is_coloured, print, text::printable};
use crate::failure::Failure;
use clap::builder::styling::Style;
use nopal_engine::target::{self, TargetError};
use nopal_sdt::Pattern;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
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
}

/// The names of a file's probes; the same file is read once for all processes that map it.
type Names = Rc<Vec<(String, String)>>;
type FileId = (u32, u32, u64);

pub fn run(patterns: &[Pattern], is_json: bool) -> Result<(), Failure> {
    let mut files: HashMap<FileId, Names> = HashMap::new();
    let mut programs = Vec::new();
    let mut n_not_permitted = 0;
    let me = std::process::id();
    for process in target::processes().into_iter().filter(|process| process.pid != me) {
        let objects = match target::mapped_objects(process.pid) {
            Ok(objects) => objects,
            Err(TargetError::NotPermitted { .. }) => {
                n_not_permitted += 1;
                continue;
            }
            // It has ended meanwhile.
            Err(_) => continue,
        };
        let providers: Vec<_> =
            objects.iter().flat_map(|object| providers(&mut files, object, patterns)).collect();
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
        false => render(&programs),
    };
    print(&output)?;
    if n_not_permitted > 0 && !is_json {
        let processes = if n_not_permitted == 1 { "process" } else { "processes" };
        anstream::eprintln!("nopal: {n_not_permitted} {processes} not read: of another user, or protected");
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
    object: &target::MappedObject,
    patterns: &[Pattern],
) -> Vec<ProviderJson> {
    let first = &object.mappings[0];
    let id = (first.device_major, first.device_minor, first.inode);
    let names = files.entry(id).or_insert_with(|| {
        let probes = object.open().ok().and_then(|image| nopal_sdt::read(image.bytes()).ok());
        let probes = probes.map(|object| object.probes).unwrap_or_default();
        Rc::new(probes.into_iter().map(|probe| (probe.provider, probe.name)).collect())
    });
    let mut by_provider: BTreeMap<&str, usize> = BTreeMap::new();
    for (provider, name) in names.iter() {
        let is_wanted =
            |pattern: &Pattern| pattern.matches(provider, name) || pattern.is_part_of(provider, name);
        if patterns.is_empty() || patterns.iter().any(is_wanted) {
            *by_provider.entry(provider).or_default() += 1;
        }
    }
    let file = object.path.to_string_lossy();
    let rows = by_provider.into_iter();
    rows.map(|(provider, probes)| ProviderJson {
        provider: provider.to_owned(),
        probes,
        file: file.to_string(),
    })
    .collect()
}

fn render(programs: &[Program]) -> String {
    if programs.is_empty() {
        return String::new();
    }
    let quiet = if is_coloured() { Style::new().dimmed() } else { Style::new() };
    let bold = if is_coloured() { Style::new().bold() } else { Style::new() };
    let mut out = format!("{quiet}{:>7}  PROVIDERS AND PROBES; COMMAND{quiet:#}\n", "PID");
    for program in programs {
        // Two files of a process may have probes of one provider, often the same ones.
        let mut most: BTreeMap<&str, usize> = BTreeMap::new();
        for row in &program.providers {
            let probes = most.entry(&row.provider).or_default();
            *probes = row.probes.max(*probes);
        }
        let providers: Vec<String> =
            most.iter().map(|(provider, probes)| format!("{} {probes}", printable(provider))).collect();
        let command = if program.command.is_empty() { &program.program } else { &program.command };
        let mut command: String = printable(command).chars().take(80).collect();
        command.truncate(command.trim_end().len());
        let _ = writeln!(out, "{bold}{:>7}{bold:#}  {}", program.pid, providers.join(", "));
        let _ = writeln!(out, "{:>7}  {quiet}{command}{quiet:#}", "");
    }
    out
}
