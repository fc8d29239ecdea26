//! Uprobes without eBPF: events of tracefs, read as the lines the kernel prints. For tracing and counting where `bpf(2)` is
//! not permitted. Such events belong to files: every process that maps the file traps, so that the user must have asked for
//! all processes; what others leave is only not shown.
//!
//! Everything made is removed when the door is dropped, and what a killed tracer left when the next one opens.

use super::capture_program::is_stack;
use super::leftovers::{self, command};
use nopal_abi::record::text;
use nopal_capture::Capture;
use nopal_sdt::operand::{Base, Memory, Operand, Place, Register};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The events of one tracer are in the group of its pid.
const GROUP: &str = leftovers::GROUPS[0];
/// Longest line kept while its end has not come.
const MAX_LINE_BYTES: usize = 1 << 16;

/// One site, with what its lines show.
#[derive(Debug, Clone)]
pub struct FtraceSite {
    pub path: PathBuf,
    pub file_offset: u64,
    /// The semaphore's offset in the file, 0 for none.
    pub ref_ctr_offset: u64,
    /// Each with whether it points to a string.
    pub args: Vec<(Operand, bool)>,
}

/// A line of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FtraceHit {
    /// As [`FtraceDoor::add`] returned it.
    pub event: usize,
    pub tid: u32,
    pub cpu: u32,
    /// CLOCK_MONOTONIC; the kernel prints microseconds.
    pub ns: u64,
    /// As the kernel prints them: numbers in decimal, strings in quotes, `(fault)` for what is not in memory.
    pub args: Vec<String>,
}

/// Events of ours in an instance of ours.
#[derive(Debug)]
pub struct FtraceDoor {
    root: PathBuf,
    group: String,
    instance: PathBuf,
    n_events: usize,
    counts: Vec<u64>,
    n_lost: u64,
    pipe: File,
    rest: Vec<u8>,
}

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
        let prepared = fs::write(instance.join("trace_clock"), "mono").and_then(|()| {
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(instance.join("trace_pipe"))
        });
        match prepared {
            Ok(pipe) => Ok(FtraceDoor {
                root,
                group,
                instance,
                n_events: 0,
                counts: Vec::new(),
                n_lost: 0,
                pipe,
                rest: Vec::new(),
            }),
            Err(error) => {
                let _ = fs::remove_dir(&instance);
                Err(error)
            }
        }
    }

    /// Registers a site; it is not armed yet.
    pub fn add(&mut self, site: &FtraceSite) -> io::Result<usize> {
        let event = self.n_events;
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
        self.n_events += 1;
        self.counts.push(0);
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
        match self.n_events {
            0 => Ok(()),
            _ => fs::write(self.instance.join("events").join(&self.group).join("enable"), "0"),
        }
    }

    /// Hands the lines that have come to `take`; returns how many there were.
    pub fn poll(&mut self, mut take: impl FnMut(FtraceHit)) -> io::Result<usize> {
        let mut n = 0;
        let mut piece = [0; 1 << 16];
        loop {
            match self.pipe.read(&mut piece) {
                Ok(0) => return Ok(n),
                Ok(len) => self.rest.extend_from_slice(&piece[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(n),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            }
            let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines: Vec<u8> = self.rest.drain(..whole).collect();
            self.rest.truncate(MAX_LINE_BYTES);
            for line in lines.split(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(line);
                if let Some(hit) = parse_line(&line, self.n_events) {
                    self.counts[hit.event] += 1;
                    n += 1;
                    take(hit);
                } else if let Some(lost) = parse_lost(&line) {
                    self.n_lost += lost;
                }
            }
        }
    }

    /// Lines of each event so far.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Lines the kernel had no room for, as far as they were read.
    pub fn n_lost(&self) -> u64 {
        self.n_lost
    }
}

impl Drop for FtraceDoor {
    fn drop(&mut self) {
        let _ = self.stop();
        // The pipe keeps the instance busy.
        if let Ok(nothing) = File::open("/dev/null") {
            self.pipe = nothing;
        }
        let _ = fs::remove_dir(&self.instance);
        for event in 0..self.n_events {
            let _ = command(&self.root, &format!("-:{}/e{event}", self.group));
        }
    }
}

/// What tracefs is asked for so that a line tells what a record holds; an error names what it cannot tell.
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

/// The payload of a record, as the user door would have left it, from the values of a line.
pub fn payload(captures: &[Capture], values: &[String]) -> Vec<u8> {
    let (mut fixed, mut texts) = (Vec::new(), Vec::new());
    for (index, capture) in captures.iter().enumerate() {
        let value = values.get(index).map_or("", String::as_str);
        match capture {
            Capture::Value { operand } => {
                let number = match value.strip_prefix('-') {
                    Some(_) => value.parse::<i64>().unwrap_or(0),
                    None => value.parse::<u64>().unwrap_or(0) as i64,
                };
                fixed.extend_from_slice(&number.to_le_bytes()[..usize::from(operand.size_bytes.min(8))]);
            }
            Capture::ThreadContext { .. } => fixed.extend_from_slice(&text::NULL.to_le_bytes()),
            Capture::CString { max_bytes, .. } | Capture::Bytes { max_bytes, .. } => {
                let word = match value.strip_prefix('"') {
                    None => text::UNREADABLE,
                    Some(shown) => {
                        // A line break in it ends the line, and the rest is not known.
                        let (whole, mut flags) = match shown.strip_suffix('"') {
                            Some(whole) => (whole, 0),
                            None => (shown, text::TRUNCATED),
                        };
                        let kept = whole.len().min(*max_bytes as usize);
                        if kept < whole.len() {
                            flags |= text::TRUNCATED;
                        }
                        texts.extend_from_slice(&whole.as_bytes()[..kept]);
                        kept as u32 & text::LENGTH_MASK | flags
                    }
                };
                fixed.extend_from_slice(&word.to_le_bytes());
            }
        }
    }
    fixed.append(&mut texts);
    fixed
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

/// `     app-1234    [001] .....  123.456789: e0: (0x5555) a0=1 a1="text"`. The name may hold anything.
fn parse_line(line: &str, n_events: usize) -> Option<FtraceHit> {
    // Behind the CPU there is nothing of the program's but its strings.
    let (mut head, mut rest) = ("", "");
    for (at, _) in line.match_indices(" [") {
        let (before, after) = (&line[..at], &line[at + 2..]);
        let is_cpu =
            after.split(']').next().is_some_and(|n| n.len() >= 3 && n.bytes().all(|b| b.is_ascii_digit()));
        let is_task = before.trim_end().rsplit('-').next().is_some_and(|n| n.parse::<u32>().is_ok());
        if is_cpu && is_task {
            (head, rest) = (before, after);
            break;
        }
    }
    let tid = head.trim_end().rsplit('-').next()?.parse().ok()?;
    let (cpu, rest) = rest.split_once(']')?;
    let mut words = rest.splitn(2, ": ");
    let (seconds, micros) = words.next()?.split_whitespace().last()?.split_once('.')?;
    let (name, rest) = words.next()?.split_once(": ")?;
    let event = name.strip_prefix('e')?.parse().ok().filter(|event| *event < n_events)?;
    let ns = seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(micros.parse::<u64>().ok()? * 1000)?;
    let shown = rest.split_once(')').map_or("", |(_, shown)| shown);
    Some(FtraceHit { event, tid, cpu: cpu.parse().ok()?, ns, args: parse_args(shown) })
}

/// ` a0=1 a1="te xt"`: each ends where the next begins.
fn parse_args(text: &str) -> Vec<String> {
    let mut args = Vec::new();
    let mut rest = text;
    while let Some(value) = rest.strip_prefix(&format!(" a{}=", args.len())) {
        let end = value.find(&format!(" a{}=", args.len() + 1)).unwrap_or(value.len());
        args.push(value[..end].to_owned());
        rest = &value[end..];
    }
    args
}

/// `CPU:0 [LOST 123 EVENTS]`
fn parse_lost(line: &str) -> Option<u64> {
    let (cpu, rest) = line.trim().split_once(" [LOST ")?;
    cpu.strip_prefix("CPU:")?;
    rest.strip_suffix(" EVENTS]")?.parse().ok()
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

    #[test]
    fn lines_become_records() {
        let operand = |text| parse(Arch::X86_64, text).unwrap();
        let captures = [
            Capture::Value { operand: operand("-4@%eax") },
            Capture::CString { pointer: operand("8@%rdi"), max_bytes: 3, is_trusted: false },
            Capture::Value { operand: operand("8@%rsi") },
        ];
        let line = |values: &[&str]| values.iter().map(|v| (*v).to_owned()).collect::<Vec<String>>();
        let record = |number: i32, word: u32, wide: u64, text: &[u8]| {
            [&number.to_le_bytes()[..], &word.to_le_bytes(), &wide.to_le_bytes(), text].concat()
        };
        let most = u64::MAX.to_string();
        for (values, want) in [
            (line(&["-7", "\"ab\"", &most]), record(-7, 2, u64::MAX, b"ab")),
            (line(&["1", "\"abcd\"", "2"]), record(1, 3 | text::TRUNCATED, 2, b"abc")),
            (line(&["1", "(fault)", "2"]), record(1, text::UNREADABLE, 2, b"")),
            (line(&["1", "\"a"]), record(1, 1 | text::TRUNCATED, 0, b"a")),
            (line(&[]), record(0, text::UNREADABLE, 0, b"")),
        ] {
            assert_eq!(payload(&captures, &values), want, "{values:?}");
        }
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

    #[test]
    fn lines_of_the_kernel() {
        let line = "     my -a [x]-1234    [001] .....  5.000007: e1: (0x55) a0=-1 a1=\"b c\"";
        let args = vec!["-1".to_owned(), "\"b c\"".to_owned()];
        let want = FtraceHit { event: 1, tid: 1234, cpu: 1, ns: 5_000_007_000, args };
        assert_eq!(parse_line(line, 2), Some(want));
        for bad in ["", "x", "a-1 [000]", "a-1 [000] . 5.1: e9: (0x1)", "a-1 [000] . x: e0: (0x1)"] {
            assert_eq!(parse_line(bad, 2), None, "{bad}");
        }
        assert_eq!(parse_lost("CPU:1 [LOST 12 EVENTS]"), Some(12));
        assert_eq!(parse_lost("CPU:1 [LOST x EVENTS]"), None);
    }
}
