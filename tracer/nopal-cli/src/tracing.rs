//! What the tracing verbs share: their common options, the way to a running session, Ctrl-C, and failures in words.

use crate::failure::Failure;
use crate::processes::ProcessArgs;
use crate::reading::provider_file;
use nopal_live::plan::Limits;
use nopal_live::registry::{Choice, SpanRoles, Unfit};
use nopal_live::{
    self, BY_TRACEFS, Door, Live, LiveError, News, Opened, Options, Request, Way, attach_when_free,
    closed_in_words,
};
use nopal_proc::{TargetError, possible_cpus};
use nopal_trace::Verdict;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Which processes, which door, how much.
#[derive(Debug, clap::Args)]
pub struct TargetArgs {
    #[command(flatten)]
    pub processes: ProcessArgs,
    /// Only the named processes, not their descendants.
    #[arg(long)]
    pub only: bool,
    /// user: about 20 ns a hit, needs the right to ptrace; kernel: about 500 ns, needs root; auto: what each site allows.
    #[arg(long, value_enum, default_value_t = DoorArg::Auto)]
    pub door: DoorArg,
    /// Lets the user door move up to five bytes of instructions where a site allows nothing else. Risk: an address inside
    /// them that a signal frame or a jump buffer of the program holds is not seen and would crash it; other tracers see
    /// nothing in such a page (4 KiB) of code while nopal is there.
    #[arg(long)]
    pub relocate: bool,
    /// Longest string or byte string to keep of an argument, 1 to 8k.
    #[arg(long, value_name = "SIZE", default_value = "256", value_parser = string_size)]
    pub max_string: u64,
    /// Ring size for each CPU, 64k to 1G, rounded up to a power of two; without it 1M to 16M, the more the fewer CPUs.
    #[arg(long, value_name = "SIZE", value_parser = ring_size)]
    pub buffer_size: Option<u64>,
    /// A `.d` file that names the arguments of probes; may be given several times.
    #[arg(long = "provider", value_name = "FILE.d")]
    pub providers: Vec<PathBuf>,
    /// Says how each site was opened, and why not otherwise.
    #[arg(short, long)]
    pub verbose: bool,
    /// Ends after this long: `10s`, `500ms`, `2m`.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Starts this command and traces it from its first instruction on.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DoorArg {
    #[default]
    Auto,
    User,
    Kernel,
}

impl From<DoorArg> for Door {
    fn from(door: DoorArg) -> Door {
        match door {
            DoorArg::Auto => Door::Auto,
            DoorArg::User => Door::User,
            DoorArg::Kernel => Door::Kernel,
        }
    }
}

impl TargetArgs {
    /// Finds the processes that are not named by their numbers. To be called once, before anything else.
    pub fn resolve(&mut self) -> Result<(), Failure> {
        self.processes.resolve(self.only)
    }

    pub fn request(&self, probes: &[String]) -> Result<Request, Failure> {
        if self.processes.is_empty() && self.command.is_empty() {
            return Err(Failure::usage("no process named")
                .hint("add -p PID or -n NAME for a running program, or -- COMMAND to start one; `nopal list -u` shows programs with probes"));
        }
        if !self.processes.is_empty() && !self.command.is_empty() {
            return Err(Failure::usage("-p, -n and the like cannot be combined with -- COMMAND")
                .hint("trace the running program with -p or -n, or start another with --"));
        }
        let given = self.providers.iter().map(|path| provider_file(path)).collect::<Result<Vec<_>, _>>()?;
        let ring_bytes = self.buffer_size.unwrap_or_else(default_ring_bytes).next_power_of_two();
        Ok(Request {
            choices: probes.iter().map(|text| Choice::parse(text)).collect(),
            given,
            limits: Limits { max_string_bytes: self.max_string as u32, ..Limits::default() },
            options: Options {
                is_only: self.only,
                can_relocate: self.relocate,
                ..Options::new(self.door.into(), ring_bytes)
            },
            spans: None,
        })
    }

    /// Opens the probes in every process named.
    pub fn open(&self, probes: &[String]) -> Result<Open, Failure> {
        self.open_for(self.request(probes)?)
    }

    /// The same with spans that the user door keeps at the source.
    pub fn open_keeping(&self, probes: &[String], spans: SpanRoles) -> Result<Open, Failure> {
        self.open_for(Request { spans: Some(spans), ..self.request(probes)? })
    }

    fn open_for(&self, request: Request) -> Result<Open, Failure> {
        let mut live = Live::new(request).map_err(|e| failure_of(&e))?;
        let mut opened = Vec::new();
        for pid in &self.processes.pids {
            opened.extend(attach_when_free(&mut live, *pid, is_stopped).map_err(|e| failure_of(&e))?);
        }
        if !self.processes.pids.is_empty() {
            let judged =
                live.unfit().map_or_else(|| live.judge(&opened), |unfit| Err(LiveError::Unfit(unfit)));
            judged.map_err(|e| failure_of(&e))?;
        }
        let child = match self.command.split_first() {
            Some((program, arguments)) => {
                let (child, sites) =
                    live.launch(Command::new(program).args(arguments)).map_err(|e| failure_of(&e))?;
                opened.extend(sites);
                Some(child)
            }
            None => None,
        };
        let closed = closed_in_words(&opened);
        let mut open = Open {
            live,
            opened,
            child,
            exit: None,
            has_told_end: false,
            has_told_rest: false,
            is_verbose: self.verbose,
            verdict: Verdict::default(),
            new_gaps: Vec::new(),
            groups: self.processes.clone(),
            next_look_at_groups: Instant::now() + LOOK_AT_GROUPS,
            not_followed: BTreeSet::new(),
        };
        closed.into_iter().for_each(|text| open.gap(text));
        Ok(open)
    }
}

/// A session under way.
pub struct Open {
    pub live: Live,
    pub opened: Vec<Opened>,
    /// The command we started. It is reaped when it ends, and goes on when tracing ends first.
    child: Option<Child>,
    /// How the command ended.
    exit: Option<ExitStatus>,
    /// That it was ended by a signal.
    has_told_end: bool,
    /// That others go on.
    has_told_rest: bool,
    is_verbose: bool,
    /// What may have been missed, beside what the consumers count.
    verdict: Verdict,
    /// Gaps that nobody has asked for yet: CLOCK_MONOTONIC, and what happened.
    new_gaps: Vec<(u64, String)>,
    /// Containers and control groups, which processes may join from outside.
    groups: ProcessArgs,
    next_look_at_groups: Instant,
    /// Those of them that cannot be traced; told once.
    not_followed: BTreeSet<u32>,
}

const LOOK_AT_GROUPS: Duration = Duration::from_millis(500);

impl Open {
    /// Keeps the session in order; call it in every round.
    pub fn look_after(&mut self) {
        if !self.live.is_look_due() {
            return;
        }
        let news = self.live.look_after();
        self.tell(news);
        self.take_joined();
    }

    /// Traces processes that somebody outside has put into the container or control group since (`podman exec`). Their first
    /// hits may be missing.
    fn take_joined(&mut self) {
        if !self.groups.has_groups() || Instant::now() < self.next_look_at_groups {
            return;
        }
        self.next_look_at_groups = Instant::now() + LOOK_AT_GROUPS;
        // A group that has ended has no processes to trace.
        let Ok(members) = self.groups.members() else { return };
        let known = self.live.processes();
        let joined = |pid: &&u32| !known.contains(pid) && !self.not_followed.contains(pid);
        for pid in members.iter().filter(joined).copied().collect::<Vec<u32>>() {
            let is_older =
                nopal_proc::Process::read(pid).is_ok_and(|process| known.contains(&process.parent));
            // A child of a traced process is followed by itself.
            if is_older {
                continue;
            }
            match self.live.attach(pid) {
                Ok(opened) => {
                    let n_sites = opened.len();
                    self.tell(vec![News::Opened(opened), News::Late { pid, n_sites }]);
                }
                Err(error) if !nopal_proc::Process::is_alive(pid) => {
                    self.not_followed.insert(pid);
                    self.gap(format!(
                        "process {pid} joined and ended meanwhile: {}",
                        failure_of(&error).message
                    ));
                }
                Err(error) => {
                    self.not_followed.insert(pid);
                    self.tell(vec![News::NotFollowed { pid, error }]);
                }
            }
        }
    }

    /// Closes every site. Gives what could not be put back.
    pub fn close(&mut self) -> Vec<String> {
        let failures = self.live.close();
        let news = self.live.take_news();
        self.tell(news);
        failures
    }

    fn tell(&mut self, news: Vec<News>) {
        for news in news {
            match news {
                News::Opened(opened) => {
                    if self.is_verbose {
                        announce(&opened, true);
                    }
                    closed_in_words(&opened).into_iter().for_each(|text| self.gap(text));
                    self.opened.extend(opened);
                }
                News::Gap(text) => self.gap(text),
                News::NotFollowed { pid, error } => {
                    let why = failure_of(&error).message;
                    self.gap(format!("process {pid} could not be followed: {why}"));
                }
                News::Late { pid, n_sites } => {
                    self.verdict.n_late += 1;
                    if self.is_verbose {
                        tell!("nopal: {}", nopal_live::late_in_words(pid, n_sites));
                    }
                }
                News::Message(text) => {
                    if self.is_verbose {
                        tell!("nopal: {text}");
                    }
                }
            }
        }
    }

    /// Hits may be missing from now on: it is said, counted, and kept for the recording.
    fn gap(&mut self, text: String) {
        tell!("nopal: {text}");
        self.verdict.n_gaps += 1;
        // `nopal trace` never asks for them.
        if self.new_gaps.len() < MAX_KEPT_GAPS {
            self.new_gaps.push((nopal_trace::clock::monotonic_ns(), text));
        }
    }

    /// The gaps since this was last asked.
    pub fn new_gaps(&mut self) -> Vec<(u64, String)> {
        std::mem::take(&mut self.new_gaps)
    }

    /// Processes that were started meanwhile and may lack hits.
    pub fn n_late(&self) -> u64 {
        self.verdict.n_late + self.live.n_unseen() as u64
    }

    /// What is missing, with what a consumer has counted.
    pub fn verdict(&self, counted: Verdict) -> Verdict {
        let mut verdict = Verdict { n_gaps: 0, n_late: 0, gaps: Vec::new(), ..counted };
        verdict.add(&Verdict { n_late: self.n_late(), ..self.verdict.clone() });
        verdict
    }

    /// What was asked for and never came, once the command has ended.
    pub fn never_fit(&self) -> Option<Failure> {
        let unfit = self.child.as_ref().and_then(|_| self.live.unfit())?;
        Some(failure_of(&LiveError::Unfit(unfit)))
    }

    /// How the command ended, if it has.
    pub fn exit(&self) -> Option<ExitStatus> {
        self.exit
    }

    /// Whether there is nothing left to trace.
    pub fn is_over(&mut self) -> bool {
        // A child of ours stays a zombie until it is reaped.
        let status = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
        self.exit = status.or(self.exit);
        if let Some(signal) =
            status.and_then(|status| status.signal()).filter(|signal| *signal != libc::SIGINT)
            && !std::mem::replace(&mut self.has_told_end, true)
        {
            tell!("nopal: the command was ended by signal {signal}");
        }
        if !self.live.is_any_alive() {
            // What is missing of a program that has ended is told before the end.
            return !self.live.has_news();
        }
        if status.is_some() && !std::mem::replace(&mut self.has_told_rest, true) {
            tell!(
                "nopal: the command has ended; what it started goes on and is traced until it ends, or Ctrl-C"
            );
        }
        false
    }
}

const MAX_KEPT_GAPS: usize = 1000;

/// 16 MiB hold 80 ms of 5 million events a second; machines with many CPUs get less for each.
pub fn default_ring_bytes() -> u64 {
    const ALL_RINGS_BYTES: u64 = 64 << 20;
    let n_cpus = possible_cpus().map_or(1, u64::from);
    (ALL_RINGS_BYTES / n_cpus.max(1)).clamp(1 << 20, 16 << 20)
}

/// How many sites went through each door.
pub fn count_sites(opened: &[Opened]) -> (usize, usize, usize) {
    opened.iter().fold((0, 0, 0), |(user, kernel, closed), site| match site.way {
        Way::User(_) => (user + 1, kernel, closed),
        Way::Kernel { .. } => (user, kernel + 1, closed),
        Way::Closed(_) => (user, kernel, closed + 1),
    })
}

/// `1 event`, `2 events`.
pub fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

/// The same, if it is wanted at all.
pub fn announce_if(is_wanted: bool, opened: &[Opened]) {
    if is_wanted {
        announce(opened, true);
    }
}

/// Tells on standard error what was opened: a line, and with -v one for each site.
pub fn announce(opened: &[Opened], is_verbose: bool) {
    let (user, kernel, closed) = count_sites(opened);
    let mut parts = Vec::new();
    for (count, what) in [(user, "user door"), (kernel, "kernel door"), (closed, "not opened")] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    if parts.is_empty() {
        parts.push("none yet; looking at what the command loads and starts".to_owned());
    }
    tell!("sites: {}", parts.join(", "));
    if opened.iter().any(|site| matches!(site.way, Way::Kernel { is_by_tracefs: true, .. })) {
        tell!("nopal: {BY_TRACEFS}");
    }
    for site in opened {
        if is_verbose || (closed > 0 && matches!(site.way, Way::Closed(_))) {
            let probe = nopal_trace::escape(&site.probe);
            tell!("  {probe} at {:#x} in process {}: {}", site.address, site.pid, site.way);
        }
    }
}

static STOP: AtomicBool = AtomicBool::new(false);

/// Ctrl-C, SIGTERM and SIGHUP end tracing instead of the program: what was gathered is printed and the target restored.
pub fn stop_on_signals() {
    extern "C" fn stop(_: libc::c_int) {
        STOP.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic, which is safe at any moment.
        unsafe { libc::signal(signal, stop as *const () as libc::sighandler_t) };
    }
}

static PRINT: AtomicBool = AtomicBool::new(false);

/// SIGUSR1 asks a script for its maps.
pub fn print_on_signal() {
    extern "C" fn print(_: libc::c_int) {
        PRINT.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler only stores to an atomic, which is safe at any moment.
    unsafe { libc::signal(libc::SIGUSR1, print as *const () as libc::sighandler_t) };
}

/// Whether it has asked since.
pub fn take_print_signal() -> bool {
    PRINT.swap(false, Ordering::Relaxed)
}

static RELOAD: AtomicBool = AtomicBool::new(false);

/// From now on SIGHUP asks for the settings to be read again, and ends nothing.
pub fn reload_on_signal() {
    extern "C" fn reload(_: libc::c_int) {
        RELOAD.store(true, Ordering::Relaxed);
    }
    // SAFETY: the handler only stores to an atomic, which is safe at any moment.
    unsafe { libc::signal(libc::SIGHUP, reload as *const () as libc::sighandler_t) };
}

/// Whether it has asked since.
pub fn take_reload_signal() -> bool {
    RELOAD.swap(false, Ordering::Relaxed)
}

/// Ends tracing as Ctrl-C does.
pub fn stop() {
    STOP.store(true, Ordering::Relaxed);
}

/// Forgets a Ctrl-C that ended one of several things.
pub fn go_on() {
    STOP.store(false, Ordering::Relaxed);
}

pub fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// The failure in the user's words.
pub fn failure_of(error: &LiveError) -> Failure {
    match error {
        LiveError::User(error) => user_failure(error),
        LiveError::Kernel(_) => Failure::new("kernel-door", error.to_string())
            .hint("--door user needs no privilege for your own processes"),
        LiveError::Target(error) => target_failure(error),
        LiveError::Launch(_) => Failure::new("not-started", error.to_string()),
        LiveError::Unfit(Unfit::Condition(e)) => Failure::new("bad-condition", error.to_string())
            .hint(format!("its arguments are: {}", e.arguments.join(", "))),
        LiveError::Unfit(Unfit::NoProbe { pattern, suggestion, has_probes }) => {
            let failure = Failure::new("no-such-probe", error.to_string());
            match (suggestion, has_probes) {
                (Some(suggestion), _) if suggestion == pattern => {
                    failure.hint("it is there, but excluded, or less severe than the log level asked for")
                }
                (Some(suggestion), _) => failure.hint(format!("did you mean `{suggestion}`?")),
                (None, true) => failure.hint(
                    "`nopal list -p PID` shows the probes of a process, `nopal list FILE` of a program",
                ),
                (None, false) => failure.hint("neither the program nor its libraries have probes"),
            }
        }
        LiveError::AllClosed(_) => Failure::new("closed", error.to_string()),
        LiveError::UnsteadyTsc => Failure::new("unsteady-clock", error.to_string())
            .hint("use --door kernel, which takes the kernel's clock"),
        LiveError::Cpus(_) => Failure::new("cpus", error.to_string()),
    }
}

fn user_failure(error: &nopal_user::Error) -> Failure {
    let code = match error {
        nopal_user::Error::NoSuchProcess { .. } => "no-such-process",
        nopal_user::Error::Gone { .. } | nopal_user::Error::EndedEarly { .. } => "gone",
        nopal_user::Error::Permission { .. } => "not-permitted",
        nopal_user::Error::AlreadyTraced { .. } => "already-traced",
        nopal_user::Error::ThirtyTwoBit { .. } => "32-bit",
        nopal_user::Error::Seccomp { .. } => "seccomp",
        nopal_user::Error::Launch(_) => "not-started",
        _ => "user-door",
    };
    let errno = match error {
        nopal_user::Error::Io { source, .. } => source.raw_os_error(),
        _ => None,
    };
    match errno {
        Some(libc::ENOMEM) => {
            Failure::new("no-memory", error.to_string()).hint("a smaller --buffer-size helps")
        }
        Some(libc::EMFILE) => {
            Failure::new("no-descriptors", error.to_string()).hint("a higher `ulimit -n` helps")
        }
        _ => {
            let failure = Failure::new(code, error.cause().to_string());
            match error.next_step() {
                Some(next) => failure.hint(next),
                None => failure,
            }
        }
    }
}

/// The same of a process or a file that cannot be looked at.
pub fn target_failure(error: &TargetError) -> Failure {
    let failure = Failure::new("target", error.to_string());
    match error {
        TargetError::NoSuchProcess { .. } => {
            failure.hint("`nopal list -u` shows running programs that have probes")
        }
        TargetError::Translated { by, .. } => failure.hint(format!("trace it without {by}")),
        TargetError::NotPermitted { .. } | TargetError::Deleted { .. } => failure.hint("root may read it"),
        TargetError::Zombie { .. }
        | TargetError::KernelThread { .. }
        | TargetError::Is32Bit { .. }
        | TargetError::NotAFile { .. }
        | TargetError::Io { .. } => failure,
    }
}

/// `4M`, `64k`, `1G`, `4096`.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err("a size is a number with k, M or G".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "a size is a number with k, M or G".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "that is too much".to_owned())
}

fn string_size(text: &str) -> Result<u64, String> {
    size(text).and_then(|size| within(size, 1, 8 << 10, "a string can have 1 byte to 8k"))
}

pub fn ring_size(text: &str) -> Result<u64, String> {
    size(text).and_then(|size| within(size, 64 << 10, 1 << 30, "a ring can have 64k to 1G"))
}

fn within(size: u64, least: u64, most: u64, rule: &str) -> Result<u64, String> {
    if (least..=most).contains(&size) { Ok(size) } else { Err(rule.to_owned()) }
}

/// `10s`, `500ms`, `2m`, `1h`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let invalid = || format!("not a valid duration: `{text}`; use `10s`, `500ms` or `2m`");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(invalid()),
    };
    let number: f64 = digits.parse().map_err(|_| invalid())?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| invalid())
}

/// `1.2 MiB`
pub fn bytes_in_words(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit < UNITS.len() - 1 {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(size("4M"), Ok(4 << 20));
        assert_eq!(size("64k"), Ok(64 << 10));
        assert_eq!(size("17"), Ok(17));
        assert_eq!(
            (string_size("8k"), ring_size("64k"), ring_size("1G")),
            (Ok(8192), Ok(65536), Ok(1 << 30))
        );
        assert!(string_size("0").is_err() && string_size("8193").is_err());
        assert!(ring_size("1").is_err() && ring_size("2G").is_err());
        assert!(size("4X").is_err() && size("").is_err() && size("99999999999G").is_err());
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(duration("x").is_err() && duration("-1s").is_err());
        assert_eq!(bytes_in_words(1536), "1.5 KiB");
        assert_eq!(bytes_in_words(7), "7 bytes");
    }
}
