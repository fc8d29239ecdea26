//! What must be known of this machine before a script can be parsed.

use crate::btf::Btf;

/// Of the records that stand within those of a script: their sizes, of those that the kernel describes.
pub fn kernel_records(script: &str) -> Vec<(String, u64)> {
    let names = nopal_script::embedded_records(script);
    if names.is_empty() {
        return Vec::new();
    }
    let Some(types) = Btf::of_kernel() else { return Vec::new() };
    names.into_iter().filter_map(|name| types.record_bytes(&name).map(|bytes| (name, bytes))).collect()
}
