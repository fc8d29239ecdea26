//! Stacks of traced threads: from the registers and a copy of the top of the stack, taken at a hit, to the addresses of
//! the callers. Does not know symbols.

use super::{FileId, MappedObject, mapped_objects};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder};
use object::{Object, ObjectSection, ReadRef};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a hit leaves of the thread's stack.
#[derive(Debug, Clone, Copy)]
pub struct StackTop<'a> {
    /// Where the thread is.
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// From `sp` upwards.
    pub bytes: &'a [u8],
}

/// Unwinds stacks of many processes and remembers their code.
#[derive(Default)]
pub struct Stacks {
    processes: HashMap<u32, Known>,
    /// By file: forked processes map the same ones.
    tables: HashMap<(u32, u32, u64), Option<Arc<Tables>>>,
    n_looks: u64,
}

impl std::fmt::Debug for Stacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stacks").field("n_processes", &self.processes.len()).finish_non_exhaustive()
    }
}

/// A piece of a file in the memory of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeRange {
    pub start: u64,
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    pub path: PathBuf,
    /// Empty if the file has none.
    pub build_id: Vec<u8>,
}

/// A file where it is loaded.
struct Loaded {
    file: FileId,
    /// What must be added to its link-time addresses.
    bias: u64,
    /// Where its module begins.
    start: u64,
    code: CodeRange,
}

struct Known {
    loaded: Vec<Loaded>,
    /// How many looks there were before this one.
    n_looks: u64,
    unwinder: UnwinderX86_64<Shared, MayAllocateDuringUnwind>,
    cache: CacheX86_64<MayAllocateDuringUnwind>,
    read_at: Instant,
}

/// A file's unwind tables.
#[derive(Debug)]
pub struct Tables {
    object: nopal_sdt::Object,
    base: u64,
    end: u64,
    text: Option<Range<u64>>,
    /// `.eh_frame`
    frames: Option<(Range<u64>, Shared)>,
    /// `.eh_frame_hdr`
    index: Option<(Range<u64>, Shared)>,
}

#[derive(Debug, Clone, Default)]
struct Shared(Arc<[u8]>);

impl std::ops::Deref for Shared {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The largest programs there are have a third of this.
const MAX_SECTION_BYTES: u64 = 128 << 20;
/// Of all files together; those that come after it are not unwound through.
const MAX_ALL_BYTES: usize = 1 << 30;
/// Beyond this many, processes that have ended are forgotten, then those that were looked at the longest ago.
const MAX_PROCESSES: usize = 1 << 12;
/// Libraries come while a program runs; looking for them costs.
const READ_AGAIN: Duration = Duration::from_secs(1);

impl Stacks {
    /// Appends the addresses: the hit's own, then where each caller will go on. Ends where the copy ends or the tables do; whether
    /// that is the stack's end.
    pub fn unwind(&mut self, pid: u32, top: StackTop<'_>, max_frames: usize, into: &mut Vec<u64>) -> bool {
        let start = into.len();
        if !self.knows(pid) && !self.remember(pid) {
            into.push(top.ip);
            return false;
        }
        let is_whole = self.walk(pid, top, max_frames, into);
        let is_old = self.processes.get(&pid).is_some_and(|known| known.read_at.elapsed() >= READ_AGAIN);
        if !is_whole && is_old && self.remember(pid) {
            into.truncate(start);
            return self.walk(pid, top, max_frames, into);
        }
        is_whole
    }

    /// The code at an address of a process that is known.
    pub fn code_at(&self, pid: u32, address: u64) -> Option<&CodeRange> {
        let code = self.processes.get(&pid)?.loaded.iter().map(|loaded| &loaded.code);
        code.into_iter().find(|code| (code.start..code.end).contains(&address))
    }

    /// What must be added to the link-time addresses of a file in a process that is known.
    pub fn bias(&self, pid: u32, file: FileId) -> Option<u64> {
        let loaded = &self.processes.get(&pid)?.loaded;
        loaded.iter().find(|loaded| loaded.file == file).map(|loaded| loaded.bias)
    }

    /// A process that is known to map a file.
    pub fn process_with(&self, file: FileId) -> Option<u32> {
        let maps = |known: &Known| known.loaded.iter().any(|loaded| loaded.file == file);
        self.processes.iter().find(|(_, known)| maps(known)).map(|(pid, _)| *pid)
    }

    /// Another number whenever a process was looked at again.
    pub fn look_of(&self, pid: u32) -> u64 {
        self.processes.get(&pid).map_or(0, |known| known.n_looks)
    }

    pub fn knows(&self, pid: u32) -> bool {
        self.processes.contains_key(&pid)
    }

    /// Looks at the code a process maps now, so that its stacks can be unwound when it has ended. Whether it has not.
    pub fn remember(&mut self, pid: u32) -> bool {
        let objects = mapped_objects(pid).unwrap_or_default();
        if objects.is_empty() {
            return false;
        }
        let mut known = self.read(&objects);
        self.n_looks += 1;
        known.n_looks = self.n_looks;
        self.keep(pid, known);
        true
    }

    /// Takes note of code that a process has mapped, beside what it was known to map. What was at the same place before is gone.
    pub fn add(&mut self, mapped: &MappedObject) {
        self.n_looks += 1;
        let n_looks = self.n_looks;
        let mut known = self.processes.remove(&mapped.pid).unwrap_or_else(Known::new);
        self.load(&mut known, mapped);
        known.n_looks = n_looks;
        self.keep(mapped.pid, known);
    }

    fn keep(&mut self, pid: u32, known: Known) {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid) {
            self.processes.retain(|pid, _| crate::Process::is_alive(*pid));
            let mut looks: Vec<u64> = self.processes.values().map(|known| known.n_looks).collect();
            if looks.len() > MAX_PROCESSES / 2 {
                looks.sort_unstable();
                let oldest = looks[looks.len() - MAX_PROCESSES / 2];
                self.processes.retain(|_, known| known.n_looks >= oldest);
            }
        }
        self.processes.insert(pid, known);
    }

    /// A program of its own has taken the place of what a process was.
    pub fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
    }

    fn walk(&mut self, pid: u32, top: StackTop<'_>, max_frames: usize, into: &mut Vec<u64>) -> bool {
        self.processes.get_mut(&pid).is_some_and(|known| known.walk(top, max_frames, into))
    }

    fn read(&mut self, objects: &[MappedObject]) -> Known {
        let mut known = Known::new();
        objects.iter().for_each(|mapped| self.load(&mut known, mapped));
        known
    }

    fn load(&mut self, known: &mut Known, mapped: &MappedObject) {
        let mapping = &mapped.mappings[0];
        let key = (mapping.device_major, mapping.device_minor, mapping.inode);
        let n_bytes = || self.tables.values().flatten().map(|tables| tables.n_bytes()).sum::<usize>();
        let has_room = self.tables.contains_key(&key) || n_bytes() < MAX_ALL_BYTES;
        let read = || {
            let image = mapped.open().ok().filter(|_| has_room)?;
            Tables::read(image.bytes()).map(Arc::new)
        };
        let Some(tables) = self.tables.entry(key).or_insert_with(read).clone() else { return };
        let Some(bias) = mapped.load_biases(&tables.object).first().copied() else { return };
        let module = tables.module(mapped.path.display().to_string(), bias);
        let range = module.avma_range();
        let is_there = |old: &Loaded| old.code.start < range.end && range.start < old.code.end;
        // What was there before is gone, or the same.
        for old in known.loaded.iter().filter(|old| is_there(old)) {
            known.unwinder.remove_module(old.start);
        }
        known.loaded.retain(|old| !is_there(old));
        let (Some(file), start) = (mapped.file(), range.start) else { return };
        known.unwinder.add_module(module);
        let build_id = tables.object.build_id.clone().unwrap_or_default();
        let code = mapped.mappings.iter().filter(|mapping| mapping.is_executable);
        let code = code.map(|mapping| CodeRange {
            start: mapping.start,
            end: mapping.end,
            offset: mapping.offset,
            path: mapped.path.clone(),
            build_id: build_id.clone(),
        });
        known.loaded.extend(code.map(|code| Loaded { file, bias, start, code }));
    }
}

impl Tables {
    /// Of an ELF file; none if it has no code.
    pub fn read<'data, R: ReadRef<'data>>(bytes: R) -> Option<Tables> {
        let file = object::File::parse(bytes).ok()?;
        let object = nopal_sdt::read(bytes).ok()?;
        let base = object.segments.iter().map(|segment| segment.address).min()?;
        let ends = object.segments.iter().map(|segment| segment.address.checked_add(segment.size_in_file));
        let end = ends.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
        // As the program itself reads them where they are loaded, they are never compressed.
        let part = |name: &str| {
            let section = file.section_by_name(name)?;
            let bytes = section.data().ok().filter(|_| section.size() <= MAX_SECTION_BYTES)?;
            let end = section.address().checked_add(bytes.len() as u64)?;
            Some((section.address()..end, Shared(bytes.into())))
        };
        let text = file.section_by_name(".text");
        let text = text.and_then(|s| Some(s.address()..s.address().checked_add(s.size())?));
        let (frames, index) = (part(".eh_frame"), part(".eh_frame_hdr"));
        Some(Tables { object, base, end, text, frames, index })
    }

    fn n_bytes(&self) -> usize {
        [&self.frames, &self.index].into_iter().flatten().map(|(_, bytes)| bytes.len()).sum()
    }

    /// The file where it is loaded.
    fn module(&self, name: String, bias: u64) -> Module<Shared> {
        let (frames, index) = (self.frames.clone(), self.index.clone());
        let info = ExplicitModuleSectionInfo {
            base_svma: self.base,
            text_svma: self.text.clone(),
            eh_frame_svma: frames.as_ref().map(|(range, _)| range.clone()),
            eh_frame: frames.map(|(_, bytes)| bytes),
            eh_frame_hdr_svma: index.as_ref().map(|(range, _)| range.clone()),
            eh_frame_hdr: index.map(|(_, bytes)| bytes),
            ..ExplicitModuleSectionInfo::default()
        };
        let range = self.base.wrapping_add(bias)..self.end.wrapping_add(bias);
        let base = range.start;
        Module::new(name, range, base, info)
    }
}

impl Known {
    fn new() -> Known {
        Known {
            loaded: Vec::new(),
            n_looks: 0,
            unwinder: UnwinderX86_64::new(),
            cache: CacheX86_64::new(),
            read_at: Instant::now(),
        }
    }

    /// Whether the stack was walked to its end.
    fn walk(&mut self, top: StackTop<'_>, max_frames: usize, into: &mut Vec<u64>) -> bool {
        let mut read_stack = |address: u64| {
            let offset = usize::try_from(address.wrapping_sub(top.sp)).map_err(drop)?;
            let word = top.bytes.get(offset..).and_then(|rest| rest.first_chunk::<8>());
            word.map(|word| u64::from_le_bytes(*word)).ok_or(())
        };
        let registers = UnwindRegsX86_64::new(top.ip, top.sp, top.bp);
        let mut frames = self.unwinder.iter_frames(top.ip, registers, &mut self.cache, &mut read_stack);
        for _ in 0..max_frames {
            match frames.next() {
                Ok(Some(frame)) => into.push(frame.address()),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

/// Unwinds one stack by the tables of one file, loaded at its link-time addresses.
pub fn unwind_by(tables: &Tables, top: StackTop<'_>, max_frames: usize, into: &mut Vec<u64>) {
    let mut known = Known::new();
    known.unwinder.add_module(tables.module(String::new(), 0));
    known.walk(top, max_frames, into);
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::LittleEndian;
    use object::elf::{FileHeader64, SHF_COMPRESSED, SectionHeader64};
    use std::io::Write;

    /// This program's own file, with `.eh_frame` replaced by what unpacks to `n_bytes`.
    fn bomb(n_bytes: usize) -> Vec<u8> {
        let mut file = std::fs::read("/proc/self/exe").expect("a program may read itself");
        let (index, at, size) = {
            let parsed = object::File::parse(&file[..]).expect("ELF");
            let section = parsed.section_by_name(".eh_frame").expect("unwind tables");
            let (at, size) = section.file_range().expect("in the file");
            (section.index().0, at as usize, size as usize)
        };
        // The type of compression (zlib), nothing, the size, the alignment.
        let mut packed: Vec<u8> =
            [1, n_bytes as u64, 8].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        let mut encoder = flate2::write::ZlibEncoder::new(&mut packed, flate2::Compression::best());
        encoder.write_all(&vec![0; n_bytes]).and_then(|()| encoder.try_finish()).expect("it fits");
        drop(encoder);
        assert!(packed.len() <= size);
        file[at..at + packed.len()].copy_from_slice(&packed);
        let table = {
            let (header, _) = object::from_bytes::<FileHeader64<LittleEndian>>(&file).expect("a header");
            header.e_shoff.get(LittleEndian) as usize
        };
        let entry = table + index * size_of::<SectionHeader64<LittleEndian>>();
        // sh_flags is behind the name and the type.
        file[entry + 8..entry + 16].copy_from_slice(&(SHF_COMPRESSED.0 | 2).to_le_bytes());
        file
    }

    #[test]
    fn tables_take_no_more_memory_than_the_file_has() {
        let own = std::fs::read("/proc/self/exe").expect("a program may read itself");
        let whole = Tables::read(&own[..]).expect("this program has code");
        assert!(whole.n_bytes() > 1000);
        let file = bomb(64 << 20);
        let n_bytes = Tables::read(&file[..]).map_or(0, |tables| tables.n_bytes());
        assert!(n_bytes < 2 * whole.n_bytes(), "{n_bytes}");
    }
}
