//! What is done while the program works: each harm at its instant, and taken back where it goes on for a while only.

use super::harm::Harm;
use super::process::Process;
use super::round::Round;
use super::tracer::{Tracer, Verb};
use super::visitor;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Something to do at an instant.
#[derive(Debug, Clone, Copy)]
enum Step {
    Do(Harm),
    TakeBack(Harm),
}

impl Round<'_> {
    /// All harms of a stretch, done and taken back.
    pub(super) fn act(&mut self, harms: &[super::plan::Planned]) -> Result<(), String> {
        let start = Instant::now();
        let mut steps: Vec<(Duration, Step)> = harms.iter().map(|p| (p.at, Step::Do(p.harm))).collect();
        for planned in harms {
            if let Some(time) = planned.harm.time() {
                steps.push((planned.at + time, Step::TakeBack(planned.harm)));
            }
        }
        steps.sort_by_key(|(at, _)| *at);
        for (at, step) in steps {
            self.pass_time(start + at);
            match step {
                Step::Do(harm) => {
                    if self.harm(harm)? {
                        self.result.count(harm.name());
                    }
                }
                Step::TakeBack(harm) => self.take_back(harm),
            }
        }
        Ok(())
    }

    /// Until that instant; notes when tracers are open.
    pub(super) fn pass_time(&mut self, until: Instant) {
        loop {
            self.look_at_tracers();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            thread::sleep(left.min(Duration::from_millis(20)));
        }
    }

    /// Whether it met anybody.
    fn harm(&mut self, harm: Harm) -> Result<bool, String> {
        Ok(match harm {
            Harm::KillTracer => self.on_tracer(Tracer::kill),
            Harm::InterruptTracer => {
                let target = &self.target;
                self.tracers.last_mut().is_some_and(|tracer| tracer.ask(target.counts(tracer.way.subject)))
            }
            Harm::StopTracer { .. } => self.on_tracer(|tracer| tracer.process.signal(libc::SIGSTOP)),
            Harm::LimitTracer { kibibytes } => self.on_tracer(|tracer| {
                tracer.is_limited = true;
                limit(tracer, libc::RLIMIT_AS, |pid| Some(size(pid)? + kibibytes * 1024))
            }),
            Harm::LimitFiles { n } => self.on_tracer(|tracer| {
                tracer.is_limited = true;
                limit(tracer, libc::RLIMIT_NOFILE, |_| Some(n))
            }),
            Harm::KillTarget => self.target.kill(),
            Harm::StopTarget { .. } => self.target.signal(libc::SIGSTOP),
            Harm::FreezeTarget { .. } => self.group.as_ref().is_some_and(|group| group.freeze(true)),
            Harm::SqueezeTarget { .. } => self.group.as_ref().is_some_and(|group| group.squeeze(true)),
            Harm::Burst { n } => self.target.burst(n),
            Harm::Overflow { n } => {
                let is_stopped = self.on_tracer(|tracer| tracer.process.signal(libc::SIGSTOP));
                is_stopped && self.target.burst(n)
            }
            Harm::Starve { time } => {
                starve(time);
                true
            }
            Harm::FullDisk { .. } => {
                let is_recorded = self.tracers.iter().any(|tracer| tracer.way.verb == Verb::Record);
                is_recorded && self.disk.fill()
            }
            Harm::StepClock { seconds } => {
                let is_seen =
                    self.tracers.iter().any(|tracer| tracer.way.time == super::tracer::Time::Stepped);
                is_seen && self.clock.step(seconds)
            }
            Harm::SecondNopal { way, .. } => {
                let is_one = self.tracers.len() < 2 && self.target.is_alive();
                if is_one {
                    self.start_tracer(way, false)?;
                }
                is_one && self.tracers.len() == 2
            }
            Harm::Bpftrace { .. }
            | Harm::Gdb { .. }
            | Harm::Perf { .. }
            | Harm::Strace { .. }
            | Harm::Detach => {
                self.visit(harm)?;
                // Counted when it has been there.
                false
            }
        })
    }

    fn take_back(&mut self, harm: Harm) {
        match harm {
            Harm::StopTracer { .. } | Harm::Overflow { .. } => {
                for tracer in &mut self.tracers {
                    tracer.process.signal(libc::SIGCONT);
                }
            }
            Harm::StopTarget { .. } => {
                self.target.signal(libc::SIGCONT);
            }
            Harm::FreezeTarget { .. } | Harm::SqueezeTarget { .. } => {
                if let Some(group) = &self.group {
                    group.freeze(false);
                    group.squeeze(false);
                }
            }
            Harm::FullDisk { .. } => self.disk.free(),
            Harm::SecondNopal { .. } => {
                if let [_, second] = &mut self.tracers[..] {
                    second.ask(self.target.counts(second.way.subject));
                }
            }
            _ => {}
        }
    }

    /// The one that came last.
    fn on_tracer(&mut self, work: impl FnOnce(&mut Tracer) -> bool) -> bool {
        self.tracers.last_mut().is_some_and(work)
    }

    fn visit(&mut self, harm: Harm) -> Result<(), String> {
        let n = self.n_visitors;
        let command = visitor::command(&harm, &self.target, &self.dir, self.plan.seed, n);
        if let Some(mut command) = command.filter(|_| self.target.is_alive()) {
            self.n_visitors += 1;
            let visitor = Process::start(&mut command, &self.dir, &format!("visitor{n}"))?;
            self.visitors.push((harm, visitor));
        }
        Ok(())
    }
}

/// Takes all CPUs but for moments.
fn starve(time: Duration) {
    let n = thread::available_parallelism().map_or(2, |n| n.get());
    let end = Instant::now() + time;
    for _ in 0..n {
        thread::spawn(move || while Instant::now() < end {});
    }
}

/// The size of its address space.
fn size(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    text.split(' ').next()?.parse::<u64>().ok().map(|pages| pages * 4096)
}

fn limit(tracer: &mut Tracer, resource: u32, value: impl Fn(u32) -> Option<u64>) -> bool {
    let pid = tracer.process.pid();
    if tracer.has_ended() {
        return false;
    }
    let Some(value) = value(pid) else { return false };
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: a child of ours that we have not reaped, and a limit that lives as long as the call.
    unsafe { libc::prlimit(pid as i32, resource, &limit, std::ptr::null_mut()) == 0 }
}
