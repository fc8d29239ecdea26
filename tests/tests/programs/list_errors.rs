//! `nopal list` where something is wrong or odd: one clear sentence and the next step, the right exit status, never a
//! panic, a hang or half an answer.

use nopal_tests::{nopal, root, run, scratch};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const POSTGRES: &str = "/usr/lib/postgresql/15/bin/postgres";

struct Answer {
    status: Option<i32>,
    out: String,
    err: String,
}

fn list(args: &[&str]) -> Answer {
    let output =
        Command::new(nopal()).arg("list").args(args).stdin(Stdio::null()).output().expect("nopal runs");
    Answer {
        status: output.status.code(),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Compiles C with our own probe header.
fn compile(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let file = folder.join(format!("{name}.c"));
    fs::write(&file, source).expect("the source can be written");
    let program = folder.join(name);
    run(Command::new("gcc")
        .arg(format!("-I{}", root().join("include").display()))
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(&file)
        .args(flags));
    program
}

const PROGRAM: &str = "#include <sys/sdt.h>
int main(int n, char **v) { DTRACE_PROBE2(demo, start, n, v); return 0; }";

#[test]
fn failures_say_what_is_wrong_and_what_to_do() {
    let folder = scratch("list_errors");
    let fifo = folder.join("fifo");
    run(Command::new("mkfifo").arg(&fifo));
    let script = folder.join("script.sh");
    fs::write(&script, "#!/bin/sh\n").expect("a script can be written");
    let empty = folder.join("empty");
    fs::create_dir(&empty).expect("a folder can be made");
    let bad = folder.join("bad.d");
    fs::write(&bad, "provider demo { prob x(); };").expect("a file can be written");
    run(Command::new("gcc").args(["-x", "c", "-c", "/dev/null", "-o"]).arg(folder.join("unit.o")));
    let cut = folder.join("cut");
    fs::write(&cut, &fs::read(POSTGRES).expect("postgres can be read")[..100_000])
        .expect("it can be written");
    let huge = folder.join("huge");
    fs::write(&huge, b"\x7fELF\x02\x01\x01").expect("it can be written");
    // A terabyte that takes no room on the disk.
    fs::File::options().write(true).open(&huge).and_then(|f| f.set_len(1 << 40)).expect("a sparse file");

    for (args, status, message, hint) in [
        (&[][..], 2, "no file and no process", "nopal list -u"),
        (&["/no/such/file"], 1, "/no/such/file: no such file", "check the path"),
        (&["nosuchprogram"], 1, "nosuchprogram: no such file, and no program on the PATH", "-u"),
        (&[text(&script)], 1, "script.sh: not an ELF file", "a script has none"),
        (&[text(&fifo)], 1, "fifo is not a regular file", "name a program"),
        (&["/dev/zero"], 1, "/dev/zero is not a regular file", "name a program"),
        (&["/proc/self/maps"], 1, "/proc/self/maps: not an ELF file", "programs and shared libraries"),
        (&[text(&empty)], 1, "empty holds no program and no library", "/usr/lib"),
        (&[text(&folder.join("unit.o"))], 1, "unit.o: an object file", "linked into"),
        (&[text(&cut)], 1, "cut: a damaged or truncated ELF file", "copy or build it again"),
        (&[text(&huge)], 1, "huge: an ELF file of type 0", "name the program"),
        (&["/bin/true"], 1, "/bin/true has no probes", "--enable-dtrace"),
        (&["/bin/true", "/bin/false"], 1, "none of the 2 ELF files read has probes", "--enable-dtrace"),
        (
            &[POSTGRES, "qurey__start"],
            1,
            "no probe matches `qurey__start`",
            "did you mean `postgresql:query__start`?",
        ),
        (&[POSTGRES, "postgres:*"], 1, "no probe matches `postgres:*`", "did you mean `postgresql:*`?"),
        (&[POSTGRES, "something:else"], 1, "no probe matches `something:else`", "without the pattern"),
        (&["-p", "4194304"], 1, "no process has the pid 4194304", "it may have ended"),
        (&["-p", "x"], 2, "invalid value 'x'", "--help"),
        (
            &["-p", "1", "/bin/true"],
            2,
            "/bin/true is a file, and a process was named",
            "either files, or -p PID",
        ),
        (&["--provider", text(&bad), POSTGRES], 1, "bad.d cannot be used", "mend the file"),
        (&["--provider", "/no/such.d", POSTGRES], 1, "/no/such.d: no such file", "check the path"),
    ] {
        let answer = list(args);
        assert_eq!(answer.status, Some(status), "{args:?}: {}{}", answer.out, answer.err);
        assert!(answer.err.contains(message), "{args:?}: {}", answer.err);
        assert!(answer.err.contains(hint), "{args:?}: {}", answer.err);
        assert!(!answer.err.contains("panicked"), "{args:?}: {}", answer.err);
    }
}

#[test]
fn json_failures_are_json() {
    let answer = list(&["--json", POSTGRES, "qurey__start"]);
    assert_eq!((answer.status, answer.out.as_str()), (Some(1), "[]\n"));
    let error: serde_json::Value = serde_json::from_str(&answer.err).expect("the error is JSON");
    assert_eq!(error["error"]["code"], "no-such-probe");
    assert_eq!(error["error"]["message"], "no probe matches `qurey__start`");
    assert_eq!(error["error"]["hint"], "did you mean `postgresql:query__start`?");
}

#[test]
fn one_bad_file_does_not_hide_the_others() {
    let answer = list(&["/bin/true", POSTGRES, "/etc/passwd"]);
    assert_eq!(answer.status, Some(1));
    assert!(answer.out.contains("57 probes, 71 sites"), "{}", answer.out);
    assert!(answer.err.contains("/etc/passwd: not an ELF file"), "{}", answer.err);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let command = format!("{} list {POSTGRES} | head -n 1; echo ${{PIPESTATUS[0]}}", nopal().display());
    let output = Command::new("bash").args(["-c", &command]).output().expect("bash runs");
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out, format!("{POSTGRES}: 57 probes, 71 sites\n0\n"));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_pipe_gets_no_colours() {
    assert!(!list(&["-v", POSTGRES]).out.contains('\x1b'));
}

#[test]
fn patterns_and_words() {
    let n_lines = |args: &[&str]| {
        let answer = list(args);
        assert_eq!(answer.status, Some(0), "{args:?}: {}", answer.err);
        answer.out.lines().filter(|line| line.starts_with("  postgresql:")).count()
    };
    for (patterns, want) in [
        (&[][..], 57),
        (&["postgresql"], 57),
        (&["postgresql:query__start"], 1),
        (&["postgresql:query-start"], 1),
        (&["query__start"], 1),
        (&["usdt:*:postgresql:query__start"], 1),
        (&["query__*"], 10),
        (&["query"], 10),
        (&["query__start", "query__done"], 2),
        (&["*:sort__[sd]*"], 2),
    ] {
        assert_eq!(n_lines(&[&[POSTGRES], patterns].concat()), want, "{patterns:?}");
    }
}

#[test]
fn names_from_a_file_of_declarations() {
    let folder = scratch("list_provider");
    let program = compile(&folder, "demo", PROGRAM, &[]);
    let declarations = folder.join("demo.d");
    fs::write(
        &declarations,
        "provider demo {\n  /** The program starts.\n   *  @param n how many words */\n  probe start(int n, char **words);\n};",
    )
    .expect("a file can be written");
    let plain = list(&[text(&program)]).out;
    assert!(plain.contains("  demo:start      1  -          int32, uint64\n"), "{plain}");
    let named = list(&["-v", "--provider", text(&declarations), text(&program)]).out;
    assert!(named.contains("  demo:start      1  -          int n, char **words\n"), "{named}");
    assert!(named.contains("      The program starts.\n      n: how many words\n      site 0x"), "{named}");
}

#[test]
fn a_folder_is_read_once_and_to_the_bottom() {
    let folder = scratch("list_folder");
    let deep = folder.join("a/b/c");
    fs::create_dir_all(&deep).expect("folders can be made");
    let program = compile(&deep, "demo", PROGRAM, &["-g"]);
    fs::hard_link(&program, folder.join("hard link")).expect("a hard link");
    symlink(&program, folder.join("soft link")).expect("a link");
    symlink(&folder, deep.join("loop")).expect("a link");
    run(Command::new("mkfifo").arg(folder.join("fifo")));
    run(Command::new("gcc").args(["-x", "c", "-c", "/dev/null", "-o"]).arg(folder.join("unit.o")));
    // The notes are in the debug file, too; it is the same program.
    let debug = folder.join("demo.debug");
    run(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(&debug));
    assert!(run(Command::new("readelf").arg("-n").arg(&debug)).contains("stapsdt"));

    let answer = list(&[text(&folder)]);
    assert_eq!((answer.status, answer.err.as_str()), (Some(0), ""));
    assert_eq!(answer.out.matches("1 probe, 1 site").count(), 1, "{}", answer.out);

    let alone = list(&[text(&debug)]);
    assert!(alone.err.contains("is a separate debug file"), "{}", alone.err);
    let only = scratch("list_folder_debug");
    fs::rename(&debug, only.join("demo.debug")).expect("it can be moved");
    let answer = list(&[text(&only)]);
    assert!(answer.err.contains("only 1 separate debug files"), "{}", answer.err);
}

/// An inline function with a probe, as headers older than the `?` of assemblers write it: each object file has the
/// function and its note, the linker keeps one function and all notes.
const SHARED_FUNCTION: &str = r#"
    __attribute__((noinline)) inline void shared() {
      __asm__ volatile("990: nop\n.pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 8, 994f-993f, 3\n"
        ".asciz \"stapsdt\"\n993: .8byte 990b, 0, 0\n.asciz \"demo\"\n.asciz \"shared\"\n.asciz \"\"\n994: .balign 4\n"
        ".popsection");
    }"#;

#[test]
fn notes_of_discarded_code_are_counted() {
    let folder = scratch("list_ghosts");
    fs::write(
        folder.join("one.cc"),
        format!("{SHARED_FUNCTION}\nvoid other(); int main() {{ shared(); other(); }}"),
    )
    .expect("the source can be written");
    fs::write(folder.join("two.cc"), format!("{SHARED_FUNCTION}\nvoid other() {{ shared(); }}"))
        .expect("the source can be written");
    // lld and mold leave a note without an address; the default linker leads it to the function that was kept, and
    // only if it is told not to mind.
    for (linker, flag, want) in [
        ("lld", "", "1 probe, 1 site, 1 note of discarded code left out\n"),
        ("mold", "", "1 probe, 1 site, 1 note of discarded code left out\n"),
        ("bfd", "-Wl,--noinhibit-exec", "1 probe, 1 site, 1 duplicate note left out, build ID"),
    ] {
        let program = folder.join(linker);
        run(Command::new("g++")
            .args(["-O2", &format!("-fuse-ld={linker}"), "one.cc", "two.cc", "-o", linker])
            .args((!flag.is_empty()).then_some(flag))
            .current_dir(&folder));
        let notes = run(Command::new("readelf").arg("-n").arg(&program));
        assert_eq!(notes.matches("Provider: demo").count(), 2, "{linker}: {notes}");
        let verbose = if linker == "bfd" { &["-v"][..] } else { &[] };
        let answer = list(&[verbose, &[text(&program)]].concat());
        assert_eq!(answer.status, Some(0), "{linker}: {}", answer.err);
        let heading = format!("{}: {want}", program.display());
        assert!(answer.out.starts_with(&heading), "{linker}: {notes}{}", answer.out);
    }
}

#[test]
fn a_hostile_name_does_not_steer_the_terminal() {
    let folder = scratch("list_hostile");
    let source = r#"__asm__(".pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 8, 2f-1f, 3\n.asciz \"stapsdt\"\n"
        "1: .8byte main, 0, 0\n.asciz \"de\\033[2Jmo\"\n.asciz \"na\\rme\"\n.asciz \"4@\\007\"\n2: .balign 4\n.popsection\n");
        int main(void) { return 0; }"#;
    let program = compile(&folder, "hostile", source, &["-no-pie"]);
    let answer = list(&["-v", text(&program)]);
    assert_eq!(answer.status, Some(0), "{}", answer.err);
    assert!(answer.out.contains(r"de\u{1b}[2Jmo:na\rme"), "{}", answer.out);
    let is_steering = |c: char| c.is_control() && c != '\n';
    assert!(!answer.out.contains(is_steering), "{:?}", answer.out);
}

#[test]
fn a_library_of_another_machine() {
    let folder = scratch("list_arm64");
    let source = "#include <sys/sdt.h>
        void fire(long *p, int n, double d) { DTRACE_PROBE4(demo, start, n, p[3], 7, d); }";
    fs::write(folder.join("arm64.c"), source).expect("the source can be written");
    run(Command::new("aarch64-linux-gnu-gcc")
        .arg(format!("-I{}", root().join("include").display()))
        .args(["-O2", "-shared", "-fPIC", "-nostdlib", "-o", "arm64.so", "arm64.c"])
        .current_dir(&folder));
    let answer = list(&[text(&folder.join("arm64.so"))]);
    assert_eq!(answer.status, Some(0), "{}", answer.err);
    assert!(
        answer.out.ends_with("  demo:start      1  -          int32, int64, int32, float64\n"),
        "{}",
        answer.out
    );
}

#[test]
fn help_shows_examples() {
    let help = list(&["--help"]).out;
    for part in ["Examples:", "nopal list -u", "--provider", "PATTERN", "Exit status"] {
        assert!(help.contains(part), "{help}");
    }
}

/// The build id is the one that readelf reads from the file.
#[test]
fn the_long_version_names_the_build() {
    let notes = run(Command::new("readelf").arg("-n").arg(nopal()));
    let build_id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
    let said = run(Command::new(nopal()).args(["--version", "-v"]));
    let short = run(Command::new(nopal()).arg("--version"));
    assert!(said.starts_with(&short), "{said}");
    assert!(said.lines().any(|line| line == format!("build id  {build_id}")), "{said}");
    assert!(said.contains("\nfeatures  screen\n") && said.contains("\nlinked    dynamic\n"), "{said}");
    let json: serde_json::Value =
        serde_json::from_str(&run(Command::new(nopal()).args(["--version", "-v", "--json"]))).unwrap();
    assert_eq!(json["build_id"], build_id.as_str());
}
