//! Makes recordings: a folder with `metadata` (TSDL text, or JSON of CTF 2), one stream per CPU, and LTTng's packet index.
//!
//! ```no_run
//! use nopal_trace::{EventType, Recording, RecordingInfo, Type};
//!
//! let mut writer = Recording::create("demo.rec".as_ref(), RecordingInfo::of_this_host())?;
//! let set = writer.add_event_type(
//!     EventType::new("demo", "set").field("key", Type::String).field("bytes", Type::unsigned(64)),
//! )?;
//! let mut stream = writer.stream(0)?;
//! stream.append_with(set, 1_000, &[], |payload| {
//!     payload.string(b"user:1").unsigned(64, 12);
//! })?;
//! stream.discarded(3, 2_000..5_000)?;
//! stream.finish()?;
//! # Ok::<(), nopal_trace::Error>(())
//! ```
//!
//! Times are nanoseconds of the clock whose offset to the epoch [`RecordingInfo::clock_offset_ns`] gives (usually
//! CLOCK_MONOTONIC). Metadata is written when an event type is added, so before the first packet that needs it. A packet
//! and a declaration become part of their file in one step: wherever the recorder is killed, every reader can read what
//! there is.

pub(crate) mod ctf2;
mod files;
mod layout;
mod metadata;
mod payload;
mod place;
mod stream;

pub use files::{FileLimit, LetGo};
pub use payload::Payload;
pub use stream::StreamWriter;

use crate::error::Error;
use crate::model::{EventType, Field, FieldType, push_field};
use crate::read::Recording;
use crate::tsdl::EnvValue;
use layout::Layout;
use nopal_files::own::Folder;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

const METADATA: &str = "metadata";
const MIN_PACKET_BYTES: usize = 4096;

/// What is known of a recording when it starts.
#[derive(Debug, Clone)]
pub struct RecordingInfo {
    /// First word of every line after the time.
    pub hostname: String,
    /// Written into the metadata's `env`: `program`, `pid` and the like. (`procname` and `vpid` would stand in every line.)
    pub env: Vec<(String, EnvValue)>,
    /// Fields that every event has in front of its own: `vpid`, `vtid`, `procname`, `ip`.
    pub context: Vec<Field>,
    /// What is to be added to an event's time to get nanoseconds since the epoch.
    pub clock_offset_ns: i64,
    /// Event types that will be added, as far as known: up to 31 share a header of 4 bytes, more one of 6.
    pub n_event_types: usize,
    /// A packet is written when it has this size.
    pub packet_bytes: usize,
    pub version: Version,
    /// None lets each stream have one file, which grows.
    pub limit: Option<FileLimit>,
}

/// The metadata's version of the Common Trace Format; the streams are the same in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    #[default]
    Ctf1,
    Ctf2,
}

impl RecordingInfo {
    /// For a recording made here and now with times of CLOCK_MONOTONIC.
    pub fn of_this_host() -> Self {
        RecordingInfo {
            hostname: hostname(),
            env: Vec::new(),
            context: Vec::new(),
            clock_offset_ns: crate::clock::monotonic_to_epoch_ns(),
            n_event_types: 0,
            packet_bytes: 256 << 10,
            version: Version::default(),
            limit: None,
        }
    }

    pub fn env(mut self, key: &str, value: EnvValue) -> Self {
        self.env.push((key.to_owned(), value));
        self
    }

    pub fn context(mut self, name: &str, ty: impl Into<FieldType>) -> Self {
        push_field(&mut self.context, name, ty.into());
        self
    }
}

fn hostname() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned())
}

/// The number of an event type in a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// A recording being made. Streams may be moved to other threads; each is used by one.
#[derive(Debug)]
pub struct RecordingWriter {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    dir: Folder,
    index: Folder,
    uuid: [u8; 16],
    is_large: bool,
    packet_bytes: usize,
    limit: Option<FileLimit>,
    context: Layout,
    /// The TSDL before the first event, if the metadata is to be that of CTF 2.
    tsdl: Option<String>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    metadata: File,
    /// All that the file says.
    text: String,
    types: Vec<Arc<TypeInfo>>,
}

#[derive(Debug)]
struct TypeInfo {
    name: String,
    layout: Layout,
}

impl Recording {
    /// Starts a recording in `dir`, which is made if need be and must not hold one already. Only its owner can read it.
    pub fn create(dir: &Path, info: RecordingInfo) -> Result<RecordingWriter, Error> {
        RecordingWriter::create(dir, info)
    }
}

impl RecordingWriter {
    /// See [`Recording::create`].
    pub fn create(dir: &Path, info: RecordingInfo) -> Result<RecordingWriter, Error> {
        let folder = Folder::make(dir).map_err(|e| Error::io(dir, "make", e))?;
        if folder.has(METADATA) {
            return Err(Error::Exists { path: dir.to_owned() });
        }
        let index = folder.make_below("index").map_err(|e| Error::io(dir.join("index"), "make", e))?;
        let uuid = random_uuid()?;
        let is_large = info.n_event_types > stream::MAX_COMPACT_TYPES;
        let refused = |reason| Error::Payload { event: "the context".to_owned(), reason };
        let context = Layout::of(&info.context).map_err(refused)?;
        let tsdl = metadata::preamble(&info, &uuid, is_large);
        let (text, tsdl) = match info.version {
            Version::Ctf1 => (tsdl, None),
            Version::Ctf2 => (of_ctf2(&tsdl, "").map_err(refused)?, Some(tsdl)),
        };
        let metadata = first_metadata(&folder, &text)?;
        // Packets that are small beside their file leave little of its room.
        let half = info.limit.map_or(usize::MAX, |limit| limit.bytes as usize / 2);
        let shared = Shared {
            dir: folder,
            index,
            uuid,
            is_large,
            packet_bytes: info.packet_bytes.min(half).max(MIN_PACKET_BYTES),
            limit: info.limit,
            context,
            tsdl,
            state: Mutex::new(State { metadata, text, types: Vec::new() }),
        };
        Ok(RecordingWriter { shared: Arc::new(shared) })
    }

    /// Adds an event type and writes its metadata.
    pub fn add_event_type(&mut self, ty: EventType) -> Result<TypeId, Error> {
        let name = ty.full_name();
        let layout =
            Layout::of(&ty.fields).map_err(|reason| Error::Payload { event: name.clone(), reason })?;
        let mut state = self.shared.lock();
        let id = state.types.len() as u32;
        let mut text = metadata::event(id, &ty);
        if let Some(tsdl) = &self.shared.tsdl {
            let made = of_ctf2(tsdl, &text);
            text = made.map_err(|reason| Error::Payload { event: name.clone(), reason })?;
        }
        state.extend_metadata(&self.shared.dir, &text)?;
        state.types.push(Arc::new(TypeInfo { name, layout }));
        Ok(TypeId(id))
    }

    /// The stream of one CPU. Its file is made with its first packet. Ask once per CPU.
    pub fn stream(&mut self, cpu: u32) -> Result<StreamWriter, Error> {
        self.stream_part(cpu, 0)
    }

    /// One of several streams of a CPU, for events that come from several sources, each in order by itself. Ask once per
    /// CPU and part.
    pub fn stream_part(&mut self, cpu: u32, part: u32) -> Result<StreamWriter, Error> {
        StreamWriter::new(self.shared.clone(), cpu, part)
    }

    pub fn dir(&self) -> &Path {
        self.shared.dir.path()
    }

    /// The folder itself, for what else belongs into it.
    pub fn folder(&self) -> &Folder {
        &self.shared.dir
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // Nothing is left half done where a panic could happen.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Appends all of `text` or nothing: half a declaration would make the whole recording unreadable.
    fn extend_metadata(&mut self, dir: &Folder, text: &str) -> Result<(), Error> {
        let before = self.text.len();
        self.text.push_str(text);
        let result = if place::is_one_step(before as u64, text.len() as u64) {
            self.metadata.write_all(text.as_bytes()).map_err(|e| {
                let _ = self.metadata.set_len(before as u64);
                Error::io(dir.path().join(METADATA), "write", e)
            })
        } else {
            let replace = |new: &str| dir.rename(new, METADATA);
            metadata_beside(dir, &self.text, replace).map(|file| self.metadata = file)
        };
        if result.is_err() {
            self.text.truncate(before);
        }
        result
    }
}

/// What CTF 2 says in place of the TSDL of an event, or of what stands before all of them.
fn of_ctf2(preamble: &str, event: &str) -> Result<String, String> {
    let metadata = crate::tsdl::parse(&format!("{preamble}{event}")).map_err(|failure| failure.reason)?;
    match metadata.events.first() {
        Some(event) => ctf2::event_text(&metadata, event),
        None => ctf2::head(&metadata),
    }
}

/// Makes the metadata of a recording that there is not yet.
fn first_metadata(dir: &Folder, text: &str) -> Result<File, Error> {
    let name = |new: &str| match dir.link(new, METADATA) {
        Ok(()) => dir.remove_file(new),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(e),
        // A file system without links.
        Err(_) => dir.rename(new, METADATA),
    };
    metadata_beside(dir, text, name)
}

/// Writes metadata into a file that readers pass over, and gives it its name when it is whole.
fn metadata_beside(
    dir: &Folder,
    text: &str,
    name: impl Fn(&str) -> std::io::Result<()>,
) -> Result<File, Error> {
    let failed = |e| Error::io(dir.path().join(METADATA), "write", e);
    let new = format!(".metadata.{}", std::process::id());
    let mut file = dir.create_new_to_append(&new).map_err(failed)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| name(&new));
    written.map_err(|e| {
        let _ = dir.remove_file(&new);
        failed(e)
    })?;
    Ok(file)
}

fn random_uuid() -> Result<[u8; 16], Error> {
    let path = Path::new("/dev/urandom");
    let mut uuid = [0; 16];
    File::open(path).and_then(|mut f| f.read_exact(&mut uuid)).map_err(|e| Error::io(path, "read", e))?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}
