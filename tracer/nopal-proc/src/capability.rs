//! The capabilities of this process, as the kernel tells them.

/// Those that matter here, with their numbers in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    DacOverride = 1,
    SysPtrace = 19,
    SysAdmin = 21,
    Perfmon = 38,
    Bpf = 39,
}

impl Capability {
    /// Whether this process has it now. Where nobody tells, it is assumed.
    pub fn is_held(self) -> bool {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let effective = status
            .lines()
            .find_map(|line| line.strip_prefix("CapEff:"))
            .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
        effective.is_none_or(|bits| bits & 1 << self as u32 != 0)
    }
}
