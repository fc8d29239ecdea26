//! `nopal report`: recordings as one HTML page.

use super::answers::source::Status;
use super::answers::{numbers, print_json};
use super::recordings::{NewFile, Opened, Pace, Part, interrupted, verdict_on};
use crate::failure::Failure;
use crate::signals;
use crate::verdict::{self, Manner};
use crate::words::{bytes_in_words, counted};
use nopal_answers::ask;
use nopal_report::{Failed, Made, Named, Page, gather, write};
use nopal_spans::Span;
use nopal_trace::Recording;
use nopal_trace::localtime::{ClockText, text_of};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Makes one HTML page of recordings: rates, latencies, histograms, a timeline, tables.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal report pg.rec                        writes report.html
  nopal report pg.rec -o pg.html --open      and shows it
  nopal report before.rec after.rec          two recordings in the same charts
  nopal report pg.rec --from 15:30:19 --until 15:30:21 -o slow.html

The page is one file that needs no network: mail it, attach it to a bug. Drag over a chart to look at a part of the time; everything
follows. Its size does not grow with the recording: events are added up, of the spans the longest are drawn one by one. Files are new
and readable by their owner only. The last line on standard error says `complete`, or what is missing; so does the page.")]
pub(super) struct Args {
    /// The recordings: folders, or names of sessions. Several are drawn into the same charts.
    #[arg(value_name = "RECORDING", required = true)]
    pub recordings: Vec<PathBuf>,
    /// The new file.
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Shows the page in the browser.
    #[arg(long)]
    pub open: bool,
    #[command(flatten)]
    pub part: Part,
    /// Prints what was written as one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// More than these cannot be told apart in one chart.
const MAX_RECORDINGS: usize = 8;

pub(super) fn run(args: Args) -> Result<(), Failure> {
    if args.recordings.len() > MAX_RECORDINGS {
        return Err(Failure::usage(format!("a report shows at most {MAX_RECORDINGS} recordings"))
            .hint("make several reports, or ask `nopal query` about all of them"));
    }
    let opened = Opened::open(&args.recordings, args.part.spans_file.as_deref())?;
    let spans = match args.part.only.is_empty() {
        true => opened.available.spans.clone(),
        false => ask::spans_one_by_one(&opened.available, &args.part.only)?,
    };
    let selections = opened.select(&[], &args.part)?;
    signals::stop_on_signals();
    let (file, to) = NewFile::create(&args.output)?;
    let (mut made, pace, mut status) = (Vec::new(), Pace::new(), Status::new());
    for (at, ((dir, recording), (selection, _))) in opened.all.iter().zip(&selections).enumerate() {
        let before: u64 = made.iter().map(Made::n_events).sum();
        let n = opened.all.len() as f64;
        let gathered = gather(recording, selection.range, &spans, &opened.available, |share, n_events| {
            let share = (at as f64 + share) / n;
            status.show(|| format!("{}; {} events", pace.text(share), numbers::count(before + n_events)));
            !signals::is_stopped()
        });
        let gathered = gathered.map_err(|failed| match failed {
            Failed::Recording(error) => super::recording_failure(&error, dir),
            Failed::Question(wrong) => Failure::from(wrong),
        })?;
        if gathered.is_stopped || signals::is_stopped() {
            status.clear();
            return Err(interrupted("no report was written"));
        }
        made.push(gathered);
    }
    status.clear();
    let mut out = Counted { to: BufWriter::new(to), n_bytes: 0 };
    let sides = names(&opened.all).into_iter().zip(&made);
    let page = Page {
        title: title(&args.recordings),
        sides: sides.map(|(name, made)| named(name, made, args.part.utc)).collect(),
        spans: &spans,
    };
    let written = write(&page, &mut out).and_then(|()| out.to.flush());
    written.map_err(|error| {
        Failure::new("output", format!("cannot write {}: {error}", args.output.display()))
    })?;
    file.keep();
    conclude(&args, &made, &spans, out.n_bytes)?;
    if args.open { show(&args.output) } else { Ok(()) }
}

/// Folders by their last names, where those differ.
fn names(all: &[(PathBuf, Recording)]) -> Vec<String> {
    let short: Vec<String> = all.iter().map(|(dir, _)| last_name(dir)).collect();
    let is_twice = |name: &String| short.iter().filter(|other| *other == name).count() > 1;
    let of = |(at, name): (usize, &String)| match is_twice(name) {
        true => format!("{} ({})", all[at].0.display(), at + 1),
        false => name.clone(),
    };
    short.iter().enumerate().map(of).collect()
}

fn last_name(dir: &Path) -> String {
    dir.file_name().map_or_else(|| dir.display().to_string(), |name| name.to_string_lossy().into_owned())
}

fn title(recordings: &[PathBuf]) -> String {
    let names: Vec<String> = recordings.iter().map(|dir| last_name(dir)).collect();
    names.join(" and ")
}

fn named<'a>(name: String, made: &'a Made, is_utc: bool) -> Named<'a> {
    let verdict = verdict_on([made.report()].into_iter(), made.n_damaged);
    let zone = if is_utc { " UTC" } else { "" };
    let began = made.began_ns().map(|ns| format!("{}{zone}", text_of(ns, ClockText::Date, is_utc)));
    Named {
        name,
        side: &made.side,
        verdict: verdict::text(&verdict, Manner::SESSION),
        is_complete: verdict.is_complete(),
        began: began.unwrap_or_default(),
    }
}

/// Counts what is written.
struct Counted<W> {
    to: W,
    n_bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.to.write(bytes)?;
        self.n_bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

fn conclude(args: &Args, made: &[Made], spans: &[Span], n_bytes: u64) -> Result<(), Failure> {
    let n_damaged = made.iter().map(|made| made.n_damaged).sum();
    let verdict = verdict_on(made.iter().map(Made::report), n_damaged);
    let how = verdict::text(&verdict, Manner::SESSION);
    let n_events: u64 = made.iter().map(Made::n_events).sum();
    let n_spans: u64 = made.iter().map(|made| made.n_spans).sum();
    if args.json {
        let more = serde_json::json!({
            "verdict": how,
            "file": args.output.display().to_string(),
            "events": n_events,
            "spans": n_spans,
            "unmatched": made.iter().map(|made| made.unmatched().sum()).sum::<u64>(),
            "bytes": n_bytes,
        });
        return print_json(&format!("{}\n", verdict::json_with(&verdict, more)));
    }
    let mut parts = vec![counted(n_events, "event")];
    if !spans.is_empty() {
        parts.push(counted(n_spans, "span"));
    }
    parts.push(bytes_in_words(n_bytes));
    tell!("{}: {}; {how}", args.output.display(), parts.join("; "));
    Ok(())
}

fn show(file: &Path) -> Result<(), Failure> {
    let failed = |why: String| {
        Failure::new("open", format!("the report is written, and no browser was started: {why}"))
            .hint(format!("open {} yourself", file.display()))
    };
    let mut command = Command::new("xdg-open");
    let command = command.arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().map_err(|error| failed(format!("xdg-open: {error}")))?;
    if status.success() { Ok(()) } else { Err(failed(format!("xdg-open ended with {status}"))) }
}
