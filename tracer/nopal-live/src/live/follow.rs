//! What happens to traced processes: re-opens what others closed, follows children, libraries and programs started
//! later, and gives the kernel door what the user door leaves.

use super::by_kernel::{ByKernel, open_objects};
use super::{
    Door, LOOK, Live, LiveError, News, NotByUser, Selection, Way, closed, divide, lock, wanted_in,
    wanted_in_file, wanted_in_objects,
};
use nopal_capture::Wanted;
use nopal_proc::{MappedObject, changeable_objects};
use nopal_trace::clock::monotonic_ns;
use nopal_user::STUBS_NAME;
use nopal_user::libraries::{LIBRARY_PROBE, Libraries, WAIT_MS};
use nopal_user::sandbox::{FORBIDDING_PROBE, restrained_in_words, unguarded_in_words};
use nopal_user::session::ProcessReport;
use nopal_user::session::{LastWords, Notice};
use nopal_user::stop_watch::Stops;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads that loaded or unloaded libraries, and went on before those had been looked at.
fn impatient_in_words(n_threads: u64) -> String {
    let times = if n_threads == 1 { "once".to_owned() } else { format!("{n_threads} times") };
    format!(
        "{times} a library was loaded or unloaded and could not be looked at within {WAIT_MS} ms; hits of libraries may be missing"
    )
}

fn stops_in_words(pid: u32, stops: Stops) -> String {
    let times = if stops.count == 1 { "once".to_owned() } else { format!("{} times", stops.count) };
    format!(
        "process {pid}: stopped {times} to open it, for at most {:.1} ms",
        stops.longest.as_secs_f64() * 1e3
    )
}

/// How often processes whose end was not reported are forgotten.
const SWEEP: Duration = Duration::from_secs(1);
/// Restarts that are kept for whoever asks.
const MAX_RESTARTS: usize = 1 << 16;

/// What threads do that have loaded a library, while it is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loaders {
    /// Nothing of it has run; one that loses patience is reported.
    Wait,
    GoOn,
}

impl<S: Selection> Live<S> {
    /// Whether it is time for [`Live::look_after`].
    pub fn is_look_due(&mut self) -> bool {
        self.last_look.elapsed() >= LOOK || self.has_news()
    }

    /// Whether [`Live::look_after`] would find nothing to do, as far as a short look can tell.
    pub fn is_undisturbed(&mut self) -> bool {
        let is_nothing_shared = self.handovers.is_empty() && self.unreadable.is_empty();
        let Some((session, _)) = &mut self.user else { return false };
        is_nothing_shared && self.pending.is_empty() && session.is_undisturbed()
    }

    /// Whether something has happened that the next look will tell.
    pub fn has_news(&mut self) -> bool {
        let has_started = match &mut self.user {
            Some((session, _)) => session.has_news(),
            None => {
                self.drain_events();
                self.missed_execs.has_news() || !self.loaded.is_empty() || !self.unreadable.is_empty()
            }
        };
        has_started || !self.pending.is_empty()
    }

    /// Takes note of programs that were started and lack sites; without the user door, which does the same.
    pub(super) fn drain_events(&mut self) {
        let (selection, kernel, roots) = (&self.selection, &self.kernel, &self.roots);
        let is_given = |event| kernel.as_ref().is_some_and(|kernel| kernel.gives_all(roots, event));
        let (without_children, left) = (self.options.without_children, &self.left);
        let found = RefCell::new((&mut self.loaded, &mut self.unreadable));
        let is_ours = |object: &MappedObject| !without_children || roots.contains(&object.pid);
        // Of a process that has been looked at: it may have unmapped the file again at the next look.
        let note = |object: &MappedObject| {
            let is_known = |event| match left.get(&object.pid) {
                Some(known) => known.iter().any(|(wanted, _)| wanted.event == event),
                None => is_given(event),
            };
            let (loaded, unreadable) = &mut *found.borrow_mut();
            match wanted_in_file(selection, object) {
                _ if !is_ours(object) => {}
                Ok(wanted) if wanted.iter().any(|w| !is_known(w.event)) => loaded.push(object.clone()),
                Ok(_) => {}
                // The stubs of another nopal, or of this one.
                Err(_) if object.path.starts_with(STUBS_NAME) => {}
                Err(_) => unreadable.push((object.pid, object.path.clone())),
            }
        };
        let of_started = |object: &MappedObject| {
            if left.contains_key(&object.pid) {
                note(object);
                return false;
            }
            let wanted = wanted_in_file(selection, object).unwrap_or_default();
            is_ours(object) && wanted.iter().any(|w| !is_given(w.event))
        };
        self.missed_execs.drain_libraries(of_started, |object| note(&object));
    }

    /// Looks after the open sites: re-opens what others closed, follows new children, libraries and programs.
    pub fn look_after(&mut self) -> Vec<News> {
        self.look_span = self.last_look.elapsed();
        self.last_look = Instant::now();
        let mut news = std::mem::take(&mut self.pending);
        self.take_back(&mut news);
        if let Some(kernel) = &mut self.kernel {
            let gone = kernel.landed.look_now_and_then();
            news.extend(gone.iter().map(|gone| News::Gap(gone.to_string())));
        }
        let notices = self.user.as_mut().map_or_else(Vec::new, |(session, _)| session.look_after());
        self.apply_notices(notices, &mut news, Loaders::GoOn);
        news
    }

    /// Whether the loader of a process will wait for us when it has mapped the libraries that its program is linked with.
    pub fn awaits_libraries(&mut self, pid: u32) -> bool {
        let libraries = self.user.as_mut().map(|(session, _)| session.libraries(pid as i32));
        matches!(libraries, Some(Libraries::AtOnce(_)))
    }

    /// Threads that have loaded a library wait for us: its sites are opened by either door, then they go on. Gives whether
    /// there were any.
    pub fn follow_libraries(&mut self) -> bool {
        let Some((session, _)) = &mut self.user else { return false };
        let n_impatient = session.take_impatient();
        let has_news = session.has_library_news();
        if has_news {
            let notices = session.follow_libraries();
            let mut news = std::mem::take(&mut self.pending);
            self.apply_notices(notices, &mut news, Loaders::Wait);
            self.pending = news;
            if let Some((session, _)) = &self.user {
                session.release();
            }
        }
        if n_impatient > 0 {
            self.pending.push(News::Gap(impatient_in_words(n_impatient)));
        }
        has_news
    }

    /// What came up since the last look. To be asked for once more after everything is closed.
    pub fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.pending)
    }

    /// Before everything is closed: the news that would have come at the next look.
    pub(super) fn close_news(&mut self) {
        let words = match &mut self.user {
            Some((session, _)) => session.last_words(),
            None => {
                self.drain_events();
                let (unseen, untold) = (self.missed_execs.take_unseen(), self.missed_execs.take_lost());
                LastWords { unseen, untold, ..LastWords::default() }
            }
        };
        let mut pending = std::mem::take(&mut self.pending);
        self.tell_unreadable(&mut pending);
        self.pending = pending;
        self.pending.extend(words.unseen.into_iter().map(|pid| News::Late { pid, n_sites: 0 }));
        self.pending.extend(words.untold.map(|untold| News::Gap(untold.to_string())));
        if words.n_impatient > 0 {
            self.pending.push(News::Gap(impatient_in_words(words.n_impatient)));
        }
    }

    /// What the user door has noticed, in words, with the kernel door opened for what is left to it.
    fn apply_notices(&mut self, notices: Vec<Notice>, news: &mut Vec<News>, loaders: Loaders) {
        let mut reports = Vec::new();
        let has_ended = notices.iter().any(|notice| matches!(notice, Notice::Ended { .. }));
        for notice in notices {
            match notice {
                Notice::TakenOver { pid, probe, .. } if probe == LIBRARY_PROBE => {
                    news.push(News::Message(format!(
                        "another tool watches which libraries process {pid} loads; they are opened a moment later"
                    )));
                }
                Notice::TakenOver { pid, probe, .. } if probe == FORBIDDING_PROBE => {
                    news.push(News::Message(unguarded_in_words(pid)));
                }
                Notice::TakenOver { pid, probe, address, is_on_nop: false, .. } => {
                    news.push(News::Gap(format!(
                        "another tool took over {probe} at {address:#x} in process {pid}; its hits are missing until \
                         it leaves"
                    )));
                }
                Notice::TakenOver { pid, probe, address, event, is_on_nop: true } => {
                    self.hand_over(pid as u32, probe, address, event, news);
                }
                Notice::OpenAgain { probe, .. } if probe == FORBIDDING_PROBE => {}
                Notice::Restrained { pid, is_silent } => {
                    news.push(News::Message(restrained_in_words(pid, is_silent)));
                }
                Notice::OpenAgain { pid, probe, address, was_taken_over } => {
                    let is_known = was_taken_over || probe == LIBRARY_PROBE;
                    let again = self.is_ours_again(pid as u32, &probe, address, is_known);
                    news.push(again);
                }
                Notice::Changed { pid, probe, address, .. } => news.push(News::Gap(format!(
                    "the code of {probe} at {address:#x} in process {pid} was changed by somebody else; left alone"
                ))),
                Notice::Opened(report) if report.says_something() => reports.push(report),
                Notice::Opened(_) => {}
                Notice::Exec { pid, seen } => {
                    if let Some(kernel) = &mut self.kernel {
                        kernel.exec(pid as u32);
                    }
                    self.left.remove(&(pid as u32));
                    self.entered.remove(&(pid as u32));
                    self.unentered.remove(&(pid as u32));
                    let seen_ns = monotonic_ns().saturating_sub(seen.elapsed().as_nanos() as u64);
                    // Who does not ask has no use for them.
                    if self.restarts.len() < MAX_RESTARTS {
                        self.restarts.push((pid as u32, seen_ns));
                    }
                    news.push(News::Message(format!("process {pid} started another program")));
                }
                Notice::Untold(untold) => news.push(News::Gap(untold.to_string())),
                Notice::Ended { pid } => news.push(News::Message(format!("process {pid} has ended"))),
            }
        }
        if has_ended || self.last_sweep.elapsed() >= SWEEP {
            self.sweep();
        }
        if let Some((session, _)) = &mut self.user {
            self.unreadable.extend(session.take_unreadable());
        }
        self.tell_unreadable(news);
        for report in reports {
            let pid = report.pid as u32;
            if matches!(report.outcome, Err(nopal_user::Error::EndedEarly { .. })) {
                news.push(News::Late { pid, n_sites: 0 });
                continue;
            }
            let libraries = self.user.as_mut().map(|(session, _)| session.libraries(report.pid));
            let is_at_once = self.entered.contains(&pid)
                && !report.is_late
                && matches!(libraries, Some(Libraries::AtOnce(_)));
            self.inherit(pid);
            let is_in_vain = report.is_in_vain;
            match self.take_reports(vec![report]) {
                Ok(by_kernel) if !by_kernel.opened.is_empty() => {
                    let opened = by_kernel.opened;
                    let by_user = opened.iter().filter(|o| matches!(o.way, Way::User(_))).count();
                    // Otherwise it was found by looking, after its program or library had begun.
                    let n_by_kernel =
                        if is_at_once && loaders == Loaders::Wait { 0 } else { by_kernel.n_fresh };
                    let n_sites = n_by_kernel + if is_at_once { 0 } else { by_user };
                    if n_sites > 0 {
                        news.push(News::Late { pid, n_sites });
                    }
                    news.push(News::Opened(opened));
                }
                // It ended before anybody could see what it has.
                Ok(_) if is_in_vain && !is_alive(&pid) => news.push(News::Late { pid, n_sites: 0 }),
                Ok(_) => {}
                // It ended before the kernel door was open.
                Err(_) if !is_alive(&pid) => news.push(News::Late { pid, n_sites: 0 }),
                Err(error) => news.push(News::NotFollowed { pid, error }),
            }
        }
        match (self.options.without_children, &self.user) {
            (true, Some(_)) => self.open_loaded(news),
            // A process alone may start another program, too.
            (true, None) | (false, _) => self.open_children_by_kernel(news),
        }
    }

    fn tell_unreadable(&mut self, news: &mut Vec<News>) {
        let mut files = std::mem::take(&mut self.unreadable);
        files.sort();
        files.dedup();
        news.extend(files.into_iter().map(|(pid, path)| {
            News::Gap(format!(
                "process {pid} has loaded {}, which cannot be opened; hits of its probes are missing",
                path.display()
            ))
        }));
    }

    /// Forgets processes that have ended.
    fn sweep(&mut self) {
        let is_time = self.last_sweep.elapsed() >= SWEEP;
        self.last_sweep = Instant::now();
        let mut known: HashSet<u32> =
            self.left.keys().chain(&self.entered).chain(self.code.keys()).copied().collect();
        // Those that the user door has were seen alive by its look.
        let traced: HashSet<u32> = match &self.user {
            Some((session, _)) => session.processes().iter().map(|traced| traced.pid as u32).collect(),
            None => HashSet::new(),
        };
        known.retain(|pid| traced.contains(pid) || is_alive(pid));
        if is_time {
            known.iter().for_each(|pid| self.look_at(*pid));
        }
        if let Some(kernel) = &mut self.kernel {
            kernel.retain(|pid| known.contains(pid) || self.roots.contains(pid) || is_alive(pid));
        }
        self.left.retain(|pid, _| known.contains(pid));
        self.entered.retain(|pid| known.contains(pid));
        self.unentered.retain(|pid| known.contains(pid));
        self.code.retain(|pid, _| known.contains(pid));
    }

    /// Children have what the user door opened in their parents, and uprobes where those are inherited. Where they are
    /// not, they get them as soon as they are seen. Without the user door new programs and libraries are looked for, too.
    pub(super) fn open_children_by_kernel(&mut self, news: &mut Vec<News>) {
        if self.user.is_none() {
            self.drain_events();
        }
        let heard = self.missed_execs.heard();
        let all: BTreeSet<u32> = match &self.user {
            Some((session, _)) => session.processes().iter().map(|t| t.pid as u32).collect(),
            None => {
                let families = self.roots.iter().flat_map(|root| self.family(*root));
                let orphans = self.missed_execs.family().filter(|_| !self.options.without_children);
                families.chain(orphans).collect()
            }
        };
        for pid in all {
            let is_new = !self.left.contains_key(&pid);
            if is_new {
                self.inherit(pid);
            }
            let done = if self.user.is_some() {
                if !is_new {
                    continue;
                }
                self.open_child(pid)
            } else {
                if !is_new && !self.has_other_code(pid) {
                    continue;
                }
                self.attach_by_kernel(pid)
            };
            let done = match done {
                Ok(done) => done,
                Err(error) => {
                    if !nopal_proc::has_ended(pid) {
                        news.push(News::NotFollowed { pid, error });
                    }
                    continue;
                }
            };
            self.missed_execs.take(pid);
            if done.n_fresh > 0 {
                news.push(News::Late { pid, n_sites: done.n_fresh });
                news.push(News::Opened(done.opened));
            }
        }
        self.open_loaded(news);
        news.extend(self.missed_execs.take_gone().into_iter().map(|pid| News::Late { pid, n_sites: 0 }));
        self.missed_execs.settle(heard, &[]);
    }

    /// Opens libraries that processes have loaded since they were looked at, also those that they have unloaded again: the
    /// kernel puts the uprobes in when they come the next time.
    fn open_loaded(&mut self, news: &mut Vec<News>) {
        news.extend(self.missed_execs.take_lost().map(|untold| News::Gap(untold.to_string())));
        for object in std::mem::take(&mut self.loaded) {
            let pid = object.pid;
            // It ended before anybody had looked at it.
            let Some(known) = self.left.get_mut(&pid) else {
                news.push(News::Late { pid, n_sites: 0 });
                continue;
            };
            let sites: Vec<_> = wanted_in_file(&self.selection, &object)
                .unwrap_or_default()
                .into_iter()
                .filter(|w| known.iter().all(|(k, _)| k.event != w.event))
                .map(|w| (w, NotByUser::AskedFor))
                .collect();
            known.extend(sites.iter().cloned());
            match self.attach_objects(pid, vec![object], sites) {
                Ok(done) if done.opened.is_empty() => {}
                Ok(done) => {
                    if done.n_fresh > 0 {
                        news.push(News::Late { pid, n_sites: done.n_fresh });
                    }
                    news.push(News::Opened(done.opened));
                }
                Err(_) if nopal_proc::has_ended(pid) => news.push(News::Late { pid, n_sites: 0 }),
                Err(error) => news.push(News::NotFollowed { pid, error }),
            }
        }
    }

    /// Gives a child that the user door has found what its parent has by the kernel door.
    fn open_child(&mut self, pid: u32) -> Result<ByKernel, LiveError> {
        self.tasks.add(pid);
        self.look_at(pid);
        let parent = nopal_proc::Process::read(pid).map(|p| p.parent).unwrap_or(0);
        let left = self.left.get(&parent).cloned().unwrap_or_default();
        self.left.insert(pid, left.clone());
        if self.entered.contains(&parent) {
            self.entered.insert(pid);
        }
        if left.is_empty() || self.options.door == Door::User {
            return Ok(ByKernel::default());
        }
        self.attach_kernel(pid, left)
    }

    /// Remembers what its hits will need when it has ended.
    pub(super) fn look_at(&self, pid: u32) {
        lock(&self.selection).look(pid);
    }

    fn inherit(&mut self, pid: u32) {
        let root = if let [root] = self.roots[..] { Some(root) } else { None };
        if let (Some(kernel), Ok(process)) = (&mut self.kernel, nopal_proc::Process::read(pid)) {
            kernel.inherit(&process, root.filter(|root| *root != pid));
        }
    }

    /// Whether a process maps code of other files than when this was last asked.
    fn has_other_code(&mut self, pid: u32) -> bool {
        let Ok(objects) = nopal_proc::mapped_objects(pid) else { return false };
        let inodes = inodes(&objects);
        let before = self.code.insert(pid, inodes.clone());
        before.is_some_and(|before| before != inodes)
    }

    /// How many processes were started and ended between two looks, so that only the user door saw them.
    pub fn n_unseen(&self) -> usize {
        self.unseen.iter().filter(|pid| !self.tasks.knows(**pid)).count()
    }

    /// Whether a process has been attached to, also one that the user door does not enter.
    pub fn is_attached(&self, pid: u32) -> bool {
        self.left.contains_key(&pid)
    }

    /// The processes that are traced, also those whose parents have ended.
    pub fn processes(&self) -> Vec<u32> {
        match &self.user {
            Some((session, _)) => session.processes().iter().map(|traced| traced.pid as u32).collect(),
            None => self.roots.iter().flat_map(|root| self.family(*root)).collect(),
        }
    }

    /// Keeps for the next look how the libraries that a process loads later will be noticed.
    pub(super) fn say_libraries(&mut self, pid: u32) {
        if let Some((session, _)) = &mut self.user {
            let how = session.libraries(pid as i32);
            self.pending.push(News::Message(format!("process {pid}: {how}")));
        }
    }

    /// Takes what the user door says of processes and gives the kernel door what is left.
    pub(super) fn take_reports(&mut self, reports: Vec<ProcessReport>) -> Result<ByKernel, LiveError> {
        let mut taken = ByKernel::default();
        for report in reports {
            let pid = report.pid as u32;
            self.tasks.add(pid);
            self.look_at(pid);
            if !self.left.contains_key(&pid) && report.says_something() {
                self.say_libraries(pid);
            }
            if let Some(call) = report.interrupted {
                let text =
                    format!("process {pid}: a thread was stopped in {call}, which may have returned EINTR");
                self.pending.push(News::Message(text));
            }
            if report.stops.count > 0 {
                self.pending.push(News::Message(stops_in_words(pid, report.stops)));
            }
            let left = match report.outcome {
                Ok(sites) => {
                    // Also one that was entered for what it will load.
                    let traced = self.user.iter().flat_map(|(session, _)| session.processes());
                    if !sites.is_empty()
                        || traced.into_iter().any(|t| t.pid == report.pid && !t.sites.is_empty())
                    {
                        self.entered.insert(pid);
                    }
                    let (by_user, left) = divide(&self.selection, pid, &sites);
                    taken.opened.extend(by_user);
                    left
                }
                // A descendant that cannot be entered is left to the kernel door whole.
                // What it has from before, or from its parent, is open by the user door, and must not be told twice.
                Err(error) => {
                    let session = self.user.as_mut().map(|(session, _)| session);
                    let open = session.map(|session| session.open_in(report.pid)).unwrap_or_default();
                    let wanted = wanted_in(&self.selection, pid).unwrap_or_default();
                    if !open.is_empty() && is_alive(&pid) && self.unentered.insert(pid) {
                        self.pending.push(News::Gap(format!(
                            "process {pid} could not be entered again, hits of what it loads may be missing: {error}"
                        )));
                    }
                    let is_open = |w: &Wanted| open.contains(&(w.event, w.site.address));
                    let error = Arc::new(error);
                    let left = wanted.into_iter().filter(|w| !is_open(w));
                    let left: Vec<_> = left.map(|w| (w, NotByUser::Process(Arc::clone(&error)))).collect();
                    if let Some((session, _)) = &mut self.user
                        && self.options.door != Door::User
                    {
                        session.leave_elsewhere(report.pid, left.iter().map(|(w, _)| w.event));
                    }
                    left
                }
            };
            // A process that has loaded another library is reported again as a whole.
            let known = self.left.entry(pid).or_default();
            let left: Vec<_> =
                left.into_iter().filter(|(w, _)| known.iter().all(|(k, _)| k.event != w.event)).collect();
            known.extend(left.iter().cloned());
            if self.options.door == Door::User {
                taken.opened.extend(left.into_iter().map(|(w, user)| closed(pid, &w, user, None)));
            } else if !left.is_empty() {
                let by_kernel = self.attach_kernel(pid, left)?;
                taken.opened.extend(by_kernel.opened);
                taken.n_fresh += by_kernel.n_fresh;
            }
        }
        Ok(taken)
    }

    /// Opens every wanted site of one process by the kernel door, but those it has already.
    pub(super) fn attach_by_kernel(&mut self, pid: u32) -> Result<ByKernel, LiveError> {
        self.tasks.add(pid);
        // Read once: what is mapped or unmapped from here on is other code at the next look.
        let objects = changeable_objects(pid).map_err(LiveError::Target)?;
        let wanted = wanted_in_objects(&self.selection, &objects);
        self.look_at(pid);
        self.code.insert(pid, inodes(&objects));
        let known = self.left.entry(pid).or_default();
        let sites: Vec<_> = wanted
            .into_iter()
            .filter(|w| known.iter().all(|(k, _)| k.event != w.event))
            .map(|w| (w, NotByUser::AskedFor))
            .collect();
        known.extend(sites.iter().cloned());
        if sites.is_empty() { Ok(ByKernel::default()) } else { self.attach_objects(pid, objects, sites) }
    }

    pub(super) fn family(&self, pid: u32) -> Vec<u32> {
        let mut family = vec![pid];
        if !self.options.without_children {
            family.extend(nopal_proc::descendants(pid));
        }
        family
    }

    fn attach_kernel(&mut self, pid: u32, sites: Vec<(Wanted, NotByUser)>) -> Result<ByKernel, LiveError> {
        let objects = changeable_objects(pid).map_err(LiveError::Target)?;
        self.attach_objects(pid, objects, sites)
    }

    /// Of sites whose files the process has unmapped meanwhile nothing is known, so that they are opened when they come back.
    fn attach_objects(
        &mut self,
        pid: u32,
        objects: Vec<MappedObject>,
        sites: Vec<(Wanted, NotByUser)>,
    ) -> Result<ByKernel, LiveError> {
        let how = self.how();
        let done = open_objects(&mut self.kernel, &self.selection, how, objects, sites)?;
        if let Some(known) = self.left.get_mut(&pid) {
            known.retain(|(wanted, _)| !done.unmapped.contains(&wanted.event));
        }
        Ok(done)
    }
}

fn inodes(objects: &[MappedObject]) -> Vec<u64> {
    let mut inodes: Vec<u64> = objects.iter().filter_map(|o| o.mappings.first().map(|m| m.inode)).collect();
    inodes.sort_unstable();
    inodes
}

fn is_alive(pid: &u32) -> bool {
    nopal_proc::Process::is_alive(*pid)
}
