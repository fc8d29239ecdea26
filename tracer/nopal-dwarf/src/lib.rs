//! What a file's debug information says of its functions: names and types of their parameters, where each is when the function
//! is entered, what it returns, and the members of the records these lead to.
//!
//! The information is in the file itself, or in a file of its own that has the same build id ([`find`]). All of it is taken as an
//! allegation: chains end, offsets are checked, and what does not fit is not known.

mod abi;
mod find;
mod go;
mod info;
mod inlined;
mod lines;
mod part;
mod place;
mod split;
mod types;

pub use go::{GoKind, GoParameter, GoPlace, GoSignature, GoValue};
pub use info::{DebugInfo, Parameter, Signature};
pub use lines::NoLine;
pub use place::{Place, Register};
pub use types::{Label, Member, Record, RecordId, Type};

#[cfg(test)]
mod tests;
