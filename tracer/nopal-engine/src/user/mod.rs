//! The user door: enters a running process for a moment, maps a ring and generated code into it, and turns the nops of
//! probe sites into jumps. No trap on a hit, no library, no signal handler and no libc call in the target.

pub mod consumer;
pub mod entry;
pub mod error;
mod frame;
mod held;
pub mod hijack;
pub mod maps;
pub mod memory;
mod pass_fd;
pub mod process;
pub mod ptrace;
pub mod record;
pub mod ring;
pub mod room;
pub mod stub;
pub mod tactic;

pub use error::{Error, Result};
