//! How the nop of a site can become a jump: which bytes change, where the jump lands, where the program goes on.
//! Pure; what is free in the target is asked of [`Room`](super::room::Room) by the caller.
//!
//! Whoever traces by the kernel changes the first byte of an instruction and puts the file's byte back when it leaves, at
//! any time and without asking. So of one instruction either the first byte is changed alone, or the first byte stays;
//! only where the instruction is a nop may both change, and then so that what is left with the file's first byte is a nop
//! of the same length.

use super::distance::{self, Distance, JUMP, JUMP_BYTES};
use super::stub::tail::{Tail, plan_tail};
use nopal_abi::stub_space::PatchForm;
use std::fmt;

/// How a site was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tactic {
    /// A jump over a long nop, written while all threads stand still.
    Jump,
    /// The one-byte nop becomes the opcode of a jump whose distance is the bytes that follow.
    Pun,
    /// On nopal's own sites: the same with the first byte of the 10-byte nop, beside the nop that belongs to others.
    OwnPun,
    /// A jump within an instruction behind the nop: its prefix stays, the jump follows, and the instruction runs elsewhere
    /// meanwhile. The nop stays, too: other tools use it as ever, and come by here afterwards.
    Behind,
    /// The first byte of an instruction behind the nop becomes the opcode of a jump whose distance is the bytes that follow;
    /// the instruction runs elsewhere meanwhile. The nop stays.
    Further,
    /// The jump behind the nop, or out of a function, leads to the stub, which goes on where it led to.
    Retarget,
    /// A 5-byte jump over the nop and the instructions behind it, which run elsewhere meanwhile. Only where asked for.
    Relocate,
}

impl Tactic {
    /// The same at the edge of a function.
    pub fn at_edge(self) -> &'static str {
        match self {
            Tactic::Jump => "jump over the return and what fills up behind it",
            Tactic::Pun | Tactic::OwnPun | Tactic::Further => {
                "one-byte jump that lands where the bytes behind it say"
            }
            Tactic::Behind => "jump inside an instruction, behind its prefix",
            Tactic::Retarget => "the function's own jump, led elsewhere",
            Tactic::Relocate => "5-byte jump over instructions that were moved",
        }
    }
}

impl fmt::Display for Tactic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tactic::Jump => "jump over the long nop",
            Tactic::Pun => "one-byte jump that lands where the next instruction's bytes say",
            Tactic::OwnPun => "one-byte jump inside the 10-byte nop",
            Tactic::Behind => "jump inside an instruction behind the nop",
            Tactic::Further => "one-byte jump on an instruction behind the nop",
            Tactic::Retarget => "the jump behind the nop, led elsewhere",
            Tactic::Relocate => "5-byte jump over instructions that were moved",
        })
    }
}

/// Why a site cannot be opened here. The kernel door may still be able to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    NotANop {
        bytes: Vec<u8>,
    },
    /// 0xCC: a breakpoint or uprobe was there before us.
    Breakpoint,
    /// Memory and file differ in a way that is not ours.
    BytesChanged {
        found: Vec<u8>,
    },
    /// The one address the pun can land on is not to be had.
    LandingTaken {
        address: u64,
        by: String,
    },
    /// Where the jump would land while another tool has a breakpoint on an instruction behind the nop.
    GuardTaken {
        address: u64,
        by: String,
    },
    /// A nop behind the site is one that the kernel replaces as a whole when somebody traces it.
    LongNopBehind,
    /// An earlier session went on behind it otherwise, and its code stays.
    OpenedOtherwise,
    /// Another site begins within the bytes that are the pun's distance.
    NextSiteTooClose,
    /// Another jump of ours is in the way.
    Crowded,
    /// Another edge of the function is the kernel door's.
    OneDoor,
    /// At the edge of a function no instruction can have a jump put on it.
    NoWay {
        reason: String,
    },
    /// The instructions behind the nop must stay where they are, and the pun has no place to land either.
    NotMovable {
        landing: Box<Refusal>,
        reason: String,
    },
    /// Part of a restartable sequence (`rseq(2)`) of the program itself, or so near in front of one that instructions of
    /// the sequence would have to be moved.
    Restartable,
    ThreadInside,
    OutOfReach,
    Stub(String),
    NotMapped,
    /// What would change lies on two pages, which the kernel writes one after the other.
    TwoPages,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotANop { bytes } => write!(f, "the code there is not a nop but {bytes:02x?}"),
            Refusal::Breakpoint => write!(f, "another tracer or debugger has a breakpoint there"),
            Refusal::BytesChanged { found } => {
                write!(f, "somebody has changed the code there: {found:02x?} is not what the file has")
            }
            Refusal::LandingTaken { address, by } => {
                write!(f, "its jump would land at {address:#x}, which is taken by {by}")
            }
            Refusal::GuardTaken { address, by } => write!(
                f,
                "under a breakpoint behind it its jump would land at {address:#x}, which is taken by {by}"
            ),
            Refusal::LongNopBehind => {
                write!(f, "its jump would go astray if the kernel replaced the long nop behind it by a call")
            }
            Refusal::OpenedOtherwise => write!(f, "an earlier session opened it otherwise"),
            Refusal::NextSiteTooClose => write!(f, "another probe is less than 5 bytes further on"),
            Refusal::Crowded => write!(f, "another jump of ours is too near"),
            Refusal::OneDoor => write!(
                f,
                "another edge of the function is the kernel door's, and calls that two doors tell of cannot be put in order"
            ),
            Refusal::NoWay { reason } => f.write_str(reason),
            Refusal::NotMovable { landing, reason } => {
                write!(f, "{landing}, and the instructions behind it cannot be moved: {reason}")
            }
            Refusal::Restartable => f.write_str(nopal_sdt::RESTARTABLE),
            Refusal::ThreadInside => write!(f, "a thread stands inside the bytes to be changed"),
            Refusal::OutOfReach => write!(f, "no stub could be placed within 2 GiB"),
            Refusal::Stub(reason) => f.write_str(reason),
            Refusal::NotMapped => write!(f, "its code is not mapped"),
            Refusal::TwoPages => {
                write!(f, "the bytes to be changed lie on two pages, and cannot be changed at once")
            }
        }
    }
}

impl Refusal {
    /// Whether a jump at the nop has no place to land, so that one behind it may help.
    pub fn is_about_landing(&self) -> bool {
        match self {
            Refusal::LandingTaken { .. }
            | Refusal::GuardTaken { .. }
            | Refusal::LongNopBehind
            | Refusal::OpenedOtherwise
            | Refusal::TwoPages => true,
            Refusal::NotANop { .. }
            | Refusal::Breakpoint
            | Refusal::BytesChanged { .. }
            | Refusal::NextSiteTooClose
            | Refusal::Crowded
            | Refusal::OneDoor
            | Refusal::NoWay { .. }
            | Refusal::NotMovable { .. }
            | Refusal::Restartable
            | Refusal::ThreadInside
            | Refusal::OutOfReach
            | Refusal::Stub(_)
            | Refusal::NotMapped => false,
        }
    }
}

/// One way to open a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    pub tactic: Tactic,
    /// Where the opcode of the jump is or will be.
    pub jump: u64,
    /// First byte to change.
    pub patch: u64,
    /// Bytes that change.
    pub patch_len: usize,
    /// Bytes before `patch` that belong to the same instruction and stay.
    pub kept_len: usize,
    pub distance: Distance,
    /// How the program goes on after the site.
    pub tail: Tail,
    /// The landing may be nearer to the heap than it should: for want of another way.
    pub is_narrow: bool,
    /// How far the stack pointer is below its value at the site: where the jump is on another instruction.
    pub above: i32,
}

impl Way {
    /// The changed bytes, given the jump's distance.
    pub fn patched(&self, distance: u32) -> Vec<u8> {
        let from = (self.patch - self.jump) as usize;
        Way::jump_bytes(distance)[from..from + self.patch_len].to_vec()
    }

    /// The whole jump, and what stands behind it in the place of a 10-byte nop.
    pub fn jump_bytes(distance: u32) -> Vec<u8> {
        [&[JUMP][..], &distance.to_le_bytes(), &NOP5].concat()
    }

    /// Whether a tracer that is killed while it changes the bytes can leave half of an instruction: they lie on two pages, which
    /// the kernel writes one after the other. Behind the first byte of a long nop or of a `ret` with nothing but filling behind
    /// it any byte may come before another.
    pub fn may_be_torn(&self) -> bool {
        let is_any_order = self.tactic == Tactic::Jump && self.patch_len == JUMP_BYTES;
        !is_any_order && lies_on_two_pages(self.patch, self.patch_len)
    }

    /// How many bytes of a jump's distance lie behind the changed ones, and stay.
    pub fn n_behind(patch_len: usize) -> usize {
        JUMP_BYTES.saturating_sub(patch_len)
    }

    pub fn form(&self) -> PatchForm {
        match self.tactic {
            Tactic::Jump | Tactic::Pun | Tactic::OwnPun | Tactic::Further => PatchForm::Jump,
            Tactic::Behind => PatchForm::Prefixed,
            Tactic::Retarget if self.kept_len == 2 => PatchForm::FarDistance,
            Tactic::Retarget => PatchForm::Distance,
            Tactic::Relocate => PatchForm::Relocated,
        }
    }

    /// Where the jump lands: as it is, and under breakpoints on the instructions that begin within its distance.
    pub fn landings(&self, distance: u32) -> (u64, Vec<u64>) {
        let to = |distance| distance::landing(self.jump, distance);
        let guards = self.distance.under_breakpoints(distance).into_iter().map(to).collect();
        (to(distance), guards)
    }

    /// The distance to a place, if the jump can be made to go there.
    pub fn distance_to(&self, address: u64) -> Option<u32> {
        let distance = address.wrapping_sub(self.jump + JUMP_BYTES as u64) as i64;
        i32::try_from(distance).ok().map(|distance| distance as u32)
    }

    /// Over a classic nop and what follows it.
    pub fn relocation(address: u64, tail: Tail) -> Way {
        Way {
            tactic: Tactic::Relocate,
            jump: address,
            patch: address,
            patch_len: JUMP_BYTES,
            kept_len: 0,
            distance: Distance::FREE,
            tail,
            is_narrow: false,
            above: 0,
        }
    }
}

pub(super) fn lies_on_two_pages(address: u64, len: usize) -> bool {
    address / PAGE != (address + len as u64 - 1) / PAGE
}

const PAGE: u64 = 4096;
const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
const NOP10: [u8; 10] = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

/// What may stand between the `66` and the opcode of a nop without a meaning of its own; a REX prefix only last.
const PADDING: &[u8] = &[0x26, 0x2e, 0x36, 0x3e, 0x66];
const LAST_PADDING: &[u8] = &[
    0x26, 0x2e, 0x36, 0x3e, 0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c,
    0x4d, 0x4e, 0x4f, 0x66,
];

/// `0f 1f 44 xx xx`: with any address a nop that never looks at it.
fn over_nop5(at: u64) -> Way {
    use distance::Byte::{Fixed, Free};
    Way {
        tactic: Tactic::Jump,
        jump: at,
        patch: at,
        patch_len: NOP5.len(),
        kept_len: 0,
        distance: Distance([Fixed(NOP5[1]), Fixed(NOP5[2]), Free, Free]),
        tail: Tail::to(at + NOP5.len() as u64),
        is_narrow: false,
        above: 0,
    }
}

/// `66 pp pp pp pp 0f 1f 44 00 00`: a nop of ten bytes with other prefixes.
fn over_nop10(at: u64) -> Way {
    use distance::Byte::OneOf;
    let prefixes = [OneOf(PADDING), OneOf(PADDING), OneOf(PADDING), OneOf(LAST_PADDING)];
    Way {
        patch_len: NOP10.len(),
        distance: Distance(prefixes),
        tail: Tail::to(at + NOP10.len() as u64),
        ..over_nop5(at)
    }
}

/// The first byte at `at` alone becomes the opcode, with the four bytes of `code` behind it as its distance.
pub(super) fn pun(tactic: Tactic, at: u64, distance: Distance, tail: Tail) -> Way {
    Way { tactic, jump: at, patch: at, patch_len: 1, kept_len: 0, distance, tail, is_narrow: false, above: 0 }
}

/// The ways to open a site with these bytes, best first. `next_site`: how far the next probe site of the object is.
pub fn ways(address: u64, code: &[u8], next_site: Option<u64>) -> Result<Vec<Way>, Refusal> {
    let is_clear = |len: u64| next_site.is_none_or(|distance| distance >= len);
    match code {
        [distance::BREAKPOINT, ..] => Err(Refusal::Breakpoint),
        _ if code.starts_with(&NOP5) && is_clear(5) => Ok(vec![over_nop5(address)]),
        [0x90, rest @ ..] if rest.starts_with(&NOP10) && is_clear(11) => {
            let tail = Tail::to(address + 11);
            let inside = Distance::of_file(code, 2, &[1]);
            let own = inside.map(|distance| pun(Tactic::OwnPun, address + 1, distance, tail));
            Ok(own.into_iter().chain([over_nop10(address + 1)]).collect())
        }
        [0x90, rest @ ..] if rest.starts_with(&NOP5) && is_clear(6) => Ok(vec![over_nop5(address + 1)]),
        [0x90, rest @ ..] if rest.len() >= 4 => {
            if !is_clear(JUMP_BYTES as u64) {
                return Err(Refusal::NextSiteTooClose);
            }
            let distance =
                Distance::of_file(code, 1, &distance::starts(code, 1)).ok_or(Refusal::LongNopBehind)?;
            Ok(vec![pun(Tactic::Pun, address, distance, plan_tail(rest, address + 1))])
        }
        _ => Err(Refusal::NotANop { bytes: code.iter().take(5).copied().collect() }),
    }
}

/// The ways to open a `ret` with these bytes from it on. `has_padding`: nothing but filling follows.
pub fn ways_of_ret(address: u64, code: &[u8], has_padding: bool) -> Result<Vec<Way>, Refusal> {
    match code {
        [distance::BREAKPOINT, ..] => Err(Refusal::Breakpoint),
        [0xc3, _, _, _, _, ..] => {
            // What fills up is never reached: nobody traces it, and it may be left as it comes.
            let starts = if has_padding { Vec::new() } else { distance::starts(code, 1) };
            let distance = Distance::of_file(code, 1, &starts);
            let pun = distance.map(|distance| pun(Tactic::Pun, address, distance, Tail::ret()));
            let over = Way { tactic: Tactic::Jump, ..Way::relocation(address, Tail::ret()) };
            Ok(pun.into_iter().chain(has_padding.then_some(over)).collect())
        }
        _ => Err(Refusal::NotANop { bytes: code.iter().take(5).copied().collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Mnemonic};

    #[test]
    fn site_bytes_decide() {
        let own = [0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        for (code, next, expected) in [
            (&own[..], None, "OwnPun 1 at 401001 0 guards, Jump 10 at 401001 0 guards"),
            (&NOP5[..], None, "Jump 5 at 401000 0 guards"),
            (&[0x90, 0x0f, 0x1f, 0x44, 0, 0][..], None, "Jump 5 at 401001 0 guards"),
            (&[0x90, 0x48, 0x89, 0xc7, 0xc3, 0xe8][..], None, "Pun 1 at 401000 3 guards"),
            (&[0x90, 0x48, 0x89, 0xc7, 0xc3, 0xe8][..], Some(5), "Pun 1 at 401000 3 guards"),
            (&[0x90, 0x48, 0x8b, 0x05, 1, 2, 3, 4][..], None, "Pun 1 at 401000 1 guards"),
            (
                &[0x90, 0x90, 0x89, 0xc7, 0x10][..],
                Some(1),
                "refused: another probe is less than 5 bytes further on",
            ),
            (
                &[0x90, 0x31, 0xc0, 0x0f, 0x1f, 0x44, 0, 0][..],
                None,
                "refused: its jump would go astray if the kernel replaced the long nop behind it by a call",
            ),
            (
                &[0xcc, 0x48, 0x89, 0xc7][..],
                None,
                "refused: another tracer or debugger has a breakpoint there",
            ),
            (&[0x90, 0x48, 0x89][..], None, "refused: the code there is not a nop but [90, 48, 89]"),
            (
                &[0xe8, 1, 2, 3, 4, 5][..],
                None,
                "refused: the code there is not a nop but [e8, 01, 02, 03, 04]",
            ),
        ] {
            let text = match ways(0x401000, code, next) {
                Ok(ways) => ways
                    .iter()
                    .map(|w| {
                        let n_guards = w.distance.under_breakpoints(0).len();
                        format!("{:?} {} at {:x} {n_guards} guards", w.tactic, w.patch_len, w.patch)
                    })
                    .collect::<Vec<_>>()
                    .join(", "),
                Err(refusal) => format!("refused: {refusal}"),
            };
            assert_eq!(text, expected, "{code:02x?}");
        }
    }

    #[test]
    fn the_pun_inside_the_long_nop_always_lands_at_the_same_distance() {
        let address = 0x5555_5555_1000u64;
        let own = [0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        let way = &ways(address, &own, None).unwrap()[0];
        let [distance] = way.distance.candidates(0)[..] else { panic!("{way:?}") };
        assert_eq!(way.landings(distance), (address + 6 - 0x7be0_f0d2, vec![]));
        assert_eq!(way.tail, Tail::to(address + 11));
        assert_eq!(way.patched(distance), [0xe9]);
    }

    #[test]
    fn a_long_nop_that_gets_its_first_byte_back_is_a_nop_of_the_same_length() {
        for way in [over_nop5(0x1000), over_nop10(0x1000)] {
            let candidates = way.distance.candidates(0);
            assert!(candidates.len() > 2000, "{}", candidates.len());
            for distance in candidates {
                let mut bytes = way.patched(distance);
                assert_eq!(distance::landing(0x1000, distance), {
                    let jump = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
                    jump.near_branch_target()
                });
                bytes[0] = if way.patch_len == 5 { NOP5[0] } else { NOP10[0] };
                let nop = Decoder::with_ip(64, &bytes, 0x1000, DecoderOptions::NONE).decode();
                assert_eq!((nop.mnemonic(), nop.len()), (Mnemonic::Nop, way.patch_len), "{bytes:02x?}");
            }
        }
    }

    #[test]
    fn long_nops_can_jump_up_and_down() {
        let reaches = |way: &Way, low: i64, high: i64| {
            way.distance.candidates(0).iter().any(|d| (low..high).contains(&i64::from(*d as i32)))
        };
        let nop5 = over_nop5(0x1000);
        assert!(reaches(&nop5, -(2 << 30), -(1 << 30)) && reaches(&nop5, 1 << 30, 2 << 30));
        // Its first byte alone leads down, which a program at low addresses has no room for.
        assert!(reaches(&over_nop10(0x1000), 0, 1 << 30));
    }

    #[test]
    fn what_lies_on_two_pages_is_changed_only_where_any_order_will_do() {
        let filled = |at| Way { tactic: Tactic::Jump, ..Way::relocation(at, Tail::ret()) };
        let behind = |at| Way { tactic: Tactic::Behind, patch_len: 2, kept_len: 1, ..filled(at) };
        for (way, is_torn) in [
            (over_nop5(0x1ffc), false),
            (filled(0x1ffc), false),
            (over_nop10(0x1ff6), false),
            (over_nop10(0x1ff7), true),
            (Way::relocation(0x1ffb, Tail::ret()), false),
            (Way::relocation(0x1ffc, Tail::ret()), true),
            (behind(0x1ffe), false),
            (behind(0x1fff), true),
            (Way { patch_len: 1, ..behind(0x1fff) }, false),
        ] {
            assert_eq!(way.may_be_torn(), is_torn, "{way:?}");
        }
    }

    #[test]
    fn jumps_reach_two_gigabytes() {
        let way = Way::relocation(0x1_0000_0000, Tail::to(0));
        assert_eq!(way.patched(way.distance_to(0x1_0000_0100).unwrap()), [0xe9, 0xfb, 0, 0, 0]);
        assert_eq!(way.distance_to(0x2_0000_0000), None);
    }

    #[test]
    fn a_ret_is_opened_by_one_byte_or_into_its_padding() {
        for (code, has_padding, expected) in [
            (&[0xc3, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0][..], true, "Pun Jump"),
            (&[0xc3, 0xf3, 0x0f, 0x1e, 0xfa][..], false, "Pun"),
            (&[0xc3, 0x0f, 0x1f, 0x44, 0, 0][..], true, "Pun Jump"),
            (&[0xc3, 0x0f, 0x1f, 0x44, 0, 0][..], false, ""),
        ] {
            let ways = ways_of_ret(0x1000, code, has_padding).unwrap();
            let text = ways.iter().map(|w| format!("{:?}", w.tactic)).collect::<Vec<_>>().join(" ");
            assert_eq!(text, expected, "{code:02x?}");
        }
        assert_eq!(ways_of_ret(0x1000, &[0xcc, 0, 0, 0, 0], true), Err(Refusal::Breakpoint));
    }
}
