//! Processes of different users, one of which attacks what it shares with the other: neither has anything of the other's, and
//! whoever becomes somebody else is kept apart from that moment on.

use super::user_door_hostile::send;
use nopal_tests::nopal;
use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::user_door::Door;
use nopal_user::session::Notice;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

/// A program that attacks what it shares with another, in folders that any user can read.
struct Rivals {
    folder: PathBuf,
    program: PathBuf,
    since_ns: u64,
}

/// Somebody who is nobody else.
const ATTACKER: u32 = 12345;
const SECRET: &str = "the-secret-of-root";

impl Rivals {
    fn new(name: &str) -> Rivals {
        // SAFETY: no arguments, no effect.
        assert_eq!(unsafe { libc::geteuid() }, 0, "two users are needed: run as root");
        let folder = PathBuf::from(format!("/tmp/nopal-rivals-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        let program = folder.join("rival");
        nopal_tests::copy_program(&build("rival", &["rival.c"], Build::Pie), &program);
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        fs::write(folder.join("rival.d"), "provider rival { probe said(char *text, long n); };\n").unwrap();
        Rivals { folder, program, since_ns: now_ns() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn say(&self, name: &str) {
        fs::write(self.path(name), "").unwrap();
    }

    /// `nopal record` of what `more` names, at work; what a command of it says is kept.
    fn record(&self, more: &[&str]) -> Running {
        let messages = self.path("messages");
        let said = fs::File::options().append(true).create(true).open(self.path("said")).unwrap();
        let running = Running::start(
            Command::new(nopal())
                .args(["record", "-v", "--door", "user", "-e", "rival:*", "--provider"])
                .arg(self.path("rival.d"))
                .arg("-o")
                .arg(self.path("rec"))
                .args(more)
                .stdout(said)
                .stderr(fs::File::create(&messages).unwrap()),
        );
        wait_until("nopal to be at work", 60, || fs::read_to_string(&messages).unwrap().contains("sites: "));
        running
    }

    /// What the recorded program said in a line that begins so.
    fn heard(&self, words: &str) -> Option<String> {
        let said = fs::read_to_string(self.path("said")).unwrap();
        said.lines().find_map(|line| line.strip_prefix(words)).map(str::to_owned)
    }

    /// The attacker tries everything, and the victim goes on for some time after it.
    fn fight(&self) {
        self.say("go");
        wait_until("the attack to be over", 60, || self.heard("stubs=").is_some());
        std::thread::sleep(Duration::from_millis(300));
        self.say("end");
    }

    /// The attack found its own memory and got nowhere; every hit of the victim is recorded as it was.
    fn assert_held(&self, victim: u32, first: u64) {
        let attack = self.heard("stubs=").unwrap();
        let (stubs, attack) = attack.split_once(" rings=").unwrap();
        let (rings, attack) = attack.split_once(' ').unwrap();
        assert!(stubs != "0" && rings != "0", "it was traced");
        assert_eq!(attack, "fds=0 rwx=0 mem=0 reopened=0 files=0 shared=0 read=0");
        let passed: u64 = self.heard("passed=").unwrap().parse().unwrap();
        let view = Command::new(nopal()).args(["view", "--json"]).arg(self.path("rec")).output().unwrap();
        let mut expected = first;
        for line in String::from_utf8(view.stdout).unwrap().lines() {
            let event: serde_json::Value = serde_json::from_str(line).unwrap();
            let Some(ns) = event["ts"].as_u64() else { continue };
            assert!((self.since_ns..now_ns()).contains(&ns), "a time that is not: {line}");
            if event["pid"] == victim {
                assert_eq!(event["args"]["text"], SECRET, "{line}");
                let n = event["args"]["n"].as_u64().unwrap();
                if expected == u64::MAX {
                    expected = n;
                }
                assert_eq!(n, expected, "{line}");
                expected += 1;
            }
        }
        assert_eq!(expected, passed, "every hit of the victim");
        // What the attacker did to its own ring is told.
        let verdict: serde_json::Value = serde_json::from_slice(&view.stderr).unwrap();
        assert!(verdict["complete"] == false && verdict["lost"].as_u64() > Some(0), "{verdict}");
        fs::remove_dir_all(&self.folder).unwrap();
    }
}

fn now_ns() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// Inodes of the rings and stub spaces that a process has.
fn shared_memory(pid: u32) -> Vec<u64> {
    let maps = nopal_user::maps::Maps::read(pid as i32).unwrap();
    let is_ours = |r: &&nopal_proc::Mapping| r.path.to_string_lossy().starts_with("/memfd:nopal-");
    let mut inodes: Vec<u64> = maps.ranges.iter().filter(is_ours).map(|r| r.inode).collect();
    inodes.sort_unstable();
    inodes.dedup();
    inodes
}

/// Both are traced, and nothing of one is the other's.
fn are_apart(one: u32, other: u32) -> bool {
    let [one, other] = [one, other].map(shared_memory);
    one.len() >= 2 && other.len() >= 2 && !one.iter().any(|inode| other.contains(inode))
}

#[test]
fn a_worker_that_dropped_its_user_has_nothing_of_its_parent() {
    let rivals = Rivals::new("drop");
    let (go, end) = (rivals.path("go"), rivals.path("end"));
    let user = ATTACKER.to_string();
    let [program, go, end] = [&rivals.program, &go, &end].map(|path| path.to_str().unwrap());
    let mut record = rivals.record(&["--", program, "drop", &user, SECRET, go, end]);
    wait_until("the worker", 30, || rivals.heard("worker ").is_some());
    let worker: u32 = rivals.heard("worker ").unwrap().parse().unwrap();
    let victim = nopal_proc::Process::read(worker).unwrap().parent;
    wait_until("the worker to be apart", 30, || are_apart(worker, victim));
    rivals.fight();
    assert!(record.0.wait().unwrap().success());
    rivals.assert_held(victim, 0);
}

#[test]
fn programs_of_two_users_in_one_recording_have_nothing_in_common() {
    let rivals = Rivals::new("two");
    let out = || fs::File::options().append(true).create(true).open(rivals.path("said")).unwrap();
    let end = rivals.path("end");
    let mut victim =
        Running::start(Command::new(&rivals.program).args(["victim", SECRET]).arg(&end).stdout(out()));
    let mut attacker = Running::start(
        Command::new(&rivals.program)
            .arg("attack")
            .args([rivals.path("go"), end])
            .args([SECRET, &victim.pid().to_string()])
            .uid(ATTACKER)
            .gid(ATTACKER)
            .stdout(out()),
    );
    let pids = [victim.pid(), attacker.pid()].map(|pid| pid.to_string());
    let mut record = rivals.record(&["-p", &pids[0], "-p", &pids[1]]);
    wait_until("both to be traced, apart", 30, || are_apart(victim.pid(), attacker.pid()));
    rivals.fight();
    assert!(victim.0.wait().unwrap().success() && attacker.0.wait().unwrap().success());
    assert!(record.0.wait().unwrap().success());
    rivals.assert_held(victim.pid(), u64::MAX);
}

#[test]
fn a_set_user_id_child_has_nothing_of_its_parent() {
    let rivals = Rivals::new("setuid");
    let raised = rivals.path("raised");
    nopal_tests::copy_program(&rivals.program, &raised);
    fs::set_permissions(&raised, PermissionsExt::from_mode(0o4755)).unwrap();
    let out = fs::File::options().append(true).create(true).open(rivals.path("said")).unwrap();
    let [raised, go, end] = [raised, rivals.path("go"), rivals.path("end")];
    let mut parent = Running::start(
        Command::new(&rivals.program)
            .arg("parent")
            .args([&raised])
            .arg(SECRET)
            .args([&go, &end])
            .uid(ATTACKER)
            .gid(ATTACKER)
            .stdout(out),
    );
    wait_until("the child", 30, || rivals.heard("child ").is_some());
    let child: u32 = rivals.heard("child ").unwrap().parse().unwrap();
    let mut record = rivals.record(&["-p", &parent.pid().to_string()]);
    wait_until("both to be traced, apart", 30, || are_apart(child, parent.pid()));
    rivals.fight();
    assert!(parent.0.wait().unwrap().success());
    assert!(record.0.wait().unwrap().success());
    rivals.assert_held(child, u64::MAX);
}

/// A program whose child is to become somebody else. Ends with its child when it is dropped.
struct Pair {
    parent: Running,
    out: BufReader<ChildStdout>,
    child: Option<u32>,
}

impl Pair {
    fn start(what: &str) -> Pair {
        let program = build("rival", &["rival.c"], Build::Pie);
        let mut command = Command::new(program);
        command.args(["become", what]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut parent = Running(command.spawn().unwrap());
        let out = BufReader::new(parent.0.stdout.take().unwrap());
        let mut pair = Pair { parent, out, child: None };
        assert_eq!(pair.line(), "ready");
        pair
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn go_on(&mut self) {
        self.parent.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Parent and child.
    fn fork(&mut self) -> (u32, u32) {
        self.go_on();
        let child = self.line().strip_prefix("child ").unwrap().parse().unwrap();
        self.child = Some(child);
        (self.parent.pid(), child)
    }

    fn is_alive(&self) -> bool {
        let all = self.child.into_iter().chain([self.parent.pid()]);
        all.into_iter().all(nopal_proc::Process::is_alive)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some(child) = self.child {
            send(child, libc::SIGKILL);
        }
    }
}

#[test]
fn whoever_becomes_somebody_else_gets_a_ring_of_its_own() {
    for what in ["user", "group", "groups", "capabilities", "namespace", "undumpable", "filtered"] {
        let mut pair = Pair::start(what);
        let options = nopal_tests::user_door::small_options();
        let mut door = Door::open_with(pair.parent.pid(), "rival:said", &options).unwrap();
        let (parent, child) = pair.fork();
        let shared = shared_memory(parent);
        assert!(shared.len() >= 2 && shared_memory(child) == shared, "{what}: they are alike");
        // Both are heard in the one ring they have, then each in its own; nothing is out of order meanwhile.
        for is_apart in [false, true] {
            if is_apart {
                pair.go_on();
            }
            let mut rings: HashMap<u32, HashSet<u32>> = HashMap::new();
            wait_until(what, 30, || {
                let mut notices = door.session.look_after();
                notices.retain(|notice| !matches!(notice, Notice::Restrained { is_silent: false, .. }));
                assert!(notices.is_empty(), "{what}: {notices:?}");
                let polled = door.reader.poll(|source, record| {
                    rings.entry(record.task.unwrap().pid).or_default().insert(source.ring);
                });
                assert_eq!((polled.damaged, polled.forged), (0, 0), "{what}");
                assert!(pair.is_alive(), "{what}");
                rings.contains_key(&parent) && rings.get(&child).is_some_and(|r| r.contains(&1) == is_apart)
            });
            assert_eq!(rings[&parent], HashSet::from([0]), "{what}");
            assert_eq!(are_apart(parent, child), is_apart, "{what}");
            assert_eq!(shared_memory(parent), shared, "{what}: the parent has what it had");
        }
        door.session.detach();
        assert!(pair.is_alive(), "{what}");
    }
}

#[test]
fn a_child_that_is_not_traced_is_kept_apart_too() {
    let mut pair = Pair::start("user");
    let options = nopal_tests::user_door::small_options();
    let options = nopal_user::session::Options { without_children: true, ..options };
    let mut door = Door::open_with(pair.parent.pid(), "rival:said", &options).unwrap();
    let (parent, child) = pair.fork();
    let rings = |pid: u32| {
        let maps = nopal_user::maps::Maps::read(pid as i32).unwrap();
        maps.ranges.iter().filter(|r| r.is_called("/memfd:nopal-ring")).count()
    };
    let mut pids = HashSet::new();
    wait_until("the child to be heard", 30, || {
        door.session.look_after();
        door.reader.poll(|_, record| pids.extend(record.task.map(|task| task.pid)));
        pids.contains(&child)
    });
    pair.go_on();
    wait_until("the child to have no ring", 30, || {
        let notices = door.session.look_after();
        assert!(notices.is_empty(), "{notices:?}");
        rings(child) == 0
    });
    assert_eq!(rings(parent), 1);
    // It goes on, and nothing of it is heard.
    door.reader.poll(|_, _| {});
    pids.clear();
    wait_until("the parent to be heard", 30, || {
        door.reader.poll(|_, record| pids.extend(record.task.map(|task| task.pid)));
        pids.contains(&parent)
    });
    assert!(!pids.contains(&child) && pair.is_alive());
    door.session.detach();
    assert!(pair.is_alive());
}
