//! The book in `docs/`: the commands of a page, typed into one shell one after the other, print what the page says, numbers
//! and times aside. A line `...` of a page stands for any lines.

use super::redis_example;
use nopal_tests::containers::{Podman, install, ticker};
use nopal_tests::postgres::Postgres;
use nopal_tests::process::{Cgroup, free_port};
use nopal_tests::valkey::{self, Server};
use nopal_tests::{debian, nopal, root, run, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

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
const SAVED: [(&str, &str); 6] = [
    ("```python\n", "app.py"),
    ("```ruby\n", "app.rb"),
    ("```java\n", "Shop.java"),
    ("```bash\n", "shop.sh"),
    ("```rust\n", "src/main.rs"),
    ("```c\n", "shop.c"),
];

/// Those with their names beside the language, where there are several: "```c shop.h".
fn named_files(page: &str) -> Vec<(&str, &str)> {
    let fences = page.split("\n```").skip(1).step_by(2);
    fences
        .filter_map(|block| block.split_once('\n')?.0.split_once(' ').zip(block.split_once('\n')))
        .map(|((_, file), (_, text))| (file, text))
        .collect()
}

/// Runs a page with these variables, in a folder of its own. What is in the folder `TOOLS` is found before other programs.
#[track_caller]
fn follow(name: &str, variables: &[(&str, &str)]) {
    follow_in(&scratch(&format!("book-{name}")), name, variables);
}

#[track_caller]
fn follow_in(folder: &Path, name: &str, variables: &[(&str, &str)]) {
    let page = fs::read_to_string(root().join(format!("docs/{name}.md"))).unwrap();
    let steps = steps(&page);
    assert!(!steps.is_empty(), "docs/{name}.md has no `console` block");
    fs::create_dir(folder.join("bin")).unwrap();
    symlink(nopal(), folder.join("bin/nopal")).unwrap();
    let here = folder.join("here");
    fs::create_dir_all(here.join("src")).unwrap();
    for (fence, file) in SAVED {
        let Some((_, rest)) = page.split_once(fence) else { continue };
        fs::write(here.join(file), rest.split("```").next().unwrap()).unwrap();
    }
    for (file, text) in named_files(&page) {
        fs::write(here.join(file), text).unwrap();
    }
    // What a page leaves running ends with it.
    let mut script = "trap 'kill $(jobs -p) 2>/dev/null' EXIT\nexec 2>&1\n".to_owned();
    for step in &steps {
        script += &format!("{}\nprintf '\\001'\n", step.command);
    }
    fs::write(folder.join("script"), script).unwrap();
    let tools = variables.iter().find(|(name, _)| *name == "TOOLS").map_or("/usr/bin", |(_, folder)| folder);
    let path = format!("{}:{tools}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
    // For a page that needs a daemon: what is done before it, in a view of the file system of its own.
    let before = variables.iter().find(|(name, _)| *name == "BEFORE").map(|(_, commands)| *commands);
    let words: &[&str] =
        if before.is_some() { &["300", "unshare", "--mount", "bash"] } else { &["300", "bash"] };
    let mut outer = folder.join("script");
    if let Some(before) = before {
        outer = folder.join("outer");
        fs::write(&outer, format!("{before}\nbash {}\n", folder.join("script").display())).unwrap();
    }
    // Into a file: a pipe would not end before the last program that the page leaves running.
    let said = folder.join("said");
    let status = Command::new("timeout")
        .args(words)
        .arg(outer)
        .current_dir(&here)
        .env("PATH", path)
        .env("NOPAL_HOME", folder.join("home"))
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(fs::File::create(&said).unwrap())
        .status()
        .unwrap();
    let said = String::from_utf8_lossy(&fs::read(said).unwrap()).into_owned();
    let printed: Vec<&str> = said.split('\u{1}').collect();
    assert_eq!(printed.len(), steps.len() + 1, "docs/{name}.md: {status}\n{said}");
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
fn files_have_names() {
    let page = "x\n```c a.h\n#if 1\n```\n\n```console\n$ cc\n```\ny\n```c a.c\nint a;\nint b;\n```\n";
    assert_eq!(named_files(page), [("a.h", "#if 1"), ("a.c", "int a;\nint b;")]);
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

/// What pages lead to is there.
#[test]
fn links_lead_somewhere() {
    let docs = root().join("docs");
    for page in fs::read_dir(&docs).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(text) = fs::read_to_string(&page) else { continue };
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            let is_elsewhere = link.contains("://") || file.is_empty() || link.contains(char::is_whitespace);
            assert!(is_elsewhere || docs.join(file).exists(), "{}: {link}", page.display());
        }
    }
}

/// The words of a picture, in the order of the text that it is drawn from.
fn words_of(svg: &str) -> Vec<String> {
    let texts = svg.split("<text").skip(1).filter_map(|rest| rest.split_once('>')?.1.split('<').next());
    texts.map(str::to_owned).collect()
}

#[test]
fn pictures_are_drawn_from_their_texts() {
    let pictures = root().join("docs/pictures");
    let files = fs::read_dir(&pictures).unwrap().map(|entry| entry.unwrap().path());
    let texts: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "dot")).collect();
    assert!(texts.len() >= 3, "{texts:?}");
    for text in texts {
        let drawn = words_of(&run(Command::new("dot").arg("-Tsvg").arg(&text)));
        let kept = words_of(&fs::read_to_string(text.with_extension("svg")).unwrap());
        assert!(drawn.len() > 5 && drawn == kept, "{}: `dot -Tsvg` draws another picture", text.display());
    }
}

/// What a verb says of itself; `dtrace` does so as SystemTap's does, as a complaint.
fn help_of(words: &[&str]) -> String {
    let output = Command::new(nopal()).args(words).arg("--help").env_remove("COLUMNS").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success() || words == ["dtrace"], "{words:?}: {}", String::from_utf8_lossy(&text));
    String::from_utf8(text).unwrap().trim_end().to_owned()
}

/// The names in the list of commands of a help text.
fn verbs(help: &str) -> Vec<String> {
    let list = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    // A line that goes on is further to the right.
    let is_name =
        |name: &&str| list.contains(&format!("\n  {name} ")) || list.starts_with(&format!("  {name} "));
    names.filter(is_name).filter(|name| *name != "help").map(str::to_owned).collect()
}

/// `docs/reference.md` is what the command says of itself. With `NOPAL_UPDATE=1` the test writes it anew.
#[test]
fn the_reference_is_what_the_command_says() {
    let mut page = "# Reference\n\nWhat `nopal VERB --help` prints of each verb.\n".to_owned();
    let whole = help_of(&[]);
    let names = verbs(&whole);
    assert!(names.len() > 40, "{names:?}");
    page += &format!("\n```text\n{whole}\n```\n");
    for name in &names {
        let help = help_of(&[name]);
        page += &format!("\n## nopal {name}\n\n```text\n{help}\n```\n");
        for inner in verbs(&help) {
            page += &format!("\n### nopal {name} {inner}\n\n```text\n{}\n```\n", help_of(&[name, &inner]));
        }
    }
    let file = root().join("docs/reference.md");
    if std::env::var_os("NOPAL_UPDATE").is_some() {
        fs::write(&file, &page).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap();
    let differs = kept.lines().zip(page.lines()).find(|(kept, says)| kept != says);
    assert_eq!(differs, None, "NOPAL_UPDATE=1 writes the page anew");
    assert_eq!(kept.len(), page.len(), "NOPAL_UPDATE=1 writes the page anew");
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
fn recordings() {
    follow("recordings", &[]);
}

#[test]
fn spans() {
    follow("spans", &[]);
}

#[test]
fn flight() {
    let _quiet = nopal_tests::containers::none();
    let group = Cgroup::new("nopal-book");
    let name = format!("/{}", group.0.file_name().unwrap().to_str().unwrap());
    follow("flight", &[("FOLDER", group.0.to_str().unwrap()), ("GROUP", &name)]);
}

#[test]
fn functions() {
    follow("functions", &[("LIBRUBY", "/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1")]);
}

#[test]
fn testing() {
    follow("testing", &[("HEADERS", root().join("include").to_str().unwrap())]);
}

#[test]
fn serve() {
    follow("serve", &[("PORT", &free_port().to_string())]);
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

/// Removes a folder also when the test fails.
struct RemovedFolder<'a>(&'a Path);

impl Drop for RemovedFolder<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0);
    }
}

#[test]
fn jvm() {
    follow("jvm", &[]);
}

#[test]
fn rust() {
    // Not below nopal's own sources, where cargo would take it for a part of them.
    let folder = std::env::temp_dir().join(format!("nopal-book-rust-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let at_the_end = RemovedFolder(&folder);
    follow_in(&folder, "rust", &[("NOPAL", root().to_str().unwrap())]);
    drop(at_the_end);
}

#[test]
fn memcached() {
    let (config, port) = (debian::apt_config(), free_port().to_string());
    // So that apt knows of sources.
    debian::source("memcached");
    let headers = root().join("include");
    follow(
        "memcached",
        &[("APT_CONFIG", config.to_str().unwrap()), ("PORT", &port), ("HEADERS", headers.to_str().unwrap())],
    );
}

#[test]
fn redis() {
    let (server, port) = redis_example::start(&redis_example::server(), "book-redis-server", &[]);
    follow("redis", &[("SERVER", &server.pid().to_string()), ("PORT", &port.to_string())]);
}

#[test]
fn valkey() {
    let programs = match valkey::build() {
        Ok(programs) => programs,
        Err(reason) => return eprintln!("skipped: no source package of Valkey: {reason}"),
    };
    let server = Server::start(&programs, &scratch("book-valkey-server"), &[]);
    let (pid, port) = (server.pid().to_string(), server.port().to_string());
    follow("valkey", &[("SERVER", &pid), ("PORT", &port), ("TOOLS", programs.to_str().unwrap())]);
}

/// `podman` of the page is one with storage of its own, and with the limits that a machine within a machine allows.
#[test]
fn containers() {
    let folder = scratch("book-podman");
    let program = ticker(&folder, "ticker", &["-static"]);
    let mut podman = Podman::new(&folder);
    install(&program, &podman.rootfs());
    install(nopal(), &podman.rootfs());
    podman.start("shop", &[], &["/bin/ticker"]);
    let tools = folder.join("tools");
    fs::create_dir(&tools).unwrap();
    let words: Vec<String> =
        podman.command().get_args().map(|word| word.to_str().unwrap().to_owned()).collect();
    let script = format!(
        "#!/bin/sh\nverb=$1; shift\n[ $verb = run ] && set -- --ulimit nofile=1000:1000 --ulimit nproc=1000:1000 \"$@\"\n\
         exec /usr/bin/podman {} $verb \"$@\"\n",
        words.join(" ")
    );
    fs::write(tools.join("podman"), script).unwrap();
    fs::set_permissions(tools.join("podman"), fs::Permissions::from_mode(0o755)).unwrap();
    let (tools, image) = (tools.to_str().unwrap(), podman.rootfs());
    follow("containers", &[("TOOLS", tools), ("IMAGE", image.to_str().unwrap())]);
}

/// Root's daemon has fixed places, so that it gets a private view of those.
const LTTNG_DAEMON: &str = r#"
mount -t tmpfs none /run && mkdir -p /run/lttng && mount -t tmpfs none /dev/shm
export LTTNG_HOME="$PWD/lttng-home"
mkdir "$LTTNG_HOME"
lttng-sessiond --daemonize --pidfile "$PWD/daemon.pid"
trap 'kill $(cat daemon.pid)' EXIT
"#;

#[test]
fn lttng() {
    follow("lttng", &[("NOPAL", root().to_str().unwrap()), ("BEFORE", LTTNG_DAEMON)]);
}
