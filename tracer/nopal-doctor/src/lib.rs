//! Why tracing does not work here, or works badly: what the kernel allows, what a file holds, what a process does. It
//! looks and changes nothing; watching a probe fire is the caller's work.

#![warn(unreachable_pub)]

mod file;
mod finding;
mod machine;
mod process;

pub use file::file;
pub use finding::{Finding, Level};
pub use machine::{Machine, machine};
pub use process::{probe, process};
