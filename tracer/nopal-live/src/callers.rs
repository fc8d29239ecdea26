//! Who called at a hit, for consumers that choose their sites themselves: the site's address and those of the callers, by the
//! unwind tables of what the process maps.

use crate::context_field::ContextField;
use crate::process_cache::ProcessCache;
use crate::selection::Place;
use crate::stack::StackCopy;
use nopal_proc::FileId;
use std::collections::HashSet;

/// Unwinds the stacks of hits; remembers what it needs of processes, which may have ended when their hits are read.
#[derive(Debug)]
pub struct Callers {
    processes: ProcessCache,
    files: HashSet<FileId>,
}

impl Default for Callers {
    fn default() -> Callers {
        let mut processes = ProcessCache::default();
        processes.keep_for(&[ContextField::Ustack]);
        Callers { processes, files: HashSet::new() }
    }
}

impl Callers {
    /// From now on a file with sites.
    pub fn add_file(&mut self, file: FileId) {
        self.files.insert(file);
    }

    /// Looks at a process while it is there. To be called again when it may have changed.
    pub fn look(&mut self, pid: u32) {
        self.processes.look(pid, &self.files);
    }

    /// The same of a program that has not begun yet.
    pub fn follow(&mut self, pid: u32) {
        self.processes.follow(pid, &self.files);
    }

    /// Appends where the thread of a hit was, innermost first, at most `max` addresses: the site alone where there is no copy of
    /// the stack.
    pub fn unwind(
        &mut self,
        pid: u32,
        place: &Place,
        stack: Option<StackCopy<'_>>,
        max: usize,
        into: &mut Vec<u64>,
    ) {
        let bias = self.processes.bias(pid, place.file, &self.files).unwrap_or(0);
        let address = place.by_kernel.site.address.wrapping_add(bias);
        self.processes.unwind(pid, place.file, address, stack, max, into);
    }
}
