//! What can stand in front of every event's own fields: who left it, and where.

use crate::live::Hit;
use crate::process_cache::name_at;
use crate::registry::Registry;
use crate::tasks::Tasks;
use nopal_proc::unwind::StackTop;
use nopal_trace::{Integer, RecordingInfo, Type};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// One field in front of an event's own. The names are LTTng's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextField {
    /// The process, as it counts itself.
    Vpid,
    /// The thread, as its process counts.
    Vtid,
    /// The thread's name.
    Procname,
    /// The address of the probe's instruction.
    Ip,
    /// That address and those of the callers. Hits must bring a part of their stack:
    /// [`Limits::stack_bytes`](crate::plan::Limits::stack_bytes).
    Ustack,
}

impl ContextField {
    pub const ALL: [ContextField; 5] = [
        ContextField::Vpid,
        ContextField::Vtid,
        ContextField::Procname,
        ContextField::Ip,
        ContextField::Ustack,
    ];
    /// What a recording has unless told otherwise.
    pub const USUAL: [ContextField; 2] = [ContextField::Vpid, ContextField::Vtid];

    pub fn name(self) -> &'static str {
        match self {
            ContextField::Vpid => "vpid",
            ContextField::Vtid => "vtid",
            ContextField::Procname => "procname",
            ContextField::Ip => "ip",
            ContextField::Ustack => "ustack",
        }
    }

    pub fn parse(name: &str) -> Option<ContextField> {
        ContextField::ALL.into_iter().find(|field| field.name() == name)
    }

    /// Declares the field in a recording's metadata.
    pub fn declare(self, info: RecordingInfo) -> RecordingInfo {
        let ty = match self {
            ContextField::Vpid | ContextField::Vtid => Type::signed(32),
            ContextField::Procname => Type::String,
            ContextField::Ip => address(),
            ContextField::Ustack => return info.context(self.name(), Type::sequence(address())),
        };
        info.context(self.name(), ty)
    }
}

fn address() -> Type {
    Type::Integer(Integer::new(64, false).base(16))
}

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
                    into.extend_from_slice(&(self.frames.len() as u32).to_le_bytes());
                    self.frames.iter().for_each(|frame| into.extend_from_slice(&frame.to_le_bytes()));
                }
            }
        }
    }

    /// Fills `frames`: with the hit's own address alone where its record has no stack.
    fn unwind(&mut self, registry: &Registry, hit: &Hit<'_>) {
        self.frames.clear();
        let ip = self.address(registry, hit);
        let pid = self.tasks.translate(hit.task).pid;
        let event = &registry.events[hit.event as usize];
        match event.plan.stack(event.site_idx, hit.payload) {
            Some((bp, sp, bytes)) => {
                let top = StackTop { ip, sp, bp, bytes };
                registry.unwind(pid, hit.event, top, MAX_FRAMES, &mut self.frames);
            }
            None => self.frames.push(ip),
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
        self.addresses.insert((hit.task.pid, hit.event), address);
        address
    }
}
