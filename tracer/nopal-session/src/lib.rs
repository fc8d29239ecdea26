//! Tracing in progress: which probes, what each hit leaves, where the events go.

pub mod clock;
pub mod context;
pub mod live;
pub mod plan;
pub mod predicate;
pub mod recorder;
pub mod registry;
mod remembered;
pub mod script;
pub mod sessions;
pub mod tasks;
