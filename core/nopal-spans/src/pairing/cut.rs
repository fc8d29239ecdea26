//! What cuts open spans off: losses, the end of all events, another program in a process.

use super::thread::Threads;
use super::{MAX_FRAMES, Pairing, Sink};

impl Pairing {
    /// Events between these times were lost. A span counts only if nothing was lost while it was open.
    pub fn loss(&mut self, to_ns: i64, sink: &mut impl Sink) {
        self.doubt_until_ns = self.doubt_until_ns.max(to_ns);
        let (rules, spare) = (&mut self.rules, &mut self.spare);
        let keyed = self.keyed.drain().map(|(_, frame)| frame);
        let of_threads = self.threads.all().flat_map(|thread| {
            thread.forget_carried();
            thread.done.drain(..).for_each(|done| sink.forget(done.token));
            thread.frames.drain(..)
        });
        for frame in keyed.chain(of_threads) {
            rules[frame.rule].unmatched.n_by_loss += 1;
            spare.push(frame.fields);
        }
        spare.truncate(MAX_FRAMES);
    }

    /// No more events come: what is open stays open.
    pub fn close(&mut self, sink: &mut impl Sink) {
        let rules = &mut self.rules;
        let keyed = self.keyed.drain().map(|(_, frame)| frame);
        let of_threads = self.threads.all().flat_map(|thread| {
            thread.done.drain(..).for_each(|done| sink.forget(done.token));
            thread.frames.drain(..)
        });
        for frame in keyed.chain(of_threads) {
            let unmatched = &mut rules[frame.rule].unmatched;
            match frame.left_ns {
                Some(_) => unmatched.n_begins += 1,
                None => unmatched.n_open += 1,
            }
        }
        self.threads = Threads::default();
        self.doubt_until_ns = i64::MIN;
    }

    /// A process has begun with another program: nothing that was open there can end.
    pub fn restart(&mut self, pid: u32, sink: &mut impl Sink) {
        let rules = &mut self.rules;
        for thread in self.threads.all().filter(|thread| thread.task().pid == pid) {
            thread.done.drain(..).for_each(|done| sink.forget(done.token));
            thread.frames.drain(..).for_each(|frame| rules[frame.rule].unmatched.n_begins += 1);
            thread.forget_carried();
        }
        self.keyed.retain(|_, frame| {
            let is_kept = frame.task.pid != pid;
            rules[frame.rule].unmatched.n_begins += u64::from(!is_kept);
            is_kept
        });
    }
}
