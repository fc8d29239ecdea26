//! What the addresses of recorded stacks are called, for those who print them. Opens no file: names come from others.

use crate::code::{Code, CodeTable};

/// The context field that is a stack.
pub(crate) const STACK: &str = "ustack";

/// Says what is in files.
pub trait FrameNames: std::fmt::Debug + Send + Sync {
    /// The function that an address is in, and how far behind its beginning; nothing if the file is not there any more, or is
    /// another one.
    fn name(&self, code: &Code, address: u64) -> Option<(String, u64)>;
}

/// The names of one event's addresses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventFrames<'a> {
    names: &'a dyn FrameNames,
    table: &'a CodeTable,
    ns: i64,
}

impl<'a> EventFrames<'a> {
    /// Of an event at a time; if the recording says where its code was.
    pub(crate) fn new(names: &'a dyn FrameNames, table: &'a CodeTable, ns: i64) -> Option<EventFrames<'a>> {
        (!table.is_empty()).then_some(EventFrames { names, table, ns })
    }

    /// `main+12`. `n_inner`: how many frames are further in.
    pub(crate) fn name(&self, pid: Option<u64>, n_inner: u64, address: u64) -> Option<String> {
        // A caller goes on behind its call, which may be the last instruction of its function: the byte before is the call's.
        let within = address.checked_sub(u64::from(n_inner > 0))?;
        let code = self.table.at(i64::try_from(pid?).ok()?, self.ns, within)?;
        let (name, offset) = self.names.name(code, within)?;
        Some(format!("{name}+{}", offset + (address - within)))
    }
}
