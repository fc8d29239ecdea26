//! Probes of the `nopal` crate as other tools see and trace them: gdb, bpftrace, perf, tplist, stap.

use nopal_tests::fixture::Build;
use nopal_tests::process::{Running, wait_until};
use nopal_tests::{nopal, run, scratch, tools};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn app(profile: &str) -> PathBuf {
    Build { fixture: "rust-probes", label: "default", profile, rustflags: "" }.run().join("app")
}

/// The app, firing its probes until the test is over; it has fired each of them once.
fn running(app: &Path) -> Running {
    let mut running = Running::start(Command::new(app).arg("forever").stdout(Stdio::piped()));
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    running
}

#[test]
fn every_tool_lists_the_same_sites() {
    let app = app("release");
    let folder = scratch("rust-tools");
    let notes = tools::readelf(&app);
    let sites: BTreeSet<_> = notes.iter().map(|n| n.site.clone()).collect();
    let probes: BTreeSet<_> = sites.iter().map(|s| s.probe.clone()).collect();
    assert_eq!(probes.len(), 14, "{probes:?}");

    assert_eq!(tools::gdb_sites(&app).into_iter().collect::<BTreeSet<_>>(), sites, "gdb");
    assert_eq!(tools::bpftrace_list(&app), probes, "bpftrace");
    assert_eq!(tools::perf_list(&app, &folder.join("perf")), probes, "perf");

    let listed = tools::tplist(&app);
    assert_eq!(listed.iter().map(|(site, _)| site.clone()).collect::<BTreeSet<_>>(), sites, "tplist");
    for (site, n_args) in &listed {
        let note = notes.iter().find(|n| n.site == *site).unwrap();
        assert_eq!(*n_args, note.args.split_whitespace().count(), "tplist reads every argument of {note:?}");
    }

    let stap = tools::stap_list(&app, &folder.join("stap"));
    assert_eq!(stap.keys().cloned().collect::<BTreeSet<_>>(), probes, "stap");
    for (probe, expected) in
        [("types:twelve", 12), ("types:text", 5), ("types:none", 0), ("shop:order__start", 3)]
    {
        assert_eq!(stap[probe], expected, "arguments of {probe} for stap");
    }

    let ours: BTreeSet<_> = tools::nopal_list(nopal(), &app).into_iter().collect();
    let theirs: BTreeSet<_> = notes.into_iter().map(|n| (n.site, n.args)).collect();
    assert_eq!(ours, theirs, "nopal list");
}

/// bpftrace 0.17 reads the first six operands; gdb is asked for the others. Probe, format and arguments for bpftrace, and the line that must come out.
const VALUES: [(&str, &str, &str, &str); 9] = [
    ("types:signed", "%d %d %d %d %d", "arg0, arg1, arg2, arg3, arg4", "-8 -16 -32 -64 -65"),
    (
        "types:unsigned",
        "%lu %lu %lu %lu %lu",
        "arg0, arg1, arg2, arg3, arg4",
        "248 65526 4294967264 18446744073709551614 18446744073709551615",
    ),
    (
        "types:text",
        "%s %d %r %s",
        "str(arg0, arg1), arg1, buf(arg2, arg3), str(arg4)",
        "str of 12 b. 12 by\\x00tes cstr",
    ),
    (
        "types:others",
        "%d %d %lx %lx %lx %lx",
        "arg0, arg1, arg2, arg3, arg4, arg5",
        "1 0 1f335 3fc00000 c002000000000000 1234",
    ),
    ("types:twelve", "%d %d %d %d %d %d", "arg0, arg1, arg2, arg3, arg4, arg5", "-1 2 -3 4 -5 6"),
    ("types:none", "%s", "\"none\"", "none"),
    ("types:four", "%s %s %s", "str(arg0, arg1), str(arg2, arg3), str(arg4, arg5)", "a b c"),
    ("types:seven", "%d %s %d %s", "arg0, str(arg1, arg2), arg3, str(arg4, arg5)", "1 a -2 b"),
    ("shop:order__end", "%d", "arg1 == 0 || arg1 == -1", "1"),
];

#[test]
fn bpftrace_prints_right_values_in_debug_and_release() {
    for profile in ["dev", "release"] {
        let app = app(profile);
        let process = running(&app);
        // bpftrace attaches from the last to the first: when this one counts, every other is there.
        let mut script =
            format!("usdt:{}:shop:heartbeat {{ @n += 1; if (@n > 20) {{ exit(); }} }}\n", app.display());
        for (probe, format, args, _) in VALUES {
            script +=
                &format!("usdt:{}:{probe} {{ printf(\"{probe} {format}\\n\", {args}); }}\n", app.display());
        }
        let output = run(Command::new("bpftrace")
            .args(["-p", &process.pid().to_string(), "-e", &script])
            .env("BPFTRACE_STRLEN", "32"));
        for (probe, _, _, expected) in VALUES {
            let values: BTreeSet<&str> =
                output.lines().filter_map(|l| l.strip_prefix(probe)?.strip_prefix(' ')).collect();
            assert_eq!(values, BTreeSet::from([expected]), "{profile} {probe}\n{output}");
        }
    }
}

/// A bpftrace that is attached to `shop:order__start` of a process, until it is asked to end.
fn attach(app: &Path, pid: u32) -> Running {
    // bpftrace attaches from the last to the first: when the first, which has no semaphore, speaks, the other is there.
    let script = format!(
        "usdt:{0}:shop:heartbeat {{ printf(\"attached\\n\"); }} usdt:{0}:shop:order__start {{ @ = count(); }}",
        app.display()
    );
    let mut tracer = Running::start(
        Command::new("bpftrace")
            .args(["-B", "line", "-p", &pid.to_string(), "-e", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null()),
    );
    let mut lines = BufReader::new(tracer.0.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "attached"), "bpftrace ended early");
    // It must not write into a closed pipe.
    std::thread::spawn(move || lines.for_each(drop));
    tracer
}

fn interrupt(mut tracer: Running) {
    // SAFETY: a signal to a child that has not been waited for.
    unsafe { libc::kill(tracer.pid() as i32, libc::SIGINT) };
    tracer.0.wait().expect("bpftrace ends on SIGINT");
}

#[test]
fn a_tracer_raises_the_semaphore_and_lowers_it() {
    let app = app("release");
    let process = running(&app);
    let address = |probe: &str| {
        tools::readelf(&app).into_iter().find(|n| n.site.probe == probe).unwrap().site.semaphore
    };
    let (traced, other) = (address("shop:order__start"), address("shop:order__end"));
    let value = |address| tools::semaphore_value(process.pid(), &app, address);
    assert_eq!((value(traced), value(other)), (0, 0));

    let tracer = attach(&app, process.pid());
    assert!(value(traced) > 0, "a tracer raises the semaphore");
    assert_eq!(value(other), 0, "another probe's semaphore stays");
    interrupt(tracer);
    wait_until("the semaphore is back at 0", 30, || value(traced) == 0);
}

#[test]
fn gdb_stops_at_probes_and_goes_on() {
    for profile in ["dev", "release"] {
        let output = run(Command::new("gdb")
            .args(["-nx", "-batch", "-ex", "set debuginfod enabled off"])
            .args(["-ex", "break -probe-stap types:signed", "-ex", "break -probe-stap types:seven"])
            .args(["-ex", "break -probe-stap shop:order__start", "-ex", "run"])
            // A breakpoint at a guarded probe raises its semaphore, so this one fires.
            .args([
                "-ex",
                "print $_probe_argc",
                "-ex",
                "print $_probe_arg0",
                "-ex",
                "delete 3",
                "-ex",
                "continue",
            ])
            .args(["-ex", "print $_probe_arg0", "-ex", "print $_probe_arg1", "-ex", "print $_probe_arg2"])
            .args(["-ex", "print $_probe_arg3", "-ex", "continue"])
            .args([
                "-ex",
                "print $_probe_argc",
                "-ex",
                "print $_probe_arg3",
                "-ex",
                "print $_probe_arg7",
                "-ex",
                "print $_probe_arg11",
            ])
            .args(["-ex", "continue", "--args"])
            .arg(app(profile))
            .arg("traced"));
        let values: Vec<&str> =
            output.lines().filter_map(|l| l.strip_prefix('$')?.split_once(" = ")).map(|(_, v)| v).collect();
        assert_eq!(
            values,
            ["3", "1", "-8", "-16", "-32", "-64", "12", "-2", "3", "5"],
            "{profile}\n{output}"
        );
        assert!(output.contains("exited normally"), "{profile}\n{output}");
    }
}
