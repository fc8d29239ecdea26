//! The user door through a program's life: started by us, libraries loaded later, exec, other tracers on the same sites.

use nopal_capture::record::{RecordKind, Value};
use nopal_capture::{Action, Capture, Wanted};
use nopal_proc::MappedObject;
use nopal_tests::cycles::rounds;
use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build, build_with};
use nopal_tests::user_door::{Door, Hit, options, select, small_options, text};
use nopal_tests::{nopal, run, scratch};
use nopal_user::consumer::Reader;
use nopal_user::session::Notice;
use nopal_user::session::{Select, Session};
use nopal_user::tactic::Tactic;
use std::collections::HashSet;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

fn launch(command: &mut Command, pattern: &str) -> (Running, Door) {
    let (select, events) = select(pattern);
    let mut session = Session::new(&options(), select).unwrap();
    let (child, reports) = session.launch(command.stdin(Stdio::null()).stdout(Stdio::null())).unwrap();
    let reader = Reader::new(Arc::clone(session.rings()));
    (Running(child), Door { session, reader, events, reports })
}

/// Reads and looks after the session until the child has ended.
fn follow(running: &mut Running, door: &mut Door) -> (Vec<Hit>, Vec<Notice>) {
    let (mut hits, mut notices) = (Vec::new(), Vec::new());
    while running.0.try_wait().unwrap().is_none() {
        door.read(&mut hits);
        notices.extend(door.session.look_after());
        std::thread::sleep(Duration::from_millis(5));
    }
    door.read(&mut hits);
    // Each CPU has a ring of its own, and the program may have moved.
    hits.sort_by_key(|hit| hit.time);
    (hits, notices)
}

fn args_of(door: &Door, hits: &[Hit], probe: &str) -> Vec<u64> {
    let event = door.event(probe);
    hits.iter().filter(|h| h.event == event).map(|h| h.args[0]).collect()
}

#[test]
fn a_started_program_is_seen_from_its_first_constructor() {
    for how in [Build::Pie, Build::NonPie, Build::Static, Build::StaticPie, Build::Musl] {
        let more: &[&str] =
            if matches!(how, Build::Static | Build::StaticPie) { &["-DWITHOUT_DLOPEN"] } else { &[] };
        let program = build_with("life", &["life.c"], how, more);
        // Where the kernel puts heap and libraries decides which jumps have room to land; some draws leave none.
        let opened = (0..10).any(|_| is_seen_from_its_start(&program, how));
        assert!(opened, "{how:?}: at least one of the two sites can be opened");
    }
}

/// Runs the program once; whether any of its sites could be opened.
fn is_seen_from_its_start(program: &Path, how: Build) -> bool {
    let (mut running, mut door) = launch(Command::new(program).arg("30"), "life:*");
    let (hits, _) = follow(&mut running, &mut door);
    assert!(running.0.wait().unwrap().success(), "{how:?}");
    let sites: Vec<_> = door.reports.iter().flat_map(|r| r.outcome.iter().flatten()).collect();
    let is_open = |probe: &str| sites.iter().any(|s| s.probe == probe && s.outcome.is_ok());
    if is_open("life:constructor") {
        assert_eq!(args_of(&door, &hits, "life:constructor"), [1], "{how:?}");
    }
    if is_open("life:round") {
        assert!(args_of(&door, &hits, "life:round").into_iter().eq(0..30), "{how:?}: {hits:?}");
    }
    is_open("life:constructor") || is_open("life:round")
}

#[test]
fn a_command_that_does_not_exist_is_said_so() {
    let (select, _) = select("life:*");
    let mut session = Session::new(&options(), select).unwrap();
    let error = session.launch(&mut Command::new("/no/such/program")).unwrap_err().to_string();
    assert!(error.contains("cannot start `/no/such/program`: No such file"), "{error}");
}

fn plugin() -> PathBuf {
    build_with("plugin", &["plugin.c"], Build::Pie, &["-shared", "-fPIC"])
}

#[test]
fn libraries_loaded_later_are_picked_up() {
    let program = build("life", &["life.c"], Build::Pie);
    let (mut running, mut door) = launch(Command::new(&program).arg("30").arg(plugin()), "life:*");
    let (hits, notices) = follow(&mut running, &mut door);
    assert!(running.0.wait().unwrap().success());
    let opened = notices.iter().any(|n| matches!(n, Notice::Opened(r) if r.outcome.is_ok()));
    assert!(opened, "{notices:?}");
    let plugin = args_of(&door, &hits, "life:plugin");
    // Whatever came before it was noticed is missing, nothing after it.
    assert!(!plugin.is_empty() && *plugin.last().unwrap() == 999, "{plugin:?}");
    assert!(plugin.windows(2).all(|w| w[1] == w[0] + 1), "{plugin:?}");
    assert!(args_of(&door, &hits, "life:round").into_iter().eq(0..30));
}

#[test]
fn exec_is_followed() {
    let program = build("life", &["life.c"], Build::Pie);
    let mut command = Command::new(&program);
    command.args(["20", "--"]).arg(&program).arg("1500");
    let (mut running, mut door) = launch(&mut command, "life:*");
    let (hits, notices) = follow(&mut running, &mut door);
    assert!(running.0.wait().unwrap().success());
    assert!(notices.iter().any(|n| matches!(n, Notice::Exec { .. })), "{notices:?}");
    let rounds = args_of(&door, &hits, "life:round");
    assert!(rounds[..20].iter().copied().eq(0..20), "the first program is complete: {rounds:?}");
    assert_eq!(rounds.last(), Some(&1499), "the second is seen to its end");
    assert!(rounds[20..].windows(2).all(|w| w[1] == w[0] + 1), "{rounds:?}");
}

#[test]
fn a_child_that_starts_another_program_is_followed() {
    let program = build("life", &["life.c"], Build::Pie);
    let script = format!("{0} 700 & {0} 700; wait", program.display());
    let (mut running, mut door) = launch(Command::new("sh").args(["-c", &script]), "life:*");
    let (hits, _) = follow(&mut running, &mut door);
    assert!(running.0.wait().unwrap().success());
    let event = door.event("life:round");
    let mut pids: Vec<u32> =
        hits.iter().filter(|h| h.event == event && h.args[0] == 699).map(|h| h.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 2, "the last round of both programs was seen");
}

/// bpftrace on one probe of a process, counting until it is told to stop.
struct Bpftrace {
    running: Running,
    out: std::io::BufReader<std::process::ChildStdout>,
}

impl Bpftrace {
    fn start(pid: u32, program: &std::path::Path, probe: &str) -> Bpftrace {
        let script =
            format!("usdt:{}:{probe} {{ @ = count(); }} BEGIN {{ printf(\"on\\n\"); }}", program.display());
        let mut running = Running::start(
            Command::new("bpftrace").args(["-p", &pid.to_string(), "-e", &script]).stdout(Stdio::piped()),
        );
        let mut out = std::io::BufReader::new(running.0.stdout.take().unwrap());
        let mut line = String::new();
        while line != "on\n" {
            line.clear();
            assert!(std::io::BufRead::read_line(&mut out, &mut line).unwrap() > 0, "bpftrace started");
        }
        Bpftrace { running, out }
    }

    fn stop(mut self) -> u64 {
        // It says that it is on while it still attaches, and is deaf to the signal meanwhile.
        std::thread::sleep(Duration::from_millis(400));
        wait_until("bpftrace to end", 30, || {
            // SAFETY: a pid we started and have not reaped.
            unsafe { libc::kill(self.running.pid() as i32, libc::SIGINT) };
            std::thread::sleep(Duration::from_millis(300));
            self.running.0.try_wait().unwrap().is_some()
        });
        let mut text = String::new();
        std::io::Read::read_to_string(&mut self.out, &mut text).unwrap();
        text.lines().find_map(|l| l.strip_prefix("@: ")).map_or(0, |n| n.trim().parse().unwrap())
    }
}

#[test]
fn other_tracers_come_and_go_on_the_same_sites() {
    let program = build("busy", &["busy.c", "own.c"], Build::Pie);
    let start = || {
        let running = Running::start(Command::new(&program).args(["-q", "-t", "2"]).stdout(Stdio::null()));
        std::thread::sleep(Duration::from_millis(50));
        let door = Door::open(running.pid(), "busy:*").unwrap();
        let is_of_nop = door.reports[0]
            .outcome
            .iter()
            .flatten()
            .any(|s| s.probe == "busy:work" && s.outcome == Ok(Tactic::Pun));
        is_of_nop.then_some((running, door))
    };
    // Where the program is loaded is drawn anew each time, and its landing may be taken; the way that leaves the nop to
    // others is another test's.
    let (running, mut door) = (0..20).find_map(|_| start()).expect("one of twenty draws has room");
    let pid = running.pid();
    let mut hits = Vec::new();

    // Our own sites have room for both.
    let other = Bpftrace::start(pid, &program, "busy:own");
    door.read(&mut hits);
    hits.clear();
    std::thread::sleep(Duration::from_millis(300));
    door.read(&mut hits);
    let own = door.event("busy:own");
    assert!(hits.iter().any(|h| h.event == own), "we go on counting");
    assert!(door.session.look_after().is_empty(), "and the site is still ours");
    assert!(other.stop() > 0, "and so does bpftrace");

    // A classic site has room for one: bpftrace takes it, and it is ours again when it leaves.
    let other = Bpftrace::start(pid, &program, "busy:work");
    let mut notices = Vec::new();
    wait_until("the take-over to be noticed", 20, || {
        notices.extend(door.session.look_after());
        notices.iter().any(|n| matches!(n, Notice::TakenOver { probe, .. } if probe == "busy:work"))
    });
    assert!(other.stop() > 0);
    wait_until("the site to be open again", 20, || {
        notices.extend(door.session.look_after());
        notices.iter().any(|n| matches!(n, Notice::OpenAgain { probe, .. } if probe == "busy:work"))
    });
    let work = door.event("busy:work");
    wait_until("hits after it", 20, || {
        hits.clear();
        door.read(&mut hits);
        hits.iter().any(|h| h.event == work)
    });

    // One that was there before us keeps its site.
    let report = door.session.detach();
    assert!(report.left_alone.is_empty() && report.failures.is_empty(), "{report:?}");
    let other = Bpftrace::start(pid, &program, "busy:work");
    let mut door = Door::open(pid, "busy:*").unwrap();
    let refused: Vec<String> = door
        .reports
        .iter()
        .flat_map(|r| r.outcome.iter().flatten())
        .filter_map(|s| s.outcome.as_ref().err().map(|why| format!("{}: {why}", s.probe)))
        .collect();
    assert!(
        refused.contains(&"busy:work: another tracer or debugger has a breakpoint there".to_string()),
        "{refused:?}"
    );
    assert!(other.stop() > 0);
    door.session.detach();
    drop(running);
}

#[test]
fn several_sessions_share_a_site() {
    let program = build("busy", &["busy.c", "own.c"], Build::Pie);
    let running = Running::start(Command::new(&program).args(["-q", "-t", "2"]).stdout(Stdio::null()));
    let pid = running.pid();
    let mut doors: Vec<Door> = (0..3).map(|_| Door::open(pid, "busy:own").unwrap()).collect();
    let mut hits = Vec::new();
    for door in &mut doors {
        wait_until("each session to have hits", 20, || {
            door.read(&mut hits);
            !hits.is_empty()
        });
        hits.clear();
    }
    // The one in the middle leaves; the others go on.
    let mut middle = doors.remove(1);
    let report = middle.session.detach();
    assert_eq!(report.n_restored, 0, "the site stays open for the others: {report:?}");
    for door in &mut doors {
        door.read(&mut hits);
        hits.clear();
        wait_until("the other sessions to go on", 20, || {
            door.read(&mut hits);
            !hits.is_empty()
        });
    }
    for door in &mut doors {
        door.session.detach();
    }
    let text = nopal_user::leave::detach(pid as i32).unwrap();
    assert_eq!((text.n_restored, text.n_orphans), (0, 0), "nothing was left: {text:?}");
    drop(running);
}

#[test]
fn children_forked_while_a_tracer_comes_and_goes_are_as_their_file_says() {
    let program = build("brood", &["brood.c"], Build::Pie);
    for n in 0..rounds(4) {
        let end = scratch(&format!("user-door-brood-{n}")).join("end");
        let mut brood = Running::start(Command::new(&program).arg(&end).stdout(Stdio::piped()));
        let pid = brood.pid();
        std::thread::sleep(Duration::from_millis(100));
        let before = text(pid);
        let mut trace = Command::new(nopal());
        trace.args(["trace", "--door", "user", "-p", &pid.to_string(), "brood:pass"]);
        if n % 2 == 0 {
            run(trace.args(["--duration", "700ms"]));
        } else {
            // Killed at work, and put back by somebody else.
            let mut trace = Running::start(trace.stdout(Stdio::piped()));
            let mut line = String::new();
            BufReader::new(trace.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
            assert!(line.contains("brood:pass"), "{line}");
            drop(trace);
            run(Command::new(nopal()).args(["detach", "-p", &pid.to_string()]));
        }
        let children = nopal_proc::descendants(pid);
        assert!(children.len() > 20, "{}", children.len());
        for child in children {
            text(child).assert_is(&before);
        }
        text(pid).assert_is(&before);
        std::fs::write(&end, "").unwrap();
        assert!(brood.0.wait().unwrap().success());
        let mut said = String::new();
        brood.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains(" 0 raised"), "{said}");
    }
}

/// Chooses every probe of a provider, with its first argument as a string of at most so many bytes.
fn select_texts(max_bytes: u32) -> Select {
    Box::new(move |_: &MappedObject, object: &nopal_sdt::Object| {
        let probes = object.probes.iter().filter(|p| p.provider == "many");
        let sites = probes.flat_map(|p| p.sites.iter().map(move |site| (p.name.clone(), site)));
        sites
            .zip(0..)
            .map(|((name, site), event)| {
                let operand = |i: usize| site.args[i].operand.clone().unwrap();
                let captures = vec![
                    Capture::CString { pointer: operand(0), max_bytes, is_trusted: false },
                    Capture::Value { operand: operand(1) },
                ];
                let action = Action::Record { captures, has_time: true, has_task: true };
                Wanted { probe: name, site: site.clone(), event, predicates: Vec::new(), action }
            })
            .collect()
    })
}

#[test]
fn a_program_is_traced_as_often_as_one_likes() {
    // Stubs of one session take some 200 KiB of the 3.5 MiB there are: after 17 nothing would be left.
    const SESSIONS: u32 = 48;
    let program = build("many", &["many.c"], Build::Pie);
    let mut running = Running::start(Command::new(&program).stdout(Stdio::piped()));
    let mut out = BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    let before = text(running.pid());
    let words = "a text that is longer than some and shorter than others";
    for i in 0..SESSIONS {
        let max_bytes = 20 + i;
        let mut session = Session::new(&small_options(), select_texts(max_bytes)).unwrap();
        let reports = session.attach(running.pid() as i32).unwrap_or_else(|e| panic!("session {i}: {e}"));
        let sites = reports[0].outcome.as_ref().unwrap();
        assert!(sites.len() == 256 && sites.iter().all(|s| s.outcome.is_ok()), "session {i}: {sites:?}");
        let mut reader = Reader::new(Arc::clone(session.rings()));
        let mut seen = HashSet::new();
        wait_until("every probe to be seen", 60, || {
            let polled = reader.poll(|_, record| {
                let RecordKind::Event(event) = record.kind else { return };
                let layout = session.layout(event).unwrap();
                let expected = &words[..words.len().min(max_bytes as usize)];
                match layout.values(record.payload).next() {
                    Some(Ok(Value::Text(text))) => assert_eq!(text.bytes, expected.as_bytes(), "session {i}"),
                    other => panic!("session {i}: {other:?}"),
                }
                seen.insert(event);
            });
            assert_eq!((polled.damaged, polled.forged), (0, 0), "session {i}");
            seen.len() == 256
        });
        let left = session.detach();
        assert!(left.failures.is_empty() && left.left_alone.is_empty(), "session {i}: {left:?}");
        text(running.pid()).assert_is(&before);
    }
    // SAFETY: a child of ours that was not reaped.
    unsafe { libc::kill(running.pid() as i32, libc::SIGTERM) };
    line.clear();
    out.read_line(&mut line).unwrap();
    assert!(running.0.wait().unwrap().success() && line.ends_with(" errors=0\n"), "{line}");
}
