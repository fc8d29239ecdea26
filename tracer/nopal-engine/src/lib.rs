//! Turns hits of probe sites into records: the user door and the kernel door.

pub mod capability;
pub mod kernel;
mod perf;
pub mod target;

pub mod user;
