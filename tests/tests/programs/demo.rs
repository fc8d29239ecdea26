//! `nopal demo`: the tour as root and as an ordinary user, and the server as clients and other tracers see it.

use nopal_provider::catalog;
use nopal_tests::process::{Running, wait_until};
use nopal_tests::{nopal, root, run, scratch, tools};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// The command in a folder that everybody may read, and a folder for its files that everybody may write to.
struct Place {
    folder: PathBuf,
    nopal: PathBuf,
    temporary: PathBuf,
}

impl Place {
    fn new(name: &str) -> Place {
        // Where the tests are built an ordinary user may not be able to look.
        let folder = std::env::temp_dir().join(format!("nopal-test-{name}-{}", std::process::id()));
        let temporary = folder.join("tmp");
        fs::create_dir_all(&temporary).unwrap();
        for path in [&folder, &temporary] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let place = Place { nopal: folder.join("nopal"), folder, temporary };
        // By another process: a file that this one has open for writing cannot be run, nor while a thread of it forks.
        run(Command::new("cp").arg(nopal()).arg(&place.nopal));
        place
    }

    fn command(&self, user: User) -> Command {
        // SAFETY: geteuid has no arguments and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let mut command = match user {
            User::Nobody if is_root => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"]);
                command.arg(&self.nopal);
                command
            }
            User::Nobody | User::Ourselves => Command::new(&self.nopal),
        };
        command.arg("demo").current_dir(&self.folder).env("TMPDIR", &self.temporary).stdin(Stdio::null());
        command
    }

    fn left_behind(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.temporary).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[derive(Debug, Clone, Copy)]
enum User {
    Ourselves,
    Nobody,
}

#[track_caller]
fn texts(output: &Output) -> (String, String) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{out}{err}", output.status);
    (out.into_owned(), err.into_owned())
}

/// The number behind the first `before`.
#[track_caller]
fn number_after(text: &str, before: &str) -> u32 {
    let rest = text.split_once(before).unwrap_or_else(|| panic!("no `{before}` in {text}")).1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn is_running(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn the_tour_shows_events_and_cleans_up() {
    for user in [User::Ourselves, User::Nobody] {
        let place = Place::new(&format!("tour-{user:?}"));
        let (out, err) = texts(&place.command(user).output().unwrap());
        let server = number_after(&out, "process ");
        let steps: Vec<&str> = out.split("\n$ ./nopal ").collect();
        let [_, list, trace, slow, record, view, count] = steps[..] else { panic!("six steps: {out}") };
        for (step, command, shown) in [
            (list, "list -p", "memcached:command__get"),
            (list, "list -p", "&CStr name, u64 duration"),
            (trace, "trace -p", "redis:call__start: { cpu_id = "),
            (slow, "trace -p", "valkey_commands:command_call: { cpu_id = "),
            (record, "record -p", "recording"),
            (view, "view ", "memcached:process__command__start: { cpu_id = "),
            (count, "view ", "  valkey_db:expire_del\n"),
            (count, "view ", "  valkey_db:eviction_del\n"),
            (count, "view ", "  total\n"),
        ] {
            assert!(step.starts_with(command) && step.contains(shown), "{user:?} {shown}\n{out}\n{err}");
        }
        assert_eq!(trace.matches(" redis:call__").count(), 8, "{trace}");
        for part in slow.split(", duration = ").skip(1) {
            assert!(number_after(part, "") > 1000, "{slow}");
        }
        assert!(!out.contains('\x1b'), "colour is for terminals");
        assert_eq!(err.matches("complete").count(), 5, "{err}");
        assert!(!is_running(server), "the server outlived the tour");
        assert_eq!(place.left_behind(), Vec::<String>::new());
    }
}

#[test]
fn the_tour_in_json_says_what_came_out() {
    let place = Place::new("json");
    let (out, _) = texts(&place.command(User::Nobody).args(["--json", "--keep"]).output().unwrap());
    let summary: Value = serde_json::from_str(&out).unwrap();
    let steps = summary["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 6, "{summary}");
    assert_eq!(steps[0]["probes"], 16, "{summary}");
    assert_eq!(steps[1]["events"], 8, "{summary}");
    assert!(steps[2]["events"].as_u64().unwrap() > 0, "{summary}");
    let n_events = steps[3]["events"].as_u64().unwrap();
    assert!(n_events > 0, "{summary}");
    assert_eq!(steps[4]["events"], 8, "{summary}");
    assert_eq!(
        (&steps[5]["events"], &steps[5]["lost"]),
        (&steps[3]["events"], &steps[3]["lost"]),
        "{summary}"
    );
    assert_eq!(summary["lost"], steps[3]["lost"], "{summary}");

    let recording = Path::new(summary["recording"].as_str().unwrap());
    let names: Vec<_> =
        fs::read_dir(recording.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["recording"], "only the recording is kept");
    let count = run(Command::new(nopal()).args(["view", "--count", "--json"]).arg(recording));
    let count: Value = serde_json::from_str(&count).unwrap();
    assert_eq!(count["total"], n_events);
}

/// Reads lines of a child's standard output until one contains `part`.
#[track_caller]
fn read_until(child: &mut Child, part: &str) -> String {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen = String::new();
    for line in lines.by_ref() {
        seen += &line.unwrap();
        seen.push('\n');
        if seen.contains(part) {
            // It must not write into a closed pipe.
            std::thread::spawn(move || lines.for_each(drop));
            return seen;
        }
    }
    panic!("it ended before it said `{part}`:\n{seen}");
}

fn signal(child: &Child, number: i32) {
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(child.id() as i32, number) };
}

#[test]
fn an_interrupted_tour_leaves_nothing() {
    let place = Place::new("interrupt");
    for (number, expected) in [(libc::SIGINT, Some(130)), (libc::SIGTERM, Some(130)), (libc::SIGKILL, None)] {
        let mut tour =
            Running::start(place.command(User::Nobody).stdout(Stdio::piped()).stderr(Stdio::null()));
        let seen = read_until(&mut tour.0, "$ ./nopal record");
        signal(&tour.0, number);
        let status = tour.0.wait().unwrap();
        assert_eq!(status.code(), expected, "{number}: {status}");
        let server = number_after(&seen, "process ");
        if expected.is_some() {
            assert!(!is_running(server), "{number}: the server outlived the tour");
            assert_eq!(place.left_behind(), Vec::<String>::new(), "{number}");
        } else {
            assert_eq!(status.signal(), Some(libc::SIGKILL));
            wait_until("the server ends with a killed tour", 30, || !is_running(server));
        }
    }
}

/// `nopal demo --serve` without a load.
pub(super) struct Served {
    running: Running,
    pub(super) server: u32,
    port: u16,
}

impl Served {
    pub(super) fn start() -> Served {
        let mut running = Running::start(
            Command::new(nopal()).args(["demo", "--serve", "0", "--json"]).stdout(Stdio::piped()),
        );
        let line = read_until(&mut running.0, "\n");
        let facts: Value = serde_json::from_str(&line).unwrap();
        let number = |name: &str| facts[name].as_u64().unwrap();
        Served { server: number("pid") as u32, port: number("port") as u16, running }
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    /// Everything the server says to a client that sends this; the server is the one to close.
    fn talk(&self, input: &[u8]) -> String {
        let mut stream = self.connect();
        stream.write_all(input).unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        String::from_utf8(reply).unwrap()
    }

    fn redis_cli(&self, lines: &str) -> String {
        let mut client = Command::new("redis-cli")
            .args(["-p", &self.port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        client.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        texts(&client.wait_with_output().unwrap()).0
    }
}

#[test]
fn clients_of_both_protocols_share_the_data() {
    let served = Served::start();
    let replies =
        served.redis_cli("ping\nset a hello\nincr n\nget a\nmget a n x\nttl a\nexpire a 100\nttl a\nfetch\n");
    let lines: Vec<&str> = replies.lines().collect();
    let expected =
        ["PONG", "OK", "1", "hello", "hello", "1", "", "-1", "1", "100", "ERR unknown command 'fetch'"];
    assert_eq!(lines[..expected.len()], expected, "{replies}");
    let replies = served.talk(b"get a\r\nincr n 41\r\nset gone 0 -1 1\r\nx\r\nget gone\r\nstats\r\nquit\r\n");
    assert!(
        replies.starts_with("VALUE a 0 5\r\nhello\r\nEND\r\n42\r\nSTORED\r\nEND\r\nSTAT pid "),
        "{replies}"
    );
    assert_eq!(number_after(&replies, "STAT pid "), served.server);
    assert_eq!(served.redis_cli("get n\n"), "42\n");

    let mut served = served;
    signal(&served.running.0, libc::SIGINT);
    assert!(served.running.0.wait().unwrap().success(), "Ctrl-C is how a server ends");
    assert!(!is_running(served.server));
}

#[test]
fn a_key_expires_by_itself() {
    let served = Served::start();
    served.redis_cli("set a 1 px 50\nset b 1 px 100000\n");
    wait_until("the expiry cycle deletes what nobody asks for", 30, || served.redis_cli("dbsize\n") == "1\n");
    assert!(served.redis_cli("info\n").contains("expired_keys:1"), "deleted once");
}

#[test]
fn hostile_clients_do_no_harm() {
    let served = Served::start();
    for (input, reply) in [
        (&b"\x00\xff\x80\nquit\r\n"[..], "ERROR\r\n"),
        (&[b'x'; 100_000], "CLIENT_ERROR line too long\r\n"),
        (b"set a 0 0 4294967295\r\n", "SERVER_ERROR object too large for cache\r\n"),
        (b"*1000000\r\n", "-ERR Protocol error: invalid multibulk length\r\n"),
        (b"*2\r\n$3\r\nget\r\n$999999999\r\n", "-ERR Protocol error: invalid bulk length\r\n"),
        (b"*1\r\n$-5\r\n", "-ERR Protocol error: invalid length\r\n"),
    ] {
        // A server that closes with input unread may reset the connection; what it said before is what counts.
        let mut stream = served.connect();
        let _ = stream.write_all(input);
        let mut got = vec![0; reply.len()];
        stream.read_exact(&mut got).unwrap_or_else(|e| panic!("{reply}: {e}"));
        assert_eq!(String::from_utf8_lossy(&got), reply);
    }
    // Half a request, and gone.
    served.connect().write_all(b"set a 0 0 100\r\nxx").unwrap();

    let mut held: Vec<TcpStream> = Vec::new();
    let mut turned_away = String::new();
    while turned_away.is_empty() {
        assert!(held.len() < 1000, "connections are not bounded");
        let mut stream = served.connect();
        stream.write_all(b"version\r\n").unwrap();
        let mut line = String::new();
        // A connection that was turned away may be reset before its line is read.
        let _ = BufReader::new(&stream).read_line(&mut line);
        if !line.starts_with("VERSION") {
            turned_away = if line.is_empty() { "reset".to_owned() } else { line };
        }
        held.push(stream);
    }
    assert!(["-ERR too many connections\r\n", "reset"].contains(&turned_away.as_str()), "{turned_away}");
    assert!(held.len() > 100, "{} connections", held.len());
    drop(held);
    wait_until("there is room again", 30, || {
        let mut stream = served.connect();
        let mut line = String::new();
        stream.write_all(b"version\r\n").is_ok()
            && BufReader::new(stream).read_line(&mut line).is_ok()
            && line.starts_with("VERSION")
    });
    assert!(is_running(served.server));
}

#[test]
fn nopal_and_the_kernels_tracer_count_the_same() {
    let folder = scratch("demo-count");
    let served = Served::start();
    let probes = [
        "redis:call__start",
        "redis:call__end",
        "valkey_commands:command_call",
        "memcached:process__command__start",
        "memcached:process__command__end",
        "memcached:command__get",
        "memcached:command__set",
        "memcached:command__incr",
    ];
    // bpftrace attaches from the last to the first: when this one speaks, the others count.
    let mut script =
        format!("usdt:{}:valkey_server:eventloop {{ printf(\"attached\\n\"); }}\n", nopal().display());
    for (i, probe) in probes.iter().enumerate() {
        script += &format!("usdt:{}:{probe} {{ @n{i} = count(); }}\n", nopal().display());
    }
    let result = folder.join("bpftrace.txt");
    let mut kernel = Running::start(
        Command::new("bpftrace")
            .args(["-B", "line", "-p", &served.server.to_string(), "-e", &script])
            .stdout(fs::File::create(&result).unwrap())
            .stderr(Stdio::null()),
    );
    wait_until("bpftrace is attached", 60, || {
        // A word that is no request: one turn of the loop, and nothing else.
        assert_eq!(served.talk(b"nonsense\r\nquit\r\n"), "ERROR\r\n");
        fs::read_to_string(&result).unwrap().contains("attached")
    });

    let recording = folder.join("recording");
    let mut record = Command::new(nopal());
    record.args(["record", "-p", &served.server.to_string(), "-o"]).arg(&recording);
    for probe in probes {
        record.args(["-e", probe]);
    }
    let mut record = Running::start(record.stdout(Stdio::null()).stderr(Stdio::piped()));
    let mut lines = BufReader::new(record.0.stderr.take().unwrap()).lines();
    let opened = lines.next().unwrap().unwrap();
    assert!(opened.starts_with("sites: "), "{opened}");
    let rest = std::thread::spawn(move || lines.map(|line| line.unwrap() + "\n").collect::<String>());

    const N_RESP: u64 = 300;
    const N_ROUNDS: u64 = 200;
    // Given on the command line, so that redis-cli does not ask for the list of commands first.
    let port = served.port.to_string();
    let numbers = run(Command::new("redis-cli").args(["-p", &port, "-r", &N_RESP.to_string(), "incr", "n"]));
    assert_eq!(numbers.lines().last(), Some(N_RESP.to_string().as_str()));
    let round = "set a 0 0 1\r\n7\r\nget a b c\r\nincr a 1\r\n";
    let replies = served.talk(format!("{}quit\r\n", round.repeat(N_ROUNDS as usize)).as_bytes());
    assert_eq!(replies.lines().count() as u64, N_ROUNDS * 5, "STORED, VALUE, 7, END, 8");

    signal(&record.0, libc::SIGINT);
    assert!(record.0.wait().unwrap().success());
    let said = rest.join().unwrap();
    assert!(said.contains("complete"), "{said}");
    signal(&kernel.0, libc::SIGINT);
    kernel.0.wait().unwrap();

    let count = run(Command::new(nopal()).args(["view", "--count", "--json"]).arg(&recording));
    let count: Value = serde_json::from_str(&count).unwrap();
    let rows = count["rows"].as_array().unwrap();
    let counted = fs::read_to_string(&result).unwrap();
    for (i, (probe, n_sent)) in probes
        .into_iter()
        .zip([N_RESP, N_RESP, N_RESP, N_ROUNDS * 3, N_ROUNDS * 3, N_ROUNDS * 3, N_ROUNDS, N_ROUNDS])
        .enumerate()
    {
        let ours =
            rows.iter().find(|row| row["event"] == probe).map_or(0, |row| row["count"].as_u64().unwrap());
        let theirs = u64::from(number_after(&counted, &format!("@n{i}: ")));
        assert_eq!((ours, theirs), (n_sent, n_sent), "{probe}: nopal and bpftrace\n{said}{opened}");
    }
}

#[test]
fn the_probes_are_those_of_the_servers_they_are_named_after() {
    let demo = ["memcached", "redis", "valkey_commands", "valkey_server", "valkey_db"];
    let sites = tools::readelf(nopal());
    let mut n_probes = 0;
    for provider in demo {
        let known = catalog::provider(provider);
        let declared = &known.unwrap_or_else(|| panic!("{provider} is in the catalog")).probes;
        for note in sites.iter().filter(|note| note.site.probe.starts_with(&format!("{provider}:"))) {
            let name = &note.site.probe[provider.len() + 1..];
            let probe = declared.iter().find(|probe| probe.name == name);
            let probe = probe.unwrap_or_else(|| panic!("{} is not in the catalog", note.site.probe));
            let n_operands = note.args.split_whitespace().count();
            assert_eq!(n_operands, probe.args.len(), "{}: {}", note.site.probe, note.args);
            n_probes += 1;
        }
    }
    assert!(n_probes >= 16, "{n_probes}");
}

#[test]
fn a_port_in_use_is_named() {
    let served = Served::start();
    let output = Command::new(nopal()).args(["demo", "--serve", &served.port.to_string()]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let expected =
        format!("nopal: the demo server cannot listen on port {}: Address already in use", served.port);
    assert!(said.starts_with(&expected) && said.contains("\n  choose another port"), "{said}");
}

#[test]
fn without_room_for_the_recording_the_tour_does_not_start() {
    let output = Command::new(nopal()).arg("demo").env("TMPDIR", "/nonexistent").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
    assert!(said.starts_with("nopal: cannot make the folder /nonexistent/nopal-demo-"), "{said}");
    assert!(said.contains("\n  set TMPDIR to a folder"), "{said}");
}

/// The tool for memcached and README's line for it, on a server that has some of memcached's probes.
#[test]
fn what_is_advised_for_memcached_runs_on_it() {
    let served = Served::start();
    let pid = served.server.to_string();
    let load = || {
        served.talk(b"set a-long-key 0 0 20\r\nabcdefghijklmnopqrst\r\nget a-long-key\r\nget x\r\nquit\r\n")
    };
    // A line of the load must be there; what comes before the sites are open is not seen.
    let show = |arguments: &[&str], wanted: &dyn Fn(&str) -> bool| {
        let shown = scratch("demo-advised").join("shown");
        let file = fs::File::create(&shown).expect("it can be made");
        let mut tracer = Running::start(Command::new(nopal()).args(arguments).stdout(file));
        wait_until(&format!("{arguments:?} shows the load"), 60, || {
            load();
            wanted(&fs::read_to_string(&shown).unwrap_or_default())
        });
        signal(&tracer.0, libc::SIGINT);
        assert!(tracer.0.wait().unwrap().success(), "{arguments:?}");
        fs::read_to_string(&shown).expect("text")
    };
    let words = ["run", "mcsnoop", "-p", &pid];
    show(&words, &|text| text.lines().any(|l| l.contains(" get ") && l.ends_with(" a-long-key")));
    let readme = fs::read_to_string(root().join("README.md")).expect("there is one");
    let line =
        readme.lines().find(|line| line.contains("'memcached:command__get if ")).expect("README has a line");
    let (_, pattern) = line.split_once('\'').expect("a pattern in quotes");
    let pattern = pattern.split('\'').next().expect("its end");
    let shown = show(&["trace", "-p", &pid, pattern], &|text| text.contains("a-long-key"));
    assert!(!shown.contains("\"x\""), "{shown}");
}

#[test]
fn memcacheds_script_of_the_binary_runs_on_it() {
    let mut server = Command::new(nopal())
        .args(["demo", "--serve", "0", "--load", "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let served: Value = serde_json::from_str(&line).unwrap();
    let pid = served["pid"].to_string();
    let output =
        Command::new(nopal()).args(["run", "mctop", "-p", &pid, "--duration", "3s"]).output().unwrap();
    signal(&server, libc::SIGINT);
    server.wait().unwrap();
    let (shown, said) = texts(&output);
    assert!(
        output.status.success() && shown.contains("@calls[") && shown.contains(" calls\n"),
        "{shown}{said}"
    );
    // Those there are, each with a call to copy.
    let list = run(Command::new(nopal()).args(["run", "--list"]));
    assert!(list.contains("mctop") && list.contains("nopal run mctop -n memcached"), "{list}");
    let wrong = Command::new(nopal()).args(["run", "mctopp", "-p", "1"]).output().unwrap();
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(!wrong.status.success() && said.contains("did you mean the tool `mctop`?"), "{said}");
}
