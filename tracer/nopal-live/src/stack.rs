//! What a hit keeps of its thread's stack, and where that is in its record.

use nopal_capture::Capture;
use nopal_capture::record::RecordLayout;
use nopal_sdt::operand::{Operand, Place, RIP, Register};
use nopal_sdt::probe::{Side, Site};

/// How much of a stack is kept: some twenty frames.
pub const STACK_BYTES: u32 = 4096;

const RSP: u8 = 4;
const RBP: u8 = 5;

/// Which captures of a record are the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackPlace {
    /// Where the thread is, if that is not the site.
    ip: Option<usize>,
    bp: usize,
    sp: usize,
    bytes: usize,
}

/// The stack of a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackCopy<'a> {
    /// Where the thread is, if that is not the site: where a function has returned to.
    pub ip: Option<u64>,
    pub bp: u64,
    pub sp: u64,
    /// From `sp` upwards.
    pub bytes: &'a [u8],
}

impl StackPlace {
    /// Adds what unwinding needs of a thread at a site: `%rbp`, `%rsp`, and the bytes from `%rsp` on as far as they can be read.
    pub fn plan(site: &Site, max_bytes: u32, mut push: impl FnMut(Capture) -> usize) -> StackPlace {
        let operand = |place| Operand { size_bytes: 8, is_signed: false, is_float: false, place };
        let register =
            |number| operand(Place::Register(Register { number, width_bytes: 8, is_high_byte: false }));
        let has_returned = site.edge.as_ref().is_some_and(|edge| edge.side == Side::AnyReturn);
        StackPlace {
            ip: has_returned.then(|| push(Capture::Value { operand: register(RIP) })),
            bp: push(Capture::Value { operand: register(RBP) }),
            sp: push(Capture::Value { operand: register(RSP) }),
            bytes: push(Capture::Bytes {
                pointer: register(RSP),
                length: operand(Place::Constant(max_bytes.into())),
                unit_bytes: 1,
                max_bytes,
                is_trusted: false,
            }),
        }
    }

    /// The stack that a record has, if it is whole.
    pub fn read<'a>(&self, layout: &RecordLayout, payload: &'a [u8]) -> Option<StackCopy<'a>> {
        let ip = match self.ip {
            Some(ip) => Some(layout.bits(payload, ip)?),
            None => None,
        };
        let bytes = layout.text(payload, self.bytes)?.bytes;
        Some(StackCopy { ip, bp: layout.bits(payload, self.bp)?, sp: layout.bits(payload, self.sp)?, bytes })
    }
}
