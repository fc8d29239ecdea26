//! Programs in Ruby and Python that declare probes while they run: started with the built `libnopal.so`, asked to fire by a
//! signal, and traced by bpftrace and by nopal. Holds no expectation about any of them.

use crate::process::Running;
use crate::{nopal, root, scratch};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long a tracer may take until it has what it waits for.
const PATIENCE: Duration = Duration::from_secs(180);

/// The native library.
pub fn libnopal() -> PathBuf {
    crate::runtime::libraries().join("libnopal.so")
}

/// A language with bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Ruby,
    Python,
}

impl Language {
    pub fn folder(self) -> PathBuf {
        root().join(match self {
            Language::Ruby => "bindings/ruby",
            Language::Python => "bindings/python",
        })
    }

    /// The interpreter, which finds the bindings and the native library.
    pub fn command(self) -> Command {
        let mut command = match self {
            Language::Ruby => {
                let mut command = Command::new("ruby");
                command.arg("-w").arg("-I").arg(self.folder().join("lib"));
                command
            }
            Language::Python => {
                let mut command = Command::new("python3");
                command.env("PYTHONPATH", self.folder().join("src")).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
        };
        command.env("NOPAL_LIBRARY", libnopal()).env_remove("NOPAL");
        command
    }

    /// The programs of the acceptance tests: `NAME.rb` or `NAME.py`, `NAME.bt`, `NAME.out`.
    pub fn acceptance(self) -> PathBuf {
        self.folder().join(match self {
            Language::Ruby => "test/acceptance",
            Language::Python => "tests/acceptance",
        })
    }

    pub fn extension(self) -> &'static str {
        match self {
            Language::Ruby => "rb",
            Language::Python => "py",
        }
    }
}

/// A running program that has said `ready` and fires on SIGUSR2.
#[derive(Debug)]
pub struct Program {
    running: Running,
    folder: PathBuf,
}

impl Program {
    /// Starts one of the acceptance programs, in its folder.
    #[track_caller]
    pub fn acceptance(language: Language, name: &str) -> Program {
        let mut command = language.command();
        if language == Language::Python {
            // As a script it would know itself by its whole path, which may be longer than what bpftrace shows of a text.
            command.args(["-c", "import sys; exec(compile(open(sys.argv[1]).read(), sys.argv[1], 'exec'))"]);
        }
        command.arg(format!("{name}.{}", language.extension())).current_dir(language.acceptance());
        Program::start(&mut command, &format!("{language:?}-acceptance-{name}"))
    }

    /// Starts a program of this text.
    #[track_caller]
    pub fn of(language: Language, name: &str, text: &str) -> Program {
        let mut command = language.command();
        let label = format!("{language:?}-{name}");
        let file = scratch(&format!("{label}-text")).join(format!("{name}.{}", language.extension()));
        fs::write(&file, text).expect("the program can be written");
        Program::start(command.arg(&file), &label)
    }

    #[track_caller]
    fn start(command: &mut Command, label: &str) -> Program {
        let folder = scratch(label);
        let said = folder.join("out");
        let create = |name: &str| fs::File::create(folder.join(name)).expect("the file can be made");
        let mut running = Running::start(command.stdout(create("out")).stderr(create("err")));
        let end = Instant::now() + PATIENCE;
        while !fs::read_to_string(&said).is_ok_and(|text| text.lines().any(|line| line == "ready")) {
            let ended = running.0.try_wait().expect("the child is ours");
            let errors = fs::read_to_string(folder.join("err")).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < end, "{command:?} did not get ready: {errors}");
            std::thread::sleep(Duration::from_millis(10));
        }
        Program { running, folder }
    }

    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a signal to a child that has not been waited for.
        unsafe { libc::kill(self.pid() as i32, signal) };
    }

    /// What it wrote to standard output and standard error.
    pub fn said(&self) -> String {
        ["out", "err"].map(|name| fs::read_to_string(self.folder.join(name)).unwrap_or_default()).concat()
    }

    /// Has the program fire now and then until the tracer ends by itself, and returns what the tracer printed. `has_enough`
    /// looks at that and says when to fire no more.
    #[track_caller]
    fn fire_for(&mut self, tracer: &mut Command, has_enough: impl Fn(&str) -> bool) -> String {
        let printed = self.folder.join("tracer.out");
        let errors = self.folder.join("tracer.err");
        let create = |path: &Path| fs::File::create(path).expect("the file can be made");
        let mut running = Running::start(tracer.stdout(create(&printed)).stderr(create(&errors)));
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let end = Instant::now() + PATIENCE;
        while running.0.try_wait().expect("the child is ours").is_none() {
            let has_ended = self.running.0.try_wait().expect("the child is ours").is_some();
            let told = || format!("{}{}{}", read(&printed), read(&errors), self.said());
            assert!(!has_ended, "the program ended: {}", told());
            let stacks = || [running.pid(), self.pid()].map(stacks).concat();
            assert!(Instant::now() < end, "{tracer:?} did not end: {}{}", told(), stacks());
            if !has_enough(&read(&printed)) {
                self.signal(libc::SIGUSR2);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let status = running.0.wait().expect("the child is ours");
        assert!(status.success(), "{tracer:?}: {status}\n{}{}{}", read(&printed), read(&errors), self.said());
        read(&printed)
    }

    /// What a bpftrace script prints of the program; the script ends itself.
    #[track_caller]
    pub fn bpftrace(&mut self, script: &[&str]) -> String {
        let mut command = Command::new("bpftrace");
        command
            .args(["-B", "line", "-p", &self.pid().to_string()])
            .args(script)
            .env("BPFTRACE_STRLEN", "200");
        let said = self.fire_for(&mut command, |printed| printed.lines().count() > 1);
        said.lines()
            .filter(|line| !line.starts_with("Attaching "))
            .fold(String::new(), |all, line| all + line + "\n")
    }

    /// What `nopal run` prints for a script, which ends itself.
    #[track_caller]
    pub fn nopal_run(&mut self, door: &str, script: &[&str]) -> String {
        let mut command = Command::new(nopal());
        command.args(["run", "-p", &self.pid().to_string(), "--door", door]).args(script);
        self.fire_for(&mut command, |printed| !printed.is_empty())
    }

    /// The first events of probes as `nopal trace --json` gives them.
    #[track_caller]
    pub fn nopal_trace(&mut self, door: &str, probes: &str, n_events: usize) -> Vec<Value> {
        let mut command = Command::new(nopal());
        command.args([
            "trace",
            "-p",
            &self.pid().to_string(),
            "--door",
            door,
            "--json",
            "--max-string",
            "1k",
        ]);
        command.args(["--limit", &n_events.to_string(), probes]);
        let printed = self.fire_for(&mut command, |printed| printed.lines().count() >= n_events);
        printed
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
            .collect()
    }

    /// The events of one whole round of what the program fires, which begins with one that `is_first`. The tracer may have
    /// come in the middle of a round, and opened one site after the other during another.
    #[track_caller]
    pub fn nopal_round(
        &mut self,
        door: &str,
        probes: &str,
        n_events: usize,
        is_first: impl Fn(&Value) -> bool,
    ) -> Vec<Value> {
        let mut events = self.nopal_trace(door, probes, 4 * n_events - 1);
        let start = (0..=events.len() - n_events).rfind(|&i| is_first(&events[i]));
        let start = start.unwrap_or_else(|| panic!("no whole round: {events:?}"));
        events.drain(start..start + n_events).collect()
    }
}

/// hello, latency and stack: each program with its script and the output that must come, by bpftrace and by `nopal run`; and its
/// events through both doors.
pub fn acceptance(language: Language) {
    for (name, probe) in [
        ("hello", "global:hello_test"),
        ("latency", "expensive_operation:execute"),
        ("stack", "stack_operation:call"),
    ] {
        let expected =
            fs::read_to_string(language.acceptance().join(format!("{name}.out"))).expect("it is there");
        let script = language.acceptance().join(format!("{name}.bt"));
        let mut program = Program::acceptance(language, name);
        if language == Language::Ruby && name != "hello" {
            // Its tracers are switched on from outside.
            program.signal(libc::SIGPROF);
        }
        let printed = program.bpftrace(&[script.to_str().expect("a plain path")]);
        assert!(printed.starts_with(expected.trim_end()), "{language:?} {name}: {printed}");
        for door in ["user", "kernel"] {
            let printed = program.nopal_run(door, &[script.to_str().expect("a plain path")]);
            assert!(printed.starts_with(expected.trim_end()), "{language:?} {name} {door}: {printed}");
            let events = program.nopal_trace(door, probe, 1);
            let args = &events[0]["args"];
            let holds = match name {
                "hello" => args["arg0"] == "Hello world",
                "latency" => {
                    let shown = if language == Language::Ruby { &args["method"] } else { &args["name"] };
                    shown == "execute"
                        && (1..1_000_000_000).contains(&args["duration_ns"].as_i64().unwrap_or(0))
                }
                _ => args["stack"].as_str().is_some_and(|stack| stack.starts_with(expected.trim_end())),
            };
            assert!(holds, "{language:?} {name} {door}: {}", events[0]);
        }
    }
}

/// Where the threads of a process are, for whoever has to find out why it does not go on.
fn stacks(pid: u32) -> String {
    let mut gdb = Command::new("timeout");
    gdb.args(["60", "gdb", "-batch", "-nx", "-ex", "thread apply all bt 30", "-p", &pid.to_string()]);
    let output = gdb.output().map(|output| output.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    let lines = text.lines().filter(|line| line.starts_with('#') || line.starts_with("Thread"));
    lines.fold(format!("\nprocess {pid}\n"), |all, line| all + line + "\n")
}
