//! `nopal trace`: prints events as they come.

use crate::failure::Failure;
use crate::tracing::{self, TargetArgs};
use nopal_capture::Task;
use nopal_session::live::{Live, Loss, Polled, StreamKind};
use nopal_session::recorder::widen;
use nopal_session::registry::Registry;
use nopal_trace::live::{LiveClass, LivePrinter, Seen};
use nopal_trace::{RecordingInfo, TextForm};
use std::io::{ErrorKind, Write};
use std::time::{Duration, Instant};

/// Prints each hit of probes with its arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal trace -p 1234 'memcached:command__*'              all commands of a running memcached
  nopal trace -p 1234 'postgresql:query__start'           every query, in all backends
  nopal trace -p 1234 'memcached:command__get if keylen > 10 && size > 1k'
  nopal trace --limit 5 --json -p 1234 python:function__entry
  nopal trace 'ruby:method__entry' -- ruby script.rb      from the program's start on

Ctrl-C ends tracing and leaves the program as it was. The last line says `complete`, or how many events were lost.")]
pub struct Args {
    /// `provider:name` with `*` and `?`, and a condition on its arguments after `if`.
    #[arg(value_name = "PROBE", required = true)]
    pub probes: Vec<String>,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Prints one JSON object a line, and the verdict as another on standard error.
    #[arg(long)]
    pub json: bool,
    /// With --json: integers above 2^53 as strings.
    #[arg(long, requires = "json")]
    pub json_strings: bool,
    /// Ends after this many events.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
}

/// How long to sleep when the rings were empty.
const IDLE: Duration = Duration::from_millis(10);

pub fn run(args: Args) -> Result<(), Failure> {
    tracing::stop_on_signals();
    let mut open = args.target.open(&args.probes)?;
    if !args.json {
        tracing::announce(&open.opened, args.target.verbose);
    }
    let end = args.target.duration.map(|d| Instant::now() + d);
    let mut printing = Printing::new(&args);
    let mut losses = Vec::new();
    let mut n_damaged = 0;
    let ended = loop {
        open.look_after();
        let polled = printing.poll(&mut open.live, false)?;
        let is_idle = polled.n_hits == 0;
        losses.extend(polled.losses);
        n_damaged += polled.n_damaged;
        if tracing::is_stopped() || printing.is_done() || end.is_some_and(|end| Instant::now() >= end) {
            break "";
        }
        if is_idle {
            if open.is_over() {
                break "the program has ended; ";
            }
            std::thread::sleep(IDLE);
        }
    };
    let failures = open.close();
    let polled = printing.poll(&mut open.live, true)?;
    losses.extend(polled.losses);
    let n_lost = losses.iter().map(|l: &Loss| l.count).sum::<u64>() + n_damaged + polled.n_damaged;
    let n_undecided = open.live.registry().take_undecided();
    if args.json {
        let result = serde_json::json!({
            "complete": open.is_complete(n_lost), "events": printing.n_printed, "lost": n_lost,
            "gaps": open.n_gaps(), "late_processes": open.n_late(), "undecided": n_undecided,
        });
        anstream::eprintln!("{result}");
    } else {
        let span = losses.iter().fold(None, |span, loss| Some(widen(span, loss)));
        let verdict = open.verdict(n_lost, span);
        tracing::say_cut(printing.n_truncated, args.target.max_string);
        let undecided = nopal_trace::Verdict { n_undecided, ..Default::default() };
        tracing::cuts_in_words(&undecided).iter().for_each(|line| anstream::eprintln!("{line}"));
        anstream::eprintln!("{ended}{}, {verdict}", tracing::counted(printing.n_printed, "event"));
    }
    if printing.n_printed == 0
        && let Some(failure) = open.never_fit()
    {
        return Err(failure);
    }
    match failures.first() {
        Some(failure) => Err(Failure::new("not-restored", format!("cannot close every site: {failure}"))
            .hint("`nopal detach -p PID` tries again")),
        None => Ok(()),
    }
}

struct Waiting {
    seen: Seen,
    plan_idx: usize,
    payload: Vec<u8>,
    is_by_kernel: bool,
}

/// Puts the events of all CPUs in the order of time and prints them.
struct Printing {
    printer: LivePrinter,
    /// By plan.
    classes: Vec<Option<LiveClass>>,
    waiting: Vec<Waiting>,
    epoch_offset_ns: i64,
    limit: u64,
    n_printed: u64,
    n_truncated: u64,
    is_closed: bool,
    out: Vec<u8>,
}

impl Printing {
    fn new(args: &Args) -> Printing {
        let host = RecordingInfo::of_this_host().hostname;
        Printing {
            printer: match args.json {
                true => LivePrinter::json(&host, args.json_strings),
                false => LivePrinter::text(&host, TextForm::default()),
            },
            classes: Vec::new(),
            waiting: Vec::new(),
            epoch_offset_ns: nopal_trace::clock::monotonic_to_epoch_ns(),
            limit: args.limit.unwrap_or(u64::MAX),
            n_printed: 0,
            n_truncated: 0,
            is_closed: false,
            out: Vec::new(),
        }
    }

    fn is_done(&self) -> bool {
        self.n_printed >= self.limit || self.is_closed
    }

    /// Takes what is in the rings; prints what no later reading can come before.
    fn poll(&mut self, live: &mut Live, is_last: bool) -> Result<Polled, Failure> {
        let start_ns = nopal_trace::clock::monotonic_ns() as i64 + self.epoch_offset_ns;
        let n_before = self.waiting.len();
        let polled = live.poll(|registry, hit| {
            let event = &registry.events[hit.event as usize];
            let mut payload = Vec::new();
            if let Ok(texts) = event.plan.pack(event.site_idx, hit.payload, &mut payload) {
                self.n_truncated += u64::from(texts.n_truncated);
                let seen = Seen {
                    ns: hit.ns as i64 + self.epoch_offset_ns,
                    cpu: hit.stream.cpu,
                    pid: hit.task.pid,
                    tid: hit.task.tid,
                    own: None,
                };
                let is_by_kernel = hit.stream.kind == StreamKind::Kernel;
                self.waiting.push(Waiting { seen, plan_idx: event.plan_idx, payload, is_by_kernel });
            }
        });
        if live.tasks.has_foreign() {
            for waiting in &mut self.waiting[n_before..] {
                let seen = &mut waiting.seen;
                let task = Task { tid: seen.tid, pid: seen.pid };
                // The kernel counts as we do.
                let (inside, outside) = match waiting.is_by_kernel {
                    true => (live.tasks.inside(task), task),
                    false => (task, live.tasks.translate(task)),
                };
                (seen.pid, seen.tid) = (outside.pid, outside.tid);
                seen.own = (inside != outside).then_some((inside.pid, inside.tid));
            }
        }
        self.waiting.sort_by_key(|w| w.seen.ns);
        let n_ready =
            if is_last { self.waiting.len() } else { self.waiting.partition_point(|w| w.seen.ns < start_ns) };
        self.prepare(&live.registry());
        self.print(n_ready)?;
        Ok(polled)
    }

    fn prepare(&mut self, registry: &Registry) {
        for plan in &registry.plans[self.classes.len()..] {
            self.classes.push(LiveClass::new(&plan.event_type).ok());
        }
    }

    fn print(&mut self, n_ready: usize) -> Result<(), Failure> {
        self.out.clear();
        for waiting in self.waiting.drain(..n_ready) {
            if self.n_printed >= self.limit {
                break;
            }
            let Some(class) = &self.classes[waiting.plan_idx] else { continue };
            // A payload of our own making fits its own type.
            if self.printer.print(class, waiting.seen, &waiting.payload, &mut self.out).is_ok() {
                self.n_printed += 1;
            }
        }
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(&self.out).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(()),
            // A reader that has seen enough, such as `head`, ends tracing.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            Err(error) => Err(Failure::new("output", format!("cannot print: {error}"))),
        }
    }
}
