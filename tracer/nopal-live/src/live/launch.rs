//! A command that is started with its sites open, by either door.

use super::by_kernel::{self, How, Kernel, open_by_kernel};
use super::{Door, Live, LiveError, NotByUser, NotKeptHere, Opened, closed, divide, end, lock, wanted_in};
use crate::selection::{Absent, Selection};
use nopal_capture::Wanted;
use nopal_proc::launch::{self, LaunchError, Starting};
use nopal_proc::ptrace;
use nopal_user::libraries::Libraries;
use nopal_user::session::SiteReport;
use std::process::Child;
use std::sync::Mutex;

/// What a command is held for.
struct Held<'a, S> {
    selection: &'a Mutex<S>,
    kernel: &'a mut Option<Kernel>,
    how: How,
    /// The user door is not there.
    is_by_kernel: bool,
    needs_user_door: bool,
}

/// What became of its sites, and those of them that the user door left.
type Sites = (Vec<Opened>, Vec<(Wanted, NotByUser)>);

impl<S: Selection> Held<'_, S> {
    /// Opens what the user door has left, unless the command is not to begin.
    fn open(self, pid: u32, sites: &[SiteReport]) -> Result<Sites, LiveError> {
        let (mut opened, left) = match self.is_by_kernel {
            false => divide(self.selection, pid, sites),
            true => {
                let wanted = wanted_in(self.selection, pid).unwrap_or_default();
                (Vec::new(), wanted.into_iter().map(|w| (w, NotByUser::AskedFor)).collect())
            }
        };
        if self.needs_user_door {
            let absent = lock(self.selection).absent();
            let site = left.first().map(|(wanted, _)| NotKeptHere::Site(wanted.probe.clone()));
            // Its libc has not set up a thread yet, and may not tell later what number it has.
            let is_early = !self.is_by_kernel
                && self.how.door != Door::User
                && ptrace::regs(pid as i32).is_ok_and(|registers| registers.fs_base == 0);
            if is_early && !sites.is_empty() {
                return Err(LiveError::NotKept(NotKeptHere::Static));
            }
            let by_door = match absent {
                Some(Absent::Answer((field, probe))) => {
                    return Err(LiveError::NotKept(NotKeptHere::Field { field, probe }));
                }
                Some(Absent::Probe(probe)) => site.or(Some(NotKeptHere::NotYet(probe))),
                None => site,
            };
            // Where the other door opens nothing, spans lose nothing by this one.
            if let Some(why) = by_door
                && self.how.door != Door::User
                && by_kernel::ensure(self.kernel, self.how).is_ok()
            {
                return Err(LiveError::NotKept(why));
            }
        }
        let by_user = left.clone();
        if self.how.door == Door::User {
            opened.extend(left.into_iter().map(|(w, user)| closed(pid, &w, user, None)));
        } else if !left.is_empty() {
            opened.extend(open_by_kernel(self.kernel, self.selection, self.how, pid, left)?.opened);
        }
        Ok((opened, by_user))
    }
}

impl<S: Selection> Live<S> {
    /// Starts a command with its probes open, by either door, before its constructors run. While it is held, `before_start`
    /// may look at it.
    pub fn launch_with<'a>(
        &mut self,
        starting: impl Into<Starting<'a>>,
        before_start: impl FnOnce(u32) + Send,
    ) -> Result<(Child, Vec<Opened>), LiveError> {
        let held = Held {
            how: self.how(),
            selection: &self.selection,
            kernel: &mut self.kernel,
            is_by_kernel: self.user.is_none(),
            needs_user_door: self.options.needs_user_door,
        };
        let missed_execs = self.user.is_none().then_some(&mut self.missed_execs);
        let mut outcome = Ok(Sites::default());
        // Whether it may begin.
        let while_held = |pid: i32, sites: &[SiteReport]| {
            let pid = pid as u32;
            before_start(pid);
            lock(held.selection).follow(pid);
            if let Some(missed_execs) = missed_execs {
                missed_execs.follow(pid);
            }
            outcome = held.open(pid, sites);
            outcome.is_ok()
        };
        let launched = match &mut self.user {
            Some((session, _)) => session.launch_with(starting, while_held).map_err(LiveError::User),
            None => {
                let held = |pid: i32| match while_held(pid, &[]) {
                    true => Ok(Vec::new()),
                    false => Err(LaunchError::Declined { pid }),
                };
                launch::launch(starting, held).map_err(LiveError::Launch)
            }
        };
        let (opened, left_by_user) = outcome?;
        let (mut child, reports) = launched?;
        reports.iter().for_each(|report| self.note_begun(report));
        if let Some((session, _)) = &mut self.user {
            session.take_unreadable();
            // It was held: from here on it loads nothing without our knowing, if it can be made to tell.
            if matches!(session.libraries(child.id() as i32), Libraries::AtOnce(_)) {
                self.entered.insert(child.id());
            }
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.was_held(child.id());
        }
        self.roots.push(child.id());
        self.has_begun = true;
        self.tasks.add(child.id());
        self.look_at(child.id());
        self.left.insert(child.id(), left_by_user);
        self.say_libraries(child.id());
        if let Err(error) = self.check_opened(&opened) {
            end(&mut child);
            return Err(error);
        }
        if !opened.is_empty() {
            self.entered.insert(child.id());
        }
        Ok((child, opened))
    }
}
