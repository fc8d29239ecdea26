//! The folder of one recording of a channel: its name, who writes it, what it held in the end.

use crate::config::Channel;
use crate::ctf_recorder::Recorder;
use crate::totals::Totals;
use nopal_live::plan::MAX_STRING;
use nopal_live::registry::Registry;
use nopal_trace::{EnvValue, Error, FileLimit, RecordingInfo};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// A recording that has ended.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub path: PathBuf,
    pub totals: Totals,
    /// Why not all of it could be written; what could not is among the lost.
    pub error: Option<Error>,
}

/// Whose events a recording has.
#[derive(Debug, Clone)]
pub(super) struct Origin {
    pub session: String,
    /// Of a channel, from when it is opened until it is closed: tells snapshots of the same rings from others.
    rings: String,
}

impl Origin {
    pub(super) fn new(session: &str) -> Origin {
        // Without it snapshots are read as having nothing of each other.
        let rings = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
        Origin { session: session.to_owned(), rings: rings.trim_end().to_owned() }
    }
}

pub(super) fn recorder_in(
    dir: &Path,
    origin: &Origin,
    config: &Channel,
    limit: Option<FileLimit>,
    registry: &Registry,
    pids: &HashSet<u32>,
) -> Result<Recorder, Error> {
    let text = |value: &str| EnvValue::Text(value.to_owned());
    let info = RecordingInfo::of_this_host()
        .env("nopal_version", text(env!("CARGO_PKG_VERSION")))
        .env("trace_name", text(&origin.session))
        .env("channel", text(&config.name))
        .env("rings", text(&origin.rings))
        .env(MAX_STRING, EnvValue::Number(i128::from(config.max_string)));
    let info = RecordingInfo { n_event_types: registry.plans.len(), limit, ..info };
    let mut recorder = Recorder::create(dir, info, &config.context_fields())?;
    recorder.declare(registry)?;
    for pid in pids {
        recorder.contexts.tasks.add(*pid);
    }
    Ok(recorder)
}

/// `NAME`, or `NAME-2` and so on where that is taken.
pub(super) fn free_dir(parent: &Path, name: &str) -> PathBuf {
    let mut dir = parent.join(name);
    let mut n = 2;
    while dir.exists() {
        dir = parent.join(format!("{name}-{n}"));
        n += 1;
    }
    dir
}
