//! LTTng's packet index, a file beside each stream: it tells what the recorder had written, and so what is missing of a
//! stream that was cut between two packets, emptied or removed.
//!
//! All big endian: `u32 magic  u32 major  u32 minor  u32 size of an entry`, then entries, each beginning with
//! `u64 offset in bytes  u64 packet size in bits`.

use crate::note::Note;
use nopal_files::foreign;
use std::path::Path;

const FOLDER: &str = "index";
const EXTENSION: &str = "idx";
const MAGIC: u32 = 0xc1f1_dcc1;
const HEADER_BYTES: usize = 16;
const MIN_ENTRY_BYTES: usize = 16;
const MAX_ENTRY_BYTES: usize = 4096;
/// Of some million packets, all streams of a trace together; what is beyond is not looked at.
const MAX_INDEX_BYTES: u64 = 128 << 20;
/// Streams of one trace: some for each CPU.
const MAX_INDEXES: usize = 1 << 16;

/// For each packet the place behind its end, in the order of the file. What follows something that makes no sense is
/// passed over; the last entry may be cut.
pub(crate) fn packet_ends(bytes: &[u8]) -> Vec<u64> {
    let word = |at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map(u32::from_be_bytes);
    let (Some(MAGIC), Some(entry_bytes)) = (word(0), word(12)) else { return Vec::new() };
    let entry_bytes = entry_bytes as usize;
    if !(MIN_ENTRY_BYTES..=MAX_ENTRY_BYTES).contains(&entry_bytes) {
        return Vec::new();
    }
    let number = |b: &[u8]| b.try_into().map_or(0, u64::from_be_bytes);
    let entries = bytes[HEADER_BYTES.min(bytes.len())..].chunks_exact(entry_bytes);
    entries.map_while(|e| number(&e[..8]).checked_add(number(&e[8..16]) / 8)).collect()
}

/// What is missing of the streams in a trace's folder. The indexes are read first and the streams looked at afterwards:
/// a recorder that is at work writes them the other way round.
pub(super) fn missing(dir: &Path) -> Vec<Note> {
    let indexed = read_indexes(dir, MAX_INDEX_BYTES);
    indexed.into_iter().filter_map(|(stream, ends)| missing_of(dir, &stream, &ends)).collect()
}

/// For each stream the ends of its packets.
fn read_indexes(dir: &Path, limit_bytes: u64) -> Vec<(String, Vec<u64>)> {
    let mut left_bytes = limit_bytes;
    let mut indexed: Vec<(String, Vec<u64>)> = Vec::new();
    for entry in std::fs::read_dir(dir.join(FOLDER)).into_iter().flatten().flatten().take(MAX_INDEXES) {
        let path = entry.path();
        let stem = path.file_stem().and_then(|name| name.to_str());
        let Some(stem) = stem.filter(|_| path.extension().is_some_and(|e| e == EXTENSION)) else { continue };
        let bytes = foreign::read(&path, left_bytes).unwrap_or_default();
        left_bytes -= bytes.len() as u64;
        indexed.push((stem.to_owned(), packet_ends(&bytes)));
    }
    indexed.sort();
    indexed
}

fn missing_of(dir: &Path, stream: &str, ends: &[u64]) -> Option<Note> {
    let path = dir.join(stream);
    let metadata = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file);
    let (n_bytes, n_packets) = (metadata.as_ref().map_or(0, std::fs::Metadata::len), ends.len());
    let n_missing = ends.iter().filter(|end| **end > n_bytes).count();
    if n_missing == 0 {
        return None;
    }
    let reason = match metadata {
        None => format!("the file is missing, with {} of events", packets(n_packets)),
        Some(_) => format!(
            "the file was cut after {n_bytes} bytes: {n_missing} of its {} are missing, as its index tells",
            packets(n_packets)
        ),
    };
    Some(Note { path, offset: None, reason })
}

fn packets(n: usize) -> String {
    if n == 1 { "1 packet".to_owned() } else { format!("{n} packets") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_indexes_together_have_a_limit() {
        let dir = std::env::temp_dir().join(format!("nopal-index-{}", std::process::id()));
        std::fs::create_dir_all(dir.join(FOLDER)).unwrap();
        let head: Vec<u8> = [MAGIC, 1, 1, 16].iter().flat_map(|word| word.to_be_bytes()).collect();
        for n in 0..10 {
            let path = dir.join(FOLDER).join(format!("channel0_{n}.{EXTENSION}"));
            std::fs::write(&path, &head).unwrap();
            // A hole takes no room but in memory.
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        }
        let n_ends =
            |limit: u64| read_indexes(&dir, limit).iter().map(|(_, ends)| ends.len() as u64).sum::<u64>();
        assert_eq!(n_ends(10 << 20), 10 * ((1 << 16) - 1));
        assert_eq!(n_ends(3 << 20), 3 * ((1 << 16) - 1));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn entries_of_any_size_and_a_cut_one() {
        let mut bytes: Vec<u8> = [MAGIC, 1, 1, 24].iter().flat_map(|word| word.to_be_bytes()).collect();
        for (offset, bits) in [(0u64, 800u64), (100, 1600), (300, 80)] {
            bytes.extend([offset, bits, 7].iter().flat_map(|word| word.to_be_bytes()));
        }
        assert_eq!(packet_ends(&bytes), [100, 300, 310]);
        assert_eq!(packet_ends(&bytes[..bytes.len() - 1]), [100, 300]);
        for n in 0..20 {
            assert_eq!(packet_ends(&bytes[..n]), [0u64; 0]);
        }
        bytes[15] = 3;
        assert_eq!(packet_ends(&bytes), [0u64; 0]);
    }
}
