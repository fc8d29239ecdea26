//! A shared mapping of a file, unmapped when dropped. Others write to it at any time, so it is never lent as a slice.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access goes through raw pointers and atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes, which the file must have.
    pub fn shared(file: BorrowedFd<'_>, len: usize) -> io::Result<Mapping> {
        // SAFETY: a new mapping at an address the kernel chooses.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapping { start: start.cast(), len })
    }

    /// Maps all of the file.
    pub fn whole(file: BorrowedFd<'_>) -> io::Result<Mapping> {
        // SAFETY: stat is plain data, for which zeros are valid.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is borrowed for the call and the buffer is a stat.
        if unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Mapping::shared(file, stat.st_size as usize)
    }

    /// Has the kernel find memory for every page now, and charge it to this process.
    pub fn fault_in(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping.
        if unsafe { libc::madvise(self.start.cast(), self.len, libc::MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        // Before Linux 5.14: touch each page.
        for offset in (0..self.len).step_by(nopal_abi::PAGE_BYTES) {
            // SAFETY: inside the mapping; adding 0 atomically changes nothing that others may be writing.
            unsafe { &*self.start.add(offset).cast::<core::sync::atomic::AtomicU8>() }
                .fetch_add(0, core::sync::atomic::Ordering::Relaxed);
        }
        Ok(())
    }

    pub fn start(&self) -> *mut u8 {
        self.start
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what mmap gave us, once.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Fixes the size of a memfd for good.
pub fn seal(file: BorrowedFd<'_>) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: plain system call on a file descriptor that is borrowed for the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
