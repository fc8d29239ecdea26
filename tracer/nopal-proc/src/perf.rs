//! `perf_event_open(2)`: events of the kernel that a process, its descendants or a CPU have.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

pub const TYPE_HARDWARE: u32 = 0;
pub const TYPE_SOFTWARE: u32 = 1;
pub const TYPE_TRACEPOINT: u32 = 2;
pub const TYPE_BREAKPOINT: u32 = 5;

/// Of [`PerfAttr::flags`].
pub const DISABLED: u64 = 1;
pub const INHERIT: u64 = 1 << 1;
pub const EXCLUDE_KERNEL: u64 = 1 << 5;
pub const MMAP: u64 = 1 << 8;
pub const COMM: u64 = 1 << 9;
pub const TASK: u64 = 1 << 13;
pub const SAMPLE_ID_ALL: u64 = 1 << 18;
pub const MMAP2: u64 = 1 << 23;
pub const COMM_EXEC: u64 = 1 << 24;
pub const USE_CLOCK: u64 = 1 << 25;
/// With [`INHERIT`]: only threads inherit, not children.
pub const INHERIT_THREAD: u64 = 1 << 35;

/// What to count; the fields of `struct perf_event_attr` that are used here, in its layout of 112 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct PerfAttr {
    pub event_type: u32,
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup_events: u32,
    pub bp_type: u32,
    pub config1: u64,
    pub config2: u64,
    pub unused: [u64; 2],
    pub sample_stack_user: u32,
    pub clock: i32,
    pub unused_too: [u64; 2],
}

const _: () = assert!(size_of::<PerfAttr>() == 112);

/// `tid` -1: every thread; `cpu` -1: every CPU.
pub fn open(attr: &PerfAttr, tid: i32, cpu: i32) -> io::Result<OwnedFd> {
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    let attr = PerfAttr { size: size_of::<PerfAttr>() as u32, ..*attr };
    // SAFETY: `attr` is a live structure of the size it says, and what its addresses name outlives the call.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attr, tid, cpu, -1, CLOSE_ON_EXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor to us and nobody else knows of it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Runs an eBPF program whenever the event occurs, without a link, as kernels before 5.15 want it.
pub fn attach_program(event: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    const SET_BPF: libc::c_ulong = 0x4004_2408;
    ioctl(event, SET_BPF, program.as_raw_fd())
}

pub fn enable(event: &OwnedFd) -> io::Result<()> {
    const ENABLE: libc::c_ulong = 0x2400;
    ioctl(event, ENABLE, 0)
}

fn ioctl(event: &OwnedFd, request: libc::c_ulong, argument: RawFd) -> io::Result<()> {
    // SAFETY: these requests take a number, no address.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request, argument) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
