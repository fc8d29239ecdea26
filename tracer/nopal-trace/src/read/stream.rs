//! Walks the files of one stream: packet after packet, event after event, with the clock followed and losses noted.

use super::class::{HeaderForm, StreamClass};
use super::decode::{Content, Damage, Scratch, Visitor, mask, run, skip};
use super::event::{Event, Found};
use super::files::StreamFiles;
use super::packet::{Head, Memory, Packet, PacketFailure, read_head, read_packet};
use super::plan::Step;
use super::recording::Recording;
use super::report::{Loss, Range, Report};
use super::trace::Trace;
use crate::error::Error;
use crate::model::Enum;
use crate::note::Note;
use crate::role::Role;
use nopal_files::foreign::{self, ForeignError};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

/// A stream's place among the others: by trace, class and instance.
pub(super) type Rank = (Option<[u8; 16]>, u64, u64, usize);

/// How a packet was gone through.
enum Walked {
    All,
    /// Somebody has had enough.
    Stopped,
    /// The rest comes after the range of time.
    Beyond,
}

#[derive(Debug)]
pub(crate) struct StreamCursor<'r> {
    recording: &'r Recording,
    trace: &'r Trace,
    stream: &'r StreamFiles,
    /// The place of the file being read; of those before it, how large they were.
    file_idx: usize,
    n_bytes_before: u64,
    /// None of one that was gone when it was to be read.
    file: Option<File>,
    file_bytes: u64,
    /// Of the next packet.
    offset: u64,
    pub packet: Option<Arc<Packet>>,
    class: Option<&'r StreamClass>,
    /// Of the next event in the packet.
    at: u64,
    clock: u64,
    last: Option<Head>,
    range: Range,
    /// Events found so far, whatever their time.
    n_found: u64,
    /// Of these, events that were given to somebody by [`StreamCursor::for_each`].
    n_given: u64,
    pub report: Report,
    /// A loss that nobody has asked for yet.
    pub fresh: Option<Loss>,
    scratch: Box<Scratch>,
}

/// Packets in the wrong place that are told one by one.
const MAX_NOTES: usize = 100;

impl<'r> StreamCursor<'r> {
    pub(super) fn open(
        recording: &'r Recording,
        stream: &'r StreamFiles,
        range: Range,
    ) -> Result<Self, Error> {
        let mut cursor = StreamCursor {
            recording,
            trace: &recording.traces[stream.trace],
            stream,
            file_idx: 0,
            n_bytes_before: 0,
            file: None,
            file_bytes: 0,
            offset: 0,
            packet: None,
            class: None,
            at: 0,
            clock: 0,
            last: None,
            range,
            n_found: 0,
            n_given: 0,
            report: Report::default(),
            fresh: None,
            scratch: Box::default(),
        };
        cursor.open_file()?;
        Ok(cursor)
    }

    fn path(&self) -> &'r Path {
        &self.stream.paths[self.file_idx]
    }

    /// Opens the file whose turn it is. A recorder that keeps only the newest files may have taken it away meanwhile.
    fn open_file(&mut self) -> Result<(), Error> {
        let path = self.path();
        let failed = |e| Error::io(path, "open", e);
        self.offset = 0;
        self.file_bytes = 0;
        self.file = match foreign::open(path) {
            Ok(file) => {
                self.file_bytes = file.metadata().map_err(failed)?.len();
                Some(file)
            }
            Err(ForeignError::Io(e)) if self.stream.is_limited && e.kind() == ErrorKind::NotFound => {
                let reason = "the file was let go while the recording was read".to_owned();
                self.report.verdict.notes.push(Note { path: path.to_owned(), offset: None, reason });
                None
            }
            Err(e) => return Err(failed(e.into_io())),
        };
        Ok(())
    }

    /// Whether a later snapshot has the event, too; it is shown there.
    #[inline]
    fn is_repeated(&self, ns: i64) -> bool {
        self.stream.repeated_from_ns.is_some_and(|from_ns| ns >= from_ns)
    }

    fn is_last_file(&self) -> bool {
        self.file_idx + 1 == self.stream.paths.len()
    }

    /// Goes to the end of the last file.
    fn end(&mut self) {
        self.packet = None;
        self.file_idx = self.stream.paths.len() - 1;
        self.offset = self.file_bytes;
    }

    /// The stream's place among the others: by trace, class and instance.
    pub(super) fn rank(&self) -> Rank {
        let instance = self.last.as_ref().and_then(|head| head.instance).unwrap_or(0);
        (self.trace.uuid, self.class.map_or(0, |c| c.id), instance, self.stream.trace)
    }

    /// Whether its events came by nopal's kernel door, if it has any.
    pub(super) fn is_by_kernel(&self) -> Option<bool> {
        self.last.as_ref().map(|head| head.is_by_kernel)
    }

    /// When the packet ends that was read last, in nanoseconds since the epoch.
    pub(super) fn end_ns(&self) -> Option<i64> {
        Some(self.class?.clock?.ns(self.last.as_ref()?.end?))
    }

    /// The trace it is of, and how many events it has; nothing of a stream that was not read to its end.
    pub(super) fn n_all(&self) -> Option<(usize, u64)> {
        let is_at_end = self.is_last_file() && self.offset >= self.file_bytes;
        let is_whole = self.range == Range::default() && self.packet.is_none() && is_at_end;
        is_whole.then_some((self.stream.trace, self.n_found))
    }

    /// Bytes gone through, and bytes that there are.
    pub(super) fn progress(&self) -> (u64, u64) {
        let n_after = self.stream.paths.len() - 1 - self.file_idx;
        // Files of one stream are about as large as each other.
        let all = self.n_bytes_before + self.file_bytes * (n_after as u64 + 1);
        (self.n_bytes_before + self.offset.min(self.file_bytes), all)
    }

    pub(super) fn class(&self) -> Option<&'r StreamClass> {
        self.class
    }

    /// The next event, if there is one in the range of time asked for.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Found>, Error> {
        loop {
            if let (Some(packet), Some(class)) = (&self.packet, self.class) {
                let content = packet.content();
                if self.at < content.end_bits {
                    match next_event(
                        self.recording,
                        class,
                        content,
                        self.at,
                        &mut self.clock,
                        &mut self.scratch,
                    ) {
                        Ok((found, next)) => {
                            self.at = next;
                            self.n_found += 1;
                            if found.ns < self.range.from_ns {
                                continue;
                            }
                            if self.is_repeated(found.ns) {
                                self.report.verdict.n_repeated += 1;
                                continue;
                            }
                            if found.ns > self.range.to_ns {
                                self.end();
                                return Ok(None);
                            }
                            return Ok(Some(found));
                        }
                        Err(damage) => self.note_damage(damage),
                    }
                }
            }
            if !self.next_packet()? {
                return Ok(None);
            }
        }
    }

    /// Gives every event that is left of the range to `each`, until it returns false. Returns the stream's place among the others.
    pub(super) fn for_each(&mut self, mut each: impl FnMut(&Event<'_>) -> bool) -> Result<Rank, Error> {
        let mut rank = None;
        loop {
            if let (Some(packet), Some(class)) = (self.packet.take(), self.class) {
                let (n_before, walked) = (self.n_given, self.walk(&packet, class, &mut each));
                // Its memory serves the next one.
                self.packet = Some(packet);
                // As `events` has it: the first packet with an event decides.
                if self.n_given > n_before {
                    rank.get_or_insert_with(|| self.rank());
                }
                match walked {
                    Walked::All => {}
                    Walked::Stopped => break,
                    Walked::Beyond => {
                        self.end();
                        break;
                    }
                }
            }
            if !self.next_packet()? {
                break;
            }
        }
        Ok(rank.unwrap_or_else(|| self.rank()))
    }

    #[inline]
    fn walk(
        &mut self,
        packet: &Packet,
        class: &'r StreamClass,
        each: &mut impl FnMut(&Event<'_>) -> bool,
    ) -> Walked {
        let (recording, range, content) = (self.recording, self.range, packet.content());
        let (mut at, mut clock, mut n_found, mut n_given) = (self.at, self.clock, 0, 0);
        let walked = loop {
            if at >= content.end_bits {
                break Walked::All;
            }
            let (found, next) = match next_event(recording, class, content, at, &mut clock, &mut self.scratch)
            {
                Ok(next) => next,
                Err(damage) => {
                    self.at = at;
                    self.note_damage(damage);
                    break Walked::All;
                }
            };
            at = next;
            n_found += 1;
            if found.ns < range.from_ns {
                continue;
            }
            if self.is_repeated(found.ns) {
                self.report.verdict.n_repeated += 1;
                continue;
            }
            if found.ns > range.to_ns {
                break Walked::Beyond;
            }
            n_given += 1;
            if !each(&Event { recording, stream: class, packet, found }) {
                break Walked::Stopped;
            }
        };
        (self.at, self.clock) = (at, clock);
        self.n_found += n_found;
        self.n_given += n_given;
        walked
    }

    fn note_damage(&mut self, damage: Damage) {
        let at = self.at;
        self.note(format!("{damage} (bit {at} of the packet); its rest was skipped"));
    }

    fn note(&mut self, reason: String) {
        let offset = self.offset - self.last.as_ref().and_then(|h| h.packet_bits).unwrap_or(0) / 8;
        self.report.verdict.notes.push(Note { path: self.path().to_owned(), offset: Some(offset), reason });
    }

    /// Goes to the next packet that may hold events of the range; false at the end of the stream.
    pub(super) fn next_packet(&mut self) -> Result<bool, Error> {
        let mut spare = self.packet.take();
        loop {
            let file = match &self.file {
                Some(file) if self.offset < self.file_bytes => file,
                _ if self.is_last_file() => return Ok(false),
                _ => {
                    self.n_bytes_before += self.file_bytes;
                    self.file_idx += 1;
                    self.open_file()?;
                    continue;
                }
            };
            let head = match read_head(self.trace, file, self.offset, self.file_bytes, &mut self.scratch) {
                Ok(head) => head,
                Err(failure) => {
                    self.give_up(failure)?;
                    continue;
                }
            };
            let class = &self.trace.streams[head.class];
            let offset = self.offset;
            self.offset += head.packet_bits.unwrap_or(0) / 8;
            self.class = Some(class);
            self.account(class, &head);
            self.clock = head.begin.unwrap_or(self.clock);
            self.at = head.events_at;
            self.last = Some(head.clone());
            let is_before = match (class.clock, head.end) {
                (Some(clock), Some(end)) => clock.ns(end) < self.range.from_ns,
                _ => false,
            };
            if is_before {
                continue;
            }
            let n_shared = usize::from(has_shared_slots(self.trace, class));
            let memory = Memory { spare: spare.take(), n_large_bytes: &self.recording.n_large_bytes };
            let Some(file) = &self.file else { continue };
            match read_packet(class, file, offset, head, &mut self.scratch, n_shared, memory) {
                Ok(packet) => {
                    self.packet = Some(Arc::new(packet));
                    return Ok(true);
                }
                Err(failure) => self.give_up(failure)?,
            }
        }
    }

    /// What follows an unreadable packet cannot be found, so the file ends here.
    fn give_up(&mut self, failure: PacketFailure) -> Result<(), Error> {
        let reason = match failure {
            PacketFailure::Io(e) => return Err(Error::io(self.path(), "read", e)),
            PacketFailure::Truncated => {
                self.report.is_truncated = true;
                "the file ends within this packet; events up to it are complete".to_owned()
            }
            PacketFailure::Damaged(reason) => {
                format!("this packet is damaged: {reason}; the rest was skipped")
            }
        };
        let offset = Some(self.offset);
        self.report.verdict.notes.push(Note { path: self.path().to_owned(), offset, reason });
        self.offset = self.file_bytes;
        self.packet = None;
        Ok(())
    }

    /// Compares the packet's counters with those of the packet before it, which is forgotten.
    fn account(&mut self, class: &StreamClass, head: &Head) {
        let ns = |value: Option<u64>| class.clock.zip(value).map_or(0, |(clock, v)| clock.ns(v));
        let before = self.last.take();
        let before = before.as_ref();
        let from_ns = ns(before.map_or(head.begin, |b| b.end));
        // Packets before it went with the oldest files; what was lost among them went, too.
        let n_gone = head.seq_num.filter(|n| before.is_none() && self.stream.is_limited && *n > 0);
        if let Some(n_gone) = n_gone.filter(|_| !self.trace.is_ours) {
            let n_packets = &mut self.report.verdict.n_let_go_packets;
            *n_packets = n_packets.saturating_add(n_gone);
            self.report.verdict.let_go(0, Some(ns(head.begin)));
        }
        if let Some(now) = head.discarded {
            let first = if n_gone.is_some() { now } else { 0 };
            let then = before.and_then(|b| b.discarded).unwrap_or(first);
            let count = now.wrapping_sub(then) & mask(head.discarded_bits);
            if count > 0 {
                self.lose(Loss { count, is_packets: false, from_ns, to_ns: ns(head.end), cpu: head.cpu });
            }
        }
        let (Some(now), Some(then)) = (head.seq_num, before.and_then(|b| b.seq_num)) else { return };
        if let Some(count @ 1..) = now.checked_sub(then).map(|n_on| n_on.saturating_sub(1)) {
            self.lose(Loss { count, is_packets: true, from_ns, to_ns: ns(head.begin), cpu: head.cpu });
        } else if now <= then && self.trace.is_ours && self.report.verdict.notes.len() < MAX_NOTES {
            let reason =
                format!("packet {now} comes after packet {then}: it is there twice, or in the wrong place");
            self.report.verdict.notes.push(Note { path: self.path().to_owned(), offset: None, reason });
        }
    }

    fn lose(&mut self, loss: Loss) {
        if loss.to_ns >= self.range.from_ns && loss.from_ns <= self.range.to_ns {
            let before = self.fresh.take();
            let first_ns = before.as_ref().map_or(loss.from_ns, |before| before.from_ns.min(loss.from_ns));
            let last_ns = before.as_ref().map_or(loss.to_ns, |before| before.to_ns.max(loss.to_ns));
            self.fresh = Some(Loss { from_ns: first_ns, to_ns: last_ns, ..loss.clone() });
            self.report.lose(loss);
        }
    }
}

fn has_shared_slots(trace: &Trace, class: &StreamClass) -> bool {
    // Slots in the packet's own scopes are always of interest; those of later scopes are set again for each event.
    let scopes = [trace.packet_header.as_ref(), class.packet_context.as_ref()];
    scopes.into_iter().flatten().any(|scope| scope.plan.steps.iter().any(|step| step.slot != u16::MAX))
}

/// Decodes the header of the event at `at` and finds the end of the event.
#[inline]
pub(crate) fn next_event(
    recording: &Recording,
    class: &StreamClass,
    content: Content<'_>,
    at: u64,
    clock: &mut u64,
    scratch: &mut Scratch,
) -> Result<(Found, u64), Damage> {
    let (id, body_at) = read_header(class, content, at, clock, scratch)?;
    let index = class.events.get(id).ok_or(Damage::EventId(id))?;
    let event = &recording.classes[index as usize];
    let next = match event.fixed_bits {
        Some(bits) => {
            let end = if bits == 0 { body_at } else { ((body_at + 7) & !7) + bits };
            if end > content.end_bits {
                return Err(Damage::Short);
            }
            end
        }
        None => {
            let mut next = body_at;
            for scope in [&class.event_context, &event.context, &event.fields].into_iter().flatten() {
                next = skip(&scope.plan, content, next, scratch)?;
            }
            next
        }
    };
    if next <= at {
        // An event without a header and without fields takes no room and would be found for ever.
        return Err(Damage::Short);
    }
    let ns = class.clock.map_or(i64::MIN, |rule| rule.ns(*clock));
    Ok((Found { ns, header_at: at, body_at, class: index }, next))
}

/// The event's number and where its header ends; follows the clock.
#[inline]
pub(crate) fn read_header(
    class: &StreamClass,
    content: Content<'_>,
    at: u64,
    clock: &mut u64,
    scratch: &mut Scratch,
) -> Result<(u64, u64), Damage> {
    let start = (at.div_ceil(8)) as usize;
    match class.header {
        HeaderForm::Compact => {
            let word = bytes::<4>(content, start)?;
            let word = u32::from_le_bytes(word);
            if word & 31 != 31 {
                *clock = advance(*clock, u64::from(word >> 5), 27);
                return Ok((u64::from(word & 31), (start as u64 + 4) * 8));
            }
            let id = u32::from_le_bytes(bytes::<4>(content, start + 1)?);
            *clock = u64::from_le_bytes(bytes::<8>(content, start + 5)?);
            Ok((u64::from(id), (start as u64 + 13) * 8))
        }
        HeaderForm::Large => {
            let id = u16::from_le_bytes(bytes::<2>(content, start)?);
            if id != u16::MAX {
                let time = u32::from_le_bytes(bytes::<4>(content, start + 2)?);
                *clock = advance(*clock, u64::from(time), 32);
                return Ok((u64::from(id), (start as u64 + 6) * 8));
            }
            let id = u32::from_le_bytes(bytes::<4>(content, start + 2)?);
            *clock = u64::from_le_bytes(bytes::<8>(content, start + 6)?);
            Ok((u64::from(id), (start as u64 + 14) * 8))
        }
        HeaderForm::General => {
            let Some(scope) = &class.event_header else { return Ok((0, at)) };
            let mut header = HeaderVisitor { id: 0, clock: *clock };
            let body_at = run(&scope.plan, content, at, scratch, &mut header)?;
            *clock = header.clock;
            Ok((header.id, body_at))
        }
    }
}

#[inline]
fn bytes<const N: usize>(content: Content<'_>, at: usize) -> Result<[u8; N], Damage> {
    if (at as u64 + N as u64) * 8 > content.end_bits {
        return Err(Damage::Short);
    }
    content.bytes.get(at..at + N).and_then(|b| b.try_into().ok()).ok_or(Damage::Short)
}

/// The clock's new value, given its low bits: it only ever goes forward, so smaller low bits mean a carry.
#[inline]
fn advance(clock: u64, low: u64, bits: u32) -> u64 {
    if bits >= 64 {
        return low;
    }
    let mask = mask(bits);
    let next = clock & !mask | low;
    if low < clock & mask { next.wrapping_add(mask + 1) } else { next }
}

struct HeaderVisitor {
    id: u64,
    clock: u64,
}

impl HeaderVisitor {
    fn take(&mut self, at: &Step, raw: u64, bits: u32) {
        if at.roles.has(Role::EventId) {
            self.id = raw;
        }
        if at.roles.has(Role::Clock) {
            self.clock = advance(self.clock, raw & mask(bits), bits);
        }
    }
}

impl Visitor for HeaderVisitor {
    fn integer(&mut self, at: &Step, _: u64, raw: u64, bits: u32, _: bool, _: u8) {
        self.take(at, raw, bits);
    }
    fn enumeration(&mut self, at: &Step, _: u64, raw: u64, table: &Enum) {
        self.take(at, raw, table.integer.bits);
    }
}

#[cfg(test)]
mod tests {
    use super::advance;

    #[test]
    fn the_clock_carries_when_its_low_bits_fall() {
        for (clock, low, bits, expected) in [
            (0, 5, 27, 5),
            (5, 5, 27, 5),
            (6, 5, 27, (1 << 27) + 5),
            (0x1_ffff_ffff, 0, 32, 0x2_0000_0000),
            (77, 3, 64, 3),
        ] {
            assert_eq!(advance(clock, low, bits), expected, "{clock} {low} {bits}");
        }
    }
}
