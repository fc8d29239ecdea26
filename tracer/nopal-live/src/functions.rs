//! Functions as probes: `function:FILE:NAME` stands for `file:NAME__entry` and `file:NAME__return` of each function that fits, with
//! its first six arguments, what it returns, and the stack pointer, which tells calls of it apart.

use nopal_proc::file_functions::{Edges, FileFunctions, Unfit};
use nopal_proc::symbols::demangle;
use nopal_proc::{Image, MappedObject};
use nopal_sdt::operand::{Arch, parse};
use nopal_sdt::pattern::glob;
use nopal_sdt::probe::{Arg, ArgDescription, Description, Edge, Kind, Probe, Side, Site};
use std::collections::HashSet;
use std::path::Path;

pub const ENTRY: &str = "__entry";
pub const RETURN: &str = "__return";
/// The stack pointer, which is the same where a call is entered and where it is left. Spans of functions pair by it.
const STACK: &str = "sp";
const ARGUMENTS: [(&str, &str); 7] = [
    ("arg0", "-8@%rdi"),
    ("arg1", "-8@%rsi"),
    ("arg2", "-8@%rdx"),
    ("arg3", "-8@%rcx"),
    ("arg4", "-8@%r8"),
    ("arg5", "-8@%r9"),
    (STACK, "8@%rsp"),
];
const RETURNED: [(&str, &str); 2] = [("retval", "-8@%rax"), (STACK, "8@%rsp")];

/// Which functions are meant by `function:FILE:NAME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionPattern<'t> {
    file: &'t str,
    name: &'t str,
}

impl<'t> FunctionPattern<'t> {
    /// `None` if the text is about probes.
    pub fn parse(text: &'t str) -> Option<FunctionPattern<'t>> {
        let (file, name) = text.strip_prefix("function:")?.split_once(':')?;
        (!file.is_empty() && !name.is_empty()).then_some(FunctionPattern { file, name })
    }

    /// Whether it is about a single function by its whole name.
    pub fn is_whole(&self) -> bool {
        !self.file.contains(GLOB) && !self.name.contains(GLOB)
    }

    pub fn name(&self) -> &'t str {
        self.name
    }

    /// The provider that the functions of its file have.
    pub fn provider(&self) -> String {
        provider_of(Path::new(self.file))
    }

    pub fn is_file(&self, path: &Path) -> bool {
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
        name.is_some_and(|name| self.fits(name))
    }

    /// By the name of the linker, or demangled with or without its parameters. Parts that compilers put elsewhere are not
    /// functions.
    fn fits(&self, symbol: &str) -> bool {
        let is_part = symbol.contains(".cold") && self.name.contains(GLOB);
        !is_part
            && (glob(self.name, symbol)
                || symbol.starts_with("_Z") && self.fits_shown(&demangle(symbol))
                || symbol.starts_with("_R") && self.fits_shown(&demangle(symbol)))
    }

    fn fits_shown(&self, shown: &str) -> bool {
        glob(self.name, shown) || glob(self.name, shown.split('(').next().unwrap_or_default())
    }
}

const GLOB: [char; 3] = ['*', '?', '['];

/// `libruby` for `/usr/lib/libruby-3.1.so.3.1.2`.
fn provider_of(path: &Path) -> String {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    short(name.split(".so").next().unwrap_or(name)).to_owned()
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
    match patterns.iter().any(|pattern| pattern.is_file(&mapped.path)) {
        true => {
            mapped.open().map_or(Vec::new(), |image| probes_of_file(&mapped.path, image, patterns, taken))
        }
        false => Vec::new(),
    }
}

/// The same of a file, by its path and what it holds.
pub fn probes_of_file(
    path: &Path,
    image: Image,
    patterns: &[FunctionPattern<'_>],
    taken: impl Iterator<Item = u64>,
) -> Vec<Probe> {
    let meant: Vec<&FunctionPattern<'_>> = patterns.iter().filter(|p| p.is_file(path)).collect();
    let file = FileFunctions::read(image);
    let provider = provider_of(path);
    let mut known: HashSet<u64> = taken.collect();
    let mut found = Vec::new();
    for function in file.symbols().functions().filter(|f| f.address != 0) {
        // Of several names the first counts.
        if !meant.iter().any(|p| p.fits(function.name)) || known.contains(&function.address) {
            continue;
        }
        let Ok(edges) = file.edges(&function) else { continue };
        known.insert(function.address);
        let (entry, exits, has_value) = sites(edges, &mut known);
        let is_by_kernel = exits.iter().any(is_any_return);
        let probe = |suffix: &str, args: &[(&str, &str)], sites: Vec<Site>| Probe {
            provider: provider.clone(),
            name: format!("{}{suffix}", function.name),
            sites: sites.into_iter().map(|site| Site { args: operands(args), ..site }).collect(),
            description: Some(Description { args: described(args), ..Description::default() }),
        };
        // Where the kernel sees a function return, the return address has left the stack already.
        let n_own = if is_by_kernel { 1 } else { 0 };
        found.push(probe(ENTRY, &ARGUMENTS[..ARGUMENTS.len() - n_own], vec![entry]));
        if !exits.is_empty() {
            let first = usize::from(!has_value);
            found.push(probe(RETURN, &RETURNED[first..RETURNED.len() - n_own], exits));
        }
    }
    found
}

fn is_any_return(site: &Site) -> bool {
    site.edge.as_ref().is_some_and(|edge| edge.side == Side::AnyReturn)
}

/// Where it is entered and left, and whether it is known there what it returns.
fn sites(edges: Edges, known: &mut HashSet<u64>) -> (Site, Vec<Site>, bool) {
    let exits = match &edges.exits {
        Ok(exits) if exits.iter().any(|site| known.contains(&site.address)) => {
            Err("something else is traced where it is left".to_owned())
        }
        Ok(exits) => Ok(exits.clone()),
        // The kernel changes the return address: what returns twice, or moves its stack, would not live on.
        Err(Unfit::Special { .. } | Unfit::NotCode) => Ok(Vec::new()),
        Err(unfit @ Unfit::Code(_)) => Err(unfit.to_string()),
    };
    match exits {
        Ok(exits) => {
            known.extend(exits.iter().map(|site| site.address));
            let has_value = !edges.has_tails();
            (edges.entry, exits, has_value)
        }
        Err(reason) => {
            let exit = edges.any_return(reason);
            // The kernel's breakpoint would stand in the place of ours.
            let why = "the kernel sees its returns, and has a breakpoint on its entry".to_owned();
            let edge = edges.entry.edge.map(|edge| Edge { unfit: Some(why), ..edge });
            (Site { edge, ..edges.entry }, vec![exit], true)
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
        kind: if *name == STACK { Kind::Pointer } else { Kind::Signed },
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
            ("function:app:Foo::bar", "/opt/app", true),
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
        for (text, name, fits) in [
            ("function:app:Foo::bar", "_ZN3Foo3barEi__entry", true),
            ("function:app:Foo::bar(int)", "_ZN3Foo3barEi__entry", true),
            ("function:app:Foo::*", "_ZN3Foo3barEi__return", true),
            ("function:app:Foo::ba", "_ZN3Foo3barEi__entry", false),
            ("function:app:*", "f.cold__entry", false),
        ] {
            let pattern = FunctionPattern::parse(text).unwrap();
            assert_eq!(pattern.accepts(&probe(name)), fits, "{text} {name}");
        }
    }
}
