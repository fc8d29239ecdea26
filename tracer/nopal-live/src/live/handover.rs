//! Sites that another tool has taken over: a uprobe on a one-byte jump puts a breakpoint in its place, and the user door
//! sees nothing until it goes. Meanwhile the kernel door takes part there.
//!
//! Our own uprobe keeps the breakpoint alive, so that the other tool's leaving cannot be seen in the code. It is seen in
//! the tool: its descriptors of uprobes become fewer, or it ends. Then our uprobe is taken away to look.

use super::by_kernel::ensure;
use super::{Door, LOOK, Live, News, Selection};
use nopal_kernel::uprobes::Link;
use nopal_proc::mapped_objects;
use nopal_user::process::status;
use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

/// Where no tool can be seen, it is looked for in the code this often.
const BLIND_LOOK: Duration = Duration::from_secs(5);

/// The sites that are in other hands, by process and event.
#[derive(Debug, Default)]
pub(super) struct Handovers {
    sites: HashMap<(u32, u32), Shared>,
    /// Everybody who had uprobes when the last site was taken over.
    tools: Vec<Tool>,
    last_look: Option<Instant>,
    /// Sites given back, by process and address, with the moment.
    given_back: HashMap<(u32, u64), Instant>,
}

impl Handovers {
    pub(super) fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }
}

#[derive(Debug)]
struct Shared {
    probe: String,
    address: u64,
    _link: Link,
}

/// A process that has descriptors of uprobes, or of other events of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tool {
    pid: u32,
    start_time_ticks: u64,
    n_descriptors: usize,
}

impl<S: Selection> Live<S> {
    /// Another tool has a breakpoint on a site of the user door: the kernel door takes part.
    pub(super) fn hand_over(
        &mut self,
        pid: u32,
        probe: String,
        address: u64,
        event: Option<u32>,
        news: &mut Vec<News>,
    ) {
        let what = format!("another tool took over {probe} at {address:#x} in process {pid}");
        match self.share(pid, event) {
            Ok((event, link)) => {
                self.handovers.sites.insert((pid, event), Shared { probe, address, _link: link });
                self.handovers.tools = tools();
                self.handovers.last_look = Some(Instant::now());
                let late = self.look_span + self.last_look.elapsed();
                news.push(News::Gap(format!(
                    "{what}; the kernel door has it now, hits of at most {} ms are missing",
                    late.as_millis()
                )));
            }
            Err(why) => {
                news.push(News::Gap(format!("{what}; its hits are missing from now on ({why})")));
            }
        }
    }

    fn share(&mut self, pid: u32, event: Option<u32>) -> Result<(u32, Link), String> {
        if self.options.door != Door::Auto {
            return Err("the kernel door is not to be used".to_owned());
        }
        // A debugger's breakpoint would be taken for ours, and the debugger would wait for it in vain.
        if status(pid as i32).is_ok_and(|status| status.tracer_pid != 0) {
            return Err("it is a debugger".to_owned());
        }
        let event = event.ok_or("the site is not known")?;
        let place = self.selection().places().get(event).cloned().ok_or("the site is not known")?;
        let objects = mapped_objects(pid).map_err(|e| e.to_string())?;
        let mapped = objects.iter().find(|o| o.path == place.path).ok_or("its file is gone")?;
        let how = self.how();
        ensure(&mut self.kernel, how).map_err(|e| e.to_string())?;
        let kernel = self.kernel.as_ref().ok_or("the kernel door is closed")?;
        let link = kernel.share(pid, mapped, &place.by_kernel).map_err(|e| e.to_string())?;
        Ok((event, link))
    }

    /// Gives sites back whose tool may have left. The user door opens those that are free at its next look, and tells of
    /// the others as taken over again.
    pub(super) fn take_back(&mut self, news: &mut Vec<News>) {
        let is_alive = |pid: &u32| nopal_proc::Process::is_alive(*pid);
        let handovers = &mut self.handovers;
        handovers.sites.retain(|(pid, _), _| is_alive(pid));
        handovers.given_back.retain(|(pid, _), _| is_alive(pid));
        if handovers.sites.is_empty() {
            return;
        }
        let has_left = match handovers.tools.is_empty() {
            true => handovers.last_look.is_none_or(|last| last.elapsed() >= BLIND_LOOK),
            false => handovers.tools.iter().any(|tool| !tool.is_unchanged()),
        };
        if !has_left {
            return;
        }
        handovers.tools.clear();
        handovers.last_look = None;
        let now = Instant::now();
        for ((pid, _), shared) in std::mem::take(&mut handovers.sites) {
            handovers.given_back.insert((pid, shared.address), now);
            if let Some((session, _)) = &mut self.user {
                session.look_anew(pid as i32, shared.address);
            }
            news.push(News::Message(format!(
                "{} at {:#x} in process {pid}: looking whether the other tool has left",
                shared.probe, shared.address
            )));
        }
    }

    /// What is to be said of a site that the user door has opened again.
    pub(super) fn is_ours_again(
        &mut self,
        pid: u32,
        probe: &str,
        address: u64,
        was_taken_over: bool,
    ) -> News {
        let what = format!("{probe} at {address:#x} in process {pid} is open again");
        match self.handovers.given_back.remove(&(pid, address)) {
            Some(since) => News::Gap(format!(
                "{what}, as the other tool has left; hits of {} ms are missing",
                since.elapsed().as_millis()
            )),
            None if was_taken_over => News::Message(what),
            None => News::Gap(format!(
                "{what}, as somebody had closed it; hits of at most {} ms are missing",
                (self.look_span + self.last_look.elapsed() + LOOK).as_millis()
            )),
        }
    }
}

impl Tool {
    fn is_unchanged(&self) -> bool {
        nopal_proc::Process::read(self.pid).is_ok_and(|p| p.start_time_ticks == self.start_time_ticks)
            && n_descriptors(self.pid) >= self.n_descriptors
    }
}

/// The processes, but for our own, that have descriptors of uprobes.
fn tools() -> Vec<Tool> {
    nopal_proc::processes()
        .into_iter()
        .filter(|process| process.pid != std::process::id() && !process.is_zombie)
        .map(|process| Tool {
            pid: process.pid,
            start_time_ticks: process.start_time_ticks,
            n_descriptors: n_descriptors(process.pid),
        })
        .filter(|tool| tool.n_descriptors > 0)
        .collect()
}

fn n_descriptors(pid: u32) -> usize {
    let Ok(folder) = fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    folder
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok())
        .filter(|link| {
            let name = link.to_string_lossy();
            name == "anon_inode:[perf_event]" || name == "anon_inode:bpf_link"
        })
        .count()
}
