//! How commands talk to a session's recorder: one JSON object a line over a socket in the session's folder, which only
//! its owner can enter.

use super::error::SessionError;
use super::home::Session;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

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

/// How a started session is doing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Status {
    pub recorder_pid: u32,
    pub n_events: u64,
    pub n_lost: u64,
    pub n_bytes: u64,
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

/// Asks a session's recorder; an error of kind `not-started` if there is none.
pub fn ask(session: &Session, request: &Request) -> Result<Reply, SessionError> {
    let path = session.socket();
    let stream = with_short_path(session, UnixStream::connect).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            SessionError::new("not-started", format!("session `{}` is not started", session.name))
                .hint(format!("`nopal start {}` starts it", session.name))
        }
        _ => SessionError::io(&path, "reach the recorder through", &e),
    })?;
    let talk = || -> io::Result<Reply> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_string(request)?;
        line.push('\n');
        (&stream).write_all(line.as_bytes())?;
        let mut answer = String::new();
        BufReader::new((&stream).take(MAX_LINE)).read_line(&mut answer)?;
        if answer.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the recorder ended without an answer"));
        }
        Ok(serde_json::from_str(&answer)?)
    };
    match talk() {
        Ok(Reply::Failed(error)) => Err(error),
        Ok(reply) => Ok(reply),
        Err(e) => Err(SessionError::new(
            "recorder",
            format!("the recorder of session `{}` does not answer: {e}", session.name),
        )
        .hint(format!("its last words are in {}", session.log().display()))),
    }
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
        let _ = std::fs::remove_file(&path);
        let listener = with_short_path(session, UnixListener::bind)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|e| SessionError::io(&path, "listen on", &e))?;
        Ok(Listener { listener })
    }

    /// The next request, if somebody asks. Whoever does not say what he wants within a moment is not waited for.
    pub fn next(&self) -> Option<Asked> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(100))).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(500))).ok()?;
        let mut line = String::new();
        BufReader::new((&stream).take(MAX_LINE)).read_line(&mut line).ok()?;
        let request = serde_json::from_str(&line).ok()?;
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
    let dir = File::open(session.dir())?;
    use_path(PathBuf::from(format!("/proc/self/fd/{}/control", dir.as_raw_fd())))
}
