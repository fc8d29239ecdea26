//! Who takes the hits of a live session: printers, recorders, interpreters, answers.

use nopal_capture::{Came, Hit, Loss, Task};

/// Takes what a live session gives. Hits come in the order of each stream, or in that of time if asked for.
pub trait Consumer<S> {
    fn hit(&mut self, selection: &S, hit: &Hit<'_>);

    /// Comes before the hits that are later than its start.
    fn loss(&mut self, _loss: &Loss) {}

    /// The name that the first hit of a process brought along.
    fn introduce(&mut self, _task: Task, _comm: &str) {}
}

/// Takes hits with a function.
pub(super) struct Each<F>(pub F);

impl<S, F: FnMut(&S, Hit<'_>)> Consumer<S> for Each<F> {
    #[inline]
    fn hit(&mut self, selection: &S, hit: &Hit<'_>) {
        (self.0)(selection, *hit);
    }
}

/// Hits and losses that wait until no hit can come before them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    all: Vec<Kept>,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Kept {
    /// Without its payload, which is at `at`.
    Hit {
        hit: Hit<'static>,
        at: usize,
        len: usize,
    },
    Loss(Loss),
}

impl Kept {
    /// A loss comes before the hits that are later than its start.
    fn ns(&self) -> u64 {
        match self {
            Kept::Hit { hit, .. } => hit.ns,
            Kept::Loss(loss) => loss.first_ns,
        }
    }
}

impl Waiting {
    pub(super) fn keep(&mut self, hit: &Hit<'_>) {
        let (at, len) = (self.bytes.len(), hit.payload.len());
        self.bytes.extend_from_slice(hit.payload);
        let Hit { stream, event, ns, task, .. } = *hit;
        self.all.push(Kept::Hit { hit: Hit { stream, event, ns, task, payload: &[] }, at, len });
    }

    /// Hands out what is before a time in its order.
    pub(super) fn take_before(&mut self, ns: u64, mut each: impl FnMut(Came<'_>)) {
        self.all.sort_by_key(Kept::ns);
        let n_ready = self.all.partition_point(|kept| kept.ns() < ns);
        for kept in self.all.drain(..n_ready) {
            each(match kept {
                Kept::Hit { hit, at, len } => Came::Hit(Hit { payload: &self.bytes[at..at + len], ..hit }),
                Kept::Loss(loss) => Came::Loss(loss),
            });
        }
        if self.all.is_empty() {
            self.bytes.clear();
        } else if n_ready > 0 {
            let mut rest = Vec::new();
            for kept in &mut self.all {
                if let Kept::Hit { at, len, .. } = kept {
                    let start = rest.len();
                    rest.extend_from_slice(&self.bytes[*at..*at + *len]);
                    *at = start;
                }
            }
            self.bytes = rest;
        }
    }
}

/// Lets hits and losses wait; all else is handed on at once.
pub(super) struct Keeping<'a, C> {
    pub waiting: &'a mut Waiting,
    pub consumer: &'a mut C,
}

impl<S, C: Consumer<S>> Consumer<S> for Keeping<'_, C> {
    #[inline]
    fn hit(&mut self, _: &S, hit: &Hit<'_>) {
        self.waiting.keep(hit);
    }

    fn loss(&mut self, loss: &Loss) {
        self.waiting.all.push(Kept::Loss(*loss));
    }

    fn introduce(&mut self, task: Task, comm: &str) {
        self.consumer.introduce(task, comm);
    }
}

/// The span of time that also holds this loss.
pub fn widen(span: Option<(u64, u64)>, loss: &Loss) -> (u64, u64) {
    let (first, last) = span.unwrap_or((loss.first_ns, loss.last_ns));
    (first.min(loss.first_ns), last.max(loss.last_ns))
}
