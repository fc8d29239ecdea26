//! A script at work through either door.

use super::output::Out;
use super::{Args, failure_of, form, say};
use crate::failure::Failure;
use crate::open::announce_if;
use crate::signals;
use crate::target_args::{self, DoorArg};
use nopal_kernel::script::{ScriptError, State};
use nopal_live::{Door, LiveError, NotByKernel, Way};
use nopal_proc::capability::Capability;
use nopal_proc::launch::HeldCommand;
use nopal_program::Program;
use nopal_run::kernel::KernelRun;
use nopal_run::user::{UserOptions, UserRun};
use nopal_run::{Measured, Note, Performer, RunError, Step, is_function, user_door_obstacle};
use nopal_trace::Verdict;
use nopal_trace::clock::monotonic_ns;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The least a ring may have; nothing goes through it where only the kernel tells of hits.
const MIN_RING_BYTES: u64 = 64 << 10;

/// Where a script runs.
#[derive(Debug)]
pub(super) enum Running {
    User(Box<UserRun>),
    Kernel(Box<KernelRun>),
}

impl Running {
    /// Runs BEGIN here and opens the sites by the user door; those it refuses make it the kernel's, if that is allowed.
    pub(super) fn by_user(
        args: &Args,
        given: Vec<nopal_provider::File>,
        program: Arc<Program>,
        held: Option<HeldCommand>,
        out: &Arc<Mutex<Out>>,
    ) -> Result<Running, Failure> {
        let options = UserOptions {
            given: given.clone(),
            form: form(args),
            without_children: args.only,
            can_relocate: args.relocate,
            ring_bytes: args.buffer_size.unwrap_or_else(target_args::default_ring_bytes).next_power_of_two(),
            door: args.door.into(),
        };
        let mut run = UserRun::new(Arc::clone(&program), options).map_err(|e| failure_of(&e))?;
        run.performer.drain = Some(Out::drains(out));
        run.begin();
        if run.performer.is_over() {
            return Ok(Running::User(Box::new(run)));
        }
        let mut opened = Ok(());
        for pid in &args.processes.pids {
            opened = opened.and_then(|()| run.attach(*pid, signals::is_stopped));
        }
        let is_held = held.is_some();
        if opened.is_ok()
            && let Some((program, arguments)) = args.command.split_first()
        {
            opened = match held {
                Some(held) => run.launch(held),
                None => run.launch(Command::new(program).args(arguments)),
            };
        }
        let points = || program.clauses.iter().flat_map(|clause| &clause.points);
        let has_functions = points().any(|point| is_function(&point.kind));
        let closed = |way: &Way| match way {
            Way::Closed(why) => Some(why.to_string()),
            Way::User(_) | Way::Kernel { .. } => None,
        };
        let refusal = match &opened {
            Err(error) => Some(failure_of(error).message),
            // Of functions by pattern the other door opens no more than it has opened here.
            Ok(()) if has_functions && run.opened().iter().any(|o| closed(&o.way).is_none()) => None,
            Ok(()) => run.opened().iter().find_map(|o| closed(&o.way)),
        };
        let is_started = !args.command.is_empty() && opened.is_ok();
        if let Some(why) = &refusal
            && args.door == DoorArg::Auto
            && !is_started
            && !is_held
            && let Ok(kernel) = Running::by_kernel(args, given, program, None, out)
        {
            say(args, &format!("door: kernel, after all: {why}"));
            return Ok(kernel);
        }
        opened.map_err(|e| failure_of(&e))?;
        let n_open = run.opened().iter().filter(|o| closed(&o.way).is_none()).count();
        if let Some(why) = refusal
            && n_open == 0
        {
            let failure = Failure::new("closed", format!("no site could be opened: {why}"));
            return Err(match args.door {
                DoorArg::Kernel => failure.hint("`nopal doctor` says what the kernel allows"),
                DoorArg::User | DoorArg::Auto => {
                    failure.hint("--door kernel opens every site, and needs root")
                }
            });
        }
        announce_if(args.verbose, run.opened());
        Ok(Running::User(Box::new(run)))
    }

    /// Runs the script in the kernel.
    pub(super) fn by_kernel(
        args: &Args,
        given: Vec<nopal_provider::File>,
        program: Arc<Program>,
        held: Option<HeldCommand>,
        out: &Arc<Mutex<Out>>,
    ) -> Result<Running, Failure> {
        let mut run = match open_kernel(args, given.clone(), Arc::clone(&program)) {
            Ok(run) => run,
            Err(RunError::Kernel(error @ ScriptError::NotPermitted { .. })) => {
                return Running::by_tracefs(args, given, program, held, out, &error.cause());
            }
            Err(error) => return Err(failure_of(&error)),
        };
        let result = attach_kernel(args, &mut run, held);
        result.map_err(|e| failure_of(&e))?;
        let is_refused = |state: &State| matches!(state, State::Refused { .. });
        if !run.attached().is_empty() && run.attached().iter().all(|a| is_refused(&a.state)) {
            let why = run.attached().iter().find_map(|a| match &a.state {
                State::Refused { why } => Some(why.to_string()),
                State::Armed { .. } | State::Waiting { .. } => None,
            });
            return Err(kernel_failure(&why.unwrap_or_default()));
        }
        Ok(Running::Kernel(Box::new(run)))
    }

    /// Runs the script here, on what tracefs tells, since eBPF is not permitted for the reason given.
    fn by_tracefs(
        args: &Args,
        given: Vec<nopal_provider::File>,
        program: Arc<Program>,
        held: Option<HeldCommand>,
        out: &Arc<Mutex<Out>>,
        reason: &str,
    ) -> Result<Running, Failure> {
        if let Some(obstacle) = user_door_obstacle(&program) {
            let why = format!("{reason}; tracefs, which is left, cannot do this: {obstacle}");
            return Err(kernel_failure(&why));
        }
        if args.all_processes {
            return Err(kernel_failure(&format!(
                "{reason}; tracefs, which is left, is for named processes here"
            )));
        }
        let options = UserOptions {
            given,
            form: form(args),
            without_children: args.only,
            can_relocate: false,
            ring_bytes: MIN_RING_BYTES,
            door: Door::Kernel,
        };
        let mut run = UserRun::new(program, options).map_err(|e| failure_of(&e))?;
        run.performer.drain = Some(Out::drains(out));
        run.begin();
        let mut opened = Ok(());
        if !run.performer.is_over() {
            for pid in &args.processes.pids {
                opened = opened.and_then(|()| run.attach(*pid, signals::is_stopped));
            }
            opened = opened.and_then(|()| match (held, args.command.split_first()) {
                (Some(held), _) => run.launch(held),
                (None, Some((program, arguments))) => run.launch(Command::new(program).args(arguments)),
                (None, None) => Ok(()),
            });
        }
        match opened {
            Ok(()) => {}
            Err(RunError::Live(LiveError::Kernel(_))) => return Err(kernel_failure(reason)),
            Err(error) => return Err(failure_of(&error)),
        }
        let is_open = |way: &Way| !matches!(way, Way::Closed(_));
        if let Some(Way::Closed(why)) = run.opened().first().map(|o| &o.way)
            && !run.opened().iter().any(|o| is_open(&o.way))
        {
            let cause = match &why.kernel {
                Some(NotByKernel::Door(error)) => error.cause(),
                Some(other) => other.to_string(),
                None => why.to_string(),
            };
            return Err(kernel_failure(&cause));
        }
        announce_if(args.verbose, run.opened());
        Ok(Running::User(Box::new(run)))
    }

    pub(super) fn performer(&mut self) -> &mut Performer {
        match self {
            Running::User(run) => &mut run.performer,
            Running::Kernel(run) => &mut run.performer,
        }
    }

    pub(super) fn step(&mut self) -> Step {
        match self {
            Running::User(run) => run.step(),
            Running::Kernel(run) => run.step(),
        }
    }

    /// At most `most`, and not beyond what is due next.
    pub(super) fn time_to_next(&self, most: Duration) -> Duration {
        match self {
            Running::User(run) => match run.next_due_ns() {
                Some(due) => most.min(Duration::from_nanos(due.saturating_sub(monotonic_ns()))),
                None => most,
            },
            Running::Kernel(_) => most,
        }
    }

    /// Gaps always, the rest with -v.
    pub(super) fn say_notes(&mut self, args: &Args) {
        let notes = match self {
            Running::User(run) => run.take_notes(),
            Running::Kernel(run) => run.take_notes(),
        };
        for note in notes {
            match note {
                Note::Gap(text) if args.manner.is_bpftrace => tell!("WARNING: {text}"),
                Note::Gap(text) => tell!("nopal: {text}"),
                Note::Detail(text) => say(args, &format!("nopal: {text}")),
            }
        }
    }

    /// Whether no hit has left anything in a map, was sent, or had anything printed.
    pub(super) fn was_silent(&mut self) -> bool {
        let n_sent = match self {
            Running::User(run) => run.n_hits,
            Running::Kernel(_) => 0,
        };
        if n_sent > 0 || self.performer().has_written {
            return false;
        }
        let rows = [b"[", &self.rows()[..], b"]"].concat();
        let rows: Vec<serde_json::Value> = serde_json::from_slice(&rows).unwrap_or_default();
        rows.iter().all(|row| row["value"] == 0)
    }

    /// What could not be restored.
    pub(super) fn finish(&mut self) -> Result<Vec<String>, Failure> {
        match self {
            Running::User(run) => Ok(run.finish()),
            Running::Kernel(run) => run.finish().map(|()| Vec::new()).map_err(|e| failure_of(&e)),
        }
    }

    /// Ends the command that was started for the script, if it still runs.
    pub(super) fn end_command(&mut self) {
        match self {
            Running::User(run) => run.end_command(),
            Running::Kernel(run) => run.end_command(),
        }
    }

    pub(super) fn print_maps(&mut self) {
        match self {
            Running::User(run) => run.print_maps(),
            Running::Kernel(run) => run.print_maps(),
        }
    }

    /// Runs the clauses for a signal that was sent to us.
    pub(super) fn signalled(&mut self) -> Result<(), Failure> {
        match self {
            Running::User(run) => run.signalled(),
            Running::Kernel(run) => run.signalled().map_err(|e| failure_of(&e))?,
        }
        Ok(())
    }

    /// Measures the clauses that ask for it.
    pub(super) fn bench(&mut self) -> Result<Vec<Measured>, Failure> {
        match self {
            Running::User(run) => Ok(run.bench()),
            Running::Kernel(_) => Err(Failure::new(
                "bench",
                "a script is measured where the tracer runs it, and something in this one needs the kernel",
            )
            .hint("-v says what; leave it out")),
        }
    }

    pub(super) fn rows(&mut self) -> Vec<u8> {
        match self {
            Running::User(run) => run.rows(),
            Running::Kernel(run) => run.rows(),
        }
    }

    /// Names of probes that were to come later, and have not come.
    pub(super) fn never_came(&self) -> Vec<String> {
        match self {
            Running::User(run) => run.never_came(),
            Running::Kernel(run) => run.never_came(),
        }
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self {
            Running::User(run) => run.verdict(),
            Running::Kernel(run) => run.verdict(),
        }
    }
}

/// The instructions of the script. They are made for the sites there are, so it is attached for a moment.
pub(super) fn listing(
    args: &Args,
    given: Vec<nopal_provider::File>,
    program: Arc<Program>,
) -> Result<String, Failure> {
    let mut run = open_kernel(args, given, program).map_err(|e| failure_of(&e))?;
    let mut attach = || {
        run.begin()?;
        run.attach_events()?;
        args.processes.pids.iter().try_for_each(|pid| run.attach(*pid))?;
        if args.processes.pids.is_empty() { run.attach_files() } else { Ok(()) }
    };
    attach().map_err(|e: RunError| failure_of(&e))?;
    Ok(run.listing())
}

/// Loads the script; nothing is attached yet.
fn open_kernel(
    args: &Args,
    given: Vec<nopal_provider::File>,
    program: Arc<Program>,
) -> Result<KernelRun, RunError> {
    KernelRun::new(program, given, form(args), kernel_ring_bytes(args), args.only)
}

fn kernel_ring_bytes(args: &Args) -> u64 {
    args.buffer_size.unwrap_or(16 << 20).next_power_of_two()
}

fn attach_kernel(args: &Args, run: &mut KernelRun, held: Option<HeldCommand>) -> Result<(), RunError> {
    run.begin()?;
    if run.performer.is_over() {
        return Ok(());
    }
    run.attach_events()?;
    if args.all_processes {
        run.attach_files()?;
    }
    for pid in &args.processes.pids {
        run.attach(*pid)?;
    }
    match (held, args.command.split_first()) {
        (Some(held), _) => run.launch(held),
        (None, Some((program, arguments))) => run.launch(Command::new(program).args(arguments)),
        (None, None) => Ok(()),
    }
}

/// What the kernel refused, and which right is missing if one is.
pub(super) fn kernel_failure(why: &str) -> Failure {
    let missing = missing_capabilities();
    if missing.is_empty() {
        return Failure::new("kernel-door", format!("the kernel door does not open: {why}"));
    }
    let message =
        format!("the kernel door does not open: {why}; this process lacks {}", missing.join(" and "));
    Failure::new("not-permitted", message)
        .hint("run as root, or give nopal these capabilities; --door user needs none for your own processes")
}

/// Of those the kernel door needs; CAP_SYS_ADMIN stands for all of them.
fn missing_capabilities() -> Vec<&'static str> {
    const NEEDED: [(Capability, &str); 2] =
        [(Capability::Bpf, "CAP_BPF"), (Capability::Perfmon, "CAP_PERFMON")];
    if Capability::SysAdmin.is_held() {
        return Vec::new();
    }
    NEEDED.iter().filter(|(needed, _)| !needed.is_held()).map(|(_, name)| *name).collect()
}
