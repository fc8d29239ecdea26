//! Memory that is the frame of the hit itself: what the addresses of [`Op::FrameAddress`](crate::op::Op::FrameAddress)
//! lead to here.

use super::bytes;
use crate::op::Slot;

/// The address of a frame's first byte. The interpreter reads no memory of the kernel, so nothing else is there.
pub(super) const BASE: u64 = 0xffff_fd00_0000_0000;

/// Where in the frame an address leads.
pub(super) fn place(frame: &[u8], address: u64) -> Option<usize> {
    let at = usize::try_from(address.checked_sub(BASE)?).ok()?;
    (at < frame.len()).then_some(at)
}

/// Fills `to`, if the address is one of the frame; so do the others.
pub(super) fn bytes(frame: &mut [u8], to: Slot, address: u64) -> bool {
    copy(frame, to, 0, address, usize::MAX).is_some()
}

/// Up to its NUL, zeros behind it.
pub(super) fn string(frame: &mut [u8], to: Slot, address: u64, max: usize) -> bool {
    let room = max.min((to.len as usize).saturating_sub(1));
    if copy(frame, to, 0, address, room).is_none() {
        return false;
    }
    let to = super::slot(frame, to);
    let length = bytes::length(to);
    to[length..].fill(0);
    true
}

/// Behind its length.
pub(super) fn buffer(frame: &mut [u8], to: Slot, address: u64, len: usize) -> bool {
    let Some(n) = copy(frame, to, 8.min(to.len as usize), address, len) else { return false };
    if let Some(head) = super::slot(frame, to).first_chunk_mut::<8>() {
        *head = (n as u64).to_le_bytes();
    }
    true
}

/// Copies at most `max` bytes behind the first `skipped` of `to`, whose rest becomes zero; gives how many.
fn copy(frame: &mut [u8], to: Slot, skipped: usize, address: u64, max: usize) -> Option<usize> {
    let from = place(frame, address)?;
    let start = to.at as usize + skipped;
    let room = (to.len as usize).saturating_sub(skipped);
    let n = room.min(max).min(frame.len() - from);
    frame.copy_within(from..from + n, start);
    frame[start + n..start + room].fill(0);
    Some(n)
}
