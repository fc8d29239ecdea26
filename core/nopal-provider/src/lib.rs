//! The `.d` provider language and everything generated from it: C header, ELF object, Rust module, SystemTap tapset,
//! C wrappers. Text in, text or bytes out, no dependencies. Does no IO but for [`build`], which serves build scripts.
//!
//! ```
//! let file = nopal_provider::parse("demo.d", "provider demo { probe query__start(const char *sql); };").unwrap();
//! assert_eq!(file.providers[0].probes[0].name, "query__start");
//! ```

#![warn(unreachable_pub)]

pub mod ast;
pub mod build;
pub mod catalog;
mod diagnostic;
mod doc;
pub mod generate;
mod lex;
mod pair;
mod parse;

pub use ast::{Arg, File, Kind, Label, Pair, Probe, Provider, Role};
pub use diagnostic::{Diagnostic, ParseError, Severity};
pub use parse::parse;
