//! The functions of a file as places that can be traced: where each is entered, and every place where it is left. Bounds
//! come from the tables for unwinding and from symbols; what the code says is read by `nopal_functions`.

use super::functions::FunctionRanges;
use super::go::{self, CHECK_BYTES, GoCode, stack_check_len};
use super::symbols::{FileSymbols, Function};
use super::{Bytes, Image};
use nopal_functions::{Body, Obstacle, Stretch, leads_into};
use nopal_sdt::operand::{Arch, parse};
use nopal_sdt::probe::{Arg, Edge, Side, Site};
use object::{Object as _, ObjectSection as _};
use std::fmt;
use std::ops::Range;

/// A function longer than this is not looked at.
const MAX_FUNCTION_BYTES: u64 = 4 << 20;
/// Pieces of one function.
const MAX_STRETCHES: usize = 8;
/// What is read behind a stretch.
const BEHIND_BYTES: u64 = 32;
const SITE_BYTES: usize = 32;
const WITHOUT_CHECK: &str = "it is assembly or must not have its stack looked at: it does not ask whether the stack has room, as other functions of Go do";
const UNTOLD_EXITS: &str =
    "its code does not tell where it is left, and a return address of the kernel's would end a program of Go";

/// Where the first arguments of a function are, then its stack pointer, which tells calls of it apart.
const ENTRY_OPERANDS: [&str; 7] = ["8@%rdi", "8@%rsi", "8@%rdx", "8@%rcx", "8@%r8", "8@%r9", "8@%rsp"];
const RETURN_OPERANDS: [&str; 2] = ["8@%rax", "8@%rsp"];
const TAIL_OPERANDS: [&str; 1] = [STACK_OPERAND];
const STACK_OPERAND: &str = "8@%rsp";

/// Why a function is not opened where it is entered or left, but by the kernel at best.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// Its code does not tell.
    Code(Obstacle),
    /// It is known to be one that works only as it is.
    Special { reason: &'static str },
    /// The same, and the kernel cannot see it return either: the program would not live on with a return address of the
    /// kernel's on its stack.
    Unreturning { reason: &'static str },
    /// Not in the file's code.
    NotCode,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Code(obstacle) => write!(f, "{obstacle}"),
            Unfit::Special { reason } | Unfit::Unreturning { reason } => f.write_str(reason),
            Unfit::NotCode => write!(f, "it is not in the code of the file"),
        }
    }
}

impl std::error::Error for Unfit {}

/// A function's edges.
#[derive(Debug, Clone, PartialEq)]
pub struct Edges {
    pub entry: Site,
    pub exits: Result<Vec<Site>, Unfit>,
}

impl Edges {
    /// Its returns as the kernel sees them, without knowing where they are. It writes to the stack of the program: where
    /// that is walked or moved, as by exceptions, the program ends.
    pub fn any_return(&self, reason: String) -> Site {
        let edge = Edge {
            side: Side::AnyReturn,
            function: self.entry.address,
            start: self.entry.address,
            code: Vec::new(),
            line_len: 0,
            n_filling: 0,
            is_go: false,
            unfit: Some(reason),
        };
        Site { args: args(&RETURN_OPERANDS), edge: Some(edge), ..self.entry.clone() }
    }

    /// Whether it leaves by jumps to other functions: at these there is no return value yet.
    pub fn has_tails(&self) -> bool {
        let sides = self.exits.iter().flatten().filter_map(|site| site.edge.as_ref());
        sides.into_iter().any(|edge| matches!(edge.side, Side::Tail | Side::ConditionalTail))
    }
}

fn args(operands: &[&str]) -> Vec<Arg> {
    let arg = |text: &&str| Arg { text: (*text).to_owned(), operand: parse(Arch::X86_64, text) };
    operands.iter().map(arg).collect()
}

fn entry_args(is_go: bool) -> Vec<Arg> {
    if !is_go {
        return args(&ENTRY_OPERANDS);
    }
    let arguments = go::argument_names().map(|name| format!("8@%{name}"));
    let operands: Vec<&str> = arguments.iter().map(String::as_str).chain([STACK_OPERAND]).collect();
    args(&operands)
}

/// A file whose functions are asked for.
#[derive(Debug)]
pub struct FileFunctions {
    image: Image,
    symbols: FileSymbols,
    ranges: FunctionRanges,
    /// Where something begins, sorted.
    starts: Vec<u64>,
    /// Sections with code.
    code: Vec<Range<u64>>,
    /// What holds for all of its functions.
    unfit: Option<&'static str>,
    go: Option<GoCode>,
}

impl FileFunctions {
    pub fn read(image: Image) -> FileFunctions {
        let symbols = FileSymbols::read(image.bytes());
        let ranges = FunctionRanges::read(image.bytes());
        let mut starts: Vec<u64> = symbols.functions().map(|f| f.address).chain(ranges.starts()).collect();
        starts.sort_unstable();
        starts.dedup();
        let go = GoCode::read(image.bytes(), &symbols);
        let (mut code, mut unfit) = (Vec::new(), None);
        if let Ok(file) = object::File::parse(image.bytes()) {
            for section in file.sections() {
                let object::SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
                if sh_flags.contains(object::elf::SHF_EXECINSTR) {
                    code.push(section.address()..section.address().saturating_add(section.size()));
                }
                unfit = unfit.or(match section.name() {
                    Ok("__rseq_cs") if section.size() > 0 => {
                        Some("the file has restartable sequences, which must not be left in the middle")
                    }
                    _ => None,
                });
            }
            if file.architecture() != object::Architecture::X86_64 {
                unfit = Some("it is not code for this processor");
            }
        }
        FileFunctions { image, symbols, ranges, starts, code, unfit, go }
    }

    pub fn symbols(&self) -> &FileSymbols {
        &self.symbols
    }

    /// Whether a function there is one of Go, which has its arguments in registers of Go's choice, and whose stack moves.
    pub fn is_go(&self, address: u64) -> bool {
        self.go.as_ref().is_some_and(|go| go.contains(address))
    }

    pub fn image(&self) -> &Image {
        &self.image
    }

    pub fn bytes(&self) -> Bytes<'_> {
        self.image.bytes()
    }

    /// Address and length of a function's first stretch.
    fn range(&self, function: &Function<'_>) -> Option<(u64, u64)> {
        match self.ranges.around(function.address) {
            Some((start, len)) if start == function.address => Some((start, len)),
            _ => (function.size_bytes > 0).then_some((function.address, function.size_bytes)),
        }
    }

    /// Whether a function begins there.
    pub fn is_start(&self, address: u64) -> bool {
        self.starts.binary_search(&address).is_ok()
    }

    fn is_code(&self, address: u64) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }

    fn at(&self, address: u64, len: u64) -> &[u8] {
        let Some(section) = self.code.iter().find(|range| range.contains(&address)) else { return &[] };
        let len = len.min(section.end - address);
        let Some(at) = self.symbols.file_offset_of(address) else { return &[] };
        let (Ok(at), Ok(len)) = (usize::try_from(at), usize::try_from(len)) else { return &[] };
        let bytes = self.image.bytes();
        let Some(end) = at.checked_add(len) else { return &[] };
        bytes.get(at..end.min(bytes.len())).unwrap_or_default()
    }

    fn stretch(&self, (address, len): (u64, u64)) -> Stretch<'_> {
        let end = address.saturating_add(len);
        let next = self.starts.partition_point(|start| *start < end);
        let gap = self.starts.get(next).map_or(BEHIND_BYTES, |next| next - end);
        Stretch {
            address,
            code: self.at(address, len),
            behind: self.at(end, BEHIND_BYTES),
            n_unowned: gap.min(BEHIND_BYTES) as usize,
        }
    }

    /// The function with all its stretches.
    fn body(&self, function: &Function<'_>) -> Result<Body<'_>, Obstacle> {
        let main =
            self.range(function).filter(|(_, len)| *len <= MAX_FUNCTION_BYTES).ok_or(Obstacle::Empty)?;
        let mut ranges = vec![main];
        loop {
            let body = Body::new(ranges.iter().map(|range| self.stretch(*range)).collect())?;
            let more = body.outward().into_iter().find_map(|out| {
                let range = self.part_at(out.target)?;
                let is_own = self.is_cold_part(function.name, out.target)
                    || self.is_nameless(range.0) && (!out.is_level || self.leads_back(range, main));
                (is_own && !ranges.contains(&range)).then_some(range)
            });
            match more {
                Some(range) if ranges.len() < MAX_STRETCHES => ranges.push(range),
                _ => return Ok(body),
            }
        }
    }

    /// The piece of code that a jump leads to.
    fn part_at(&self, target: u64) -> Option<(u64, u64)> {
        if let Some(range) = self.ranges.around(target) {
            return Some(range).filter(|(_, len)| *len <= MAX_FUNCTION_BYTES);
        }
        let function = self.symbols.at(target).filter(|f| f.size_bytes > 0)?;
        Some((function.address, function.size_bytes)).filter(|(_, len)| *len <= MAX_FUNCTION_BYTES)
    }

    /// Where something begins behind the first byte of a piece of code.
    fn start_within(&self, start: u64, end: u64) -> Option<u64> {
        let after = self.starts.partition_point(|each| *each <= start);
        self.starts.get(after).copied().filter(|each| *each < end)
    }

    /// `name.cold`, where compilers put what is seldom run.
    fn is_cold_part(&self, name: &str, target: u64) -> bool {
        let rest = self.symbols.at(target).and_then(|f| f.name.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with(".cold"))
    }

    /// No symbol says that a function of its own begins here.
    fn is_nameless(&self, address: u64) -> bool {
        self.symbols.at(address).is_none_or(|f| f.address != address || f.name.contains(".cold"))
    }

    fn leads_back(&self, range: (u64, u64), main: (u64, u64)) -> bool {
        leads_into(&self.stretch(range), &(main.0..main.0.saturating_add(main.1)))
    }

    /// Where the function is entered and left.
    pub fn edges(&self, function: &Function<'_>) -> Result<Edges, Unfit> {
        if !self.is_code(function.address) {
            return Err(Unfit::NotCode);
        }
        let is_go = self.is_go(function.address);
        let skip = match is_go {
            true => stack_check_len(self.at(function.address, CHECK_BYTES)),
            false => Some(0),
        };
        let body = match (self.unfit, special(function.name), skip) {
            (Some(reason), ..) | (None, Some((reason, false)), _) => Err(Unfit::Special { reason }),
            (None, _, None) => Err(Unfit::Unreturning { reason: WITHOUT_CHECK }),
            (None, _, Some(_)) => self.body(function).map_err(Unfit::Code),
        };
        let skip = skip.unwrap_or_default();
        let entry_edge = match &body {
            Ok(body) => Edge { is_go, ..body.entry_edge(skip) },
            Err(unfit) => Edge {
                side: Side::Entry,
                function: function.address,
                start: function.address + skip as u64,
                code: Vec::new(),
                line_len: 0,
                n_filling: 0,
                is_go,
                unfit: Some(unfit.to_string()),
            },
        };
        let entry = self.site(entry_edge.start, entry_args(is_go), entry_edge).ok_or(Unfit::NotCode)?;
        let exits = match special(function.name) {
            Some((reason, true)) => Err(Unfit::Unreturning { reason }),
            _ => body.map_err(|unfit| of_exits(unfit, is_go)).and_then(|body| {
                if let Some(address) = body.stretches().find_map(|(start, end)| self.start_within(start, end))
                {
                    return Err(of_exits(Unfit::Code(Obstacle::Shared { address }), is_go));
                }
                let exits = body.exits(is_go).map_err(|obstacle| of_exits(Unfit::Code(obstacle), is_go))?;
                let site = |exit: nopal_functions::Exit| {
                    let operands: &[&str] = match exit.edge.side {
                        Side::Return => &RETURN_OPERANDS,
                        Side::Entry | Side::Tail | Side::ConditionalTail | Side::AnyReturn => &TAIL_OPERANDS,
                    };
                    self.site(exit.address, args(operands), exit.edge).ok_or(Unfit::NotCode)
                };
                exits.into_iter().map(site).collect()
            }),
        };
        Ok(Edges { entry, exits })
    }

    /// A place that is not an edge of a function; only the kernel can stop there.
    pub fn place(&self, address: u64) -> Option<Site> {
        let edge = Edge {
            side: Side::Entry,
            function: address,
            start: address,
            code: Vec::new(),
            line_len: 0,
            n_filling: 0,
            is_go: self.is_go(address),
            unfit: Some("it is not where a function is entered".to_owned()),
        };
        self.site(address, args(&ENTRY_OPERANDS), edge).filter(|_| self.is_code(address))
    }

    fn site(&self, address: u64, args: Vec<Arg>, edge: Edge) -> Option<Site> {
        Some(Site {
            address,
            file_offset: self.symbols.file_offset_of(address)?,
            semaphore: None,
            args,
            code: self.at(address, SITE_BYTES as u64).to_vec(),
            until_restartable: None,
            edge: Some(edge),
        })
    }
}

/// Why exits are not known. Stacks of Go move, and its programs walk them.
fn of_exits(unfit: Unfit, is_go: bool) -> Unfit {
    match unfit {
        Unfit::Code(_) if is_go => Unfit::Unreturning { reason: UNTOLD_EXITS },
        other => other,
    }
}

/// Functions that work only as they are; whether their entry may be opened all the same.
fn special(name: &str) -> Option<(&'static str, bool)> {
    let plain = name.trim_start_matches('_').split('@').next().unwrap_or_default();
    match plain {
        "restore_rt" | "restore" => {
            Some(("signal handlers return through it, and unwinders know it by its bytes", false))
        }
        "setjmp" | "sigsetjmp" | "vfork" | "libc_vfork" | "getcontext" | "setcontext" | "swapcontext"
        | "savectx" | "libc_siglongjmp" | "longjmp" | "siglongjmp" | "longjmp_chk" => {
            Some(("it returns twice or elsewhere", true))
        }
        "start_context" => Some(("nothing calls it", false)),
        _ if plain.starts_with("dl_runtime_resolve")
            || plain.starts_with("dl_runtime_profile")
            || plain.starts_with("dl_tlsdesc") =>
        {
            Some(("it is a part of the dynamic linker that keeps every register", false))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
