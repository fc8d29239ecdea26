//! Where a length or a selector is: how metadata of CTF 2 names a field that was decoded before (CTF2-SPEC-2.0, 5.3.1).

/// One of the structures that an event and its packet are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    PacketHeader,
    PacketContext,
    EventHeader,
    StreamContext,
    EventContext,
    EventFields,
}

impl ScopeKind {
    /// What absolute references of TSDL begin with.
    pub(crate) const fn prefix(self) -> &'static [&'static str] {
        match self {
            ScopeKind::PacketHeader => &["trace", "packet", "header"],
            ScopeKind::PacketContext => &["stream", "packet", "context"],
            ScopeKind::EventHeader => &["stream", "event", "header"],
            ScopeKind::StreamContext => &["stream", "event", "context"],
            ScopeKind::EventContext => &["event", "context"],
            ScopeKind::EventFields => &["event", "fields"],
        }
    }

    /// Whether several events share its values.
    pub(crate) const fn is_shared(self) -> bool {
        !matches!(self, ScopeKind::EventContext | ScopeKind::EventFields)
    }

    /// As CTF 2 names it where a location starts.
    pub(crate) const fn origin(self) -> &'static str {
        match self {
            ScopeKind::PacketHeader => "packet-header",
            ScopeKind::PacketContext => "packet-context",
            ScopeKind::EventHeader => "event-record-header",
            ScopeKind::StreamContext => "event-record-common-context",
            ScopeKind::EventContext => "event-record-specific-context",
            ScopeKind::EventFields => "event-record-payload",
        }
    }

    pub(crate) fn from_origin(name: &str) -> Option<ScopeKind> {
        use ScopeKind::{EventContext, EventFields, EventHeader, PacketContext, PacketHeader, StreamContext};
        [PacketHeader, PacketContext, EventHeader, StreamContext, EventContext, EventFields]
            .into_iter()
            .find(|kind| kind.origin() == name)
    }
}

/// The way to a field that comes before the one that needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Where the way starts; `None`: at the innermost struct around the field that needs it.
    pub(crate) origin: Option<ScopeKind>,
    /// Names of members; `None` for the struct around the one that the way has come to.
    pub(crate) path: Vec<Option<String>>,
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut dot = "";
        if let Some(origin) = self.origin {
            f.write_str(origin.origin())?;
            dot = ".";
        }
        for part in &self.path {
            write!(f, "{dot}{}", part.as_deref().unwrap_or("(parent)"))?;
            dot = ".";
        }
        Ok(())
    }
}
