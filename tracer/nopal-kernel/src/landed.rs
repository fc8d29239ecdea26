//! Whether the kernel's breakpoints are in the memory of a process: it takes a uprobe on a file, and says nothing where the
//! code that is mapped is no longer the file's, nor when a debugger writes its own bytes over them.

use super::file_code::FileCode;
use nopal_proc::{MappedObject, mapped_objects, tracer_of};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What has been seen to be there is looked at this often.
const LOOK: Duration = Duration::from_secs(1);

const BREAKPOINT: u8 = 0xcc;

/// The kernel's breakpoint, or its call where it has made one of a long nop.
fn is_kernels(byte: u8) -> bool {
    matches!(byte, BREAKPOINT | 0xe8)
}

fn memory_of(pid: u32) -> Option<File> {
    File::open(format!("/proc/{pid}/mem")).ok()
}

fn byte_at(memory: &File, address: u64) -> Option<u8> {
    let mut byte = [0; 1];
    memory.read_exact_at(&mut byte, address).ok()?;
    Some(byte[0])
}

/// For each site, by its link-time address, whether its breakpoint is missing where the process has the file loaded. What
/// cannot be read is not missing.
pub fn missing(mapped: &MappedObject, file: &FileCode, sites: &[u64]) -> Vec<bool> {
    any_byte(mapped, file, sites, |byte| !is_kernels(byte))
}

/// For each site whether a debugger that holds the process has a breakpoint there. When it leaves, it puts the file's byte
/// back, and takes away that of a uprobe with its own.
pub fn of_debugger(mapped: &MappedObject, file: &FileCode, sites: &[u64]) -> Vec<bool> {
    // One of ours holds it for a moment, and puts no breakpoints.
    let is_ours = |(tracer, name): (u32, String)| {
        name == "nopal" || std::fs::exists(format!("/proc/self/task/{tracer}")).unwrap_or(false)
    };
    if tracer_of(mapped.pid).is_none_or(is_ours) {
        return vec![false; sites.len()];
    }
    any_byte(mapped, file, sites, |byte| byte == BREAKPOINT)
}

/// For each site whether a byte in its place is one of those that are meant, wherever the process has the file loaded.
fn any_byte(
    mapped: &MappedObject,
    file: &FileCode,
    sites: &[u64],
    is_meant: impl Fn(u8) -> bool,
) -> Vec<bool> {
    let Some(memory) = memory_of(mapped.pid) else {
        return vec![false; sites.len()];
    };
    let biases = mapped.load_biases(&file.object);
    let is_one = |address: &u64| {
        biases.iter().any(|bias| byte_at(&memory, bias.wrapping_add(*address)).is_some_and(&is_meant))
    };
    sites.iter().map(is_one).collect()
}

/// Breakpoints of the kernel that were seen in the memory of processes.
#[derive(Debug, Default)]
pub struct Landed {
    /// By process and address.
    seen: HashMap<u32, HashMap<u64, Seen>>,
    last_look: Option<Instant>,
}

#[derive(Debug)]
struct Seen {
    name: String,
    mapped: Arc<MappedObject>,
}

/// A breakpoint that somebody has taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    pub pid: u32,
    pub name: String,
    /// In the memory of the process.
    pub address: u64,
}

impl Landed {
    /// Notes those that are there.
    pub fn note<'s>(
        &mut self,
        mapped: &MappedObject,
        file: &FileCode,
        sites: impl IntoIterator<Item = (&'s str, u64)>,
    ) {
        let Some(memory) = memory_of(mapped.pid) else { return };
        let biases = mapped.load_biases(&file.object);
        let (seen, mapped) = (self.seen.entry(mapped.pid).or_default(), Arc::new(mapped.clone()));
        for (name, address) in sites {
            for address in biases.iter().map(|bias| bias.wrapping_add(address)) {
                if byte_at(&memory, address).is_some_and(is_kernels) {
                    seen.insert(address, Seen { name: name.to_owned(), mapped: Arc::clone(&mapped) });
                }
            }
        }
    }

    /// What has gone, if it is time to look again. Each is told once.
    pub fn look_now_and_then(&mut self) -> Vec<Gone> {
        if self.last_look.is_some_and(|last| last.elapsed() < LOOK) { Vec::new() } else { self.look() }
    }

    /// What has gone since it was last looked at. Each is told once.
    pub fn look(&mut self) -> Vec<Gone> {
        self.last_look = Some(Instant::now());
        let mut gone = Vec::new();
        self.seen.retain(|pid, seen| {
            let Some(memory) = memory_of(*pid) else { return false };
            let is_there = |address: &u64| byte_at(&memory, *address).is_some_and(is_kernels);
            if seen.keys().all(is_there) {
                return true;
            }
            // What is mapped no longer, or is another program's by now, was not taken away.
            let objects = mapped_objects(*pid).unwrap_or_default();
            let is_mapped = |address: u64, seen: &Seen| {
                objects.iter().any(|object| {
                    object.file() == seen.mapped.file()
                        && object.mappings.iter().any(|mapping| mapping.contains(address))
                })
            };
            seen.retain(|address, seen| {
                let is_there = is_there(address);
                if !is_there && is_mapped(*address, seen) {
                    gone.push(Gone { pid: *pid, name: seen.name.clone(), address: *address });
                }
                is_there
            });
            !seen.is_empty()
        });
        gone
    }

    /// Its program is another now.
    pub fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        self.seen.retain(|pid, _| !is_gone(*pid));
    }
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Gone { pid, name, address } = self;
        write!(
            f,
            "the kernel's breakpoint for {name} at {address:#x} in process {pid} was taken away by somebody, perhaps a \
             debugger that left; its hits are missing since"
        )
    }
}
