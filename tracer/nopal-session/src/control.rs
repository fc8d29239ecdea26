//! How commands talk to a session's recorder: one JSON object a line over a socket in the session's folder, which only
//! its owner can enter.

use super::error::SessionError;
use super::home::{Life, Session};
use super::totals::Totals;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What a recorder can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    Status,
    /// Ends tracing, writes the last events, and the recorder.
    Stop,
    /// Reads `session.toml` again and does what it newly says.
    Reload,
    /// Ends the recordings of now and begins others.
    Rotate,
    /// Removes what was recorded since the last rotation, and goes on.
    Clear,
    /// Writes what the rings hold into a recording.
    Snapshot {
        name: Option<String>,
    },
    /// Writes out what waits for its packet to fill.
    Flush,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Reply {
    Status(Status),
    Done {
        /// Things to know that are no failure.
        notes: Vec<String>,
    },
    /// A recording that is whole: an ended chunk or a snapshot.
    Written {
        path: PathBuf,
        n_events: u64,
    },
    /// Every event before this time, ns since the epoch, can be read from the recordings.
    Flushed {
        until_ns: i64,
    },
    Failed(SessionError),
}

impl Reply {
    /// For who asked for something else.
    pub fn unexpected(self) -> SessionError {
        match self {
            Reply::Failed(error) => error,
            Reply::Status(_) | Reply::Done { .. } | Reply::Written { .. } | Reply::Flushed { .. } => {
                SessionError::new("recorder", "the recorder answered something else than it was asked")
                    .hint("it may be of another version of nopal: `nopal stop` ends it")
            }
        }
    }
}

/// How a started session is doing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    pub recorder_pid: u32,
    #[serde(flatten)]
    pub totals: Totals,
    pub pids: Vec<u32>,
    pub user_sites: u64,
    pub kernel_sites: u64,
    pub closed_sites: u64,
    pub n_snapshots: u32,
    /// What is missing beside counted losses, in words.
    pub gaps: Vec<String>,
    /// Of the chunk being written.
    pub path: Option<PathBuf>,
}

/// A line may not be longer.
const MAX_LINE: u64 = 1 << 20;
/// A rotation or a snapshot of large rings takes its time; a recorder that is busy longer than this is stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// One that a signal stopped is not waited for so long.
const HALTED_PATIENCE: Duration = Duration::from_secs(10);
/// How often a recorder that does not answer is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// A recorder begins to listen a moment after it took the lock; a killed one loses the lock a moment after its socket.
const SETTLE: Duration = Duration::from_secs(5);

/// Asks a session's recorder; an error of kind `not-started` if there is none, of kind `stale` if it was killed.
pub fn ask(session: &Session, request: &Request) -> Result<Reply, SessionError> {
    let stream = connect(session)?;
    match talk(session, &stream, request) {
        Ok(Reply::Failed(error)) => Err(error),
        Ok(reply) => Ok(reply),
        Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(no_answer(session)),
        Err(e) => Err(match settled(session) {
            Life::Started => {
                let text = format!("the recorder of session `{}` does not answer: {e}", session.name);
                SessionError::new("recorder", text).hint(last_words(session))
            }
            life => absent(session, life),
        }),
    }
}

fn connect(session: &Session) -> Result<UnixStream, SessionError> {
    let end = Instant::now() + SETTLE;
    loop {
        let error = match with_short_path(session, UnixStream::connect) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
            return Err(SessionError::io(&session.socket(), "reach the recorder through", &error));
        }
        match session.life() {
            Life::Started if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            life => return Err(absent(session, life)),
        }
    }
}

fn talk(session: &Session, stream: &UnixStream, request: &Request) -> io::Result<Reply> {
    let since = Instant::now();
    stream.set_read_timeout(Some(LOOK))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    let mut to = stream;
    to.write_all(line.as_bytes())?;
    let mut from = BufReader::new(stream.take(MAX_LINE));
    let mut answer = Vec::new();
    loop {
        match from.read_until(b'\n', &mut answer) {
            Ok(_) => break,
            Err(e) if !matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err(e);
            }
            Err(_) => {
                let waited = since.elapsed();
                let is_halted = || session.recorder_pid().is_some_and(is_halted);
                if waited >= PATIENCE || waited >= halted_patience(request) && is_halted() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
        }
    }
    if answer.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the recorder ended without an answer"));
    }
    Ok(serde_json::from_slice(&answer)?)
}

/// Whoever only asks how a session is doing learns at the first look that its recorder stands still.
fn halted_patience(request: &Request) -> Duration {
    match request {
        Request::Status => LOOK,
        // What changes something may have been done when it goes on, so that it is given a chance.
        Request::Stop
        | Request::Reload
        | Request::Rotate
        | Request::Clear
        | Request::Snapshot { .. }
        | Request::Flush => HALTED_PATIENCE,
    }
}

/// What there is instead of a recorder.
fn absent(session: &Session, life: Life) -> SessionError {
    let name = &session.name;
    match (life, session.state().failure) {
        (Life::Stale, _) => {
            SessionError::new("stale", format!("the recorder of session `{name}` was killed"))
                .hint(format!("`nopal start {name}` goes on, `nopal stop {name}` puts the processes back"))
        }
        (Life::Failed, Some(failure)) => failure,
        _ => SessionError::new("not-started", format!("session `{name}` is not started"))
            .hint(format!("`nopal start {name}` starts it")),
    }
}

fn no_answer(session: &Session) -> SessionError {
    let name = &session.name;
    match session.recorder_pid() {
        Some(pid) if is_halted(pid) => SessionError::new(
            "recorder",
            format!("the recorder of session `{name}`, process {pid}, was stopped by a signal"),
        )
        .hint(format!("`kill -CONT {pid}` lets it go on; then try again")),
        Some(pid) => {
            let text = format!("the recorder of session `{name}`, process {pid}, does not answer");
            SessionError::new("recorder", text).hint(last_words(session))
        }
        None => absent(session, session.life()),
    }
}

fn last_words(session: &Session) -> String {
    format!("its last words are in {}", session.log().display())
}

/// What became of a session whose recorder hung up.
pub fn settled(session: &Session) -> Life {
    let end = Instant::now() + SETTLE;
    loop {
        match session.life() {
            Life::Started if Instant::now() < end => std::thread::sleep(Duration::from_millis(10)),
            life => return life,
        }
    }
}

/// Whether a signal or a debugger stopped the process.
fn is_halted(pid: u32) -> bool {
    let stat = nopal_proc::read_text(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may hold anything, also blanks and parentheses.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['T', 't']))
}

/// The recorder's end.
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub struct Asked {
    pub request: Request,
    stream: UnixStream,
}

impl Listener {
    /// The caller holds the session's lock, so a socket that is there is an old one.
    pub fn open(session: &Session) -> Result<Listener, SessionError> {
        let path = session.socket();
        let _ = session.folder().remove_file("control");
        let listener = with_short_path(session, UnixListener::bind)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|e| SessionError::io(&path, "listen on", &e))?;
        Ok(Listener { listener })
    }

    /// The next request, if somebody asks.
    pub fn next(&self) -> Option<Asked> {
        Listener::read(self.listener.accept().ok()?.0)
    }

    /// Everybody who still waits. Once the socket's file is removed nobody else can come.
    pub fn rest(self) -> Vec<Asked> {
        std::iter::from_fn(|| self.listener.accept().ok())
            .filter_map(|(stream, _)| Listener::read(stream))
            .collect()
    }

    /// Whoever does not say what he wants within a moment is not waited for.
    fn read(stream: UnixStream) -> Option<Asked> {
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(100))).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(500))).ok()?;
        let mut line = String::new();
        BufReader::new((&stream).take(MAX_LINE)).read_line(&mut line).ok()?;
        let request = serde_json::from_str(&line).ok()?;
        // Whoever lost patience was told that nothing was done.
        stream.set_nonblocking(true).ok()?;
        let has_hung_up = matches!((&stream).read(&mut [0]), Ok(0));
        stream.set_nonblocking(false).ok()?;
        if has_hung_up {
            return None;
        }
        Some(Asked { request, stream })
    }
}

impl Asked {
    pub fn answer(mut self, reply: &Reply) {
        let mut line = serde_json::to_string(reply).expect("an answer has only text and numbers");
        line.push('\n');
        // Whoever asked may have gone.
        let _ = self.stream.write_all(line.as_bytes());
    }
}

/// Addresses of sockets have at most 107 bytes; the way through a descriptor of the folder is always short.
fn with_short_path<T>(session: &Session, use_path: impl FnOnce(PathBuf) -> io::Result<T>) -> io::Result<T> {
    use_path(session.folder().path_by_descriptor().join("control"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_a_signal_stopped_is_told_from_others() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        assert!(!is_halted(pid));
        let wait_for = |is_wanted: bool| {
            let end = Instant::now() + Duration::from_secs(30);
            while is_halted(pid) != is_wanted && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            is_halted(pid) == is_wanted
        };
        for (signal, is_halted) in [(libc::SIGSTOP, true), (libc::SIGCONT, false)] {
            // SAFETY: kill has no preconditions; the child is ours.
            unsafe { libc::kill(pid as i32, signal) };
            assert!(wait_for(is_halted), "signal {signal}");
        }
        child.kill().and_then(|()| child.wait()).unwrap();
    }

    #[test]
    fn a_question_does_not_wait_for_a_recorder_that_stands_still() {
        assert_eq!(halted_patience(&Request::Status), LOOK);
        let changes = [
            Request::Stop,
            Request::Reload,
            Request::Rotate,
            Request::Clear,
            Request::Snapshot { name: None },
            Request::Flush,
        ];
        assert!(changes.iter().all(|request| halted_patience(request) == HALTED_PATIENCE));
    }

    #[test]
    fn whoever_has_hung_up_gets_nothing_done() {
        let dir = std::env::temp_dir().join(format!("nopal-control-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let session = Session::at(&dir).unwrap();
        let listener = Listener::open(&session).unwrap();
        let line = serde_json::to_string(&Request::Stop).unwrap() + "\n";
        let speak = || {
            let mut stream = with_short_path(&session, UnixStream::connect).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            stream
        };
        drop(speak());
        assert!(listener.next().is_none());
        let waiting = [speak(), speak()];
        drop(speak());
        assert_eq!(listener.next().map(|asked| asked.request.clone()), Some(Request::Stop));
        let rest = listener.rest();
        assert_eq!(rest.len(), 1);
        rest.into_iter().for_each(|asked| asked.answer(&Reply::Done { notes: Vec::new() }));
        let mut answer = String::new();
        BufReader::new(&waiting[1]).read_line(&mut answer).unwrap();
        assert_eq!(answer, "{\"answer\":\"done\",\"notes\":[]}\n");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
