//! `nopal export`: recordings in the formats of other programs.

use super::answers::source::Status;
use super::answers::{numbers, print_json};
use super::recordings::{NewFile, Opened, Pace, Part, check_above, interrupted, verdict_on};
use super::view;
use crate::failure::Failure;
use crate::signals;
use crate::verdict::{self, Manner};
use crate::words::{bytes_in_words, counted};
use nopal_answers::ask;
use nopal_export::{
    Chrome, Columns, Ended, EventsCsv, Exporter, Failed, Flamegraph, Otlp, Out, Perfetto, Plan, SpansCsv,
    SpansJson, export, is_wanted,
};
use nopal_files::own::Folder;
use nopal_parquet::{Dataset, EventsParquet, SpansParquet};
use nopal_spans::Span;
use nopal_trace::{Error, JsonLines, PrintError, Range, Recording, Selection};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes recordings in the formats of other programs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal export pg.rec --to perfetto -o pg.pftrace       open it at ui.perfetto.dev
  nopal export pg.rec --to chrome -o pg.json            chrome://tracing, speedscope
  nopal export pg.rec --to csv -e postgresql:query__done > done.csv
  nopal export pg.rec --to csv -e 'postgresql:query__done if query == \"UPDATE*\"' > updates.csv
  nopal export pg.rec --to csv --table spans | head
  nopal export pg.rec --to parquet -o pg.parquet        DuckDB, data frames, Spark
  nopal export pg.rec --to parquet --dataset /lake      adds it to the tables of a fleet: fleet/README.md
  nopal export pg.rec --to flamegraph | flamegraph.pl > pg.svg
  nopal export pg.rec --to otlp-json -o pg.jsonl        OpenTelemetry collectors
  nopal export pg.rec --to ctf2 -o pg2.rec              babeltrace2 2.1 and newer; LTTng's recordings, too

chrome and perfetto show spans as slices, other events as instants, and what was lost where it was lost. csv, json and parquet
hold events, or with --table spans the spans. Times are nanoseconds since the epoch. The last line on standard error says
`complete`, or what is missing.")]
pub(super) struct Args {
    /// The recordings: folders, or names of sessions.
    #[arg(value_name = "RECORDING", required = true)]
    pub recordings: Vec<PathBuf>,
    #[arg(long = "to", value_name = "FORMAT", value_enum)]
    pub format: Format,
    /// The new file, or for ctf2 the new folder; without it standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Adds events, and histograms of spans that add up over hosts, to the dataset in this folder; for parquet.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "table"])]
    pub dataset: Option<PathBuf>,
    /// With --dataset: a field of spans that histograms are told apart by.
    #[arg(long, value_name = "FIELD", requires = "dataset")]
    pub by: Option<String>,
    /// What the rows of csv, json and parquet are.
    #[arg(long, value_enum, default_value_t = Table::Events)]
    pub table: Table,
    /// Only these events, as `trace` takes them: `provider:name` with `*` and `?`, and a condition on the arguments after
    /// `if`; may be given several times. Spans are all there.
    #[arg(short = 'e', long = "event", value_name = "PROBE")]
    pub events: Vec<String>,
    #[command(flatten)]
    pub part: Part,
    /// Prints what was written as one JSON object; needs -o or --dataset.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    Csv,
    /// One object to a line.
    Json,
    /// Chrome's Trace Event format.
    Chrome,
    /// Perfetto's protobuf trace.
    Perfetto,
    /// Folded stacks of spans, in nanoseconds.
    Flamegraph,
    /// OpenTelemetry spans, as its file exporter writes them.
    OtlpJson,
    Parquet,
    /// The whole recording in the Common Trace Format 2.
    Ctf2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Table {
    Events,
    Spans,
}

impl Format {
    fn has_tables(self) -> bool {
        matches!(self, Format::Csv | Format::Json | Format::Parquet)
    }

    fn is_binary(self) -> bool {
        matches!(self, Format::Perfetto | Format::Parquet)
    }
}

/// Standard output that is a terminal: names and values of others are shown there, not obeyed.
#[derive(Debug, Default)]
struct Terminal {
    /// Of a line that has not ended.
    line: Vec<u8>,
}

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        let n_whole = self.line.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = self.line.drain(..n_whole).collect();
        io::stdout().write_all(nopal_trace::escape_lines(&String::from_utf8_lossy(&whole)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.line);
        io::stdout().write_all(nopal_trace::escape_lines(&String::from_utf8_lossy(&rest)).as_bytes())?;
        io::stdout().flush()
    }
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    if args.table == Table::Spans && !args.format.has_tables() {
        return Err(Failure::usage("--table is for csv, json and parquet").hint("leave it out"));
    }
    if args.dataset.is_some() && args.format != Format::Parquet {
        return Err(Failure::usage("--dataset is for parquet").hint("add --to parquet"));
    }
    if args.json && args.output.is_none() && args.dataset.is_none() {
        return Err(Failure::usage("--json needs -o FILE or --dataset DIR")
            .hint("standard output has the export itself"));
    }
    if args.format.is_binary()
        && args.output.is_none()
        && args.dataset.is_none()
        && io::stdout().is_terminal()
    {
        return Err(Failure::usage("this format is not for a terminal").hint("name a file with -o FILE"));
    }
    if args.format == Format::Ctf2 {
        return ctf2(&args);
    }
    let opened = Opened::open(&args.recordings, args.part.spans_file.as_deref())?;
    let (selections, conditions): (Vec<Selection>, Vec<_>) =
        opened.select(&args.events, &args.part)?.into_iter().unzip();
    let holds_events = args.format.has_tables() && args.table == Table::Events && args.dataset.is_none();
    let spans = match (holds_events, args.part.only.is_empty()) {
        (true, _) => Vec::new(),
        (false, true) => opened.available.spans.clone(),
        (false, false) => ask::spans_one_by_one(&opened.available, &args.part.only)?,
    };
    let holds_spans_alone = match args.format {
        Format::Flamegraph | Format::OtlpJson => true,
        Format::Csv | Format::Json | Format::Parquet => args.table == Table::Spans,
        Format::Chrome | Format::Perfetto | Format::Ctf2 => false,
    };
    if holds_spans_alone && conditions.iter().any(Option::is_some) {
        return Err(Failure::usage("a condition chooses events, and this export holds spans alone")
            .hint("leave it out; `--span SPAN` chooses spans"));
    }
    signals::stop_on_signals();
    let (file, to): (Option<NewFile>, Box<dyn Write + Send>) = match &args.output {
        Some(path) => {
            let (file, to) = NewFile::create(path)?;
            (Some(file), Box::new(to))
        }
        None if io::stdout().is_terminal() => (None, Box::new(Terminal::default())),
        None => (None, Box::new(io::stdout())),
    };
    let out = Out::new(to);
    let ended = if holds_events && args.format == Format::Json {
        lines(&opened, &selections, out)
    } else {
        let exporter = exporter(&args, &opened, &selections, &spans, out)
            .map_err(|error| failure_of(Failed::Output(error), &opened))?;
        write(&args, &opened, &selections, &spans, exporter)
    };
    let mut ended = match ended {
        // A reader that has seen enough, such as `head`, is not a failure.
        Err(Failed::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
        other => other.map_err(|failed| failure_of(failed, &opened))?,
    };
    if ended.is_stopped || signals::is_stopped() {
        return Err(interrupted("nothing was exported"));
    }
    for (report, conditions) in ended.reports.iter_mut().zip(&conditions) {
        report.verdict.n_undecided += view::undecided(conditions.as_deref());
        view::check_known(conditions.as_deref())?;
    }
    if let Some(file) = file {
        file.keep();
    }
    conclude(&args, &ended, !spans.is_empty())
}

fn exporter(
    args: &Args,
    opened: &Opened,
    selections: &[Selection],
    spans: &[Span],
    out: Out,
) -> io::Result<Box<dyn Exporter>> {
    let columns = || {
        let mut columns = Columns::default();
        for ((_, recording), selection) in opened.all.iter().zip(selections) {
            columns.add_all(recording, |class| is_wanted(selection, class.index));
        }
        columns
    };
    if let Some(dataset) = &args.dataset {
        return Ok(Box::new(Dataset::new(Folder::make(dataset)?, spans, args.by.clone())));
    }
    Ok(match (args.format, args.table) {
        (Format::Csv, Table::Events) => Box::new(EventsCsv::new(out, columns())),
        (Format::Csv, Table::Spans) => Box::new(SpansCsv::new(out, spans)),
        (Format::Json, _) => Box::new(SpansJson::new(out, spans)),
        (Format::Parquet, Table::Events) => Box::new(EventsParquet::new(out, columns())?),
        (Format::Parquet, Table::Spans) => Box::new(SpansParquet::new(out, spans)?),
        (Format::Chrome, _) => Box::new(Chrome::new(out, spans)),
        (Format::Perfetto, _) => Box::new(Perfetto::new(out, spans)),
        (Format::Flamegraph, _) => Box::new(Flamegraph::new(out, spans)),
        (Format::OtlpJson, _) => Box::new(Otlp::new(out, spans)),
        // A folder, which `ctf2` writes.
        (Format::Ctf2, _) => return Err(io::ErrorKind::Unsupported.into()),
    })
}

fn write(
    args: &Args,
    opened: &Opened,
    selections: &[Selection],
    spans: &[Span],
    exporter: Box<dyn Exporter>,
) -> Result<Ended, Failed> {
    let recordings = opened.all.iter().map(|(_, recording)| recording);
    let plan = Plan {
        recordings: recordings.zip(selections.iter().cloned()).collect(),
        spans,
        available: &opened.available,
    };
    let (mut status, pace) = (Status::new(), Pace::new());
    let ended = export(&plan, exporter, |share, n_events| {
        if args.output.is_some() || args.dataset.is_some() {
            status.show(|| format!("{}; {} events", pace.text(share), numbers::count(n_events)));
        }
        !signals::is_stopped()
    });
    status.clear();
    ended
}

/// The streams of one recording as they are, with metadata of CTF 2.
fn ctf2(args: &Args) -> Result<(), Failure> {
    let part = &args.part;
    let is_whole = args.events.is_empty()
        && part.only.is_empty()
        && part.spans_file.is_none()
        && part.from.is_none()
        && part.until.is_none();
    if !is_whole {
        return Err(
            Failure::usage("ctf2 has the whole recording").hint("leave out -e, --span, --from and --until")
        );
    }
    let (Some(output), [name]) = (&args.output, args.recordings.as_slice()) else {
        return Err(Failure::usage("ctf2 makes a folder of one recording").hint("name it with -o DIR"));
    };
    check_above(output)?;
    let opened = Opened::open(std::slice::from_ref(name), None)?;
    let (dir, recording) = &opened.all[0];
    signals::stop_on_signals();
    let stop = AtomicBool::new(false);
    let mut status = Status::new();
    let written = recording.write_ctf2(dir, output, |n_bytes| {
        status.show(|| bytes_in_words(n_bytes));
        !signals::is_stopped()
    });
    status.clear();
    let Some(n_bytes) = written.map_err(|error| match error {
        Error::Exists { path } => {
            Failure::new("output", format!("{} already holds a recording", path.display()))
                .hint("choose another folder with -o")
        }
        error => super::recording_failure(&error, dir),
    })?
    else {
        return Err(interrupted("what was written is not a recording"));
    };
    // What is missing in the one is missing in the other.
    let made = Recording::open(output).and_then(|made| made.count(Range::default(), |_| true, &stop));
    let counts = made.map_err(|error| super::recording_failure(&error, output))?;
    let n_events = counts.total();
    let ended = Ended { n_events, n_bytes, reports: vec![counts.report], ..Ended::default() };
    conclude(args, &ended, false)
}

/// Events as `nopal view --json` prints them.
fn lines(opened: &Opened, selections: &[Selection], mut out: Out) -> Result<Ended, Failed> {
    let mut ended = Ended::default();
    let stop = AtomicBool::new(false);
    for (at, ((_, recording), selection)) in opened.all.iter().zip(selections).enumerate() {
        let printed = nopal_trace::print(recording, selection, || JsonLines::new(false), &mut out, &stop);
        let printed = printed.map_err(|error| match error {
            PrintError::Recording(error) => Failed::Recording(at, error),
            PrintError::Output(error) => Failed::Output(out.finish().err().unwrap_or(error)),
        })?;
        ended.n_events += printed.n_events;
        ended.reports.push(printed.report);
        stop.store(signals::is_stopped(), Ordering::Relaxed);
    }
    ended.n_bytes = out.finish().map_err(Failed::Output)?;
    Ok(ended)
}

fn failure_of(failed: Failed, opened: &Opened) -> Failure {
    match failed {
        Failed::Recording(at, error) => super::recording_failure(&error, &opened.all[at].0),
        Failed::Output(error) => Failure::new("output", format!("cannot write: {error}")),
        Failed::Question(wrong) => Failure::from(wrong),
    }
}

fn conclude(args: &Args, ended: &Ended, has_spans: bool) -> Result<(), Failure> {
    let verdict = verdict_on(ended.reports.iter(), ended.n_damaged);
    let how = verdict::text(&verdict, Manner::SESSION);
    if args.json {
        let more = serde_json::json!({
            "verdict": how,
            "events": ended.n_events,
            "spans": ended.n_slices,
            "unmatched": ended.unmatched.sum(),
            "bytes": ended.n_bytes,
        });
        return print_json(&format!("{}\n", verdict::json_with(&verdict, more)));
    }
    let mut parts = vec![counted(ended.n_events, "event")];
    if has_spans {
        parts.push(counted(ended.n_slices, "span"));
        parts.extend(super::answers::render::unmatched(&ended.unmatched));
    }
    parts.push(bytes_in_words(ended.n_bytes));
    verdict::remarks(&verdict, None).iter().for_each(|remark| tell!("nopal: {remark}"));
    tell!("{}; {how}", parts.join("; "));
    Ok(())
}
