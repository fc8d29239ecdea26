//! A recording opened for reading: finds the traces in a folder, reads their metadata, and compiles every event's layout.
//! Events come from `stream.rs` and `merge.rs`.

use super::class::{EventClass, compile_trace};
use super::files::{self, StreamFiles};
use super::index;
use super::report::Report;
use super::snapshots;
use super::trace::Trace;
use crate::code::CodeTable;
use crate::ctf2;
use crate::error::Error;
use crate::note::Note;
use crate::tasks::TaskTable;
use crate::tsdl::{self, EnvValue};
use crate::verdict::Verdict;
use nopal_files::foreign::{self, ForeignError};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

/// More metadata than this is refused.
const MAX_METADATA_BYTES: u64 = 256 << 20;
/// Folders below the one that was named: LTTng's `ust/uid/0/64-bit` is four deep, rotations add one or two.
const MAX_FOLDER_DEPTH: u32 = 12;

/// A recording: one or more traces (folders with a `metadata` file), each with its streams.
#[derive(Debug)]
pub struct Recording {
    pub(crate) traces: Vec<Trace>,
    pub(crate) streams: Vec<StreamFiles>,
    /// All event types of all traces; [`EventClass::index`] is the place in here.
    pub(crate) classes: Vec<EventClass>,
    /// What is not there any more of the streams, as their indexes tell.
    missing: Vec<Note>,
    /// The same, as the numbers of their packets tell: asked where not all events are counted.
    missing_packets: OnceLock<Vec<Note>>,
    /// What large packets take that are in memory now.
    pub(crate) n_large_bytes: Arc<AtomicU64>,
}

impl Recording {
    /// Opens the recording in `dir` or in the folders below it. Reads metadata only.
    pub fn open(dir: &Path) -> Result<Recording, Error> {
        Recording::open_all(&[dir])
    }

    /// Opens several as one.
    pub fn open_all(dirs: &[impl AsRef<Path>]) -> Result<Recording, Error> {
        let mut folders = Vec::new();
        for dir in dirs.iter().map(AsRef::as_ref) {
            let n_before = folders.len();
            find_traces(dir, 0, &mut folders)?;
            if folders.len() == n_before {
                return Err(Error::NotARecording { path: dir.to_owned() });
            }
        }
        // The same folder twice is one recording all the same.
        let mut seen = HashSet::new();
        folders.retain(|folder| seen.insert(fs::canonicalize(folder).unwrap_or_else(|_| folder.clone())));
        let mut recording = Recording {
            traces: Vec::new(),
            streams: Vec::new(),
            classes: Vec::new(),
            missing: Vec::new(),
            missing_packets: OnceLock::new(),
            n_large_bytes: Arc::default(),
        };
        for folder in folders {
            recording.add_trace(&folder)?;
        }
        snapshots::find_repeated(&recording.traces, &mut recording.streams);
        Ok(recording)
    }

    /// Whether there is a recording in this folder or below it.
    pub fn is_in(dir: &Path) -> bool {
        let mut folders = Vec::new();
        dir.is_dir() && find_traces(dir, 0, &mut folders).is_ok() && !folders.is_empty()
    }

    fn add_trace(&mut self, dir: &Path) -> Result<(), Error> {
        let path = dir.join("metadata");
        let text = metadata_text(&path)?;
        let unreadable = |failure: tsdl::Unreadable| Error::Metadata {
            path: path.clone(),
            line: failure.place.line,
            column: failure.place.column,
            reason: failure.reason,
        };
        let is_ctf2 = ctf2::is_ctf2(&text);
        let metadata = if is_ctf2 { ctf2::parse(&text) } else { tsdl::parse(&text) }.map_err(unreadable)?;
        let origin = origin(&metadata.env);
        let n_classes_before = self.classes.len();
        let compiled = compile_trace(&metadata, &origin, &mut self.classes).map_err(unreadable)?;
        let trace = self.traces.len();
        self.classes[n_classes_before..].iter_mut().for_each(|class| class.trace = trace);
        let is_ours = metadata.env.iter().any(|(key, _)| key == "nopal_version");
        let verdict = Verdict::read(dir, is_ours).unwrap_or_else(|note| {
            self.missing.push(note);
            None
        });
        self.traces.push(Trace {
            dir: dir.to_owned(),
            env: metadata.env,
            verdict,
            tasks: TaskTable::read(dir),
            code: CodeTable::read(dir),
            is_ours,
            is_ctf2,
            uuid: metadata.uuid,
            packet_header: compiled.packet_header,
            streams: compiled.streams,
        });
        self.missing.extend(index::missing(dir));
        let mut paths: Vec<PathBuf> =
            entries(dir)?.into_iter().filter(|p| p.is_file() && is_stream_name(p)).collect();
        paths.sort();
        self.streams.extend(files::streams_of(&self.traces[trace], trace, paths));
        Ok(())
    }

    pub fn traces(&self) -> &[Trace] {
        &self.traces
    }

    /// What the recorders of all traces say.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        self.traces.iter().filter_map(|trace| trace.verdict.as_ref()).for_each(|one| verdict.add(one));
        verdict
    }

    /// What is known before any event is read.
    pub(crate) fn report(&self) -> Report {
        let verdict = Verdict { notes: self.missing.clone(), ..self.verdict() };
        Report { verdict, ..Report::default() }
    }

    /// Adds what is not there any more, or there twice. The recorder has written down how many events and packets there were:
    /// where every stream was read to its end, `found` has the number of its events, with its trace.
    pub(crate) fn account(&self, found: Option<Vec<(usize, u64)>>, verdict: &mut Verdict) {
        let Some(found) = found else {
            verdict.notes.extend_from_slice(self.missing_packets.get_or_init(|| self.compare_packets()));
            return;
        };
        for (index, trace) in self.traces.iter().enumerate() {
            let Some(n_written) = trace.verdict.as_ref().and_then(|verdict| verdict.n_events) else {
                continue;
            };
            let n_found: u64 = found.iter().filter(|(of, _)| *of == index).map(|(_, n)| n).sum();
            verdict.n_missing = verdict.n_missing.saturating_add(n_written.saturating_sub(n_found));
            if n_found > n_written {
                let reason =
                    format!("{} events more than were recorded: some are there twice", n_found - n_written);
                verdict.notes.push(Note { path: trace.dir.clone(), offset: None, reason });
            }
        }
    }

    fn compare_packets(&self) -> Vec<Note> {
        let of_trace = |(index, trace): (usize, &Trace)| {
            let verdict = trace.verdict.as_ref().filter(|verdict| !verdict.is_unfinished)?;
            let of_trace = self.streams.iter().filter(|stream| stream.trace == index);
            let n_found = of_trace.map(|stream| stream.n_packets(trace)).fold(0, u64::saturating_add);
            let reason = match verdict.n_packets {
                None => "how many packets it had is not known: it was made by an earlier version of nopal"
                    .to_owned(),
                Some(n_written) => match n_found.cmp(&n_written) {
                    Ordering::Equal => return None,
                    Ordering::Less => format!("{} of {n_written} packets are missing", n_written - n_found),
                    Ordering::Greater => {
                        format!(
                            "{} packets more than were recorded: some are there twice",
                            n_found - n_written
                        )
                    }
                },
            };
            Some(Note { path: trace.dir.clone(), offset: None, reason })
        };
        self.traces.iter().enumerate().filter_map(of_trace).collect()
    }

    /// The host that events of a class are of; empty if the recording does not say.
    pub fn host_of(&self, class: &EventClass) -> &str {
        self.traces[class.trace].env_text("hostname").unwrap_or_default()
    }

    /// Every event type that the metadata declares, used or not.
    pub fn event_classes(&self) -> &[EventClass] {
        &self.classes
    }
}

/// `host`, `host:program:(pid)`: babeltrace2's rule.
fn origin(env: &[(String, EnvValue)]) -> String {
    let mut parts = Vec::new();
    for key in ["hostname", "procname", "vpid"] {
        match env.iter().find(|(k, _)| k == key) {
            Some((_, EnvValue::Text(text))) if key != "vpid" => parts.push(text.clone()),
            Some((_, EnvValue::Number(n))) if key == "vpid" => parts.push(format!("({n})")),
            _ => {}
        }
    }
    parts.join(":")
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotADirectory => Error::NotARecording { path: dir.to_owned() },
        _ => Error::io(dir, "list", e),
    };
    fs::read_dir(dir).map_err(failed)?.map(|e| e.map(|e| e.path()).map_err(failed)).collect()
}

fn is_stream_name(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n != "metadata" && !n.starts_with('.'))
}

fn find_traces(dir: &Path, depth: u32, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    if dir.join("metadata").is_file() {
        found.push(dir.to_owned());
        return Ok(());
    }
    if depth >= MAX_FOLDER_DEPTH {
        return Ok(());
    }
    let mut below: Vec<PathBuf> =
        entries(dir)?.into_iter().filter(|p| !p.is_symlink() && p.is_dir()).collect();
    below.sort();
    for folder in below {
        find_traces(&folder, depth + 1, found)?;
    }
    Ok(())
}

/// What a metadata file says, which is text or packets of text.
pub(crate) fn metadata_text(path: &Path) -> Result<String, Error> {
    let damaged = |reason: &str| Error::Metadata {
        path: path.to_owned(),
        line: 1,
        column: 1,
        reason: reason.to_owned(),
    };
    let bytes = foreign::read(path, MAX_METADATA_BYTES).map_err(|error| match error {
        ForeignError::TooLarge { .. } => damaged("the metadata is larger than 256 MiB"),
        other => Error::io(path, "read", other.into_io()),
    })?;
    let text = match packets_of_text(&bytes) {
        Some(Ok(text)) => text,
        Some(Err(reason)) => return Err(damaged(reason)),
        None => bytes,
    };
    if text.is_empty() {
        return Err(damaged("the metadata is empty"));
    }
    String::from_utf8(text).map_err(|e| {
        let good = &e.as_bytes()[..e.utf8_error().valid_up_to()];
        let line = 1 + good.iter().filter(|b| **b == b'\n').count() as u32;
        let column = 1 + good.iter().rev().take_while(|b| **b != b'\n').count() as u32;
        let reason = "the metadata is not UTF-8 text".to_owned();
        Error::Metadata { path: path.to_owned(), line, column, reason }
    })
}

/// Metadata packets: u32 magic, 16 bytes UUID, u32 checksum, u32 content bits, u32 packet bits, five bytes of schemes
/// and version, then the text.
pub(crate) fn packets_of_text(bytes: &[u8]) -> Option<Result<Vec<u8>, &'static str>> {
    const MAGIC: u32 = 0x75d1_1d57;
    const HEADER_BYTES: usize = 37;
    let word = |packet: &[u8], at: usize, is_big: bool| -> Option<u32> {
        let bytes = packet.get(at..at + 4)?.try_into().ok()?;
        Some(if is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    };
    let is_big = match (word(bytes, 0, false)?, word(bytes, 0, true)?) {
        (MAGIC, _) => false,
        (_, MAGIC) => true,
        _ => return None,
    };
    let mut text = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let sizes = (word(rest, 0, is_big), word(rest, 24, is_big), word(rest, 28, is_big));
        let (Some(MAGIC), Some(content), Some(packet)) = sizes else {
            return Some(Err("a packet of the metadata is damaged"));
        };
        let (content, packet) = (content as usize / 8, packet as usize / 8);
        let body =
            (content <= packet && packet >= HEADER_BYTES).then(|| rest.get(HEADER_BYTES..content)).flatten();
        let Some(body) = body else {
            return Some(Err("a packet of the metadata is damaged"));
        };
        if rest[32] != 0 || rest[33] != 0 {
            return Some(Err("compressed or encrypted metadata cannot be read"));
        }
        text.extend_from_slice(body);
        rest = rest.get(packet..).unwrap_or_default();
    }
    Some(Ok(text))
}
