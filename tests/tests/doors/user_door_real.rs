//! The user door on real programs as Debian ships them.

use nopal_tests::cycles::{Chance, Footprint, Spans, Visitors, cycles};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::scratch;
use nopal_tests::user_door::{Door, text};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::time::Duration;

const PG: &str = "/usr/lib/postgresql/15/bin";

/// Runs as the user `postgres` if we are root, since PostgreSQL refuses root.
fn as_postgres(program: &str) -> Command {
    // SAFETY: geteuid has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", program]);
    command
}

struct Postgres {
    running: Running,
    folder: PathBuf,
}

impl Postgres {
    fn start(name: &str) -> Postgres {
        // Its own folder below /tmp: the user postgres cannot reach the build folder of root.
        let folder = std::env::temp_dir().join(format!("nopal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        if let Ok(id) = Command::new("id").args(["-u", "postgres"]).output() {
            let uid = String::from_utf8_lossy(&id.stdout).trim().parse().ok();
            // Fails only for an ordinary user, who owns it already.
            let _ = chown(&folder, uid, None);
        }
        let data = folder.join("data");
        nopal_tests::run(
            as_postgres(&format!("{PG}/initdb")).args(["-A", "trust", "--no-sync", "-k", "-D"]).arg(&data),
        );
        let running = Running::start(
            as_postgres(&format!("{PG}/postgres"))
                .arg("-D")
                .arg(&data)
                .args(["-h", "", "-c", "fsync=off", "-k"])
                .arg(&folder)
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        );
        let postgres = Postgres { running, folder };
        wait_until("PostgreSQL to answer", 60, || postgres.psql("select 1").is_some());
        postgres
    }

    fn connect(&self, program: &str) -> Command {
        let mut command = as_postgres(program);
        command.arg("-h").arg(&self.folder).args(["-U", "postgres"]);
        command
    }

    fn psql(&self, text: &str) -> Option<String> {
        let output = self
            .connect(&format!("{PG}/psql"))
            .args(["-Atqc", text, "postgres"])
            .output()
            .expect("psql starts");
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
    }
}

impl Postgres {
    /// A fast shutdown, after which the data can be checked. The folder is the caller's.
    fn stop(mut self) -> PathBuf {
        self.shut_down();
        std::mem::take(&mut self.folder)
    }

    fn shut_down(&mut self) {
        if self.running.0.try_wait().is_ok_and(|status| status.is_none()) {
            // SAFETY: a pid we started and have not reaped.
            unsafe { libc::kill(self.running.pid() as i32, libc::SIGINT) };
            let _ = self.running.0.wait();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.shut_down();
        if !self.folder.as_os_str().is_empty() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

fn refusals(door: &Door) -> Vec<String> {
    let sites = door.reports.iter().flat_map(|r| r.outcome.iter().flatten());
    sites.filter_map(|s| s.outcome.as_ref().err().map(|why| format!("{}: {why}", s.probe))).collect()
}

/// A connection that waits for statements.
struct Idle {
    session: Running,
    answers: BufReader<ChildStdout>,
    backend: u32,
}

impl Idle {
    fn connect(postgres: &Postgres) -> Idle {
        let mut command = postgres.connect(&format!("{PG}/psql"));
        command.args(["-qAtX", "postgres"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut session = Running(command.spawn().expect("psql starts"));
        let answers = BufReader::new(session.0.stdout.take().unwrap());
        let mut idle = Idle { session, answers, backend: 0 };
        idle.backend = idle.ask("select pg_backend_pid();\n").parse().unwrap();
        idle
    }

    /// Sends statements that answer one line.
    fn ask(&mut self, statements: &str) -> String {
        self.session.0.stdin.as_mut().unwrap().write_all(statements.as_bytes()).unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Ends the connection and waits for the backend to be gone.
    fn end(mut self) {
        drop(self.session.0.stdin.take());
        assert!(self.session.0.wait().unwrap().success());
        wait_until("the backend to end", 20, || !Path::new(&format!("/proc/{}", self.backend)).exists());
    }
}

/// bpftrace counting these probes in one process, once every site of them is in its hands.
fn bpftrace_counting(pid: u32, file: &str, provider: &str, probes: &[&str]) -> Running {
    let script: String =
        probes.iter().map(|p| format!("usdt:{file}:{provider}:{p} {{ @[\"{p}\"] = count(); }}\n")).collect();
    let mut command = Command::new("bpftrace");
    command.args(["-q", "-f", "json", "-p", &pid.to_string(), "-e", &script]);
    // It has words about files that newer kernels do not have.
    let running = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
    let objects = nopal_proc::mapped_objects(pid).unwrap();
    let object = objects.iter().find(|o| o.path == Path::new(file)).expect("the process maps the file");
    let image = object.open().unwrap();
    let read = nopal_sdt::read(image.bytes()).unwrap();
    let bias = object.load_biases(&read)[0];
    let sites: Vec<u64> = read
        .probes
        .iter()
        .filter(|p| p.provider == provider && probes.contains(&p.name.as_str()))
        .flat_map(|p| p.sites.iter().map(|s| bias.wrapping_add(s.address)))
        .collect();
    assert!(sites.len() >= probes.len());
    let memory = nopal_user::memory::Memory::open(pid as i32).unwrap();
    wait_until("bpftrace to have attached", 60, || {
        sites.iter().all(|site| memory.read_vec(*site, 1).is_ok_and(|byte| byte == [0xcc]))
    });
    running
}

/// Ends bpftrace; what it has counted.
fn bpftrace_result(mut running: Running) -> BTreeMap<String, u64> {
    // SAFETY: a pid we started and have not reaped.
    unsafe { libc::kill(running.pid() as i32, libc::SIGINT) };
    let mut text = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(running.0.wait().unwrap().success(), "{text}");
    let mut counts = BTreeMap::new();
    for line in text.lines().filter(|line| line.contains("\"map\"")) {
        let map: serde_json::Value = serde_json::from_str(line).unwrap();
        for (name, n) in map["data"]["@"].as_object().unwrap() {
            counts.insert(name.clone(), n.as_u64().unwrap());
        }
    }
    counts
}

/// `nopal record` on a process by whatever door each site allows, once it is at work; and the file it talks into.
fn record(pid: u32, pattern: &str, recording: &Path) -> (Running, PathBuf) {
    let messages = recording.with_extension("messages");
    let mut nopal = Running::start(
        Command::new(nopal_tests::nopal())
            .args(["record", "--json", "-v", "-e", pattern, "-p", &pid.to_string(), "-o"])
            .arg(recording)
            .stdout(Stdio::piped())
            .stderr(File::create(&messages).unwrap()),
    );
    wait_until("nopal to be at work", 60, || {
        let said = std::fs::read_to_string(&messages).unwrap();
        assert!(nopal.0.try_wait().unwrap().is_none(), "{said}");
        said.contains("sites: ")
    });
    (nopal, messages)
}

/// Ends a recording as Ctrl-C does; its result.
fn finish(nopal: &mut Running) -> serde_json::Value {
    // SAFETY: a pid we started and have not reaped.
    unsafe { libc::kill(nopal.pid() as i32, libc::SIGINT) };
    let mut result = String::new();
    nopal.0.stdout.take().unwrap().read_to_string(&mut result).unwrap();
    assert!(nopal.0.wait().unwrap().success(), "{result}");
    serde_json::from_str(&result).unwrap()
}

fn for_each_event(recording: &Path, mut each: impl FnMut(serde_json::Value)) {
    let mut view = Running::start(
        Command::new(nopal_tests::nopal())
            .args(["view", "--json"])
            .arg(recording)
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    );
    for line in BufReader::new(view.0.stdout.take().unwrap()).lines() {
        each(serde_json::from_str(&line.unwrap()).unwrap());
    }
    assert!(view.0.wait().unwrap().success());
}

fn pgbench(postgres: &Postgres, arguments: &[&str]) {
    let said = nopal_tests::run(
        postgres.connect(&format!("{PG}/pgbench")).args(["-n", "-c", "4"]).args(arguments).arg("postgres"),
    );
    assert!(said.contains("number of failed transactions: 0 "), "{said}");
}

/// The probes a statement passes through.
const STATEMENT_PROBES: [&str; 9] = [
    "query__start",
    "query__done",
    "query__parse__start",
    "query__rewrite__start",
    "query__plan__start",
    "query__execute__start",
    "transaction__start",
    "transaction__commit",
    "statement__status",
];

/// What both the backend that bpftrace watches and the one that it does not are asked.
fn statements() -> String {
    let mut text = String::new();
    for i in 0..40 {
        text += &format!("select abalance from pgbench_accounts where aid = -{i};\n");
        text += "begin; update pgbench_branches set bbalance = bbalance + 1; commit;\n";
    }
    text + "select 'done';\n"
}

#[test]
fn postgresql_under_load_by_the_command() {
    const N_IDLE: usize = 20;
    const SELECTS: u64 = 4 * 250;
    const WRITES: u64 = 4 * 40;
    let postgres = Postgres::start("pg");
    let program = format!("{PG}/postgres");
    nopal_tests::run(postgres.connect(&format!("{PG}/pgbench")).args(["-i", "-q", "-s", "1", "postgres"]));
    let mut idle: Vec<Idle> = (0..N_IDLE).map(|_| Idle::connect(&postgres)).collect();
    let before = text(postgres.running.pid());
    let bpftrace = bpftrace_counting(idle[0].backend, &program, "postgresql", &STATEMENT_PROBES);

    let recording = scratch("user-door-pg").join("recording");
    let (mut nopal, messages) = record(postgres.running.pid(), "postgresql:*", &recording);
    pgbench(&postgres, &["-S", "-t", &(SELECTS / 4).to_string()]);
    pgbench(&postgres, &["-t", &(WRITES / 4).to_string()]);
    for session in &mut idle[..2] {
        // The last line answers; those before have none, as there are no such accounts.
        assert_eq!(session.ask(&statements()), "done");
    }
    for session in &mut idle[2..] {
        assert_eq!(session.ask("select 42;\n"), "42");
    }
    let theirs = bpftrace_result(bpftrace);
    let result = finish(&mut nopal);
    let messages = std::fs::read_to_string(messages).unwrap();
    assert_eq!(result["lost"], 0, "{result}");
    text(postgres.running.pid()).assert_is(&before);

    // Every site that is listed is open in the postmaster and in each of the idle backends, by one door or the other.
    let listed: Vec<serde_json::Value> = serde_json::from_str(&nopal_tests::run(
        Command::new(nopal_tests::nopal()).args(["list", "--json", &program]),
    ))
    .unwrap();
    let n_listed: usize = listed.iter().map(|p| p["sites"].as_array().unwrap().len()).sum();
    assert!(n_listed > 60, "{n_listed}");
    for pid in idle.iter().map(|i| i.backend).chain([postgres.running.pid()]) {
        let of_process = format!(" in process {pid}: ");
        let mut ways: HashMap<&str, usize> = HashMap::new();
        for line in messages.lines() {
            if let Some((_, way)) = line.split_once(&of_process) {
                *ways.entry(way.split(':').next().unwrap()).or_default() += 1;
            }
        }
        assert_eq!(ways.values().sum::<usize>(), n_listed, "{ways:?} {messages}");
        let n_user = ways.get("user door").copied().unwrap_or_default();
        let of_this =
            || messages.lines().filter(|line| line.contains(&of_process)).take(3).collect::<Vec<_>>();
        assert!(n_user * 10 > n_listed * 6 && !ways.contains_key("not opened"), "{ways:?} {:?}", of_this());
    }

    let mut counts: HashMap<(u64, String), u64> = HashMap::new();
    let (mut n_selects, mut n_inserts) = (0, 0);
    for_each_event(&recording, |event| {
        let name = event["name"].as_str().unwrap();
        if name == "query__start" {
            let query = event["args"]["query"].as_str().unwrap();
            n_selects += u64::from(query.starts_with("SELECT abalance FROM pgbench_accounts WHERE aid = "));
            n_inserts += u64::from(query.starts_with("INSERT INTO pgbench_history "));
        }
        *counts.entry((event["pid"].as_u64().unwrap(), name.to_owned())).or_default() += 1;
    });
    assert_eq!(counts.values().sum::<u64>(), result["events"].as_u64().unwrap());
    let count = |backend: u32, probe: &str| {
        counts.get(&(u64::from(backend), probe.to_owned())).copied().unwrap_or_default()
    };
    // The backends of pgbench were started while recording: by either door they are seen from their start.
    assert_eq!((n_selects, n_inserts), (SELECTS + WRITES, WRITES), "{messages}");
    assert_eq!((&result["complete"], &result["late_processes"]), (&true.into(), &0.into()), "{result}");
    let n_kernel = result["sites"]["kernel"].as_u64().unwrap();
    assert!(n_kernel > 0, "bpftrace was there first, so both doors are in use: {result}");
    for session in &idle {
        assert!(count(session.backend, "query__start") > 0, "backend {} is recorded", session.backend);
    }
    // The same statements, three counts: bpftrace's, nopal's beside it, and nopal's where it is alone.
    println!("{theirs:?} {result}");
    for probe in STATEMENT_PROBES {
        let ours = [0, 1].map(|i| count(idle[i].backend, probe));
        assert_eq!(ours, [theirs[probe]; 2], "{probe}");
        assert!(ours[0] >= 80, "{probe}: {ours:?}");
    }

    idle.into_iter().for_each(Idle::end);
    let folder = postgres.stop();
    let said = nopal_tests::run(
        as_postgres(&format!("{PG}/pg_checksums")).args(["--check", "-D"]).arg(folder.join("data")),
    );
    assert!(said.contains("Bad checksums:  0"), "{said}");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn ruby_with_its_own_probes() {
    let script = nopal_tests::root().join("tests/fixtures/targets/churn.rb");
    let mut ruby = Running(
        Command::new("/usr/bin/ruby")
            .arg(&script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("ruby starts"),
    );
    let mut answers = BufReader::new(ruby.0.stdout.take().unwrap());
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    let before = text(ruby.pid());
    let recording = scratch("user-door-ruby").join("recording");
    let (mut nopal, messages) = record(ruby.pid(), "ruby:*", &recording);
    line.clear();
    ruby.0.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    answers.read_line(&mut line).unwrap();
    let n_collections: u64 = line.trim().parse().unwrap();
    let result = finish(&mut nopal);
    text(ruby.pid()).assert_is(&before);
    ruby.0.stdin.as_mut().unwrap().write_all(b"end\n").unwrap();
    assert!(ruby.0.wait().unwrap().success());
    assert_eq!((&result["lost"], &result["complete"]), (&0.into(), &true.into()), "{result}");
    let said = std::fs::read_to_string(messages).unwrap();
    assert!(said.contains(" user door") && !said.contains("not opened"), "{said}");

    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for_each_event(&recording, |event| {
        let what = ["classname", "length"].map(|key| &event["args"][key]);
        let what = what.into_iter().find(|v| !v.is_null()).map_or(String::new(), |v| v.to_string());
        *counts.entry((event["name"].as_str().unwrap().to_owned(), what)).or_default() += 1;
    });
    for (probe, what, expected) in [
        ("object__create", "\"Thing\"", 2000),
        ("object__create", "\"Oops\"", 150),
        ("raise", "\"Oops\"", 150),
        ("array__create", "7", 700),
        ("hash__create", "2", 400),
        ("gc__mark__begin", "", n_collections),
        ("gc__mark__end", "", n_collections),
    ] {
        let n = counts.get(&(probe.to_owned(), what.to_owned())).copied().unwrap_or_default();
        assert_eq!(n, expected, "{probe} {what}: {counts:?}");
    }
}

fn wait_for_hits(door: &mut Door, probe: &str) -> HashMap<u32, u64> {
    let mut counts = HashMap::new();
    wait_until(probe, 60, || {
        door.count(&mut counts);
        door.events.lock().unwrap().get(probe).is_some_and(|e| counts.get(e).is_some_and(|n| *n > 100))
    });
    counts
}

#[test]
fn python_with_its_own_probes() {
    let script = "def f(n):\n    return n + 1\nn = 0\nwhile True:\n    n = f(n)\n";
    let running = Running::start(Command::new("/usr/bin/python3.11").args(["-c", script]));
    wait_until("python to run", 30, || nopal_proc::mapped_objects(running.pid()).is_ok_and(|o| o.len() > 2));
    std::thread::sleep(Duration::from_millis(300));
    let mut door = Door::open(running.pid(), "python:*").unwrap();
    println!("python: {:?} {:?}", door.n_sites(), refusals(&door));
    let has = |probe: &str| {
        let sites = door.reports.iter().flat_map(|r| r.outcome.iter().flatten());
        sites.filter(|s| s.probe == probe).any(|s| s.outcome.is_ok())
    };
    let (entry, back) = (has("python:function__entry"), has("python:function__return"));
    assert!(door.n_sites().0 > 0, "some of its probes can be opened");
    for (is_open, probe) in [(entry, "python:function__entry"), (back, "python:function__return")] {
        if is_open {
            wait_for_hits(&mut door, probe);
        }
    }
    let report = door.session.detach();
    assert!(report.failures.is_empty() && report.left_alone.is_empty(), "{report:?}");
}

#[test]
fn a_java_machine_with_garbage_and_threads() {
    let folder = scratch("user-door-java");
    let source = folder.join("Churn.java");
    std::fs::copy(nopal_tests::root().join("tests/fixtures/targets/Churn.java"), &source).unwrap();
    nopal_tests::run(Command::new("javac").arg("-d").arg(&folder).arg(&source));
    let end = folder.join("end");
    let mut running = Running::start(
        Command::new("java")
            .args(["-Xmx64m", "-XX:+ExtendedDTraceProbes", "-cp"])
            .arg(&folder)
            .arg("Churn")
            .arg(&end)
            .stdout(Stdio::piped()),
    );
    let mut out = std::io::BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let pid = running.pid();
    let cycles = cycles(20);
    let before = text(pid);
    let mut chance = Chance::new("java");
    // SAFETY: geteuid has no arguments and cannot fail.
    let others = (unsafe { libc::geteuid() } == 0).then(|| {
        let objects = nopal_proc::mapped_objects(pid).unwrap();
        let machine = objects.iter().find(|o| o.path.ends_with("libjvm.so")).expect("it is a Java machine");
        let probes = ["thread__start", "thread__stop", "gc__begin", "gc__end", "mem__pool__gc__begin"];
        Visitors::start(pid, &machine.path, "hotspot", &probes)
    });
    let mut counts = HashMap::new();
    let (mut footprints, mut spans) = (Vec::new(), Spans::default());
    for cycle in 0..cycles {
        let mut door = spans
            .open(|| Door::open_with(pid, "hotspot:*", &nopal_tests::user_door::small_options()))
            .unwrap_or_else(|e| panic!("cycle {cycle}: {e}"));
        if cycle == 0 {
            println!("java: {:?}", door.n_sites());
            assert!(door.n_sites().0 > 0);
        }
        std::thread::sleep(Duration::from_micros(chance.below(20_000)));
        door.count(&mut counts);
        let report = spans.close(|| door.session.detach());
        assert!(report.failures.is_empty(), "cycle {cycle}: {report:?}");
        drop(door);
        footprints.push(Footprint::of(pid));
    }
    let visits = others.map(Visitors::finish);
    let n_hits = counts.values().sum::<u64>();
    println!("java: {cycles} cycles, {spans}, {n_hits} hits, {visits:?}, {:?}", footprints.last());
    assert!(n_hits > 100, "{counts:?}");
    nopal_user::leave::detach(pid as i32).unwrap();
    text(pid).assert_is(&before);
    let later = &footprints[footprints.len() / 2..];
    assert!(later.iter().all(|one| *one == later[0]), "what is left in it grows: {footprints:?}");
    // It says in the end whether all its sums were right.
    std::fs::write(&end, "").unwrap();
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut out, &mut rest).unwrap();
    assert!(running.0.wait().unwrap().success() && rest.contains("all right"), "{rest}");
}

#[test]
fn a_program_in_namespaces_of_its_own() {
    let program = nopal_tests::targets::build("busy", &["busy.c", "own.c"], nopal_tests::targets::Build::Pie);
    let running = Running::start(
        Command::new("unshare")
            .args(["--pid", "--mount", "--user", "--map-root-user", "--fork", "--kill-child"])
            .arg(&program)
            .args(["-q", "-t", "2"])
            .stdout(Stdio::null()),
    );
    let inner = || nopal_proc::descendants(running.pid()).first().copied();
    wait_until("the inner process", 20, || {
        inner().is_some_and(|pid| {
            std::fs::read_link(format!("/proc/{pid}/exe"))
                .is_ok_and(|exe| Path::new(&exe) == program.as_path())
        })
    });
    std::thread::sleep(Duration::from_millis(100));
    let pid = inner().unwrap();
    let mut door = Door::open(pid, "busy:*").unwrap();
    let mut hits = Vec::new();
    wait_until("hits", 20, || {
        door.read(&mut hits);
        !hits.is_empty()
    });
    assert!(hits.iter().all(|h| h.pid == 1), "numbers are those of its own namespace: {:?}", &hits[0]);
    let report = door.session.detach();
    assert!(report.failures.is_empty() && report.left_alone.is_empty(), "{report:?}");
}

/// A memory cgroup below ours, version 1 or 2, with this limit; `None` where we may make none.
fn memory_cgroup(limit: u64) -> Option<PathBuf> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let name = format!("nopal-{}", std::process::id());
    let candidates = own.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        match controllers {
            "" => Some(("/sys/fs/cgroup".to_string() + path, "memory.max")),
            "memory" => Some(("/sys/fs/cgroup/memory".to_string() + path, "memory.limit_in_bytes")),
            _ => None,
        }
    });
    candidates.into_iter().find_map(|(parent, file)| {
        let folder = Path::new(&parent).join(&name);
        std::fs::create_dir(&folder).ok()?;
        if std::fs::write(folder.join(file), limit.to_string()).is_err() {
            let _ = std::fs::remove_dir(&folder);
            return None;
        }
        Some(folder)
    })
}

#[test]
fn a_target_in_a_memory_cgroup_smaller_than_the_ring_lives() {
    let Some(group) = memory_cgroup(24 << 20) else {
        println!("no memory cgroup can be made here, so none can be too small");
        return;
    };
    let program = nopal_tests::targets::build("busy", &["busy.c", "own.c"], nopal_tests::targets::Build::Pie);
    let mut running = Running::start(Command::new(&program).args(["-q", "-t", "2"]).stdout(Stdio::null()));
    std::fs::write(group.join("cgroup.procs"), running.pid().to_string()).unwrap();
    let mut options = nopal_tests::user_door::options();
    options.ring.ring_bytes = 64 << 20;
    let mut door = Door::open_with(running.pid(), "busy:*", &options).unwrap();
    let mut counts = HashMap::new();
    for _ in 0..20 {
        door.count(&mut counts);
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(running.0.try_wait().unwrap().is_none(), "it lives");
    assert!(counts.values().sum::<u64>() > 100_000, "and filled its rings: {counts:?}");
    door.session.detach();
    drop(running);
    wait_until("the cgroup to be empty", 10, || std::fs::remove_dir(&group).is_ok());
}

#[test]
fn a_burst_of_a_program_without_rseq_fits_into_the_default_rings() {
    const ROUNDS: u64 = 12_000;
    let program =
        nopal_tests::targets::build("busy", &["busy.c", "own.c"], nopal_tests::targets::Build::Musl);
    let recording = scratch("user-door-burst").join("recording");
    let said = nopal_tests::run(
        Command::new(nopal_tests::nopal())
            .args(["record", "--json", "--door", "user", "-e", "busy:*", "-o"])
            .arg(&recording)
            .arg("--")
            .arg(&program)
            .args(["-q", "-t", "1", "-n", &ROUNDS.to_string()]),
    );
    let result = said.lines().find(|line| line.starts_with('{')).unwrap();
    let result: serde_json::Value = serde_json::from_str(result).unwrap();
    assert_eq!(result["lost"], 0, "{result}");
    let mut n_own = 0;
    for_each_event(&recording, |event| n_own += u64::from(event["name"] == "own"));
    assert_eq!(n_own, ROUNDS);
    assert!(said.contains(&format!("own={ROUNDS} ")) && said.contains("errors=0"), "{said}");
}
