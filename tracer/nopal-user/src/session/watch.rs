//! Looks after open sites while a session records: bytes that others changed, libraries loaded later, children that
//! started another program. Polling only, without staying attached; the caller says how often (at least every 100 ms).

use super::Session;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::inject::ask_again;
use crate::libraries::LIBRARY_PROBE;
use crate::maps::code_mappings;
use crate::memory::Memory;
use crate::patch::{Direction, Found, apply};
use crate::process;
use crate::sandbox;
use crate::stopped_thread::Lock;
use crate::traced::{Health, OpenSite, ProcessReport, Traced};
use nopal_abi::stub_space::restraint;
use nopal_proc::missed_execs::Untold;
use nopal_proc::ptrace::in_own_thread;
use std::time::{Duration, Instant};

/// Something that happened to a traced process.
#[derive(Debug)]
pub enum Notice {
    /// Another tool has put a breakpoint on the site: hits are not recorded until it leaves.
    TakenOver {
        pid: i32,
        probe: String,
        address: u64,
        /// Whose records stand for the site, for whoever can open it otherwise meanwhile.
        event: Option<u32>,
        /// The breakpoint is on the nop, where a uprobe of our own would be, too. Else, behind the nop, the site is open
        /// again the moment the other tool leaves, and what is opened on the nop meanwhile would count twice.
        is_on_nop: bool,
    },
    /// The other tool has left; the site is open again. Hits since `TakenOver` are missing.
    OpenAgain {
        pid: i32,
        probe: String,
        address: u64,
        /// False if nobody had been seen there: somebody came and left between two looks.
        was_taken_over: bool,
    },
    /// Bytes that are neither ours nor the file's; left alone.
    Changed {
        pid: i32,
        probe: String,
        address: u64,
        found: Vec<u8>,
    },
    /// Sites of objects that were loaded, of a program that was started by exec, or of a new child.
    Opened(ProcessReport),
    /// The process started another program; its sites of before are gone with it.
    Exec {
        pid: i32,
        /// Hits of the program before are earlier, those of the new one, which has yet to be opened, are later.
        seen: Instant,
    },
    /// The process has locked itself in (`seccomp`): its stubs make no system calls any more, or not even take the time.
    Restrained {
        pid: i32,
        /// Hits are only counted.
        is_silent: bool,
    },
    Ended {
        pid: i32,
    },
    /// Programs may have come and gone unseen.
    Untold(Untold),
}

/// What a session leaves unseen.
#[derive(Debug, Default)]
pub struct LastWords {
    /// Processes that have started a program with wanted sites, which were never opened.
    pub unseen: Vec<u32>,
    /// As [`Notice::Untold`].
    pub untold: Option<Untold>,
    /// As [`Session::take_impatient`].
    pub n_impatient: u64,
}

/// The mappings of a process whose size stays the same are read again this often.
const FULL_LOOK: Duration = Duration::from_secs(1);
/// The same where the process itself tells what it loads.
const FULL_LOOK_TOLD: Duration = Duration::from_secs(10);

impl Session {
    /// One look at everything. Cheap when nothing has happened: one question for all sites of a process, and three more.
    pub fn look_after(&mut self) -> Vec<Notice> {
        let mut look = Look::default();
        if self.has_library_news() {
            look.notices = self.follow_libraries();
            self.release();
        }
        look.notices.extend(self.separate_changed());
        self.drain_events();
        let heard = self.missed_execs.heard();
        for traced in &mut self.traced {
            look.at_process(&mut self.core, traced);
        }
        let Look { mut notices, again, ended, unseen } = look;
        for notice in &mut notices {
            if let Notice::TakenOver { probe, address, event, .. } = notice {
                // What a child inherited was reported for its parent.
                let reports = || self.traced.iter().flat_map(|t| &t.reports);
                *event = reports().find(|r| r.address == *address && r.probe == *probe).map(|r| r.event);
            }
        }
        for pid in again {
            match self.attach_more(pid) {
                Ok(report) => notices.push(Notice::Opened(ProcessReport { is_late: true, ..report })),
                // A process that is just ending has no program any more, as kernel threads have none.
                Err(Error::Gone { .. } | Error::NoSuchProcess { .. } | Error::KernelThread { .. }) => {}
                Err(error) => notices.push(Notice::Opened(self.failed(pid, error))),
            }
        }
        if !self.without_children {
            let fresh = self.attach_descendants();
            notices.extend(fresh.into_iter().filter(ProcessReport::says_something).map(Notice::Opened));
        }
        // What they had tells what the children have that they have left.
        self.traced.retain(|traced| !ended.contains(&traced.pid));
        for pid in ended {
            self.forget_identity(pid);
            self.core.elsewhere.remove(&pid);
        }
        notices.extend(self.missed_execs.take_gone().into_iter().map(|pid| {
            let pid = pid as i32;
            Notice::Opened(ProcessReport::failed(pid, Error::EndedEarly { pid }))
        }));
        notices.extend(self.missed_execs.take_lost().map(Notice::Untold));
        self.missed_execs.settle(heard, &unseen);
        self.last_look = Instant::now();
        notices
    }

    /// Before the session ends: what has happened since the last look, and will not be looked at.
    pub fn last_words(&mut self) -> LastWords {
        self.has_news();
        LastWords {
            unseen: self.missed_execs.take_unseen(),
            untold: self.missed_execs.take_lost(),
            n_impatient: self.take_impatient(),
        }
    }

    /// Sites, by process, probe and address, that others have closed since the last look: hits may be missing. To be asked once
    /// hits are switched off.
    pub fn closed_by_others(&self) -> Vec<(i32, &str, u64)> {
        let mut closed = Vec::new();
        for traced in self.traced.iter().filter(|traced| !is_untouched(traced)) {
            let mappings = code_mappings(traced.pid);
            let is_loaded = |site: &OpenSite| {
                let start = |mappings: &[(u64, u64)]| {
                    mappings.iter().filter(|(start, _)| *start <= site.address).max().copied()
                };
                start(&traced.seen).is_some_and(|seen| start(&mappings) == Some(seen))
            };
            let is_closed = |site: &&OpenSite| {
                let health = traced.health.get(&site.address).copied().unwrap_or_default();
                matches!(health, Health::Well | Health::Odd)
                    && (site.patch.found(&traced.memory).is_ok_and(|found| found != Found::Ours)
                        || site.is_reset(&traced.memory))
                    && is_loaded(site)
            };
            let sites = traced.sites.iter().filter(is_closed);
            closed.extend(sites.map(|site| (traced.pid, &site.probe[..], site.address)));
        }
        closed
    }

    /// Forgets that a site was in other hands: the next look tells again how it finds it.
    pub fn look_anew(&mut self, pid: i32, address: u64) {
        if let Some(traced) = self.traced.iter_mut().find(|t| t.pid == pid) {
            traced.health.remove(&address);
        }
    }

    /// Opens what is wanted and not open yet in a process that is traced.
    pub(super) fn attach_more(&mut self, pid: i32) -> Result<ProcessReport> {
        let Some(at) = self.traced.iter().position(|t| t.pid == pid) else { return self.attach_one(pid) };
        let old = &self.traced[at];
        let (sites, reports, health) = (old.sites.clone(), old.reports.clone(), old.health.clone());
        let report = self.attach_one(pid)?;
        if let Some(traced) = self.traced.iter_mut().find(|t| t.pid == pid) {
            let is_known = |address: u64, known: &[OpenSite]| known.iter().any(|s| s.address == address);
            traced.sites.extend(
                sites.into_iter().filter(|s| !is_known(s.address, &traced.sites)).collect::<Vec<_>>(),
            );
            let fresh = std::mem::take(&mut traced.reports);
            traced.reports =
                reports.into_iter().filter(|r| fresh.iter().all(|f| f.address != r.address)).collect();
            traced.reports.extend(fresh);
            traced.health = health;
        }
        Ok(report)
    }
}

/// What one look has found.
#[derive(Debug, Default)]
struct Look {
    notices: Vec<Notice>,
    /// Processes with something to be opened.
    again: Vec<i32>,
    ended: Vec<i32>,
    /// Processes whose program is another than what was opened, and could not be looked at yet.
    unseen: Vec<u32>,
}

impl Look {
    fn at_process(&mut self, core: &mut Core, traced: &mut Traced) {
        let pid = traced.pid;
        let first = traced.seen.first().map_or(0, |m| m.0);
        // The memory we opened is that of the program of then; after an exec or the end it is nobody's.
        let has_changed = matches!(traced.memory.read(first, &mut [0]), Err(Error::Gone { .. }));
        let is_told = traced.sites.iter().any(|s| {
            s.probe == LIBRARY_PROBE && traced.health.get(&s.address).is_none_or(|h| *h == Health::Well)
        });
        let n_pages = process::n_pages(pid);
        let pause = if is_told { FULL_LOOK_TOLD } else { FULL_LOOK };
        let is_known = |(pages, at): (u64, Instant)| n_pages == Some(pages) && at.elapsed() < pause;
        let is_as_before = !has_changed && !traced.is_unannounced && traced.seen_at.is_some_and(is_known);
        // A process that shares its memory with another may end before its memory does.
        if !is_as_before && !process::is_still(pid, traced.start_time) {
            self.ended.push(pid);
            self.notices.push(Notice::Ended { pid });
            return;
        }
        let now = (!is_as_before).then(|| {
            traced.seen_at = n_pages.map(|n| (n, Instant::now()));
            code_mappings(pid)
        });
        if has_changed && now.as_ref().is_some_and(|now| !now.is_empty()) {
            self.notices.push(Notice::Exec { pid, seen: Instant::now() });
            traced.sites.clear();
            traced.reports.clear();
            traced.health.clear();
            // What was opened by others went with the program.
            core.elsewhere.remove(&pid);
            self.again.push(pid);
            return;
        }
        if has_changed {
            self.unseen.push(pid as u32);
        }
        if traced.is_early {
            traced.is_early = !matches!(in_own_thread(move || ask_again(core, pid)), Ok(true));
        }
        // What is being loaded at this moment will be reported before it runs.
        let is_first = is_told && !std::mem::replace(&mut traced.is_unannounced, false);
        if let Some(now) = now {
            if now.iter().any(|m| !traced.seen.contains(m)) {
                if is_first {
                    traced.is_unannounced = true;
                    self.unseen.push(pid as u32);
                } else {
                    self.again.push(pid);
                }
            }
            if !traced.is_unannounced {
                traced.seen = now;
            }
        }
        let bits = sandbox::restraint_of(traced);
        if bits & !traced.restraint != 0 {
            traced.restraint |= bits;
            let is_silent = bits & restraint::NO_TIME != 0;
            self.notices.push(Notice::Restrained { pid, is_silent });
        }
        if !has_changed && is_untouched(traced) {
            return;
        }
        for site in &traced.sites {
            let health = traced.health.entry(site.address).or_default();
            self.at_site(pid, &traced.memory, site, health, is_told);
        }
    }

    /// `is_told`: the dynamic linker says what it loads and unloads.
    fn at_site(&mut self, pid: i32, memory: &Memory, site: &OpenSite, health: &mut Health, is_told: bool) {
        let (probe, address) = (|| site.probe.clone(), site.address);
        match site.patch.found(memory) {
            Ok(Found::Ours) => {
                if *health == Health::TakenOver {
                    self.notices.push(opened_again(pid, site, true));
                }
                *health = Health::Well;
            }
            Ok(Found::Breakpoint) if matches!(*health, Health::Well | Health::Odd) => {
                *health = Health::TakenOver;
                let is_on_nop = site.patch.start() == address;
                self.notices.push(Notice::TakenOver { pid, probe: probe(), address, event: None, is_on_nop });
            }
            Ok(Found::Original) if is_told && *health == Health::Well => *health = Health::Odd,
            Ok(Found::Original) if site.is_reset(memory) => {
                if !self.again.contains(&pid) {
                    self.again.push(pid);
                }
            }
            Ok(Found::Original | Found::FirstByteBack) if *health != Health::GivenUp => {
                let armed = in_own_thread(|| {
                    let _lock = Lock::take(pid)?;
                    apply(memory, std::slice::from_ref(&site.patch), Direction::In, &[])
                });
                match armed {
                    Ok(outcome) if outcome[0].is_none() => {
                        let before = std::mem::replace(health, Health::Well);
                        self.notices.push(opened_again(pid, site, before == Health::TakenOver));
                    }
                    // Somebody was quicker, or a debugger holds the process: next time.
                    Ok(_) | Err(_) => {}
                }
            }
            Ok(Found::Other(found)) if matches!(*health, Health::Well | Health::Odd) => {
                *health = Health::GivenUp;
                self.notices.push(Notice::Changed { pid, probe: probe(), address, found });
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// Whether every site is open, as it was at the last look; one question for all of them.
fn is_untouched(traced: &Traced) -> bool {
    let is_well = |site: &OpenSite| traced.health.get(&site.address) == Some(&Health::Well);
    let patches = traced.sites.iter().map(|site| &site.patch);
    let kept = patches.clone().filter(|p| !p.kept.is_empty()).map(|p| (p.start(), &p.kept[..]));
    let behind = patches.clone().filter(|p| !p.behind.is_empty()).map(|p| (p.end(), &p.behind[..]));
    let patched = patches.map(|p| (p.address, &p.patched[..]));
    traced.sites.iter().all(is_well) && traced.memory.has_all(kept.chain(patched).chain(behind))
}

fn opened_again(pid: i32, site: &OpenSite, was_taken_over: bool) -> Notice {
    Notice::OpenAgain { pid, probe: site.probe.clone(), address: site.address, was_taken_over }
}
