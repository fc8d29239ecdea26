//! The stub itself: save, decide, measure, reserve and fill inside a restartable sequence, restore, go on.

mod cells;
mod direct;
mod spans;
mod to_ring;
mod wait;

use core::mem::offset_of;

use nopal_abi::record::{self, flags};
use nopal_abi::ring::{ControlPage, STATE_SHIFT};
use nopal_abi::stub_space::{Path, ProcessPage, StubSpace};
use nopal_sdt::operand::{Base, Operand, Place};

use super::asm::{Alu, Asm, Cond, Label, Mem, R10, RAX, RCX, RDI, RDX, RSI, RSP, Reg, Width, at};
use super::locked::{Locked, Size, count_lost};
use super::operand::Frame;
use super::words::{path_word, readable_table, restraint_word, tid_offset_word};
use super::{Stub, StubError, StubSpec, Surroundings, strings, thread};
use nopal_capture::{Action, Capture, RecordLayout};

/// Below the stack pointer the program may keep data that no one must touch.
const RED_ZONE: i32 = 128;
pub(super) const LINE_BYTES: i32 = 64;
/// How far ahead of a record the ring's lines are fetched.
pub(super) const AHEAD_BYTES: i32 = 3 * LINE_BYTES;
/// Where in a record the time is, if it has one.
const TIME_AT: i32 = 8;
const RSEQ_CPU_ID: i32 = 4;
const RSEQ_CS: i32 = 8;

const SYS_GETPID: u64 = 39;
const SYS_PRCTL: u64 = 157;
const SYS_GETTID: u64 = 186;
const PR_GET_NAME: u64 = 16;

/// Registers that a stub without strings takes beside `%rax`, `%rcx` and `%rdx`, if no operand names them.
const SPARE: [Reg; 11] = [RSI, RDI, Reg(8), Reg(9), R10, Reg(11), Reg(3), Reg(12), Reg(13), Reg(14), Reg(15)];

/// A restartable sequence whose descriptor is written at the end of the stub.
pub(super) struct Section {
    descriptor: Label,
    start: Label,
    end: Label,
    abort: Label,
    restart: Label,
}

/// Writes code of what is rare.
type Rare<'a> = Box<dyn FnOnce(&mut Stubber<'a>) -> Result<(), StubError> + 'a>;

pub(super) struct Stubber<'a> {
    pub(super) asm: Asm,
    pub(super) around: &'a Surroundings,
    pub(super) frame: Frame,
    pub(super) state: Reg,
    pub(super) position: Reg,
    flags_at: i32,
    pub(super) tid_at: i32,
    time_at: i32,
    pub(super) keep_at: i32,
    size_at: i32,
    pub(super) texts_at: i32,
    /// Where a stub of spans keeps what it works with.
    pub(super) spans_at: i32,
    texts: Vec<strings::Slots>,
    is_direct: bool,
    sections: Vec<Section>,
    rare: Vec<Rare<'a>>,
    pub(super) questions: Vec<thread::Question>,
    /// Where a hit that is done with goes; the first [`restore`](Stubber::restore).
    pub(super) exit: Label,
    is_exit_bound: bool,
    /// Where a record goes on instead of leaving, while it is a part of something.
    pub(super) after_record: Option<Label>,
    next: Label,
}

/// Makes the stub of one site for one session.
pub fn generate(spec: &StubSpec, around: &Surroundings) -> Result<Stub, StubError> {
    if let Action::Spans(site) = &spec.action {
        return spans::generate(spec, site, around);
    }
    let no_captures = Vec::new();
    let (captures, has_time, has_task) = match &spec.action {
        Action::Record { captures, has_time, has_task }
        | Action::AggregateOrRecord { captures, has_time, has_task, .. } => (captures, *has_time, *has_task),
        Action::Wait { .. } | Action::Aggregate(_) | Action::Restrain(_) | Action::Spans(_) => {
            (&no_captures, false, false)
        }
    };
    let layout = RecordLayout::new(captures, has_time, has_task);
    for capture in captures {
        match capture {
            Capture::Value { .. } | Capture::ThreadContext { .. } => {}
            Capture::CString { max_bytes, .. } | Capture::Bytes { max_bytes, .. } => {
                strings::check_limit(*max_bytes)?
            }
        }
    }
    let limit = around.layout.max_record_bytes;
    if layout.max_bytes() > limit {
        return Err(StubError::RecordTooLong { bytes: layout.max_bytes(), limit });
    }

    let mut stubber = Stubber::new(spec, captures, &layout, around);
    stubber.enter();
    if let Action::Restrain(function) = spec.action {
        // Also while the session records nothing: later it may.
        stubber.restrain(function);
        let next_slot = stubber.leave();
        return Ok(Stub { code: stubber.asm.finish()?, next_slot, layout });
    }
    stubber.leave_if_disabled();
    for predicate in &spec.predicates {
        let exit = stubber.exit;
        stubber.frame.require(&mut stubber.asm, predicate, RDX, exit)?;
    }
    match &spec.action {
        Action::Record { .. } => stubber.record(captures, &layout, spec.event)?,
        Action::Wait { timeout_ms } => stubber.wait(*timeout_ms),
        Action::Restrain(_) | Action::Spans(_) => {}
        Action::Aggregate(cells) => {
            for cell in cells {
                stubber.update(cell)?;
            }
        }
        Action::AggregateOrRecord { cells, .. } => {
            let (outside, exit) = (stubber.asm.label(), stubber.exit);
            stubber.update_all_or(cells, outside)?;
            stubber.asm.jmp(exit);
            stubber.asm.bind(outside);
            stubber.record(captures, &layout, spec.event)?;
        }
    }
    let next_slot = stubber.leave();
    Ok(Stub { code: stubber.asm.finish()?, next_slot, layout })
}

fn registers_of(operand: &Operand) -> Vec<u8> {
    match &operand.place {
        Place::Register(register) => vec![register.number],
        Place::Vector(_) | Place::Constant(_) => vec![],
        Place::Memory(memory) => {
            let base = match &memory.base {
                Base::Register(register) => Some(register.number),
                Base::None | Base::Symbol { .. } => None,
            };
            base.into_iter().chain(memory.index.map(|(register, _)| register.number)).collect()
        }
    }
}

impl<'a> Stubber<'a> {
    pub(super) fn new(
        spec: &StubSpec,
        captures: &[Capture],
        layout: &RecordLayout,
        around: &'a Surroundings,
    ) -> Stubber<'a> {
        let n_texts = captures.iter().filter(|c| !matches!(c, Capture::Value { .. })).count();
        let is_direct = direct::suits(captures, layout, around.layout.rseq.sub_shift);
        let needs_all = n_texts > 0 || matches!(spec.action, Action::Wait { .. });
        let (used, state, position) = if needs_all {
            let more: &[Reg] = if is_direct { &direct::REGISTERS } else { &[] };
            ([&strings::REGISTERS, more].concat(), RDI, RSI)
        } else {
            let mut named: Vec<u8> = spec.predicates.iter().flat_map(|p| registers_of(&p.operand)).collect();
            for capture in captures {
                if let Capture::Value { operand } = capture {
                    named.extend(registers_of(operand));
                }
            }
            if let Action::Spans(site) = &spec.action {
                named.extend(site.values.iter().flat_map(registers_of));
            }
            if let Action::Aggregate(cells) | Action::AggregateOrRecord { cells, .. } = &spec.action {
                named.extend(cells.iter().flat_map(|cell| cell.operands()).flat_map(registers_of));
            }
            let (free, taken): (Vec<Reg>, Vec<Reg>) = SPARE.iter().partition(|reg| !named.contains(&reg.0));
            let mut spare = free.into_iter().chain(taken);
            let mut next = || spare.next().expect("eleven registers to choose two from");
            let (state, position) = (next(), next());
            (vec![RAX, RCX, RDX, state, position], state, position)
        };
        let saved: Vec<(Reg, i32)> = used.iter().enumerate().map(|(i, &reg)| (reg, 8 * i as i32)).collect();
        let mut bytes = 8 * saved.len() as i32;
        let mut slot = || {
            bytes += 8;
            bytes - 8
        };
        let (flags_at, tid_at, time_at, keep_at, size_at) = (slot(), slot(), slot(), slot(), slot());
        let texts_at = bytes;
        let texts: Vec<strings::Slots> = (0..n_texts as i32)
            .map(|i| texts_at + strings::SLOT_BYTES * i)
            .map(|at| strings::Slots { pointer: at, length: at + strings::SLOT_LENGTH })
            .collect();
        bytes += strings::SLOT_BYTES * n_texts as i32;
        let spans_at = bytes;
        if matches!(spec.action, Action::Spans(_)) {
            bytes += spans::SLOT_BYTES;
        }
        let mut asm = Asm::new(around.address);
        let [exit, next] = [asm.label(), asm.label()];
        Stubber {
            asm,
            around,
            frame: Frame {
                saved,
                depth: RED_ZONE + bytes,
                above: spec.above,
                load_bias: spec.load_bias,
                own_file: spec.own_file.clone(),
                heap: spec.heap,
                readable: readable_table(around),
                restraint: restraint_word(around),
            },
            state,
            position,
            flags_at,
            tid_at,
            time_at,
            keep_at,
            size_at,
            texts_at,
            spans_at,
            texts,
            is_direct,
            sections: Vec::new(),
            rare: Vec::new(),
            questions: Vec::new(),
            exit,
            is_exit_bound: false,
            after_record: None,
            next,
        }
    }

    pub(super) fn enter(&mut self) {
        let asm = &mut self.asm;
        asm.lea(RSP, at(RSP, -self.frame.depth));
        // %rax is the first of the saved registers; the flags go through it.
        for &(reg, offset) in &self.frame.saved {
            asm.store(at(RSP, offset), reg, Width::B8);
            if reg == RAX {
                asm.flags_to_ax();
                asm.store(at(RSP, self.flags_at), RAX, Width::B4);
            }
        }
    }

    pub(super) fn leave_if_disabled(&mut self) {
        let asm = &mut self.asm;
        asm.mov_imm(RDX, self.around.ring);
        asm.cmp_mem32(at(RDX, offset_of!(ControlPage, enabled) as i32), 0);
        asm.jcc(Cond::Equal, self.exit);
    }

    /// Restores and goes on, here if this is the first time.
    pub(super) fn restore(&mut self) {
        let asm = &mut self.asm;
        if let Some(after) = self.after_record {
            asm.jmp(after);
            return;
        }
        if self.is_exit_bound {
            asm.jmp(self.exit);
            return;
        }
        self.is_exit_bound = true;
        asm.bind(self.exit);
        asm.load32(RAX, at(RSP, self.flags_at));
        asm.flags_from_ax();
        for &(reg, offset) in self.frame.saved.iter().rev() {
            asm.load64(reg, at(RSP, offset));
        }
        asm.lea(RSP, at(RSP, self.frame.depth));
        asm.jmp_through(Mem::Label(self.next));
    }

    /// Has code written behind the rest, so that the usual way of a hit is short and without jumps around what is rare.
    pub(super) fn rarely(&mut self, write: impl FnOnce(&mut Stubber<'a>) -> Result<(), StubError> + 'a) {
        self.rare.push(Box::new(write));
    }

    /// Writes what is rare; it leads to where it belongs by jumps.
    pub(super) fn write_rare(&mut self) -> Result<(), StubError> {
        while !self.rare.is_empty() {
            for write in std::mem::take(&mut self.rare) {
                write(self)?;
            }
        }
        Ok(())
    }

    /// Ends the stub: restores, then its data, the next-slot and the descriptors. Gives the slot's place.
    pub(super) fn leave(&mut self) -> u32 {
        self.restore();
        let asm = &mut self.asm;
        for section in &self.sections {
            // The kernel looks for the signature in the four bytes before the abort handler; with these three in front of
            // it the seven are one instruction that cannot be executed.
            asm.data(&[0x0f, 0xb9, 0x3d]);
            asm.data(&self.around.rseq_signature.to_le_bytes());
            asm.bind(section.abort);
            asm.jmp(section.restart);
        }
        thread::answer(asm, self.around, &self.questions, thread::Routine::Shared);
        // Data on lines of its own: a store to the slot would make processors that run this line start over.
        asm.align(64);
        asm.bind(self.next);
        let next_slot = asm.position() as u32;
        asm.data(&[0; 8]);
        for section in &self.sections {
            while !asm.position().is_multiple_of(32) {
                asm.data(&[0]);
            }
            asm.bind(section.descriptor);
            asm.data(&[0; 8]); // version, flags
            asm.address_of(section.start);
            asm.distance(section.start, section.end);
            asm.address_of(section.abort);
        }
        next_slot
    }

    /// Opens a restartable sequence. Afterwards `%eax` is a CPU number that is in range; without one, or without storage of
    /// its own, control goes to `otherwise`, with `%rcx` free.
    pub(super) fn begin_section(&mut self, otherwise: Label) -> Section {
        self.require_rseq(otherwise);
        self.open_section(otherwise, None)
    }

    /// Goes to `otherwise` unless the thread has restartable sequences, in storage of its own. Spoils `%rax` and `%rcx`.
    pub(super) fn require_rseq(&mut self, otherwise: Label) {
        self.asm.cmp_mem32(path_word(self.around), Path::Rseq as i32);
        self.asm.jcc(Cond::NotEqual, otherwise);
        self.questions.push(thread::require_own(&mut self.asm, otherwise));
    }

    /// The same as [`Stubber::begin_section`] for a thread that is known to have restartable sequences.
    /// `before` emits code that belongs to the sequence but is entered only by jumps.
    pub(super) fn open_section(&mut self, otherwise: Label, before: Option<&dyn Fn(&mut Self)>) -> Section {
        let [descriptor, restart, go] = [self.asm.label(), self.asm.label(), self.asm.label()];
        let [start, end, abort] = [self.asm.label(), self.asm.label(), self.asm.label()];
        self.asm.bind(start);
        if let Some(before) = before {
            self.asm.jmp(restart);
            before(self);
        }
        self.asm.bind(restart);
        // Still inside the range, but only the store makes the range count.
        self.asm.load64(RCX, Mem::Near(self.around.space + offset_of!(StubSpace, rseq_offset) as u64));
        self.asm.lea(RAX, Mem::Label(descriptor));
        self.asm.store(Mem::Fs { base: RCX, disp: RSEQ_CS }, RAX, Width::B8);
        self.asm.bind(go);
        self.asm.load32(RAX, Mem::Fs { base: RCX, disp: RSEQ_CPU_ID });
        self.asm.alu_imm32(Alu::Cmp, RAX, self.around.layout.n_cpus as i32);
        self.asm.jcc(Cond::AboveEqual, otherwise);
        Section { descriptor, start, end, abort, restart }
    }

    /// The next instruction emitted must be outside; the last one was the commit.
    pub(super) fn end_section(&mut self, section: Section) {
        self.asm.bind(section.end);
        self.sections.push(section);
    }

    /// Lets the announce routine run if the session has not met this process.
    pub(super) fn meet_process(&mut self) {
        let (asm, around) = (&mut self.asm, self.around);
        let known = asm.label();
        load_generation(asm, around);
        asm.cmp32(RAX, met_word(around, 4));
        asm.jcc(Cond::Equal, known);
        asm.lea(RAX, Mem::Label(known));
        asm.jmp_near(around.announce);
        asm.bind(known);
    }
}

/// From the CPU's number in `%eax`: its ring's state into `state`, the ring into `%rcx`. Uses `%rdx`.
pub(super) fn find_ring(asm: &mut Asm, around: &Surroundings, state: Reg) {
    let (states, rings) = (around.layout.states_offset, around.layout.rseq);
    asm.mov32(RCX, RAX);
    asm.shl(RAX, STATE_SHIFT as u8);
    asm.shl(RCX, rings.ring_shift as u8);
    asm.mov_imm(RDX, around.ring + states);
    asm.lea(state, Mem::At { base: RDX, index: Some((RAX, 1)), disp: 0 });
    let between = rings.offset.wrapping_sub(states);
    let disp = i32::try_from(between).unwrap_or_else(|_| {
        asm.mov_imm(RDX, around.ring + rings.offset);
        0
    });
    asm.lea(RCX, Mem::At { base: RDX, index: Some((RCX, 1)), disp });
}

/// The session's word in the process page, `offset` bytes into it: the pid, then the generation it was learnt in.
fn met_word(around: &Surroundings, offset: u64) -> Mem {
    let met = offset_of!(ProcessPage, met) as u64;
    Mem::Near(around.process_page + met + 8 * u64::from(around.session) + offset)
}

fn pid_word(around: &Surroundings) -> Mem {
    met_word(around, 0)
}

/// The low half of the session's generation into `%rax`. Read from the ring, so that the code is the same for every
/// session that takes its turn at this index and address.
pub(super) fn load_generation(asm: &mut Asm, around: &Surroundings) {
    asm.mov_imm(RAX, around.ring + offset_of!(ControlPage, generation) as u64);
    asm.load32(RAX, at(RAX, 0));
}

/// Makes the routines that a session's stubs share; they are entered by jumps to their first bytes, of which only the
/// places are fixed. [`Surroundings::announce`] is not used.
pub fn routines(around: &Surroundings) -> Result<Vec<u8>, StubError> {
    let mut asm = Asm::new(around.address);
    let [meet, know] = [asm.label(), asm.label()];
    asm.jmp(meet);
    asm.align(thread::ROUTINE_AT as usize);
    asm.jmp(know);
    asm.align(LINE_BYTES as usize);
    asm.bind(meet);
    let question = announce(&mut asm, around);
    thread::answer(&mut asm, around, &[question], thread::Routine::Here(know));
    asm.align(LINE_BYTES as usize);
    asm.bind(know);
    thread::routine(&mut asm, around);
    Ok(asm.finish()?)
}

/// What a session's stubs run on its first hit in a process: it learns the pid and writes a PROCESS record. Entered with
/// the way back in `%rax`; keeps all other registers but not the flags.
fn announce(asm: &mut Asm, around: &Surroundings) -> thread::Question {
    let saved: Vec<(Reg, i32)> =
        strings::REGISTERS.iter().enumerate().map(|(i, &reg)| (reg, 8 * i as i32)).collect();
    let after = 8 * saved.len() as i32;
    let (tid_at, time_at, pid_at, comm_at, depth) = (after, after + 8, after + 16, after + 24, after + 40);
    let word_flags = flags::TIME | flags::TASK | flags::PROCESS;
    let payload = record::payload_offset(word_flags);
    let locked = Locked {
        state: RDI,
        position: RSI,
        size: Size::Fixed(payload + record::COMM_BYTES as u32),
        tid_at,
        time_at,
        keep_at: pid_at,
        word_flags,
        event: 0,
    };

    let [out, full, restrained] = [asm.label(), asm.label(), asm.label()];
    asm.lea(RSP, at(RSP, -depth));
    for &(reg, offset) in &saved {
        asm.store(at(RSP, offset), reg, Width::B8);
    }
    asm.cmp_mem32(path_word(around), Path::LockedSilent as i32);
    asm.jcc(Cond::Equal, out);
    asm.cmp_mem32(restraint_word(around), 0);
    asm.jcc(Cond::NotEqual, restrained);
    asm.mov_imm(RAX, SYS_GETPID);
    asm.syscall();
    asm.store(at(RSP, pid_at), RAX, Width::B4);
    load_generation(asm, around);
    asm.mov32(RDX, RAX);
    asm.shl(RDX, 32);
    asm.load32(RCX, at(RSP, pid_at));
    asm.alu(Alu::Or, RDX, RCX);
    asm.load64(RAX, met_word(around, 0));
    asm.alu(Alu::Cmp, RAX, RDX);
    asm.jcc(Cond::Equal, out);
    asm.lock_cmpxchg(met_word(around, 0), RDX, Width::B8);
    asm.jcc(Cond::NotEqual, out); // Another thread was first.
    asm.mov_imm(RAX, SYS_PRCTL);
    asm.mov_imm(RDI, PR_GET_NAME);
    asm.lea(RSI, at(RSP, comm_at));
    asm.syscall();
    asm.mov_imm(RAX, SYS_GETTID);
    asm.syscall();
    asm.store(at(RSP, tid_at), RAX, Width::B4);
    locked.reserve(asm, around, full);
    asm.load64(RAX, at(RSP, time_at));
    asm.store(at(RCX, 8), RAX, Width::B8);
    asm.load32(RAX, at(RSP, tid_at));
    asm.store(at(RCX, 16), RAX, Width::B4);
    asm.load32(RAX, at(RSP, pid_at));
    asm.store(at(RCX, 20), RAX, Width::B4);
    for part in 0..record::COMM_BYTES as i32 / 8 {
        asm.load64(RAX, at(RSP, comm_at + 8 * part));
        asm.store(at(RCX, payload as i32 + 8 * part), RAX, Width::B8);
    }
    locked.commit(asm);
    asm.jmp(out);
    asm.bind(full);
    count_lost(asm, RDI);
    asm.bind(out);
    for &(reg, offset) in saved.iter().rev() {
        asm.load64(reg, at(RSP, offset));
    }
    asm.lea(RSP, at(RSP, depth));
    asm.jmp_reg(RAX);
    // A child that was forked by one who must not ask for its number: the thread's own is the process's as well, as long as
    // there is only the one that forked it.
    asm.bind(restrained);
    asm.cmp_mem32(path_word(around), Path::Locked as i32);
    asm.jcc(Cond::Equal, out);
    let question = thread::require_own(asm, out);
    asm.load64(RAX, tid_offset_word(around));
    asm.load32(RAX, Mem::Fs { base: RAX, disp: 0 });
    asm.store(at(RSP, pid_at), RAX, Width::B4);
    load_generation(asm, around);
    asm.mov32(RDX, RAX);
    asm.shl(RDX, 32);
    asm.load32(RCX, at(RSP, pid_at));
    asm.alu(Alu::Or, RDX, RCX);
    asm.load64(RAX, met_word(around, 0));
    asm.lock_cmpxchg(met_word(around, 0), RDX, Width::B8);
    asm.jmp(out);
    question
}
