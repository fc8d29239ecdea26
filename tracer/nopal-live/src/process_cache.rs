//! What processes were like while they could be looked at: the names of their threads, where their files were mapped, how
//! their stacks are unwound. Hits are often read when their process has ended, those of a flight recorder long after.

use crate::context_field::ContextField;
use crate::stack::StackCopy;
use nopal_capture::Task;
use nopal_proc::facts::Facts;
use nopal_proc::perf_events::{Entry, PerfEvents};
use nopal_proc::unwind::{CodeRange, StackTop, Stacks};
use nopal_proc::{FileId, MappedObject, mapped_objects};
use nopal_sdt::Object;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

/// Beyond this, processes that have ended are forgotten.
const MAX_PROCESSES: usize = 1 << 14;
/// A thread may change its name at any time.
const NAME_AGE: Duration = Duration::from_secs(1);
/// Threads of a process whose names are kept.
const MAX_THREADS: usize = 1 << 12;

#[derive(Debug, Default)]
pub(crate) struct ProcessCache {
    has_names: bool,
    has_facts: bool,
    has_addresses: bool,
    has_stacks: bool,
    processes: HashMap<u32, Process>,
    /// By file with probes: what its segments are.
    objects: HashMap<FileId, Option<Object>>,
    stacks: Stacks,
    /// Tells what is mapped by processes that may have ended before anybody looks at them.
    events: PerfEvents,
    /// When names were last looked at for a condition.
    names_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct Process {
    name: Vec<u8>,
    threads: HashMap<u32, Vec<u8>>,
    /// And when they were read.
    facts: Option<(Facts, Instant)>,
    /// By file: what must be added to its link-time addresses.
    biases: HashMap<FileId, u64>,
}

impl ProcessCache {
    /// From now on keeps what these fields will be made of.
    pub(crate) fn keep_for(&mut self, fields: &[ContextField]) {
        let has = |field| fields.contains(&field);
        self.has_names |= has(ContextField::Procname);
        self.has_facts |= fields.iter().any(|field| matches!(field, ContextField::Fact(_)));
        self.has_stacks |= has(ContextField::Ustack);
        self.has_addresses |= has(ContextField::Ip) || has(ContextField::Ustack);
    }

    /// Looks at a process for what is kept; `files` are those with probes. Nothing changes if it has ended.
    pub(crate) fn look(&mut self, pid: u32, files: &HashSet<FileId>) {
        if self.has_names {
            self.look_at_names(pid);
        }
        if self.has_facts {
            self.look_at_facts(pid);
        }
        if self.has_addresses {
            self.look_at_addresses(pid, files);
        }
        if self.has_stacks {
            self.stacks.remember(pid);
        }
    }

    /// Looks at a program that has not begun yet, and from now on is told what it and its descendants map, if the kernel allows.
    pub(crate) fn follow(&mut self, pid: u32, files: &HashSet<FileId>) {
        if self.has_stacks {
            let _ = self.events.follow(pid);
        }
        self.look(pid, files);
    }

    /// Takes note of what was mapped since; whether there was anything.
    fn catch_up(&mut self) -> bool {
        let mut entries = Vec::new();
        self.events.read(|entry| entries.push(entry));
        let mut is_any = false;
        for entry in entries {
            match entry {
                Entry::Mapped { pid, mapping } if mapping.is_of_file() => {
                    let (path, is_deleted) = (mapping.path.clone(), mapping.is_deleted);
                    self.stacks.add(&MappedObject { pid, path, is_deleted, mappings: vec![mapping] });
                    is_any = true;
                }
                Entry::Started { pid, .. } => {
                    self.stacks.forget(pid);
                    self.processes.entry(pid).and_modify(|process| process.biases.clear());
                }
                Entry::Mapped { .. } | Entry::Forked { .. } | Entry::Ended { .. } | Entry::Lost => {}
            }
        }
        is_any
    }

    fn process(&mut self, pid: u32) -> &mut Process {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid) {
            self.processes.retain(|pid, _| nopal_proc::Process::is_alive(*pid));
        }
        self.processes.entry(pid).or_default()
    }

    fn look_at_names(&mut self, pid: u32) {
        let Some(name) = name_at(&format!("/proc/{pid}/comm")) else { return };
        let process = self.process(pid);
        process.name = name;
        for tid in nopal_proc::threads(pid).into_iter().flatten().take(MAX_THREADS) {
            if let Some(name) = name_at(&format!("/proc/{pid}/task/{tid}/comm")) {
                process.threads.insert(tid, name);
            }
        }
        if process.threads.len() > 2 * MAX_THREADS {
            process.threads.clear();
        }
    }

    fn look_at_addresses(&mut self, pid: u32, files: &HashSet<FileId>) {
        for mapped in mapped_objects(pid).unwrap_or_default() {
            let Some(file) = mapped.file().filter(|file| files.contains(file)) else { continue };
            let object = self.objects.entry(file).or_insert_with(|| {
                let image = mapped.open().ok()?;
                nopal_sdt::read(image.bytes()).ok()
            });
            let biases = object.as_ref().map(|object| mapped.load_biases(object)).unwrap_or_default();
            if let Some(bias) = biases.first() {
                self.process(pid).biases.insert(file, *bias);
            }
        }
    }

    /// The name of a thread as it was last seen, else that of its process.
    pub(crate) fn name(&self, task: Task) -> Option<&[u8]> {
        let process = self.processes.get(&task.pid)?;
        let name = process.threads.get(&task.tid).unwrap_or(&process.name);
        (!name.is_empty()).then_some(name)
    }

    /// The name of a thread now, or as it was last seen; a look serves for a while.
    pub(crate) fn current_name(&mut self, task: Task) -> Vec<u8> {
        let is_new =
            self.processes.get(&task.pid).is_none_or(|process| !process.threads.contains_key(&task.tid));
        if is_new || self.names_at.is_none_or(|at| at.elapsed() >= NAME_AGE) {
            self.names_at = Some(Instant::now());
            self.look_at_names(task.pid);
        }
        self.name(task).unwrap_or_default().to_vec()
    }

    /// Whose a process is now, or was when it was last seen; a look serves for a while.
    pub(crate) fn facts(&mut self, pid: u32) -> Facts {
        match self.process(pid).facts {
            Some((facts, at)) if at.elapsed() < NAME_AGE => facts,
            _ => self.look_at_facts(pid),
        }
    }

    fn look_at_facts(&mut self, pid: u32) -> Facts {
        let process = self.process(pid);
        let known = process.facts.map(|(facts, _)| facts);
        let facts = Facts::read(pid).or(known).unwrap_or_else(Facts::unknown);
        process.facts = Some((facts, Instant::now()));
        facts
    }

    /// What must be added to the link-time addresses of a file in a process.
    pub(crate) fn bias(&mut self, pid: u32, file: FileId, files: &HashSet<FileId>) -> Option<u64> {
        let known = |this: &Self, pid| {
            this.processes.get(&pid).and_then(|process| process.biases.get(&file).copied())
        };
        if known(self, pid).is_none() {
            self.look_at_addresses(pid, files);
        }
        if let Some(bias) = known(self, pid) {
            return Some(bias);
        }
        self.catch_up();
        let told = self.stacks.bias(pid, file);
        told.or_else(|| {
            let other = self.stand_in(file)?;
            known(self, other).or_else(|| self.stacks.bias(other, file))
        })
    }

    /// A process with this file. One that was never seen was forked and has it where its parent has.
    fn stand_in(&self, file: FileId) -> Option<u32> {
        let looked_at = self.processes.iter().find(|(_, process)| process.biases.contains_key(&file));
        looked_at.map(|(pid, _)| *pid).or_else(|| self.stacks.process_with(file))
    }

    /// The process whose code is looked at for another one.
    fn known_as(&self, pid: u32, file: FileId) -> u32 {
        match self.stacks.knows(pid) {
            true => pid,
            false => self.stand_in(file).filter(|_| !nopal_proc::Process::is_alive(pid)).unwrap_or(pid),
        }
    }

    /// What is at an address of a process with this file.
    pub(crate) fn code_at(&self, pid: u32, file: FileId, address: u64) -> Option<&CodeRange> {
        self.stacks.code_at(self.known_as(pid, file), address)
    }

    /// Another number whenever the code of a process was looked at again.
    pub(crate) fn look_of(&self, pid: u32, file: FileId) -> u64 {
        self.stacks.look_of(self.known_as(pid, file))
    }

    /// Appends where a thread was: a site's address in its process, and those of the callers if there is a copy of the stack.
    pub(crate) fn unwind(
        &mut self,
        pid: u32,
        file: FileId,
        address: u64,
        stack: Option<StackCopy<'_>>,
        max: usize,
        into: &mut Vec<u64>,
    ) {
        let Some(StackCopy { ip, bp, sp, bytes }) = stack else {
            into.push(address);
            return;
        };
        let pid = self.known_as(pid, file);
        // Who has returned is in the caller, and was in the function of the site.
        into.extend(ip.map(|_| address));
        let top = StackTop { ip: ip.unwrap_or(address), sp, bp, bytes };
        let (n_before, max) = (into.len(), max.saturating_sub(usize::from(ip.is_some())));
        if !self.stacks.unwind(pid, top, max, into) && self.catch_up() {
            into.truncate(n_before);
            self.stacks.unwind(pid, top, max, into);
        }
    }
}

/// The name of a process or thread, by its file in `/proc`.
pub(crate) fn name_at(path: &str) -> Option<Vec<u8>> {
    let mut name = fs::read(path).ok()?;
    name.retain(|byte| *byte != b'\n' && *byte != 0);
    Some(name)
}
