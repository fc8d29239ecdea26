//! Jumps and loops. A `for` over a map is a callback of `bpf_for_each_map_elem`; leaving it for somewhere else than its
//! end is told to the caller through a word of the stack.

use super::super::super::insn::{Cond, Helper, Label, Reg, Width};
use super::{CTX, CTX_AT, CodeError, EXIT_AT, Gen, KEPT, SCRATCH, SCRATCH_AT, STAT_CUT};
use nopal_program::op::{Op, Slot, Target};
use nopal_program::{Code, MapValue};

/// Ops that become one function: the whole program, or the body of a `for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Region {
    pub start: usize,
    pub end: usize,
    /// Op that it is the body of.
    of: Option<usize>,
    /// Returns for the next entry. Bound while the region is generated.
    next: Option<Label>,
    /// Gives the hit up. Bound if somebody jumps there.
    cut: Option<Label>,
}

pub(super) fn regions(code: &Code) -> Result<Vec<Region>, CodeError> {
    let whole = Region { start: 0, end: code.ops.len(), of: None, next: None, cut: None };
    let mut regions = vec![whole];
    for (at, op) in code.ops.iter().enumerate() {
        if let Op::ForEach { end, .. } = op {
            let end = *end as usize;
            let around = innermost(&regions, at);
            if end <= at || end > regions[around].end {
                return Err(CodeError::BadOp { op: at, reason: "a loop that ends elsewhere than it should" });
            }
            regions.push(Region { start: at + 1, end, of: Some(at), next: None, cut: None });
        }
    }
    Ok(regions)
}

/// The innermost region that holds op `at`; the program itself for its end.
fn innermost(regions: &[Region], at: usize) -> usize {
    let holds = |region: &Region| region.start <= at && at < region.end;
    regions.iter().rposition(holds).unwrap_or(0)
}

impl Gen<'_> {
    /// The ops of a region in their order, without the bodies of loops.
    pub(super) fn region(&mut self, index: usize) -> Result<(), CodeError> {
        self.region = index;
        let Region { start, end, .. } = self.regions[index];
        let mut at = start;
        while at < end {
            let op = self.code.ops[at];
            self.asm.bind(self.labels[at]);
            self.op(at, &op)?;
            at = match op {
                Op::ForEach { end, .. } => end as usize,
                _ => at + 1,
            };
        }
        Ok(())
    }

    /// Functions that were called for, in the order of their code.
    pub(super) fn callbacks(&mut self) -> Result<Vec<Label>, CodeError> {
        let mut begins = Vec::new();
        while let Some((label, region)) = self.ends.pop() {
            begins.push(label);
            self.asm.bind(label);
            match region {
                Some(region) => self.body(region)?,
                None => {
                    self.asm.mov_imm(Reg::R0, 0);
                    self.asm.exit();
                }
            }
        }
        Ok(begins)
    }

    /// R1 map, R2 key, R3 value, R4 the program's stack.
    fn body(&mut self, index: usize) -> Result<(), CodeError> {
        let of = self.regions[index].of.expect("only loops have callbacks");
        let Op::ForEach { map, key, value, .. } = self.code.ops[of] else { return Ok(()) };
        self.fp = Reg::R9;
        let next = self.asm.label();
        self.regions[index].next = Some(next);
        self.asm.mov(Reg::R9, Reg::R4);
        self.asm.load(Width::W64, CTX, Reg::R9, CTX_AT);
        if self.plan.scratch_bytes > 0 {
            self.asm.load(Width::W64, SCRATCH, Reg::R9, SCRATCH_AT);
        }
        self.asm.mov(KEPT, Reg::R3);
        self.take_entry(of, map, key, value, next)?;
        self.region(index)?;
        self.asm.bind(next);
        self.asm.mov_imm(Reg::R0, 0);
        self.asm.exit();
        if let Some(cut) = self.regions[index].cut {
            self.asm.bind(cut);
            self.count(STAT_CUT);
            self.end_hit();
        }
        Ok(())
    }

    /// Copies key (at R2) and value (at R8) of the entry into the frame.
    fn take_entry(
        &mut self,
        op: usize,
        map: u32,
        key: Slot,
        value: Slot,
        next: Label,
    ) -> Result<(), CodeError> {
        let def = self.map(map, op)?.0.clone();
        let has_key = def.key_bytes() > 0;
        if has_key {
            if key.len != def.key_bytes() {
                return Err(CodeError::BadOp { op, reason: "the key does not have the map's length" });
            }
            self.asm.mov(Reg::R3, Reg::R2);
            let to = self.base(self.plan.frame, key.at);
            self.copy_bytes(to, (Reg::R3, 0), key.len);
        }
        match def.value {
            MapValue::Plain(_) | MapValue::Series(_) => {
                let first = if has_key { 0 } else { 8 };
                if !has_key {
                    self.asm.load(Width::W64, Reg::R1, KEPT, 0);
                    self.asm.jump_if_imm(Cond::Eq, Reg::R1, 0, next);
                }
                let n = value.len.min(def.value_bytes());
                let to = self.base(self.plan.frame, value.at);
                self.copy_bytes(to, (KEPT, first), n);
                self.zero_rest(value, n);
            }
            MapValue::Aggregate(aggregate) => {
                self.aggregate_number(op, map, key, aggregate)?;
                self.asm.jump_if_imm(Cond::Eq, Reg::R1, 0, next);
                let n = value.len.min(8);
                let (base, offset) = self.base(self.plan.frame, value.at);
                if n == 8 {
                    self.asm.store(Width::W64, base, offset, Reg::R0);
                }
                self.zero_rest(value, n);
            }
        }
        Ok(())
    }

    pub(super) fn control(&mut self, at: usize, op: &Op) -> Result<(), CodeError> {
        match *op {
            Op::Jump { to } => self.jump(at, to),
            Op::JumpIf { condition, to } => {
                self.load(Reg::R1, condition);
                self.jump_when(at, Cond::Ne, Cond::Eq, to)
            }
            Op::JumpUnless { condition, to } => {
                self.load(Reg::R1, condition);
                self.jump_when(at, Cond::Eq, Cond::Ne, to)
            }
            Op::Return => {
                self.end_hit();
                Ok(())
            }
            Op::ForEach { map, end, .. } => self.for_each(at, map, end),
            _ => Ok(()),
        }
    }

    /// Jumps if R1 compares so with 0.
    fn jump_when(&mut self, at: usize, cond: Cond, opposite: Cond, to: Target) -> Result<(), CodeError> {
        if to as usize > at
            && let Some(label) = self.near(at, to)?
        {
            self.asm.jump_if_imm(cond, Reg::R1, 0, label);
            return Ok(());
        }
        let stay = self.asm.label();
        self.asm.jump_if_imm(opposite, Reg::R1, 0, stay);
        self.jump(at, to)?;
        self.asm.bind(stay);
        Ok(())
    }

    fn jump(&mut self, at: usize, to: Target) -> Result<(), CodeError> {
        match self.near(at, to)? {
            Some(label) => {
                if to as usize <= at {
                    let cut = self.cut();
                    self.may_goto(cut);
                }
                self.asm.jump(label);
            }
            None => self.leave_for(to as usize),
        }
        Ok(())
    }

    /// The label of a target that is in the function being generated.
    fn near(&self, at: usize, to: Target) -> Result<Option<Label>, CodeError> {
        let to = to as usize;
        if to > self.code.ops.len() {
            return Err(CodeError::BadOp { op: at, reason: "a jump behind the end" });
        }
        let here = self.regions[self.region];
        if let Some(next) = here.next
            && to == here.end
        {
            return Ok(Some(next));
        }
        let region = innermost(&self.regions, to);
        if region == self.region || to == self.code.ops.len() && self.region == 0 {
            return Ok(Some(self.labels[to]));
        }
        // Out of the loop, not into another one.
        let there = self.regions[region];
        if there.start <= here.start && here.end <= there.end {
            Ok(None)
        } else {
            Err(CodeError::BadOp { op: at, reason: "a jump into a loop" })
        }
    }

    /// Ends the callback and the loop; the caller goes on at `to`.
    fn leave_for(&mut self, to: usize) {
        self.asm.store_imm(Width::W64, self.fp, EXIT_AT, to as i32 + 1);
        self.asm.mov_imm(Reg::R0, 1);
        self.asm.exit();
    }

    /// Behind the end of the ops, which may be the end of a loop as well.
    fn hit_end(&self) -> usize {
        self.code.ops.len() + 1
    }

    fn end_hit(&mut self) {
        if self.region == 0 {
            self.asm.jump(self.labels[self.code.ops.len()]);
        } else {
            self.leave_for(self.hit_end());
        }
    }

    fn cut(&mut self) -> Label {
        if let Some(cut) = self.regions[self.region].cut {
            return cut;
        }
        let label = self.asm.label();
        self.regions[self.region].cut = Some(label);
        label
    }

    /// After the program's last instruction: where its loops go that do not end.
    pub(super) fn cut_of_program(&mut self) {
        if let Some(cut) = self.regions[0].cut {
            self.asm.bind(cut);
            self.count(STAT_CUT);
            self.asm.jump(self.labels[self.code.ops.len()]);
        }
    }

    fn for_each(&mut self, at: usize, map: u32, end: Target) -> Result<(), CodeError> {
        let fd = self.map(map, at)?.1;
        let label = self.asm.label();
        let body = self.regions.iter().position(|region| region.of == Some(at));
        self.ends.push((label, body));
        self.asm.store_imm(Width::W64, self.fp, EXIT_AT, 0);
        self.call_for_each(fd, label);
        let exits = self.exits(at + 1, end as usize);
        if !exits.is_empty() {
            let on = self.asm.label();
            self.asm.load(Width::W64, KEPT, self.fp, EXIT_AT);
            self.asm.jump_if_imm(Cond::Eq, KEPT, 0, on);
            for to in exits {
                let other = self.asm.label();
                self.asm.jump_if_imm(Cond::Ne, KEPT, to as i32 + 1, other);
                if to as usize == self.hit_end() {
                    self.end_hit();
                } else {
                    self.jump(at, to)?;
                }
                self.asm.bind(other);
            }
            self.asm.bind(on);
        }
        Ok(())
    }

    /// Calls the function at `label` for each entry; R0 is how many there were.
    pub(super) fn call_for_each(&mut self, map: i32, label: Label) {
        self.asm.load_map(Reg::R1, map);
        self.asm.load_function(Reg::R2, label);
        self.asm.mov(Reg::R3, self.fp);
        self.asm.mov_imm(Reg::R4, 0);
        self.asm.call(Helper::ForEachMapElem);
    }

    /// Where the body of a loop goes when it leaves it. The end of the hit is one of them: a loop in it may be cut.
    fn exits(&self, start: usize, end: usize) -> Vec<Target> {
        let hit_end = self.hit_end() as Target;
        let mut exits = Vec::new();
        for (at, op) in self.code.ops[start..end].iter().enumerate() {
            let (to, is_back) = match *op {
                Op::Jump { to } | Op::JumpIf { to, .. } | Op::JumpUnless { to, .. } => {
                    (to, to as usize <= start + at)
                }
                Op::Return => (hit_end, false),
                _ => continue,
            };
            if (to as usize) < start || to as usize > end {
                exits.push(to);
            }
            if is_back {
                exits.push(hit_end);
            }
        }
        exits.sort_unstable();
        exits.dedup();
        exits
    }
}
