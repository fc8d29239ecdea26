//! Events that are read when their process has ended have the context they would have had before.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::{nopal, root, run, scratch};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PROGRAM: &str = r#"
#include <pthread.h>
#include <unistd.h>
#include <sys/prctl.h>
#include <sys/sdt.h>

__attribute__((noinline)) static void inner(long n) {
    STAP_PROBE1(dead, count, n);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void outer(long n) {
    inner(n);
    __asm__ volatile("" ::: "memory");
}

static void *work(void *unused) {
    prctl(PR_SET_NAME, "the-worker");
    for (long n = 0;; n++) {
        outer(n);
        usleep(1000);
    }
    return unused;
}

int main(void) {
    pthread_t worker;
    pthread_create(&worker, 0, work, 0);
    pthread_join(worker, 0);
}
"#;

struct Place(PathBuf);

impl Place {
    #[track_caller]
    fn nopal(&self, line: &[&str]) -> String {
        run(Command::new(nopal()).args(line).env("NOPAL_HOME", self.0.join("home")))
    }

    /// Where, who and by which way, of each event: all are the same.
    fn context(&self, recording: &Path) -> Vec<String> {
        let text = self.nopal(&["view", recording.to_str().unwrap(), "--json"]);
        let mut all: Vec<String> = text
            .lines()
            .map(|line| {
                let event: Value = serde_json::from_str(line).unwrap();
                let of = |name: &str| {
                    event.pointer(&format!("/context/{name}")).unwrap_or(&Value::Null).to_string()
                };
                ["ip", "procname", "ustack"].map(of).join(" ")
            })
            .collect();
        assert!(!all.is_empty(), "{}", recording.display());
        all.sort();
        all.dedup();
        all
    }

    fn snapshots(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("out")).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.to_str().unwrap().contains("end-of")).collect()
    }
}

#[test]
fn a_snapshot_of_a_dead_process_says_where_its_events_were() {
    let place = Place(scratch("recording-dead"));
    let (source, program) = (place.0.join("dead.c"), place.0.join("dead"));
    fs::write(&source, PROGRAM).unwrap();
    run(Command::new("cc")
        .args(["-O2", "-pthread", "-D_GNU_SOURCE", "-I"])
        .arg(root().join("include"))
        .arg("-o")
        .args([&program, &source]));
    let mut target = Running::start(Command::new(&program).stdout(Stdio::null()));
    let (pid, out) = (target.0.id().to_string(), place.0.join("out"));
    place.nopal(&["create", "s", "--snapshot", "--output", out.to_str().unwrap()]);
    place.nopal(&["enable-event", "-u", "dead:*"]);
    place.nopal(&["add-context", "-u", "-t", "ip", "-t", "procname", "-t", "ustack"]);
    place.nopal(&["track", "-u", "-p", &pid]);
    place.nopal(&["start"]);
    let taken = |name: &str| -> (PathBuf, u64) {
        let taken: Value =
            serde_json::from_str(&place.nopal(&["snapshot", "record", "-n", name, "--json"])).unwrap();
        (PathBuf::from(taken["path"].as_str().unwrap()), taken["events"].as_u64().unwrap())
    };
    wait_until("there are events", 30, || taken("alive").1 > 5);
    let alive = place.context(&taken("last").0);
    assert!(alive.iter().all(|context| context.contains("the-worker")), "{alive:?}");
    target.0.kill().unwrap();
    target.0.wait().unwrap();
    wait_until("its end makes a snapshot", 30, || !place.snapshots().is_empty());
    let end = place.snapshots().remove(0);
    place.nopal(&["stop"]);
    assert_eq!(place.context(&end), alive);
}
