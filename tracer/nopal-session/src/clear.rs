//! `nopal clear`: removes what a session has recorded since its last rotation. Snapshots and archived chunks stay.

use super::error::SessionError;
use super::home::{Session, State};
use super::output::Output;

/// Of a session that is not started.
pub fn of_stopped(session: &Session) -> Result<(), SessionError> {
    let path = session.config()?.output;
    let mut state = session.state();
    let removed = match Output::open(&path, &state)? {
        Some(output) => remove_chunks(&output, &mut state),
        None => {
            forget_chunks(&mut state);
            Ok(())
        }
    };
    // What is missing in recordings that are gone is of no use.
    state.gaps.truncate(state.n_archived_gaps);
    session.set_state(&state)?;
    removed
}

/// Removes the chunks that the session has made and no rotation has archived, and what is known of them.
pub(super) fn remove_chunks(output: &Output, state: &mut State) -> Result<(), SessionError> {
    let mut result = Ok(());
    for n in &state.chunks {
        result = result.and(output.remove(&format!("chunk-{n}")));
    }
    forget_chunks(state);
    result
}

fn forget_chunks(state: &mut State) {
    state.chunks.clear();
    state.totals = state.archived;
}
