//! Files and processes named on the command line, read; and what to do about those that cannot be.

use crate::failure::Failure;
use nopal_files::foreign::{self, ForeignError};
use nopal_proc::{Image, TargetError};
use nopal_sdt::{Object, ReadError};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// No `.d` file anybody wrote is near this.
const MAX_PROVIDER_BYTES: u64 = 16 << 20;

/// A text that people write is not larger.
const MAX_TEXT_BYTES: u64 = 16 << 20;

/// A file of text that somebody named: a regular one, of a bounded size.
pub(crate) fn text_file(path: &Path) -> Result<String, ForeignError> {
    foreign::read_text(path, MAX_TEXT_BYTES)
}

/// Reads and parses a `.d` file.
pub(crate) fn provider_file(path: &Path) -> Result<nopal_provider::File, Failure> {
    let image = Image::open(path).map_err(|error| cannot_read(&error))?;
    let mut bytes = Vec::new();
    image
        .file()
        .take(MAX_PROVIDER_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new("cannot-read", format!("{}: {error}", path.display())))?;
    let text = String::from_utf8_lossy(&bytes);
    nopal_provider::parse(&path.to_string_lossy(), &text).map_err(|error| {
        Failure::new("bad-provider-file", format!("{} cannot be used\n{error}", path.display()))
            .hint("mend the file, or leave --provider out")
    })
}

/// Reads the probes of an ELF file.
pub(crate) fn read_file(path: &Path) -> Result<Object, Failure> {
    let image = Image::open(path).map_err(|error| cannot_read(&error))?;
    nopal_sdt::read(image.bytes()).map_err(|error| {
        let (code, hint) = match error {
            ReadError::NotElf => {
                ("not-elf", "probes are in programs and shared libraries; a script has none")
            }
            ReadError::NotLinked { .. } => {
                ("not-linked", "name the program or library that it is linked into")
            }
            ReadError::Broken { .. } => ("damaged", "copy or build it again; `readelf -a` shows more"),
            ReadError::TooManyNotes { .. } => ("damaged", "`readelf -n` shows more"),
        };
        Failure::new(code, format!("{}: {error}", path.display())).hint(hint)
    })
}

/// A file or process that cannot be read, and what to do about it.
pub(crate) fn cannot_read(error: &TargetError) -> Failure {
    let (code, hint) = match error {
        TargetError::NoSuchProcess { .. } => {
            ("no-such-process", Some("it may have ended; `nopal list -u` shows running programs with probes"))
        }
        TargetError::NotPermitted { .. } => ("not-permitted", Some(TargetError::ask_for_permission())),
        TargetError::Zombie { .. } => ("no-such-process", Some("its parent has not noticed yet")),
        TargetError::KernelThread { .. } => ("kernel-thread", Some("name a process that runs a program")),
        TargetError::Is32Bit { .. } => ("32-bit", Some("only 64-bit programs can be traced")),
        TargetError::Translated { .. } => ("translated", None),
        TargetError::Deleted { .. } => ("deleted", Some("run nopal as root, or restart the program")),
        TargetError::NotAFile { .. } => ("not-a-file", Some("name a program, a library or a folder")),
        TargetError::Io { kind: ErrorKind::PermissionDenied, .. } => {
            ("not-permitted", Some("run nopal as a user who may read it"))
        }
        TargetError::Io { kind: ErrorKind::NotFound, .. } => ("no-such-file", Some("check the path")),
        TargetError::Io { errno: Some(libc::EMFILE), .. } => {
            ("no-descriptors", Some("a higher `ulimit -n` helps"))
        }
        TargetError::Io { .. } => ("cannot-read", None),
    };
    let failure = Failure::new(code, error.to_string());
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
