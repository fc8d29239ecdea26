//! The options that the tracing verbs share, and the way from them to open sites.

use crate::failure::{Failure, failure_of};
use crate::open::Open;
use crate::processes::ProcessArgs;
use crate::reading::provider_file;
use crate::signals;
use crate::words::{counted, duration, ring_size, string_size};
use nopal_live::STACK_BYTES;
use nopal_live::context::ContextField;
use nopal_live::plan::Limits;
use nopal_live::registry::{Choice, SpanRoles};
use nopal_live::{Door, Live, LiveError, NotKeptHere, Opened, Options, Request, Way, attach_when_free};
use nopal_proc::possible_cpus;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Which processes, which door, how much.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    pub processes: ProcessArgs,
    /// Only the named processes, not their descendants.
    #[arg(long)]
    pub only: bool,
    /// user: about 20 ns a hit, needs the right to ptrace; kernel: about 500 ns, needs root; auto: what each site allows.
    #[arg(long, value_enum, default_value_t = DoorArg::Auto)]
    pub door: DoorArg,
    /// Lets the user door move up to five bytes of instructions where a site allows nothing else. Risk: an address inside
    /// them that the program holds elsewhere than on the last 64 KiB of its threads' stacks (a jump buffer, a signal far
    /// below) is not seen and would crash it; other tracers see nothing in such a page (4 KiB) of code while nopal is there.
    #[arg(long)]
    pub relocate: bool,
    /// Longest string or byte string to keep of an argument, 1 to 8k.
    #[arg(long, value_name = "SIZE", default_value = "256", value_parser = string_size)]
    pub max_string: u64,
    /// Ring size for each CPU, 64k to 1G, rounded up to a power of two; without it 1M to 16M, the more the fewer CPUs.
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub buffer_size: Option<u64>,
    /// Adds two fields to every event, trace_id and span_id: what the thread works on, as SDKs of OpenTelemetry publish it
    /// (OTEP 4947). Read by the user door; empty where there is nothing to read.
    #[arg(long)]
    pub otel: bool,
    /// What stands in front of each event's own fields, where a verb asks for it.
    #[arg(skip)]
    pub contexts: Vec<ContextField>,
    /// A `.d` file that names the arguments of probes; may be given several times.
    #[arg(long = "provider", value_name = "FILE.d")]
    pub providers: Vec<PathBuf>,
    /// Says how each site was opened, and why not otherwise.
    #[arg(short, long)]
    pub verbose: bool,
    /// Ends after this long: `10s`, `500ms`, `2m`.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Starts this command and traces it from its first instruction on.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DoorArg {
    #[default]
    Auto,
    User,
    Kernel,
}

impl From<DoorArg> for Door {
    fn from(door: DoorArg) -> Door {
        match door {
            DoorArg::Auto => Door::Auto,
            DoorArg::User => Door::User,
            DoorArg::Kernel => Door::Kernel,
        }
    }
}

impl TargetArgs {
    /// Finds the processes that are not named by their numbers. To be called once, before anything else.
    pub(crate) fn resolve(&mut self) -> Result<(), Failure> {
        self.processes.resolve(self.only)
    }

    pub(crate) fn request(&self, probes: &[String]) -> Result<Request, Failure> {
        if self.processes.is_empty() && self.command.is_empty() {
            return Err(Failure::usage("no process named")
                .hint("add -p PID or -n NAME for a running program, or -- COMMAND to start one; `nopal list -u` shows programs with probes"));
        }
        if !self.processes.is_empty() && !self.command.is_empty() {
            return Err(Failure::usage("-p, -n and the like cannot be combined with -- COMMAND")
                .hint("trace the running program with -p or -n, or start another with --"));
        }
        if self.otel && self.door == DoorArg::Kernel {
            return Err(Failure::usage("--otel cannot be combined with --door kernel")
                .hint("the thread context of OpenTelemetry is read by the user door: leave out --door"));
        }
        let given = self.providers.iter().map(|path| provider_file(path)).collect::<Result<Vec<_>, _>>()?;
        let ring_bytes = self.buffer_size.unwrap_or_else(default_ring_bytes).next_power_of_two();
        Ok(Request {
            choices: probes.iter().map(|text| Choice::parse(text)).collect(),
            given,
            limits: Limits {
                max_string_bytes: self.max_string as u32,
                stack_bytes: if self.contexts.contains(&ContextField::Ustack) { STACK_BYTES } else { 0 },
                has_thread_context: self.otel,
            },
            options: Options {
                without_children: self.only,
                can_relocate: self.relocate,
                ..Options::new(self.door.into(), ring_bytes)
            },
            spans: None,
            without_arguments: HashSet::new(),
        })
    }

    /// Opens the probes in every process named.
    pub(crate) fn open(&self, probes: &[String]) -> Result<Open, Failure> {
        self.open_for(self.request(probes)?)
    }

    /// The same; of some probes, by provider and name, the arguments are not read.
    pub(crate) fn open_without(
        &self,
        probes: &[String],
        without_arguments: HashSet<(String, String)>,
    ) -> Result<Open, Failure> {
        self.open_for(Request { without_arguments, ..self.request(probes)? })
    }

    /// The same with spans that the user door keeps at the source, if it opens all their sites.
    pub(crate) fn open_keeping(
        &self,
        probes: &[String],
        spans: SpanRoles,
    ) -> Result<Result<Open, NotKeptHere>, Failure> {
        let mut request = Request { spans: Some(spans), ..self.request(probes)? };
        request.options.needs_user_door = true;
        let mut open = match self.try_open(request) {
            Ok(open) => open,
            Err(LiveError::NotKept(why)) => return Ok(Err(why)),
            Err(error) => return Err(failure_of(&error)),
        };
        let undecidable = open.live.registry().undecidable();
        if let Some((field, probe)) = undecidable {
            open.close();
            return Ok(Err(NotKeptHere::Field { field, probe }));
        }
        let is_elsewhere = |site: &&Opened| matches!(site.way, Way::Kernel { .. });
        let elsewhere = open.opened.iter().find(is_elsewhere).map(|site| site.probe.clone());
        Ok(match elsewhere {
            Some(probe) => {
                open.close();
                Err(NotKeptHere::Site(probe))
            }
            None => Ok(open),
        })
    }

    fn open_for(&self, request: Request) -> Result<Open, Failure> {
        self.try_open(request).map_err(|e| failure_of(&e))
    }

    fn try_open(&self, request: Request) -> Result<Open, LiveError> {
        let mut live = Live::new(request)?;
        live.registry().keep_for(&self.contexts);
        let mut opened = Vec::new();
        for pid in &self.processes.pids {
            opened.extend(attach_when_free(&mut live, *pid, signals::is_stopped)?);
        }
        if !self.processes.pids.is_empty() {
            live.unfit().map_or_else(|| live.check_opened(&opened), |unfit| Err(LiveError::Unfit(unfit)))?;
        }
        if self.otel {
            self.tell_of_contexts(&opened);
        }
        let child = match self.command.split_first() {
            Some((program, arguments)) => {
                let (child, sites) = live.launch(Command::new(program).args(arguments))?;
                opened.extend(sites);
                Some(child)
            }
            None => None,
        };
        Ok(Open::new(live, opened, child, self.processes.clone(), self.verbose))
    }

    /// What will be without ids, and why.
    fn tell_of_contexts(&self, opened: &[Opened]) {
        for pid in &self.processes.pids {
            if let Err(why) = nopal_proc::thread_context::offset(*pid) {
                tell!("nopal: pid {pid}: {why}; trace_id and span_id are empty");
            }
        }
        let n_by_kernel = opened.iter().filter(|site| matches!(site.way, Way::Kernel { .. })).count();
        if n_by_kernel > 0 {
            let sites = counted(n_by_kernel as u64, "site");
            tell!("nopal: {sites} opened by the kernel door, whose events have no trace_id and span_id");
        }
    }
}

/// 16 MiB hold 80 ms of 5 million events a second; machines with many CPUs get less for each.
pub(crate) fn default_ring_bytes() -> u64 {
    const ALL_RINGS_BYTES: u64 = 64 << 20;
    let n_cpus = possible_cpus().map_or(1, u64::from);
    (ALL_RINGS_BYTES / n_cpus.max(1)).clamp(1 << 20, 16 << 20)
}
