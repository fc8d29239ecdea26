//! Files, folders and recordings that somebody hostile made or changes meanwhile: nopal is not killed, does not wait, does
//! not write through what was planted, does not call complete what is cut, and shows names without obeying them.

use nopal_tests::process::{Running, wait_until};
use nopal_tests::{copy_program, nopal, root, run, scratch};
use nopal_trace::{EnvValue, EventType, Recording, RecordingInfo, Type, Verdict, VerdictFile};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const NOBODY: u32 = 65534;

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Compiles C with our own probe header.
fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, source).unwrap();
    let program = folder.join(name);
    let include = format!("-I{}", root().join("include").display());
    run(Command::new("gcc").args([&include, "-O2", "-o"]).arg(&program).arg(&file).args(flags));
    program
}

/// With so many sites that reading them takes a while.
const LIBRARY: &str = "#include <sys/sdt.h>
#define A(n) DTRACE_PROBE1(demo, fire, n);
#define B(n) A(n) A(n + 1) A(n + 2) A(n + 3) A(n + 4) A(n + 5) A(n + 6) A(n + 7) A(n + 8) A(n + 9)
#define C(n) B(n) B(n) B(n) B(n) B(n) B(n) B(n) B(n) B(n) B(n)
#define D(n) C(n) C(n) C(n) C(n) C(n) C(n) C(n) C(n) C(n) C(n)
void fire(int n) { D(n) D(n) D(n) }
static const char room[1 << 20] = { 1 };
const char *see(int n) { return room + n; }";

/// Maps a file as code, says so, and waits for the end of its input.
const MAPPER: &str = "#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int n, char **v) {
    int fd = open(v[1], O_RDONLY);
    if (mmap(0, 1 << 20, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) return 1;
    close(fd);
    puts(\"mapped\");
    fflush(stdout);
    char c;
    while (read(0, &c, 1) > 0) {}
    return 0;
}";

/// A process that has `file` mapped.
fn mapping(mapper: &mut Command, file: &Path) -> Running {
    let mut child =
        mapper.arg(file).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the mapper runs");
    let mut line = [0; 7];
    child.stdout.as_mut().unwrap().read_exact(&mut line).expect("it maps the file");
    Running(child)
}

/// Runs a command several times; gives the signals that ended it. It may find the file whole or cut.
fn signals(n_runs: usize, line: &[&str]) -> Vec<i32> {
    let once = |_| Command::new(nopal()).args(line).output().unwrap().status.signal();
    (0..n_runs).filter_map(once).collect()
}

#[test]
fn a_file_that_is_cut_while_it_is_read_ends_no_reader() {
    let folder = scratch("hostile-cut");
    let library = compile(&folder, "lib.so", LIBRARY, &["-shared", "-fPIC"]);
    let mapper = compile(&folder, "mapper", MAPPER, &[]);
    let process = mapping(&mut Command::new(mapper), &library);
    let pid = process.pid().to_string();
    let whole = fs::read(&library).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let file = fs::OpenOptions::new().write(true).open(&library).unwrap();
                file.set_len(100).unwrap();
                file.write_all_at(&whole, 0).unwrap();
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let of_file = signals(100, &["list", text(&library)]);
        let of_process = signals(100, &["list", "-p", &pid]);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!((of_file, of_process), (Vec::<i32>::new(), Vec::<i32>::new()));
    });
}

#[test]
fn a_packet_that_is_cut_while_it_is_read_ends_no_reader() {
    let folder = scratch("hostile-packet");
    let dir = folder.join("rec");
    let info = RecordingInfo { packet_bytes: 10 << 20, ..RecordingInfo::of_this_host() };
    let mut writer = Recording::create(&dir, info).unwrap();
    let ty = writer.add_event_type(EventType::new("big", "event").field("text", Type::String)).unwrap();
    let mut stream = writer.stream(0).unwrap();
    let long = [vec![b'x'; 1000], vec![0]].concat();
    for n in 0..10_000 {
        stream.append(ty, 1000 + n, &[], &long).unwrap();
    }
    stream.finish().unwrap();
    let path = dir.join("channel0_0");
    let whole = fs::read(&path).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len(4096).unwrap();
                file.write_all_at(&whole, 0).unwrap();
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let signals = signals(30, &["view", text(&dir), "--count"]);
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(signals, Vec::<i32>::new());
    });
}

/// A folder that everybody may enter, with the command in it.
fn open_folder(name: &str) -> (PathBuf, PathBuf) {
    let folder = std::env::temp_dir().join(format!("nopal-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.join("nopal");
    copy_program(nopal(), &program);
    (folder, program)
}

fn as_nobody(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    command
}

/// What a command says that must end by itself; a little, as nobody reads it meanwhile.
#[track_caller]
fn ends(what: &str, command: &mut Command) -> Output {
    let mut child = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    wait_until(&format!("the end of {what}"), 120, || child.0.try_wait().unwrap().is_some());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    child.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
    child.0.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
    Output { status: child.0.wait().unwrap(), stdout, stderr }
}

#[test]
fn a_fifo_in_place_of_a_mapped_file_stops_nobody() {
    let (folder, program) = open_folder("hostile-fifo");
    let library = compile(&folder, "lib.so", LIBRARY, &["-shared", "-fPIC"]);
    let mapper = compile(&folder, "mapper", MAPPER, &[]);
    chown(&folder, Some(NOBODY), Some(NOBODY)).unwrap();
    let process = mapping(&mut as_nobody(&mapper), &library);
    fs::remove_file(&library).unwrap();
    run(Command::new("mkfifo").args(["-m", "666"]).arg(&library));
    let pid = process.pid().to_string();
    // Root reads the file that was deleted; another user is told that he cannot.
    for mut command in [Command::new(&program), as_nobody(&program)] {
        let output = ends("list -p", command.args(["list", "-p", &pid]));
        let is_read = String::from_utf8_lossy(&output.stdout).contains("demo:fire");
        assert!(is_read || said(&output).contains("was deleted or replaced"), "{}", said(&output));
    }
    drop(process);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn nothing_is_written_through_planted_links() {
    let folder = scratch("hostile-links");
    let victim = folder.join("victim");
    fs::write(&victim, "kept").unwrap();
    let out = folder.join("out");
    fs::create_dir(&out).unwrap();
    let program = compile(&folder, "fire", FIRE, &[]);
    // The name that is tried out has the pid of the command in it; the shell becomes the command.
    let script = format!(
        "ln -s {} {out}/.nopal-$$; exec {} create s --output {out}",
        text(&victim),
        text(nopal()),
        out = text(&out)
    );
    let home = folder.join("home");
    run(Command::new("sh").args(["-c", &script]).env("NOPAL_HOME", &home));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");

    // What a recording is made of.
    let elsewhere = folder.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for name in ["index", "nopal"] {
        let dir = folder.join(format!("planted-{name}"));
        fs::create_dir(&dir).unwrap();
        symlink(&elsewhere, dir.join(name)).unwrap();
        let line = ["record", "-e", "hostile:*", "-o", text(&dir), "--", text(&program), "5"];
        let output = Command::new(nopal()).args(line).output().unwrap();
        assert!(!output.status.success(), "{}", said(&output));
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "{name}");
    }
    // A recording is its owner's.
    let dir = folder.join("rec");
    run(Command::new(nopal())
        .args(["record", "-e", "hostile:*", "-o"])
        .arg(&dir)
        .arg("--")
        .arg(&program)
        .arg("5"));
    let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().mode() & 0o777;
    assert_eq!(["", "index", "nopal"].map(mode), [0o700; 3]);
    assert_eq!(["metadata", "nopal/verdict"].map(mode), [0o600; 2]);
}

/// Fires as often as it is told, and can be told by its file's bytes what its probe is called.
const FIRE: &str = "#include <stdlib.h>
#include <sys/sdt.h>
int main(int n, char **v) {
    for (int i = 0; i < atoi(v[1]); i++) DTRACE_PROBE1(hostile, aaaaaaaaaaaa, i);
    return 0;
}";

#[test]
fn the_session_folder_of_another_user_is_not_used() {
    let folder = scratch("hostile-home");
    let home = folder.join("home");
    let victim = folder.join("victim");
    fs::write(&victim, "kept").unwrap();
    let at_home = |line: &[&str]| Command::new(nopal()).args(line).env("NOPAL_HOME", &home).output().unwrap();
    assert!(at_home(&["create", "s", "--output", text(&folder.join("out"))]).status.success());
    let session = home.join("sessions/s");
    for name in ["lock", "edit-lock", "recorder.log", "state.json"] {
        let _ = fs::remove_file(session.join(name));
        symlink(&victim, session.join(name)).unwrap();
    }
    run(Command::new("chown").args(["-R", "-h", "65534:65534"]).arg(&home));
    for line in [
        &["start", "s"][..],
        &["stop", "s"],
        &["status"],
        &["status", "s"],
        &["track", "-u", "--program", "x", "-s", "s"],
        &["enable-event", "-u", "a:b", "-s", "s"],
        &["set-session", "s"],
        &["save", "s"],
        &["destroy", "s"],
        &["create", "t"],
        &["view", "s"],
    ] {
        let output = at_home(line);
        assert!(!output.status.success(), "{line:?}");
        let is_told = said(&output).contains("belongs to another user");
        assert!(is_told || line[0] == "view", "{line:?}: {}", said(&output));
    }
    // Links in a folder of our own are not followed either.
    run(Command::new("chown").args(["-R", "-h", "0:0"]).arg(&home));
    for line in [&["start", "s"][..], &["stop", "s"], &["status", "s"], &["destroy", "s"]] {
        at_home(line);
    }
    assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
    assert!(session.join("lock").is_symlink() || !session.exists());
}

/// A recording of twenty packets with four events each, as its recorder would have finished it.
fn recording(dir: &Path) {
    let info = RecordingInfo::of_this_host().env("nopal_version", EnvValue::Text("1".to_owned()));
    let mut writer = Recording::create(dir, info).unwrap();
    let verdict = VerdictFile::create(writer.folder()).unwrap();
    let ty = writer.add_event_type(EventType::new("p", "n").field("a", Type::unsigned(64))).unwrap();
    for cpu in 0..2 {
        let mut stream = writer.stream(cpu).unwrap();
        for n in 0..40u64 {
            stream.append(ty, 1000 + n, &[], &n.to_le_bytes()).unwrap();
            if n % 4 == 3 {
                stream.flush(1000 + n).unwrap();
            }
        }
        stream.finish().unwrap();
    }
    verdict.write(&Verdict { n_events: Some(80), ..Verdict::default() }).unwrap();
}

fn view(dir: &Path, more: &[&str]) -> Output {
    ends("view", Command::new(nopal()).arg("view").arg(dir).args(more))
}

#[test]
fn what_is_missing_of_a_recording_is_told() {
    let folder = scratch("hostile-missing");
    type Harm = fn(&Path);
    let cut = |dir: &Path| {
        let path = dir.join("channel0_1");
        let n_bytes = fs::metadata(&path).unwrap().len();
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(n_bytes * 3 / 10).unwrap();
    };
    let cases: [(&str, Harm, u64, u64, &str); 6] = [
        ("whole", |_| {}, 80, 0, "80 events, complete"),
        ("cut", cut, 52, 28, "7 of its 10 packets are missing"),
        ("emptied", |dir| fs::write(dir.join("channel0_1"), "").unwrap(), 40, 40, "10 of its 10 packets"),
        ("removed", |dir| fs::remove_file(dir.join("channel0_1")).unwrap(), 40, 40, "10 packets of events"),
        (
            "no-index",
            |dir| {
                fs::remove_dir_all(dir.join("index")).unwrap();
                fs::remove_file(dir.join("channel0_0")).unwrap();
                fs::remove_file(dir.join("channel0_1")).unwrap();
            },
            0,
            80,
            "80 events that the recorder wrote are not in the files any more",
        ),
        (
            "no-verdict",
            |dir| fs::remove_dir_all(dir.join("nopal")).unwrap(),
            80,
            0,
            "whether the recording is complete is not known",
        ),
    ];
    for (name, harm, n_events, n_lost, told) in cases {
        let dir = folder.join(name);
        recording(&dir);
        harm(&dir);
        let output = view(&dir, &[]);
        assert!(said(&output).contains(told), "{name}: {}", said(&output));
        let n_lines = output.stdout.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(n_lines as u64, n_events, "{name}");
        for count in [false, true] {
            let output = view(&dir, if count { &["--json", "--count"] } else { &["--json"] });
            let answer = if count { &output.stdout } else { &output.stderr };
            let answer: serde_json::Value = serde_json::from_slice(answer).unwrap();
            assert_eq!(answer["complete"], name == "whole", "{name}: {answer}");
            assert_eq!(answer["lost"], n_lost, "{name}: {answer}");
        }
    }
}

#[test]
fn a_recording_knows_how_many_events_it_had() {
    let folder = scratch("hostile-record");
    let program = compile(&folder, "fire", FIRE, &[]);
    let dir = folder.join("rec");
    run(Command::new(nopal())
        .args(["record", "-e", "hostile:*", "-o"])
        .arg(&dir)
        .arg("--")
        .arg(&program)
        .arg("40000"));
    assert!(said(&view(&dir, &["--count"])).contains("40000 events, complete"));
    for entry in fs::read_dir(&dir).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("channel") {
            fs::write(entry.path(), "").unwrap();
        }
    }
    let told = said(&view(&dir, &[]));
    assert!(told.contains("0 events, not complete: 40000 events that the recorder wrote"), "{told}");
}

#[test]
fn a_verdict_that_is_no_file_is_not_waited_for_nor_read_without_end() {
    let folder = scratch("hostile-verdict");
    let plant = |name: &str, by: &dyn Fn(&Path)| {
        let dir = folder.join(name);
        recording(&dir);
        for file in ["verdict", "tasks"] {
            let path = dir.join("nopal").join(file);
            let _ = fs::remove_file(&path);
            by(&path);
        }
        let path = dir.join("index/channel0_0.idx");
        fs::remove_file(&path).unwrap();
        by(&path);
        dir
    };
    let fifo = |path: &Path| drop(run(Command::new("mkfifo").arg(path)));
    let zero = |path: &Path| symlink("/dev/zero", path).unwrap();
    let huge = |path: &Path| fs::File::create(path).and_then(|file| file.set_len(1 << 40)).unwrap();
    for dir in [plant("fifo", &fifo), plant("zero", &zero), plant("huge", &huge)] {
        let script = format!("ulimit -v 2000000; exec {} view {}", text(nopal()), text(&dir));
        let output = ends("view", Command::new("bash").args(["-c", &script]));
        let told = said(&output);
        assert!(told.contains("80 events, not complete") && told.contains("not known"), "{told}");
    }
    // Nor are metadata and streams.
    for file in ["metadata", "channel0_0"] {
        let dir = folder.join(file);
        recording(&dir);
        fs::remove_file(dir.join(file)).unwrap();
        fifo(&dir.join(file));
        assert!(!said(&view(&dir, &[])).contains("complete\n"));
    }
}

/// No byte that a terminal would obey; newlines end lines of ours only.
#[track_caller]
fn is_harmless(what: &str, bytes: &[u8], n_lines: usize) {
    let shown = String::from_utf8_lossy(bytes).into_owned();
    let active = shown.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(active, None, "{what}: {shown:?}");
    assert_eq!(shown.lines().count(), n_lines, "{what}: {shown}");
    assert!(shown.contains("\\u{1b}"), "{what}: {shown}");
}

/// Twelve bytes: ESC, BEL, newline, C1.
const NAME: &[u8] = b"a\x1b[2J\x07\n\xc2\x9bb!!";

#[test]
fn names_do_not_steer_the_terminal() {
    let folder = scratch("hostile-names");
    // As on a terminal: what is not one gets no escape sequences anyway.
    let command = || {
        let mut command = Command::new(nopal());
        command.env("CLICOLOR_FORCE", "1");
        command
    };
    let program = compile(&folder, "fire", FIRE, &[]);
    let mut bytes = fs::read(&program).unwrap();
    let at = bytes.windows(12).position(|window| window == b"aaaaaaaaaaaa").expect("the note has the name");
    bytes[at..at + 12].copy_from_slice(NAME);
    let evil = folder.join("evil");
    fs::write(folder.join("evil.new"), &bytes).unwrap();
    copy_program(&folder.join("evil.new"), &evil);
    run(Command::new("chmod").arg("755").arg(&evil));

    let output = command().args(["trace", "-v", "hostile:*", "--", text(&evil), "3"]).output().unwrap();
    is_harmless("trace", &output.stdout, 3);
    is_harmless("trace -v", &output.stderr, said(&output).lines().count());
    let dir = folder.join("rec");
    let line = ["record", "-v", "-e", "hostile:*", "-o", text(&dir), "--", text(&evil), "3"];
    let output = command().args(line).output().unwrap();
    is_harmless("record -v", &output.stderr, said(&output).lines().count());
    // Has colours of its own on a terminal.
    let output = Command::new(nopal()).args(["list", text(&evil)]).output().unwrap();
    is_harmless("list", &output.stdout, 3);

    // A recording that was not made by us; its host, too.
    let metadata = dir.join("metadata");
    let text_of = String::from_utf8(fs::read(&metadata).unwrap()).unwrap();
    let event = text_of.split("name = \"hostile:").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let evil_name = String::from_utf8(NAME.to_vec()).unwrap().replace('\n', "\\n");
    let host = text_of.split("hostname = \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let changed = text_of
        .replace(&event, &evil_name)
        .replace(&format!("hostname = \"{host}\""), "hostname = \"h\x1b[31m\u{9b}\"");
    fs::write(&metadata, changed).unwrap();
    is_harmless("view", &command().arg("view").arg(&dir).output().unwrap().stdout, 3);
    is_harmless("view --count", &command().arg("view").arg(&dir).arg("--count").output().unwrap().stdout, 2);
    let counted = command().args(["count", "hostile:*", "--recording"]).arg(&dir).output().unwrap();
    let shown = String::from_utf8_lossy(&counted.stdout).replace("\x1b[1m", "").replace("\x1b[0m", "");
    assert!(shown.contains("hostile:a"), "{shown}{}", said(&counted));
    assert_eq!(shown.chars().find(|c| c.is_control() && *c != '\n'), None, "{shown:?}");
    let output = command().arg("view").arg(&dir).arg("nothing:*").output().unwrap();
    is_harmless("view PATTERN", &output.stderr, 2);

    // Messages that name what the user named.
    let output = command().args(["list", "/no/such\x1b[2J"]).output().unwrap();
    is_harmless("a path", &output.stderr, 2);
    let bad = folder.join("bad.d");
    fs::write(&bad, "provider demo { prob \x1b[2J\u{9b} x(); };").unwrap();
    let output = command().args(["dtrace", "-h", "-s", text(&bad)]).output().unwrap();
    let shown = said(&output);
    assert!(!output.status.success() && shown.contains("prob "), "{shown}");
    assert_eq!(shown.chars().find(|c| c.is_control() && *c != '\n'), None, "{shown:?}");
}

#[test]
fn a_script_from_a_pipe_can_be_interrupted() {
    let mut command = Command::new(nopal());
    command.args(["run", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // What a shell starts in the background ignores SIGINT, and so would all that it starts.
    // SAFETY: signal(2) may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        });
    }
    let mut child = Running(command.spawn().unwrap());
    child.0.stdin.as_mut().unwrap().write_all(b"BEGIN {").unwrap();
    let pid = child.pid();
    // It waits in read(0, ...).
    wait_until("it reads", 60, || {
        fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|call| call.starts_with("0 0x0 "))
    });
    // SAFETY: a pid we started and have not reaped.
    unsafe { libc::kill(pid as i32, libc::SIGINT) };
    wait_until("it has ended", 60, || child.0.try_wait().unwrap().is_some());
}

#[test]
fn a_root_without_one_capability_is_told_which() {
    let process = Running::start(as_nobody(Path::new("sleep")).arg("600"));
    let pid = process.pid();
    wait_until("it runs sleep", 60, || {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
    });
    for (capability, told) in [("sys_ptrace", "CAP_SYS_PTRACE"), ("dac_override", "CAP_DAC_OVERRIDE")] {
        let without = format!("-{capability},-sys_admin,-bpf,-perfmon");
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", &without, "--inh-caps", &without]).arg(nopal());
        let line = ["trace", "--door", "user", "libc:*", "-p", &pid.to_string()];
        let output = ends("trace", command.args(line));
        assert!(said(&output).contains(told), "{capability}: {}", said(&output));
    }
}
