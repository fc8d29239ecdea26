//! The wrongs that are done to a program, its tracers and their machine, each at its instant.

use super::target::Kind;
use super::tracer::Way;
use crate::cycles::Chance;
use std::fmt;
use std::time::Duration;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Harm {
    KillTracer,
    InterruptTracer,
    StopTracer { time: Duration },
    LimitTracer { kibibytes: u64 },
    LimitFiles { n: u64 },
    KillTarget,
    StopTarget { time: Duration },
    FreezeTarget { time: Duration },
    SqueezeTarget { time: Duration },
    Burst { n: u64 },
    Overflow { n: u64 },
    Starve { time: Duration },
    FullDisk { time: Duration },
    StepClock { seconds: i64 },
    Bpftrace { place: Place, time: Duration },
    Gdb { place: Place },
    Perf { place: Place, time: Duration },
    Strace { time: Duration },
    SecondNopal { way: Way, time: Duration },
    Detach,
}

/// Where in the program other tracers go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The nop of a static probe.
    Probe,
    /// The byte behind it.
    Next,
    /// A function that nopal leaves alone.
    Beside,
    /// The function that nopal traces by its name.
    Call,
}

impl Place {
    fn drawn(chance: &mut Chance, kind: &Kind) -> Place {
        match kind {
            Kind::Native(_) => *chance.one_of(&[Place::Probe, Place::Next, Place::Beside, Place::Call]),
            Kind::Go => Place::Call,
            Kind::Python | Kind::Ruby | Kind::Java | Kind::Postgres => Place::Probe,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Place::Probe => "at the probe",
            Place::Next => "behind the probe",
            Place::Beside => "beside",
            Place::Call => "at the function",
        }
    }
}

impl Harm {
    pub(super) fn drawn(chance: &mut Chance, kind: &Kind, has_group: bool, is_last: bool) -> Harm {
        let time = Duration::from_millis(5 + chance.below(250));
        let place = Place::drawn(chance, kind);
        match chance.below(48) {
            0..=3 => Harm::KillTracer,
            4 | 5 => Harm::InterruptTracer,
            6..=9 => Harm::StopTracer { time },
            10 => Harm::LimitTracer { kibibytes: chance.below(4096) },
            11 => Harm::LimitFiles { n: chance.below(20) },
            12 if is_last && kind.can_be_killed() => Harm::KillTarget,
            12..=14 => Harm::StopTarget { time },
            15..=18 => Harm::Overflow { n: 2_000 << chance.below(4) },
            19..=21 => Harm::Burst { n: 1_000 << chance.below(5) },
            22 | 23 => Harm::Starve { time: time / 4 },
            24..=26 => Harm::FullDisk { time },
            27..=29 => Harm::StepClock { seconds: chance.below(200_000) as i64 - 100_000 },
            30 if kind.takes_gdb() => Harm::Gdb { place },
            31 if matches!(kind, Kind::Native(_)) => Harm::Perf { place, time },
            32 | 33 if !matches!(kind, Kind::Java) && place != Place::Next => Harm::Bpftrace { place, time },
            34 => Harm::Detach,
            35 | 36 if has_group => Harm::FreezeTarget { time },
            37 | 38 if has_group => Harm::SqueezeTarget { time },
            30..=38 => Harm::Strace { time },
            _ => Harm::SecondNopal { way: Way::drawn(chance, kind), time },
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Harm::KillTracer => "tracer killed",
            Harm::InterruptTracer => "tracer interrupted",
            Harm::StopTracer { .. } => "tracer stopped",
            Harm::LimitTracer { .. } => "tracer's memory limited",
            Harm::LimitFiles { .. } => "tracer's files limited",
            Harm::KillTarget => "program killed",
            Harm::StopTarget { .. } => "program stopped",
            Harm::FreezeTarget { .. } => "program frozen",
            Harm::SqueezeTarget { .. } => "program's CPU taken",
            Harm::Burst { .. } => "burst",
            Harm::Overflow { .. } => "ring overflow",
            Harm::Starve { .. } => "starved",
            Harm::FullDisk { .. } => "disk full",
            Harm::StepClock { .. } => "clock step",
            Harm::Bpftrace { .. } => "bpftrace",
            Harm::Gdb { .. } => "gdb",
            Harm::Perf { .. } => "perf",
            Harm::Strace { .. } => "strace",
            Harm::SecondNopal { .. } => "second nopal",
            Harm::Detach => "detach",
        }
    }

    /// Where it has a uprobe that is not nopal's.
    pub(super) fn uprobe(&self) -> Option<Place> {
        match self {
            Harm::Bpftrace { place, .. } | Harm::Perf { place, .. } => Some(*place),
            _ => None,
        }
    }

    /// How long it goes on, if it is taken back then.
    pub(super) fn time(&self) -> Option<Duration> {
        match self {
            Harm::StopTracer { time }
            | Harm::StopTarget { time }
            | Harm::FreezeTarget { time }
            | Harm::SqueezeTarget { time }
            | Harm::FullDisk { time }
            | Harm::SecondNopal { time, .. } => Some(*time),
            // As long as the ring needs to be full.
            Harm::Overflow { .. } => Some(Duration::from_millis(60)),
            _ => None,
        }
    }
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name())?;
        match self {
            Harm::StopTracer { time }
            | Harm::StopTarget { time }
            | Harm::FreezeTarget { time }
            | Harm::SqueezeTarget { time }
            | Harm::Starve { time }
            | Harm::FullDisk { time }
            | Harm::Strace { time } => write!(f, " for {} ms", time.as_millis()),
            Harm::LimitTracer { kibibytes } => write!(f, " to {kibibytes} KiB more"),
            Harm::LimitFiles { n } => write!(f, " to {n}"),
            Harm::Burst { n } | Harm::Overflow { n } => write!(f, " of {n}"),
            Harm::StepClock { seconds } => write!(f, " to {seconds} s ahead"),
            Harm::Bpftrace { place, time } | Harm::Perf { place, time } => {
                write!(f, " {} for {} ms", place.words(), time.as_millis())
            }
            Harm::Gdb { place } => write!(f, " {}", place.words()),
            Harm::SecondNopal { way, time } => write!(f, " ({way}) for {} ms", time.as_millis()),
            Harm::KillTracer | Harm::InterruptTracer | Harm::KillTarget | Harm::Detach => Ok(()),
        }
    }
}
