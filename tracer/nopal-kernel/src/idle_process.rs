//! A process that does nothing, for perf events that must be somebody's.
//!
//! An event on ourselves would put its breakpoints into the libraries that we use, too.

use std::arch::asm;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// It ends when this is closed.
static IDLE: Mutex<Option<(u32, OwnedFd)>> = Mutex::new(None);

/// The process, started when it is first asked for. It lives as long as we do.
pub(crate) fn pid() -> io::Result<u32> {
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((pid, _)) = &*idle {
        return Ok(*pid);
    }
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let [wait, hold] = ends;
    // SAFETY: the child runs `stand_by` alone, which touches no memory of ours and calls no function of a library.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        stand_by(wait, hold);
    }
    // SAFETY: both descriptors were just made and belong to nobody else; the child has copies of its own.
    let (_wait, hold) = unsafe { (OwnedFd::from_raw_fd(wait), OwnedFd::from_raw_fd(hold)) };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    *idle = Some((pid as u32, hold));
    Ok(pid as u32)
}

/// Waits until the other end of the pipe is closed. System calls only: the functions of the C library may have breakpoints.
fn stand_by(wait: i32, hold: i32) -> ! {
    let mut byte = 0u8;
    // Everything but that end is the tracer's alone, to be gone when it closes it.
    call(libc::SYS_close, i64::from(hold), 0, 0);
    call(libc::SYS_close_range, 0, i64::from(wait) - 1, 0);
    call(libc::SYS_close_range, i64::from(wait) + 1, i64::from(u32::MAX), 0);
    // A signal of the terminal is meant for the tracer, which ends in its own way.
    let ignore = [libc::SIG_IGN as u64, 0, 0, 0];
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        call_of_four(libc::SYS_rt_sigaction, i64::from(signal), ignore.as_ptr() as i64, 0, 8);
    }
    while call(libc::SYS_read, i64::from(wait), &raw mut byte as i64, 1) == -i64::from(libc::EINTR) {}
    loop {
        call(libc::SYS_exit_group, 0, 0, 0);
    }
}

#[inline(always)]
fn call(number: i64, a: i64, b: i64, c: i64) -> i64 {
    call_of_four(number, a, b, c, 0)
}

#[inline(always)]
fn call_of_four(number: i64, a: i64, b: i64, c: i64, d: i64) -> i64 {
    let result;
    // SAFETY: the calls made here write to no memory but what their arguments name, which lives over the call.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            out("rcx") _,
            out("r11") _,
            options(nostack)
        );
    }
    result
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_one_and_stays() {
        let first = super::pid().expect("a process");
        assert_eq!(super::pid().expect("the same"), first);
        // SAFETY: a child of ours that is not reaped; nothing but its being there is asked.
        assert_eq!(unsafe { libc::kill(first as i32, 0) }, 0);
        assert!(nopal_proc::Process::is_alive(first));
    }
}
