//! `nopal enable-channel` and `nopal disable-channel`: the rings of a session.

use super::{Which, change, say};
use crate::failure::Failure;
use crate::target_args::DoorArg;
use crate::words::size;
use nopal_session::config::{DoorChoice, Mode, check_name};

/// Makes a channel, or sets one that is there.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal enable-channel -u big --subbuf-size 4M --num-subbuf 8
  nopal enable-channel -u ring --overwrite --subbuf-size 1M
  nopal enable-event -u -c big 'postgresql:*'

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
    /// Which way into the processes.
    #[arg(long, value_enum)]
    pub door: Option<DoorArg>,
    #[command(flatten)]
    pub lttng: LttngOnly,
    #[arg(value_name = "CHANNEL")]
    pub name: String,
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
    #[arg(short = 'C', long, hide = true)]
    pub tracefile_size: Option<String>,
    #[arg(short = 'W', long, hide = true)]
    pub tracefile_count: Option<String>,
}

impl LttngOnly {
    /// Notes on what has no effect; an error for what would be missed.
    fn check(&self) -> Result<Vec<String>, Failure> {
        let is_limit = self.tracefile_size.is_some() || self.tracefile_count.is_some();
        if is_limit {
            return Err(Failure::usage("the size of recordings cannot be limited")
                .hint("`nopal rotate` ends a recording, which can then be moved or removed; --overwrite keeps the newest events in memory"));
        }
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
    #[arg(value_name = "CHANNEL")]
    pub name: String,
}

const USUAL_SUBBUF_BYTES: u64 = 1 << 20;
const USUAL_NUM_SUBBUF: u64 = 4;

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    check_name("a channel", &args.name)?;
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
    let (session, more) = change(&args.which, |config| {
        let is_snapshot = config.snapshot;
        let channel = config.channel_mut(&args.name);
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
        Ok(())
    })?;
    notes.extend(more);
    let text = format!("Channel {} enabled in session `{}`", args.name, session.name);
    say(args.which.json, &text, serde_json::json!({ "session": session.name, "channel": args.name }), &notes);
    Ok(())
}

pub(crate) fn disable(args: DisableArgs) -> Result<(), Failure> {
    let (session, notes) = change(&args.which, |config| {
        match config.channels.iter_mut().find(|channel| channel.name == args.name) {
            Some(channel) => {
                channel.enabled = false;
                Ok(())
            }
            None => Err(no_channel(&args.name, config)),
        }
    })?;
    let text = format!("Channel {} disabled in session `{}`", args.name, session.name);
    say(args.which.json, &text, serde_json::json!({ "session": session.name, "channel": args.name }), &notes);
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
