//! `nopal` on processes that are in no state to be traced, and under limits: it works or says one clear sentence, and the
//! program never notices.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::user_door::{Door, text};
use nopal_tests::{nopal, scratch};
use nopal_user::session::Notice;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Output, Stdio};
use std::time::Duration;

/// A program that checks itself.
struct Busy {
    running: Running,
    out: BufReader<ChildStdout>,
    before: nopal_tests::user_door::Text,
}

fn program() -> PathBuf {
    build("busy", &["busy.c", "own.c"], Build::Pie)
}

impl Busy {
    fn start() -> Busy {
        Busy::of(&program())
    }

    fn of(program: &Path) -> Busy {
        Busy::by(&mut Command::new(program))
    }

    fn by(command: &mut Command) -> Busy {
        let mut running = Running::start(command.args(["-q", "-t", "2"]).stdout(Stdio::piped()));
        let mut out = BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let before = text(running.pid());
        Busy { running, out, before }
    }

    fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn signal(&self, signal: i32) {
        send(self.pid(), signal);
    }

    /// Its code is what it was, it ends when it is asked to, and it has seen no error.
    fn end(mut self) {
        text(self.pid()).assert_is(&self.before);
        self.signal(libc::SIGTERM);
        let mut said = String::new();
        self.out.read_to_string(&mut said).unwrap();
        assert!(self.running.0.wait().unwrap().success() && said.contains("errors=0"), "{said}");
    }
}

fn send(pid: u32, signal: i32) {
    // SAFETY: a pid we started and have not reaped.
    unsafe { libc::kill(pid as i32, signal) };
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Records for a moment, through a shell that sets the limits first.
fn record(pid: u32, limits: &str, more: &str) -> Output {
    let folder = scratch(&format!("hostile-{pid}"));
    let script = format!(
        "{limits} exec {} record --duration 0.3 -e 'busy:*' -p {pid} -o {}/rec {more}",
        nopal().display(),
        folder.display()
    );
    let mut shell = Command::new("sh");
    // What the test itself has inherited must not count against the limits.
    // SAFETY: a system call on numbers, between fork and exec.
    unsafe {
        shell.pre_exec(|| {
            libc::close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC as i32);
            Ok(())
        });
    }
    shell.args(["-c", &script]).stdin(Stdio::null()).output().unwrap()
}

/// Not more than a sentence and what to do next.
#[track_caller]
fn assert_refused(output: &Output, why: &str) {
    let said = said(output);
    assert!(!output.status.success() && said.contains(why), "{said}");
    assert!(said.lines().count() <= 2 && !said.contains("panicked"), "{said}");
}

#[track_caller]
fn assert_recorded(output: &Output) {
    assert!(output.status.success() && said(output).contains("user door"), "{}", said(output));
}

#[test]
fn under_limits() {
    let busy = Busy::start();
    assert_recorded(&record(busy.pid(), "ulimit -n 64;", ""));
    assert_recorded(&record(busy.pid(), "unset LANG LC_ALL HOME TERM;", ""));
    assert_refused(&record(busy.pid(), "ulimit -v 30000;", ""), "Cannot allocate memory");
    // Not enough to begin, to open the process, to write the recording, and enough: what was opened is always closed.
    for n in 8..36 {
        let output = record(busy.pid(), &format!("ulimit -n {n};"), "");
        let said = said(&output);
        assert!(
            output.status.success() || said.to_lowercase().contains("too many open files"),
            "{n}: {said}"
        );
        assert!(!said.contains("disk") && !said.contains("panicked"), "{n}: {said}");
        assert!(text(busy.pid()) == busy.before, "{n}: the code is what it was: {said}");
    }
    busy.end();
}

#[test]
fn programs_under_limits() {
    let busy = Busy::start();
    let limit = |what: &str| {
        nopal_tests::run(Command::new("prlimit").args([&format!("--pid={}", busy.pid()), what]));
    };
    let status = fs::read_to_string(format!("/proc/{}/status", busy.pid())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let kib: u64 = size.trim().trim_end_matches(" kB").parse().unwrap();
    limit(&format!("--as={}:unlimited", (kib + 64) << 10));
    assert_refused(&record(busy.pid(), "", "--door user"), "could not map");
    limit("--as=unlimited:unlimited");
    limit("--nofile=3:1024");
    let refused = record(busy.pid(), "", "--door user");
    limit("--nofile=1024:1024");
    assert_refused(&refused, "Too many open files");
    assert_recorded(&record(busy.pid(), "", ""));
    // What it wanted to open meanwhile is its own affair.
    text(busy.pid()).assert_is(&busy.before);
}

#[test]
fn a_stopped_program_stays_stopped() {
    let busy = Busy::start();
    busy.signal(libc::SIGSTOP);
    let state = || nopal_user::process::status(busy.pid() as i32).unwrap().state;
    wait_until("it to stop", 10, || state() == 'T');
    assert_recorded(&record(busy.pid(), "", ""));
    assert_eq!(state(), 'T');
    busy.signal(libc::SIGCONT);
    busy.end();
}

#[test]
fn a_program_under_strace_names_it() {
    let busy = Busy::start();
    let mut strace = Running::start(
        Command::new("strace")
            .args(["-f", "-o", "/dev/null", "-p", &busy.pid().to_string()])
            .stderr(Stdio::null()),
    );
    let tracer = || nopal_user::process::status(busy.pid() as i32).unwrap().tracer_pid;
    wait_until("strace to attach", 20, || tracer() != 0);
    assert_refused(&record(busy.pid(), "", ""), "(strace)");
    send(strace.pid(), libc::SIGINT);
    let _ = strace.0.wait();
    assert_recorded(&record(busy.pid(), "", ""));
    busy.end();
}

#[test]
fn a_program_in_valgrind_is_left_alone() {
    // It translates what stands in the code: a breakpoint of the kernel would be the program's own, and its end.
    let mut command = Command::new("valgrind");
    command.args(["-q", "--tool=none"]).arg(program());
    let busy = Busy::by(&mut command);
    for door in ["auto", "user", "kernel"] {
        let refused = record(busy.pid(), "", &format!("--door {door}"));
        assert_refused(&refused, "runs in valgrind");
    }
    busy.end();
}

#[test]
fn a_zombie_has_ended() {
    let ended = Running::start(&mut Command::new("true"));
    wait_until("the child to end", 10, || {
        fs::read_to_string(format!("/proc/{}/stat", ended.pid())).is_ok_and(|s| s.contains(") Z "))
    });
    assert_refused(&record(ended.pid(), "", ""), "has ended");
    let detached = Command::new(nopal()).args(["detach", "-p", &ended.pid().to_string()]).output().unwrap();
    assert_refused(&detached, "has ended");
}

#[test]
fn a_program_whose_file_was_replaced() {
    let folder = scratch("hostile-upgraded");
    let path = folder.join("upgraded");
    nopal_tests::copy_program(&program(), &path);
    let busy = Busy::of(&path);
    fs::remove_file(&path).unwrap();
    assert_recorded(&record(busy.pid(), "", ""));
    // Another program has its place now.
    nopal_tests::copy_program(Path::new("/bin/true"), &path);
    assert_recorded(&record(busy.pid(), "", ""));
    // And a tracer that was killed is cleaned up after by what the process itself has of the file.
    let mut killed = started(&busy, &folder.join("killed"));
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let restored = detach(busy.pid());
    assert!(restored.contains("restored"), "{restored}");
    busy.end();
}

/// `nopal record` that is at work.
fn started(busy: &Busy, recording: &Path) -> Running {
    let messages = recording.with_extension("messages");
    let running = Running::start(
        Command::new(nopal())
            .args(["record", "-v", "-e", "busy:*", "-p", &busy.pid().to_string(), "-o"])
            .arg(recording)
            .stdout(Stdio::null())
            .stderr(fs::File::create(&messages).unwrap()),
    );
    wait_until("nopal to be at work", 60, || fs::read_to_string(&messages).unwrap().contains("sites: "));
    running
}

fn detach(pid: u32) -> String {
    let output = Command::new(nopal()).args(["detach", "-p", &pid.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    said(&output)
}

#[test]
fn several_tracers_of_which_one_is_killed() {
    let folder = scratch("hostile-several");
    let busy = Busy::start();
    let mut first = started(&busy, &folder.join("first"));
    let mut second = started(&busy, &folder.join("second"));
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    // What the dead one left is put back, and the living one goes on.
    let restored = detach(busy.pid());
    assert!(restored.contains(&format!("process {} is tracing it and goes on", second.pid())), "{restored}");
    let size = || {
        let files = fs::read_dir(folder.join("second")).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>()
    };
    let then = size();
    wait_until("the other to go on", 20, || size() > then);
    // A terminal that is closed ends it as Ctrl-C does.
    send(second.pid(), libc::SIGHUP);
    assert!(second.0.wait().unwrap().success());
    let nothing = detach(busy.pid());
    assert!(nothing.contains("nothing to restore") && !nothing.contains("goes on"), "{nothing}");
    assert_recorded(&record(busy.pid(), "", ""));
    busy.end();
}

#[test]
fn the_commands_are_killed_at_random_moments() {
    let folder = scratch("hostile-killed");
    let mut chance = nopal_tests::cycles::Chance::new("kills");
    let mut busy = Busy::start();
    for i in 0..nopal_tests::cycles::kills(8) {
        let mut tracer = Running::start(
            Command::new(nopal())
                .args(["record", "-e", "busy:*", "-p", &busy.pid().to_string(), "-o"])
                .arg(folder.join(format!("recording-{i}")))
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        );
        std::thread::sleep(Duration::from_micros(2000 + chance.below(120_000)));
        tracer.0.kill().unwrap();
        tracer.0.wait().unwrap();
        assert!(busy.running.0.try_wait().unwrap().is_none(), "kill {i}: the program lives");
        detach(busy.pid());
        if i % 4 == 0 {
            let traced = Command::new(nopal())
                .args(["trace", "--limit", "3", "-p", &busy.pid().to_string(), "busy:own"])
                .output()
                .unwrap();
            let events = String::from_utf8_lossy(&traced.stdout).lines().count();
            assert!(traced.status.success() && events == 3, "kill {i}: {}", said(&traced));
        }
        let _ = fs::remove_dir_all(folder.join(format!("recording-{i}")));
    }
    wait_until("the code to be what it was, once no borrowed thread is in it", 30, || {
        detach(busy.pid());
        text(busy.pid()) == busy.before
    });
    busy.end();
}

#[test]
fn programs_that_are_about_to_end_or_start_another() {
    let life = build("life", &["life.c"], Build::Pie);
    for rounds in 0..12 {
        let mut command = Command::new(&life);
        command.arg((rounds * 7).to_string());
        if rounds % 2 == 0 {
            // It then starts itself once more.
            command.arg("--").arg(&life).arg("40");
        }
        let mut running = Running::start(command.stdout(Stdio::null()));
        let traced = Command::new(nopal())
            .args(["trace", "--duration", "0.5", "-p", &running.pid().to_string(), "life:*"])
            .output()
            .unwrap();
        let words = said(&traced);
        assert!(!words.contains("panicked") && words.lines().count() <= 4, "{words}");
        assert!(running.0.wait().unwrap().success(), "{words}");
    }
}

#[test]
fn a_forged_journal_holds_nobody_up() {
    let forged = build("forged", &["forged.c"], Build::Pie);
    // As many as a stub space of ours has, and as many as fit into one.
    for n_entries in ["8192", "65000"] {
        let mut running = Running::start(Command::new(&forged).arg(n_entries).stdout(Stdio::piped()));
        let mut line = String::new();
        BufReader::new(running.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let pid = running.pid().to_string();
        for command in [
            &["trace", "--door", "user", "--limit", "3", "-p", &pid, "forged:*"][..],
            &["detach", "-p", &pid],
            &["trace", "--limit", "3", "-p", &pid, "forged:*"],
        ] {
            let output = Command::new(nopal()).args(command).output().unwrap();
            let words = said(&output);
            assert!(!words.contains("panicked") && words.lines().count() <= 4, "{command:?}: {words}");
            assert!(running.0.try_wait().unwrap().is_none(), "{command:?}: the program lives: {words}");
        }
    }
}

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
