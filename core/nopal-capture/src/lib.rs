//! What both doors agree on: which sites are wanted ([`wanted`], [`predicate`]), what a hit of one leaves ([`capture`], [`cell`], [`span`], [`thread_context`]), how its
//! record is laid out and read ([`record`], [`packed`]), and the hit itself ([`hit`]). Pure: does no IO.
//!
//! Every byte of a record comes from a traced program: lengths and offsets are checked here, and nowhere else.

pub mod capture;
pub mod cell;
pub mod hit;
pub mod packed;
pub mod predicate;
pub mod record;
pub mod span;
pub mod thread_context;
pub mod wanted;

pub use capture::{Action, Capture, Forbidding};
pub use cell::{Cell, CellKey};
pub use hit::{Came, Hit, Loss, StreamId, StreamKind, Task};
pub use predicate::{Predicate, Relation};
pub use record::{RecordLayout, RecordView};
pub use span::{Closing, Formula, Grouping, Question, SlowSpan, SpanSite, SpanStep};
pub use wanted::Wanted;
