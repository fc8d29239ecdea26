//! Opens the sites of one process: finds or makes its stub spaces, maps what is missing, then raises semaphores, chains
//! stubs and changes the code, in this order. Runs in a thread of its own that is the ptracer.

use super::enter::{Entered, wait_until_idle};
use super::error::{Error, Result};
use super::held::Lock;
use super::hijack::{Call, Hijack, check};
use super::ledger::Ledger;
use super::libraries::{self, LIBRARY_EVENT};
use super::maps::Maps;
use super::memory::Memory;
use super::neighbourhood::{Neighbourhood, PRIVATE_BYTES, spaces_in, stub_failed};
use super::pass_fd::{Caller, pass_fds};
use super::process;
use super::ptrace;
use super::relocate::{WINDOW, pages_of, protect};
use super::room::Room;
use super::session::{Core, OpenSite, SiteReport, Traced, WantedObject};
use super::stub::StubSpec;
use super::stub::space::{Entry, ObjectIdentity, SessionFacts, landing};
use super::stub::tail::{Tail, plan_instruction, plan_relocation, plan_tail};
use super::tactic::{Refusal, Tactic, Way, ways};
use super::text::{Direction, Found, Patch, apply};
use nopal_abi::PAGE_BYTES;
use nopal_abi::stub_space::{JournalKind, NO_SESSION, Path, RSEQ_SIGNATURE};
use std::collections::HashMap;
use std::os::fd::AsFd;

const PAGE: u64 = PAGE_BYTES as u64;
const PR_GET_TID_ADDRESS: u64 = 40;
const MADV_WIPEONFORK: u64 = 18;
const EXECUTABLE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const WRITABLE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const SHARED: u64 = libc::MAP_SHARED as u64;
const FREE: u64 = libc::MAP_FIXED_NOREPLACE as u64;
const REPLACE: u64 = libc::MAP_FIXED as u64;
const NO_FILE: u64 = u64::MAX;
const RELOCATION_TRIES: usize = 20;

/// How the threads of a process can be told apart and find their CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ThreadFacts {
    path: Path,
    rseq_offset: i64,
    tid_offset: i64,
    signature: u32,
}

/// Asks a process that was entered at its very start how its threads can be told apart, now that they have their local
/// storage. False if it has none yet.
pub fn ask_again(core: &mut Core, pid: i32) -> Result<bool> {
    let memory = Memory::open(pid)?;
    let _lock = Lock::take(pid)?;
    wait_until_idle(&memory)?;
    let hijack = Hijack::choose(&memory, None)?;
    let room = Room::read(pid)?;
    let mut work = Work {
        core,
        entered: Entered::new(&memory, hijack),
        maps: room.maps.clone(),
        room,
        facts: None,
        passed: HashMap::new(),
    };
    let here: Vec<u64> = spaces_in(&work.maps).iter().map(|r| r.inode).collect();
    let lists = work.core.neighbourhoods.iter().find(|n| here.contains(&n.inode));
    if let Some(n) = lists {
        work.entered.use_lists(n, &work.maps);
    }
    let facts = work.thread_facts()?;
    for n in work.core.neighbourhoods.iter().filter(|n| here.contains(&n.inode)) {
        let is_alike = n.space.header().rseq_signature == facts.signature;
        let path = if is_alike || facts.path != Path::Rseq { facts.path } else { Path::LockedTls };
        n.space.set_path(path, facts.rseq_offset, facts.tid_offset);
    }
    Ok(facts.path != Path::Locked)
}

/// One process being worked on.
struct Work<'a, 'c> {
    core: &'c mut Core,
    entered: Entered<'a>,
    maps: Maps,
    room: Room,
    facts: Option<ThreadFacts>,
    /// Descriptors of neighbourhoods and the ring in the process, to be closed at the end: by inode.
    passed: HashMap<u64, i32>,
}

/// A site that is ready to be opened.
struct Ready {
    site: OpenSite,
    entry_semaphore: Option<usize>,
    landing_pages: Vec<u64>,
    neighbourhood: usize,
    report: usize,
}

/// Opens every wanted site of the process. The caller runs this in a thread that ends afterwards.
pub fn open_process(
    core: &mut Core,
    pid: i32,
    objects: Vec<WantedObject>,
    is_starting: bool,
) -> Result<Traced> {
    let memory = Memory::open(pid)?;
    let _lock = if is_starting { None } else { Some(Lock::take(pid)?) };
    wait_until_idle(&memory)?;
    let hijack = if is_starting {
        let held = super::held::Held { pid, tid: pid, is_group_stopped: false, is_kept: true };
        Hijack::prepare(held, &memory)?
    } else {
        Hijack::choose(&memory, None)?
    };
    let interrupted = hijack.interrupted;
    let mut work = Work {
        core,
        entered: Entered::new(&memory, hijack),
        maps: Maps { ranges: Vec::new() },
        room: Room::read(pid)?,
        facts: None,
        passed: HashMap::new(),
    };
    work.refresh()?;
    let outcome = work.open(&objects);
    let closed = work.close_passed();
    let (sites, reports) = outcome?;
    closed?;
    work.entered.hijack.restore()?;
    drop(work);
    Ok(Traced::new(pid, memory, sites, reports, interrupted))
}

impl Work<'_, '_> {
    fn pid(&self) -> i32 {
        self.entered.memory.pid()
    }

    fn refresh(&mut self) -> Result<()> {
        self.room = Room::read(self.pid())?;
        self.maps = self.room.maps.clone();
        Ok(())
    }

    fn open(&mut self, objects: &[WantedObject]) -> Result<(Vec<OpenSite>, Vec<SiteReport>)> {
        self.adopt_spaces(objects)?;
        let mut reports = Vec::new();
        let mut ready = Vec::new();
        for object in objects {
            let (low, high) = object.text();
            let at = match self.settle(low, high) {
                Ok(at) => at,
                Err(Error::NoRoom { .. }) => {
                    reports.extend(
                        object.sites.iter().map(|s| SiteReport::new(object, s, Err(Refusal::OutOfReach))),
                    );
                    continue;
                }
                Err(e) => return Err(e),
            };
            for wanted in &object.sites {
                let report = reports.len();
                match self.prepare(at, object, wanted) {
                    Ok((site, landing_pages)) => {
                        reports.push(SiteReport::new(object, wanted, Ok(site.tactic)));
                        ready.push(Ready {
                            site,
                            entry_semaphore: None,
                            landing_pages,
                            neighbourhood: at,
                            report,
                        });
                    }
                    Err(Failure::Site(refusal)) => {
                        reports.push(SiteReport::new(object, wanted, Err(refusal)))
                    }
                    Err(Failure::All(error)) => return Err(error),
                }
            }
        }
        spare_kernel_pages(&mut ready, &mut reports);
        self.map_landings(&mut ready, &mut reports)?;
        self.journal_patches(&ready)?;
        self.unlock_pages(&mut ready, &mut reports)?;
        for neighbourhood in &self.core.neighbourhoods {
            neighbourhood.fault_in()?;
        }
        let sites = self.arm(ready, &mut reports)?;
        Ok((sites, reports))
    }

    /// Stub spaces an earlier session left here, if they are near what is wanted: each is replaced by a copy that we
    /// can write to, mapped over it.
    fn adopt_spaces(&mut self, objects: &[WantedObject]) -> Result<()> {
        let found: Vec<(u64, u64)> = spaces_in(&self.maps).iter().map(|r| (r.start, r.inode)).collect();
        for (address, inode) in found {
            if let Some(known) = self.core.neighbourhoods.iter().find(|n| n.inode == inode) {
                self.entered.use_lists(known, &self.maps);
                continue;
            }
            let at = match self.core.adopted.get(&inode) {
                // A relative of this process shares the original; it shares the copy as well.
                Some(at) => *at,
                None => {
                    let copy = Neighbourhood::copy_of(self.entered.memory, address)?;
                    if !objects.iter().any(|o| copy.reaches(o.text().0, o.text().1)) {
                        self.entered.use_lists(&copy, &self.maps);
                        continue;
                    }
                    copy.bury_dead_sessions();
                    let at = self.supersede(copy);
                    self.core.adopted.insert(inode, at);
                    at
                }
            };
            let copy = &self.core.neighbourhoods[at];
            self.entered.use_lists(copy, &self.maps);
            copy.fault_in()?;
            let file = copy.file().try_clone_to_owned().map_err(Error::io("keep the stub space open"))?;
            let fd = self.pass(copy.inode, file.as_fd())?;
            let copy = &self.core.neighbourhoods[at];
            let mut calls = vec![Call::new(
                "map",
                libc::SYS_mmap,
                [address, copy.len(), EXECUTABLE, SHARED | REPLACE, fd, 0],
            )];
            for (page, offset) in copy.landing_pages() {
                let is_mapped = self.maps.find(page).is_some_and(|r| r.inode == inode);
                if is_mapped {
                    calls.push(Call::new(
                        "map",
                        libc::SYS_mmap,
                        [page, PAGE, EXECUTABLE, SHARED | REPLACE, fd, offset],
                    ));
                }
            }
            for result in self.entered.calls(&calls)? {
                check(self.pid(), "map stubs", result)?;
            }
        }
        self.refresh()
    }

    /// Keeps a copy: in the place of our own space that another session has replaced here, if there is one, so that
    /// sessions that take turns do not pile copies up. Its index.
    fn supersede(&mut self, copy: Neighbourhood) -> usize {
        let has_us = copy.session(self.core.generation()).is_some();
        let is_old = |n: &Neighbourhood| has_us && n.address() == copy.address();
        let Some(at) = self.core.neighbourhoods.iter().position(is_old) else {
            self.core.neighbourhoods.push(copy);
            return self.core.neighbourhoods.len() - 1;
        };
        let old = std::mem::replace(&mut self.core.neighbourhoods[at], copy);
        self.core.sessions.remove(&old.inode);
        self.core.stubs.retain(|(inode, _), _| *inode != old.inode);
        at
    }

    /// The target's descriptor for one of our files. The ring is passed along if it will be needed: one round less.
    fn pass(&mut self, inode: u64, file: std::os::fd::BorrowedFd<'_>) -> Result<u64> {
        if let Some(fd) = self.passed.get(&inode) {
            return Ok(*fd as u64);
        }
        let ring = self.core.ring_file.try_clone().map_err(Error::io("keep the ring open"))?;
        let ring_inode = self.core.ring_inode;
        let needs_ring = inode != ring_inode
            && !self.passed.contains_key(&ring_inode)
            && !self.maps.ranges.iter().any(|r| is_ring(r) && r.inode == ring_inode);
        let (files, inodes) = if needs_ring {
            (vec![file, ring.as_fd()], vec![inode, ring_inode])
        } else {
            (vec![file], vec![inode])
        };
        let numbers = pass_fds(&mut self.entered, &files)?;
        self.passed.extend(inodes.into_iter().zip(numbers));
        Ok(self.passed.get(&inode).map_or(NO_FILE, |fd| *fd as u64))
    }

    fn close_passed(&mut self) -> Result<()> {
        let calls: Vec<Call> = self
            .passed
            .drain()
            .map(|(_, fd)| Call::new("close", libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]))
            .collect();
        self.entered.calls(&calls).map(drop)
    }

    /// Asks the borrowed thread, which stands for all: a C library gives every thread the same layout, and a thread
    /// without rseq is recognised by its stub.
    fn thread_facts(&mut self) -> Result<ThreadFacts> {
        if self.facts.is_none() {
            self.facts = Some(self.ask_thread()?);
        }
        Ok(self.facts.expect("just asked"))
    }

    fn ask_thread(&mut self) -> Result<ThreadFacts> {
        let (pid, tid) = (self.pid(), self.entered.hijack.tid());
        let mut facts =
            ThreadFacts { path: Path::Locked, rseq_offset: 0, tid_offset: 0, signature: RSEQ_SIGNATURE };
        let fs_base = self.entered.hijack.original().map_or(0, |r| r.fs_base);
        if fs_base == 0 {
            return Ok(facts);
        }
        let at = self.entered.scratch()?;
        self.entered.write(at, &[0; 8])?;
        let call = Call::new("find its thread number", libc::SYS_prctl, [PR_GET_TID_ADDRESS, at, 0, 0, 0, 0]);
        // A kernel without checkpoint support cannot tell.
        let result = self.entered.calls(&[call])?;
        if result.first() != Some(&0) {
            return Ok(facts);
        }
        let address = self.entered.memory.read_u64(at)?;
        let mut number = [0; 4];
        let is_readable = address != 0 && self.entered.memory.read(address, &mut number).is_ok();
        let own = process::thread_status(pid, tid)?.namespace_pid;
        let offset = address.wrapping_sub(fs_base) as i64;
        if !is_readable || i32::from_le_bytes(number) != own || i32::try_from(offset).is_err() {
            return Ok(facts);
        }
        facts.tid_offset = offset;
        facts.path = Path::LockedTls;
        let rseq = ptrace::rseq(tid).map_err(Error::on(pid, "read the rseq area"))?;
        if let Some(rseq) = rseq {
            let offset = rseq.address.wrapping_sub(fs_base) as i64;
            if i32::try_from(offset).is_ok() {
                facts.rseq_offset = offset;
                facts.signature = rseq.signature;
                facts.path = Path::Rseq;
            }
        }
        Ok(facts)
    }

    /// A neighbourhood for this text, mapped in this process, with our session in it: its index.
    fn settle(&mut self, low: u64, high: u64) -> Result<usize> {
        let here =
            |n: &Neighbourhood, maps: &Maps| maps.find(n.address()).is_some_and(|r| r.inode == n.inode);
        let mapped =
            self.core.neighbourhoods.iter().position(|n| n.reaches(low, high) && here(n, &self.maps));
        if let Some(at) = mapped {
            self.complete(at)?;
            return self.enter_session(at).map(|()| at);
        }
        let facts = self.thread_facts()?;
        let shared = self.core.neighbourhoods.iter().position(|n| {
            let header = n.space.header();
            let is_alike = header.rseq_signature == facts.signature
                && header.path.load(std::sync::atomic::Ordering::Acquire) == facts.path as u32
                && header.rseq_offset.load(std::sync::atomic::Ordering::Acquire) == facts.rseq_offset
                && header.tid_offset.load(std::sync::atomic::Ordering::Acquire) == facts.tid_offset;
            let ring_is_free = n.session(self.core.generation()).is_none_or(|index| {
                let address = n.space.header().sessions[usize::from(index)].ring_address;
                self.can_have_ring(address)
            });
            is_alike
                && ring_is_free
                && n.reaches(low, high)
                && self.room.check(n.address(), Neighbourhood::RESERVED).is_ok()
        });
        if let Some(at) = shared {
            self.map_neighbourhood(at)?;
            return self.enter_session(at).map(|()| at);
        }
        // The program's other threads map memory, too, and may be quicker.
        for tries_left in (0..4).rev() {
            let address = self.room.near((low, high), Neighbourhood::RESERVED)?;
            let fresh = Neighbourhood::create(address, facts.signature)?;
            fresh.space.set_path(facts.path, facts.rseq_offset, facts.tid_offset);
            self.core.neighbourhoods.push(fresh);
            let at = self.core.neighbourhoods.len() - 1;
            match self.map_neighbourhood(at) {
                Ok(()) => return self.enter_session(at).map(|()| at),
                Err(Error::CallFailed { errno: libc::EEXIST, .. }) if tries_left > 0 => {
                    self.core.neighbourhoods.pop();
                    self.refresh()?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Error::NoRoom { pid: self.pid(), near: low })
    }

    fn map_neighbourhood(&mut self, at: usize) -> Result<()> {
        let n = &self.core.neighbourhoods[at];
        n.fault_in()?;
        let (address, len, page, inode) = (n.address(), n.len(), n.process_page(), n.inode);
        let file = n.file().try_clone_to_owned().map_err(Error::io("keep the stub space open"))?;
        let fd = self.pass(inode, file.as_fd())?;
        let pid = self.pid();
        let results = self.entered.calls(&[
            Call::new("map", libc::SYS_mmap, [address, len, EXECUTABLE, SHARED | FREE, fd, 0]),
            Call::new(
                "map",
                libc::SYS_mmap,
                [
                    page,
                    PRIVATE_BYTES,
                    WRITABLE,
                    (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64 | FREE,
                    NO_FILE,
                    0,
                ],
            ),
            Call::new("advise", libc::SYS_madvise, [page, PAGE, MADV_WIPEONFORK, 0, 0, 0]),
        ])?;
        let outcome = results.iter().try_for_each(|r| check(pid, "map stubs", *r).map(drop));
        if let Err(error) = outcome {
            // Nobody knows of the half that was mapped, so it can go again.
            let halves = [(address, len), (page, PRIVATE_BYTES)];
            let calls: Vec<Call> = halves
                .into_iter()
                .zip(&results)
                .filter(|((start, _), result)| **result as u64 == *start)
                .map(|((start, len), _)| Call::new("unmap", libc::SYS_munmap, [start, len, 0, 0, 0, 0]))
                .collect();
            self.entered.calls(&calls)?;
            if let Some(fd) = self.passed.remove(&inode) {
                self.entered.calls(&[Call::new("close", libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0])])?;
            }
            return Err(error);
        }
        self.refresh()?;
        self.entered.use_lists(&self.core.neighbourhoods[at], &self.maps);
        Ok(())
    }

    /// What a process forked in the middle of an injection may lack.
    fn complete(&mut self, at: usize) -> Result<()> {
        let n = &self.core.neighbourhoods[at];
        let page = n.process_page();
        if n.has_private_pages(&self.maps) {
            self.entered.use_lists(n, &self.maps);
            return Ok(());
        }
        let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        let results = self.entered.calls(&[
            Call::new("map", libc::SYS_mmap, [page, PRIVATE_BYTES, WRITABLE, anonymous | FREE, NO_FILE, 0]),
            Call::new("advise", libc::SYS_madvise, [page, PAGE, MADV_WIPEONFORK, 0, 0, 0]),
        ])?;
        for result in results {
            check(self.pid(), "map stubs", result)?;
        }
        self.refresh()?;
        self.entered.use_lists(&self.core.neighbourhoods[at], &self.maps);
        Ok(())
    }

    /// Whether the ring is, or could be mapped, at this address: over a ring nobody uses any more, or where nothing is.
    fn can_have_ring(&self, address: u64) -> bool {
        let len = self.core.ring.layout().total_bytes;
        match self.maps.find(address) {
            Some(range) => is_ring(range) && range.start == address && range.end == address + len,
            None => self.room.check(address, len).is_ok(),
        }
    }

    fn enter_session(&mut self, at: usize) -> Result<()> {
        let generation = self.core.generation();
        let len = self.core.ring.layout().total_bytes;
        if let Some(index) = self.core.neighbourhoods[at].session(generation) {
            let n = &self.core.neighbourhoods[at];
            let address = n.space.header().sessions[usize::from(index)].ring_address;
            // A copy that another session made has us in it.
            if !self.core.sessions.contains_key(&n.inode)
                && let Some(session) = n.space.session_again(index, *self.core.ring.layout())
            {
                self.core.sessions.insert(n.inode, session);
            }
            return self.map_ring(Some(address)).map(drop);
        }
        let space = &self.core.neighbourhoods[at].space;
        let left = space.left_session(len).filter(|(_, address)| self.can_have_ring(*address));
        let (index, address) = match left {
            Some((index, address)) => (index, self.map_ring(Some(address))?),
            None => {
                let index = space
                    .free_session()
                    .ok_or(Error::SpaceFull { pid: self.pid(), what: "table of sessions" })?;
                (index, self.map_ring(None)?)
            }
        };
        let facts = SessionFacts {
            tracer_pid: std::process::id(),
            tracer_start: process::start_time(std::process::id() as i32).unwrap_or(0),
            generation,
            ring_address: address,
            ring_inode: self.core.ring_inode,
            layout: *self.core.ring.layout(),
        };
        let session = self.core.neighbourhoods[at].space.enter_session(index, &facts).map_err(stub_failed)?;
        self.core.sessions.insert(self.core.neighbourhoods[at].inode, session);
        Ok(())
    }

    /// Maps the ring, at `address` if it must be there; its address.
    fn map_ring(&mut self, address: Option<u64>) -> Result<u64> {
        let len = self.core.ring.layout().total_bytes;
        let inode = self.core.ring_inode;
        let own = self.maps.ranges.iter().find(|r| {
            r.inode == inode && r.offset == 0 && is_ring(r) && address.is_none_or(|a| a == r.start)
        });
        if let Some(range) = own {
            return Ok(range.start);
        }
        let flags = match address {
            Some(address) if self.maps.find(address).is_some() => SHARED | REPLACE,
            Some(_) => SHARED | FREE,
            None => SHARED,
        };
        let file = self.core.ring_file.try_clone().map_err(Error::io("keep the ring open"))?;
        let fd = self.pass(inode, file.as_fd())?;
        let call = Call::new("map", libc::SYS_mmap, [address.unwrap_or(0), len, WRITABLE, flags, fd, 0]);
        let at = self.entered.call(call)?;
        self.refresh()?;
        Ok(at)
    }

    /// Everything for one site but the change of its code: verified, thunk, stub and landing written.
    fn prepare(
        &mut self,
        at: usize,
        object: &WantedObject,
        wanted: &super::session::Wanted,
    ) -> std::result::Result<(OpenSite, Vec<u64>), Failure> {
        let address = object.bias.wrapping_add(wanted.site.address);
        let code = &wanted.site.code;
        let range = self.maps.find(address).filter(|r| r.is_executable && !r.is_shared);
        if range.is_none() || code.is_empty() {
            return Err(Refusal::NotMapped.into());
        }
        // What the next site looks like is its own affair.
        let until = object.next_site(wanted.site.address).unwrap_or(u64::MAX).min(16) as usize;
        let now = self.entered.memory.read_vec(address, code.len().min(until)).map_err(Failure::All)?;
        let mut refusal = Refusal::NotANop { bytes: code.iter().take(5).copied().collect() };
        let mut pun = None;
        let ways = if wanted.event == LIBRARY_EVENT {
            libraries::ways(address, code)
        } else {
            ways(address, code, object.next_site(wanted.site.address))
        };
        for way in ways? {
            match self.prepare_way(at, object, wanted, address, &now, &way) {
                Ok(done) => return Ok(done),
                Err(Failure::Site(reason)) => refusal = reason,
                Err(all) => return Err(all),
            }
            pun = (way.tactic == Tactic::Pun).then_some(Way { is_narrow: true, ..way });
        }
        match self.way_by_moving(at, object, wanted, &now, refusal, pun.as_ref()) {
            Ok(way) => self.prepare_way(at, object, wanted, address, &now, &way),
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Whether the instructions of a site that could not be opened otherwise may be moved; else why it stays closed.
    fn way_by_moving(
        &self,
        at: usize,
        object: &WantedObject,
        wanted: &super::session::Wanted,
        now: &[u8],
        refusal: Refusal,
        narrow_pun: Option<&Way>,
    ) -> std::result::Result<Way, Refusal> {
        if wanted.event == LIBRARY_EVENT || wanted.site.code.first() != Some(&0x90) {
            return Err(refusal);
        }
        let n = &self.core.neighbourhoods[at];
        let address = object.bias.wrapping_add(wanted.site.address);
        let known = n.space.site(address);
        let (behind, relocation) = (Way::behind(address), Way::relocation(address));
        // Another session has moved them; ours is one more on the same way.
        for way in [behind, relocation] {
            let from = (way.patch - address) as usize;
            let patched = known.as_ref().and_then(|site| way.patched(site.thunk));
            if patched.is_some_and(|patched| now.get(from..).is_some_and(|now| now.starts_with(&patched))) {
                return Ok(way);
            }
        }
        if !matches!(refusal, Refusal::LandingTaken { .. }) {
            return Err(refusal);
        }
        let why_not = |reason: &str| {
            Err(Refusal::NotMovable { landing: Box::new(refusal.clone()), reason: reason.to_owned() })
        };
        // The way on behind a site is one for all its sessions.
        let is_other_way = |tail: &Tail| known.is_some() && !n.space.goes_on(address, tail);
        let code = &wanted.site.code[1..];
        let is_clear = object.next_site(wanted.site.address).is_none_or(|distance| distance > WINDOW);
        let mut verdict = Err(refusal.clone());
        if is_clear
            && let Some(tail) = plan_instruction(code, address + 1)
            && !is_other_way(&tail)
        {
            match object.fixed.get().check_behind(wanted.site.address) {
                Ok(()) => return Ok(behind),
                Err(reason) => verdict = why_not(reason),
            }
        }
        if let Some(pun) = narrow_pun
            && pun.landing.is_some_and(|landing| self.landing_pages(n, landing, true).is_ok())
        {
            return Ok(*pun);
        }
        if !self.core.can_relocate {
            return verdict;
        }
        if let Err(reason) = object.fixed.get().check(wanted.site.address) {
            return why_not(reason);
        }
        let Some(tail) = plan_relocation(code, address + 1, WINDOW as usize - 1) else {
            return why_not("one of them works only where it is");
        };
        if is_other_way(&tail) {
            return why_not("an earlier session opened it otherwise");
        }
        for page in pages_of(address) {
            let is_writable = self.maps.find(page).is_none_or(|r| r.is_writable);
            if is_writable && !n.relocations().any(|other| pages_of(other).contains(&page)) {
                return why_not("the program can write to them");
            }
        }
        Ok(relocation)
    }

    /// Moved instructions lie in pages that are writable: the kernel puts no breakpoint there, which would lead into the
    /// middle of the jump. Sites whose pages cannot be made so are given up.
    fn unlock_pages(&mut self, ready: &mut Vec<Ready>, reports: &mut [SiteReport]) -> Result<()> {
        let mut pages: Vec<u64> = ready
            .iter()
            .filter(|r| r.site.tactic == Tactic::Relocate)
            .flat_map(|r| pages_of(r.site.address))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        let calls: Vec<Call> = pages.iter().map(|page| protect(*page, EXECUTABLE | WRITABLE)).collect();
        if calls.is_empty() {
            return Ok(());
        }
        let results = self.entered.calls(&calls)?;
        let failed: Vec<u64> =
            pages.into_iter().zip(results).filter(|(_, result)| *result != 0).map(|(page, _)| page).collect();
        ready.retain(|r| {
            let is_hit = r.site.tactic == Tactic::Relocate
                && pages_of(r.site.address).iter().any(|page| failed.contains(page));
            if is_hit {
                let reason = "the system does not let code be changed by the program itself";
                reports[r.report].outcome = Err(Refusal::Stub(reason.into()));
            }
            !is_hit
        });
        Ok(())
    }

    fn prepare_way(
        &mut self,
        at: usize,
        object: &WantedObject,
        wanted: &super::session::Wanted,
        address: u64,
        now: &[u8],
        way: &Way,
    ) -> std::result::Result<(OpenSite, Vec<u64>), Failure> {
        let n = &self.core.neighbourhoods[at];
        let code = &wanted.site.code[..now.len()];
        let from = (way.patch - address) as usize;
        let after = from + way.patch_len();
        // All but the bytes to be changed must be the file's; before them somebody else may have a breakpoint.
        if now[after..] != code[after..] {
            return Err(Refusal::BytesChanged { found: now.to_vec() }.into());
        }
        let landing_pages = match way.landing {
            Some(landing) => self.landing_pages(n, landing, way.is_narrow)?,
            None => Vec::new(),
        };
        let identity = ObjectIdentity { link_address: wanted.site.address, ..object.identity };
        let tail = match way.tactic {
            _ if wanted.event == LIBRARY_EVENT => Tail::ret(),
            Tactic::Relocate => plan_relocation(&wanted.site.code[1..], way.resume, WINDOW as usize - 1)
                .ok_or(Failure::Site(Refusal::OutOfReach))?,
            Tactic::Behind => plan_instruction(&wanted.site.code[1..], way.resume)
                .ok_or(Failure::Site(Refusal::OutOfReach))?,
            // After a session that moved the instruction behind the nop: its way on is right for the nop, too.
            Tactic::Pun => plan_instruction(&wanted.site.code[1..], way.resume)
                .filter(|tail| n.space.goes_on(address, tail))
                .unwrap_or_else(|| plan_tail(&code[1..], way.resume)),
            _ if way.is_tail_copied => plan_tail(&code[1..], way.resume),
            _ => Tail::to(way.resume),
        };
        let site = n.space.add_site(address, &tail, identity).map_err(stub_refused)?;
        let patched = way.patched(site.thunk).ok_or(Failure::Site(Refusal::OutOfReach))?;
        let patch = Patch { address: way.patch, original: code[from..after].to_vec(), patched };
        match patch.found(self.entered.memory).map_err(Failure::All)? {
            Found::Original | Found::Ours => {}
            Found::Breakpoint => return Err(Refusal::Breakpoint.into()),
            Found::Other(_) => return Err(Refusal::BytesChanged { found: now.to_vec() }.into()),
        }
        if let Some(to) = way.landing
            && !n.write_landing(to, &landing(to, site.thunk)).map_err(Failure::All)?
        {
            return Err(Refusal::LandingTaken { address: to, by: "another probe's landing".into() }.into());
        }
        let known = self.core.stubs.get(&(n.inode, address));
        if known.is_none() {
            let session = self.core.sessions.get(&n.inode).ok_or(Failure::Site(Refusal::OutOfReach))?;
            let spec = StubSpec {
                event: wanted.event,
                predicates: wanted.predicates.clone(),
                action: wanted.action.clone(),
                load_bias: object.bias,
                own_file: object.own_file.clone(),
            };
            let chained = n.space.chained_stub(&site, session, &spec).map_err(stub_refused)?;
            let (stub, is_linked) = match chained {
                Some(stub) => (stub, true),
                None => (n.space.add_stub(&site, session, &spec).map_err(stub_refused)?, false),
            };
            self.core.layouts.entry(wanted.event).or_insert_with(|| stub.layout.clone());
            self.core.stubs.insert((n.inode, address), (stub, is_linked));
        }
        let semaphore = wanted.site.semaphore.map(|s| object.bias.wrapping_add(s.address));
        let open = OpenSite {
            probe: wanted.probe.clone(),
            address,
            tactic: way.tactic,
            patch,
            semaphore,
            space: n.address(),
        };
        Ok((open, landing_pages))
    }

    /// The pages a landing needs: each already ours in this process, or free.
    fn landing_pages(
        &self,
        n: &Neighbourhood,
        landing: u64,
        is_narrow: bool,
    ) -> std::result::Result<Vec<u64>, Failure> {
        // The longest form of a landing is 14 bytes.
        let first = landing & !(PAGE - 1);
        let last = landing.wrapping_add(13) & !(PAGE - 1);
        let pages = if first == last { vec![first] } else { vec![first, last] };
        for page in &pages {
            let is_ours = self.maps.find(*page).is_some_and(|r| r.inode == n.inode);
            if is_ours && n.landing_pages().iter().any(|(address, _)| address == page) {
                continue;
            }
            let verdict =
                if is_narrow { self.room.check_narrowly(*page, PAGE) } else { self.room.check(*page, PAGE) };
            if let Err(by) = verdict {
                return Err(Refusal::LandingTaken { address: landing, by }.into());
            }
        }
        Ok(pages)
    }

    fn map_landings(&mut self, ready: &mut Vec<Ready>, reports: &mut [SiteReport]) -> Result<()> {
        for at in 0..self.core.neighbourhoods.len() {
            let n = &self.core.neighbourhoods[at];
            let mut pages: Vec<u64> = ready
                .iter()
                .filter(|r| r.neighbourhood == at)
                .flat_map(|r| r.landing_pages.clone())
                .collect();
            pages.sort_unstable();
            pages.dedup();
            // A second page is needed only where a landing was written across the end of the first.
            let known = n.landing_pages();
            let missing: Vec<(u64, u64)> = pages
                .into_iter()
                .filter_map(|page| known.iter().find(|(a, _)| *a == page).copied())
                .filter(|(page, _)| self.maps.find(*page).is_none())
                .collect();
            if missing.is_empty() {
                continue;
            }
            n.fault_in()?;
            let file = n.file().try_clone_to_owned().map_err(Error::io("keep the stub space open"))?;
            let fd = self.pass(self.core.neighbourhoods[at].inode, file.as_fd())?;
            let calls: Vec<Call> = missing
                .iter()
                .map(|(page, offset)| {
                    Call::new("map", libc::SYS_mmap, [*page, PAGE, EXECUTABLE, SHARED | FREE, fd, *offset])
                })
                .collect();
            let results = self.entered.calls(&calls)?;
            for ((page, _), result) in missing.iter().zip(results) {
                if result as u64 == *page {
                    continue;
                }
                let by = format!(
                    "something mapped meanwhile ({})",
                    std::io::Error::from_raw_os_error(-result as i32)
                );
                ready.retain(|r| {
                    let is_hit = r.neighbourhood == at && r.landing_pages.contains(page);
                    if is_hit {
                        reports[r.report].outcome =
                            Err(Refusal::LandingTaken { address: *page, by: by.clone() });
                    }
                    !is_hit
                });
            }
        }
        Ok(())
    }

    /// Where a site could not be relocated after all, the others of its page are not either: see [`spare_kernel_pages`].
    fn give_back_pages(
        &mut self,
        ready: &[Ready],
        outcome: &mut [Option<Found>],
        held: &[(i32, u64)],
    ) -> Result<()> {
        let relocated: Vec<usize> =
            (0..ready.len()).filter(|i| ready[*i].site.tactic == Tactic::Relocate).collect();
        let failed = relocated.iter().filter(|i| outcome[**i].is_some());
        let mut pages: Vec<u64> = failed.flat_map(|i| pages_of(ready[*i].site.address)).collect();
        // A session that was here before has its own reasons.
        if pages.is_empty() || self.core.neighbourhoods.iter().any(|n| n.sessions().len() > 1) {
            return Ok(());
        }
        while let Some(i) = relocated.iter().copied().find(|i| {
            outcome[*i].is_none() && pages_of(ready[*i].site.address).iter().any(|page| pages.contains(page))
        }) {
            let patch = std::slice::from_ref(&ready[i].site.patch);
            apply(self.entered.memory, patch, Direction::Out, held)?;
            outcome[i] = Some(Found::Other(Vec::new()));
            pages.extend(pages_of(ready[i].site.address));
        }
        pages.sort_unstable();
        pages.dedup();
        let calls: Vec<Call> = pages.iter().map(|page| protect(*page, EXECUTABLE)).collect();
        for result in self.entered.calls(&calls)? {
            check(self.pid(), "make code read-only again", result)?;
        }
        Ok(())
    }

    /// What will be changed is written down before anything is.
    fn journal_patches(&self, ready: &[Ready]) -> Result<()> {
        for r in ready {
            self.core.neighbourhoods[r.neighbourhood].journal_once(&Entry {
                kind: JournalKind::Patch,
                session: NO_SESSION,
                length: r.site.patch.original.len() as u16,
                address: r.site.patch.address,
                code: 0,
                slot: u32::from(r.site.tactic == Tactic::Relocate),
                extent: (r.site.patch.address - r.site.address) as u32,
                pid: 0,
                object: ObjectIdentity::default(),
            })?;
        }
        Ok(())
    }

    /// The change itself. Semaphores first, so that whoever finds a changed site knows that they were raised.
    fn arm(&mut self, mut ready: Vec<Ready>, reports: &mut [SiteReport]) -> Result<Vec<OpenSite>> {
        let memory = self.entered.memory;
        for r in &mut ready {
            let n = &self.core.neighbourhoods[r.neighbourhood];
            let Some(session) = self.core.sessions.get(&n.inode) else { continue };
            if let Some(semaphore) = r.site.semaphore {
                let entry = Entry {
                    kind: JournalKind::Semaphore,
                    session: session.index,
                    length: 1,
                    address: semaphore,
                    code: 0,
                    slot: 0,
                    extent: 0,
                    pid: 0,
                    object: ObjectIdentity::default(),
                };
                let index = n.journal_once(&entry)?;
                Ledger::new(memory, n.ledger()).raise(index, semaphore)?;
                r.entry_semaphore = Some(index);
            }
            if let Some((stub, is_linked)) = self.core.stubs.get_mut(&(n.inode, r.site.address))
                && !*is_linked
            {
                n.space.link(stub);
                *is_linked = true;
            }
        }
        let patches: Vec<Patch> = ready.iter().map(|r| r.site.patch.clone()).collect();
        let here = self.entered.hijack.original().map_or(0, |r| r.rip);
        let held = [(self.entered.hijack.tid(), here)];
        let mut outcome = apply(memory, &patches, Direction::In, &held)?;
        // A thread that stands between the instructions to be moved is soon past them, unless it is the borrowed one.
        for _ in 0..RELOCATION_TRIES {
            let is_stuck = |i: &usize| {
                ready[*i].site.tactic == Tactic::Relocate && outcome[*i] == Some(Found::Other(Vec::new()))
            };
            let stuck: Vec<usize> = (0..ready.len()).filter(is_stuck).collect();
            if stuck.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            let again: Vec<Patch> = stuck.iter().map(|i| patches[*i].clone()).collect();
            for (i, found) in stuck.into_iter().zip(apply(memory, &again, Direction::In, &held)?) {
                outcome[i] = found;
            }
        }
        self.give_back_pages(&ready, &mut outcome, &held)?;
        let is_used = |semaphore| {
            ready
                .iter()
                .zip(&outcome)
                .any(|(r, found)| found.is_none() && r.site.semaphore == Some(semaphore))
        };
        for (r, _) in ready.iter().zip(&outcome).filter(|(_, found)| found.is_some()) {
            if let (Some(index), Some(semaphore)) = (r.entry_semaphore, r.site.semaphore)
                && !is_used(semaphore)
            {
                let n = &self.core.neighbourhoods[r.neighbourhood];
                Ledger::new(memory, n.ledger()).lower(index, semaphore)?;
            }
        }
        let mut sites = Vec::with_capacity(ready.len());
        for (r, found) in ready.into_iter().zip(outcome) {
            match found {
                None => sites.push(r.site),
                Some(found) => {
                    reports[r.report].outcome = Err(match found {
                        Found::Breakpoint => Refusal::Breakpoint,
                        Found::Other(bytes) if bytes.is_empty() => Refusal::ThreadInside,
                        Found::Other(bytes) => Refusal::BytesChanged { found: bytes },
                        Found::Ours | Found::Original => Refusal::BytesChanged { found: Vec::new() },
                    });
                }
            }
        }
        Ok(sites)
    }
}

/// The kernel door opens nothing in a page that is writable: no site is relocated in one where another is left to it.
fn spare_kernel_pages(ready: &mut Vec<Ready>, reports: &mut [SiteReport]) {
    loop {
        let refused = reports.iter().filter(|r| r.outcome.is_err());
        let pages: Vec<u64> = refused.map(|r| r.address & !(PAGE - 1)).collect();
        let before = ready.len();
        ready.retain(|r| {
            let is_hit = r.site.tactic == Tactic::Relocate
                && pages_of(r.site.address).iter().any(|page| pages.contains(page));
            if is_hit {
                let reason = "instructions beside those of a probe for the kernel door cannot be moved";
                reports[r.report].outcome = Err(Refusal::Stub(reason.into()));
            }
            !is_hit
        });
        if ready.len() == before {
            return;
        }
    }
}

fn is_ring(range: &crate::target::Mapping) -> bool {
    range.is_shared && range.is_called(super::session::RING_NAME)
}

/// A failure of one site, or of the whole process.
enum Failure {
    Site(Refusal),
    All(Error),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Site(refusal)
    }
}

fn stub_refused(error: super::stub::StubError) -> Failure {
    use super::stub::StubError as E;
    match error {
        E::SpaceFull { .. } | E::JournalFull => Failure::All(stub_failed(error)),
        other => Failure::Site(Refusal::Stub(other.to_string())),
    }
}
