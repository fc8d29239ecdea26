//! The program's own restartable sequences (`rseq(2)`), from the descriptors its section `__rseq_cs` holds:
//!
//! ```text
//! u32 version, u32 flags, u64 start, u64 bytes, u64 abort
//! ```
//!
//! The kernel starts a thread over that is interrupted inside such a sequence. Code that runs elsewhere for an instruction
//! of it is not inside, and the sequence is wrong.

use super::Sections;
use object::elf;
use object::read::elf::{FileHeader, Rela, SectionHeader};
use object::{Endian, Endianness, ReadRef};
use std::ops::Range;

/// Why an address inside a sequence is left alone.
pub const RESTARTABLE: &str =
    "it is part of a restartable sequence (rseq) of the program itself, which must not be left";

const DESCRIPTOR_BYTES: usize = 32;
const START_AT: usize = 8;
const LENGTH_AT: usize = 16;
/// librseq writes a few dozen.
const MAX_SEQUENCES: usize = 4096;

/// Link-time addresses of all sequences, sorted.
pub(super) fn read<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    sections: &Sections<'data, Elf, R>,
) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    // Nobody has written such a section for a machine of 32 bits that could be traced.
    for section in sections.sequences.iter().filter(|_| sections.is_64_bit) {
        let data = section.data(sections.endian, sections.bytes).unwrap_or_default();
        let address: u64 = section.sh_addr(sections.endian).into();
        let mut starts: Vec<u64> = Vec::new();
        for descriptor in data.chunks_exact(DESCRIPTOR_BYTES).take(MAX_SEQUENCES) {
            starts.push(word(sections.endian, descriptor, START_AT));
        }
        relocate(sections, address, &mut starts);
        for (descriptor, start) in data.chunks_exact(DESCRIPTOR_BYTES).zip(starts) {
            let length = word(sections.endian, descriptor, LENGTH_AT);
            if start != 0 && length != 0 {
                found.push(start..start.saturating_add(length));
            }
        }
    }
    found.sort_by_key(|range| (range.start, range.end));
    found
}

fn word(endian: Endianness, bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map_or(0, |bytes| endian.read_u64(bytes))
}

/// Where the file is moved when it is loaded, the start is in the relocation and the section may hold nothing.
fn relocate<'data, Elf: FileHeader<Endian = Endianness>, R: ReadRef<'data>>(
    sections: &Sections<'data, Elf, R>,
    address: u64,
    starts: &mut [u64],
) {
    let endian = sections.endian;
    for table in sections.headers.iter().filter(|section| section.sh_type(endian) == elf::SHT_RELA) {
        let Ok(entries) = table.data_as_array::<Elf::Rela, _>(endian, sections.bytes) else { continue };
        for entry in entries {
            let place: u64 = entry.r_offset(endian).into();
            let Some(distance) = place.checked_sub(address) else { continue };
            let (idx, within) = (distance / DESCRIPTOR_BYTES as u64, distance % DESCRIPTOR_BYTES as u64);
            let addend: i64 = entry.r_addend(endian).into();
            // A relocation against a symbol has another meaning; linkers write none here.
            if within == START_AT as u64
                && entry.r_sym(endian, false) == 0
                && let Some(start) = usize::try_from(idx).ok().and_then(|idx| starts.get_mut(idx))
            {
                *start = addend as u64;
            }
        }
    }
}

/// How far behind `address` the next sequence begins; 0 if it is inside one.
pub(super) fn distance(sequences: &[Range<u64>], address: u64) -> Option<u64> {
    let ahead = sequences.iter().filter(|range| address < range.end);
    ahead.map(|range| range.start.saturating_sub(address)).min()
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn sites_in_front_of_inside_and_behind_a_sequence() {
        let sequences = [0x10..0x20, 0x40..0x48];
        for (address, expected) in [
            (0, Some(0x10)),
            (0xf, Some(1)),
            (0x10, Some(0)),
            (0x1f, Some(0)),
            (0x20, Some(0x20)),
            (0x47, Some(0)),
        ] {
            assert_eq!(distance(&sequences, address), expected, "{address:#x}");
        }
        assert_eq!(distance(&sequences, 0x48), None);
        assert_eq!(distance(&[], 0), None);
    }
}
