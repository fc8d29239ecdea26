//! `bpftrace --info`: its keys, answered for what nopal has on this kernel. Attaches nothing.

use super::script::release::Release;
use nopal_kernel::features::Feature;
use std::fmt::Write as _;
use std::path::Path;

/// How wide a key with its value is, since two stand in a line.
const COLUMN: usize = 33;

pub(super) fn info(release: Release) -> String {
    let version = release.version();
    let line = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let (kernel, built) = (line("/proc/sys/kernel/osrelease"), line("/proc/sys/kernel/version"));
    let mut text = format!("System\n  OS: Linux {kernel} {built}\n  Arch: {}\n", std::env::consts::ARCH);
    let own = env!("CARGO_PKG_VERSION");
    let _ = write!(
        text,
        "\nBuild\n  version: v{version}\n  nopal: {own}\n  LLVM: no\n  bfd: no\n  libdw (DWARF support): yes\n"
    );
    if release == Release::Old {
        old_sections(&mut text);
        return text;
    }
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

/// The keys of release 0.17, one a line.
fn old_sections(text: &mut String) {
    let btf = yes_no(Path::new("/sys/kernel/btf/vmlinux").exists());
    let helpers = [
        ("probe_read", "yes"),
        ("probe_read_str", "yes"),
        ("probe_read_user", "yes"),
        ("probe_read_user_str", "yes"),
        ("probe_read_kernel", "yes"),
        ("probe_read_kernel_str", "yes"),
        ("get_current_cgroup_id", "yes"),
        ("send_signal", "no"),
        ("override_return", "no"),
        ("get_boot_ns", "yes"),
        ("dpath", "no"),
        ("skboutput", "no"),
    ];
    let features = [
        ("Instruction limit", "1000000"),
        ("Loop support", yes_no(Feature::Loop.is_there())),
        ("btf", btf),
        ("map batch", "yes"),
        ("uprobe refcount (depends on Build:bcc bpf_attach_uprobe refcount)", "yes"),
    ];
    let maps = [
        ("hash", "yes"),
        ("percpu hash", "yes"),
        ("array", "yes"),
        ("percpu array", "yes"),
        ("stack_trace", "no"),
        ("perf_event_array", "yes"),
    ];
    let has_kprobes = yes_no(Path::new("/sys/bus/event_source/devices/kprobe").exists());
    let kinds = [
        ("kprobe", has_kprobes),
        ("tracepoint", "yes"),
        ("perf_event", "yes"),
        ("kfunc", "no"),
        ("iter:task", "no"),
        ("iter:task_file", "no"),
        ("kprobe_multi", "no"),
        ("raw_tp_special", "no"),
    ];
    for (title, keys) in [
        ("Kernel helpers", &helpers[..]),
        ("Kernel features", &features),
        ("Map types", &maps),
        ("Probe types", &kinds),
    ] {
        let _ = writeln!(text, "\n{title}");
        for (key, value) in keys {
            let _ = writeln!(text, "  {key}: {value}");
        }
    }
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
