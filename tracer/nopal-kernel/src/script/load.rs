//! Programs of clauses, generated and loaded once for each way they are used.

use super::code::{self, ArgLayout, Generated, Kind, ScriptMap, Spec, Which};
use super::{ScriptDoor, ScriptError, btf};
use crate::bpf::{self, Load, MapKind, ProgramType};
use crate::insn::{Assembler, Insn, Reg};
use nopal_program::Program;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};

#[derive(Debug)]
pub(super) struct Loaded {
    pub fd: Arc<OwnedFd>,
    pub clause: usize,
    pub kind: Kind,
    which: Which,
    layouts: Vec<ArgLayout>,
    attachment: Attachment,
    pub insns: Vec<Insn>,
}

/// What the program is attached by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attachment {
    /// A link of many uprobes.
    Multi,
    /// An event that processes inherit.
    Inherited,
    /// A perf event, or nothing at all.
    Event,
}

/// What is tried first is not what every kernel takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct How {
    is_sleepable: bool,
    is_opaque: bool,
}

/// What the clause with the most needs of an element of scratch memory.
pub(super) fn scratch_bytes(program: &Program, is_opaque: bool) -> Result<u32, ScriptError> {
    let mut most = 0;
    for (clause, each) in program.clauses.iter().enumerate() {
        match code::plan(&each.code, is_opaque) {
            Ok(plan) => most = most.max(plan.scratch_bytes),
            // Then it is another clause that needs it.
            Err(_) if is_opaque => {}
            Err(error) => return Err(ScriptError::Code { clause, error }),
        }
    }
    Ok(most)
}

pub(super) fn make_scratch(bytes: u32) -> Result<OwnedFd, ScriptError> {
    bpf::create_map(MapKind::PercpuArray, 4, bytes, code::SCRATCH_LEVELS, 0, "nopal_scratch")
        .map_err(|error| ScriptError::io("making a BPF map", error))
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
        self.load_as(clause, kind, which, layouts, Attachment::Event)
    }

    pub(super) fn load_as(
        &mut self,
        clause: usize,
        kind: Kind,
        which: Which,
        layouts: &[ArgLayout],
        attachment: Attachment,
    ) -> Result<usize, ScriptError> {
        let same = |loaded: &Loaded| {
            (loaded.clause, loaded.kind, loaded.which, loaded.attachment) == (clause, kind, which, attachment)
                && loaded.layouts == layouts
        };
        // The number of a table may have been another's before.
        if !matches!(which, Which::Table(_) | Which::Among(_))
            && let Some(index) = self.loaded.iter().position(same)
        {
            return Ok(index);
        }
        let reads_memory = code::reads_user_memory(&self.program.clauses[clause].code)
            || layouts.iter().any(ArgLayout::reads_memory);
        let mut how = How { is_sleepable: attachment != Attachment::Event && reads_memory, is_opaque: false };
        let (fd, generated) = loop {
            let generated = self.generate(clause, kind, which, layouts, how)?;
            match self.load_generated(clause, kind, &generated, attachment, how.is_sleepable) {
                Ok(fd) => break (fd, generated),
                // Too many ways through the program for the verifier to follow every value.
                Err(ScriptError::Refused { error, .. })
                    if matches!(error.raw_os_error(), Some(libc::E2BIG | libc::EFAULT)) && !how.is_opaque =>
                {
                    how.is_opaque = true;
                    if self.opaque_scratch.is_none() {
                        self.opaque_scratch = Some(make_scratch(scratch_bytes(&self.program, true)?)?);
                    }
                }
                // Older kernels have no sleepable uprobes: there only what is in memory is read.
                Err(ScriptError::Refused { .. }) if how.is_sleepable => how.is_sleepable = false,
                Err(error) => return Err(error),
            }
        };
        self.loaded.push(Loaded {
            fd: Arc::new(fd),
            clause,
            kind,
            which,
            layouts: layouts.to_vec(),
            attachment,
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
        how: How,
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
            scratch: fd(if how.is_opaque { &self.opaque_scratch } else { &self.scratch }),
            zeros: fd(&self.zeros),
            n_cpus: self.n_cpus as u32,
            start_ns: self.start_ns,
            is_sleepable: how.is_sleepable,
            has_may_goto: has_may_goto(),
            is_opaque: how.is_opaque,
        };
        code::generate(&spec).map_err(|error| ScriptError::Code { clause, error })
    }

    fn load_generated(
        &self,
        clause: usize,
        kind: Kind,
        generated: &Generated,
        attachment: Attachment,
        is_sleepable: bool,
    ) -> Result<OwnedFd, ScriptError> {
        let functions = btf::functions(&generated.callbacks);
        let types = match generated.callbacks.is_empty() {
            true => None,
            false => Some(
                bpf::load_btf(&btf::bytes())
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
            is_uprobe_multi: attachment == Attachment::Multi,
            is_sleepable,
            insns: &generated.insns,
            btf: types.as_ref().map(|types| (types, functions.as_slice())),
            name: "nopal_script",
        };
        bpf::load_program(&load).map_err(|refused| ScriptError::load(clause, refused))
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
        bpf::load_program(&load).is_ok()
    })
}
