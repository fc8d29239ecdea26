//! `nopal view`: the events of a recording, as lines of text, as JSON, or counted.

use crate::failure::Failure;
use crate::lines::{self, LineArg};
use crate::verdict::{self, Manner};
use crate::words::counted;
use nopal_answers::filter::{Conditions, choose};
use nopal_live::LiveError;
use nopal_live::registry::Unfit;
use nopal_proc::file_names::FileNames;
use nopal_session::control::{Request, ask};
use nopal_session::home::Life;
use nopal_session::{Home, Session};
use nopal_trace::localtime::{self, ClockText};
use nopal_trace::{
    Code, Counts, Error, EventClass, Filter, FrameNames, JsonLines, PrintError, Printed, Range, Recording,
    Report, Selection, TextForm, TextLines, escape, print,
};
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

mod live;

/// Prints the events of a recording (a CTF directory: nopal's own, LTTng's, and others).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal view demo.rec                              all events, in the order of time
  nopal view demo.rec 'valkey_commands:*'          the events of one provider
  nopal view pg.rec 'postgresql:query__done if query == \"UPDATE*\"'
                                                   only those whose arguments are such
  nopal view a.rec b.rec                           the events of both, in the order of time
  nopal view demo.rec --from 15:30:19 --to 15:30:20.5
  nopal view demo.rec --from -500ms                the last half second
  nopal view demo.rec --count                      how many of each
  nopal view demo.rec --json | jq .args            one JSON object a line
  nopal view ~/lttng-traces/auto-20261115-103000   what LTTng recorded
  nopal view                                       what the current session has recorded so far
  nopal view valkey --live                         the events of a started session as they come

The last line on standard error says whether the recording is complete, or how many events were lost and when.")]
pub(super) struct Args {
    /// The recording: a folder with a `metadata` file in it or somewhere below it; or the name of a session. Without it
    /// the current session. More folders may follow: their events are shown as those of one recording.
    #[arg(value_name = "RECORDING")]
    pub dir: Option<PathBuf>,
    /// Only these events, as `trace` takes them: `provider:name` or `function:FILE:NAME` with `*` and `?`, and a condition on
    /// the arguments after `if`; without a colon a provider or a name.
    #[arg(value_name = "PROBE")]
    pub patterns: Vec<String>,
    /// Follows a started session until it is stopped.
    #[arg(long, conflicts_with_all = ["count", "from", "to"])]
    pub live: bool,
    /// Prints one JSON object a line.
    #[arg(long)]
    pub json: bool,
    /// What the lines look like; without it short on a terminal, as babeltrace2 prints them elsewhere.
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "json")]
    pub format: Option<LineArg>,
    /// With --json: integers above 2^53 as strings.
    #[arg(long, requires = "json")]
    pub json_strings: bool,
    /// Prints how many there are of each event, and of all.
    #[arg(long, conflicts_with = "limit")]
    pub count: bool,
    /// Leaves out what is before: `15:30:19.5`, `2026-11-15 15:30:19`, seconds since the epoch, `+2s` after the first event or
    /// `-2s` before the end.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub from: Option<String>,
    /// Leaves out what is after.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub to: Option<String>,
    /// Ends after this many events.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Times with their date.
    #[arg(long, visible_alias = "clock-date")]
    pub date: bool,
    /// Times in seconds since the epoch.
    #[arg(long, visible_alias = "clock-seconds", conflicts_with = "date")]
    pub seconds: bool,
    /// Times in UTC.
    #[arg(long, visible_aliases = ["clock-gmt", "gmt"])]
    pub utc: bool,
    /// Leaves out the time since the event before.
    #[arg(long)]
    pub no_delta: bool,
    /// Runs another reader on the recording's folder: `-e babeltrace2`, `-e 'tracecompass --open'`.
    #[arg(short = 'e', long, value_name = "COMMAND", conflicts_with_all = ["live", "json", "format", "count", "from", "to", "limit"])]
    pub viewer: Option<String>,
}

/// Runs the reader that is asked for, and ends as it does.
fn other_reader(command: &str, dirs: &[PathBuf]) -> Result<(), Failure> {
    let mut words = command.split_whitespace();
    let program =
        words.next().ok_or_else(|| Failure::usage("no reader is named").hint("--viewer babeltrace2"))?;
    let ended = Command::new(program).args(words).args(dirs).status();
    let ended = ended.map_err(|e| Failure::new("viewer", format!("cannot run {program}: {e}")))?;
    if ended.success() {
        return Ok(());
    }
    let failure = Failure::new("viewer", format!("{program} failed: {ended}"));
    let exit = ended.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Err(Failure { exit, ..failure })
}

/// Set by Ctrl-C: what is under way is written to its last whole line.
static STOP: AtomicBool = AtomicBool::new(false);

const NO_SUCH_EVENT: &str = "no-such-event";

pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    stop_on_interrupt();
    let (dir, session) = find(args.dir.as_deref())?;
    let mut dirs = vec![dir.clone()];
    let n_more = args.patterns.iter().take_while(|text| Recording::is_in(Path::new(text))).count();
    dirs.extend(args.patterns.drain(..n_more).map(PathBuf::from));
    if let Some(viewer) = &args.viewer {
        return other_reader(viewer, &dirs);
    }
    if args.live {
        let Some(session) = session else {
            return Err(Failure::usage(format!("{} is a recording at rest", dir.display()))
                .hint("--live follows a session: name one that is started"));
        };
        return live::run(&session, &dir, &args);
    }
    let recording = Recording::open_all(&dirs).map_err(|e| failure_of(&e, &dir))?;
    let (mut selection, conditions) = select(&recording, &args.patterns)?;
    selection.limit = args.limit;
    selection.range = range_of(&recording, args.from.as_deref(), args.to.as_deref(), args.utc, &dir)?;
    let (n_events, report) = if args.count {
        count(&recording, &selection, conditions.as_deref(), args.json).map_err(|e| print_failure(e, &dir))?
    } else {
        match print_events(&recording, &selection, &args) {
            Ok(mut printed) => {
                printed.report.verdict.n_undecided += undecided(conditions.as_deref());
                (printed.n_events, printed.report)
            }
            // A reader that has seen enough, such as `head`, is not a failure.
            Err(PrintError::Output(e)) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            Err(e) => return Err(print_failure(e, &dir)),
        }
    };
    if STOP.load(Ordering::Relaxed) {
        let mut failure = Failure::new("interrupted", format!("interrupted after {n_events} events"));
        failure.exit = 130;
        return Err(failure);
    }
    say_loss(n_events, &report, &args);
    check_known(conditions.as_deref())?;
    if !report.verdict.notes.is_empty() {
        // All has been said, and standard output is for the events.
        std::process::exit(1);
    }
    Ok(())
}

/// How many events are among those shown because the end of a text is not known.
pub(super) fn undecided(conditions: Option<&Conditions>) -> u64 {
    conditions.map_or(0, Conditions::n_undecided)
}

/// Whether the recording could tell of every event if the conditions hold.
pub(super) fn check_known(conditions: Option<&Conditions>) -> Result<(), Failure> {
    let Some(unknown) = conditions.and_then(|conditions| conditions.unknown().pop()) else { return Ok(()) };
    let failure =
        Failure::new("not-recorded", format!("the recording does not say `$ctx.{unknown}` of every event"));
    Err(failure.hint(format!(
        "`nopal record --context {unknown}` or `add-context -t {unknown}` of a session adds it"
    )))
}

/// The folder that is meant, and the session if one is. A started one is asked to write out what it has.
pub(super) fn find(named: Option<&Path>) -> Result<(PathBuf, Option<Session>), Failure> {
    if let Some(dir) = named.filter(|dir| dir.exists()) {
        return Ok((dir.to_owned(), None));
    }
    let name = named.map(|name| name.to_string_lossy().into_owned());
    let session = Home::find().and_then(|home| home.get(name.as_deref())).map_err(|error| match named {
        Some(named) => Failure::new("no-such-recording", format!("there is no {}", named.display()))
            .hint("name the folder of a recording or a session; `nopal record -e PATTERN -o DIR` makes one"),
        None => Failure::from(error),
    })?;
    let dir = session.config()?.output;
    if session.life() == Life::Started {
        let _ = ask(&session, &Request::Flush);
    }
    Ok((dir, Some(session)))
}

fn print_events(recording: &Recording, selection: &Selection, args: &Args) -> Result<Printed, PrintError> {
    print_to(recording, selection, args, &mut io::stdout().lock())
}

fn print_to(
    recording: &Recording,
    selection: &Selection,
    args: &Args,
    mut out: &mut dyn Write,
) -> Result<Printed, PrintError> {
    let names: Arc<dyn FrameNames> = Arc::new(Functions::default());
    if args.json {
        let new_lines = || JsonLines::new(args.json_strings).with_names(Arc::clone(&names));
        return print(recording, selection, new_lines, &mut out, &STOP);
    }
    let clock = match (args.date, args.seconds) {
        (true, _) => ClockText::Date,
        (_, true) => ClockText::Seconds,
        _ => ClockText::Time,
    };
    let form =
        TextForm { clock, is_utc: args.utc, has_no_delta: args.no_delta, look: lines::look(args.format) };
    print(recording, selection, || TextLines::new(form).with_names(Arc::clone(&names)), &mut out, &STOP)
}

/// The functions of files that are still there.
#[derive(Debug, Default)]
struct Functions(FileNames);

impl FrameNames for Functions {
    fn name(&self, code: &Code, address: u64) -> Option<(String, u64)> {
        let place = address.checked_sub(code.start)?.checked_add(code.offset)?;
        self.0.at(&code.path, &code.build_id, place)
    }
}

/// Prints the count of each event type, the most frequent first, and returns the sum.
fn count(
    recording: &Recording,
    selection: &Selection,
    conditions: Option<&Conditions>,
    is_json: bool,
) -> Result<(u64, Report), PrintError> {
    let is_wanted = |class: &EventClass| selection.is_wanted.get(class.index) != Some(&false);
    let mut counts = match selection.filter.as_deref() {
        Some(filter) => count_filtered(recording, selection, filter)?,
        None => recording.count(selection.range, is_wanted, &STOP)?,
    };
    counts.report.verdict.n_undecided += undecided(conditions);
    // One event type may be in several streams; to the user it is one.
    let mut rows: HashMap<String, u64> = HashMap::new();
    let counted = recording.event_classes().iter().zip(&counts.by_class).filter(|(_, n)| **n > 0);
    for (class, n) in counted {
        *rows.entry(class.ty.full_name()).or_default() += n;
    }
    let mut rows: Vec<(String, u64)> = rows.into_iter().collect();
    rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let total = counts.total();
    let mut text = String::new();
    if is_json {
        let rows: Vec<_> =
            rows.iter().map(|(name, n)| serde_json::json!({ "event": name, "count": n })).collect();
        let more = serde_json::json!({ "total": total, "rows": rows });
        let answer = verdict::json_with(&counts.report.verdict, more);
        text.push_str(&format!("{}\n", nopal_trace::escape_json(&answer.to_string())));
    } else {
        let width = total.to_string().len();
        for (name, n) in rows {
            text.push_str(&format!("{n:>width$}  {}\n", escape(&name)));
        }
        text.push_str(&format!("{total:>width$}  total\n"));
    }
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(PrintError::Output(e)),
        _ => Ok((total, counts.report)),
    }
}

/// The same where single events have to be looked at.
fn count_filtered(
    recording: &Recording,
    selection: &Selection,
    filter: &dyn Filter,
) -> Result<Counts, PrintError> {
    let n_classes = recording.event_classes().len();
    let mut workers: Vec<_> =
        (0..recording.n_workers()).map(|_| (filter.decider(), vec![0; n_classes])).collect();
    let report = recording.visit(selection.range, &mut workers, |(holds, counts), event| {
        let class = event.class_index();
        counts[class] += u64::from(selection.is_wanted[class] && holds(event));
        !STOP.load(Ordering::Relaxed)
    })?;
    let mut by_class = vec![0; n_classes];
    for (_, counts) in workers {
        by_class.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
    }
    Ok(Counts { by_class, report })
}

/// The events that the patterns name; all if there is no pattern.
pub(super) fn select(
    recording: &Recording,
    patterns: &[String],
) -> Result<(Selection, Option<Arc<Conditions>>), Failure> {
    choose(recording, patterns).map_err(|unfit| match unfit {
        Unfit::NoProbe { pattern, .. } => no_such_event(recording, &pattern),
        unfit @ Unfit::Condition(_) => crate::failure::failure_of(&LiveError::Unfit(unfit)),
    })
}

fn no_such_event(recording: &Recording, pattern: &str) -> Failure {
    let mut names: Vec<String> =
        recording.event_classes().iter().map(|class| escape(&class.ty.full_name()).into_owned()).collect();
    names.sort();
    names.dedup();
    let n = names.len();
    names.truncate(8);
    let more = if n > names.len() { format!(" and {} more", n - names.len()) } else { String::new() };
    let hint = match n {
        0 => "the recording declares no events at all".to_owned(),
        _ => format!("it has {}{more}", names.join(", ")),
    };
    Failure::new(NO_SUCH_EVENT, format!("no event of the recording matches `{pattern}`")).hint(hint)
}

/// The part of a recording between two times, as people write them.
pub(super) fn range_of(
    recording: &Recording,
    from: Option<&str>,
    to: Option<&str>,
    is_utc: bool,
    dir: &Path,
) -> Result<Range, Failure> {
    let mut range = Range::default();
    if from.is_none() && to.is_none() {
        return Ok(range);
    }
    // A time of day means the day on which the recording starts.
    let mut events = recording.events(Range::default()).map_err(|e| failure_of(&e, dir))?;
    let first = events.next().map_err(|e| failure_of(&e, dir))?.and_then(|e| e.ns()).unwrap_or(0);
    let parse = |text: &str| {
        let length = |text| nopal_answers::trigger::duration_ns(text).and_then(|ns| i64::try_from(ns).ok());
        let ns = if let Some(after) = text.strip_prefix('+') {
            length(after).map(|ns| first.saturating_add(ns))
        } else if let Some(before) = text.strip_prefix('-') {
            let end = recording.end_ns().map_err(|e| failure_of(&e, dir))?.unwrap_or(first);
            length(before).map(|ns| end.saturating_sub(ns))
        } else {
            localtime::parse(text, first, is_utc)
        };
        ns.ok_or_else(|| {
            Failure::usage(format!("`{text}` is not a time")).hint(
                "write 15:30:19.5, '2026-11-15 15:30:19', seconds since the epoch, +2s (after the first event) or -2s (before the end)",
            )
        })
    };
    if let Some(text) = from {
        range.from_ns = parse(text)?;
    }
    if let Some(text) = to {
        range.to_ns = parse(text)?;
    }
    Ok(range)
}

/// The last word on standard error: complete, or what is missing and since when.
fn say_loss(n_events: u64, report: &Report, args: &Args) {
    let verdict = &report.verdict;
    let clock = if args.seconds { ClockText::Seconds } else { ClockText::Date };
    let time = |ns| localtime::text_of(ns, clock, args.utc);
    let damages = verdict.notes.iter().map(ToString::to_string);
    let gaps = verdict.gaps.iter().map(|(ns, what)| format!("[{}] {what}", time(*ns)));
    let notes: Vec<String> = damages.chain(gaps).collect();
    if args.json {
        let unfinished = verdict.is_unfinished.then(|| verdict::UNFINISHED.to_owned());
        let notes: Vec<String> = notes.into_iter().chain(unfinished).collect();
        let answer = verdict::json_with(verdict, serde_json::json!({ "events": n_events, "notes": notes }));
        if !args.count {
            tell_json!(answer);
        }
        return;
    }
    for note in notes.iter().chain(&verdict::remarks(verdict, None)) {
        tell!("nopal: {note}");
    }
    let how = verdict::text(verdict, Manner { n_listed: report.n_losses, ..Manner::READ });
    let joint = if report.n_losses > 0 { ";" } else { "," };
    tell!("nopal: {}{joint} {how}", counted(n_events, "event"));
    for loss in report.losses.iter().take(20) {
        let what = if loss.is_packets { "packets" } else { "events" };
        let cpu = loss.cpu.map_or(String::new(), |cpu| format!(" on cpu {cpu}"));
        tell!("  {} {what} between [{}] and [{}]{cpu}", loss.count, time(loss.from_ns), time(loss.to_ns));
    }
    if report.n_losses > 20 {
        tell!("  and {} more gaps", report.n_losses - 20);
    }
}

fn print_failure(error: PrintError, dir: &Path) -> Failure {
    match error {
        PrintError::Recording(e) => failure_of(&e, dir),
        PrintError::Output(e) => Failure::new("output", format!("cannot write the output: {e}")),
    }
}

pub(crate) fn failure_of(error: &Error, dir: &Path) -> Failure {
    let message = error.to_string();
    match error {
        Error::NotARecording { .. } => Failure::new("not-a-recording", message)
            .hint("name the folder that `nopal record -o` or `lttng create --output` was given"),
        Error::Metadata { .. } => Failure::new("damaged-metadata", message).hint(format!(
            "the metadata says how to read the events; copy {} again from where it was recorded",
            dir.display()
        )),
        Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Failure::new("no-permission", message).hint("read it as the user who recorded it")
        }
        _ => Failure::new("unreadable", message),
    }
}

/// The first Ctrl-C ends cleanly, the second at once.
fn stop_on_interrupt() {
    extern "C" fn stop(_signal: libc::c_int) {
        STOP.store(true, Ordering::Relaxed);
    }
    // SAFETY: all-zero bytes are a valid sigaction, the handler only stores an atomic, and both pointers are valid.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stop as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESETHAND | libc::SA_RESTART;
        libc::sigaction(libc::SIGINT, &action, std::ptr::null_mut());
    }
}
