//! A running program: whether it can be entered, and why a probe of it may stay silent.

use crate::Finding;
use nopal_proc::capability::Capability;
use nopal_proc::{MappedObject, Process, TargetError, Width, mapped_objects};
use nopal_sdt::probe::{Probe, Site};
use nopal_sdt::{Object, Pattern};
use nopal_user::memory::Memory;
use nopal_user::process as user;
use std::fs;

const BREAKPOINT: u8 = 0xcc;
/// What the user door keeps in a process.
const STUBS: &str = "memfd:nopal-stubs";

/// What is in the way of tracing a process.
pub fn process(pid: u32) -> Vec<Finding> {
    let process = match Process::read(pid) {
        Ok(process) => process,
        Err(error) => return vec![cannot(pid, &error)],
    };
    if process.is_zombie {
        return vec![cannot(pid, &TargetError::Zombie { pid })];
    }
    let mut findings = vec![match process.width() {
        Ok(Width::Bits64) => {
            Finding::fine("process", format!("process {pid} is {}, a 64-bit program", process.name))
        }
        Ok(Width::Bits32) => Finding::problem(
            "32-bit",
            format!("process {pid} ({}) is a 32-bit program", process.name),
            "only 64-bit programs can be traced",
        ),
        Err(error) => return vec![cannot(pid, &error)],
    }];
    findings.push(match user::check_enterable(pid as i32) {
        Ok(_) => Finding::fine("enter", "the user door may enter it"),
        Err(error) if error.is_of_program() && has_kernel_door() => Finding::notice(
            "enter",
            error.cause().to_string(),
            "nothing: its sites are the kernel door's by themselves",
        ),
        Err(error) => {
            let step = error.next_step().unwrap_or_else(|| "--door kernel".to_owned());
            Finding::problem(
                "enter",
                error.cause().to_string(),
                format!("{step}; the kernel door needs root"),
            )
        }
    });
    if let Ok(status) = user::status(pid as i32) {
        findings.extend(state(pid, &status));
    }
    findings.extend(namespaces(pid));
    findings.extend(code(pid));
    findings
}

fn cannot(pid: u32, error: &TargetError) -> Finding {
    let remedy = match error {
        TargetError::NoSuchProcess { .. } => {
            "it may have ended; `nopal list -u` shows running programs with probes"
        }
        TargetError::Zombie { .. } => "it has ended and its parent has not noticed yet",
        TargetError::KernelThread { .. } => "name a process that runs a program",
        TargetError::NotPermitted { .. } => TargetError::ask_for_permission(),
        _ => "`nopal list -u` shows running programs with probes",
    };
    let code = match error {
        TargetError::NotPermitted { .. } => "not-permitted",
        TargetError::KernelThread { .. } => "kernel-thread",
        _ => "no-such-process",
    };
    Finding::problem(code, format!("process {pid}: {error}"), remedy)
}

fn state(pid: u32, status: &user::Status) -> Vec<Finding> {
    let mut findings = Vec::new();
    if status.tracer_pid != 0 {
        let name = nopal_proc::read_text(format!("/proc/{}/comm", status.tracer_pid)).unwrap_or_default();
        findings.push(Finding::problem(
            "traced",
            format!("{} (process {}) holds it as a debugger", name.trim(), status.tracer_pid),
            "let that tool go; a process has one ptracer at a time. --door kernel works beside it",
        ));
    }
    if matches!(status.state, 'T' | 't') {
        findings.push(Finding::notice(
            "stopped",
            "it is stopped: its probes fire when it goes on",
            format!("`kill -CONT {pid}`"),
        ));
    }
    if status.seccomp != 0 {
        findings.push(Finding::notice(
            "sandbox",
            "it is behind a seccomp filter, as in most containers: the user door does not enter it",
            "the kernel door does, as root on the host; a container has none with --security-opt seccomp=unconfined",
        ));
    }
    findings
}

/// Whether this process may open the kernel door.
fn has_kernel_door() -> bool {
    Capability::SysAdmin.is_held() || Capability::Bpf.is_held() && Capability::Perfmon.is_held()
}

/// Namespaces other than ours.
fn namespaces(pid: u32) -> Option<Finding> {
    let link = |who: &str, kind: &str| fs::read_link(format!("/proc/{who}/ns/{kind}")).ok();
    let other: Vec<&str> = ["pid", "mnt", "user", "net"]
        .into_iter()
        .filter(|kind| {
            let theirs = link(&pid.to_string(), kind);
            theirs.is_some() && theirs != link("self", kind)
        })
        .collect();
    (!other.is_empty()).then(|| {
        Finding::notice(
            "namespace",
            format!("it is in other namespaces ({}), as in a container", other.join(", ")),
            "events have its own numbers as vpid and vtid; paths are those it sees",
        )
    })
}

/// Its files, and what others did to them.
fn code(pid: u32) -> Vec<Finding> {
    let objects = match nopal_proc::changeable_objects(pid) {
        Ok(objects) => objects,
        Err(error @ TargetError::Translated { .. }) => {
            return vec![Finding::problem(
                "translated",
                error.to_string(),
                "run the program without that tool",
            )];
        }
        Err(_) => return Vec::new(),
    };
    let mut findings = Vec::new();
    let mut n_probes = 0;
    for mapped in &objects {
        let object = read(mapped);
        n_probes += object.as_ref().map_or(0, |object| object.probes.len());
        if mapped.is_deleted && object.is_some_and(|object| !object.probes.is_empty()) {
            findings.push(Finding::notice(
                "deleted",
                format!("{} was replaced or deleted since the program started", mapped.path.display()),
                "restart the program to trace the new file; the old one is traced as it is in memory",
            ));
        }
    }
    findings.push(match n_probes {
        0 => Finding::problem(
            "no-probes",
            format!("none of its {} programs and libraries has probes", objects.len()),
            "many projects switch them on when they are built; functions can be traced without: `nopal run -e 'uprobe:...'`",
        ),
        n => Finding::fine("probes", format!("it has {n} probes; `nopal list -p {pid}` shows them")),
    });
    if is_entered(pid) {
        let detach = format!("`nopal detach -p {pid}` puts back what a killed tracer left");
        let (code, about, remedy) = match nopal_user::leave::has_leftovers(pid as i32) {
            Some(true) => ("leftovers", "a tracer was killed and has left changes in its code", detach),
            Some(false) => {
                let about =
                    "nopal traces it or has traced it: pages for its code stay until the program ends";
                ("nopal", about, "nothing is to be done".to_owned())
            }
            None => ("nopal", "nopal traces it or has traced it", detach),
        };
        findings.push(Finding::notice(code, about, remedy));
    }
    findings
}

fn is_entered(pid: u32) -> bool {
    nopal_proc::read_text(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(STUBS))
}

fn read(mapped: &MappedObject) -> Option<Object> {
    mapped.open().ok().and_then(|image| nopal_sdt::read(image.bytes()).ok())
}

/// Why a probe of a process does not fire, as far as can be seen without waiting for it. Gives the findings and whether
/// there is such a probe.
pub fn probe(pid: u32, text: &str) -> (Vec<Finding>, bool) {
    let pattern = Pattern::parse(text);
    let Ok(objects) = mapped_objects(pid) else { return (Vec::new(), false) };
    let mut findings = Vec::new();
    let mut names = Vec::new();
    let mut is_found = false;
    for mapped in &objects {
        let Some(object) = read(mapped) else { continue };
        names.extend(object.probes.iter().map(|probe| format!("{}:{}", probe.provider, probe.name)));
        for found in object.probes.iter().filter(|probe| pattern.matches(&probe.provider, &probe.name)) {
            is_found = true;
            findings.extend(places(pid, mapped, &object, found));
        }
    }
    if !is_found {
        findings.push(absent(pid, text, &names));
    }
    (findings, is_found)
}

fn absent(pid: u32, text: &str, names: &[String]) -> Finding {
    let pattern = Pattern::parse(text);
    let elsewhere = nopal_proc::descendants(pid).into_iter().find(|child| {
        let objects = mapped_objects(*child).unwrap_or_default();
        objects
            .iter()
            .filter_map(read)
            .any(|object| object.probes.iter().any(|probe| pattern.matches(&probe.provider, &probe.name)))
    });
    if let Some(child) = elsewhere {
        return Finding::notice(
            "in-child",
            format!("process {pid} does not map {text}; its child {child} does"),
            "nopal follows children: the probe is traced there",
        );
    }
    let remedy = match nopal_sdt::pattern::nearest(text, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("`nopal list -p {pid}` shows the probes it has; its library may not be loaded yet"),
    };
    Finding::problem("not-mapped", format!("no file that process {pid} maps has {text}"), remedy)
}

/// What stands at the places of a probe.
fn places(pid: u32, mapped: &MappedObject, object: &Object, probe: &Probe) -> Vec<Finding> {
    let name = format!("{}:{}", probe.provider, probe.name);
    let biases = mapped.load_biases(object);
    let Ok(memory) = Memory::open(pid as i32) else {
        return vec![Finding::fine("mapped", format!("{name} is in {}", mapped.path.display()))];
    };
    let n = probe.sites.len() * biases.len();
    let places = if n == 1 { "place" } else { "places" };
    let mut findings =
        vec![Finding::fine("mapped", format!("{name} is in {}, at {n} {places}", mapped.path.display()))];
    let at = || probe.sites.iter().flat_map(|site| biases.iter().map(move |bias| (site, *bias)));
    let here = |site: &Site, bias: u64| {
        memory.read_vec(site.address.wrapping_add(bias), site.code.len().min(5)).unwrap_or_default()
    };
    let is_entered = is_entered(pid);
    if at().any(|(site, bias)| {
        here(site, bias).first() == Some(&BREAKPOINT) && site.code.first() != Some(&BREAKPOINT)
    }) {
        findings.push(Finding::notice(
            "breakpoint",
            format!("another tool has a breakpoint on {name}: a uprobe of bpftrace or perf, or a debugger's"),
            "nopal works beside it, by the kernel door, as root",
        ));
    } else if !is_entered && at().any(|(site, bias)| !site.code.starts_with(&here(site, bias))) {
        findings.push(Finding::problem(
            "changed",
            format!("the code at {name} is not what the file has: the program or another tool changed it"),
            "nopal leaves such a place alone; restart the program",
        ));
    }
    let raised = |(site, bias): (&Site, u64)| {
        let semaphore = site.semaphore?;
        memory.read_u16(semaphore.address.wrapping_add(bias)).ok().filter(|value| *value > 0)
    };
    if let Some(value) = at().find_map(raised)
        && !is_entered
        && !findings.iter().any(|finding| finding.code == "breakpoint")
    {
        findings.push(Finding::notice(
            "semaphore",
            format!("the semaphore of {name} is {value} and no tool holds it: a tool that was killed left it raised"),
            "the program prepares arguments that no tool reads, at some cost; restarting it lowers the semaphore",
        ));
    }
    findings
}
