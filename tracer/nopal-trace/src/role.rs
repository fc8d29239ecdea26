//! What a value means to the reader itself: numbers of events and streams, times, sizes, counters.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    EventId,
    /// Holds the low bits of the clock.
    Clock,
    Magic,
    /// The UUID of the metadata.
    Uuid,
    StreamId,
    StreamInstance,
    TimestampBegin,
    TimestampEnd,
    ContentSize,
    PacketSize,
    EventsDiscarded,
    PacketSeqNum,
    CpuId,
}

/// What one field means; CTF 2 may give it several roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Roles(u16);

impl Roles {
    pub const NONE: Roles = Roles(0);

    #[must_use]
    pub fn with(self, role: Role) -> Roles {
        Roles(self.0 | 1 << role as u16)
    }

    #[inline]
    pub fn has(self, role: Role) -> bool {
        self.0 & 1 << role as u16 != 0
    }

    #[inline]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// What babeltrace2 too keeps to itself.
    pub(crate) fn is_bookkeeping(self) -> bool {
        [
            Role::TimestampBegin,
            Role::TimestampEnd,
            Role::ContentSize,
            Role::PacketSize,
            Role::EventsDiscarded,
            Role::PacketSeqNum,
        ]
        .into_iter()
        .any(|role| self.has(role))
    }
}

impl From<Role> for Roles {
    fn from(role: Role) -> Self {
        Roles::NONE.with(role)
    }
}
