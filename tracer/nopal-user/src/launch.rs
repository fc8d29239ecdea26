//! `-- CMD`: starts a program with its sites open before any of its constructors run.
//!
//! The child is held at its exec. A dynamic program then runs until the loader says for the first time that all libraries
//! are in place (`_dl_debug_state` with `RT_CONSISTENT`): thread-local storage and rseq are there, no constructor has
//! run. A static one is entered where it stands, and asked for its threads' facts again later. Should the tracer be
//! killed meanwhile, the kernel kills the child, which has not begun to do anything.

use super::core::Core;
use super::error::{Error, Result};
use super::inject::open_process;
use super::maps::code_mappings;
use super::memory::Memory;
use super::process;
use super::ptrace::{self, Stop};
use super::session::{ProcessReport, Session, SiteReport};
use super::stopped_thread::in_own_thread;
use super::traced::Traced;
use object::{Object as _, ObjectSymbol as _};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread::JoinHandle;
use std::time::Duration;

/// A program on a slow disk may take its time to be loaded.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long after it was let go a process of somebody else's may take to its exec.
const EXEC_PATIENCE: Duration = Duration::from_secs(2);
/// Offset of the debug registers in the kernel's `struct user`.
const DEBUG_REGISTERS: usize = std::mem::offset_of!(libc::user, u_debugreg);
/// Enables the first one, for execution of one byte.
const BREAK_ON_EXECUTION: u64 = 1;

/// A command to be started, or one that waits to be.
#[derive(Debug)]
pub enum Starting<'a> {
    Command(&'a mut Command),
    HeldCommand(HeldCommand),
}

impl<'a> From<&'a mut Command> for Starting<'a> {
    fn from(command: &'a mut Command) -> Starting<'a> {
        Starting::Command(command)
    }
}

impl From<HeldCommand> for Starting<'_> {
    fn from(held: HeldCommand) -> Self {
        Starting::HeldCommand(held)
    }
}

/// A command whose process exists and waits before its exec, so that its number is known before anything is opened. It ends
/// if this is dropped, or if the tracer does.
#[derive(Debug)]
pub struct HeldCommand {
    name: String,
    pid: i32,
    /// Taken when it is started.
    rest: Option<(std::fs::File, JoinHandle<std::io::Result<Child>>)>,
}

impl Drop for HeldCommand {
    fn drop(&mut self) {
        if let Some((go, spawned)) = self.rest.take() {
            drop(go);
            if let Ok(Ok(mut child)) = spawned.join() {
                let _ = child.wait();
            }
        }
    }
}

impl HeldCommand {
    pub fn new(mut command: Command) -> Result<HeldCommand> {
        let name = command.get_program().to_string_lossy().into_owned();
        let failed = |reason: String| Error::Launch { command: name.clone(), reason };
        let Gate { mut pid_from, go, child_ends } =
            Gate::before(&mut command).map_err(|e| failed(e.to_string()))?;
        let spawned = std::thread::spawn(move || {
            let spawned = command.spawn();
            drop(child_ends);
            spawned
        });
        let mut bytes = [0u8; 4];
        if let Err(error) = pid_from.read_exact(&mut bytes) {
            let reason = match spawned.join() {
                Ok(Err(error)) => error.to_string(),
                Ok(Ok(_)) | Err(_) => error.to_string(),
            };
            return Err(failed(reason));
        }
        Ok(HeldCommand { name, pid: i32::from_le_bytes(bytes), rest: Some((go, spawned)) })
    }

    pub fn pid(&self) -> u32 {
        self.pid as u32
    }
}

/// Where a child waits between fork and exec.
struct Gate {
    pid_from: std::fs::File,
    go: std::fs::File,
    /// To be kept until the child is there.
    child_ends: (std::fs::File, std::fs::File),
}

impl Gate {
    /// The command's process tells its number, then waits until something is written to `go`; it ends if that is closed.
    fn before(command: &mut Command) -> std::io::Result<Gate> {
        let (pid_from, pid_to) = pipe()?;
        let (go_from, go) = pipe()?;
        let (to, from, own_copy) = (pid_to.as_raw_fd(), go_from.as_raw_fd(), go.as_raw_fd());
        // SAFETY: between fork and exec only getpid, close, write, read and _exit are called, which are async-signal-safe.
        unsafe {
            command.pre_exec(move || {
                let pid = libc::getpid().to_le_bytes();
                let mut go = [0u8; 1];
                libc::close(own_copy);
                if libc::write(to, pid.as_ptr().cast(), 4) != 4 {
                    return Err(std::io::Error::last_os_error());
                }
                match libc::read(from, go.as_mut_ptr().cast(), 1) {
                    1 => Ok(()),
                    // Nobody wants it any more, or there is nobody.
                    0 => libc::_exit(0),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        Ok(Gate { pid_from, go, child_ends: (pid_to, go_from) })
    }
}

impl Session {
    /// Starts the command and opens its wanted sites before its constructors run.
    pub fn launch(&mut self, command: &mut Command) -> Result<(Child, Vec<ProcessReport>)> {
        self.launch_with(command, |_, _| ())
    }

    /// Opens the wanted sites of a process that [`hold_at_exec`] holds; to be called from what that does meanwhile.
    pub fn open_held(&mut self, pid: i32) -> Result<ProcessReport> {
        self.rings().set_enabled(!self.is_paused);
        let traced = open_at_start(&mut self.core, pid)?;
        if !self.is_only {
            self.strangers.follow(pid as u32);
        }
        self.roots.push(pid);
        Ok(self.keep(traced, code_mappings(pid)))
    }

    /// The same; `before_start` may do more to the process, by its pid and what became of its sites, while it is held.
    pub fn launch_with<'a>(
        &mut self,
        starting: impl Into<Starting<'a>>,
        before_start: impl FnOnce(i32, &[SiteReport]) + Send,
    ) -> Result<(Child, Vec<ProcessReport>)> {
        self.rings().set_enabled(!self.is_paused);
        let (core, strangers, starting) = (&mut self.core, &mut self.strangers, starting.into());
        let is_only = self.is_only;
        let before_start = move |pid: i32, sites: &[SiteReport]| {
            if !is_only {
                strangers.follow(pid as u32);
            }
            before_start(pid, sites);
        };
        let (child, traced) = in_own_thread(move || match starting {
            Starting::Command(command) => start(core, command, before_start),
            Starting::HeldCommand(mut held) => {
                let (go, spawned) = held.rest.take().expect("only starting and dropping take it");
                go_on(core, &held.name, Ok(held.pid), go, || spawned.join(), before_start)
            }
        })?;
        self.roots.push(child.id() as i32);
        let seen = code_mappings(traced.pid);
        let report = self.keep(traced, seen);
        Ok((child, vec![report]))
    }
}

fn start(
    core: &mut Core,
    command: &mut Command,
    before_start: impl FnOnce(i32, &[SiteReport]),
) -> Result<(Child, Traced)> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |e: std::io::Error| Error::Launch { command: name.clone(), reason: e.to_string() };
    let Gate { mut pid_from, go, child_ends } = Gate::before(command).map_err(failed)?;
    std::thread::scope(|scope| {
        // Returns only when the child has passed its exec, hence a thread of its own.
        let spawned = scope.spawn(|| {
            let spawned = command.spawn();
            drop(child_ends);
            spawned
        });
        let mut bytes = [0u8; 4];
        let pid = pid_from.read_exact(&mut bytes).map(|()| i32::from_le_bytes(bytes));
        go_on(core, &name, pid, go, || spawned.join(), before_start)
    })
}

/// Lets the child at its gate go on to its exec, and opens its sites there.
fn go_on(
    core: &mut Core,
    name: &str,
    pid: std::io::Result<i32>,
    mut go: std::fs::File,
    join: impl FnOnce() -> std::thread::Result<std::io::Result<Child>>,
    before_start: impl FnOnce(i32, &[SiteReport]),
) -> Result<(Child, Traced)> {
    let failed = |e: std::io::Error| Error::Launch { command: name.to_owned(), reason: e.to_string() };
    let held = pid.map_err(failed).and_then(|pid| {
        ptrace::seize(pid, libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL)
            .map_err(|_| process::why_not_allowed(pid))?;
        Ok(pid)
    });
    // The child goes on in any case, if only to end.
    let _ = go.write_all(&[1]);
    drop(go);
    let pid = match held {
        Ok(pid) => pid,
        // What kept the child from being there says more than that it is not.
        Err(error) => return Err(join().ok().and_then(|spawned| spawned.err()).map_or(error, failed)),
    };
    let at_exec = wait_for(pid, PATIENCE, |stop| stop == Stop::Event(libc::PTRACE_EVENT_EXEC));
    let child = match join() {
        Ok(Ok(child)) => child,
        Ok(Err(error)) => return Err(failed(error)),
        Err(panic) => std::panic::resume_unwind(panic),
    };
    at_exec?;
    let outcome = arm(core, pid);
    if let Ok(traced) = &outcome {
        before_start(pid, &super::libraries::of_probes(&traced.reports));
    }
    // Untraced from here on, whatever came of it; the command was asked for and runs.
    let _ = ptrace::detach(pid, 0);
    match outcome {
        Ok(traced) => Ok((child, traced)),
        Err(error) => {
            let mut child = child;
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// Holds a process of somebody else's, which is about to start another program, at the first instruction of that one, and
/// does `work` meanwhile. `let_go` lets it go on to its exec. It runs on untraced, also if the tracer is killed.
pub fn hold_at_exec<T: Send>(
    pid: i32,
    let_go: impl FnOnce() + Send,
    work: impl FnOnce() -> T + Send,
) -> Result<T> {
    in_own_thread(move || {
        let seized = ptrace::seize(pid, libc::PTRACE_O_TRACEEXEC).map_err(|_| process::why_not_allowed(pid));
        let_go();
        seized?;
        // Its exec may fail; then it is let go where it is when this thread ends.
        wait_for(pid, EXEC_PATIENCE, |stop| stop == Stop::Event(libc::PTRACE_EVENT_EXEC))?;
        leave_exec(pid)?;
        let done = work();
        let _ = ptrace::detach(pid, 0);
        Ok(done)
    })
}

/// The stop at exec is inside the call, whose return would overwrite a register; the next one is behind it.
fn leave_exec(pid: i32) -> Result<()> {
    ptrace::interrupt(pid).map_err(Error::on(pid, "interrupt"))?;
    ptrace::resume(pid, 0).map_err(Error::on(pid, "resume"))?;
    wait_for(pid, PATIENCE, |stop| stop == Stop::Interrupted)
}

fn arm(core: &mut Core, pid: i32) -> Result<Traced> {
    leave_exec(pid)?;
    let loader = process::auxv(pid)?.loader_base;
    if loader != 0
        && let Some((state_call, state_word)) = loader_symbols(pid, loader)
    {
        run_to_consistent(pid, state_call, state_word)?;
    }
    open_at_start(core, pid)
}

/// Opens the sites of a process that stands somewhere before its first constructor.
fn open_at_start(core: &mut Core, pid: i32) -> Result<Traced> {
    process::check_startable(pid)?;
    let mut objects = core.wanted_in(pid)?;
    if objects.is_empty() {
        // What it loads later may have what is wanted.
        let mapped = nopal_proc::mapped_objects(pid as u32).unwrap_or_default();
        objects.extend(core.loaders.wanted_in(pid, &mapped));
    }
    if objects.is_empty() {
        return Ok(Traced::new(pid, Memory::open(pid)?, Vec::new(), Vec::new(), None));
    }
    let mut traced = open_process(core, pid, objects, true)?;
    traced.is_early = ptrace::regs(pid).map_err(Error::on(pid, "read registers"))?.fs_base == 0;
    Ok(traced)
}

/// Where the loader calls debuggers, and where it says what it is doing.
fn loader_symbols(pid: i32, base: u64) -> Option<(u64, Option<u64>)> {
    let objects = nopal_proc::mapped_objects(pid as u32).ok()?;
    let loader = objects.into_iter().find(|o| o.mappings.iter().any(|m| m.contains(base)))?;
    let image = loader.open().ok()?;
    let file = object::File::parse(image.bytes()).ok()?;
    let symbol = |name: &str| {
        let found = file.dynamic_symbols().find(|s| s.name() == Ok(name) && s.address() != 0);
        found.map(|s| base.wrapping_add(s.address()))
    };
    // r_state is the fourth word of r_debug: version, list, call, state.
    Some((symbol("_dl_debug_state")?, symbol("_r_debug").map(|at| at + 24)))
}

/// Lets the child run until the loader has everything in place, with a breakpoint of the CPU, not one in the code.
fn run_to_consistent(pid: i32, call: u64, state: Option<u64>) -> Result<()> {
    let memory = Memory::open(pid)?;
    let set = |register: usize, value: u64| ptrace::poke_user(pid, DEBUG_REGISTERS + register * 8, value);
    if set(0, call).and_then(|()| set(7, BREAK_ON_EXECUTION)).is_err() {
        // No such breakpoint to be had: the program's own sites are opened now, its libraries' when they are seen.
        return Ok(());
    }
    loop {
        ptrace::resume(pid, 0).map_err(Error::on(pid, "resume"))?;
        wait_for(pid, PATIENCE, |stop| stop == Stop::Signal(libc::SIGTRAP))?;
        let is_consistent = match state {
            Some(at) => memory.read_vec(at, 4)? == [0; 4],
            None => true,
        };
        let is_there = ptrace::regs(pid).map_err(Error::on(pid, "read registers"))?.rip == call;
        if is_there && is_consistent {
            break;
        }
    }
    set(7, 0).map_err(Error::on(pid, "remove the breakpoint"))?;
    set(0, 0).map_err(Error::on(pid, "remove the breakpoint"))
}

/// Waits for one kind of stop; signals are delivered, other stops passed.
fn wait_for(pid: i32, patience: Duration, is_it: impl Fn(Stop) -> bool) -> Result<()> {
    loop {
        match ptrace::wait_stop(pid, patience).map_err(Error::on(pid, "wait for the program"))? {
            Some(stop) if is_it(stop) => return Ok(()),
            Some(Stop::Ended) => return Err(Error::Gone { pid }),
            Some(Stop::Signal(signal)) => ptrace::resume(pid, signal).map_err(Error::on(pid, "resume"))?,
            Some(_) => ptrace::resume(pid, 0).map_err(Error::on(pid, "resume"))?,
            None => return Err(Error::NoSafeThread { pid, reason: "it does not start".into() }),
        }
    }
}

fn pipe() -> std::io::Result<(std::fs::File, std::fs::File)> {
    let (read, write) = std::io::pipe()?;
    Ok((std::os::fd::OwnedFd::from(read).into(), std::os::fd::OwnedFd::from(write).into()))
}
