//! What can be made from a parsed `.d` file, one module each.

mod c_header;
mod elf_object;
mod note;
mod rust_module;
mod tapset;
mod wrappers;

pub use c_header::{c_header, c_source};
pub use elf_object::{Machine, ObjectOptions, elf_object};
pub use note::describe as nopal_note;
pub use rust_module::rust_module;
pub use tapset::tapset;
pub use wrappers::{WrapOptions, wrappers};

use crate::ast::{Probe, Provider};
use crate::parse::macro_name;

/// `REDIS_CALL_START` for probe `call__start` of provider `redis`. A `__` stays in the provider's part.
fn probe_macro(provider: &Provider, probe: &Probe) -> String {
    format!("{}_{}", provider.name.to_ascii_uppercase(), macro_name(&probe.name))
}

#[cfg(test)]
mod tests;
