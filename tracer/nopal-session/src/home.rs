//! Where sessions live, and how a command finds one: by its name or as the current one.

use super::config::{SessionConfig, check_name};
use super::error::SessionError;
use super::totals::Totals;
use nopal_files::own::Folder;
use nopal_sdt::pattern::nearest;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of all sessions of a user. Opened and judged once: with a HOME that was kept by `sudo` it may be somebody
/// else's, who could have planted anything in it.
#[derive(Debug, Clone)]
pub struct Home {
    dir: PathBuf,
    /// None as long as nobody has made a session.
    folder: Option<Arc<Folder>>,
}

/// One session's folder.
#[derive(Debug, Clone)]
pub struct Session {
    pub name: String,
    folder: Arc<Folder>,
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
    #[serde(flatten)]
    pub totals: Totals,
    /// Device and inode of the folder that was recorded into.
    pub output: Option<(u64, u64)>,
    /// The numbers of the chunks there that no rotation has archived, and what is in those that are.
    pub chunks: Vec<u32>,
    pub archived: Totals,
    /// So many of the gaps are theirs.
    pub n_archived_gaps: usize,
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
        Home::at(&dir.join("sessions"))
    }

    pub fn at(dir: &Path) -> Result<Home, SessionError> {
        let folder = match Folder::open_private(dir) {
            Ok(folder) => Some(Arc::new(folder)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(not_opened(dir, &e)),
        };
        Ok(Home { dir: dir.to_owned(), folder })
    }

    /// Makes a session's folder; the session becomes the current one.
    pub fn create(&mut self, config: &SessionConfig) -> Result<Session, SessionError> {
        check_name("a session", &config.name)?;
        let home = Folder::make_private(&self.dir).map_err(|e| not_opened(&self.dir, &e))?;
        let home = self.folder.insert(Arc::new(home));
        let folder = match home.make_new_below(&config.name) {
            Ok(folder) => folder,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                return Err(SessionError::new(
                    "session-exists",
                    format!("there is a session `{}` already", config.name),
                )
                .hint(format!("choose another name, or end it with `nopal destroy {}`", config.name)));
            }
            Err(e) => return Err(SessionError::io(&self.dir.join(&config.name), "make", &e)),
        };
        let session = Session { name: config.name.clone(), folder: Arc::new(folder) };
        session.save(config)?;
        session.set_state(&State::default())?;
        self.set_current(&config.name)?;
        Ok(session)
    }

    /// The session of this name, if there is one.
    fn session(&self, name: &str) -> Result<Option<Session>, SessionError> {
        let Some(home) = self.folder.as_ref().filter(|_| check_name("a session", name).is_ok()) else {
            return Ok(None);
        };
        match home.private_below(name) {
            Ok(folder) if folder.has_file(CONFIG) => {
                Ok(Some(Session { name: name.to_owned(), folder: Arc::new(folder) }))
            }
            Err(e) if e.raw_os_error().is_none() => Err(not_opened(&self.dir.join(name), &e)),
            // No session, or something else of this name.
            Ok(_) | Err(_) => Ok(None),
        }
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
                        .hint("`nopal create NAME` makes one, `nopal status` lists all of them"));
                }
            },
        };
        if let Some(session) = self.session(&name)? {
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
        let Some(home) = &self.folder else { return Ok(Vec::new()) };
        let entries = fs::read_dir(home.path_by_descriptor());
        let entries = entries.map_err(|e| SessionError::io(&self.dir, "read", &e))?;
        let mut sessions = Vec::new();
        for entry in entries.flatten() {
            if let Some(name) = entry.file_name().to_str() {
                sessions.extend(self.session(name)?);
            }
        }
        sessions.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(sessions)
    }

    /// Where `nopal save --keep` puts sessions: a folder that is ours alone, if it is there.
    pub fn kept(&self) -> Result<Option<Folder>, SessionError> {
        let dir = self.kept_path();
        match Folder::open_private(&dir) {
            Ok(folder) => Ok(Some(folder)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(not_opened(&dir, &e)),
        }
    }

    /// Makes it if need be.
    pub fn make_kept(&self) -> Result<Folder, SessionError> {
        let dir = self.kept_path();
        Folder::make_private(&dir).map_err(|e| not_opened(&dir, &e))
    }

    fn kept_path(&self) -> PathBuf {
        self.dir.with_file_name("saved")
    }

    pub fn current(&self) -> Option<String> {
        let name = self.folder.as_ref()?.read_text(CURRENT, MAX_BYTES).ok()?;
        let name = name.trim();
        (!name.is_empty()).then(|| name.to_owned())
    }

    pub fn set_current(&self, name: &str) -> Result<(), SessionError> {
        let Some(home) = &self.folder else {
            return Err(SessionError::new("no-session", "there is no session"));
        };
        replace(home, CURRENT, name)
    }

    /// Removes a session's folder; what it recorded stays.
    pub fn remove(&self, session: &Session) -> Result<(), SessionError> {
        let Some(home) = &self.folder else { return Ok(()) };
        fs::remove_dir_all(home.path_by_descriptor().join(&session.name))
            .map_err(|e| SessionError::io(session.dir(), "remove", &e))?;
        if self.current().as_deref() == Some(&session.name) {
            let _ = home.remove_file(CURRENT);
        }
        Ok(())
    }
}

const CONFIG: &str = "session.toml";
const STATE: &str = "state.json";
const LOCK: &str = "lock";
const LOG: &str = "recorder.log";
const EDIT_LOCK: &str = "edit-lock";
const CURRENT: &str = ".current";
/// Of any of these files.
const MAX_BYTES: u64 = 64 << 20;

impl Session {
    /// Of a folder that a command line names.
    pub fn at(dir: &Path) -> Result<Session, SessionError> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let folder = Folder::open_private(dir).map_err(|e| not_opened(dir, &e))?;
        Ok(Session { name, folder: Arc::new(folder) })
    }

    pub fn dir(&self) -> &Path {
        self.folder.path()
    }

    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    pub fn socket(&self) -> PathBuf {
        self.dir().join("control")
    }

    /// What its recorder says.
    pub fn log(&self) -> PathBuf {
        self.dir().join(LOG)
    }

    pub fn open_log(&self) -> io::Result<File> {
        self.folder.append_to(LOG)
    }

    pub fn config(&self) -> Result<SessionConfig, SessionError> {
        let text = self.folder.read_text(CONFIG, MAX_BYTES);
        SessionConfig::from_toml(&text.map_err(|e| SessionError::io(&self.dir().join(CONFIG), "read", &e))?)
    }

    pub fn save(&self, config: &SessionConfig) -> Result<(), SessionError> {
        replace(&self.folder, CONFIG, &config.to_toml())
    }

    pub fn state(&self) -> State {
        let text = self.folder.read_text(STATE, MAX_BYTES).unwrap_or_default();
        // What cannot be read was written by nobody of ours; the session is as if never started.
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub fn set_state(&self, state: &State) -> Result<(), SessionError> {
        let text = serde_json::to_string(state).expect("the state has only text and numbers");
        replace(&self.folder, STATE, &text)
    }

    /// Takes the session's lock, which the recorder keeps as long as it lives; `None` if somebody has it.
    pub fn lock(&self) -> Result<Option<File>, SessionError> {
        let path = self.dir().join(LOCK);
        let file = self.folder.open_or_create(LOCK);
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
        if !self.is_locked() {
            return None;
        }
        self.folder.read_text(LOCK, MAX_BYTES).ok()?.parse().ok()
    }

    /// Waits until nobody else changes what the session wants. To be held from reading it until the recorder does it.
    pub fn edit(&self) -> Result<File, SessionError> {
        let path = self.dir().join(EDIT_LOCK);
        let file = self.folder.open_or_create(EDIT_LOCK);
        let file = file.map_err(|e| SessionError::io(&path, "open", &e))?;
        file.lock().map_err(|e| SessionError::io(&path, "lock", &e))?;
        Ok(file)
    }

    pub fn life(&self) -> Life {
        if self.is_locked() {
            return Life::Started;
        }
        let state = self.state();
        match (state.is_started, state.failure) {
            (_, Some(_)) => Life::Failed,
            (true, None) => Life::Stale,
            (false, None) => Life::Stopped,
        }
    }

    /// Whether somebody has the lock. Asking takes none, so that nobody takes whoever asks for the recorder.
    fn is_locked(&self) -> bool {
        let Ok(file) = self.folder.open_file(LOCK) else { return false };
        lock_call(&file, libc::F_OFD_GETLK).is_ok_and(|kind| kind != libc::F_UNLCK)
    }
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

/// A folder of somebody else's is not used: it could be changed under us, and what is in it was put there by him.
fn not_opened(dir: &Path, error: &io::Error) -> SessionError {
    let hint = "set NOPAL_HOME to a folder of your own; `sudo` keeps the HOME of the user who calls it, `sudo -H` does not";
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::PermissionDenied, None) => {
            SessionError::new("not-yours", error.to_string()).hint(hint)
        }
        (_, Some(libc::ELOOP | libc::ENOTDIR)) => {
            SessionError::new("not-yours", format!("{} is not a folder that nopal made", dir.display()))
                .hint(hint)
        }
        _ => SessionError::io(dir, "open", error),
    }
}

/// Readers see the old text or the new, never a part.
fn replace(folder: &Folder, name: &str, text: &str) -> Result<(), SessionError> {
    let written = folder.replace(name, text.as_bytes());
    written.map_err(|e| SessionError::io(&folder.path().join(name), "write", &e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Rotation, Tracked};

    fn config(name: &str) -> SessionConfig {
        SessionConfig {
            name: name.to_owned(),
            output: PathBuf::from("/nowhere"),
            snapshot: false,
            memory_bytes: None,
            triggers: Vec::new(),
            rotation: Rotation::default(),
            track: Tracked::default(),
            channels: Vec::new(),
        }
    }

    #[test]
    fn sessions_are_found_by_name_or_as_the_current_one() {
        let dir = std::env::temp_dir().join(format!("nopal-home-{}", std::process::id()));
        let mut home = Home::at(&dir.join("sessions")).unwrap();
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
        let session = Home::at(&dir).unwrap().create(&config("asked")).unwrap();
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
