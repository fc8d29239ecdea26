//! Where in a process OpenTelemetry's thread context is (OTEP 4947): the thread-local variable `otel_thread_ctx_v1`, as a
//! distance from the thread pointer that is the same for all threads. There is one if the variable is in static
//! thread-local memory: the program's own, or that of a library that was there from the start.

use super::{MappedObject, mapped_objects};
use object::elf::{PT_TLS, R_X86_64_DTPMOD64, R_X86_64_TLSDESC, R_X86_64_TPOFF64};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{
    Endianness, Object, ObjectSymbol, ObjectSymbolTable, ReadRef, RelocationFlags, RelocationTarget,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const SYMBOL: &str = "otel_thread_ctx_v1";
/// Real files have some ten thousands.
const MAX_RELOCATIONS: usize = 1 << 20;

/// Why a process has no thread context that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoThreadContext {
    /// Nothing it has mapped has the variable.
    NotPublished,
    /// Each thread gets the memory of this file when it first uses it, at a place of its own.
    Dynamic {
        path: PathBuf,
    },
    Unreadable,
}

impl std::fmt::Display for NoThreadContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NoThreadContext::NotPublished => {
                write!(f, "it publishes no thread context of OpenTelemetry (thread-local variable {SYMBOL})")
            }
            NoThreadContext::Dynamic { path } => {
                write!(f, "{} has {SYMBOL} in dynamic thread-local memory", path.display())
            }
            NoThreadContext::Unreadable => f.write_str("its files or its memory cannot be read"),
        }
    }
}

/// How one file has the variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// At this distance, if the file is the program itself.
    OfProgram(i64),
    /// The dynamic linker writes the distance to this link-time address.
    Slot(u64),
    /// The same into the second word of a descriptor, or a pointer if there is no one distance.
    Descriptor(u64),
    Dynamic,
}

/// The distance of the variable from the thread pointer.
pub fn offset(pid: u32) -> Result<i32, NoThreadContext> {
    let objects = mapped_objects(pid).map_err(|_| NoThreadContext::Unreadable)?;
    let program = fs::metadata(format!("/proc/{pid}/exe")).map_err(|_| NoThreadContext::Unreadable)?;
    let inode = std::os::unix::fs::MetadataExt::ino(&program);
    let mut why_not = NoThreadContext::NotPublished;
    for object in objects {
        let is_program = object.mappings.first().is_some_and(|mapping| mapping.inode == inode);
        let Ok(image) = object.open() else { continue };
        for access in accesses(image.bytes()) {
            let found = match access {
                Access::OfProgram(distance) if is_program => Some(distance),
                Access::OfProgram(_) => continue,
                Access::Slot(address) => slot(&object, image.bytes(), address),
                Access::Descriptor(address) => slot(&object, image.bytes(), address.wrapping_add(8)),
                Access::Dynamic => None,
            };
            // Static memory lies below the thread pointer, and is not large. A pointer is neither.
            match found.and_then(|distance| i32::try_from(distance).ok()).filter(|distance| *distance < 0) {
                Some(distance) => return Ok(distance),
                None => why_not = NoThreadContext::Dynamic { path: object.path.clone() },
            }
        }
    }
    Err(why_not)
}

/// A word of the process, by its link-time address in a file that it has mapped.
fn slot<'data>(object: &MappedObject, bytes: impl ReadRef<'data>, address: u64) -> Option<i64> {
    let read = nopal_sdt::read(bytes).ok()?;
    let bias = object.load_biases(&read).into_iter().next()?;
    let mut word = [0; 8];
    let memory = File::open(format!("/proc/{}/mem", object.pid)).ok()?;
    memory.read_exact_at(&mut word, bias.wrapping_add(address)).ok()?;
    Some(i64::from_le_bytes(word))
}

/// In how many ways a file has the variable.
#[cfg(fuzzing)]
pub fn n_accesses<'data, R: ReadRef<'data>>(bytes: R) -> usize {
    accesses(bytes).len()
}

fn accesses<'data, R: ReadRef<'data>>(bytes: R) -> Vec<Access> {
    let mut found = Vec::new();
    let Ok(file) = ElfFile64::<Endianness, R>::parse(bytes) else { return found };
    let endian = file.endian();
    let mut headers = file.elf_program_headers().iter();
    let tls = headers.find(|header| header.p_type(endian) == PT_TLS);
    let defined = file
        .dynamic_symbols()
        .chain(file.symbols())
        .find(|symbol| !symbol.is_undefined() && symbol.name() == Ok(SYMBOL));
    if let (Some(header), Some(symbol)) = (tls, &defined) {
        // The program's block ends at the thread pointer, rounded up to its alignment.
        let align = header.p_align(endian).max(1);
        let size = header.p_memsz(endian).checked_next_multiple_of(align);
        let distance = size.and_then(|size| i64::try_from(size).ok());
        found.extend(distance.map(|size| Access::OfProgram((symbol.address() as i64).wrapping_sub(size))));
    }
    let Some(relocations) = file.dynamic_relocations() else { return found };
    let table = file.dynamic_symbol_table();
    for (address, relocation) in relocations.take(MAX_RELOCATIONS) {
        let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
        if !matches!(r_type, R_X86_64_TPOFF64 | R_X86_64_TLSDESC | R_X86_64_DTPMOD64) {
            continue;
        }
        let is_it = match relocation.target() {
            RelocationTarget::Symbol(index) => table
                .as_ref()
                .and_then(|table| table.symbol_by_index(index).ok())
                .is_some_and(|symbol| symbol.name() == Ok(SYMBOL)),
            // A symbol that the file keeps to itself: its place in the file's block is all there is of it.
            _ => defined.as_ref().is_some_and(|symbol| symbol.address() as i64 == relocation.addend()),
        };
        match r_type {
            _ if !is_it => {}
            R_X86_64_TPOFF64 => found.push(Access::Slot(address)),
            R_X86_64_TLSDESC => found.push(Access::Descriptor(address)),
            _ => found.push(Access::Dynamic),
        }
    }
    found
}
