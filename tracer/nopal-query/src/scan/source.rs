//! Where the values of an event's columns come from.

use crate::shared::Shared;
use crate::tables::{OF_EVENTS, OF_TYPES, Rows};
use nopal_answers::event::visible_fields;
use nopal_trace::localtime::{ClockText, text_of};
use nopal_trace::{EventType, Recording};

/// Where a value of an event comes from.
#[derive(Debug, Clone)]
pub(crate) enum From {
    Ts,
    Cpu,
    Pid,
    Tid,
    Recording,
    Day,
    /// The same for all events of a class.
    Text(String),
    Args(Vec<String>),
    Field(usize),
    Nothing,
}

/// The texts that all events of a class have in common, by column.
pub(crate) fn texts_of(recording: &Recording, class: usize, ty: &EventType) -> [(&'static str, String); 4] {
    let host = recording.host_of(&recording.event_classes()[class]);
    [
        ("host", host.to_owned()),
        ("provider", ty.provider.clone()),
        ("name", ty.name.clone()),
        ("event", ty.full_name()),
    ]
}

/// Of every column of a table of events; none if events of the class are not in it.
pub(crate) fn sources(
    shared: &Shared,
    table: usize,
    recording: &Recording,
    class: usize,
    ty: &EventType,
) -> Option<Vec<From>> {
    let texts = texts_of(recording, class, ty);
    let (fixed, places): (&[&str], _) = match &shared.tables[table].rows {
        Rows::Type(wanted, _) if *wanted != ty.full_name() => return None,
        Rows::Type(_, columns) => (&OF_TYPES, columns.places(ty)),
        Rows::Events | Rows::Spans | Rows::Losses | Rows::Recordings => (&OF_EVENTS, Vec::new()),
    };
    let from = |column: usize| match fixed.get(column).copied() {
        Some("ts") => From::Ts,
        Some("cpu") => From::Cpu,
        Some("pid") => From::Pid,
        Some("tid") => From::Tid,
        Some("recording") => From::Recording,
        Some("day") => From::Day,
        Some("args") => From::Args(visible_fields(ty).into_iter().map(str::to_owned).collect()),
        Some(name) => {
            let text = texts.iter().find(|(column, _)| *column == name);
            From::Text(text.map_or(String::new(), |(_, text)| text.clone()))
        }
        None => {
            let field = places.iter().position(|place| *place == Some(column - fixed.len()));
            field.map_or(From::Nothing, From::Field)
        }
    };
    Some((0..shared.tables[table].columns.len()).map(from).collect())
}

const DAY_NS: i64 = 86_400_000_000_000;

/// The day of the last event, since the epoch and as text.
#[derive(Debug)]
pub(crate) struct Day(i64, String);

impl Default for Day {
    fn default() -> Day {
        Day(i64::MIN, String::new())
    }
}

impl Day {
    /// The day of a time, as `2026-11-16`.
    #[inline]
    pub(crate) fn text(&mut self, ns: i64) -> &str {
        let day = ns.div_euclid(DAY_NS);
        if self.0 != day {
            let mut text = text_of(day.saturating_mul(DAY_NS), ClockText::Date, true);
            text.truncate(10);
            *self = Day(day, text);
        }
        &self.1
    }

    pub(crate) fn last(&self) -> &str {
        &self.1
    }
}
