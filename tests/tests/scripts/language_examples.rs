//! Every example of docs/language.md is run on the program it names, through both doors, and prints what the page shows.

use nopal_tests::{nopal, root, run, scratch};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// A fenced block of the page.
#[derive(Debug)]
struct Block {
    /// Of its first fence.
    line: usize,
    tag: String,
    text: String,
}

fn blocks() -> Vec<Block> {
    let page = fs::read_to_string(root().join("docs/language.md")).unwrap();
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in page.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(tag), None) => {
                open = Some(Block { line: index + 1, tag: tag.to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end: {open:?}");
    blocks
}

/// Whether the lines are the shown ones: `...` stands for any text in a line, and for any lines if it is one by itself.
fn is_shown(shown: &[&str], found: &[&str]) -> bool {
    match (shown.split_first(), found.split_first()) {
        (None, None) => true,
        (Some((&"...", rest)), _) => (0..=found.len()).any(|n_skipped| is_shown(rest, &found[n_skipped..])),
        (Some((line, shown)), Some((other, found))) => is_line(line, other) && is_shown(shown, found),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

fn is_line(shown: &str, found: &str) -> bool {
    let mut parts = shown.trim_end().split("...");
    let found = found.trim_end();
    let Some(mut rest) = parts.next().and_then(|first| found.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[test]
fn what_varies_is_marked() {
    for (shown, found, want) in [
        ("a", "a ", true),
        ("a", "ab", false),
        ("a...", "ab", true),
        ("p50 ..., max ...", "p50 1, max 2", true),
        ("p50 ..., max 2", "p50 1, max 22", false),
        ("p50 ..., max 2", "p50 1, max 3", false),
        ("...b", "abc", false),
        ("a\n...\nd", "a\nb\nc\nd", true),
        ("a\n...\nd", "a\nd", true),
        ("a\n...\nd", "a\nd\ne", false),
        ("a", "a\nb", false),
        ("a\nb", "a", false),
    ] {
        let (shown, found): (Vec<&str>, Vec<&str>) = (shown.lines().collect(), found.lines().collect());
        assert_eq!(is_shown(&shown, &found), want, "{shown:?} {found:?}");
    }
}

/// What a command prints, both streams in one, and how it ends; at most three minutes.
fn printed(dir: &Path, line: &str) -> Output {
    let folder = nopal().parent().unwrap();
    let mut path = OsString::from(folder);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    let mut command = Command::new("timeout");
    command.args(["180", "sh", "-c", &format!("{line} 2>&1")]).current_dir(dir).env("PATH", path);
    command.output().unwrap()
}

fn has_kprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/kprobe").exists()
}

/// How an example has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Runs,
    IsRefused,
}

/// What is wrong, if something is.
fn difference(output: &Output, fate: Fate, shown: Option<&str>) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let is_ended = match fate {
        Fate::Runs => output.status.success(),
        Fate::IsRefused => output.status.code() == Some(1),
    };
    let found: Vec<&str> = text.lines().collect();
    let is_as_shown = match shown {
        Some(shown) => is_shown(&shown.lines().collect::<Vec<_>>(), &found),
        // A script that shows nothing must have lost nothing.
        None => found.last() == Some(&"complete"),
    };
    let shown = shown.unwrap_or("...\ncomplete\n");
    (!is_ended || !is_as_shown).then(|| format!("{}\nshown:\n{shown}found:\n{text}", output.status))
}

/// The commands of a block, and what is shown of each.
fn commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push((command.to_owned(), String::new()));
        } else {
            let (_, shown) = commands.last_mut().expect("a block of commands begins with `$ `");
            *shown += &format!("{line}\n");
        }
    }
    commands
}

/// What a script prints, without how many points it has: the page says it once.
fn run_example(dir: &Path, door: &str) -> Output {
    let mut output = printed(dir, &format!("nopal run {door}example.bt -- ./app"));
    // Ahead of it are at most warnings of the script itself.
    let lines = output.stdout.split_inclusive(|byte| *byte == b'\n');
    output.stdout = lines.filter(|line| !line.starts_with(b"Attaching ")).flatten().copied().collect();
    output
}

#[test]
fn every_example_runs_and_prints_what_the_page_shows() {
    let dir = scratch("language_examples");
    run(Command::new("g++")
        .args(["-O2", "-g", "-I"])
        .arg(root().join("include"))
        .arg("-o")
        .arg(dir.join("app"))
        .arg(root().join("tests/fixtures/scripts/app.cc")));
    let blocks = blocks();
    let (mut n_examples, mut n_by_user, mut n_shown) = (0, 0, 0);
    let mut failures = Vec::new();
    let mut check = |block: &Block, what: &str, output: &Output, fate, shown: Option<&str>| {
        if let Some(difference) = difference(output, fate, shown) {
            failures.push(format!("docs/language.md:{}: {what}: {difference}", block.line));
        }
    };
    let mut blocks_left = blocks.iter().peekable();
    while let Some(block) = blocks_left.next() {
        let shown = blocks_left.next_if(|next| next.tag == "text").map(|next| next.text.as_str());
        n_shown += usize::from(shown.is_some());
        n_examples += 1;
        let fate = match block.tag.as_str() {
            "bpftrace" => Fate::Runs,
            "bpftrace,kprobes" if has_kprobes() => Fate::Runs,
            "bpftrace,error" | "bpftrace,kprobes" => Fate::IsRefused,
            "console" => {
                assert!(shown.is_none(), "line {}: commands show what they print themselves", block.line);
                for (command, shown) in commands(&block.text) {
                    check(block, &command, &printed(&dir, &command), Fate::Runs, Some(&shown));
                }
                continue;
            }
            other => panic!("docs/language.md:{}: no example is marked `{other}`", block.line),
        };
        assert!(fate == Fate::Runs || shown.is_some(), "line {}: the refusal is not shown", block.line);
        fs::write(dir.join("example.bt"), &block.text).unwrap();
        // Where the kernel can do what the page shows that it cannot, it must do it.
        let shown = shown.filter(|_| block.tag != "bpftrace,kprobes" || fate == Fate::IsRefused);
        let by_kernel = run_example(&dir, "--door kernel ");
        check(block, "kernel door", &by_kernel, fate, shown);
        if block.tag == "bpftrace" {
            let by_user = run_example(&dir, "--door user ");
            let is_for_kernel = String::from_utf8_lossy(&by_user.stdout)
                .contains("nopal: the user door cannot run this script");
            // A function that no jump fits is left to the kernel door, unless that is ruled out.
            let is_for_both = String::from_utf8_lossy(&by_user.stdout).contains("can have a jump put on it");
            if is_for_both {
                check(block, "both doors", &run_example(&dir, ""), fate, shown);
            } else if !is_for_kernel {
                n_by_user += 1;
                check(block, "user door", &by_user, fate, shown);
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert_eq!(n_examples + n_shown, blocks.len());
    assert!(n_examples >= 17 && n_by_user >= 5, "{n_examples} examples, {n_by_user} through the user door");
}
