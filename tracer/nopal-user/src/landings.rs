//! Where punned jumps land: pieces of code at given addresses that all lead to one thunk, and the pages of the memfd that
//! hold them. Pages at many addresses show the same page of the memfd, each using other bytes of it: jumps land all over
//! the address space, a few bytes at each place.

use super::distance::JUMP_BYTES;
use super::error::Result;
use super::neighbourhood::Neighbourhood;
use super::stub::chain::landing;
use nopal_abi::PAGE_BYTES;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: u64 = PAGE_BYTES as u64;
const NOP: u8 = 0x90;
/// Longer jumps begin at multiples of this, at places that differ from thunk to thunk.
const SLOT: u64 = 16;
const RELAY_STEP: u64 = 37;
/// With more bytes in use a page of the memfd is shown at no further address: what its pages may still need would often
/// be taken by another of them.
const FULL: usize = 160;
/// Of the pages of the memfd that are not full, so many are tried.
const TRIED: usize = 8;

/// Code at an address; never across the end of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Piece {
    pub address: u64,
    pub code: Vec<u8>,
}

fn page_of(address: u64) -> u64 {
    address & !(PAGE - 1)
}

/// How many places for a longer jump are tried in a page.
pub(crate) const ATTEMPTS: u64 = 8;

/// The code that leads from each of these addresses to the thunk. Where one would run into the next, or over the end of
/// its page, it steps up to there; where the thunk is out of reach, it goes on by a longer jump elsewhere in the page.
/// `None` if that is in the way, which `attempt` changes.
pub(crate) fn pieces(
    addresses: impl IntoIterator<Item = u64>,
    thunk: u64,
    attempt: u64,
) -> Option<Vec<Piece>> {
    let mut places: BTreeSet<u64> = addresses.into_iter().collect();
    let crossed: Vec<u64> = places
        .iter()
        .filter(|at| page_of(at.wrapping_add(JUMP_BYTES as u64 - 1)) != page_of(**at))
        .map(|at| page_of(*at).wrapping_add(PAGE))
        .collect();
    places.extend(crossed);
    let mut pieces: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for at in &places {
        let next = places.range(at.wrapping_add(1)..).next().map(|next| next - at);
        let code = match (next, landing(*at, thunk)) {
            (Some(next), _) if next < JUMP_BYTES as u64 => vec![NOP; next as usize],
            (_, code) if code.len() == JUMP_BYTES => code,
            _ => {
                let slot = (thunk / SLOT).wrapping_add(attempt).wrapping_mul(RELAY_STEP) % (PAGE / SLOT);
                let relay = page_of(*at) + slot * SLOT;
                if places.contains(&relay) {
                    return None;
                }
                pieces.insert(relay, landing(relay, thunk));
                landing(*at, relay)
            }
        };
        pieces.insert(*at, code);
    }
    let ends = pieces.iter().map(|(at, code)| at.wrapping_add(code.len() as u64));
    let starts = pieces.keys().skip(1);
    if ends.zip(starts).any(|(end, next)| end > *next) {
        return None;
    }
    Some(pieces.into_iter().map(|(address, code)| Piece { address, code }).collect())
}

/// The pages that these pieces are in.
pub(crate) fn pages(pieces: &[Piece]) -> Vec<u64> {
    let mut pages: Vec<u64> = pieces.iter().map(|piece| page_of(piece.address)).collect();
    pages.dedup();
    pages
}

/// The landing pages of a stub space as they are now.
#[derive(Debug)]
pub(crate) struct Landings<'n> {
    n: &'n Neighbourhood,
}

impl<'n> Landings<'n> {
    pub(crate) fn of(n: &'n Neighbourhood) -> Landings<'n> {
        Landings { n }
    }

    pub(crate) fn has(&self, page: u64) -> bool {
        self.n.space.landing_at(page).is_some()
    }

    /// Whether none of the pieces meets another site's, in pages that are there already, nor one of their own that another
    /// address shows, too: a jump and its guard may land at the same place of two pages.
    pub(crate) fn fit(&self, pieces: &[Piece]) -> bool {
        let mut contents: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        pages(pieces).into_iter().all(|page| {
            let Some(offset) = self.n.space.landing_at(page) else { return true };
            let content = contents.entry(offset).or_insert_with(|| self.content(offset));
            let is_fit = fit_into(content, page, pieces);
            if is_fit {
                for piece in pieces.iter().filter(|piece| page_of(piece.address) == page) {
                    let at = (piece.address % PAGE) as usize;
                    content[at..at + piece.code.len()].copy_from_slice(&piece.code);
                }
            }
            is_fit
        })
    }

    /// Writes the pieces, which must fit. The opcode of each last: whoever comes by meanwhile finds none. Pages that are there
    /// already come first, so that what is chosen for the others has room beside them.
    pub(crate) fn write(&self, pieces: &[Piece]) -> Result<()> {
        let (there, new): (Vec<u64>, Vec<u64>) = pages(pieces).into_iter().partition(|page| self.has(*page));
        for page in there.into_iter().chain(new) {
            let offset = match self.n.space.landing_at(page) {
                Some(offset) => offset,
                None => {
                    let offset = match self.shared(page, pieces) {
                        Some(offset) => offset,
                        None => self.n.add_page()?,
                    };
                    self.n.note_landing_page(page, offset)?;
                    offset
                }
            };
            for piece in pieces.iter().filter(|piece| page_of(piece.address) == page) {
                for (i, byte) in piece.code.iter().enumerate().rev() {
                    let at = offset + piece.address % PAGE + i as u64;
                    self.n.space.put(at as usize, std::slice::from_ref(byte));
                }
            }
        }
        Ok(())
    }

    /// A page of the memfd that can be shown at one more address.
    fn shared(&self, page: u64, pieces: &[Piece]) -> Option<u64> {
        self.n.space.landing_places(TRIED).into_iter().find(|offset| {
            let content = self.content(*offset);
            let n_used = used(&content).iter().filter(|is_used| **is_used).count();
            n_used < FULL && fit_into(&content, page, pieces)
        })
    }

    fn content(&self, offset: u64) -> Vec<u8> {
        self.n.space.get(offset as usize, PAGE_BYTES)
    }
}

/// Whether the pieces in this page are there already, or meet nothing.
fn fit_into(content: &[u8], page: u64, pieces: &[Piece]) -> bool {
    let used = used(content);
    pieces.iter().filter(|piece| page_of(piece.address) == page).all(|piece| {
        let at = (piece.address % PAGE) as usize;
        let range = at..at + piece.code.len();
        content[range.clone()] == piece.code || !used[range].contains(&true)
    })
}

/// Which bytes of a page belong to a piece. A distance may have zeros in it, an opcode is none.
fn used(content: &[u8]) -> Vec<bool> {
    let mut used = vec![false; content.len()];
    let mut at = 0;
    while at < content.len() {
        let len = match content[at] {
            0 => {
                at += 1;
                continue;
            }
            0xe9 => 5,
            0xff => 14,
            _ => 1,
        };
        let end = (at + len).min(content.len());
        used[at..end].fill(true);
        at = end;
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[Piece]) -> Vec<(u64, usize, u8)> {
        pieces.iter().map(|p| (p.address, p.code.len(), p.code[0])).collect()
    }

    #[test]
    fn pieces_keep_out_of_each_other_and_within_their_pages() {
        const NEAR: u64 = 0x2000_0000;
        type Row = (&'static [u64], &'static [(u64, usize, u8)]);
        let table: &[Row] = &[
            (&[0x1000], &[(0x1000, 5, 0xe9)]),
            (&[0x1000, 0x1005], &[(0x1000, 5, 0xe9), (0x1005, 5, 0xe9)]),
            (&[0x1003, 0x1000], &[(0x1000, 3, 0x90), (0x1003, 5, 0xe9)]),
            (&[0x1ffb], &[(0x1ffb, 5, 0xe9)]),
            (&[0x1ffc], &[(0x1ffc, 4, 0x90), (0x2000, 5, 0xe9)]),
            (&[0x1ffc, 0x2003], &[(0x1ffc, 4, 0x90), (0x2000, 3, 0x90), (0x2003, 5, 0xe9)]),
            (&[0x1ffc, 0x1ffe], &[(0x1ffc, 2, 0x90), (0x1ffe, 2, 0x90), (0x2000, 5, 0xe9)]),
            (&[0x1000, 0x1000], &[(0x1000, 5, 0xe9)]),
        ];
        for (addresses, expected) in table {
            let pieces = pieces(addresses.iter().copied(), NEAR, 0).unwrap();
            assert_eq!(shown(&pieces), *expected, "{addresses:x?}");
        }
    }

    /// Follows the pieces as the processor would, for a bounded number of steps.
    fn leads_to(pieces: &[Piece], mut at: u64) -> Option<u64> {
        for _ in 0..16 {
            let piece = pieces.iter().find(|p| (p.address..p.address + p.code.len() as u64).contains(&at))?;
            match piece.code[0] {
                NOP => at = piece.address + piece.code.len() as u64,
                _ if piece.address != at => return None,
                0xe9 => {
                    let distance = i32::from_le_bytes(piece.code[1..5].try_into().unwrap());
                    at = (at + 5).wrapping_add(distance as i64 as u64);
                    if !pieces.iter().any(|p| p.address == at) {
                        return Some(at);
                    }
                }
                _ => return Some(u64::from_le_bytes(piece.code[6..14].try_into().unwrap())),
            }
        }
        None
    }

    #[test]
    fn from_every_address_the_thunk_is_reached() {
        let mut n_tried = 0;
        for thunk in [0x2000_0000u64, 0x7f00_0000_0000, 0x7f00_0000_1240] {
            for shift in 0..64 {
                let addresses = [0x1fb0u64, 0x1fb3, 0x1fb8, 0x1fbd, 0x2001, 0x3000].map(|a| a + shift);
                for pieces in (0..ATTEMPTS).filter_map(|attempt| pieces(addresses, thunk, attempt)) {
                    n_tried += 1;
                    for address in addresses {
                        assert_eq!(leads_to(&pieces, address), Some(thunk), "{address:#x} {pieces:x?}");
                    }
                    for piece in &pieces {
                        let last = piece.address + piece.code.len() as u64 - 1;
                        assert_eq!(page_of(piece.address), page_of(last), "{pieces:x?}");
                    }
                }
            }
        }
        assert!(n_tried > 1000, "{n_tried}");
    }

    #[test]
    fn spaces_share_pages_without_meeting() {
        let n = Neighbourhood::create(0x5000_0000_0000, 0x5305_3053).unwrap();
        let thunk = n.address() + 0x1_0000;
        let mut all: Vec<(u64, Vec<Piece>)> = Vec::new();
        // Few sites, many addresses: as a site with four short instructions behind it has.
        for site in 0..200u64 {
            let main = 0x5000_4000_0000 + site * 0x0012_345d;
            let addresses = (0..16u64).map(|i| main + i * 0x10_0000 + i * 7);
            let pieces = pieces(addresses, thunk + site * 64, 0).unwrap();
            let landings = Landings::of(&n);
            if landings.fit(&pieces) {
                landings.write(&pieces).unwrap();
                all.push((site, pieces));
            }
        }
        assert!(all.len() > 190, "{}", all.len());
        let landings = Landings::of(&n);
        for (site, pieces) in &all {
            assert!(landings.fit(pieces), "what is there is there");
            for piece in pieces {
                let shown = n.space.landing_at(page_of(piece.address)).unwrap();
                let offset = shown + piece.address % PAGE;
                assert_eq!(n.space.get(offset as usize, piece.code.len()), piece.code, "site {site}");
            }
        }
        let shown = n.landing_pages();
        let n_shown = shown.len();
        let n_pages = shown.iter().map(|(_, offset)| offset).collect::<BTreeSet<_>>().len();
        assert!(n_shown > 1000 && n_pages * 8 < n_shown, "{n_shown} at {n_pages}");
    }

    /// Where a jump to this address ends up, by the bytes that are there.
    fn reached(n: &Neighbourhood, mut at: u64) -> Option<u64> {
        for _ in 0..64 {
            let offset = n.space.landing_at(page_of(at))? + at % PAGE;
            let code = n.space.get(offset as usize, (PAGE - at % PAGE).min(14) as usize);
            match code[..] {
                [NOP, ..] => at += 1,
                [0xe9, a, b, c, d, ..] => {
                    let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
                    at = (at + JUMP_BYTES as u64).wrapping_add_signed(distance);
                    if n.space.landing_at(page_of(at)).is_none() {
                        return Some(at);
                    }
                }
                [0xff, 0x25, 0, 0, 0, 0, ref address @ ..] => {
                    return Some(u64::from_le_bytes(address.try_into().ok()?));
                }
                _ => return None,
            }
        }
        None
    }

    /// Jumps with distances as they come, near to each other and far, each with a guard for every set of breakpoints in it:
    /// what was opened once leads where it should after all others were.
    #[test]
    fn however_jumps_land_none_leads_astray() {
        for seed in 1..=4u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut random = move || {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state
            };
            let n = Neighbourhood::create(0x5000_0000_0000, 0x5305_3053).unwrap();
            let landings = Landings::of(&n);
            let (mut open, mut n_refused) = (Vec::new(), 0);
            for number in 0..1500u64 {
                let site = 0x5000_2000_0000 + random() % 0x1000_0000;
                // Real instructions have few different bytes, so that many jumps land in few places.
                let few = [0x00, 0x48, 0x8b, 0x05, 0xe8, 0x89, 0xc3, 0x0f];
                let byte =
                    |r: u64| if r.is_multiple_of(3) { (r >> 8) as u8 } else { few[(r >> 8) as usize % 8] };
                let distance = [byte(random()), byte(random()), byte(random()), byte(random())];
                let places: Vec<usize> = (0..4).filter(|_| random().is_multiple_of(3)).collect();
                let addresses: BTreeSet<u64> = (0..1 << places.len())
                    .map(|subset: u32| {
                        let mut distance = distance;
                        for (bit, place) in places.iter().enumerate() {
                            if subset & 1 << bit != 0 {
                                distance[*place] = 0xcc;
                            }
                        }
                        (site + 5).wrapping_add_signed(i64::from(i32::from_le_bytes(distance)))
                    })
                    .collect();
                // Memory that is taken is not a place to land on.
                if addresses.iter().any(|at| (n.address()..n.address() + 0x10_0000).contains(at)) {
                    continue;
                }
                let thunk = n.address() + 0x1_0000 + 64 * number;
                let made = (0..ATTEMPTS)
                    .filter_map(|attempt| pieces(addresses.iter().copied(), thunk, attempt))
                    .find(|pieces| landings.fit(pieces));
                match made {
                    Some(pieces) => {
                        landings.write(&pieces).unwrap();
                        open.push((thunk, addresses));
                    }
                    None => n_refused += 1,
                }
            }
            assert!(open.len() > 1000, "{n_refused} refused");
            for (thunk, addresses) in open {
                for address in addresses {
                    assert_eq!(reached(&n, address), Some(thunk), "seed {seed}, {address:#x}");
                }
            }
        }
    }

    /// A jump and its guard, a multiple of a page apart, in pages of which one or both are there already and show the same
    /// page of the memfd.
    #[test]
    fn a_jump_and_its_guard_at_one_place_of_their_pages_are_told_apart() {
        const APART: u64 = 0x41_0000;
        let main = 0x5000_1000_0c3c;
        for there in [&[APART][..], &[0][..], &[0, APART][..]] {
            let n = Neighbourhood::create(0x5000_0000_0000, 0x5305_3053).unwrap();
            let thunk = n.address() + 0x1_0000;
            let landings = Landings::of(&n);
            for (i, at) in (0..).zip(there) {
                // Somebody else's, elsewhere in the page.
                let others = pieces([main + at - 0x800 + i * 0x40], thunk + 64, 0).unwrap();
                landings.write(&others).unwrap();
            }
            let own = pieces([main, main + APART], thunk, 0).unwrap();
            if landings.fit(&own) {
                landings.write(&own).unwrap();
                for piece in &own {
                    let shown = n.space.landing_at(page_of(piece.address)).unwrap();
                    let offset = (shown + piece.address % PAGE) as usize;
                    assert_eq!(n.space.get(offset, piece.code.len()), piece.code, "{there:x?}");
                }
            } else {
                assert_eq!(there.len(), 2, "one page can be chosen freely");
            }
        }
    }

    #[test]
    fn a_piece_is_used_to_its_end_whatever_its_bytes_are() {
        let mut content = vec![0; PAGE_BYTES];
        content[10..15].copy_from_slice(&[0xe9, 1, 0, 0, 0]);
        content[20..34].copy_from_slice(&landing(0, 0x7f00_0000_0000));
        content[PAGE_BYTES - 1] = NOP;
        let used = used(&content);
        let n_used = used.iter().filter(|u| **u).count();
        assert_eq!(n_used, 5 + 14 + 1);
        assert!(used[14] && used[33] && !used[15] && !used[34]);
        let at = |address: u64| pieces([address], 0x2000_0000, 0).unwrap();
        assert!(!fit_into(&content, 0x1000, &at(0x100e)) && fit_into(&content, 0x1000, &at(0x100f)));
    }
}
