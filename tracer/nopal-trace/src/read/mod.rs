//! Reads recordings by their own metadata: ours, LTTng's, and others in CTF 1.8 and CTF 2.

pub(crate) mod class;
mod count;
mod decode;
mod event;
mod files;
mod fixed;
mod index;
mod locate;
mod merge;
mod packet;
mod pick;
mod plan;
mod recording;
mod report;
mod short_text;
mod snapshots;
mod stream;
mod streams;
mod trace;
mod value_text;
mod wide;

pub use class::EventClass;
pub(crate) use class::clock_of;
pub use count::Counts;
pub(crate) use decode::{Content, run};
pub use decode::{Damage, Scratch, Visitor};
pub(crate) use event::Found;
pub use event::{Event, Value};
pub use fixed::{FixedInteger, NamedInteger};
#[cfg(fuzzing)]
pub(crate) use index::packet_ends;
pub use merge::Events;
pub(crate) use packet::Packet;
pub use pick::{PickedKind, Picker};
pub use plan::Step;
pub(crate) use plan::{Scope, Slots, compile};
pub use recording::Recording;
pub(crate) use recording::metadata_text;
#[cfg(fuzzing)]
pub(crate) use recording::packets_of_text;
pub use report::{Loss, Range, Report};
pub(crate) use short_text::{ShortPrinter, TaskText};
pub use trace::Trace;
pub(crate) use value_text::TextPrinter;
