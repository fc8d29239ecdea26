//! The files of one stream: one that grows, or the newest of many where their size and number are limited.

use super::Shared;
use super::place::{self, HEADER_BYTES};
use crate::error::Error;
use nopal_files::own::Folder;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

/// How large the files of each stream may grow, and how many of them are kept: LTTng's `--tracefile-size` and
/// `--tracefile-count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLimit {
    /// A file grows larger only if a single event is.
    pub bytes: u64,
    /// The oldest goes when there would be more; 0 keeps all.
    pub count: u32,
}

/// Events that went with the oldest files, as their number is limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LetGo {
    pub n_events: u64,
    /// Losses that only those files told of.
    pub n_discarded: u64,
    /// No event that went is later; in the recording's clock.
    pub until_ns: u64,
}

/// What the index says of a packet beside its place and sizes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub begin_ns: u64,
    pub end_ns: u64,
    pub n_discarded: u64,
    pub instance: u64,
    pub seq_num: u64,
}

#[derive(Debug)]
pub(super) struct Files {
    /// `channel0_0`; files of which there are many have a number behind it.
    name: String,
    limit: Option<FileLimit>,
    stream: File,
    stream_path: PathBuf,
    pub(super) stream_bytes: u64,
    index: File,
    /// Those that are there, the older first; the last one is being written.
    kept: VecDeque<Kept>,
    n_made: u64,
    pub(super) let_go: LetGo,
    /// Of all files that are there.
    pub(super) n_bytes: u64,
    /// Memory for what holds a packet's place.
    blank: Vec<u8>,
}

#[derive(Debug, Default)]
struct Kept {
    name: String,
    n_bytes: u64,
    n_events: u64,
    n_discarded: u64,
    end_ns: u64,
}

impl Files {
    pub(super) fn open(shared: &Shared, name: String) -> Result<Files, Error> {
        let first = match shared.limit {
            Some(_) => format!("{name}_0"),
            None => name.clone(),
        };
        let (stream, stream_path, index) = make(shared, &first)?;
        let kept = VecDeque::from([Kept { name: first, ..Kept::default() }]);
        Ok(Files {
            name,
            limit: shared.limit,
            stream,
            stream_path,
            stream_bytes: 0,
            index,
            kept,
            n_made: 1,
            let_go: LetGo::default(),
            n_bytes: 0,
            blank: Vec::new(),
        })
    }

    /// Whether a packet belongs into the next file.
    pub(super) fn is_full(&self, content_bytes: u64) -> bool {
        let end = place::end(self.stream_bytes, content_bytes);
        self.stream_bytes > 0 && self.limit.is_some_and(|limit| end > limit.bytes)
    }

    /// Begins the next file. The oldest goes first, so that there are never more than there may be.
    pub(super) fn next(&mut self, shared: &Shared) -> Result<(), Error> {
        let max = self.limit.map_or(0, |limit| limit.count as usize);
        while max > 0 && self.kept.len() >= max {
            self.let_oldest_go(shared)?;
        }
        let name = format!("{}_{}", self.name, self.n_made);
        (self.stream, self.stream_path, self.index) = make(shared, &name)?;
        self.stream_bytes = 0;
        self.kept.push_back(Kept { name, ..Kept::default() });
        self.n_made += 1;
        Ok(())
    }

    fn let_oldest_go(&mut self, shared: &Shared) -> Result<(), Error> {
        let Some(oldest) = self.kept.front() else { return Ok(()) };
        // Whoever reads meanwhile looks for the streams that the indexes name.
        remove(&shared.index, &index_name(&oldest.name))?;
        remove(&shared.dir, &oldest.name)?;
        self.let_go.n_events += oldest.n_events;
        self.let_go.n_discarded = self.let_go.n_discarded.wrapping_add(oldest.n_discarded);
        self.let_go.until_ns = self.let_go.until_ns.max(oldest.end_ns);
        self.n_bytes -= oldest.n_bytes;
        self.kept.pop_front();
        Ok(())
    }

    /// Puts a packet at the end of the file. `holder` gives the header of an empty packet of a size.
    pub(super) fn put(
        &mut self,
        packet: &[u8],
        content_bytes: u64,
        entry: Entry,
        holder: &dyn Fn(u64) -> [u8; HEADER_BYTES],
    ) -> Result<(), Error> {
        let (offset, packet_bytes) = (self.stream_bytes, packet.len() as u64);
        if let Err(e) = place::put(&self.stream, offset, packet, holder, &mut self.blank) {
            // Cut off the half packet, so that the file ends with a whole one.
            let _ = self.stream.set_len(offset);
            return Err(Error::io(&self.stream_path, "write", e));
        }
        self.stream_bytes += packet_bytes;
        self.n_bytes += packet_bytes;
        let Entry { begin_ns, end_ns, n_discarded, instance, seq_num } = entry;
        // offset, packet size, content size, begin, end, discarded, stream id, stream instance, sequence number.
        let entry = [
            offset,
            packet_bytes * 8,
            content_bytes * 8,
            begin_ns,
            end_ns,
            n_discarded,
            0,
            instance,
            seq_num,
        ];
        let bytes: Vec<u8> = entry.iter().flat_map(|v| v.to_be_bytes()).collect();
        // The index only saves readers time; the packets are complete without it.
        let _ = self.index.write_all(&bytes);
        if let Some(file) = self.kept.back_mut() {
            file.n_bytes += packet_bytes;
            file.end_ns = end_ns;
        }
        Ok(())
    }

    /// Counts what the packet that was put last holds.
    pub(super) fn count(&mut self, n_events: u64, n_discarded: u64) {
        if let Some(file) = self.kept.back_mut() {
            file.n_events += n_events;
            file.n_discarded = file.n_discarded.wrapping_add(n_discarded);
        }
    }
}

fn index_name(stream: &str) -> String {
    format!("{stream}.idx")
}

fn make(shared: &Shared, name: &str) -> Result<(File, PathBuf, File), Error> {
    let stream_path = shared.dir.path().join(name);
    let stream = shared.dir.create_new(name).map_err(|e| Error::io(&stream_path, "make", e))?;
    let index_name = index_name(name);
    let index_path = shared.index.path().join(&index_name);
    let index = shared.index.create_new_to_append(&index_name);
    let mut index = index.map_err(|e| Error::io(&index_path, "make", e))?;
    // Magic, version 1.1, size of an entry; big endian, as LTTng writes it.
    let head: Vec<u8> = [0xc1f1_dcc1u32, 1, 1, 72].iter().flat_map(|v| v.to_be_bytes()).collect();
    index.write_all(&head).map_err(|e| Error::io(&index_path, "write", e))?;
    Ok((stream, stream_path, index))
}

/// Removes a file; one that somebody took away is gone as well.
fn remove(folder: &Folder, name: &str) -> Result<(), Error> {
    match folder.remove_file(name) {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(Error::io(folder.path().join(name), "remove", e)),
        _ => Ok(()),
    }
}
