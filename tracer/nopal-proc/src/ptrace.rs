//! The ptrace requests the engine uses, and waiting for a stop with a bound. Raw calls; knows nothing of hijacking.
//!
//! ptrace binds a tracee to one *thread* of the tracer. All work on a target is therefore done in one short-lived
//! thread, and when that thread ends the kernel lets go of everything it still holds, stopped or not.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub type Regs = libc::user_regs_struct;

const PTRACE_GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
const PTRACE_EVENT_STOP: i32 = 128;
const NT_X86_XSTATE: usize = 0x202;

/// Does work on a target in a thread that ends with it, and with it all that it traces. Where there is no room for a
/// thread, the caller does it.
pub fn in_own_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = Mutex::new(Some(work));
    let take = || work.lock().unwrap_or_else(PoisonError::into_inner).take();
    let do_it = || take().map(|work| work());
    let done = std::thread::scope(|scope| match std::thread::Builder::new().spawn_scoped(scope, do_it) {
        Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        Err(_) => do_it(),
    });
    done.expect("work is taken once")
}

/// Why a traced thread stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// By our interrupt.
    Interrupted,
    /// By job control (SIGSTOP and its kin); the whole process is meant to stand still.
    Group(i32),
    /// On its way to deliver this signal.
    Signal(i32),
    /// By an event asked for when seizing, such as exec.
    Event(i32),
    Ended,
}

/// What a thread registered with `rseq(2)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct RseqConfig {
    pub address: u64,
    pub size: u32,
    pub signature: u32,
    pub flags: u32,
    pad: u32,
}

fn request(request: libc::c_uint, tid: i32, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: callers pass either plain numbers or addresses of live buffers of the size the request writes.
    let result = unsafe { libc::ptrace(request, tid, address, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub fn seize(tid: i32, options: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

pub fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0).map(drop)
}

/// Lets the thread, which is stopped, make calls that its filter forbids, for as long as it is traced.
pub fn suspend_seccomp(tid: i32) -> io::Result<()> {
    const PTRACE_O_SUSPEND_SECCOMP: usize = 1 << 21;
    request(libc::PTRACE_SETOPTIONS, tid, 0, PTRACE_O_SUSPEND_SECCOMP).map(drop)
}

/// Lets a stopped thread go on, delivering `signal` unless it is 0.
pub fn resume(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize).map(drop)
}

/// Leaves a thread that job control has stopped as it is, until it is told to go on.
pub fn listen(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0, 0).map(drop)
}

pub fn detach(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize).map(drop)
}

pub fn regs(tid: i32) -> io::Result<Regs> {
    let mut regs = MaybeUninit::<Regs>::zeroed();
    request(libc::PTRACE_GETREGS, tid, 0, regs.as_mut_ptr() as usize)?;
    // SAFETY: zero-initialised plain integers, filled by the kernel.
    Ok(unsafe { regs.assume_init() })
}

pub fn set_regs(tid: i32, regs: &Regs) -> io::Result<()> {
    request(libc::PTRACE_SETREGS, tid, 0, regs as *const Regs as usize).map(drop)
}

/// Writes a word of the kernel's `struct user`, such as a debug register.
pub fn poke_user(tid: i32, offset: usize, value: u64) -> io::Result<()> {
    request(libc::PTRACE_POKEUSER, tid, offset, value as usize).map(drop)
}

/// The thread's floating point and vector state in the XSAVE standard format.
pub fn xstate(tid: i32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; 32 * 1024];
    let mut iov = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    request(libc::PTRACE_GETREGSET, tid, NT_X86_XSTATE, &raw mut iov as usize)?;
    bytes.truncate(iov.iov_len);
    Ok(bytes)
}

pub fn signal_mask(tid: i32) -> io::Result<u64> {
    let mut mask = 0u64;
    request(libc::PTRACE_GETSIGMASK, tid, 8, &raw mut mask as usize)?;
    Ok(mask)
}

pub fn set_signal_mask(tid: i32, mask: u64) -> io::Result<()> {
    request(libc::PTRACE_SETSIGMASK, tid, 8, &raw const mask as usize).map(drop)
}

/// What the stopped thread registered with rseq; `None` if nothing.
pub fn rseq(tid: i32) -> io::Result<Option<RseqConfig>> {
    let mut config = RseqConfig { address: 0, size: 0, signature: 0, flags: 0, pad: 0 };
    match request(PTRACE_GET_RSEQ_CONFIGURATION, tid, size_of::<RseqConfig>(), &raw mut config as usize) {
        Ok(_) => Ok((config.address != 0).then_some(config)),
        // A kernel that does not know the request (before 5.13, or without rseq) has no way to tell.
        Err(e) if e.raw_os_error() == Some(libc::EIO) => Ok(None),
        Err(e) => Err(e),
    }
}

/// How long a thread that is to stop is looked at often.
const BRISK: Duration = Duration::from_millis(200);

/// Waits until the thread stops or ends; `None` if it does neither in time. A child's end is seen but not taken, so
/// that whoever started it can still wait for it.
pub fn wait_stop(tid: i32, patience: Duration) -> io::Result<Option<Stop>> {
    let begin = Instant::now();
    let mut pause = Duration::from_micros(20);
    loop {
        if let Some(stop) = poll_stop(tid)? {
            return Ok(Some(stop));
        }
        let waited = begin.elapsed();
        if waited >= patience {
            return Ok(None);
        }
        std::thread::sleep(pause);
        // A thread that has stopped stands still until we see it.
        let longest = if waited < BRISK { Duration::from_micros(200) } else { Duration::from_millis(2) };
        pause = (pause * 2).min(longest);
    }
}

/// As [`wait_stop`], without waiting.
pub fn poll_stop(tid: i32) -> io::Result<Option<Stop>> {
    let Some((code, status)) = peek(tid, libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT)? else {
        return Ok(None);
    };
    if code != libc::CLD_TRAPPED && code != libc::CLD_STOPPED {
        return Ok(Some(Stop::Ended));
    }
    // Take the stop, now that it is known to be one.
    peek(tid, libc::WSTOPPED)?;
    let (signal, event) = (status & 0x7f, status >> 8);
    Ok(Some(match event {
        0 => Stop::Signal(signal),
        PTRACE_EVENT_STOP if signal == libc::SIGTRAP => Stop::Interrupted,
        PTRACE_EVENT_STOP => Stop::Group(signal),
        other => Stop::Event(other),
    }))
}

/// The state change of `tid` as (si_code, si_status), if there is one.
fn peek(tid: i32, what: i32) -> io::Result<Option<(i32, i32)>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: info is large enough for the siginfo the kernel writes.
        let result = unsafe {
            libc::waitid(
                libc::P_PID,
                tid as libc::id_t,
                info.as_mut_ptr(),
                what | libc::WNOHANG | libc::__WALL,
            )
        };
        if result == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => continue,
            Some(libc::ECHILD) => return Ok(Some((libc::CLD_EXITED, 0))),
            _ => return Err(error),
        }
    }
    // SAFETY: zero-initialised; the kernel filled the SIGCHLD fields if a change was there.
    let info = unsafe { info.assume_init() };
    // SAFETY: si_pid and si_status are the SIGCHLD view that waitid writes; all zero if nothing changed.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    Ok((pid != 0).then_some((info.si_code, status)))
}
