//! Runs generated stubs on sites of this process.

mod calls;
mod cells;
mod harness;
mod hostile;
mod load;
mod operands;
mod rings;
mod sessions;
mod spans;
mod strings;
mod threads;
