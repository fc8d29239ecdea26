//! What must survive a fork: the lock of all providers, which no thread may hold in the moment of it, and the names by which
//! debuggers find the objects, which hold the pid.

use crate::error::{Error, Result};
use crate::sys::{self, LinkMap};
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The names of loaded objects that hold the pid.
#[derive(Debug)]
pub(crate) struct Names(Vec<Named>);

#[derive(Debug)]
struct Named {
    /// Has the name that debuggers read.
    object: *mut LinkMap,
    /// What users are told; [`PATH_SIZE`] bytes.
    path: *mut c_char,
    fd: i32,
}

/// Room for `/proc/PID/fd/N`.
pub(crate) const PATH_SIZE: usize = 40;

// SAFETY: the pointers are used only under the lock, and only while the objects are loaded.
unsafe impl Send for Names {}

static NAMES: Mutex<Names> = Mutex::new(Names(Vec::new()));

/// Linux has pids of up to seven digits.
const PID_DIGITS: usize = 7;

/// Whoever changes a provider holds this: one lock for all, so that a fork has only one to take.
pub(crate) fn lock() -> MutexGuard<'static, Names> {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // If it fails, forks are as dangerous as without the handlers, and everything else works.
        let _ = sys::at_fork(prepare, parent, child);
    });
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock while a fork is under way.
struct Held(UnsafeCell<Option<MutexGuard<'static, Names>>>);

// SAFETY: only the thread that forks touches it, and it does so while it holds the lock.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

extern "C" fn prepare() {
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: this thread holds the lock.
    unsafe { *HELD.0.get() = Some(names) };
}

extern "C" fn parent() {
    // SAFETY: `prepare` took the lock in this thread.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn child() {
    // SAFETY: `prepare` took the lock in the thread of which this is the copy.
    if let Some(names) = unsafe { (*HELD.0.get()).take() } {
        names.rewrite();
    }
}

impl Names {
    /// The path of a descriptor of this process, with as many slashes as leave room for any other pid.
    pub(crate) fn path_with_room(&self, fd: i32) -> String {
        let pid = std::process::id().to_string();
        format!("/proc/{pid}/fd/{}{fd}", "/".repeat(PID_DIGITS.saturating_sub(pid.len())))
    }

    /// Fails if so many objects are loaded that the program would run short of file descriptors because of them.
    pub(crate) fn check_room(&self) -> Result<()> {
        let max_objects = sys::max_files() / 2;
        if self.0.len() >= max_objects {
            Err(Error::TooManyObjects { n_objects: self.0.len() })
        } else {
            Ok(())
        }
    }

    /// The file under a number that no loaded object has. A program that closes all descriptors leads to such: the dynamic
    /// linker would take the path for that of the older object.
    pub(crate) fn under_new_number(&self, file: File) -> Result<File> {
        let mut taken = Vec::new();
        let mut file = file;
        while self.0.iter().any(|named| named.fd == file.as_raw_fd()) {
            let next = file.try_clone().map_err(|error| Error::System {
                what: "get another file descriptor",
                errno: error.raw_os_error().unwrap_or(0),
            })?;
            taken.push(std::mem::replace(&mut file, next));
        }
        Ok(file)
    }

    /// # Safety
    /// Until it is removed again the object is loaded, and nobody else writes to `path`, which has [`PATH_SIZE`] bytes.
    pub(crate) unsafe fn add(&mut self, object: *mut LinkMap, path: *mut c_char, fd: i32) {
        let named = Named { object, path, fd };
        // SAFETY: by this function's contract.
        unsafe { named.write_path() };
        self.0.push(named);
    }

    pub(crate) fn remove(&mut self, object: *mut LinkMap) {
        self.0.retain(|named| named.object != object);
    }

    /// Puts this process's pid in place of the one that the process had of which this is a copy. Allocates nothing: in
    /// the child of a process with threads only few functions may be called.
    fn rewrite(&self) {
        for named in &self.0 {
            // SAFETY: it was not removed, so that the contract of `add` holds.
            unsafe {
                named.write_path();
                named.write_object();
            }
        }
    }
}

impl Named {
    /// # Safety
    /// As for [`Names::add`].
    unsafe fn write_path(&self) {
        let mut text = [0; PATH_SIZE];
        // 31 bytes at most; the last byte stays zero.
        let _ = write!(&mut text[..PATH_SIZE - 1], "/proc/{}/fd/{}", std::process::id(), self.fd);
        // SAFETY: `path` has this size by this function's contract.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), self.path.cast(), PATH_SIZE) };
    }

    /// # Safety
    /// As for [`Names::add`].
    unsafe fn write_object(&self) {
        let pid = std::process::id();
        let n_digits = pid.checked_ilog10().unwrap_or(0) as usize + 1;
        let slashes = &"///////"[..PID_DIGITS.saturating_sub(n_digits)];
        let mut text = [0; 64];
        let mut rest = &mut text[..];
        let written = write!(rest, "/proc/{pid}/fd/{slashes}{}", self.fd);
        let len = 64 - rest.len();
        // SAFETY: the object is loaded, and so is its name, which `path_with_room` made. Nobody else runs in the child.
        unsafe {
            let name = (*self.object).name;
            if written.is_ok() && !name.is_null() && CStr::from_ptr(name).count_bytes() == len {
                std::ptr::copy_nonoverlapping(text.as_ptr(), name.cast(), len);
            }
        }
    }
}
