//! Stacks of traced threads: from the registers and a copy of the top of the stack, taken at a hit, to the addresses of
//! the callers. Does not know symbols.

use super::{MappedObject, mapped_objects};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder};
use object::{Object, ObjectSection};
use std::collections::HashMap;
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
    sections: HashMap<(u32, u32, u64), Option<Arc<Sections>>>,
}

impl std::fmt::Debug for Stacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stacks").field("n_processes", &self.processes.len()).finish_non_exhaustive()
    }
}

struct Known {
    unwinder: UnwinderX86_64<Shared, MayAllocateDuringUnwind>,
    cache: CacheX86_64<MayAllocateDuringUnwind>,
    read_at: Instant,
}

/// A file's unwind tables.
#[derive(Debug)]
struct Sections {
    object: nopal_sdt::Object,
    base: u64,
    end: u64,
    text: Option<std::ops::Range<u64>>,
    frames: Option<(u64, Shared)>,
    index: Option<(u64, Shared)>,
}

#[derive(Debug, Clone, Default)]
struct Shared(Arc<[u8]>);

impl std::ops::Deref for Shared {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Libraries come while a program runs; looking for them costs.
const READ_AGAIN: Duration = Duration::from_secs(1);

impl Stacks {
    /// Appends the addresses: the hit's own, then where each caller will go on. Ends where the copy ends or the tables do.
    pub fn unwind(&mut self, pid: u32, top: StackTop<'_>, max_frames: usize, into: &mut Vec<u64>) {
        let start = into.len();
        if !self.knows(pid) && !self.remember(pid) {
            into.push(top.ip);
            return;
        }
        let is_whole = self.walk(pid, top, max_frames, into);
        let is_old = self.processes.get(&pid).is_some_and(|known| known.read_at.elapsed() >= READ_AGAIN);
        if !is_whole && is_old && self.remember(pid) {
            into.truncate(start);
            self.walk(pid, top, max_frames, into);
        }
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
        let known = self.read(&objects);
        self.processes.insert(pid, known);
        true
    }

    fn walk(&mut self, pid: u32, top: StackTop<'_>, max_frames: usize, into: &mut Vec<u64>) -> bool {
        let Some(known) = self.processes.get_mut(&pid) else { return false };
        let mut read_stack = |address: u64| {
            let offset = usize::try_from(address.wrapping_sub(top.sp)).map_err(drop)?;
            let word = top.bytes.get(offset..).and_then(|rest| rest.first_chunk::<8>());
            word.map(|word| u64::from_le_bytes(*word)).ok_or(())
        };
        let registers = UnwindRegsX86_64::new(top.ip, top.sp, top.bp);
        let mut frames = known.unwinder.iter_frames(top.ip, registers, &mut known.cache, &mut read_stack);
        for _ in 0..max_frames {
            match frames.next() {
                Ok(Some(frame)) => into.push(frame.address()),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    fn read(&mut self, objects: &[MappedObject]) -> Known {
        let mut unwinder = UnwinderX86_64::new();
        for mapped in objects {
            let mapping = &mapped.mappings[0];
            let key = (mapping.device_major, mapping.device_minor, mapping.inode);
            let sections =
                self.sections.entry(key).or_insert_with(|| Sections::read(mapped).map(Arc::new)).clone();
            let Some(sections) = sections else { continue };
            let Some(bias) = mapped.load_biases(&sections.object).first().copied() else { continue };
            let range = sections.base.wrapping_add(bias)..sections.end.wrapping_add(bias);
            let of = |part: &Option<(u64, Shared)>| {
                part.as_ref().map(|(at, bytes)| (*at..*at + bytes.len() as u64, bytes.clone()))
            };
            let (frames, index) = (of(&sections.frames), of(&sections.index));
            let info = ExplicitModuleSectionInfo {
                base_svma: sections.base,
                text_svma: sections.text.clone(),
                eh_frame_svma: frames.as_ref().map(|(range, _)| range.clone()),
                eh_frame: frames.map(|(_, bytes)| bytes),
                eh_frame_hdr_svma: index.as_ref().map(|(range, _)| range.clone()),
                eh_frame_hdr: index.map(|(_, bytes)| bytes),
                ..ExplicitModuleSectionInfo::default()
            };
            let base = range.start;
            unwinder.add_module(Module::new(mapped.path.display().to_string(), range, base, info));
        }
        Known { unwinder, cache: CacheX86_64::new(), read_at: Instant::now() }
    }
}

impl Sections {
    fn read(mapped: &MappedObject) -> Option<Sections> {
        let image = mapped.open().ok()?;
        let file = object::File::parse(image.bytes()).ok()?;
        let object = nopal_sdt::read(image.bytes()).ok()?;
        let base = object.segments.iter().map(|segment| segment.address).min()?;
        let end = object.segments.iter().map(|segment| segment.address + segment.size_in_file).max()?;
        let part = |name: &str| {
            let section = file.section_by_name(name)?;
            let bytes: Arc<[u8]> = section.uncompressed_data().ok()?.as_ref().into();
            Some((section.address(), Shared(bytes)))
        };
        let text = file.section_by_name(".text").map(|s| s.address()..s.address() + s.size());
        let (frames, index) = (part(".eh_frame"), part(".eh_frame_hdr"));
        Some(Sections { object, base, end, text, frames, index })
    }
}
