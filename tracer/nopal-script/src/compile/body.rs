//! The code of one body while it is made: registers, the frame, jumps.
//!
//! Registers and frame bytes are taken from the bottom up and given back by [`Body::release`]; variables keep theirs.

use super::points::Variant;
use super::types::{At, Ty, Value};
use super::{Lowered, Shared};
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::op::{Op, Reg, Slot};
use nopal_program::{Action, Code, Look};

/// What no sensible body needs.
const MAX_OPS: usize = 20_000;
const MAX_FRAME_BYTES: u32 = 256 << 10;

/// A variable of the body. Known from an earlier walk but for the first.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub name: String,
    pub ty: Ty,
    pub space: Option<nopal_program::op::Space>,
    pub first: Span,
    /// Declared, or first assigned by a cast: what is assigned is cut to this many bytes.
    width: Option<Width>,
    at: At,
    /// Bytes of the widest number assigned, a literal counting as the smallest signed number that it fits.
    least_bytes: u8,
    /// Its address is taken somewhere.
    has_address: bool,
    /// Where a number with an address lies, beside its register.
    memory: Option<Slot>,
}

/// Of an integer smaller than a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Width {
    pub size_bytes: u8,
    pub is_signed: bool,
}

impl Width {
    pub(crate) fn of(ty: &Ty) -> Option<Width> {
        match ty {
            Ty::Int { size_bytes, is_signed } if *size_bytes < 8 => {
                Some(Width { size_bytes: *size_bytes, is_signed: *is_signed })
            }
            _ => None,
        }
    }
}

impl Variable {
    pub(crate) fn is_in(&self, reg: Reg) -> bool {
        self.at == At::Reg(reg)
    }
}

pub(crate) struct Body<'a, 's> {
    pub shared: &'a mut Shared<'s>,
    pub variant: &'a Variant,
    pub variables: &'a mut Vec<Variable>,
    /// Variables of loops, the innermost last.
    pub bindings: Vec<(String, Value)>,
    pub loops: Vec<Loop>,
    /// Where the macros are called whose bodies this is within, the innermost last.
    pub expansions: Vec<Span>,
    /// Names assigned to so far in the text; reading others is an error.
    pub assigned: Vec<String>,
    ops: Vec<Op>,
    next_reg: Reg,
    n_regs: Reg,
    frame_top: u32,
    frame_bytes: u32,
    is_too_large: bool,
}

/// Jumps out of a loop that wait for its end.
#[derive(Debug, Default)]
pub(crate) struct Loop {
    pub breaks: Vec<usize>,
    pub continues: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    reg: Reg,
    frame: u32,
}

impl<'a, 's> Body<'a, 's> {
    pub(super) fn new(
        shared: &'a mut Shared<'s>,
        variant: &'a Variant,
        variables: &'a mut Vec<Variable>,
    ) -> Body<'a, 's> {
        let mut body = Body {
            shared,
            variant,
            variables,
            bindings: Vec::new(),
            loops: Vec::new(),
            expansions: Vec::new(),
            assigned: Vec::new(),
            ops: Vec::new(),
            next_reg: 0,
            n_regs: 0,
            frame_top: 0,
            frame_bytes: 0,
            is_too_large: false,
        };
        for index in 0..body.variables.len() {
            let ty = body.variables[index].ty.clone();
            body.variables[index].at = body.place_for(&ty);
            let needs_memory = body.variables[index].has_address && ty.is_scalar();
            body.variables[index].memory = needs_memory.then(|| body.alloc(8));
        }
        body
    }

    pub(super) fn finish(self, span: Span) -> Lowered<Code> {
        if self.is_too_large || self.ops.len() > MAX_OPS {
            let message =
                format!("this body is too large: {} operations, {} bytes", self.ops.len(), self.frame_bytes);
            return Err(Diagnostic::error(span, message).help("unroll less, or use smaller strings"));
        }
        Ok(Code {
            ops: super::tidy::without_dead_code(self.ops),
            n_regs: self.n_regs,
            frame_bytes: self.frame_bytes,
        })
    }

    /// Whether there is no sense in making more code.
    pub(crate) fn is_too_large(&self) -> bool {
        self.is_too_large || self.ops.len() > MAX_OPS
    }

    // Registers and frame.

    pub(crate) fn mark(&self) -> Mark {
        Mark { reg: self.next_reg, frame: self.frame_top }
    }

    pub(crate) fn release(&mut self, mark: Mark) {
        self.next_reg = mark.reg;
        self.frame_top = mark.frame;
    }

    pub(crate) fn release_regs(&mut self, mark: Mark) {
        self.next_reg = mark.reg;
    }

    pub(crate) fn release_frame(&mut self, mark: Mark) {
        self.frame_top = mark.frame;
    }

    pub(crate) fn temp(&mut self) -> Reg {
        let reg = self.next_reg;
        self.next_reg += 1;
        self.n_regs = self.n_regs.max(self.next_reg);
        reg
    }

    pub(crate) fn frame_top(&self) -> u32 {
        self.frame_top
    }

    /// Gives back what lies above.
    pub(crate) fn set_frame_top(&mut self, top: u32) {
        self.frame_top = top;
    }

    /// Room for `len` bytes, on 8.
    pub(crate) fn alloc(&mut self, len: u32) -> Slot {
        let at = self.frame_top;
        let top = u64::from(at) + u64::from(len).next_multiple_of(8);
        if top > u64::from(MAX_FRAME_BYTES) {
            self.is_too_large = true;
            return Slot { at: 0, len };
        }
        self.frame_top = top as u32;
        self.frame_bytes = self.frame_bytes.max(self.frame_top);
        Slot { at, len }
    }

    fn place_for(&mut self, ty: &Ty) -> At {
        if ty.is_scalar() { At::Reg(self.temp()) } else { At::Slot(self.alloc(ty.size_bytes())) }
    }

    // Code.

    pub(crate) fn emit(&mut self, op: Op) {
        self.ops.push(op);
    }

    pub(crate) fn here(&self) -> u32 {
        self.ops.len() as u32
    }

    /// Takes back what was made since.
    pub(crate) fn truncate(&mut self, start: u32) {
        self.ops.truncate(start as usize);
    }

    pub(crate) fn last_op(&mut self) -> Option<&mut Op> {
        self.ops.last_mut()
    }

    /// Nobody wants to know whether what was just deleted had been there.
    pub(crate) fn forget_presence(&mut self) {
        if let [.., Op::MapHas { .. }, Op::MapDelete { .. }] = self.ops[..] {
            let at = self.ops.len() - 2;
            self.ops.remove(at);
        }
    }

    pub(crate) fn ops_since(&self, start: u32) -> &[Op] {
        &self.ops[start as usize..]
    }

    /// A jump whose target is told later.
    pub(crate) fn jump(&mut self, op: Op) -> usize {
        self.ops.push(op);
        self.ops.len() - 1
    }

    /// Lets jumps lead to here.
    pub(crate) fn patch(&mut self, jumps: &[usize]) {
        let here = self.here();
        for jump in jumps {
            self.patch_to(*jump, here);
        }
    }

    pub(crate) fn patch_to(&mut self, jump: usize, target: u32) {
        match &mut self.ops[jump] {
            Op::Jump { to } | Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } => *to = target,
            Op::ForEach { end, .. } => *end = target,
            other => unreachable!("{other:?} is no jump"),
        }
    }

    // Values.

    /// The register a scalar is in, or is brought to.
    pub(crate) fn reg(&mut self, value: &Value) -> Reg {
        match value.at {
            At::Reg(reg) => reg,
            At::Const(value) => {
                let dst = self.temp();
                self.emit(Op::Const { dst, value });
                dst
            }
            At::Slot(slot) => {
                let dst = self.temp();
                self.emit(Op::Load { dst, at: slot.at, size_bytes: 8, is_signed: false });
                dst
            }
            At::Memory { base, .. } => base,
            At::Nowhere => {
                let dst = self.temp();
                self.emit(Op::Const { dst, value: 0 });
                dst
            }
        }
    }

    /// Puts a value at `start` of the frame in `len` bytes, and gives back what lies above.
    pub(crate) fn put(&mut self, start: u32, value: &Value, len: u32) -> Slot {
        if value.ty.is_scalar() {
            let mark = self.mark();
            let src = self.reg(value);
            self.release_regs(mark);
            self.set_frame_top(start);
            let slot = self.alloc(8);
            self.emit(Op::Store { at: slot.at, src, size_bytes: 8 });
            return slot;
        }
        let At::Slot(from) = value.at else {
            self.set_frame_top(start);
            return self.alloc(len);
        };
        self.set_frame_top(start);
        let to = self.alloc(len);
        if from.at != to.at {
            self.emit(Op::Move { to, from });
        } else if from.len < to.len {
            match self.last_op() {
                Some(Op::Constant { to: written, .. }) if *written == from => *written = to,
                _ => {
                    let tail = Slot { at: to.at + from.len, len: to.len - from.len };
                    self.emit(Op::Zero { to: tail });
                }
            }
        }
        to
    }

    /// A value as what keeps it has it: members of a tuple may have more room there than here.
    pub(crate) fn fit(&mut self, value: Value, to: &Ty) -> Value {
        let value = self.in_order(value, to);
        let (Some(narrow), Some(wide), At::Slot(from)) = (members(&value.ty), members(to), value.at) else {
            return value;
        };
        if value.ty.size_bytes() == to.size_bytes() || to.unify(&value.ty).as_ref() != Some(to) {
            return value;
        }
        let slot = self.alloc(to.size_bytes());
        self.fit_members(&narrow, &wide, from.at, slot.at);
        Value { ty: to.clone(), at: At::Slot(slot), ..value }
    }

    /// The members of a record in the order that another has them.
    fn in_order(&mut self, value: Value, to: &Ty) -> Value {
        let (Ty::Record(own), Ty::Record(wanted), At::Slot(from)) = (&value.ty, to, value.at) else {
            return value;
        };
        let is_same = own.iter().zip(wanted).all(|((own, _), (wanted, _))| own == wanted);
        if is_same || own.len() != wanted.len() {
            return value;
        }
        let mut members = Vec::new();
        let slot = self.alloc(value.ty.size_bytes());
        let mut at = slot.at;
        for (name, _) in wanted {
            let Some(index) = own.iter().position(|(known, _)| known == name) else { return value };
            let before: u32 = own[..index].iter().map(|(_, ty)| ty.size_bytes()).sum();
            let len = own[index].1.size_bytes();
            self.emit(Op::Move { to: Slot { at, len }, from: Slot { at: from.at + before, len } });
            at += len;
            members.push(own[index].clone());
        }
        Value { ty: Ty::Record(members), at: At::Slot(slot), ..value }
    }

    fn fit_members(&mut self, narrow: &[Ty], wide: &[Ty], mut from: u32, mut to: u32) {
        for (narrow, wide) in narrow.iter().zip(wide) {
            let (from_len, to_len) = (narrow.size_bytes(), wide.size_bytes());
            match (members(narrow), members(wide)) {
                (Some(narrow), Some(wide)) if from_len != to_len => {
                    self.fit_members(&narrow, &wide, from, to);
                }
                _ => self.emit(Op::Move {
                    to: Slot { at: to, len: to_len },
                    from: Slot { at: from, len: from_len },
                }),
            }
            from += from_len;
            to += to_len;
        }
    }

    /// The slot of a value that is no scalar; scalars are stored in one.
    pub(crate) fn slot(&mut self, value: &Value) -> Slot {
        match value.at {
            At::Slot(slot) => slot,
            At::Nowhere | At::Const(_) | At::Reg(_) | At::Memory { .. } => {
                let start = self.frame_top;
                self.put(start, value, value.ty.size_bytes())
            }
        }
    }

    /// A result in a register of its own, which may be one that `mark` gives back.
    pub(crate) fn result(&mut self, mark: Mark, ty: Ty, span: Span, op: impl FnOnce(Reg) -> Op) -> Value {
        self.release_regs(mark);
        let dst = self.temp();
        self.emit(op(dst));
        Value::new(ty, At::Reg(dst), span)
    }

    pub(crate) fn string_bytes(&self) -> u32 {
        self.shared.script.limits.string_bytes
    }

    // Variables.

    pub(crate) fn variable(&self, name: &str) -> Option<(Variable, At)> {
        let found = self.variables.iter().find(|variable| variable.name == name)?;
        Some((found.clone(), found.at))
    }

    /// A cast or a declaration says how wide the number is that was just assigned.
    pub(super) fn takes_width(&mut self, name: &str, ty: &Ty) {
        if let Some(variable) = self.variables.iter_mut().find(|variable| variable.name == name)
            && let Ty::Int { size_bytes, .. } = ty
        {
            variable.least_bytes = variable.least_bytes.max(*size_bytes);
        }
    }

    /// What newer releases take for the size of a variable that holds a number.
    pub(super) fn least_bytes_of(&self, name: &str) -> Option<u32> {
        let variable = self.variables.iter().find(|variable| variable.name == name)?;
        let is_number = matches!(variable.ty, Ty::Int { .. }) && variable.width.is_none();
        is_number.then_some(u32::from(variable.least_bytes))
    }

    /// What is cut to when something is assigned to a variable.
    pub(crate) fn width(&self, name: &str) -> Option<Width> {
        self.variables.iter().find(|variable| variable.name == name)?.width
    }

    /// Where the bytes of a variable lie, from the next walk on that knows of it.
    pub(super) fn memory_of(&mut self, name: &str) -> Slot {
        let Some(variable) = self.variables.iter_mut().find(|variable| variable.name == name) else {
            return Slot { at: 0, len: 0 };
        };
        if !variable.has_address {
            variable.has_address = true;
            self.shared.maps.has_changed = true;
        }
        match (variable.at, variable.memory) {
            (At::Slot(slot), _) | (_, Some(slot)) => slot,
            _ => self.alloc(8),
        }
    }

    /// After each change of a variable.
    pub(super) fn keep_in_memory(&mut self, name: &str) {
        let found = self.variables.iter().find(|variable| variable.name == name);
        if let Some(Variable { at: At::Reg(src), memory: Some(memory), .. }) = found {
            let (at, src) = (memory.at, *src);
            self.emit(Op::Store { at, src, size_bytes: 8 });
        }
    }

    /// Takes in something assigned to a variable; gives the type and place it has. The first decides its `width`.
    pub(crate) fn learn_variable(
        &mut self,
        name: &str,
        value: &Value,
        width: Option<Width>,
        target: Span,
    ) -> Lowered<(Ty, At)> {
        let Some(index) = self.variables.iter().position(|variable| variable.name == name) else {
            let at = self.place_for(&value.ty);
            let variable = Variable {
                name: name.to_string(),
                ty: value.ty.clone(),
                space: value.space,
                first: target,
                width,
                at,
                least_bytes: least_bytes(value),
                has_address: false,
                memory: None,
            };
            self.variables.push(variable);
            self.shared.maps.has_changed = true;
            return Ok((value.ty.clone(), at));
        };
        let variable = &mut self.variables[index];
        variable.least_bytes = variable.least_bytes.max(least_bytes(value));
        if variable.width.is_some() && matches!(value.ty, Ty::Int { .. }) {
            return Ok((variable.ty.clone(), variable.at));
        }
        match variable.ty.unify(&value.ty) {
            Some(unified) => {
                if unified != variable.ty {
                    variable.ty = unified.clone();
                    self.shared.maps.has_changed = true;
                    let at = self.place_for(&unified);
                    self.variables[index].at = at;
                }
                Ok((unified, self.variables[index].at))
            }
            None => Err(Diagnostic::error(
                target,
                format!(
                    "`${}` holds {}, and is given {} here",
                    crate::ast::scope::written(name),
                    variable.ty.text(),
                    value.ty.text()
                ),
            )
            .label(value.ty.text())
            .related(variable.first, variable.ty.text())
            .help("use another variable for it")),
        }
    }

    /// The number of the action, shared with an equal one.
    pub(crate) fn look(&self) -> Look {
        self.shared.script.options.look
    }

    pub(crate) fn action(&mut self, action: Action) -> u32 {
        self.shared.action(action)
    }
}

/// Bytes of a number as newer releases see it.
pub(super) fn least_bytes(value: &Value) -> u8 {
    match (&value.ty, value.constant()) {
        (Ty::Int { size_bytes: 8, is_signed: true }, Some(constant)) => {
            let fits = |bits: u32| constant >> (bits - 1) == 0 || constant >> (bits - 1) == -1;
            [1, 2, 4].into_iter().find(|bytes| fits(8 * u32::from(*bytes))).unwrap_or(8)
        }
        (Ty::Int { size_bytes, .. }, _) => *size_bytes,
        _ => 0,
    }
}

/// Of a tuple or a record the types of its members.
fn members(ty: &Ty) -> Option<Vec<Ty>> {
    match ty {
        Ty::Tuple(members) => Some(members.clone()),
        Ty::Record(members) => Some(members.iter().map(|(_, ty)| ty.clone()).collect()),
        _ => None,
    }
}
