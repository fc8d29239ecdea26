//! Functions as probes: `function:FILE:NAME` stands for `file:NAME__entry` and `file:NAME__return` of each function that fits, with
//! its first six arguments and what it returns.

use nopal_proc::MappedObject;
use nopal_proc::file_functions::{Edges, FileFunctions, Unfit};
use nopal_sdt::operand::{Arch, parse};
use nopal_sdt::pattern::glob;
use nopal_sdt::probe::{Arg, ArgDescription, Description, Edge, Kind, Probe, Site};
use std::collections::HashSet;
use std::path::Path;

const ENTRY: &str = "__entry";
const RETURN: &str = "__return";
const ARGUMENTS: [(&str, &str); 6] = [
    ("arg0", "-8@%rdi"),
    ("arg1", "-8@%rsi"),
    ("arg2", "-8@%rdx"),
    ("arg3", "-8@%rcx"),
    ("arg4", "-8@%r8"),
    ("arg5", "-8@%r9"),
];
const RETURNED: [(&str, &str); 1] = [("retval", "-8@%rax")];

/// Which functions are meant by `function:FILE:NAME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FunctionPattern<'t> {
    file: &'t str,
    name: &'t str,
}

impl<'t> FunctionPattern<'t> {
    /// `None` if the text is about probes.
    pub(crate) fn parse(text: &'t str) -> Option<FunctionPattern<'t>> {
        let (file, name) = text.strip_prefix("function:")?.rsplit_once(':')?;
        (!file.is_empty() && !name.is_empty()).then_some(FunctionPattern { file, name })
    }

    fn is_file(&self, path: &Path) -> bool {
        if self.file.contains('/') {
            return path.as_os_str() == self.file
                || std::fs::canonicalize(self.file).is_ok_and(|real| real == path);
        }
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let stem = file.split(".so").next().unwrap_or(file);
        [file, stem, short(stem)].iter().any(|name| glob(self.file, name))
    }

    /// Whether a probe that stands for a function is one of these.
    pub(crate) fn accepts(&self, probe: &Probe) -> bool {
        let name = probe.name.strip_suffix(ENTRY).or_else(|| probe.name.strip_suffix(RETURN));
        name.is_some_and(|name| glob(self.name, name))
    }
}

/// `libruby` for `libruby-3.1`.
fn short(stem: &str) -> &str {
    let short = stem.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'));
    if short.is_empty() { stem } else { short }
}

/// The functions of a mapped file that one of the patterns means, as probes. `taken`: where static probes are.
pub(crate) fn probes(
    mapped: &MappedObject,
    patterns: &[FunctionPattern<'_>],
    taken: impl Iterator<Item = u64>,
) -> Vec<Probe> {
    let meant: Vec<&FunctionPattern<'_>> = patterns.iter().filter(|p| p.is_file(&mapped.path)).collect();
    if meant.is_empty() {
        return Vec::new();
    }
    let Ok(image) = mapped.open() else { return Vec::new() };
    let file = FileFunctions::read(image);
    let name = mapped.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let provider = short(name.split(".so").next().unwrap_or(name)).to_owned();
    let mut known: HashSet<u64> = taken.collect();
    let mut found = Vec::new();
    for function in file.symbols().functions().filter(|f| f.address != 0) {
        // Of several names the first counts.
        if !meant.iter().any(|p| glob(p.name, function.name)) || known.contains(&function.address) {
            continue;
        }
        let Ok(edges) = file.edges(&function) else { continue };
        known.insert(function.address);
        let (entry, exits) = sites(edges, &mut known);
        let probe = |suffix: &str, args: &[(&str, &str)], sites: Vec<Site>| Probe {
            provider: provider.clone(),
            name: format!("{}{suffix}", function.name),
            sites: sites.into_iter().map(|site| Site { args: operands(args), ..site }).collect(),
            description: Some(Description { args: described(args), ..Description::default() }),
        };
        found.push(probe(ENTRY, &ARGUMENTS, vec![entry]));
        let (exits, has_value) = exits;
        if !exits.is_empty() {
            found.push(probe(RETURN, if has_value { &RETURNED } else { &[] }, exits));
        }
    }
    found
}

/// Where it is entered and left, and whether it is known there what it returns.
fn sites(edges: Edges, known: &mut HashSet<u64>) -> (Site, (Vec<Site>, bool)) {
    let exits = match &edges.exits {
        Ok(exits) if exits.iter().any(|site| known.contains(&site.address)) => {
            Err("something else is traced where it is left".to_owned())
        }
        Ok(exits) => Ok(exits.clone()),
        Err(unfit) => Err(Unfit::to_string(unfit)),
    };
    match exits {
        Ok(exits) => {
            known.extend(exits.iter().map(|site| site.address));
            let has_value = !edges.has_tails();
            (edges.entry, (exits, has_value))
        }
        Err(reason) => {
            let exit = edges.any_return(reason);
            // The kernel's breakpoint would stand in the place of ours.
            let why = "the kernel sees its returns, and has a breakpoint on its entry".to_owned();
            let edge = edges.entry.edge.map(|edge| Edge { unfit: Some(why), ..edge });
            (Site { edge, ..edges.entry }, (vec![exit], true))
        }
    }
}

fn operands(args: &[(&str, &str)]) -> Vec<Arg> {
    let arg = |(_, text): &(&str, &str)| Arg { text: (*text).to_owned(), operand: parse(Arch::X86_64, text) };
    args.iter().map(arg).collect()
}

fn described(args: &[(&str, &str)]) -> Vec<ArgDescription> {
    let description = |(operand, (name, _)): (u8, &(&str, &str))| ArgDescription {
        operand: Some(operand),
        name: (*name).to_owned(),
        kind: Kind::Signed,
        ..ArgDescription::default()
    };
    (1..).zip(args).map(description).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_by_path_name_or_short_name() {
        for (text, path, is_meant) in [
            ("function:libruby:rb_*", "/usr/lib/libruby-3.1.so.3.1.2", true),
            ("function:libruby-3.1:rb_*", "/usr/lib/libruby-3.1.so.3.1.2", true),
            ("function:libssl:SSL_read", "/usr/lib/libssl.so.3", true),
            ("function:libssl:SSL_read", "/usr/lib/libssl3.so", true),
            ("function:libssl:SSL_read", "/usr/lib/libsslx.so.3", false),
            ("function:/opt/app:main", "/opt/app", true),
            ("function:/opt/app:main", "/opt/app2", false),
            ("function:mem*:process_*", "/usr/bin/memcached", true),
        ] {
            let pattern = FunctionPattern::parse(text).unwrap();
            assert_eq!(pattern.is_file(Path::new(path)), is_meant, "{text} {path}");
        }
        for text in ["libssl:SSL_read", "function:", "function:x", "function::x", "function:x:"] {
            assert_eq!(FunctionPattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_function_is_two_probes() {
        let pattern = FunctionPattern::parse("function:app:handle*").unwrap();
        let probe = |name: &str| Probe {
            provider: "app".into(),
            name: name.into(),
            sites: vec![],
            description: None,
        };
        for (name, fits) in
            [("handle__entry", true), ("handle2__return", true), ("handle", false), ("other__entry", false)]
        {
            assert_eq!(pattern.accepts(&probe(name)), fits, "{name}");
        }
    }
}
