//! Whether the kernel's breakpoints are in the memory of a process: it takes a uprobe on a file, and says nothing where the
//! code that is mapped is no longer the file's.

use super::file_code::FileCode;
use nopal_proc::MappedObject;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// For each site, by its link-time address, whether its breakpoint is missing where the process has the file loaded. What
/// cannot be read is not missing.
pub fn missing(mapped: &MappedObject, file: &FileCode, sites: &[u64]) -> Vec<bool> {
    let Ok(memory) = File::open(format!("/proc/{}/mem", mapped.pid)) else {
        return vec![false; sites.len()];
    };
    let biases = mapped.load_biases(&file.object);
    let is_missing = |address: &u64| {
        biases.iter().any(|bias| {
            let mut byte = [0; 1];
            let is_read = memory.read_exact_at(&mut byte, bias.wrapping_add(*address)).is_ok();
            // The kernel's breakpoint, or its call where it has made one of a long nop.
            is_read && !matches!(byte[0], 0xcc | 0xe8)
        })
    };
    sites.iter().map(is_missing).collect()
}
