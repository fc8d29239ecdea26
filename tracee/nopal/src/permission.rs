//! The right to be traced where Yama restricts ptrace.

/// Lets every process of the same user attach to this one.
///
/// Attaching takes the right to ptrace. Many distributions set Yama's `kernel.yama.ptrace_scope` to 1: an ordinary user
/// may then only trace programs that the tracer itself started. A program that wants to be traced while it runs calls
/// this once, early in `main`; it holds for the life of the process and is not inherited by what it executes. Root does
/// not need it, nor do probes through the kernel.
///
/// It widens who may read this process's memory to all of the same user's processes: do not call it in a program that
/// keeps secrets from its own user, such as a password agent.
///
/// Returns whether the kernel took it. `false` is what a kernel without Yama says, and then nothing was needed.
///
/// ```
/// nopal::allow_tracing();
/// ```
pub fn allow_tracing() -> bool {
    const PR_SET_PTRACER: usize = 0x5961_6d61;
    const PR_SET_PTRACER_ANY: usize = usize::MAX;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY) == 0
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn prctl(option: usize, value: usize) -> isize {
    let result: isize;
    // SAFETY: the system call reads its registers only; rcx and r11 are what `syscall` overwrites.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") 157_isize => result,
            in("rdi") option,
            in("rsi") value,
            in("rdx") 0_usize,
            in("r10") 0_usize,
            in("r8") 0_usize,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
fn prctl(option: usize, value: usize) -> isize {
    let result: isize;
    // SAFETY: the system call reads its registers only.
    unsafe {
        core::arch::asm!(
            "svc #0",
            in("x8") 167_usize,
            inlateout("x0") option as isize => result,
            in("x1") value,
            in("x2") 0_usize,
            in("x3") 0_usize,
            in("x4") 0_usize,
            options(nostack)
        );
    }
    result
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
fn prctl(_option: usize, _value: usize) -> isize {
    -1
}
