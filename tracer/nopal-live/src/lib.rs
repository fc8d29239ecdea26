//! Tracing in progress: which sites are wanted, both doors as one stream of hits, what each hit leaves.

pub mod clock;
pub mod context;
mod live;
pub mod plan;
pub mod predicate;
mod process_cache;
pub mod registry;
pub mod tasks;

pub use live::*;
