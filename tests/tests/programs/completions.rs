//! Completions in real shells on a real terminal: a TAB completes programs, processes, probes, spans, fields and sessions that
//! there are now.

use super::demo::Served;
use super::screens::Tmux;
use nopal_tests::{nopal, run, scratch};
use std::process::Command;

/// The shell without anybody's settings, and how it is given the completions.
const SHELLS: [(&str, &[&str], &str); 3] = [
    ("bash", &["bash", "--norc", "-i"], "source <(nopal completions bash)"),
    (
        "zsh",
        &["zsh", "-f", "-i"],
        "autoload -U compinit && compinit -D -u && source <(nopal completions zsh)",
    ),
    ("fish", &["fish", "--no-config"], "nopal completions fish | source"),
];

/// What is typed before a TAB, and what stands there afterwards; PID is the server's.
const CASES: [(&str, &str); 9] = [
    ("nopal trace -p PID memcached:command__g", "nopal trace -p PID memcached:command__get"),
    ("nopal trace memcached:command__tou", "nopal trace memcached:command__touch"),
    ("nopal record -p PID -e valkey_server:", "nopal record -p PID -e valkey_server:eventloop"),
    ("nopal latency -p PID redis:c", "nopal latency -p PID redis:call"),
    ("nopal latency -p PID memcached:command --by resp", "memcached:command --by response"),
    ("nopal hist -p PID memcached:command__set si", "memcached:command__set size"),
    ("nopal status comp", "nopal status completed-session"),
    ("nopal view comp", "nopal view completed-session"),
    ("nopal enable-ev", "nopal enable-event"),
];

fn check(shell: usize) {
    let (name, words, set_up) = SHELLS[shell];
    let served = Served::start();
    let pid = served.server.to_string();
    let folder = scratch(&format!("completions-{name}"));
    let home = folder.join("home");
    let output = folder.join("recordings");
    run(Command::new(nopal())
        .args(["create", "completed-session", "-o"])
        .arg(&output)
        .env("NOPAL_HOME", &home));
    let path = format!("PATH={}:{}", nopal().parent().unwrap().display(), std::env::var("PATH").unwrap());
    let home = format!("NOPAL_HOME={}", home.display());
    let tmux = Tmux::start_program(&format!("completions-{name}"), (150, 50), &[&path, &home], words);
    tmux.type_in(set_up);
    tmux.press("Enter");
    tmux.type_in("echo set''up");
    tmux.press("Enter");
    tmux.wait_for("that the shell is set up", |screen| screen.lines().any(|line| line.trim_end() == "setup"));
    for (typed, expected) in CASES {
        tmux.type_in(&typed.replace("PID", &pid));
        tmux.press("Tab");
        let expected = expected.replace("PID", &pid);
        tmux.wait_for(&format!("`{expected}` in {name}"), |screen| screen.contains(&expected));
        // Not Ctrl-C: a shell that is interrupted forgets what is typed at that moment.
        tmux.press("C-u");
        tmux.wait_for("an empty line", |screen| !screen.contains(&expected));
    }
    // A process by its number: the last digit may be that of others, too, which are then shown beside it.
    tmux.type_in("clear");
    tmux.press("Enter");
    tmux.wait_for("nothing else", |screen| !screen.contains(&pid));
    tmux.type_in(&format!("nopal trace -p {}", &pid[..pid.len() - 1]));
    tmux.press("Tab");
    tmux.press("Tab");
    tmux.wait_for(&format!("the process in {name}"), |screen| screen.contains(&pid));
}

#[test]
fn bash_completes_what_is_there() {
    check(0);
}

#[test]
fn zsh_completes_what_is_there() {
    check(1);
}

#[test]
fn fish_completes_what_is_there() {
    check(2);
}
