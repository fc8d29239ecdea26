//! The bpftrace language: script text becomes a [`nopal_program::Program`], and what a program gathers becomes text again.
//! Knows no eBPF and no process.

mod ast;
pub mod catalog;
mod compile;
pub mod ctype;
mod diagnostic;
mod headers;
mod layout;
mod lex;
mod number;
mod parse;
mod preprocess;
pub mod render;

pub use ast::{Options, Script};
pub use catalog::{Catalog, PointSpec};
pub use compile::points::{hardware_events, software_events};
pub use compile::{compile, compile_with_warnings, reference};
pub use diagnostic::{Diagnostic, Place, Severity, Span};
pub use headers::{Headers, Include, includes};
pub use layout::format;
pub use parse::embedded::embedded_records;
pub use parse::parse;
