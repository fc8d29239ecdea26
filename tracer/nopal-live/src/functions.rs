//! Functions as probes: `function:FILE:NAME` stands for `file:NAME__entry` and `file:NAME__return` of each function that fits, with
//! its parameters by name, or its first six arguments where no debug information tells of them, what it returns, and the stack
//! pointer, which tells calls of it apart.

mod go;

use nopal_dwarf::{DebugInfo, Parameter, Place, Register, Signature, Type};
use nopal_proc::demangle::{demangle, piece_of};
use nopal_proc::file_functions::{Edges, FileFunctions, Unfit};
use nopal_proc::{Image, MappedObject};
use nopal_sdt::operand::{Arch, parse};
use nopal_sdt::pattern::glob;
use nopal_sdt::probe::{Arg, ArgDescription, Description, Edge, Element, Kind, Label, Probe, Side, Site};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::path::Path;

pub const ENTRY: &str = "__entry";
pub const RETURN: &str = "__return";
/// The stack pointer, which is the same where a call is entered and where it is left. Spans of functions pair by it.
pub(crate) const STACK: &str = "sp";
/// The same of a function of Go, together.
const GOROUTINE: &str = "goroutine";
const STACK_END: &str = "stack_end";
const RETURNED: &str = "retval";
/// How many registers a call may have its numbers and addresses in.
const N_ARGUMENTS: usize = 6;
const C_REGISTERS: [&str; N_ARGUMENTS] = ["rdi", "rsi", "rdx", "rcx", "r8", "r9"];

/// Which functions are meant by `function:FILE:NAME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionPattern<'t> {
    file: &'t str,
    name: &'t str,
    /// What the linker's names of those that are meant have in them.
    piece: Option<&'t str>,
}

impl<'t> FunctionPattern<'t> {
    /// `None` if the text is about probes.
    pub fn parse(text: &'t str) -> Option<FunctionPattern<'t>> {
        let (file, name) = text.strip_prefix("function:")?.split_once(':')?;
        (!file.is_empty() && !name.is_empty()).then(|| FunctionPattern { file, name, piece: piece_of(name) })
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
                || (symbol.starts_with("_Z") || symbol.starts_with("_R"))
                    && self.piece.is_none_or(|piece| symbol.contains(piece))
                    && self.fits_shown(&demangle(symbol)))
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
    let debug_info = OnceCell::new();
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
        let is_go = file.is_go(function.address);
        let probe = |suffix: &str, mut values: Vec<Value>, sites: Vec<Site>| {
            // Where the kernel sees a function return, the return address has left the stack already.
            values.extend((!is_by_kernel).then(stack_pointer));
            values.extend(is_go.then(goroutine).into_iter().flatten());
            let args: Vec<Arg> = values.iter().flat_map(Value::args).collect();
            let mut operand = 1;
            let described = values.into_iter().map(|value| value.described(&mut operand)).collect();
            Probe {
                provider: provider.clone(),
                name: format!("{}{suffix}", function.name),
                sites: sites.into_iter().map(|site| Site { args: args.clone(), ..site }).collect(),
                description: Some(Description { args: described, ..Description::default() }),
            }
        };
        let info = debug_info.get_or_init(|| DebugInfo::of_file(path, file.image())).as_ref();
        let (given, returned) = match is_go {
            true => {
                let signature = info.and_then(|info| info.go_signature(function.address));
                (go::given(signature.as_ref()), go::returned(signature.as_ref()))
            }
            false => {
                let signature = info.and_then(|info| info.signature(function.address, function.name));
                (given(signature.as_ref()), returned(signature.as_ref()).into_iter().collect())
            }
        };
        found.push(probe(ENTRY, given, vec![entry]));
        if !exits.is_empty() {
            found.push(probe(RETURN, if has_value { returned } else { Vec::new() }, exits));
        }
    }
    found
}

/// One value of a function: where it is, and what it means.
#[derive(Debug)]
struct Value {
    name: String,
    kind: Kind,
    operand: String,
    /// How many bytes or elements the operand leads to.
    length: Option<String>,
    element: Option<Element>,
    c_type: String,
    labels: Vec<Label>,
}

impl Value {
    fn new(name: &str, kind: Kind, operand: String) -> Value {
        Value {
            name: name.to_owned(),
            kind,
            operand,
            length: None,
            element: None,
            c_type: String::new(),
            labels: Vec::new(),
        }
    }

    /// What debug information knows. `None`: a value that is not read as one.
    fn typed(name: &str, ty: &Type, written: &str, place: Place) -> Option<Value> {
        let Place::Register(register) = place else { return None };
        Value::typed_at(name, ty, written, &format!("%{}", register.name()))
    }

    /// The same of any place, written as an operand has it.
    fn typed_at(name: &str, ty: &Type, written: &str, place: &str) -> Option<Value> {
        let (kind, sign) = match ty {
            Type::Int { size_bytes: 1 | 2 | 4 | 8, is_signed: true } => (Kind::Signed, "-"),
            Type::Int { size_bytes: 1 | 2 | 4 | 8, is_signed: false } => (Kind::Unsigned, ""),
            Type::Bool => (Kind::Bool, ""),
            Type::Char => (Kind::Char, "-"),
            Type::Enum { size_bytes: 1 | 2 | 4 | 8, is_signed, .. } => {
                (Kind::Enum, if *is_signed { "-" } else { "" })
            }
            Type::Pointer { .. } if ty.is_text() => (Kind::CString, ""),
            Type::Pointer { .. } => (Kind::Pointer, ""),
            // Floating-point numbers are in registers that the kernel cannot read: it would refuse the function.
            Type::Void
            | Type::Int { .. }
            | Type::Enum { .. }
            | Type::Float { .. }
            | Type::Array { .. }
            | Type::Record(_)
            | Type::Other { .. } => return None,
        };
        let size_bytes = ty.size_bytes();
        let operand = format!("{sign}{size_bytes}@{place}");
        let labels = match ty {
            Type::Enum { labels, .. } => labels
                .iter()
                .map(|label| Label { first: label.value, last: label.value, text: label.text.clone() })
                .collect(),
            _ => Vec::new(),
        };
        Some(Value { c_type: written.to_owned(), labels, ..Value::new(name, kind, operand) })
    }

    fn args(&self) -> Vec<Arg> {
        let arg = |text: &String| Arg { text: text.clone(), operand: parse(Arch::X86_64, text) };
        std::iter::once(&self.operand).chain(&self.length).map(arg).collect()
    }

    /// `next` is the number of its operand, then of the next value's.
    fn described(self, next: &mut u8) -> ArgDescription {
        let operand = *next;
        let length_operand = self.length.is_some().then_some(operand + 1);
        *next = length_operand.unwrap_or(operand) + 1;
        ArgDescription {
            operand: Some(operand),
            length_operand,
            element: self.element,
            name: self.name,
            kind: self.kind,
            c_type: self.c_type,
            labels: self.labels,
            ..ArgDescription::default()
        }
    }
}

fn stack_pointer() -> Value {
    Value::new(STACK, Kind::Pointer, "8@%rsp".to_owned())
}

/// Which goroutine it is, and where its stack begins: the stack moves, and the goroutine goes from thread to thread.
fn goroutine() -> [Value; 2] {
    [
        Value::new(GOROUTINE, Kind::Pointer, "8@%r14".to_owned()),
        Value::new(STACK_END, Kind::Pointer, "8@8(%r14)".to_owned()),
    ]
}

/// What a function is given: its parameters, as far as they are known, else what may be some.
fn given(signature: Option<&Signature>) -> Vec<Value> {
    let Some(signature) = signature else { return in_registers(C_REGISTERS) };
    let mut values: Vec<Value> = Vec::new();
    for (index, Parameter { name, written, ty, place }) in signature.parameters.iter().enumerate() {
        let is_free = !name.is_empty() && name != STACK && !values.iter().any(|value| value.name == *name);
        let name = if is_free { name.clone() } else { format!("arg{index}") };
        // Other registers may have changed where a jump of ours is.
        let is_kept = !matches!(place, Place::Register(register) if register.argument().is_none());
        values.extend(Value::typed(&name, ty, written, *place).filter(|_| is_kept));
    }
    values
}

/// What may be arguments, where nothing is known of them.
fn in_registers(registers: [&str; N_ARGUMENTS]) -> Vec<Value> {
    let value = |(index, register): (usize, &str)| {
        Value::new(&format!("arg{index}"), Kind::Signed, format!("-8@%{register}"))
    };
    registers.into_iter().enumerate().map(value).collect()
}

/// What it returns; nothing, if that is known.
fn returned(signature: Option<&Signature>) -> Option<Value> {
    let Some(Signature { returns, returned, .. }) = signature else {
        return Some(Value::new(RETURNED, Kind::Signed, "-8@%rax".to_owned()));
    };
    let place = Place::Register(Register::RETURNED);
    Value::typed(RETURNED, returns, returned, place)
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
        Err(Unfit::Special { .. } | Unfit::Unreturning { .. } | Unfit::NotCode) => Ok(Vec::new()),
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
