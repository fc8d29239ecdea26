//! One packet of a stream: its bytes, and what its header and context say. Knows nothing of events.

use super::class::StreamClass;
use super::decode::{Content, Damage, Scratch, Visitor, run};
use super::plan::{Kind, Step};
use super::trace::Trace;
use super::value_text::TextPrinter;
use crate::model::Enum;
use crate::role::Role;
use crate::stream_part;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: u64 = 0xc1fc_1fc1;
/// Recorders write packets of some hundred kilobytes. Larger ones are counted while they are in memory, as one file
/// with holes could ask for any amount. (Mapping them would be no way out: a file that is cut while it is read would end
/// the reader.)
const LARGE_BYTES: u64 = 8 << 20;
const MAX_LARGE_BYTES: u64 = 1 << 30;
/// A packet's header and context are found within this.
const MAX_HEAD_BYTES: u64 = 1 << 20;

/// A packet whose bytes are at hand.
#[derive(Debug)]
pub(crate) struct Packet {
    bytes: Vec<u8>,
    _large: Option<Large>,
    pub head: Head,
    /// `{ cpu_id = 1 }, `, or nothing.
    pub text: Vec<u8>,
    /// Values in the packet's header and context that events refer to.
    pub scratch: Option<Box<Scratch>>,
}

/// A large packet in memory, as long as it is there.
#[derive(Debug)]
struct Large {
    bytes: u64,
    all: Arc<AtomicU64>,
}

impl Large {
    /// Fails if there is no room beside the others.
    fn count(bytes: u64, all: &Arc<AtomicU64>) -> Result<Option<Large>, PacketFailure> {
        if bytes <= LARGE_BYTES {
            return Ok(None);
        }
        let large = Large { bytes, all: Arc::clone(all) };
        let before = all.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > MAX_LARGE_BYTES {
            let reason = format!(
                "its {bytes} bytes do not fit beside those of other packets into the {MAX_LARGE_BYTES} that are kept \
                 in memory"
            );
            return Err(PacketFailure::Damaged(reason));
        }
        Ok(Some(large))
    }
}

impl Drop for Large {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a packet says of itself; sizes in bits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    pub magic: Option<u64>,
    /// Whether it bears another UUID than the metadata.
    pub is_of_other: bool,
    pub stream_id: Option<u64>,
    pub instance: Option<u64>,
    pub begin: Option<u64>,
    pub end: Option<u64>,
    pub content_bits: Option<u64>,
    pub packet_bits: Option<u64>,
    pub discarded: Option<u64>,
    /// Width of the discarded counter.
    pub discarded_bits: u32,
    pub seq_num: Option<u64>,
    pub cpu: Option<u64>,
    /// Whether its events came by nopal's kernel door.
    pub is_by_kernel: bool,
    /// Where the packet's context starts.
    pub context_at: u64,
    /// Where the first event starts.
    pub events_at: u64,
    /// Place of the stream's class in the trace.
    pub class: usize,
}

#[derive(Debug)]
pub(crate) enum PacketFailure {
    Io(io::Error),
    /// The file ends before the packet does.
    Truncated,
    Damaged(String),
}

impl Packet {
    #[inline]
    pub(crate) fn content(&self) -> Content<'_> {
        let end_bits = self.head.content_bits.unwrap_or(0).min(self.bytes.len() as u64 * 8);
        Content { bytes: &self.bytes, end_bits }
    }
}

/// Reads what the packet at `offset` says of itself. `packet_bits` and `content_bits` are always given afterwards.
pub(crate) fn read_head(
    trace: &Trace,
    file: &File,
    offset: u64,
    file_bytes: u64,
    scratch: &mut Scratch,
) -> Result<Head, PacketFailure> {
    let left = file_bytes - offset;
    let mut size = left.min(512);
    loop {
        let mut bytes = vec![0; size as usize];
        read_exactly(file, &mut bytes, offset)?;
        match parse_head(trace, &bytes, scratch) {
            Ok(head) => return check_head(head, left),
            Err(HeadFailure::Short) if size < left.min(MAX_HEAD_BYTES) => size = (size * 8).min(left),
            Err(HeadFailure::Short) if size == left => return Err(PacketFailure::Truncated),
            Err(HeadFailure::Short) => {
                return Err(PacketFailure::Damaged("its context is larger than 1 MiB".to_owned()));
            }
            Err(HeadFailure::Damaged(reason)) => return Err(PacketFailure::Damaged(reason)),
        }
    }
}

/// The file may have become shorter since its size was asked for.
fn read_exactly(file: &File, bytes: &mut [u8], offset: u64) -> Result<(), PacketFailure> {
    file.read_exact_at(bytes, offset).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => PacketFailure::Truncated,
        _ => PacketFailure::Io(e),
    })
}

enum HeadFailure {
    Short,
    Damaged(String),
}

impl From<Damage> for HeadFailure {
    fn from(damage: Damage) -> Self {
        match damage {
            Damage::Short | Damage::NoNul | Damage::Length => HeadFailure::Short,
            Damage::Variant | Damage::Number | Damage::EventId(_) => HeadFailure::Damaged(damage.to_string()),
        }
    }
}

fn parse_head(trace: &Trace, bytes: &[u8], scratch: &mut Scratch) -> Result<Head, HeadFailure> {
    let content = Content { bytes, end_bits: bytes.len() as u64 * 8 };
    let mut visitor = HeadVisitor { head: Head::default(), uuid: trace.uuid };
    let mut at = 0;
    if let Some(scope) = &trace.packet_header {
        at = run(&scope.plan, content, at, scratch, &mut visitor)?;
    }
    if visitor.head.magic.is_some_and(|magic| magic != MAGIC) {
        return Err(HeadFailure::Damaged("it does not start with CTF's magic number".to_owned()));
    }
    if visitor.head.is_of_other {
        return Err(HeadFailure::Damaged("its UUID is not that of the metadata".to_owned()));
    }
    let class = class_of(trace, visitor.head.stream_id).ok_or_else(|| {
        let id = visitor.head.stream_id.unwrap_or(0);
        HeadFailure::Damaged(format!("stream {id} is not in the metadata"))
    })?;
    let context_at = at;
    if let Some(scope) = &trace.streams[class].packet_context {
        at = run(&scope.plan, content, at, scratch, &mut visitor)?;
    }
    let is_by_kernel = trace.is_ours && visitor.head.instance.is_some_and(stream_part::is_by_kernel);
    Ok(Head { context_at, events_at: at, class, is_by_kernel, ..visitor.head })
}

fn class_of(trace: &Trace, id: Option<u64>) -> Option<usize> {
    match id {
        Some(id) => trace.streams.iter().position(|s| s.id == id),
        None if trace.streams.len() == 1 => Some(0),
        // CTF 2 has it that a packet without a number is of stream 0.
        None if trace.is_ctf2 => trace.streams.iter().position(|s| s.id == 0),
        None => None,
    }
}

fn check_head(mut head: Head, left: u64) -> Result<Head, PacketFailure> {
    let left_bits = left.saturating_mul(8);
    let packet = head.packet_bits.or(head.content_bits).unwrap_or(left_bits);
    let content = head.content_bits.unwrap_or(packet);
    if !packet.is_multiple_of(8) || packet == 0 || content > packet || content < head.events_at {
        let reason = format!("its sizes make no sense (content {content} bits, packet {packet} bits)");
        return Err(PacketFailure::Damaged(reason));
    }
    if packet > left_bits {
        return Err(PacketFailure::Truncated);
    }
    head.packet_bits = Some(packet);
    head.content_bits = Some(content);
    Ok(head)
}

/// Where a packet's bytes may go.
#[derive(Debug)]
pub(crate) struct Memory<'a> {
    /// May be used again.
    pub spare: Option<Arc<Packet>>,
    /// What large packets take, of the whole recording.
    pub n_large_bytes: &'a Arc<AtomicU64>,
}

/// Fetches the bytes of the packet at `offset`.
pub(crate) fn read_packet(
    class: &StreamClass,
    file: &File,
    offset: u64,
    head: Head,
    scratch: &mut Scratch,
    n_shared_slots: usize,
    memory: Memory<'_>,
) -> Result<Packet, PacketFailure> {
    let size = head.content_bits.unwrap_or(0).div_ceil(8);
    let mut bytes = memory.spare.and_then(Arc::into_inner).map(|packet| packet.bytes).unwrap_or_default();
    if bytes.capacity() as u64 > LARGE_BYTES {
        bytes = Vec::new();
    }
    let _large = Large::count(size, memory.n_large_bytes)?;
    bytes.resize(size as usize, 0);
    read_exactly(file, &mut bytes, offset)?;
    let mut packet = Packet { bytes, _large, head, text: Vec::new(), scratch: None };
    if let Some(scope) = &class.packet_context {
        packet.text = context_text(class, &packet, scope.plan.steps.as_slice(), scratch);
    }
    if n_shared_slots > 0 {
        packet.scratch = Some(Box::new(scratch.clone()));
    }
    Ok(packet)
}

/// The packet's context as it stands in every line, made once per packet.
fn context_text(class: &StreamClass, packet: &Packet, steps: &[Step], scratch: &mut Scratch) -> Vec<u8> {
    if steps.iter().all(|s| s.is_hidden || matches!(s.kind, Kind::Align)) {
        return Vec::new();
    }
    let Some(scope) = &class.packet_context else { return Vec::new() };
    let mut text = b"{".to_vec();
    let mut printer = TextPrinter::new(&mut text);
    let at = packet.head.context_at;
    if run(&scope.plan, packet.content(), at, scratch, &mut printer).is_err() {
        return Vec::new();
    }
    text.extend_from_slice(b" }, ");
    text
}

/// Picks out of a packet's header and context what the reader needs.
struct HeadVisitor {
    head: Head,
    /// Of the metadata.
    uuid: Option<[u8; 16]>,
}

impl HeadVisitor {
    fn take(&mut self, at: &Step, raw: u64, bits: u32) {
        if at.roles.is_none() {
            return;
        }
        let head = &mut self.head;
        let mut set = |role: Role, place: fn(&mut Head) -> &mut Option<u64>| {
            if at.roles.has(role) {
                *place(head) = Some(raw);
            }
        };
        set(Role::Magic, |head| &mut head.magic);
        set(Role::StreamId, |head| &mut head.stream_id);
        set(Role::StreamInstance, |head| &mut head.instance);
        set(Role::TimestampBegin, |head| &mut head.begin);
        set(Role::TimestampEnd, |head| &mut head.end);
        set(Role::ContentSize, |head| &mut head.content_bits);
        set(Role::PacketSize, |head| &mut head.packet_bits);
        set(Role::EventsDiscarded, |head| &mut head.discarded);
        set(Role::PacketSeqNum, |head| &mut head.seq_num);
        set(Role::CpuId, |head| &mut head.cpu);
        if at.roles.has(Role::EventsDiscarded) {
            head.discarded_bits = if matches!(at.kind, Kind::Variable { .. }) { 64 } else { bits };
        }
    }
}

impl Visitor for HeadVisitor {
    fn integer(&mut self, at: &Step, _: u64, raw: u64, bits: u32, _: bool, _: u8) {
        self.take(at, raw, bits);
    }
    fn enumeration(&mut self, at: &Step, _: u64, raw: u64, table: &Enum) {
        self.take(at, raw, table.integer.bits);
    }
    fn blob(&mut self, at: &Step, _: u64, bytes: &[u8]) {
        if at.roles.has(Role::Uuid) {
            self.head.is_of_other = self.uuid.is_some_and(|uuid| uuid != bytes);
        }
    }
}
