//! The same scripts under bpftrace and under `nopal run` through the kernel door: what they print must be the same.
//! `docs/language.md` says why where it is not.

use nopal_tests::{nopal, root, run, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};

#[derive(Debug, Default)]
struct Case {
    name: String,
    script: String,
    /// `Some` if both must refuse it, with a word of our message.
    refused: Option<String>,
    /// What only nopal is asked for.
    ours: Option<Vec<String>>,
    /// Only nopal is asked, and refuses it with this word.
    ours_refuses: Option<String>,
    prefix: Option<usize>,
    parameters: Vec<String>,
    is_alone: bool,
    is_unsafe: bool,
    /// bpftrace need not take it.
    is_maybe: bool,
}

fn cases() -> Vec<Case> {
    let text = fs::read_to_string(root().join("tests/fixtures/scripts/differential.txt")).unwrap();
    let mut cases: Vec<Case> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("== ") {
            let (name, flags) = title.split_once(" | ").unwrap_or((title, ""));
            let mut case = Case { name: name.to_owned(), ..Case::default() };
            let (words, ours) = match flags.split_once("ours=") {
                Some((words, ours)) => (words, Some(ours)),
                None => (flags, None),
            };
            case.ours = ours.map(|text| text.split(',').map(str::to_owned).collect());
            for flag in words.split_inclusive(' ') {
                match flag.trim().split_once('=').unwrap_or((flag.trim(), "")) {
                    ("fails", _) => {
                        // The word may have blanks.
                        let word = words.split_once("fails=").unwrap().1;
                        case.refused = Some(word.trim().to_owned());
                        break;
                    }
                    ("ours-refuses", word) => case.ours_refuses = Some(word.to_owned()),
                    ("prefix", n) => case.prefix = Some(n.parse().unwrap()),
                    ("params", list) => case.parameters = list.split(',').map(str::to_owned).collect(),
                    ("alone", _) => case.is_alone = true,
                    ("unsafe", _) => case.is_unsafe = true,
                    ("maybe", _) => case.is_maybe = true,
                    ("", _) => {}
                    (other, _) => panic!("{name}: no flag {other}"),
                }
            }
            cases.push(case);
        } else if let Some(case) = cases.last_mut() {
            case.script.push_str(line);
            case.script.push('\n');
        }
    }
    cases
}

/// The lines that matter: bpftrace puts blank ones around maps and says how many probes it attaches.
fn lines(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let is_wanted = |line: &&str| !line.trim().is_empty() && !line.starts_with("Attaching ");
    text.lines().filter(is_wanted).map(|line| line.trim_end().to_owned()).collect()
}

/// A folder with a copy of the program: a uprobe on a file sees every process that runs it.
fn place(dir: &Path) -> PathBuf {
    fs::create_dir_all(dir).unwrap();
    let from = dir.parent().unwrap().parent().unwrap();
    run(Command::new("cp").args([from.join("target"), from.join("fixed")]).arg(dir));
    dir.to_owned()
}

fn command(program: &Path, dir: &Path, case: &Case, options: &[&str]) -> Output {
    fs::write(dir.join("script.bt"), &case.script).unwrap();
    let mut command = Command::new("timeout");
    command.arg("180").arg(program).args(options).current_dir(dir);
    if case.is_unsafe {
        command.arg("--unsafe");
    }
    if !case.is_alone {
        // The one that the script names.
        command.args(["-c", if case.script.contains("./fixed") { "./fixed" } else { "./target" }]);
    }
    command.arg("script.bt").args(&case.parameters);
    // bpftrace may leave the command behind that it was to start when it refuses a script; a pipe would wait for it. All of
    // them are in the group that timeout(1) makes.
    let (out, errors) = (dir.join("stdout"), dir.join("stderr"));
    command.stdout(fs::File::create(&out).unwrap()).stderr(fs::File::create(&errors).unwrap());
    let mut child = command.stdin(Stdio::null()).spawn().unwrap();
    let status = child.wait().unwrap();
    let group = format!("-{}", child.id());
    Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status().unwrap();
    Output { status, stdout: fs::read(out).unwrap(), stderr: fs::read(errors).unwrap() }
}

/// `None` if all is well.
fn difference(case: &Case, theirs_dir: &Path, ours_dir: &Path) -> Option<String> {
    let ours = command(nopal(), ours_dir, case, &["run", "--door", "kernel"]);
    let said = String::from_utf8_lossy(&ours.stderr).into_owned();
    let our_lines = lines(&ours);
    if let Some(word) = &case.ours_refuses {
        let is_refused = !ours.status.success() && said.contains(word.as_str());
        return (!is_refused).then(|| format!("nopal must refuse it with `{word}`: {our_lines:?} {said}"));
    }
    if let Some(expected) = &case.ours {
        let is_same = ours.status.success() && sorted(&our_lines) == sorted(expected);
        return (!is_same).then(|| format!("expected {expected:?}, nopal {our_lines:?} {said}"));
    }
    let theirs = command(Path::new("bpftrace"), theirs_dir, case, &[]);
    let their_lines = lines(&theirs);
    let both = || format!("bpftrace {their_lines:?}, nopal {our_lines:?} {said}");
    if let Some(word) = &case.refused {
        let is_same = !ours.status.success() && !theirs.status.success() && said.contains(word.as_str());
        return (!is_same).then(|| format!("both must refuse it with `{word}`: {}", both()));
    }
    if case.is_maybe && !theirs.status.success() {
        return (!ours.status.success()).then(both);
    }
    let length = case.prefix.unwrap_or(usize::MAX);
    let (theirs_cut, ours_cut) = (sorted(first(&their_lines, length)), sorted(first(&our_lines, length)));
    let is_same = ours.status.success() && theirs.status.success();
    let is_same = is_same && theirs_cut == ours_cut && said.contains("complete");
    (!is_same).then(both)
}

fn first(lines: &[String], length: usize) -> &[String] {
    &lines[..lines.len().min(length)]
}

/// Entries of equal value have no order of their own, and maps come in another one.
fn sorted(lines: &[String]) -> Vec<&String> {
    let mut sorted: Vec<&String> = lines.iter().collect();
    sorted.sort();
    sorted
}

#[test]
fn bpftrace_and_nopal_print_the_same() {
    let cases = cases();
    assert!(cases.len() >= 150, "only {} scripts", cases.len());
    let dir = scratch("differential");
    let source = root().join("tests/fixtures/scripts/target.c");
    run(Command::new("gcc").args(["-O2", "-g", "-o"]).arg(dir.join("target")).arg(&source));
    // The same where it was linked to be.
    run(Command::new("gcc").args(["-O2", "-g", "-no-pie", "-o"]).arg(dir.join("fixed")).arg(&source));
    nopal();
    // A tracepoint sees every process, those of the other workers too.
    let system_wide = RwLock::new(());
    let next = AtomicUsize::new(0);
    let differences = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for worker in 0..3 {
            let (next, differences, cases, dir, system_wide) =
                (&next, &differences, &cases, &dir, &system_wide);
            scope.spawn(move || {
                let theirs = place(&dir.join(format!("{worker}/theirs")));
                let ours = place(&dir.join(format!("{worker}/ours")));
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let is_system_wide = case.script.starts_with("tracepoint");
                    let _alone = is_system_wide.then(|| system_wide.write().unwrap());
                    let _beside = (!is_system_wide).then(|| system_wide.read().unwrap());
                    // A machine under load may delay one of the two; a real difference is there again.
                    let once = difference(case, &theirs, &ours);
                    if let Some(what) = once.and_then(|_| difference(case, &theirs, &ours)) {
                        differences.lock().unwrap().push(format!("== {}\n{}{what}", case.name, case.script));
                    }
                }
            });
        }
    });
    let differences = differences.into_inner().unwrap();
    assert!(
        differences.is_empty(),
        "{} of {} differ:\n{}",
        differences.len(),
        cases.len(),
        differences.join("\n")
    );
}

/// Scripts wait for this line. bpftrace prints it before it begins and among the results, nopal when all is open and beside them.
#[test]
fn the_points_are_counted_in_the_words_of_bpftrace() {
    for script in [
        "BEGIN { exit(); }",
        "BEGIN { exit(); } END { @n = 1; }",
        "interval:ms:10, interval:ms:20 { exit(); } BEGIN { @n = 2; }",
    ] {
        let first =
            |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().next().unwrap_or_default().to_owned();
        let theirs = Command::new("bpftrace").args(["-e", script]).output().unwrap();
        let ours = Command::new(nopal()).args(["run", "-e", script]).output().unwrap();
        assert_eq!(first(&ours.stderr), first(&theirs.stdout), "{script}");
        assert!(first(&ours.stderr).starts_with("Attaching "), "{script}");
        assert_eq!(lines(&ours), lines(&theirs), "{script}");
        let json = Command::new(nopal()).args(["run", "--json", "-e", script]).output().unwrap();
        assert_eq!(first(&json.stderr), "", "{script}");
    }
}
