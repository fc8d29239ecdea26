//! Borrows a stopped thread of the target to make system calls in it.
//!
//! The thread can always find its own way back: everything it had lies in a signal frame below its red zone
//! ([`super::frame`]), and whatever code it is sent to ends in `rt_sigreturn`. If the tracer is killed at any moment,
//! the thread finishes that code and goes on where it was. While the tracer lives it does better than `rt_sigreturn`:
//! it stops the thread again after the code is done and gives back the very registers it had, so that the kernel's own
//! restart of an interrupted call is kept (`rt_sigreturn` would turn a sleep into EINTR).
//!
//! All signals are blocked meanwhile and stay pending; the kernel delivers them when the mask is given back.

use super::call_code::{CALL_LIST, SINGLE_CALL};
use super::entry::{self, EntryCode};
use super::error::{Error, Result};
use super::frame::Frame;
use super::go_stack;
use super::maps::Maps;
use super::memory::Memory;
use super::neighbourhood::spaces_in;
use super::process::{self, Activity};
use super::stop_watch;
use super::stopped_thread::{StoppedThread, is_runnable};
use nopal_abi::stub_space::StubSpace;
use nopal_proc::Mapping;
use nopal_proc::ptrace::{self, Regs, Stop};
use std::mem::offset_of;
use std::ops::Range as Span;
use std::time::{Duration, Instant};

const ON_ITS_WAY_BACK: &str = "a thread is still on its way back from an earlier tracer";
/// The first word of a list. While it is in progress nobody else may write there: if its tracer was killed, the thread
/// still works on it.
pub const LIST_IN_PROGRESS: u64 = 2;
const LIST_DONE: u64 = 1;
/// Not an address, not an errno, not a count: what a result word holds until the call is done.
const PENDING: u64 = 0x8000_0bad_0000_c0de;
/// Rounds of `pause` after the work is done, some 0.1 to 0.6 s; then the thread goes back by itself. Only a thread whose
/// tracer was killed or stopped ever waits that long.
const SPIN_ROUNDS: u64 = 8_000_000;
/// The same for a thread that shall not run before all is done: 1 to 6 s.
const HELD_SPIN_ROUNDS: u64 = 80_000_000;
/// The same for a thread that the kernel ends together with its tracer: 2^32, which are minutes.
const MOST_SPIN_ROUNDS: u64 = 0;
const PATIENCE: Duration = Duration::from_secs(5);
/// The same for a thread that gets no CPU, from when the other is over.
const STARVED_PATIENCE: Duration = Duration::from_secs(15);

/// A system call to be made in the target.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub name: &'static str,
    pub number: i64,
    pub args: [u64; 6],
}

impl Call {
    pub fn new(name: &'static str, number: i64, args: [u64; 6]) -> Call {
        Call { name, number, args }
    }
}

/// A borrowed thread. Dropping it gives the thread back as it was.
#[derive(Debug)]
pub struct Hijack<'a> {
    held: StoppedThread,
    memory: &'a Memory,
    taken: Option<Taken>,
    /// Borrowed for the first calls in a process.
    entry: Option<EntryCode>,
    /// Call names that this stop made return EINTR.
    pub interrupted: Option<&'static str>,
    /// The address space as it was last seen, so that the thread need not wait until it is read.
    maps: Maps,
    spin_rounds: u64,
    /// Whether the thread went back by itself, as we were slow, and has run on since.
    pub has_run_on: bool,
}

/// What a thread was before it was sent into our code.
#[derive(Debug)]
struct Taken {
    original: Regs,
    signal_mask: u64,
    stack_pointer: u64,
    scratch: u64,
    /// The code it was last sent to.
    code: Span<u64>,
    is_entered: bool,
}

impl<'a> Hijack<'a> {
    /// Stops the most suitable thread of the process and prepares it. Nothing but stack below its red zone is written.
    pub fn choose(memory: &'a Memory, only: Option<i32>) -> Result<Hijack<'a>> {
        let pid = memory.pid();
        let mut reasons: Vec<String> = Vec::new();
        let end = Instant::now() + PATIENCE;
        let mut round = 0;
        let mut maps = Maps::read(pid)?;
        // Three rounds, and more as long as threads are on their way back from a killed tracer.
        while round < 3 || (Instant::now() < end && reasons.iter().any(|r| r == ON_ITS_WAY_BACK)) {
            let mut candidates: Vec<(Activity, i32)> = process::threads(pid)?
                .into_iter()
                .filter(|tid| only.is_none_or(|t| t == *tid))
                .map(|tid| (process::activity(pid, tid), tid))
                .collect();
            candidates.sort_unstable();
            for (_, tid) in candidates.into_iter().take(64) {
                let interrupted = process::interrupted_call(pid, tid);
                let Some(held) = StoppedThread::stop(pid, tid)? else { continue };
                match Hijack::prepare(held, memory, maps.clone()) {
                    Ok(mut hijack) => {
                        hijack.interrupted = interrupted;
                        return Ok(hijack);
                    }
                    Err(Error::NoSafeThread { reason, .. }) => {
                        if !reasons.contains(&reason) {
                            reasons.push(reason);
                        }
                    }
                    Err(e) => return Err(e),
                }
            }
            std::thread::sleep(Duration::from_millis(5 << round.min(3)));
            maps = Maps::read(pid)?;
            round += 1;
        }
        if reasons.is_empty() {
            reasons.push("none of them stops".into());
        }
        Err(Error::NoSafeThread { pid, reason: reasons.join("; ") })
    }

    /// Prepares a thread that is already held, in an address space that was seen as `maps`.
    pub fn prepare(held: StoppedThread, memory: &'a Memory, maps: Maps) -> Result<Hijack<'a>> {
        let is_kept = held.is_kept;
        let mut hijack = Hijack {
            held,
            memory,
            taken: None,
            entry: None,
            interrupted: None,
            maps,
            spin_rounds: if is_kept { HELD_SPIN_ROUNDS } else { SPIN_ROUNDS },
            has_run_on: false,
        };
        hijack.take()?;
        Ok(hijack)
    }

    /// Has the thread wait for us however slow we are: it ends if we do.
    pub fn wait_for_us(&mut self) {
        self.spin_rounds = MOST_SPIN_ROUNDS;
    }

    pub fn tid(&self) -> i32 {
        self.held.tid
    }

    /// The address space has been read again.
    pub fn learn_maps(&mut self, maps: &Maps) {
        self.maps.clone_from(maps);
    }

    /// Writable memory on the thread's own stack for arguments of single calls, some 900 bytes.
    pub fn scratch(&mut self) -> Result<u64> {
        self.ensure_taken()?;
        Ok(self.taken.as_ref().map_or(0, |t| t.scratch + 64))
    }

    /// The registers the thread will have when it goes on.
    pub fn original(&self) -> Option<&Regs> {
        self.taken.as_ref().map(|t| &t.original)
    }

    fn take(&mut self) -> Result<()> {
        let (pid, tid) = (self.held.pid, self.held.tid);
        let unsafe_thread = |reason: &str| Error::NoSafeThread { pid, reason: reason.into() };
        let mut original = ptrace::regs(tid).map_err(Error::on(pid, "read registers"))?;
        if original.cs != 0x33 {
            return Err(unsafe_thread("it runs 32-bit code"));
        }
        if self.is_in_our_code(original.rip)? {
            return Err(unsafe_thread(ON_ITS_WAY_BACK));
        }
        self.leave_critical_section(&mut original)?;
        let signal_mask = ptrace::signal_mask(tid).map_err(Error::on(pid, "read the signal mask"))?;
        let xstate = ptrace::xstate(tid).map_err(Error::on(pid, "read the vector state"))?;
        let frame = Frame::new(&original, &xstate, signal_mask)
            .ok_or_else(|| unsafe_thread("its vector state has an unknown form"))?;
        // A stack that has come or grown since is looked for once more.
        if check_stack(&self.maps, &original, frame.scratch).is_err() {
            self.maps = Maps::read(pid)?;
            let outcome = check_stack(&self.maps, &original, frame.scratch);
            if let Err(reason) = outcome
                && !go_stack::has_room(self.memory, &self.maps, &original, frame.scratch)
            {
                return Err(unsafe_thread(reason));
            }
        }
        self.memory.write(frame.address, &frame.bytes)?;
        self.taken = Some(Taken {
            original,
            signal_mask,
            stack_pointer: frame.stack_pointer,
            scratch: frame.scratch,
            code: 0..0,
            is_entered: false,
        });
        Ok(())
    }

    /// Whether a killed tracer had sent the thread where it is. It must go back by itself first: borrowed anew, it would
    /// return to bytes that may have been put back by then.
    fn is_in_our_code(&self, rip: u64) -> Result<bool> {
        // A program that is just being started stands at its entry in its own right.
        if entry::is_in(self.memory, rip) {
            return Ok(true);
        }
        for space in spaces_in(&self.maps).iter().filter(|r| (r.start..r.end).contains(&rip)) {
            let mut offset = [0; 4];
            self.memory.read(space.start + offset_of!(StubSpace, code_offset) as u64, &mut offset)?;
            let code = space.start + u64::from(u32::from_le_bytes(offset));
            if (code..=code + CALL_LIST.len() as u64).contains(&rip) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A thread stopped inside a restartable sequence must not be continued in the middle of it: the kernel would have
    /// sent it to the abort handler, had it seen the thread there, and we do the same.
    fn leave_critical_section(&self, regs: &mut Regs) -> Result<()> {
        let pid = self.held.pid;
        let Some(config) = ptrace::rseq(self.held.tid).map_err(Error::on(pid, "read the rseq area"))? else {
            return Ok(());
        };
        // At an exec the kernel still names the area of the program before, which is gone.
        let Ok(descriptor) = self.memory.read_u64(config.address + 8) else { return Ok(()) };
        if descriptor == 0 || regs.fs_base == 0 {
            return Ok(());
        }
        // A descriptor that cannot be read would get the thread killed by the kernel; it is not ours to judge.
        let Ok(bytes) = self.memory.read_vec(descriptor, 32) else { return Ok(()) };
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes of 32"));
        let (start, length, abort) = (word(8), word(16), word(24));
        if regs.rip.wrapping_sub(start) < length {
            regs.rip = abort;
        }
        Ok(())
    }

    /// Makes one call with the code of [`SINGLE_CALL`] in dead bytes of the program.
    pub fn single(&mut self, call: Call) -> Result<i64> {
        self.ensure_taken()?;
        let code = match &self.entry {
            Some(entry) => entry.address,
            None => self.entry.insert(EntryCode::borrow(self.memory)?).address,
        };
        let result_at = self.taken.as_ref().expect("taken above").scratch;
        self.memory.write_u64(result_at, PENDING)?;
        let [rdi, rsi, rdx, r10, r8, r9] = call.args;
        self.send(code..code + SINGLE_CALL.len() as u64, |regs| {
            regs.rax = call.number as u64;
            (regs.rdi, regs.rsi, regs.rdx, regs.r10, regs.r8, regs.r9) = (rdi, rsi, rdx, r10, r8, r9);
            regs.r12 = result_at;
        })?;
        self.finish_code(|memory| Ok(memory.read_u64(result_at)? != PENDING), call.name)?;
        if self.taken.is_none() {
            // The thread runs again, and what lies below its red zone means nothing any more.
            return Err(Error::TooSlow { pid: self.held.pid });
        }
        Ok(self.memory.read_u64(result_at)? as i64)
    }

    /// As [`Hijack::single`], with a failed call as an error.
    pub fn must(&mut self, call: Call) -> Result<u64> {
        let result = self.single(call)?;
        check(self.held.pid, call.name, result)
    }

    /// Makes a list of calls with the code of [`CALL_LIST`] at `code`; the list is put at `desk`, and at `flag` whether it is
    /// done: both the target and we can write there. Returns each call's result.
    pub fn list(&mut self, code: u64, flag: u64, desk: u64, calls: &[Call]) -> Result<Vec<i64>> {
        if calls.is_empty() {
            return Ok(Vec::new());
        }
        self.ensure_taken()?;
        let mut bytes = Vec::with_capacity(calls.len() * 64);
        for call in calls {
            bytes.extend_from_slice(&call.number.to_le_bytes());
            call.args.iter().for_each(|a| bytes.extend_from_slice(&a.to_le_bytes()));
            bytes.extend_from_slice(&PENDING.to_le_bytes());
        }
        self.memory.write_u64(flag, LIST_IN_PROGRESS)?;
        self.memory.write(desk, &bytes)?;
        self.send(code..code + CALL_LIST.len() as u64, |regs| {
            regs.rbx = desk;
            regs.rbp = calls.len() as u64;
            regs.r12 = flag;
        })?;
        if let Err(error) =
            self.finish_code(|memory| Ok(memory.read_u64(flag)? == LIST_DONE), "make a list of calls")
        {
            // The thread is stopped and will not go on with the list.
            let _ = self.memory.write_u64(flag, LIST_DONE);
            return Err(error);
        }
        // The thread is in the list's code now, or back in its own.
        self.give_back_entry()?;
        let done = self.memory.read_vec(desk, calls.len() * 64)?;
        Ok(done
            .chunks_exact(64)
            .map(|entry| i64::from_le_bytes(entry[56..64].try_into().expect("the last of eight words")))
            .collect())
    }

    /// The thread may have gone back by itself when we were slow; then it is taken anew from where it is now.
    fn ensure_taken(&mut self) -> Result<()> {
        if self.taken.is_none() { self.take() } else { Ok(()) }
    }

    fn send(&mut self, code: Span<u64>, set: impl FnOnce(&mut Regs)) -> Result<()> {
        let (pid, tid) = (self.held.pid, self.held.tid);
        let taken = self.taken.as_mut().expect("taken by the caller");
        let mut regs = taken.original;
        regs.rip = code.start;
        regs.rsp = taken.stack_pointer;
        regs.orig_rax = u64::MAX;
        regs.eflags = 0x202;
        regs.r13 = self.spin_rounds;
        set(&mut regs);
        // Registers first: were the mask first and we killed in between, the thread would keep it.
        ptrace::set_regs(tid, &regs).map_err(Error::on(pid, "set registers"))?;
        taken.code = code;
        if !taken.is_entered {
            taken.is_entered = true;
            ptrace::set_signal_mask(tid, u64::MAX).map_err(Error::on(pid, "block signals"))?;
        }
        ptrace::resume(tid, 0).map_err(Error::on(pid, "resume"))
    }

    /// Waits until the code says it is done, then stops the thread again.
    fn finish_code(&mut self, is_done: impl Fn(&Memory) -> Result<bool>, what: &'static str) -> Result<()> {
        let (pid, tid) = (self.held.pid, self.held.tid);
        let end = Instant::now() + PATIENCE;
        let mut is_stopped = false;
        let mut pause = Duration::from_micros(2);
        let outcome = loop {
            match is_done(self.memory) {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                Err(e) => break Err(e),
            }
            match ptrace::poll_stop(tid).map_err(Error::on(pid, "wait for a thread"))? {
                None => {}
                Some(Stop::Ended) => return Err(Error::Gone { pid }),
                Some(Stop::Signal(signal)) => {
                    ptrace::resume(tid, signal).map_err(Error::on(pid, "resume"))?
                }
                Some(_) => ptrace::resume(tid, 0).map_err(Error::on(pid, "resume"))?,
            }
            let is_late = Instant::now() > end;
            if is_late && (Instant::now() > end + STARVED_PATIENCE || !is_runnable(pid, tid)) {
                // Stopping the thread interrupts the call, and the registers are then given back.
                break Err(Error::CallFailed { pid, call: what, errno: libc::ETIMEDOUT });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_micros(500));
        };
        // A stop may have come in just now; then there is nothing to interrupt.
        match ptrace::poll_stop(tid).map_err(Error::on(pid, "wait for a thread"))? {
            Some(Stop::Ended) => return Err(Error::Gone { pid }),
            Some(Stop::Interrupted | Stop::Group(_)) => is_stopped = true,
            Some(Stop::Signal(signal)) => {
                ptrace::interrupt(tid).map_err(Error::on(pid, "interrupt"))?;
                ptrace::resume(tid, signal).map_err(Error::on(pid, "resume"))?;
            }
            Some(Stop::Event(_)) | None => ptrace::interrupt(tid).map_err(Error::on(pid, "interrupt"))?,
        }
        if !is_stopped && !self.held.settle()? {
            return Err(Error::NoSafeThread {
                pid,
                reason: format!("thread {tid} did not stop after its work"),
            });
        }
        let rip = ptrace::regs(tid).map_err(Error::on(pid, "read registers"))?.rip;
        let taken = self.taken.as_ref().expect("taken by the caller");
        if !taken.code.contains(&rip) {
            self.taken = None;
            self.has_run_on = true;
        }
        outcome
    }

    /// Gives the thread back what it had, then the entry the bytes it had; in this order, so that no kill in between
    /// leaves a thread in bytes that are not ours. The thread stays held.
    pub fn restore(&mut self) -> Result<()> {
        self.restore_registers()?;
        self.give_back_entry()
    }

    /// Lets the thread run on as it was, until [`Hijack::stop_again`]; it stays traced, so that nobody else comes. False if
    /// it was stopped before we came: then it stays so.
    pub fn rest(&mut self) -> Result<bool> {
        if self.held.is_group_stopped || self.held.is_kept {
            return Ok(false);
        }
        self.restore()?;
        ptrace::resume(self.held.tid, 0).map_err(Error::on(self.held.pid, "let a thread go on"))?;
        self.held.since.take().into_iter().for_each(stop_watch::note);
        Ok(true)
    }

    /// Once dropped, the thread is traced no longer, also if it was before it was borrowed.
    pub fn let_go(&mut self) {
        self.held.is_lock = false;
    }

    /// Stops the thread again and prepares it. Fails if it has ended, or is where it cannot be borrowed.
    pub fn stop_again(&mut self) -> Result<()> {
        const TRIES: usize = 20;
        let pid = self.held.pid;
        let mut outcome = Ok(());
        for _ in 0..TRIES {
            ptrace::interrupt(self.held.tid).map_err(Error::on(pid, "interrupt"))?;
            if !self.held.settle()? {
                return Err(Error::NoSafeThread { pid, reason: "it waits in the kernel".to_owned() });
            }
            self.held.since = Some(Instant::now());
            outcome = self.take();
            if outcome.is_ok() {
                break;
            }
            self.held.since.take().into_iter().for_each(stop_watch::note);
            ptrace::resume(self.held.tid, 0).map_err(Error::on(pid, "let a thread go on"))?;
            std::thread::sleep(Duration::from_millis(1));
        }
        outcome
    }

    fn give_back_entry(&mut self) -> Result<()> {
        match self.entry.take() {
            Some(entry) => entry.give_back(self.memory, self.held.tid),
            None => Ok(()),
        }
    }

    fn restore_registers(&mut self) -> Result<()> {
        let Some(taken) = self.taken.take() else { return Ok(()) };
        if !taken.is_entered {
            return Ok(());
        }
        let (pid, tid) = (self.held.pid, self.held.tid);
        // The mask first, for the reason given in send: the signal frame has the same mask.
        ptrace::set_signal_mask(tid, taken.signal_mask)
            .map_err(Error::on(pid, "give back the signal mask"))?;
        ptrace::set_regs(tid, &taken.original).map_err(Error::on(pid, "give back registers"))
    }
}

impl Drop for Hijack<'_> {
    fn drop(&mut self) {
        // If it fails the thread is gone, or goes back by itself through its frame.
        let _ = self.restore();
    }
}

/// The errno of a failed call as an error.
pub fn check(pid: i32, call: &'static str, result: i64) -> Result<u64> {
    if (-4095..0).contains(&result) {
        Err(Error::CallFailed { pid, call, errno: -result as i32 })
    } else {
        Ok(result as u64)
    }
}

/// The frame may only go to a real thread stack with room to spare: the main stack, or one with its thread's own data
/// in it and a guard below. A coroutine's or handler's stack may end anywhere, with other data behind.
fn check_stack(maps: &Maps, regs: &Regs, lowest: u64) -> std::result::Result<(), &'static str> {
    let Some((at, range)) = maps.find_index(regs.rsp) else { return Err("its stack is not mapped") };
    if lowest < range.start {
        return Err("its stack has no room left");
    }
    let is_main = range.is_called("[stack]");
    let has_guard = at > 0 && is_guard(&maps.ranges[at - 1], range);
    let holds_thread = (range.start..range.end).contains(&regs.fs_base);
    let is_thread_stack = is_main || (has_guard && holds_thread);
    if !is_thread_stack {
        return Err("it runs on a stack of the program's own making");
    }
    Ok(())
}

fn is_guard(below: &Mapping, stack: &Mapping) -> bool {
    below.end == stack.start && !below.is_readable && !below.is_writable && !below.is_executable
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Code, Decoder, DecoderOptions, Instruction};

    fn codes(bytes: &[u8]) -> Vec<(Code, u64)> {
        Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE)
            .into_iter()
            .map(|i: Instruction| (i.code(), i.near_branch_target()))
            .collect()
    }

    #[test]
    fn code_is_what_the_comments_say() {
        let single = codes(&SINGLE_CALL);
        assert!(single.iter().all(|(c, _)| *c != Code::INVALID));
        assert_eq!(single[0].0, Code::Syscall);
        assert_eq!(single[4], (Code::Jne_rel8_64, 0x1006), "loops back to the pause");
        assert_eq!(single.last().map(|s| s.0), Some(Code::Syscall));

        let list = codes(&CALL_LIST);
        assert!(list.iter().all(|(c, _)| *c != Code::INVALID));
        let jumps: Vec<u64> = list.iter().filter(|(c, _)| *c == Code::Jne_rel8_64).map(|(_, t)| *t).collect();
        assert_eq!(jumps, [0x1000, 0x1000 + 63 - 14], "to the next entry, and to the pause");
    }
}
