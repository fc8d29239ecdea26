//! The book in `docs/`: the commands of a page, typed into one shell one after the other, print what the page says, numbers
//! and times aside. A line `...` of a page stands for any lines.

use nopal_tests::postgres::Postgres;
use nopal_tests::{nopal, root, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

/// A command of a page, and the lines that it prints.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    prints: Vec<String>,
}

/// The steps in the `console` blocks of a page.
fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_console = false;
    let mut goes_on = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if !is_console {
            continue;
        } else if let Some(command) = line.strip_prefix("$ ") {
            goes_on = command.ends_with('\\');
            steps.push(Step { command: command.to_owned(), prints: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            if goes_on {
                goes_on = line.ends_with('\\');
                step.command += &format!("\n{line}");
            } else {
                step.prints.push(line.to_owned());
            }
        }
    }
    steps
}

/// A line without what differs from one time to the next: numbers with their units, bars, the width of columns.
fn mask(line: &str) -> String {
    let mut out = String::new();
    let mut chars = line.chars().filter(|c| !('\u{2580}'..='\u{259f}').contains(c)).peekable();
    let mut before = ' ';
    while let Some(c) = chars.next() {
        if c.is_ascii_digit() && !before.is_alphanumeric() && before != '_' {
            while chars.next_if(|&c| c.is_ascii_alphanumeric() || matches!(c, '.' | ',' | ':')).is_some() {}
            // Of a number below zero.
            if out.ends_with("=-") || out.ends_with(" -") {
                out.pop();
            }
            out.push('#');
            before = '#';
        } else {
            out.push(c);
            before = c;
        }
    }
    // The unit of a size changes with the number.
    let is_unit =
        |word: &&str| !matches!(*word, "B" | "KiB" | "MiB" | "GiB" | "B;" | "KiB;" | "MiB;" | "GiB;");
    out.split_whitespace().filter(is_unit).collect::<Vec<_>>().join(" ")
}

/// A line that ends in `...` may go on.
fn line_fits(expected: &str, printed: &str) -> bool {
    match expected.strip_suffix("...") {
        Some(start) => mask(printed).starts_with(&mask(start)),
        None => mask(expected) == mask(printed),
    }
}

fn fits(expected: &[String], printed: &[String]) -> bool {
    match (expected.split_first(), printed.split_first()) {
        (None, None) => true,
        (Some((first, rest)), _) if first.trim() == "..." => {
            (0..=printed.len()).any(|at| fits(rest, &printed[at..]))
        }
        (Some((first, rest)), Some((line, lines))) => line_fits(first, line) && fits(rest, lines),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// The programs that a page asks its reader to save.
const SAVED: [(&str, &str); 2] = [("```python\n", "app.py"), ("```ruby\n", "app.rb")];

/// Runs a page with these variables, in a folder of its own.
#[track_caller]
fn follow(name: &str, variables: &[(&str, &str)]) {
    let page = fs::read_to_string(root().join(format!("docs/{name}.md"))).unwrap();
    let steps = steps(&page);
    assert!(!steps.is_empty(), "docs/{name}.md has no `console` block");
    let folder = scratch(&format!("book-{name}"));
    fs::create_dir(folder.join("bin")).unwrap();
    symlink(nopal(), folder.join("bin/nopal")).unwrap();
    let here = folder.join("here");
    fs::create_dir(&here).unwrap();
    for (fence, file) in SAVED {
        let Some((_, rest)) = page.split_once(fence) else { continue };
        fs::write(here.join(file), rest.split("```").next().unwrap()).unwrap();
    }
    // What a page leaves running ends with it.
    let mut script = "trap 'kill $(jobs -p) 2>/dev/null' EXIT\nexec 2>&1\n".to_owned();
    for step in &steps {
        script += &format!("{}\nprintf '\\001'\n", step.command);
    }
    fs::write(folder.join("script"), script).unwrap();
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
    let output = Command::new("timeout")
        .args(["500", "bash"])
        .arg(folder.join("script"))
        .current_dir(&here)
        .env("PATH", path)
        .env("NOPAL_HOME", folder.join("home"))
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let printed: Vec<&str> = said.split('\u{1}').collect();
    assert_eq!(printed.len(), steps.len() + 1, "docs/{name}.md: {}\n{said}", output.status);
    for (step, printed) in steps.iter().zip(printed) {
        let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
        assert!(
            fits(&step.prints, &lines),
            "docs/{name}.md: $ {}\nprinted\n{printed}\nand the page says\n{}",
            step.command,
            step.prints.join("\n")
        );
    }
}

#[test]
fn steps_and_masks() {
    let page = "text\n```console\n$ a \\\n  b\nout 1\n$ c\n```\n```\n$ not this\n```\n";
    let step = |command: &str, prints: &[&str]| Step {
        command: command.to_owned(),
        prints: prints.iter().map(|&line| line.to_owned()).collect(),
    };
    assert_eq!(steps(page), [step("a \\\n  b", &["out 1"]), step("c", &[])]);
    assert_eq!(mask("  12.5ms   i32 user:77 ███▏ x_1 01:37:32.4"), "# i32 user:# x_1 #");
    assert_eq!(mask("size=-1 a-1"), "size=# a-#");
    assert_eq!(mask("1.1 MiB; complete"), mask("496.5 KiB; complete"));
    let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for (expected, printed, holds) in [
        ("a b", "a b", true),
        ("a 1", "a 2", true),
        ("a b", "a c", false),
        ("a ... b", "a x y b", true),
        ("a b...", "a bcd", true),
        ("a b...", "a cd", false),
        ("a ...", "a", true),
        ("... b", "a", false),
        ("a", "a b", false),
    ] {
        assert_eq!(fits(&lines(expected), &lines(printed)), holds, "{expected} {printed}");
    }
}

/// Every page is in the table of contents, and what that names is there.
#[test]
fn the_table_of_contents_is_whole() {
    let docs = root().join("docs");
    let summary = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let named: BTreeSet<String> =
        summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).map(str::to_owned).collect();
    let files = fs::read_dir(&docs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let pages: BTreeSet<String> =
        files.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
    assert_eq!(named, pages);
}

#[test]
fn tutorial() {
    follow("tutorial", &[]);
}

#[test]
fn troubleshooting() {
    follow("troubleshooting", &[]);
}

#[test]
fn python() {
    follow("python", &[]);
}

#[test]
fn ruby() {
    follow("ruby", &[]);
}

#[test]
fn postgresql() {
    let server = Postgres::start("book");
    let pid = server.pid().to_string();
    let folder = server.folder().to_str().unwrap();
    follow("postgresql", &[("SERVER", &pid), ("PGHOST", folder), ("PGUSER", "postgres")]);
}
