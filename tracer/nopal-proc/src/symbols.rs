//! Names of addresses and addresses of names: the symbol tables of ELF files, those of processes with all they map, the
//! kernel's own, and the maps that just-in-time compilers leave. Remembers what a process had mapped, and keeps the files
//! open, so that addresses have names after it has ended.

mod build_ids;

use super::demangle::{demangle, piece_of, without_parameters};
use super::perf_events::{Entry, PerfEvents};
use super::{Image, MappedObject, mapped_objects};
use nopal_files::foreign;
use object::read::elf::ElfFile64;
use object::{Object as _, ObjectSegment, ObjectSymbol, ReadRef, SymbolKind};
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Real files have a few hundred thousand; the bound keeps a hostile one from eating memory.
const MAX_SYMBOLS: usize = 4 << 20;
/// Each name stands in the file, most of them once; in a hostile one all symbols may have the same long one.
const MAX_NAMES_BYTES: u64 = 512 << 20;
/// The map of a just-in-time compiler.
const MAX_PERF_MAP_BYTES: u64 = 256 << 20;
/// The functions in it: a short line takes ten times its length in memory.
const MAX_COMPILED: usize = 2 << 20;
/// How many processes that have ended are remembered.
const MAX_ENDED: usize = 1 << 16;
/// Beyond this many, processes that have ended unseen are forgotten.
const MAX_PROCESSES: usize = 1 << 14;
/// Of children that have started no program of their own.
const MAX_DEPTH: usize = 64;

/// What is at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// Demangled.
    pub name: String,
    /// From its beginning.
    pub offset: u64,
    /// The file, as the process sees it; `[kernel]` or the module in the kernel; empty for compiled code.
    pub module: String,
}

/// A function of a file, at link-time addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function<'a> {
    pub address: u64,
    pub size_bytes: u64,
    /// As the linker knows it.
    pub name: &'a str,
}

/// The functions of one ELF file.
#[derive(Debug, Default)]
pub struct FileSymbols {
    names: String,
    /// Sorted by address: address, size, place and length of the name.
    functions: Vec<(u64, u64, u32, u32)>,
    /// File offset, link-time address, size of each loaded segment.
    segments: Vec<(u64, u64, u64)>,
}

impl FileSymbols {
    /// From `.symtab` and `.dynsym`; of a file without the former, from its debug file too. What is no ELF file has none.
    pub fn read<'data, R: ReadRef<'data>>(bytes: R) -> FileSymbols {
        let mut symbols = FileSymbols::default();
        let Ok(file) = ElfFile64::<object::Endianness, R>::parse(bytes) else { return symbols };
        symbols.segments =
            file.segments().map(|each| (each.file_range().0, each.address(), each.size())).collect();
        symbols.add(&file, bytes.len().unwrap_or(0));
        if file.symbols().next().is_none()
            && let Some(image) = file.build_id().ok().flatten().and_then(debug_file)
            && let Ok(file) = ElfFile64::<object::Endianness, _>::parse(image.bytes())
        {
            symbols.add(&file, image.bytes().len() as u64);
        }
        symbols.functions.sort_by_key(|function| (function.0, std::cmp::Reverse(function.1)));
        symbols.functions.dedup_by_key(|function| (function.0, function.2));
        symbols
    }

    fn add<'data, R: ReadRef<'data>>(
        &mut self,
        file: &ElfFile64<'data, object::Endianness, R>,
        file_bytes: u64,
    ) {
        let most = self.names.len() as u64 + file_bytes.saturating_mul(2).min(MAX_NAMES_BYTES);
        for symbol in file.symbols().chain(file.dynamic_symbols()).take(MAX_SYMBOLS) {
            let is_code = matches!(symbol.kind(), SymbolKind::Text);
            let Ok(name) = symbol.name() else { continue };
            if !is_code || symbol.is_undefined() || name.is_empty() {
                continue;
            }
            let (Ok(at), Ok(len)) = (u32::try_from(self.names.len()), u32::try_from(name.len())) else {
                return;
            };
            if (self.names.len() + name.len()) as u64 > most {
                return;
            }
            self.names.push_str(name);
            self.functions.push((symbol.address(), symbol.size(), at, len));
        }
    }

    fn function(&self, index: usize) -> Function<'_> {
        let (address, size_bytes, at, len) = self.functions[index];
        Function { address, size_bytes, name: &self.names[at as usize..(at + len) as usize] }
    }

    /// Those of a program that is loaded where its file says.
    pub fn of_fixed(path: &Path) -> Option<FileSymbols> {
        let image = Image::open(path).ok()?;
        let file = ElfFile64::<object::Endianness, _>::parse(image.bytes()).ok()?;
        (file.kind() == object::ObjectKind::Executable).then(|| FileSymbols::read(image.bytes()))
    }

    pub fn functions(&self) -> impl Iterator<Item = Function<'_>> {
        (0..self.functions.len()).map(|index| self.function(index))
    }

    /// The function that holds a link-time address. Assembler code has no sizes: there the last name before it counts.
    pub fn at(&self, address: u64) -> Option<Function<'_>> {
        let behind = self.functions.partition_point(|function| function.0 <= address);
        let candidates = self.functions[..behind].iter().enumerate().rev().take(16);
        let holds = |(_, function): &(usize, &(u64, u64, u32, u32))| {
            function.1 == 0 || address - function.0 < function.1
        };
        candidates.into_iter().find(holds).map(|(index, _)| self.function(index))
    }

    /// Functions with this name: as the linker knows it, else demangled with or without parameters.
    pub fn named(&self, name: &str) -> Vec<Function<'_>> {
        let exact: Vec<Function<'_>> = self.functions().filter(|function| function.name == name).collect();
        if !exact.is_empty() {
            return distinct(exact);
        }
        let piece = piece_of(name);
        let is_mangled = |function: &Function<'_>| {
            (function.name.starts_with("_Z") || function.name.starts_with("_R"))
                && piece.is_none_or(|piece| function.name.contains(piece))
        };
        let fits = |function: &Function<'_>| {
            let full = demangle(function.name);
            full == name || without_parameters(&full) == name
        };
        distinct(self.functions().filter(is_mangled).filter(fits).collect())
    }

    /// All functions by their names as the linker knows them, for those who ask for many.
    pub fn by_name(&self) -> HashMap<&str, Vec<Function<'_>>> {
        let mut named: HashMap<&str, Vec<Function<'_>>> = HashMap::new();
        for function in self.functions() {
            named.entry(function.name).or_default().push(function);
        }
        named.values_mut().for_each(|same| *same = distinct(std::mem::take(same)));
        named
    }

    /// The link-time address of a place in the file.
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|(at, address, size)| {
            let distance = file_offset.checked_sub(*at).filter(|distance| distance < size)?;
            address.checked_add(distance)
        })
    }

    /// The place in the file of a link-time address.
    pub fn file_offset_of(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|(at, first, size)| {
            let distance = address.checked_sub(*first).filter(|distance| distance < size)?;
            at.checked_add(distance)
        })
    }
}

fn distinct(mut functions: Vec<Function<'_>>) -> Vec<Function<'_>> {
    functions.sort_by_key(|function| function.address);
    functions.dedup_by_key(|function| function.address);
    functions
}

/// Where distributions put what they strip.
fn debug_file(build_id: &[u8]) -> Option<Image> {
    let (first, rest) = build_id.split_first()?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Image::open(Path::new(&format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug"))).ok()
}

/// A file with its symbols, read when they are first needed.
#[derive(Debug)]
struct OpenFile {
    image: Image,
    symbols: Option<Arc<FileSymbols>>,
}

#[derive(Debug)]
struct Range {
    start: u64,
    end: u64,
    /// Where in the file it begins.
    offset: u64,
    file: usize,
    path: Arc<Path>,
}

/// Address, size and name of compiled code.
type Compiled = (u64, u64, String);

/// Finds names for addresses.
#[derive(Debug, Default)]
pub struct Symbolizer {
    files: Vec<OpenFile>,
    by_id: HashMap<(u64, u64), usize>,
    processes: HashMap<u32, Vec<Range>>,
    /// Who was forked by whom, as the how-manieth: a child has what its parent had.
    parents: HashMap<u32, (u32, u64)>,
    n_forked: u64,
    /// Forked processes with the same number, the newest last.
    ended: VecDeque<(u32, u64)>,
    perf_events: PerfEvents,
    /// By process: how large its file was, and what it said.
    perf_maps: HashMap<u32, (u64, Vec<Compiled>)>,
    kernel: Option<Vec<(u64, String, String)>>,
}

impl Symbolizer {
    pub fn new() -> Symbolizer {
        Symbolizer::default()
    }

    /// Takes note of what a process maps now. What it had mapped before stays known; a process that has gone keeps what
    /// it had.
    pub fn remember(&mut self, pid: u32) {
        let Ok(objects) = mapped_objects(pid) else { return };
        self.add(pid, &objects);
    }

    /// From now on takes note of all that a process and its descendants map, however short they live. Where the kernel
    /// does not allow it, what is remembered is all there is.
    pub fn follow(&mut self, pid: u32) {
        let _ = self.perf_events.follow(pid);
    }

    /// Takes note of what has happened since.
    pub fn catch_up(&mut self) {
        let mut entries = Vec::new();
        self.perf_events.read(|entry| entries.push(entry));
        for entry in entries {
            match entry {
                Entry::Forked { pid, parent } => {
                    // Another process had the number before.
                    self.forget(pid);
                    self.n_forked += 1;
                    self.parents.insert(pid, (parent, self.n_forked));
                }
                Entry::Mapped { pid, mapping } if mapping.is_of_file() => {
                    let (path, is_deleted) = (mapping.path.clone(), mapping.is_deleted);
                    self.add(pid, &[MappedObject { pid, path, is_deleted, mappings: vec![mapping] }]);
                }
                Entry::Mapped { .. } | Entry::Started { .. } | Entry::Lost => {}
                Entry::Ended { pid } => {
                    self.ended.extend(self.parents.get(&pid).map(|(_, number)| (pid, *number)));
                }
            }
        }
        while self.ended.len() > MAX_ENDED {
            let Some((pid, number)) = self.ended.pop_front() else { return };
            if self.parents.get(&pid).is_some_and(|(_, known)| *known == number) {
                self.forget(pid);
            }
        }
    }

    fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.parents.remove(&pid);
        self.perf_maps.remove(&pid);
    }

    fn add(&mut self, pid: u32, objects: &[MappedObject]) {
        let mut ranges = Vec::new();
        for object in objects {
            let Some(file) = self.file(object) else { continue };
            let path: Arc<Path> = object.path.as_path().into();
            for mapping in object.mappings.iter().filter(|mapping| mapping.is_executable) {
                let (start, end, offset) = (mapping.start, mapping.end, mapping.offset);
                ranges.push(Range { start, end, offset, file, path: Arc::clone(&path) });
            }
        }
        if ranges.is_empty() {
            return;
        }
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid) {
            let parents = &self.parents;
            self.processes.retain(|pid, _| parents.contains_key(pid) || crate::Process::is_alive(*pid));
        }
        let known = self.processes.entry(pid).or_default();
        known.retain(|old| !ranges.iter().any(|new| old.start < new.end && new.start < old.end));
        known.extend(ranges);
        known.sort_by_key(|range| range.start);
    }

    fn file(&mut self, object: &MappedObject) -> Option<usize> {
        let mapping = object.mappings.first()?;
        let device =
            libc::makedev(mapping.device_major as libc::c_uint, mapping.device_minor as libc::c_uint);
        if let Some(known) = self.by_id.get(&(device, mapping.inode)) {
            return Some(*known);
        }
        let image = object.open().ok()?;
        self.files.push(OpenFile { image, symbols: None });
        self.by_id.insert((device, mapping.inode), self.files.len() - 1);
        Some(self.files.len() - 1)
    }

    /// What is at an address of a process.
    pub fn user(&mut self, pid: u32, address: u64) -> Option<Symbol> {
        if let Some(found) = self.mapped(pid, address) {
            return found;
        }
        self.remember(pid);
        match self.mapped(pid, address) {
            Some(found) => found,
            None => self.compiled(pid, address),
        }
    }

    /// `None` if nothing is known to be mapped there.
    fn mapped(&mut self, pid: u32, address: u64) -> Option<Option<Symbol>> {
        let range = self.range_of(pid, address)?;
        let (file_offset, module) = (address - range.start + range.offset, range.path.display().to_string());
        let file = range.file;
        let symbols = self.files[file].symbols();
        let named = symbols.address_of(file_offset).and_then(|link_time| {
            let function = symbols.at(link_time)?;
            Some(Symbol { name: demangle(function.name), offset: link_time - function.address, module })
        });
        Some(named)
    }

    /// Of a process or of those it was forked from.
    fn range_of(&self, pid: u32, address: u64) -> Option<&Range> {
        let ancestors = std::iter::successors(Some(pid), |pid| self.parents.get(pid).map(|of| of.0));
        ancestors.take(MAX_DEPTH).find_map(|pid| self.range(pid, address))
    }

    fn range(&self, pid: u32, address: u64) -> Option<&Range> {
        let ranges = self.processes.get(&pid)?;
        let behind = ranges.partition_point(|range| range.start <= address);
        ranges[..behind].last().filter(|range| address < range.end)
    }

    /// Code that a just-in-time compiler has listed in `/tmp/perf-PID.map`.
    fn compiled(&mut self, pid: u32, address: u64) -> Option<Symbol> {
        let path = [format!("/proc/{pid}/root/tmp/perf-{pid}.map"), format!("/tmp/perf-{pid}.map")]
            .into_iter()
            .find(|path| fs::metadata(path).is_ok());
        if let Some(path) = path {
            let size = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            let is_new = self.perf_maps.get(&pid).is_none_or(|known| known.0 != size);
            if is_new && size <= MAX_PERF_MAP_BYTES {
                let text = foreign::read_text(Path::new(&path), MAX_PERF_MAP_BYTES).unwrap_or_default();
                self.perf_maps.remove(&pid);
                // Anybody may have put such files there, for processes of any number.
                if self.perf_maps.values().map(|known| known.0).sum::<u64>() + size > MAX_PERF_MAP_BYTES {
                    self.perf_maps.clear();
                }
                self.perf_maps.insert(pid, (size, perf_map(&text)));
            }
        }
        let (_, functions) = self.perf_maps.get(&pid)?;
        let behind = functions.partition_point(|function| function.0 <= address);
        let (start, size, name) = functions[..behind].last()?;
        let offset = address - start;
        (offset < *size).then(|| Symbol { name: name.clone(), offset, module: String::new() })
    }

    /// What is at an address of the kernel; nothing if it hides its addresses.
    pub fn kernel(&mut self, address: u64) -> Option<Symbol> {
        let known = self.kernel.get_or_insert_with(|| {
            kallsyms(&String::from_utf8_lossy(&fs::read("/proc/kallsyms").unwrap_or_default()))
        });
        let behind = known.partition_point(|symbol| symbol.0 <= address);
        let (start, name, module) = known[..behind].last()?;
        Some(Symbol { name: name.clone(), offset: address - start, module: module.clone() })
    }
}

impl OpenFile {
    fn symbols(&mut self) -> Arc<FileSymbols> {
        let image = &mut self.image;
        let read = || {
            let symbols = Arc::new(FileSymbols::read(image.bytes()));
            image.forget();
            symbols
        };
        Arc::clone(self.symbols.get_or_insert_with(read))
    }
}

/// `START SIZE name` a line, numbers in hexadecimal.
fn perf_map(text: &str) -> Vec<Compiled> {
    let mut functions: Vec<Compiled> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            Some((number()?, number()?, words.next()?.to_owned()))
        })
        .take(MAX_COMPILED)
        .collect();
    functions.sort_by_key(|function| function.0);
    functions
}

/// `ADDRESS t name [module]` a line. Addresses are 0 for those who may not see them.
fn kallsyms(text: &str) -> Vec<(u64, String, String)> {
    let mut symbols: Vec<(u64, String, String)> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address > 0)?;
            let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
            let name = words.next()?.to_owned();
            let module = words.next().map_or("[kernel]", |m| m.trim_matches(['[', ']'])).to_owned();
            is_code.then_some((address, name, module))
        })
        .collect();
    symbols.sort_by_key(|symbol| symbol.0);
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file of which every symbol has the same name.
    fn file_with_one_name(n_symbols: usize, name: &str) -> Vec<u8> {
        const SECTIONS: &[u8] = b"\0.symtab\0.strtab\0";
        let strings = [b"\0", name.as_bytes(), b"\0", SECTIONS].concat();
        let symbols_at = 64 + 4 * 64;
        let strings_at = symbols_at + 24 * (n_symbols + 1);
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        let put = |file: &mut Vec<u8>, number: u64, n_bytes: usize| {
            file.extend_from_slice(&number.to_le_bytes()[..n_bytes]);
        };
        let header = [(3, 2), (62, 2), (1, 4), (0, 8), (0, 8), (64, 8), (0, 4), (64, 2), (56, 2), (0, 2)];
        header.into_iter().chain([(64, 2), (4, 2), (2, 2)]).for_each(|(n, len)| put(&mut file, n, len));
        let names_at = name.len() as u64 + 2;
        let tables = [
            [0; 10],
            [names_at + 1, 2, 0, 0, symbols_at as u64, 24 * (n_symbols as u64 + 1), 2, 1, 8, 24],
            [names_at + 9, 3, 0, 0, strings_at as u64, strings.len() as u64, 0, 0, 1, 0],
            [names_at + 9, 1, 0, 0, 0, 0, 0, 0, 1, 0],
        ];
        for [table_name, kind, rest @ ..] in tables {
            let [flags, address, offset, size, link, info, align, entry] = rest;
            let fields = [(table_name, 4), (kind, 4), (flags, 8), (address, 8), (offset, 8), (size, 8)];
            let more = [(link, 4), (info, 4), (align, 8), (entry, 8)];
            fields.into_iter().chain(more).for_each(|(n, len)| put(&mut file, n, len));
        }
        file.extend_from_slice(&[0; 24]);
        for n in 0..n_symbols as u64 {
            // A function in the third section.
            [(1, 4), (0x12, 1), (0, 1), (3, 2), (0x1000 + n, 8), (1, 8)]
                .into_iter()
                .for_each(|(n, len)| put(&mut file, n, len));
        }
        file.extend_from_slice(&strings);
        file
    }

    #[test]
    fn names_take_no_more_room_than_the_file_has() {
        let sound = file_with_one_name(10, "f");
        assert_eq!(FileSymbols::read(&sound[..]).functions().count(), 10);
        // Each of them by itself would take a gigabyte and more.
        let bomb = file_with_one_name(20_000, &"f".repeat(60_000));
        let symbols = FileSymbols::read(&bomb[..]);
        assert!(symbols.functions().count() > 0 && symbols.names.len() <= 2 * bomb.len());
    }

    #[test]
    fn this_program_and_the_kernel_have_names() {
        let here = this_program_and_the_kernel_have_names as fn() as usize as u64;
        let mut symbolizer = Symbolizer::new();
        let symbol = symbolizer.user(std::process::id(), here + 1).expect("a function of this program");
        assert!(symbol.name.ends_with("this_program_and_the_kernel_have_names"), "{symbol:?}");
        assert_eq!(symbol.offset, 1);
        assert_eq!(Path::new(&symbol.module), std::env::current_exe().unwrap());
        assert_eq!(symbolizer.user(std::process::id(), 16), None);

        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let symbols = FileSymbols::read(image.bytes());
        let found = symbols.named(&symbol.name);
        assert_eq!(found.len(), 1, "{found:?}");
        let offset = symbols.file_offset_of(found[0].address).unwrap();
        assert_eq!(symbols.address_of(offset), Some(found[0].address));
    }

    #[test]
    fn a_process_that_has_ended_keeps_its_names() {
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let libc = loop {
            let objects = mapped_objects(child.id()).unwrap();
            let found = objects.into_iter().find(|o| o.path.to_string_lossy().contains("libc.so"));
            if let Some(object) = found {
                break object;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        let symbols = FileSymbols::read(libc.open().unwrap().bytes());
        let malloc = symbols.named("malloc")[0].address;
        let bias = libc.mappings[0].start - libc.mappings[0].offset;
        let mut symbolizer = Symbolizer::new();
        symbolizer.remember(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        let symbol = symbolizer.user(child.id(), bias + malloc + 4).expect("malloc");
        assert!(symbol.name.contains("malloc") && symbol.offset == 4, "{symbol:?}");
    }

    #[test]
    fn lines_of_kallsyms_and_perf_maps() {
        let text = "ffffffff81000000 T _text\nffffffff81000100 d data\nffffffffc0000000 t probe\t[ext4]\n";
        let want = [
            (0xffff_ffff_8100_0000, "_text".to_owned(), "[kernel]".to_owned()),
            (0xffff_ffff_c000_0000, "probe".to_owned(), "ext4".to_owned()),
        ];
        assert_eq!(kallsyms(text), want);
        assert_eq!(kallsyms("0000000000000000 T hidden\n"), []);
        assert_eq!(perf_map("20 10 b c\nx\n10 8 a\n"), [(16, 8, "a".to_owned()), (32, 16, "b c".to_owned())]);
        assert_eq!(perf_map(&"0 1 \n".repeat(MAX_COMPILED + 1)).len(), MAX_COMPILED);
    }
}
