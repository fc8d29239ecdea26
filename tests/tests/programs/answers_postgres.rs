//! Answers about PostgreSQL's spans that cost much: measured if their names are asked for.

use nopal_tests::asking::{Asked, counts, number};
use nopal_tests::postgres::{Connection, Postgres};
use nopal_tests::process::Running;
use nopal_tests::{nopal, run};
use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};

const SERVER: &str = "/usr/lib/postgresql/15/bin/postgres";
const LWLOCK: &str = "postgresql:lwlock";

/// The hits of lwlock__release in one process, as bpftrace counts them.
struct Releases {
    bpftrace: Running,
    lines: BufReader<ChildStdout>,
}

impl Releases {
    fn of(pid: &str, connection: &mut Connection) -> Releases {
        let script = format!("usdt:{SERVER}:postgresql:lwlock__release {{ @n = count(); }}");
        let mut command = Command::new("bpftrace");
        command.args(["-p", pid, "-e", &script]).stdout(Stdio::piped());
        let mut bpftrace = Running(command.spawn().expect("bpftrace starts"));
        let mut lines = BufReader::new(bpftrace.0.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.starts_with("Attaching") {
            line.clear();
            assert!(lines.read_line(&mut line).expect("text") > 0, "bpftrace attaches");
        }
        let mut releases = Releases { bpftrace, lines };
        // It attaches a moment after it says so.
        while releases.so_far() == 0 {
            connection.ask("select count(*) from pg_class");
        }
        releases
    }

    fn so_far(&mut self) -> u64 {
        // SAFETY: a pid we started and have not reaped; at this signal bpftrace prints its maps.
        unsafe { libc::kill(self.bpftrace.pid() as i32, libc::SIGUSR1) };
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.lines.read_line(&mut line).expect("text") > 0, "bpftrace prints");
            if let Some(n) = line.strip_prefix("@n: ") {
                return n.trim().parse().expect("a number");
            }
        }
    }
}

/// Without its name it is neither measured nor passed over in silence, by `top`, by a pattern, and by `tree`.
#[test]
fn lightweight_locks_are_measured_if_their_name_is_asked_for() {
    let postgres = Postgres::start("answers-lwlock");
    let mut connection = Connection::open(&postgres);
    let backend = connection.ask("select pg_backend_pid()");
    let pid: u32 = backend.parse().expect("a number");
    let mut work = || (0..50).for_each(|_| assert_ne!(connection.ask("select count(*) from pg_class"), "0"));

    for words in [&["top", "--duration", "10m"][..], &["latency", "postgresql:*"], &["tree", "transaction"]] {
        // One door has one clock.
        let tracer = Asked::of(pid, &[words, &["--door", "kernel"]].concat());
        work();
        let said = tracer.so_far();
        assert_eq!(
            said["asked_for_by_name_only"].as_array().map(|names| &names[..]),
            Some(&[LWLOCK.into()][..])
        );
        let spans = counts(&said, "span");
        assert!(!spans.contains_key(LWLOCK) && spans["postgresql:transaction"] > 0, "{words:?}: {said}");
    }
    let told = Command::new(nopal()).args(["top", "--duration", "1ms", "-p", &backend]).output();
    let told = String::from_utf8_lossy(&told.expect("nopal runs").stderr).into_owned();
    assert!(told.contains("asked for by name only: postgresql:lwlock"), "{told}");
    let listed = run(Command::new(nopal()).args(["spans", SERVER]));
    let of_lwlock = listed.split("postgresql:lwlock\n").nth(1).expect("it is listed");
    let remark = of_lwlock.lines().find(|line| line.contains("asked for by name only"));
    assert!(remark.is_some() && listed.matches("asked for by name only").count() == 1, "{listed}");

    // By its name, each release is the end of one.
    let mut releases = Releases::of(&backend, &mut connection);
    let before = releases.so_far();
    let tracer = Asked::of(pid, &["latency", "lwlock", "--door", "kernel"]);
    let at_start = releases.so_far();
    for _ in 0..50 {
        connection.ask("select count(*) from pg_class");
    }
    let at_end = releases.so_far();
    let said = tracer.so_far();
    let after = releases.so_far();
    let ours = number(&said["rows"][0]["count"]) + number(&said["unmatched_why"]["begun_before"]);
    assert!(at_end - at_start >= 50, "{at_start} to {at_end}");
    assert!(
        (at_end - at_start..=after - before).contains(&ours),
        "{before} {at_start} {at_end} {after}: {said}"
    );
    assert_eq!(
        (&said["asked_for_by_name_only"], &said["unmatched"]),
        (&serde_json::json!([]), &0.into()),
        "{said}"
    );
}
