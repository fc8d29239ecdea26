//! Adds up the events and spans of one recording.

use crate::cells::{MAX_CELLS, Ruler, Series};
use crate::kept::{Bar, Bars};
use crate::sample::{Point, Samples, Slow};
use nopal_answers::recorded::{Reached, read_part};
use nopal_answers::slices::{Slice, Slices, Taker, Wish};
use nopal_answers::{At, Cell, Wrong};
use nopal_export::hosts;
use nopal_spans::{Available, Fields, Span, Summary, Task, Unmatched};
use nopal_trace::{Error, EventType, Range, Recording, Report};
use std::collections::HashMap;

/// Values of a field that are told apart, of one kind of span and of all; the others of a kind are one.
const MAX_KEYS_OF_KIND: usize = 250;
const MAX_KEYS: usize = 4000;
const OTHERS: &str = "(others)";
const MAX_KEY_CHARS: usize = 200;
const MAX_FIELDS_CHARS: usize = 600;
const MAX_THREADS: usize = 20_000;

/// What a page says of one recording.
#[derive(Debug)]
pub struct Side {
    pub(crate) ruler: Ruler,
    pub(crate) last_ns: i64,
    pub(crate) events: Vec<Events>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) keys: Vec<Key>,
    pub(crate) threads: Vec<Thread>,
    pub(crate) samples: Samples,
    pub(crate) bars: Bars,
    pub(crate) hosts: Vec<String>,
    pub(crate) report: Report,
    pub(crate) n_events: u64,
    pub(crate) unmatched: Unmatched,
}

/// Events of one type, by cell.
#[derive(Debug)]
pub(crate) struct Events {
    pub name: String,
    pub cells: Vec<u64>,
}

/// Spans of one kind.
#[derive(Debug, Default)]
pub(crate) struct Kind {
    pub all: Summary,
    pub series: Series,
}

/// Spans of one kind with one value of their most telling field.
#[derive(Debug)]
pub(crate) struct Key {
    pub kind: u32,
    pub text: String,
    pub all: Summary,
    pub series: Series,
}

#[derive(Debug)]
pub(crate) struct Thread {
    pub host: u32,
    pub task: Task,
    /// In its outermost spans.
    pub busy_ns: u64,
}

/// How reading a recording ended.
#[derive(Debug)]
pub struct Made {
    pub side: Side,
    pub n_spans: u64,
    pub n_damaged: u64,
    /// It was asked to end before its end.
    pub is_stopped: bool,
}

impl Made {
    pub fn report(&self) -> &Report {
        &self.side.report
    }

    pub fn n_events(&self) -> u64 {
        self.side.n_events
    }

    pub fn unmatched(&self) -> &Unmatched {
        &self.side.unmatched
    }

    /// The time of its first event, since the epoch.
    pub fn began_ns(&self) -> Option<i64> {
        (self.side.n_events > 0).then_some(self.side.ruler.base_ns)
    }
}

#[derive(Debug)]
pub enum Failed {
    Recording(Error),
    Question(Wrong),
}

/// Reads a part of a recording. `goes_on` is asked now and then, with the share that was read, from 0 to 1, and the events so far.
pub fn gather(
    recording: &Recording,
    range: Range,
    spans: &[Span],
    available: &Available,
    mut goes_on: impl FnMut(f64, u64) -> bool,
) -> Result<Made, Failed> {
    let of_classes = hosts(recording);
    let mut all_hosts: Vec<String> = of_classes.clone();
    all_hosts.sort();
    all_hosts.dedup();
    let host_of = |host: &String| all_hosts.iter().position(|known| known == host).unwrap_or(0) as u32;
    let gatherer = Gatherer {
        side: Side {
            ruler: Ruler::new(0),
            last_ns: 0,
            events: Vec::new(),
            kinds: spans.iter().map(|_| Kind::default()).collect(),
            keys: Vec::new(),
            threads: Vec::new(),
            samples: Samples::default(),
            bars: Bars::default(),
            hosts: all_hosts.clone(),
            report: Report::default(),
            n_events: 0,
            unmatched: Unmatched::default(),
        },
        has_begun: false,
        hosts: of_classes.iter().map(host_of).collect(),
        by_key: HashMap::new(),
        by_task: HashMap::new(),
        n_keys: vec![0; spans.len()],
    };
    let mut slices = Slices::new(spans, available, gatherer, true).map_err(Failed::Question)?;
    let mut is_stopped = false;
    let read = read_part(recording, range, &mut slices, |_, reached: &Reached| {
        is_stopped = !goes_on(reached.share, reached.n_events);
        !is_stopped
    });
    let read = read.map_err(Failed::Recording)?;
    let n_spans = slices.n_slices();
    let unmatched = slices.pairing().unmatched();
    let mut side = slices.into_taker().side;
    side.bars.thin(&side.ruler);
    side.report = read.report;
    side.n_events = read.n_events;
    side.unmatched = unmatched;
    Ok(Made { side, n_spans, n_damaged: read.n_damaged, is_stopped })
}

struct Gatherer {
    side: Side,
    has_begun: bool,
    /// By class.
    hosts: Vec<u32>,
    by_key: HashMap<(u32, String), u32>,
    by_task: HashMap<(u32, Task), u32>,
    /// By kind of span.
    n_keys: Vec<usize>,
}

impl Gatherer {
    /// Makes the cells reach a time.
    fn reach(&mut self, ns: i64) {
        let side = &mut self.side;
        if !self.has_begun {
            self.has_begun = true;
            side.ruler = Ruler::new(ns);
            side.last_ns = ns;
        }
        side.last_ns = side.last_ns.max(ns);
        while side.ruler.is_beyond(ns) {
            side.ruler.halve();
            side.samples.halve();
            side.bars.halve();
            side.kinds.iter_mut().for_each(|kind| kind.series.halve());
            side.keys.iter_mut().for_each(|key| key.series.halve());
            for events in &mut side.events {
                let halved = events.cells.chunks(2).map(|two| two.iter().sum()).collect();
                events.cells = halved;
                events.cells.resize(MAX_CELLS as usize, 0);
            }
        }
    }

    fn thread(&mut self, host: u32, task: Task) -> u32 {
        let threads = &mut self.side.threads;
        if let Some(thread) = self.by_task.get(&(host, task)) {
            return *thread;
        }
        if threads.len() >= MAX_THREADS {
            // Whoever comes later is drawn with the last one.
            return MAX_THREADS as u32 - 1;
        }
        threads.push(Thread { host, task, busy_ns: 0 });
        let thread = threads.len() as u32 - 1;
        self.by_task.insert((host, task), thread);
        thread
    }

    fn key(&mut self, kind: u32, cell: &Cell) -> Option<u32> {
        let wanted = (kind, key_text(cell)?);
        if let Some(key) = self.by_key.get(&wanted) {
            return Some(*key);
        }
        let n_keys = &mut self.n_keys[kind as usize];
        let is_full = *n_keys >= MAX_KEYS_OF_KIND || self.by_key.len() >= MAX_KEYS;
        *n_keys += usize::from(!is_full);
        let wanted = if is_full { (kind, OTHERS.to_owned()) } else { wanted };
        let keys = &mut self.side.keys;
        Some(*self.by_key.entry(wanted.clone()).or_insert_with(|| {
            let (all, series) = (Summary::default(), Series::default());
            keys.push(Key { kind, text: wanted.1, all, series });
            keys.len() as u32 - 1
        }))
    }
}

impl Taker for Gatherer {
    fn class(&mut self, _: usize, ty: &EventType) -> Wish {
        let name = format!("{}:{}", ty.provider, ty.name);
        self.side.events.push(Events { name, cells: vec![0; MAX_CELLS as usize] });
        Wish::Presence
    }

    #[inline]
    fn event(&mut self, at: &At, class: usize, _: &Fields) {
        self.reach(at.ns);
        let cell = self.side.ruler.cell(at.ns);
        self.side.events[class].cells[cell as usize] += 1;
    }

    fn wants_fields(&self, end_ns: i64, duration_ns: u64) -> bool {
        self.side.samples.is_slow(self.side.ruler.cell(end_ns), duration_ns)
    }

    fn slice(&mut self, slice: &Slice) {
        let end_ns = slice.start_ns.saturating_add_unsigned(slice.duration_ns);
        self.reach(end_ns);
        let host = self.hosts.get(slice.class).copied().unwrap_or(0);
        let thread = self.thread(host, slice.task);
        let kind = slice.span as u32;
        let key = self.key(kind, &slice.key);
        let side = &mut self.side;
        let cell = side.ruler.cell(end_ns);
        let (duration_ns, self_ns, is_error) = (slice.duration_ns, slice.self_ns, slice.is_error);
        let of_kind = &mut side.kinds[slice.span];
        of_kind.all.add(duration_ns, self_ns, is_error);
        of_kind.series.add(cell, duration_ns, self_ns, is_error);
        if let Some(key) = key {
            let of_key = &mut side.keys[key as usize];
            of_key.all.add(duration_ns, self_ns, is_error);
            of_key.series.add(cell, duration_ns, self_ns, is_error);
        }
        if slice.depth == Some(0) {
            let busy_ns = &mut side.threads[thread as usize].busy_ns;
            *busy_ns = busy_ns.saturating_add(duration_ns);
        }
        let point = Point { end_ns, duration_ns, kind, thread, is_error };
        side.samples.add(cell, point, || Slow {
            point,
            self_ns,
            key: key_text(&slice.key),
            fields: shown(&slice.fields),
        });
        let depth = slice.depth.unwrap_or(0);
        let bar = Bar { start_ns: slice.start_ns, duration_ns, kind, thread, depth, key, is_error };
        side.bars.add(bar, &side.ruler);
    }
}

/// The fields of a span in one line.
fn shown(fields: &[(String, Cell)]) -> String {
    let all: Vec<String> = fields.iter().map(|(name, cell)| format!("{name}={}", text_of(cell))).collect();
    all.join(" ").chars().take(MAX_FIELDS_CHARS).collect()
}

/// The value of the most telling field, if there is one.
fn key_text(cell: &Cell) -> Option<String> {
    match cell {
        Cell::None => None,
        Cell::Text(text) => Some(text.chars().take(MAX_KEY_CHARS).collect()),
        other => Some(text_of(other)),
    }
}

fn text_of(cell: &Cell) -> String {
    match cell {
        Cell::None => String::new(),
        Cell::Text(text) => text.clone(),
        Cell::Count(n) | Cell::Duration(n) => n.to_string(),
        Cell::Integer(n) => n.to_string(),
        Cell::Float(n) => n.to_string(),
        Cell::Time(ns) => ns.to_string(),
    }
}
