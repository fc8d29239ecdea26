//! What is missing in what was traced, recorded or read: one type for every verb, and the one place that decides
//! `complete`. Of a recording, what its streams cannot tell is in a small text file in a folder of its own, which other
//! readers pass over: times in which hits may have been missed without anybody having counted them, and how it ended.
//!
//! ```text
//! nopal verdict 1
//! state finished
//! malformed 0
//! disk 0
//! late 2
//! cut 0
//! undecided 0
//! let_go 200 1794710000000000000
//! events 1500
//! packets 12
//! gaps 1
//! gap 1794710000000000000 another tool took over ...
//! ```

use crate::note::Note;
use nopal_files::foreign::{self, ForeignError};
use nopal_files::own::Folder;
use std::fmt::Write;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Below the folder of the trace.
const FOLDER: &str = "nopal";
const FILE: &str = "verdict";
const FIRST_LINE: &str = "nopal verdict 1";
/// Taken from the disk at the start, so that a full disk can still be reported.
const RESERVED_BYTES: usize = 4096;
/// Gaps that are told one by one; all are counted.
const MAX_LISTED: usize = 200;
const MAX_TEXT_BYTES: usize = 300;
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What is missing, and what else is to be known of what was traced or read. Every verb fills in what it knows;
/// [`Verdict::is_complete`] alone decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Events that a ring, or the buffer of another tracer, had no room for.
    pub n_lost: u64,
    /// When the first and the last of them came, in nanoseconds since the epoch.
    pub lost_span: Option<(i64, i64)>,
    /// Packets of events that were written over.
    pub n_lost_packets: u64,
    /// Records that could not be read, from a ring or a recording.
    pub n_malformed: u64,
    /// Events that the disk had no room for.
    pub n_disk: u64,
    /// Events that the recorder wrote and that are not in the files any more.
    pub n_missing: u64,
    /// Events that went with the oldest files, as the session wanted no more of them.
    pub n_let_go: u64,
    /// The same of another tracer's files, which tell the number of packets alone.
    pub n_let_go_packets: u64,
    /// No event that went is later, in nanoseconds since the epoch.
    pub let_go_until: Option<i64>,
    /// Of a script, by map: entries that were not made because it was full.
    pub full_maps: Vec<(String, u64)>,
    /// Of a script: hits given up in a loop that did not end.
    pub n_endless: u64,
    /// Of a script: rounds of intervals that were not run.
    pub n_ticks: u64,
    /// Programs and libraries whose first hits may be missing.
    pub n_late: u64,
    pub n_gaps: u64,
    /// The first of them: nanoseconds since the epoch, and what happened.
    pub gaps: Vec<(i64, String)>,
    /// What of a recording could not be read.
    pub notes: Vec<Note>,
    /// Its recorder has not finished it: it was killed, or it is still at work.
    pub is_unfinished: bool,
    /// Its recorder could not write the end, or nobody wanted to read that far.
    pub is_cut_short: bool,
    /// Only the newest events were kept; nobody counts the others, and nobody asked for them.
    pub is_overwriting: bool,
    /// Texts and arrays of which only a part is in their event.
    pub n_cut: u64,
    /// Events that are there although their filter would have had to see more of a text than was copied.
    pub n_undecided: u64,
    /// Events whose order is not known, and matters: of one thread, by different doors, nearer to each other than the clocks of
    /// the doors agree.
    pub n_unordered: u64,
    /// Events of which for the same reason it is not known which spans they lie within. Counts and durations do not depend on it,
    /// self times do.
    pub n_nesting: u64,
    /// Events that several snapshots have, and that are shown once: so many more there are in the files.
    pub n_repeated: u64,
    /// Events in the streams, where the recorder has written it down: at its end.
    pub n_events: Option<u64>,
    /// Packets that were written, those included that went with the oldest files: the same.
    pub n_packets: Option<u64>,
}

impl Verdict {
    /// Whether nothing is missing. What only says more about the events that are there does not count.
    pub fn is_complete(&self) -> bool {
        let Verdict {
            n_late, n_gaps, notes, is_unfinished, is_cut_short, n_lost_packets, n_unordered, ..
        } = self;
        self.n_all_lost() == 0
            && (*n_late, *n_gaps, *n_lost_packets, *n_unordered) == (0, 0, 0, 0)
            && (self.n_let_go, self.n_let_go_packets) == (0, 0)
            && notes.is_empty()
            && !is_unfinished
            && !is_cut_short
    }

    /// Everything that is missing and was counted.
    pub fn n_all_lost(&self) -> u64 {
        let Verdict { n_lost, n_malformed, n_disk, n_missing, n_endless, n_ticks, .. } = *self;
        let in_maps = self.full_maps.iter().map(|(_, n)| *n);
        let counts = [n_lost, n_malformed, n_disk, n_missing, n_endless, n_ticks];
        counts.into_iter().chain(in_maps).fold(0, u64::saturating_add)
    }

    /// Counts a loss between two times, in nanoseconds since the epoch.
    pub fn lose(&mut self, count: u64, from_ns: i64, to_ns: i64) {
        self.n_lost = self.n_lost.saturating_add(count);
        let (first, last) = self.lost_span.unwrap_or((from_ns, to_ns));
        self.lost_span = Some((first.min(from_ns), last.max(to_ns)));
    }

    /// Counts events that are not kept any more, none of them later than a time in nanoseconds since the epoch.
    pub fn let_go(&mut self, count: u64, until_ns: Option<i64>) {
        self.n_let_go = self.n_let_go.saturating_add(count);
        self.let_go_until = self.let_go_until.max(until_ns);
    }

    pub fn gap(&mut self, ns: i64, text: &str) {
        self.n_gaps += 1;
        if self.gaps.len() < MAX_LISTED {
            self.gaps.push((ns, text.to_owned()));
        }
    }

    /// The verdict on two recordings together, or on two parts of one.
    pub fn add(&mut self, other: &Verdict) {
        let sum = |one: &mut u64, other: u64| *one = one.saturating_add(other);
        if let Some((from_ns, to_ns)) = other.lost_span {
            self.lose(0, from_ns, to_ns);
        }
        self.let_go(other.n_let_go, other.let_go_until);
        sum(&mut self.n_let_go_packets, other.n_let_go_packets);
        sum(&mut self.n_lost, other.n_lost);
        sum(&mut self.n_lost_packets, other.n_lost_packets);
        sum(&mut self.n_malformed, other.n_malformed);
        sum(&mut self.n_disk, other.n_disk);
        sum(&mut self.n_missing, other.n_missing);
        sum(&mut self.n_endless, other.n_endless);
        sum(&mut self.n_ticks, other.n_ticks);
        sum(&mut self.n_late, other.n_late);
        sum(&mut self.n_gaps, other.n_gaps);
        sum(&mut self.n_cut, other.n_cut);
        sum(&mut self.n_undecided, other.n_undecided);
        sum(&mut self.n_unordered, other.n_unordered);
        sum(&mut self.n_nesting, other.n_nesting);
        sum(&mut self.n_repeated, other.n_repeated);
        self.full_maps.extend_from_slice(&other.full_maps);
        self.notes.extend_from_slice(&other.notes);
        self.is_unfinished |= other.is_unfinished;
        self.is_cut_short |= other.is_cut_short;
        self.is_overwriting |= other.is_overwriting;
        let sum = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
        self.n_events = sum(self.n_events, other.n_events);
        self.n_packets = sum(self.n_packets, other.n_packets);
        self.gaps.extend(other.gaps.iter().take(MAX_LISTED).cloned());
        self.gaps.sort();
        self.gaps.truncate(MAX_LISTED);
    }

    /// What the recording in `dir` says of itself; nothing if it was made by somebody who says nothing. One of ours always
    /// says something: if that cannot be read, nobody knows whether anything is missing.
    pub(crate) fn read(dir: &Path, is_ours: bool) -> Result<Option<Verdict>, Note> {
        let path = dir.join(FOLDER).join(FILE);
        let unreadable = |why: &str| {
            let reason = format!("whether the recording is complete is not known: its verdict {why}");
            Note { path: path.clone(), offset: None, reason }
        };
        match foreign::read_text(&path, MAX_FILE_BYTES) {
            Ok(text) => Verdict::parse(&text).map(Some).ok_or_else(|| unreadable("is damaged")),
            Err(ForeignError::Io(error)) if error.kind() == io::ErrorKind::NotFound => match is_ours {
                true => Err(unreadable("is missing")),
                false => Ok(None),
            },
            Err(error) => Err(unreadable(&format!("cannot be read ({error})"))),
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Verdict> {
        let mut lines = text.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let mut verdict = Verdict { is_unfinished: true, ..Verdict::default() };
        for line in lines {
            let Some((key, value)) = line.split_once(' ') else { continue };
            let number = || value.trim().parse::<u64>().unwrap_or(0);
            match key {
                "state" => verdict.is_unfinished = value.trim() != "finished",
                "malformed" => verdict.n_malformed = number(),
                "disk" => verdict.n_disk = number(),
                "late" => verdict.n_late = number(),
                "cut" => verdict.n_cut = number(),
                "undecided" => verdict.n_undecided = number(),
                "let_go" => {
                    let (count, until_ns) = value.split_once(' ').unwrap_or((value, ""));
                    verdict.let_go(count.trim().parse().unwrap_or(0), until_ns.trim().parse().ok());
                }
                "events" => verdict.n_events = value.trim().parse().ok(),
                "packets" => verdict.n_packets = value.trim().parse().ok(),
                "gaps" => verdict.n_gaps = number(),
                "gap" if verdict.gaps.len() < MAX_LISTED => {
                    if let Some((ns, what)) = value.split_once(' ')
                        && let Ok(ns) = ns.parse()
                    {
                        verdict.gaps.push((ns, what.to_owned()));
                    }
                }
                // Of a later version.
                _ => {}
            }
        }
        Some(verdict)
    }

    pub(crate) fn text(&self) -> String {
        let state = if self.is_unfinished { "recording" } else { "finished" };
        let mut text = format!(
            "{FIRST_LINE}\nstate {state}\nmalformed {}\ndisk {}\nlate {}\ncut {}\nundecided {}\ngaps {}\n",
            self.n_malformed, self.n_disk, self.n_late, self.n_cut, self.n_undecided, self.n_gaps
        );
        if let (1.., Some(until_ns)) = (self.n_let_go, self.let_go_until) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "let_go {} {until_ns}", self.n_let_go);
        }
        if let Some(n_events) = self.n_events {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "events {n_events}");
        }
        if let Some(n_packets) = self.n_packets {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "packets {n_packets}");
        }
        for (ns, what) in &self.gaps {
            let what: String = what.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            let end = (0..=what.len().min(MAX_TEXT_BYTES)).rev().find(|at| what.is_char_boundary(*at));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "gap {ns} {}", &what[..end.unwrap_or(0)]);
        }
        text
    }
}

/// The file of a recording in the making.
#[derive(Debug)]
pub struct VerdictFile {
    file: File,
    path: PathBuf,
}

impl VerdictFile {
    /// Makes the file in a recording's folder, with the room it will need.
    pub fn create(dir: &Folder) -> Result<VerdictFile, crate::Error> {
        let path = dir.path().join(FOLDER).join(FILE);
        let made = dir.make_below(FOLDER).and_then(|folder| folder.create_new(FILE));
        let file = made.map_err(|e| crate::Error::io(&path, "make", e))?;
        let this = VerdictFile { file, path };
        this.write(&Verdict { is_unfinished: true, ..Verdict::default() })?;
        Ok(this)
    }

    /// Puts down what is known now. On a full disk as much as there is room for.
    pub fn write(&self, verdict: &Verdict) -> Result<(), crate::Error> {
        let mut bytes = verdict.text().into_bytes();
        let length = bytes.len().max(RESERVED_BYTES);
        bytes.resize(length, b'\n');
        if self.file.write_all_at(&bytes, 0).is_ok() {
            return Ok(());
        }
        // The counts come first; gaps that find no room are counted still.
        let room = bytes[..RESERVED_BYTES].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        self.file.write_all_at(&bytes[..room], 0).map_err(|e| crate::Error::io(&self.path, "write", e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let counts = Verdict { n_malformed: 1, n_disk: 2, n_late: 3, ..Verdict::default() };
        let mut verdict =
            Verdict { n_cut: 4, n_undecided: 5, n_events: Some(6), n_packets: Some(7), ..counts };
        verdict.let_go(7, Some(8));
        verdict.gap(-5, "first");
        verdict.gap(1_794_710_000_000_000_000, "second, with \u{20ac} and\na second line");
        let read = Verdict::parse(&verdict.text()).unwrap();
        assert_eq!(read.gaps[1].1, "second, with \u{20ac} and a second line");
        verdict.gaps[1].1 = read.gaps[1].1.clone();
        assert_eq!(read, verdict);
        assert!(!read.is_complete());
        assert!(Verdict::parse(&Verdict::default().text()).unwrap().is_complete());
    }

    #[test]
    fn one_thing_that_is_missing_is_enough() {
        let some = Verdict::default;
        let note = Note { path: PathBuf::from("0"), offset: None, reason: "is damaged".to_owned() };
        for (verdict, is_complete, n_lost) in [
            (some(), true, 0),
            (Verdict { n_lost: 2, ..some() }, false, 2),
            (Verdict { n_lost_packets: 2, ..some() }, false, 0),
            (Verdict { n_malformed: 2, ..some() }, false, 2),
            (Verdict { n_disk: 2, ..some() }, false, 2),
            (Verdict { n_missing: 2, ..some() }, false, 2),
            (Verdict { n_let_go: 2, let_go_until: Some(5), ..some() }, false, 0),
            (Verdict { n_let_go_packets: 2, ..some() }, false, 0),
            (Verdict { full_maps: vec![("@".to_owned(), 2)], ..some() }, false, 2),
            (Verdict { n_endless: 2, ..some() }, false, 2),
            (Verdict { n_ticks: 2, ..some() }, false, 2),
            (Verdict { n_late: 2, ..some() }, false, 0),
            (Verdict { n_unordered: 2, ..some() }, false, 0),
            (Verdict { n_gaps: 2, ..some() }, false, 0),
            (Verdict { notes: vec![note], ..some() }, false, 0),
            (Verdict { is_unfinished: true, ..some() }, false, 0),
            (Verdict { is_cut_short: true, ..some() }, false, 0),
            (
                Verdict {
                    is_overwriting: true,
                    n_cut: 2,
                    n_undecided: 2,
                    n_nesting: 2,
                    n_repeated: 2,
                    n_events: Some(2),
                    ..some()
                },
                true,
                0,
            ),
        ] {
            assert_eq!((verdict.is_complete(), verdict.n_all_lost()), (is_complete, n_lost), "{verdict:?}");
            // And it stays so beside what is whole.
            let mut both = some();
            both.add(&verdict);
            both.add(&some());
            assert_eq!(both, verdict);
        }
    }

    #[test]
    fn any_text_can_be_read() {
        for (text, is_verdict) in [
            ("", false),
            ("nopal verdict 2\nstate finished", false),
            ("nopal verdict 1", true),
            (
                "nopal verdict 1\nstate\ngap\ngap x y\ngap 5\nlate -1\nlet_go -1 z\ngaps 99999999999999999999\nnew 7",
                true,
            ),
        ] {
            let verdict = Verdict::parse(text);
            assert_eq!(verdict.is_some(), is_verdict, "{text}");
            assert!(verdict.is_none_or(|v| v.is_unfinished && v.gaps.is_empty() && v.n_gaps == 0), "{text}");
        }
    }

    #[test]
    fn many_long_gaps_stay_bounded() {
        let mut verdict = Verdict::default();
        for _ in 0..10_000 {
            verdict.gap(1, &"\u{20ac}".repeat(1000));
        }
        assert_eq!((verdict.n_gaps, verdict.gaps.len()), (10_000, MAX_LISTED));
        assert!(verdict.text().len() < MAX_LISTED * (MAX_TEXT_BYTES + 40) + 200);
    }
}
