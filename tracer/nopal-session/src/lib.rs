//! Tracing in progress: which probes, what each hit leaves, where the events go.

pub mod clock;
pub mod plan;
pub mod predicate;
