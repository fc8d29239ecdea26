//! What a recorder left that was killed: the recordings it had not finished, which nobody has counted yet.

use super::home::{Session, State};
use super::totals::Totals;
use nopal_trace::{Range, Recording};
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// Adds the unfinished recordings of the last chunk to what the session has recorded, and that the rest is missing. For a
/// session that is said to be started and has no recorder; who counts sets the state to something else.
pub fn count(session: &Session, state: &mut State) {
    if !state.is_started {
        return;
    }
    state.gaps.push("the recorder was killed; what it had not written yet is missing".to_owned());
    let Ok(config) = session.config() else { return };
    let chunk = config.output.join(format!("chunk-{}", state.n_chunks));
    let Ok(recording) = Recording::open(&chunk) else { return };
    for trace in recording.traces() {
        if trace.verdict.as_ref().is_some_and(|verdict| verdict.is_unfinished) {
            count_one(&trace.dir, state);
        }
    }
}

fn count_one(dir: &Path, state: &mut State) {
    let Ok(recording) = Recording::open(dir) else { return };
    let Ok(counts) = recording.count(Range::default(), |_| true, &AtomicBool::new(false)) else { return };
    let verdict = counts.report.verdict;
    let mut found = Totals {
        n_events: counts.by_class.iter().sum(),
        n_lost: verdict.n_all_lost(),
        n_let_go: verdict.n_let_go,
        let_go_until_ns: verdict.let_go_until,
        ..Totals::default()
    };
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let is_stream = |name: &str| name != "metadata" && !name.starts_with('.');
    found.n_bytes = files
        .filter(|file| file.file_name().to_str().is_some_and(is_stream))
        .filter_map(|file| file.metadata().ok())
        .filter(|metadata| metadata.is_file())
        .map(|metadata| metadata.len())
        .sum();
    state.totals.add(&found);
}
