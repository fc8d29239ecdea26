//! `bpftrace --info`: its keys, answered for what nopal has on this kernel. Attaches nothing.

use nopal_kernel::features::Feature;
use std::fmt::Write as _;
use std::path::Path;

/// How wide a key with its value is, since two stand in a line.
const COLUMN: usize = 33;

pub(super) fn info(version: &str) -> String {
    let line = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let (release, built) = (line("/proc/sys/kernel/osrelease"), line("/proc/sys/kernel/version"));
    let mut text = format!("System\n  OS: Linux {release} {built}\n  Arch: {}\n", std::env::consts::ARCH);
    let own = env!("CARGO_PKG_VERSION");
    let _ = write!(
        text,
        "\nBuild\n  version: v{version}\n  nopal: {own}\n  LLVM: no\n  bfd: no\n  libdw (DWARF support): yes\n"
    );
    text.push_str("  libsystemd (systemd notify support): no\n  blazesym (advanced symbolization): no\n");
    text.push_str("  dwunwind (DWARF stack unwinding): yes\n");
    let asked = |feature: Feature| (feature.to_string(), yes_no(feature.is_there()));
    let known = |key: &str, value: &'static str| (key.to_owned(), value);
    let helpers = [
        // Only programs at fentry and fexit may call it.
        known("dpath", "no"),
        asked(Feature::TaiClock),
        asked(Feature::FunctionAddress),
        asked(Feature::LookupOfCpu),
        asked(Feature::Loop),
    ];
    section(&mut text, "Kernel helpers", &helpers);
    let btf = yes_no(Path::new("/sys/kernel/btf/vmlinux").exists());
    let features = [known("Instruction limit", "1000000"), known("btf", btf), known("module btf", "no")];
    section(&mut text, "Kernel features", &features);
    let kinds = [
        known("kprobe_multi", "no"),
        asked(Feature::UprobeMulti),
        known("kprobe_session", "no"),
        known("iter", "no"),
    ];
    section(&mut text, "Probe types", &kinds);
    text
}

fn yes_no(is_there: bool) -> &'static str {
    if is_there { "yes" } else { "no" }
}

/// Two keys a line.
fn section(text: &mut String, title: &str, keys: &[(String, &'static str)]) {
    let _ = writeln!(text, "\n{title}");
    for pair in keys.chunks(2) {
        let keys = pair.iter().map(|(key, value)| format!("{:<COLUMN$}", format!("{key}: {value}")));
        let shown: String = keys.collect();
        let _ = writeln!(text, "  {}", shown.trim_end());
    }
}
