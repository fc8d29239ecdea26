//! Where an export is written to. The first failure is kept and the rest of the export is not written: events come from
//! a stream that cannot stop in the middle of one.

use std::fmt;
use std::io::{self, BufWriter, Write};

/// A writer that counts, and that remembers its first failure.
pub struct Out {
    to: BufWriter<Box<dyn Write + Send>>,
    n_bytes: u64,
    error: Option<io::Error>,
}

impl fmt::Debug for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Out").field("n_bytes", &self.n_bytes).field("error", &self.error).finish()
    }
}

impl Out {
    pub fn new(to: Box<dyn Write + Send>) -> Out {
        Out { to: BufWriter::with_capacity(1 << 18, to), n_bytes: 0, error: None }
    }

    pub fn write(&mut self, bytes: &[u8]) {
        if self.error.is_some() {
            return;
        }
        match self.to.write_all(bytes) {
            Ok(()) => self.n_bytes += bytes.len() as u64,
            Err(error) => self.error = Some(error),
        }
    }

    /// Bytes that somebody else has written for us.
    pub fn count(&mut self, n_bytes: u64) {
        self.n_bytes += n_bytes;
    }

    /// Something else than writing has failed.
    pub fn fail(&mut self, error: io::Error) {
        self.error.get_or_insert(error);
    }

    pub fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    pub fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    /// Writes out what is left; the first failure of all.
    pub fn finish(&mut self) -> io::Result<u64> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.to.flush().map(|()| self.n_bytes),
        }
    }
}

/// For those who write by themselves: a failure is kept here, too.
impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Out::write(self, bytes);
        match self.error.is_some() {
            true => Err(io::Error::other("the output has failed")),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
