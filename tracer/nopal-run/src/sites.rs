//! The sites that a script wants in the files processes map, and what the records of each mean.

use super::Note;
use super::cells::{Cells, SiteCells};
use super::function_sites::{FunctionPoint, FunctionSite, StaticSites, function_sites};
use super::site::{self, SiteReader};
use nopal_capture::{Action, Hit, Wanted};
use nopal_kernel::script::is_later;
use nopal_live::{Callers, Chosen, Places, Selection, StackCopy};
use nopal_proc::MappedObject;
use nopal_proc::file_functions::FileFunctions;
use nopal_program::captures::{Captures, RETURN_VALUE};
use nopal_program::{PointKind, Program};
use nopal_sdt::probe::{Description, Site};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Which sites are wanted, and what their records mean. Grows as processes map more files.
#[derive(Debug)]
pub(super) struct ScriptSites {
    program: Arc<Program>,
    given: Vec<nopal_provider::File>,
    cells: Arc<Cells>,
    /// By path of a point: the file's inode, if it is there.
    inodes: HashMap<String, Option<u64>>,
    places: Places,
    /// What the records of each site mean.
    pub events: Vec<SiteEvent>,
    has_time: bool,
    /// Whether hits tell whose they are, though the script does not ask.
    has_task: bool,
    /// If the script takes stacks.
    callers: Option<RefCell<Callers>>,
    /// Points that have sites.
    pub came: HashSet<(u32, u32)>,
    /// What there is to be told of the sites, until somebody takes it.
    pub notes: Vec<Note>,
    /// Processes that were looked at, until somebody takes them.
    pub met: Vec<u32>,
}

/// What the records of one site mean.
#[derive(Debug)]
pub(super) struct SiteEvent {
    /// Clauses and points, in the order of the script.
    pub runs: Vec<(u32, u32)>,
    pub reader: SiteReader,
}

impl ScriptSites {
    pub(crate) fn new(
        program: Arc<Program>,
        given: Vec<nopal_provider::File>,
        cells: Arc<Cells>,
        has_time: bool,
        has_task: bool,
    ) -> ScriptSites {
        let has_stacks = program.clauses.iter().any(|clause| Captures::of(&clause.code).needs_stack);
        ScriptSites {
            program,
            given,
            cells,
            inodes: HashMap::new(),
            places: Places::default(),
            events: Vec::new(),
            has_time,
            has_task,
            callers: has_stacks.then(RefCell::default),
            came: HashSet::new(),
            notes: Vec::new(),
            met: Vec::new(),
        }
    }

    /// Whether a point's path is that of the mapped file, by name or because it leads to the same file.
    fn is_file(&mut self, path: &str, mapped: &MappedObject, inode: u64) -> bool {
        if mapped.path.as_os_str() == path {
            return true;
        }
        let known = self
            .inodes
            .entry(path.to_owned())
            .or_insert_with(|| std::fs::metadata(path).ok().map(|metadata| metadata.ino()));
        *known == Some(inode)
    }
}

impl ScriptSites {
    /// Appends where the thread of a hit was, innermost first.
    pub(super) fn unwind(
        &self,
        pid: u32,
        event: u32,
        stack: Option<StackCopy<'_>>,
        max: usize,
        into: &mut Vec<u64>,
    ) {
        if let (Some(callers), Some(place)) = (&self.callers, self.places.get(event)) {
            callers.borrow_mut().unwind(pid, place, stack, max, into);
        }
    }

    /// The functions of a mapped file that the script names.
    fn choose_functions(
        &mut self,
        mapped: &MappedObject,
        inode: u64,
        taken: &StaticSites,
        chosen: &mut Vec<Chosen>,
    ) {
        let program = Arc::clone(&self.program);
        let mut points = Vec::new();
        for (clause, body) in program.clauses.iter().enumerate() {
            let needs_value = Captures::of(&body.code).args.iter().any(|arg| arg.index == RETURN_VALUE);
            for (point, at) in body.points.iter().enumerate() {
                let (PointKind::Uprobe { path, place } | PointKind::Uretprobe { path, place }) = &at.kind
                else {
                    continue;
                };
                if self.is_file(path, mapped, inode) {
                    let is_return = matches!(at.kind, PointKind::Uretprobe { .. });
                    let at_of = (clause as u32, point as u32);
                    points.push(FunctionPoint { at: at_of, name: &at.name, place, is_return, needs_value });
                }
            }
        }
        if points.is_empty() {
            return;
        }
        let file = match mapped.open() {
            Ok(image) => FileFunctions::read(image),
            Err(error) => {
                self.notes.push(Note::Gap(format!("{}: {error}", mapped.path.display())));
                return;
            }
        };
        let (sites, mut notes) = function_sites(&file, &points, taken);
        self.notes.append(&mut notes);
        for FunctionSite { name, site, runs } in sites {
            let mut captures = Captures::default();
            for (clause, _) in &runs {
                captures.join(&Captures::of(&program.clauses[*clause as usize].code));
            }
            chosen.push(self.chosen(name, &site, None, &captures, runs));
        }
    }

    /// A site, and what its records mean.
    fn chosen(
        &mut self,
        name: String,
        site: &Site,
        description: Option<&Description>,
        captures: &Captures,
        runs: Vec<(u32, u32)>,
    ) -> Chosen {
        let clauses: Vec<u32> = runs.iter().map(|(clause, _)| *clause).collect();
        let lowered = self.cells.at(site, &clauses);
        let (captured, reader, unread) =
            site::plan(site, description, captures, self.program.limits.string_bytes);
        for why in unread {
            self.notes.push(Note::Gap(format!("{name} at {:#x}: {why}; it reads as 0", site.address)));
        }
        let event = self.events.len() as u32;
        let by_kernel = Wanted {
            probe: name.clone(),
            site: site.clone(),
            event,
            predicates: Vec::new(),
            action: Action::Record { captures: captured.clone(), has_time: true, has_task: true },
        };
        let (has_time, has_task) = (self.has_time, self.has_task || captures.needs_task);
        let (predicates, action) = match lowered {
            Some(SiteCells { predicates, cells, keys }) => {
                let sent = match &keys {
                    Some(keys) => format!("keys below {} and above {} are sent", keys.start(), keys.end()),
                    None => "nothing is sent".to_owned(),
                };
                self.notes.push(Note::Detail(format!(
                    "{name} at {:#x}: the program keeps {} aggregates itself, {sent}",
                    site.address,
                    cells.len()
                )));
                let action = match keys {
                    Some(_) => Action::AggregateOrRecord { cells, captures: captured, has_time, has_task },
                    None => Action::Aggregate(cells),
                };
                (predicates, action)
            }
            None => (Vec::new(), Action::Record { captures: captured, has_time, has_task }),
        };
        let by_user = Wanted { predicates, action, ..by_kernel.clone() };
        self.events.push(SiteEvent { runs, reader });
        Chosen { by_user, by_kernel }
    }
}

impl Selection for ScriptSites {
    fn choose(&mut self, mapped: &MappedObject, object: &nopal_sdt::Object) -> Vec<Chosen> {
        if let (Some(callers), Some(file)) = (&mut self.callers, mapped.file()) {
            callers.get_mut().add_file(file);
        }
        let inode = mapped.mappings.first().map_or(0, |mapping| mapping.inode);
        let mut probes = object.probes.clone();
        nopal_sdt::describe(&mut probes, &self.given);
        let (mut chosen, mut taken) = (Vec::new(), StaticSites::default());
        let program = Arc::clone(&self.program);
        for probe in &probes {
            let addresses = probe.sites.iter().map(|site| site.address);
            taken.all.extend(addresses.clone());
            let mut runs = Vec::new();
            let mut captures = Captures::default();
            for (clause, body) in program.clauses.iter().enumerate() {
                for (point, at) in body.points.iter().enumerate() {
                    let is_meant = match &at.kind {
                        PointKind::Usdt { path, provider, name } => {
                            *provider == probe.provider
                                && *name == probe.name
                                && self.is_file(path, mapped, inode)
                        }
                        PointKind::UsdtLater(later) => {
                            is_later(later, &mapped.path, probe, |path| self.is_file(path, mapped, inode))
                        }
                        _ => false,
                    };
                    if is_meant {
                        self.came.insert((clause as u32, point as u32));
                        runs.push((clause as u32, point as u32));
                        captures.join(&Captures::of(&body.code));
                    }
                }
            }
            if runs.is_empty() {
                continue;
            }
            taken.opened.extend(addresses);
            for site in &probe.sites {
                let name = format!("{}:{}", probe.provider, probe.name);
                chosen.push(self.chosen(name, site, probe.description.as_ref(), &captures, runs.clone()));
            }
        }
        self.choose_functions(mapped, inode, &taken, &mut chosen);
        chosen
    }

    fn places(&self) -> &Places {
        &self.places
    }

    fn places_mut(&mut self) -> &mut Places {
        &mut self.places
    }

    #[inline]
    fn holds(&self, _: &Hit<'_>) -> bool {
        true
    }

    fn look(&mut self, pid: u32) {
        self.met.push(pid);
        if let Some(callers) = &mut self.callers {
            callers.get_mut().look(pid);
        }
    }

    fn follow(&mut self, pid: u32) {
        if let Some(callers) = &mut self.callers {
            callers.get_mut().follow(pid);
        }
    }
}
