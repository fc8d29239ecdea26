//! Uprobes without eBPF: events of tracefs, read as the kernel's own records; in the lines that it prints for people a
//! program's text could pass for others. For tracing and counting where `bpf(2)` is not permitted. Such events belong to
//! files: every process that maps the file traps, so that the user must have asked for all processes; what others leave is
//! only not shown.
//!
//! Everything made is removed when the door is dropped, and what a killed tracer left when the next one opens.

use super::capture_program::is_stack;
use super::leftovers::{self, command};
use super::trace_page::read_page;
use nopal_abi::record::text;
use nopal_capture::Capture;
use nopal_sdt::operand::{Base, Memory, Operand, Place, Register};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The events of one tracer are in the group of its pid.
const GROUP: &str = leftovers::GROUPS[0];
const PAGE_BYTES: usize = 4096;
/// A record with more has texts that the kernel had no room for.
const MOST_RECORD_BYTES: usize = 4096;

/// One site, with what its records hold.
#[derive(Debug, Clone)]
pub struct FtraceSite {
    pub path: PathBuf,
    pub file_offset: u64,
    /// The semaphore's offset in the file, 0 for none.
    pub ref_ctr_offset: u64,
    /// Each with whether it points to a string.
    pub args: Vec<(Operand, bool)>,
}

/// A record of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FtraceHit<'a> {
    /// As [`FtraceDoor::add`] returned it.
    pub event: usize,
    pub tid: u32,
    pub cpu: u32,
    /// CLOCK_MONOTONIC.
    pub ns: u64,
    pub values: Values<'a>,
}

/// What a record holds of a hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values<'a> {
    fields: &'a [Field],
    record: &'a [u8],
}

/// Where a record has an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Field {
    offset: usize,
    n_bytes: usize,
}

/// Events of ours in an instance of ours.
#[derive(Debug)]
pub struct FtraceDoor {
    root: PathBuf,
    group: String,
    instance: PathBuf,
    counts: Vec<u64>,
    n_lost: u64,
    /// With the number of each CPU.
    pipes: Vec<(u32, File)>,
    events: Events,
    page: Vec<u8>,
    /// More than all that a CPU's buffer holds.
    most_pages: usize,
}

/// What is known of our events, by the numbers that the kernel gave them.
#[derive(Debug, Default)]
struct Events(HashMap<u16, (usize, Vec<Field>)>);

impl FtraceDoor {
    /// Needs a tracefs that is mounted and may be written.
    pub fn open() -> io::Result<FtraceDoor> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let root = leftovers::root().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "tracefs is not mounted; `mount -t tracefs nodev /sys/kernel/tracing` helps",
            )
        })?;
        leftovers::sweep();
        let group = format!("{GROUP}{}_{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let instance = root.join("instances").join(&group);
        fs::create_dir(&instance)?;
        let prepared = fs::write(instance.join("trace_clock"), "mono").and_then(|()| open_pipes(&instance));
        match prepared {
            Ok(pipes) => Ok(FtraceDoor {
                root,
                group,
                most_pages: pages_of(&instance),
                page: vec![0; page_bytes(&instance)],
                instance,
                counts: Vec::new(),
                n_lost: 0,
                pipes,
                events: Events::default(),
            }),
            Err(error) => {
                let _ = fs::remove_dir(&instance);
                Err(error)
            }
        }
    }

    /// Registers a site; it is not armed yet.
    pub fn add(&mut self, site: &FtraceSite) -> io::Result<usize> {
        let event = self.counts.len();
        let path = site.path.to_str().filter(|path| !path.contains([' ', ':', '\n']));
        let path = path.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "tracefs accepts no path with a space or a colon")
        })?;
        let mut line = format!("p:{}/e{event} {path}:{:#x}", self.group, site.file_offset);
        if site.ref_ctr_offset != 0 {
            line += &format!("({:#x})", site.ref_ctr_offset);
        }
        for (index, (operand, is_string)) in site.args.iter().enumerate() {
            let fetched =
                fetch(operand, *is_string).map_err(|why| io::Error::new(io::ErrorKind::Unsupported, why))?;
            line += &format!(" a{index}={fetched}");
        }
        command(&self.root, &line)?;
        self.counts.push(0);
        let format = self.root.join("events").join(&self.group).join(format!("e{event}/format"));
        let described = Description::read(&fs::read_to_string(format)?, site.args.len());
        let Description { id, fields } = described.ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                "tracefs describes its records in a way that is not known",
            )
        })?;
        self.events.0.insert(id, (event, fields));
        Ok(event)
    }

    /// Arms every site there is; what these threads do is shown, and what those do whom they fork.
    pub fn start(&mut self, tids: &[u32]) -> io::Result<()> {
        let tids: String = tids.iter().map(|tid| format!("{tid} ")).collect();
        fs::write(self.instance.join("options/event-fork"), "1")?;
        // Added to those of before, and to their children.
        OpenOptions::new()
            .append(true)
            .open(self.instance.join("set_event_pid"))?
            .write_all(tids.as_bytes())?;
        fs::write(self.instance.join("events").join(&self.group).join("enable"), "1")
    }

    /// Disarms every site.
    pub fn stop(&mut self) -> io::Result<()> {
        match self.counts.len() {
            0 => Ok(()),
            _ => fs::write(self.instance.join("events").join(&self.group).join("enable"), "0"),
        }
    }

    /// Hands what has come to `take`, CPU by CPU; returns how many hits there were. However fast they come, it ends.
    pub fn poll(&mut self, mut take: impl FnMut(FtraceHit<'_>)) -> io::Result<usize> {
        let mut n = 0;
        for (cpu, pipe) in &mut self.pipes {
            for _ in 0..self.most_pages {
                let len = match pipe.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(len) => len,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                };
                self.n_lost += read_page(&self.page[..len], |ns, record| {
                    let Some((event, tid, values)) = self.events.read(record) else { return };
                    self.counts[event] += 1;
                    n += 1;
                    take(FtraceHit { event, tid, cpu: *cpu, ns, values });
                });
            }
        }
        Ok(n)
    }

    /// Hits of each event so far.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Hits the kernel had no room for, as far as it told.
    pub fn n_lost(&self) -> u64 {
        self.n_lost
    }
}

impl Drop for FtraceDoor {
    fn drop(&mut self) {
        let _ = self.stop();
        // The pipes keep the instance busy.
        self.pipes.clear();
        let _ = fs::remove_dir(&self.instance);
        for event in 0..self.counts.len() {
            let _ = command(&self.root, &format!("-:{}/e{event}", self.group));
        }
    }
}

fn open_pipes(instance: &Path) -> io::Result<Vec<(u32, File)>> {
    let mut pipes = Vec::new();
    for entry in fs::read_dir(instance.join("per_cpu"))?.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
        let Some(cpu) = number else { continue };
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        pipes.push((cpu, options.open(entry.path().join("trace_pipe_raw"))?));
    }
    pipes.sort_by_key(|(cpu, _)| *cpu);
    Ok(pipes)
}

/// A number that a file of the instance ends with: `7 (expanded: 1408)`.
fn last_number(instance: &Path, name: &str) -> Option<usize> {
    let text = fs::read_to_string(instance.join(name)).ok()?;
    text.split(|c: char| !c.is_ascii_digit()).rfind(|digits| !digits.is_empty())?.parse().ok()
}

/// Before Linux 6.9 a page of the buffer is a page of memory.
fn page_bytes(instance: &Path) -> usize {
    last_number(instance, "buffer_subbuf_size_kb").map_or(PAGE_BYTES, |kib| (kib << 10).max(PAGE_BYTES))
}

fn pages_of(instance: &Path) -> usize {
    const MOST_PAGES: usize = 1 << 16;
    let n_pages = last_number(instance, "buffer_size_kb").unwrap_or(0) * 1024 / PAGE_BYTES;
    2 * n_pages.clamp(64, MOST_PAGES)
}

/// What a `format` file says of an event.
struct Description {
    id: u16,
    fields: Vec<Field>,
}

impl Description {
    /// `ID: 309`, `field:u64 a0; offset:16; size:8; signed:0;`: the number, and the first arguments in their order.
    fn read(text: &str, n_args: usize) -> Option<Description> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID: ")?.trim().parse().ok())?;
        let field = |index: usize| {
            let name = format!("a{index}");
            text.lines().find_map(|line| {
                let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
                let declared = parts.next()?.rsplit(' ').next()?;
                let offset = parts.next()?.strip_prefix("offset:")?.parse().ok()?;
                let n_bytes = parts.next()?.strip_prefix("size:")?.parse().ok()?;
                (declared == name).then_some(Field { offset, n_bytes })
            })
        };
        Some(Description { id, fields: (0..n_args).map(field).collect::<Option<_>>()? })
    }
}

impl Events {
    /// The event of a record, its thread, and what it holds. Nothing if it is none of ours.
    fn read<'a>(&'a self, record: &'a [u8]) -> Option<(usize, u32, Values<'a>)> {
        let id = u16::from_le_bytes(*record.first_chunk()?);
        let tid = u32::from_le_bytes(*record.get(4..)?.first_chunk()?);
        let (event, fields) = self.0.get(&id)?;
        Some((*event, tid, Values { fields, record }))
    }
}

impl<'a> Values<'a> {
    /// The bytes of a number; of a text its length and place, and nothing where the record ends before.
    fn field(&self, index: usize) -> &'a [u8] {
        let Some(field) = self.fields.get(index) else { return &[] };
        let end = field.offset.saturating_add(field.n_bytes);
        self.record.get(field.offset..end).unwrap_or_default()
    }

    /// A text up to its NUL, and whether it is whole. Nothing if the kernel could not read it.
    fn text(&self, index: usize) -> Option<(&'a [u8], bool)> {
        let word = u32::from_le_bytes(*self.field(index).first_chunk()?);
        let (start, len) = ((word & 0xffff) as usize, (word >> 16) as usize);
        let bytes = self.record.get(start..start + len).filter(|bytes| !bytes.is_empty())?;
        let end = bytes.iter().position(|byte| *byte == 0);
        let is_whole = end.is_some() && self.record.len() < MOST_RECORD_BYTES;
        Some((&bytes[..end.unwrap_or(len)], is_whole))
    }
}

/// What tracefs is asked for so that its records tell what ours hold; an error names what they cannot tell.
pub fn arguments(captures: &[Capture]) -> Result<Vec<(Operand, bool)>, String> {
    captures
        .iter()
        .map(|capture| {
            let (operand, is_string) = match capture {
                Capture::Value { operand } => (operand, false),
                Capture::CString { pointer, .. } => (pointer, true),
                Capture::Bytes { pointer, .. } if is_stack(pointer) => {
                    return Err("stacks (ustack)".to_owned());
                }
                Capture::Bytes { .. } => return Err("bytes with a length of their own".to_owned()),
                Capture::ThreadContext { .. } => return Err("the thread context of OpenTelemetry".to_owned()),
            };
            fetch(operand, is_string).map(|_| (operand.clone(), is_string))
        })
        .collect()
}

/// The payload of a record, as the user door would have left it.
pub fn payload(captures: &[Capture], values: &Values<'_>) -> Vec<u8> {
    let (mut fixed, mut texts) = (Vec::new(), Vec::new());
    for (index, capture) in captures.iter().enumerate() {
        match capture {
            Capture::Value { operand } => {
                let mut number = [0; 8];
                let field = values.field(index);
                let n_bytes = field.len().min(8);
                number[..n_bytes].copy_from_slice(&field[..n_bytes]);
                fixed.extend_from_slice(&number[..usize::from(operand.size_bytes.min(8))]);
            }
            Capture::ThreadContext { .. } => fixed.extend_from_slice(&text::NULL.to_le_bytes()),
            Capture::CString { max_bytes, .. } | Capture::Bytes { max_bytes, .. } => {
                let word = match values.text(index) {
                    None => text::UNREADABLE,
                    Some((whole, is_whole)) => {
                        let kept = whole.len().min(*max_bytes as usize);
                        let is_cut = !is_whole || kept < whole.len();
                        texts.extend_from_slice(&whole[..kept]);
                        kept as u32 & text::LENGTH_MASK | if is_cut { text::TRUNCATED } else { 0 }
                    }
                };
                fixed.extend_from_slice(&word.to_le_bytes());
            }
        }
    }
    fixed.append(&mut texts);
    fixed
}

/// The payloads that a page of a buffer leaves, for two arguments at these places.
#[cfg(fuzzing)]
pub fn payloads(page: &[u8], captures: &[Capture], offset: usize) -> Vec<Vec<u8>> {
    let fields = (0..captures.len()).map(|index| Field { offset: offset + 8 * index, n_bytes: 8 }).collect();
    let events = Events(HashMap::from([(1, (0, fields))]));
    let mut payloads = Vec::new();
    read_page(page, |_, record| {
        payloads.extend(events.read(record).map(|(.., values)| payload(captures, &values)))
    });
    payloads
}

/// An operand in the words of tracefs.
fn fetch(operand: &Operand, is_string: bool) -> Result<String, String> {
    let place = match &operand.place {
        Place::Register(Register { is_high_byte: true, .. }) => {
            return Err("a high byte of a register".to_owned());
        }
        Place::Register(register) => format!("%{}", register_name(*register)),
        Place::Constant(value) => format!("\\{value}"),
        Place::Vector(_) => return Err("a vector register".to_owned()),
        Place::Memory(Memory { base: Base::Register(base), index: None, displacement }) => {
            format!("{displacement:+}(%{})", register_name(*base))
        }
        Place::Memory(_) => return Err("an address that tracefs cannot express".to_owned()),
    };
    if is_string {
        return Ok(format!("+0({place}):string"));
    }
    let sign = if operand.is_signed { 's' } else { 'u' };
    match operand.size_bytes {
        size @ (1 | 2 | 4 | 8) => Ok(format!("{place}:{sign}{}", u32::from(size) * 8)),
        size => Err(format!("a value of {size} bytes")),
    }
}

fn register_name(register: Register) -> String {
    const NAMES: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
    match NAMES.get(usize::from(register.number)) {
        Some(name) => (*name).to_owned(),
        None => format!("r{}", register.number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_sdt::operand::{Arch, parse};

    #[test]
    fn operands_in_the_words_of_tracefs() {
        let cases = [
            ("-4@%eax", false, Ok("%ax:s32")),
            ("8@%rdi", true, Ok("+0(%di):string")),
            ("8@-16(%rbp)", false, Ok("-16(%bp):u64")),
            ("1@8(%r12)", false, Ok("+8(%r12):u8")),
            ("8@8(%rsp)", true, Ok("+0(+8(%sp)):string")),
            ("-4@$-7", false, Ok("\\-7:s32")),
            ("8@%xmm0", false, Err(())),
            ("4@(%rax,%rbx,4)", false, Err(())),
        ];
        for (text, is_string, want) in cases {
            let operand = parse(Arch::X86_64, text).unwrap();
            assert_eq!(fetch(&operand, is_string).map_err(|_| ()), want.map(str::to_owned), "{text}");
        }
    }

    /// As Linux 6.18 describes such an event.
    const FORMAT: &str = "name: e0
ID: 1234
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;
\tfield:s32 a0;\toffset:16;\tsize:4;\tsigned:1;
\tfield:__data_loc char[] a1;\toffset:20;\tsize:4;\tsigned:1;
\tfield:u64 a2;\toffset:24;\tsize:8;\tsigned:0;

print fmt: \"(%lx) a0=%d\"
";

    #[test]
    fn records_become_ours() {
        let operand = |text| parse(Arch::X86_64, text).unwrap();
        let captures = [
            Capture::Value { operand: operand("-4@%eax") },
            Capture::CString { pointer: operand("8@%rdi"), max_bytes: 3, is_trusted: false },
            Capture::Value { operand: operand("8@%rsi") },
        ];
        let Description { id, fields } = Description::read(FORMAT, 3).unwrap();
        assert!(Description::read(FORMAT, 4).is_none() && Description::read("", 0).is_none());
        let events = Events(HashMap::from([(id, (5, fields))]));
        let told = |number: i32, place: u32, wide: u64, text: &[u8]| {
            let head = [&1234u16.to_le_bytes()[..], &[0; 2], &77u32.to_le_bytes(), &[0; 8]].concat();
            [&head[..], &number.to_le_bytes(), &place.to_le_bytes(), &wide.to_le_bytes(), text].concat()
        };
        let ours = |number: i32, word: u32, wide: u64, text: &[u8]| {
            [&number.to_le_bytes()[..], &word.to_le_bytes(), &wide.to_le_bytes(), text].concat()
        };
        let place = |len: u32| len << 16 | 32;
        for (record, want) in [
            (told(-7, place(3), u64::MAX, b"ab\0"), ours(-7, 2, u64::MAX, b"ab")),
            (told(1, place(5), 2, b"abcd\0"), ours(1, 3 | text::TRUNCATED, 2, b"abc")),
            // What looks like a line of its own is a text.
            (told(1, place(4), 2, b"a\n\"\0"), ours(1, 3, 2, b"a\n\"")),
            (told(1, place(2), 2, b"ab"), ours(1, 2 | text::TRUNCATED, 2, b"ab")),
            (told(1, place(0), 2, b""), ours(1, text::UNREADABLE, 2, b"")),
            (told(1, place(9), 2, b"ab\0"), ours(1, text::UNREADABLE, 2, b"")),
            (told(1, 0, 0, b"")[..20].to_vec(), ours(1, text::UNREADABLE, 0, b"")),
        ] {
            let (event, tid, values) = events.read(&record).expect("one of ours");
            assert_eq!((event, tid), (5, 77));
            assert_eq!(payload(&captures, &values), want, "{record:?}");
        }
        assert!(events.read(&told(0, 0, 0, b"")[2..]).is_none() && events.read(b"").is_none());
        let bytes = Capture::Bytes {
            pointer: operand("8@%rdi"),
            length: operand("8@%rsi"),
            unit_bytes: 1,
            max_bytes: 8,
            is_trusted: false,
        };
        assert!(arguments(&captures).is_ok_and(|all| all.len() == 3));
        assert!(arguments(&[bytes]).is_err());
    }
}
