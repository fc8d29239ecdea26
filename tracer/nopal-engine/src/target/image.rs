//! The bytes of one file, mapped and not copied.

use super::TargetError;
use memmap2::Mmap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// An opened regular file. An empty one has no bytes and no mapping.
#[derive(Debug)]
pub struct Image {
    map: Option<Mmap>,
    pub device: u64,
    pub inode: u64,
    file: File,
}

impl Image {
    /// Opens a regular file. Never waits: a FIFO or a device is refused, not opened for reading.
    pub fn open(path: &Path) -> Result<Image, TargetError> {
        // O_NONBLOCK has no effect on regular files and keeps the open of a FIFO from waiting for a writer.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(path)
            .map_err(|error| TargetError::of_file(path, &error))?;
        Image::of(file, path)
    }

    fn of(file: File, path: &Path) -> Result<Image, TargetError> {
        let about = file.metadata().map_err(|error| TargetError::of_file(path, &error))?;
        if !about.is_file() {
            return Err(TargetError::NotAFile { path: path.to_owned() });
        }
        let map = match about.len() {
            // Files of /proc and /sys say that they are empty.
            0 => None,
            // SAFETY: the mapping is private and read-only. Its bytes may change while they are read, which every
            // reader of them allows for: it takes each as an allegation and copies before it compares.
            _ => Some(unsafe { Mmap::map(&file) }.map_err(|error| TargetError::of_file(path, &error))?),
        };
        Ok(Image { map, device: about.dev(), inode: about.ino(), file })
    }

    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// The open file, for callers that hand it to the kernel.
    pub fn file(&self) -> &File {
        &self.file
    }
}
