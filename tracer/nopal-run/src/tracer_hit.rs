//! BEGIN, END and intervals run in the tracer: what they see of a hit is the tracer itself.

use super::tasks::{self, TaskInfo};
use nopal_program::interpret::Hit;
use nopal_program::op::Builtin;

/// A moment of the tracer.
#[derive(Debug)]
pub(crate) struct OwnHit {
    who: TaskInfo,
    pid: u32,
    tid: u32,
    ns: u64,
    start_ns: u64,
}

impl OwnHit {
    /// At `ns`, of a script that began at `start_ns`.
    pub(crate) fn new(ns: u64, start_ns: u64) -> OwnHit {
        let pid = std::process::id();
        // SAFETY: gettid has no arguments and cannot fail.
        let tid = unsafe { libc::gettid() } as u32;
        OwnHit { who: tasks::read(pid, tid).unwrap_or_default(), pid, tid, ns, start_ns }
    }
}

impl Hit for OwnHit {
    fn arg(&self, _: u8) -> i64 {
        0
    }
    fn arg_string(&self, _: u8) -> &[u8] {
        &[]
    }
    fn arg_bytes(&self, _: u8) -> &[u8] {
        &[]
    }
    fn builtin(&self, what: Builtin) -> u64 {
        match what {
            Builtin::Pid => u64::from(self.pid),
            Builtin::Tid => u64::from(self.tid),
            Builtin::Uid => u64::from(self.who.uid),
            Builtin::Gid => u64::from(self.who.gid),
            Builtin::Cgroup => self.who.cgroup,
            Builtin::Nsecs => self.ns,
            Builtin::Elapsed => self.ns.saturating_sub(self.start_ns),
            Builtin::Rand => random(),
            Builtin::Cpu => cpu(),
            // Refused before anything is opened.
            Builtin::Curtask
            | Builtin::Retval
            | Builtin::Ip
            | Builtin::Ctx
            | Builtin::NsecsBoot
            | Builtin::NsecsTai
            | Builtin::Jiffies
            | Builtin::NumaNode => 0,
        }
    }
    fn comm(&self) -> &[u8] {
        self.who.comm()
    }
}

fn cpu() -> u64 {
    // SAFETY: sched_getcpu has no arguments; a failure is negative.
    unsafe { libc::sched_getcpu() }.max(0) as u64
}

/// 32 random bits, as the kernel's `rand` gives.
pub(crate) fn random() -> u64 {
    let mut bytes = [0u8; 4];
    // SAFETY: the buffer is 4 bytes long.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    u64::from(u32::from_le_bytes(bytes))
}
