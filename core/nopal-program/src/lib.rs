//! What to do at a hit: the typed form a script is compiled to. The interpreter defines its meaning; eBPF code and
//! stubs are made from it elsewhere. Knows no script text, no eBPF, no process.

pub mod aggregate;
pub mod captures;
pub mod interpret;
pub mod layout;
pub mod lower;
pub mod op;
pub mod rank;
pub mod series;
pub mod show;

use layout::Layout;
use op::Op;
use rank::Rank;
use series::Series;

/// A compiled script.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// In the order of the script.
    pub clauses: Vec<Clause>,
    pub maps: Vec<MapDef>,
    /// What the tracer does when a hit emits.
    pub actions: Vec<Action>,
    /// Byte strings that [`Op::Constant`] copies.
    pub constants: Vec<Vec<u8>>,
    pub limits: Limits,
    /// What `latency()` measures.
    pub spans: Vec<SpanDef>,
    /// By map: what was declared of its room. Maps beyond its end have what `limits` says.
    pub rooms: Vec<Room>,
    pub look: Look,
}

/// Which release of bpftrace results look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Look {
    /// 0.17, which Debian 12 has.
    #[default]
    Old,
    /// 0.27.
    New,
}

impl Program {
    /// How many entries a map may have, and whether it forgets old ones for new ones.
    pub fn room(&self, map: usize) -> (u32, bool) {
        let room = self.rooms.get(map).copied().unwrap_or_default();
        (room.entries.unwrap_or(self.limits.map_entries), room.is_lru)
    }
}

/// What lies between two points, paired by the tracer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanDef {
    /// The map of quantiles that durations go into.
    pub map: u32,
    /// Pairs by thread, the innermost first; otherwise by what the payload has behind [`SPAN_KEY_AT`].
    pub is_by_thread: bool,
}

/// Where the key of a span's begin or end lies in its payload: behind the time, the process and the thread, a u64 each.
pub const SPAN_KEY_AT: u32 = 24;

/// What a script declares of a map's room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    pub entries: Option<u32>,
    /// A new entry takes the place of the one that was not used for the longest time.
    pub is_lru: bool,
}

/// One body of the script, and the points that run it.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    /// What the body was compiled for. Points with the same code share a clause.
    pub points: Vec<Point>,
    pub code: Code,
}

/// Straight lines and branches over 64-bit registers and a frame of bytes. Registers are 0 and the frame is zero when a hit begins.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Code {
    pub ops: Vec<Op>,
    pub n_regs: u16,
    pub frame_bytes: u32,
}

/// One place where a clause runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Point {
    /// As `probe` gives it, such as `usdt:/usr/bin/memcached:memcached:command__get`.
    pub name: String,
    pub kind: PointKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PointKind {
    Begin,
    End,
    /// All sites of one probe in one file.
    Usdt {
        path: String,
        provider: String,
        name: String,
    },
    UsdtLater(LaterProbes),
    Uprobe {
        path: String,
        place: Place,
    },
    Uretprobe {
        path: String,
        place: Place,
    },
    Tracepoint {
        category: String,
        name: String,
    },
    Kprobe {
        function: String,
        offset: u64,
    },
    Kretprobe {
        function: String,
    },
    /// On one CPU.
    Interval {
        period_ns: u64,
    },
    /// On every CPU, in whatever runs there.
    Profile {
        period_ns: u64,
    },
    Software {
        event: SoftwareEvent,
        count: u64,
    },
    Hardware {
        event: HardwareEvent,
        count: u64,
    },
    /// Memory of a process is read, written or executed.
    Watchpoint {
        address: u64,
        length_bytes: u8,
        access: Access,
    },
    /// The tracer itself is sent SIGUSR1.
    Signal,
    /// Run by the tracer over and over, to be measured.
    Bench {
        name: String,
    },
}

/// Probes of files that nobody knew of when the script was compiled, such as libraries that are loaded later. By patterns.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LaterProbes {
    /// Empty for every file.
    pub file: String,
    pub provider: String,
    pub name: String,
    /// Path, provider and name of those that have points of their own.
    pub known: Vec<[String; 3]>,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    Symbol {
        name: String,
        offset: u64,
    },
    /// Link-time address.
    Address(u64),
}

/// Events the kernel counts; the names and aliases are bpftrace's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SoftwareEvent {
    AlignmentFaults,
    BpfOutput,
    ContextSwitches,
    CpuClock,
    CpuMigrations,
    Dummy,
    EmulationFaults,
    MajorFaults,
    MinorFaults,
    PageFaults,
    TaskClock,
}

/// What a watchpoint waits for, with the numbers that perf_event_open(2) has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Access {
    Read = 1,
    Write = 2,
    ReadOrWrite = 3,
    Execute = 4,
}

/// Events that the processor counts, with the numbers that perf_event_open(2) has for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum HardwareEvent {
    CpuCycles = 0,
    Instructions = 1,
    CacheReferences = 2,
    CacheMisses = 3,
    BranchInstructions = 4,
    BranchMisses = 5,
    BusCycles = 6,
    FrontendStalls = 7,
    BackendStalls = 8,
    RefCycles = 9,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Room for a string, its NUL included.
    pub string_bytes: u32,
    pub map_entries: u32,
    pub stack_frames: u32,
    /// Of a file, as much as `cat` shows.
    pub cat_bytes: u32,
    /// Maps are printed when the script ends.
    pub prints_maps: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            string_bytes: 256,
            map_entries: 4096,
            stack_frames: 127,
            cat_bytes: 10 << 10,
            prints_maps: true,
        }
    }
}

/// What bytes mean, and how they are shown.
///
/// Layout: integers, floats, pointers, probes and symbols as [`Type::size_bytes`] says, little endian; strings padded
/// with zeros, at least one; members of a tuple one after another, each at a multiple of 8.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    /// `size_bytes` is that of the declared type; a value always takes 8.
    Int {
        size_bytes: u8,
        is_signed: bool,
    },
    /// 0 or another number, shown as `false` and `true`.
    Bool,
    /// The bits of a double, in 8 bytes.
    Float,
    /// Shown in hexadecimal.
    Pointer,
    Str {
        max_bytes: u32,
    },
    /// u64 length, then the bytes.
    Buffer {
        max_bytes: u32,
    },
    Tuple(Vec<Type>),
    /// A tuple whose members have names.
    Record(Vec<(String, Type)>),
    /// Bytes as C lays them out, then zeros.
    Whole(Layout),
    /// u32 clause, u32 point in it.
    Probe,
    /// u64 address, u64 pid.
    UserSymbol,
    /// u64 address.
    KernelSymbol,
    /// u64 pid, u64 number of frames, then u64 addresses.
    UserStack {
        max_frames: u32,
        form: StackForm,
    },
    /// u64 number of frames, then u64 addresses.
    KernelStack {
        max_frames: u32,
        form: StackForm,
    },
    /// u64 nanoseconds as `nsecs` gives them, shown by this strftime format.
    Time {
        format: String,
    },
    /// u64 number of an enum whose labels are known.
    Enum {
        labels: Vec<(i64, String)>,
    },
    /// u64 address family (2 or 10), then 4 or 16 bytes of the address and zeros.
    Inet,
    /// Six bytes and two zeros, in a register the first byte lowest.
    Mac,
    /// u64 user id, shown as the user's name.
    Username,
    /// u64 error number of Linux, shown in words.
    ErrorText,
    /// u64 number of a control group, shown as its paths in the hierarchies whose names match a wildcard.
    CgroupPath {
        filter: String,
    },
}

/// How the frames of a stack are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StackForm {
    /// Function and offset.
    #[default]
    Bpftrace,
    /// Address, function and offset, file.
    Perf,
    /// Address.
    Raw,
    /// Build id of the file, and the place in it.
    BuildId,
}

impl Type {
    pub const U64: Type = Type::Int { size_bytes: 8, is_signed: false };
    pub const I64: Type = Type::Int { size_bytes: 8, is_signed: true };

    /// Bytes a value takes in the frame, in a key, in a map: a multiple of 8.
    pub fn size_bytes(&self) -> u32 {
        match self {
            Type::Int { .. }
            | Type::Bool
            | Type::Float
            | Type::Pointer
            | Type::Probe
            | Type::KernelSymbol
            | Type::Time { .. }
            | Type::Enum { .. }
            | Type::Mac
            | Type::Username
            | Type::ErrorText
            | Type::CgroupPath { .. } => 8,
            Type::UserSymbol => 16,
            Type::Inet => 24,
            Type::Str { max_bytes } => max_bytes.next_multiple_of(8),
            Type::Buffer { max_bytes } => 8 + max_bytes.next_multiple_of(8),
            Type::Tuple(members) => members.iter().map(Type::size_bytes).sum(),
            Type::Record(members) => members.iter().map(|(_, member)| member.size_bytes()).sum(),
            Type::Whole(layout) => layout.size_bytes().next_multiple_of(8),
            Type::UserStack { max_frames, .. } => 16 + 8 * max_frames,
            Type::KernelStack { max_frames, .. } => 8 + 8 * max_frames,
        }
    }

    /// In a register rather than in the frame.
    pub fn is_scalar(&self) -> bool {
        matches!(
            self,
            Type::Int { .. }
                | Type::Bool
                | Type::Float
                | Type::Pointer
                | Type::Probe
                | Type::KernelSymbol
                | Type::Time { .. }
                | Type::Enum { .. }
                | Type::Mac
                | Type::Username
                | Type::ErrorText
                | Type::CgroupPath { .. }
        )
    }
}

/// A map of the script. The key is its members one after another as in a tuple; a map without one has an empty key.
#[derive(Debug, Clone, PartialEq)]
pub struct MapDef {
    /// With its `@`.
    pub name: String,
    pub key: Vec<Type>,
    pub value: MapValue,
}

impl MapDef {
    pub fn key_bytes(&self) -> u32 {
        self.key.iter().map(Type::size_bytes).sum()
    }

    /// Bytes of one value; of one CPU's share where it is an aggregate.
    pub fn value_bytes(&self) -> u32 {
        match &self.value {
            MapValue::Plain(value_type) => value_type.size_bytes(),
            MapValue::Aggregate(aggregate) => 8 * aggregate.n_words(),
            MapValue::Series(_) => 8,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum MapValue {
    /// One value for all CPUs; the last store wins.
    Plain(Type),
    /// A share per CPU, added up when it is read.
    Aggregate(aggregate::Aggregate),
    /// The tracer keeps them; the map of a door has nothing in it.
    Series(Series),
}

/// What the tracer does with an emitted payload. Fields lie in the payload as [`Field`] says.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    Printf {
        format: Format,
    },
    /// `print(@map, top, div, "rank")`; without payload.
    PrintMap {
        map: u32,
        top: u32,
        div: u64,
        rank: Rank,
    },
    /// `print(value)`, and `print(@map[key])`.
    PrintValue {
        field: Field,
    },
    PrintEntry {
        map: u32,
        key_at: u32,
        value: Field,
    },
    Clear {
        map: u32,
    },
    Zero {
        map: u32,
    },
    /// Ends the script with this code after what is in flight.
    Exit {
        code: Option<Field>,
    },
    /// `time(format)`: the wall time when the tracer sees it.
    Time {
        format: String,
    },
    /// `join(argv, separator)`: strings of `max_bytes` each, u64 count first.
    Join {
        at: u32,
        max_count: u32,
        max_bytes: u32,
        separator: String,
    },
    /// A span begins or ends: u64 nanoseconds, process and thread, then the key.
    SpanEdge {
        span: u32,
        is_end: bool,
    },
    /// A value for a time series: u64 nanoseconds, the value, then the key.
    TakeSeries {
        map: u32,
    },
    /// `delete()` of the time series with this key.
    ForgetSeries {
        map: u32,
    },
    /// What is wrong, and where in the script: first byte and end.
    Message {
        format: Format,
        of: MessageOf,
        place: (u32, u32),
        /// Where the macros are called that it is within, the innermost first.
        within: Vec<(u32, u32)>,
    },
    Cat {
        format: Format,
    },
    System {
        format: Format,
    },
}

/// A printf format, parsed: `pieces` in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Format {
    pub pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    Text(String),
    Field { spec: Spec, field: Field },
}

/// `%-08.3llx` in parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spec {
    pub is_left: bool,
    pub has_plus: bool,
    pub has_space: bool,
    pub has_zeros: bool,
    pub is_alternate: bool,
    pub width: Option<u32>,
    pub precision: Option<u32>,
    /// Bytes the length modifier cuts the number to.
    pub size_bytes: Option<u8>,
    /// `d i u x X o c s p r f e g`. Of a buffer: `r` with `\x` before bytes that are not text, `x` (from `%rx`) with `\x`
    /// before every byte, `h` (from `%rh`) as pairs of hexadecimal digits with spaces between them. Or [`ALLOCATION_FLAGS`].
    pub conversion: char,
}

/// The conversion `%gr`: flags of the kernel's allocations by name.
pub const ALLOCATION_FLAGS: char = 'k';

/// Whose message it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageOf {
    /// `errorf()`.
    Error,
    /// `warnf()`.
    Warning,
    /// Ours: what the script does has no sense here.
    Check,
    /// Ours, if asked for: a helper of the kernel could not do its work, and what it returned.
    Helper { name: &'static str, code: i32 },
}

/// A value in a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub at: u32,
    pub value_type: Type,
}
