//! The command line of `dtrace`: its options and their odd shapes, exit codes, files it writes and files it must not.

use nopal_tests::{lab, nopal, run, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

const D_FILE: &str =
    "provider app {\n\tprobe call__start(int id, char *name);\n\tprobe call__end(int id);\n};\n";

/// Runs `dtrace ARGS` (split at blanks) in `folder`, the way a build calls it: by that name.
fn dtrace(folder: &Path, args: &str) -> Output {
    Command::new(nopal())
        .arg0("/usr/local/bin/dtrace")
        .args(args.split_whitespace())
        .current_dir(folder)
        .env_remove("CC")
        .env_remove("CFLAGS")
        .env_remove("CPP")
        .output()
        .expect("nopal can be run")
}

fn files(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).expect("the folder can be read").flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect()
}

/// A folder with `app.d` and an object nobody may touch.
fn folder(name: &str) -> std::path::PathBuf {
    let folder = scratch(name);
    fs::write(folder.join("app.d"), D_FILE).expect("written");
    fs::write(folder.join("main.o"), "an object").expect("written");
    folder
}

#[test]
fn command_lines_that_work() {
    // Arguments, and the files they leave beside app.d and main.o.
    let table = [
        ("-h -s app.d", "app.h"),
        ("-G -s app.d", "app.o"),
        ("-h -s app.d -o x.h", "x.h"),
        ("-h -sapp.d -ox.h", "x.h"),
        ("-G -o x.o -s app.d main.o missing.o", "x.o"),
        ("-C -G -s app.d main.o missing.o -o x.o", "x.o"),
        ("-o x.h -h -C -I. -I include -DA -D B=1 -s app.d", "x.h"),
        ("-h -C -s ./app.d", "app.h"),
        ("-h -s ../dtrace-works/app.d", "app.h"),
        ("-xnolibs -h -s app.d -o x.h", "x.h"),
        ("-x nolibs -h -s app.d -o x.h", "x.h"),
        ("-64 -32 -fpic -fPIC -G -s app.d", "app.o"),
        ("--types --no-pyparsing -h -s app.d", "app.h"),
        ("-DSTAP_SDT_V2 -o x.o -G -s app.d", "x.o"),
        ("-h -G -s app.d", "app.h app.o"),
        ("-h -s app.d -o /dev/null", ""),
        ("--rust -s app.d", "app.rs"),
        ("--tapset -s app.d", "app.stp"),
        ("--wrap TRACE_ -s app.d", "trace.h"),
    ];
    for (args, expected) in table {
        let folder = folder("dtrace-works");
        let output = dtrace(&folder, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args}: {said}");
        assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{args}: {said}");
        let mut left = files(&folder);
        assert!(left.remove("app.d") && left.remove("main.o"));
        assert_eq!(left.into_iter().collect::<Vec<_>>().join(" "), expected, "{args}");
        assert_eq!(fs::read_to_string(folder.join("main.o")).unwrap(), "an object");
    }
}

#[test]
fn command_lines_that_fail_leave_nothing() {
    let table = [
        ("", "Usage: dtrace"),
        ("--help", "-k               keep intermediate files"),
        ("-s app.d", "dtrace: neither -h nor -G"),
        ("-h", "dtrace: no -s FILE.d"),
        ("-h -s", "dtrace: -s needs a value"),
        ("-h -s app.d -o", "dtrace: -o needs a value"),
        ("-h -s missing.d", "dtrace: cannot read missing.d: No such file"),
        ("-C -h -s missing.d -o x.h", "dtrace: cannot read missing.d: No such file"),
        ("-h -s . -o x.h", "dtrace: cannot read .:"),
        ("-h -s app.d -o missing/x.h", "dtrace: cannot write missing/x.h: No such file"),
        ("-h -s app.d -o .", "dtrace: cannot write .:"),
        ("-h -s app.d -s app.d", "dtrace: more than one -s"),
        ("-h -G -s app.d -o x", "dtrace: -o names one file"),
        ("-l", "dtrace: unknown option -l"),
        ("-n syscall:::", "dtrace: unknown option -n"),
        ("-hs app.d", "dtrace: unknown option -hs"),
        ("--frob -h -s app.d", "dtrace: unknown option --frob"),
        ("--wrap 9a -s app.d", "dtrace: `9a_` cannot be part of a macro's name"),
        ("-h -s bad.d", "bad.d:1:25: error: expected `)` behind the arguments of probe `x`"),
        ("-G -s bad.d", "bad.d:1:25: error: expected `)`"),
        ("-C -G -s bad.d", "bad.d:1:25: error: expected `)`"),
        ("-C -h -s include.d", "nowhere.h"),
    ];
    for (args, expected) in table {
        let folder = folder("dtrace-fails");
        fs::write(folder.join("bad.d"), "provider p { probe x(int").expect("written");
        fs::write(folder.join("include.d"), "#include \"nowhere.h\"\nprovider p { probe x(); };")
            .expect("written");
        let output = dtrace(&folder, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args}: {said}");
        assert!(said.contains(expected), "{args}: {said}");
        let left = files(&folder);
        assert_eq!(
            left,
            BTreeSet::from(["app.d", "bad.d", "include.d", "main.o"].map(str::to_owned)),
            "{args}"
        );
    }
}

#[test]
fn nopal_dtrace_is_the_same_program() {
    let folder = folder("dtrace-verb");
    run(Command::new(nopal()).args(["dtrace", "-h", "-s", "app.d", "-o", "verb.h"]).current_dir(&folder));
    assert!(dtrace(&folder, "-h -s app.d -o name.h").status.success());
    assert_eq!(fs::read(folder.join("verb.h")).unwrap(), fs::read(folder.join("name.h")).unwrap());
    let usage = Command::new(nopal()).arg("dtrace").output().expect("nopal can be run");
    assert_eq!(usage.status.code(), Some(1));
}

#[test]
fn a_missing_preprocessor_is_named() {
    let folder = folder("dtrace-cpp");
    let run = |cpp: &str| {
        let args = ["dtrace", "-C", "-DT=int", "-h", "-s", "app.d", "-o", "x.h"];
        Command::new(nopal())
            .args(args)
            .current_dir(&folder)
            .env("CPP", cpp)
            .output()
            .expect("nopal can be run")
    };
    let output = run("/nowhere/cpp -P");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("cannot run the preprocessor `/nowhere/cpp`"), "{said}");
    assert!(said.contains("install cpp"), "{said}");
    fs::write(folder.join("app.d"), "provider p { /** Doc. */ probe x(T a); };").expect("written");
    for cpp in ["cpp", "gcc -E", "'gcc' -E -P"] {
        let output = run(cpp);
        assert!(output.status.success(), "{cpp}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(fs::read_to_string(folder.join("x.h")).unwrap().contains("P_X ( int a )"), "{cpp}");
    }
}

#[test]
fn intermediate_files_are_kept_on_request() {
    let folder = folder("dtrace-keep");
    let output = dtrace(&folder, "-k -C -G -s app.d -o app.o");
    let said = String::from_utf8_lossy(&output.stdout);
    let mut kept = Vec::new();
    for (line, what) in said.lines().zip(["cpp: ", "header: ", "source: "]) {
        let name = line.strip_prefix(what).unwrap_or_else(|| panic!("{said}"));
        assert!(name.starts_with(".dtrace-temp.") && folder.join(name).exists(), "{said}");
        kept.push(name.to_owned());
    }
    // The kept source says in C what the object says in ELF.
    run(Command::new("gcc")
        .args(["-Wall", "-Werror", "-c", &kept[2], "-o", "source.o"])
        .current_dir(&folder));
    let symbols = |object: &str| run(Command::new("nm").arg(object).current_dir(&folder));
    assert_eq!(symbols("source.o"), symbols("app.o"));
}

#[test]
fn parallel_runs_write_whole_and_equal_files() {
    let folder = folder("dtrace-parallel");
    let commands: Vec<_> = (0..16)
        .map(|i| {
            let mode = if i % 2 == 0 { ["-h", "same.h"] } else { ["-G", "same.o"] };
            let args = ["dtrace", mode[0], "-s", "app.d", "-o", mode[1]];
            Command::new(nopal()).args(args).current_dir(&folder).spawn().expect("nopal can be run")
        })
        .collect();
    for mut command in commands {
        assert!(command.wait().expect("it ends").success());
    }
    assert_eq!(files(&folder), BTreeSet::from(["app.d", "main.o", "same.h", "same.o"].map(str::to_owned)));
    // From another folder, under another name, at another time: the same bytes.
    let elsewhere = scratch("dtrace-parallel-elsewhere");
    fs::write(elsewhere.join("other.d"), D_FILE).expect("written");
    assert!(dtrace(&elsewhere, "-G -s other.d").status.success());
    assert_eq!(fs::read(folder.join("same.o")).unwrap(), fs::read(elsewhere.join("other.o")).unwrap());
}

#[test]
fn warnings_do_not_fail() {
    let folder = folder("dtrace-warns");
    fs::write(folder.join("app.d"), "provider p {\n probe x(int a)\n probe y();\n};").expect("written");
    let output = dtrace(&folder, "-h -s app.d");
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("app.d:2:16: warning: `;` is missing behind probe `x`"), "{said}");
    assert!(fs::read_to_string(folder.join("app.h")).unwrap().contains("#define P_Y()"));
}

#[test]
fn a_link_as_output_stays_a_link() {
    let folder = folder("dtrace-link");
    fs::write(folder.join("real.h"), "old").expect("written");
    std::os::unix::fs::symlink("real.h", folder.join("x.h")).expect("linked");
    assert!(dtrace(&folder, "-h -s app.d -o x.h").status.success());
    assert!(folder.join("x.h").is_symlink());
    assert!(fs::read_to_string(folder.join("real.h")).unwrap().contains("APP_CALL_START"));
}

/// A file of 10 MB in one line, and one nested a hundred thousand deep, are refused in little memory.
#[test]
fn hostile_files_are_refused_within_bounds() {
    let folder = folder("dtrace-hostile");
    let table = [
        ("line.d", format!("provider p {{ probe a(int {}", "x".repeat(10 << 20))),
        ("deep.d", format!("typedef {}", "struct { ".repeat(100_000))),
        ("errors.d", format!("provider p {{ {} }};", "probe ?; ".repeat(100_000))),
        ("binary.d", String::from_utf8_lossy(&[0xff, 0, 0x7f, 0xfe].repeat(100_000)).into_owned()),
    ];
    for (name, text) in table {
        fs::write(folder.join(name), text).expect("written");
        let script = format!("ulimit -v 400000; exec {} dtrace -h -s {name} -o x.h", nopal().display());
        let output = Command::new("sh").args(["-c", &script]).current_dir(&folder).output().expect("sh runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {}", &said[..said.len().min(400)]);
        assert!(said.contains("error: ") && said.len() < 50_000, "{name}: {} bytes", said.len());
        assert!(!folder.join("x.h").exists(), "{name}");
    }
}

#[test]
fn the_path_decides_who_dtrace_is() {
    let folder = folder("dtrace-path");
    let path = lab::path_with_dtrace(&folder.join("tools"), nopal());
    run(Command::new("sh").args(["-e", "-c", "dtrace -h -s app.d"]).current_dir(&folder).env("PATH", path));
    assert!(fs::read_to_string(folder.join("app.h")).unwrap().contains("nopal"));
}
