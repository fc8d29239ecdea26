//! The wrongs that are done to a program, its tracer and their machine, each at its instant.

use super::Plan;
use super::target::{Field, Kind, Shared};
use super::tracer::{Door, Process};
use crate::cycles::Chance;
use crate::nopal;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm {
    KillTracer,
    InterruptTracer,
    StopTracer {
        time: Duration,
    },
    LimitTracer {
        mebibytes: u64,
    },
    KillTarget,
    Burst {
        n: u64,
    },
    /// All of them want the CPU for a moment.
    Starve {
        time: Duration,
    },
    Bpftrace {
        time: Duration,
    },
    Gdb {
        is_beside: bool,
    },
    Perf {
        time: Duration,
    },
    Strace {
        time: Duration,
    },
    SecondNopal {
        door: Door,
        time: Duration,
    },
    /// Somebody restores the program although it is traced.
    Detach,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Planned {
    /// Since the program was told to go.
    pub at: Duration,
    pub harm: Harm,
}

impl Harm {
    pub(super) fn drawn(chance: &mut Chance, kind: &Kind) -> Planned {
        let at = Duration::from_millis(chance.below(600));
        let time = Duration::from_millis(20 + chance.below(400));
        let door = *chance.one_of(&[Door::Auto, Door::User, Door::Kernel]);
        let harm = match chance.below(22) {
            0 | 1 => Harm::KillTracer,
            2 | 3 => Harm::InterruptTracer,
            4..=6 => Harm::StopTracer { time },
            7 => Harm::LimitTracer { mebibytes: chance.below(200) },
            8 => Harm::KillTarget,
            9 | 10 => Harm::Burst { n: 20_000 << chance.below(4) },
            11 => Harm::Starve { time },
            12 | 13 => Harm::Bpftrace { time },
            14 | 15 if !kind.has_children() => Harm::Gdb { is_beside: chance.below(2) == 0 },
            14..=16 => Harm::Strace { time },
            17 if matches!(kind, Kind::Native(_)) => Harm::Perf { time },
            17 | 18 => Harm::Detach,
            _ => Harm::SecondNopal { door, time },
        };
        Planned { at, harm }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Harm::KillTracer => "tracer killed",
            Harm::InterruptTracer => "tracer interrupted",
            Harm::StopTracer { .. } => "tracer stopped",
            Harm::LimitTracer { .. } => "tracer's memory limited",
            Harm::KillTarget => "program killed",
            Harm::Burst { .. } => "burst",
            Harm::Starve { .. } => "starved",
            Harm::Bpftrace { .. } => "bpftrace",
            Harm::Gdb { .. } => "gdb",
            Harm::Perf { .. } => "perf",
            Harm::Strace { .. } => "strace",
            Harm::SecondNopal { .. } => "second nopal",
            Harm::Detach => "detach",
        }
    }

    /// Whether this is a uprobe at the byte where gdb is. If it comes between gdb's look at the byte and gdb's breakpoint, gdb
    /// takes it for the program's own byte and puts it back when the uprobe has gone: the program dies, without nopal as well.
    pub(super) fn is_deadly_beside(self, gdb: Harm) -> bool {
        let Harm::Gdb { is_beside } = gdb else { return false };
        match self {
            Harm::Perf { .. } => is_beside,
            Harm::Bpftrace { .. } => !is_beside,
            Harm::SecondNopal { door, .. } => !is_beside && door != Door::User,
            _ => false,
        }
    }

    /// Another program that comes and goes by itself; the others are done at once.
    pub(crate) fn visitor(&self, plan: &Plan, dir: &Path, pid: u32) -> Option<Command> {
        let (file, probe) = plan.kind.site();
        let file = file.display().to_string();
        let pid = pid.to_string();
        let seconds = |time: &Duration| time.as_secs_f64().to_string();
        let mut command = Command::new("timeout");
        command.current_dir(dir);
        match self {
            Harm::Bpftrace { time } => {
                let script = format!(
                    "usdt:{file}:{probe} {{ @ = count(); }} interval:ms:{} {{ exit(); }}",
                    time.as_millis()
                );
                command.args(["-s", "INT", "60", "bpftrace", "-p", &pid, "-e", &script]);
            }
            Harm::Gdb { is_beside } => {
                let place =
                    if *is_beside { "checked_beside".to_owned() } else { format!("-probe-stap {probe}") };
                command.args(["-s", "INT", "60", "gdb", "-q", "-nx", "-batch", "-p", &pid]);
                for line in [
                    "set debuginfod enabled off",
                    "handle all nostop noprint pass",
                    "handle SIGINT stop nopass",
                    &format!("break {place}"),
                    "continue",
                    "delete",
                    "detach",
                ] {
                    command.args(["-ex", line]);
                }
            }
            Harm::Perf { time } => {
                // perf's probes belong to the machine: the name is the round's own.
                let event = format!("nopal{}", plan.seed);
                let script = format!(
                    "perf probe -q -x {file} --add {event}=checked_beside && \
                     perf record -q -o perf.data -e 'probe_checked:{event}*' -p {pid} -- sleep {}; \
                     perf probe -q -d '*:{event}*'",
                    seconds(time)
                );
                command.args(["-s", "INT", "60", "sh", "-c", &script]);
            }
            Harm::Strace { time } => {
                // Now and then it does not leave a program with vfork by itself, with or without nopal.
                command.args(["-s", "INT", "-k", "3", &seconds(time)]);
                command.args(["strace", "-f", "-qq", "-o", "/dev/null"]);
                command.args(["-p", &pid]);
            }
            Harm::SecondNopal { door, time } => {
                command.args(["-s", "INT", "100"]).arg(nopal());
                command.args(["trace", "--json", "--door", door.name(), "--duration"]);
                command.args([&format!("{}ms", time.as_millis()), plan.kind.probes(), "-p", &pid]);
            }
            Harm::Detach => {
                command.args(["-s", "INT", "100"]).arg(nopal()).args(["detach", "-p", &pid]);
            }
            Harm::Starve { time } => {
                let loops = "for i in 1 2 3 4; do while :; do :; done & done; wait";
                command.args([&seconds(time), "sh", "-c", loops]);
            }
            Harm::KillTracer
            | Harm::InterruptTracer
            | Harm::StopTracer { .. }
            | Harm::LimitTracer { .. }
            | Harm::KillTarget
            | Harm::Burst { .. } => return None,
        }
        Some(command)
    }

    /// Does it, if it is done at once. What ends the tracer or the program is the round's affair.
    pub(crate) fn do_at_once(&self, tracer: &mut Process, shared: &Shared) {
        match self {
            Harm::StopTracer { time } => {
                tracer.signal(libc::SIGSTOP);
                std::thread::sleep(*time);
                tracer.signal(libc::SIGCONT);
            }
            Harm::LimitTracer { mebibytes } => {
                let limit = format!("--as={}:", mebibytes << 20);
                let pid = tracer.pid().to_string();
                // It may have ended.
                let _ = Command::new("prlimit").args(["--pid", &pid, &limit]).output();
            }
            Harm::Burst { n } => shared.set(Field::Burst, *n),
            Harm::KillTracer
            | Harm::InterruptTracer
            | Harm::KillTarget
            | Harm::Starve { .. }
            | Harm::Bpftrace { .. }
            | Harm::Gdb { .. }
            | Harm::Perf { .. }
            | Harm::Strace { .. }
            | Harm::SecondNopal { .. }
            | Harm::Detach => {}
        }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())?;
        match self {
            Harm::StopTracer { time }
            | Harm::Starve { time }
            | Harm::Bpftrace { time }
            | Harm::Perf { time }
            | Harm::Strace { time } => write!(f, " for {} ms", time.as_millis()),
            Harm::LimitTracer { mebibytes } => write!(f, " to {mebibytes} MiB"),
            Harm::Burst { n } => write!(f, " of {n}"),
            Harm::Gdb { is_beside } => write!(f, " {}", if *is_beside { "beside" } else { "at the probe" }),
            Harm::SecondNopal { door, time } => {
                write!(f, " --door {} for {} ms", door.name(), time.as_millis())
            }
            Harm::KillTracer | Harm::InterruptTracer | Harm::KillTarget | Harm::Detach => Ok(()),
        }
    }
}
