//! `nopal enable-rotation` and `nopal disable-rotation`: when a session rotates by itself.

use super::{Which, change, say};
use crate::failure::Failure;
use crate::words::{bytes_in_words, size};
use nopal_session::Rotation;

/// Has a session rotate by itself, by size, by time, or by whichever comes first
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal enable-rotation --size 100M
  nopal enable-rotation --timer 1h --session valkey

Archived chunks stay until somebody moves or removes them. A schedule that is set again takes the place of the old one.")]
pub(crate) struct Args {
    /// The session; without it the current one.
    #[arg(short, long, value_name = "NAME")]
    pub session: Option<String>,
    /// When what was written since the last rotation has this size.
    #[arg(long, value_name = "SIZE", value_parser = some_size, required_unless_present = "timer")]
    pub size: Option<u64>,
    /// So long after the last rotation: `30s`, `10m`, `1h`; a bare number is microseconds, as in LTTng.
    #[arg(long, value_name = "PERIOD", value_parser = period_us)]
    pub timer: Option<u64>,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

/// Takes a schedule of `enable-rotation` away.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal disable-rotation --size
  nopal disable-rotation --timer --size --session valkey")]
pub(crate) struct DisableArgs {
    /// The session; without it the current one.
    #[arg(short, long, value_name = "NAME")]
    pub session: Option<String>,
    /// The one by size.
    #[arg(long, required_unless_present = "timer")]
    pub size: bool,
    /// The one by time.
    #[arg(long)]
    pub timer: bool,
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let which = Which::named(args.session, args.json);
    set(&which, |rotation| {
        rotation.size_bytes = args.size.or(rotation.size_bytes);
        rotation.timer_us = args.timer.or(rotation.timer_us);
        Ok(())
    })
}

pub(crate) fn disable(args: DisableArgs) -> Result<(), Failure> {
    let which = Which::named(args.session, args.json);
    set(&which, |rotation| {
        let is_set = [(args.size, rotation.size_bytes, "size"), (args.timer, rotation.timer_us, "timer")];
        if let Some((_, _, name)) = is_set.iter().find(|(is_meant, set, _)| *is_meant && set.is_none()) {
            return Err(Failure::new("no-rotation", format!("the session does not rotate by {name}"))
                .hint("`nopal status NAME` shows when it does"));
        }
        rotation.size_bytes = rotation.size_bytes.filter(|_| !args.size);
        rotation.timer_us = rotation.timer_us.filter(|_| !args.timer);
        Ok(())
    })
}

fn set(which: &Which, edit: impl FnOnce(&mut Rotation) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut rotation = Rotation::default();
    let (session, notes) = change(which, |config| {
        if config.snapshot {
            return Err(Failure::new("no-rotation", "a session of snapshots has nothing to rotate")
                .hint("`nopal snapshot record` writes what the rings hold"));
        }
        edit(&mut config.rotation)?;
        rotation = config.rotation;
        Ok(())
    })?;
    let text = format!("Session `{}` rotates {}", session.name, rotation_in_words(&rotation));
    let object = serde_json::json!({ "session": session.name, "rotation": rotation });
    say(which.json, &text, object, &notes);
    Ok(())
}

/// `every 10 s and with 1.0 MiB`
pub(super) fn rotation_in_words(rotation: &Rotation) -> String {
    let timer = rotation.timer_us.map(|us| format!("every {} s", us as f64 / 1e6));
    let size = rotation.size_bytes.map(|bytes| format!("with {}", bytes_in_words(bytes)));
    let parts: Vec<String> = timer.into_iter().chain(size).collect();
    if parts.is_empty() { "when asked to".to_owned() } else { parts.join(" and ") }
}

fn some_size(text: &str) -> Result<u64, String> {
    size(text)
        .and_then(|size| if size > 0 { Ok(size) } else { Err("a chunk has at least a byte".to_owned()) })
}

/// Microseconds, with LTTng's units or without.
fn period_us(text: &str) -> Result<u64, String> {
    let invalid = || format!("not a valid period: `{text}`; use `30s`, `10m` or `1h`");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" | "us" => 1,
        "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        _ => return Err(invalid()),
    };
    let number: u64 = digits.parse().map_err(|_| invalid())?;
    number.checked_mul(factor).filter(|us| *us > 0).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_the_units_of_lttng() {
        for (text, us) in
            [("5000", 5000), ("7us", 7), ("20ms", 20_000), ("3s", 3_000_000), ("1h", 3_600_000_000)]
        {
            assert_eq!(period_us(text), Ok(us), "{text}");
        }
        for text in ["", "0", "s", "1d", "-1s", "99999999999999h"] {
            assert!(period_us(text).is_err(), "{text}");
        }
    }

    #[test]
    fn schedules_are_told_in_words() {
        for (size_bytes, timer_us, words) in [
            (None, None, "when asked to"),
            (Some(1 << 20), None, "with 1.0 MiB"),
            (Some(1 << 20), Some(1_500_000), "every 1.5 s and with 1.0 MiB"),
        ] {
            assert_eq!(rotation_in_words(&Rotation { size_bytes, timer_us }), words);
        }
    }
}
