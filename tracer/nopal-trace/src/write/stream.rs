//! The stream of one CPU: fills packets, writes them, keeps the index.
//!
//! A packet, all little endian, sizes in bits:
//! ```text
//!   0 u32 magic  4 u8[16] uuid  20 u32 stream_id  24 u64 stream_instance_id
//!  32 u64 timestamp_begin  40 u64 timestamp_end  48 u64 content_size  56 u64 packet_size
//!  64 u64 packet_seq_num  72 u64 events_discarded  80 u32 cpu_id
//!  84 events: header (4, 6, 13 or 14 bytes), context, fields, without padding
//! ```
//!
//! How a packet gets into the file is in `place.rs`, which file that is in `files.rs`.

use super::files::{Entry, Files, LetGo};
use super::payload::Payload;
use super::place::{self, HEADER_BYTES};
use super::{Shared, TypeId, TypeInfo};
use crate::error::Error;
use crate::stream_part;
use std::ops::Range;
use std::sync::Arc;

/// Ids 0 to 30 fit the compact header, 31 is its escape.
pub(super) const MAX_COMPACT_TYPES: usize = 31;
const MAGIC: u32 = 0xc1fc_1fc1;
/// An event larger than this is refused.
const MAX_EVENT_BYTES: usize = 64 << 20;
/// A packet of events among which some were lost may grow to this, so that one packet tells of the loss; not where the size
/// of files is limited.
const MAX_LOSS_BYTES: usize = 64 << 20;

/// Writes the events of one CPU in the order of time.
#[derive(Debug)]
pub struct StreamWriter {
    shared: Arc<Shared>,
    cpu: u32,
    /// Tells streams of one CPU apart.
    part: u32,
    types: Vec<Arc<TypeInfo>>,
    files: Option<Files>,
    /// The packet being filled, its header reserved; empty if there is none.
    packet: Vec<u8>,
    n_events: u64,
    begin_ns: u64,
    /// Of the last event, or the end of the last packet.
    last_ns: u64,
    n_discarded: u64,
    /// Told of, and in no packet yet.
    loss: Option<Loss>,
    /// As the last packet in the file says.
    n_discarded_told: u64,
    /// In the packets that are in the file.
    n_events_written: u64,
    n_packets: u64,
}

/// Events that were lost, and when.
#[derive(Debug, Clone, Copy)]
struct Loss {
    count: u64,
    from_ns: u64,
    to_ns: u64,
    /// The packet being filled is the one that tells of it.
    is_open: bool,
}

/// What a packet says of itself.
#[derive(Debug, Clone, Copy)]
struct Head {
    begin_ns: u64,
    end_ns: u64,
    content_bytes: u64,
    packet_bytes: u64,
    n_discarded: u64,
}

impl StreamWriter {
    pub(super) fn new(shared: Arc<Shared>, cpu: u32, part: u32) -> Result<Self, Error> {
        Ok(StreamWriter {
            shared,
            cpu,
            part,
            types: Vec::new(),
            files: None,
            packet: Vec::new(),
            n_events: 0,
            begin_ns: 0,
            last_ns: 0,
            n_discarded: 0,
            loss: None,
            n_discarded_told: 0,
            n_events_written: 0,
            n_packets: 0,
        })
    }

    /// Appends an event whose context and fields are packed already. Its time may not be before that of the event before
    /// it; if it is, it gets the same.
    #[inline]
    pub fn append(&mut self, ty: TypeId, ns: u64, context: &[u8], payload: &[u8]) -> Result<(), Error> {
        self.append_with(ty, ns, context, |out| {
            out.raw(payload);
        })
    }

    /// Appends an event whose fields `fill` packs right into the packet.
    #[inline]
    pub fn append_with(
        &mut self,
        ty: TypeId,
        ns: u64,
        context: &[u8],
        fill: impl FnOnce(&mut Payload<'_>),
    ) -> Result<(), Error> {
        let start = self.begin_event(ty, ns, context)?;
        let payload_at = self.packet.len();
        fill(&mut Payload::new(&mut self.packet));
        let problem = self.problem(ty, context, &self.packet[payload_at..]);
        self.end_event(ty, start, ns, problem)
    }

    /// The same for many events of one kind: `pack` is known to append what the event's type lays out, which only debug
    /// builds look at. If it fails there is no event; what it gives is given back.
    #[inline]
    pub fn append_packed<T, E>(
        &mut self,
        ty: TypeId,
        ns: u64,
        context: &[u8],
        pack: impl FnOnce(&mut Vec<u8>) -> Result<T, E>,
    ) -> Result<Result<T, E>, Error> {
        let start = self.begin_event(ty, ns, context)?;
        let payload_at = self.packet.len();
        let packed = pack(&mut self.packet);
        if packed.is_err() {
            self.packet.truncate(start);
            return Ok(packed);
        }
        debug_assert_eq!(self.problem(ty, context, &self.packet[payload_at..]), None);
        self.end_event(ty, start, ns, None)?;
        Ok(packed)
    }

    /// Everything before the fields. Gives where the event, and the packet if it is its first, begin.
    #[inline]
    fn begin_event(&mut self, ty: TypeId, ns: u64, context: &[u8]) -> Result<usize, Error> {
        if self.loss.is_some() || self.packet.len() + context.len() >= self.shared.packet_bytes {
            // If the packet cannot be written, this event is lost with it.
            self.make_room(ns).inspect_err(|_| self.n_discarded = self.n_discarded.wrapping_add(1))?;
        }
        if ty.0 as usize >= self.types.len() {
            self.types = self.shared.lock().types.clone();
            if ty.0 as usize >= self.types.len() {
                return Err(Error::NoSuchEventType { id: ty.0 });
            }
        }
        let ns = ns.max(self.last_ns);
        let start = self.packet.len();
        if start == 0 {
            self.packet.resize(HEADER_BYTES, 0);
            self.begin_ns = ns;
        }
        let clock = if start == 0 { ns } else { self.last_ns };
        self.header(ty.0, ns, ns - clock);
        self.packet.extend_from_slice(context);
        Ok(start)
    }

    /// What is wrong with an event's bytes.
    fn problem(&self, ty: TypeId, context: &[u8], payload: &[u8]) -> Option<String> {
        let layout = &self.types[ty.0 as usize].layout;
        if self.shared.context.measure(context) != Some(context.len()) {
            Some(format!("{} bytes are not its context", context.len()))
        } else if layout.measure(payload) != Some(payload.len()) {
            Some(format!("{} bytes are not its fields", payload.len()))
        } else {
            None
        }
    }

    #[inline]
    fn end_event(&mut self, ty: TypeId, start: usize, ns: u64, problem: Option<String>) -> Result<(), Error> {
        let header = if start == 0 { HEADER_BYTES } else { 0 };
        let bytes = self.packet.len() - start - header;
        if problem.is_some() || bytes > MAX_EVENT_BYTES {
            self.packet.truncate(start);
            let event = self.types[ty.0 as usize].name.clone();
            return Err(match problem {
                Some(reason) => Error::Payload { event, reason },
                None => Error::TooLarge { event, bytes },
            });
        }
        self.last_ns = ns.max(self.last_ns);
        self.n_events += 1;
        Ok(())
    }

    #[inline]
    fn header(&mut self, id: u32, ns: u64, since_last: u64) {
        if self.shared.is_large {
            if id < 65535 && since_last < 1 << 32 {
                self.packet.extend_from_slice(&(id as u16).to_le_bytes());
                self.packet.extend_from_slice(&(ns as u32).to_le_bytes());
                return;
            }
            self.packet.extend_from_slice(&u16::MAX.to_le_bytes());
        } else {
            if id < 31 && since_last < 1 << 27 {
                let word = id | (ns as u32) << 5;
                self.packet.extend_from_slice(&word.to_le_bytes());
                return;
            }
            self.packet.push(31);
        }
        self.packet.extend_from_slice(&id.to_le_bytes());
        self.packet.extend_from_slice(&ns.to_le_bytes());
    }

    /// Before an event at `ns`: writes the packet if it is full or if a known loss begins or ends here.
    #[cold]
    fn make_room(&mut self, ns: u64) -> Result<(), Error> {
        match self.loss {
            Some(loss) if ns > loss.to_ns => self.settle()?,
            Some(loss) if ns >= loss.from_ns && !loss.is_open => self.open_loss()?,
            Some(_) | None => {}
        }
        let max_bytes = match self.loss {
            Some(Loss { is_open: true, .. }) if self.shared.limit.is_none() => MAX_LOSS_BYTES,
            _ => self.shared.packet_bytes,
        };
        if self.packet.len() >= max_bytes { self.flush_packet(self.last_ns) } else { Ok(()) }
    }

    /// States that `count` events were lost in a span of time, before any event after its start is appended. Readers see
    /// the loss in exactly that span: a packet begins with it and another after it.
    pub fn discarded(&mut self, count: u64, span: Range<u64>) -> Result<(), Error> {
        if count == 0 {
            return Ok(());
        }
        let to_ns = span.end.max(span.start);
        match &mut self.loss {
            Some(loss) if span.start <= loss.to_ns => {
                loss.count = loss.count.wrapping_add(count);
                loss.from_ns = loss.from_ns.min(span.start);
                loss.to_ns = loss.to_ns.max(to_ns);
                return Ok(());
            }
            Some(_) => self.settle()?,
            None => {}
        }
        self.loss = Some(Loss { count, from_ns: span.start, to_ns, is_open: false });
        Ok(())
    }

    /// Ends the packet before the loss, so that the next one tells of it: readers count from the end of the packet
    /// before, and the first has none before it. Where events of the span are in the packet already, it tells itself.
    fn open_loss(&mut self) -> Result<(), Error> {
        let Some(loss) = &mut self.loss else { return Ok(()) };
        loss.is_open = true;
        let from_ns = loss.from_ns.max(self.last_ns);
        let is_late = loss.from_ns < self.last_ns && !self.packet.is_empty();
        if !is_late && (!self.packet.is_empty() || self.n_packets == 0) {
            self.start_packet(from_ns);
            self.flush_packet(from_ns)?;
        }
        self.start_packet(from_ns);
        Ok(())
    }

    /// Tells of a loss, with the packet that is written by that.
    fn settle(&mut self) -> Result<(), Error> {
        let Some(loss) = self.loss else { return Ok(()) };
        let opened = if loss.is_open { Ok(()) } else { self.open_loss() };
        self.loss = None;
        self.n_discarded = self.n_discarded.wrapping_add(loss.count);
        opened?;
        self.start_packet(self.last_ns);
        self.flush_packet(loss.to_ns)
    }

    fn start_packet(&mut self, ns: u64) {
        if self.packet.is_empty() {
            self.packet.resize(HEADER_BYTES, 0);
            self.begin_ns = ns;
        }
    }

    /// Writes what there is, as of `now_ns`: call it from time to time so that readers and crashes find recent events in
    /// the file. Does nothing if nothing is waiting.
    pub fn flush(&mut self, now_ns: u64) -> Result<(), Error> {
        self.settle()?;
        self.flush_packet(now_ns)
    }

    /// Whether events or losses are waiting for their packet to be written.
    pub fn is_dirty(&self) -> bool {
        !self.packet.is_empty() || self.loss.is_some()
    }

    /// Bytes of packets in the files.
    pub fn bytes_written(&self) -> u64 {
        self.files.as_ref().map_or(0, |files| files.n_bytes)
    }

    /// What went with the oldest files.
    pub fn let_go(&self) -> LetGo {
        self.files.as_ref().map_or(LetGo::default(), |files| files.let_go)
    }

    /// Events lost so far, those included whose packet could not be written.
    pub fn events_discarded(&self) -> u64 {
        self.n_discarded.wrapping_add(self.loss.map_or(0, |loss| loss.count))
    }

    /// Events that a reader of the files finds.
    pub fn events_written(&self) -> u64 {
        self.n_events_written - self.let_go().n_events
    }

    /// Packets, those included that went with the oldest files.
    pub fn packets_written(&self) -> u64 {
        self.n_packets
    }

    /// Lost events that no packet in the file tells of.
    pub fn untold_discarded(&self) -> u64 {
        self.events_discarded().wrapping_sub(self.n_discarded_told)
    }

    /// Writes the last packet.
    pub fn finish(mut self) -> Result<(), Error> {
        self.flush(self.last_ns)
    }

    fn flush_packet(&mut self, end_ns: u64) -> Result<(), Error> {
        if self.packet.is_empty() {
            return Ok(());
        }
        let end_ns = end_ns.max(self.last_ns);
        let result = self.write_packet(end_ns);
        self.last_ns = end_ns;
        self.packet.clear();
        match result {
            Ok(()) => {
                self.n_packets += 1;
                self.n_events_written += self.n_events;
                self.n_discarded_told = self.n_discarded;
            }
            // They are lost now, and the next packet that can be written says so.
            Err(_) => self.n_discarded = self.n_discarded.wrapping_add(self.n_events),
        }
        self.n_events = 0;
        result
    }

    fn instance(&self) -> u64 {
        stream_part::instance(self.part, self.cpu)
    }

    fn header_bytes(&self, head: &Head) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            header[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(&MAGIC.to_le_bytes());
        put(&self.shared.uuid);
        put(&0u32.to_le_bytes());
        put(&self.instance().to_le_bytes());
        let Head { begin_ns, end_ns, content_bytes, packet_bytes, n_discarded } = *head;
        for value in [begin_ns, end_ns, content_bytes * 8, packet_bytes * 8, self.n_packets, n_discarded] {
            put(&value.to_le_bytes());
        }
        put(&self.cpu.to_le_bytes());
        header
    }

    fn write_packet(&mut self, end_ns: u64) -> Result<(), Error> {
        let mut files = match self.files.take() {
            Some(files) => files,
            None => Files::open(&self.shared, format!("channel{}_{}", self.part, self.cpu))?,
        };
        let result = self.write_to(&mut files, end_ns);
        self.files = Some(files);
        result
    }

    fn write_to(&mut self, files: &mut Files, end_ns: u64) -> Result<(), Error> {
        let content_bytes = self.packet.len() as u64;
        if files.is_full(content_bytes) {
            files.next(&self.shared)?;
            if self.n_discarded != self.n_discarded_told {
                self.write_empty(files)?;
            }
        }
        let packet_bytes = place::end(files.stream_bytes, content_bytes) - files.stream_bytes;
        let n_discarded = self.n_discarded;
        let head = Head { begin_ns: self.begin_ns, end_ns, content_bytes, packet_bytes, n_discarded };
        let header = self.header_bytes(&head);
        self.packet[..HEADER_BYTES].copy_from_slice(&header);
        self.packet.resize(packet_bytes as usize, 0);
        // Holds the place of this packet: it has no event and tells of no loss.
        let holder = |packet_bytes| self.header_bytes(&self.empty(packet_bytes));
        files.put(&self.packet, content_bytes, self.entry(&head), &holder)?;
        files.count(self.n_events, n_discarded.wrapping_sub(self.n_discarded_told));
        Ok(())
    }

    /// A file that begins with a loss tells from where on to count: the file before it may be gone one day.
    fn write_empty(&mut self, files: &mut Files) -> Result<(), Error> {
        let head = self.empty(HEADER_BYTES as u64);
        let holder = |_| self.header_bytes(&head);
        files.put(&self.header_bytes(&head), HEADER_BYTES as u64, self.entry(&head), &holder)?;
        self.n_packets += 1;
        Ok(())
    }

    /// A packet without events at the place of the one being filled.
    fn empty(&self, packet_bytes: u64) -> Head {
        Head {
            begin_ns: self.begin_ns,
            end_ns: self.begin_ns,
            content_bytes: HEADER_BYTES as u64,
            packet_bytes,
            n_discarded: self.n_discarded_told,
        }
    }

    fn entry(&self, head: &Head) -> Entry {
        Entry {
            begin_ns: head.begin_ns,
            end_ns: head.end_ns,
            n_discarded: head.n_discarded,
            instance: self.instance(),
            seq_num: self.n_packets,
        }
    }
}

impl Drop for StreamWriter {
    /// A stream that nobody finished still leaves its events.
    fn drop(&mut self) {
        let _ = self.flush(self.last_ns);
    }
}
