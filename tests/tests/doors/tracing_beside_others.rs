//! `nopal record` and `nopal run` beside other tools: on sites that one takes over and gives back, and with breakpoints of
//! others on the instructions behind a site.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::{copy_program, nopal, scratch};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
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

/// `beside`, which makes rounds when it is told to and counts its own errors.
struct Beside {
    running: Running,
    out: BufReader<ChildStdout>,
    n_rounds: u64,
    folder: PathBuf,
    /// A file of its own: uprobes are on all processes that map it.
    file: PathBuf,
}

impl Beside {
    fn start(test: &str) -> Beside {
        let folder = scratch(&format!("beside-{test}"));
        let file = folder.join("beside");
        copy_program(&build("beside", &["beside.c"], Build::Pie), &file);
        let mut command = Command::new(&file);
        let mut running =
            Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts"));
        let out = BufReader::new(running.0.stdout.take().unwrap());
        let mut program = Beside { running, out, n_rounds: 0, folder, file };
        assert_eq!(program.line(), "ready\n");
        program
    }

    fn pid(&self) -> u32 {
        self.running.pid()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        line
    }

    #[track_caller]
    fn round(&mut self, n: u64) {
        writeln!(self.running.0.stdin.as_mut().unwrap(), "{n}").unwrap();
        self.n_rounds += n;
        assert_eq!(self.line(), format!("made {} errors 0\n", self.n_rounds));
    }

    fn end(mut self) {
        drop(self.running.0.stdin.take());
        assert!(self.running.0.wait().unwrap().success());
    }
}

/// `nopal run` that counts a probe of `beside`, at work.
struct Counting {
    nopal: Running,
    folder: PathBuf,
}

impl Counting {
    fn start(program: &Beside, probe: &str) -> Counting {
        let folder = program.folder.join(probe);
        fs::create_dir_all(&folder).unwrap();
        let script = format!("usdt:{}:beside:{probe} {{ @ = count(); }}", program.file.display());
        let nopal = Running::start(
            Command::new(nopal())
                .args(["run", "-v", "--json", "-p", &program.pid().to_string(), "-e", &script])
                .stdout(File::create(folder.join("out")).unwrap())
                .stderr(File::create(folder.join("log")).unwrap()),
        );
        let counting = Counting { nopal, folder };
        wait_until("nopal to be at work", 60, || counting.said().contains("sites: "));
        counting
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap()
    }

    /// The hits it counted, and whether it says that these are all.
    fn finish(mut self) -> (u64, bool) {
        interrupt(self.nopal.pid());
        self.wait()
    }

    fn wait(&mut self) -> (u64, bool) {
        assert!(self.nopal.0.wait().unwrap().success(), "{}", self.said());
        let out = fs::read_to_string(self.folder.join("out")).unwrap();
        let answer: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
        let count = answer["rows"].as_array().unwrap().iter().find(|row| row["map"] == "@");
        let count = count.map_or(0, |row| row["value"].as_u64().unwrap());
        (count, answer["complete"].as_bool().unwrap())
    }
}

const TRACEFS: &str = "/sys/kernel/tracing";

/// The kernel's own uprobes on instructions behind a site: Debian's bpftrace puts none where it knows no symbol, and with
/// one there the jump would keep off.
struct Visitor {
    group: String,
    names: Vec<String>,
}

impl Visitor {
    fn start(program: &Beside, probe: &str, offsets: &[u64]) -> Visitor {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (address, in_file, _) = nopal_tests::tools::section(&program.file, ".text").unwrap();
        let site = site_address(&program.file, probe) - address + in_file;
        let group = format!("beside_{}_{number}", std::process::id());
        // The counts are listed without the group.
        let names = offsets.iter().map(|at| format!("{group}_{probe}_{at}")).collect();
        let visitor = Visitor { group, names };
        for (name, at) in visitor.names.iter().zip(offsets) {
            let line = format!("p:{}/{name} {}:{:#x}", visitor.group, program.file.display(), site + at);
            tracefs("uprobe_events", &line);
        }
        tracefs(&format!("events/{}/enable", visitor.group), "1");
        visitor
    }

    /// Leaves; how many hits it saw.
    fn leave(self) -> u64 {
        tracefs(&format!("events/{}/enable", self.group), "0");
        let profile = fs::read_to_string(Path::new(TRACEFS).join("uprobe_profile")).unwrap();
        let counts = profile.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, name, count, ..] = words[..] else { return None };
            self.names.iter().any(|own| own == name).then(|| count.parse::<u64>().unwrap())
        });
        counts.sum()
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        let write = |file: &str, line: &str| {
            let file = Path::new(TRACEFS).join(file);
            fs::OpenOptions::new().append(true).open(file).and_then(|mut f| f.write_all(line.as_bytes()))
        };
        // Off already, unless the test has failed.
        let _ = write(&format!("events/{}/enable", self.group), "0");
        for name in &self.names {
            let _ = write("uprobe_events", &format!("-:{}/{name}", self.group));
        }
    }
}

#[track_caller]
fn tracefs(file: &str, line: &str) {
    let path = Path::new(TRACEFS).join(file);
    let file = fs::OpenOptions::new().append(true).open(&path);
    file.and_then(|mut f| f.write_all(line.as_bytes()))
        .unwrap_or_else(|e| panic!("{}: {line}: {e}", path.display()));
}

/// Of a site in the file, as its program names it.
fn site_address(file: &Path, probe: &str) -> u64 {
    let listed = nopal_tests::run(Command::new("readelf").arg("-sW").arg(file));
    let name = format!("site_{probe}");
    let line = listed.lines().find(|line| line.split_whitespace().last() == Some(&name));
    let address = line.and_then(|line| line.split_whitespace().nth(1)).expect("a symbol at the site");
    u64::from_str_radix(address, 16).unwrap()
}

fn text_of(program: &Beside) -> nopal_tests::user_door::Text {
    nopal_tests::user_door::text(program.pid())
}

#[test]
fn uprobes_behind_a_site_come_and_go_and_nobody_misses_a_hit() {
    for (probe, offsets) in [
        ("ones", &[1, 2, 3, 4][..]),
        ("mixed", &[1, 4]),
        ("long", &[1]),
        // Within the distance of a jump behind the nop, and between the two.
        ("partly", &[4]),
        ("slid", &[1]),
        ("branch", &[1, 9]),
    ] {
        let mut program = Beside::start("come-and-go");
        let before = text_of(&program);
        let counting = Counting::start(&program, probe);
        assert!(counting.said().contains("sites: 1 user door"), "{probe}: {}", counting.said());
        program.round(50);
        let each = offsets.iter().map(std::slice::from_ref).filter(|one| *one != offsets);
        for places in each.chain([offsets]) {
            let visitor = Visitor::start(&program, probe, places);
            program.round(200);
            assert_eq!(visitor.leave(), 200 * places.len() as u64, "{probe}+{places:?}");
            program.round(30);
        }
        let n_rounds = program.n_rounds;
        assert_eq!(counting.finish(), (n_rounds, true), "{probe}");
        text_of(&program).assert_is(&before);
        program.round(10);
        program.end();
    }
}

#[test]
fn two_tools_behind_a_site_leave_one_after_the_other() {
    let mut program = Beside::start("two");
    let before = text_of(&program);
    let counting = Counting::start(&program, "ones");
    let first = Visitor::start(&program, "ones", &[1, 4]);
    program.round(40);
    let second = Visitor::start(&program, "ones", &[3, 4]);
    program.round(40);
    assert_eq!(first.leave(), 2 * 80);
    program.round(40);
    // Who comes now finds a breakpoint there.
    let late = Counting::start(&program, "mixed");
    program.round(40);
    assert_eq!(second.leave(), 2 * 120);
    program.round(40);
    assert_eq!(late.finish(), (80, true));
    let n_rounds = program.n_rounds;
    assert_eq!(counting.finish(), (n_rounds, true));
    text_of(&program).assert_is(&before);
    program.end();
}

#[test]
fn a_site_with_breakpoints_behind_it_is_opened_as_any_other() {
    let mut program = Beside::start("before");
    let before = text_of(&program);
    let visitor = Visitor::start(&program, "ones", &[1, 2, 4]);
    let counting = Counting::start(&program, "ones");
    assert!(counting.said().contains("sites: 1 user door"), "{}", counting.said());
    program.round(60);
    assert_eq!(visitor.leave(), 3 * 60);
    program.round(60);
    assert_eq!(counting.finish(), (120, true));
    text_of(&program).assert_is(&before);
    program.end();
}

#[test]
fn a_uprobe_on_the_instruction_with_the_jump_takes_it_over_and_leaves_it_whole() {
    for (probe, offset) in [("within", 1), ("partly", 1), ("slid", 6), ("jump", 1), ("branch", 7)] {
        let mut program = Beside::start("taken");
        let before = text_of(&program);
        let counting = Counting::start(&program, probe);
        assert!(counting.said().contains("sites: 1 user door"), "{probe}: {}", counting.said());
        program.round(50);
        let visitor = Visitor::start(&program, probe, &[offset]);
        program.round(100);
        wait_until(&format!("{probe} to be noticed"), 60, || counting.said().contains("another tool"));
        assert_eq!(visitor.leave(), 100, "{probe}");
        wait_until(&format!("{probe} to be over"), 60, || counting.said().contains("is open again"));
        program.round(70);
        // Those meanwhile are missing, and that is said.
        assert_eq!(counting.finish(), (120, false), "{probe}");
        text_of(&program).assert_is(&before);
        program.round(10);
        program.end();
    }
}

#[test]
fn a_breakpoint_of_gdb_on_the_line_behind_a_probe_stops_there_every_time() {
    const ROUNDS: u64 = 30;
    let source = nopal_tests::root().join("tests/fixtures/targets/beside.c");
    let behind = fs::read_to_string(&source).unwrap();
    let number = 1 + behind.lines().position(|line| line.contains("/* the line behind */")).unwrap();
    let mut program = Beside::start("gdb");
    let file = program.file.clone();
    let mut counting = Counting::start(&program, "line");
    assert!(counting.said().contains("user door: one-byte jump"), "{}", counting.said());
    program.round(20);
    let commands = counting.folder.join("commands");
    let script = format!(
        "set pagination off\nset $n = 0\nbreak beside.c:{number}\ncommands\nsilent\nset $n = $n + 1\n\
         printf \"at %d\\n\", round\ncontinue\nend\ncontinue\nprintf \"stopped %d times\\n\", $n\n"
    );
    fs::write(&commands, script).unwrap();
    let log = counting.folder.join("gdb");
    let mut gdb = Running::start(
        Command::new("gdb")
            .args(["-nx", "-batch", "-p", &program.pid().to_string(), "-x"])
            .arg(&commands)
            .stdout(File::create(&log).unwrap())
            .stderr(Stdio::null()),
    );
    let said = || fs::read_to_string(&log).unwrap();
    wait_until("gdb to have its breakpoint", 60, || said().contains("Breakpoint 1 at"));
    let at = said().split("Breakpoint 1 at 0x").nth(1).unwrap().split(':').next().unwrap().to_owned();
    let at = u64::from_str_radix(&at, 16).unwrap();
    writeln!(program.running.0.stdin.as_mut().unwrap(), "{ROUNDS}").unwrap();
    let last = format!("at {}\n", 20 + ROUNDS - 1);
    wait_until("gdb to have stopped at all of them", 60, || said().contains(&last));
    assert_eq!(program.line(), format!("made {} errors 0\n", 20 + ROUNDS));
    program.end();
    assert!(gdb.0.wait().unwrap().success());
    assert!(said().contains(&format!("stopped {ROUNDS} times")), "{}", said());
    let listed = nopal_tests::tools::gdb_sites(&file);
    let site = listed.iter().find(|site| site.probe == "beside:line").expect("gdb knows the site").address;
    // Position-independent: pages stay, and the distance does.
    assert!((1..=4).contains(&((at - site) % 4096)), "{at:#x} is in the jump at {site:#x}");
    assert_eq!(counting.wait(), (20 + ROUNDS, true), "{}", counting.said());
}

#[test]
fn what_a_killed_tracer_left_is_put_back_beneath_the_breakpoints_of_others() {
    for (probe, offsets) in [
        ("ones", &[1, 2, 3, 4][..]),
        ("within", &[1]),
        ("partly", &[1, 4]),
        ("jump", &[1]),
        ("branch", &[7, 9]),
    ] {
        let mut program = Beside::start("killed");
        let before = text_of(&program);
        let mut counting = Counting::start(&program, probe);
        program.round(10);
        let visitor = Visitor::start(&program, probe, offsets);
        program.round(10);
        counting.nopal.0.kill().unwrap();
        counting.nopal.0.wait().unwrap();
        program.round(10);
        nopal_tests::run(Command::new(nopal()).args(["detach", "-p", &program.pid().to_string()]));
        program.round(10);
        assert_eq!(visitor.leave(), 30 * offsets.len() as u64, "{probe}");
        text_of(&program).assert_is(&before);
        program.round(10);
        program.end();
    }
}

#[test]
fn a_long_nop_goes_on_as_a_nop_when_a_uprobe_leaves_it() {
    let mut program = Beside::start("nop5");
    let before = text_of(&program);
    let counting = Counting::start(&program, "nop5");
    assert!(counting.said().contains("user door: jump over the long nop"), "{}", counting.said());
    program.round(50);
    let visitor = Visitor::start(&program, "nop5", &[0]);
    program.round(100);
    assert_eq!(visitor.leave(), 100);
    let again = ["is open again", "the kernel door has it"];
    wait_until("hits to be seen again", 60, || again.iter().any(|text| counting.said().contains(text)));
    program.round(50);
    let (count, is_complete) = counting.finish();
    assert!((100..=200).contains(&count) && !is_complete, "{count} {is_complete}");
    text_of(&program).assert_is(&before);
    program.end();
}
