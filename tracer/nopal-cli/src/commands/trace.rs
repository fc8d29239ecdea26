//! `nopal trace`: prints events as they come.

use super::answers::source::Status;
use crate::failure::Failure;
use crate::lines::{self, LineArg};
use crate::open::{announce, announcement};
use crate::rhythm;
use crate::say;
use crate::signals;
use crate::target_args::TargetArgs;
use crate::traps;
use crate::verdict::{self, Manner};
use crate::words;
use nopal_live::registry::Registry;
use nopal_live::remembered::make_room;
use nopal_live::tasks::Tasks;
use nopal_live::{Consumer, Hit, Live, Polled};
use nopal_trace::live::{LiveClass, LivePrinter, Seen};
use nopal_trace::{Look, RecordingInfo, TextForm, Verdict};
use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::time::Instant;

/// Prints each hit of probes with its arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal trace -p 1234 'memcached:command__*'              all commands of a running memcached
  nopal trace -n postgres 'postgresql:query__start'       every query, in all backends
  nopal trace --container web 'ruby:*'                    in all processes of a container
  nopal trace -p 1234 'memcached:command__get if keylen > 10 && size > 1k'
  nopal trace -p 1234 'function:libssl:SSL_read if retval < 0'      a function that fails
  nopal trace --limit 5 --json -p 1234 python:function__entry
  nopal trace 'ruby:method__entry' -- ruby script.rb      from the program's start on

Ctrl-C ends tracing and leaves the program as it was. The last line says `complete`, or how many events were lost.")]
pub(super) struct Args {
    /// `provider:name` or `function:FILE:NAME` with `*` and `?`, and a condition on its arguments after `if`.
    #[arg(value_name = "PROBE", required_unless_present = "events")]
    pub probes: Vec<String>,
    /// As `record` takes them.
    #[arg(short = 'e', long = "event", value_name = "PROBE", hide = true)]
    pub events: Vec<String>,
    #[command(flatten)]
    pub target: TargetArgs,
    /// Prints one JSON object a line, and the verdict as another on standard error.
    #[arg(long)]
    pub json: bool,
    /// What the lines look like; without it short on a terminal, as babeltrace2 prints them elsewhere.
    #[arg(long, value_enum, value_name = "FORM", conflicts_with = "json")]
    pub format: Option<LineArg>,
    /// With --json: says first which sites were opened, as an object on standard error. What fires afterwards is seen.
    #[arg(long, requires = "json")]
    pub announce: bool,
    /// With --json: integers above 2^53 as strings.
    #[arg(long, requires = "json")]
    pub json_strings: bool,
    /// Ends after this many events.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
}

pub(super) fn run(mut args: Args) -> Result<(), Failure> {
    let events = std::mem::take(&mut args.events);
    args.probes.extend(events);
    signals::stop_on_signals();
    args.target.resolve()?;
    nopal_kernel::leftovers::sweep();
    let mut open = args.target.open(&traps::with_companions(&args.probes, &args.target))?;
    if !args.json || args.target.verbose {
        announce(&open.opened, args.target.verbose);
    }
    if args.announce {
        anstream::eprintln!("{}", announcement(&open.opened));
    }
    let end = args.target.duration.map(|d| Instant::now() + d);
    let mut printing = Printing::new(&args);
    let mut verdict = Verdict::default();
    let ended = loop {
        open.look_after();
        let polled = printing.poll(&mut open.live, false)?;
        let n_hits = polled.n_hits;
        polled.count(&mut verdict);
        if signals::is_stopped() || printing.is_done() || end.is_some_and(|end| Instant::now() >= end) {
            break "";
        }
        if n_hits == 0 && open.is_over() {
            break "the program has ended; ";
        }
        rhythm::rest(n_hits);
    };
    let failures = open.close();
    printing.poll(&mut open.live, true)?.count(&mut verdict);
    verdict.n_cut = printing.n_truncated;
    verdict.n_malformed += printing.n_malformed;
    verdict.n_undecided = open.live.registry().take_undecided();
    let verdict = open.verdict(verdict);
    open.tell_what_goes_on();
    if args.json {
        let more = serde_json::json!({ "events": printing.n_printed });
        tell_json!(verdict::json_with(&verdict, more));
    } else {
        let remarks = verdict::remarks(&verdict, Some(args.target.max_string));
        remarks.iter().for_each(|line| tell!("{line}"));
        if printing.n_printed == 0 {
            traps::why_silent(&open).iter().for_each(|why| tell!("nopal: {why}"));
        }
        let how = verdict::text(&verdict, Manner::LIVE);
        tell!("{ended}{}, {how}", words::counted(printing.n_printed, "event"));
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

/// Prints events in the order of time.
struct Printing {
    printer: LivePrinter,
    /// Of processes, as they were last called; for short lines only.
    names: Option<HashMap<u32, String>>,
    /// By plan.
    classes: Vec<Option<LiveClass>>,
    tasks: Tasks,
    epoch_offset_ns: i64,
    limit: u64,
    n_printed: u64,
    n_truncated: u64,
    n_malformed: u64,
    is_closed: bool,
    /// Not beside a command of ours, which may have the terminal.
    status: Option<Status>,
    payload: Vec<u8>,
    out: Vec<u8>,
}

impl Printing {
    fn new(args: &Args) -> Printing {
        let host = RecordingInfo::of_this_host().hostname;
        let look = lines::look(args.format);
        Printing {
            printer: match args.json {
                true => LivePrinter::json(&host, args.json_strings),
                false => LivePrinter::text(&host, TextForm { look, ..TextForm::default() }),
            },
            names: matches!(look, Look::Short { .. }).then(HashMap::new),
            classes: Vec::new(),
            tasks: Tasks::default(),
            payload: Vec::new(),
            epoch_offset_ns: nopal_trace::clock::monotonic_to_epoch_ns(),
            limit: args.limit.unwrap_or(u64::MAX),
            n_printed: 0,
            n_truncated: 0,
            n_malformed: 0,
            is_closed: false,
            status: args.target.command.is_empty().then(Status::new),
            out: Vec::new(),
        }
    }

    fn is_done(&self) -> bool {
        self.n_printed >= self.limit || self.is_closed
    }

    /// Takes what is in the rings; prints what no later reading can come before.
    fn poll(&mut self, live: &mut Live, is_last: bool) -> Result<Polled, Failure> {
        self.tasks.learn(&live.tasks);
        self.out.clear();
        let polled = live.poll_by_time(is_last, self);
        if !self.out.is_empty() || is_last {
            say::clear_status();
        } else if let Some(status) = &mut self.status {
            let n = self.n_printed;
            status.show(|| format!("waiting; {} so far; Ctrl-C ends tracing", words::counted(n, "event")));
        }
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(&self.out).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(polled),
            // A reader that has seen enough, such as `head`, ends tracing.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(polled)
            }
            Err(error) => Err(Failure::new("output", format!("cannot print: {error}"))),
        }
    }
}

impl Consumer<Registry> for Printing {
    fn hit(&mut self, registry: &Registry, hit: &Hit<'_>) {
        if self.n_printed >= self.limit {
            return;
        }
        let event = &registry.events[hit.event as usize];
        for plan in &registry.plans[self.classes.len()..] {
            self.classes.push(LiveClass::new(&plan.event_type).ok());
        }
        self.payload.clear();
        let Ok(texts) = event.plan.pack(event.site_idx, hit.payload, &mut self.payload) else {
            self.n_malformed += 1;
            return;
        };
        self.n_truncated += u64::from(texts.n_truncated);
        let (inside, outside) = self.tasks.both(hit);
        if let Some(names) = &mut self.names
            && let Ok(process) = nopal_proc::Process::read(outside.pid)
        {
            // It may have another program since the last time, and have ended the next time.
            make_room(names, &outside.pid);
            names.insert(outside.pid, process.name);
        }
        let name = self.names.as_ref().and_then(|names| names.get(&outside.pid)).map(String::as_str);
        let seen = Seen {
            name,
            ns: hit.ns as i64 + self.epoch_offset_ns,
            cpu: hit.stream.cpu,
            pid: outside.pid,
            tid: outside.tid,
            own: (inside != outside).then_some((inside.pid, inside.tid)),
        };
        let Some(class) = &self.classes[event.plan_idx] else { return };
        // A payload of our own making fits its own type.
        if self.printer.print(class, seen, &self.payload, &mut self.out).is_ok() {
            self.n_printed += 1;
        }
    }
}
