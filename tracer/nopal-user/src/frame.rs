//! The signal frame that lets a hijacked thread restore itself, whoever else is alive by then.
//!
//! Before a thread's registers are changed, all it had is written below its red zone in the form `rt_sigreturn`
//! reads. Code run in the thread ends in that call. Pure: bytes in, bytes out.
//!
//! ```text
//! high  thread's rsp - 128          end of the red zone
//!       xstate, 64-byte aligned     XSAVE standard format, magic 1 inside, magic 2 behind
//!       ucontext                    <- rsp when rt_sigreturn is called
//!       scratch                     results and arguments of calls
//! low
//! ```

use nopal_proc::ptrace::Regs;
use std::arch::x86_64::__cpuid_count;

const RED_ZONE: u64 = 128;
/// Bytes below the frame for arguments and results of calls.
pub(crate) const SCRATCH: u64 = 1024;
const UCONTEXT_SIZE: usize = 304;
const FXSAVE_SIZE: usize = 512;
const XSAVE_MIN_SIZE: usize = 576;
/// AMX tile data, which a process has only after asking for it.
const DYNAMIC_FEATURES: u64 = 1 << 18;

const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;

#[derive(Debug)]
pub(crate) struct Frame {
    /// Where `bytes` go.
    pub address: u64,
    pub bytes: Vec<u8>,
    /// What rsp must be when `rt_sigreturn` is called.
    pub stack_pointer: u64,
    /// Start of the scratch area, 64-byte aligned.
    pub scratch: u64,
}

impl Frame {
    pub(crate) fn new(regs: &Regs, xstate: &[u8], signal_mask: u64) -> Option<Frame> {
        if xstate.len() < XSAVE_MIN_SIZE {
            return None;
        }
        let present = u64::from_le_bytes(xstate[FXSAVE_SIZE..FXSAVE_SIZE + 8].try_into().ok()?);
        let features = (enabled_features() & !DYNAMIC_FEATURES) | (present & DYNAMIC_FEATURES);
        let size = xstate_size(features);
        if size > xstate.len() {
            return None;
        }
        let top = regs.rsp.checked_sub(RED_ZONE)?;
        let fp = top.checked_sub(size as u64 + 4)? & !63;
        let context = fp.checked_sub(UCONTEXT_SIZE as u64)? & !15;
        let scratch = context.checked_sub(SCRATCH)? & !63;

        let mut bytes = vec![0u8; (fp - context) as usize + size + 4];
        write_context(&mut bytes[..UCONTEXT_SIZE], &restarted(*regs), signal_mask, fp);
        let area = &mut bytes[(fp - context) as usize..];
        area[..size].copy_from_slice(&xstate[..size]);
        // The words the kernel looks for to know that more than the legacy area is there.
        area[464..468].copy_from_slice(&0x4650_5853u32.to_le_bytes());
        area[468..472].copy_from_slice(&(size as u32 + 4).to_le_bytes());
        area[472..480].copy_from_slice(&features.to_le_bytes());
        area[480..484].copy_from_slice(&(size as u32).to_le_bytes());
        area[484..512].fill(0);
        area[size..size + 4].copy_from_slice(&0x4650_5845u32.to_le_bytes());
        Some(Frame { address: context, bytes, stack_pointer: context, scratch })
    }
}

/// What the kernel would do to a thread that no signal handler interrupted: call again.
pub(crate) fn restarted(mut regs: Regs) -> Regs {
    if (regs.orig_rax as i64) < 0 {
        return regs;
    }
    match regs.rax as i64 {
        // The last would go on through its restart block, which rt_sigreturn voids: restart_syscall would then give
        // EINTR, which no program expects without a signal. Called again from the start it waits once more in full. Only
        // a killed tracer gets here; while it lives the kernel's own restart is kept.
        ERESTARTSYS | ERESTARTNOINTR | ERESTARTNOHAND | ERESTART_RESTARTBLOCK => {
            regs.rax = regs.orig_rax;
            regs.rip -= 2;
        }
        _ => {}
    }
    regs
}

fn write_context(bytes: &mut [u8], regs: &Regs, signal_mask: u64, fp: u64) {
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    // UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS.
    put(0, 7);
    // An alternate stack with flags no one has: refused by the kernel, so the thread keeps the one it has.
    put(24, 0x7f00);
    let context = [
        regs.r8,
        regs.r9,
        regs.r10,
        regs.r11,
        regs.r12,
        regs.r13,
        regs.r14,
        regs.r15,
        regs.rdi,
        regs.rsi,
        regs.rbp,
        regs.rbx,
        regs.rdx,
        regs.rax,
        regs.rcx,
        regs.rsp,
        regs.rip,
        regs.eflags,
    ];
    for (i, value) in context.into_iter().enumerate() {
        put(40 + i * 8, value);
    }
    put(40 + 144, (regs.cs & 0xffff) | (regs.ss & 0xffff) << 48);
    put(40 + 184, fp);
    put(296, signal_mask);
}

/// XCR0: the state components the system has switched on.
fn enabled_features() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the kernel gave us an XSAVE area, so xgetbv is enabled; it reads one control register.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Bytes of a standard-format XSAVE area with these components.
fn xstate_size(features: u64) -> usize {
    (2..63).filter(|i| features >> i & 1 == 1).fold(XSAVE_MIN_SIZE, |size, i| {
        // SAFETY: leaf 0xd exists wherever XSAVE does.
        #[allow(unused_unsafe)]
        let leaf = unsafe { __cpuid_count(0xd, i) };
        size.max((leaf.ebx + leaf.eax) as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regs() -> Regs {
        // SAFETY: plain integers, for which zero is a value.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn restart_rule() {
        for (orig, rax, expected) in [
            (0i64, -512i64, (0u64, 98u64)),
            (202, -513, (202, 98)),
            (34, -514, (34, 98)),
            (35, -516, (35, 98)),
            (232, -4, (-4i64 as u64, 100)),
            (-1, -512, (-512i64 as u64, 100)),
        ] {
            let mut r = regs();
            (r.orig_rax, r.rax, r.rip) = (orig as u64, rax as u64, 100);
            let after = restarted(r);
            assert_eq!((after.rax, after.rip), expected, "orig {orig} rax {rax}");
        }
    }

    #[test]
    fn frame_stays_below_the_red_zone() {
        let mut r = regs();
        r.rsp = 0x7fff_0000_1238;
        let frame = Frame::new(&r, &vec![0; 16 * 1024], 5).unwrap();
        assert!(frame.address + frame.bytes.len() as u64 <= r.rsp - RED_ZONE);
        assert_eq!(frame.address % 16, 0);
        assert!(frame.scratch + SCRATCH <= frame.address);
        assert_eq!(frame.bytes[296], 5);
        assert!(Frame::new(&r, &[0; 100], 0).is_none(), "a truncated state is refused");
        r.rsp = 256;
        assert!(Frame::new(&r, &vec![0; 16 * 1024], 0).is_none(), "no room below zero");
    }
}
