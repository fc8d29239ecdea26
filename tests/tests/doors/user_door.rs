//! The user door on programs that watch themselves: every hit recorded once, nothing changed, nothing left behind.

use nopal_tests::cycles::{Chance, Footprint, Spans, Visitors, address_space, cycles, kills};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::targets::{Build, build};
use nopal_tests::user_door::{Door, Hit, small_options, text};
use nopal_tests::{copy_program, scratch};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Command, Stdio};

struct Busy {
    running: Running,
    out: BufReader<ChildStdout>,
}

impl Busy {
    fn start(command: &mut Command) -> Busy {
        let mut running = Running::start(command.stdout(Stdio::piped()));
        let mut out = BufReader::new(running.0.stdout.take().expect("stdout is a pipe"));
        let mut line = String::new();
        out.read_line(&mut line).expect("the program says that it is ready");
        assert_eq!(line, "ready\n");
        Busy { running, out }
    }

    fn program(how: Build) -> Command {
        Command::new(build("busy", &["busy.c", "own.c"], how))
    }

    fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// Waits for its end; it must have seen no error. Returns the numbers it printed.
    fn finish(mut self) -> HashMap<String, u64> {
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("the program ends");
        let status = self.running.0.wait().expect("the program can be waited for");
        assert!(status.success() && text.contains("errors=0"), "{status} {text}");
        text.split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| (name.to_string(), value.parse().expect("a number")))
            .collect()
    }

    fn end(self) -> HashMap<String, u64> {
        // SAFETY: a pid we started and have not reaped.
        unsafe { libc::kill(self.pid() as i32, libc::SIGTERM) };
        self.finish()
    }
}

/// Starts a program that waits, opens its probes, lets it run a fixed number of rounds, and compares what was recorded
/// with what the program counted itself.
fn every_hit_is_recorded_once(name: &str, how: Build, change: impl FnOnce(&mut Command)) {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 4000;
    let go = scratch(&format!("user-door-{name}")).join("go");
    let mut command = Busy::program(how);
    command.args(["-q", "-t", &THREADS.to_string(), "-n", &ROUNDS.to_string(), "-g"]).arg(&go);
    change(&mut command);
    let busy = Busy::start(&mut command);
    let mut door = Door::open(busy.pid(), "busy:*").unwrap();
    for site in door.reports.iter().flat_map(|r| r.outcome.iter().flatten()) {
        println!("{name}: {} {:#x} {:?}", site.probe, site.address, site.outcome);
    }
    std::fs::write(&go, "").unwrap();
    let mut hits: Vec<Hit> = Vec::new();
    let mut lost = 0;
    let pid = busy.pid();
    let finished = std::thread::spawn(move || busy.finish());
    while !finished.is_finished() {
        lost += door.read(&mut hits).gaps.iter().map(|g| g.count).sum::<u64>();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let counted = finished.join().expect("the program was well");
    let polled = door.read(&mut hits);
    assert_eq!((lost, polled.damaged, polled.abandoned), (0, 0, 0), "{name}");
    let opened: Vec<&str> = door
        .reports
        .iter()
        .flat_map(|r| r.outcome.iter().flatten())
        .filter(|s| s.outcome.is_ok())
        .map(|s| s.probe.as_str())
        .collect();
    assert!(opened.contains(&"busy:own"), "{name}: nopal's own sites can always be opened: {opened:?}");
    for probe in opened {
        let event = door.event(probe);
        let n = hits.iter().filter(|h| h.event == event).count() as u64;
        let counter = probe.trim_start_matches("busy:").replace("tick", "ticks");
        assert_eq!(n, counted[&counter], "{name}: {probe}");
    }
    assert_eq!(counted["own"], THREADS * ROUNDS);
    // Each thread's hits are all there, in order, with their arguments, and say which thread it was.
    let own = door.event("busy:own");
    let mut rounds: HashMap<(u64, u32), Vec<(u64, u64)>> = HashMap::new();
    for hit in hits.iter().filter(|h| h.event == own) {
        assert!(hit.pid != 0 && hit.tid != 0, "{hit:?}");
        rounds.entry((hit.args[0], hit.tid)).or_default().push((hit.time, hit.args[1]));
    }
    assert_eq!(rounds.len() as u64, THREADS, "{name}: one tid for each thread");
    for ((thread, _), mut hits) in rounds {
        hits.sort_unstable();
        assert!(hits.iter().map(|h| h.1).eq(0..ROUNDS), "{name}: thread {thread} is complete and in order");
    }
    let _ = pid;
}

#[test]
fn every_hit_of_a_pie_program() {
    every_hit_is_recorded_once("pie", Build::Pie, |_| {});
}

#[test]
fn every_hit_of_other_kinds_of_programs() {
    every_hit_is_recorded_once("non-pie", Build::NonPie, |_| {});
    every_hit_is_recorded_once("static", Build::Static, |_| {});
    every_hit_is_recorded_once("static-pie", Build::StaticPie, |_| {});
    every_hit_is_recorded_once("musl", Build::Musl, |_| {});
    every_hit_is_recorded_once("without-rseq", Build::Pie, |c| {
        c.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0");
    });
}

fn semaphores(pid: u32) -> Vec<u16> {
    let objects = nopal_proc::mapped_objects(pid).unwrap();
    let memory = nopal_user::memory::Memory::open(pid as i32).unwrap();
    let program = objects.iter().find(|o| o.path.to_string_lossy().contains("busy")).unwrap();
    let image = program.open().unwrap();
    let object = nopal_sdt::read(image.bytes()).unwrap();
    let bias = program.load_biases(&object)[0];
    let sites = object.probes.iter().flat_map(|p| &p.sites).filter_map(|s| s.semaphore);
    sites.map(|s| memory.read_u16(bias.wrapping_add(s.address)).unwrap()).collect()
}

/// No more than before, from the middle of the cycles on: by then everything that is made once has been.
fn assert_no_growth<T: PartialEq + std::fmt::Debug>(what: &str, seen: &[T]) {
    let later = &seen[seen.len() / 2..];
    assert!(later.iter().all(|one| *one == later[0]), "{what} grows: {seen:?}");
}

#[test]
fn attaching_and_detaching_again_and_again_leaves_no_trace() {
    let cycles = cycles(200);
    let busy = Busy::start(&mut Busy::program(Build::Pie));
    let before = text(busy.pid());
    let (mut footprints, mut spaces, mut spans) = (Vec::new(), Vec::new(), Spans::default());
    let (mut n_hits, mut n_damaged) = (0u64, 0);
    for cycle in 0..cycles {
        let mut door = spans
            .open(|| Door::open_with(busy.pid(), "busy:*", &small_options()))
            .unwrap_or_else(|e| panic!("cycle {cycle}: {e}"));
        // A site whose landing is taken in this process stays closed, and so does its semaphore.
        let up = semaphores(busy.pid()).iter().filter(|s| **s == 1).count();
        let refused = door.n_sites().1;
        assert!(
            up > 0 && up + refused >= semaphores(busy.pid()).len(),
            "cycle {cycle}: {up} up, {refused} refused"
        );
        let mut counts = HashMap::new();
        std::thread::sleep(std::time::Duration::from_millis(2));
        door.count(&mut counts);
        let report = spans.close(|| door.session.detach());
        assert!(report.failures.is_empty() && report.left_alone.is_empty(), "cycle {cycle}: {report:?}");
        n_damaged += door.count(&mut counts).damaged;
        n_hits += counts.values().sum::<u64>();
        drop(door);
        footprints.push(Footprint::of(busy.pid()));
        spaces.push(address_space(busy.pid()));
        assert!(semaphores(busy.pid()).iter().all(|s| *s == 0), "cycle {cycle}");
    }
    assert!(n_hits > u64::from(cycles), "{n_hits} hits");
    text(busy.pid()).assert_is(&before);
    assert_no_growth("what is left in it", &footprints);
    assert_no_growth("its address space", &spaces);
    assert_eq!(footprints[0].n_descriptors, 0, "{footprints:?}");
    let counted = busy.end();
    println!(
        "{cycles} cycles, {spans}, {n_hits} hits, {:?}, {n_damaged} damaged, {counted:?}",
        footprints.last()
    );
    assert!(counted["inside"] > 0 && counted["vforks"] > 0, "signals came inside stubs: {counted:?}");
    // A child between vfork and exec has its parent's thread area, not that of its CPU, and may spoil a sub-buffer.
    assert!(n_damaged <= counted["vforks"], "{n_damaged} damaged: {counted:?}");
}

/// Not a test of its own: a tracer that opens and closes until it is killed.
#[test]
fn tracer_to_be_killed() {
    let Ok(pid) = std::env::var("NOPAL_TEST_PID") else { return };
    loop {
        let mut door = Door::open_with(pid.parse().unwrap(), "busy:*", &small_options()).unwrap();
        door.count(&mut HashMap::new());
    }
}

#[test]
fn a_killed_tracer_leaves_a_program_that_can_be_mended_and_traced_again() {
    let n_kills = kills(40);
    let mut chance = Chance::new("kills");
    let mut busy = Busy::start(&mut Busy::program(Build::Pie));
    let before = text(busy.pid());
    // What is open there is noted in memory that the first session brings.
    drop(Door::open_with(busy.pid(), "busy:*", &small_options()).unwrap());
    let (mut n_orphans, mut n_left) = (0, 0);
    for i in 0..n_kills {
        let mut tracer = Running::start(
            Command::new(std::env::current_exe().unwrap())
                .args([&nopal_tests::test_name(module_path!(), "tracer_to_be_killed"), "--exact"])
                .env("NOPAL_TEST_PID", busy.pid().to_string())
                .stdout(Stdio::null()),
        );
        // Some kills come early, most at a random moment of the work.
        // On a crowded machine it takes long to be at work.
        let latest = if i % 4 == 3 { 1_500_000 } else { 150_000 };
        std::thread::sleep(std::time::Duration::from_micros(15_000 + chance.below(latest)));
        let is_working = tracer.0.try_wait().unwrap().is_none();
        drop(tracer);
        assert!(is_working, "kill {i}: the tracer was at work");
        assert_eq!(busy.running.0.try_wait().unwrap(), None, "kill {i}: the program lives");
        n_left += Footprint::of(busy.pid()).n_descriptors;
        if i % 4 == 0 {
            // Every now and then the next session comes without a detach in between.
            let mut door = Door::open_with(busy.pid(), "busy:*", &small_options()).unwrap();
            let own = door.event("busy:own");
            let mut counts = HashMap::new();
            wait_until("events after a kill", 20, || {
                door.count(&mut counts);
                counts.get(&own).is_some_and(|n| *n > 0)
            });
            door.session.detach();
        }
        assert_eq!(
            busy.running.0.try_wait().unwrap(),
            None,
            "kill {i}: the program lives with a new session"
        );
        let report = nopal_user::leave::detach(busy.pid() as i32).unwrap();
        assert!(report.failures.is_empty() && report.left_alone.is_empty(), "kill {i}: {report:?}");
        n_orphans += report.n_orphans;
        assert!(semaphores(busy.pid()).iter().all(|s| *s == 0), "kill {i}: {:?}", semaphores(busy.pid()));
    }
    assert!(n_orphans > 0, "some kills hit a session in progress");
    wait_until("the code to be what it was, once no borrowed thread is in it", 30, || {
        nopal_user::leave::detach(busy.pid() as i32).unwrap();
        text(busy.pid()) == before
    });
    let footprint = Footprint::of(busy.pid());
    println!(
        "{n_kills} kills, {n_orphans} of them in a session, {n_left} descriptors left by them, {footprint:?}"
    );
    assert_eq!(footprint.n_descriptors, 0);
    busy.end();
}

/// Not a test of its own: what the next one runs as an ordinary user, on a program of that user.
#[test]
fn tracer_of_its_own_program() {
    let Ok(program) = std::env::var("NOPAL_TEST_PROGRAM") else { return };
    let busy = Busy::start(&mut Command::new(&program));
    let before = text(busy.pid());
    for cycle in 0..5 {
        let mut door = Door::open_with(busy.pid(), "busy:*", &small_options()).unwrap();
        let own = door.event("busy:own");
        let mut counts = HashMap::new();
        wait_until("hits", 20, || {
            door.count(&mut counts);
            counts.get(&own).is_some_and(|n| *n > 0)
        });
        let report = door.session.detach();
        assert!(report.failures.is_empty() && report.left_alone.is_empty(), "cycle {cycle}: {report:?}");
    }
    for _ in 0..4 {
        let tracer = Running::start(
            Command::new(std::env::current_exe().unwrap())
                .args([&nopal_tests::test_name(module_path!(), "tracer_to_be_killed"), "--exact"])
                .env("NOPAL_TEST_PID", busy.pid().to_string())
                .stdout(Stdio::null()),
        );
        std::thread::sleep(std::time::Duration::from_millis(120));
        drop(tracer);
        nopal_user::leave::detach(busy.pid() as i32).unwrap();
    }
    wait_until("the code to be what it was", 30, || {
        nopal_user::leave::detach(busy.pid() as i32).unwrap();
        text(busy.pid()) == before
    });
    busy.end();
}

#[test]
fn an_ordinary_user_traces_its_own_program() {
    // SAFETY: geteuid has no arguments and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let folder = std::env::temp_dir().join(format!("nopal-user-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // Where the tests are built an ordinary user may not be able to look.
    let (tester, program) = (folder.join("tester"), folder.join("busy"));
    copy_program(&std::env::current_exe().unwrap(), &tester);
    copy_program(&build("busy", &["busy.c", "own.c"], Build::Pie), &program);
    let mut command = if is_root {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--inh-caps=-all"])
            .arg(&tester);
        command
    } else {
        Command::new(&tester)
    };
    let output = command
        .args([&nopal_tests::test_name(module_path!(), "tracer_of_its_own_program"), "--exact"])
        .env("NOPAL_TEST_PROGRAM", &program)
        .current_dir(&folder)
        .output()
        .unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn bpftrace_attaching_and_leaving_during_the_cycles_disturbs_nobody() {
    let program = build("busy", &["busy.c", "own.c"], Build::Pie);
    let busy = Busy::start(&mut Busy::program(Build::Pie));
    let before = text(busy.pid());
    let cycles = cycles(80);
    let mut chance = Chance::new("cycles");
    let probes = ["own", "work", "guarded", "regs", "tick"];
    let others = Visitors::start(busy.pid(), &program, "busy", &probes);
    let mut n_hits = 0u64;
    let (mut footprints, mut spans) = (Vec::new(), Spans::default());
    for cycle in 0..cycles {
        let mut door = spans
            .open(|| Door::open_with(busy.pid(), "busy:*", &small_options()))
            .unwrap_or_else(|e| panic!("cycle {cycle}: {e}"));
        let mut counts = HashMap::new();
        // Short and long stays, so that bpftrace comes and goes before, during and after them.
        for _ in 0..chance.below(6) {
            door.count(&mut counts);
            door.session.look_after();
            std::thread::sleep(std::time::Duration::from_micros(chance.below(40_000)));
        }
        door.count(&mut counts);
        let report = spans.close(|| door.session.detach());
        assert!(report.failures.is_empty(), "cycle {cycle}: {report:?}");
        n_hits += counts.values().sum::<u64>();
        drop(door);
        footprints.push(Footprint::of(busy.pid()));
    }
    let visits = others.finish();
    nopal_user::leave::detach(busy.pid() as i32).unwrap();
    text(busy.pid()).assert_is(&before);
    wait_until("the semaphores to be down", 10, || semaphores(busy.pid()).iter().all(|s| *s == 0));
    let last = *footprints.last().unwrap();
    let counted = busy.end();
    println!("{cycles} cycles, {spans}, {n_hits} hits, {visits:?}, {last:?}, {counted:?}");
    assert!(n_hits > 0, "{visits:?}");
    assert_no_growth("what is left in it", &footprints);
}
