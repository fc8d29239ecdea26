//! Points in user code: links of uprobes, one for each clause, file and process.

use super::code::{ArgLayout, CodeError, Kind, Which};
use super::load::Way;
use super::resolve::{Found, PointSite, objects_of};
use super::{Attached, ScriptDoor, ScriptError, State, sys};
use crate::kernel::bpf::LinkSite;
use crate::perf;
use crate::target::{has_ended, processes};
use nopal_program::PointKind;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The kernel's own number for an instruction it cannot step over; the C library has no name for it.
const NOT_SUPPORTED: i32 = 524;

/// What an instruction begins with that the kernel may not step over: `lock`, segments, and AVX, whose opcodes it takes for
/// those of others.
const ODD_BEGINNINGS: [u8; 8] = [0xf0, 0x26, 0x2e, 0x36, 0x3e, 0xc4, 0xc5, 0x62];

/// Uprobes of one process and clause.
#[derive(Debug)]
pub struct UprobeLink {
    pub pid: Option<u32>,
    fds: Vec<OwnedFd>,
}

/// A point that is attached: clause, point, process.
pub type PointInProcess = (usize, usize, Option<u32>);

/// Sites of one clause, file and kind, to be attached together.
pub(super) struct Group {
    pub kind: Kind,
    pub found: Found,
    /// The kernel may refuse some of them; by themselves, so that the others are attached at once.
    is_odd: bool,
    points: Vec<(usize, Vec<PointSite>)>,
}

impl ScriptDoor {
    /// Attaches the points in user code to one process. Call it again when the process has loaded more: only what is new
    /// is attached and returned.
    ///
    /// `Arg` counts the operands of a USDT probe in their order, and behind them the fields of its packed block; of a
    /// function the first six in registers, then those on the stack.
    pub fn attach_process(&mut self, pid: u32) -> Result<Vec<Attached>, ScriptError> {
        self.attach(Some(pid))
    }

    /// Attaches the points in user code to their files, in every process that maps them now or later.
    pub fn attach_files(&mut self) -> Result<Vec<Attached>, ScriptError> {
        self.attach(None)
    }

    fn attach(&mut self, pid: Option<u32>) -> Result<Vec<Attached>, ScriptError> {
        let objects = match pid.map(objects_of) {
            Some(Err(why)) => {
                return Err(ScriptError::Io { what: why, error: std::io::ErrorKind::NotFound.into() });
            }
            Some(Ok(objects)) => objects,
            None => Vec::new(),
        };
        let mut states = Vec::new();
        for clause in 0..self.program.clauses.len() {
            let mut groups: Vec<Group> = Vec::new();
            for point in 0..self.program.clauses[clause].points.len() {
                let (path, kind) = match &self.program.clauses[clause].points[point].kind {
                    PointKind::Usdt { path, .. } | PointKind::Uprobe { path, .. } => (path, Kind::Uprobe),
                    PointKind::Uretprobe { path, .. } => (path, Kind::Uretprobe),
                    _ => continue,
                };
                let key = (clause, point, pid);
                if self.attached.contains(&key) && !self.waiting.contains(&key) {
                    continue;
                }
                // Only who has made it, or was forked by its maker, can have it.
                let is_in_memory = path.starts_with("/memfd:");
                if is_in_memory
                    && pid.is_some()
                    && !objects.iter().any(|object| object.path == Path::new(path))
                {
                    continue;
                }
                let found = match pid {
                    Some(pid) => self.binaries.in_process(pid, &objects, path),
                    None => self.binaries.by_path(path),
                };
                let kind_of_point = &self.program.clauses[clause].points[point].kind;
                let sites = found.and_then(|found| Ok((found.binary.sites(kind_of_point)?, found)));
                match sites {
                    Err(_) if pid.is_some_and(has_ended) => return Ok(states),
                    Err(why) => {
                        // Told once, not each time the process loads something else.
                        if self.refused.insert(key, why.clone()).as_ref() != Some(&why) {
                            let state = State::Refused { why };
                            states.push(Attached { clause, point, pid, is_new: false, state });
                        }
                    }
                    Ok((sites, found)) if self.waiting.contains(&key) => {
                        let state = verify(&found, &sites, pid);
                        if !matches!(state, State::Waiting { .. }) {
                            self.waiting.remove(&key);
                            // The kernel armed them when the code was mapped.
                            states.push(Attached { clause, point, pid, is_new: false, state });
                        }
                    }
                    Ok((sites, found)) => {
                        let is_odd = sites.iter().any(|site| ODD_BEGINNINGS.contains(&site.first_byte));
                        let same = |group: &&mut Group| {
                            (group.kind, group.is_odd) == (kind, is_odd) && group.found.path == found.path
                        };
                        match groups.iter_mut().find(same) {
                            Some(group) => group.points.push((point, sites)),
                            None => groups.push(Group { kind, found, is_odd, points: vec![(point, sites)] }),
                        }
                    }
                }
            }
            for group in groups {
                self.attach_group(clause, pid, group, &mut states)?;
            }
        }
        Ok(states)
    }

    fn attach_group(
        &mut self,
        clause: usize,
        pid: Option<u32>,
        mut group: Group,
        states: &mut Vec<Attached>,
    ) -> Result<(), ScriptError> {
        // A point whose arguments cannot be read is refused by itself; the others are attached.
        let used = used_args(&self.program.clauses[clause].code);
        group.points.retain(|(point, sites)| {
            let trouble = sites.iter().find_map(|site| args_trouble(&site.layout, &used));
            match trouble {
                Some(error) => {
                    let why = error.to_string();
                    if self.refused.insert((clause, *point, pid), why.clone()).as_ref() != Some(&why) {
                        let state = State::Refused { why };
                        states.push(Attached { clause, point: *point, pid, is_new: false, state });
                    }
                    false
                }
                None => true,
            }
        });
        if group.points.is_empty() {
            return Ok(());
        }
        let mut layouts: Vec<ArgLayout> = Vec::new();
        let mut links = Vec::new();
        for (point, sites) in &group.points {
            for site in sites {
                let layout = only_used(&site.layout, &used);
                let index = layouts.iter().position(|known| *known == layout).unwrap_or_else(|| {
                    layouts.push(layout);
                    layouts.len() - 1
                });
                links.push(LinkSite {
                    file_offset: site.file_offset,
                    ref_ctr_offset: site.ref_ctr_offset,
                    cookie: index as u64 | (*point as u64) << 32,
                });
            }
        }
        let result = self.link(clause, &group, &layouts, &links, pid);
        if matches!(result, Err(ScriptError::Io { .. })) && pid.is_some_and(has_ended) {
            return Ok(());
        }
        if matches!(result, Err(ScriptError::Io { .. })) && group.points.len() > 1 {
            // One site the kernel does not take must not keep the others away. In halves, as each group that is attached
            // takes its time, and most of them are whole.
            let points = group.points.split_off(group.points.len() / 2);
            let half = Group { found: group.found.clone(), points, ..group };
            self.attach_group(clause, pid, group, states)?;
            return self.attach_group(clause, pid, half, states);
        }
        for (point, sites) in &group.points {
            let state = match &result {
                Ok(_) => {
                    self.attached.insert((clause, *point, pid));
                    let state = verify(&group.found, sites, pid);
                    if matches!(state, State::Waiting { .. }) {
                        self.waiting.insert((clause, *point, pid));
                    }
                    state
                }
                Err(ScriptError::Io { what, error }) => {
                    let why = match error.raw_os_error() {
                        Some(NOT_SUPPORTED) => {
                            format!("{what}: the kernel takes no uprobe on this instruction")
                        }
                        _ => format!("{what}: {error}"),
                    };
                    if self.refused.insert((clause, *point, pid), why.clone()).as_ref() == Some(&why) {
                        continue;
                    }
                    State::Refused { why }
                }
                Err(_) => continue,
            };
            let is_new = matches!(result, Ok(true));
            states.push(Attached { clause, point: *point, pid, is_new, state });
        }
        match result {
            Ok(_) | Err(ScriptError::Io { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Events that children inherit where they are to be followed, else one `uprobe_multi` link, or a perf event for each
    /// site where the kernel has none. False if the process had them from its parent.
    fn link(
        &mut self,
        clause: usize,
        group: &Group,
        layouts: &[ArgLayout],
        sites: &[LinkSite],
        pid: Option<u32>,
    ) -> Result<bool, ScriptError> {
        if let Some(pid) = pid
            && let Some(is_new) = self.join(clause, group, layouts, sites, pid)
        {
            return Ok(is_new);
        }
        let path = &group.found.path;
        let failed = |error| ScriptError::io(format!("putting uprobes on {}", path.display()), error);
        let c_path = sys::c_path(path).map_err(failed)?;
        let is_return = group.kind == Kind::Uretprobe;
        if self.has_uprobe_multi {
            let program = self.load_as(clause, group.kind, Which::Cookie, layouts, Way::Multi);
            let linked = program.and_then(|program| {
                let fd = &self.loaded[program].fd;
                sys::link_uprobes(fd, &c_path, sites, pid.unwrap_or(0), is_return).map_err(failed)
            });
            match linked {
                Ok(fd) => {
                    self.links.push(UprobeLink { pid, fds: vec![fd] });
                    return Ok(true);
                }
                Err(error) if !is_multi_unknown(&error) => return Err(error),
                // Tried again below; a program that is refused for its own sake is refused there, too.
                Err(_) => {}
            }
        }
        let program = self.load_as(clause, group.kind, Which::Cookie, layouts, Way::Event)?;
        let mut fds = Vec::new();
        for site in sites {
            let event = perf_uprobe(&c_path, site, pid, is_return).map_err(failed)?;
            let link = sys::link_perf_event(&self.loaded[program].fd, &event, site.cookie).map_err(failed)?;
            fds.push(link);
            fds.push(event);
        }
        self.links.push(UprobeLink { pid, fds });
        Ok(true)
    }

    /// Detaches everything at once; maps and what was emitted stay.
    pub fn detach(&mut self) {
        self.attached.clear();
        self.waiting.clear();
        self.refused.clear();
        self.events.clear();
        self.kinship.end();
        let fds: Vec<OwnedFd> = self.links.drain(..).flat_map(|link| link.fds).collect();
        close_all(fds);
    }
}

impl Drop for ScriptDoor {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Closing one uprobe waits for every CPU to have passed; many at once wait together.
fn close_all(mut fds: Vec<OwnedFd>) {
    const THREADS: usize = 16;
    if fds.len() <= 1 {
        return;
    }
    let share = fds.len().div_ceil(THREADS);
    std::thread::scope(|scope| {
        while !fds.is_empty() {
            let some = fds.split_off(fds.len().saturating_sub(share));
            scope.spawn(move || drop(some));
        }
    });
}

/// The kernel has no `uprobe_multi`, as opposed to refusing this one.
fn is_multi_unknown(error: &ScriptError) -> bool {
    let code = match error {
        ScriptError::Io { error, .. } | ScriptError::Refused { error, .. } => error.raw_os_error(),
        _ => None,
    };
    matches!(code, Some(libc::EINVAL | libc::EOPNOTSUPP))
}

/// A uprobe as a perf event; it counts in all threads of the process, since they share their memory.
fn perf_uprobe(
    path: &std::ffi::CStr,
    site: &LinkSite,
    pid: Option<u32>,
    is_return: bool,
) -> std::io::Result<OwnedFd> {
    let kind = std::fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let event_type =
        kind.trim().parse().map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidData))?;
    let attr = perf::PerfAttr {
        event_type,
        config: u64::from(is_return) | site.ref_ctr_offset << 32,
        config1: path.as_ptr() as u64,
        config2: site.file_offset,
        sample_period: 1,
        ..perf::PerfAttr::default()
    };
    match pid {
        Some(pid) => perf::open(&attr, pid as i32, -1),
        None => perf::open(&attr, -1, 0),
    }
}

/// The arguments a clause reads.
fn used_args(code: &nopal_program::Code) -> Vec<u8> {
    use nopal_program::op::Op;
    let index = |op: &Op| match op {
        Op::Arg { index, .. } | Op::ArgString { index, .. } | Op::ArgBytes { index, .. } => Some(*index),
        _ => None,
    };
    let mut used: Vec<u8> = code.ops.iter().filter_map(index).collect();
    used.sort_unstable();
    used.dedup();
    used
}

fn args_trouble(layout: &ArgLayout, used: &[u8]) -> Option<CodeError> {
    used.iter().find_map(|index| match layout.args.get(usize::from(*index)) {
        None => Some(CodeError::NoArg { index: *index, n_args: layout.args.len() }),
        Some((source, _)) => source.trouble().map(|reason| CodeError::Arg { index: *index, reason }),
    })
}

/// What is not read does not tell layouts apart.
fn only_used(layout: &ArgLayout, used: &[u8]) -> ArgLayout {
    let nothing = || (super::code::Source::Register(0), None);
    let n = used.last().map_or(0, |last| usize::from(*last) + 1);
    let args = (0..n).map(|index| match layout.args.get(index) {
        Some(arg) if used.contains(&(index as u8)) => arg.clone(),
        _ => nothing(),
    });
    ArgLayout { args: args.collect() }
}

/// Looks whether the kernel's breakpoints are in the memory of a process that maps the code.
fn verify(found: &Found, sites: &[PointSite], pid: Option<u32>) -> State {
    let n_sites = sites.len();
    let (pid, mapped) = match (pid, &found.mapped) {
        (Some(pid), Some(mapped)) => (pid, mapped.as_ref().clone()),
        (Some(_), None) => return State::Waiting { n_sites },
        (None, _) => {
            let first = processes_mapping(&found.path).into_iter().find_map(|pid| {
                let objects = crate::target::mapped_objects(pid).ok()?;
                let id = std::fs::metadata(&found.path).ok()?;
                use std::os::unix::fs::MetadataExt;
                let same =
                    |o: &crate::target::MappedObject| o.mappings.first().is_some_and(|m| m.inode == id.ino());
                Some((pid, objects.into_iter().find(same)?))
            });
            match first {
                Some(first) => first,
                None => return State::Waiting { n_sites },
            }
        }
    };
    let Ok(memory) = File::open(format!("/proc/{pid}/mem")) else { return State::Armed { n_sites } };
    let biases = mapped.load_biases(found.binary.object());
    let n_missing = sites
        .iter()
        .filter(|site| {
            biases.iter().any(|bias| {
                let mut byte = [0; 1];
                let is_read = memory.read_exact_at(&mut byte, bias.wrapping_add(site.address)).is_ok();
                // The kernel's breakpoint, or its call where it has made one of a long nop.
                is_read && !matches!(byte[0], 0xcc | 0xe8) && byte[0] == site.first_byte
            })
        })
        .count();
    match n_missing {
        0 => State::Armed { n_sites },
        _ => State::Refused {
            why: format!(
                "the kernel took the uprobes, but {n_missing} of {n_sites} are not in the memory of process {pid}: its code \
                 there is no longer the file's"
            ),
        },
    }
}

/// The processes that map a file now: all of them are slowed down by uprobes on the file.
pub fn processes_mapping(path: &Path) -> Vec<u32> {
    use std::os::unix::fs::MetadataExt;
    let Ok(about) = std::fs::metadata(path) else { return Vec::new() };
    let name: Option<PathBuf> = std::fs::canonicalize(path).ok();
    let maps_it = |pid: u32| {
        crate::target::maps(pid).is_ok_and(|all| {
            all.iter().any(|mapping| {
                mapping.is_executable
                    && mapping.inode == about.ino()
                    && name.as_ref().is_none_or(|name| name.file_name() == mapping.path.file_name())
            })
        })
    };
    processes().into_iter().map(|process| process.pid).filter(|pid| maps_it(*pid)).collect()
}
