//! Pages of a buffer of tracefs, as the kernel hands them out: what the programs' own texts hold cannot be taken for anything
//! else. Pure.
//!
//! ```text
//! u64 time of the first record, ns
//! u64 length of what follows in the low 20 bits | 1 << 31: records before this page were lost
//!     | 1 << 30: how many is behind the records
//! records, each beginning with u32: low 5 bits the kind, the others how much later it is than the one before
//!   1 to 28  so many words of data follow
//!   0        u32: bytes of data, itself included, then these
//!   29       padding: the end of the page, or u32: so many bytes to be passed over
//!   30       u32: the upper bits of a long time between the two
//!   31       u32: the upper bits of the time itself
//! ```

const HEADER_BYTES: usize = 16;
const LENGTH_MASK: u64 = (1 << 20) - 1;
const HAS_LOST: u64 = 1 << 31;
const HAS_COUNT: u64 = 1 << 30;
const TIME_BITS: u32 = 27;
/// Of a time that is told whole: the bits above are those of the time before.
const WHOLE_TIME_BITS: u32 = 59;

/// Hands out the records of a page with their times; how many were lost before it.
pub(crate) fn read_page(page: &[u8], mut take: impl FnMut(u64, &[u8])) -> u64 {
    let word = |at: usize| Some(u64::from_le_bytes(*page.get(at..)?.first_chunk()?));
    let (Some(first_ns), Some(commit)) = (word(0), word(8)) else { return 0 };
    let end = HEADER_BYTES.saturating_add((commit & LENGTH_MASK) as usize);
    let n_lost = match (commit & HAS_LOST != 0, commit & HAS_COUNT != 0) {
        (false, _) => 0,
        // More than none, at least.
        (true, false) => 1,
        (true, true) => word(end).unwrap_or(1).max(1),
    };
    let records = &page[HEADER_BYTES..end.min(page.len())];
    let mut ns = first_ns;
    let mut at = 0;
    while let Some(record) = records.get(at..).and_then(|rest| Record::read(rest, ns)) {
        ns = record.ns;
        if let Some(data) = record.data {
            take(ns, data);
        }
        at += record.n_bytes;
    }
    n_lost
}

struct Record<'a> {
    ns: u64,
    /// Nothing if it only says what time it is, or fills a gap.
    data: Option<&'a [u8]>,
    n_bytes: usize,
}

impl<'a> Record<'a> {
    /// The one that `bytes` begin with; nothing at the end of the page, or where they make no sense.
    fn read(bytes: &'a [u8], before_ns: u64) -> Option<Record<'a>> {
        let half = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let head = half(0)?;
        let (kind, later) = (head & 31, u64::from(head >> 5));
        let ns = before_ns.wrapping_add(later);
        let without_data = |ns, n_bytes| Some(Record { ns, data: None, n_bytes });
        match kind {
            0 => {
                let n_bytes = (half(4)? as usize).checked_add(4)?;
                Some(Record { ns, data: Some(bytes.get(8..n_bytes)?), n_bytes: n_bytes.next_multiple_of(4) })
            }
            1..=28 => {
                let n_bytes = 4 + 4 * kind as usize;
                Some(Record { ns, data: Some(bytes.get(4..n_bytes)?), n_bytes })
            }
            29 if later == 0 => None,
            29 => without_data(ns, (half(4)? as usize).checked_add(4)?),
            30 => without_data(ns.wrapping_add(u64::from(half(4)?) << TIME_BITS), 8),
            _ => {
                let told = u64::from(half(4)?) << TIME_BITS | later;
                without_data(before_ns >> WHOLE_TIME_BITS << WHOLE_TIME_BITS | told, 8)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(first_ns: u64, commit: u64, words: &[u32]) -> Vec<u8> {
        let records = words.iter().flat_map(|word| word.to_le_bytes());
        first_ns.to_le_bytes().into_iter().chain(commit.to_le_bytes()).chain(records).collect()
    }

    fn read(page: &[u8]) -> (Vec<(u64, Vec<u8>)>, u64) {
        let mut records = Vec::new();
        let n_lost = read_page(page, |ns, data| records.push((ns, data.to_vec())));
        (records, n_lost)
    }

    #[test]
    fn records_of_every_kind() {
        let words = [
            5 << 5 | 1, // 5 ns later, one word
            7,
            3 << 5, // 3 ns later, long: 8 bytes with this number
            8,
            9,
            1 << 5 | 29, // passed over: 8 bytes with this number
            8,
            0,
            2 << 5 | 30, // 2 ns and 2^27 ns later
            1,
            1 << 5 | 1,
            10,
            4 << 5 | 31, // it is 3 * 2^27 + 4
            3,
            1,
            11,
            29, // the end
            1 << 5 | 1,
            12,
        ];
        let whole = page(1000, 4 * words.len() as u64, &words);
        let later = 1000 + 5 + 3 + 1 + 2 + (1 << 27) + 1;
        let known = |ns: u64, n: u32| (ns, n.to_le_bytes().to_vec());
        let wanted = vec![known(1005, 7), known(1008, 9), known(later, 10), known(3 * (1 << 27) + 4, 11)];
        assert_eq!(read(&whole), (wanted.clone(), 0));
        for n in 0..whole.len() {
            // Cut anywhere: nothing beyond is read.
            let (records, _) = read(&whole[..n]);
            assert_eq!(records, wanted[..records.len()]);
        }
    }

    #[test]
    fn what_was_lost_is_told() {
        let words = [1, 7, 41, 0];
        assert_eq!(read(&page(0, 8, &words)).1, 0);
        assert_eq!(read(&page(0, 8 | HAS_LOST, &words)).1, 1);
        assert_eq!(read(&page(0, 8 | HAS_LOST | HAS_COUNT, &words)), (vec![(0, vec![7, 0, 0, 0])], 41));
        assert_eq!(read(&page(0, LENGTH_MASK | HAS_LOST | HAS_COUNT, &words)).1, 1);
    }
}
