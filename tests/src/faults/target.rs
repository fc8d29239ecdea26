//! The programs that check themselves, and what they share with whoever runs them.

use super::harm::Place;
use super::postgres::Server;
use super::process::{LIMIT, Process, is_alive, wait_for};
use super::tracer::Subject;
use crate::cycles::Chance;
use crate::targets::{Build, build_with};
use crate::{root, run, target_dir};
use std::fmt;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::OnceLock;

/// What the native program does; see `checked.cpp`.
const WORKS: [&str; 13] = [
    "threads",
    "exceptions",
    "longjmp",
    "altstack",
    "plugs",
    "forks",
    "vforks",
    "execs",
    "seccomp",
    "namespaces",
    "users",
    "dying",
    "brood",
];
/// Those of them in which there is one process only.
const N_ALONE: usize = 5;

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Native(Vec<&'static str>),
    Python,
    Ruby,
    Java,
    Go,
    Postgres,
}

impl Kind {
    pub(super) fn drawn(chance: &mut Chance) -> Kind {
        match chance.below(40) {
            0 | 1 => Kind::Python,
            2 | 3 => Kind::Ruby,
            4 | 5 => Kind::Java,
            6..=9 => Kind::Go,
            10 => Kind::Postgres,
            11 => Kind::Native(vec!["threads", "crowd"]),
            n => {
                // Without children half of the time: what they need is often told as a gap.
                let choice = if n < 26 { &WORKS[..N_ALONE] } else { &WORKS[..] };
                let mut works = vec!["threads"];
                for _ in 0..chance.below(4) {
                    let work = *chance.one_of(choice);
                    if !works.contains(&work) {
                        works.push(work);
                    }
                }
                Kind::Native(works)
            }
        }
    }

    /// Those that take long to start live longer.
    pub(super) fn n_stretches(&self, chance: &mut Chance) -> u64 {
        match self {
            Kind::Native(works) if works.contains(&"crowd") => 3,
            Kind::Native(_) => 2 + chance.below(5),
            Kind::Python | Kind::Ruby | Kind::Go => 4 + chance.below(5),
            Kind::Java | Kind::Postgres => 8,
        }
    }

    pub(super) fn names(&self) -> Vec<&'static str> {
        match self {
            Kind::Native(works) => works.clone(),
            Kind::Python => vec!["python"],
            Kind::Ruby => vec!["ruby"],
            Kind::Java => vec!["java"],
            Kind::Go => vec!["go"],
            Kind::Postgres => vec!["postgresql"],
        }
    }

    /// gdb's breakpoints kill the children of a program, with or without nopal.
    pub(super) fn takes_gdb(&self) -> bool {
        match self {
            Kind::Native(works) => works.iter().all(|work| WORKS[..N_ALONE].contains(work)),
            Kind::Go => true,
            Kind::Python | Kind::Ruby | Kind::Java | Kind::Postgres => false,
        }
    }

    /// What of it can be traced.
    pub(super) fn subjects(&self) -> &'static [Subject] {
        match self {
            Kind::Native(_) => &[Subject::Probes, Subject::Probes, Subject::Calls],
            Kind::Go => &[Subject::Calls],
            Kind::Python | Kind::Ruby | Kind::Java | Kind::Postgres => &[Subject::Probes],
        }
    }

    /// The others hit their probes before they count.
    pub(super) fn can_be_launched(&self) -> bool {
        matches!(self, Kind::Native(_) | Kind::Go)
    }

    pub(super) fn can_be_killed(&self) -> bool {
        !matches!(self, Kind::Postgres)
    }

    pub(crate) fn probes(&self) -> &'static str {
        match self {
            Kind::Native(_) | Kind::Go => "checked:*",
            Kind::Python => "python:gc__start",
            Kind::Ruby => "ruby:raise",
            Kind::Java => "hotspot:gc__begin",
            Kind::Postgres => "postgresql:query__start",
        }
    }

    /// The file with the place that other tracers are sent to, and its name.
    pub(crate) fn site(&self, place: Place) -> (PathBuf, &'static str) {
        match self {
            Kind::Native(_) => {
                let name = match place {
                    Place::Probe | Place::Next => "checked:hit",
                    Place::Beside => "checked_beside",
                    Place::Call => "checked_call",
                };
                (program(), name)
            }
            Kind::Go => (go_program(), "main.call"),
            Kind::Python => ("/usr/bin/python3.11".into(), self.probes()),
            Kind::Ruby => ("/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1".into(), self.probes()),
            Kind::Java => (java_home().join("lib/server/libjvm.so"), self.probes()),
            Kind::Postgres => ("/usr/lib/postgresql/15/bin/postgres".into(), self.probes()),
        }
    }

    /// The function whose calls are counted, as nopal is told of it: `FILE:NAME`.
    pub(crate) fn function(&self) -> String {
        let (file, name) = self.site(Place::Call);
        format!("{}:{name}", file.display())
    }

    /// The address of a place in the native program, as its file has it: for gdb.
    pub(crate) fn address(&self, place: Place) -> u64 {
        addresses()[place as usize].0
    }

    /// Where in its file a uprobe can come there.
    pub(crate) fn offset(&self, place: Place) -> u64 {
        addresses()[place as usize].1
    }

    /// The command line that runs it.
    pub(crate) fn line(&self, shared: &Path) -> Vec<String> {
        let text = |path: &Path| path.to_str().expect("paths of tests are text").to_owned();
        let script = |name: &str| text(&root().join("tests/fixtures/targets").join(name));
        match self {
            Kind::Native(works) => {
                let line = [text(&program()), text(shared), text(&plug())];
                line.into_iter().chain(works.iter().map(|work| (*work).to_owned())).collect()
            }
            Kind::Python => vec!["/usr/bin/python3.11".to_owned(), script("checked.py"), text(shared)],
            Kind::Ruby => vec!["/usr/bin/ruby".to_owned(), script("checked.rb"), text(shared)],
            Kind::Go => vec![text(&go_program()), text(shared)],
            Kind::Java => {
                let java = text(&java_home().join("bin/java"));
                let options =
                    ["-XX:+UseSerialGC", "-XX:MetaspaceSize=64m", "-XX:TieredStopAtLevel=1", "-Xmx16m"];
                let options = options.map(str::to_owned);
                let rest = ["-cp".to_owned(), text(&java_classes()), "Checked".to_owned(), text(shared)];
                [java].into_iter().chain(options).chain(rest).collect()
            }
            Kind::Postgres => Vec::new(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.names().join("+"))
    }
}

fn program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build_with("checked", &["checked.cpp"], Build::Pie, &["-lstdc++"])).clone()
}

/// For each place of the native program its address for gdb, and its offset for uprobes.
fn addresses() -> &'static [(u64, u64); 4] {
    static ADDRESSES: OnceLock<[(u64, u64); 4]> = OnceLock::new();
    ADDRESSES.get_or_init(|| {
        let bytes = fs::read(program()).expect("the program was built");
        let object = nopal_sdt::read(bytes.as_slice()).expect("the program is ELF");
        let symbols = run(Command::new("nm").arg(program()));
        let symbol = |name: &str| {
            let line = symbols.lines().find(|line| line.ends_with(&format!(" T {name}")));
            let address = line.and_then(|line| line.split(' ').next());
            u64::from_str_radix(address.expect("it has the function"), 16).expect("nm writes numbers")
        };
        let probe = object.probe("checked", "hit").expect("it has the probe").sites[0].address;
        // Behind the probe are the ten bytes of a nop of which Linux takes none for a uprobe; gdb does.
        let both =
            [probe, symbol("checked_beside"), symbol("checked_call")].map(|address| (address, address));
        [both[0], (probe + 1, probe + 11), both[1], both[2]].map(|(address, of_uprobe)| {
            (
                address,
                object.segments.iter().find_map(|s| s.file_offset_of(of_uprobe)).expect("it is in the file"),
            )
        })
    })
}

fn plug() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || build_with("checked_plug", &["checked_plug.cpp"], Build::Pie, &["-shared", "-fPIC"]);
    BUILT.get_or_init(build).clone()
}

fn go_program() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let folder = target_dir().join("lab/go");
        fs::create_dir_all(&folder).expect("the lab folder can be made");
        let lock = fs::File::create(folder.join("lock")).expect("the lock file can be made");
        lock.lock().expect("the lock can be taken");
        let program = folder.join("checked");
        let source = root().join("tests/fixtures/targets/checked.go");
        let mut command = Command::new("go");
        command.args(["build", "-buildmode=pie", "-o"]).arg(&program).arg(source);
        command.env("GOCACHE", folder.join("cache")).env("GOPATH", folder.join("path"));
        run(command.env("CGO_ENABLED", "0").env("GO111MODULE", "off").current_dir(&folder));
        program
    };
    BUILT.get_or_init(build).clone()
}

fn java_home() -> PathBuf {
    "/usr/lib/jvm/java-17-openjdk-amd64".into()
}

/// The folder of the class.
fn java_classes() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let folder = target_dir().join("lab/java");
        fs::create_dir_all(&folder).expect("the lab folder can be made");
        let source = root().join("tests/fixtures/targets/Checked.java");
        run(Command::new(java_home().join("bin/javac")).arg("-d").arg(&folder).arg(source));
        folder
    };
    BUILT.get_or_init(build).clone()
}

/// The numbers in the shared page, in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Field {
    Begun,
    Done,
    Errors,
    Phase,
    State,
    Burst,
    Raised,
    Pid,
    Children,
    CallsBegun,
    CallsDone,
    Workers,
    Idle,
    What,
}

const GO: u64 = 1;
const STOP: u64 = 2;
const END: u64 = 3;
const READY: u64 = 1;

/// The page that the program counts in.
#[derive(Debug)]
pub(crate) struct Shared(fs::File);

impl Shared {
    pub(crate) fn create(path: &Path) -> Result<Shared, String> {
        let made =
            fs::write(path, [0; 4096]).and_then(|()| fs::File::options().read(true).write(true).open(path));
        made.map(Shared).map_err(|e| format!("{}: {e}", path.display()))
    }

    pub(crate) fn get(&self, field: Field) -> u64 {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, field as u64 * 8).expect("the page is there");
        u64::from_ne_bytes(bytes)
    }

    pub(crate) fn set(&self, field: Field, value: u64) {
        self.0.write_all_at(&value.to_ne_bytes(), field as u64 * 8).expect("the page is there");
    }

    /// The first error that the program noticed.
    fn what(&self) -> String {
        let mut bytes = [0; 256];
        self.0.read_exact_at(&mut bytes, Field::What as u64 * 8).expect("the page is there");
        String::from_utf8_lossy(bytes.split(|b| *b == 0).next().unwrap_or_default()).into_owned()
    }
}

/// Hits that the program was about to have, and those that it has had.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub begun: u64,
    pub done: u64,
}

/// A program that runs.
#[derive(Debug)]
pub(crate) struct Target {
    pub kind: Kind,
    pub pid: u32,
    pub is_killed: bool,
    pub shared: Shared,
    /// Not there if a tracer has started it, or if it is a server.
    process: Option<Process>,
    server: Option<Server>,
}

impl Target {
    /// It is ready when this is done.
    pub(crate) fn start(kind: &Kind, dir: &Path, shared: Shared) -> Result<Target, String> {
        let mut target = Target::started_by_tracer(kind, shared);
        if matches!(kind, Kind::Postgres) {
            let server = Server::start(dir)?;
            target.pid = server.pid();
            target.server = Some(server);
            return Ok(target);
        }
        let line = kind.line(&dir.join("shared"));
        let mut process = Process::start(Command::new(&line[0]).args(&line[1..]), dir, "target")?;
        if !wait_for(LIMIT, || target.is_ready() || process.status().is_some()) || !target.is_ready() {
            return Err(format!("the program did not start: {}", process.stderr()));
        }
        target.pid = process.pid();
        target.process = Some(process);
        Ok(target)
    }

    /// Its number is known when it is ready.
    pub(crate) fn started_by_tracer(kind: &Kind, shared: Shared) -> Target {
        Target { kind: kind.clone(), pid: 0, is_killed: false, shared, process: None, server: None }
    }

    pub(crate) fn is_ready(&mut self) -> bool {
        if self.shared.get(Field::State) < READY {
            return false;
        }
        self.pid = self.shared.get(Field::Pid) as u32;
        true
    }

    pub(crate) fn counts(&self, subject: Subject) -> Counts {
        if let Some(server) = &self.server {
            return server.counts();
        }
        // What is done is asked first: it is never more than what was begun.
        let (begun, done) = match subject {
            Subject::Probes => (Field::Begun, Field::Done),
            Subject::Calls => (Field::CallsBegun, Field::CallsDone),
        };
        let done = self.shared.get(done);
        Counts { begun: self.shared.get(begun), done }
    }

    /// Lets it work.
    pub(crate) fn go(&mut self) -> Result<(), String> {
        if let Some(server) = &mut self.server {
            return server.go();
        }
        self.shared.set(Field::Phase, GO);
        let is_at_work = wait_for(LIMIT, || self.shared.get(Field::Idle) == 0 || !self.is_alive());
        if is_at_work { Ok(()) } else { Err("the program does not go on".to_owned()) }
    }

    /// Has it rest. It has had all its hits when this is done.
    pub(crate) fn rest(&mut self) -> Result<(), String> {
        if let Some(server) = &mut self.server {
            return server.rest();
        }
        self.shared.set(Field::Phase, STOP);
        let rests = wait_for(LIMIT, || {
            let [workers, idle] = [Field::Workers, Field::Idle].map(|field| self.shared.get(field));
            workers == idle || !self.is_alive()
        });
        if rests { Ok(()) } else { Err(format!("the program does not finish: {}", self.shared.what())) }
    }

    pub(crate) fn burst(&mut self, n: u64) -> bool {
        match &mut self.server {
            Some(server) => server.burst(),
            None => {
                self.shared.set(Field::Burst, n);
                self.is_alive()
            }
        }
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        match &mut self.process {
            Some(process) => process.status().is_none(),
            None => is_alive(self.pid),
        }
    }

    pub(crate) fn signal(&mut self, signal: i32) -> bool {
        // SAFETY: a child of ours, or of a tracer of ours, that nobody else reaps.
        self.is_alive() && unsafe { libc::kill(self.pid as i32, signal) } == 0
    }

    pub(crate) fn kill(&mut self) -> bool {
        self.is_killed = true;
        self.signal(libc::SIGKILL)
    }

    /// Lets it end.
    pub(crate) fn end(&mut self) {
        if let Some(server) = &mut self.server {
            server.end();
        }
        self.shared.set(Field::Phase, END);
    }

    /// Waits until it has ended. What went wrong in it.
    pub(crate) fn finish(&mut self) -> Vec<String> {
        let mut wrong = Vec::new();
        let what = self.shared.what();
        let has_failed = |status: ExitStatus| !self.is_killed && !status.success();
        if let Some(server) = &mut self.server {
            wrong.extend(server.finish());
        } else if let Some(process) = &mut self.process {
            match process.wait(LIMIT) {
                None => wrong.push("the program does not end".to_owned()),
                Some(status) if has_failed(status) => {
                    wrong.push(format!("the program: {status}: {what} {}", process.stderr()));
                }
                Some(_) => {}
            }
        } else if self.pid != 0 && !wait_for(LIMIT, || !is_alive(self.pid)) {
            wrong.push("the program does not end".to_owned());
        }
        let n_errors = self.shared.get(Field::Errors);
        if n_errors > 0 {
            wrong.push(format!("{n_errors} errors, the first: {what}"));
        }
        wrong
    }
}
