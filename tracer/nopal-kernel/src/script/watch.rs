//! Watchpoints: debug registers that the kernel sets for the threads of a process, as perf events with a program.

use super::attach::PointInProcess;
use super::code::{Kind, Which};
use super::events::online_cpus;
use super::{Attached, ScriptDoor, ScriptError, State};
use crate::refusal::Refusal;
use nopal_proc::perf::{self, DISABLED, INHERIT, INHERIT_THREAD, PerfAttr, TYPE_BREAKPOINT};
use nopal_proc::threads;
use nopal_program::{Access, PointKind};
use std::io;
use std::os::fd::OwnedFd;

/// How often a process is opened anew because it has started a thread meanwhile.
const MAX_TRIES: usize = 100;

impl ScriptDoor {
    /// In the threads of a process and those that it starts later, or without one on every CPU.
    pub(super) fn attach_watchpoints(
        &mut self,
        pid: Option<u32>,
        states: &mut Vec<Attached>,
    ) -> Result<(), ScriptError> {
        for clause in (0..self.program.clauses.len()).rev() {
            for point in (0..self.program.clauses[clause].points.len()).rev() {
                let key = PointInProcess::of_process(clause, point, pid);
                let PointKind::Watchpoint { address, length_bytes, access } =
                    self.program.clauses[clause].points[point].kind
                else {
                    continue;
                };
                if self.attached.contains(&key) {
                    continue;
                }
                let attr = PerfAttr {
                    event_type: TYPE_BREAKPOINT,
                    bp_type: access as u32,
                    config1: address,
                    // The kernel takes only this for code.
                    config2: if access == Access::Execute { 8 } else { u64::from(length_bytes) },
                    sample_period: 1,
                    flags: DISABLED | if pid.is_some() { INHERIT | INHERIT_THREAD } else { 0 },
                    ..PerfAttr::default()
                };
                let program = self.load(clause, Kind::PerfEvent, Which::Point(point as u32), &[])?;
                let state = match self.watch(&attr, pid, program) {
                    Ok(n_sites) => State::Armed { n_sites },
                    Err(error) => {
                        let name = &self.program.clauses[clause].points[point].name;
                        let reason = format!("watching {name}: {error}");
                        State::Refused { why: Refusal::Unreadable { reason } }
                    }
                };
                self.attached.insert(key);
                states.push(Attached { clause, point, pid, is_new: true, state });
            }
        }
        Ok(())
    }

    fn watch(&mut self, attr: &PerfAttr, pid: Option<u32>, program: usize) -> io::Result<usize> {
        let opened = match pid {
            Some(pid) => self.watch_process(attr, pid, program)?,
            None => {
                let cpus = online_cpus().map_err(|e| io::Error::other(e.to_string()))?;
                let places: Vec<(i32, i32)> = cpus.into_iter().map(|cpu| (-1, cpu)).collect();
                self.open_watches(attr, &places, program)?
            }
        };
        opened.iter().try_for_each(perf::enable)?;
        let n_sites = opened.len();
        self.events.extend(opened);
        Ok(n_sites)
    }

    /// A thread that starts while the others are opened would be missed, or watched twice, by itself and by who started it: then
    /// all are opened again.
    fn watch_process(&self, attr: &PerfAttr, pid: u32, program: usize) -> io::Result<Vec<OwnedFd>> {
        for _ in 0..MAX_TRIES {
            let before: Vec<u32> = threads(pid)?.collect();
            let places: Vec<(i32, i32)> = before.iter().map(|tid| (*tid as i32, -1)).collect();
            let opened = self.open_watches(attr, &places, program)?;
            if threads(pid)?.all(|tid| before.contains(&tid)) {
                return Ok(opened);
            }
        }
        Err(io::Error::other("the process starts threads faster than they can be watched"))
    }

    /// Not yet enabled.
    fn open_watches(
        &self,
        attr: &PerfAttr,
        places: &[(i32, i32)],
        program: usize,
    ) -> io::Result<Vec<OwnedFd>> {
        let mut opened = Vec::new();
        for (tid, cpu) in places {
            let event = match perf::open(attr, *tid, *cpu) {
                // A thread that has ended meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => continue,
                event => event?,
            };
            perf::attach_program(&event, &self.loaded[program].fd)?;
            opened.push(event);
        }
        Ok(opened)
    }
}
