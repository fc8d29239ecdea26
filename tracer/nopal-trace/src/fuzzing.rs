//! What `./x fuzz` calls directly: the readers of a recording's small files, without a folder around them.

use crate::code::CodeTable;
use crate::tasks::TaskTable;
use crate::verdict::Verdict;
use crate::{ctf2, read, tsdl};

/// Reads metadata of either version; whether it could be read.
pub fn metadata(text: &str) -> bool {
    let read = if ctf2::is_ctf2(text) { ctf2::parse(text) } else { tsdl::parse(text) };
    match read {
        Ok(_) => true,
        Err(unreadable) => {
            assert!(
                !unreadable.reason.is_empty() && unreadable.place.line > 0 && unreadable.place.column > 0
            );
            false
        }
    }
}

/// Reads the text of a metadata file out of its packets, if it has packets, and then the metadata.
pub fn packed_metadata(bytes: &[u8]) -> bool {
    match read::packets_of_text(bytes) {
        Some(Ok(text)) => {
            assert!(text.len() <= bytes.len());
            String::from_utf8(text).is_ok_and(|text| metadata(&text))
        }
        Some(Err(_)) | None => false,
    }
}

/// How many packets an index tells of.
pub fn index(bytes: &[u8]) -> usize {
    read::packet_ends(bytes).len()
}

pub fn verdict(text: &str) -> Option<Verdict> {
    let read = Verdict::parse(text)?;
    let again = Verdict::parse(&read.text()).expect("what nopal writes it can read");
    assert_eq!(again.is_complete(), read.is_complete());
    Some(read)
}

pub fn tasks(text: &str) -> TaskTable {
    TaskTable::parse(text)
}

pub fn code(bytes: &[u8]) -> CodeTable {
    CodeTable::parse(bytes)
}
