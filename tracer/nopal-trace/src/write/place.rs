//! How a packet becomes part of a stream file in one step. The kernel ends a write of a killed process at any page, and a
//! reader refuses a file that ends within a packet. So a packet that lies in several pages has its place held first: by
//! empty packets, none of which crosses a page, so that the file may end after any of them. Then the first one grows over
//! the others, the events are written into its padding, and last its header says that they are there. Each header lies in
//! one page, which is written as a whole or not at all.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub(super) const HEADER_BYTES: usize = 84;
/// The smallest page there is; every other is a multiple of it.
const PAGE_BYTES: u64 = 4096;

/// Whether a write lies in one page, and so is done or not.
pub(super) fn is_one_step(offset: u64, bytes: u64) -> bool {
    offset / PAGE_BYTES == (offset + bytes.max(1) - 1) / PAGE_BYTES
}

/// Where a packet at `offset` ends, with the padding it needs: there is room for a header in the page it ends in, before
/// the end and after it.
pub(super) fn end(offset: u64, content_bytes: u64) -> u64 {
    let end = offset + content_bytes;
    let page = end / PAGE_BYTES * PAGE_BYTES;
    let header_bytes = HEADER_BYTES as u64;
    match end - page {
        0 => end,
        tail if tail < header_bytes => page + header_bytes,
        tail if tail > PAGE_BYTES - header_bytes => page + PAGE_BYTES,
        _ => end,
    }
}

/// Writes `packet` at the end of the file, which is `offset`. `holder` gives the header of an empty packet of a size;
/// `blank` is memory.
pub(super) fn put(
    file: &File,
    offset: u64,
    packet: &[u8],
    holder: &dyn Fn(u64) -> [u8; HEADER_BYTES],
    blank: &mut Vec<u8>,
) -> io::Result<()> {
    let bytes = packet.len() as u64;
    if is_one_step(offset, bytes) {
        return file.write_all_at(packet, offset);
    }
    blank.clear();
    blank.resize(packet.len(), 0);
    let mut at = offset;
    while at < offset + bytes {
        let next = ((at / PAGE_BYTES + 1) * PAGE_BYTES).min(offset + bytes);
        let start = (at - offset) as usize;
        blank[start..start + HEADER_BYTES].copy_from_slice(&holder(next - at));
        at = next;
    }
    file.write_all_at(blank, offset)?;
    file.write_all_at(&holder(bytes), offset)?;
    let (header, events) = packet.split_at(HEADER_BYTES);
    file.write_all_at(events, offset + HEADER_BYTES as u64)?;
    file.write_all_at(header, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_of_a_packet_has_room_for_a_header_and_so_has_what_follows() {
        for first in [0, 84, 200, 4012, 4096, 8000] {
            for content in (84..13_000).step_by(7) {
                let end = end(first, content);
                assert!(end >= first + content && end < first + content + HEADER_BYTES as u64);
                let tail = end % PAGE_BYTES;
                let header = HEADER_BYTES as u64;
                assert!(tail == 0 || (header..=PAGE_BYTES - header).contains(&tail), "{first} {content}");
            }
        }
    }
}
