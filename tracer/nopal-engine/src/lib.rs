//! Turns hits of probe sites into records: the user door and the kernel door.

pub mod kernel;
mod perf;
pub mod target;

pub mod user;
