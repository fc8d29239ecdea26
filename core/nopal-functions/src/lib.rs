//! Functions of x86-64 code: where one is entered, where it is left, and the straight lines of instructions around these
//! places. Pure: takes bytes, does no IO, and takes every byte as an allegation.
//!
//! A function has one [`Stretch`] of code, or several: compilers put what is seldom run elsewhere, and jump there and back.
//! It is left by a return, or by a jump to another function (a tail call). [`Depths`](depth::Depths) tells the latter from
//! jumps between a function's own stretches: who jumps away for good has put the stack back first.

#![warn(unreachable_pub)]

mod body;
mod depth;
mod edge;
mod go;
mod obstacle;
mod stretch;

pub use body::{Body, Exit, Outward, leads_into};
pub use depth::rise as stack_rise;
pub use go::{GO_ARGUMENTS, GOROUTINE, stack_check_len};
pub use obstacle::Obstacle;
pub use stretch::Stretch;

#[cfg(test)]
mod tests;
