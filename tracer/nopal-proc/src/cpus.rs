//! The CPUs of this machine.

use nopal_abi::MAX_CPUS;

/// One more than the highest CPU number this machine can ever have.
pub fn possible_cpus() -> std::io::Result<u32> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let highest = text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok());
    highest.filter(|&cpu| cpu < MAX_CPUS).map(|cpu| cpu + 1).ok_or_else(|| {
        std::io::Error::new(std::io::ErrorKind::InvalidData, "/sys/devices/system/cpu/possible")
    })
}
