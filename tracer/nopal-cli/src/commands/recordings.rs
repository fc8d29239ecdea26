//! What the verbs share that read recordings at rest: opening them, the part that is wanted, and what is missing in the end.

use super::answers::source::open_recording;
use super::view;
use crate::failure::Failure;
use crate::known::declared;
use crate::signals;
use nopal_answers::filter::Conditions;
use nopal_answers::inventory;
use nopal_files::own::Folder;
use nopal_spans::Available;
use nopal_trace::{Recording, Report, Selection, Verdict};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The part of recordings that is wanted.
#[derive(Debug, clap::Args)]
pub(super) struct Part {
    /// Only these spans, instead of all that the recordings have; may be given several times.
    #[arg(long = "span", value_name = "SPAN")]
    pub only: Vec<String>,
    /// A file that declares spans; without it `nopal.toml` here, if there is one.
    #[arg(long = "spans", value_name = "FILE.toml")]
    pub spans_file: Option<PathBuf>,
    /// Leaves out what is before: `15:30:19.5`, `2026-11-15 15:30:19`, seconds since the epoch, `+2s` after the first event or
    /// `-2s` before the end.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Leaves out what is after.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub until: Option<String>,
    /// Times on the command line, and those that are shown, are in UTC.
    #[arg(long)]
    pub utc: bool,
}

/// The wanted events of a recording, and the conditions on them.
pub(super) type Selected = (Selection, Option<Arc<Conditions>>);

/// Recordings that were opened, with what can be asked of them.
pub(super) struct Opened {
    pub all: Vec<(PathBuf, Recording)>,
    pub available: Available,
}

impl Opened {
    /// Folders, or names of sessions.
    pub(super) fn open(named: &[PathBuf], spans_file: Option<&Path>) -> Result<Opened, Failure> {
        let mut all = Vec::new();
        for name in named {
            let (dir, _) = view::find(Some(name))?;
            let recording = open_recording(&dir)?;
            all.push((dir, recording));
        }
        let probes = all.iter().flat_map(|(_, recording)| inventory::of_recording(recording)).collect();
        Ok(Opened { all, available: Available::new(declared(spans_file)?, probes, false) })
    }

    /// The events that choices name, between two times.
    pub(super) fn select(&self, choices: &[String], part: &Part) -> Result<Vec<Selected>, Failure> {
        let (from, until) = (part.from.as_deref(), part.until.as_deref());
        let of = |(dir, recording): &(PathBuf, Recording)| {
            let range = view::range_of(recording, from, until, part.utc, dir)?;
            let (selection, conditions) = view::select(recording, choices)?;
            Ok((Selection { range, ..selection }, conditions))
        };
        self.all.iter().map(of).collect()
    }
}

/// What is missing in several recordings together.
pub(super) fn verdict_on<'a>(reports: impl Iterator<Item = &'a Report>, n_damaged: u64) -> Verdict {
    let mut verdict = Verdict { n_malformed: n_damaged, ..Verdict::default() };
    reports.for_each(|report| verdict.add(&report.verdict));
    verdict
}

/// A new file that was named; it is taken away again unless it was finished.
#[derive(Debug)]
pub(super) struct NewFile {
    path: PathBuf,
    is_kept: bool,
}

/// A folder above what is to be written that is not there is more likely a slip than a wish.
pub(super) fn check_above(output: &Path) -> Result<(), Failure> {
    let above = output.parent().filter(|above| !above.as_os_str().is_empty());
    match above.filter(|above| !above.exists()) {
        None => Ok(()),
        Some(above) => Err(Failure::new("output", format!("there is no folder {}", above.display()))
            .hint(format!("make it (mkdir -p {}), or choose another with -o", above.display()))),
    }
}

impl NewFile {
    pub(super) fn create(path: &Path) -> Result<(NewFile, File), Failure> {
        check_above(path)?;
        let failed = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Failure::new("exists", format!("{} is there already", path.display()))
                    .hint("name another file, or remove it first")
            }
            _ => Failure::new("output", format!("cannot write {}: {error}", path.display())),
        };
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| Failure::usage(format!("{} is not the name of a file", path.display())))?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let file = Folder::make(parent).and_then(|folder| folder.create_new(name)).map_err(failed)?;
        Ok((NewFile { path: path.to_owned(), is_kept: false }, file))
    }

    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_kept {
            // What was begun is of no use to anybody; failing to remove it changes nothing.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// How long something will still take, from how far it has come.
#[derive(Debug)]
pub(super) struct Pace {
    start: Instant,
}

impl Pace {
    pub(super) fn new() -> Pace {
        Pace { start: Instant::now() }
    }

    /// `42 %, 12 s left`
    pub(super) fn text(&self, share: f64) -> String {
        let elapsed = self.start.elapsed().as_secs_f64();
        let percent = (share.clamp(0.0, 1.0) * 100.0) as u32;
        if share <= 0.001 {
            return format!("{percent} %");
        }
        let left = elapsed / share * (1.0 - share);
        match left {
            left if left < 90.0 => format!("{percent} %, {left:.0} s left"),
            left => format!("{percent} %, {:.0} min left", left / 60.0),
        }
    }
}

/// Ctrl-C before the end.
pub(super) fn interrupted(what: &str) -> Failure {
    let mut failure = Failure::new("interrupted", format!("interrupted: {what}"));
    failure.exit = 130;
    signals::stop();
    failure
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn progress_says_how_long_it_will_take() {
        // A tenth of a second more or less does not matter to these.
        let since = |seconds: u64| Pace { start: Instant::now() - Duration::from_secs(seconds) };
        assert_eq!(since(10).text(0.25), "25 %, 30 s left");
        assert_eq!(since(60).text(0.1), "10 %, 9 min left");
        assert_eq!(since(10).text(1.0), "100 %, 0 s left");
        // From nothing nothing follows.
        assert_eq!(since(10).text(0.0), "0 %");
    }
}
