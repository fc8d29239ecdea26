//! On programs built with our macros, other tools see the same probes as `nopal list`, stop at them, read the right
//! values, and raise and lower the semaphores.

use nopal_tests::fixture;
use nopal_tests::process::{Running, wait_until};
use nopal_tests::tools::{self, Site};
use nopal_tests::{nopal, root, run, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The C and C++ builds of `tests/fixtures/c-probes/values.c`.
type Build = (&'static str, &'static [&'static str]);
const BUILDS: [Build; 4] = [
    ("c-gcc", &["gcc", "-std=gnu11", "-O2"]),
    ("c-clang", &["clang", "-std=gnu99", "-O1"]),
    ("cxx-gcc", &["g++", "-x", "c++", "-std=gnu++17", "-O0"]),
    ("cxx-clang", &["clang++", "-x", "c++", "-std=gnu++20", "-O2"]),
];

fn values((label, compiler): Build, folder: &Path) -> PathBuf {
    let source = root().join("tests/fixtures/c-probes/values.c");
    tools::compile(compiler, &["-g", "-fPIE", "-pie"], &[source], folder.join(label))
}

/// Asks every tool about the file and compares.
fn check_agreement(file: &Path, folder: &Path) {
    let notes = tools::readelf(file);
    let mut sites: Vec<Site> = notes.iter().map(|note| note.site.clone()).collect();
    sites.sort();
    assert!(!sites.is_empty(), "{}", file.display());
    let names: BTreeSet<String> = sites.iter().map(|site| site.probe.clone()).collect();
    let count = |args: &str| args.split_whitespace().count();

    let mut ours = tools::nopal_list(nopal(), file);
    ours.sort();
    let mut theirs: Vec<(Site, String)> =
        notes.iter().map(|note| (note.site.clone(), note.args.clone())).collect();
    theirs.sort();
    assert_eq!(ours, theirs, "nopal and readelf");

    let mut gdb = tools::gdb_sites(file);
    gdb.sort();
    assert_eq!(gdb, sites, "gdb");

    let mut tplist = tools::tplist(file);
    tplist.sort();
    assert_eq!(tplist.iter().map(|(site, _)| site.clone()).collect::<Vec<_>>(), sites, "tplist");
    for (site, n_args) in tplist {
        let (_, args) = theirs.iter().find(|(other, _)| *other == site).expect("the sites are equal");
        // bcc cannot read the f of a float and gives up on that argument.
        if !args.contains("f@") {
            assert_eq!(n_args, count(args), "tplist: arguments of {}: {args}", site.probe);
        }
    }

    assert_eq!(tools::bpftrace_list(file), names, "bpftrace");
    assert_eq!(tools::perf_list(file, &folder.join("perf")), names, "perf");

    let stap = tools::stap_list(file, &folder.join("kernel"));
    assert_eq!(stap.keys().cloned().collect::<BTreeSet<_>>(), names, "stap");
    for (site, args) in &theirs {
        assert_eq!(stap[&site.probe], count(args), "stap: arguments of {}", site.probe);
    }
}

#[test]
fn all_tools_list_the_same_probes_of_c_and_cxx_programs() {
    let folder = scratch("tools_agree_c");
    for build in BUILDS {
        let file = values(build, &folder);
        check_agreement(&file, &folder.join(format!("{}-tools", build.0)));
        let names: BTreeSet<String> = tools::readelf(&file).into_iter().map(|note| note.site.probe).collect();
        assert_eq!(names.len(), 13, "{names:?}");
    }
}

#[test]
fn all_tools_list_the_same_probes_of_a_rust_program() {
    let folder = scratch("tools_agree_rust");
    let out =
        fixture::Build { fixture: "rust-probes", label: "default", profile: "release", rustflags: "" }.run();
    check_agreement(&out.join("app"), &folder.join("app-tools"));
}

/// Probe, number of its arguments, then expressions over them for gdb and what they must be. values:floats is not
/// here, since gdb 13 reads no argument of a probe that has one with an f.
type InGdb = (&'static str, usize, &'static [(&'static str, &'static str)]);
const IN_GDB: &[InGdb] = &[
    (
        "values:narrow",
        4,
        &[
            ("$_probe_arg0", "-8"),
            ("$_probe_arg1", "200"),
            ("$_probe_arg2", "-1600"),
            ("$_probe_arg3", "60000"),
        ],
    ),
    (
        "values:wide",
        4,
        &[
            ("$_probe_arg0", "-2000000000"),
            ("$_probe_arg1", "4000000000"),
            ("$_probe_arg2", "-9223372036854775803"),
            ("$_probe_arg3", "18364758544493064720"),
        ],
    ),
    ("values:twelve", 12, &[("$_probe_arg0", "1"), ("$_probe_arg6", "7"), ("$_probe_arg11", "12")]),
    ("values:nothing", 0, &[]),
    ("values:leaf", 1, &[("$_probe_arg0", "8")]),
    (
        "named:guarded",
        9,
        &[
            ("$_probe_arg0", "1"),
            ("(char *) $_probe_arg1", "\"/a/path\""),
            ("$_probe_arg3", "7"),
            ("$_probe_arg6 == 0x3fd0000000000000", "1"),
            ("(unsigned short) $_probe_arg7", "48879"),
        ],
    ),
    ("named:lazy", 1, &[("$_probe_arg0", "1")]),
];

#[test]
fn gdb_stops_at_probes_reads_their_arguments_and_goes_on() {
    let folder = scratch("tools_agree_gdb");
    for build in [BUILDS[0], BUILDS[3]] {
        let file = values(build, &folder);
        let notes = tools::readelf(&file);
        for (probe, n_args, expressions) in IN_GDB {
            // gdb calls the low byte of r8 r8l and does not understand the compilers' r8b.
            let is_readable = notes.iter().filter(|note| note.site.probe == *probe).all(|note| {
                !["8b", "9b", "0b", "1b", "2b", "3b", "4b", "5b"].iter().any(|end| {
                    note.args.split_whitespace().any(|arg| arg.contains("%r") && arg.ends_with(end))
                })
            });
            let expressions = if is_readable { *expressions } else { &[] };
            let mut gdb = Command::new("gdb");
            gdb.args(["-nx", "-batch", "-ex", "set print address off", "-ex", "set language c"]);
            gdb.args(["-ex", &format!("break -probe-stap {probe}"), "-ex", "run"]);
            gdb.args(["-ex", "output $_probe_argc", "-ex", "echo \\n"]);
            for (expression, _) in expressions {
                gdb.args(["-ex", &format!("output {expression}"), "-ex", "echo \\n"]);
            }
            // Three rounds, so two more stops; then the program's own check decides how it ends.
            gdb.args(["-ex", "continue", "-ex", "continue", "-ex", "continue", "--args"]).arg(&file).arg("3");
            let text = run(&mut gdb);
            let what = format!("{} {probe}\n{text}", build.0);
            assert_eq!(text.matches("\nBreakpoint 1, ").count(), 3, "{what}");
            assert!(text.contains("exited normally"), "{what}");
            let mut lines = text.lines();
            assert!(!is_readable || lines.any(|line| line == n_args.to_string()), "{what}");
            for (expression, value) in expressions {
                assert_eq!(lines.next(), Some(*value), "{expression} of {what}");
            }
        }
    }
}

/// Probe, what a bpftrace script does there, the line that must come of it.
const IN_BPFTRACE: &[(&str, &str, &str)] = &[
    (
        "values:narrow",
        r#"printf("narrow %ld %ld %ld %ld\n", arg0, arg1, arg2, arg3)"#,
        "narrow -8 200 -1600 60000",
    ),
    (
        "values:wide",
        r#"printf("wide %ld %ld %ld %lu\n", arg0, arg1, arg2, arg3)"#,
        "wide -2000000000 4000000000 -9223372036854775803 18364758544493064720",
    ),
    (
        "values:scalars",
        r#"printf("scalars %ld %ld %ld %ld %ld\n", arg0, arg1, arg2, arg3, arg4)"#,
        "scalars 1 120 1 -1 77",
    ),
    (
        "values:constants",
        r#"printf("constants %ld %ld %ld %lx\n", arg0, arg1, arg2, arg3)"#,
        "constants 5 -7 250 123456789abcdef",
    ),
    (
        "values:pointers",
        r#"printf("pointers %ld %s, %s\n", *(uint64 *) arg0, str(arg1), str(arg2))"#,
        "pointers 1 some text, a literal",
    ),
    ("values:twelve", r#"printf("twelve %ld %ld\n", arg0, arg5)"#, "twelve 1 6"),
    ("values:twice", r#"printf("twice %ld\n", arg0)"#, "twice 2"),
    ("values:leaf", r#"printf("leaf %ld\n", arg0)"#, "leaf 8"),
    ("named:plain", r#"printf("plain %ld %ld\n", arg0, arg1)"#, "plain 1 1"),
    (
        "named:guarded",
        r#"printf("guarded %ld %s %s %s\n", arg0, str(arg1), str(arg2, arg3), str(arg4, arg5))"#,
        "guarded 1 /a/path bytes!! bytes!!",
    ),
    // bpftrace raises the semaphore a moment before it listens.
    ("named:lazy", r#"printf("lazy %ld\n", arg0 > 0)"#, "lazy 1"),
];

#[test]
fn bpftrace_reads_the_right_values_and_moves_the_semaphores() {
    let folder = scratch("tools_agree_bpftrace");
    for build in BUILDS {
        let file = values(build, &folder);
        let semaphores: BTreeSet<u64> = tools::readelf(&file)
            .iter()
            .map(|note| note.site.semaphore)
            .filter(|&address| address != 0)
            .collect();
        assert_eq!(semaphores.len(), 2, "{}", build.0);
        let mut program = Running::start(Command::new(&file).arg("0").stdout(Stdio::piped()));
        let pid = program.pid();
        // The child is waited for until exec, which the kernel reports before it has mapped the program.
        wait_until("the program is mapped", 10, || {
            fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(build.0))
        });
        let levels = || semaphores.iter().map(|&s| tools::semaphore_value(pid, &file, s)).collect::<Vec<_>>();
        assert_eq!(levels(), [0, 0]);
        assert_eq!(tools::tplist_process(pid, &file), tools::bpftrace_list(&file));

        let script: String = IN_BPFTRACE
            .iter()
            .map(|(probe, action, _)| format!("usdt:{}:{probe} {{ {action}; }}\n", file.display()))
            .collect();
        let heard = folder.join(format!("{}.out", build.0));
        let mut bpftrace = Running::start(
            Command::new("bpftrace")
                .args(["-p", &pid.to_string(), "-e", &script])
                .stdout(fs::File::create(&heard).expect("the file can be made"))
                .stderr(fs::File::create(heard.with_extension("err")).expect("the file can be made")),
        );
        let missing = || {
            let text = fs::read_to_string(&heard).expect("bpftrace writes text");
            let lines: BTreeSet<&str> = text.lines().collect();
            IN_BPFTRACE
                .iter()
                .map(|(_, _, line)| *line)
                .filter(|line| !lines.contains(line))
                .collect::<Vec<_>>()
        };
        wait_until(&format!("{}: all lines in {}", build.0, heard.display()), 60, || missing().is_empty());
        assert_eq!(levels(), [1, 1], "while bpftrace listens");
        interrupt(bpftrace.pid(), libc::SIGINT);
        bpftrace.0.wait().expect("bpftrace can be waited for");
        assert_eq!(levels(), [0, 0], "after bpftrace left");

        interrupt(pid, libc::SIGTERM);
        assert!(program.0.wait().expect("the program can be waited for").success(), "its own check");
    }
}

fn interrupt(pid: u32, signal: libc::c_int) {
    // SAFETY: kill(2) touches no memory of ours; the pid is that of a child which is not yet waited for.
    let done = unsafe { libc::kill(pid as libc::pid_t, signal) };
    assert_eq!(done, 0, "the process lives");
}
