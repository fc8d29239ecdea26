//! Another process's memory through `/proc/PID/mem`, which reaches read-only private text as well.

use super::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes at addresses: another process's memory, or that of a model.
pub trait Bytes {
    /// Fills `bytes` from `address` or fails; nothing in between.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()>;

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()>;

    fn read_u16(&self, address: u64) -> Result<u16> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    fn read_vec(&self, address: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }
}

impl Bytes for Memory {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        Memory::read(self, address, bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        Memory::write(self, address, bytes)
    }
}

/// So many places are asked for in one call at most (`IOV_MAX`).
const MAX_PLACES: usize = 1024;

#[derive(Debug)]
pub struct Memory {
    pid: i32,
    file: File,
}

impl Memory {
    pub fn open(pid: i32) -> Result<Memory> {
        match OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")) {
            Ok(file) => Ok(Memory { pid, file }),
            Err(e) => Err(match e.raw_os_error() {
                Some(libc::ENOENT | libc::ESRCH) => Error::NoSuchProcess { pid },
                Some(libc::EACCES | libc::EPERM) => super::process::why_not_allowed(pid),
                _ => Error::Io { what: format!("open the memory of process {pid}"), source: e },
            }),
        }
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Fills `bytes` from `address` or fails; nothing in between.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(bytes, address).map_err(|e| self.failed("read", address, e))
    }

    pub fn read_vec(&self, address: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    pub fn read_u64(&self, address: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn read_u16(&self, address: u64) -> Result<u16> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, address).map_err(|e| self.failed("write", address, e))
    }

    /// Whether these bytes stand at these addresses, asked of the kernel for all of them at once. False where it does not
    /// answer for all, which says nothing. It is asked by the process's number: once the process has started another program,
    /// or has ended, the answer is about somebody else.
    pub fn has_all<'a>(&self, places: impl Iterator<Item = (u64, &'a [u8])> + Clone) -> bool {
        let n_bytes = places.clone().map(|(_, bytes)| bytes.len()).sum();
        let mut now = vec![0u8; n_bytes];
        let mut rest = &mut now[..];
        let theirs: Vec<libc::iovec> = places
            .clone()
            .map(|(address, bytes)| libc::iovec { iov_base: address as *mut _, iov_len: bytes.len() })
            .collect();
        for theirs in theirs.chunks(MAX_PLACES) {
            let n_bytes: usize = theirs.iter().map(|place| place.iov_len).sum();
            let (ours, later) = rest.split_at_mut(n_bytes);
            rest = later;
            let ours = libc::iovec { iov_base: ours.as_mut_ptr().cast(), iov_len: n_bytes };
            // SAFETY: our side is a part of a vector that outlives the call; theirs are addresses that the kernel checks.
            let n_read = unsafe {
                libc::process_vm_readv(self.pid, &ours, 1, theirs.as_ptr(), theirs.len() as libc::c_ulong, 0)
            };
            if n_read != n_bytes as isize {
                return false;
            }
        }
        places.flat_map(|(_, bytes)| bytes).eq(&now)
    }

    /// An aligned eight-byte store; the kernel copies it as one word, so a concurrent reader sees old or new.
    pub fn write_u64(&self, address: u64, value: u64) -> Result<()> {
        self.write(address, &value.to_le_bytes())
    }

    fn failed(&self, verb: &str, address: u64, error: io::Error) -> Error {
        // The memory of a process that has ended, or has started another program, reads and writes as an empty file.
        if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::WriteZero) {
            return Error::Gone { pid: self.pid };
        }
        Error::Io {
            what: format!("{verb} the memory of process {} at {address:#x}", self.pid),
            source: error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_many_places_are_all_as_expected_or_not() {
        let me = Memory::open(std::process::id() as i32).unwrap();
        let (there, n) = ((0..5000u32).map(|i| i as u8).collect::<Vec<u8>>(), MAX_PLACES + 7);
        let place = |i: usize| (there.as_ptr() as u64 + 2 * i as u64, there[2 * i..2 * i + 2].to_vec());
        let mut places: Vec<(u64, Vec<u8>)> = (0..n).map(place).collect();
        let has_all =
            |places: &[(u64, Vec<u8>)]| me.has_all(places.iter().map(|(at, bytes)| (*at, &bytes[..])));
        assert!(has_all(&places) && has_all(&[]));
        for at in [0, MAX_PLACES - 1, MAX_PLACES, n - 1] {
            places[at].1[1] ^= 1;
            assert!(!has_all(&places), "{at}");
            places[at].1[1] ^= 1;
        }
        // Nothing is mapped there.
        places[3].0 = 8;
        assert!(!has_all(&places));
    }
}
