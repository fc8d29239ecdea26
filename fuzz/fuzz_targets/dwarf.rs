//! Debug information: the input is a table of abbreviations, its length in front, and what is described with them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_dwarf::{DebugInfo, Type};

fuzz_target!(|bytes: &[u8]| {
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return };
    let at = usize::from(u16::from_le_bytes(*length)).min(rest.len());
    let (abbreviations, described) = rest.split_at(at);
    let info = DebugInfo::of_sections(|name| match name {
        ".debug_abbrev" => abbreviations.to_vec(),
        ".debug_info" | ".debug_str" | ".debug_loclists" | ".debug_loc" | ".debug_rnglists" => described.to_vec(),
        _ => Vec::new(),
    });
    for address in info.starts().into_iter().take(64) {
        let Some(signature) = info.signature(address, "f") else { continue };
        for parameter in signature.parameters {
            let ty = match parameter.ty {
                Type::Pointer { to, .. } => *to,
                other => other,
            };
            let Type::Record(record) = ty else { continue };
            let _ = info.members(record.id);
        }
    }
    let _ = info.record("struct a");
});
