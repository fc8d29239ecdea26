//! The machine: what its kernel has, and what it lets this user do.

use crate::{Finding, Level};
use std::fs;
use std::path::Path;

const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What was found out, so that the judgement is a table that can be tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    pub kernel: String,
    pub uid: u32,
    /// Bits of the capabilities this process has.
    pub capabilities: u64,
    pub yama: Option<u8>,
    pub memfd_noexec: Option<u8>,
    /// `none`, `integrity` or `confidentiality`.
    pub lockdown: Option<String>,
    pub has_uprobes: bool,
    pub has_tracefs: bool,
    pub has_btf: bool,
    pub has_rseq: bool,
    pub has_steady_tsc: bool,
    pub clock_source: Option<String>,
    /// Of this process: 0 none, 1 strict, 2 filtered.
    pub seccomp: u8,
}

impl Machine {
    /// Reads the files of the machine below `root`, which is `/` but in tests; the processor and this process are asked
    /// themselves.
    pub fn read(root: &Path) -> Machine {
        let text = |path: &str| fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned());
        let number = |path: &str| text(path).and_then(|text| text.parse().ok());
        let status = text("proc/self/status").unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(str::trim).unwrap_or_default().to_owned()
        };
        Machine {
            kernel: text("proc/sys/kernel/osrelease").unwrap_or_default(),
            uid: field("Uid").split_whitespace().nth(1).and_then(|uid| uid.parse().ok()).unwrap_or(0),
            capabilities: u64::from_str_radix(&field("CapEff"), 16).unwrap_or(0),
            yama: number("proc/sys/kernel/yama/ptrace_scope"),
            memfd_noexec: number("proc/sys/vm/memfd_noexec"),
            lockdown: text("sys/kernel/security/lockdown").and_then(|text| chosen(&text)),
            has_uprobes: root.join("sys/bus/event_source/devices/uprobe/type").exists(),
            has_tracefs: root.join("sys/kernel/tracing/events").exists()
                || root.join("sys/kernel/debug/tracing/events").exists(),
            has_btf: root.join("sys/kernel/btf/vmlinux").exists(),
            has_rseq: has_rseq(),
            has_steady_tsc: nopal_live::clock::is_tsc_steady(),
            clock_source: text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            seccomp: field("Seccomp").parse().unwrap_or(0),
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities & 1 << capability != 0
    }
}

/// `none [integrity] confidentiality`: the one in brackets.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

/// The C library says how large the area is that it registered; the kernel, since 6.3, how large it may be.
fn has_rseq() -> bool {
    const AT_RSEQ_FEATURE_SIZE: u64 = 27;
    // SAFETY: reads what the kernel told this process at its start.
    let told = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
    // Asked with nonsense, a kernel that has the call says so.
    // SAFETY: a null area with the length 0 is refused by every kernel.
    let answer = unsafe { libc::syscall(libc::SYS_rseq, std::ptr::null_mut::<u8>(), 0u32, 0, 0) };
    let is_absent = answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS);
    told > 0 || !is_absent
}

/// What the machine lets nopal do.
pub fn machine(m: &Machine) -> Vec<Finding> {
    let mut findings = vec![match cfg!(target_arch = "x86_64") {
        true => Finding::fine("kernel", format!("Linux {} on x86-64", m.kernel)),
        false => Finding::problem(
            "kernel",
            format!("Linux {}, but this is not x86-64", m.kernel),
            "list and view work; tracing needs an x86-64 machine",
        ),
    }];
    findings.extend(user_door(m));
    findings.extend(kernel_door(m));
    findings.push(match (m.has_steady_tsc, &m.clock_source) {
        (true, _) => Finding::fine("clock", "the time stamp counter runs steadily"),
        (false, source) => Finding::problem(
            "clock",
            format!(
                "the time stamp counter does not run steadily (the kernel's clock is {})",
                source.as_deref().unwrap_or("unknown")
            ),
            "the user door cannot read the time here; use --door kernel, or a machine or guest with an invariant TSC",
        ),
    });
    findings
}

fn user_door(m: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_tracer = m.has(CAP_SYS_PTRACE);
    findings.push(match (m.yama, is_tracer) {
        (Some(3), _) => Finding::problem(
            "yama",
            "kernel.yama.ptrace_scope is 3: no process may attach to a running process",
            "it cannot be changed while the machine runs; boot with another value, or use --door kernel as root",
        ),
        (Some(2), false) => Finding::problem(
            "yama",
            "kernel.yama.ptrace_scope is 2: attaching needs CAP_SYS_PTRACE",
            "run as root, or `sysctl kernel.yama.ptrace_scope=0`",
        ),
        (Some(1), false) => Finding::notice(
            "yama",
            "kernel.yama.ptrace_scope is 1: only programs that nopal starts can be traced without root",
            "start them with `nopal ... -- COMMAND`, run as root, or `sysctl kernel.yama.ptrace_scope=0`",
        ),
        (_, true) => Finding::fine("yama", "the user door may enter any process"),
        _ => Finding::fine("yama", format!("the user door may enter processes of user {}", m.uid)),
    });
    if m.memfd_noexec == Some(2) {
        findings.push(Finding::problem(
            "memfd",
            "vm.memfd_noexec is 2: code in memory files is forbidden, and the user door keeps its code there",
            "`sysctl vm.memfd_noexec=0`, or use --door kernel",
        ));
    }
    if !m.has_rseq {
        findings.push(Finding::notice(
            "rseq",
            "the kernel has no restartable sequences: a hit takes a lock, some 10 ns more",
            "a kernel with CONFIG_RSEQ (4.18 or newer)",
        ));
    }
    if m.seccomp == 2 && !is_tracer {
        findings.push(Finding::notice(
            "seccomp",
            "this process is itself behind a seccomp filter, as in most containers: ptrace may be forbidden",
            "give the container CAP_SYS_PTRACE, or run nopal on the host",
        ));
    }
    findings
}

fn kernel_door(m: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let may_bpf = m.has(CAP_SYS_ADMIN) || (m.has(CAP_BPF) && m.has(CAP_PERFMON));
    if !m.has_uprobes {
        findings.push(Finding::problem(
            "uprobes",
            "the kernel has no uprobes: the kernel door is closed",
            "a kernel with CONFIG_UPROBE_EVENTS; --door user needs none",
        ));
    }
    findings.push(match may_bpf {
        true => Finding::fine("bpf", "the kernel door may load eBPF programs"),
        false => Finding::notice(
            "bpf",
            "the kernel door is closed to this user: it needs CAP_BPF and CAP_PERFMON",
            "run as root for sites that the user door cannot open; the others need nothing",
        ),
    });
    if m.lockdown.as_deref() == Some("confidentiality") {
        findings.push(Finding::problem(
            "lockdown",
            "the kernel is locked down (confidentiality): eBPF programs may not read memory",
            "boot with lockdown=integrity or none, or use --door user",
        ));
    }
    if !m.has_tracefs && may_bpf {
        findings.push(Finding::notice(
            "tracefs",
            "tracefs is not mounted: nopal mounts it for itself when children are to inherit uprobes",
            "`mount -t tracefs tracefs /sys/kernel/tracing`",
        ));
    }
    if !m.has_btf {
        findings.push(Finding::notice(
            "btf",
            "the kernel does not describe its types: scripts cannot read its structs by name",
            "a kernel with CONFIG_DEBUG_INFO_BTF",
        ));
    }
    findings
}

impl Level {
    /// The worst of them.
    pub fn of(findings: &[Finding]) -> Level {
        findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Fine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit() -> Machine {
        Machine {
            kernel: "6.18.0".into(),
            uid: 1000,
            capabilities: 0,
            yama: Some(0),
            memfd_noexec: Some(0),
            lockdown: Some("none".into()),
            has_uprobes: true,
            has_tracefs: true,
            has_btf: true,
            has_rseq: true,
            has_steady_tsc: true,
            clock_source: Some("tsc".into()),
            seccomp: 0,
        }
    }

    type Plant = fn(&mut Machine);

    #[test]
    fn each_planted_problem_is_found_and_nothing_else() {
        let root = |m: &mut Machine| m.capabilities = u64::MAX;
        let plants: [(&str, Level, Plant); 14] = [
            ("bpf", Level::Notice, |_| {}),
            ("yama", Level::Notice, |m| m.yama = Some(1)),
            ("yama", Level::Problem, |m| m.yama = Some(2)),
            ("yama", Level::Problem, |m| m.yama = Some(3)),
            ("memfd", Level::Problem, |m| m.memfd_noexec = Some(2)),
            ("rseq", Level::Notice, |m| m.has_rseq = false),
            ("seccomp", Level::Notice, |m| m.seccomp = 2),
            ("uprobes", Level::Problem, |m| m.has_uprobes = false),
            ("lockdown", Level::Problem, |m| m.lockdown = Some("confidentiality".into())),
            ("btf", Level::Notice, |m| m.has_btf = false),
            ("clock", Level::Problem, |m| m.has_steady_tsc = false),
            ("tracefs", Level::Notice, |m| (m.has_tracefs, m.capabilities) = (false, u64::MAX)),
            ("yama", Level::Problem, |m| (m.yama, m.capabilities) = (Some(3), u64::MAX)),
            ("bpf", Level::Notice, |m| m.capabilities = 1 << CAP_BPF),
        ];
        for (code, level, plant) in plants {
            let mut planted = fit();
            plant(&mut planted);
            let found = machine(&planted);
            let is_it = |f: &&Finding| f.code == code && f.level == level;
            assert!(found.iter().any(|f| is_it(&f)), "{code}: {found:#?}");
            // Without rights there is always the notice on eBPF.
            let others = found.iter().filter(|f| f.level != Level::Fine && f.code != "bpf" && !is_it(f));
            assert_eq!(others.count(), 0, "{code}: {found:#?}");
            assert!(found.iter().all(|f| f.remedy.is_some() == (f.level != Level::Fine)), "{found:#?}");
        }
        let mut best = fit();
        root(&mut best);
        assert_eq!(Level::of(&machine(&best)), Level::Fine);
    }

    #[test]
    fn a_machine_is_read_from_its_files() {
        let root = std::env::temp_dir().join(format!("nopal-doctor-{}", std::process::id()));
        let files = [
            ("proc/sys/kernel/osrelease", "9.9.9-test\n"),
            ("proc/sys/kernel/yama/ptrace_scope", "2\n"),
            ("proc/sys/vm/memfd_noexec", "2\n"),
            ("sys/kernel/security/lockdown", "none integrity [confidentiality]\n"),
            (
                "proc/self/status",
                "Name:\tx\nUid:\t1000\t1001\t1000\t1000\nCapEff:\t0000000000080000\nSeccomp:\t2\n",
            ),
        ];
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        let m = Machine::read(&root);
        fs::remove_dir_all(&root).expect("removed");
        assert_eq!(
            (m.kernel.as_str(), m.uid, m.yama, m.memfd_noexec, m.seccomp),
            ("9.9.9-test", 1001, Some(2), Some(2), 2)
        );
        assert_eq!(m.lockdown.as_deref(), Some("confidentiality"));
        assert!(m.has(CAP_SYS_PTRACE) && !m.has(CAP_BPF) && !m.has_uprobes && !m.has_tracefs && !m.has_btf);
    }
}
