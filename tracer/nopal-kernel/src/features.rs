//! What this kernel can do, found by asking it: programs that are loaded and thrown away at once. Attaches nothing.

use super::bpf::{self, LinkSite, Load, ProgramType};
use super::insn::{Assembler, Helper, Reg};
use std::fmt;

/// Functions of the kernel that programs may call, and ways to attach them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    TaiClock,
    FunctionAddress,
    LookupOfCpu,
    Loop,
    /// Many functions of a file by one link.
    UprobeMulti,
}

impl Feature {
    /// As bpftrace calls it.
    fn name(self) -> &'static str {
        match self {
            Feature::TaiClock => "get_tai_ns",
            Feature::FunctionAddress => "get_func_ip",
            Feature::LookupOfCpu => "lookup_percpu_elem",
            Feature::Loop => "loop",
            Feature::UprobeMulti => "uprobe_multi",
        }
    }

    /// False too if nobody here may load programs.
    pub fn is_there(self) -> bool {
        match self {
            Feature::TaiClock => has_helper(Helper::KtimeGetTaiNs),
            Feature::FunctionAddress => has_helper(Helper::GetFuncIp),
            Feature::LookupOfCpu => has_helper(Helper::MapLookupPercpuElem),
            Feature::Loop => has_helper(Helper::Loop),
            Feature::UprobeMulti => has_uprobe_multi(),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The verifier looks for the function before it looks at the arguments, which are missing here.
fn has_helper(helper: Helper) -> bool {
    let mut asm = Assembler::default();
    asm.call(helper);
    asm.mov_imm(Reg::R0, 0);
    asm.exit();
    let Ok(insns) = asm.finish() else { return false };
    match bpf::load_program(&load(&insns, false)) {
        Ok(_) => true,
        Err(refused) => {
            let is_unknown = ["invalid func ", "unknown func ", "cannot use helper "]
                .iter()
                .any(|w| refused.log.contains(w));
            !refused.log.is_empty() && !is_unknown
        }
    }
}

/// A link to a folder is refused because of the folder only by a kernel that knows such links.
fn has_uprobe_multi() -> bool {
    let mut asm = Assembler::default();
    asm.mov_imm(Reg::R0, 0);
    asm.exit();
    let Ok(insns) = asm.finish() else { return false };
    let Ok(program) = bpf::load_program(&load(&insns, true)) else { return false };
    let site = LinkSite { file_offset: 0, ref_ctr_offset: 0, cookie: 0 };
    let refused = bpf::link_uprobes(&program, c"/", &[site], 0, false);
    refused.is_err_and(|error| error.raw_os_error() == Some(libc::EBADF))
}

fn load(insns: &[super::insn::Insn], is_uprobe_multi: bool) -> Load<'_> {
    Load {
        program_type: ProgramType::Kprobe,
        is_uprobe_multi,
        is_sleepable: false,
        insns,
        btf: None,
        name: "nopal_asks",
    }
}
