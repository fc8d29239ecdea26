//! What tests share that open and close a program again and again: how often, at which moments, what must not grow, and
//! other tracers that come and go meanwhile.

use nopal_user::maps::Maps;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// As often as CI has time for, or as often as is asked for.
pub fn cycles(usual: u32) -> u32 {
    asked("NOPAL_CYCLES").unwrap_or(usual)
}

/// The same for tracers that are killed.
pub fn kills(usual: u32) -> u32 {
    asked("NOPAL_KILLS").unwrap_or(usual)
}

/// The same for rounds in which something goes wrong by chance.
pub fn rounds(usual: u32) -> u32 {
    asked("NOPAL_ROUNDS").unwrap_or(usual)
}

fn asked(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Numbers by chance, the same again for the same seed (`NOPAL_SEED`), which is printed.
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(what: &str) -> Chance {
        let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |d| d.subsec_nanos());
        let seed = asked("NOPAL_SEED").unwrap_or_else(now);
        println!("{what}: NOPAL_SEED={seed}");
        Chance(u64::from(seed) << 1 | 1)
    }

    /// The same numbers for the same seed, and others for the next one.
    pub fn of(seed: u64) -> Chance {
        // A step of splitmix64: seeds that are alike must not draw alike.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Chance((mixed ^ (mixed >> 31)) | 1)
    }

    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// Less than `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        // xorshift64.
        for shift in [13, -7, 17] {
            self.0 ^= if shift > 0 { self.0 << shift } else { self.0 >> -shift };
        }
        (self.0 >> 16) % end
    }
}

/// How long opening and closing took, for whoever reads the output.
#[derive(Debug, Default)]
pub struct Spans {
    opening: Vec<Duration>,
    closing: Vec<Duration>,
}

impl Spans {
    pub fn open<T>(&mut self, work: impl FnOnce() -> T) -> T {
        timed(&mut self.opening, work)
    }

    pub fn close<T>(&mut self, work: impl FnOnce() -> T) -> T {
        timed(&mut self.closing, work)
    }
}

fn timed<T>(spans: &mut Vec<Duration>, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let done = work();
    spans.push(start.elapsed());
    done
}

impl std::fmt::Display for Spans {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (what, spans) in [("opened", &self.opening), ("closed", &self.closing)] {
            let mut sorted = spans.clone();
            sorted.sort_unstable();
            let at =
                |part: usize| sorted.get((sorted.len() * part / 100).min(sorted.len().saturating_sub(1)));
            let ms = |part: usize| at(part).map_or(0, Duration::as_millis);
            write!(f, "{what} in {} / {} / {} ms (half / 9 of 10 / all) ", ms(50), ms(90), ms(100))?;
        }
        Ok(())
    }
}

/// What tracing adds to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    pub n_mappings: usize,
    pub bytes: u64,
    /// Files and sockets a tracer hands over; others come and go with what the program does.
    pub n_descriptors: usize,
}

impl Footprint {
    pub fn of(pid: u32) -> Footprint {
        let maps = Maps::read(pid as i32).expect("the process is there");
        let ours: Vec<u64> = maps
            .ranges
            .iter()
            .filter(|r| r.path.to_string_lossy().contains("memfd:nopal"))
            .map(|r| r.end - r.start)
            .collect();
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is there");
        let is_passed = |link: &Path| {
            let name = link.to_string_lossy();
            name.starts_with("/memfd:nopal") || name.starts_with("socket:")
        };
        Footprint {
            n_mappings: ours.len(),
            bytes: ours.iter().sum(),
            n_descriptors: descriptors
                .flatten()
                .filter_map(|d| fs::read_link(d.path()).ok())
                .filter(|link| is_passed(link))
                .count(),
        }
    }
}

/// All mappings of a process and their size, whoever made them.
pub fn address_space(pid: u32) -> (usize, u64) {
    let maps = Maps::read(pid as i32).expect("the process is there");
    (maps.ranges.len(), maps.ranges.iter().map(|r| r.end - r.start).sum())
}

/// bpftrace coming to a process and leaving it at random moments: by itself, or killed.
#[derive(Debug)]
pub struct Visitors {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Visits>,
}

/// What the visitors did.
#[derive(Debug, Default, Clone, Copy)]
pub struct Visits {
    pub n_visits: u64,
    pub n_killed: u64,
    pub n_hits: u64,
}

impl Visitors {
    /// One after another, each on one to three of the probes.
    pub fn start(pid: u32, file: &Path, provider: &str, probes: &[&str]) -> Visitors {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let sites: Vec<String> =
            probes.iter().map(|name| format!("usdt:{}:{provider}:{name}", file.display())).collect();
        let mut chance = Chance::new("bpftrace");
        let thread = std::thread::spawn(move || {
            let mut visits = Visits::default();
            while !stop.load(Ordering::Relaxed) || visits.n_hits == 0 {
                visit(pid, &sites, &mut chance, &mut visits);
                assert!(visits.n_visits < 20 || visits.n_hits > 0, "bpftrace sees nothing: {visits:?}");
            }
            // Where a tracer is killed while it comes or goes, Linux leaves the trap ("failed to unregister, leaking
            // uprobe") until the next one at that place has left by itself.
            let sites: Vec<&str> = sites.iter().map(String::as_str).collect();
            stay(pid, &sites, Duration::from_millis(20), &mut visits);
            visits
        });
        Visitors { is_over, thread }
    }

    /// Lets the last one leave, when at least one has seen hits.
    pub fn finish(self) -> Visits {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("bpftrace was well")
    }
}

fn visit(pid: u32, sites: &[String], chance: &mut Chance, visits: &mut Visits) {
    let first = chance.below(sites.len() as u64) as usize;
    let n = 1 + chance.below(3.min(sites.len() as u64)) as usize;
    let chosen: Vec<&str> = (0..n).map(|i| sites[(first + i) % sites.len()].as_str()).collect();
    let time = Duration::from_millis(20 + chance.below(400));
    // One in four is killed at any moment: before, in, or after its attaching.
    if chance.below(4) == 0 {
        let mut child = bpftrace(pid, &chosen, time).spawn().expect("bpftrace starts");
        wait_at_most(&mut child, Duration::from_millis(100 + chance.below(2500)));
        let _ = child.kill();
        let _ = child.wait();
        visits.n_visits += 1;
        visits.n_killed += 1;
        return;
    }
    stay(pid, &chosen, time, visits);
}

fn bpftrace(pid: u32, sites: &[&str], time: Duration) -> Command {
    let script =
        format!("{} {{ @ = count(); }} interval:ms:{} {{ exit(); }}", sites.join(","), time.as_millis());
    let mut command = Command::new("bpftrace");
    command
        .args(["-p", &pid.to_string(), "-e", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A visitor that leaves by itself.
fn stay(pid: u32, sites: &[&str], time: Duration, visits: &mut Visits) {
    let output = bpftrace(pid, sites, time).output().expect("bpftrace runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{sites:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    visits.n_visits += 1;
    visits.n_hits += said
        .lines()
        .find_map(|line| line.strip_prefix("@: "))
        .and_then(|n| n.trim().parse::<u64>().ok())
        .unwrap_or_default();
}

fn wait_at_most(child: &mut Child, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end && child.try_wait().is_ok_and(|status| status.is_none()) {
        std::thread::sleep(Duration::from_millis(5));
    }
}
