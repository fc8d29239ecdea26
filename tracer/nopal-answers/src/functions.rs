//! Functions as spans: what `FILE:NAME` stands for in the files of the targets. A call of a function is a span from where it
//! is entered to where it is left, whichever way that is.

use crate::inventory::{catalog, known};
use nopal_live::functions::{ENTRY, FunctionPattern, RETURN, probes_of_file};
use nopal_proc::demangle::demangle;
use nopal_proc::symbols::FileSymbols;
use nopal_proc::{Image, TargetError};
use nopal_run::catalog::LiveCatalog;
use nopal_spans::{GOROUTINE, KnownProbe, ProbeName, STACK, Source, Span};
use std::collections::{BTreeMap, HashSet};
use std::path::Path;

/// The files whose functions can be asked for.
#[derive(Debug)]
pub struct FunctionFiles {
    files: LiveCatalog,
    /// Whether a command will be started, which may load more.
    is_open: bool,
}

/// What a word stands for.
#[derive(Debug, Default)]
pub struct Found {
    pub spans: Vec<Span>,
    pub probes: Vec<KnownProbe>,
    /// Functions that fit and have no end that could be seen.
    pub endless: Vec<String>,
}

impl FunctionFiles {
    /// Of processes with their descendants, and of a command that is yet to be started with the libraries it names.
    pub fn of_targets(pids: &[u32], program: Option<&Path>) -> Result<FunctionFiles, TargetError> {
        Ok(FunctionFiles { files: catalog(pids, program, &[])?, is_open: program.is_some() })
    }

    /// The functions that `function:FILE:NAME` stands for; nothing if it is written otherwise or there are none.
    pub fn find(&self, pattern: &str) -> Found {
        let mut found = Found::default();
        let Some(pattern) = FunctionPattern::parse(pattern) else { return found };
        for (path, reachable, probes) in self.files.paths().filter(|(path, ..)| pattern.is_file(path)) {
            let Ok(image) = Image::open(reachable) else { continue };
            let taken = probes.iter().flat_map(|probe| probe.sites.iter().map(|site| site.address));
            let probes = probes_of_file(path, image, &[pattern], taken);
            found.add(probes.iter().map(|probe| known(probe, &[])).collect());
        }
        // A library that the command loads later.
        if found.probes.is_empty() && self.is_open && pattern.is_whole() {
            let provider = pattern.provider();
            let probe = |end: &str| ProbeName::new(&provider, &format!("{}{end}", pattern.name()));
            found.spans.push(Span::call(pattern.name(), probe(ENTRY), probe(RETURN), Source::CommandLine));
        }
        found
    }

    /// The file that a pattern is about, and the names of the functions there.
    pub fn names(&self, pattern: &str) -> (Option<String>, Vec<String>) {
        let Some(pattern) = FunctionPattern::parse(pattern) else { return (None, Vec::new()) };
        let mut files = self.files.paths().filter(|(path, ..)| pattern.is_file(path));
        let Some((path, reachable, _)) = files.next() else { return (None, Vec::new()) };
        let symbols = Image::open(reachable).map(|image| FileSymbols::read(image.bytes()));
        let names = symbols.map_or(Vec::new(), |all| all.functions().map(|f| demangle(f.name)).collect());
        (Some(path.display().to_string()), names)
    }
}

impl Found {
    fn add(&mut self, probes: Vec<KnownProbe>) {
        let names: HashSet<&ProbeName> = probes.iter().map(|probe| &probe.name).collect();
        let mut spans: BTreeMap<&str, Span> = BTreeMap::new();
        for probe in &probes {
            let Some(symbol) = probe.name.name.strip_suffix(ENTRY) else { continue };
            let end = ProbeName::new(&probe.name.provider, &format!("{symbol}{RETURN}"));
            if !names.contains(&end) {
                self.endless.push(demangle(symbol));
                continue;
            }
            let has = |name: &str| probe.fields.iter().any(|field| field.name == name);
            let make = match (has(STACK), has(GOROUTINE)) {
                (true, true) => Span::goroutine_call,
                (true, false) => Span::call,
                (false, _) => Span::pair,
            };
            let shown = demangle(symbol);
            // Two functions of one name are one span; the stack pointer keeps their calls apart.
            spans.entry(symbol).or_insert_with(|| make(&shown, probe.name.clone(), end, Source::CommandLine));
        }
        self.spans.extend(spans.into_values());
        self.probes.extend(probes);
    }
}
