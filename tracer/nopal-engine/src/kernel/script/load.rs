//! Programs of clauses, generated and loaded once for each way they are used.

use super::code::{self, ArgLayout, Generated, Kind, ScriptMap, Spec, Which};
use super::sys::{self, Load, ProgramType};
use super::{ScriptDoor, ScriptError, btf};
use crate::kernel::insn::{Assembler, Insn, Reg};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::OnceLock;

#[derive(Debug)]
pub struct Loaded {
    pub fd: OwnedFd,
    clause: usize,
    kind: Kind,
    which: Which,
    layouts: Vec<ArgLayout>,
    is_multi: bool,
    pub insns: Vec<Insn>,
}

/// Sleeping and `uprobe_multi` are not everywhere; what is asked for is tried first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    pub is_multi: bool,
}

impl ScriptDoor {
    /// The program of a clause for one kind of point; its index in [`ScriptDoor::loaded`].
    pub(super) fn load(
        &mut self,
        clause: usize,
        kind: Kind,
        which: Which,
        layouts: &[ArgLayout],
    ) -> Result<usize, ScriptError> {
        self.load_as(clause, kind, which, layouts, Way { is_multi: false })
    }

    pub(super) fn load_as(
        &mut self,
        clause: usize,
        kind: Kind,
        which: Which,
        layouts: &[ArgLayout],
        way: Way,
    ) -> Result<usize, ScriptError> {
        let same = |loaded: &Loaded| {
            (loaded.clause, loaded.kind, loaded.which, loaded.is_multi) == (clause, kind, which, way.is_multi)
                && loaded.layouts == layouts
        };
        if let Some(index) = self.loaded.iter().position(same) {
            return Ok(index);
        }
        let reads_memory = code::reads_user_memory(&self.program.clauses[clause].code);
        let is_sleepable = way.is_multi && reads_memory;
        let generated = self.generate(clause, kind, which, layouts, is_sleepable)?;
        let fd = self.load_generated(clause, kind, &generated, way, is_sleepable);
        let (fd, generated) = match fd {
            // Kernels before 6.6 have no sleepable uprobes: they read what is there.
            Err(ScriptError::Refused { .. }) if is_sleepable => {
                let generated = self.generate(clause, kind, which, layouts, false)?;
                (self.load_generated(clause, kind, &generated, way, false)?, generated)
            }
            fd => (fd?, generated),
        };
        self.loaded.push(Loaded {
            fd,
            clause,
            kind,
            which,
            layouts: layouts.to_vec(),
            is_multi: way.is_multi,
            insns: generated.insns,
        });
        Ok(self.loaded.len() - 1)
    }

    fn generate(
        &self,
        clause: usize,
        kind: Kind,
        which: Which,
        layouts: &[ArgLayout],
        is_sleepable: bool,
    ) -> Result<Generated, ScriptError> {
        let maps: Vec<ScriptMap> = self.maps.iter().map(|map| ScriptMap { fd: map.fd.as_raw_fd() }).collect();
        let fd = |map: &Option<OwnedFd>| map.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let spec = Spec {
            program: &self.program,
            clause,
            kind,
            which,
            layouts,
            maps: &maps,
            ring: self.ring_fd,
            stats: self.stats.as_raw_fd(),
            scratch: fd(&self.scratch),
            zeros: fd(&self.zeros),
            n_cpus: self.n_cpus as u32,
            start_ns: self.start_ns,
            is_sleepable,
            has_may_goto: has_may_goto(),
        };
        code::generate(&spec).map_err(|error| ScriptError::Code { clause, error })
    }

    fn load_generated(
        &self,
        clause: usize,
        kind: Kind,
        generated: &Generated,
        way: Way,
        is_sleepable: bool,
    ) -> Result<OwnedFd, ScriptError> {
        let functions = btf::functions(&generated.callbacks);
        let types = match generated.callbacks.is_empty() {
            true => None,
            false => Some(
                sys::load_btf(&btf::bytes())
                    .map_err(|error| ScriptError::io("loading type information", error))?,
            ),
        };
        let load = Load {
            program_type: match kind {
                Kind::Uprobe | Kind::Uretprobe | Kind::Kprobe | Kind::Kretprobe => ProgramType::Kprobe,
                Kind::Tracepoint => ProgramType::Tracepoint,
                Kind::PerfEvent => ProgramType::PerfEvent,
                Kind::Once => ProgramType::RawTracepoint,
            },
            is_uprobe_multi: way.is_multi,
            is_sleepable,
            insns: &generated.insns,
            btf: types.as_ref().map(|types| (types, functions.as_slice())),
            name: "nopal_script",
        };
        sys::load_program(&load).map_err(|refused| ScriptError::load(clause, refused))
    }
}

/// Whether the kernel knows loops that it bounds by itself: asked once.
fn has_may_goto() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let mut asm = Assembler::default();
        let end = asm.label();
        asm.may_goto(end);
        asm.bind(end);
        asm.mov_imm(Reg::R0, 0);
        asm.exit();
        let Ok(insns) = asm.finish() else { return false };
        let load = Load {
            program_type: ProgramType::RawTracepoint,
            is_uprobe_multi: false,
            is_sleepable: false,
            insns: &insns,
            btf: None,
            name: "nopal_loop",
        };
        sys::load_program(&load).is_ok()
    })
}
