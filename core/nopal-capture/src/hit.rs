//! A hit as a consumer gets it, with its time and its task, and what was lost between hits.

/// Who made a hit. The user door has the numbers of the process's own namespace, the kernel door those of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    pub tid: u32,
    pub pid: u32,
}

/// One stream of records in the order of their times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId {
    /// Which of the user door's rings: processes with other credentials have another. 0 for the kernel door.
    pub ring: u32,
    pub cpu: u32,
    pub kind: StreamKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamKind {
    Rseq,
    Locked,
    Kernel,
}

/// One hit of a wanted site.
#[derive(Debug, Clone, Copy)]
pub struct Hit<'a> {
    pub stream: StreamId,
    /// The number that its [`Wanted`](crate::Wanted) has.
    pub event: u32,
    /// CLOCK_MONOTONIC.
    pub ns: u64,
    pub task: Task,
    pub payload: &'a [u8],
}

/// Hits that were lost, and when, as CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    pub stream: StreamId,
    pub count: u64,
    pub first_ns: u64,
    pub last_ns: u64,
}

/// What a stream gives, in its order: a loss comes before the hits that are later than its start.
#[derive(Debug)]
pub enum Came<'a> {
    Hit(Hit<'a>),
    Loss(Loss),
}
