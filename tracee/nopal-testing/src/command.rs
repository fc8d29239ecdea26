//! The command `nopal` at work while a block runs: started, waited for, ended, its output read.

use crate::hits::{Hit, Hits};
use serde_json::Value;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the command may take to open the sites, or to end.
const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(5);

/// A process can be traced by one at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Why there are no hits to assert on.
#[derive(Debug)]
pub enum Error {
    /// The command cannot be started.
    NoCommand { command: String, error: io::Error },
    /// The command cannot trace the process, or finds no such probe; in its own words.
    CannotListen(String),
    /// Some hits were not seen, so that nothing can be said about them all.
    Incomplete(String),
    /// A temporary file.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NoCommand { command, error } => {
                write!(f, "cannot start `{command}`: {error}; install nopal, or set NOPAL_COMMAND to it")
            }
            Error::CannotListen(words) => write!(f, "cannot listen: {words}"),
            Error::Incomplete(words) => write!(f, "{words}"),
            Error::Io(error) => write!(f, "a temporary file: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::Io(error)
    }
}

/// Which probes of which process to listen to.
#[derive(Debug, Clone)]
pub struct Listener {
    probes: Vec<String>,
    pid: Option<u32>,
    options: Vec<String>,
}

impl Listener {
    /// Listens to this process and those it starts.
    pub fn new(probes: &[&str]) -> Listener {
        Listener { probes: probes.iter().map(|&p| p.to_owned()).collect(), pid: None, options: Vec::new() }
    }

    /// Listens to another process and those it starts.
    pub fn pid(mut self, pid: u32) -> Listener {
        self.pid = Some(pid);
        self
    }

    /// More options of `nopal trace`, such as `["--max-string", "1k"]`.
    pub fn options(mut self, options: &[&str]) -> Listener {
        self.options.extend(options.iter().map(|&o| o.to_owned()));
        self
    }

    /// Runs a block and gives the hits meanwhile.
    pub fn run(&self, block: impl FnOnce()) -> Result<Hits, Error> {
        // A test that failed while it listened has ended the command all the same.
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        if self.pid.is_none() {
            nopal::allow_tracing();
        }
        let folder = Folder::new()?;
        let mut nopal = self.start(&folder)?;
        let opened = nopal.wait_until_open(&folder)?;
        block();
        let status = nopal.end()?;
        check(status, &folder.said()?, &opened)?;
        let text = fs::read_to_string(folder.printed())?;
        let hits = text.lines().map(Hit::parse).collect::<Option<Vec<Hit>>>();
        let hits = hits.ok_or_else(|| Error::Incomplete("nopal printed what is not an event".to_owned()))?;
        let known = opened.iter().filter_map(|site| site["probe"].as_str()).map(str::to_owned);
        Ok(Hits::new(hits, known))
    }

    fn start(&self, folder: &Folder) -> Result<Nopal, Error> {
        let command = std::env::var("NOPAL_COMMAND").unwrap_or_else(|_| "nopal".to_owned());
        let pid = self.pid.unwrap_or_else(std::process::id).to_string();
        let child = Command::new(&command)
            .args(["trace", "--json", "--announce", "-p", &pid])
            .args(&self.options)
            .args(&self.probes)
            .stdin(Stdio::null())
            .stdout(File::create(folder.printed())?)
            .stderr(File::create(folder.0.join("said"))?)
            // A group of its own: Ctrl-C ends the tests, and they end the command.
            .process_group(0)
            .spawn();
        child.map(Nopal).map_err(|error| Error::NoCommand { command, error })
    }
}

/// Files of one listening, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Folder> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("nopal-testing-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        // Fails if somebody else has made it.
        fs::create_dir(&path)?;
        Ok(Folder(path))
    }

    fn printed(&self) -> PathBuf {
        self.0.join("printed")
    }

    fn said(&self) -> io::Result<String> {
        fs::read(self.0.join("said")).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let path: &Path = &self.0;
        let _ = fs::remove_dir_all(path);
    }
}

/// The running command. Ended when it is dropped, so that a test that panics leaves nothing behind.
struct Nopal(Child);

impl Nopal {
    /// The sites that were opened, as soon as they are.
    fn wait_until_open(&mut self, folder: &Folder) -> Result<Vec<Value>, Error> {
        let limit = Instant::now() + PATIENCE;
        loop {
            let has_ended = self.0.try_wait()?.is_some();
            let said = folder.said()?;
            let whole = said.rfind('\n').map_or("", |end| &said[..end]);
            let opened = objects(whole).into_iter().find_map(|mut object| match object["opened"].take() {
                Value::Array(opened) => Some(opened),
                _ => None,
            });
            match opened {
                Some(opened) => return Ok(opened),
                None if has_ended || Instant::now() > limit => {
                    return Err(Error::CannotListen(in_words(&said)));
                }
                None => std::thread::sleep(PAUSE),
            }
        }
    }

    fn end(&mut self) -> io::Result<ExitStatus> {
        if self.0.try_wait()?.is_none() {
            // SAFETY: a signal to a child that has not been waited for, so the pid is still its own.
            unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGINT) };
        }
        let limit = Instant::now() + PATIENCE;
        loop {
            match self.0.try_wait()? {
                Some(status) => return Ok(status),
                None if Instant::now() > limit => {
                    self.0.kill()?;
                    return self.0.wait();
                }
                None => std::thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for Nopal {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The lines that are JSON objects.
fn objects(said: &str) -> Vec<Value> {
    said.lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// What the command said, its errors as it tells them to people.
fn in_words(said: &str) -> String {
    let lines = said.lines().map(|line| {
        let object: Value = serde_json::from_str(line).unwrap_or_default();
        let error = &object["error"];
        match (error["message"].as_str(), error["hint"].as_str()) {
            (Some(message), Some(hint)) => format!("{message}; {hint}"),
            (Some(message), None) => message.to_owned(),
            _ => line.to_owned(),
        }
    });
    let words = lines.collect::<Vec<_>>().join("\n");
    if words.is_empty() { "nopal said nothing".to_owned() } else { words }
}

fn check(status: ExitStatus, said: &str, opened: &[Value]) -> Result<(), Error> {
    let verdict = objects(said).into_iter().rfind(|object| object["complete"].is_boolean());
    let Some(Value::Object(verdict)) = verdict.filter(|_| status.success()) else {
        return Err(Error::Incomplete(format!("nopal ended with {status}: {}", in_words(said))));
    };
    if verdict["complete"] != true {
        let is_told = |name: &str, n: &Value| {
            n.as_u64() != Some(0) && *n != false && !["complete", "events", "cut"].contains(&name)
        };
        let facts =
            verdict.iter().filter(|(name, n)| is_told(name, n)).map(|(name, n)| format!("{name} {n}"));
        let facts = facts.collect::<Vec<_>>().join(", ");
        return Err(Error::Incomplete(format!(
            "not every hit was seen: {facts}; a larger --buffer-size loses less"
        )));
    }
    let closed = opened.iter().filter(|site| site["door"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let closed: Vec<String> =
        closed.map(|site| format!("\n  {}: {}", text(&site["probe"]), text(&site["closed"]))).collect();
    match closed.is_empty() {
        true => Ok(()),
        false => Err(Error::Incomplete(format!("not every site could be opened:{}", closed.concat()))),
    }
}
