//! What the compiler must be told about the points a script names: which there are, and what arguments they have.

use crate::ctype::{CType, Record};
use nopal_program::Point;

/// A point as the script has it, wildcards and all: `usdt:./app:prov:na*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PointSpec {
    /// With aliases resolved: `usdt`, `uprobe`, `uretprobe`, `tracepoint`, `kprobe`, `kretprobe`, `interval`, `profile`,
    /// `software`, `hardware`, `self`, `BEGIN`, `END`, and those that are only listed.
    pub kind: String,
    /// What stands between the colons; `usdt::PROVIDER:NAME` has an empty file.
    pub parts: Vec<String>,
}

/// Answers for one target: the processes traced, or a recording.
pub trait Catalog {
    /// The points a spec stands for, in a stable order; never empty. Not asked for `BEGIN`, `END`, `interval`,
    /// `profile` and `software`.
    fn points(&self, spec: &PointSpec) -> Result<Vec<KnownPoint>, NoPoint>;

    /// A type of the kernel the script does not define, by its full name: `struct task_struct`.
    fn record(&self, _name: &str) -> Option<Record> {
        None
    }

    /// A named number of the kernel the script does not define: `TCP_CLOSE`.
    fn constant(&self, _name: &str) -> Option<i64> {
        None
    }

    /// What argument `name` of a point is where its [`ArgType`] says too little, such as a pointer to a record.
    fn arg_type(&self, _point: &Point, _name: &str) -> Option<CType> {
        None
    }

    /// The parameters of a function, if its debug information is there. Asked only for scripts that say `args`.
    fn parameters(&self, _point: &Point) -> Vec<KnownArg> {
        Vec::new()
    }

    /// Where the function of a spec was put into others. Asked only for scripts that set `probe_inline`.
    fn inlined(&self, _spec: &PointSpec) -> Vec<KnownPoint> {
        Vec::new()
    }

    /// For `kaddr("symbol")`.
    fn kernel_address(&self, _symbol: &str) -> Option<u64> {
        None
    }

    /// For `uaddr("symbol")`: in the file of the point, or why there is none.
    fn user_symbol(&self, _point: &Point, symbol: &str) -> Result<UserSymbol, String> {
        Err(format!("the address of `{symbol}` is not known here"))
    }

    /// For `cgroupid("/sys/fs/cgroup/...")`.
    fn cgroup_id(&self, _path: &str) -> Option<u64> {
        None
    }

    /// For `nsecs(sw_tai)`: how far CLOCK_TAI is ahead of `nsecs`.
    fn tai_offset_ns(&self) -> Option<i64> {
        None
    }

    /// For `pid(init)`: whether process numbers here are those of the whole machine.
    fn has_initial_pids(&self) -> bool {
        false
    }

    /// For `ncpus`.
    fn n_cpus(&self) -> u32 {
        1
    }

    /// For `cpid`: the process started for the script.
    fn child_pid(&self) -> Option<u32> {
        None
    }
}

/// What `uaddr("symbol")` leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserSymbol {
    /// The address is the distance from the point, since the file may be anywhere.
    pub is_relative: bool,
    pub address: u64,
    pub size_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoPoint {
    pub reason: String,
    /// Such as "did you mean `memcached:command__get`?".
    pub hint: Option<String>,
    /// The file is there, and only has no such function: a body with other points runs at those.
    pub is_only_absent: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct KnownPoint {
    pub point: Point,
    /// Of a USDT probe in the order of `arg0`, `arg1`...; of a tracepoint its fields.
    pub args: Vec<KnownArg>,
    /// Why nobody may attach to it, if so. Among others it is left out.
    pub obstacle: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct KnownArg {
    /// Empty if nobody knows.
    pub name: String,
    pub arg_type: ArgType,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ArgType {
    Int {
        size_bytes: u8,
        is_signed: bool,
    },
    Enum {
        labels: Vec<(i64, String)>,
    },
    Pointer,
    /// A pointer to a string that ends at its NUL, or the string itself in a recording.
    Str,
    /// A pointer to as many bytes as argument `length_arg` says.
    Bytes {
        length_arg: Option<u8>,
    },
    Float,
    /// Of a function: what is in the register of `argN`.
    InRegister {
        number: u8,
        value: CType,
        /// Of an enum.
        labels: Vec<(i64, String)>,
    },
    /// Of a function: a text whose address is in the register of `argN`, and its length in that of another.
    TextInRegisters {
        number: u8,
        length: u8,
    },
    /// Of a function: nowhere that scripts reach, and why.
    Absent {
        why: String,
    },
    /// Of a tracepoint: a number at `offset` of its record.
    Field {
        offset: u16,
        size_bytes: u8,
        is_signed: bool,
    },
    /// Of a tracepoint: `size_bytes` characters at `offset`.
    FieldChars {
        offset: u16,
        size_bytes: u16,
    },
    /// Of a tracepoint: a string whose place stands at `offset`.
    FieldString {
        offset: u16,
    },
}
