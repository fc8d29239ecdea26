//! Hundreds of functions of real programs under load: counts against the program's own, every byte back afterwards.

use super::functions::{attach, code_of, end, stop};
use nopal_tests::at_work::AtWork;
use nopal_tests::cycles::cycles;
use nopal_tests::process::{Running, free_port, wait_until};
use nopal_tests::targets::{Build, build_with};
use nopal_tests::{lab, nopal, scratch};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// memcached on loopback, and one connection to it.
pub(super) struct Memcached {
    server: Running,
    program: PathBuf,
    client: Client,
    port: u16,
}

impl Memcached {
    pub(super) fn start() -> Memcached {
        let (program, port) = (lab::memcached(), free_port());
        let mut command = Command::new(&program);
        command.args(["-l", "127.0.0.1", "-t", "2", "-u", "root", "-p", &port.to_string()]);
        let server = Running::start(&mut command);
        wait_until("memcached listens", 60, || TcpStream::connect(("127.0.0.1", port)).is_ok());
        Memcached { server, program, client: Client::connect(port), port }
    }

    #[track_caller]
    fn is_as_it_was(&self) {
        let (start, then, now) = code_of(self.server.pid(), &self.program);
        let changed: Vec<u64> =
            (0..now.len()).filter(|at| now[*at] != then[*at]).map(|at| start + at as u64).collect();
        assert!(changed.is_empty(), "{changed:x?}");
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// One more connection to the same server.
    fn another(&self) -> Client {
        Client::connect(self.port)
    }
}

impl AtWork for Memcached {
    fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// 1,000 `set` and 1,000 `get`, checked.
    fn work(&mut self) -> String {
        self.client.work(1000);
        String::new()
    }
}

/// A connection, and what must come of commands.
struct Client {
    to: TcpStream,
    from: BufReader<TcpStream>,
}

impl Client {
    fn connect(port: u16) -> Client {
        let to = TcpStream::connect(("127.0.0.1", port)).unwrap();
        to.set_nodelay(true).unwrap();
        let from = BufReader::new(to.try_clone().unwrap());
        Client { to, from }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        line
    }

    /// So many `set` and as many `get`, each answered as it must be.
    fn work(&mut self, n: u32) {
        for i in 0..n {
            let (key, value) = (i % 977, i * 7);
            let value = format!("{value:08}");
            let commands = format!("set k{key} 0 0 8\r\n{value}\r\nget k{key}\r\n");
            self.to.write_all(commands.as_bytes()).unwrap();
            assert_eq!(self.line(), "STORED\r\n");
            assert_eq!(self.line(), format!("VALUE k{key} 0 8\r\n"));
            assert_eq!(self.line(), format!("{value}\r\n"));
            assert_eq!(self.line(), "END\r\n");
        }
    }

    /// What it says itself: one more command.
    fn n_commands(&mut self) -> u64 {
        self.to.write_all(b"stats\r\n").unwrap();
        let mut sum = 0;
        loop {
            let line = self.line();
            let mut words = line.split_whitespace().skip(1);
            match words.next() {
                None => return sum,
                Some("cmd_get" | "cmd_set") => sum += words.next().unwrap().parse::<u64>().unwrap(),
                Some(_) => {}
            }
        }
    }
}

/// Starts nopal on a process, with its output in files, and waits until it says that sites are open.
pub(super) fn open(arguments: &[&str], pid: u32, folder: &Path) -> (Running, PathBuf, PathBuf) {
    let (out, log) = (folder.join("out"), folder.join("log"));
    let mut command = Command::new(nopal());
    command.args(arguments).args(["-v", "--json", "-p", &pid.to_string()]);
    command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&log).unwrap());
    let mut tracer = Running::start(&mut command);
    wait_until("sites are open", 120, || {
        assert!(tracer.0.try_wait().unwrap().is_none(), "{}", fs::read_to_string(&log).unwrap());
        fs::read_to_string(&log).is_ok_and(|text| text.contains("sites: "))
    });
    (tracer, out, log)
}

const COMMAND: &str = "process_command_ascii";
/// What a `set` alone enters, and has left before it is answered.
const FOR_EACH_SET: [&str; 3] = ["complete_nread_ascii", "do_store_item", "process_update_command"];

#[test]
fn memcached_enters_its_functions_as_often_as_it_leaves_them() {
    let mut memcached = Memcached::start();
    let folder = scratch("function_programs_counts");
    let file = memcached.program.display().to_string();
    let script = format!(
        "uprobe:{file}:* {{ @in[probe] = count(); }} uretprobe:{file}:* {{ @out[probe] = count(); }}"
    );
    memcached.client.work(100);
    let (tracer, out, log) = open(&["run", "-e", &script], memcached.server.pid(), &folder);
    let before = memcached.client.n_commands();
    memcached.client.work(4000);
    let n_commands = memcached.client.n_commands() - before;
    assert_eq!(n_commands, 8000);
    stop(tracer);
    let (out, log) = (fs::read_to_string(out).unwrap(), fs::read_to_string(log).unwrap());
    let answer: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(answer["complete"], true, "{answer}{log}");
    let mut counts: BTreeMap<String, [i64; 2]> = BTreeMap::new();
    for row in answer["rows"].as_array().unwrap() {
        let name = row["key"][0].as_str().unwrap().rsplit(':').next().unwrap();
        counts.entry(name.to_owned()).or_default()[usize::from(row["map"] == "@out")] =
            row["value"].as_i64().unwrap();
    }
    // The two questions for statistics are commands, too.
    assert_eq!(counts[COMMAND], [n_commands as i64 + 2; 2], "{counts:?}");
    for name in FOR_EACH_SET {
        assert_eq!(counts[name], [n_commands as i64 / 2; 2], "{name}: {counts:?}");
    }
    let n_threads = fs::read_dir(format!("/proc/{}/task", memcached.server.pid())).unwrap().count();
    for (name, [n_in, n_out]) in &counts {
        // Each thread may have been within one when tracing began or ended: the one that keeps the lists of items in order
        // goes on without commands, and one that has answered is still on its way out of a few functions.
        assert!(
            n_in.abs_diff(*n_out) <= n_threads as u64,
            "{name}: entered {n_in} times, left {n_out} times"
        );
    }
    let is_entry = |line: &&str| line.contains("uprobe:") && line.contains(": user door: ");
    let n_entries = log.lines().filter(is_entry).count();
    assert!(n_entries >= 300, "{n_entries}: {log}");
    memcached.is_as_it_was();
    memcached.client.work(500);
}

#[test]
fn calls_of_hundreds_of_functions_are_spans() {
    let mut memcached = Memcached::start();
    let folder = scratch("function_programs_spans");
    let functions = format!("{}:*", memcached.program.display());
    let arguments = ["top", "--functions", &functions, "--duration", "600s"];
    let (tracer, out, log) = open(&arguments, memcached.server.pid(), &folder);
    let before = memcached.client.n_commands();
    memcached.client.work(1000);
    let n_commands = memcached.client.n_commands() - before;
    stop(tracer);
    let (out, log) = (fs::read_to_string(out).unwrap(), fs::read_to_string(log).unwrap());
    let answer: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let name = format!("memcached:{COMMAND}");
    let row = answer["rows"].as_array().unwrap().iter().find(|row| row["span"] == name.as_str());
    let row = row.unwrap_or_else(|| panic!("{answer}{log}"));
    assert_eq!(row["count"], n_commands + 2, "{row}{log}");
    assert!(answer["spans"].as_array().unwrap().len() >= 300, "{log}");
    memcached.is_as_it_was();
    assert!(TcpStream::connect(("127.0.0.1", memcached.port)).is_ok());
    memcached.client.work(100);
}

/// Opens functions at entry and exit and closes them again, others each time.
fn toggle(pid: u32, file: &Path, patterns: &[&str], n_cycles: u32, log: &Path, mut each: impl FnMut()) {
    for cycle in 0..n_cycles {
        let pattern = patterns[cycle as usize % patterns.len()];
        let file = file.display();
        let script = format!(
            "uprobe:{file}:{pattern} {{ @in = count(); }} uretprobe:{file}:{pattern} {{ @out = count(); }}"
        );
        stop(attach(pid, &script, log));
        each();
    }
}

#[test]
fn functions_of_memcached_are_opened_and_closed_under_load() {
    let memcached = Memcached::start();
    let (is_over, n_rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut client = memcached.another();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                client.work(50);
                n_rounds.fetch_add(1, Ordering::SeqCst);
            }
        });
        let log = scratch("function_programs_toggles").join("log");
        let patterns = ["process_*", "[a-d]*", "item_*", "conn_*", "do_*", "[r-z]*"];
        let pid = memcached.server.pid();
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            toggle(pid, &memcached.program, &patterns, cycles(15), &log, || {
                memcached.is_as_it_was();
                // The client is answered rightly, before and after.
                let n = n_rounds.load(Ordering::SeqCst);
                wait_until("the client goes on", 120, || n_rounds.load(Ordering::SeqCst) > n);
            });
        }));
        is_over.store(true, Ordering::SeqCst);
        result.unwrap();
    });
}

#[test]
fn exceptions_pass_functions_that_are_opened_and_closed() {
    let program = build_with("thrown", &["thrown.cpp"], Build::Pie, &["-lstdc++"]);
    let mut command = Command::new(&program);
    command.arg("2").stdout(Stdio::piped());
    let target = Running::start(&mut command);
    let log = scratch("function_programs_thrown").join("log");
    toggle(target.pid(), &program, &["t_*", "*", "t_[dp]*"], cycles(15), &log, || {
        let (_, then, now) = code_of(target.pid(), &program);
        assert!(then == now, "all bytes are back");
    });
    end(target);
}

/// A call that an exception passes has no duration, and what catches it has its own.
#[test]
fn calls_that_exceptions_pass_are_entered_and_not_left() {
    const N_ROUNDS: i64 = 900;
    let program = build_with("thrown", &["thrown.cpp"], Build::Pie, &["-lstdc++"]);
    let asked = |way: &[&str]| {
        let mut command = Command::new(nopal());
        command.args(["latency", "thrown-pie:t_catches", "thrown-pie:t_passes", "-v", "--json"]).args(way);
        command.arg("--").arg(&program).args(["1", &N_ROUNDS.to_string()]).stdin(Stdio::null());
        let output = command.output().unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        let log = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{out}{log}");
        assert!(out.contains(&format!("rounds={N_ROUNDS} errors=0")), "{out}{log}");
        (serde_json::from_str::<Value>(out.lines().last().unwrap()).unwrap(), log.into_owned())
    };
    for (way, is_kept) in [(&[][..], true), (&["--streamed"], false), (&["--door", "kernel"], false)] {
        // Where libraries lie may leave a jump without a place to land; then all is streamed.
        let (answer, log) = (0..5)
            .map(|_| asked(way))
            .find(|(answer, _)| answer["kept_at_source"] == is_kept)
            .expect("the user door opens them, most of the time");
        let rows = answer["rows"].as_array().unwrap();
        let count = |name: &str| {
            let row = rows.iter().find(|row| row["span"] == name);
            row.and_then(|row| row["count"].as_i64()).unwrap_or_else(|| panic!("{answer}{log}"))
        };
        // Of nine rounds four throw. Each calls t_passes twice, once by t_catches, which always returns.
        let n_thrown = N_ROUNDS / 9 * 4;
        assert_eq!(count("thrown-pie:t_catches"), N_ROUNDS, "{answer}{log}");
        assert_eq!(count("thrown-pie:t_passes"), 2 * (N_ROUNDS - n_thrown), "{answer}{log}");
        assert_eq!(answer["unmatched"], 2 * n_thrown, "{answer}{log}");
        assert_eq!(answer["complete"], true, "{answer}{log}");
    }
}
