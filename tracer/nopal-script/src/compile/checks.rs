//! What a body looks after while it runs: it goes on, and tells on standard error what has no sense.

use super::body::Body;
use super::types::Value;
use crate::diagnostic::Span;
use nopal_program::op::{Binary, Op, Reg, Slot, Space};
use nopal_program::{Action, Format, Look, MessageOf, Piece};

/// Linux's EFAULT, negative.
const BAD_ADDRESS: i32 = -14;

/// ENOENT.
const NOT_THERE: i32 = -2;

impl Body<'_, '_> {
    /// The action that tells something, with its place and those of the macros around it.
    pub(super) fn message(&mut self, format: Format, of: MessageOf, span: Span) -> u32 {
        let bytes = |span: &Span| (span.start, span.end);
        let within = self.expansions.iter().rev().map(bytes).collect();
        self.action(Action::Message { format, of, place: bytes(&span), within })
    }

    /// Tells this whenever the code comes here.
    pub(super) fn tell(&mut self, text: &str, of: MessageOf, span: Span) {
        let format = Format { pieces: vec![Piece::Text(text.to_owned())] };
        let action = self.message(format, of, span);
        self.emit(Op::Emit { action, payload: Slot { at: 0, len: 0 } });
    }

    /// An element that the array does not have is read all the same, as newer releases do it.
    pub(super) fn check_index(&mut self, index: Reg, n_elements: u32, span: Span) {
        if self.look() == Look::Old || n_elements == 0 {
            return;
        }
        let mark = self.mark();
        let is_in = self.temp();
        let b = i64::from(n_elements);
        self.emit(Op::BinaryConst { op: Binary::LtUnsigned, dst: is_in, a: index, b });
        let skip = self.jump(Op::JumpIf { condition: is_in, to: 0 });
        let text = "Array access out of bounds. This can lead to unexpected results.";
        self.tell(text, MessageOf::Check, span);
        self.patch(&[skip]);
        self.release(mark);
    }

    /// Memory that cannot be read counts as zeros; with `-k` that is told.
    pub(crate) fn check_readable(&mut self, address: Reg, space: Space, is_string: bool, span: Span) {
        if !self.shared.script.options.has_helper_warnings {
            return;
        }
        let name = match (space, is_string) {
            (Space::User, false) => "probe_read_user",
            (Space::User, true) => "probe_read_user_str",
            (Space::Kernel, false) => "probe_read_kernel",
            (Space::Kernel, true) => "probe_read_kernel_str",
        };
        let mark = self.mark();
        let can_read = self.temp();
        self.emit(Op::Readable { dst: can_read, address, space });
        let skip = self.jump(Op::JumpIf { condition: can_read, to: 0 });
        self.tell("Bad address", MessageOf::Helper { name, code: BAD_ADDRESS }, span);
        self.patch(&[skip]);
        self.release_regs(mark);
    }

    /// An entry that is to be deleted and is not there.
    pub(super) fn check_deleted(&mut self, was_there: &Value, span: Span) {
        if !self.shared.script.options.has_delete_warnings {
            return;
        }
        let mark = self.mark();
        let condition = self.reg(was_there);
        let skip = self.jump(Op::JumpIf { condition, to: 0 });
        let of = MessageOf::Helper { name: "map_delete_elem", code: NOT_THERE };
        self.tell("No such file or directory", of, span);
        self.patch(&[skip]);
        self.release_regs(mark);
    }

    /// An entry that is not there counts as 0; with `-k` that is told.
    pub(super) fn check_entry(&mut self, map: usize, key: Slot, span: Span) {
        if !self.shared.script.options.has_helper_warnings || key.len == 0 {
            return;
        }
        let mark = self.mark();
        let is_there = self.temp();
        self.emit(Op::MapHas { dst: is_there, map: map as u32, key });
        let skip = self.jump(Op::JumpIf { condition: is_there, to: 0 });
        let of = MessageOf::Helper { name: "map_lookup_elem", code: 0 };
        self.tell("Can't lookup map element because it does not exist.", of, span);
        self.patch(&[skip]);
        self.release_regs(mark);
    }
}
