//! Running processes as the kernel shows them in `/proc`: their memory maps, the files they map, their children.
//! Reads only; stopping and changing a process is the doors' work.

pub mod births;
pub mod chronicle;
mod cpus;
mod error;
mod image;
mod maps;
mod objects;
mod process;
pub mod strangers;
pub mod symbols;
mod tree;
pub mod unwind;

pub use cpus::possible_cpus;
pub use error::TargetError;
pub use image::Image;
pub use maps::{Mapping, maps, parse as parse_maps};
pub use objects::{MappedObject, changeable_objects, has_ended, mapped_objects};
pub use process::{Process, Width, children, processes, read_short};
pub use tree::descendants;
