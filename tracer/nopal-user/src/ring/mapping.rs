//! A shared mapping of a file, unmapped when dropped. Others write to it at any time, so it is never lent as a slice.

use std::io;
use std::ops::Range;
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
        // A child of the tracer is not to be taken for a process that has it.
        // SAFETY: the mapping just made. Without it only more is looked at.
        unsafe { libc::madvise(start, len, libc::MADV_DONTFORK) };
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

    /// Has the kernel find memory for the first `len` bytes now, and charge it to this process.
    pub fn fault_in(&self, len: usize) -> io::Result<()> {
        self.fault_in_range(0..len)
    }

    /// The same for the pages that have these bytes.
    pub fn fault_in_range(&self, bytes: Range<usize>) -> io::Result<()> {
        let end = bytes.end.next_multiple_of(nopal_abi::PAGE_BYTES).min(self.len);
        let first = (bytes.start - bytes.start % nopal_abi::PAGE_BYTES).min(end);
        // SAFETY: the range is inside this mapping.
        if unsafe { libc::madvise(self.start.add(first).cast(), end - first, libc::MADV_POPULATE_WRITE) } == 0
        {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
        // Before Linux 5.14: a write to each page that changes nothing others may be writing. By hand, as a compiler may
        // take an addition of 0 for no write at all.
        for offset in (first..end).step_by(nopal_abi::PAGE_BYTES) {
            // SAFETY: inside the mapping, as offset is below its length; the instruction writes no register but flags.
            unsafe {
                std::arch::asm!("lock add byte ptr [{}], 0", in(reg) self.start.add(offset), options(nostack));
            }
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
pub(super) fn seal(file: BorrowedFd<'_>) -> io::Result<()> {
    add_seals(file, libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL)
}

/// The same, and whoever maps it from now on can only read and run it: the mappings that can be written through are those
/// there are. Through no descriptor and by no change of rights does anybody get another.
pub(crate) fn seal_code(file: BorrowedFd<'_>) -> io::Result<()> {
    let size = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    add_seals(file, size | libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL)
}

fn add_seals(file: BorrowedFd<'_>, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: plain system call on a file descriptor that is borrowed for the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
