//! What can stand in front of every event's own fields: who left it, and where.

pub use crate::context_field::ContextField;
use crate::process_cache::name_at;
use crate::registry::Registry;
use crate::remembered::make_room;
use crate::tasks::Tasks;
use nopal_capture::Hit;
use nopal_proc::unwind::CodeRange;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Frames of a stack that are kept.
const MAX_FRAMES: usize = 64;
/// A thread may change its name at any time.
const NAME_AGE: Duration = Duration::from_secs(1);

/// Writes the fields of hits, and remembers what had to be looked up.
#[derive(Debug, Default)]
pub struct Contexts {
    pub fields: Vec<ContextField>,
    /// Processes of other namespaces must be made known before names of theirs can be found.
    pub tasks: Tasks,
    names: HashMap<(u32, u32), (Vec<u8>, Instant)>,
    addresses: HashMap<(u32, u32), u64>,
    frames: Vec<u64>,
    /// By process: the code of its addresses so far, and which look at the process has shown it.
    code: HashMap<u32, Vec<(u64, CodeRange)>>,
    /// Pieces of code whose first addresses have come, until somebody takes them: process, CLOCK_MONOTONIC.
    pub new_code: Vec<(u32, u64, CodeRange)>,
}

impl Contexts {
    pub fn new(fields: &[ContextField]) -> Contexts {
        Contexts { fields: fields.to_vec(), ..Contexts::default() }
    }

    /// Appends the fields of `hit`, as the metadata lays them out.
    pub fn write(&mut self, registry: &Registry, hit: &Hit<'_>, into: &mut Vec<u8>) {
        for idx in 0..self.fields.len() {
            match self.fields[idx] {
                ContextField::Vpid => into.extend_from_slice(&hit.task.pid.to_le_bytes()),
                ContextField::Vtid => into.extend_from_slice(&hit.task.tid.to_le_bytes()),
                ContextField::Procname => {
                    into.extend_from_slice(self.name(registry, hit));
                    into.push(0);
                }
                ContextField::Ip => into.extend_from_slice(&self.address(registry, hit).to_le_bytes()),
                ContextField::Ustack => {
                    self.unwind(registry, hit);
                    self.note_code(registry, hit);
                    into.extend_from_slice(&(self.frames.len() as u32).to_le_bytes());
                    self.frames.iter().for_each(|frame| into.extend_from_slice(&frame.to_le_bytes()));
                }
                ContextField::Fact(fact) => {
                    let pid = self.tasks.translate(hit.task).pid;
                    let value = registry.facts_of(pid).get(fact);
                    match fact.is_id() {
                        true => into.extend_from_slice(&(value as u32).to_le_bytes()),
                        false => into.extend_from_slice(&value.to_le_bytes()),
                    }
                }
                // They are among the event's own.
                ContextField::Otel => {}
            }
        }
    }

    /// Fills `frames`: with the hit's own address alone where its record has no stack.
    fn unwind(&mut self, registry: &Registry, hit: &Hit<'_>) {
        self.frames.clear();
        let ip = self.address(registry, hit);
        let pid = self.tasks.translate(hit.task).pid;
        let event = &registry.events[hit.event as usize];
        let stack = event.plan.stack(event.site_idx, hit.payload);
        registry.unwind(pid, hit.event, ip, stack, MAX_FRAMES, &mut self.frames);
    }

    /// Takes note of where the code of the frames is.
    fn note_code(&mut self, registry: &Registry, hit: &Hit<'_>) {
        let pid = self.tasks.translate(hit.task).pid;
        let look = registry.look_of(pid, hit.event);
        make_room(&mut self.code, &hit.task.pid);
        let known = self.code.entry(hit.task.pid).or_default();
        for address in &self.frames {
            let holds = |code: &CodeRange| (code.start..code.end).contains(address);
            if known.iter().any(|(seen, code)| *seen == look && holds(code)) {
                continue;
            }
            let Some(code) = registry.code_at(pid, hit.event, *address) else { continue };
            match known.iter_mut().find(|(_, old)| *old == code) {
                Some((seen, _)) => *seen = look,
                None => {
                    known.retain(|(_, old)| old.end <= code.start || code.end <= old.start);
                    self.new_code.push((hit.task.pid, hit.ns, code.clone()));
                    known.push((look, code));
                }
            }
        }
    }

    fn name(&mut self, registry: &Registry, hit: &Hit<'_>) -> &[u8] {
        let key = (hit.task.pid, hit.task.tid);
        let is_fresh = self.names.get(&key).is_some_and(|(_, since)| since.elapsed() < NAME_AGE);
        if !is_fresh {
            let task = self.tasks.translate(hit.task);
            // Of a thread that has ended the last name known is kept; one never seen alive has that of its process,
            // which is what a thread is called unless it calls itself otherwise.
            let known = self.names.remove(&key).map(|(name, _)| name);
            let name = name_at(&format!("/proc/{}/task/{}/comm", task.pid, task.tid))
                .or(known)
                .or_else(|| registry.name_of(task))
                .or_else(|| name_at(&format!("/proc/{}/comm", task.pid)))
                .unwrap_or_default();
            make_room(&mut self.names, &key);
            self.names.insert(key, (name, Instant::now()));
        }
        self.names.get(&key).map_or(b"", |(name, _)| name)
    }

    fn address(&mut self, registry: &Registry, hit: &Hit<'_>) -> u64 {
        if let Some(address) = self.addresses.get(&(hit.task.pid, hit.event)) {
            return *address;
        }
        let pid = self.tasks.translate(hit.task).pid;
        let address = registry.address_in(pid, hit.event);
        make_room(&mut self.addresses, &(hit.task.pid, hit.event));
        self.addresses.insert((hit.task.pid, hit.event), address);
        address
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Limits;
    use crate::remembered::MAX_REMEMBERED;
    use nopal_capture::{StreamId, StreamKind, Task};

    #[test]
    fn numbers_that_a_program_makes_up_are_forgotten_again() {
        let registry = Registry::new(Vec::new(), Vec::new(), Limits::default());
        let mut contexts = Contexts::new(&[ContextField::Procname]);
        let mut out = Vec::new();
        for made_up in 0..3 * MAX_REMEMBERED as u32 {
            let stream = StreamId { ring: 0, cpu: 0, kind: StreamKind::Rseq };
            let task = Task { pid: u32::MAX - made_up, tid: u32::MAX - made_up };
            out.clear();
            contexts.write(&registry, &Hit { stream, event: 0, ns: 0, task, payload: &[] }, &mut out);
            assert!(contexts.names.len() <= MAX_REMEMBERED);
        }
    }
}
