//! One round: a program, its tracer, what goes wrong, and what must be right all the same.

use super::Plan;
use super::harm::Harm;
use super::target::{END, Field, GO, QUIET, READY, STOP, Shared};
use super::tracer::{self, Process, Said, Verb, wait_for};
use crate::{nopal, scratch};
use nopal_user::maps::Maps;
use nopal_user::memory::Memory;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longer than anything takes on a machine that has much else to do.
const LIMIT: Duration = Duration::from_secs(120);
/// How long the program works at least.
const WORK: Duration = Duration::from_millis(400);

/// What became of it.
#[derive(Debug, Default)]
pub(crate) struct Result {
    pub failures: Vec<String>,
    pub n_hits: u64,
    pub n_events: u64,
    pub n_children: u64,
    pub is_complete: Option<bool>,
}

pub(crate) fn run(plan: &Plan) -> Result {
    let dir = scratch(&format!("faults-{}", plan.seed));
    let mut result = Result::default();
    let is_mounted = match small_disk(plan, &dir) {
        Ok(is_mounted) => is_mounted,
        Err(error) => return Result { failures: vec![format!("a small disk: {error}")], ..result },
    };
    if let Err(error) = Round::start(plan, &dir).and_then(|round| round.go(&mut result)) {
        result.failures.push(error);
    }
    if is_mounted {
        unmount(&dir.join("out"));
    }
    if result.failures.is_empty() {
        let _ = fs::remove_dir_all(&dir);
    }
    result
}

/// Where the recording goes: a file system of its own that is soon full, if that is planned.
fn small_disk(plan: &Plan, dir: &Path) -> std::result::Result<bool, String> {
    fs::create_dir(dir.join("out")).map_err(|e| e.to_string())?;
    if !plan.has_small_disk {
        return Ok(false);
    }
    let mount = ["-t", "tmpfs", "-o", "size=96k", "nopal-faults"];
    let output =
        Command::new("mount").args(mount).arg(dir.join("out")).output().map_err(|e| e.to_string())?;
    if output.status.success() { Ok(true) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

fn unmount(at: &Path) {
    if let Ok(output) = Command::new("umount").arg("-l").arg(at).output()
        && !output.status.success()
    {
        println!("umount {}: {}", at.display(), String::from_utf8_lossy(&output.stderr));
    }
}

struct Round<'a> {
    plan: &'a Plan,
    dir: PathBuf,
    shared: Shared,
    /// Not there if the tracer has started it.
    target: Option<Process>,
    tracer: Process,
    pid: u32,
}

/// How the tracer came to its end before nothing more was to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    /// While the program worked, of which so many hits were done then.
    Asked {
        n_done: u64,
    },
    Killed,
}

impl<'a> Round<'a> {
    /// The program is ready and its tracer has opened it, or has refused to.
    fn start(plan: &'a Plan, dir: &Path) -> std::result::Result<Round<'a>, String> {
        let path = dir.join("shared");
        let shared = Shared::create(&path).map_err(|e| e.to_string())?;
        let line = plan.kind.line(&path);
        let words = |e: std::io::Error| e.to_string();
        let is_ready = || shared.get(Field::State) >= READY;
        let (target, tracer) = if plan.is_launched {
            let tracer = Process::start(&mut tracer::command(plan, dir, None, &line), dir, "tracer");
            (None, tracer.map_err(words)?)
        } else {
            let target =
                Process::start(Command::new(&line[0]).args(&line[1..]), dir, "target").map_err(words)?;
            if !wait_for(LIMIT, is_ready) {
                return Err("the program did not start".to_owned());
            }
            let command = &mut tracer::command(plan, dir, Some(target.pid()), &line);
            (Some(target), Process::start(command, dir, "tracer").map_err(words)?)
        };
        let mut round = Round { plan, dir: dir.to_owned(), shared, target, tracer, pid: 0 };
        let mut has_ended = false;
        let is_open = wait_for(LIMIT, || {
            has_ended = round.tracer.status().is_some();
            let is_open = tracer::is_open(plan, &round.tracer);
            has_ended || (is_open && round.shared.get(Field::State) >= READY)
        });
        round.pid = round.shared.get(Field::Pid) as u32;
        if !is_open {
            return Err(format!("the tracer is not ready after {} s", LIMIT.as_secs()));
        }
        if has_ended && round.pid == 0 {
            return Err(format!("the tracer did not start the program: {}", round.tracer.stderr()));
        }
        Ok(round)
    }

    fn go(mut self, result: &mut Result) -> std::result::Result<(), String> {
        let start = Instant::now();
        self.shared.set(Field::Phase, GO);
        let mut ended = None;
        let mut is_killed = false;
        let mut visitors = Vec::new();
        for (n, planned) in self.plan.harms.iter().enumerate() {
            std::thread::sleep(planned.at.saturating_sub(start.elapsed()));
            match planned.harm {
                Harm::KillTarget => {
                    is_killed = true;
                    // SAFETY: a child of ours, or of a tracer of ours, that nobody else reaps.
                    unsafe { libc::kill(self.pid as i32, libc::SIGKILL) };
                }
                Harm::KillTracer if ended.is_none() => {
                    self.tracer.signal(libc::SIGKILL);
                    ended = Some(Ended::Killed);
                }
                Harm::InterruptTracer if ended.is_none() => {
                    ended = Some(Ended::Asked { n_done: self.shared.get(Field::Done) });
                    self.tracer.signal(libc::SIGINT);
                }
                Harm::KillTracer | Harm::InterruptTracer => {}
                harm => match harm.visitor(self.plan, &self.dir, self.pid) {
                    Some(mut command) => {
                        let visitor = Process::start(&mut command, &self.dir, &format!("visitor{n}"));
                        visitors.push((harm, visitor.map_err(|e| format!("{harm}: {e}"))?));
                    }
                    None => harm.do_at_once(&mut self.tracer, &self.shared),
                },
            }
        }
        for (harm, visitor) in &mut visitors {
            if visitor.wait(LIMIT).is_none() {
                return Err(format!("{harm} does not end"));
            }
            if visitor.stderr().contains("panicked") {
                result.failures.push(format!("{harm}: {}", visitor.stderr()));
            }
        }
        std::thread::sleep(WORK.saturating_sub(start.elapsed()));
        self.shared.set(Field::Phase, STOP);
        let is_alive = |round: &mut Round<'_>| match &mut round.target {
            Some(target) => target.status().is_none(),
            None => Path::new(&format!("/proc/{}", round.pid)).exists(),
        };
        let is_quiet =
            wait_for(LIMIT, || self.shared.get(Field::State) == QUIET || (is_killed || !is_alive(&mut self)));
        if !is_quiet {
            return Err(format!("the program did not finish: {}", self.shared.what()));
        }
        let is_there = !is_killed && is_alive(&mut self);
        if !is_there && !is_killed {
            result.failures.push("the program died".to_owned());
        }
        self.finish(result, ended, is_killed, is_there)
    }

    /// The program has had all its hits. The tracer ends, then the program, or the other way round.
    fn finish(
        mut self,
        result: &mut Result,
        ended: Option<Ended>,
        is_killed: bool,
        is_there: bool,
    ) -> std::result::Result<(), String> {
        let was_running = self.tracer.status().is_none();
        let ends_first = ended.is_some() || (self.plan.is_left && is_there) || !was_running;
        if !ends_first {
            self.shared.set(Field::Phase, END);
        } else if ended.is_none() {
            self.tracer.signal(libc::SIGINT);
        }
        if self.tracer.wait(LIMIT).is_none() {
            return Err(format!("the tracer does not end: {}", self.tracer.stderr()));
        }
        if ends_first && is_there {
            self.check_restored(result, ended);
        }
        self.shared.set(Field::Phase, END);
        if let Some(target) = &mut self.target {
            match target.wait(LIMIT) {
                None => return Err("the program does not end".to_owned()),
                Some(status) if !is_killed && !status.success() => {
                    let what = self.shared.what();
                    result.failures.push(format!("the program: {status}: {what} {}", target.stderr()));
                }
                Some(_) => {}
            }
        } else {
            let path = format!("/proc/{}", self.pid);
            if !wait_for(LIMIT, || !Path::new(&path).exists()) {
                return Err("the program does not end".to_owned());
            }
        }
        // Those of a tracer that is still there are raised rightly.
        if ends_first && self.shared.get(Field::Raised) > 0 {
            result.failures.push(format!("semaphores stay raised: {}", self.shared.get(Field::Raised)));
        }
        self.check_counts(result, ended);
        Ok(())
    }

    /// Nothing is left in the program and its children.
    fn check_restored(&mut self, result: &mut Result, ended: Option<Ended>) {
        // A tracer that was told to end restores what it has opened; one that was killed leaves it to `detach`.
        let has_ended_well = self.tracer.status().is_some_and(|status| status.code().is_some());
        if ended == Some(Ended::Killed) || !has_ended_well {
            let detach = Command::new(nopal()).args(["detach", "-p", &self.pid.to_string()]).output();
            match detach {
                Ok(output) if output.status.success() => {}
                Ok(output) => {
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    result.failures.push(format!("detach: {said}"));
                }
                Err(error) => result.failures.push(format!("detach: {error}")),
            }
        }
        for pid in descendants(self.pid) {
            // What has ended meanwhile has nothing left.
            for place in changed_code(pid).unwrap_or_default() {
                result.failures.push(format!("left in process {pid}: {place}"));
            }
        }
    }

    /// The program's own checks, and the verdict beside its count.
    fn check_counts(&mut self, result: &mut Result, ended: Option<Ended>) {
        let get = |field| self.shared.get(field);
        result.n_hits = get(Field::Done);
        result.n_children = get(Field::Children);
        if get(Field::Errors) > 0 {
            result.failures.push(format!("{} errors, the first: {}", get(Field::Errors), self.shared.what()));
        }
        let error = self.tracer.stderr();
        // Without memory Rust's own library ends the process with these words.
        let is_limited =
            self.plan.harms.iter().any(|planned| matches!(planned.harm, Harm::LimitTracer { .. }));
        if error.contains("panicked") && !(is_limited && error.contains("allocat")) {
            result.failures.push(format!("the tracer: {error}"));
        }
        let said = match ended {
            Some(Ended::Killed) if self.plan.verb == Verb::Record => tracer::viewed(&self.dir),
            Some(Ended::Killed) => None,
            Some(Ended::Asked { .. }) | None => tracer::said(self.plan.verb, &self.tracer),
        };
        let Some(Said { n_events, is_complete }) = said else { return };
        result.n_events = n_events;
        result.is_complete = Some(is_complete);
        let (least, most) = match ended {
            Some(Ended::Asked { n_done }) => (n_done, get(Field::Begun)),
            Some(Ended::Killed) | None => (get(Field::Done), get(Field::Begun)),
        };
        if n_events > most || (is_complete && n_events < least) {
            let verdict = if is_complete { "complete" } else { "not complete" };
            result
                .failures
                .push(format!("{n_events} events, {verdict}; the program had {least} to {most} hits"));
        }
    }
}

/// A process and what it has brought forth.
fn descendants(pid: u32) -> Vec<u32> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(pid) = all.get(next) {
        next += 1;
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children: Vec<u32> = tasks
            .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
            .flat_map(|text| text.split_whitespace().filter_map(|n| n.parse().ok()).collect::<Vec<_>>())
            .collect();
        all.extend(children);
    }
    all
}

/// Code in memory that is not what its file has.
fn changed_code(pid: u32) -> Option<Vec<String>> {
    let maps = Maps::read(pid as i32).ok()?;
    let memory = Memory::open(pid as i32).ok()?;
    let mut found = Vec::new();
    for range in maps.ranges.iter().filter(|r| r.is_executable && r.inode != 0 && !r.is_shared) {
        let Ok(file) = fs::File::open(&range.path) else { continue };
        let len = (range.end - range.start) as usize;
        let mut there = vec![0; len];
        let n = file.read_at(&mut there, range.offset).ok()?;
        let here = memory.read_vec(range.start, len).ok()?;
        // Behind the end of the file the last page is zeroes.
        let differs = (0..n).filter(|&i| here[i] != there[i]);
        let path = range.path.display();
        found.extend(differs.take(6).map(|i| {
            format!("{path}+{:#x} is {:02x}, not {:02x}", range.offset + i as u64, here[i], there[i])
        }));
    }
    Some(found)
}
