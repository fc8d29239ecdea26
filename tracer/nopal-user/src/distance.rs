//! The four bytes behind a jump's opcode: which of them are the program's own, which can be chosen, and where the jump
//! lands while somebody's breakpoints stand in them. Pure.
//!
//! A debugger or a kernel tracer puts `CC` on the first byte of an instruction, whenever it likes. Where instructions
//! begin within the distance of a jump, every choice of them may be a `CC`, and each makes the jump land elsewhere.

use iced_x86::{Decoder, DecoderOptions};

/// What others put on the first byte of an instruction.
pub(crate) const BREAKPOINT: u8 = 0xcc;
/// The opcode of a jump with a distance of four bytes.
pub(crate) const JUMP: u8 = 0xe9;
/// Opcode and distance.
pub(crate) const JUMP_BYTES: usize = 5;

/// Nops that the kernel replaces by a call as a whole when it traces them.
const REPLACED_BY_KERNEL: [&[u8]; 2] =
    [&[0x0f, 0x1f, 0x44, 0x00, 0x00], &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]];

/// One byte of a distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Byte {
    /// As the file has it, within an instruction.
    Fixed(u8),
    /// As the file has it, and an instruction begins with it.
    First(u8),
    /// Ours to choose.
    Free,
    OneOf(&'static [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Distance(pub [Byte; 4]);

/// How many distances are tried before it is said that there is none.
const MAX_CANDIDATES: usize = 4096;

impl Distance {
    pub const FREE: Distance = Distance([Byte::Free; 4]);

    /// The bytes of the file from `code[from]` on. `None` if there are fewer than four, or if the kernel may change more of
    /// them than a first byte.
    pub fn of_file(code: &[u8], from: usize, starts: &[usize]) -> Option<Distance> {
        let bytes = code.get(from..from + 4)?;
        let begins = |at: &usize| starts.contains(at);
        let is_replaced = |at: usize| REPLACED_BY_KERNEL.iter().any(|nop| code[at..].starts_with(nop));
        if (from..from + 4).any(|at| begins(&at) && is_replaced(at)) {
            return None;
        }
        let byte = |i: usize| if begins(&(from + i)) { Byte::First(bytes[i]) } else { Byte::Fixed(bytes[i]) };
        Some(Distance([byte(0), byte(1), byte(2), byte(3)]))
    }

    /// Whether the jump can go anywhere.
    pub fn is_free(&self) -> bool {
        self.0 == [Byte::Free; 4]
    }

    pub fn allows(&self, value: u32) -> bool {
        self.0.iter().zip(value.to_le_bytes()).all(|(byte, found)| match byte {
            Byte::Fixed(b) | Byte::First(b) => *b == found,
            Byte::Free => true,
            Byte::OneOf(some) => some.contains(&found),
        })
    }

    /// The distances that are possible: the one there is, or some that are evenly spread, those nearest to `wanted` first.
    pub fn candidates(&self, wanted: i64) -> Vec<u32> {
        let every: Vec<u8> = (0..=u8::MAX).collect();
        let choices = self.0.each_ref().map(|byte| match byte {
            Byte::Fixed(b) | Byte::First(b) => std::slice::from_ref(b),
            Byte::Free => &every[..],
            Byte::OneOf(some) => some,
        });
        let n_all: usize = choices.iter().map(|c| c.len()).product();
        let step = n_all.div_ceil(MAX_CANDIDATES).max(1);
        let nth = |mut n: usize| {
            u32::from_le_bytes(choices.map(|choice| {
                let byte = choice[n % choice.len()];
                n /= choice.len();
                byte
            }))
        };
        let mut some: Vec<u32> = (0..n_all).step_by(step).map(nth).collect();
        some.sort_by_key(|value| wanted.abs_diff(i64::from(*value as i32)));
        some
    }

    /// What the distance `value` becomes under breakpoints: on one, on some, on all of the instructions that begin in it.
    pub fn under_breakpoints(&self, value: u32) -> Vec<u32> {
        let firsts: Vec<usize> = (0..4).filter(|i| matches!(self.0[*i], Byte::First(_))).collect();
        (1..1u32 << firsts.len())
            .map(|subset| {
                let mut bytes = value.to_le_bytes();
                for (n, at) in firsts.iter().enumerate() {
                    if subset & (1 << n) != 0 {
                        bytes[*at] = BREAKPOINT;
                    }
                }
                u32::from_le_bytes(bytes)
            })
            .collect()
    }
}

/// Where a jump at `jump` with this distance goes.
pub(crate) fn landing(jump: u64, distance: u32) -> u64 {
    jump.wrapping_add(JUMP_BYTES as u64).wrapping_add(distance as i32 as i64 as u64)
}

/// Where in `code` instructions begin, the first one at `from`. Behind what cannot be decoded one may begin anywhere.
pub(crate) fn starts(code: &[u8], from: usize) -> Vec<usize> {
    let mut decoder = Decoder::with_ip(64, &code[from.min(code.len())..], 0, DecoderOptions::NONE);
    let mut starts = Vec::new();
    while decoder.can_decode() {
        let at = from + decoder.position();
        if decoder.decode().is_invalid() {
            starts.extend(at..code.len());
            break;
        }
        starts.push(at);
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_begin_where_the_processor_says() {
        let table: &[(&str, &[u8], &[usize])] = &[
            ("pop, ret, long nop", &[0x90, 0x5d, 0xc3, 0x0f, 0x1f, 0x80, 0, 0, 0, 0], &[1, 2, 3]),
            ("xor, mov", &[0x90, 0x31, 0xc9, 0x4c, 0x89, 0xc7], &[1, 3]),
            ("mov, call", &[0x90, 0x48, 0x89, 0xdf, 0xe8, 0x79, 0xe7, 0xff, 0xff], &[1, 4]),
            ("a load of 7 bytes", &[0x90, 0x48, 0x8b, 0x05, 1, 2, 3, 0], &[1]),
            ("one byte each", &[0x90, 0x50, 0x58, 0x50, 0x58, 0x50], &[1, 2, 3, 4, 5]),
            ("no code", &[0x90, 0x06, 0x50, 0x50], &[1, 2, 3]),
            ("cut off", &[0x90, 0x50, 0x48, 0x8b], &[1, 2, 3]),
            ("nothing", &[0x90], &[]),
        ];
        for (name, code, expected) in table {
            assert_eq!(starts(code, 1), *expected, "{name}");
        }
    }

    #[test]
    fn every_choice_of_breakpoints_is_a_distance_of_its_own() {
        let table: &[(&[u8], &[u32])] = &[
            // A load of 7 bytes: only its first byte.
            (&[0x90, 0x48, 0x8b, 0x05, 0x11, 0x22, 0, 0], &[0x1105_8bcc]),
            // mov %rbx,%rdi; call
            (&[0x90, 0x48, 0x89, 0xdf, 0xe8, 0, 0, 0, 0], &[0xe8df_89cc, 0xccdf_8948, 0xccdf_89cc]),
            // pop %rbp; ret; then a long nop
            (
                &[0x90, 0x5d, 0xc3, 0x0f, 0x1f, 0x80, 0, 0, 0, 0],
                &[0x1f0f_c3cc, 0x1f0f_cc5d, 0x1f0f_cccc, 0x1fcc_c35d, 0x1fcc_c3cc, 0x1fcc_cc5d, 0x1fcc_cccc],
            ),
        ];
        for (code, expected) in table {
            let distance = Distance::of_file(code, 1, &starts(code, 1)).unwrap();
            let value = u32::from_le_bytes(code[1..5].try_into().unwrap());
            assert_eq!(distance.candidates(0), [value]);
            assert_eq!(distance.under_breakpoints(value), *expected, "{code:02x?}");
        }
        let ones = [0x90, 0x50, 0x58, 0x50, 0x58, 0x50];
        let distance = Distance::of_file(&ones, 1, &starts(&ones, 1)).unwrap();
        let mut all = distance.under_breakpoints(0x5850_5850);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 15, "every subset of four");
        assert!(!all.contains(&0x5850_5850) && all.contains(&0xcccc_cccc));
    }

    #[test]
    fn nothing_of_ours_is_under_a_breakpoint() {
        assert!(Distance::FREE.under_breakpoints(0x1234_5678).is_empty());
        let inside = Distance::of_file(&[0x90, 0x66, 0x2e, 0x0f, 0x1f, 0x84], 2, &[1]).unwrap();
        assert!(inside.under_breakpoints(0x841f_0f2e).is_empty());
        // The end of our own instruction, then a call: only that begins an instruction.
        let partly = Distance([Byte::Free, Byte::Free, Byte::First(0xe8), Byte::Fixed(1)]);
        assert_eq!(partly.under_breakpoints(0x01e8_aabb), [0x01cc_aabb]);
    }

    #[test]
    fn a_nop_that_the_kernel_replaces_is_no_distance() {
        for (code, is_fit) in [
            (&[0x90, 0x31, 0xc0, 0x0f, 0x1f, 0x44, 0, 0][..], false),
            (&[0x90, 0x31, 0xc0, 0x0f, 0x1f, 0x40, 0][..], true),
            (&[0x90, 0x48, 0x89, 0xc7, 0x0f, 0x1f, 0x44, 0, 0][..], false),
            (&[0x90, 0x48, 0x89, 0xc7, 0xc3, 0x0f, 0x1f, 0x44, 0, 0][..], true),
            (&[0x90, 0xc3, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0][..], false),
            (&[0x90, 0xc3, 0x66][..], false),
        ] {
            assert_eq!(Distance::of_file(code, 1, &starts(code, 1)).is_some(), is_fit, "{code:02x?}");
        }
    }

    #[test]
    fn what_can_be_chosen_is_tried_from_the_wanted_place_on() {
        let low = Distance([Byte::Free, Byte::Fixed(2), Byte::Fixed(3), Byte::Fixed(4)]);
        let all = low.candidates(0x0403_0280);
        assert_eq!((all.len(), all[0]), (256, 0x0403_0280));
        let high = Distance([Byte::Fixed(0x1f), Byte::Fixed(0x44), Byte::Free, Byte::Free]);
        let some = high.candidates(-(256 << 20));
        assert_eq!(some.len(), 4096);
        assert!(some.iter().all(|value| value & 0xffff == 0x441f));
        assert!((some[0] as i32 as i64 + (256 << 20)).abs() <= 1 << 20);
        let few = Distance([Byte::OneOf(&[1, 2]), Byte::Fixed(0), Byte::OneOf(&[3, 4]), Byte::Fixed(0)]);
        assert!(few.allows(0x4_0001) && !few.allows(0x4_0003) && !few.allows(0x104_0001));
        assert_eq!(few.candidates(0), [0x3_0001, 0x3_0002, 0x4_0001, 0x4_0002]);
    }

    #[test]
    fn a_jump_lands_behind_itself_and_its_distance() {
        assert_eq!(landing(0x1000, 0), 0x1005);
        assert_eq!(landing(0x1000, u32::MAX), 0x1004);
    }
}
