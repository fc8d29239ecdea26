//! The user door: enters a running process for a moment, maps a ring and generated code into it, and turns the nops of
//! probe sites into jumps. No trap on a hit, no library, no signal handler and no libc call in the target.

mod behind;
mod call_code;
pub mod consumer;
mod core;
pub mod credentials;
mod distance;
mod domains;
mod edges;
mod enter;
pub mod entry;
pub mod error;
mod frame;
mod go_stack;
pub mod hijack;
mod inject;
mod landings;
pub mod leave;
mod ledger;
mod left_fds;
pub mod libraries;
pub mod maps;
pub mod memory;
mod neighbourhood;
pub mod outlook;
mod pass_fd;
mod patch;
pub mod process;
mod process_page;
mod protocol;
pub mod relocate;
pub mod ring;
mod room;
pub mod sandbox;
pub mod session;
pub mod stop_watch;
mod stopped_thread;
pub mod stub;
pub mod tactic;
mod traced;
mod wanted;

pub use error::{Error, Result};
pub use neighbourhood::MEMFD_NAME as STUBS_NAME;
