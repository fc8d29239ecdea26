//! Debug information: the input as a whole file, found as that of any file is, or as sections with their lengths in front.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_dwarf::{DebugInfo, Type};
use nopal_proc::Image;
use std::path::PathBuf;

const ELF: &[u8] = b"\x7fELF";

fuzz_target!(|bytes: &[u8]| {
    match bytes.starts_with(ELF) {
        true => {
            let path = PathBuf::from(format!("/dev/shm/nopal-fuzz-dwarf-{}", std::process::id()));
            std::fs::write(&path, bytes).expect("there is memory");
            let image = Image::open(&path).expect("it is a file");
            if let Some(info) = DebugInfo::of_file(&path, &image) {
                check(&info);
            }
        }
        false => check(&of_sections(bytes)),
    }
});

/// Abbreviations, what is described with them and lists of places and ranges; the rest is names.
fn of_sections(bytes: &[u8]) -> DebugInfo {
    let mut rest = bytes;
    let mut lengths = [0; 3];
    for length in &mut lengths {
        let Some((word, more)) = rest.split_first_chunk::<2>() else { break };
        (*length, rest) = (usize::from(u16::from_le_bytes(*word)), more);
    }
    let [abbreviations, described, lists] = lengths.map(|length| {
        let (some, more) = rest.split_at(length.min(rest.len()));
        rest = more;
        some
    });
    DebugInfo::of_sections(|name| match name {
        ".debug_abbrev" => abbreviations.to_vec(),
        ".debug_info" => described.to_vec(),
        ".debug_loclists" | ".debug_loc" | ".debug_rnglists" | ".debug_ranges" => lists.to_vec(),
        ".debug_str" | ".debug_line_str" => rest.to_vec(),
        _ => Vec::new(),
    })
}

/// All that is asked of it for functions and scripts.
fn check(info: &DebugInfo) {
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
    let _ = info.record("struct conn");
}
