//! `nopal top` on a real terminal, which is tmux's: what stands on it, in colours and without, small and large, while it is
//! resized, and after it has gone. What each page has is drawn in full, from numbers that are planned, by the command's own tests.

use super::demo::Served;
use nopal_tests::process::wait_until;
use nopal_tests::{nopal, run, scratch};
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;

/// A tmux of its own with one window.
pub(super) struct Tmux {
    socket: PathBuf,
}

impl Tmux {
    fn start(name: &str, size: (u32, u32), environment: &[&str], words: &[&str]) -> Tmux {
        let program: Vec<&str> =
            std::iter::once(nopal().to_str().expect("a plain path")).chain(words.iter().copied()).collect();
        Tmux::start_program(name, size, environment, &program)
    }

    /// With any program in it.
    pub(super) fn start_program(
        name: &str,
        (width, height): (u32, u32),
        environment: &[&str],
        words: &[&str],
    ) -> Tmux {
        let dir = scratch(&format!("screens-{name}"));
        let config = dir.join("tmux.conf");
        // What is left on the screen in the end is wanted, too.
        fs::write(&config, "set -g remain-on-exit on\nset -g status off\n").expect("it can be written");
        // Paths of sockets are short.
        let socket = std::env::temp_dir().join(format!("nopal-tmux-{name}-{}", std::process::id()));
        let tmux = Tmux { socket };
        let mut command = tmux.command();
        command.args(["-f", &config.display().to_string(), "new-session", "-d"]);
        command.args(["-x", &width.to_string(), "-y", &height.to_string(), "env"]);
        run(command.args(environment).args(words));
        tmux
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-u").arg("-S").arg(&self.socket).env("LC_ALL", "C.UTF-8").env("TERM", "xterm-256color");
        command.env_remove("TMUX");
        command
    }

    /// The characters on the screen, with the sequences that colour them if asked for.
    fn screen(&self, has_colours: bool) -> String {
        let more: &[&str] = if has_colours { &["-e"] } else { &[] };
        run(self.command().args(["capture-pane", "-p"]).args(more))
    }

    /// The screen once this is on it.
    #[track_caller]
    pub(super) fn wait_for(&self, what: &str, fact: impl Fn(&str) -> bool) -> String {
        let mut seen = String::new();
        wait_until(&format!("the screen shows {what}"), 60, || {
            seen = self.screen(false);
            fact(&seen)
        });
        seen
    }

    /// Waits for the program's end. What tmux writes on the screen then is missing at times, so it is asked.
    #[track_caller]
    pub(super) fn wait_for_end(&self) {
        wait_until("the program on the screen has ended", 60, || {
            run(self.command().args(["list-panes", "-F", "#{pane_dead}"])).trim() == "1"
        });
    }

    /// Types these letters.
    pub(super) fn type_in(&self, text: &str) {
        run(self.command().args(["send-keys", "-l", "--", text]));
    }

    pub(super) fn press(&self, key: &str) {
        run(self.command().args(["send-keys", key]));
    }

    fn resize(&self, width: u32, height: u32) {
        run(self.command().args(["resize-window", "-x", &width.to_string(), "-y", &height.to_string()]));
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        // Fails only if it has ended, which is what is wanted.
        let _ = self.command().arg("kill-server").output();
        let _ = fs::remove_file(&self.socket);
    }
}

/// A client that gives the server 150 commands, and hears all answers.
fn load(served: &Served) {
    let mut client = served.connect();
    let requests = "set a 0 0 1\r\nx\r\nget a\r\nget none\r\n".repeat(50);
    client.write_all(requests.as_bytes()).expect("it reads");
    let (mut answers, mut buffer) = (String::new(), [0; 4096]);
    while answers.matches("END\r\n").count() < 100 {
        let n = client.read(&mut buffer).expect("it answers");
        assert!(n > 0, "{answers}");
        answers.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
}

/// A line without what differs from run to run: numbers are `#`, blanks are one, bars are none.
fn shape(line: &str) -> String {
    let is_number = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let is_bar = |word: &&str| word.chars().all(|c| ('▁'..='▏').contains(&c));
    let words = line.split_whitespace().filter(|word| !is_bar(word));
    words.map(|word| if is_number(word) { "#" } else { word }).collect::<Vec<_>>().join(" ")
}

/// How many commands the row of the table counts.
fn count(screen: &str) -> Option<u64> {
    let row = screen.lines().find(|line| line.contains("memcached:command"))?;
    row.split_whitespace().nth(1)?.parse().ok()
}

/// Whether the title, the row and the last line are there, on a screen of so many lines.
fn is_whole(screen: &str, height: usize) -> bool {
    let lines: Vec<&str> = screen.lines().collect();
    lines.len() == height
        && lines[0].starts_with("nopal top")
        && lines[2].contains("memcached:command")
        && lines[height - 1].contains("q quit")
}

#[track_caller]
fn check(screen: &str, (width, height): (usize, usize), columns: &str) {
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines.len() <= height, "{screen}");
    assert!(lines.iter().all(|line| line.chars().count() <= width), "{screen}");
    assert_eq!(shape(lines[0]), "nopal top pid # # # spans", "{screen}");
    assert_eq!(shape(lines[1]), columns, "{screen}");
    let n_columns = columns.split(' ').filter(|word| !["per", "trend", "span"].contains(word)).count();
    let row = format!("{}memcached:command", "# ".repeat(n_columns));
    assert_eq!(shape(lines[2]), row, "{screen}");
    assert!(lines[3..height - 1].iter().all(|line| line.trim().is_empty()), "{screen}");
    assert!(lines[height - 1].contains("? help") && lines[height - 1].contains("q quit"), "{screen}");
}

const NARROW: &str = "per s count error total▼ p50 p99 max trend span";
const WIDE: &str = "per s count error total▼ self p50 p90 p99 p99.9 max trend span";

#[test]
fn top_on_a_terminal() {
    let served = Served::start();
    let pid = served.server.to_string();
    let words = ["top", "memcached:command", "-p", &pid];
    let tmux = Tmux::start("top", (80, 24), &["-u", "NO_COLOR"], &words);
    tmux.wait_for("that there is nothing yet", |screen| screen.contains("nothing yet"));
    load(&served);
    // A screen is seen while it is drawn, too.
    let is_all = |screen: &str| count(screen) == Some(150) && is_whole(screen, 24);
    check(&tmux.wait_for("all commands", is_all), (80, 24), NARROW);
    assert!(tmux.screen(true).contains("\x1b["), "something is marked");
    // Resized while it runs, it fills its new size.
    tmux.resize(200, 50);
    let wide = tmux.wait_for("all columns", |screen| screen.contains("p99.9") && is_whole(screen, 50));
    check(&wide, (200, 50), WIDE);
    tmux.resize(80, 24);
    let small = tmux.wait_for("fewer columns", |screen| !screen.contains("p99.9") && is_whole(screen, 24));
    check(&small, (80, 24), NARROW);
    // A row from within, with its histogram and the slowest.
    tmux.press("Enter");
    tmux.wait_for("a row's slowest", |screen| screen.contains("slowest") && screen.contains("request="));
    tmux.press("Escape");
    tmux.wait_for("the table again", is_all);
    // Paused, nothing changes though more comes.
    tmux.press("Space");
    tmux.wait_for("that it is paused", |screen| screen.contains("paused"));
    load(&served);
    assert_eq!(count(&tmux.screen(false)), Some(150));
    tmux.press("Space");
    tmux.wait_for("what came meanwhile", |screen| count(screen) == Some(300));
    // What stays when it has gone is the table, and whether anything is missing.
    tmux.press("q");
    let left = tmux.wait_for("the end", |screen| screen.contains("complete"));
    let row = left.lines().find(|line| line.contains("memcached:command")).expect("its row");
    assert_eq!(row.split_whitespace().next(), Some("300"), "{left}");
    assert!(left.contains("300 spans; complete") && !left.contains("q quit"), "{left}");
}

#[test]
fn top_without_colours_and_in_a_pipe() {
    let served = Served::start();
    let pid = served.server.to_string();
    let words = ["top", "memcached:command", "-p", &pid];
    let colours = |screen: &str| {
        let sequences = screen.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m'));
        let numbers = sequences.flat_map(|(numbers, _)| numbers.split(';').map(str::to_owned));
        // 39 and 49 say: as the terminal has it.
        let is_colour = |n: &String| matches!(n.parse(), Ok(30..=38 | 40..=48 | 90..=97 | 100..=107u32));
        numbers.filter(is_colour).count()
    };
    let tmux = Tmux::start("plain", (80, 24), &["NO_COLOR=1"], &words);
    tmux.wait_for("that there is nothing yet", |screen| screen.contains("nothing yet"));
    load(&served);
    let is_all = |screen: &str| count(screen) == Some(150) && is_whole(screen, 24);
    check(&tmux.wait_for("all commands", is_all), (80, 24), NARROW);
    let screen = tmux.screen(true);
    assert_eq!(colours(&screen), 0, "{}", screen.replace('\x1b', "ESC"));
    drop(tmux);
    // In a pipe there is one table, with nothing in it that only a terminal understands.
    let said = run(Command::new(nopal()).args(words).args(["--duration", "200ms", "--limit", "3"]));
    assert!(!said.contains('\x1b'), "{said}");
    let lines = said.lines().all(|line| line.chars().count() <= 80);
    assert!(lines, "{said}");
}

/// What is shown while waiting makes room for the lines that stay.
#[test]
fn intervals_on_a_terminal() {
    let served = Served::start();
    let pid = served.server.to_string();
    let words = ["latency", "memcached:command", "--every", "100ms", "-p", &pid];
    let tmux = Tmux::start("every", (80, 24), &["-u", "NO_COLOR"], &words);
    tmux.wait_for("that it waits", |screen| screen.contains("Ctrl-C gives the answer"));
    load(&served);
    let screen = tmux.wait_for("an interval", |screen| screen.contains("per s"));
    assert!(screen.lines().any(|line| line.starts_with("time ")), "{screen}");
}

/// A line that is too long for the terminal is broken between words, by nopal and not in the middle of one by the terminal.
#[test]
fn lists_on_a_terminal_break_between_words() {
    let postgres = "/usr/lib/postgresql/15/bin/postgres";
    for more in [&[][..], &["-v"]] {
        let words = [&["list", postgres], more].concat();
        let piped = run(Command::new(nopal()).args(&words));
        assert!(piped.lines().any(|line| line.len() > 80), "nothing is too long: {piped}");
        // Of a program that has ended, the last of what it wrote is missing at times.
        let line = format!("{} {}; echo that is all; sleep 600", nopal().display(), words.join(" "));
        let tmux = Tmux::start_program("list", (80, 1000), &["NO_COLOR=1"], &["sh", "-c", &line]);
        let screen = tmux.wait_for("the end", |screen| screen.contains("that is all"));
        let words_of = |text: &str| -> Vec<String> {
            text.split_whitespace().skip_while(|word| *word != "PROBE").map(str::to_owned).collect()
        };
        let (on_screen, expected) = (words_of(&screen), words_of(&piped));
        assert!(on_screen.starts_with(&expected), "{screen}");
    }
}
