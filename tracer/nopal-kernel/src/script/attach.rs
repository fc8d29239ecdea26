//! Points in user code: from clauses to sites, and to the programs on them.

use super::code::{ArgLayout, CodeError, Kind, Which};
use super::load::Attachment;
use super::resolve::{Found, PointSite, PointSites, unreadable};
use super::{Attached, ScriptDoor, ScriptError, State};
use crate::bpf::{self, LinkSite, MapKind};
use crate::landed::{self, Gone};
use crate::refusal::{self, Refusal};
use crate::uprobes::{self, AttachError, PAGE_BYTES, SiteSet, Way};
use nopal_proc::{FileId, MappedObject, changeable_objects, has_ended, mapped_objects, processes};
use nopal_program::{LaterProbes, PointKind};
use std::collections::HashSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A point that is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PointInProcess {
    clause: usize,
    point: usize,
    pid: Option<u32>,
    /// Of a point for files that are mapped later: which.
    file: Option<FileId>,
}

impl PointInProcess {
    /// What is in the kernel itself.
    pub(super) fn of_event(clause: usize, point: usize) -> PointInProcess {
        PointInProcess { clause, point, pid: None, file: None }
    }

    /// What belongs to a process and to no file.
    pub(super) fn of_process(clause: usize, point: usize, pid: Option<u32>) -> PointInProcess {
        PointInProcess { clause, point, pid, file: None }
    }
}

/// Sites of one clause, file and kind, to be attached together.
pub(super) struct Group {
    pub(super) clause: usize,
    pub(super) kind: Kind,
    pub(super) found: Found,
    /// See [`PointInProcess`].
    file: Option<FileId>,
    /// The kernel may refuse some of them; by themselves, so that the others are attached at once.
    pub(super) is_odd: bool,
    /// The arguments that the clause reads.
    used: Vec<u8>,
    pub(super) points: Vec<(usize, Vec<PointSite>)>,
}

/// Sites that are attached, for every process that has them.
#[derive(Debug)]
pub(super) struct ClauseSet {
    clause: usize,
    kind: Kind,
    file: FileId,
    pub(super) layouts: Vec<ArgLayout>,
    pub(super) set: SiteSet,
}

impl ScriptDoor {
    /// Attaches the points in user code to one process. Call it again when the process has loaded more: only what is new
    /// is attached and returned.
    ///
    /// `Arg` counts the operands of a USDT probe in their order, and behind them the fields of its packed block; of a
    /// function the first six in registers, then those on the stack.
    pub fn attach_process(&mut self, pid: u32) -> Result<Vec<Attached>, ScriptError> {
        let objects = changeable_objects(pid).map_err(ScriptError::Target)?;
        self.attach_with(pid, objects, Vec::new())
    }

    /// The same with what it maps, as the caller has seen it, and with files that it had mapped and may have unmapped again.
    pub fn attach_with(
        &mut self,
        pid: u32,
        objects: Vec<MappedObject>,
        gone: Vec<MappedObject>,
    ) -> Result<Vec<Attached>, ScriptError> {
        let objects: Vec<_> = objects.into_iter().map(Arc::new).collect();
        let is_gone = |object: &MappedObject| objects.iter().all(|known| known.file() != object.file());
        let mut gone: Vec<_> = gone.into_iter().filter(is_gone).map(Arc::new).collect();
        // A file that came and went several times since the last look is one file.
        let mut seen = HashSet::new();
        gone.retain(|object| seen.insert(object.file()));
        self.attach(Some(pid), &objects, &gone)
    }

    /// Attaches the points in user code to their files, in every process that maps them now or later.
    pub fn attach_files(&mut self) -> Result<Vec<Attached>, ScriptError> {
        self.attach(None, &[], &[])
    }

    fn attach(
        &mut self,
        pid: Option<u32>,
        objects: &[Arc<MappedObject>],
        gone: &[Arc<MappedObject>],
    ) -> Result<Vec<Attached>, ScriptError> {
        let mut states = Vec::new();
        let mut all = Vec::new();
        // The kernel runs last first what was put on a site, so that clauses run in the order of the script.
        for clause in (0..self.program.clauses.len()).rev() {
            let mut groups: Vec<Group> = Vec::new();
            for point in (0..self.program.clauses[clause].points.len()).rev() {
                let key = PointInProcess { clause, point, pid, file: None };
                if let PointKind::UsdtLater(later) = &self.program.clauses[clause].points[point].kind {
                    let later = later.clone();
                    let both = objects.iter().map(|object| (object, true));
                    for (object, is_mapped) in both.chain(gone.iter().map(|object| (object, false))) {
                        self.find_later(key, &later, object, is_mapped, &mut groups, &mut states);
                    }
                } else if !self.find_point(key, objects, &mut groups, &mut states) {
                    return Ok(states);
                }
            }
            for group in groups {
                all.extend(self.readable(pid, group, &mut states));
            }
        }
        for groups in self.bunches_of(pid, all) {
            if !self.attach_together(pid, &groups, &mut states) {
                for group in groups {
                    self.attach_group(pid, group, &mut states)?;
                }
            }
        }
        self.attach_watchpoints(pid, &mut states)?;
        states.sort_by_key(|state| (state.clause, state.point));
        Ok(states)
    }

    /// Adds the sites that a point for files mapped later has in one file.
    fn find_later(
        &mut self,
        key: PointInProcess,
        later: &LaterProbes,
        object: &Arc<MappedObject>,
        is_mapped: bool,
        groups: &mut Vec<Group>,
        states: &mut Vec<Attached>,
    ) {
        let Some(file) = object.file() else { return };
        let key = PointInProcess { file: Some(file), ..key };
        if self.not_meant.contains(&(key.clause, key.point, file)) || self.is_done(&key) {
            return;
        }
        let opened = object.open().and_then(|image| Ok((image, object.reachable_path()?)));
        let (image, path) = match opened {
            Ok(opened) => opened,
            // What it maps at its end may be anything; what it had loaded before has the probes that are meant.
            Err(_) if is_mapped && key.pid.is_some_and(has_ended) => return,
            Err(error) => return self.refuse(key, unreadable(error), states),
        };
        // Code that is no ELF file has no probes.
        let code = self.files.read(image).ok();
        let sites = code.as_ref().map(|code| code.later_sites(later, object)).unwrap_or_default();
        match code.filter(|_| !sites.is_empty()) {
            Some(code) => {
                let mapped = Some(Arc::clone(object)).filter(|_| is_mapped);
                self.add_sites(key, sites, Found { path, code, mapped }, groups, states);
            }
            None => {
                self.not_meant.insert((key.clause, key.point, file));
            }
        }
    }

    /// Whether points for files mapped later mean probes of a file, as far as it can be read, and its process has them not
    /// yet.
    pub fn means_later(&mut self, object: &MappedObject) -> bool {
        let Some(file) = object.file() else { return false };
        for clause in 0..self.program.clauses.len() {
            for point in 0..self.program.clauses[clause].points.len() {
                let PointKind::UsdtLater(later) = &self.program.clauses[clause].points[point].kind else {
                    continue;
                };
                let key = PointInProcess { clause, point, pid: Some(object.pid), file: Some(file) };
                if self.attached.contains(&key) || self.not_meant.contains(&(clause, point, file)) {
                    continue;
                }
                let Ok(image) = object.open() else { return true };
                if self.files.read(image).is_ok_and(|code| !code.later_sites(later, object).is_empty()) {
                    return true;
                }
                self.not_meant.insert((clause, point, file));
            }
        }
        false
    }

    /// Whether nothing is left to do for a point.
    fn is_done(&self, key: &PointInProcess) -> bool {
        self.attached.contains(key) && !self.waiting.contains(key)
    }

    /// Adds the sites of a point to the groups; false if the process has ended meanwhile.
    fn find_point(
        &mut self,
        key: PointInProcess,
        objects: &[Arc<MappedObject>],
        groups: &mut Vec<Group>,
        states: &mut Vec<Attached>,
    ) -> bool {
        let PointInProcess { clause, point, pid, .. } = key;
        let wanted = &self.program.clauses[clause].points[point].kind;
        let (PointKind::Usdt { path, .. }
        | PointKind::Uprobe { path, .. }
        | PointKind::Uretprobe { path, .. }) = wanted
        else {
            return true;
        };
        if self.is_done(&key) {
            return true;
        }
        // Only who has made it, or was forked by its maker, can have it.
        let is_in_memory = path.starts_with("/memfd:");
        if is_in_memory && pid.is_some() && !objects.iter().any(|object| object.path == Path::new(path)) {
            return true;
        }
        let found = match pid {
            Some(pid) => self.files.in_process(pid, objects, path),
            None => self.files.by_path(path),
        };
        match found.and_then(|found| Ok((found.code.sites(wanted)?, found))) {
            Err(_) if pid.is_some_and(has_ended) => return false,
            Err(why) => self.refuse(key, why, states),
            Ok((sites, found)) => self.add_sites(key, sites, found, groups, states),
        }
        true
    }

    /// Puts the sites of a point among those to be attached, unless they are already.
    fn add_sites(
        &mut self,
        key: PointInProcess,
        sites: PointSites,
        found: Found,
        groups: &mut Vec<Group>,
        states: &mut Vec<Attached>,
    ) {
        let PointInProcess { clause, point, pid, file } = key;
        if let Some(why) = sites.refusal() {
            self.refuse(key, why, states);
        }
        let mut sites = sites.open;
        if let (Some(pid), Some(mapped)) = (pid, &found.mapped) {
            let places: Vec<u64> = sites.iter().map(|site| site.address).collect();
            let mut of_debugger = landed::of_debugger(mapped, &found.code, &places).into_iter();
            let n_all = sites.len();
            sites.retain(|_| !of_debugger.next().unwrap_or(false));
            if sites.len() < n_all {
                let refused = vec![Refusal::Debugger { pid }; n_all - sites.len()];
                let checked = PointSites { open: std::mem::take(&mut sites), refused };
                if let Some(why) = checked.refusal() {
                    self.refuse(key, why, states);
                }
                sites = checked.open;
            }
        }
        if sites.is_empty() {
            return;
        }
        if self.waiting.contains(&key) {
            let state = verify(&found, &sites, pid);
            if !matches!(state, State::Waiting { .. }) {
                self.waiting.remove(&key);
                // The kernel armed them when the code was mapped.
                states.push(Attached { clause, point, pid, is_new: false, state });
            }
            return;
        }
        let kind = match self.program.clauses[clause].points[point].kind {
            PointKind::Uretprobe { .. } => Kind::Uretprobe,
            _ => Kind::Uprobe,
        };
        let is_odd = sites.iter().any(|site| refusal::is_odd(site.first_byte));
        let same = |group: &&mut Group| {
            (group.kind, group.is_odd, group.file) == (kind, is_odd, file) && group.found.path == found.path
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.points.push((point, sites)),
            None => {
                let used = used_args(&self.program.clauses[clause].code);
                groups.push(Group { clause, kind, found, file, is_odd, used, points: vec![(point, sites)] });
            }
        }
    }

    /// Told once, not each time the process loads something else.
    fn refuse(&mut self, key: PointInProcess, why: Refusal, states: &mut Vec<Attached>) {
        if self.refused.insert(key, why.clone()).as_ref() != Some(&why) {
            let PointInProcess { clause, point, pid, .. } = key;
            states.push(Attached { clause, point, pid, is_new: false, state: State::Refused { why } });
        }
    }

    /// A group without the sites whose arguments cannot be read; those are refused by themselves.
    fn readable(&mut self, pid: Option<u32>, mut group: Group, states: &mut Vec<Attached>) -> Option<Group> {
        let (clause, file) = (group.clause, group.file);
        for (point, sites) in &mut group.points {
            let mut refused = Vec::new();
            sites.retain(|site| match args_trouble(&site.layout, &group.used) {
                None => true,
                Some(error) => {
                    refused.push(Refusal::Argument(error));
                    false
                }
            });
            let checked = PointSites { open: std::mem::take(sites), refused };
            if let Some(why) = checked.refusal() {
                self.refuse(PointInProcess { clause, point: *point, pid, file }, why, states);
            }
            *sites = checked.open;
        }
        group.points.retain(|(_, sites)| !sites.is_empty());
        (!group.points.is_empty()).then_some(group)
    }

    fn attach_group(
        &mut self,
        pid: Option<u32>,
        mut group: Group,
        states: &mut Vec<Attached>,
    ) -> Result<(), ScriptError> {
        let (clause, file) = (group.clause, group.file);
        let key_of = |point| PointInProcess { clause, point, pid, file };
        let error = match self.link(&group, pid) {
            Ok(is_new) => {
                self.note_attached(pid, &group, is_new, states);
                return Ok(());
            }
            Err(AttachError::Program(error)) => return Err(error),
            Err(AttachError::Kernel(error)) => error,
        };
        let path = &group.found.path;
        if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)) {
            return Err(ScriptError::io(format!("putting uprobes on {}", path.display()), error));
        }
        if pid.is_some_and(has_ended) {
            return Ok(());
        }
        // One site the kernel does not take must not keep the others away. In halves, as each group that is attached
        // takes its time, and most of them are whole.
        let points = match &mut group.points[..] {
            [(point, sites)] if sites.len() < 2 => {
                self.refuse(key_of(*point), Refusal::of_kernel(path.clone(), &error), states);
                return Ok(());
            }
            [(point, sites)] => vec![(*point, sites.split_off(sites.len() / 2))],
            points => {
                let middle = points.len() / 2;
                group.points.split_off(middle)
            }
        };
        let half = Group { found: group.found.clone(), used: group.used.clone(), points, ..group };
        self.attach_group(pid, group, states)?;
        self.attach_group(pid, half, states)
    }

    /// Says what became of the points of a group that the kernel has taken.
    pub(super) fn note_attached(
        &mut self,
        pid: Option<u32>,
        group: &Group,
        is_new: bool,
        states: &mut Vec<Attached>,
    ) {
        let (clause, file) = (group.clause, group.file);
        for (point, sites) in &group.points {
            let key = PointInProcess { clause, point: *point, pid, file };
            self.attached.insert(key);
            let state = verify(&group.found, sites, pid);
            if let (Some(_), Some(mapped)) = (pid, &group.found.mapped) {
                let name = &self.program.clauses[clause].points[*point].name;
                let sites = sites.iter().map(|site| (&name[..], site.address));
                self.landed.note(mapped, &group.found.code, sites);
            }
            if matches!(state, State::Waiting { .. }) {
                self.waiting.insert(key);
            }
            states.push(Attached { clause, point: *point, pid, is_new, state });
        }
    }

    /// Puts the program of a clause on its sites; false if the process had them from its parent.
    fn link(&mut self, group: &Group, pid: Option<u32>) -> Result<bool, AttachError<ScriptError>> {
        let index = self.set_of(group);
        let (clause, kind) = (group.clause, group.kind);
        let (mut sets, mut uprobes) = (std::mem::take(&mut self.sets), std::mem::take(&mut self.uprobes));
        let ClauseSet { set, layouts, .. } = &mut sets[index];
        // Of a process, by the way it has now.
        set.path.clone_from(&group.found.path);
        let attached = uprobes.attach(set, &[index], pid, |way| self.program_for(clause, kind, layouts, way));
        (self.sets, self.uprobes) = (sets, uprobes);
        attached
    }

    /// The set of a group's sites, in [`ScriptDoor::sets`].
    pub(super) fn set_of(&mut self, group: &Group) -> usize {
        let mut layouts: Vec<ArgLayout> = Vec::new();
        let mut sites = Vec::new();
        for (point, site) in
            group.points.iter().flat_map(|(point, sites)| sites.iter().map(move |s| (point, s)))
        {
            let layout = only_used(&site.layout, &group.used);
            let index = layouts.iter().position(|known| *known == layout).unwrap_or_else(|| {
                layouts.push(layout);
                layouts.len() - 1
            });
            sites.push(LinkSite {
                file_offset: site.file_offset,
                ref_ctr_offset: site.ref_ctr_offset,
                cookie: index as u64 | (*point as u64) << 32,
            });
        }
        let (clause, kind, file) = (group.clause, group.kind, group.found.code.file());
        let is_same = |known: &ClauseSet| {
            (known.clause, known.kind, known.file) == (clause, kind, file)
                && known.layouts == layouts
                && known.set.sites == sites
        };
        self.sets.iter().position(is_same).unwrap_or_else(|| {
            let set = SiteSet::new(&group.found.path, file, kind == Kind::Uretprobe, sites);
            self.sets.push(ClauseSet { clause, kind, file, layouts, set });
            self.sets.len() - 1
        })
    }

    pub(super) fn program_for(
        &mut self,
        clause: usize,
        kind: Kind,
        layouts: &[ArgLayout],
        way: Way<'_>,
    ) -> Result<Arc<OwnedFd>, ScriptError> {
        // The program keeps the table alive.
        let (which, attachment, _table) = match way {
            Way::Multi => (Which::Cookie, Attachment::Multi, None),
            Way::Event => (Which::Cookie, Attachment::Event, None),
            Way::Shared(sites) => {
                // 0 says that the hit is another program's.
                let table = cookie_table(sites, |cookie| cookie + 1)?;
                (Which::Among(table.as_raw_fd()), Attachment::Inherited, Some(table))
            }
            Way::Inherited(sites) if sites.iter().all(|site| site.cookie == sites[0].cookie) => {
                (Which::Fixed(sites[0].cookie), Attachment::Inherited, None)
            }
            Way::Inherited(sites) => {
                let table = cookie_table(sites, |cookie| cookie)?;
                (Which::Table(table.as_raw_fd()), Attachment::Inherited, Some(table))
            }
        };
        let program = self.load_as(clause, kind, which, layouts, attachment)?;
        Ok(Arc::clone(&self.loaded[program].fd))
    }

    /// Whether what a process forks has its points from the first instruction on.
    pub fn is_inherited(&self) -> bool {
        self.uprobes.is_inherited()
    }

    /// See [`Inheritance::inherit`](crate::inherited_uprobes::Inheritance::inherit).
    pub fn inherit(&mut self, child: &nopal_proc::Process, root: Option<u32>) {
        self.uprobes.inherited.inherit(child, root);
    }

    /// Says that a process could not fork while its points were attached, since it was held.
    pub fn was_held(&mut self, pid: u32) {
        self.uprobes.inherited.was_held(pid);
    }

    /// Waits until every child of those who have points is either one that can be seen, or has what its parent has.
    pub fn settle(&self) {
        self.uprobes.inherited.settle();
    }

    /// Forgets processes that have ended; their numbers may come again.
    pub fn forget(&mut self, is_gone: impl Fn(u32) -> bool) {
        let stays = |pid: &Option<u32>| pid.is_none_or(|pid| !is_gone(pid));
        self.attached.retain(|key| stays(&key.pid));
        self.waiting.retain(|key| stays(&key.pid));
        self.refused.retain(|key, _| stays(&key.pid));
        self.landed.forget(&is_gone);
        self.uprobes.forget(is_gone);
    }

    /// Breakpoints that somebody has taken away, each told once; now and then unless it is the last time.
    pub fn taken_away(&mut self, is_last: bool) -> Vec<Gone> {
        if is_last { self.landed.look() } else { self.landed.look_now_and_then() }
    }

    /// Detaches everything at once; maps and what was emitted stay.
    pub fn detach(&mut self) {
        self.attached.clear();
        self.waiting.clear();
        self.refused.clear();
        self.events.clear();
        self.uprobes.close();
        self.close_bunches();
        uprobes::drop_together(std::mem::take(&mut self.sets));
    }
}

impl Drop for ScriptDoor {
    fn drop(&mut self) {
        self.detach();
    }
}

/// The cookies by the place in the page.
fn cookie_table(sites: &[LinkSite], entry: impl Fn(u64) -> u64) -> Result<OwnedFd, ScriptError> {
    let failed = |error| ScriptError::io("making a table of sites", error);
    let table = bpf::create_map(MapKind::Array, 4, 8, PAGE_BYTES, 0, "nopal_sites").map_err(failed)?;
    for site in sites {
        let key = uprobes::page_offset(site).to_le_bytes();
        bpf::update(&table, &key, &entry(site.cookie).to_le_bytes()).map_err(failed)?;
    }
    Ok(table)
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
    let anybody = || {
        let inode = std::fs::metadata(&found.path).ok()?.ino();
        let same = |object: &MappedObject| object.mappings.first().is_some_and(|m| m.inode == inode);
        processes_mapping(&found.path)
            .into_iter()
            .find_map(|pid| mapped_objects(pid).ok()?.into_iter().find(same).map(Arc::new))
    };
    let mapped = if pid.is_some() { found.mapped.clone() } else { anybody() };
    let Some(mapped) = mapped else { return State::Waiting { n_sites } };
    let places: Vec<u64> = sites.iter().map(|site| site.address).collect();
    let missing = landed::missing(&mapped, &found.code, &places);
    match missing.iter().filter(|is_missing| **is_missing).count() {
        0 => State::Armed { n_sites },
        n_missing => State::Refused { why: Refusal::NotInMemory { pid: mapped.pid, n_missing, n_sites } },
    }
}

/// The processes that map a file now: all of them are slowed down by uprobes on the file.
pub fn processes_mapping(path: &Path) -> Vec<u32> {
    let Ok(metadata) = std::fs::metadata(path) else { return Vec::new() };
    let name: Option<PathBuf> = std::fs::canonicalize(path).ok();
    let maps_it = |pid: u32| {
        nopal_proc::maps(pid).is_ok_and(|all| {
            all.iter().any(|mapping| {
                mapping.is_executable
                    && mapping.inode == metadata.ino()
                    && name.as_ref().is_none_or(|name| name.file_name() == mapping.path.file_name())
            })
        })
    };
    processes().into_iter().map(|process| process.pid).filter(|pid| maps_it(*pid)).collect()
}
