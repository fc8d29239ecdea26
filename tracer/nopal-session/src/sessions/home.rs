//! Where sessions live, and how a command finds one: by its name or as the current one.

use super::config::{SessionConfig, check_name};
use super::error::SessionError;
use nopal_sdt::pattern::nearest;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The folder of all sessions of a user.
#[derive(Debug, Clone)]
pub struct Home {
    dir: PathBuf,
}

/// One session's folder.
#[derive(Debug, Clone)]
pub struct Session {
    pub name: String,
    dir: PathBuf,
}

/// What a session is doing, written by whoever changes it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    pub is_started: bool,
    /// Processes with open sites, so that they can be put back if the recorder is killed.
    pub pids: Vec<u32>,
    /// Recordings made so far; the next has this number plus one.
    pub n_chunks: u32,
    /// Why the recorder ended by itself.
    pub failure: Option<SessionError>,
    /// Of all chunks that are finished.
    pub n_events: u64,
    pub n_lost: u64,
    pub n_bytes: u64,
    pub n_snapshots: u32,
    /// What is missing beside counted losses, in words.
    pub gaps: Vec<String>,
}

/// Whether a recorder holds the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Stopped,
    Started,
    /// It was started, and its recorder is gone.
    Stale,
    /// Its recorder gave up.
    Failed,
}

impl Home {
    /// `$NOPAL_HOME`, else `nopal` in `$XDG_STATE_HOME`, else `~/.local/state/nopal`.
    pub fn find() -> Result<Home, SessionError> {
        let of = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let dir = of("NOPAL_HOME")
            .or_else(|| of("XDG_STATE_HOME").map(|dir| dir.join("nopal")))
            .or_else(|| of("HOME").map(|dir| dir.join(".local/state/nopal")));
        let dir = dir.ok_or_else(|| {
            SessionError::new("no-home", "neither HOME nor NOPAL_HOME is set")
                .hint("NOPAL_HOME=/some/folder says where sessions are kept")
        })?;
        // The recorder has another working directory.
        let dir = std::path::absolute(&dir).map_err(|e| SessionError::io(&dir, "find", &e))?;
        Ok(Home { dir: dir.join("sessions") })
    }

    pub fn at(dir: &Path) -> Home {
        Home { dir: dir.to_owned() }
    }

    /// Makes a session's folder; the session becomes the current one.
    pub fn create(&self, config: &SessionConfig) -> Result<Session, SessionError> {
        check_name("a session", &config.name)?;
        private_dir(&self.dir)?;
        let session = self.session(&config.name);
        match DirBuilder::new().mode(0o700).create(&session.dir) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(SessionError::new(
                    "session-exists",
                    format!("there is a session `{}` already", config.name),
                )
                .hint(format!("choose another name, or end it with `nopal destroy {}`", config.name)));
            }
            Err(e) => return Err(SessionError::io(&session.dir, "make", &e)),
        }
        session.save(config)?;
        session.set_state(&State::default())?;
        self.set_current(&config.name)?;
        Ok(session)
    }

    fn session(&self, name: &str) -> Session {
        Session { name: name.to_owned(), dir: self.dir.join(name) }
    }

    /// The session with this name, or the current one.
    pub fn get(&self, name: Option<&str>) -> Result<Session, SessionError> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => match self.current() {
                Some(name) => name,
                None => {
                    self.all()?;
                    return Err(SessionError::new("no-session", "there is no current session")
                        .hint("`nopal create NAME` makes one, `nopal status` lists those there are"));
                }
            },
        };
        let session = self.session(&name);
        if check_name("a session", &name).is_ok() && session.dir.join(CONFIG).is_file() {
            return Ok(session);
        }
        let error = SessionError::new("no-such-session", format!("there is no session `{name}`"));
        let names: Vec<String> = self.all()?.into_iter().map(|s| s.name).collect();
        Err(match nearest(&name, names.iter().map(String::as_str)) {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None if names.is_empty() => error.hint("`nopal create NAME` makes one"),
            None => error.hint(format!("there are {}", names.join(", "))),
        })
    }

    /// All sessions, by name.
    pub fn all(&self) -> Result<Vec<Session>, SessionError> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(SessionError::io(&self.dir, "read", &e)),
        };
        let mut sessions: Vec<Session> = entries
            .flatten()
            .filter(|entry| entry.path().join(CONFIG).is_file())
            .filter_map(|entry| Some(self.session(entry.file_name().to_str()?)))
            .collect();
        sessions.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(sessions)
    }

    pub fn current(&self) -> Option<String> {
        let name = fs::read_to_string(self.dir.join(CURRENT)).ok()?;
        let name = name.trim();
        (!name.is_empty()).then(|| name.to_owned())
    }

    pub fn set_current(&self, name: &str) -> Result<(), SessionError> {
        write_whole(&self.dir.join(CURRENT), name)
    }

    /// Removes a session's folder; what it recorded stays.
    pub fn remove(&self, session: &Session) -> Result<(), SessionError> {
        fs::remove_dir_all(&session.dir).map_err(|e| SessionError::io(&session.dir, "remove", &e))?;
        if self.current().as_deref() == Some(&session.name) {
            let _ = fs::remove_file(self.dir.join(CURRENT));
        }
        Ok(())
    }
}

const CONFIG: &str = "session.toml";
const STATE: &str = "state.json";
const LOCK: &str = "lock";
const EDIT_LOCK: &str = "edit-lock";
const CURRENT: &str = ".current";

impl Session {
    /// Of a folder that a command line names.
    pub fn at(dir: &Path) -> Session {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Session { name, dir: dir.to_owned() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("control")
    }

    pub fn log(&self) -> PathBuf {
        self.dir.join("recorder.log")
    }

    pub fn config(&self) -> Result<SessionConfig, SessionError> {
        let path = self.dir.join(CONFIG);
        let text = fs::read_to_string(&path).map_err(|e| SessionError::io(&path, "read", &e))?;
        SessionConfig::from_toml(&text)
    }

    pub fn save(&self, config: &SessionConfig) -> Result<(), SessionError> {
        write_whole(&self.dir.join(CONFIG), &config.to_toml())
    }

    pub fn state(&self) -> State {
        let text = fs::read_to_string(self.dir.join(STATE)).unwrap_or_default();
        // What cannot be read was written by nobody of ours; the session is as if never started.
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub fn set_state(&self, state: &State) -> Result<(), SessionError> {
        let text = serde_json::to_string(state).expect("the state has only text and numbers");
        write_whole(&self.dir.join(STATE), &text)
    }

    /// Takes the session's lock, which the recorder keeps as long as it lives; `None` if somebody has it.
    pub fn lock(&self) -> Result<Option<File>, SessionError> {
        let path = self.dir.join(LOCK);
        let file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&path);
        let mut file = file.map_err(|e| SessionError::io(&path, "open", &e))?;
        match lock_call(&file, libc::F_OFD_SETLK) {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(e) => return Err(SessionError::io(&path, "lock", &e)),
        }
        // Whoever gets no answer can say from whom. It is of no weight beside the lock, so a full disk may cost it.
        let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        Ok(Some(file))
    }

    /// The process that holds the lock, if one does.
    pub fn recorder_pid(&self) -> Option<u32> {
        let path = self.dir.join(LOCK);
        if !is_locked(&path) {
            return None;
        }
        fs::read_to_string(path).ok()?.parse().ok()
    }

    /// Waits until nobody else changes what the session wants. To be held from reading it until the recorder does it.
    pub fn edit(&self) -> Result<File, SessionError> {
        let path = self.dir.join(EDIT_LOCK);
        let file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|e| SessionError::io(&path, "open", &e))?;
        file.lock().map_err(|e| SessionError::io(&path, "lock", &e))?;
        Ok(file)
    }

    pub fn life(&self) -> Life {
        if is_locked(&self.dir.join(LOCK)) {
            return Life::Started;
        }
        let state = self.state();
        match (state.is_started, state.failure) {
            (_, Some(_)) => Life::Failed,
            (true, None) => Life::Stale,
            (false, None) => Life::Stopped,
        }
    }
}

/// Whether somebody has the lock. Asking takes none, so that nobody takes whoever asks for the recorder.
fn is_locked(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    lock_call(&file, libc::F_OFD_GETLK).is_ok_and(|kind| kind != libc::F_UNLCK)
}

/// Takes or asks for a lock of the open file; gives what the kernel says of it.
fn lock_call(file: &File, command: libc::c_int) -> io::Result<libc::c_int> {
    let kind = libc::F_WRLCK as libc::c_short;
    let mut lock = libc::flock {
        l_type: kind,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and the kernel reads and writes one flock where the pointer leads.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(lock.l_type.into()),
    }
}

/// Makes a folder that only its owner can enter. Somebody else's is not used: it could be changed under us.
fn private_dir(dir: &Path) -> Result<(), SessionError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|e| SessionError::io(dir, "make", &e))?;
    let owner = fs::metadata(dir).map_err(|e| SessionError::io(dir, "look at", &e))?.uid();
    // SAFETY: geteuid has no preconditions.
    let own = unsafe { libc::geteuid() };
    if owner == own {
        return Ok(());
    }
    Err(SessionError::new("not-yours", format!("{} belongs to another user", dir.display()))
        .hint("set NOPAL_HOME to a folder of your own"))
}

/// Replaces a file: readers see the old text or the new, never a part.
fn write_whole(path: &Path, text: &str) -> Result<(), SessionError> {
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(new);
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, path)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&new);
        SessionError::io(path, "write", &e)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::config::Tracked;

    fn config(name: &str) -> SessionConfig {
        SessionConfig {
            name: name.to_owned(),
            output: PathBuf::from("/nowhere"),
            snapshot: false,
            triggers: Vec::new(),
            track: Tracked::default(),
            channels: Vec::new(),
        }
    }

    #[test]
    fn sessions_are_found_by_name_or_as_the_current_one() {
        let dir = std::env::temp_dir().join(format!("nopal-home-{}", std::process::id()));
        let home = Home::at(&dir.join("sessions"));
        assert_eq!(home.get(None).unwrap_err().code, "no-session");
        let first = home.create(&config("first")).unwrap();
        home.create(&config("second")).unwrap();
        assert_eq!(home.get(None).unwrap().name, "second");
        assert_eq!(home.get(Some("first")).unwrap().config().unwrap(), config("first"));
        assert_eq!(home.create(&config("first")).unwrap_err().code, "session-exists");
        let error = home.get(Some("fist")).unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.hint.as_deref()),
            ("no-such-session", Some("did you mean `first`?"))
        );
        assert!(home.get(Some("../first")).is_err());

        assert_eq!(first.life(), Life::Stopped);
        first.set_state(&State { is_started: true, ..State::default() }).unwrap();
        assert_eq!(first.life(), Life::Stale);
        let held = first.lock().unwrap();
        assert!(held.is_some() && first.lock().unwrap().is_none());
        assert_eq!((first.life(), first.recorder_pid()), (Life::Started, Some(std::process::id())));
        drop(held);
        assert_eq!((first.life(), first.recorder_pid()), (Life::Stale, None));

        home.remove(&first).unwrap();
        assert_eq!(home.all().unwrap().len(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn whoever_asks_is_not_taken_for_the_recorder() {
        let dir = std::env::temp_dir().join(format!("nopal-asked-{}", std::process::id()));
        let session = Home::at(&dir).create(&config("asked")).unwrap();
        drop(session.lock().unwrap());
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let order = std::sync::atomic::Ordering::Relaxed;
        std::thread::scope(|scope| {
            let askers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mut lives = Vec::new();
                        while !is_over.load(order) {
                            lives.push(session.life());
                        }
                        lives.iter().all(|life| *life == Life::Stopped)
                    })
                })
                .collect();
            let n_seen = (0..2000).filter(|_| session.life() != Life::Stopped).count();
            is_over.store(true, order);
            assert!(n_seen == 0 && askers.into_iter().all(|asker| asker.join().unwrap()));
            // Nor do they keep the recorder out.
            let asker = scope.spawn(|| (0..2000).filter(|_| session.life() == Life::Stale).count());
            while !asker.is_finished() {
                assert!(session.lock().unwrap().is_some());
            }
        });
        fs::remove_dir_all(&dir).unwrap();
    }
}
