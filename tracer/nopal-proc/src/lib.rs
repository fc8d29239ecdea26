//! Running processes as the kernel shows them in `/proc`: their memory maps, the files they map, their children.
//! Starts commands and holds them (`launch`); all else only reads. Changing a process is the doors' work.

#![warn(unreachable_pub)]

mod auxv;
pub mod births;
pub mod capability;
mod cpus;
pub mod demangle;
mod error;
pub mod exec_gate;
pub mod exits;
pub mod facts;
pub mod file_functions;
pub mod file_names;
pub mod functions;
pub mod go;
pub mod groups;
mod image;
pub mod launch;
mod maps;
pub mod missed_execs;
mod objects;
pub mod perf;
pub mod perf_events;
mod process;
pub mod ptrace;
mod reaped;
pub mod start_gate;
pub mod symbols;
pub mod thread_context;
mod tree;
pub mod unwind;

pub use auxv::Auxv;
pub use cpus::possible_cpus;
pub use error::TargetError;
pub use image::{Bytes, Image};
pub use maps::{Mapping, maps, parse as parse_maps};
pub use objects::{FileId, MappedObject, changeable_objects, has_ended, mapped_objects};
pub use process::{Process, Width, children, processes, read_short, read_text, threads, tracer_of, words_of};
pub use tree::{descendants, descendants_of_all};
