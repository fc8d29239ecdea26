//! Events, and recordings at rest in the Common Trace Format, 1.8 and 2.
//!
//! [`Recording`] reads a recording, ours or LTTng's, by parsing its metadata; [`write`] makes one. [`EventType`] and
//! [`Type`] say what an event looks like on both sides.

#![warn(unreachable_pub)]

pub mod clock;
mod code;
mod convert;
mod ctf2;
mod digits;
mod error;
mod escape;
mod frames;
#[cfg(fuzzing)]
pub mod fuzzing;
mod json;
pub mod live;
pub mod localtime;
mod location;
mod model;
mod note;
mod pipeline;
mod read;
mod role;
mod stream_part;
mod tasks;
mod text;
mod tsdl;
mod verdict;
pub mod write;

pub use code::{Code, CodeFile, CodeTable};
pub use error::Error;
pub use escape::{escape, escape_json, escape_lines, escape_styled};
pub use frames::FrameNames;
pub use json::{JsonLines, json_text};
pub use model::{
    Array, BitMap, Bits, Blob, ByteOrder, Encoding, Enum, EventType, Field, FieldType, Flag, Float, Integer,
    Label, Length, Optional, Struct, Type, Variable, Variant, Wide, number, push_field,
};
pub use note::Note;
pub use pipeline::{Decider, Filter, Lines, PrintError, Printed, Selection, print};
pub use read::{
    Counts, Damage, Event, EventClass, Events, FixedInteger, Loss, NamedInteger, PickedKind, Picker, Range,
    Recording, Report, Scratch, Step, Trace, Value, Visitor,
};
pub use stream_part::StreamWay;
pub use tasks::{Numbers, TaskFile, TaskTable};
pub use text::{Look, TextForm, TextLines};
pub use tsdl::EnvValue;
pub use verdict::{Verdict, VerdictFile};
pub use write::{FileLimit, LetGo, Payload, RecordingInfo, RecordingWriter, StreamWriter, TypeId, Version};
