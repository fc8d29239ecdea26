//! Moves a process that has become somebody else to a ring and stubs of its own: both are mapped over those that it shared
//! with others, at the same addresses.

use super::{NO_FILE, REPLACE, SHARED, WRITABLE, Work};
use crate::core::Core;
use crate::enter::{Entered, wait_until_idle};
use crate::error::{Error, Result};
use crate::hijack::{Call, Hijack, check};
use crate::memory::Memory;
use crate::neighbourhood::{Neighbourhood, spaces_in};
use crate::pass_fd::Caller;
use crate::process;
use crate::room::Room;
use crate::stopped_thread::{Lock, stop_all};
use nopal_abi::stub_space::ProcessPage;
use nopal_proc::Mapping;
use nopal_proc::ptrace;
use std::collections::HashMap;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::time::Duration;

/// A thread in a stub is soon out of it. One that never is spoils nothing but its own ring.
const TRIES: usize = 20;

/// Gives a process this ring of the session in place of every other; without one, memory of its own in which nothing is
/// enabled, so that its hits leave nothing.
pub(crate) fn rehouse(core: &mut Core, pid: i32, ring: Option<usize>) -> Result<()> {
    let memory = Memory::open(pid)?;
    let _lock = Lock::take(pid)?;
    wait_until_idle(&memory)?;
    for tries_left in (0..TRIES).rev() {
        let hijack = Hijack::choose(&memory, None)?;
        if process::status(pid)?.seccomp != 0 {
            // What the process may not call is not for us to call either, unless the kernel looks away.
            ptrace::suspend_seccomp(hijack.tid()).map_err(|_| Error::Seccomp { pid, mode: 2 })?;
        }
        let room = Room::read(pid)?;
        let mut work = Work {
            core,
            entered: Entered::new(&memory, hijack),
            maps: room.maps.clone(),
            room,
            // Without one none is mapped.
            ring: ring.unwrap_or(0),
            facts: None,
            passed: HashMap::new(),
            claims: super::claims::Claims::default(),
            handles_faults: None,
            lock: None,
            is_gentle: false,
            copies: HashMap::new(),
        };
        let is_done = work.rehouse(ring, tries_left == 0);
        let closed = work.close_passed();
        let is_done = is_done?;
        closed?;
        work.entered.hijack.restore()?;
        // Its filter holds again only then.
        work.entered.hijack.let_go();
        if is_done {
            return Ok(());
        }
        drop(work);
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::Busy { pid })
}

impl Work<'_, '_> {
    /// False if a thread is in a stub.
    fn rehouse(&mut self, ring: Option<usize>, is_forced: bool) -> Result<bool> {
        let pid = self.pid();
        let file = match ring {
            Some(_) => {
                self.adopt_spaces(&[])?;
                let (file, inode) = self.own_ring()?;
                Some(self.pass(inode, file.as_fd())?)
            }
            None => {
                self.use_any_lists();
                None
            }
        };
        let strange: Vec<(u64, u64)> =
            self.strange_rings(ring).iter().map(|r| (r.start, r.end - r.start)).collect();
        let calls: Vec<Call> = strange
            .iter()
            .map(|(start, len)| {
                let anonymous = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
                let (flags, fd) = file.map_or((anonymous, NO_FILE), |fd| (SHARED, fd));
                Call::new("map", libc::SYS_mmap, [*start, *len, WRITABLE, flags | REPLACE, fd, 0])
            })
            .collect();
        {
            // Whoever is between finding its place in a ring and writing there would do so in the other one.
            let tid = self.entered.hijack.tid();
            let others = stop_all(pid, &[tid])?;
            let mut pointers = vec![self.entered.hijack.original().map_or(0, |regs| regs.rip)];
            for thread in &others {
                pointers.push(ptrace::regs(thread.tid).map_err(Error::on(pid, "read registers"))?.rip);
            }
            let is_inside = |rip: &u64| spaces_in(&self.maps).iter().any(|r| (r.start..r.end).contains(rip));
            if pointers.iter().any(is_inside) && !is_forced {
                return Ok(false);
            }
            for result in self.entered.calls(&calls)? {
                check(pid, "map a ring", result)?;
            }
            if let Some(ring) = ring.and_then(|ring| self.core.domains.rings().get(ring)) {
                self.keep_acquaintance(ring.generation())?;
            }
        }
        self.refresh()?;
        match self.strange_rings(ring).is_empty() {
            true => Ok(true),
            // What it said of its calls is not so.
            false => Err(Error::CallFailed { pid, call: "map a ring", errno: libc::EFAULT }),
        }
    }

    /// A process that has said in one ring who it is does not say it again in the other: it would have to ask the kernel,
    /// which it may have forbidden itself.
    fn keep_acquaintance(&self, generation: u64) -> Result<()> {
        let rings = self.core.domains.rings();
        let known: Vec<u32> = self
            .core
            .domains
            .iter()
            .filter_map(|(ring, _)| rings.get(ring))
            .map(|ring| ring.generation() as u32)
            .collect();
        let is_here = |n: &&Neighbourhood| self.maps.find(n.address()).is_some_and(|r| r.inode == n.inode);
        for n in self.core.neighbourhoods.iter().filter(is_here) {
            let Some(index) = n.session(self.core.generation()) else { continue };
            let at = n.process_page() + (offset_of!(ProcessPage, met) + 8 * usize::from(index)) as u64;
            let met = self.entered.memory.read_u64(at)?;
            if known.contains(&((met >> 32) as u32)) {
                self.entered.memory.write_u64(at, met & u64::from(u32::MAX) | generation << 32)?;
            }
        }
        Ok(())
    }

    /// Mappings of rings of this session, but for the one that this process is to have.
    fn strange_rings(&self, own: Option<usize>) -> Vec<&Mapping> {
        let own = own.and_then(|ring| self.core.domains.get(ring)).map_or(0, |domain| domain.inode);
        let is_strange = |range: &&Mapping| {
            super::spaces::is_ring(range)
                && range.inode != own
                && self.core.domains.iter().any(|(_, domain)| domain.inode == range.inode)
        };
        self.maps.ranges.iter().filter(is_strange).collect()
    }

    fn use_any_lists(&mut self) {
        let here: Vec<u64> = spaces_in(&self.maps).iter().map(|range| range.inode).collect();
        if let Some(n) = self.core.neighbourhoods.iter().find(|n| here.contains(&n.inode)) {
            self.entered.use_lists(n, &self.maps);
        }
    }
}
