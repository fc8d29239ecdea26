//! An object with probes, loaded into this process: a memfd that the dynamic linker has mapped.
//!
//! Once loaded it stays where it is until it is dropped. To unload it is to *hide* it: its pages are replaced, in one step
//! for every other thread, by plain memory with the same code. A thread that is just firing goes on as if nothing had
//! happened, and no lock or counter is needed on the way of a hit. To load it again is to map the file's pages back, at the
//! same addresses, so that tracers that are attached to the file hear it again.

use crate::error::{Error, Result};
use crate::fork::{Names, PATH_SIZE};
use crate::object::{Layout, Object};
use crate::sys;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
pub(crate) struct Loaded {
    /// The number of its first probe among those of the provider.
    pub first_probe: usize,
    pub n_probes: usize,
    /// Stays open, because tracers find the file by `/proc/PID/fd`.
    file: File,
    inode: (u64, u64),
    handle: *mut c_void,
    names: *mut sys::LinkMap,
    start: usize,
    layout: Layout,
    /// The pages with the code, without anybody's breakpoints.
    code: Box<[u8]>,
    is_hidden: bool,
    /// `/proc/PID/fd/N` with a NUL, written here and in forked children.
    path: Box<UnsafeCell<[u8; PATH_SIZE]>>,
}

// SAFETY: the handle may be used by any thread; everything else is plain data.
unsafe impl Send for Loaded {}

/// The name of a new file in `/proc/PID/maps`: `nopal:PROVIDER`, then `nopal:PROVIDER:2` and so on. Who tells mapped files apart by
/// their names must not take one for another.
fn file_name(provider: &str, _locked: &Names) -> String {
    // Held only by who holds the lock of all providers, so a fork never finds it taken.
    static COUNTS: Mutex<BTreeMap<String, u32>> = Mutex::new(BTreeMap::new());
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    let provider = shown(provider);
    let count = counts.entry(provider.clone()).or_default();
    *count = count.wrapping_add(1);
    match *count {
        1 => format!("nopal:{provider}"),
        n => format!("nopal:{provider}:{n}"),
    }
}

/// A provider's name as part of a file's, which stands in lines of maps.
fn shown(provider: &str) -> String {
    provider.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl Loaded {
    pub(crate) fn new(
        provider: &str,
        object: &Object,
        probes: Range<usize>,
        names: &mut Names,
    ) -> Result<Loaded> {
        names.check_room()?;
        // The kernel refuses names of more than 249 bytes.
        let name = CString::new(file_name(provider, names)).unwrap_or_default();
        let file = sys::memory_file(&name)?;
        file.write_all_at(&object.bytes, 0).map_err(|error| Error::System {
            what: "write the object with the probes",
            errno: error.raw_os_error().unwrap_or(0),
        })?;
        sys::seal(file.as_raw_fd())?;
        let inode = identity(&file).unwrap_or_default();
        let file = names.under_new_number(file)?;
        let path = CString::new(names.path_with_room(file.as_raw_fd())).unwrap_or_default();
        let handle = sys::open_object(&path)?;
        // SAFETY: opened just now.
        let link_map = match unsafe { sys::link_map(handle) } {
            Ok(link_map) => link_map,
            Err(error) => {
                // SAFETY: opened just now, and nobody knows of it.
                unsafe { sys::close_object(handle) };
                return Err(error);
            }
        };
        // SAFETY: the linker's record of an open object. Its bias is where an object that begins at 0 begins.
        let start = unsafe { (*link_map).bias };
        let path = Box::new(UnsafeCell::new([0; PATH_SIZE]));
        // SAFETY: `close` removes it before the object goes, and nobody else writes to the path.
        unsafe { names.add(link_map, path.get().cast(), file.as_raw_fd()) };
        let layout = object.layout;
        let code = object.bytes[..layout.code_end as usize].into();
        Ok(Loaded {
            first_probe: probes.start,
            n_probes: probes.len(),
            file,
            inode,
            handle,
            names: link_map,
            start,
            layout,
            code,
            is_hidden: false,
            path,
        })
    }

    /// Where the site of the probe with this index is.
    pub(crate) fn site(&self, index: usize) -> *mut u32 {
        (self.start + self.layout.site(index) as usize) as *mut u32
    }

    pub(crate) fn semaphore(&self, index: usize) -> *mut u16 {
        (self.start + self.layout.semaphore(index) as usize) as *mut u16
    }

    /// `/proc/PID/fd/N`, by which tracers find it. A C string that lives as long as the object is loaded.
    pub(crate) fn path(&self) -> *const c_char {
        self.path.get().cast_const().cast()
    }

    /// Makes it vanish from `/proc/PID/maps`. Its addresses stay valid.
    ///
    /// Where the process may not make code out of plain memory (SELinux, `MemoryDenyWriteExecute=`), the file's pages stay.
    pub(crate) fn hide(&mut self) {
        let Layout { code_end, dynamic_end, semaphores_end, .. } = self.layout;
        if self.is_hidden {
            return;
        }
        let code = &self.code;
        // SAFETY: this object's own pages. Whoever executes the code goes on with the same code.
        let replaced = unsafe {
            sys::replace(self.start, code.len(), sys::READ | sys::EXECUTE, |to| to.copy_from_slice(code))
        };
        if replaced.is_err() {
            return;
        }
        self.is_hidden = true;
        let at = self.start + code_end as usize;
        let n_bytes = (dynamic_end - code_end) as usize;
        // SAFETY: this object's own page, readable. The dynamic linker writes to it only while it loads the object.
        let dynamic = unsafe { std::slice::from_raw_parts(at as *const u8, n_bytes) };
        // SAFETY: the same page, which keeps its bytes; and the page of the semaphores, which become zero: nobody can listen.
        // Failure leaves pages that tracers do not look at, since they hold no code.
        unsafe {
            let _ = sys::replace(at, n_bytes, sys::READ | sys::WRITE, |to| to.copy_from_slice(dynamic));
            let at = self.start + dynamic_end as usize;
            let n_bytes = (semaphores_end - dynamic_end) as usize;
            let _ = sys::replace(at, n_bytes, sys::READ | sys::WRITE, |_| ());
        }
    }

    /// Undoes [`Loaded::hide`].
    pub(crate) fn show(&mut self) -> Result<()> {
        if !self.is_hidden {
            return Ok(());
        }
        if identity(&self.file) != Some(self.inode) {
            const EBADF: i32 = 9;
            let what = "load again what was loaded: the program has closed the object's file descriptor";
            return Err(Error::System { what, errno: EBADF });
        }
        let Layout { code_end, dynamic_end, semaphores_end, .. } = self.layout;
        let fd = self.file.as_raw_fd();
        let n_semaphores = (semaphores_end - dynamic_end) as usize;
        // SAFETY: the object's own pages. The file has the same code and no raised semaphore. The kernel puts breakpoints
        // back that are set on the file, and raises their semaphores.
        unsafe {
            let at = self.start + dynamic_end as usize;
            sys::map_over(at, n_semaphores, sys::READ | sys::WRITE, fd, dynamic_end)?;
            sys::map_over(self.start, code_end as usize, sys::READ | sys::EXECUTE, fd, 0)?;
        }
        self.is_hidden = false;
        Ok(())
    }

    /// Unloads it for good.
    ///
    /// # Safety
    /// Nobody uses an address in it any more.
    pub(crate) unsafe fn close(self, names: &mut Names) {
        names.remove(self.names);
        // SAFETY: opened by `new`, closed here alone; unused by this function's contract.
        unsafe { sys::close_object(self.handle) };
        // A program that has closed all descriptors may have opened another file under this number.
        if identity(&self.file) != Some(self.inode) {
            let _ = self.file.into_raw_fd();
        }
    }
}

fn identity(file: &File) -> Option<(u64, u64)> {
    file.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()))
}
