//! eBPF instructions as text, in the manner of the kernel's verifier. For people; nothing reads it back.

use super::ScriptDoor;
use crate::insn::Insn;
use std::fmt::Write;

impl ScriptDoor {
    /// The instructions of every program that is loaded, one a line.
    pub fn listing(&self) -> String {
        let mut text = String::new();
        for loaded in &self.loaded {
            let points = &self.program.clauses[loaded.clause].points;
            let name = points.first().map_or("", |point| point.name.as_str());
            let more =
                if points.len() > 1 { format!(" and {} more", points.len() - 1) } else { String::new() };
            let n = loaded.insns.len();
            let _ = writeln!(
                text,
                "; clause {} ({name}{more}), {}: {n} instructions",
                loaded.clause, loaded.kind
            );
            let mut skip = false;
            for (at, insn) in loaded.insns.iter().enumerate() {
                if !std::mem::take(&mut skip) {
                    let _ = writeln!(text, "{at:5}: {}", line(insn, loaded.insns.get(at + 1), at));
                }
                skip = insn.code == 0x18;
            }
        }
        text
    }
}

fn line(insn: &Insn, next: Option<&Insn>, at: usize) -> String {
    let (dst, src) = (insn.regs & 15, insn.regs >> 4);
    let (off, imm) = (insn.off, insn.imm);
    let target = at as i64 + 1 + i64::from(off);
    let operand = || if insn.code & 8 != 0 { format!("r{src}") } else { imm.to_string() };
    let size = match insn.code & 0x18 {
        0x00 => "u32",
        0x08 => "u16",
        0x10 => "u8",
        _ => "u64",
    };
    match insn.code & 7 {
        0 => {
            let value = i64::from(imm as u32) | i64::from(next.map_or(0, |next| next.imm)) << 32;
            match src {
                1 => format!("r{dst} = map {imm}"),
                4 => format!("r{dst} = function {}", at as i64 + 1 + i64::from(imm)),
                _ => format!("r{dst} = {value:#x} ll"),
            }
        }
        1 => format!("r{dst} = *({size} *)(r{src} {off:+})"),
        2 => format!("*({size} *)(r{dst} {off:+}) = {imm}"),
        3 if insn.code & 0xe0 == 0xc0 => match imm {
            0 => format!("lock *({size} *)(r{dst} {off:+}) += r{src}"),
            1 => format!("r{src} = atomic_fetch_add(({size} *)(r{dst} {off:+}), r{src})"),
            0xf1 => format!("r0 = atomic_cmpxchg(({size} *)(r{dst} {off:+}), r0, r{src})"),
            _ => format!("atomic {imm:#x} ({size} *)(r{dst} {off:+}), r{src}"),
        },
        3 => format!("*({size} *)(r{dst} {off:+}) = r{src}"),
        5 => match insn.code & 0xf0 {
            0x00 => format!("goto {target}"),
            0x80 => format!("call {imm}"),
            0x90 => "exit".to_owned(),
            0xe0 => format!("may_goto {target}"),
            code => {
                let sign = match code {
                    0x10 => "==",
                    0x20 => ">",
                    0x30 => ">=",
                    0x50 => "!=",
                    0x60 => "s>",
                    0x70 => "s>=",
                    0xa0 => "<",
                    0xb0 => "<=",
                    0xc0 => "s<",
                    _ => "s<=",
                };
                format!("if r{dst} {sign} {} goto {target}", operand())
            }
        },
        _ => match insn.code & 0xf0 {
            0x80 => format!("r{dst} = -r{dst}"),
            0xb0 => format!("r{dst} = {}", operand()),
            code => {
                let sign = match code {
                    0x00 => "+=",
                    0x10 => "-=",
                    0x20 => "*=",
                    0x30 => "/=",
                    0x40 => "|=",
                    0x50 => "&=",
                    0x60 => "<<=",
                    0x70 => ">>=",
                    0x90 => "%=",
                    0xa0 => "^=",
                    _ => "s>>=",
                };
                format!("r{dst} {sign} {}", operand())
            }
        },
    }
}
