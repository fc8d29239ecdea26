//! `-- CMD`: starts a program and holds it before any of its constructors run, so that its sites can be opened, by
//! whichever door.
//!
//! The child is held at its exec. A dynamic program then runs until the loader says for the first time that all libraries
//! are in place (`_dl_debug_state` with `RT_CONSISTENT`): thread-local storage and rseq are there, no constructor has
//! run. A static one is entered where it stands, and asked for its threads' facts again later. Should the tracer be
//! killed meanwhile, the kernel kills the child, which has not begun to do anything.

use crate::auxv::Auxv;
use crate::objects::mapped_objects;
use crate::ptrace::{self, Stop, in_own_thread};
use object::{Object as _, ObjectSymbol as _};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
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

/// Why a command is not running.
#[derive(Debug)]
pub enum LaunchError {
    NotStarted {
        command: String,
        reason: String,
    },
    /// The kernel does not let us hold it.
    NotPermitted {
        pid: i32,
        source: io::Error,
    },
    Is32Bit {
        pid: i32,
    },
    /// It ended before its first constructor.
    Ended {
        pid: i32,
    },
    /// It has not reached its first constructor in all this time.
    Stuck {
        pid: i32,
    },
    /// What it has is not what it was started for; nothing of it has run.
    Declined {
        pid: i32,
    },
    Io {
        pid: i32,
        what: &'static str,
        source: io::Error,
    },
}

impl LaunchError {
    fn not_started(command: &str, reason: &io::Error) -> LaunchError {
        LaunchError::NotStarted { command: command.to_owned(), reason: reason.to_string() }
    }

    fn on(pid: i32, what: &'static str) -> impl FnOnce(io::Error) -> LaunchError {
        move |source| match source.raw_os_error() {
            Some(libc::ESRCH) => LaunchError::Ended { pid },
            _ => LaunchError::Io { pid, what, source },
        }
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LaunchError::NotStarted { command, reason } => write!(f, "cannot start `{command}`: {reason}"),
            LaunchError::NotPermitted { pid, source } => {
                write!(f, "not allowed to hold process {pid} while it starts: {source}")
            }
            LaunchError::Is32Bit { pid } => {
                write!(f, "process {pid} is a 32-bit program; only 64-bit ones can be traced")
            }
            LaunchError::Ended { pid } => write!(f, "process {pid} ended before its program began"),
            LaunchError::Stuck { pid } => {
                write!(f, "process {pid} did not load its libraries within {} s", PATIENCE.as_secs())
            }
            LaunchError::Declined { pid } => write!(f, "process {pid} was not let begin"),
            LaunchError::Io { pid, what, source } => write!(f, "{what} (process {pid}): {source}"),
        }
    }
}

impl std::error::Error for LaunchError {}

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
    rest: Option<(File, JoinHandle<io::Result<Child>>)>,
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
    pub fn new(mut command: Command) -> Result<HeldCommand, LaunchError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let Gate { mut pid_from, go, child_ends } =
            Gate::before(&mut command).map_err(|e| LaunchError::not_started(&name, &e))?;
        let spawned = std::thread::spawn(move || {
            let spawned = command.spawn();
            drop(child_ends);
            spawned
        });
        let mut bytes = [0u8; 4];
        if let Err(error) = pid_from.read_exact(&mut bytes) {
            let reason = match spawned.join() {
                Ok(Err(reason)) => reason,
                Ok(Ok(_)) | Err(_) => error,
            };
            return Err(LaunchError::not_started(&name, &reason));
        }
        Ok(HeldCommand { name, pid: i32::from_le_bytes(bytes), rest: Some((go, spawned)) })
    }

    pub fn pid(&self) -> u32 {
        self.pid as u32
    }
}

/// Where a child waits between fork and exec.
struct Gate {
    pid_from: File,
    go: File,
    /// To be kept until the child is there.
    child_ends: (File, File),
}

impl Gate {
    /// The command's process tells its number, then waits until something is written to `go`; it ends if that is closed.
    fn before(command: &mut Command) -> io::Result<Gate> {
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
                    return Err(io::Error::last_os_error());
                }
                match libc::read(from, go.as_mut_ptr().cast(), 1) {
                    1 => Ok(()),
                    // Nobody wants it any more, or there is nobody.
                    0 => libc::_exit(0),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        Ok(Gate { pid_from, go, child_ends: (pid_to, go_from) })
    }
}

/// Starts a command and holds it when its libraries are in place and none of its constructors has run. `while_held` runs
/// then, in the thread that traces it. If that fails, the command is ended where it stands.
pub fn launch<'a, T: Send, E: From<LaunchError> + Send>(
    starting: impl Into<Starting<'a>>,
    while_held: impl FnOnce(i32) -> Result<T, E> + Send,
) -> Result<(Child, T), E> {
    let starting = starting.into();
    let work = move || match starting {
        Starting::Command(command) => start(command, while_held),
        Starting::HeldCommand(mut held) => {
            let (go, spawned) = held.rest.take().expect("only starting and dropping take it");
            go_on(&held.name, Ok(held.pid), go, || spawned.join(), while_held)
        }
    };
    in_own_thread(work)
}

/// Holds a process of somebody else's, which is about to start another program, at the first instruction of that one, and
/// does `work` meanwhile. `let_go` lets it go on to its exec. It runs on untraced, also if the tracer is killed.
pub fn hold_at_exec<T: Send>(
    pid: i32,
    let_go: impl FnOnce() + Send,
    work: impl FnOnce() -> T + Send,
) -> Result<T, LaunchError> {
    in_own_thread(move || {
        let seized = ptrace::seize(pid, libc::PTRACE_O_TRACEEXEC);
        let_go();
        seized.map_err(|source| LaunchError::NotPermitted { pid, source })?;
        // Its exec may fail; then it is let go where it is when this thread ends.
        wait_for(pid, EXEC_PATIENCE, |stop| stop == Stop::Event(libc::PTRACE_EVENT_EXEC))?;
        leave_exec(pid)?;
        let done = work();
        let _ = ptrace::detach(pid, 0);
        Ok(done)
    })
}

fn start<T, E: From<LaunchError>>(
    command: &mut Command,
    while_held: impl FnOnce(i32) -> Result<T, E>,
) -> Result<(Child, T), E> {
    let name = command.get_program().to_string_lossy().into_owned();
    let Gate { mut pid_from, go, child_ends } =
        Gate::before(command).map_err(|e| LaunchError::not_started(&name, &e))?;
    std::thread::scope(|scope| {
        // Returns only when the child has passed its exec, hence a thread of its own.
        let spawned = scope.spawn(|| {
            let spawned = command.spawn();
            drop(child_ends);
            spawned
        });
        let mut bytes = [0u8; 4];
        let pid = pid_from.read_exact(&mut bytes).map(|()| i32::from_le_bytes(bytes));
        go_on(&name, pid, go, || spawned.join(), while_held)
    })
}

/// Lets the child at its gate go on to its exec, and holds it there.
fn go_on<T, E: From<LaunchError>>(
    name: &str,
    pid: io::Result<i32>,
    mut go: File,
    join: impl FnOnce() -> std::thread::Result<io::Result<Child>>,
    while_held: impl FnOnce(i32) -> Result<T, E>,
) -> Result<(Child, T), E> {
    let failed = |e: io::Error| LaunchError::not_started(name, &e);
    let held = pid.map_err(failed).and_then(|pid| {
        ptrace::seize(pid, libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL)
            .map_err(|source| LaunchError::NotPermitted { pid, source })?;
        Ok(pid)
    });
    // The child goes on in any case, if only to end.
    let _ = go.write_all(&[1]);
    drop(go);
    let pid = match held {
        Ok(pid) => pid,
        // What kept the child from being there says more than that it is not.
        Err(error) => {
            return Err(join().ok().and_then(|spawned| spawned.err()).map_or(error, failed).into());
        }
    };
    let at_exec = wait_for(pid, PATIENCE, |stop| stop == Stop::Event(libc::PTRACE_EVENT_EXEC));
    let mut child = match join() {
        Ok(Ok(child)) => child,
        Ok(Err(error)) => return Err(failed(error).into()),
        Err(panic) => std::panic::resume_unwind(panic),
    };
    at_exec?;
    let outcome = run_to_first_constructor(pid).map_err(E::from).and_then(|()| while_held(pid));
    match outcome {
        Ok(result) => {
            // Untraced from here on; the command was asked for and runs.
            let _ = ptrace::detach(pid, 0);
            Ok((child, result))
        }
        Err(error) => {
            // It does not run one instruction more.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// The stop at exec is inside the call, whose return would overwrite a register; the next one is behind it.
fn leave_exec(pid: i32) -> Result<(), LaunchError> {
    ptrace::interrupt(pid).map_err(LaunchError::on(pid, "interrupt"))?;
    ptrace::resume(pid, 0).map_err(LaunchError::on(pid, "resume"))?;
    wait_for(pid, PATIENCE, |stop| stop == Stop::Interrupted)
}

fn run_to_first_constructor(pid: i32) -> Result<(), LaunchError> {
    if is_32_bit(pid) {
        return Err(LaunchError::Is32Bit { pid });
    }
    leave_exec(pid)?;
    let auxv = Auxv::read(pid as u32).map_err(LaunchError::on(pid, "read the auxiliary vector"))?;
    let loader = auxv.ok_or(LaunchError::Ended { pid })?.loader_base;
    match loader_symbols(pid, loader) {
        Some((state_call, state_word)) if loader != 0 => run_to_consistent(pid, state_call, state_word),
        _ => Ok(()),
    }
}

fn is_32_bit(pid: i32) -> bool {
    let mut ident = [0u8; 5];
    let read = File::open(format!("/proc/{pid}/exe")).and_then(|mut exe| exe.read_exact(&mut ident));
    read.is_ok() && ident[4] == 1
}

/// Where the loader calls debuggers, and where it says what it is doing.
fn loader_symbols(pid: i32, base: u64) -> Option<(u64, Option<u64>)> {
    let objects = mapped_objects(pid as u32).ok()?;
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
fn run_to_consistent(pid: i32, call: u64, state: Option<u64>) -> Result<(), LaunchError> {
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(LaunchError::on(pid, "open its memory"))?;
    let set = |register: usize, value: u64| ptrace::poke_user(pid, DEBUG_REGISTERS + register * 8, value);
    if set(0, call).and_then(|()| set(7, BREAK_ON_EXECUTION)).is_err() {
        // No such breakpoint to be had: the program's own sites are opened now, its libraries' when they are seen.
        return Ok(());
    }
    loop {
        ptrace::resume(pid, 0).map_err(LaunchError::on(pid, "resume"))?;
        wait_for(pid, PATIENCE, |stop| stop == Stop::Signal(libc::SIGTRAP))?;
        let mut word = [0; 4];
        if let Some(at) = state {
            memory.read_exact_at(&mut word, at).map_err(LaunchError::on(pid, "read its memory"))?;
        }
        let is_there = ptrace::regs(pid).map_err(LaunchError::on(pid, "read registers"))?.rip == call;
        if is_there && word == [0; 4] {
            break;
        }
    }
    set(7, 0).map_err(LaunchError::on(pid, "remove the breakpoint"))?;
    set(0, 0).map_err(LaunchError::on(pid, "remove the breakpoint"))
}

/// Waits for one kind of stop; signals are delivered, other stops passed.
fn wait_for(pid: i32, patience: Duration, is_it: impl Fn(Stop) -> bool) -> Result<(), LaunchError> {
    let resume = |signal| ptrace::resume(pid, signal).map_err(LaunchError::on(pid, "resume"));
    loop {
        let stop = ptrace::wait_stop(pid, patience);
        match stop.map_err(LaunchError::on(pid, "wait for the program"))? {
            Some(stop) if is_it(stop) => return Ok(()),
            Some(Stop::Ended) => return Err(LaunchError::Ended { pid }),
            Some(Stop::Signal(signal)) => resume(signal)?,
            Some(_) => resume(0)?,
            None => return Err(LaunchError::Stuck { pid }),
        }
    }
}

fn pipe() -> io::Result<(File, File)> {
    let (read, write) = std::io::pipe()?;
    Ok((std::os::fd::OwnedFd::from(read).into(), std::os::fd::OwnedFd::from(write).into()))
}
