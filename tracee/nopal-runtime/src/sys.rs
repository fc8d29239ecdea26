//! The functions of the C library that are used, as 64-bit Linux declares them. No crate does it for us: a library that
//! runs in everybody's program has no dependencies.

use crate::error::{Error, Result};
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

unsafe extern "C" {
    fn memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    fn fcntl(fd: c_int, command: c_int, ...) -> c_int;
    fn mmap(
        address: *mut c_void,
        length: usize,
        access: c_int,
        flags: c_int,
        fd: c_int,
        offset: c_long,
    ) -> *mut c_void;
    fn munmap(address: *mut c_void, length: usize) -> c_int;
    fn mprotect(address: *mut c_void, length: usize, access: c_int) -> c_int;
    fn mremap(old: *mut c_void, old_length: usize, length: usize, flags: c_int, ...) -> *mut c_void;
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlclose(handle: *mut c_void) -> c_int;
    fn dlerror() -> *mut c_char;
    fn dlinfo(handle: *mut c_void, request: c_int, info: *mut c_void) -> c_int;
    fn getrlimit(resource: c_int, limit: *mut [u64; 2]) -> c_int;
    fn pthread_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
    ) -> c_int;
}

pub(crate) const READ: c_int = 1;
pub(crate) const WRITE: c_int = 2;
pub(crate) const EXECUTE: c_int = 4;

const MAP_PRIVATE: c_int = 0x02;
const MAP_FIXED: c_int = 0x10;
const MAP_ANONYMOUS: c_int = 0x20;
const MREMAP_MAYMOVE: c_int = 1;
const MREMAP_FIXED: c_int = 2;

/// The part of `struct link_map` that debuggers read, and that all C libraries therefore have.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LinkMap {
    /// What to add to the addresses in the file.
    pub bias: usize,
    pub name: *mut c_char,
}

fn failure(what: &'static str) -> Error {
    Error::System { what, errno: io::Error::last_os_error().raw_os_error().unwrap_or(0) }
}

/// A file in memory that is closed on exec.
pub(crate) fn memory_file(name: &CStr) -> Result<File> {
    const CLOEXEC: c_uint = 1;
    const ALLOW_SEALING: c_uint = 2;
    const NOEXEC_SEAL: c_uint = 8;
    // A kernel may be set to give out only files that cannot be executed. Mapping their code is allowed all the same, and
    // that is all that is wanted. Kernels before 6.3 do not know the flag.
    for flags in [CLOEXEC | ALLOW_SEALING | NOEXEC_SEAL, CLOEXEC | ALLOW_SEALING] {
        // SAFETY: the name is a C string.
        let fd = unsafe { memfd_create(name.as_ptr(), flags) };
        if fd >= 0 {
            // SAFETY: a new descriptor that nobody else has.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into());
        }
    }
    Err(failure("make a file in memory (memfd_create)"))
}

/// How many files this process may have open.
pub(crate) fn max_files() -> usize {
    const NOFILE: c_int = 7;
    let mut limit = [u64::MAX; 2];
    // SAFETY: writes the two numbers of a `struct rlimit`, the one in force first.
    unsafe { getrlimit(NOFILE, &raw mut limit) };
    usize::try_from(limit[0]).unwrap_or(usize::MAX)
}

/// Nobody can change the file's bytes or its size from now on.
pub(crate) fn seal(fd: c_int) -> Result<()> {
    const ADD_SEALS: c_int = 1033;
    let (seal, shrink, grow, write) = (1, 2, 4, 8);
    // SAFETY: takes an integer and changes only the file.
    match unsafe { fcntl(fd, ADD_SEALS, seal | shrink | grow | write) } {
        0 => Ok(()),
        _ => Err(failure("seal a file in memory")),
    }
}

/// Loads a shared object for the caller alone and returns the dynamic linker's handle.
pub(crate) fn open_object(path: &CStr) -> Result<*mut c_void> {
    let (now, local) = (2, 0);
    // SAFETY: the path is a C string; the object has no constructors, and so nothing of it runs.
    let handle = unsafe { dlopen(path.as_ptr(), now | local) };
    if handle.is_null() { Err(linker_failure("load the object with the probes")) } else { Ok(handle) }
}

/// What the dynamic linker knows of an object.
///
/// # Safety
/// The handle is one of [`open_object`] that was not closed.
pub(crate) unsafe fn link_map(handle: *mut c_void) -> Result<*mut LinkMap> {
    const LINKMAP: c_int = 2;
    let mut map: *mut LinkMap = std::ptr::null_mut();
    // SAFETY: the handle is open by this function's contract; the request stores one pointer.
    let failed = unsafe { dlinfo(handle, LINKMAP, (&raw mut map).cast()) } != 0;
    if failed || map.is_null() { Err(linker_failure("find the loaded object")) } else { Ok(map) }
}

/// # Safety
/// The handle is one of [`open_object`] that was not closed, and nobody uses the object any more.
pub(crate) unsafe fn close_object(handle: *mut c_void) {
    // SAFETY: by this function's contract. A failure leaves the object loaded, which nobody minds.
    unsafe { dlclose(handle) };
}

fn linker_failure(what: &'static str) -> Error {
    // SAFETY: no arguments; the text is this thread's until its next call of the dynamic linker.
    let text = unsafe { dlerror() };
    let message = if text.is_null() {
        "the dynamic linker does not say why".to_owned()
    } else {
        // SAFETY: not null, and a C string.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    };
    Error::Linker { what, message }
}

/// Maps a part of a file, private, over what is mapped there.
///
/// # Safety
/// The pages belong to the caller, and whoever uses them can go on with what the file has.
pub(crate) unsafe fn map_over(
    address: usize,
    length: usize,
    access: c_int,
    fd: c_int,
    offset: u64,
) -> Result<()> {
    let flags = MAP_PRIVATE | MAP_FIXED;
    // SAFETY: by this function's contract.
    let mapped = unsafe { mmap(address as *mut c_void, length, access, flags, fd, offset as c_long) };
    if mapped as isize == -1 { Err(failure("map the object with the probes")) } else { Ok(()) }
}

/// Puts memory of no file over pages, with the bytes `fill` makes: in one step for every other thread.
///
/// # Safety
/// The pages belong to the caller, and whoever uses them can go on with those bytes.
pub(crate) unsafe fn replace(
    address: usize,
    length: usize,
    access: c_int,
    fill: impl FnOnce(&mut [u8]),
) -> Result<()> {
    const WHAT: &str = "replace the object with the probes by plain memory";
    // SAFETY: new memory wherever the kernel likes.
    let copy =
        unsafe { mmap(std::ptr::null_mut(), length, READ | WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) };
    if copy as isize == -1 {
        return Err(failure(WHAT));
    }
    // SAFETY: `length` bytes that were mapped above, zeroed, and that nobody else knows.
    fill(unsafe { std::slice::from_raw_parts_mut(copy.cast(), length) });
    // SAFETY: the same memory; then it is moved over the caller's pages, by this function's contract.
    let is_done = unsafe {
        mprotect(copy, length, access) == 0
            && mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, address as *mut c_void) as isize
                != -1
    };
    if is_done {
        return Ok(());
    }
    let error = failure(WHAT);
    // SAFETY: it was not moved, and nobody else knows it.
    unsafe { munmap(copy, length) };
    Err(error)
}

/// Has functions called around every fork of this process.
pub(crate) fn at_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> Result<()> {
    // SAFETY: the functions live as long as the library, which is never unloaded.
    match unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        errno => Err(Error::System { what: "have forks noticed", errno }),
    }
}
