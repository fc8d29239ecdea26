//! The user door on real programs as Debian ships them.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::scratch;
use nopal_tests::user_door::{Door, Hit};
use std::collections::HashMap;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
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

impl Drop for Postgres {
    fn drop(&mut self) {
        // A fast shutdown, so that the data can be checked afterwards.
        // SAFETY: a pid we started and have not reaped.
        unsafe { libc::kill(self.running.pid() as i32, libc::SIGINT) };
        let _ = self.running.0.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn refusals(door: &Door) -> Vec<String> {
    let sites = door.reports.iter().flat_map(|r| r.outcome.iter().flatten());
    sites.filter_map(|s| s.outcome.as_ref().err().map(|why| format!("{}: {why}", s.probe))).collect()
}

#[test]
fn postgresql_counts_every_statement() {
    let postgres = Postgres::start("pg");
    nopal_tests::run(postgres.connect(&format!("{PG}/pgbench")).args(["-i", "-q", "-s", "1", "postgres"]));
    // Idle backends, connected before we come.
    let mut idle: Vec<Running> = (0..5)
        .map(|_| {
            let mut command = postgres.connect(&format!("{PG}/psql"));
            command.args(["-qAt", "postgres"]).stdin(Stdio::piped()).stdout(Stdio::null());
            Running(command.spawn().expect("psql starts"))
        })
        .collect();
    let n_backends =
        || postgres.psql("select count(*) from pg_stat_activity where backend_type = 'client backend'");
    wait_until("the idle connections", 30, || n_backends().is_some_and(|n| n == "6"));

    let mut door = Door::open(postgres.running.pid(), "postgresql:*").unwrap();
    let failed: Vec<_> = door.reports.iter().filter(|r| r.outcome.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(door.reports.len() >= 6, "postmaster and its children were entered: {}", door.reports.len());
    let (opened, refused) = (door.reports[0].outcome.as_ref().unwrap().clone(), refusals(&door));
    let n_opened = opened.iter().filter(|s| s.outcome.is_ok()).count();
    println!("postmaster: {n_opened} of {} sites; {:?}", opened.len(), &refused[..refused.len().min(20)]);
    assert!(n_opened * 10 > opened.len() * 6, "most sites can be opened");
    for why in &refused {
        assert!(why.contains("would land"), "no other reason than a taken landing: {why}");
    }

    const STATEMENTS: u64 = 2000;
    let (mut hits, mut lost) = (Vec::new(), 0);
    let mut bench = Running::start(
        postgres
            .connect(&format!("{PG}/pgbench"))
            .args(["-S", "-n", "-c", "4", "-t", &(STATEMENTS / 4).to_string(), "postgres"])
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    while bench.0.try_wait().unwrap().is_none() {
        lost += door.read(&mut hits).gaps.iter().map(|g| g.count).sum::<u64>();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(bench.0.wait().unwrap().success(), "no transaction failed");
    // The idle ones were entered, too: each says something now.
    for session in &mut idle {
        use std::io::Write;
        session.0.stdin.take().unwrap().write_all(b"select 42;\n").unwrap();
        assert!(session.0.wait().unwrap().success());
    }
    std::thread::sleep(Duration::from_millis(100));
    lost += door.read(&mut hits).gaps.iter().map(|g| g.count).sum::<u64>();
    assert_eq!(lost, 0);
    let count = |probe: &str| {
        let event = door.event(probe);
        hits.iter().filter(|h: &&Hit| h.event == event).count() as u64
    };
    let is_open = |probe: &str| opened.iter().filter(|s| s.probe == probe).all(|s| s.outcome.is_ok());
    let mut checked = 0;
    for probe in ["postgresql:query__start", "postgresql:query__done", "postgresql:query__parse__start"] {
        // pgbench asks once for the size of its tables; each idle connection made one statement.
        if is_open(probe) {
            let n = count(probe);
            assert!((STATEMENTS + 5..STATEMENTS + 40).contains(&n), "{probe}: {n}");
            checked += 1;
        }
    }
    assert!(checked > 0, "at least one of the statement probes is open: {refused:?}");

    let report = door.session.detach();
    assert!(report.failures.is_empty() && report.left_alone.is_empty(), "{report:?}");
    assert!(report.processes.len() >= 2, "{report:?}");
    assert_eq!(postgres.psql("select count(*) from pgbench_accounts").as_deref(), Some("100000"));
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
    wait_until("python to run", 30, || {
        nopal_engine::target::mapped_objects(running.pid()).is_ok_and(|o| o.len() > 2)
    });
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
    let mut running = Running::start(
        Command::new("java")
            .args(["-Xmx64m", "-XX:+ExtendedDTraceProbes", "-cp"])
            .arg(&folder)
            .arg("Churn")
            .stdout(Stdio::piped()),
    );
    let mut out = std::io::BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    let mut counts = HashMap::new();
    for cycle in 0..10 {
        let mut door = Door::open_with(running.pid(), "hotspot:*", &nopal_tests::user_door::small_options())
            .unwrap_or_else(|e| panic!("cycle {cycle}: {e}"));
        if cycle == 0 {
            println!("java: {:?}", door.n_sites());
            assert!(door.n_sites().0 > 0);
        }
        std::thread::sleep(Duration::from_millis(20));
        door.count(&mut counts);
        let report = door.session.detach();
        assert!(report.failures.is_empty() && report.left_alone.is_empty(), "{report:?}");
    }
    assert!(counts.values().sum::<u64>() > 100, "{counts:?}");
    // It ends by itself and says whether all its sums were right.
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
    let inner = || nopal_engine::target::descendants(running.pid()).first().copied();
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
