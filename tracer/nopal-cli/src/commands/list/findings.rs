//! What a search for probes found.

use crate::failure::Failure;
use nopal_sdt::Object;
use std::path::PathBuf;

/// One file and what it holds.
pub(super) struct Found {
    /// For a process, the path as the process sees it.
    pub path: PathBuf,
    pub object: Object,
    pub pid: Option<u32>,
    /// Added to an address to get that in the process.
    pub bias: Option<u64>,
}

#[derive(Default)]
pub(super) struct Findings {
    pub found: Vec<Found>,
    /// ELF files read, with probes or without.
    pub n_read: usize,
    /// Of no consequence for the exit status.
    pub warnings: Vec<String>,
    /// The first thing named on the command line that could not be read.
    pub failure: Option<Failure>,
}

impl Findings {
    pub(super) fn add(&mut self, path: PathBuf, object: Object, pid: Option<u32>, bias: Option<u64>) {
        self.n_read += 1;
        self.warnings.extend(object.warnings.iter().map(|warning| format!("{}: {warning}", path.display())));
        if !object.probes.is_empty() {
            self.found.push(Found { path, object, pid, bias });
        }
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        match &self.failure {
            None => self.failure = Some(failure),
            Some(_) => self.warnings.push(failure.message),
        }
    }
}
