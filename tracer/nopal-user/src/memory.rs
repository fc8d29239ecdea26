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
