//! Writing a result: all of it under its name or nothing, also when several builds write at once.

use super::options::Options;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes `bytes` to a file of its own beside `path` and renames it, so that nobody ever sees half a file.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("dtrace: cannot write {}: {e}", path.display());
    if path == Path::new("-") {
        return std::io::stdout().write_all(bytes).map_err(failed);
    }
    // Through a symbolic link, as an open for writing would.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    // /dev/null and pipes are written as they are.
    if fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return fs::write(path, bytes).map_err(failed);
    }
    let (temporary, mut file) = create_beside(path).map_err(failed)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&temporary, path));
    written.map_err(|e| {
        // Nothing more can be done if this fails too; the first error is the one to tell.
        let _ = fs::remove_file(&temporary);
        failed(e)
    })
}

fn create_beside(path: &Path) -> std::io::Result<(PathBuf, fs::File)> {
    let name = path.file_name().ok_or(std::io::ErrorKind::IsADirectory)?.to_string_lossy();
    let mut attempt = 0u32;
    loop {
        let temporary = path.with_file_name(format!(".{name}.{}.{attempt}.tmp", std::process::id()));
        match fs::File::create_new(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            // Left by a process of the same id that was killed, perhaps in another container.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && attempt < 1000 => attempt += 1,
            Err(e) => return Err(e),
        }
    }
}

/// `-k`: writes an intermediate file into the current folder and prints `WHAT: NAME`. The name depends on the input and
/// the output only, so that a build is the same each time.
pub(super) fn keep(what: &str, options: &Options, extension: &str, bytes: &[u8]) -> Result<(), String> {
    let output = options.output.as_deref().unwrap_or_else(|| Path::new(""));
    let of = format!("{} {} {what}", options.input.display(), output.display());
    let name = format!(".dtrace-temp.{:08x}.{extension}", fnv1a(of.as_bytes()));
    write(Path::new(&name), bytes)?;
    println!("{what}: {name}");
    Ok(())
}

fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
