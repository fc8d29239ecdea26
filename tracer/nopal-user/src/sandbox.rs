//! Processes that lock themselves in (`seccomp`) while they are traced. The functions of the C library by which a program
//! can do that are opened like probe sites, with a stub that notes it before it takes effect; see
//! [`Forbidding`]. A program that makes these calls without its C library is not noticed in time.
//!
//! The same look at the C library finds its word for the end of the heap.

use super::distance::{self, Distance};
use super::error::Result;
use super::maps::Maps;
use super::memory::Memory;
use super::neighbourhood::spaces_in;
use super::process;
use super::stub::Heap;
use super::stub::space::ObjectIdentity;
use super::stub::tail::plan_entry;
use super::tactic::{Refusal, Tactic, Way, pun};
use super::traced::Traced;
use super::wanted::{LazyFixed, WantedObject};
use iced_x86::{Instruction, InstructionInfoFactory, OpAccess, Register};
use nopal_abi::stub_space::{DEFAULT_BYTES, KEPT_OFFSET, KeptPages, N_SPACES};
use nopal_capture::{Action, Forbidding, Wanted};
use nopal_proc::MappedObject;
use nopal_sdt::probe::Site;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::Arc;

/// Stands for these places where an event's number stands; no event of a session may have it.
pub const FORBIDDING_EVENT: u32 = u32::MAX - 2;
/// What notices call them.
pub const FORBIDDING_PROBE: &str = "libc:seccomp";
const FUNCTIONS: [(&str, Forbidding); 2] = [("prctl", Forbidding::Prctl), ("syscall", Forbidding::Syscall)];
/// The GNU C library's word for the end of the heap.
const HEAP_END: &str = "__curbrk";
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// As many bytes of code as a probe site has.
const CODE_BYTES: usize = 16;

/// The functions of one file; addresses are those of link time.
#[derive(Debug, Clone, Default)]
struct Forbidders {
    found: Vec<(u64, Vec<u8>, Forbidding)>,
    /// Where the library keeps the end of the heap.
    heap_end: Option<u64>,
    build_id: u64,
}

/// What was read of the files that processes of a session map.
#[derive(Debug, Default)]
pub(super) struct ForbidderFiles {
    /// By device and inode; `None` if the file cannot be read.
    read: HashMap<(u64, u64), Option<(Forbidders, nopal_sdt::Object)>>,
}

fn read_forbidders(object: &MappedObject, is_static: bool) -> Option<(Forbidders, nopal_sdt::Object)> {
    let image = object.open().ok()?;
    let file = object::File::parse(image.bytes()).ok()?;
    let code_at = |address: u64| {
        file.segments().find_map(|segment| {
            let at = usize::try_from(address.checked_sub(segment.address())?).ok()?;
            segment.data().ok()?.get(at..at.checked_add(CODE_BYTES)?).map(<[u8]>::to_vec)
        })
    };
    let (mut found, mut heap_end) = (Vec::<(u64, Vec<u8>, Forbidding)>::new(), None);
    let symbols: Box<dyn Iterator<Item = _>> =
        if is_static { Box::new(file.symbols()) } else { Box::new(file.dynamic_symbols()) };
    for symbol in symbols.filter(|s| s.is_definition() && s.address() != 0) {
        if symbol.name() == Ok(HEAP_END) && symbol.size() == 8 {
            heap_end = Some(symbol.address());
        }
        let function = FUNCTIONS.iter().find(|(name, _)| symbol.name() == Ok(name));
        let Some((_, function)) = function else { continue };
        let entry = symbol.address();
        let is_marked = code_at(entry).is_some_and(|code| code.starts_with(&ENDBR64));
        let address = if is_marked { entry + ENDBR64.len() as u64 } else { entry };
        if let Some(code) = code_at(address)
            && found.iter().all(|(known, ..)| *known != address)
        {
            found.push((address, code, *function));
        }
    }
    let build_id = file.build_id().ok().flatten().and_then(|id| id.get(..8));
    let build_id = build_id.map_or(0, |b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
    Some((Forbidders { found, heap_end, build_id }, nopal_sdt::read(image.bytes()).ok()?))
}

impl ForbidderFiles {
    /// The places in a process that are to be opened besides what is wanted of it.
    pub(crate) fn wanted_in(&mut self, pid: i32, mapped: &[MappedObject]) -> Vec<WantedObject> {
        let is_static = process::auxv(pid).is_ok_and(|auxv| auxv.loader_base == 0);
        let is_c_library = |object: &&MappedObject| {
            let name = object.path.file_name().unwrap_or_default().to_string_lossy();
            is_static
                || name.starts_with("libc.so")
                || name.starts_with("libc-")
                || name.starts_with("ld-musl")
        };
        let mut wanted = Vec::new();
        for object in mapped.iter().filter(is_c_library) {
            let mapping = &object.mappings[0];
            let device = libc::makedev(mapping.device_major, mapping.device_minor);
            let read = self
                .read
                .entry((device, mapping.inode))
                .or_insert_with(|| read_forbidders(object, is_static));
            let Some((forbidders, elf)) = read else { continue };
            if forbidders.found.is_empty() {
                continue;
            }
            let identity = ObjectIdentity {
                device,
                inode: mapping.inode,
                build_id: forbidders.build_id,
                link_address: 0,
            };
            let mut addresses: Vec<u64> = forbidders.found.iter().map(|(address, ..)| *address).collect();
            addresses.sort_unstable();
            let all_sites = Arc::new(addresses);
            for bias in object.load_biases(elf) {
                wanted.push(WantedObject {
                    path: object.path.clone(),
                    bias,
                    identity,
                    sites: forbidders.found.iter().map(wanted_site).collect(),
                    own_file: 0..0,
                    heap: None,
                    all_sites: Arc::clone(&all_sites),
                    fixed: Arc::new(LazyFixed::nothing()),
                });
            }
        }
        wanted
    }
}

impl ForbidderFiles {
    /// The heap of a process, of whose mapped files [`ForbidderFiles::wanted_in`] has looked at the C library. Nothing if there
    /// are several such libraries, or if the word says something else than the kernel.
    pub(crate) fn heap_of(&self, pid: i32, mapped: &[MappedObject]) -> Option<Heap> {
        let mut words = mapped.iter().flat_map(|object| {
            let mapping = &object.mappings[0];
            let device = libc::makedev(mapping.device_major, mapping.device_minor);
            let read = self.read.get(&(device, mapping.inode)).and_then(Option::as_ref);
            let word = read.and_then(|(forbidders, elf)| Some((forbidders.heap_end?, elf)));
            let biases = word.map(|(word, elf)| (word, object.load_biases(elf)));
            biases
                .into_iter()
                .flat_map(|(word, biases)| biases.into_iter().map(move |b| b.wrapping_add(word)))
        });
        let (Some(end_word), None) = (words.next(), words.next()) else { return None };
        let start = process::heap_start(pid)?;
        let mut word = [0; 8];
        Memory::open(pid).ok()?.read(end_word, &mut word).ok()?;
        let end = u64::from_le_bytes(word);
        let maps = Maps::read(pid).ok()?;
        let is_mapped =
            |at: u64| maps.find(at).is_some_and(|r| r.is_writable && !r.is_shared && r.inode == 0);
        let is_right = end == 0 || end == start || end > start && is_mapped(start) && is_mapped(end - 1);
        (end_word.is_multiple_of(8) && is_right).then_some(Heap { start, end_word })
    }
}

fn wanted_site((address, code, function): &(u64, Vec<u8>, Forbidding)) -> Wanted {
    Wanted {
        probe: FORBIDDING_PROBE.into(),
        site: Site {
            address: *address,
            file_offset: 0,
            semaphore: None,
            args: Vec::new(),
            code: code.clone(),
            until_restartable: None,
            edge: None,
        },
        event: FORBIDDING_EVENT,
        predicates: Vec::new(),
        action: Action::Restrain(*function),
    }
}

/// The ways to open the beginning of a function: the first byte of one of its instructions, as long as the arguments
/// are where they were.
pub(super) fn ways(address: u64, code: &[u8]) -> std::result::Result<Vec<Way>, Refusal> {
    let (mut ways, mut unguarded) = (Vec::new(), Vec::new());
    let mut at = 0;
    while let Some((tail, entry)) = plan_entry(&code[at..], address + at as u64) {
        let (rest, place) = (&code[at..], address + at as u64);
        let way = |starts: &[usize], tail| {
            Distance::of_file(rest, 1, starts).map(|distance| pun(Tactic::Pun, place, distance, tail))
        };
        // Under a breakpoint on one of the next instructions the jump must arrive as well. At low addresses it cannot; there
        // a filter that would kill the program weighs more than a debugger in the middle of this function.
        let starts = distance::starts(rest, 0);
        unguarded
            .extend(way(&[], tail.clone()).filter(|_| starts.iter().any(|start| (1..5).contains(start))));
        ways.extend(way(&starts, tail));
        let changes = |register: &Register| writes(&entry, *register);
        if [Register::RDI, Register::RSI, Register::RDX].iter().any(changes) {
            break;
        }
        at += entry.len();
    }
    ways.extend(unguarded);
    match ways.is_empty() {
        true => Err(Refusal::NotANop { bytes: code.iter().take(5).copied().collect() }),
        false => Ok(ways),
    }
}

fn writes(instruction: &Instruction, register: Register) -> bool {
    let mut factory = InstructionInfoFactory::new();
    factory.info(instruction).used_registers().iter().any(|used| {
        let is_write = !matches!(
            used.access(),
            OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        );
        is_write && used.register().full_register() == register
    })
}

/// What users read about a process that has locked itself in.
pub fn restrained_in_words(pid: i32, is_silent: bool) -> String {
    match is_silent {
        false => format!(
            "process {pid} has restricted its system calls (seccomp): strings outside its own file are not read from now on; \
             `--door kernel` reads them"
        ),
        true => format!(
            "process {pid} has restricted itself to few system calls and no time stamps (seccomp): its hits are counted \
             as lost from now on; `--door kernel` records them"
        ),
    }
}

/// And of one where another tool stands in the way.
pub fn unguarded_in_words(pid: i32) -> String {
    format!(
        "another tool watches how process {pid} restricts its system calls; if it does so now, it may die of a string that is \
         read"
    )
}

fn kept(space_end: u64) -> u64 {
    space_end + KEPT_OFFSET as u64
}

/// Tells each stub space of a process where the words of all are, so that all are set at once.
pub(super) fn introduce_spaces(memory: &Memory, maps: &Maps) -> Result<()> {
    let ends: Vec<u64> = spaces_in(maps).iter().map(|space| space.end).collect();
    let is_there = |end: &&u64| {
        let page = kept(**end);
        maps.find(page).is_some_and(|r| {
            r.is_writable && !r.is_shared && r.inode == 0 && page + size_of::<KeptPages>() as u64 <= r.end
        })
    };
    let ends: Vec<u64> = ends.iter().filter(is_there).copied().take(N_SPACES - 1).collect();
    let mut list = [0u8; 8 * N_SPACES];
    for (word, end) in list.chunks_exact_mut(8).zip(&ends) {
        word.copy_from_slice(&(kept(*end) + offset_of!(KeptPages, restraint) as u64).to_le_bytes());
    }
    for end in &ends {
        memory.write(kept(*end) + offset_of!(KeptPages, spaces) as u64, &list)?;
    }
    Ok(())
}

/// What a process has forbidden itself so far, as its stubs have it.
pub(super) fn restraint_of(traced: &Traced) -> u32 {
    let word = |space: u64| {
        let mut word = [0; 4];
        let at = kept(space + DEFAULT_BYTES as u64) + offset_of!(KeptPages, restraint) as u64;
        traced.memory.read(at, &mut word).map_or(0, |()| u32::from_le_bytes(word))
    };
    traced.sites.first().map_or(0, |site| word(site.space))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_opened_where_their_arguments_are_still_there() {
        let table: [(&str, &[u8], &[u64]); 5] = [
            // sub $0x58,%rsp; mov %rcx,%r10; mov %rsi,0x28(%rsp); ...
            (
                "glibc's prctl",
                &[
                    0x48, 0x83, 0xec, 0x58, 0x49, 0x89, 0xca, 0x48, 0x89, 0x74, 0x24, 0x28, 0x48, 0x89, 0x54,
                    0x24,
                ],
                &[0, 4, 7],
            ),
            // mov %rdi,%rax; mov %rsi,%rdi; ...
            (
                "glibc's syscall",
                &[
                    0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2,
                    0x4d,
                ],
                &[0, 3],
            ),
            // sub $0x58,%rsp; movslq %edi,%rdi; ...
            (
                "musl's prctl",
                &[
                    0x48, 0x83, 0xec, 0x58, 0x48, 0x63, 0xff, 0x49, 0x89, 0xca, 0x48, 0x89, 0x74, 0x24, 0x28,
                    0x48,
                ],
                &[0, 4],
            ),
            ("a breakpoint", &[0xcc, 0x83, 0xec, 0x58, 0x48, 0x63, 0xff, 0x49], &[]),
            ("a call", &[0xe8, 1, 2, 3, 4, 0x90, 0x90, 0x90, 0x90], &[]),
        ];
        for (name, code, expected) in table {
            let found = ways(0x7f00_0000_0000, code).unwrap_or_default();
            let mut places: Vec<u64> = found.iter().map(|way| way.patch - 0x7f00_0000_0000).collect();
            let guarded = places.len().min(expected.len());
            assert_eq!(places[..guarded], *expected, "{name}");
            places.dedup();
            assert!(places.iter().all(|place| expected.contains(place)), "{name}");
            assert!(found.iter().all(|way| way.patched(way.distance.candidates(0)[0]) == [0xe9]), "{name}");
        }
    }
}
