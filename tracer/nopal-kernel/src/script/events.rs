//! Points of the kernel: tracepoints, functions, timers, counters. Each is a perf event with a program.

use super::attach::PointInProcess;
use super::code::{ArgLayout, Kind, Source, Which};
use super::{Attached, ScriptDoor, ScriptError, State};
use crate::refusal::Refusal;
use nopal_proc::perf::{self, PerfAttr, TYPE_HARDWARE, TYPE_SOFTWARE, TYPE_TRACEPOINT};
use nopal_program::{PointKind, SoftwareEvent};
use std::ffi::CString;
use std::fs;
use std::os::fd::OwnedFd;

const CPU_CLOCK: u64 = 0;
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

impl ScriptDoor {
    /// Attaches tracepoints, kernel functions, timers and counters.
    pub fn attach_events(&mut self) -> Result<Vec<Attached>, ScriptError> {
        let clauses = self.program.clauses.iter().enumerate();
        let all = clauses.flat_map(|(clause, each)| (0..each.points.len()).map(move |point| (clause, point)));
        let is_tracepoint = |(clause, point): &(usize, usize)| {
            let kind = &self.program.clauses[*clause].points[*point].kind;
            matches!(kind, PointKind::Tracepoint { .. })
        };
        // The kernel runs what is on a tracepoint first to last, and everything else last to first.
        let (mut order, others): (Vec<_>, Vec<_>) = all.partition(is_tracepoint);
        order.extend(others.into_iter().rev());
        let mut states = Vec::new();
        for (clause, point) in order {
            let kind = self.program.clauses[clause].points[point].kind.clone();
            let state = match self.attach_event(clause, point, &kind) {
                Ok(None) => continue,
                Ok(Some(n_sites)) => State::Armed { n_sites },
                Err(error @ ScriptError::Io { .. }) => {
                    State::Refused { why: Refusal::Unreadable { reason: error.to_string() } }
                }
                Err(error) => return Err(error),
            };
            states.push(Attached { clause, point, pid: None, is_new: true, state });
        }
        states.sort_by_key(|state| (state.clause, state.point));
        Ok(states)
    }

    /// How many events were made for a point; `None` if it is not an event, or attached already.
    fn attach_event(
        &mut self,
        clause: usize,
        point: usize,
        kind: &PointKind,
    ) -> Result<Option<usize>, ScriptError> {
        if self.attached.contains(&PointInProcess::of_event(clause, point)) {
            return Ok(None);
        }
        let Some((code_kind, layouts)) = kind_of(kind) else { return Ok(None) };
        let (attr, cpus, _name) = event(kind)?;
        let program = self.load(clause, code_kind, Which::Point(point as u32), &layouts)?;
        let name = self.program.clauses[clause].points[point].name.clone();
        let failed = |error: std::io::Error| {
            let is_uncounted = error.raw_os_error() == Some(libc::ENOENT);
            ScriptError::io(
                match kind {
                    PointKind::Hardware { .. } if is_uncounted => {
                        format!("this machine does not count {name}, as virtual machines often do not")
                    }
                    _ => format!("opening {name}"),
                },
                error,
            )
        };
        let mut opened: Vec<OwnedFd> = Vec::with_capacity(cpus.len());
        for cpu in &cpus {
            let event = match perf::open(&attr, -1, *cpu) {
                // A CPU that is not there.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) && cpus.len() > 1 => continue,
                event => event.map_err(failed)?,
            };
            perf::attach_program(&event, &self.loaded[program].fd).map_err(failed)?;
            perf::enable(&event).map_err(failed)?;
            opened.push(event);
        }
        let n = opened.len();
        self.events.extend(opened);
        self.attached.insert(PointInProcess::of_event(clause, point));
        Ok(Some(n))
    }
}

fn kind_of(kind: &PointKind) -> Option<(Kind, Vec<ArgLayout>)> {
    let registers = || {
        let args = [7, 6, 2, 1, 8, 9].map(|number| (Source::Register(number), None)).to_vec();
        vec![ArgLayout { args }]
    };
    match kind {
        PointKind::Tracepoint { .. } => Some((Kind::Tracepoint, Vec::new())),
        PointKind::Kprobe { .. } => Some((Kind::Kprobe, registers())),
        PointKind::Kretprobe { .. } => Some((Kind::Kretprobe, registers())),
        PointKind::Interval { .. }
        | PointKind::Profile { .. }
        | PointKind::Software { .. }
        | PointKind::Hardware { .. } => Some((Kind::PerfEvent, Vec::new())),
        PointKind::Begin
        | PointKind::End
        | PointKind::Signal
        | PointKind::Bench { .. }
        | PointKind::Usdt { .. }
        | PointKind::UsdtLater(_)
        | PointKind::Uprobe { .. }
        | PointKind::Uretprobe { .. }
        // Of a process: attached with it.
        | PointKind::Watchpoint { .. } => None,
    }
}

/// What to count, on which CPUs; the name lives as long as the event is being opened.
fn event(kind: &PointKind) -> Result<(PerfAttr, Vec<i32>, Option<CString>), ScriptError> {
    let software = |config, sample_period: u64| PerfAttr {
        event_type: TYPE_SOFTWARE,
        config,
        sample_period: sample_period.max(1),
        ..PerfAttr::default()
    };
    Ok(match kind {
        PointKind::Tracepoint { category, name } => {
            let attr = PerfAttr {
                event_type: TYPE_TRACEPOINT,
                config: tracepoint_id(category, name)?,
                sample_period: 1,
                ..PerfAttr::default()
            };
            // A program on a tracepoint runs on every CPU, wherever the event is.
            (attr, vec![0], None)
        }
        PointKind::Interval { period_ns } => (software(CPU_CLOCK, *period_ns), vec![0], None),
        PointKind::Profile { period_ns } => (software(CPU_CLOCK, *period_ns), online_cpus()?, None),
        PointKind::Software { event, count } => {
            (software(software_config(*event), *count), online_cpus()?, None)
        }
        PointKind::Hardware { event, count } => {
            let counted = PerfAttr { event_type: TYPE_HARDWARE, ..software(*event as u64, *count) };
            (counted, online_cpus()?, None)
        }
        PointKind::Kprobe { function, offset } => kernel_function(function, *offset, false)?,
        PointKind::Kretprobe { function } => kernel_function(function, 0, true)?,
        PointKind::Begin
        | PointKind::End
        | PointKind::Signal
        | PointKind::Bench { .. }
        | PointKind::Usdt { .. }
        | PointKind::UsdtLater(_)
        | PointKind::Uprobe { .. }
        | PointKind::Uretprobe { .. }
        | PointKind::Watchpoint { .. } => (PerfAttr::default(), Vec::new(), None),
    })
}

fn software_config(event: SoftwareEvent) -> u64 {
    match event {
        SoftwareEvent::CpuClock => CPU_CLOCK,
        SoftwareEvent::TaskClock => 1,
        SoftwareEvent::PageFaults => 2,
        SoftwareEvent::ContextSwitches => 3,
        SoftwareEvent::CpuMigrations => 4,
        SoftwareEvent::MinorFaults => 5,
        SoftwareEvent::MajorFaults => 6,
        SoftwareEvent::AlignmentFaults => 7,
        SoftwareEvent::EmulationFaults => 8,
        SoftwareEvent::Dummy => 9,
        SoftwareEvent::BpfOutput => 10,
    }
}

fn tracepoint_id(category: &str, name: &str) -> Result<u64, ScriptError> {
    if [category, name].iter().any(|part| part.contains('/') || part.starts_with('.')) {
        return Err(no_tracepoint(category, name));
    }
    let mut is_mounted = false;
    for root in TRACEFS {
        is_mounted |= fs::metadata(format!("{root}/events")).is_ok();
        match fs::read_to_string(format!("{root}/events/{category}/{name}/id")) {
            Ok(text) => return text.trim().parse().map_err(|_| no_tracepoint(category, name)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(ScriptError::NotPermitted {
                    what: format!("reading {root}"),
                    capability: "CAP_DAC_READ_SEARCH",
                });
            }
            Err(_) => {}
        }
    }
    if is_mounted {
        return Err(no_tracepoint(category, name));
    }
    Err(ScriptError::Io {
        what: "tracepoints are found through tracefs, which is not mounted; `mount -t tracefs nodev /sys/kernel/tracing` helps"
            .to_owned(),
        error: std::io::ErrorKind::NotFound.into(),
    })
}

fn no_tracepoint(category: &str, name: &str) -> ScriptError {
    ScriptError::Io {
        what: format!("this kernel has no tracepoint {category}:{name}"),
        error: std::io::ErrorKind::NotFound.into(),
    }
}

fn kernel_function(
    function: &str,
    offset: u64,
    is_return: bool,
) -> Result<(PerfAttr, Vec<i32>, Option<CString>), ScriptError> {
    let kind =
        fs::read_to_string("/sys/bus/event_source/devices/kprobe/type").map_err(|_| ScriptError::Io {
            what: "this kernel was built without kprobes; tracepoints and uprobes work".to_owned(),
            error: std::io::ErrorKind::Unsupported.into(),
        })?;
    let invalid = || ScriptError::Io {
        what: format!("kernel function {function}"),
        error: std::io::ErrorKind::InvalidInput.into(),
    };
    let name = CString::new(function).map_err(|_| invalid())?;
    let attr = PerfAttr {
        event_type: kind.trim().parse().map_err(|_| invalid())?,
        config: u64::from(is_return),
        config1: name.as_ptr() as u64,
        config2: offset,
        sample_period: 1,
        ..PerfAttr::default()
    };
    Ok((attr, vec![0], Some(name)))
}

/// `0-3,5`
pub(super) fn online_cpus() -> Result<Vec<i32>, ScriptError> {
    let path = "/sys/devices/system/cpu/online";
    let text = fs::read_to_string(path).map_err(|error| ScriptError::io(path, error))?;
    Ok(cpu_list(&text))
}

fn cpu_list(text: &str) -> Vec<i32> {
    let range = |part: &str| {
        let mut ends = part.trim().splitn(2, '-').map(|end| end.parse::<i32>().ok());
        let first = ends.next()??;
        let last = ends.next().unwrap_or(Some(first))?;
        Some(first..=last.min(first.saturating_add(8192)))
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        for (text, want) in [("0\n", vec![0]), ("0-3,5\n", vec![0, 1, 2, 3, 5]), ("", vec![]), ("x", vec![])]
        {
            assert_eq!(cpu_list(text), want, "{text}");
        }
    }
}
