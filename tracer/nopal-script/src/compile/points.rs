//! The points of each body: those that depend on no target are made here, for the others the catalog is asked. Points
//! whose arguments differ are compiled apart.

use crate::ast::{Clause, MissingProbes, PointRef, Script, walk};
use crate::catalog::{Catalog, KnownArg, KnownPoint, PointSpec};
use crate::diagnostic::{Diagnostic, Severity, nearest};
use crate::number::parse_number;
use nopal_program::op::Space;
use nopal_program::{Access, HardwareEvent, Look, Point, PointKind, SoftwareEvent};

/// Points of one body for which the same code is right.
#[derive(Debug)]
pub(crate) struct Variant {
    pub points: Vec<Point>,
    pub args: Vec<KnownArg>,
    pub place: PointRef,
    /// `probe` is a text, so that each point has code of its own.
    pub has_probe_text: bool,
}

impl Variant {
    pub(crate) fn kind(&self) -> &PointKind {
        &self.points[0].kind
    }

    /// Where pointers of unknown origin lead.
    pub(crate) fn space(&self) -> Space {
        match self.kind() {
            PointKind::Begin
            | PointKind::End
            | PointKind::Signal
            | PointKind::Bench { .. }
            | PointKind::Usdt { .. }
            | PointKind::UsdtLater(_)
            | PointKind::Uprobe { .. }
            | PointKind::Uretprobe { .. }
            | PointKind::Watchpoint { .. } => Space::User,
            PointKind::Tracepoint { category, .. } if category == "syscalls" => Space::User,
            PointKind::Tracepoint { .. }
            | PointKind::Kprobe { .. }
            | PointKind::Kretprobe { .. }
            | PointKind::Interval { .. }
            | PointKind::Profile { .. }
            | PointKind::Software { .. }
            | PointKind::Hardware { .. } => Space::Kernel,
        }
    }
}

/// Points of one body whose names it compares.
const MAX_PROBE_TEXTS: usize = 128;

/// How the code of a body depends on the arguments of its points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsedArgs {
    None,
    /// `arg0`, or labels of enums.
    Any,
    /// `args.name` among them.
    ByName,
}

/// In the order of the script, never empty. Points that are left out are told as `warnings`.
pub(super) fn variants(
    script: &Script,
    clause: &Clause,
    used: UsedArgs,
    catalog: &dyn Catalog,
    has_later: bool,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Vec<Variant>, Diagnostic> {
    let mut variants: Vec<Variant> = Vec::new();
    let (mut absent, mut moved) = (Vec::new(), Vec::new());
    let has_probe_text = walk::has_probe_text(clause);
    for place in &clause.points {
        let points = match known_points(script, *place, catalog, warnings) {
            Ok(mut points) => {
                if !has_later && points.len() > 1 {
                    points.retain(|known| !matches!(known.point.kind, PointKind::UsdtLater(_)));
                }
                points
            }
            Err(Missing { diagnostic, is_only_absent: true })
                if script.options.look == Look::Old || script.missing_probes != MissingProbes::Error =>
            {
                absent.push(diagnostic);
                continue;
            }
            Err(missing) => return Err(missing.diagnostic),
        };
        let spec = &script.specs[place.spec];
        for known in points {
            let point = known.point;
            if is_moved(spec, &point.kind) || moved.contains(&point.kind) {
                // `uprobe:libpthread:f, uprobe:libc:f` is one point where the first library has nothing left.
                let is_there =
                    |variant: &Variant| variant.points.iter().any(|known| known.kind == point.kind);
                if variants.iter().any(is_there) {
                    continue;
                }
                moved.push(point.kind.clone());
            }
            let args = match (used, &point.kind) {
                (UsedArgs::None, _) => Vec::new(),
                (UsedArgs::ByName, PointKind::Uprobe { .. }) => catalog.parameters(&point),
                (UsedArgs::ByName | UsedArgs::Any, _) => known.args,
            };
            let same = variants.iter_mut().find(|variant| {
                let first = &variant.points[0].kind;
                !has_probe_text
                    && sort_of(first) == sort_of(&point.kind)
                    && is_syscall(first) == is_syscall(&point.kind)
                    && variant.args == args
            });
            match same {
                Some(variant) => variant.points.push(point),
                None => variants.push(Variant { points: vec![point], args, place: *place, has_probe_text }),
            }
        }
    }
    if has_probe_text && variants.len() > MAX_PROBE_TEXTS {
        let message =
            format!("`probe` is compared at {} points, more than {MAX_PROBE_TEXTS}", variants.len());
        return Err(Diagnostic::error(clause.points[0].span, message)
            .help("each has code of its own then; name fewer points, or use `@[probe] = count()`"));
    }
    if variants.is_empty() {
        return Err(absent.swap_remove(0));
    }
    let left_out = |error: Diagnostic| {
        let skipped = if script.options.look == Look::New { " Skipping." } else { "" };
        let message = format!("{}{skipped}", error.message);
        Diagnostic { severity: Severity::Warning, message, ..error }
    };
    warnings.extend(absent.into_iter().map(left_out));
    Ok(variants)
}

/// Whether a function is in libc that the script looks for in a library which was emptied into it.
fn is_moved(spec: &PointSpec, kind: &PointKind) -> bool {
    let (PointKind::Uprobe { path, .. } | PointKind::Uretprobe { path, .. }) = kind else { return false };
    let is_emptied = |file: &String| ["libpthread", "libdl", "librt", "libutil"].contains(&file.as_str());
    let in_libc =
        || path.rsplit('/').next().is_some_and(|name| name.starts_with("libc.") || name.starts_with("libc-"));
    spec.parts.first().is_some_and(is_emptied) && in_libc()
}

/// Why a point cannot be had.
struct Missing {
    diagnostic: Diagnostic,
    /// The other points of the body can do without it.
    is_only_absent: bool,
}

impl From<Diagnostic> for Missing {
    fn from(diagnostic: Diagnostic) -> Missing {
        Missing { diagnostic, is_only_absent: false }
    }
}

/// Points of one sort have the same code, if their arguments are alike.
fn sort_of(kind: &PointKind) -> std::mem::Discriminant<PointKind> {
    let usdt = PointKind::Usdt { path: String::new(), provider: String::new(), name: String::new() };
    std::mem::discriminant(if matches!(kind, PointKind::UsdtLater(_)) { &usdt } else { kind })
}

fn is_syscall(kind: &PointKind) -> bool {
    matches!(kind, PointKind::Tracepoint { category, .. } if category == "syscalls")
}

fn known_points(
    script: &Script,
    place: PointRef,
    catalog: &dyn Catalog,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Vec<KnownPoint>, Missing> {
    let spec = &script.specs[place.spec];
    let name =
        || format!("{}{}", spec.kind, spec.parts.iter().map(|part| format!(":{part}")).collect::<String>());
    let is_measured = spec.kind == "bench" && script.options.is_bench;
    if let Some((why, help)) = unattached(&spec.kind).filter(|_| !is_measured) {
        let message = format!("{} cannot be attached: {why}", name());
        return Err(Diagnostic::error(place.span, message).help(help).into());
    }
    let kind = match spec.kind.as_str() {
        "BEGIN" => PointKind::Begin,
        "END" => PointKind::End,
        "interval" => PointKind::Interval { period_ns: period_ns(spec, place)? },
        "profile" => PointKind::Profile { period_ns: period_ns(spec, place)? },
        "software" => software(spec, place)?,
        "hardware" => hardware(spec, place)?,
        "watchpoint" => watchpoint(spec, place)?,
        "self" => signal(spec, place)?,
        "bench" => PointKind::Bench { name: spec.parts.join(":") },
        _ => {
            let mut inlined = Vec::new();
            if script.probes_inlined && spec.kind == "uprobe" {
                inlined = catalog.inlined(spec);
            }
            let found = match catalog.points(spec) {
                // There is no function of its own left of it.
                Err(no_point) if no_point.is_only_absent && !inlined.is_empty() => Ok(Vec::new()),
                found => found,
            };
            let mut points = found.map_err(|no_point| {
                let reason = match no_point.is_only_absent && script.options.look == Look::New {
                    // bpftrace's words.
                    true => format!("No matches for {} {}.", spec.kind, spec.parts.join(":")),
                    false => no_point.reason,
                };
                let diagnostic = Diagnostic::error(place.span, reason);
                let diagnostic = match no_point.hint {
                    Some(hint) => diagnostic.help(hint),
                    None => diagnostic,
                };
                Missing { diagnostic, is_only_absent: no_point.is_only_absent }
            })?;
            points.append(&mut inlined);
            return without_obstacles(points, place, warnings).and_then(|points| match points.is_empty() {
                true => Err(Diagnostic::error(place.span, format!("nothing matches `{}`", name())).into()),
                false => Ok(points),
            });
        }
    };
    let name = match kind {
        PointKind::Begin | PointKind::End if script.options.look == Look::New => name().to_lowercase(),
        _ => name(),
    };
    Ok(vec![KnownPoint { point: Point { name, kind }, args: Vec::new(), obstacle: None }])
}

/// Those that may be attached to; the others are told of.
fn without_obstacles(
    points: Vec<KnownPoint>,
    place: PointRef,
    warnings: &mut Vec<Diagnostic>,
) -> Result<Vec<KnownPoint>, Missing> {
    let is_alone = points.iter().all(|known| known.obstacle.is_some());
    let mut left = Vec::new();
    for known in points {
        match &known.obstacle {
            None => left.push(known),
            Some(why) if is_alone => {
                return Err(Diagnostic::error(place.span, format!("{}: {why}", known.point.name)).into());
            }
            Some(why) => warnings
                .push(Diagnostic::warning(place.span, format!("{} is left out: {why}", known.point.name))),
        }
    }
    Ok(left)
}

/// `s:1`, `hz:99`, or `1s`.
fn period_ns(spec: &PointSpec, place: PointRef) -> Result<u64, Diagnostic> {
    let wrong = |message: String| {
        Diagnostic::error(place.span, message)
            .help(format!("write `{0}:s:1`, `{0}:ms:100`, `{0}:us:500` or `{0}:hz:99`", spec.kind))
    };
    let period_ns = match &spec.parts[..] {
        [unit, number] => {
            let Some(Ok(number)) = parse_number(number) else {
                return Err(wrong(format!("`{number}` is not a number")));
            };
            match unit.as_str() {
                "s" => number.checked_mul(1_000_000_000),
                "ms" => number.checked_mul(1_000_000),
                "us" => number.checked_mul(1_000),
                "hz" => 1_000_000_000u64.checked_div(number),
                _ => return Err(wrong(format!("there is no unit `{unit}`"))),
            }
        }
        [whole] if !whole.ends_with(|c: char| c.is_ascii_digit()) => match parse_number(whole) {
            Some(number) => number.ok(),
            None => return Err(wrong(format!("`{whole}` is not a duration"))),
        },
        _ => return Err(wrong("a unit is missing".into())),
    };
    match period_ns {
        Some(period_ns) if (1_000..=86_400_000_000_000).contains(&period_ns) => Ok(period_ns),
        _ => Err(wrong("the time must be between 1 us and a day".into())),
    }
}

const SOFTWARE: [(&str, &str, SoftwareEvent, u64); 11] = [
    ("alignment-faults", "", SoftwareEvent::AlignmentFaults, 1),
    ("bpf-output", "", SoftwareEvent::BpfOutput, 1),
    ("context-switches", "cs", SoftwareEvent::ContextSwitches, 1000),
    ("cpu-clock", "cpu", SoftwareEvent::CpuClock, 1_000_000),
    ("cpu-migrations", "", SoftwareEvent::CpuMigrations, 1),
    ("dummy", "", SoftwareEvent::Dummy, 1),
    ("emulation-faults", "", SoftwareEvent::EmulationFaults, 1),
    ("major-faults", "", SoftwareEvent::MajorFaults, 1),
    ("minor-faults", "", SoftwareEvent::MinorFaults, 100),
    ("page-faults", "faults", SoftwareEvent::PageFaults, 100),
    ("task-clock", "", SoftwareEvent::TaskClock, 1),
];

/// Names of software events, the short ones too.
pub fn software_events() -> Vec<&'static str> {
    let mut names: Vec<_> = SOFTWARE.iter().flat_map(|(long, short, ..)| [*long, *short]).collect();
    names.retain(|name| !name.is_empty());
    names
}

/// Why points of a type are parsed and listed, and no more.
fn unattached(kind: &str) -> Option<(&'static str, &'static str)> {
    Some(match kind {
        "fentry" | "fexit" => (
            "nopal has no programs that are called through BTF",
            "use `kprobe` or `kretprobe` with the function",
        ),
        "rawtracepoint" => ("nopal has no raw tracepoints", "use `tracepoint:CATEGORY:NAME`"),
        "iter" => ("nopal does not iterate over objects of the kernel", "use a `tracepoint` or a `kprobe`"),
        "bench" => (
            "clauses are measured when nopal is called as bpftrace with --mode bench",
            "use `interval`, or `BEGIN` with a loop",
        ),
        _ => return None,
    })
}

const HARDWARE: [(&str, &str, HardwareEvent, u64); 10] = [
    ("backend-stalls", "", HardwareEvent::BackendStalls, 1_000_000),
    ("branch-instructions", "branches", HardwareEvent::BranchInstructions, 100_000),
    ("branch-misses", "", HardwareEvent::BranchMisses, 100_000),
    ("bus-cycles", "", HardwareEvent::BusCycles, 100_000),
    ("cache-misses", "", HardwareEvent::CacheMisses, 1_000_000),
    ("cache-references", "", HardwareEvent::CacheReferences, 1_000_000),
    ("cpu-cycles", "cycles", HardwareEvent::CpuCycles, 1_000_000),
    ("frontend-stalls", "", HardwareEvent::FrontendStalls, 1_000_000),
    ("instructions", "", HardwareEvent::Instructions, 1_000_000),
    ("ref-cycles", "", HardwareEvent::RefCycles, 1_000_000),
];

/// Names of hardware events, the short ones too, in order.
pub fn hardware_events() -> Vec<&'static str> {
    let mut names: Vec<_> = HARDWARE.iter().flat_map(|(long, short, ..)| [*long, *short]).collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names
}

fn hardware(spec: &PointSpec, place: PointRef) -> Result<PointKind, Diagnostic> {
    let (event, count) = counted(&HARDWARE, spec, place)?;
    Ok(PointKind::Hardware { event, count })
}

/// `watchpoint:ADDRESS:LENGTH:MODE`
fn watchpoint(spec: &PointSpec, place: PointRef) -> Result<PointKind, Diagnostic> {
    let wrong = |message: String| {
        Diagnostic::error(place.span, message).help("write `watchpoint:0x1000:8:w`, with r, w, rw or x")
    };
    let [address, length, mode] = &spec.parts[..] else { return Err(wrong("a part is missing".to_owned())) };
    let Some(Ok(address)) = parse_number(address) else {
        return Err(wrong(format!("`{address}` is not an address")));
    };
    let length_bytes = match parse_number(length) {
        Some(Ok(length @ (1 | 2 | 4 | 8))) => length as u8,
        _ => return Err(wrong("the length is 1, 2, 4 or 8 bytes".to_owned())),
    };
    let access = match mode.as_str() {
        "r" => Access::Read,
        "w" => Access::Write,
        "rw" | "wr" => Access::ReadOrWrite,
        "x" => Access::Execute,
        _ => return Err(wrong(format!("there is no mode `{mode}`"))),
    };
    Ok(PointKind::Watchpoint { address, length_bytes, access })
}

/// The one signal that bpftrace takes.
fn signal(spec: &PointSpec, place: PointRef) -> Result<PointKind, Diagnostic> {
    match &spec.parts[..] {
        [what, name] if what == "signal" && name == "SIGUSR1" => Ok(PointKind::Signal),
        [what, name] if what == "signal" => {
            Err(Diagnostic::error(place.span, format!("{name} is not a supported signal"))
                .help("use SIGUSR1"))
        }
        _ => Err(Diagnostic::error(place.span, "`self` is written self:signal:SIGUSR1")),
    }
}

fn software(spec: &PointSpec, place: PointRef) -> Result<PointKind, Diagnostic> {
    let (event, count) = counted(&SOFTWARE, spec, place)?;
    Ok(PointKind::Software { event, count })
}

/// The event by its name, and after how many of it the clause runs.
fn counted<T: Copy>(
    events: &[(&'static str, &str, T, u64)],
    spec: &PointSpec,
    place: PointRef,
) -> Result<(T, u64), Diagnostic> {
    let name = spec.parts[0].as_str();
    let found =
        events.iter().find(|(long, short, ..)| name == *long || (name == *short && !short.is_empty()));
    let Some((_, _, event, default)) = found else {
        let names = || events.iter().map(|(name, ..)| *name);
        let help = match nearest(name, names()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("events are {}", names().collect::<Vec<_>>().join(", ")),
        };
        let message = format!("there is no {} event `{name}`", spec.kind);
        return Err(Diagnostic::error(place.span, message).help(help));
    };
    let count = match spec.parts.get(1) {
        None => *default,
        Some(text) => match parse_number(text) {
            Some(Ok(count)) if count > 0 => count,
            _ => return Err(Diagnostic::error(place.span, format!("`{text}` is not a count"))),
        },
    };
    Ok((*event, count))
}
