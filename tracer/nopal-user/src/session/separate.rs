//! Keeps processes with different credentials apart while a session records: whoever has become another user, has other
//! capabilities or another user namespace, or lets itself no longer be dumped, gets a ring and stubs of its own.
//!
//! A child has the ring of its parent from its first instruction on. If it becomes somebody else, it is moved at the next
//! look, which is at most as far away as the looks of the caller are apart.

use super::Session;
use super::watch::Notice;
use crate::credentials::{Credentials, Info, Pidfd};
use crate::domains::Tenant;
use crate::error::{Error, Result};
use crate::inject::rehouse;
use crate::maps::Maps;
use crate::process;
use crate::traced::ProcessReport;
use nopal_proc::ptrace::in_own_thread;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// What the kernel does not tell in one call is read again this often.
const FULL_LOOK: Duration = Duration::from_millis(200);
/// Who has changed more often than this has a ring to itself.
const RESTLESS: u32 = 4;

/// Who a process was when it was last looked at.
#[derive(Debug)]
pub(super) struct Identity {
    pid: i32,
    /// The pid it knows of itself.
    pub own_pid: u32,
    pub start_time: Option<u64>,
    pidfd: Option<Pidfd>,
    info: Option<Info>,
    credentials: Credentials,
    read_at: Instant,
    n_moves: u32,
    /// Whether it has to be moved.
    is_homeless: bool,
    /// It could not be moved, which has been told.
    is_told: bool,
}

impl Identity {
    pub(super) fn read(pid: i32) -> Result<Identity> {
        let pidfd = Pidfd::open(pid).ok();
        let info = pidfd.as_ref().and_then(Pidfd::info);
        let own_pid = process::status(pid)?.namespace_pid as u32;
        Ok(Identity {
            pid,
            own_pid,
            start_time: process::start_time(pid),
            pidfd,
            info,
            credentials: Credentials::read(pid)?,
            read_at: Instant::now(),
            n_moves: 0,
            is_homeless: false,
            is_told: false,
        })
    }

    /// Whether it is who it was, as far as the kernel tells in one call. False where it does not.
    pub(super) fn is_as_told(&self) -> bool {
        let info = self.pidfd.as_ref().and_then(Pidfd::info);
        info.is_some() && info == self.info && !self.is_homeless
    }

    /// Whether it has to be looked at more closely.
    fn has_changed(&mut self) -> bool {
        let info = self.pidfd.as_ref().and_then(Pidfd::info);
        if info.is_some() && info == self.info && self.read_at.elapsed() < FULL_LOOK {
            return self.is_homeless;
        }
        // One that has ended has none, and is forgotten.
        let Ok(now) = Credentials::read(self.pid) else { return true };
        self.info = info;
        self.read_at = Instant::now();
        if now != self.credentials {
            self.credentials = now;
            self.is_homeless = true;
        }
        self.is_homeless
    }
}

impl Session {
    /// Moves the processes that have become somebody else since the last time.
    pub(super) fn separate_changed(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let changed: Vec<i32> = self
            .identities
            .values_mut()
            .filter_map(|identity| identity.has_changed().then_some(identity.pid))
            .collect();
        for pid in changed {
            let outcome = self.separate(pid);
            let Some(identity) = self.identities.get_mut(&pid) else { continue };
            match outcome {
                Ok(()) => {}
                Err(Error::Gone { .. } | Error::NoSuchProcess { .. })
                    if !process::is_still(pid, identity.start_time) =>
                {
                    self.forget_identity(pid);
                }
                // It has just started another program, and nothing of before is left.
                Err(Error::Gone { .. } | Error::NoSuchProcess { .. }) => {}
                Err(error) => {
                    // It is tried again at every look.
                    if !std::mem::replace(&mut identity.is_told, true) {
                        let error = match error {
                            Error::TooManyRings { .. } => error,
                            error => Error::NotApart { pid, reason: error.to_string() },
                        };
                        notices.push(Notice::Opened(ProcessReport::failed(pid, error)));
                    }
                }
            }
        }
        if self.without_children {
            self.watch_children();
        }
        notices
    }

    /// Children that are not traced have the ring of their parent all the same.
    fn watch_children(&mut self) {
        let below: HashSet<i32> = self.descendants().into_iter().collect();
        self.identities.retain(|pid, _| below.contains(pid) || self.traced.iter().any(|t| t.pid == *pid));
        for pid in below {
            let is_known = self
                .identities
                .get(&pid)
                .is_some_and(|identity| identity.start_time == process::start_time(pid));
            if !is_known && let Ok(identity) = Identity::read(pid) {
                self.identities.insert(pid, identity);
                // An error is found again at the next look.
                let is_apart = self.separate(pid).is_ok();
                if let Some(identity) = self.identities.get_mut(&pid) {
                    identity.is_homeless = !is_apart;
                }
            }
        }
    }

    /// Takes note of who a process is that is traced from now on.
    pub(super) fn identify(&mut self, pid: i32) {
        let n_moves = self.identities.remove(&pid).map_or(0, |identity| identity.n_moves);
        let Ok(identity) = Identity::read(pid) else { return };
        let rings = Maps::read(pid).map(|maps| self.core.domains.mapped_in(&maps)).unwrap_or_default();
        for ring in &rings {
            self.rings().add_member(identity.own_pid, *ring);
        }
        let is_home = |ring: &usize| {
            let tenant = Tenant {
                pid,
                credentials: &identity.credentials,
                now: Some(*ring),
                is_restless: n_moves > RESTLESS,
            };
            self.core.domains.is_at_home(&tenant)
        };
        let is_homeless = !rings.iter().all(is_home);
        self.identities.insert(pid, Identity { n_moves, is_homeless, ..identity });
    }

    pub(super) fn forget_identity(&mut self, pid: i32) {
        if let Some(identity) = self.identities.remove(&pid) {
            self.rings().remove_member(identity.own_pid);
        }
    }

    /// Sees to it that a process has no ring but that of its like. Does nothing if that is so.
    pub(super) fn separate(&mut self, pid: i32) -> Result<()> {
        let mapped = self.core.domains.mapped_in(&Maps::read(pid)?);
        if mapped.is_empty() {
            return Ok(());
        }
        let credentials = Credentials::read(pid)?;
        let n_moves = self.identities.get(&pid).map_or(0, |identity| identity.n_moves);
        let tenant = |ring: usize| Tenant {
            pid,
            credentials: &credentials,
            now: Some(ring),
            is_restless: n_moves > RESTLESS,
        };
        let Some(now) = mapped.iter().copied().find(|ring| !self.core.domains.is_at_home(&tenant(*ring)))
        else {
            if let Some(identity) = self.identities.get_mut(&pid) {
                identity.is_homeless = false;
            }
            return Ok(());
        };
        let is_traced = !self.without_children || self.traced.iter().any(|traced| traced.pid == pid);
        let ring = match is_traced {
            true => self.core.domains.ring_with_room(&tenant(now)),
            // Nobody wants its hits.
            false => Err(Error::Gone { pid }),
        };
        let core = &mut self.core;
        let to = ring.as_ref().ok().copied();
        in_own_thread(move || rehouse(core, pid, to))?;
        if let Some(identity) = self.identities.get_mut(&pid) {
            identity.is_homeless = false;
            identity.is_told = false;
            identity.n_moves += 1;
            let own_pid = identity.own_pid;
            if let Some(ring) = to {
                self.rings().add_member(own_pid, ring);
            }
        }
        match ring {
            Err(error @ Error::TooManyRings { .. }) if is_traced => Err(error),
            _ => Ok(()),
        }
    }
}
