//! From a point in user code to sites: which file is meant, where in it the code is, how its arguments are read. Reads
//! files and `/proc`; attaches nothing.

use super::code::{ArgLayout, Source};
use crate::file_code::{FileCode, FileCodes};
use crate::refusal::Refusal;
use nopal_proc::{Image, MappedObject, TargetError};
use nopal_program::{LaterProbes, Place, PointKind};
use nopal_sdt::Pattern;
use nopal_sdt::pattern::glob;
use nopal_sdt::probe::{Arg, Description, Kind as ArgKind, Probe, Site};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Registers of the first six arguments of a function.
const ARGUMENT_REGISTERS: [u8; 6] = [7, 6, 2, 1, 8, 9];
const RETURN_REGISTER: u8 = 0;
/// How many arguments on the stack may be asked for.
const N_STACK_ARGUMENTS: u32 = 16;

/// A file as a process has it, or by its path alone.
#[derive(Debug, Clone)]
pub struct Found {
    /// Leads to it from here.
    pub path: PathBuf,
    pub code: Arc<FileCode>,
    pub mapped: Option<Arc<MappedObject>>,
}

/// The sites of a point in one file.
#[derive(Debug, Default, PartialEq)]
pub struct PointSites {
    pub open: Vec<PointSite>,
    /// Why others are not opened.
    pub refused: Vec<Refusal>,
}

impl PointSites {
    /// Why not all are opened, if so.
    pub fn refusal(&self) -> Option<Refusal> {
        let (n_refused, why) = (self.refused.len(), self.refused.first()?.clone());
        Some(match self.open.len() {
            0 => why,
            n_open => Refusal::Some { n_refused, n_sites: n_open + n_refused, why: Box::new(why) },
        })
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.refused.is_empty()
    }

    fn push(&mut self, checked: Result<(), Refusal>, site: impl FnOnce() -> PointSite) {
        match checked {
            Ok(()) => self.open.push(site()),
            Err(why) => self.refused.push(why),
        }
    }
}

/// One place where the kernel is to put a breakpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct PointSite {
    pub address: u64,
    pub file_offset: u64,
    pub ref_ctr_offset: u64,
    pub layout: ArgLayout,
    /// The byte of the file there.
    pub first_byte: u8,
}

impl FileCodes {
    /// The file a point names, in a process: by its path or by the name of a library or program it has mapped, else the
    /// file it would load.
    pub fn in_process(
        &mut self,
        pid: u32,
        objects: &[Arc<MappedObject>],
        name: &str,
    ) -> Result<Found, Refusal> {
        let own = PathBuf::from(format!("/proc/{pid}/root"));
        if let Some(object) = objects.iter().find(|object| is_named(object, &own, name)) {
            let image = object.open().map_err(unreadable)?;
            let path = object.reachable_path().map_err(unreadable)?;
            return Ok(Found { path, code: self.read(image)?, mapped: Some(Arc::clone(object)) });
        }
        let inside = name.strip_prefix('/').map(|rest| own.join(rest)).filter(|path| path.is_file());
        match inside {
            Some(path) => self.at(path),
            None => self.by_path(name),
        }
    }

    /// The file a point names, whoever maps it.
    pub fn by_path(&mut self, name: &str) -> Result<Found, Refusal> {
        let path = find_file(name).ok_or_else(|| match name.contains('/') {
            true => Refusal::NoFile { name: name.to_owned() },
            false => Refusal::NoProgram { name: name.to_owned() },
        })?;
        self.at(path)
    }

    fn at(&mut self, path: PathBuf) -> Result<Found, Refusal> {
        let image = Image::open(&path).map_err(unreadable)?;
        Ok(Found { code: self.read(image)?, path, mapped: None })
    }
}

/// Whether a point for files that are mapped later means a probe of a file; `is_file` says whether a path leads to that file.
pub fn is_later(
    later: &LaterProbes,
    path: &Path,
    probe: &Probe,
    mut is_file: impl FnMut(&str) -> bool,
) -> bool {
    let is_in_file = || {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        later.file.is_empty() || glob(&later.file, &path.to_string_lossy()) || glob(&later.file, name)
    };
    let pattern = Pattern::parse(&format!("{}:{}", later.provider, later.name));
    let is_same = |known: &[String; 3]| known[1] == probe.provider && known[2] == probe.name;
    pattern.matches(&probe.provider, &probe.name)
        && is_in_file()
        && !later.known.iter().any(|known| is_same(known) && is_file(&known[0]))
}

pub(super) fn unreadable(error: TargetError) -> Refusal {
    Refusal::Unreadable { reason: error.to_string() }
}

fn is_named(object: &MappedObject, root: &Path, name: &str) -> bool {
    if !name.contains('/') {
        return object.path.file_name().and_then(|n| n.to_str()).is_some_and(|file| is_library(file, name));
    }
    if object.path == Path::new(name) {
        return true;
    }
    let Some(mapping) = object.mappings.first() else { return false };
    let inside = root.join(name.trim_start_matches('/'));
    [PathBuf::from(name), inside].iter().any(|path| {
        std::fs::metadata(path).is_ok_and(|metadata| {
            let names_agree = path.file_name() == object.path.file_name()
                || std::fs::canonicalize(path).is_ok_and(|real| real.file_name() == object.path.file_name());
            metadata.ino() == mapping.inode && names_agree
        })
    })
}

/// `c` and `libc` stand for `libc.so.6`, and so does its full name.
fn is_library(file: &str, name: &str) -> bool {
    let stem = file.split(".so").next().unwrap_or(file);
    file == name || file.contains(".so") && (stem == name || stem.strip_prefix("lib") == Some(name))
}

/// A path as it is; a bare name is a program in `PATH` or a library where the dynamic linker looks.
fn find_file(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(program) = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
    {
        return Some(program);
    }
    let from_environment = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let fixed = [
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
        "/usr/local/lib",
    ];
    std::env::split_paths(&from_environment).chain(fixed.iter().map(PathBuf::from)).find_map(|dir| {
        let files = std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
        let mut fits: Vec<PathBuf> = files
            .filter(|path| path.is_file())
            .filter(|path| {
                path.file_name().and_then(|n| n.to_str()).is_some_and(|file| is_library(file, name))
            })
            .collect();
        // The development link may be a linker script; `libx.so.6` is what programs load.
        fits.sort_by_key(|path| (path.as_os_str().len(), path.clone()));
        fits.into_iter()
            .find(|path| Image::open(path).is_ok_and(|image| image.bytes().starts_with(b"\x7fELF")))
    })
}

impl FileCode {
    /// The sites of a point in this file, and why others of its sites are none.
    pub fn sites(&self, kind: &PointKind) -> Result<PointSites, Refusal> {
        match kind {
            PointKind::Usdt { provider, name, .. } => self.probe_sites(provider, name),
            PointKind::Uprobe { place, .. } => self.function_sites(place, true),
            PointKind::Uretprobe { place, .. } => self.function_sites(place, false),
            PointKind::Begin
            | PointKind::End
            | PointKind::Signal
            | PointKind::Bench { .. }
            | PointKind::Tracepoint { .. }
            | PointKind::Kprobe { .. }
            | PointKind::Kretprobe { .. }
            | PointKind::Interval { .. }
            | PointKind::Profile { .. }
            | PointKind::UsdtLater(_)
            | PointKind::Software { .. }
            | PointKind::Hardware { .. }
            | PointKind::Watchpoint { .. } => Ok(PointSites::default()),
        }
    }

    /// The sites of the probes that a point for files mapped later means in this file, as a process has it.
    pub fn later_sites(&self, later: &LaterProbes, object: &MappedObject) -> PointSites {
        let own = PathBuf::from(format!("/proc/{}/root", object.pid));
        let is_meant =
            |probe: &&Probe| is_later(later, &object.path, probe, |path| is_named(object, &own, path));
        self.sites_of(self.object.probes.iter().filter(is_meant))
    }

    fn probe_sites(&self, provider: &str, name: &str) -> Result<PointSites, Refusal> {
        let pattern = Pattern::parse(&format!("{}:{name}", if provider.is_empty() { "*" } else { provider }));
        let fits = |probe: &&Probe| {
            (provider.is_empty() || probe.provider == provider) && probe.name == name
                || pattern.matches(&probe.provider, &probe.name)
        };
        let probes: Vec<&Probe> = self.object.probes.iter().filter(fits).collect();
        if probes.is_empty() {
            return Err(Refusal::NoProbe { provider: provider.to_owned(), name: name.to_owned() });
        }
        Ok(self.sites_of(probes.into_iter()))
    }

    fn sites_of<'a>(&self, probes: impl Iterator<Item = &'a Probe>) -> PointSites {
        let mut sites = PointSites::default();
        for probe in probes {
            for site in &probe.sites {
                sites.push(self.check(site.address, &site.code, false), || PointSite {
                    address: site.address,
                    file_offset: site.file_offset,
                    ref_ctr_offset: site.semaphore.map_or(0, |semaphore| semaphore.file_offset),
                    layout: site_layout(site, probe.description.as_ref()),
                    first_byte: site.code.first().copied().unwrap_or(0),
                });
            }
        }
        sites
    }

    fn function_sites(&self, place: &Place, is_entry: bool) -> Result<PointSites, Refusal> {
        let (addresses, offset) = match place {
            Place::Address(address) => (vec![*address], 1),
            Place::Symbol { name, offset } => {
                let found = self.symbols().named(name);
                if found.is_empty() {
                    return Err(Refusal::NoFunction { name: name.clone() });
                }
                if let Some(short) = found.iter().find(|f| f.size_bytes > 0 && *offset >= f.size_bytes) {
                    let size_bytes = short.size_bytes;
                    return Err(Refusal::BehindFunction { name: name.clone(), offset: *offset, size_bytes });
                }
                (found.iter().map(|function| function.address.wrapping_add(*offset)).collect(), *offset)
            }
        };
        let mut sites = PointSites::default();
        for mut address in addresses {
            let is_go = self.is_go(address);
            let registers = if is_go { nopal_proc::go::argument_numbers() } else { ARGUMENT_REGISTERS };
            if is_entry && offset == 0 && is_go {
                // Before that it may be entered twice for one call.
                let check = nopal_proc::go::stack_check_len(self.at(address, nopal_proc::go::CHECK_BYTES));
                address += check.unwrap_or_default() as u64;
            }
            let code = self.at(address, 16);
            let file_offset = self.symbols().file_offset_of(address).filter(|_| self.is_code(address));
            let checked = match file_offset {
                None => Err(Refusal::NotCode { address }),
                Some(_) if !is_entry && is_go => Err(Refusal::GoReturn),
                Some(_) if offset != 0 && !self.is_instruction(address) => {
                    Err(Refusal::NotAnInstruction { address })
                }
                Some(_) => self.check(address, code, offset == 0),
            };
            sites.push(checked, || PointSite {
                address,
                file_offset: file_offset.unwrap_or_default(),
                ref_ctr_offset: 0,
                layout: if is_entry { function_layout(registers) } else { return_layout() },
                first_byte: code.first().copied().unwrap_or(0),
            });
        }
        Ok(sites)
    }

    fn is_code(&self, address: u64) -> bool {
        self.object
            .segments
            .iter()
            .any(|segment| segment.is_executable && segment.file_offset_of(address).is_some())
    }
}

/// Operands in their order, as other tracers count them; behind them the fields of the packed block.
fn site_layout(site: &Site, description: Option<&Description>) -> ArgLayout {
    let source = |arg: &Arg| match &arg.operand {
        Ok(operand) => {
            Source::Operand { operand: operand.clone(), address: symbol_anchor(operand, site.address) }
        }
        Err(error) => Source::Unreadable(error.reason.clone()),
    };
    let mut args: Vec<(Source, Option<Source>)> = site.args.iter().map(|arg| (source(arg), None)).collect();
    let Some(description) = description else { return ArgLayout { args } };
    for described in &description.args {
        let operand = described.operand.and_then(|number| usize::from(number).checked_sub(1));
        let length =
            described.length_operand.and_then(|number| site.args.get(usize::from(number).checked_sub(1)?));
        if let (Some(index), Some(length), ArgKind::Str) = (operand, length, described.kind)
            && let Some(arg) = args.get_mut(index)
        {
            arg.1 = Some(source(length));
        }
        if let (Some(Some((Source::Operand { operand, .. }, _))), ArgKind::Float) =
            (operand.map(|index| args.get_mut(index)), described.kind)
        {
            operand.is_float = true;
        }
    }
    args.extend(packed_fields(site, description));
    ArgLayout { args }
}

/// Symbols are found by their distance from the site; for everything else sites are alike.
fn symbol_anchor(operand: &nopal_sdt::operand::Operand, address: u64) -> u64 {
    use nopal_sdt::operand::{Base, Memory, Place};
    match &operand.place {
        Place::Memory(Memory { base: Base::Symbol { .. }, .. }) => address,
        _ => 0,
    }
}

/// Fields of a fixed size up to the first whose size only the block itself tells.
fn packed_fields(site: &Site, description: &Description) -> Vec<(Source, Option<Source>)> {
    let block =
        description.packed.and_then(|(address, _)| site.args.get(usize::from(address).checked_sub(1)?));
    let mut offset = Some(0u32);
    let mut fields = Vec::new();
    for described in description.args.iter().filter(|described| described.operand.is_none()) {
        let size = described.size_bytes.unwrap_or(0);
        let field = match (block.map(|arg| &arg.operand), offset) {
            (Some(Ok(pointer)), Some(at)) => match (described.kind, size) {
                (ArgKind::CString, _) => Source::PackedAddress { pointer: pointer.clone(), offset: at },
                (_, 1 | 2 | 4 | 8) if !described.is_big_endian => Source::Packed {
                    pointer: pointer.clone(),
                    offset: at,
                    size_bytes: size,
                    is_signed: matches!(described.kind, ArgKind::Signed | ArgKind::Enum),
                    is_float: described.kind == ArgKind::Float,
                },
                _ => Source::Unreadable(
                    "the kernel door reads only numbers and strings of a packed block".to_owned(),
                ),
            },
            _ => Source::Unreadable(
                "in the packed block it comes after fields of no fixed size; `--door user` reads it"
                    .to_owned(),
            ),
        };
        offset = match described.kind {
            ArgKind::CString | ArgKind::Str | ArgKind::Bytes | ArgKind::Array | ArgKind::Sequence => None,
            _ if size == 0 => None,
            _ => offset.and_then(|at| at.checked_add(u32::from(size))),
        };
        fields.push((field, None));
    }
    fields
}

/// At the entry of a function: six registers, then the stack behind the return address.
fn function_layout(registers: [u8; 6]) -> ArgLayout {
    let registers = registers.iter().map(|number| (Source::Register(*number), None));
    let stack = (0..N_STACK_ARGUMENTS).map(|index| (Source::Stack(8 + 8 * index), None));
    ArgLayout { args: registers.chain(stack).collect() }
}

/// When a function has returned there is what it returns.
fn return_layout() -> ArgLayout {
    ArgLayout { args: vec![(Source::Register(RETURN_REGISTER), None)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_libraries() {
        let cases = [
            ("libc.so.6", "c", true),
            ("libc.so.6", "libc", true),
            ("libc.so.6", "libc.so.6", true),
            ("libcrypt.so.1", "libc", false),
            ("libc++.so.1", "c", false),
            ("memcached", "memcached", true),
            ("memcached", "libmemcached", false),
            ("ld-linux-x86-64.so.2", "ld-linux-x86-64", true),
        ];
        for (file, name, want) in cases {
            assert_eq!(is_library(file, name), want, "{file} {name}");
        }
    }

    #[test]
    fn functions_of_this_program() {
        let mut files = FileCodes::default();
        let path = std::env::current_exe().unwrap();
        let found = files.by_path(path.to_str().unwrap()).unwrap();
        let place = |offset| Place::Symbol { name: "main".to_owned(), offset };
        let sites = found.code.function_sites(&place(0), true).unwrap().open;
        assert_eq!(sites.len(), 1);
        let at = sites[0].file_offset as usize;
        assert_eq!(found.code.bytes().get(at..at + 1), Some(&[sites[0].first_byte][..]));
        let error = found.code.function_sites(&place(1 << 20), true).unwrap_err();
        assert!(
            matches!(error, Refusal::BehindFunction { offset: 0x10_0000, size_bytes: 1.., .. }),
            "{error}"
        );
        let error = found
            .code
            .function_sites(&Place::Symbol { name: "no_such_function".to_owned(), offset: 0 }, true)
            .unwrap_err();
        assert_eq!(error, Refusal::NoFunction { name: "no_such_function".to_owned() });
        let nowhere = found.code.function_sites(&Place::Address(0), true).unwrap();
        assert_eq!((nowhere.open.len(), nowhere.refusal()), (0, Some(Refusal::NotCode { address: 0 })));
        assert!(files.by_path("/nowhere/at/all").is_err());
    }
}
