//! `nopal add-context`: what stands in front of every event's own fields.

use super::enable_channel::no_channel;
use super::{Which, change, say};
use crate::failure::Failure;
use nopal_live::context::ContextField;
use nopal_session::config::{DEFAULT_CHANNEL, context_field};

/// Adds fields to every event of a channel, or of all.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal add-context -u -t procname -t ip
  nopal add-context -u -c channel0 -t procname

There are vpid, vtid (both there unless a session file leaves them out), procname, ip, ustack (the addresses of the callers), otel (trace_id and span_id of OpenTelemetry,
OTEP 4947, by the user door), and cpu_id, which every event has; of the process, as it was within a second of the event, its ids
(vuid, veuid, vsuid, vgid, vegid, vsgid) and namespaces (cgroup_ns, ipc_ns, mnt_ns, net_ns, pid_ns, time_ns, user_ns, uts_ns).")]
pub(crate) struct Args {
    #[command(flatten)]
    pub which: Which,
    /// Only this channel.
    #[arg(short, long, value_name = "NAME")]
    pub channel: Option<String>,
    /// The field; may be given several times.
    #[arg(
        short = 't',
        long = "type",
        value_name = "FIELD",
        required_unless_present = "list",
        value_delimiter = ','
    )]
    pub types: Vec<String>,
    /// Shows the fields there are.
    #[arg(long, conflicts_with = "types")]
    pub list: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    if args.list {
        let names = ContextField::all().map(ContextField::name);
        let names: Vec<&str> = ["cpu_id"].into_iter().chain(names).collect();
        match args.which.json {
            true => show_json!(serde_json::json!(names)),
            false => names.iter().for_each(|name| show!("{name}")),
        }
        return Ok(());
    }
    let mut fields = Vec::new();
    for name in &args.types {
        fields.extend(context_field(name)?);
    }
    let (session, notes) = change(&args.which, |config| {
        if let Some(name) = &args.channel
            && config.channel(name).is_none()
        {
            return Err(no_channel(name, config));
        }
        if config.channels.is_empty() {
            config.channel_mut(DEFAULT_CHANNEL);
        }
        let is_meant = |name: &str| args.channel.as_deref().is_none_or(|channel| channel == name);
        for channel in config.channels.iter_mut().filter(|channel| is_meant(&channel.name)) {
            for field in &fields {
                if !channel.context.iter().any(|known| known == field.name()) {
                    channel.context.push(field.name().to_owned());
                }
            }
        }
        Ok(())
    })?;
    let text = format!("{} added in session `{}`", args.types.join(", "), session.name);
    say(
        args.which.json,
        &text,
        serde_json::json!({ "session": session.name, "context": args.types }),
        &notes,
    );
    Ok(())
}
