//! `nopal record` and `nopal run` on sites that another tool takes over and gives back.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{nopal, scratch};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// `nopal` on `life:round`, by the user door.
struct Recording {
    target: Running,
    nopal: Running,
    folder: PathBuf,
}

impl Recording {
    /// `None` if the user door cannot open the site where this process happens to be loaded.
    fn start(program: &Path, arguments: &[&str]) -> Option<Recording> {
        let folder = scratch(&format!("beside-others-{}", arguments[0]));
        let target = Running::start(Command::new(program).arg("600000").stdout(Stdio::null()));
        let nopal = Running::start(
            Command::new(nopal())
                .args(arguments)
                .args(["-v", "-p", &target.pid().to_string()])
                .current_dir(&folder)
                .stdout(File::create(folder.join("result")).unwrap())
                .stderr(File::create(folder.join("messages")).unwrap()),
        );
        let recording = Recording { target, nopal, folder };
        wait_until("nopal to be at work", 60, || recording.said().contains(" in process "));
        recording.said().contains(": user door: ").then_some(recording)
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("messages")).unwrap()
    }

    fn wait_for(&self, text: &str, n_times: usize) {
        wait_until(text, 60, || self.said().matches(text).count() >= n_times);
    }

    /// bpftrace comes to the site, stays for a while, and leaves.
    fn is_visited(&self, program: &Path, visit: usize) {
        let script = format!("usdt:{}:life:round {{ @ = count(); }}", program.display());
        let mut bpftrace = Running::start(
            Command::new("bpftrace")
                .args(["-q", "-p", &self.target.pid().to_string(), "-e", &script])
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        );
        self.wait_for("the kernel door has it now", visit);
        // Long enough for hits in the kernel door to be more than those in between.
        std::thread::sleep(Duration::from_millis(1500));
        wait_until("bpftrace to end", 30, || {
            interrupt(bpftrace.pid());
            std::thread::sleep(Duration::from_millis(200));
            bpftrace.0.try_wait().unwrap().is_some()
        });
        self.wait_for("as the other tool has left", visit);
        std::thread::sleep(Duration::from_millis(800));
    }

    /// How many uprobes nopal holds in the kernel.
    fn n_uprobes(&self) -> usize {
        let links = fs::read_dir(format!("/proc/{}/fd", self.nopal.pid())).unwrap().flatten();
        let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
        targets.filter(|target| target.as_os_str() == "anon_inode:bpf_link").count()
    }

    /// What it printed, and its folder.
    fn finish(mut self) -> (String, PathBuf) {
        interrupt(self.nopal.pid());
        assert!(self.nopal.0.wait().unwrap().success(), "{}", self.said());
        assert!(self.target.0.try_wait().unwrap().is_none(), "the program lives");
        (fs::read_to_string(self.folder.join("result")).unwrap(), self.folder.clone())
    }
}

fn interrupt(pid: u32) {
    // SAFETY: a pid we started and have not reaped.
    unsafe { libc::kill(pid as i32, libc::SIGINT) };
}

#[test]
fn a_site_that_bpftrace_takes_over_goes_through_the_kernel_door_until_it_leaves() {
    let program = build("life", &["life.c"], Build::Pie);
    let arguments = ["record", "--json", "-e", "life:round", "-o", "rec"];
    let start = || Recording::start(&program, &arguments);
    let recording = (0..20).find_map(|_| start()).expect("one of twenty draws has room");
    const VISITS: usize = 2;
    (1..=VISITS).for_each(|visit| recording.is_visited(&program, visit));
    let said = recording.said();
    let (result, folder) = recording.finish();
    let result: Value = serde_json::from_str(&result).unwrap();
    let viewed = Command::new(nopal()).args(["view", "--json"]).arg(folder.join("rec")).output().unwrap();
    let lines = String::from_utf8(viewed.stdout).unwrap();
    let mut rounds: Vec<u64> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["args"]["arg0"].as_u64().unwrap())
        .collect();
    rounds.sort_unstable();
    assert!(rounds.windows(2).all(|w| w[0] < w[1]), "no hit came twice");
    let blocks: Vec<usize> = rounds.chunk_by(|a, b| b - a == 1).map(<[u64]>::len).collect();
    // Whatever is missing was said to be, and between the gaps nothing is.
    let n_gaps = result["gaps"].as_u64().unwrap();
    assert!(n_gaps >= 2 * VISITS as u64 && blocks.len() as u64 <= n_gaps + 1, "{blocks:?} {said}");
    assert!(blocks.iter().filter(|n| **n > 100).count() >= 2 * VISITS, "{blocks:?} {said}");
    assert_eq!(result["complete"], false);
    let verdict: Value =
        serde_json::from_str(String::from_utf8(viewed.stderr).unwrap().lines().last().unwrap()).unwrap();
    for key in ["events", "lost", "complete", "gaps", "late_processes"] {
        assert_eq!(result[key], verdict[key], "{key}: {result} {verdict}");
    }
    assert_eq!(verdict["notes"].as_array().unwrap().len() as u64, n_gaps, "{verdict}");
}

#[test]
fn a_script_gets_the_site_back_that_bpftrace_took_over() {
    let program = build("life", &["life.c"], Build::Pie);
    let script = format!("usdt:{}:life:round {{ printf(\"%d\\n\", arg0); }}", program.display());
    let start = || Recording::start(&program, &["run", "--json", "-e", &script]);
    let run = (0..20).find_map(|_| start()).expect("one of twenty draws has room");
    const VISITS: usize = 2;
    for visit in 1..=VISITS {
        run.is_visited(&program, visit);
        assert_eq!(run.n_uprobes(), 0, "the kernel door has left: {}", run.said());
    }
    let said = run.said();
    let (printed, _) = run.finish();
    let (lines, answer) = printed.trim_end().rsplit_once('\n').unwrap();
    let answer: Value = serde_json::from_str(answer).unwrap();
    let round = |line: &str| {
        let printed: Value = serde_json::from_str(line).unwrap();
        printed["data"].as_str().unwrap().trim_end().parse().unwrap()
    };
    let rounds: Vec<u64> = lines.lines().map(round).collect();
    assert!(rounds.windows(2).all(|w| w[0] < w[1]), "in order, and no hit came twice");
    let blocks: Vec<usize> = rounds.chunk_by(|a, b| b - a == 1).map(<[u64]>::len).collect();
    let n_gaps = answer["gaps"].as_u64().unwrap();
    assert!(n_gaps >= 2 * VISITS as u64 && blocks.len() as u64 <= n_gaps + 1, "{blocks:?} {said}");
    assert!(blocks.iter().filter(|n| **n > 100).count() >= 2 * VISITS, "{blocks:?} {said}");
    assert_eq!(answer["complete"], false);
}
