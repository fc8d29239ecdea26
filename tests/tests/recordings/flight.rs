//! The flight recorder of many processes: all of a control group or of a user, in one budget of memory, through crashes and
//! restarts. Always a control group or a user of the test's own.

use nopal_tests::containers::{Podman, install, none, ticker};
use nopal_tests::process::{Cgroup, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{copy_program, nopal, root, run, scratch};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

/// A session of its own, and the program that is recorded under a path of its own.
struct Flight {
    dir: PathBuf,
    program: PathBuf,
}

impl Flight {
    fn new(name: &str, create: &[&str], track: &[&str]) -> Flight {
        let dir = scratch(name);
        let program = dir.join("flight");
        copy_program(&build("flight", &["flight.c"], Build::Pie), &program);
        let flight = Flight { dir, program };
        let out = flight.out();
        let line = [&["create", "s", "--snapshot", "-o", out.to_str().unwrap()], create].concat();
        flight.nopal(&line);
        flight.nopal(&["enable-event", "-u", "flight:*"]);
        flight.nopal(&[&["track", "-u"], track].concat());
        flight
    }

    fn out(&self) -> PathBuf {
        self.dir.join("out")
    }

    fn output(&self, line: &[&str]) -> Output {
        Command::new(nopal()).args(line).env("NOPAL_HOME", self.dir.join("home")).output().unwrap()
    }

    #[track_caller]
    fn nopal(&self, line: &[&str]) -> String {
        run(Command::new(nopal()).args(line).env("NOPAL_HOME", self.dir.join("home")))
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.nopal(&["status", "s", "--json"])).unwrap()
    }

    fn recorder(&self) -> u32 {
        fs::read_to_string(self.dir.join("home/sessions/s/lock")).unwrap().parse().unwrap()
    }

    fn is_recorded(&self, pid: u32) -> bool {
        self.status()["recorder"]["pids"].as_array().unwrap().contains(&pid.into())
    }

    /// The folder of the snapshot whose name ends so, if it is whole.
    fn snapshot(&self, end: &str) -> Option<PathBuf> {
        let entries = fs::read_dir(self.out()).unwrap().flatten().map(|entry| entry.path());
        let mut named = entries.filter(|path| path.to_str().unwrap().ends_with(end));
        named.find(|path| {
            let verdict = fs::read_to_string(path.join("channel0/nopal/verdict"));
            verdict.is_ok_and(|text| text.contains("state finished"))
        })
    }

    /// Asked for now.
    fn snapshot_now(&self, name: &str) -> PathBuf {
        self.nopal(&["snapshot", "record", "--name", name]);
        self.snapshot(&format!("-{name}")).expect("it is written")
    }

    /// Runs the program by `wrapper`, a command that becomes it.
    fn start(&self, wrapper: &[&str], n_hits: u32) -> Target {
        let program = self.program.to_str().unwrap();
        let line = [wrapper, &[program]].concat();
        let mut command = Command::new(line[0]);
        command.args(&line[1..]).arg(n_hits.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut target = Target { child, lines };
        assert_eq!(target.lines.next().unwrap().unwrap(), "ready");
        target
    }

    fn start_in(&self, group: &Cgroup, n_hits: u32) -> Target {
        let members = group.members();
        self.start(&["sh", "-c", "echo 0 > \"$0\" && exec \"$@\"", members.to_str().unwrap()], n_hits)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.output(&["destroy", "--all"]);
    }
}

struct Target {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Target {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn say(&mut self, word: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{word}").unwrap();
    }

    fn does(&mut self, word: &str) {
        self.say(word);
        assert_eq!(self.lines.next().unwrap().unwrap(), "done");
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// By process: the numbers of its passes, in their order, as another reader finds them.
fn passes(snapshot: &Path) -> HashMap<u32, Vec<u32>> {
    let lines = run(Command::new("babeltrace2").arg(snapshot));
    let mut passes: HashMap<u32, Vec<u32>> = HashMap::new();
    for line in lines.lines().filter(|line| line.contains(" flight:pass:")) {
        let field = |name: &str| {
            let (_, rest) = line.split_once(&format!("{name} = ")).unwrap_or_else(|| panic!("{line}"));
            rest.split([',', ' ', '}']).next().unwrap().parse::<u32>().unwrap()
        };
        passes.entry(field("vpid")).or_default().push(field("arg0"));
    }
    passes
}

/// What an answer says of a snapshot.
fn verdict(snapshot: &Path) -> Value {
    let line = ["count", "--json", "flight:pass", "--recording"];
    let output = Command::new(nopal()).args(line).arg(snapshot).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// The bytes of all rings that some processes have: those that are mapped, and those of the kernel door, each counted once.
fn ring_bytes(pids: &[u32]) -> u64 {
    let mut rings = BTreeMap::new();
    for pid in pids {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        for line in maps.lines().filter(|line| line.contains("/memfd:nopal-ring")) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (start, end) = fields[0].split_once('-').unwrap();
            let [start, end] = [start, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
            rings.insert(format!("inode {}", fields[4]), end - start);
        }
        // BPF_MAP_TYPE_RINGBUF, whose entries are bytes.
        for file in fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap().flatten() {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if field("map_type:") == Some("27") {
                let bytes = field("max_entries:").unwrap().parse().unwrap();
                rings.insert(format!("map {}", field("map_id:").unwrap()), bytes);
            }
        }
    }
    rings.values().sum()
}

#[test]
fn a_control_group_is_recorded_through_restarts_until_one_crashes() {
    let _quiet = none();
    let group = Cgroup::new("nopal-flight");
    let path = group.0.to_str().unwrap();
    let flight = Flight::new("flight-group", &["--memory", "16M"], &["--cgroup", path]);
    let started = flight.nopal(&["start"]);
    assert!(started.contains("0 processes"), "{started}");
    let check_memory = |pids: &[u32]| {
        let bytes = ring_bytes(&[&[flight.recorder()], pids].concat());
        assert!(0 < bytes && bytes <= 16 << 20, "{bytes} bytes of rings");
    };
    // Nobody could know of the first one before it was there.
    let mut first = flight.start_in(&group, 0);
    wait_until("the first is recorded", 60, || flight.is_recorded(first.pid()));
    first.does("hit 100");
    // The next one is held at its start, so that not one hit is missing. One outside of the group is let go.
    let mut second = flight.start_in(&group, 50);
    wait_until("the second is recorded", 60, || flight.is_recorded(second.pid()));
    let mut outside = flight.start(&[], 5);
    outside.does("hit 5");
    check_memory(&[first.pid(), second.pid()]);
    second.does("hit 10");
    first.say("crash");
    first.child.wait().unwrap();
    let crash = format!("-crash-of-{}", first.pid());
    wait_until("the crash makes a snapshot", 60, || flight.snapshot(&crash).is_some());
    let crashed = flight.snapshot(&crash).unwrap();
    let seen = passes(&crashed);
    let upto = |n: u32| (0..n).collect::<Vec<u32>>();
    assert_eq!(seen.get(&first.pid()), Some(&upto(100)), "{seen:?}");
    assert_eq!(seen.get(&second.pid()), Some(&upto(60)));
    assert_eq!(seen.keys().copied().collect::<BTreeSet<_>>(), BTreeSet::from([first.pid(), second.pid()]));
    // It says of whom the first hits may be missing.
    let said = fs::read_to_string(crashed.join("channel0/nopal/verdict")).unwrap();
    assert!(said.contains(&format!("process {} was picked up after", first.pid())), "{said}");
    assert!(!said.contains(&format!("process {} ", second.pid())), "{said}");
    assert_eq!(verdict(&crashed)["complete"], false);

    // Started again. What the one before left stays until it is written over.
    let mut again = flight.start_in(&group, 7);
    wait_until("the new one is recorded", 60, || flight.is_recorded(again.pid()));
    again.does("hit 3");
    check_memory(&[second.pid(), again.pid()]);
    let seen = passes(&flight.snapshot_now("asked"));
    assert_eq!(seen.get(&again.pid()), Some(&upto(10)), "{seen:?}");
    assert_eq!((seen[&first.pid()].len(), seen[&second.pid()].len(), seen.len()), (100, 60, 3));

    // One that joins is found. More than the rings hold: the newest stay, and the budget does. What came too fast for rings
    // that are not written over, those of threads that have no rseq yet, is told.
    group.add(outside.pid());
    wait_until("who has joined is recorded", 60, || flight.is_recorded(outside.pid()));
    outside.does("hit 1000000");
    check_memory(&[second.pid(), again.pid(), outside.pid()]);
    let full = flight.snapshot_now("full");
    let newest = &passes(&full)[&outside.pid()];
    let said = fs::read_to_string(full.join("channel0/nopal/verdict")).unwrap();
    let is_last = newest.last() == Some(&1_000_009);
    assert!(newest.len() < 1_000_000 && (is_last || said.contains("hits found no room")), "{said}");
    drop(second.child.stdin.take());
    second.child.wait().unwrap();
    let stopped = flight.nopal(&["stop"]);
    assert!(stopped.contains("not complete"), "{stopped}");
    assert!(flight.snapshot(&format!("-of-{}", second.pid())).is_none(), "it has not crashed");
}

#[test]
fn a_user_is_recorded_and_a_slow_span_makes_a_snapshot() {
    let _quiet = none();
    const USER: u32 = 54321;
    let user = USER.to_string();
    let trigger = "latency(flight:work__begin, flight:work__end) > 500ms";
    let create = ["--memory", "8M", "--trigger", trigger];
    let flight = Flight::new("flight-user", &create, &["--user", &user]);
    let as_user = |uid: u32| {
        let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
        let wrapper = ["setpriv", &ids[0], &ids[1], "--clear-groups"];
        flight.start(&wrapper, 5)
    };
    // Everybody must be able to reach the program.
    let (mut mine, mut other) = (as_user(USER), as_user(USER + 1));
    let started = flight.nopal(&["start"]);
    assert!(started.contains("1 process"), "{started}");
    assert!(flight.is_recorded(mine.pid()) && !flight.is_recorded(other.pid()));
    mine.does("hit 20");
    other.does("hit 20");
    mine.does("slow 1");
    mine.does("slow 1500");
    wait_until("the slow span makes a snapshot", 60, || flight.snapshot("-trigger").is_some());
    let snapshot = flight.snapshot("-trigger").unwrap();
    // Before the session was started it had passed five times.
    assert_eq!(passes(&snapshot), HashMap::from([(mine.pid(), (5..25).collect())]));
    let spans = run(Command::new("babeltrace2").arg(&snapshot));
    assert_eq!(spans.lines().filter(|line| line.contains(" flight:work__")).count(), 4, "{spans}");
    let bytes = ring_bytes(&[flight.recorder(), mine.pid()]);
    assert!(0 < bytes && bytes <= 8 << 20, "{bytes} bytes of rings");
}

#[test]
fn a_container_is_recorded_through_its_restart_and_no_other() {
    let unique = std::process::id();
    let [mine, other] = ["mine", "other"].map(|which| format!("nopal-flight-{which}-{unique}"));
    let dir = scratch("flight-podman");
    let mut podman = Podman::new(&dir);
    let name = format!("ft{unique}");
    install(&ticker(&dir, &name, &[]), &podman.rootfs());
    let inside = format!("/bin/{name}");
    podman.start(&mine, &[], &[&inside]);
    podman.start(&other, &[], &[&inside]);
    let flight = Flight::new("flight-container", &["--memory", "8M"], &["--container", &mine]);
    flight.nopal(&["enable-event", "-u", "ticker:*"]);
    flight.nopal(&["start"]);
    let pid_of = |podman: &Podman, container: &str| -> u32 {
        let line = run(podman.command().args(["inspect", "--format", "{{.State.Pid}}", container]));
        line.trim().parse().unwrap()
    };
    let first = pid_of(&podman, &mine);
    wait_until("it is recorded", 60, || flight.is_recorded(first));
    run(podman.command().args(["restart", "-t", "0", &mine]));
    let again = pid_of(&podman, &mine);
    assert_ne!(first, again);
    wait_until("it is recorded again", 60, || flight.is_recorded(again));
    let bytes = ring_bytes(&[flight.recorder(), again]);
    assert!(0 < bytes && bytes <= 8 << 20, "{bytes} bytes of rings");
    // Ticks of both are there: a number that comes twice is of the first and of the second.
    let has_both = || {
        let snapshot = flight.snapshot_now("asked");
        let lines = run(Command::new("babeltrace2").arg(&snapshot));
        fs::remove_dir_all(&snapshot).unwrap();
        let ticks = lines.lines().filter_map(|line| line.split_once("arg0 = ")?.1.split(' ').next());
        let mut times: HashMap<&str, u32> = HashMap::new();
        ticks.for_each(|tick| *times.entry(tick).or_default() += 1);
        assert!(times.values().all(|n| *n <= 2), "somebody else ticks, too: {times:?}");
        times.values().any(|n| *n == 2)
    };
    wait_until("ticks before and after the restart", 60, has_both);
    let others = pid_of(&podman, &other);
    assert!(!flight.is_recorded(others), "{}", flight.status());
    assert!(!fs::read_to_string(format!("/proc/{others}/maps")).unwrap().contains("nopal-"));
}

#[test]
fn who_finds_no_room_in_the_budget_is_told() {
    let _quiet = none();
    let group = Cgroup::new("nopal-budget");
    let path = group.0.to_str().unwrap();
    let flight = Flight::new("flight-budget", &["--memory", "4M"], &["--cgroup", path]);
    // More users than there are rings in the budget of a control group.
    let users: Vec<Target> = (0..6)
        .map(|n| {
            let id = 54330 + n;
            let line =
                format!("echo 0 > \"$0\" && exec setpriv --reuid={id} --regid={id} --clear-groups \"$@\"");
            flight.start(&["sh", "-c", &line, group.members().to_str().unwrap()], 0)
        })
        .collect();
    flight.nopal(&["start"]);
    let (inside, outside): (Vec<&Target>, Vec<&Target>) =
        users.iter().partition(|target| flight.is_recorded(target.pid()));
    assert_eq!((inside.len(), outside.len()), (4, 2));
    let pids: Vec<u32> = inside.iter().map(|target| target.pid()).chain([flight.recorder()]).collect();
    let bytes = ring_bytes(&pids);
    assert!(0 < bytes && bytes <= 4 << 20, "{bytes} bytes of rings");
    let outside: Vec<u32> = outside.iter().map(|target| target.pid()).collect();
    let snapshot = flight.snapshot_now("asked");
    let said = fs::read_to_string(snapshot.join("channel0/nopal/verdict")).unwrap();
    for pid in outside {
        assert!(said.contains(&format!("process {pid} could not be picked up")), "{said}");
    }
    assert_eq!(verdict(&snapshot)["complete"], false);
    // Too small for one ring, and how much would do.
    let small = Flight::new("flight-small", &["--memory", "100k"], &["--cgroup", path]);
    let failed = small.output(&["start"]);
    assert!(!failed.status.success(), "{failed:?}");
    let said = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(said.contains("give it at least"), "{said}");
}

/// Processes that Linux guards from their like have a ring each, since no other may write to it. One after the other they are
/// more than the budget has rings.
#[test]
fn the_ring_of_a_guarded_process_that_has_ended_is_given_to_the_next() {
    let _quiet = none();
    let group = Cgroup::new("nopal-guarded");
    let path = group.0.to_str().unwrap();
    let flight = Flight::new("flight-guarded", &["--memory", "4M"], &["--cgroup", path]);
    flight.nopal(&["start"]);
    let user = ["setpriv", "--reuid=54340", "--regid=54340", "--clear-groups"];
    let mut last = 0;
    for n in 0..7 {
        let mut target = flight.start(&user, 0);
        last = target.pid();
        target.does("guard");
        fs::write(group.members(), last.to_string()).unwrap();
        wait_until("it is recorded", 60, || flight.is_recorded(last));
        target.does(&format!("hit {}", 10 + n));
        let maps = fs::read_to_string(format!("/proc/{last}/maps")).unwrap();
        assert!(maps.contains("/memfd:nopal-ring"), "{}", flight.status());
        // One that was given up is unmapped when the rings are read the next time.
        wait_until("the budget holds", 60, || ring_bytes(&[flight.recorder(), last]) <= 4 << 20);
    }
    let snapshot = flight.snapshot_now("asked");
    let said = fs::read_to_string(snapshot.join("channel0/nopal/verdict")).unwrap();
    assert!(!said.contains("could not be picked up"), "{said}");
    let passes = passes(&snapshot);
    assert_eq!(passes[&last], (0..16).collect::<Vec<u32>>());
    // Those before it, as far as there is room, which is not for all.
    assert!((2..7).contains(&passes.len()), "{passes:?}");
}

#[test]
fn the_file_and_the_unit_of_the_example_are_fine() {
    let dir = scratch("flight-example");
    let example = root().join("examples/flight");
    let file = example.join("flight.toml");
    let (home, out) = (dir.join("home"), dir.join("out"));
    let line = ["load", file.to_str().unwrap(), "--name", "flight", "--output", out.to_str().unwrap()];
    run(Command::new(nopal()).args(line).env("NOPAL_HOME", &home));
    let unit = fs::read_to_string(example.join("nopal-flight.service")).unwrap();
    let copy = dir.join("nopal-flight.service");
    fs::write(&copy, unit.replace("/usr/bin/nopal", nopal().to_str().unwrap())).unwrap();
    run(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy));
    // What the unit leaves of root's rights is enough to enter a process of another user.
    let rights = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).expect("rights");
    let rights: String = rights.split(' ').map(|right| format!(",+{}", right[4..].to_lowercase())).collect();
    let group = Cgroup::new("nopal-rights");
    let flight = Flight::new("flight-rights", &["--memory", "8M"], &["--cgroup", group.0.to_str().unwrap()]);
    let mut start = Command::new("setpriv");
    start.args([&format!("--bounding-set=-all{rights}"), "--inh-caps=-all", "--no-new-privs"]);
    run(start.arg(nopal()).arg("start").env("NOPAL_HOME", flight.dir.join("home")));
    let mut other = flight.start(&["setpriv", "--reuid=54360", "--regid=54360", "--clear-groups"], 0);
    fs::write(group.members(), other.pid().to_string()).unwrap();
    wait_until("it is recorded", 60, || flight.is_recorded(other.pid()));
    other.does("hit 20");
    let maps = fs::read_to_string(format!("/proc/{}/maps", other.pid())).unwrap();
    assert!(maps.contains("/memfd:nopal-ring"), "{}", flight.status());
    assert_eq!(passes(&flight.snapshot_now("asked"))[&other.pid()], (0..20).collect::<Vec<u32>>());
}
