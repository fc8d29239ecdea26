//! `nopal demo`: a tour of nopal on a cache server of its own.

mod children;
mod tour;

use crate::failure::Failure;
use crate::signals;
use children::Running;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Shows nopal at work on a small cache server of its own; needs nothing installed and no root.
///
/// Starts a server with probes that speaks memcached's and Redis's protocols, keeps it busy, and runs nopal's own
/// commands on it, each shown so that it can be typed again. Takes some seconds.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal demo                              the tour
  nopal demo --keep                       the same, and keeps the recording for `nopal view`
  nopal demo --serve 11311 --load         a busy server to try commands on, until Ctrl-C")]
pub(super) struct Args {
    /// Keeps the server up on this port, 0 for any free one, until Ctrl-C; no tour.
    #[arg(long, value_name = "PORT", conflicts_with = "keep")]
    serve: Option<u16>,
    /// With --serve: runs the clients that keep the server busy, too.
    #[arg(long, requires = "serve")]
    load: bool,
    /// Keeps the recording that the tour makes, and says where.
    #[arg(long)]
    keep: bool,
    /// Prints what came out of each step as JSON instead; with --serve the pid and the port.
    #[arg(long)]
    pub json: bool,
    /// What this process is when the command starts itself again.
    #[arg(long, hide = true, requires = "port")]
    child: Option<children::Role>,
    #[arg(long, hide = true)]
    port: Option<u16>,
}

/// Memory for the server's data; the load stores more.
const SERVER_BYTES: usize = 16 << 20;

pub(super) fn run(args: Args) -> Result<(), Failure> {
    if let (Some(role), Some(port)) = (args.child, args.port) {
        return children::run(role, port, SERVER_BYTES);
    }
    signals::stop_on_signals();
    match args.serve {
        Some(port) => serve(port, args.load, args.json),
        None => tour::run(args.keep, args.json),
    }
}

/// Keeps the server up until Ctrl-C.
fn serve(port: u16, has_load: bool, is_json: bool) -> Result<(), Failure> {
    let (mut server, port) = Running::server(port)?;
    let mut load = if has_load { Some(Running::load(port)?) } else { None };
    let pid = server.pid();
    if is_json {
        anstream::println!("{}", serde_json::json!({ "pid": pid, "port": port }));
    } else {
        let program = shown_program();
        anstream::println!(
            "The demo server is process {pid} and answers on 127.0.0.1:{port} until Ctrl-C.

Try in another terminal
  {program} list -p {pid}
  {program} trace -p {pid} 'redis:call__*' 'memcached:command__*'
  {program} trace -p {pid} 'valkey_commands:command_call if duration > 1000'
  {program} record -p {pid} -e 'memcached:*' -e 'redis:*' -e 'valkey_*:*' -o demo.rec

and as a client
  printf 'set a 0 0 5\\r\\nhello\\r\\nget a\\r\\nquit\\r\\n' | nc 127.0.0.1 {port}
  redis-cli -p {port} incr visits"
        );
        if !has_load {
            anstream::println!("\nWith --load four clients keep it busy.");
        }
    }
    // A reader of the lines above that has gone is not a reason to end.
    let _ = std::io::stdout().flush();
    while !signals::is_stopped() {
        if let Some(status) = server.ended() {
            return Err(Failure::new("demo-server", format!("the demo server ended: {status}")));
        }
        if let Some(status) = load.as_mut().and_then(Running::ended) {
            return Err(Failure::new("demo-load", format!("the clients of the demo ended: {status}")));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// This program the way it can be typed in this terminal: `nopal` if that is the one on the PATH.
fn shown_program() -> String {
    let Ok(program) = std::env::current_exe() else { return "nopal".to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("nopal")).find(|file| file.exists());
    if on_path.and_then(|file| file.canonicalize().ok()).as_deref() == Some(&program) {
        return "nopal".to_owned();
    }
    let here = std::env::current_dir().unwrap_or_default();
    let shown = match program.strip_prefix(&here) {
        Ok(below) if below.parent() == Some(Path::new("")) => PathBuf::from(".").join(below),
        Ok(below) => below.to_owned(),
        Err(_) => program,
    };
    quoted(&shown.to_string_lossy())
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, expected) in [
            ("--limit", "--limit"),
            ("/tmp/a-b_c.rec", "/tmp/a-b_c.rec"),
            ("redis:call__*", "'redis:call__*'"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
