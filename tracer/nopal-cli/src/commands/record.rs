//! `nopal record`: events into a recording.

use super::answers;
use super::recordings::check_above;
use crate::failure::Failure;
use crate::known;
use crate::open::{Open, announce, count_sites};
use crate::rhythm;
use crate::signals;
use crate::target_args::TargetArgs;
use crate::traps;
use crate::verdict::{self, Manner};
use crate::words::{self, bytes_in_words};
use nopal_answers::flight::{Flight, Recording};
use nopal_answers::trigger::{TriggerText, Watched};
use nopal_files::own::Folder;
use nopal_live::context::ContextField;
use nopal_live::plan::MAX_STRING;
use nopal_live::registry::Registry;
use nopal_live::{Hit, Loss};
use nopal_session::Turn;
use nopal_session::config::context_field;
use nopal_session::ctf_recorder::{Closed, Recorder};
use nopal_trace::localtime::{ClockText, text_of};
use nopal_trace::{EnvValue, Error, RecordingInfo, Verdict, Version};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Records events into a folder that `nopal view`, babeltrace2 and Trace Compass read.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal record -e 'postgresql:*' -n postgres -o pg.rec        until Ctrl-C
  nopal record -e 'memcached:command__*' -p 1234 --duration 10s -o mc.rec
  nopal record -e 'memcached:*' -n memcached --limit 1000 -o mc.rec
                                                              the first thousand events
  nopal record -e 'hotspot:*' -o jvm.rec -- java Main         from the program's start to its end
  nopal record -e 'function:libssl:SSL_*' -p 1234 -o ssl.rec  functions, entered and left
  nopal record --trigger 'latency(query) > 50ms' --before 2s -e 'postgresql:*' -p 1234 -o slow.rec
                                                              only what led to slow statements
  nopal record -e 'libstdcxx:throw' --context ustack -o throws.rec -- ./app
                                                              each with its callers
  nopal view pg.rec                                           the events
  babeltrace2 pg.rec                                          the same
  nopal record --ctf 2 -e 'postgresql:*' -p 1234 -o pg.rec    for babeltrace2 2.1 and newer

The recording is in the Common Trace Format, one stream for each CPU: 1.8, which every reader knows, or 2.")]
pub(super) struct Args {
    /// `provider:name` or `function:FILE:NAME` with `*` and `?`, and a condition on its arguments after `if`; may be given several times.
    #[arg(short = 'e', long = "event", value_name = "PROBE", required_unless_present_any = ["trigger", "named"])]
    pub probes: Vec<String>,
    /// As `trace` takes them.
    #[arg(value_name = "PROBE", hide = true)]
    pub named: Vec<String>,
    /// Keeps the newest events in memory and writes those around each span that takes longer: `latency(SPAN) > 10ms`. The
    /// probes of the span are traced, too. May be given several times.
    #[arg(long, value_name = "CONDITION")]
    pub trigger: Vec<String>,
    /// With --trigger: how long before the end of the slow span to write from.
    #[arg(long, value_name = "TIME", value_parser = answers::time, default_value = "5s", requires = "trigger")]
    pub before: u64,
    /// With --trigger: how long after the end of the slow span to write on.
    #[arg(long, value_name = "TIME", value_parser = answers::time, default_value = "100ms", requires = "trigger")]
    pub after: u64,
    /// With --trigger: a file that declares spans; without it `nopal.toml` here, if there is one.
    #[arg(long = "spans", value_name = "FILE.toml", requires = "trigger")]
    pub spans_file: Option<PathBuf>,
    /// The folder to make; without it `nopal-DATE-TIME` here.
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub target: TargetArgs,
    /// More fields in front of each event's own: procname, ip (the address of the probe), ustack (that and those of the callers, by the
    /// unwind tables), otel, and what else `nopal add-context --list` shows; may be given several times.
    #[arg(long, value_name = "FIELD", value_delimiter = ',')]
    pub context: Vec<String>,
    /// Leaves out vpid and vtid, which cost 8 bytes an event.
    #[arg(long)]
    pub no_context: bool,
    /// The version of the Common Trace Format; what is recorded is the same.
    #[arg(long, value_name = "VERSION", value_enum, default_value_t = Ctf::One)]
    pub ctf: Ctf,
    /// Ends after this many events.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "trigger")]
    pub limit: Option<u64>,
    /// Prints the result as JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Ctf {
    /// Metadata in TSDL, for every reader.
    #[value(name = "1.8", alias = "1")]
    One,
    /// Metadata in JSON, for babeltrace2 2.1 and newer.
    #[value(name = "2")]
    Two,
}

/// A crash costs at most the events of this long.
const FLUSH: Duration = Duration::from_secs(1);
const STATUS: Duration = Duration::from_millis(500);

pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    let named = std::mem::take(&mut args.named);
    args.probes.extend(named);
    signals::stop_on_signals();
    let contexts = contexts(&args)?;
    args.target.otel |= contexts.contains(&ContextField::Otel);
    args.target.contexts = contexts;
    args.target.resolve()?;
    nopal_kernel::leftovers::sweep();
    let dir = args.output.clone().unwrap_or_else(default_dir);
    if dir.join("metadata").exists() {
        return Err(exists(&dir));
    }
    // A command is not started in vain.
    check_above(&dir)?;
    if dir.exists() && !dir.is_dir() {
        return Err(Failure::new("output", format!("{} is not a folder", dir.display()))
            .hint("a recording is a folder of files; choose another name with -o"));
    }
    let is_new = !dir.exists();
    Folder::make(&dir).and_then(|folder| folder.try_writing()).map_err(|e| {
        Failure::new("recording", format!("cannot write into {}: {e}", dir.display()))
            .hint("choose another folder with -o")
    })?;
    let opened = flight(&args).and_then(|flight| {
        let of_flight = flight.iter().flat_map(|flight| flight.watched().probes());
        // What a trigger needs comes first, so that no condition hides it.
        let mut probes: Vec<String> = of_flight.map(|probe| probe.to_string()).collect();
        probes.extend(traps::with_companions(&args.probes, &args.target));
        args.target.open(&probes).map(|open| (flight, open))
    });
    let (mut flight, mut open) = opened.inspect_err(|_| {
        if is_new {
            let _ = std::fs::remove_dir(&dir);
        }
    })?;
    let info = RecordingInfo { n_event_types: open.live.registry().plans.len(), ..info(&args, &dir) };
    let recorder = Recorder::create(&dir, info, &args.target.contexts)
        .and_then(|mut recorder| recorder.declare(&open.live.registry()).map(|()| recorder));
    let recorder = recorder.map_err(|e| {
        open.live.close();
        recording_failure(&e, &dir)
    })?;
    if !args.json || args.target.verbose {
        announce(&open.opened, args.target.verbose);
    }
    let start = Instant::now();
    let (recorder, error) = gather(&mut open, recorder, flight.as_mut(), &args, start);
    let tally = recorder.tally;
    let duration = start.elapsed();
    let Closed { n_bytes, n_events, verdict, error: late } = recorder.close();
    let error = error.or(late);
    // Events that were forgotten too soon may be missing around a slow span.
    let n_early = flight.as_ref().filter(|flight| flight.n_slow > 0).map_or(0, Flight::n_dropped);
    let verdict = Verdict { n_lost: verdict.n_lost + n_early, ..verdict };
    let verdict = open.verdict(Verdict { is_cut_short: error.is_some(), ..verdict });
    let (user, kernel, _) = count_sites(&open.opened);
    if args.json {
        let mut more = serde_json::json!({
            "events": n_events, "bytes": n_bytes,
            "duration_ns": duration.as_nanos() as u64, "sites": { "user": user, "kernel": kernel },
            "path": dir.display().to_string(),
            "strings": { "truncated": tally.n_truncated, "unreadable": tally.n_unreadable },
        });
        if let Some(flight) = &flight {
            more["triggered"] = flight.n_slow.into();
            more["dropped_early"] = flight.n_dropped().into();
        }
        show_json!(verdict::json_with(&verdict, more));
    } else {
        let remarks = verdict::remarks(&verdict, Some(args.target.max_string));
        remarks.iter().for_each(|line| tell!("{line}"));
        if let Some(flight) = &flight {
            tell_triggered(flight);
        } else if n_events == 0 {
            traps::why_silent(&open).iter().for_each(|why| tell!("nopal: {why}"));
        }
        tell!(
            "{} in {:.1} s, {} in {}, {}",
            words::counted(n_events, "event"),
            duration.as_secs_f64(),
            bytes_in_words(n_bytes),
            dir.display(),
            verdict::text(&verdict, Manner::LIVE)
        );
    }
    match (error, open.never_fit()) {
        (Some(error), _) => Err(recording_failure(&error, &dir)),
        (None, Some(failure)) if n_events == 0 => Err(failure),
        (None, _) => Ok(()),
    }
}

/// What stands in front of each event's own fields.
fn contexts(args: &Args) -> Result<Vec<ContextField>, Failure> {
    let mut fields = if args.no_context { Vec::new() } else { ContextField::USUAL.to_vec() };
    for name in &args.context {
        let field = context_field(name)?;
        fields.extend(field.filter(|field| !fields.contains(field)));
    }
    Ok(fields)
}

/// Moves events from the rings into the recording until something ends it. After an error what was written stays.
fn gather(
    open: &mut Open,
    mut recorder: Recorder,
    mut flight: Option<&mut Flight>,
    args: &Args,
    start: Instant,
) -> (Recorder, Option<Error>) {
    let end = args.target.duration.map(|d| start + d);
    let mut status = Status::new(args.json, start);
    let mut last_flush = start;
    let error = loop {
        open.look_after();
        tell_gaps(open, &mut recorder);
        let passed = match (&mut flight, args.limit) {
            (Some(flight), _) => flight.pass(&mut open.live, &mut Kept(&mut recorder), false),
            (None, Some(limit)) => recorder.pass_first(&mut open.live, limit, false),
            (None, None) => recorder.pass(&mut open.live, &Turn::default()),
        };
        let n_hits = match passed {
            Ok(n_hits) => n_hits,
            Err(error) => break Some(error),
        };
        status.show(&recorder);
        let is_enough = args.limit.is_some_and(|limit| recorder.tally.n_events >= limit);
        if is_enough || signals::is_stopped() || end.is_some_and(|end| Instant::now() >= end) {
            break None;
        }
        if last_flush.elapsed() >= FLUSH {
            last_flush = Instant::now();
            if let Err(error) = recorder.flush() {
                break Some(error);
            }
        }
        if n_hits == 0 && open.is_over() {
            break None;
        }
        rhythm::rest(n_hits);
    };
    status.clear();
    for failure in open.close() {
        tell!("nopal: cannot close every site: {failure}; `nopal detach -p PID` tries again");
    }
    open.tell_what_goes_on();
    let error = match (error, &mut flight, args.limit) {
        (None, Some(flight), _) => flight.pass(&mut open.live, &mut Kept(&mut recorder), true).err(),
        (None, None, Some(limit)) => recorder.pass_first(&mut open.live, limit, true).err(),
        (None, None, None) => recorder.pass(&mut open.live, &Turn::default()).err(),
        // What is still in the rings has nowhere to go, but it counts.
        (Some(error), ..) => {
            recorder.drop_rest(&mut open.live);
            Some(error)
        }
    };
    tell_gaps(open, &mut recorder);
    (recorder, error)
}

/// What keeps events in memory until a span is too slow, if one is waited for.
fn flight(args: &Args) -> Result<Option<Flight>, Failure> {
    if args.trigger.is_empty() {
        return Ok(None);
    }
    let triggers = args.trigger.iter().map(|text| TriggerText::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let available = known::available(&args.target, args.spans_file.as_deref())?;
    Ok(Some(Flight::new(Watched::new(&triggers, &available)?, args.before, args.after)))
}

/// What a flight recorder thinks worth keeping.
struct Kept<'a>(&'a mut Recorder);

impl Recording for Kept<'_> {
    fn hit(&mut self, registry: &Registry, hit: Hit<'_>) -> Result<(), Error> {
        self.0.hit(registry, hit)
    }

    fn loss(&mut self, loss: &Loss) -> Result<(), Error> {
        self.0.loss(loss)
    }

    fn damaged(&mut self, n: u64) {
        self.0.tally.n_malformed += n;
    }
}

fn tell_triggered(flight: &Flight) {
    let (n_spans, max) = (flight.watched().n_spans(), answers::duration(flight.watched().max_ns()));
    match flight.n_slow {
        0 if n_spans == 0 => tell!("nopal: the trigger was never reached: no such span has ended"),
        0 => tell!(
            "nopal: the trigger was never reached: of {} the slowest took {max}",
            words::counted(n_spans, "span")
        ),
        n => tell!("{n} of {} were too slow, the slowest took {max}", words::counted(n_spans, "span")),
    }
    if flight.n_dropped() > 0 {
        tell!(
            "nopal: {} were forgotten before --before was over, as there was no room for more",
            words::counted(flight.n_dropped(), "event")
        );
    }
}

/// Gives the recorder what the streams cannot tell.
fn tell_gaps(open: &mut Open, recorder: &mut Recorder) {
    for (ns, text) in open.new_gaps() {
        recorder.gap(ns, &text);
    }
    recorder.set_late(open.n_late());
    recorder.contexts.tasks.learn(&open.live.tasks);
}

/// A line on the terminal that says how it goes.
struct Status {
    is_shown: bool,
    start: Instant,
    last: Instant,
    n_events_before: u64,
}

impl Status {
    fn new(is_json: bool, start: Instant) -> Status {
        Status {
            is_shown: !is_json && std::io::stderr().is_terminal(),
            start,
            last: start,
            n_events_before: 0,
        }
    }

    fn show(&mut self, recorder: &Recorder) {
        let since = self.last.elapsed();
        if !self.is_shown || since < STATUS {
            return;
        }
        let rate = (recorder.tally.n_events - self.n_events_before) as f64 / since.as_secs_f64();
        self.last = Instant::now();
        self.n_events_before = recorder.tally.n_events;
        anstream::eprint!(
            "\r\x1b[K{:.0} s  {} events  {rate:.0} events/s  {}  {} lost",
            self.start.elapsed().as_secs_f64(),
            recorder.tally.n_events,
            bytes_in_words(recorder.bytes_written()),
            recorder.tally.n_lost
        );
    }

    fn clear(&self) {
        if self.is_shown {
            anstream::eprint!("\r\x1b[K");
        }
    }
}

fn info(args: &Args, dir: &Path) -> RecordingInfo {
    let text = |value: &str| EnvValue::Text(value.to_owned());
    let mut info = RecordingInfo::of_this_host()
        .env("nopal_version", text(env!("CARGO_PKG_VERSION")))
        .env(MAX_STRING, EnvValue::Number(i128::from(args.target.max_string)));
    // What LTTng calls so is the name of the session; here the folder is all that has one.
    if let Some(name) = dir.file_name() {
        info = info.env("trace_name", text(&name.to_string_lossy()));
    }
    info.version = match args.ctf {
        Ctf::One => Version::Ctf1,
        Ctf::Two => Version::Ctf2,
    };
    if let Some(pid) = args.target.processes.pids.first() {
        info = info.env("pid", EnvValue::Number(i128::from(*pid)));
        if let Ok(process) = nopal_proc::Process::read(*pid) {
            info = info.env("program", text(&process.name));
        }
    } else if let Some(program) = args.target.command.first() {
        info = info.env("program", text(&program.to_string_lossy()));
    }
    info
}

fn default_dir() -> PathBuf {
    let now = nopal_trace::clock::monotonic_ns() as i64 + nopal_trace::clock::monotonic_to_epoch_ns();
    let stamp = text_of(now, ClockText::Date, false);
    // `2026-11-15 15:30:19.123` becomes `20261115-153019`.
    let digits: String = stamp.chars().filter(char::is_ascii_digit).take(14).collect();
    let (date, time) = digits.split_at(digits.len().min(8));
    let name = format!("nopal-{date}-{time}");
    // Another of the same second.
    let others = (2..100).map(|n| PathBuf::from(format!("{name}-{n}")));
    let mut names = std::iter::once(PathBuf::from(&name)).chain(others);
    names.find(|dir| dir.symlink_metadata().is_err()).unwrap_or_else(|| PathBuf::from(name))
}

fn exists(dir: &Path) -> Failure {
    Failure::new("recording-exists", format!("{} already holds a recording", dir.display()))
        .hint("choose another folder with -o; nothing was overwritten")
}

fn recording_failure(error: &Error, dir: &Path) -> Failure {
    match error {
        Error::Exists { .. } => exists(dir),
        error if error.is_disk_full() => Failure::new("disk-full", format!("the disk is full: {error}"))
            .hint(format!("what was written before is whole: nopal view {}", dir.display())),
        error => Failure::new("recording", error.to_string()),
    }
}
