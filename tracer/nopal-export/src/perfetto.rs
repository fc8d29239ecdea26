//! Perfetto's protobuf trace: a track for each thread, slices for spans, instants for other events, flows where a span ends
//! on another thread than it began.
//!
//! ```text
//! Trace        1 packet*
//! TracePacket  8 timestamp  10 trusted_packet_sequence_id  11 track_event  60 track_descriptor  6 clock_snapshot
//! Descriptor   1 uuid  2 name  3 process {1 pid, 6 name}  4 thread {1 pid, 2 tid, 5 name}  5 parent_uuid
//! TrackEvent   9 type (1 begin, 2 end, 3 instant)  11 track_uuid  23 name  22 category  4 debug_annotation*
//!              47 flow_id  48 terminating_flow_id (fixed64)
//! Annotation   10 name  2 bool  3 uint  4 int  5 double  6 string
//! ```

use crate::out::Out;
use crate::processes::{MAX_THREADS, Processes, name};
use crate::protobuf::Message;
use crate::run::{Exporter, is_wanted};
use nopal_answers::slices::{Slice, Taker, Wish, is_apart};
use nopal_answers::{At, Cell};
use nopal_spans::{Fields, ProbeName, Span};
use nopal_trace::{EventType, Loss, Recording, Selection};
use std::collections::HashMap;

#[derive(Debug)]
pub struct Perfetto {
    out: Out,
    spans: Vec<(String, String, bool)>,
    of_spans: Vec<ProbeName>,
    classes: Vec<Option<(String, String, Vec<String>)>>,
    hosts: Vec<String>,
    processes: Processes,
    threads: HashMap<(u32, u32), u64>,
    /// Tracks for spans that overlap others, each with the end of its last one.
    lanes: HashMap<(u32, String), Vec<(u64, i64)>>,
    last_uuid: u64,
    /// Open slices of the tree that is being written.
    open: Vec<Open>,
    /// Until when the track of a thread is taken by its last tree.
    taken: HashMap<u64, i64>,
    has_clock: bool,
}

#[derive(Debug)]
struct Open {
    track: u64,
    start_ns: i64,
    /// Where its next child may begin.
    free_ns: i64,
    end_ns: i64,
}

const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;
const SEQUENCE: u64 = 1;

impl Perfetto {
    pub fn new(out: Out, spans: &[Span]) -> Perfetto {
        let shown = |span: &Span| (span.full_name(), span.provider.clone(), is_apart(span));
        Perfetto {
            out,
            spans: spans.iter().map(shown).collect(),
            of_spans: spans.iter().flat_map(|span| span.probes().cloned()).collect(),
            classes: Vec::new(),
            hosts: Vec::new(),
            processes: Processes::default(),
            threads: HashMap::new(),
            lanes: HashMap::new(),
            last_uuid: 0,
            open: Vec::new(),
            taken: HashMap::new(),
            has_clock: false,
        }
    }

    fn packet(&mut self, mut packet: Message) {
        packet.uint(10, SEQUENCE);
        let mut trace = Message::default();
        trace.message(1, &packet);
        self.out.write(&trace.0);
    }

    /// Says that times are since the epoch: the trace's clock and the wall clock are one.
    fn clock(&mut self, ns: i64) {
        if std::mem::replace(&mut self.has_clock, true) {
            return;
        }
        const REALTIME: u64 = 1;
        const BOOTTIME: u64 = 6;
        let mut snapshot = Message::default();
        for id in [REALTIME, BOOTTIME] {
            let mut clock = Message::default();
            clock.uint(1, id);
            clock.uint(2, ns as u64);
            snapshot.message(1, &clock);
        }
        let mut packet = Message::default();
        packet.message(6, &snapshot);
        self.packet(packet);
    }

    fn describe(&mut self, uuid: u64, fill: impl FnOnce(&mut Message)) {
        let mut descriptor = Message::default();
        descriptor.uint(1, uuid);
        fill(&mut descriptor);
        let mut packet = Message::default();
        packet.message(60, &descriptor);
        self.packet(packet);
    }

    fn new_uuid(&mut self) -> u64 {
        self.last_uuid += 1;
        self.last_uuid
    }

    /// The number a process is shown under, after it was introduced.
    fn process(&mut self, class: usize, pid: u32) -> u32 {
        let host = self.hosts.get(class).cloned().unwrap_or_default();
        let (shown, is_new) = self.processes.get(&host, pid);
        if is_new {
            let uuid = self.new_uuid();
            let title = name(&host, pid, shown);
            self.threads.insert((shown, u32::MAX), uuid);
            self.describe(uuid, |descriptor| {
                let mut process = Message::default();
                process.int(1, shown.into());
                process.text(6, &title);
                descriptor.message(3, &process);
            });
        }
        shown
    }

    /// The track of a thread.
    fn thread(&mut self, class: usize, pid: u32, tid: u32) -> (u32, u64) {
        let shown = self.process(class, pid);
        if let Some(uuid) = self.threads.get(&(shown, tid)) {
            return (shown, *uuid);
        }
        if self.threads.len() >= MAX_THREADS
            && let Some(uuid) = self.threads.get(&(shown, u32::MAX))
        {
            return (shown, *uuid);
        }
        let uuid = self.new_uuid();
        self.threads.insert((shown, tid), uuid);
        self.describe(uuid, |descriptor| {
            let mut thread = Message::default();
            thread.int(1, shown.into());
            thread.int(2, tid.into());
            thread.text(5, &format!("tid {tid}"));
            descriptor.message(4, &thread);
        });
        (shown, uuid)
    }

    /// A track of a process on which nothing is open at this time. Spans come in the order of their ends.
    fn lane(&mut self, shown_pid: u32, title: &str, start_ns: i64, end_ns: i64) -> u64 {
        let key = (shown_pid, title.to_owned());
        if let Some((uuid, taken)) =
            self.lanes.entry(key.clone()).or_default().iter_mut().find(|(_, taken)| *taken <= start_ns)
        {
            *taken = end_ns;
            return *uuid;
        }
        let uuid = self.new_uuid();
        let parent = self.threads.get(&(shown_pid, u32::MAX)).copied();
        self.lanes.entry(key).or_default().push((uuid, end_ns));
        self.describe(uuid, |descriptor| {
            descriptor.text(2, title);
            if let Some(parent) = parent {
                descriptor.uint(5, parent);
            }
        });
        uuid
    }

    fn track_event(&mut self, ns: i64, kind: u64, track: u64, fill: impl FnOnce(&mut Message)) {
        self.clock(ns);
        let mut event = Message::default();
        event.uint(9, kind);
        event.uint(11, track);
        fill(&mut event);
        let mut packet = Message::default();
        packet.uint(8, ns.max(0) as u64);
        packet.message(11, &event);
        self.packet(packet);
    }
}

fn annotate(event: &mut Message, name: &str, cell: &Cell) {
    let mut annotation = Message::default();
    annotation.text(10, name);
    match cell {
        Cell::None => return,
        Cell::Text(text) => annotation.text(6, text),
        Cell::Count(n) | Cell::Duration(n) => annotation.uint(3, *n),
        Cell::Integer(n) => match (i64::try_from(*n), u64::try_from(*n)) {
            (Ok(n), _) => annotation.int(4, n),
            (_, Ok(n)) => annotation.uint(3, n),
            (Err(_), Err(_)) => annotation.text(6, &n.to_string()),
        },
        Cell::Float(n) => annotation.double(5, *n),
        Cell::Time(ns) => annotation.int(4, *ns),
    }
    event.message(4, &annotation);
}

impl Taker for Perfetto {
    fn class(&mut self, class: usize, _: &EventType) -> Wish {
        if self.classes[class].is_some() { Wish::Fields } else { Wish::Nothing }
    }

    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        let (_, track) = self.thread(class, at.task.pid, at.task.tid);
        let Some((title, provider, names)) = self.classes[class].take() else { return };
        self.track_event(at.ns, INSTANT, track, |event| {
            event.text(23, &title);
            event.text(22, &provider);
            for (position, name) in names.iter().enumerate() {
                annotate(event, name, &Cell::from(fields.get(position)));
            }
        });
        self.classes[class] = Some((title, provider, names));
    }

    fn slice(&mut self, slice: &Slice) {
        let (shown, thread) = self.thread(slice.class, slice.task.pid, slice.task.tid);
        let (title, provider, is_apart) = self.spans[slice.span].clone();
        let mut start_ns = slice.start_ns;
        let mut end_ns = start_ns.saturating_add_unsigned(slice.duration_ns);
        let track = if is_apart {
            self.lane(shown, &title, start_ns, end_ns)
        } else {
            // An event that tells its own duration rounds it, and may stick out of what it lies within.
            if let Some(parent) = self.open.last() {
                start_ns = start_ns.clamp(parent.start_ns, parent.end_ns);
                end_ns = end_ns.clamp(start_ns, parent.end_ns);
            }
            let (track, free_ns) = match self.open.last() {
                Some(parent) => (parent.track, parent.free_ns),
                None => (thread, self.taken.get(&thread).copied().unwrap_or(i64::MIN)),
            };
            if start_ns >= free_ns {
                match self.open.last_mut() {
                    Some(parent) => parent.free_ns = end_ns,
                    None => drop(self.taken.insert(thread, end_ns)),
                }
                track
            } else {
                self.lane(shown, &format!("tid {} overlapping", slice.task.tid), start_ns, end_ns)
            }
        };
        self.open.push(Open { track, start_ns, free_ns: start_ns, end_ns });
        let (_, end_thread) = self.thread(slice.class, slice.end_task.pid, slice.end_task.tid);
        let ends_elsewhere = end_thread != thread;
        self.track_event(start_ns, BEGIN, track, |event| {
            event.text(23, &title);
            event.text(22, &provider);
            if ends_elsewhere {
                event.fixed64(47, slice.id);
            }
            for (name, cell) in &slice.fields {
                annotate(event, name, cell);
            }
            if slice.is_error {
                annotate(event, "error", &Cell::Text("true".to_owned()));
            }
        });
        if ends_elsewhere {
            self.track_event(end_ns, INSTANT, end_thread, |event| {
                event.text(23, &format!("{title} ends"));
                event.text(22, &provider);
                event.fixed64(48, slice.id);
            });
        }
    }

    fn close(&mut self, _: &Slice) {
        if let Some(open) = self.open.pop() {
            self.track_event(open.end_ns, END, open.track, |_| {});
        }
    }
}

impl Exporter for Perfetto {
    fn recording(&mut self, recording: &Recording, selection: &Selection) {
        self.hosts = crate::run::hosts(recording);
        let classes = recording.event_classes().iter();
        self.classes = classes
            .map(|class| {
                let is_end = self.of_spans.iter().any(|probe| probe.is(&class.ty.provider, &class.ty.name));
                let names = nopal_answers::event::visible_fields(&class.ty);
                (is_wanted(selection, class.index) && !is_end).then(|| {
                    let names = names.into_iter().map(str::to_owned).collect();
                    (class.ty.full_name(), class.ty.provider.clone(), names)
                })
            })
            .collect();
    }

    fn losses(&mut self, losses: &[Loss]) {
        for loss in losses {
            let title = loss.cpu.map_or("lost".to_owned(), |cpu| format!("lost on CPU {cpu}"));
            let (from_ns, to_ns) = (loss.from_ns, loss.to_ns.max(loss.from_ns));
            let track = self.lane(0, &title, from_ns, to_ns);
            let what = if loss.is_packets { "packets overwritten" } else { "events lost" };
            self.track_event(from_ns, BEGIN, track, |event| {
                event.text(23, what);
                annotate(event, "count", &Cell::Count(loss.count));
            });
            self.track_event(to_ns, END, track, |_| {});
        }
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}
