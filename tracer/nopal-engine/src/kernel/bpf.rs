//! The `bpf(2)` system call: maps, programs, links. The only file that issues it; knows nothing of probes.

use super::insn::Insn;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;

const SLEEPABLE: u32 = 1 << 4;
const PROG_TYPE_KPROBE: u32 = 2;
const ATTACH_TRACE_UPROBE_MULTI: u32 = 48;

/// The kernel's limit on the verifier's log we ask for.
const LOG_SIZE_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum MapType {
    PercpuArray = 6,
    Ringbuf = 27,
}

/// The program was refused; the log is the verifier's.
#[derive(Debug)]
pub struct LoadError {
    pub error: io::Error,
    pub log: String,
}

pub(super) fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: `attr` is a live, zero-padded structure of the size passed; each caller keeps every buffer it points to
    // alive over the call, and the kernel writes only into buffers that were made for it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr as *mut T, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(super) fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel just returned this descriptor to us and nobody else knows of it.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    map_name: [u8; 16],
}

/// Makes a map. For ring buffers `entries` is the size in bytes, a power of two and a multiple of the page size.
pub fn create_map(
    map_type: MapType,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    name: &str,
) -> io::Result<OwnedFd> {
    let mut attr = MapCreate {
        map_type: map_type as u32,
        key_size: key_bytes,
        value_size: value_bytes,
        max_entries: entries,
        map_name: object_name(name),
        ..MapCreate::default()
    };
    bpf(MAP_CREATE, &mut attr).map(owned)
}

#[repr(C)]
struct MapElem {
    map_fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Reads the element `index` of a per-CPU array into `values`, which must have `value_size` rounded up to 8 bytes for
/// every possible CPU.
pub fn lookup_percpu(map: &OwnedFd, index: u32, values: &mut [u64]) -> io::Result<()> {
    let mut attr = MapElem {
        map_fd: map.as_raw_fd() as u32,
        pad: 0,
        key: &raw const index as u64,
        value: values.as_mut_ptr() as u64,
        flags: 0,
    };
    bpf(MAP_LOOKUP_ELEM, &mut attr).map(drop)
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
}

/// Loads a program for `uprobe_multi`. Asks for the verifier's log only after a refusal.
pub fn load_uprobe_program(insns: &[Insn], name: &str, may_sleep: bool) -> Result<OwnedFd, LoadError> {
    load_program(insns, name, PROG_TYPE_KPROBE, ATTACH_TRACE_UPROBE_MULTI, may_sleep)
}

/// Loads a program for a uprobe that is a perf event.
pub fn load_perf_program(insns: &[Insn], name: &str, may_sleep: bool) -> Result<OwnedFd, LoadError> {
    load_program(insns, name, PROG_TYPE_KPROBE, 0, may_sleep)
}

fn load_program(
    insns: &[Insn],
    name: &str,
    prog_type: u32,
    expected_attach_type: u32,
    may_sleep: bool,
) -> Result<OwnedFd, LoadError> {
    let license = c"Dual MIT/GPL";
    let mut attr = ProgLoad {
        prog_type,
        insn_cnt: insns.len() as u32,
        insns: insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log_buf: 0,
        kern_version: 0,
        prog_flags: if may_sleep { SLEEPABLE } else { 0 },
        prog_name: object_name(name),
        prog_ifindex: 0,
        expected_attach_type,
    };
    let error = match bpf(PROG_LOAD, &mut attr) {
        Ok(fd) => return Ok(owned(fd)),
        Err(error) => error,
    };
    if error.raw_os_error() == Some(libc::EPERM) {
        return Err(LoadError { error, log: String::new() });
    }
    let mut log = vec![0u8; LOG_SIZE_BYTES];
    attr.log_level = 1;
    attr.log_size = LOG_SIZE_BYTES as u32;
    attr.log_buf = log.as_mut_ptr() as u64;
    let error = match bpf(PROG_LOAD, &mut attr) {
        Ok(fd) => return Ok(owned(fd)),
        Err(error) => error,
    };
    let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
    Err(LoadError { error, log: String::from_utf8_lossy(&log[..end]).into_owned() })
}

#[repr(C)]
struct LinkUprobeMulti {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    link_flags: u32,
    path: u64,
    offsets: u64,
    ref_ctr_offsets: u64,
    cookies: u64,
    count: u32,
    flags: u32,
    pid: u32,
    pad: u32,
}

/// One site of a link: offsets are in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSite {
    pub file_offset: u64,
    /// The semaphore's offset in the file, 0 for none.
    pub ref_ctr_offset: u64,
    pub cookie: u64,
}

/// Arms `sites` of the file at `path` in process `pid`. Closing the link disarms them all at once.
pub fn link_uprobes(program: &OwnedFd, path: &CString, sites: &[LinkSite], pid: u32) -> io::Result<OwnedFd> {
    let offsets: Vec<u64> = sites.iter().map(|s| s.file_offset).collect();
    let ref_ctrs: Vec<u64> = sites.iter().map(|s| s.ref_ctr_offset).collect();
    let cookies: Vec<u64> = sites.iter().map(|s| s.cookie).collect();
    let has_ref_ctr = ref_ctrs.iter().any(|o| *o != 0);
    let mut attr = LinkUprobeMulti {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: 0,
        attach_type: ATTACH_TRACE_UPROBE_MULTI,
        link_flags: 0,
        path: path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        ref_ctr_offsets: if has_ref_ctr { ref_ctrs.as_ptr() as u64 } else { 0 },
        cookies: cookies.as_ptr() as u64,
        count: sites.len() as u32,
        flags: 0,
        pid,
        pad: 0,
    };
    bpf(LINK_CREATE, &mut attr).map(owned)
}

/// A name the kernel accepts: letters, digits, `_` and `.`, at most 15 bytes.
pub(super) fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    for (slot, byte) in bytes[..15].iter_mut().zip(name.bytes()) {
        *slot = if byte.is_ascii_alphanumeric() || byte == b'.' { byte } else { b'_' };
    }
    bytes
}
