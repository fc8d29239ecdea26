//! The events of a recording, given to an answer.

use crate::decode::{FieldReader, TaskPart, TaskReader, task_part};
use crate::event::{At, Consumer, is_length};
use nopal_capture::StreamKind;
use nopal_live::{DoorOrder, NEAR_NS, OrderWithin};
use nopal_spans::{Fields, Needs, Task, Value};
use nopal_trace::{Error, Event, Filter, FixedInteger, Picker, Range, Recording, Report, Scratch};

/// What came of reading one recording.
#[derive(Debug)]
pub struct Read {
    pub n_events: u64,
    /// Events that make no sense.
    pub n_damaged: u64,
    /// Events without a process and a thread: what pairs by thread cannot be told apart.
    pub n_without_task: u64,
    /// Of the first and the last event used, since the epoch.
    pub range: Option<(i64, i64)>,
    /// Also says of how many events the order is not known.
    pub report: Report,
}

/// Events of one round.
const ROUND: u64 = 4096;

/// How far reading has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reached {
    /// The time of the last event, since the epoch.
    pub ns: i64,
    pub n_events: u64,
    /// Of the recording's bytes, from 0 to 1.
    pub share: f64,
}

/// How events of one class are read.
#[derive(Debug)]
struct ClassReader {
    needs: Needs,
    /// Known from its first event on.
    places: Option<Places>,
}

/// Where values are that are at the same place in each event.
#[derive(Debug)]
struct Places {
    /// The process and the thread.
    task: Option<(FixedInteger, FixedInteger)>,
    /// By visible field: where it is, if it is needed.
    fields: Option<Vec<Option<FixedInteger>>>,
}

/// Where process and thread are in events of the class of this one, if they are always at the same place.
pub fn fixed_task(event: &Event<'_>) -> Option<(FixedInteger, FixedInteger)> {
    let (mut pid, mut tid) = (None, None);
    for (name, at) in event.fixed_context()? {
        match task_part(&name) {
            Some(TaskPart::Pid) => pid = Some(at),
            Some(TaskPart::Tid) => tid = Some(at),
            None => {}
        }
    }
    pid.zip(tid)
}

/// Takes the needed ones of the visible fields out of events of the class of this one, if that can be done without a plan.
pub fn picker_of(event: &Event<'_>, needs: &Needs) -> Option<Picker> {
    event.picker(|name| !is_length(name), &needs.fields)
}

impl Places {
    fn of(event: &Event<'_>, needs: &Needs) -> Places {
        let task = fixed_task(event);
        let fields = event.fixed_fields().map(|all| {
            let visible = all.into_iter().filter(|(name, _)| !is_length(name));
            let is_needed = |at: usize| needs.fields.get(at).copied().unwrap_or(false);
            visible.enumerate().map(|(at, (_, place))| is_needed(at).then_some(place)).collect()
        });
        Places { task, fields }
    }
}

impl ClassReader {
    /// Whose the event is, if it says so; its fields; and whether it could be read.
    #[inline]
    fn read(
        &mut self,
        event: &Event<'_>,
        scratch: &mut Scratch,
        fields: &mut Fields,
    ) -> (Option<Task>, bool) {
        let ClassReader { needs, places } = self;
        let places = places.get_or_insert_with(|| Places::of(event, needs));
        let (task, mut is_whole) = match places.task {
            Some((pid, tid)) => {
                let task = event.integer(pid).zip(event.integer(tid));
                (task.map(|(pid, tid)| Task { pid: pid as u32, tid: tid as u32 }), task.is_some())
            }
            None => {
                let mut task = TaskReader::default();
                let is_whole = event.context(scratch, &mut task).is_ok();
                (task.task(), is_whole)
            }
        };
        fields.clear();
        match &places.fields {
            _ if needs.fields.is_empty() => {}
            Some(places) => {
                for place in places {
                    fields.push(match place.map(|place| (event.integer(place), place.is_signed)) {
                        Some((Some(raw), true)) => Value::Signed(raw as i64),
                        Some((Some(raw), false)) => Value::Unsigned(raw),
                        Some((None, _)) => {
                            is_whole = false;
                            Value::Absent
                        }
                        None => Value::Absent,
                    });
                }
            }
            None => {
                let mut reader = FieldReader::new(&needs.fields, fields);
                is_whole &= event.fields(scratch, &mut reader).is_ok();
            }
        }
        (task, is_whole)
    }

    /// Where and when an event came; whether it could be read, and whether it says whose it is.
    #[inline]
    fn place(
        &mut self,
        event: &Event<'_>,
        scratch: &mut Scratch,
        fields: &mut Fields,
        has_foreign: bool,
    ) -> (At, bool, bool) {
        let (task, is_whole) = self.read(event, scratch, fields);
        let has_task = task.is_some();
        let mut task = task.unwrap_or_default();
        if has_foreign
            && let Some(trace) = event.trace()
            && let Some((pid, tid)) = trace.tasks.get((task.pid.into(), task.tid.into()))
        {
            task = Task { pid: pid as u32, tid: tid as u32 };
        }
        let at = At { ns: event.ns().unwrap_or(0), task, cpu: event.cpu().unwrap_or(0) as u32 };
        (at, is_whole, has_task)
    }
}

/// What eats events in any order, on a thread of its own.
pub trait Eater: Send {
    /// As [`Consumer::event`].
    fn event(&mut self, at: &At, class: usize, fields: &Fields);

    /// Takes an event as it lies in the recording. If it returns false, the event goes to [`Eater::event`].
    fn raw(&mut self, _event: &Event<'_>) -> bool {
        false
    }

    /// Asked now and then; false to end everybody's work.
    fn goes_on(&mut self) -> bool;
}

/// Gives every event of a part of a recording to one of `eaters`, in no order. `needs` says for each class what is needed.
/// Returns what is missing, and how many events make no sense.
pub fn read_unordered<E: Eater>(
    recording: &Recording,
    part: Range,
    needs: &[Needs],
    eaters: &mut [E],
) -> Result<(Report, u64), Error> {
    struct Worker<'e, E> {
        eater: &'e mut E,
        readers: Vec<ClassReader>,
        scratch: Scratch,
        fields: Fields,
        n_events: u64,
        n_damaged: u64,
    }
    let has_foreign = recording.traces().iter().any(|trace| !trace.tasks.is_empty());
    let readers =
        || needs.iter().map(|needs| ClassReader { needs: needs.clone(), places: None }).collect::<Vec<_>>();
    let mut workers: Vec<Worker<'_, E>> = eaters
        .iter_mut()
        .map(|eater| Worker {
            eater,
            readers: readers(),
            scratch: Scratch::default(),
            fields: Fields::default(),
            n_events: 0,
            n_damaged: 0,
        })
        .collect();
    let report = recording.visit(part, &mut workers, |worker, event| {
        let class = event.class_index();
        let reader = &mut worker.readers[class];
        worker.n_events += 1;
        if reader.needs.is_used && !worker.eater.raw(event) {
            let (at, is_whole, _) = reader.place(event, &mut worker.scratch, &mut worker.fields, has_foreign);
            match is_whole {
                true => worker.eater.event(&at, class, &worker.fields),
                false => worker.n_damaged += 1,
            }
        }
        !worker.n_events.is_multiple_of(ROUND) || worker.eater.goes_on()
    })?;
    Ok((report, workers.iter().map(|worker| worker.n_damaged).sum()))
}

/// Gives every event that `consumer` needs to it, in the order of time. After each round `goes_on` is asked, with the
/// time that has been reached and the number of events so far.
pub fn read<C: Consumer>(
    recording: &Recording,
    consumer: &mut C,
    mut goes_on: impl FnMut(&mut C, i64, u64) -> bool,
) -> Result<Read, Error> {
    read_part(recording, Range::default(), consumer, |consumer, reached| {
        goes_on(consumer, reached.ns, reached.n_events)
    })
}

/// The same for a part of the recording.
pub fn read_part<C: Consumer>(
    recording: &Recording,
    part: Range,
    consumer: &mut C,
    goes_on: impl FnMut(&mut C, &Reached) -> bool,
) -> Result<Read, Error> {
    read_filtered(recording, part, None, consumer, goes_on)
}

/// The same; events that the filter does not let through are not counted, see [`Consumer::event_left_out`].
pub fn read_filtered<C: Consumer>(
    recording: &Recording,
    part: Range,
    filter: Option<&dyn Filter>,
    consumer: &mut C,
    mut goes_on: impl FnMut(&mut C, &Reached) -> bool,
) -> Result<Read, Error> {
    let mut decider = filter.map(Filter::decider);
    let classes = recording.event_classes().iter();
    let mut readers: Vec<ClassReader> =
        classes.map(|class| ClassReader { needs: consumer.class(&class.ty), places: None }).collect();
    let has_foreign = recording.traces().iter().any(|trace| !trace.tasks.is_empty());
    let mut events = recording.events(part)?;
    let mut scratch = Scratch::default();
    let mut fields = Fields::default();
    let (mut n_events, mut n_left_out, mut n_damaged, mut n_without_task) = (0u64, 0u64, 0u64, 0u64);
    let mut range: Option<(i64, i64)> = None;
    let order_within = match events.has_both_doors() {
        true => consumer.order_within(),
        false => OrderWithin::Nothing,
    };
    let mut door_order = DoorOrder::default();
    while let Some(event) = events.next()? {
        let class = event.class().index;
        let reader = &mut readers[class];
        if !reader.needs.is_used {
            continue;
        }
        let (at, is_whole, has_task) = reader.place(&event, &mut scratch, &mut fields, has_foreign);
        let At { ns, task, .. } = at;
        n_without_task += u64::from(!has_task);
        let is_left_out = is_whole && decider.as_mut().is_some_and(|holds| !holds(&event));
        let kind = if event.is_by_kernel() { StreamKind::Kernel } else { StreamKind::Rseq };
        if events.has_losses() {
            for loss in events.take_losses() {
                consumer.loss(loss.to_ns);
            }
        }
        if !is_whole {
            n_damaged += 1;
            continue;
        }
        if order_within != OrderWithin::Nothing {
            let task = nopal_capture::Task { pid: task.pid, tid: task.tid };
            door_order.hit(ns as u64, (task, consumer.kin(class)), kind, order_within, NEAR_NS);
        }
        if is_left_out {
            consumer.event_left_out(&at, class, &fields);
            n_left_out += 1;
        } else {
            range = Some((range.map_or(ns, |(first, _)| first), ns));
            consumer.event(&at, class, &fields);
            n_events += 1;
        }
        if (n_events + n_left_out).is_multiple_of(ROUND) {
            let reached = Reached { ns, n_events, share: events.share() };
            if !goes_on(consumer, &reached) {
                break;
            }
        }
    }
    consumer.end();
    let mut report = events.report();
    let doubts = door_order.take();
    report.verdict.n_unordered += doubts.n_unordered;
    report.verdict.n_nesting += doubts.n_nesting;
    Ok(Read { n_events, n_damaged, n_without_task, range, report })
}
