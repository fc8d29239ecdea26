//! A recording as CTF 2: its streams, indexes and verdicts as they are, with metadata of CTF 2. Whatever CTF 1.8 describes lies
//! in the same bytes in both.

use crate::error::Error;
use crate::read::{Recording, metadata_text};
use crate::tsdl;
use crate::write;
use nopal_files::foreign;
use nopal_files::own::Folder;
use std::io::{Read, Write};
use std::path::Path;

const METADATA: &str = "metadata";
/// What stands beside the streams, with the name of its folder.
const BESIDE: [&str; 2] = ["index", "nopal"];
const CHUNK_BYTES: usize = 1 << 20;

impl Recording {
    /// Writes the recording that was opened from `from` into the folder `to`, which must not hold one. `go_on` hears of the
    /// bytes written so far; where it says no, what is there
    /// stays without metadata, and nothing is given back.
    pub fn write_ctf2(
        &self,
        from: &Path,
        to: &Path,
        mut go_on: impl FnMut(u64) -> bool,
    ) -> Result<Option<u64>, Error> {
        let mut n_bytes = 0;
        let mut texts = Vec::new();
        for (index, trace) in self.traces.iter().enumerate() {
            let dir = to.join(trace.dir.strip_prefix(from).unwrap_or(Path::new("")));
            let folder = Folder::make(&dir).map_err(|e| Error::io(&dir, "make", e))?;
            if folder.has(METADATA) {
                return Err(Error::Exists { path: dir });
            }
            let path = trace.dir.join(METADATA);
            let text = metadata_text(&path)?;
            let text = if trace.is_ctf2 {
                text
            } else {
                let refused = |place: tsdl::Place, reason: String| Error::Metadata {
                    path: path.clone(),
                    line: place.line,
                    column: place.column,
                    reason,
                };
                let metadata =
                    tsdl::parse(&text).map_err(|failure| refused(failure.place, failure.reason))?;
                write::ctf2::whole(&metadata)
                    .map_err(|reason| refused(tsdl::Place { line: 1, column: 1 }, reason))?
            };
            let streams = self.streams.iter().filter(|stream| stream.trace == index);
            for path in streams.flat_map(|stream| &stream.paths) {
                if !copy(path, &folder, &mut n_bytes, &mut go_on)? {
                    return Ok(None);
                }
            }
            for name in BESIDE {
                let below = trace.dir.join(name);
                let Ok(entries) = std::fs::read_dir(&below) else { continue };
                let made = folder.make_below(name).map_err(|e| Error::io(dir.join(name), "make", e))?;
                for path in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
                    if !copy(&path, &made, &mut n_bytes, &mut go_on)? {
                        return Ok(None);
                    }
                }
            }
            texts.push((folder, dir, text));
        }
        // Last, so that what was not finished is not a recording.
        for (folder, dir, text) in texts {
            let written = folder.create_new(METADATA).and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(|e| Error::io(dir.join(METADATA), "write", e))?;
            n_bytes += text.len() as u64;
        }
        Ok(Some(n_bytes))
    }
}

/// Copies a file under its own name; false if that was stopped.
fn copy(
    path: &Path,
    to: &Folder,
    n_bytes: &mut u64,
    go_on: &mut impl FnMut(u64) -> bool,
) -> Result<bool, Error> {
    let mut from = foreign::open(path).map_err(|e| Error::io(path, "open", e.into_io()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let failed = |e| Error::io(to.path().join(&*name), "write", e);
    let mut file = to.create_new(&name).map_err(failed)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let n = from.read(&mut chunk).map_err(|e| Error::io(path, "read", e))?;
        if n == 0 {
            return Ok(true);
        }
        file.write_all(&chunk[..n]).map_err(failed)?;
        *n_bytes += n as u64;
        if !go_on(*n_bytes) {
            return Ok(false);
        }
    }
}
