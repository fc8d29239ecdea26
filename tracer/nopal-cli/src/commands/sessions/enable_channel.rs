//! `nopal enable-channel` and `nopal disable-channel`: the rings of a session.

use super::{Which, change, say};
use crate::failure::Failure;
use crate::target_args::DoorArg;
use crate::words::{bytes_in_words, size};
use nopal_session::config::{DoorChoice, MIN_TRACEFILE_BYTES, Mode, check_name};
use nopal_session::{Channel, Session};

/// Makes a channel, or sets one that is there.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal enable-channel -u big --subbuf-size 4M --num-subbuf 8
  nopal enable-channel -u ring --overwrite --subbuf-size 1M
  nopal enable-event -u -c big 'postgresql:*'
  nopal enable-channel -u always --tracefile-size 8M --tracefile-count 16     the newest 128 MB of each CPU

The ring of each CPU has --subbuf-size times --num-subbuf bytes, rounded up to a power of two.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub which: Which,
    /// A full ring writes over the oldest events; they are written out by `snapshot record`, `rotate` and `stop`.
    #[arg(long)]
    pub overwrite: bool,
    /// A full ring drops and counts new events; so it is without --overwrite.
    #[arg(long, conflicts_with = "overwrite")]
    pub discard: bool,
    /// Size of a part of the ring.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub subbuf_size: Option<u64>,
    /// Number of parts.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub num_subbuf: Option<u64>,
    /// Longest string to keep of an argument.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=8192))]
    pub max_string: Option<u32>,
    /// Most that a file of its recordings may have, from 64k on; 0 is without limit. A CPU then has several files. An event that
    /// is larger has one of its own.
    #[arg(short = 'C', long, value_name = "SIZE", value_parser = size)]
    pub tracefile_size: Option<u64>,
    /// So many of these files are kept of each CPU: the oldest is removed before another is begun; 0 keeps all.
    #[arg(short = 'W', long, value_name = "COUNT")]
    pub tracefile_count: Option<u32>,
    /// Which way into the processes.
    #[arg(long, value_enum)]
    pub door: Option<DoorArg>,
    #[command(flatten)]
    pub lttng: LttngOnly,
    /// Several with commas.
    #[arg(value_name = "CHANNEL", value_delimiter = ',', required = true)]
    pub names: Vec<String>,
}

/// LTTng's options that have no counterpart: those without effect here are taken, others are refused in words.
#[derive(Debug, clap::Args)]
pub(crate) struct LttngOnly {
    #[arg(long, hide = true)]
    pub switch_timer: Option<String>,
    #[arg(long, hide = true)]
    pub read_timer: Option<String>,
    #[arg(long, hide = true)]
    pub monitor_timer: Option<String>,
    #[arg(long, hide = true)]
    pub output: Option<String>,
    #[arg(long, hide = true)]
    pub buffers_uid: bool,
    #[arg(long, hide = true)]
    pub buffers_pid: bool,
    #[arg(long, hide = true)]
    pub buffers_global: bool,
    #[arg(long, hide = true)]
    pub blocking_timeout: Option<String>,
}

impl LttngOnly {
    /// Notes on what has no effect; an error for what would be missed.
    fn check(&self) -> Result<Vec<String>, Failure> {
        if self.blocking_timeout.is_some() {
            return Err(Failure::usage("a program never waits for room in a ring")
                .hint("a larger --subbuf-size loses less"));
        }
        let is_timed =
            self.switch_timer.is_some() || self.read_timer.is_some() || self.monitor_timer.is_some();
        let is_shared = self.buffers_uid || self.buffers_pid || self.buffers_global || self.output.is_some();
        let timed = "timers have no effect: rings are read all the time, and written out every second";
        let shared = "--buffers-* and --output have no effect: a channel has one ring for each CPU";
        let notes = [(is_timed, timed), (is_shared, shared)];
        Ok(notes.into_iter().filter(|(is_told, _)| *is_told).map(|(_, note)| note.to_owned()).collect())
    }
}

/// Switches a channel off with all its events.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal disable-channel -u big")]
pub(crate) struct DisableArgs {
    #[command(flatten)]
    pub which: Which,
    /// Several with commas.
    #[arg(value_name = "CHANNEL", value_delimiter = ',', required = true)]
    pub names: Vec<String>,
}

const USUAL_SUBBUF_BYTES: u64 = 1 << 20;
const USUAL_NUM_SUBBUF: u64 = 4;

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    args.names.iter().try_for_each(|name| check_name("a channel", name))?;
    let ring_bytes = (args.subbuf_size.is_some() || args.num_subbuf.is_some()).then(|| {
        args.subbuf_size
            .unwrap_or(USUAL_SUBBUF_BYTES)
            .saturating_mul(args.num_subbuf.unwrap_or(USUAL_NUM_SUBBUF))
    });
    if ring_bytes.is_some_and(|bytes| !(64 << 10..=1 << 30).contains(&bytes)) {
        return Err(Failure::usage("the ring of a CPU can have 64k to 1G")
            .hint("that is --subbuf-size times --num-subbuf"));
    }
    let mut notes = args.lttng.check()?;
    if args.tracefile_size.is_some_and(|size| (1..MIN_TRACEFILE_BYTES).contains(&size)) {
        let least = bytes_in_words(MIN_TRACEFILE_BYTES);
        notes.push(format!("--tracefile-size was raised to {least}, the least there is"));
    }
    let (session, more) = change(&args.which, |config| {
        let is_snapshot = config.snapshot;
        for name in &args.names {
            set(config.channel_mut(name), &args, ring_bytes, is_snapshot)?;
        }
        Ok(())
    })?;
    notes.extend(more);
    say_done(&args.which, "enabled", &args.names, &session, &notes);
    Ok(())
}

fn set(
    channel: &mut Channel,
    args: &Args,
    ring_bytes: Option<u64>,
    is_snapshot: bool,
) -> Result<(), Failure> {
    channel.enabled = true;
    if args.overwrite || is_snapshot {
        channel.mode = Mode::Overwrite;
    } else if args.discard {
        channel.mode = Mode::Discard;
    }
    channel.ring_bytes = ring_bytes.or(channel.ring_bytes);
    channel.max_string = args.max_string.unwrap_or(channel.max_string);
    if let Some(door) = args.door {
        channel.door = match door {
            DoorArg::Auto => DoorChoice::Auto,
            DoorArg::User => DoorChoice::User,
            DoorArg::Kernel => DoorChoice::Kernel,
        };
    }
    set_limit(channel, args.tracefile_size, args.tracefile_count)
}

fn say_done(which: &Which, what: &str, names: &[String], session: &Session, notes: &[String]) {
    for (n, name) in names.iter().enumerate() {
        let text = format!("Channel {name} {what} in session `{}`", session.name);
        let notes = if n + 1 == names.len() { notes } else { &[] };
        say(which.json, &text, serde_json::json!({ "session": session.name, "channel": name }), notes);
    }
}

/// What its files may take from now on; 0 takes a limit away.
fn set_limit(channel: &mut Channel, size: Option<u64>, count: Option<u32>) -> Result<(), Failure> {
    if let Some(size) = size {
        channel.tracefile_size = Some(size.max(MIN_TRACEFILE_BYTES)).filter(|_| size > 0);
    }
    if let Some(count) = count {
        channel.tracefile_count = Some(count).filter(|count| *count > 0);
    }
    if channel.tracefile_count.is_some() && channel.tracefile_size.is_none() {
        return Err(Failure::usage("--tracefile-count needs --tracefile-size")
            .hint("--tracefile-size 8M says when the next file begins"));
    }
    Ok(())
}

pub(crate) fn disable(args: DisableArgs) -> Result<(), Failure> {
    let (session, notes) = change(&args.which, |config| {
        for name in &args.names {
            match config.channels.iter_mut().find(|channel| channel.name == *name) {
                Some(channel) => channel.enabled = false,
                None => return Err(no_channel(name, config)),
            }
        }
        Ok(())
    })?;
    say_done(&args.which, "disabled", &args.names, &session, &notes);
    Ok(())
}

pub(crate) fn no_channel(name: &str, config: &nopal_session::SessionConfig) -> Failure {
    let names: Vec<&str> = config.channels.iter().map(|channel| channel.name.as_str()).collect();
    let failure =
        Failure::new("no-such-channel", format!("session `{}` has no channel `{name}`", config.name));
    match names.is_empty() {
        true => failure.hint("it has none yet; `nopal enable-channel` makes one"),
        false => failure.hint(format!("it has {}", names.join(", "))),
    }
}
