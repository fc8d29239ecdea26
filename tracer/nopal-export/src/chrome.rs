//! The Trace Event format of Chrome, which chrome://tracing, Perfetto and speedscope open. Times in it are microseconds
//! in floating point, so that they count from the start of the first event's day (UTC).

use crate::out::Out;
use crate::processes::{Processes, name};
use crate::run::{Exporter, is_wanted};
use crate::{json_of, json_of_fields};
use nopal_answers::slices::{Slice, Taker, Wish, is_apart};
use nopal_answers::{At, Cell};
use nopal_spans::{Fields, ProbeName, Span};
use nopal_trace::{EventType, Loss, Recording, Selection};
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub struct Chrome {
    out: Out,
    spans: Vec<Shown>,
    /// Probes that are the ends of spans, which are shown as spans.
    of_spans: Vec<ProbeName>,
    classes: Vec<Option<Class>>,
    hosts: Vec<String>,
    processes: Processes,
    day_ns: Option<i64>,
    has_any: bool,
}

#[derive(Debug)]
struct Shown {
    name: String,
    provider: String,
    is_apart: bool,
}

#[derive(Debug)]
struct Class {
    name: String,
    provider: String,
    fields: Vec<String>,
}

const DAY_NS: i64 = 86_400_000_000_000;

impl Chrome {
    pub fn new(mut out: Out, spans: &[Span]) -> Chrome {
        out.write(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
        let shown = |span: &Span| Shown {
            name: span.full_name(),
            provider: span.provider.clone(),
            is_apart: is_apart(span),
        };
        Chrome {
            out,
            spans: spans.iter().map(shown).collect(),
            of_spans: spans.iter().flat_map(|span| span.probes().cloned()).collect(),
            classes: Vec::new(),
            hosts: Vec::new(),
            processes: Processes::default(),
            day_ns: None,
            has_any: false,
        }
    }

    fn put(&mut self, event: &Value) {
        let lead = if std::mem::replace(&mut self.has_any, true) { ",\n" } else { "" };
        self.out.write(format!("{lead}{event}").as_bytes());
    }

    /// Microseconds since the start of the day.
    fn time(&mut self, ns: i64) -> f64 {
        let day_ns = *self.day_ns.get_or_insert(ns.div_euclid(DAY_NS) * DAY_NS);
        ns.saturating_sub(day_ns) as f64 / 1e3
    }

    /// The number of a process, after it and the thread were introduced.
    fn pid(&mut self, class: usize, pid: u32, tid: u32) -> u32 {
        let host = self.hosts.get(class).cloned().unwrap_or_default();
        let (shown, is_new) = self.processes.get(&host, pid);
        if is_new {
            let args = json!({ "name": name(&host, pid, shown) });
            self.put(&json!({ "ph": "M", "name": "process_name", "pid": shown, "tid": 0, "args": args }));
        }
        if self.processes.is_new_thread(shown, tid) {
            let args = json!({ "name": format!("tid {tid}") });
            self.put(&json!({ "ph": "M", "name": "thread_name", "pid": shown, "tid": tid, "args": args }));
        }
        shown
    }
}

impl Taker for Chrome {
    fn class(&mut self, class: usize, _: &EventType) -> Wish {
        if self.classes[class].is_some() { Wish::Fields } else { Wish::Nothing }
    }

    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        let (pid, ts) = (self.pid(class, at.task.pid, at.task.tid), self.time(at.ns));
        let Some(of) = &self.classes[class] else { return };
        let names = of.fields.iter().enumerate();
        let args: Map<String, Value> =
            names.map(|(at, name)| (name.clone(), json_of(&Cell::from(fields.get(at))))).collect();
        let event = json!({
            "ph": "i", "s": "t", "name": of.name, "cat": of.provider, "ts": ts, "pid": pid, "tid": at.task.tid,
            "args": args,
        });
        self.put(&event);
    }

    fn slice(&mut self, slice: &Slice) {
        let pid = self.pid(slice.class, slice.task.pid, slice.task.tid);
        let (ts, dur) = (self.time(slice.start_ns), slice.duration_ns as f64 / 1e3);
        let shown = &self.spans[slice.span];
        let (title, cat, is_apart) = (shown.name.clone(), shown.provider.clone(), shown.is_apart);
        let mut args = json_of_fields(&slice.fields);
        if let (true, Value::Object(args)) = (slice.is_error, &mut args) {
            args.insert("error".to_owned(), Value::from(true));
        }
        let (tid, end_tid) = (slice.task.tid, slice.end_task.tid);
        if !is_apart {
            self.put(&json!({
                "ph": "X", "name": title, "cat": cat, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args,
            }));
            return;
        }
        // Such spans overlap on a thread, and may end on another one.
        let id = format!("{:#x}", slice.id);
        let end = ts + dur;
        self.put(&json!({
            "ph": "b", "name": title, "cat": cat, "id": id, "ts": ts, "pid": pid, "tid": tid, "args": args,
        }));
        self.put(
            &json!({ "ph": "e", "name": title, "cat": cat, "id": id, "ts": end, "pid": pid, "tid": end_tid }),
        );
        if end_tid != tid {
            self.put(
                &json!({ "ph": "s", "name": title, "cat": cat, "id": id, "ts": ts, "pid": pid, "tid": tid }),
            );
            self.put(&json!({
                "ph": "f", "bp": "e", "name": title, "cat": cat, "id": id, "ts": end, "pid": pid, "tid": end_tid,
            }));
        }
    }
}

impl Exporter for Chrome {
    fn recording(&mut self, recording: &Recording, selection: &Selection) {
        self.hosts = crate::run::hosts(recording);
        let classes = recording.event_classes().iter();
        self.classes = classes
            .map(|class| {
                let is_end = self.of_spans.iter().any(|probe| probe.is(&class.ty.provider, &class.ty.name));
                (is_wanted(selection, class.index) && !is_end).then(|| Class {
                    name: class.ty.full_name(),
                    provider: class.ty.provider.clone(),
                    fields: nopal_answers::event::visible_fields(&class.ty)
                        .into_iter()
                        .map(str::to_owned)
                        .collect(),
                })
            })
            .collect();
    }

    fn losses(&mut self, losses: &[Loss]) {
        for loss in losses {
            let ts = self.time(loss.from_ns);
            let dur = loss.to_ns.saturating_sub(loss.from_ns).max(0) as f64 / 1e3;
            let what = if loss.is_packets { "packets overwritten" } else { "events lost" };
            let args = json!({ "count": loss.count, "cpu": loss.cpu });
            let tid = loss.cpu.unwrap_or(0);
            self.put(&json!({
                "ph": "X", "name": what, "cat": "lost", "ts": ts, "dur": dur, "pid": 0, "tid": tid, "args": args,
            }));
        }
    }

    fn finish(&mut self) {
        let day = self.day_ns.unwrap_or(0);
        let tail = format!("\n],\"otherData\":{{\"zero_ns\":\"{day}\",\"by\":\"nopal\"}}}}\n");
        self.out.write(tail.as_bytes());
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}
