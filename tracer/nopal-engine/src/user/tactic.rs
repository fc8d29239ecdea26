//! How the nop of a site can become a jump: which bytes change, where the jump lands, where the program goes on.
//! Pure; what is free in the target is asked of [`Room`](super::room::Room) by the caller.

use std::fmt;

/// How a site was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tactic {
    /// A 5-byte jump over a long nop, written while all threads stand still.
    Jump,
    /// The one-byte nop becomes the opcode of a jump whose distance is the bytes that follow.
    Pun,
    /// On nopal's own sites: the same with the first byte of the 10-byte nop, beside the nop that belongs to others.
    OwnPun,
    /// A 5-byte jump in the place of the one long instruction behind the nop, which runs elsewhere meanwhile. The nop stays:
    /// other tools use it as ever, and come by here afterwards.
    Behind,
    /// A 5-byte jump over the nop and the instructions behind it, which run elsewhere meanwhile. Only where asked for.
    Relocate,
}

impl fmt::Display for Tactic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tactic::Jump => "5-byte jump over the long nop",
            Tactic::Pun => "one-byte jump that lands where the next instruction's bytes say",
            Tactic::OwnPun => "one-byte jump inside the 10-byte nop",
            Tactic::Behind => "5-byte jump in the place of the instruction behind the nop",
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
    /// Another site begins within the bytes that are the pun's distance.
    NextSiteTooClose,
    /// The instructions behind the nop must stay where they are, and the pun has no place to land either.
    NotMovable {
        landing: Box<Refusal>,
        reason: String,
    },
    ThreadInside,
    OutOfReach,
    Stub(String),
    NotMapped,
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
            Refusal::NextSiteTooClose => write!(f, "another probe is less than 5 bytes further on"),
            Refusal::NotMovable { landing, reason } => {
                write!(f, "{landing}, and the instructions behind it cannot be moved: {reason}")
            }
            Refusal::ThreadInside => write!(f, "a thread stands inside the bytes to be changed"),
            Refusal::OutOfReach => write!(f, "no stub could be placed within 2 GiB"),
            Refusal::Stub(reason) => f.write_str(reason),
            Refusal::NotMapped => write!(f, "its code is not mapped"),
        }
    }
}

/// One way to open a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub tactic: Tactic,
    /// First byte to change.
    pub patch: u64,
    /// Where the jump goes, if that cannot be chosen.
    pub landing: Option<u64>,
    /// The first instruction the program must still execute after the site.
    pub resume: u64,
    /// The instructions from `resume` up to here may be copied behind the stub.
    pub is_tail_copied: bool,
    /// The landing may be nearer to the heap than it should: for want of another way.
    pub is_narrow: bool,
}

impl Way {
    /// Bytes that change.
    pub fn patch_len(&self) -> usize {
        match self.tactic {
            Tactic::Jump | Tactic::Behind | Tactic::Relocate => 5,
            Tactic::Pun | Tactic::OwnPun => 1,
        }
    }

    /// The changed bytes, given where the site's thunk is. `None`: out of reach.
    pub fn patched(&self, thunk: u64) -> Option<Vec<u8>> {
        match self.tactic {
            Tactic::Pun | Tactic::OwnPun => Some(vec![0xe9]),
            Tactic::Jump | Tactic::Behind | Tactic::Relocate => {
                let distance = i32::try_from(thunk.wrapping_sub(self.patch + 5) as i64).ok()?;
                let mut bytes = vec![0xe9];
                bytes.extend_from_slice(&distance.to_le_bytes());
                Some(bytes)
            }
        }
    }
}

impl Way {
    /// In the place of what follows a classic nop.
    pub fn behind(address: u64) -> Way {
        Way {
            tactic: Tactic::Behind,
            patch: address + 1,
            landing: None,
            resume: address + 1,
            is_tail_copied: true,
            is_narrow: false,
        }
    }

    /// Over a classic nop and what follows it.
    pub fn relocation(address: u64) -> Way {
        Way {
            tactic: Tactic::Relocate,
            patch: address,
            landing: None,
            resume: address + 1,
            is_tail_copied: true,
            is_narrow: false,
        }
    }
}

const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0x00, 0x00];
const NOP10: [u8; 10] = [0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];

/// The ways to open a site with these bytes, best first. `next_site`: how far the next probe site of the object is.
pub fn ways(address: u64, code: &[u8], next_site: Option<u64>) -> Result<Vec<Way>, Refusal> {
    let jump = |at: u64, resume: u64| Way {
        tactic: Tactic::Jump,
        patch: address + at,
        landing: None,
        resume: address + resume,
        is_tail_copied: false,
        is_narrow: false,
    };
    let is_clear = |len: u64| next_site.is_none_or(|distance| distance >= len);
    match code {
        [0xcc, ..] => Err(Refusal::Breakpoint),
        _ if code.starts_with(&NOP5) && is_clear(5) => Ok(vec![jump(0, 5)]),
        [0x90, rest @ ..] if rest.starts_with(&NOP10) && is_clear(11) => Ok(vec![
            Way {
                tactic: Tactic::OwnPun,
                patch: address + 1,
                landing: Some(landing(address + 1, &rest[1..5])),
                resume: address + 11,
                is_tail_copied: false,
                is_narrow: false,
            },
            jump(1, 11),
        ]),
        [0x90, rest @ ..] if rest.starts_with(&NOP5) && is_clear(6) => Ok(vec![jump(1, 6)]),
        [0x90, rest @ ..] if rest.len() >= 4 => {
            if !is_clear(5) {
                return Err(Refusal::NextSiteTooClose);
            }
            Ok(vec![Way {
                tactic: Tactic::Pun,
                patch: address,
                landing: Some(landing(address, &rest[..4])),
                resume: address + 1,
                is_tail_copied: true,
                is_narrow: false,
            }])
        }
        _ => Err(Refusal::NotANop { bytes: code.iter().take(5).copied().collect() }),
    }
}

/// Where `E9` at `at` followed by these four bytes jumps to.
fn landing(at: u64, distance: &[u8]) -> u64 {
    let distance = i32::from_le_bytes([distance[0], distance[1], distance[2], distance[3]]);
    at.wrapping_add(5).wrapping_add(distance as i64 as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_bytes_decide() {
        let own = [0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        for (code, next, expected) in [
            (&own[..], None, "OwnPun 401001 -> below zero, resume 40100b, Jump 401001 resume 40100b"),
            (&NOP5[..], None, "Jump 401000 resume 401005"),
            (&[0x90, 0x0f, 0x1f, 0x44, 0, 0][..], None, "Jump 401001 resume 401006"),
            (&[0x90, 0x48, 0x89, 0xc7, 0x10, 0xe8][..], None, "Pun 401000 -> 1107994d resume 401001"),
            (&[0x90, 0x48, 0x89, 0xc7, 0x10, 0xe8][..], Some(5), "Pun 401000 -> 1107994d resume 401001"),
            (
                &[0x90, 0x90, 0x89, 0xc7, 0x10][..],
                Some(1),
                "refused: another probe is less than 5 bytes further on",
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
                        let landing = match w.landing {
                            None => String::new(),
                            Some(l) if (l as i64) < 0 => " -> below zero,".into(),
                            Some(l) => format!(" -> {l:x}"),
                        };
                        format!("{:?} {:x}{landing} resume {:x}", w.tactic, w.patch, w.resume)
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
        let way = ways(address, &own, None).unwrap()[0];
        assert_eq!(way.landing, Some(address + 6 - 0x7be0_f0d2));
        assert_eq!(way.resume, address + 11);
    }

    #[test]
    fn jumps_reach_two_gigabytes() {
        let way = ways(0x1_0000_0000, &NOP5, None).unwrap()[0];
        assert_eq!(way.patched(0x1_0000_0100), Some(vec![0xe9, 0xfb, 0, 0, 0]));
        assert_eq!(way.patched(0x2_0000_0000), None);
    }
}
