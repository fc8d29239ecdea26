//! Answers: latencies, counts, histograms and trees as consumers of one stream of events, whether it comes from
//! recordings (`recorded`) or from running processes (`ordered`). Prints nothing.

pub mod ask;
mod condition;
mod counts;
mod decode;
pub mod difference;
pub mod event;
pub mod expectations;
pub mod filter;
pub mod flight;
pub mod functions;
mod groups;
pub mod inventory;
pub mod kept;
mod latency;
pub mod ordered;
pub mod recorded;
pub mod slices;
pub mod table;
mod trees;
pub mod trigger;
mod values;

pub use ask::Wrong;
pub use counts::{CountInterval, Counts};
pub use event::{At, Consumer};
pub use latency::{Interval, Latency, LatencyAsk};
pub use table::{Answer, Cell, Column, Slow};
pub use trees::{TreeRow, Trees};
pub use values::{Line, MAX_STEPS, Scale, Spread, Values};
