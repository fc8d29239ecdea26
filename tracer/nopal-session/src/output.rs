//! The folder that a session records into. It is opened once and held by its descriptor: who can write the folder above it may
//! put another in its place at any time.

use super::error::SessionError;
use super::home::State;
use nopal_files::own::Folder;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Output {
    folder: Folder,
    /// As the session's user knows it.
    path: PathBuf,
}

impl Output {
    /// Makes it if need be, and notes which one it is.
    pub(super) fn make(path: &Path, state: &mut State) -> Result<Output, SessionError> {
        let failed = |e: io::Error| SessionError::io(path, "make", &e);
        let folder = Folder::make(path).map_err(failed)?;
        let identity = Some(folder.identity().map_err(failed)?);
        if state.output != identity {
            // What was recorded before is elsewhere.
            state.output = identity;
            state.chunks.clear();
        }
        Ok(Output { folder, path: path.to_owned() })
    }

    /// The one that was recorded into; `None` if it is gone.
    pub(super) fn open(path: &Path, state: &State) -> Result<Option<Output>, SessionError> {
        let failed = |e: io::Error| SessionError::io(path, "open", &e);
        let folder = match Folder::open(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        if state.output.is_some() && state.output != Some(folder.identity().map_err(failed)?) {
            let text = format!("{} is not the folder that the session has recorded into", path.display());
            return Err(SessionError::new("output", text).hint("look who has put it there"));
        }
        Ok(Some(Output { folder, path: path.to_owned() }))
    }

    /// Makes a folder in it, and gives the path that leads there whatever happens to names; nothing if there is something of
    /// that name.
    pub(super) fn new_dir(&self, name: &str) -> Result<Option<PathBuf>, SessionError> {
        match self.folder.make_new_below(name) {
            Ok(_) => Ok(Some(self.folder.path_by_descriptor().join(name))),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(None),
            Err(e) => Err(SessionError::io(&self.path.join(name), "make", &e)),
        }
    }

    /// Removes a folder in it with all there is in it, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<(), SessionError> {
        match fs::remove_dir_all(self.folder.path_by_descriptor().join(name)) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(SessionError::io(&self.path.join(name), "remove", &e))
            }
            _ => Ok(()),
        }
    }

    /// A path below it as people know it.
    pub(super) fn shown(&self, path: &Path) -> PathBuf {
        path.strip_prefix(self.folder.path_by_descriptor())
            .map_or_else(|_| path.to_owned(), |rest| self.path.join(rest))
    }

    /// The same of an error that names one.
    pub(super) fn shown_in(&self, error: SessionError) -> SessionError {
        let (from, to) = (self.folder.path_by_descriptor(), self.path.display().to_string());
        SessionError {
            message: error.message.replace(&format!("{}/", from.display()), &format!("{to}/")),
            ..error
        }
    }
}
