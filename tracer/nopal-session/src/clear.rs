//! `nopal clear`: removes what a session has recorded since its last rotation. Snapshots and archived chunks stay.

use super::error::SessionError;
use super::home::{Session, State};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Of a session that is not started.
pub fn of_stopped(session: &Session) -> Result<(), SessionError> {
    let output = session.config()?.output;
    let mut state = session.state();
    let removed = remove_chunks(&output, &mut state);
    // What is missing in recordings that are gone is of no use.
    state.gaps.truncate(state.n_archived_gaps);
    session.set_state(&state)?;
    removed
}

/// Removes the chunks that no rotation has archived, and what is known of them.
pub(super) fn remove_chunks(output: &Path, state: &mut State) -> Result<(), SessionError> {
    let mut result = Ok(());
    for n in state.n_archived + 1..=state.n_chunks {
        let chunk = output.join(format!("chunk-{n}"));
        match fs::remove_dir_all(&chunk) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                result = result.and(Err(SessionError::io(&chunk, "remove", &e)));
            }
            _ => {}
        }
    }
    state.totals = state.archived;
    result
}
