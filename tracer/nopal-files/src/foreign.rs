//! Files of somebody else, who may change, cut or replace them at any moment. They are read into memory, never mapped:
//! reading a mapped page of a file that was cut ends the process with SIGBUS.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Why a file is not read.
#[derive(Debug)]
pub enum ForeignError {
    /// A folder, a FIFO, a device or a socket.
    NotAFile,
    TooLarge {
        limit_bytes: u64,
    },
    Io(io::Error),
}

impl ForeignError {
    /// For callers that know only the operating system's errors.
    pub fn into_io(self) -> io::Error {
        match self {
            ForeignError::Io(error) => error,
            other => io::Error::new(io::ErrorKind::InvalidData, other.to_string()),
        }
    }
}

impl fmt::Display for ForeignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForeignError::NotAFile => write!(f, "not a regular file"),
            ForeignError::TooLarge { limit_bytes } => {
                write!(f, "larger than {limit_bytes} bytes, the most that is read")
            }
            ForeignError::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ForeignError {}

/// Opens a regular file for reading. Anything else is refused without having been opened: a FIFO may wait for that, and a device
/// do something (a watchdog restarts the machine).
pub fn open(path: &Path) -> Result<File, ForeignError> {
    let with = |path: &Path, flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    let found = with(path, libc::O_PATH).map_err(ForeignError::Io)?;
    if !found.metadata().map_err(ForeignError::Io)?.is_file() {
        return Err(ForeignError::NotAFile);
    }
    // The very same, whatever has its name by now. O_NONBLOCK has no effect on regular files.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = match with(Path::new(&format!("/proc/self/fd/{}", found.as_raw_fd())), flags) {
        // Without /proc.
        Err(error) if error.kind() == io::ErrorKind::NotFound => with(path, flags),
        // No room for two descriptors.
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
            drop(found);
            with(path, flags)
        }
        opened => opened,
    };
    let file = file.map_err(ForeignError::Io)?;
    if file.metadata().map_err(ForeignError::Io)?.is_file() { Ok(file) } else { Err(ForeignError::NotAFile) }
}

/// All of a regular file, if it has at most `limit_bytes`. What it says of its size is not relied on: it may grow, and
/// files of /proc say that they are empty.
pub fn read(path: &Path, limit_bytes: u64) -> Result<Vec<u8>, ForeignError> {
    let mut bytes = Vec::new();
    let file = open(path)?;
    file.take(limit_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(ForeignError::Io)?;
    if bytes.len() as u64 > limit_bytes {
        return Err(ForeignError::TooLarge { limit_bytes });
    }
    Ok(bytes)
}

/// The same as text; what is not text is replaced.
pub fn read_text(path: &Path, limit_bytes: u64) -> Result<String, ForeignError> {
    let bytes = read(path, limit_bytes)?;
    Ok(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn what_is_no_file_is_not_opened() {
        let fifo = std::env::temp_dir().join(format!("nopal-foreign-watched-{}", std::process::id()));
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends in a NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        // SAFETY: plain numbers; the result is checked.
        let watch = unsafe { libc::inotify_init1(libc::IN_NONBLOCK) };
        assert!(watch >= 0);
        // SAFETY: the descriptor is new and nobody else's.
        let mut told = unsafe { <File as std::os::fd::FromRawFd>::from_raw_fd(watch) };
        // SAFETY: the name ends in a NUL.
        assert!(unsafe { libc::inotify_add_watch(watch, name.as_ptr(), libc::IN_OPEN) } >= 0);
        assert!(matches!(open(&fifo), Err(ForeignError::NotAFile)));
        let nothing = told.read(&mut [0; 64]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock, "somebody has opened it");
        std::fs::remove_file(&fifo).unwrap();
    }

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let dir = std::env::temp_dir().join(format!("nopal-foreign-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let fifo = dir.join("fifo");
        let name = CString::new(fifo.as_os_str().as_bytes()).unwrap();
        // SAFETY: the name ends in a NUL.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        std::os::unix::fs::symlink("/dev/zero", dir.join("zero")).unwrap();
        std::fs::write(dir.join("text"), b"0123456789").unwrap();
        // A test that waits for ever here is one that has failed.
        for name in ["fifo", "zero", "."] {
            assert!(matches!(read(&dir.join(name), 100), Err(ForeignError::NotAFile)), "{name}");
        }
        assert_eq!(read(&dir.join("text"), 10).unwrap(), b"0123456789");
        assert!(matches!(read(&dir.join("text"), 9), Err(ForeignError::TooLarge { limit_bytes: 9 })));
        assert!(matches!(read(&dir.join("none"), 9), Err(ForeignError::Io(_))));
        // It says that it is empty.
        assert!(read_text(Path::new("/proc/self/status"), 1 << 16).unwrap().contains("Name:"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
