//! What a session wants: a TOML file that people can read, edit, save and load. Does not say what is going on.

use super::error::SessionError;
use nopal_live::Door;
use nopal_live::context::ContextField;
use nopal_live::registry::Choice;
use nopal_sdt::Pattern;
use nopal_trace::FileLimit;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A session as `session.toml` has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionConfig {
    pub name: String,
    /// Where recordings go.
    pub output: PathBuf,
    /// Nothing is written until a snapshot is asked for; the rings keep the newest events.
    #[serde(default)]
    pub snapshot: bool,
    /// For all rings together; without it each channel says how large its own are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Events that make a snapshot by themselves: `PATTERN if CONDITION`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<String>,
    #[serde(default, skip_serializing_if = "Rotation::is_never")]
    pub rotation: Rotation,
    #[serde(default)]
    pub track: Tracked,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<Channel>,
}

/// When a started session rotates by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rotation {
    /// As soon as what was recorded since the last time has this size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// So long after the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer_us: Option<u64>,
}

impl Rotation {
    pub fn is_never(&self) -> bool {
        *self == Rotation::default()
    }
}

/// Which processes. Nothing is traced that is not named here.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tracked {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<TrackedProcess>,
    /// Running or yet to be started: the name of the process or of its program file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// All processes of a user, by number: those that have probes now or later.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<u32>,
    /// The same of a control group, by its folder or by what `/proc/PID/cgroup` says.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cgroups: Vec<PathBuf>,
    /// The same of a container, by name or number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
}

impl Tracked {
    /// Whether everything that is tracked here is tracked there too.
    pub fn is_part_of(&self, other: &Tracked) -> bool {
        self.processes.iter().all(|process| other.processes.contains(process))
            && self.programs.iter().all(|program| other.programs.contains(program))
            && self.users.iter().all(|user| other.users.contains(user))
            && self.cgroups.iter().all(|path| other.cgroups.contains(path))
            && self.containers.iter().all(|name| other.containers.contains(name))
    }

    /// Whether there are users, control groups or containers among what is tracked.
    pub fn has_groups(&self) -> bool {
        !self.users.is_empty() || !self.cgroups.is_empty() || !self.containers.is_empty()
    }

    /// `user 33`, `control group /system.slice`
    pub fn groups_in_words(&self) -> Vec<String> {
        let users = self.users.iter().map(|user| format!("user {user}"));
        let cgroups = self.cgroups.iter().map(|path| format!("control group {}", path.display()));
        let containers = self.containers.iter().map(|name| format!("container {name}"));
        users.chain(cgroups).chain(containers).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.processes.is_empty() && self.programs.is_empty() && !self.has_groups()
    }
}

/// The time of its start tells a process from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrackedProcess {
    pub pid: u32,
    /// In clock ticks since the machine started, as `/proc/PID/stat` has it.
    pub start_ticks: u64,
}

/// A set of rings and the events that go there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Channel {
    pub name: String,
    #[serde(default)]
    pub mode: Mode,
    /// Of the ring of one CPU; `None` is the usual size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ring_bytes: Option<u64>,
    #[serde(default)]
    pub door: DoorChoice,
    #[serde(default = "default_max_string")]
    pub max_string: u32,
    /// Of each file of its recordings; none is without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracefile_size: Option<u64>,
    /// How many of these files are kept of each CPU; none keeps all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracefile_count: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A full ring drops and counts what comes.
    #[default]
    Discard,
    /// A full ring writes over the oldest; read by snapshots.
    Overwrite,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DoorChoice {
    #[default]
    Auto,
    User,
    Kernel,
}

impl From<DoorChoice> for Door {
    fn from(choice: DoorChoice) -> Door {
        match choice {
            DoorChoice::Auto => Door::Auto,
            DoorChoice::User => Door::User,
            DoorChoice::Kernel => Door::Kernel,
        }
    }
}

/// What `enable-event` was told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub pattern: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// The least severe level that is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level: Option<i32>,
    /// Only that level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_level_only: Option<i32>,
    #[serde(default = "yes")]
    pub enabled: bool,
}

pub const DEFAULT_CHANNEL: &str = "channel0";
/// Smaller files would hold a handful of events.
pub const MIN_TRACEFILE_BYTES: u64 = 64 << 10;

fn yes() -> bool {
    true
}

fn default_max_string() -> u32 {
    nopal_live::plan::Limits::default().max_string_bytes
}

impl SessionConfig {
    pub fn from_toml(text: &str) -> Result<SessionConfig, SessionError> {
        let config: SessionConfig = toml::from_str(text).map_err(|e| {
            SessionError::new("bad-session-file", format!("not a session file: {}", e.to_string().trim_end()))
                .hint("`nopal save` writes one that can be loaded")
        })?;
        check_name("a session", &config.name)?;
        for channel in &config.channels {
            check_name("a channel", &channel.name)?;
            for name in &channel.context {
                context_field(name)?;
            }
        }
        Ok(config)
    }

    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a session has nothing that TOML cannot hold")
    }

    pub fn channel(&self, name: &str) -> Option<&Channel> {
        self.channels.iter().find(|channel| channel.name == name)
    }

    /// The channel with this name, made if it is not there.
    pub fn channel_mut(&mut self, name: &str) -> &mut Channel {
        let idx = self.channels.iter().position(|channel| channel.name == name).unwrap_or_else(|| {
            let mode = if self.snapshot { Mode::Overwrite } else { Mode::Discard };
            self.channels.push(Channel { mode, ..Channel::named(name) });
            self.channels.len() - 1
        });
        &mut self.channels[idx]
    }
}

impl Channel {
    pub fn named(name: &str) -> Channel {
        Channel {
            name: name.to_owned(),
            mode: Mode::Discard,
            ring_bytes: None,
            door: DoorChoice::Auto,
            max_string: default_max_string(),
            tracefile_size: None,
            tracefile_count: None,
            context: ContextField::USUAL.map(|field| field.name().to_owned()).to_vec(),
            enabled: true,
            events: Vec::new(),
        }
    }

    /// Whether each hit must bring a part of its stack.
    pub fn has_stack(&self) -> bool {
        self.context_fields().contains(&ContextField::Ustack)
    }

    /// Whether each event says which trace and span of OpenTelemetry its thread works on.
    pub fn has_thread_context(&self) -> bool {
        self.context_fields().contains(&ContextField::Otel)
    }

    /// What the files of its recordings may take.
    pub fn file_limit(&self) -> Option<FileLimit> {
        let bytes = self.tracefile_size?;
        Some(FileLimit { bytes: bytes.max(MIN_TRACEFILE_BYTES), count: self.tracefile_count.unwrap_or(0) })
    }

    pub fn context_fields(&self) -> Vec<ContextField> {
        self.context.iter().filter_map(|name| ContextField::parse(name)).collect()
    }
}

impl Rule {
    pub fn new(pattern: &str) -> Rule {
        Rule {
            pattern: pattern.to_owned(),
            filter: None,
            exclude: Vec::new(),
            log_level: None,
            log_level_only: None,
            enabled: true,
        }
    }

    pub fn choice(&self) -> Choice {
        let provider = self.pattern.rsplit_once(':').map(|(provider, _)| provider);
        let except = self.exclude.iter().map(|name| match (name.contains(':'), provider) {
            // As in LTTng an exclusion may be the name alone.
            (false, Some(provider)) => Pattern::parse(&format!("{provider}:{name}")),
            _ => Pattern::parse(name),
        });
        Choice {
            condition: self.filter.clone(),
            except: except.collect(),
            log_levels: match (self.log_level, self.log_level_only) {
                (_, Some(level)) => Some(level..=level),
                (Some(level), None) => Some(0..=level),
                (None, None) => None,
            },
            ..Choice::parse(&self.pattern)
        }
    }
}

/// A context by name; `cpu_id` is in every recording anyway.
pub fn context_field(name: &str) -> Result<Option<ContextField>, SessionError> {
    if name == "cpu_id" {
        return Ok(None);
    }
    ContextField::parse(name).map(Some).ok_or_else(|| {
        let known: Vec<&str> = ContextField::all().map(ContextField::name).collect();
        SessionError::new("no-such-context", format!("there is no context `{name}`"))
            .hint(format!("there are cpu_id (always there), {}", known.join(", ")))
    })
}

/// Names become parts of paths. `what` is what the name is for: `a session`.
pub fn check_name(what: &str, name: &str) -> Result<(), SessionError> {
    let is_fine = !name.is_empty()
        && name.len() <= 100
        && !name.starts_with(['.', '-'])
        && name.chars().all(|c| c.is_alphanumeric() || "._-@+".contains(c));
    if is_fine {
        return Ok(());
    }
    Err(SessionError::new("bad-name", format!("`{name}` cannot be a name for {what}"))
        .hint("letters, digits and . _ - @ + make a name of up to 100 characters"))
}

/// LTTng's log levels, the more severe the smaller.
const LOG_LEVELS: [&str; 15] = [
    "EMERG",
    "ALERT",
    "CRIT",
    "ERR",
    "WARNING",
    "NOTICE",
    "INFO",
    "DEBUG_SYSTEM",
    "DEBUG_PROGRAM",
    "DEBUG_PROCESS",
    "DEBUG_MODULE",
    "DEBUG_UNIT",
    "DEBUG_FUNCTION",
    "DEBUG_LINE",
    "DEBUG",
];

/// `TRACE_INFO`, `INFO`, `info` or `6`.
pub fn log_level(text: &str) -> Result<i32, SessionError> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("TRACE_").unwrap_or(&upper);
    let number = name.parse::<i32>().ok().filter(|n| (0..LOG_LEVELS.len() as i32).contains(n));
    number.or_else(|| LOG_LEVELS.iter().position(|known| *known == name).map(|n| n as i32)).ok_or_else(|| {
        SessionError::new("no-such-log-level", format!("there is no log level `{text}`"))
            .hint(format!("from the most severe: {}", LOG_LEVELS.join(", ")))
    })
}

/// `TRACE_INFO` of 6.
pub fn log_level_name(level: i32) -> String {
    usize::try_from(level)
        .ok()
        .and_then(|level| LOG_LEVELS.get(level))
        .map_or_else(|| level.to_string(), |name| format!("TRACE_{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> SessionConfig {
        SessionConfig {
            name: "valkey".to_owned(),
            output: PathBuf::from("/tmp/out"),
            snapshot: true,
            memory_bytes: Some(64 << 20),
            triggers: vec!["valkey_commands:command_call if duration > 10000".to_owned()],
            rotation: Rotation { size_bytes: Some(1 << 20), timer_us: Some(60_000_000) },
            track: Tracked {
                processes: vec![TrackedProcess { pid: 7, start_ticks: 99 }],
                programs: vec!["valkey-server".to_owned()],
                users: vec![33],
                cgroups: vec![PathBuf::from("/system.slice")],
                containers: vec!["web".to_owned()],
            },
            channels: vec![Channel {
                tracefile_size: Some(1 << 20),
                tracefile_count: Some(4),
                events: vec![Rule { exclude: vec!["eventloop".to_owned()], ..Rule::new("valkey_server:*") }],
                ..Channel::named(DEFAULT_CHANNEL)
            }],
        }
    }

    #[test]
    fn what_is_saved_can_be_loaded() {
        let text = example().to_toml();
        assert!(text.contains("valkey_server:*"), "{text}");
        assert_eq!(SessionConfig::from_toml(&text), Ok(example()));
    }

    #[test]
    fn a_file_that_is_no_session_says_where() {
        for (text, part) in [
            ("name = 1\noutput = '/x'", "line 1"),
            ("name = 'x'", "output"),
            ("name = 'x'\noutput = '/x'\ncolour = 3", "colour"),
            ("name = '../x'\noutput = '/x'", "cannot be a name"),
            ("name = 'x'\noutput = '/x'\n[[channels]]\nname='c'\ncontext=['hue']", "hue"),
        ] {
            let error = SessionConfig::from_toml(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn an_exclusion_may_leave_out_the_provider() {
        let rule = Rule { exclude: vec!["get_*".to_owned(), "other:x".to_owned()], ..Rule::new("app:*") };
        let choice = rule.choice();
        assert!(choice.except[0].matches("app", "get_hit") && !choice.except[0].matches("other", "get_hit"));
        assert!(choice.except[1].matches("other", "x"));
    }

    #[test]
    fn log_levels_are_numbers_or_names() {
        for (text, level) in [("TRACE_INFO", 6), ("info", 6), ("13", 13), ("TRACE_DEBUG", 14), ("EMERG", 0)] {
            assert_eq!(log_level(text), Ok(level), "{text}");
        }
        assert!(log_level("LOUD").is_err() && log_level("15").is_err());
        assert_eq!(log_level_name(13), "TRACE_DEBUG_LINE");
    }
}
