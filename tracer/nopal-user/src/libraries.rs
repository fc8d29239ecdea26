//! Libraries loaded later, without a blind window: the place the dynamic linker calls when it has mapped or unmapped
//! libraries (`_dl_debug_state`, an empty function) is opened like a probe site, with a stub that takes a ticket and waits
//! until the tracer has looked at the libraries once more, at most 200 ms; who went on before is counted. Constructors run
//! only afterwards, so that the first hit of a library is seen. Where the place does not fit, libraries are found by looking
//! at the mappings from time to time (`watch`).

use super::error::{Error, Result};
use super::ledger::Ledger;
use super::maps::Maps;
use super::neighbourhood::Neighbourhood;
use super::patch::Found;
use super::process;
use super::sandbox::FORBIDDING_EVENT;
use super::session::{
    Core, LazyFixed, OpenSite, ProcessReport, Session, SiteReport, Traced, WantedObject, code_mappings,
    in_own_thread,
};
use super::stopped_thread::Lock;
use super::stub::space::ObjectIdentity;
use super::tactic::{Refusal, Tactic, Way, ways_of_ret};
use super::watch::{Health, Notice};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use nopal_abi::stub_space::JournalKind;
use nopal_capture::{Action, Predicate, Relation, Wanted};
use nopal_proc::MappedObject;
use nopal_sdt::operand::{Base, Memory as MemoryPlace, Operand, Place};
use nopal_sdt::probe::Site;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, ReadRef as _};
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
pub(super) struct Loader {
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
    let file =
        object::File::parse(image.bytes()).map_err(|_| "the file of its dynamic linker is no ELF file")?;
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
            all_sites: Arc::new(vec![self.ret]),
            fixed: Arc::new(LazyFixed::nothing()),
        }
    }
}

/// The dynamic linker's place in a process as something to be opened, or why there is none.
pub(super) fn loader_in(
    core: &mut Core,
    pid: i32,
    mapped: &[MappedObject],
) -> std::result::Result<WantedObject, Unfit> {
    if core.library_wait_ms == 0 {
        return Err("it was not asked for");
    }
    let base = process::auxv(pid).map_or(0, |auxv| auxv.loader_base);
    let object = mapped.iter().find(|o| base != 0 && o.mappings.iter().any(|m| m.contains(base)));
    let object = object.ok_or("it was not started by a dynamic linker")?;
    let mapping = &object.mappings[0];
    let key = (libc::makedev(mapping.device_major, mapping.device_minor), mapping.inode);
    let wait_ms = core.library_wait_ms;
    let loader = core.loaders.entry(key).or_insert_with(|| read_loader(object));
    // A dynamic linker is linked at address 0, so that its base is what all its addresses are moved by.
    loader.as_ref().map(|loader| loader.wanted(object, base, wait_ms)).map_err(|unfit| *unfit)
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

impl Session {
    /// For processes entered from now on: how long a thread that loads a library waits at most; 0: libraries are
    /// only polled for.
    pub fn set_library_wait(&mut self, wait_ms: u32) {
        self.core.library_wait_ms = wait_ms;
    }

    /// How libraries that this process loads later are noticed.
    pub fn libraries(&mut self, pid: i32) -> Libraries {
        let traced = self.traced.iter().find(|t| t.pid == pid);
        let of_loader = |s: &&OpenSite| s.probe == LIBRARY_PROBE;
        if let Some((traced, site)) = traced.and_then(|t| Some((t, t.sites.iter().find(of_loader)?))) {
            return match traced.health.get(&site.address).copied().unwrap_or_default() {
                Health::Well => Libraries::AtOnce(site.tactic),
                Health::Odd | Health::TakenOver | Health::GivenUp => Libraries::Polled(
                    "another tool has changed the place that its dynamic linker calls".into(),
                ),
            };
        }
        let report = traced.and_then(|t| t.reports.iter().find(|r| r.event == LIBRARY_EVENT));
        if let Some(Err(refusal)) = report.map(|r| &r.outcome) {
            return Libraries::Polled(refusal.to_string());
        }
        let mapped = nopal_proc::mapped_objects(pid as u32).unwrap_or_default();
        Libraries::Polled(match loader_in(&mut self.core, pid, &mapped) {
            Err(unfit) => unfit.into(),
            Ok(_) => "it has no wanted probes yet".into(),
        })
    }

    /// Whether a thread has loaded or unloaded a library and waits for us.
    pub fn has_library_news(&self) -> bool {
        self.rings().is_waited_for()
    }

    /// How many threads went on, since this was last asked, before we had looked at what they had loaded.
    pub fn take_impatient(&mut self) -> u64 {
        let n_now = self.rings().impatient();
        let n_before = std::mem::replace(&mut self.n_impatient, n_now);
        self.n_impatient.wrapping_sub(n_before)
    }

    /// Opens what is wanted of the libraries that were loaded. The threads that loaded them wait until
    /// [`Session::release`].
    pub fn follow_libraries(&mut self) -> Vec<Notice> {
        // Before anything is looked at: whoever comes from now on waits for the next look.
        self.tickets = self.rings().tickets();
        let mut again = Vec::new();
        for traced in &mut self.traced {
            let now = code_mappings(traced.pid);
            // Ended, or another program by now, whose memory is not what we opened: for the next look.
            let first = traced.seen.first().map_or(0, |m| m.0);
            let is_gone = matches!(traced.memory.read(first, &mut [0]), Err(Error::Gone { .. }));
            if now.is_empty() || is_gone {
                continue;
            }
            if now != traced.seen {
                // An error is a process that is just ending.
                let _ = forget_unloaded(&self.core, traced);
            }
            // A look from time to time may have come while the library was mapped only in part, or twice.
            let memory = &traced.memory;
            let is_lost = |s: &OpenSite| {
                s.is_reset(memory) || s.patch.found(memory).is_ok_and(|found| found == Found::Original)
            };
            if now.iter().any(|m| !traced.seen.contains(m)) || traced.sites.iter().any(is_lost) {
                again.push(traced.pid);
            }
            traced.seen = now;
            traced.is_unannounced = false;
        }
        let mut notices = Vec::new();
        if !self.is_only {
            // A child may load a library before anybody has seen it.
            let fresh = self.attach_descendants();
            notices.extend(fresh.into_iter().filter(ProcessReport::says_something).map(Notice::Opened));
        }
        for pid in again {
            match self.attach_more(pid) {
                Ok(report) => notices.push(Notice::Opened(report)),
                Err(Error::Gone { .. } | Error::NoSuchProcess { .. }) => {}
                Err(error) => {
                    let report = ProcessReport::failed(pid, error);
                    notices.push(Notice::Opened(report));
                }
            }
        }
        notices
    }

    /// Lets the threads go on that wait because they have loaded a library.
    pub fn release(&self) {
        self.rings().take_turns(&self.tickets);
    }
}

/// The sites of a library that is no longer there are no longer ours, and its semaphores went with it.
fn forget_unloaded(core: &Core, traced: &mut Traced) -> Result<()> {
    let maps = Maps::read(traced.pid)?;
    let is_there =
        |address: u64| maps.find(address).is_some_and(|r| r.is_executable && r.inode != 0 && !r.is_shared);
    let (there, gone) = std::mem::take(&mut traced.sites).into_iter().partition(|s| is_there(s.address));
    traced.sites = there;
    let gone: Vec<OpenSite> = gone;
    traced.reports.retain(|r| is_there(r.address));
    traced.health.retain(|address, _| is_there(*address));
    if !gone.iter().any(|s| s.semaphore.is_some()) {
        return Ok(());
    }
    let (pid, memory, generation) = (traced.pid, &traced.memory, core.generation());
    let neighbourhoods = &core.neighbourhoods;
    in_own_thread(|| {
        let _lock = Lock::take(pid)?;
        // Others at the same address are those of relatives that have become somebody else.
        let is_here = |n: &&Neighbourhood| maps.find(n.address()).is_some_and(|r| r.inode == n.inode);
        for n in neighbourhoods.iter().filter(is_here) {
            let Some(session) = n.session(generation) else { continue };
            for (index, entry, _) in n.space.entries() {
                let is_gone = |s: &OpenSite| s.space == n.address() && s.semaphore == Some(entry.address);
                let is_ours = entry.kind == JournalKind::Semaphore && entry.session == session;
                if is_ours && gone.iter().any(is_gone) {
                    Ledger::new(memory, n.ledger()).forget(index)?;
                }
            }
        }
        Ok(())
    })
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
