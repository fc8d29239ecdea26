//! `nopal status`: the sessions there are, or one in detail.

use super::enable_rotation::rotation_in_words;
use crate::failure::Failure;
use crate::words::{bytes_in_words, counted};
use nopal_session::config::{Mode, log_level_name};
use nopal_session::control::{Reply, Request, Status, ask};
use nopal_session::home::Life;
use nopal_session::{Channel, Home, Rule, Session, SessionConfig, SessionError};
use serde_json::{Value, json};

/// Shows the sessions, or what one wants and how it is doing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal status              all sessions; the current one in detail
  nopal status valkey
  nopal status --json")]
pub(crate) struct Args {
    /// The session to show in detail.
    pub name: Option<String>,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let home = Home::find()?;
    let current = home.current();
    if let Some(name) = &args.name {
        let session = home.get(Some(name))?;
        let (config, status) = (session.config()?, status_of(&session));
        match args.json {
            true => show_json!(object(&session, &config, &status, current.as_deref())),
            false => show(&session, &config, &status),
        }
        return Ok(());
    }
    let sessions = home.all()?;
    if args.json {
        let rows: Vec<Value> = sessions
            .iter()
            .filter_map(|s| Some(object(s, &s.config().ok()?, &status_of(s), current.as_deref())))
            .collect();
        show_json!(Value::from(rows));
        return Ok(());
    }
    if sessions.is_empty() {
        show!("No session; `nopal create NAME` makes one.");
        return Ok(());
    }
    for session in &sessions {
        let mark = if current.as_deref() == Some(&session.name) { '*' } else { ' ' };
        match session.config() {
            Ok(config) => show!(
                "{mark} {:<20} {:<8} {}",
                session.name,
                life_word(session.life()),
                config.output.display()
            ),
            Err(error) => show!("{mark} {:<20} unreadable: {error}", session.name),
        }
    }
    if let Some(session) = sessions.iter().find(|s| current.as_deref() == Some(&s.name)) {
        anstream::println!("");
        show(session, &session.config()?, &status_of(session));
    }
    Ok(())
}

type Answer = Result<Option<Status>, SessionError>;

/// What the recorder says; a session without one has nothing to say.
fn status_of(session: &Session) -> Answer {
    match session.life() {
        Life::Stopped | Life::Stale | Life::Failed => Ok(None),
        Life::Started => match ask(session, &Request::Status) {
            Ok(Reply::Status(status)) => Ok(Some(status)),
            Ok(_) => Ok(None),
            // It may have ended meanwhile.
            Err(_) if session.life() != Life::Started => Ok(None),
            Err(error) => Err(error),
        },
    }
}

fn life_word(life: Life) -> &'static str {
    match life {
        Life::Stopped => "stopped",
        Life::Started => "started",
        Life::Stale => "stale",
        Life::Failed => "failed",
    }
}

fn show(session: &Session, config: &SessionConfig, answer: &Answer) {
    let life = session.life();
    let kind = if config.snapshot { ", snapshots" } else { "" };
    show!("Session {}: {}{kind}", session.name, life_word(life));
    show!("  output    {}", config.output.display());
    if let Some(bytes) = config.memory_bytes {
        show!("  memory    {} for all rings", bytes_in_words(bytes));
    }
    if !config.rotation.is_never() {
        show!("  rotates   {}", rotation_in_words(&config.rotation));
    }
    for trigger in &config.triggers {
        show!("  trigger   {trigger}");
    }
    let pids = config
        .track
        .processes
        .iter()
        .map(|p| format!("process {}{}", p.pid, if p.is_alive() { "" } else { " (ended)" }));
    let programs = config.track.programs.iter().map(|program| format!("program {program}"));
    let tracked: Vec<String> = pids.chain(programs).chain(config.track.groups_in_words()).collect();
    show!("  tracks    {}", if tracked.is_empty() { "nothing yet".to_owned() } else { tracked.join(", ") });
    for channel in &config.channels {
        show_channel(channel);
    }
    match (life, answer) {
        (Life::Started, Ok(Some(s))) => {
            show!(
                "  recorder  process {}, {} user and {} kernel sites",
                s.recorder_pid,
                s.user_sites,
                s.kernel_sites
            );
            let snapshots = config.snapshot.then(|| counted(s.n_snapshots.into(), "snapshot"));
            // Where all is kept in memory there are no events but those of snapshots.
            let recorded = (!config.snapshot || s.totals.n_events > 0).then(|| {
                format!("{}, {}", counted(s.totals.n_events, "event"), bytes_in_words(s.totals.n_bytes))
            });
            let so_far: Vec<String> = recorded.into_iter().chain(snapshots).collect();
            show!("  so far    {}, {} lost", so_far.join(", "), s.totals.n_lost);
            if s.totals.n_let_go > 0 {
                show!("  let go    {} with the oldest files", counted(s.totals.n_let_go, "event"));
            }
            s.gaps.iter().for_each(|gap| show!("  gap       {gap}"));
        }
        (Life::Started, Err(error)) => show!("  recorder  {error}"),
        (Life::Stale, _) => show!(
            "  The recorder was killed. What it had written is whole; `nopal start {0}` goes on, `nopal stop {0}` puts the processes back.",
            session.name
        ),
        (Life::Failed, _) => {
            if let Some(failure) = session.state().failure {
                show!("  The recorder gave up: {failure}");
            }
        }
        _ => {}
    }
}

fn show_channel(channel: &Channel) {
    let mode = match channel.mode {
        Mode::Discard => "discard",
        Mode::Overwrite => "overwrite",
    };
    let off = if channel.enabled { "" } else { ", disabled" };
    let size = channel.ring_bytes.map_or(String::new(), |bytes| format!(", {} a CPU", bytes_in_words(bytes)));
    let files = channel.file_limit().map_or(String::new(), |limit| {
        let count = if limit.count > 0 { format!("at most {} ", limit.count) } else { String::new() };
        format!(", {count}files of {} a CPU", bytes_in_words(limit.bytes))
    });
    show!("  channel   {}: {mode}{size}{files}, context {}{off}", channel.name, channel.context.join(" "));
    for rule in &channel.events {
        show!("    event   {}", rule_text(rule));
    }
}

fn rule_text(rule: &Rule) -> String {
    let mut text = rule.pattern.clone();
    if let Some(filter) = &rule.filter {
        text += &format!(" if {filter}");
    }
    if !rule.exclude.is_empty() {
        text += &format!(" except {}", rule.exclude.join(", "));
    }
    if let Some(level) = rule.log_level {
        text += &format!(", {} and worse", log_level_name(level));
    }
    if let Some(level) = rule.log_level_only {
        text += &format!(", only {}", log_level_name(level));
    }
    if !rule.enabled {
        text += ", disabled";
    }
    text
}

fn object(session: &Session, config: &SessionConfig, answer: &Answer, current: Option<&str>) -> Value {
    json!({
        "session": session.name,
        "state": life_word(session.life()),
        "current": current == Some(&session.name),
        "failure": session.state().failure,
        "config": config,
        "recorder": answer.as_ref().ok().and_then(Option::as_ref),
        "recorder_problem": answer.as_ref().err(),
    })
}
