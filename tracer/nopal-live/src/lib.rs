//! Tracing in progress: which sites are wanted, both doors as one stream of hits, what each hit leaves.

mod callers;
pub mod clock;
pub mod context;
mod context_field;
mod door_order;
pub mod functions;
mod live;
pub mod plan;
pub mod predicate;
mod process_cache;
pub mod registry;
pub mod remembered;
mod selection;
mod stack;
pub mod tasks;

pub use callers::Callers;
pub use door_order::{DoorOrder, Doubts, NEAR_NS, OrderWithin};
pub use live::*;
pub use nopal_proc::launch::hold_at_exec;
pub use nopal_proc::unwind::CodeRange;
pub use selection::{Absent, Chosen, Place, Places, Selection};
pub use stack::{STACK_BYTES, StackCopy, StackPlace};
