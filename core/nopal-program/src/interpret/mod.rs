//! The interpreter: defines what a [`Program`] means. Runs one clause for one hit, without allocating but for new map
//! entries. Does not know where hits come from nor what becomes of what they emit.

mod bytes;
mod check;
mod own_frame;
mod table;
#[cfg(test)]
mod tests;

pub use check::BadProgram;
pub use table::Table;

use crate::op::{Builtin, MapId, NOT_FOUND, Op, Slot, Space};
use crate::{Code, Program};
use std::sync::Arc;

/// What a clause may ask of the hit it runs for. What a hit does not have is zero, or empty.
pub trait Hit {
    /// Extended to 64 bits by the argument's own size and sign.
    fn arg(&self, index: u8) -> i64;
    /// The string an argument points to, without its NUL.
    fn arg_string(&self, index: u8) -> &[u8];
    /// The bytes an argument points to, as many as were kept.
    fn arg_bytes(&self, index: u8) -> &[u8];
    fn builtin(&self, what: Builtin) -> u64;
    fn comm(&self) -> &[u8];
    /// A tracepoint's record.
    fn record(&self) -> &[u8] {
        &[]
    }
    fn register(&self, _index: u8) -> u64 {
        0
    }
    /// Fills `to` with memory; false if it cannot be read.
    fn read(&self, _space: Space, _address: u64, _to: &mut [u8]) -> bool {
        false
    }
    /// Fills `to` with the string at an address, zeros behind it.
    fn read_string(&self, _space: Space, _address: u64, _to: &mut [u8]) -> bool {
        false
    }
    /// Innermost first; how many there are.
    fn user_stack(&self, _frames: &mut dyn FnMut(u64)) {}
    fn kernel_stack(&self, _frames: &mut dyn FnMut(u64)) {}
}

/// What a clause emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emitted<'a> {
    /// Index in [`Program::actions`].
    pub action: u32,
    pub payload: &'a [u8],
}

/// The maps of a program, by [`MapId`].
pub type Maps = Vec<Table>;

/// Rounds of `while` and `for` that one hit may take.
pub const MAX_ROUNDS: u32 = 1 << 20;

/// Runs clauses, and keeps the maps between them.
#[derive(Debug)]
pub struct Interpreter {
    program: Arc<Program>,
    pub maps: Maps,
    regs: Vec<u64>,
    frame: Vec<u8>,
    loops: Vec<Loop>,
    /// Keys of the maps being gone through, innermost last.
    keys: Vec<u8>,
    /// Hits that were given up because a loop did not end, or what it emitted.
    pub n_endless: u64,
}

/// A `for` under way.
#[derive(Debug, Clone, Copy)]
struct Loop {
    /// Of its first op.
    start: usize,
    end: usize,
    map: MapId,
    key: Slot,
    value: Slot,
    keys_at: usize,
    next: usize,
    count: usize,
}

impl Interpreter {
    /// `seed` is a random number: it keeps traced programs from choosing map keys that collide.
    pub fn new(program: Arc<Program>, seed: u64) -> Result<Interpreter, BadProgram> {
        check::check(&program)?;
        let most = |f: fn(&Code) -> usize| program.clauses.iter().map(|c| f(&c.code)).max().unwrap_or(0);
        let n_regs = most(|code| usize::from(code.n_regs));
        let frame_bytes = most(|code| code.frame_bytes as usize);
        let make = |(map, def): (usize, &crate::MapDef)| {
            let (entries, is_lru) = program.room(map);
            Table::new(def, entries, seed).with_lru(is_lru)
        };
        let maps = program.maps.iter().enumerate().map(make).collect();
        Ok(Interpreter {
            maps,
            regs: vec![0; n_regs],
            frame: vec![0; frame_bytes],
            loops: Vec::new(),
            keys: Vec::new(),
            n_endless: 0,
            program,
        })
    }

    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Runs a clause for a hit of its `point`. `emit` gets what it emits, and may change the maps; at its false the hit is given
    /// up, as one that does not end.
    #[inline]
    pub fn run<H: Hit + ?Sized>(
        &mut self,
        clause: u32,
        point: u32,
        hit: &H,
        mut emit: impl FnMut(&mut Maps, Emitted<'_>) -> bool,
    ) {
        let Interpreter { program, maps, regs, frame, loops, keys, n_endless } = self;
        let Some(Code { ops, n_regs, frame_bytes }) = program.clauses.get(clause as usize).map(|c| &c.code)
        else {
            return;
        };
        let regs = &mut regs[..usize::from(*n_regs)];
        let frame = &mut frame[..*frame_bytes as usize];
        regs.fill(0);
        frame.fill(0);
        let mut rounds = MAX_ROUNDS;
        let mut pc = 0;
        macro_rules! reg {
            ($r:expr) => {
                regs[usize::from($r)]
            };
        }
        macro_rules! jump {
            ($to:expr) => {{
                let to = $to as usize;
                if to <= pc {
                    rounds -= 1;
                    if rounds == 0 {
                        *n_endless += 1;
                        break;
                    }
                }
                pc = to;
                leave_loops(loops, keys, pc);
                continue;
            }};
        }
        loop {
            if let Some(top) = loops.last_mut()
                && pc == top.end
            {
                rounds -= 1;
                if rounds == 0 {
                    *n_endless += 1;
                    break;
                }
                if next_entry(top, maps, keys, frame) {
                    pc = top.start;
                } else {
                    keys.truncate(top.keys_at);
                    loops.pop();
                    continue;
                }
            }
            let Some(op) = ops.get(pc) else { break };
            match *op {
                Op::Const { dst, value } => reg!(dst) = value as u64,
                Op::Copy { dst, src } => reg!(dst) = reg!(src),
                Op::Unary { op, dst, a } => reg!(dst) = op.apply(reg!(a) as i64) as u64,
                Op::Binary { op, dst, a, b } => reg!(dst) = op.apply(reg!(a) as i64, reg!(b) as i64) as u64,
                Op::BinaryConst { op, dst, a, b } => reg!(dst) = op.apply(reg!(a) as i64, b) as u64,
                Op::Extend { dst, src, size_bytes, is_signed } => {
                    reg!(dst) = bytes::extend(reg!(src), size_bytes, is_signed);
                }

                Op::Arg { dst, index } => reg!(dst) = hit.arg(index) as u64,
                Op::Field { dst, offset, size_bytes, is_signed } => {
                    let rest = hit.record().get(usize::from(offset)..).unwrap_or_default();
                    reg!(dst) = bytes::number(rest, size_bytes, is_signed);
                }
                Op::Builtin { dst, what } => reg!(dst) = hit.builtin(what),
                Op::Register { dst, index } => reg!(dst) = hit.register(index),
                Op::Comm { to } => {
                    let comm = hit.comm();
                    bytes::put_string(slot(frame, to), comm, comm.len());
                }
                Op::Probe { dst } => reg!(dst) = u64::from(point) << 32 | u64::from(clause),
                Op::UserStack { to } => {
                    let pid = hit.builtin(Builtin::Pid);
                    let to = slot(frame, to);
                    bytes::put(to, &pid.to_le_bytes());
                    if let Some(rest) = to.get_mut(8..) {
                        put_stack(rest, |each| hit.user_stack(each));
                    }
                }
                Op::KernelStack { to } => put_stack(slot(frame, to), |each| hit.kernel_stack(each)),

                Op::ArgString { to, index, len } => {
                    let max = len.map_or(usize::MAX, |len| reg!(len) as usize);
                    bytes::put_string(slot(frame, to), hit.arg_string(index), max);
                }
                Op::ArgBytes { to, index, len } => {
                    bytes::put_buffer(slot(frame, to), hit.arg_bytes(index), reg!(len) as usize);
                }
                Op::String { to, address, len, space } => {
                    let max = len.map_or(usize::MAX, |len| reg!(len) as usize);
                    if own_frame::string(frame, to, reg!(address), max) {
                        pc += 1;
                        continue;
                    }
                    let to = slot(frame, to);
                    to.fill(0);
                    let room = to.len().saturating_sub(1).min(max);
                    if room > 0 && !hit.read_string(space, reg!(address), &mut to[..room]) {
                        to.fill(0);
                    }
                }
                Op::Buffer { to, address, len, space } => {
                    if own_frame::buffer(frame, to, reg!(address), reg!(len) as usize) {
                        pc += 1;
                        continue;
                    }
                    let to = slot(frame, to);
                    to.fill(0);
                    if let Some((head, body)) = to.split_first_chunk_mut::<8>() {
                        let n = body.len().min(reg!(len) as usize);
                        if hit.read(space, reg!(address), &mut body[..n]) {
                            *head = (n as u64).to_le_bytes();
                        } else {
                            body.fill(0);
                        }
                    }
                }
                Op::Readable { dst, address, space } => {
                    let is_own = own_frame::place(frame, reg!(address)).is_some();
                    reg!(dst) = u64::from(is_own || hit.read(space, reg!(address), &mut [0]));
                }
                Op::FrameAddress { dst, at } => reg!(dst) = own_frame::BASE + u64::from(at),
                Op::Read { to, address, space } => {
                    if own_frame::bytes(frame, to, reg!(address)) {
                        pc += 1;
                        continue;
                    }
                    let to = slot(frame, to);
                    if !hit.read(space, reg!(address), to) {
                        to.fill(0);
                    }
                }
                Op::FieldString { to, offset } => {
                    let record = hit.record();
                    // As the kernel's format files have it: the place in the low half, the length in the high half.
                    let word = record.get(usize::from(offset)..).map_or(0, |r| bytes::number(r, 4, false));
                    let (at, len) = ((word & 0xffff) as usize, (word >> 16) as usize);
                    let text = record.get(at..).unwrap_or_default();
                    bytes::put_string(slot(frame, to), text, len);
                }
                Op::FieldBytes { to, offset } => {
                    let rest = hit.record().get(usize::from(offset)..).unwrap_or_default();
                    bytes::put(slot(frame, to), rest);
                }

                Op::Load { dst, at, size_bytes, is_signed } => {
                    reg!(dst) = bytes::number(&frame[at as usize..], size_bytes, is_signed);
                }
                Op::Store { at, src, size_bytes } => {
                    let n = usize::from(size_bytes);
                    frame[at as usize..at as usize + n].copy_from_slice(&reg!(src).to_le_bytes()[..n]);
                }
                Op::Zero { to } => slot(frame, to).fill(0),
                Op::Constant { to, constant } => {
                    bytes::put(slot(frame, to), &program.constants[constant as usize]);
                }
                Op::Move { to, from } => {
                    let n = to.len.min(from.len) as usize;
                    frame.copy_within(from.at as usize..from.at as usize + n, to.at as usize);
                    slot(frame, to)[n..].fill(0);
                }

                Op::Equal { dst, a, b } => {
                    reg!(dst) = u64::from(bytes::is_equal(part(frame, a), part(frame, b)));
                }
                Op::Strncmp { dst, a, b, n } => {
                    reg!(dst) = u64::from(bytes::differs(part(frame, a), part(frame, b), n as usize));
                }
                Op::StrFind { dst, haystack, needle } => {
                    let found = bytes::find(part(frame, haystack), part(frame, needle));
                    reg!(dst) = found.map_or(NOT_FOUND, |at| at as i64) as u64;
                }
                Op::Element { dst, from, index, n, size_bytes, is_signed } => {
                    let index = reg!(index);
                    let at = (index as usize).saturating_mul(usize::from(size_bytes));
                    let bytes = part(frame, from).get(at..at.saturating_add(usize::from(size_bytes)));
                    reg!(dst) = match bytes.filter(|_| index < u64::from(n)) {
                        Some(bytes) => crate::layout::number(bytes, size_bytes, is_signed, None) as u64,
                        None => 0,
                    };
                }
                Op::StrConcat { to, a, b } => {
                    let (a, b) = (slot_range(a), slot_range(b));
                    let (n_a, n_b) = (bytes::length(&frame[a.clone()]), bytes::length(&frame[b.clone()]));
                    let (room, at) = (to.len.saturating_sub(1) as usize, to.at as usize);
                    let (n_a, n_b) = (n_a.min(room), n_b.min(room.saturating_sub(n_a)));
                    frame.copy_within(a.start..a.start + n_a, at);
                    frame.copy_within(b.start..b.start + n_b, at + n_a);
                    slot(frame, to)[n_a + n_b..].fill(0);
                }
                Op::Strlen { dst, a } => reg!(dst) = bytes::length(part(frame, a)) as u64,

                Op::MapLoad { dst, map, key } => {
                    reg!(dst) = maps[map as usize].number(part(frame, key)) as u64;
                }
                Op::MapRead { to, map, key } => {
                    let found = maps[map as usize].get(part(frame, key));
                    put_words(slot(frame, to), found.unwrap_or_default());
                }
                Op::MapStore { map, key, src } => {
                    if let Some(words) = maps[map as usize].get_or_make(part(frame, key)) {
                        words[0] = reg!(src);
                    }
                }
                Op::MapWrite { map, key, from } => {
                    if let Some(words) = maps[map as usize].get_or_make(part(frame, key)) {
                        let from = part(frame, from);
                        for (index, word) in words.iter_mut().enumerate() {
                            *word = bytes::number(from.get(index * 8..).unwrap_or_default(), 8, false);
                        }
                    }
                }
                Op::MapAdd { dst, map, key, delta } => {
                    reg!(dst) = match maps[map as usize].get_or_make(part(frame, key)) {
                        Some(words) => {
                            let before = words[0];
                            words[0] = before.wrapping_add(reg!(delta));
                            before
                        }
                        None => 0,
                    };
                }
                Op::MapDelete { map, key } => {
                    maps[map as usize].remove(part(frame, key));
                }
                Op::MapHas { dst, map, key } => {
                    reg!(dst) = u64::from(maps[map as usize].get(part(frame, key)).is_some());
                }
                Op::MapLen { dst, map } => reg!(dst) = maps[map as usize].len() as u64,
                Op::Aggregate { map, key, value } => {
                    maps[map as usize].take(part(frame, key), reg!(value) as i64);
                }
                Op::ForEach { map, key, value, end } => {
                    let table = &maps[map as usize];
                    let keys_at = keys.len();
                    for entry in 0..table.len() {
                        keys.extend_from_slice(table.key(entry));
                    }
                    let (start, end, count) = (pc + 1, end as usize, table.len());
                    loops.push(Loop { start, end, map, key, value, keys_at, next: 0, count });
                    pc = end;
                    continue;
                }

                Op::Emit { action, payload } => {
                    if !emit(maps, Emitted { action, payload: part(frame, payload) }) {
                        *n_endless += 1;
                        break;
                    }
                }

                Op::Jump { to } => jump!(to),
                Op::JumpIf { condition, to } => {
                    if reg!(condition) != 0 {
                        jump!(to);
                    }
                }
                Op::JumpUnless { condition, to } => {
                    if reg!(condition) == 0 {
                        jump!(to);
                    }
                }
                Op::Return => break,
            }
            pc += 1;
        }
        loops.clear();
        keys.clear();
    }
}

fn slot_range(slot: Slot) -> std::ops::Range<usize> {
    slot.at as usize..(slot.at + slot.len) as usize
}

fn slot(frame: &mut [u8], slot: Slot) -> &mut [u8] {
    &mut frame[slot.at as usize..(slot.at + slot.len) as usize]
}

fn part(frame: &[u8], slot: Slot) -> &[u8] {
    &frame[slot.at as usize..(slot.at + slot.len) as usize]
}

/// Leaves the loops a jump goes out of.
#[inline]
fn leave_loops(loops: &mut Vec<Loop>, keys: &mut Vec<u8>, pc: usize) {
    while let Some(top) = loops.last()
        && (pc > top.end || pc < top.start)
    {
        keys.truncate(top.keys_at);
        loops.pop();
    }
}

/// Puts the next entry that is still there into the frame. Entries made since the loop began are not gone through.
fn next_entry(top: &mut Loop, maps: &Maps, keys: &[u8], frame: &mut [u8]) -> bool {
    let table = &maps[top.map as usize];
    let key_bytes = top.key.len as usize;
    while top.next < top.count {
        let at = top.keys_at + top.next * key_bytes;
        top.next += 1;
        let key = &keys[at..at + key_bytes];
        let Some(words) = table.get(key) else { continue };
        slot(frame, top.key).copy_from_slice(key);
        match table.aggregate() {
            Some(aggregate) => bytes::put(slot(frame, top.value), &aggregate.number(words).to_le_bytes()),
            None => put_words(slot(frame, top.value), words),
        }
        return true;
    }
    false
}

fn put_words(to: &mut [u8], words: &[u64]) {
    to.fill(0);
    for (bytes, word) in to.chunks_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

/// u64 number of frames, then addresses, as many as fit.
fn put_stack(to: &mut [u8], walk: impl FnOnce(&mut dyn FnMut(u64))) {
    to.fill(0);
    let Some((head, body)) = to.split_first_chunk_mut::<8>() else { return };
    let mut places = body.chunks_exact_mut(8);
    let mut n: u64 = 0;
    walk(&mut |address| {
        if let Some(place) = places.next() {
            place.copy_from_slice(&address.to_le_bytes());
            n += 1;
        }
    });
    *head = n.to_le_bytes();
}
