//! The sites that a script wants in the files processes map, and what the records of each mean.

use super::Note;
use super::aside::Left;
use super::cells::{Cells, SiteCells};
use super::site::{self, SiteReader};
use crate::live::ASKED_FOR;
use nopal_capture::{Action, Wanted};
use nopal_engine::target::{self, MappedObject};
use nopal_engine::user::session::{ProcessReport, SiteReport};
use nopal_program::captures::Captures;
use nopal_program::{PointKind, Program};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which sites are wanted, and what their records mean. Grows as processes map more files.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) program: Arc<Program>,
    pub(super) given: Vec<nopal_provider::File>,
    pub(super) cells: Arc<Cells>,
    /// By path of a point: the file's inode, if it is there.
    pub(super) inodes: HashMap<String, Option<u64>>,
    /// By device and inode.
    pub(super) by_file: HashMap<(u64, u64), Vec<Wanted>>,
    pub(super) events: Vec<SiteEvent>,
    pub(super) has_time: bool,
    /// Whether hits tell whose they are, though the script does not ask.
    pub(super) has_task: bool,
    pub(super) notes: Vec<Note>,
}

/// What the records of one site mean.
#[derive(Debug)]
pub(super) struct SiteEvent {
    /// As the kernel door needs it, should it come to that.
    pub(super) left: Left,
    /// Clauses and points, in the order of the script.
    pub(super) runs: Vec<(u32, u32)>,
    pub(super) reader: SiteReader,
}

impl Plan {
    /// The wanted sites of a mapped file; the same every time it is asked for the same file.
    pub(super) fn select(&mut self, mapped: &MappedObject, object: &nopal_sdt::Object) -> Vec<Wanted> {
        let Some(mapping) = mapped.mappings.first() else { return Vec::new() };
        let device = u64::from(mapping.device_major) << 32 | u64::from(mapping.device_minor);
        let key = (device, mapping.inode);
        if let Some(known) = self.by_file.get(&key) {
            return known.clone();
        }
        let wanted = self.choose(mapped, mapping.inode, object);
        self.by_file.insert(key, wanted.clone());
        wanted
    }

    fn choose(&mut self, mapped: &MappedObject, inode: u64, object: &nopal_sdt::Object) -> Vec<Wanted> {
        let mut probes = object.probes.clone();
        nopal_sdt::describe(&mut probes, &self.given);
        let mut wanted = Vec::new();
        let program = Arc::clone(&self.program);
        for probe in &probes {
            let mut runs = Vec::new();
            let mut captures = Captures::default();
            for (clause, body) in program.clauses.iter().enumerate() {
                for (point, at) in body.points.iter().enumerate() {
                    let PointKind::Usdt { path, provider, name } = &at.kind else { continue };
                    if *provider == probe.provider && *name == probe.name && self.is_file(path, mapped, inode)
                    {
                        runs.push((clause as u32, point as u32));
                        captures.join(&Captures::of(&body.code));
                    }
                }
            }
            if runs.is_empty() {
                continue;
            }
            let clauses: Vec<u32> = runs.iter().map(|(clause, _)| *clause).collect();
            for site in &probe.sites {
                let lowered = self.cells.at(site, &clauses);
                let (captured, reader, unread) = site::plan(site, probe.about.as_ref(), &captures);
                for why in unread {
                    let place = format!("{}:{} at {:#x}", probe.provider, probe.name, site.address);
                    self.notes.push(Note::Gap(format!("{place}: {why}; it reads as 0")));
                }
                let event = self.events.len() as u32;
                let action = Action::Record { captures: captured.clone(), has_time: true, has_task: true };
                let left = Wanted {
                    probe: format!("{}:{}", probe.provider, probe.name),
                    site: site.clone(),
                    event,
                    predicates: Vec::new(),
                    action,
                };
                let left = Left { wanted: left, path: mapped.path.clone(), reason: String::new() };
                let (has_time, has_task) = (self.has_time, self.has_task || captures.needs_task);
                let (predicates, action) = match lowered {
                    Some(SiteCells { predicates, cells, keys }) => {
                        let sent = match &keys {
                            Some(keys) => {
                                format!("keys below {} and above {} are sent", keys.start(), keys.end())
                            }
                            None => "nothing is sent".to_owned(),
                        };
                        self.notes.push(Note::Detail(format!(
                            "{}:{} at {:#x}: the program keeps {} aggregates itself, {sent}",
                            probe.provider,
                            probe.name,
                            site.address,
                            cells.len()
                        )));
                        let action = match keys {
                            Some(_) => {
                                Action::AggregateOrRecord { cells, captures: captured, has_time, has_task }
                            }
                            None => Action::Aggregate(cells),
                        };
                        (predicates, action)
                    }
                    None => (Vec::new(), Action::Record { captures: captured, has_time, has_task }),
                };
                wanted.push(Wanted {
                    probe: format!("{}:{}", probe.provider, probe.name),
                    site: site.clone(),
                    event,
                    predicates,
                    action,
                });
                self.events.push(SiteEvent { left, runs: runs.clone(), reader });
            }
        }
        wanted
    }

    /// A site that the user door has not, as the kernel door needs it.
    pub(super) fn left(&self, event: u32, reason: String) -> Option<Left> {
        let known = self.events.get(event as usize)?;
        Some(Left { reason, ..known.left.clone() })
    }

    /// Whether a point's path is that of the mapped file, by name or because it leads to the same file.
    fn is_file(&mut self, path: &str, mapped: &MappedObject, inode: u64) -> bool {
        if mapped.path.as_os_str() == path {
            return true;
        }
        let known = self
            .inodes
            .entry(path.to_owned())
            .or_insert_with(|| std::fs::metadata(path).ok().map(|about| about.ino()));
        *known == Some(inode)
    }
}

/// What the user door has refused in a process.
pub(super) fn refused_in(plan: &Mutex<Plan>, report: &ProcessReport) -> Vec<Left> {
    report.outcome.as_ref().map_or_else(|_| Vec::new(), |sites| refused(plan, sites))
}

pub(super) fn refused(plan: &Mutex<Plan>, sites: &[SiteReport]) -> Vec<Left> {
    let plan = lock(plan);
    let left = |site: &SiteReport| plan.left(site.event, site.outcome.as_ref().err()?.to_string());
    sites.iter().filter_map(left).collect()
}

/// Everything the script wants in a process.
pub(super) fn left_in(plan: &Mutex<Plan>, pid: u32) -> Result<Vec<Left>, target::TargetError> {
    let mut left = Vec::new();
    for mapped in target::mapped_objects(pid)? {
        // A file that is no program, or that cannot be read, has no sites.
        let Ok(image) = mapped.open() else { continue };
        let Ok(object) = nopal_sdt::read(image.bytes()) else { continue };
        let mut plan = lock(plan);
        let wanted = plan.select(&mapped, &object);
        left.extend(wanted.iter().filter_map(|wanted| plan.left(wanted.event, ASKED_FOR.to_owned())));
        // No stub is at work here.
        plan.notes.retain(|note| matches!(note, Note::Gap(_)));
    }
    Ok(left)
}

pub(super) fn lock(plan: &Mutex<Plan>) -> MutexGuard<'_, Plan> {
    // A panic elsewhere leaves the plan whole: it only ever grows.
    plan.lock().unwrap_or_else(PoisonError::into_inner)
}
