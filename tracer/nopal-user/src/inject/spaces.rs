//! What a process must have mapped before a site of it can be opened: its stub spaces, found or made, and the ring.

use super::{EXECUTABLE, FREE, MADV_WIPEONFORK, NO_FILE, PAGE, REPLACE, SHARED, WRITABLE, Work};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::hijack::{Call, check};
use crate::left_fds;
use crate::maps::{Maps, is_memfd};
use crate::memory::Memory;
use crate::neighbourhood::{Neighbourhood, PRIVATE_BYTES, spaces_in, stub_failed};
use crate::pass_fd::Caller;
use crate::pass_fd::pass_fds;
use crate::process;
use crate::ring::RING_NAME;
use crate::room::far_from_code;
use crate::sandbox;
use crate::stub::space::{SessionFacts, ThreadPath};
use crate::wanted::WantedObject;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;

impl Work<'_, '_> {
    /// Stub spaces an earlier session left here, if they are near what is wanted: each is replaced by a copy that we
    /// can write to, mapped over it.
    pub(super) fn adopt_spaces(&mut self, objects: &[WantedObject]) -> Result<()> {
        self.close_left()?;
        let found: Vec<(u64, u64)> = spaces_in(&self.maps).iter().map(|r| (r.start, r.inode)).collect();
        let has_any = !found.is_empty();
        for (address, inode) in found {
            let known = self.core.neighbourhoods.iter().position(|n| n.inode == inode);
            if let Some(known) = known.map(|at| &self.core.neighbourhoods[at])
                && known.ring == self.ring
            {
                self.entered.use_lists(known, &self.maps);
                continue;
            }
            let at = match (self.core.adopted.get(&(inode, self.ring)), known) {
                // A relative of this process shares the original; it shares the copy as well, if it has what the copy's
                // stubs need.
                (Some(at), _) if self.can_share(*at) => {
                    let at = *at;
                    let reused = self.core.neighbourhoods[at].reused.clone();
                    if !reused.is_empty() && !self.is_nobody_in(&reused)? {
                        return Err(Error::Busy { pid: self.pid() });
                    }
                    at
                }
                // It was a relative's when this process was what that one is.
                (_, Some(known)) => self.make_twin(known)?,
                (_, None) => {
                    let mut copy = match self.copies.remove(&inode) {
                        Some(copy) => copy,
                        None => Neighbourhood::copy_of(self.entered.memory, address)?,
                    };
                    if !objects.iter().any(|o| copy.reaches(o.text().0, o.text().1)) {
                        self.entered.use_lists(&copy, &self.maps);
                        continue;
                    }
                    // Before the stubs of killed tracers are taken out, which threads can still come to.
                    if copy.space.is_tight() {
                        self.make_room_in(&mut copy)?;
                    }
                    copy.bury_dead_sessions();
                    self.supersede(copy.of_ring(self.ring))
                }
            };
            self.core.adopted.insert((inode, self.ring), at);
            let copy = &self.core.neighbourhoods[at];
            self.entered.use_lists(copy, &self.maps);
            copy.fault_in()?;
            let file = copy.file().try_clone_to_owned().map_err(Error::io("keep the stub space open"))?;
            let fd = self.pass(copy.inode, file.as_fd())?;
            // Before its stubs: whoever can come to them, in this process or in one that is forked at this moment, must
            // have the ring.
            if !objects.is_empty() && !self.has_ring_of(at) {
                self.enter_session(at)?;
            }
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
            for result in self.calls_in_slices(&calls)? {
                check(self.pid(), "map stubs", result)?;
            }
        }
        if has_any { self.refresh() } else { Ok(()) }
    }

    /// Whether this process has the rings of all sessions in one of our spaces, and room for our own: their stubs run as
    /// soon as the space is mapped.
    fn can_share(&self, at: usize) -> bool {
        let generation = self.core.generation();
        let lines = self.core.neighbourhoods[at].space.session_lines();
        lines.filter(|(_, line)| line.is_live).all(|(_, line)| match line.generation == generation {
            true => self.can_have_ring(line.ring_address),
            false => self.is_ring_at(line.ring_address),
        })
    }

    /// Whether there is a ring where our session in one of our spaces has it.
    fn has_ring_of(&self, at: usize) -> bool {
        let n = &self.core.neighbourhoods[at];
        let index = n.session(self.core.generation());
        index.is_some_and(|index| self.is_ring_at(n.space.session_line(index).ring_address))
    }

    fn is_ring_at(&self, address: u64) -> bool {
        self.maps.find(address).is_some_and(|range| is_ring(range) && range.start == address)
    }

    /// Keeps a copy: in the place of our own space that another session has replaced here, if there is one, so that
    /// sessions that take turns do not pile copies up. Its index.
    fn supersede(&mut self, copy: Neighbourhood) -> usize {
        let has_us = copy.session(self.core.generation()).is_some();
        let is_old = |n: &Neighbourhood| has_us && n.address() == copy.address() && n.ring == copy.ring;
        let Some(at) = self.core.neighbourhoods.iter().position(is_old) else {
            self.core.neighbourhoods.push(copy);
            return self.core.neighbourhoods.len() - 1;
        };
        let old = std::mem::replace(&mut self.core.neighbourhoods[at], copy);
        self.core.sessions.remove(&old.inode);
        self.core.stubs.retain(|(inode, _), _| *inode != old.inode);
        // Whoever has one of the spaces that the old one stood for may lack what is in the new one.
        self.core.adopted.retain(|_, place| *place != at);
        at
    }

    /// Makes the code of sessions that have left room for others, if no thread can come back to it.
    fn make_room_in(&mut self, copy: &mut Neighbourhood) -> Result<()> {
        let disused = copy.space.disused();
        let code = disused.addresses(copy.address());
        if !code.is_empty() && self.is_nobody_in(&code)? {
            copy.space.reclaim(disused);
            copy.reused = code;
        }
        Ok(())
    }

    /// A copy of a space of ours for the processes of another ring, with everything in it that we know of the original.
    fn make_twin(&mut self, known: usize) -> Result<usize> {
        let original = &self.core.neighbourhoods[known];
        let (from, twin) = (original.inode, original.twin()?.of_ring(self.ring));
        let to = twin.inode;
        let at = self.supersede(twin);
        if let Some(session) = self.core.sessions.get(&from).copied() {
            self.core.sessions.insert(to, session);
        }
        let stubs: Vec<_> = self
            .core
            .stubs
            .iter()
            .filter(|((inode, _), _)| *inode == from)
            .map(|((_, address), stub)| ((to, *address), stub.clone()))
            .collect();
        self.core.stubs.extend(stubs);
        Ok(at)
    }

    /// The ring of this process's like, and its inode.
    pub(super) fn own_ring(&self) -> Result<(File, u64)> {
        let domain = self.core.domains.get(self.ring).ok_or(Error::Gone { pid: self.pid() })?;
        let file = domain.file.try_clone().map_err(Error::io("keep the ring open"))?;
        Ok((file, domain.inode))
    }

    /// The target's descriptor for one of our files. The ring is passed along if it will be needed: one round less.
    pub(super) fn pass(&mut self, inode: u64, file: std::os::fd::BorrowedFd<'_>) -> Result<u64> {
        if let Some(fd) = self.passed.get(&inode) {
            return Ok(*fd as u64);
        }
        let (ring, ring_inode) = self.own_ring()?;
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
        self.entered.note(self.passed.values().copied())?;
        Ok(self.passed.get(&inode).map_or(NO_FILE, |fd| *fd as u64))
    }

    pub(super) fn close_passed(&mut self) -> Result<()> {
        if self.passed.is_empty() {
            return self.entered.note_nothing();
        }
        let calls: Vec<Call> = self
            .passed
            .drain()
            .map(|(_, fd)| Call::new("close", libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]))
            .collect();
        self.entered.calls(&calls)?;
        self.entered.note_nothing()
    }

    /// Closes what a tracer that was killed in the middle of this had open here.
    fn close_left(&mut self) -> Result<()> {
        let memory = self.entered.memory;
        let pages: Vec<u64> = spaces_in(&self.maps).iter().map(|r| r.end).collect();
        for page in pages {
            let left = left_fds::left_in(memory, page);
            if !left.is_empty() {
                self.entered.calls(&left_fds::closing(&left))?;
                left_fds::forget(memory, page)?;
            }
        }
        Ok(())
    }

    /// A neighbourhood for this text, mapped in this process, with our session in it: its index.
    pub(super) fn settle(&mut self, low: u64, high: u64) -> Result<usize> {
        let here =
            |n: &Neighbourhood, maps: &Maps| maps.find(n.address()).is_some_and(|r| r.inode == n.inode);
        let mapped =
            self.core.neighbourhoods.iter().position(|n| n.reaches(low, high) && here(n, &self.maps));
        if let Some(at) = mapped {
            self.complete(at)?;
            return self.enter_session(at).map(|()| at);
        }
        let facts = self.thread_facts()?;
        self.relax()?;
        let shared = (0..self.core.neighbourhoods.len()).find(|at| {
            let n = &self.core.neighbourhoods[*at];
            let path = ThreadPath {
                path: facts.path as u32,
                rseq_offset: facts.rseq_offset,
                rseq_bytes: facts.rseq_bytes,
                tid_offset: facts.tid_offset,
            };
            let is_alike = n.space.rseq_signature() == facts.signature && n.space.path() == path;
            is_alike
                && n.ring == self.ring
                && n.reaches(low, high)
                && self.can_share(*at)
                && self.room.check(n.address(), Neighbourhood::RESERVED).is_ok()
        });
        if let Some(at) = shared {
            self.map_neighbourhood(at)?;
            return self.enter_session(at).map(|()| at);
        }
        // The program's other threads map memory, too, and may be quicker.
        for tries_left in (0..4).rev() {
            let address = self.room.near((low, high), Neighbourhood::RESERVED)?;
            let fresh = Neighbourhood::create(address, facts.signature)?.of_ring(self.ring);
            fresh.space.set_path(facts.path, facts.rseq_offset, facts.rseq_bytes, facts.tid_offset);
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
        if self.maps.find(address).is_none_or(|range| range.inode != inode) {
            return Err(Error::CallFailed { pid, call: "map stubs", errno: libc::EFAULT });
        }
        self.entered.use_lists(&self.core.neighbourhoods[at], &self.maps);
        sandbox::introduce_spaces(self.entered.memory, &self.maps)
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
        sandbox::introduce_spaces(self.entered.memory, &self.maps)
    }

    /// Whether the ring is, or could be mapped, at this address: over a ring nobody uses any more, or where nothing is.
    fn can_have_ring(&self, address: u64) -> bool {
        let len = self.core.layout().total_bytes;
        match self.maps.find(address) {
            Some(range) => is_ring(range) && range.start == address && range.end == address + len,
            None => self.room.check(address, len).is_ok(),
        }
    }

    fn enter_session(&mut self, at: usize) -> Result<()> {
        let generation = self.core.generation();
        let len = self.core.layout().total_bytes;
        if let Some(index) = self.core.neighbourhoods[at].session(generation) {
            let n = &self.core.neighbourhoods[at];
            let address = n.space.session_line(index).ring_address;
            // A copy that another session made has us in it.
            if !self.core.sessions.contains_key(&n.inode) {
                let session = n.space.session_again(index, self.core.layout());
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
        self.relax()?;
        let facts = SessionFacts {
            tracer_pid: std::process::id(),
            tracer_start: process::start_time(std::process::id() as i32).unwrap_or(0),
            generation,
            ring_address: address,
            ring_inode: self.own_ring()?.1,
            layout: self.core.layout(),
        };
        let session = self.core.neighbourhoods[at].space.enter_session(index, &facts).map_err(stub_failed)?;
        self.core.sessions.insert(self.core.neighbourhoods[at].inode, session);
        Ok(())
    }

    /// Maps the ring, at `address` if it must be there; its address.
    fn map_ring(&mut self, address: Option<u64>) -> Result<u64> {
        let len = self.core.layout().total_bytes;
        let (file, inode) = self.own_ring()?;
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
        let fd = self.pass(inode, file.as_fd())?;
        // Where the kernel would put it, jumps of sites may have to land.
        let place = address.or_else(|| far_from_code(&self.maps, len)).unwrap_or(0);
        let call = Call::new("map", libc::SYS_mmap, [place, len, WRITABLE, flags, fd, 0]);
        let at = self.entered.call(call)?;
        self.refresh()?;
        // What the process says of its calls is not always so.
        match self.maps.find(at) {
            Some(range) if range.start == at && range.inode == inode => Ok(at),
            _ => Err(Error::CallFailed { pid: self.pid(), call: "map a ring", errno: libc::EFAULT }),
        }
    }
}

/// Copies of the stub spaces in a process that are not ours, by inode: reading them takes long.
pub(super) fn copies(
    core: &Core,
    ring: usize,
    memory: &Memory,
    maps: &Maps,
) -> Result<HashMap<u64, Neighbourhood>> {
    let is_foreign = |inode: u64| {
        !core.neighbourhoods.iter().any(|n| n.inode == inode) && !core.adopted.contains_key(&(inode, ring))
    };
    let foreign = spaces_in(maps).into_iter().filter(|range| is_foreign(range.inode));
    foreign.map(|range| Ok((range.inode, Neighbourhood::copy_of(memory, range.start)?))).collect()
}

pub(super) fn is_ring(range: &nopal_proc::Mapping) -> bool {
    range.is_shared && is_memfd(range, RING_NAME)
}
