//! How much memory open spans may take. A traced program may make up threads, keys and texts as it likes, each with another begin
//! that never ends; the oldest are dropped, and counted as begins without an end.

use super::thread::{Frame, Thread};
use super::{Done, Fields, MAX_FRAMES, Pairing, Sink};

/// Of spans that pair by thread, with all that is known of their threads; and as much of those that pair by key.
const MAX_BYTES: usize = 128 << 20;
/// After so much has come, what there is is added up again.
const LOOK_AFTER_BYTES: usize = 32 << 20;
/// What an event may leave beside its fields.
const EVENT_BYTES: usize = 256;

/// When to look again.
#[derive(Debug)]
pub(super) struct Room {
    came_bytes: usize,
    look_after_bytes: usize,
}

impl Default for Room {
    fn default() -> Self {
        Room { came_bytes: 0, look_after_bytes: LOOK_AFTER_BYTES }
    }
}

impl Room {
    /// Takes note of an event; whether it is time to look.
    #[inline]
    pub(super) fn take(&mut self, fields: &Fields) -> bool {
        self.came_bytes += EVENT_BYTES + fields.used_bytes();
        self.came_bytes >= self.look_after_bytes
    }
}

impl Pairing {
    /// Drops what is too much.
    #[cold]
    pub(super) fn make_room(&mut self, sink: &mut impl Sink) {
        self.spare.truncate(MAX_FRAMES);
        let mut keyed_bytes = self.keyed_bytes();
        if keyed_bytes > MAX_BYTES {
            self.drop_older_keyed();
            keyed_bytes = self.keyed_bytes();
        }
        let mut thread_bytes = self.thread_bytes();
        while thread_bytes > MAX_BYTES && self.threads.len() > 1 {
            self.threads.drop_oldest(self.threads.len() / 2, &mut self.rules, sink);
            thread_bytes = self.thread_bytes();
        }
        let look_after_bytes = LOOK_AFTER_BYTES.max((keyed_bytes + thread_bytes) / 2);
        self.room = Room { came_bytes: 0, look_after_bytes };
    }

    fn keyed_bytes(&self) -> usize {
        self.keyed.iter().map(|(key, frame)| key.capacity() + size_of::<Vec<u8>>() + frame_bytes(frame)).sum()
    }

    fn thread_bytes(&mut self) -> usize {
        self.threads.all().map(|thread| thread_bytes(thread)).sum()
    }

    /// Half of those that pair by key.
    fn drop_older_keyed(&mut self) {
        let mut starts: Vec<i64> = self.keyed.values().map(|frame| frame.start_ns).collect();
        let middle = starts.len() / 2;
        let (_, cut_ns, _) = starts.select_nth_unstable(middle);
        // Where all began at once, which of them go is all the same.
        let mut n_left = middle;
        self.keyed.retain(|_, frame| {
            let is_kept = frame.start_ns >= *cut_ns && n_left > 0;
            n_left -= usize::from(is_kept);
            self.rules[frame.rule].unmatched.n_begins += u64::from(!is_kept);
            is_kept
        });
    }
}

fn frame_bytes(frame: &Frame) -> usize {
    size_of::<Frame>() + frame.fields.held_bytes()
}

fn thread_bytes(thread: &Thread) -> usize {
    size_of::<Thread>()
        + thread.frames.iter().map(frame_bytes).sum::<usize>()
        + thread.done.capacity() * size_of::<Done>()
        + thread.carried_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pairing::{Finished, Task};
    use crate::span::Source;
    use crate::value::Value;

    struct Counting(u64);

    impl Sink for Counting {
        fn finish(&mut self, _: &Finished<'_>, _: &[Done]) -> u32 {
            self.0 += 1;
            0
        }
    }

    /// As many begins as fill the memory several times, of which the last one ends.
    fn check(spans: &str, task: impl Fn(u32) -> Task, key: impl Fn(u32) -> u64) {
        const N: u32 = 400_000;
        let spans = crate::file::parse(spans, &Source::CommandLine).expect("spans");
        let (mut pairing, mut counting) = (Pairing::new(spans), Counting(0));
        pairing.want_all();
        for name in ["b", "e"] {
            pairing.add_class("p", name, &["a", "text"]);
        }
        let text = [b'x'; 1000];
        let fields = |n: u32| {
            let mut fields = Fields::default();
            fields.push(Value::Unsigned(key(n)));
            fields.push(Value::Text(&text));
            fields
        };
        let mut most_bytes = 0;
        for n in 0..N {
            pairing.event(n.into(), task(n), 0, &fields(n), &mut counting);
            if n % 10_000 == 0 {
                most_bytes = most_bytes.max(pairing.keyed_bytes() + pairing.thread_bytes());
            }
        }
        assert!(most_bytes > MAX_BYTES / 2 && most_bytes < 2 * MAX_BYTES, "{most_bytes}");
        pairing.event(N.into(), task(N - 1), 1, &fields(N - 1), &mut counting);
        assert_eq!(counting.0, 1, "the newest is there");
        pairing.close(&mut counting);
        let unmatched = pairing.unmatched();
        assert_eq!((unmatched.sum(), unmatched.n_ends), (u64::from(N) - 1, 0), "every begin is counted once");
        assert!(unmatched.n_begins > 0 && unmatched.n_open > 0, "{unmatched:?}");
    }

    #[test]
    fn begins_of_threads_that_a_program_makes_up_are_dropped_and_counted() {
        check("[spans.'p:f']\nbegin = 'b'\nend = 'e'", |n| Task { pid: n % 7, tid: n / 50 }, |n| n.into());
    }

    #[test]
    fn begins_of_keys_that_a_program_makes_up_are_dropped_and_counted() {
        let spans = "[spans.'p:f']\nbegin = 'b'\nend = 'e'\nkey = 'a'";
        check(spans, |n| Task { pid: 1, tid: n % 3 }, |n| n.into());
    }
}
