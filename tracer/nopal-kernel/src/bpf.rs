//! The `bpf(2)` system call: maps, programs, links. The only file that issues it; knows nothing of probes.

use super::insn::Insn;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const BTF_LOAD: libc::c_int = 18;
const MAP_LOOKUP_BATCH: libc::c_int = 24;
const LINK_CREATE: libc::c_int = 28;

const ATTACH_PERF_EVENT: u32 = 41;
const ATTACH_TRACE_UPROBE_MULTI: u32 = 48;
const PROG_FLAG_SLEEPABLE: u32 = 1 << 4;
const UPROBE_MULTI_RETURN: u32 = 1;
/// The kernel's limit on the verifier's log is far above.
const LOG_SIZE_BYTES: usize = 1 << 22;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum MapKind {
    Hash = 1,
    Array = 2,
    PercpuHash = 5,
    PercpuArray = 6,
    LruHash = 9,
    LruPercpuHash = 10,
    Ringbuf = 27,
}

/// Memory for entries is taken when they are made.
pub(crate) const NO_PREALLOC: u32 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum ProgramType {
    Kprobe = 2,
    Tracepoint = 5,
    PerfEvent = 7,
    RawTracepoint = 17,
}

/// The program was refused; the log is the verifier's.
#[derive(Debug)]
pub(crate) struct LoadError {
    pub error: io::Error,
    pub log: String,
}

fn bpf<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: `attr` is a live, zero-padded structure of the size passed; each caller keeps every buffer it points to
    // alive over the call, and the kernel writes only into buffers that were made for it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attr as *mut T, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: libc::c_long) -> OwnedFd {
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
pub(crate) fn create_map(
    kind: MapKind,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    name: &str,
) -> io::Result<OwnedFd> {
    let mut attr = MapCreate {
        map_type: kind as u32,
        key_size: key_bytes,
        value_size: value_bytes,
        max_entries: entries,
        map_flags: flags,
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

/// `key` and `value` must have the map's sizes; a per-CPU value those of every possible CPU.
pub(crate) fn lookup(map: &OwnedFd, key: &[u8], value: &mut [u8]) -> io::Result<()> {
    let mut attr = MapElem {
        map_fd: map.as_raw_fd() as u32,
        pad: 0,
        key: key.as_ptr() as u64,
        value: value.as_mut_ptr() as u64,
        flags: 0,
    };
    bpf(MAP_LOOKUP_ELEM, &mut attr).map(drop)
}

pub(crate) fn update(map: &OwnedFd, key: &[u8], value: &[u8]) -> io::Result<()> {
    let mut attr = MapElem {
        map_fd: map.as_raw_fd() as u32,
        pad: 0,
        key: key.as_ptr() as u64,
        value: value.as_ptr() as u64,
        flags: 0,
    };
    bpf(MAP_UPDATE_ELEM, &mut attr).map(drop)
}

pub(crate) fn delete(map: &OwnedFd, key: &[u8]) -> io::Result<()> {
    let mut attr =
        MapElem { map_fd: map.as_raw_fd() as u32, pad: 0, key: key.as_ptr() as u64, value: 0, flags: 0 };
    bpf(MAP_DELETE_ELEM, &mut attr).map(drop)
}

#[repr(C)]
struct MapBatch {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// All entries of a hash map: keys one after another, values one after another. `value_bytes` counts all CPUs' shares.
pub(crate) fn entries(
    map: &OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
    max_entries: usize,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut keys = Vec::new();
    let mut values = Vec::new();
    let mut room = max_entries.clamp(64, 1024);
    let (mut cursor, mut is_first) = (0u32, true);
    loop {
        let mut next = 0u32;
        let mut batch_keys = vec![0; room * key_bytes];
        let mut batch_values = vec![0; room * value_bytes];
        let mut attr = MapBatch {
            in_batch: if is_first { 0 } else { &raw const cursor as u64 },
            out_batch: &raw mut next as u64,
            keys: batch_keys.as_mut_ptr() as u64,
            values: batch_values.as_mut_ptr() as u64,
            count: room as u32,
            map_fd: map.as_raw_fd() as u32,
            elem_flags: 0,
            flags: 0,
        };
        let result = bpf(MAP_LOOKUP_BATCH, &mut attr);
        let is_last = match result {
            Ok(_) => false,
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => true,
            // A bucket that holds more than there is room for.
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && room < max_entries.max(64) * 2 => {
                room *= 2;
                continue;
            }
            Err(error) => return Err(error),
        };
        let n = (attr.count as usize).min(room);
        keys.extend_from_slice(&batch_keys[..n * key_bytes]);
        values.extend_from_slice(&batch_values[..n * value_bytes]);
        if is_last || n == 0 {
            return Ok((keys, values));
        }
        (cursor, is_first) = (next, false);
    }
}

#[repr(C)]
#[derive(Default)]
struct BtfLoad {
    btf: u64,
    log_buf: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
    log_true_size: u32,
}

pub(crate) fn load_btf(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut attr = BtfLoad { btf: bytes.as_ptr() as u64, size: bytes.len() as u32, ..BtfLoad::default() };
    bpf(BTF_LOAD, &mut attr).map(owned)
}

#[repr(C)]
#[derive(Default)]
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
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
}

/// Where a function begins, and its type in the program's BTF.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FunctionInfo {
    pub insn: u32,
    pub btf_type: u32,
}

/// A program to be loaded.
#[derive(Debug)]
pub(crate) struct Load<'a> {
    pub program_type: ProgramType,
    pub is_uprobe_multi: bool,
    pub is_sleepable: bool,
    pub insns: &'a [Insn],
    /// For programs of several functions.
    pub btf: Option<(&'a OwnedFd, &'a [FunctionInfo])>,
    pub name: &'a str,
}

/// Asks for the verifier's log only after a refusal.
pub(crate) fn load_program(load: &Load<'_>) -> Result<OwnedFd, LoadError> {
    let license = c"Dual MIT/GPL";
    let mut attr = ProgLoad {
        prog_type: load.program_type as u32,
        insn_cnt: load.insns.len() as u32,
        insns: load.insns.as_ptr() as u64,
        license: license.as_ptr() as u64,
        prog_flags: if load.is_sleepable { PROG_FLAG_SLEEPABLE } else { 0 },
        prog_name: object_name(load.name),
        expected_attach_type: if load.is_uprobe_multi { ATTACH_TRACE_UPROBE_MULTI } else { 0 },
        ..ProgLoad::default()
    };
    if let Some((btf, functions)) = load.btf {
        attr.prog_btf_fd = btf.as_raw_fd() as u32;
        attr.func_info_rec_size = size_of::<FunctionInfo>() as u32;
        attr.func_info = functions.as_ptr() as u64;
        attr.func_info_cnt = functions.len() as u32;
    }
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
#[derive(Default)]
struct TestRun {
    prog_fd: u32,
    retval: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    ctx_size_in: u32,
    ctx_size_out: u32,
    ctx_in: u64,
    ctx_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    pad: u32,
}

/// Runs a raw tracepoint program once, in this thread, with these arguments.
pub(crate) fn run_once(program: &OwnedFd, args: &[u64; 12]) -> io::Result<()> {
    let mut attr = TestRun {
        prog_fd: program.as_raw_fd() as u32,
        ctx_size_in: size_of_val(args) as u32,
        ctx_in: args.as_ptr() as u64,
        ..TestRun::default()
    };
    bpf(PROG_TEST_RUN, &mut attr).map(drop)
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
pub(crate) struct LinkSite {
    pub file_offset: u64,
    /// The semaphore's offset in the file, 0 for none.
    pub ref_ctr_offset: u64,
    pub cookie: u64,
}

/// Arms `sites` of a file in process `pid`, 0 for every process. Closing the link disarms them all at once.
pub(crate) fn link_uprobes(
    program: &OwnedFd,
    path: &CStr,
    sites: &[LinkSite],
    pid: u32,
    is_return: bool,
) -> io::Result<OwnedFd> {
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
        flags: if is_return { UPROBE_MULTI_RETURN } else { 0 },
        pid,
        pad: 0,
    };
    bpf(LINK_CREATE, &mut attr).map(owned)
}

#[repr(C)]
struct LinkPerfEvent {
    prog_fd: u32,
    target_fd: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

/// Runs `program` whenever the perf event occurs, with this cookie.
pub(crate) fn link_perf_event(program: &OwnedFd, event: &OwnedFd, cookie: u64) -> io::Result<OwnedFd> {
    let mut attr = LinkPerfEvent {
        prog_fd: program.as_raw_fd() as u32,
        target_fd: event.as_raw_fd() as u32,
        attach_type: ATTACH_PERF_EVENT,
        flags: 0,
        cookie,
    };
    bpf(LINK_CREATE, &mut attr).map(owned)
}

/// A path for the kernel.
pub(crate) fn c_path(path: &std::path::Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// A name the kernel accepts: letters, digits, `_` and `.`, at most 15 bytes.
fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    for (slot, byte) in bytes[..15].iter_mut().zip(name.bytes()) {
        *slot = if byte.is_ascii_alphanumeric() || byte == b'.' { byte } else { b'_' };
    }
    bytes
}
