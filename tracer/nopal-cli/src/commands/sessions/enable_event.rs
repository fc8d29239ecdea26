//! `nopal enable-event` and `nopal disable-event`: which events a session records.

use super::{EXIT_HELP, Which, change, say};
use crate::failure::Failure;
use nopal_live::predicate;
use nopal_session::config::{DEFAULT_CHANNEL, Rule, check_name, log_level};

/// Adds events to a session; a started one records them from now on.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("\
Examples:
  nopal enable-event -u 'valkey_server:*'
  nopal enable-event -u valkey_commands:command_call --filter 'duration > 1000 && name != \"ping\"'
  nopal enable-event -u 'app:*' --exclude 'app:heartbeat,app:debug_*'
  nopal enable-event -u 'app:*' --loglevel TRACE_WARNING     warnings and worse

{EXIT_HELP}"))]
pub(crate) struct Args {
    #[command(flatten)]
    pub which: Which,
    /// The channel they go to; made if it is not there.
    #[arg(short, long, value_name = "NAME", default_value = DEFAULT_CHANNEL)]
    pub channel: String,
    /// Only hits for which this holds, such as 'size > 100 && name == \"get*\"'.
    #[arg(short, long, value_name = "EXPR", allow_hyphen_values = true)]
    pub filter: Option<String>,
    /// Not these, though the pattern names them: a list with commas.
    #[arg(short = 'x', long, value_name = "EVENTS", value_delimiter = ',')]
    pub exclude: Vec<String>,
    /// Only events at least as severe: a number, or TRACE_EMERG to TRACE_DEBUG.
    #[arg(long, value_name = "LEVEL")]
    pub loglevel: Option<String>,
    /// Only events of exactly this level.
    #[arg(long, value_name = "LEVEL", conflicts_with = "loglevel")]
    pub loglevel_only: Option<String>,
    /// Every event of the tracked processes.
    #[arg(short, long, conflicts_with = "events")]
    pub all: bool,
    /// As in LTTng; there are no other events here.
    #[arg(long, hide = true)]
    pub tracepoint: bool,
    /// `provider:name` with `*` and `?`; several with commas or blanks.
    #[arg(value_name = "EVENT", value_delimiter = ',', required_unless_present = "all")]
    pub events: Vec<String>,
}

/// Takes events out of a session; a started one stops recording them now.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal disable-event -u 'valkey_server:*'
  nopal disable-event -u --all

The names are those that `enable-event` was given.")]
pub(crate) struct DisableArgs {
    #[command(flatten)]
    pub which: Which,
    /// Only in this channel.
    #[arg(short, long, value_name = "NAME")]
    pub channel: Option<String>,
    /// All of them.
    #[arg(short, long, conflicts_with = "events")]
    pub all: bool,
    #[arg(value_name = "EVENT", value_delimiter = ',', required_unless_present = "all")]
    pub events: Vec<String>,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let level = |text: &Option<String>| text.as_deref().map(log_level).transpose();
    let (log_level, log_level_only) = (level(&args.loglevel)?, level(&args.loglevel_only)?);
    if let Some(filter) = &args.filter {
        check_filter(filter)?;
    }
    let events = if args.all { vec!["*:*".to_owned()] } else { args.events };
    events.iter().chain(&args.exclude).try_for_each(|event| check_event(event))?;
    check_name("a channel", &args.channel)?;
    let rules: Vec<Rule> = events
        .iter()
        .map(|pattern| Rule {
            filter: args.filter.clone(),
            exclude: args.exclude.clone(),
            log_level,
            log_level_only,
            ..Rule::new(pattern)
        })
        .collect();
    let (session, notes) = change(&args.which, |config| {
        let channel = config.channel_mut(&args.channel);
        for rule in rules {
            // The same events with the same filter again only switch them on.
            let like = |known: &&mut Rule| Rule { enabled: true, ..(**known).clone() } == rule;
            match channel.events.iter_mut().find(like) {
                Some(known) => known.enabled = true,
                None => channel.events.push(rule),
            }
        }
        Ok(())
    })?;
    let text =
        format!("{} enabled in channel {} of session `{}`", events.join(", "), args.channel, session.name);
    let object = serde_json::json!({ "session": session.name, "channel": args.channel, "enabled": events });
    say(args.which.json, &text, object, &notes);
    Ok(())
}

pub(crate) fn disable(args: DisableArgs) -> Result<(), Failure> {
    let mut n_disabled = 0;
    let (session, notes) = change(&args.which, |config| {
        let mut known = Vec::new();
        let is_meant = |name: &str| args.channel.as_deref().is_none_or(|channel| channel == name);
        for channel in config.channels.iter_mut().filter(|channel| is_meant(&channel.name)) {
            for rule in channel.events.iter_mut().filter(|rule| rule.enabled) {
                known.push(rule.pattern.clone());
                if args.all || args.events.contains(&rule.pattern) {
                    rule.enabled = false;
                    n_disabled += 1;
                }
            }
        }
        if let Some(missing) = args.events.iter().find(|event| !known.contains(event)) {
            let failure =
                Failure::new("no-such-event", format!("`{missing}` is not enabled in this session"));
            return Err(match known.is_empty() {
                true => failure.hint("no event is"),
                false => failure.hint(format!("enabled are {}", known.join(", "))),
            });
        }
        Ok(())
    })?;
    let text = format!("{n_disabled} disabled in session `{}`", session.name);
    say(
        args.which.json,
        &text,
        serde_json::json!({ "session": session.name, "disabled": n_disabled }),
        &notes,
    );
    Ok(())
}

/// Whether it can be the name of events. Those of bpftrace have more colons.
pub(crate) fn check_event(text: &str) -> Result<(), Failure> {
    let is_fine = text.starts_with("usdt:") || text.matches(':').count() <= 1;
    if is_fine && !text.trim().is_empty() {
        return Ok(());
    }
    Err(Failure::new("bad-event", format!("`{text}` is not the name of an event"))
        .hint("events are `provider:name`, with * and ?; --all is every event"))
}

/// Names are checked against the probes when the session starts; what can never be read is reported now.
pub(crate) fn check_filter(filter: &str) -> Result<(), Failure> {
    predicate::Predicate::parse(filter, &|_| Some(0)).map(drop).map_err(|e| {
        Failure::new("bad-condition", format!("in `{filter}` at column {}: {}", e.offset + 1, e.reason))
            .hint("a filter compares arguments: 'size > 100 && name == \"get*\"'")
    })
}
