//! Whole records and arrays: copied to the frame to be kept, compared, printed and used as keys; and what is read of
//! such a copy.

use super::Lowered;
use super::body::{Body, Mark};
use super::types::{At, Ty, Value};
use crate::ast::{BinaryOp, Expr};
use crate::ctype::CType;
use crate::diagnostic::{Diagnostic, Span};
use nopal_program::Type;
use nopal_program::layout::{Layout, Member};
use nopal_program::op::{Op, Slot, Unary};

/// What a whole value may take.
const MAX_WHOLE_BYTES: u32 = 4096;
/// Records within records.
const MAX_DEPTH: u32 = 16;

impl Body<'_, '_> {
    /// A record or an array in memory becomes a copy in the frame; other values stay what they are.
    pub(crate) fn whole(&mut self, value: Value) -> Lowered<Value> {
        let (Ty::Memory(what), At::Memory { base, offset, space }) = (&value.ty, value.at) else {
            return Ok(value);
        };
        let what = what.clone();
        let layout = self.layout_of(&what, value.span, 0)?;
        let size_bytes = layout.size_bytes();
        if size_bytes > MAX_WHOLE_BYTES {
            let message = format!("a whole `{}` takes {size_bytes} bytes", what.text());
            return Err(Diagnostic::error(value.span, message)
                .help(format!("at most {MAX_WHOLE_BYTES} can be kept; name the members that are wanted")));
        }
        let to = self.alloc(size_bytes.next_multiple_of(8));
        self.emit(Op::Zero { to });
        let mark = self.mark();
        let address = self.address(base, offset);
        self.emit(Op::Read { to: Slot { at: to.at, len: size_bytes }, address, space });
        self.check_readable(address, space, false, value.span);
        self.release(mark);
        Ok(Value { space: Some(space), ..Value::new(Ty::Whole { what, layout }, At::Slot(to), value.span) })
    }

    pub(super) fn layout_of(&mut self, what: &CType, span: Span, depth: u32) -> Lowered<Layout> {
        Ok(match what {
            CType::Void => return Err(Diagnostic::error(span, "`void` has no value")),
            CType::Bool => Layout::Bool,
            CType::Char => Layout::Int { size_bytes: 1, is_signed: true },
            CType::Int { size_bytes, is_signed } => {
                Layout::Int { size_bytes: *size_bytes, is_signed: *is_signed }
            }
            CType::Enum(_) => Layout::Int { size_bytes: 4, is_signed: false },
            CType::Float => Layout::Float,
            CType::Pointer(_) => Layout::Pointer,
            CType::Array(of, n) if **of == CType::Char => Layout::Text { n: *n },
            CType::Array(of, n) => {
                Layout::Array { of: Box::new(self.layout_of(of, span, depth + 1)?), n: *n }
            }
            CType::Record(name) => {
                let record = self.shared.record(name, span)?;
                let mut members = Vec::new();
                for member in &record.members {
                    if depth > MAX_DEPTH {
                        return Err(Diagnostic::error(span, format!("`{name}` is nested too deeply")));
                    }
                    let layout = self.layout_of(&member.value_type, span, depth + 1)?;
                    match layout {
                        Layout::Record { members: inner, .. } if member.name.is_empty() => {
                            members.extend(inner.into_iter().map(|inner| Member {
                                offset: inner.offset.saturating_add(member.offset),
                                ..inner
                            }));
                        }
                        layout => members.push(Member {
                            name: member.name.clone(),
                            offset: member.offset,
                            bits: member.bits,
                            layout,
                        }),
                    }
                }
                Layout::Record { size_bytes: record.size_bytes, members }
            }
        })
    }

    /// A part of a copy in the frame, which begins at byte `at` of it.
    pub(super) fn part(
        &mut self,
        what: &CType,
        bits: Option<(u8, u8)>,
        at: u32,
        mark: Mark,
        span: Span,
    ) -> Lowered<Value> {
        let (size_bytes, is_signed, ty) = match what {
            CType::Record(_) | CType::Array(..) => return self.inner(what, at, span),
            CType::Void => return Err(Diagnostic::error(span, "`void` has no value")),
            _ => self.scalar(what, self.variant.space()),
        };
        let mut value = self.result(mark, ty, span, |dst| Op::Load {
            dst,
            at,
            size_bytes,
            is_signed: is_signed && bits.is_none(),
        });
        if let (Some(bits), At::Reg(dst)) = (bits, value.at) {
            self.cut_bits(dst, bits, is_signed);
        }
        value.space = Some(self.variant.space());
        Ok(value)
    }

    /// An element of an array, or a character of a string, that lies in the frame.
    pub(super) fn element(
        &mut self,
        of: &CType,
        n: u32,
        slot: Slot,
        index: &Expr,
        mark: Mark,
        span: Span,
    ) -> Lowered<Value> {
        let size = self.size_of(of, span)?;
        let number = self.number(index)?;
        match number.constant() {
            Some(constant) if (0..i64::from(n)).contains(&constant) => {
                self.part(of, None, slot.at + constant as u32 * size, mark, span)
            }
            Some(constant) => {
                let message = format!("the index {constant} is out of bounds for array of size {n}");
                Err(Diagnostic::error(index.span, message))
            }
            None if matches!(of, CType::Record(_) | CType::Array(..) | CType::Void) => {
                Err(Diagnostic::error(index.span, "a constant is needed to choose among records and arrays"))
            }
            None => {
                let (size_bytes, is_signed, ty) = self.scalar(of, self.variant.space());
                let index = self.reg(&number);
                if *of != CType::Char {
                    self.check_index(index, n, span);
                }
                Ok(self.result(mark, ty, span, |dst| Op::Element {
                    dst,
                    from: slot,
                    index,
                    n,
                    size_bytes,
                    is_signed,
                }))
            }
        }
    }

    /// A record or array within a copy, as a copy of its own: slots begin at multiples of 8.
    fn inner(&mut self, what: &CType, at: u32, span: Span) -> Lowered<Value> {
        let layout = self.layout_of(what, span, 0)?;
        let size_bytes = layout.size_bytes();
        if let Layout::Text { n } = layout {
            let ty = Ty::str(n + 1);
            let to = self.alloc(ty.size_bytes());
            self.emit(Op::Zero { to });
            self.copy_part(to.at, at, n);
            return Ok(Value::new(ty, At::Slot(to), span));
        }
        let to = self.alloc(size_bytes.next_multiple_of(8));
        self.emit(Op::Zero { to });
        self.copy_part(to.at, at, size_bytes);
        Ok(Value::new(Ty::Whole { what: what.clone(), layout }, At::Slot(to), span))
    }

    /// In pieces that are aligned on both sides: the stack of the kernel's programs takes no others.
    fn copy_part(&mut self, to: u32, from: u32, len: u32) {
        if from.is_multiple_of(8) {
            self.emit(Op::Move { to: Slot { at: to, len }, from: Slot { at: from, len } });
            return;
        }
        let step = [4u32, 2, 1].into_iter().find(|step| from.is_multiple_of(*step)).unwrap_or(1);
        let mark = self.mark();
        let reg = self.temp();
        let mut done = 0;
        while done < len {
            let size = [step, 2, 1].into_iter().find(|size| *size <= step && done + size <= len).unwrap_or(1);
            self.emit(Op::Load { dst: reg, at: from + done, size_bytes: size as u8, is_signed: false });
            self.emit(Op::Store { at: to + done, src: reg, size_bytes: size as u8 });
            done += size;
        }
        self.release_regs(mark);
    }

    /// `(int8[4])number`, `(uint32)array`.
    pub(super) fn cast_array(&mut self, value: &Value, to: &CType, span: Span) -> Lowered<Value> {
        // `(int8[])number` has as many elements as the number has room for.
        let to = &match to {
            CType::Array(of, 0) => {
                let size = match &value.ty {
                    Ty::Int { size_bytes, .. } => u32::from(*size_bytes),
                    _ => 8,
                };
                CType::Array(of.clone(), size / self.size_of(of, span)?.max(1))
            }
            other => other.clone(),
        };
        let layout = self.layout_of(to, span, 0)?;
        let size_bytes = layout.size_bytes();
        let of_bytes = match &value.ty {
            Ty::Int { size_bytes, .. } if value.constant().is_none() => u32::from(*size_bytes),
            _ => size_bytes,
        };
        if !matches!(size_bytes, 1 | 2 | 4 | 8) || of_bytes < size_bytes {
            let message = format!("{} cannot be made a `{}`", value.ty.text(), to.text());
            return Err(Diagnostic::error(span, message)
                .help("the array must have as many bytes as the number: 1, 2, 4 or 8"));
        }
        let src = self.reg(value);
        let slot = self.alloc(8);
        self.emit(Op::Zero { to: slot });
        self.emit(Op::Store { at: slot.at, src, size_bytes: size_bytes as u8 });
        Ok(Value::new(Ty::Whole { what: to.clone(), layout }, At::Slot(slot), span))
    }

    /// `(int8[])"text"`, its NUL included.
    pub(super) fn array_of_text(&mut self, value: Value, to: &CType, span: Span) -> Lowered<Value> {
        let (Ty::Plain(Type::Str { max_bytes }), CType::Array(of, n)) = (&value.ty, to) else {
            return Ok(value);
        };
        let n = if *n == 0 { *max_bytes } else { *n };
        if n > *max_bytes || !matches!(**of, CType::Int { size_bytes: 1, .. } | CType::Bool) {
            let message = format!("a string of {max_bytes} bytes cannot be made a `{}`", to.text());
            return Err(Diagnostic::error(span, message).help("write `(int8[])string` or `(uint8[])string`"));
        }
        let what = CType::Array(of.clone(), n);
        let layout = self.layout_of(&what, span, 0)?;
        let from = self.slot(&value);
        let slot = self.alloc(n.next_multiple_of(8));
        self.emit(Op::Zero { to: slot });
        self.emit(Op::Move { to: Slot { at: slot.at, len: n }, from });
        Ok(Value::new(Ty::Whole { what, layout }, At::Slot(slot), span))
    }

    /// A whole array of at most 8 bytes as the number its bytes are.
    pub(super) fn number_of_array(&mut self, value: Value, mark: Mark) -> Lowered<Value> {
        let value = self.whole(value)?;
        let (Ty::Whole { what: CType::Array(..), layout }, At::Slot(slot)) = (&value.ty, value.at) else {
            return Ok(value);
        };
        let size_bytes = layout.size_bytes();
        if !matches!(size_bytes, 1 | 2 | 4 | 8) {
            return Ok(value);
        }
        let ty = Ty::Int { size_bytes: size_bytes as u8, is_signed: false };
        let size_bytes = size_bytes as u8;
        Ok(self.result(mark, ty, value.span, |dst| Op::Load {
            dst,
            at: slot.at,
            size_bytes,
            is_signed: false,
        }))
    }

    /// Equal if all bytes are.
    pub(super) fn compare_whole(
        &mut self,
        op: BinaryOp,
        a: Value,
        b: Value,
        mark: Mark,
        span: Span,
    ) -> Lowered<Value> {
        let (a, b) = (self.whole(a)?, self.whole(b)?);
        if a.ty != b.ty {
            let message = format!("`{}` cannot be used with {} and {}", op.text(), a.ty.text(), b.ty.text());
            return Err(
                Diagnostic::error(span, message).help("arrays and records of one type can be equal or not")
            );
        }
        self.compare_slots(op, &a, &b, mark, span)
    }

    /// Equal if all bytes are; a shorter one counts as followed by zeros.
    pub(super) fn compare_slots(
        &mut self,
        op: BinaryOp,
        a: &Value,
        b: &Value,
        mark: Mark,
        span: Span,
    ) -> Lowered<Value> {
        if !matches!(op, BinaryOp::Eq | BinaryOp::Ne) {
            let message = format!("`{}` cannot be used with {} and {}", op.text(), a.ty.text(), b.ty.text());
            return Err(Diagnostic::error(span, message).help("they can be compared with `==` and `!=`"));
        }
        let (a, b) = (self.slot(a), self.slot(b));
        let value = self.result(mark, Ty::BOOL, span, |dst| Op::Equal { dst, a, b });
        self.release_frame(mark);
        if op == BinaryOp::Ne {
            let reg = self.reg(&value);
            self.emit(Op::Unary { op: Unary::Not, dst: reg, a: reg });
        }
        Ok(value)
    }
}
