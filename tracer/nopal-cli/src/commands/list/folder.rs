//! All programs and libraries below a folder. Follows no symbolic link and leaves /proc and /sys alone.

use super::findings::Findings;
use crate::failure::Failure;
use nopal_files::foreign::{self, ForeignError};
use nopal_proc::Image;
use nopal_sdt::ReadError;
use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// More names of unreadable files than this help nobody.
const MAX_NAMED: usize = 3;

#[derive(Default)]
struct Unreadable {
    n: usize,
    first: Vec<String>,
}

impl Unreadable {
    fn add(&mut self, path: &Path, why: impl std::fmt::Display) {
        self.n += 1;
        if self.first.len() < MAX_NAMED {
            self.first.push(format!("{}: {why}", path.display()));
        }
    }
}

pub(super) fn read(findings: &mut Findings, top: &Path) -> Result<(), Failure> {
    let n_read_before = findings.n_read;
    let mut unreadable = Unreadable::default();
    // Files with several names are read once.
    let mut seen = HashSet::new();
    let mut folders = vec![top.to_owned()];
    let mut n_debug_copies = 0;
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if folder == *top => {
                return Err(Failure::new("cannot-read", format!("{}: {error}", top.display()))
                    .hint("run nopal as a user who may read the folder"));
            }
            Err(error) => {
                unreadable.add(&folder, error);
                continue;
            }
        };
        // Sorted, so that the same tree gives the same list.
        let mut paths: Vec<(PathBuf, fs::FileType)> =
            entries.flatten().filter_map(|entry| Some((entry.path(), entry.file_type().ok()?))).collect();
        paths.sort_by(|a, b| a.0.cmp(&b.0));
        let mut below = Vec::new();
        for (path, kind) in paths {
            if kind.is_dir() {
                if !is_kernel_interface(&path) {
                    below.push(path);
                }
            } else if kind.is_file() {
                n_debug_copies += usize::from(read_one(findings, &mut unreadable, &mut seen, path));
            }
        }
        folders.extend(below.into_iter().rev());
    }
    findings.warnings.extend(unreadable.first);
    if unreadable.n > MAX_NAMED {
        let n = unreadable.n - MAX_NAMED;
        findings.warnings.push(format!("{n} more below {} could not be read", top.display()));
    }
    if findings.n_read == n_read_before {
        let what = match n_debug_copies {
            0 => "no program and no library".to_owned(),
            n => format!("only {n} separate debug files, whose programs are elsewhere"),
        };
        return Err(Failure::new("no-elf", format!("{} holds {what}", top.display()))
            .hint("name a folder with ELF files, such as /usr/lib"));
    }
    Ok(())
}

/// Reads one file if it is ELF; true for a separate debug file, whose probes are those of its program.
fn read_one(
    findings: &mut Findings,
    unreadable: &mut Unreadable,
    seen: &mut HashSet<(u64, u64)>,
    path: PathBuf,
) -> bool {
    let mut look = || -> Result<bool, ForeignError> {
        let file = foreign::open(&path)?;
        let mut magic = [0; 4];
        let is_elf = file.read_at(&mut magic, 0).map_err(ForeignError::Io)? == 4 && magic == *b"\x7fELF";
        let stat = file.metadata().map_err(ForeignError::Io)?;
        Ok(is_elf && seen.insert((stat.dev(), stat.ino())))
    };
    match look() {
        Ok(true) => {}
        Ok(false) | Err(ForeignError::NotAFile) => return false,
        Err(error) => {
            unreadable.add(&path, error);
            return false;
        }
    }
    let image = match Image::open(&path) {
        Ok(image) => image,
        Err(error) => {
            unreadable.add(&path, error);
            return false;
        }
    };
    match nopal_sdt::read(image.bytes()) {
        Ok(object) if object.is_debug_copy => return true,
        Ok(object) => findings.add(path, object, None, None),
        // Object files and the like lie about in every build tree.
        Err(ReadError::NotElf | ReadError::NotLinked { .. }) => {}
        Err(error @ (ReadError::Broken { .. } | ReadError::TooManyNotes { .. })) => {
            unreadable.add(&path, error)
        }
    }
    false
}

/// The files in /proc and /sys are made up by the kernel, some on each read and without end.
fn is_kernel_interface(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: all zeros is a valid statfs, which holds nothing but integers.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends with a NUL and `stat` is a statfs to be written.
    let result = unsafe { libc::statfs(path.as_ptr(), &mut stat) };
    let kinds = [libc::PROC_SUPER_MAGIC, libc::SYSFS_MAGIC, libc::DEBUGFS_MAGIC, libc::TRACEFS_MAGIC];
    result == 0 && kinds.contains(&stat.f_type)
}
