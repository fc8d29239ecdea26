//! A command that is started with its sites open.

use super::{Session, follow};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::inject::{Standing, open_process};
use crate::libraries::of_probes;
use crate::maps::code_mappings;
use crate::memory::Memory;
use crate::process;
use crate::traced::{ProcessReport, Traced};
use crate::wanted::SiteReport;
use nopal_proc::launch::{LaunchError, Starting, launch};
use nopal_proc::ptrace;
use std::process::{Child, Command};

impl Session {
    /// Starts the command and opens its wanted sites before its constructors run.
    pub fn launch(&mut self, command: &mut Command) -> Result<(Child, Vec<ProcessReport>)> {
        self.launch_with(command, |_, _| true)
    }

    /// Opens the wanted sites of a process that [`hold_at_exec`](nopal_proc::launch::hold_at_exec) holds; to be called from
    /// what that does meanwhile.
    pub fn open_held(&mut self, pid: i32) -> Result<ProcessReport> {
        self.rings().set_enabled(!self.is_paused);
        // Its exec is reported to those who follow one of its forebears; it is looked at now.
        self.drain_events();
        self.missed_execs.forget(pid as u32);
        let traced = open_at_start(&mut self.core, pid, Standing::Held)?;
        follow(&mut self.missed_execs, pid, self.without_children);
        if !self.roots.contains(&pid) {
            self.roots.push(pid);
        }
        Ok(self.keep(traced, code_mappings(pid)))
    }

    /// The same as [`launch`](Session::launch); `before_start` may do more to the process, by its pid and what became of its sites, while it is held;
    /// what it does not accept never runs.
    pub fn launch_with<'a>(
        &mut self,
        starting: impl Into<Starting<'a>>,
        before_start: impl FnOnce(i32, &[SiteReport]) -> bool + Send,
    ) -> Result<(Child, Vec<ProcessReport>)> {
        self.rings().set_enabled(!self.is_paused);
        let (core, missed_execs, without_children) =
            (&mut self.core, &mut self.missed_execs, self.without_children);
        let (child, traced) = launch(starting, move |pid| {
            let traced = open_at_start(core, pid, Standing::Launched)?;
            follow(missed_execs, pid, without_children);
            match before_start(pid, &of_probes(&traced.reports)) {
                true => Ok::<_, Error>(traced),
                false => Err(LaunchError::Declined { pid }.into()),
            }
        })?;
        self.roots.push(child.id() as i32);
        let seen = code_mappings(traced.pid);
        let report = self.keep(traced, seen);
        Ok((child, vec![report]))
    }
}

/// Opens the sites of a process that stands somewhere before its first constructor.
fn open_at_start(core: &mut Core, pid: i32, standing: Standing) -> Result<Traced> {
    process::check_startable(pid)?;
    let mut objects = core.wanted_in(pid)?;
    if objects.is_empty() {
        // What it loads later may have what is wanted.
        let mapped = nopal_proc::mapped_objects(pid as u32).unwrap_or_default();
        objects.extend(core.loaders.wanted_in(pid, &mapped));
    }
    if objects.is_empty() {
        return Ok(Traced::new(pid, Memory::open(pid)?, Vec::new(), Vec::new(), None));
    }
    let mut traced = open_process(core, pid, objects, standing)?;
    traced.is_early = ptrace::regs(pid).map_err(Error::on(pid, "read registers"))?.fs_base == 0;
    Ok(traced)
}

impl From<LaunchError> for Error {
    fn from(error: LaunchError) -> Error {
        match error {
            LaunchError::NotPermitted { pid, .. } => process::why_not_allowed(pid),
            LaunchError::Is32Bit { pid } => Error::ThirtyTwoBit { pid },
            LaunchError::Ended { pid } => Error::Gone { pid },
            LaunchError::NotStarted { .. }
            | LaunchError::Stuck { .. }
            | LaunchError::Declined { .. }
            | LaunchError::Io { .. } => Error::Launch(error),
        }
    }
}
