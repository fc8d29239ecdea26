//! The tools of Debian's bpftrace package, run as they are: on the kernel's own points for a moment, and on a program of ours
//! where they trace programs. That all of them parse, and that those without kprobes become programs, is tested with the
//! language.

use nopal_tests::nopal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn tools() -> Vec<PathBuf> {
    let entries = fs::read_dir("/usr/sbin").unwrap().map(|entry| entry.unwrap().path());
    let mut tools: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "bt")).collect();
    tools.sort();
    tools
}

/// Whether a line of the script begins with a point of one of these kinds.
fn has_point(script: &str, kinds: &[&str]) -> bool {
    let is_of = |line: &str| {
        kinds.iter().any(|kind| line.strip_prefix(kind).is_some_and(|rest| rest.starts_with(':')))
    };
    script.lines().any(|line| is_of(line.trim_start()))
}

fn run(tool: &Path, more: &[&str]) -> (Output, String) {
    let mut command = Command::new("timeout");
    let output = command.arg("180").arg(nopal()).arg("run").arg(tool).args(more).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, errors)
}

#[test]
fn tools_on_points_of_the_kernel_run() {
    let kallsyms = fs::read_to_string("/proc/kallsyms").unwrap();
    let (mut n_run, mut failures) = (0, Vec::new());
    for tool in tools() {
        let script = fs::read_to_string(&tool).unwrap();
        if has_point(&script, &["kprobe", "kretprobe", "kfunc", "kretfunc", "uprobe", "uretprobe"]) {
            continue;
        }
        n_run += 1;
        let (output, errors) = run(&tool, &["--duration", "1s"]);
        let name = tool.file_name().unwrap().to_string_lossy().into_owned();
        // What a kernel may not have is told of: its data, and a member that was renamed in 6.15.
        let missing = match name.as_str() {
            "loads.bt" if !kallsyms.contains(" avenrun\n") => {
                Some("Failed to resolve kernel symbol: avenrun")
            }
            "runqlen.bt" if errors.contains("nr_queued") => {
                Some("`struct cfs_rq` has no member `nr_running`")
            }
            _ => None,
        };
        let is_right = match missing {
            Some(refusal) => output.status.code() == Some(1) && errors.contains(refusal),
            // Every tool says what it does, or gathers something, within a second.
            None => output.status.success() && errors.ends_with("complete\n") && !output.stdout.is_empty(),
        };
        if !is_right {
            failures.push(format!("{name}: {}\n{errors}", output.status));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(n_run >= 14, "{n_run}; needs Debian's bpftrace package (apt install bpftrace)");
}

#[test]
fn tools_on_programs_run_on_the_program_that_is_started() {
    for (tool, command, found) in [
        ("gethostlatency.bt", &["getent", "hosts", "localhost"][..], "localhost"),
        ("bashreadline.bt", &["bash", "-c", "true"], "Tracing bash commands"),
    ] {
        let mut arguments = vec!["--"];
        arguments.extend(command);
        let (output, errors) = run(&Path::new("/usr/sbin").join(tool), &arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && errors.ends_with("complete\n"), "{tool}: {errors}");
        assert!(text.contains(found), "{tool}: {text}{errors}");
    }
}

#[test]
fn functions_that_debian_has_elsewhere_are_found_or_named() {
    // Since glibc 2.34 libpthread is empty, and libcrypto's symbols are stripped to those that it exports.
    let thread = "import threading; threading.Thread(target=print).start()";
    for (tool, command, found, warning) in [
        ("threadsnoop.bt", &["/usr/bin/python3.11", "-c", thread][..], "python3.11", None),
        ("ssllatency.bt", &["true"], "", Some("there is no function `rsa_ossl_public_encrypt` in libcrypto")),
        ("sslsnoop.bt", &["true"], "", Some("there is no function `rsa_ossl_public_encrypt` in libcrypto")),
    ] {
        let mut arguments = vec!["--"];
        arguments.extend(command);
        let (output, errors) = run(&Path::new("/usr/sbin").join(tool), &arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && errors.ends_with("complete\n"), "{tool}: {errors}");
        assert!(
            text.contains(found) && errors.contains(warning.unwrap_or_default()),
            "{tool}: {text}{errors}"
        );
        assert_eq!(errors.contains("warning"), warning.is_some(), "{tool}: {errors}");
    }
}
