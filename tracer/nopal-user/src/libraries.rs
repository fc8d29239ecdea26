//! Libraries loaded later, without a blind window: the place the dynamic linker calls when it has mapped or unmapped
//! libraries (`_dl_debug_state`, an empty function) is opened like a probe site, with a stub that takes a ticket and waits
//! until the tracer has looked at the libraries once more, at most 200 ms; who went on before is counted. Constructors run
//! only afterwards, so that the first hit of a library is seen. Where the place does not fit, libraries are found by looking
//! at the mappings from time to time (`session/watch`). Following them is in `session/late_libraries`.

use super::process;
use super::sandbox::FORBIDDING_EVENT;
use super::stub::space::ObjectIdentity;
use super::tactic::{Refusal, Tactic, Way, ways_of_ret};
use super::wanted::{LazyFixed, SiteReport, WantedObject};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use nopal_capture::{Action, Predicate, Relation, Wanted};
use nopal_proc::MappedObject;
use nopal_sdt::operand::{Base, Memory as MemoryPlace, Operand, Place};
use nopal_sdt::probe::Site;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, ReadRef as _};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Stands for the dynamic linker's place; no event of a session may have it.
pub const LIBRARY_EVENT: u32 = u32::MAX - 1;
/// What notices call that place.
pub const LIBRARY_PROBE: &str = "ld.so:_dl_debug_state";
/// How long a thread that loads a library waits for the tracer at most.
pub const WAIT_MS: u32 = 200;
/// `r_state` is the fourth word of `r_debug`: version, list, call, state.
const STATE_OFFSET: i64 = 24;
const RT_CONSISTENT: i128 = 0;
const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// As many bytes of code as a probe site has.
const CODE_BYTES: usize = 16;

/// How libraries that a process loads later are noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Libraries {
    /// Before their first instruction runs.
    AtOnce(Tactic),
    /// At the next look, for this reason; what they do before that is missing.
    Polled(String),
}

impl fmt::Display for Libraries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Libraries::AtOnce(tactic) => {
                write!(f, "libraries loaded later are opened before they run ({tactic})")
            }
            Libraries::Polled(why) => {
                write!(f, "libraries loaded later are opened a moment after they begin to run: {why}")
            }
        }
    }
}

/// A dynamic linker's file, as far as it matters here. Addresses are those of link time.
#[derive(Debug, Clone)]
struct Loader {
    /// Of the `ret`.
    ret: u64,
    code: Vec<u8>,
    /// Of `r_debug`.
    state: u64,
    build_id: u64,
}

/// Why libraries are polled for although there is a dynamic linker.
type Unfit = &'static str;

fn read_loader(object: &MappedObject) -> std::result::Result<Loader, Unfit> {
    let image = object.open().map_err(|_| "the file of its dynamic linker cannot be read")?;
    let file = object::File::parse(image.bytes())
        .map_err(|_| "the file of its dynamic linker is not an ELF file")?;
    let symbol = |name: &str| {
        let found = file.dynamic_symbols().find(|s| s.name() == Ok(name) && s.address() != 0);
        found.map(|s| s.address()).ok_or("its dynamic linker does not tell debuggers what it does")
    };
    let (entry, state) = (symbol("_dl_debug_state")?, symbol("_r_debug")?);
    let bytes_at = |address: u64, len: usize| {
        file.segments().find_map(|segment| {
            let (first, size) = segment.file_range();
            let distance = address.checked_sub(segment.address())?;
            distance.checked_add(len as u64).filter(|end| *end <= size)?;
            image.bytes().read_bytes_at(first.checked_add(distance)?, len as u64).ok().map(<[u8]>::to_vec)
        })
    };
    let unfit = "the place its dynamic linker calls for debuggers is not an empty function";
    let first = bytes_at(entry, ENDBR64.len()).ok_or(unfit)?;
    let ret = if first == ENDBR64 { entry + ENDBR64.len() as u64 } else { entry };
    let code = bytes_at(ret, CODE_BYTES).filter(|code| code[0] == 0xc3).ok_or(unfit)?;
    let build_id = file.build_id().ok().flatten().and_then(|id| id.get(..8));
    let build_id = build_id.map_or(0, |b| u64::from_le_bytes(b.try_into().expect("eight bytes")));
    Ok(Loader { ret, code, state, build_id })
}

impl Loader {
    fn wanted(&self, object: &MappedObject, bias: u64, wait_ms: u32) -> WantedObject {
        let state = Operand {
            size_bytes: 4,
            is_signed: true,
            is_float: false,
            place: Place::Memory(MemoryPlace {
                base: Base::Symbol { name: "_r_debug".into(), address: Some(self.state) },
                index: None,
                displacement: STATE_OFFSET,
            }),
        };
        let site = Site {
            address: self.ret,
            file_offset: 0,
            semaphore: None,
            args: Vec::new(),
            code: self.code.clone(),
            until_restartable: None,
            edge: None,
        };
        let mapping = &object.mappings[0];
        WantedObject {
            path: object.path.clone(),
            bias,
            identity: ObjectIdentity {
                device: libc::makedev(mapping.device_major, mapping.device_minor),
                inode: mapping.inode,
                build_id: self.build_id,
                link_address: 0,
            },
            sites: vec![Wanted {
                probe: LIBRARY_PROBE.into(),
                site,
                event: LIBRARY_EVENT,
                // It is called before and after a change; there is something to be seen only after it.
                predicates: vec![Predicate {
                    operand: state,
                    relation: Relation::Equal,
                    constant: RT_CONSISTENT,
                }],
                action: Action::Wait { timeout_ms: wait_ms },
            }],
            own_file: 0..0,
            heap: None,
            all_sites: Arc::new(vec![self.ret]),
            fixed: Arc::new(LazyFixed::nothing()),
        }
    }
}

/// The dynamic linkers of a session's processes.
#[derive(Debug)]
pub(super) struct Loaders {
    /// How long a thread that loads a library waits for the tracer at most; 0: libraries are only polled for.
    pub wait_ms: u32,
    /// By device and inode.
    read: HashMap<(u64, u64), std::result::Result<Loader, Unfit>>,
}

impl Default for Loaders {
    fn default() -> Loaders {
        Loaders { wait_ms: WAIT_MS, read: HashMap::new() }
    }
}

impl Loaders {
    /// The dynamic linker's place in a process as something to be opened, or why there is none.
    pub(crate) fn wanted_in(
        &mut self,
        pid: i32,
        mapped: &[MappedObject],
    ) -> std::result::Result<WantedObject, Unfit> {
        if self.wait_ms == 0 {
            return Err("it was not asked for");
        }
        let base = process::auxv(pid).map_or(0, |auxv| auxv.loader_base);
        let object = mapped.iter().find(|o| base != 0 && o.mappings.iter().any(|m| m.contains(base)));
        let object = object.ok_or("it was not started by a dynamic linker")?;
        let mapping = &object.mappings[0];
        let key = (libc::makedev(mapping.device_major, mapping.device_minor), mapping.inode);
        let loader = self.read.entry(key).or_insert_with(|| read_loader(object));
        // A dynamic linker is linked at address 0, so that its base is what all its addresses are moved by.
        loader.as_ref().map(|loader| loader.wanted(object, base, self.wait_ms)).map_err(|unfit| *unfit)
    }
}

/// The ways to open a `ret` with these bytes from it on, best first.
pub(super) fn ways(address: u64, code: &[u8]) -> std::result::Result<Vec<Way>, Refusal> {
    ways_of_ret(address, code, has_padding(code.get(1..).unwrap_or_default()))
}

/// Whether the next four bytes are nothing but what fills the room up to the next function.
fn has_padding(code: &[u8]) -> bool {
    let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
    while decoder.position() < 4 {
        let instruction = decoder.decode();
        if instruction.is_invalid() || !matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
            return false;
        }
    }
    true
}

/// The reports of what the session itself wants.
pub(super) fn of_probes(reports: &[SiteReport]) -> Vec<SiteReport> {
    let is_own = |event| event == LIBRARY_EVENT || event == FORBIDDING_EVENT;
    reports.iter().filter(|r| !is_own(r.event)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ret_is_opened_and_its_padding_only_if_it_is_padding() {
        for (code, expected) in [
            // As Debian's glibc has it.
            (&[0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0][..], "Pun Jump"),
            (&[0xc3, 0x0f, 0x1f, 0x44, 0, 0, 0x53, 0x48][..], "Pun Jump"),
            (&[0xc3, 0x90, 0x90, 0x90, 0x90][..], "Pun Jump"),
            (&[0xc3, 0xcc, 0xcc, 0xcc, 0xcc, 0x55][..], "Pun Jump"),
            (&[0xc3, 0x90, 0x55, 0x48, 0x89, 0xe5][..], "Pun"),
            (&[0xc3, 0x41, 0x57, 0x41, 0x56][..], "Pun"),
            (&[0xc3, 0x90][..], "refused"),
            (&[0xcc, 0x66, 0x66, 0x2e, 0x0f][..], "refused"),
            (&[0xf3, 0xc3, 0x66, 0x90, 0x90][..], "refused"),
        ] {
            let text = match ways(0x7f00_0000_1000, code) {
                Ok(ways) => ways.iter().map(|w| format!("{:?}", w.tactic)).collect::<Vec<_>>().join(" "),
                Err(_) => "refused".into(),
            };
            assert_eq!(text, expected, "{code:02x?}");
        }
        let way = &ways(0x1000, &[0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]).unwrap()[0];
        assert_eq!(way.landings(0x0f2e_6666), (0x1005 + 0x0f2e_6666, vec![]));
    }
}
