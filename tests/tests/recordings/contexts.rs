//! `nopal record --context`: what stands in front of each event's own fields.

use super::sessions_place::{Counter, Place};
use nopal_tests::{lttng, nopal, root, run, scratch};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A C++ program whose callers only the unwind tables know, through libraries and its own code. It has ended when its
/// recording is read; what its functions are called, addr2line says.
#[test]
fn exceptions_are_recorded_with_their_callers() {
    let dir = scratch("contexts-throw");
    let (source, program, recording) = (dir.join("throws.cc"), dir.join("throws"), dir.join("rec"));
    let text = r#"
__attribute__((noinline)) int inner(int n) { char room[200]; asm volatile("" :: "r"(room) : "memory"); if (n > 0) throw n; return n + room[0]; }
__attribute__((noinline)) int middle(int n) { char room[100]; asm volatile("" :: "r"(room) : "memory"); return inner(n + 1) + room[1]; }
__attribute__((noinline)) int outer(int n) { return middle(n * 2) + 3; }
int main() { int sum = 0; for (int n = 0; n < 7; n++) try { sum += outer(n); } catch (int thrown) { sum += thrown; } return sum == 49 ? 0 : 1; }
"#;
    fs::write(&source, text).unwrap();
    // At a fixed address, so that addresses are those of the file.
    let flags =
        ["-O2", "-g", "-fomit-frame-pointer", "-fno-inline", "-fno-optimize-sibling-calls", "-fno-ipa-icf"];
    run(Command::new("g++").args(flags).args(["-no-pie", "-o"]).arg(&program).arg(&source));
    let mut record = Command::new(nopal());
    record.args(["record", "-e", "libstdcxx:throw", "--context", "ustack,procname", "--json", "-v", "-o"]);
    let output = record.arg(&recording).arg("--").arg(&program).output().unwrap();
    let (said, words) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}{words}"));
    assert_eq!((&said["events"], &said["lost"]), (&7.into(), &0.into()), "{said} {words}");
    let text = run(Command::new("babeltrace2").arg(&recording));
    assert_eq!(text.lines().count(), 7);
    for line in text.lines() {
        assert!(line.contains("vpid = ") && line.contains("procname = \"throws\""), "{line}");
        let stack = line.split_once("ustack = [ ").unwrap().1.split_once(" ]").unwrap().0;
        let address = |part: &str| u64::from_str_radix(part.split_once("0x").unwrap().1, 16).unwrap();
        let own = stack.split(", ").map(address).filter(|address| *address < 1 << 32);
        // A caller goes on behind its call.
        let own = own.map(|address| format!("{:#x}", address - 1));
        let names = run(Command::new("addr2line").args(["-f", "-C", "-e"]).arg(&program).args(own));
        let names: Vec<&str> = names.lines().step_by(2).take(4).collect();
        assert_eq!(names, ["inner(int)", "middle(int)", "outer(int)", "main"], "{line}");
    }
}

#[test]
fn a_context_that_there_is_not_is_told_what_there_is() {
    let output = Command::new(nopal())
        .args(["record", "-e", "a:b", "--context", "callers", "-o", "/nonexistent/x", "--", "true"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("there is no context `callers`"), "{said}");
    assert!(said.contains("ustack") && said.contains("procname"), "{said}");
}

/// A `char` is a number to babeltrace2; people see its character, too. LTTng's name for a recording is in its environment.
#[test]
fn characters_are_shown_and_recordings_have_a_name() {
    let dir = scratch("contexts-characters");
    let (source, program, provider) = (dir.join("letters.c"), dir.join("letters"), dir.join("letters.d"));
    let text = "#include <sys/sdt.h>\nint main(void) { for (const char *c = \"Go!\\n\"; *c; c++) DTRACE_PROBE2(letters, seen, *c, (int)*c); return 0; }\n";
    fs::write(&source, text).unwrap();
    fs::write(&provider, "provider letters { probe seen(char letter, int number); };\n").unwrap();
    run(Command::new("gcc").args(["-O2", "-o"]).arg(&program).arg(&source));
    let mut record = Command::new(nopal());
    record
        .args(["record", "-e", "letters:*", "--provider"])
        .arg(&provider)
        .arg("-o")
        .arg(dir.join("by-name"));
    run(record.arg("--").arg(&program));
    let view = |form: &[&str]| run(Command::new(nopal()).arg("view").arg(dir.join("by-name")).args(form));
    let short = view(&["--format", "short"]);
    let shown: Vec<&str> =
        short.lines().filter_map(|line| line.split_once("letter=")).map(|(_, rest)| rest).collect();
    assert_eq!(
        shown,
        ["71 'G' number=71", "111 'o' number=111", "33 '!' number=33", "10 number=10"],
        "{short}"
    );
    assert!(view(&["--json"]).contains("\"letter\":71,"));
    let theirs = run(Command::new("babeltrace2").arg(dir.join("by-name")));
    assert!(theirs.contains("letter = 71, number = 71"), "{theirs}");
    assert_eq!(view(&["--format", "babeltrace"]), theirs);
    let details = ["--component=sink.text.details", "--params=with-metadata=yes"];
    let metadata = run(Command::new("babeltrace2").args(details).arg(dir.join("by-name")));
    assert!(metadata.contains("trace_name: by-name"), "{metadata}");
}

const FACTS: [&str; 14] = [
    "vuid",
    "veuid",
    "vsuid",
    "vgid",
    "vegid",
    "vsgid",
    "cgroup_ns",
    "ipc_ns",
    "mnt_ns",
    "net_ns",
    "pid_ns",
    "time_ns",
    "user_ns",
    "uts_ns",
];

/// The contexts of the first event: `vuid = 0, veuid = 0, ...`.
fn first_contexts(recording: &Path) -> String {
    let text = run(Command::new("babeltrace2").arg(recording));
    let line = text.lines().next().unwrap();
    let start = line.find("vuid = ").unwrap_or_else(|| panic!("{line}"));
    line[start..].split_once(" }").unwrap().0.to_owned()
}

#[test]
fn ids_and_namespaces_are_those_that_lttng_records() {
    let dir = scratch("contexts-facts");
    let source = root().join("tests/fixtures/lttng_fields");
    for (name, flags) in [("theirs", lttng::theirs()), ("ours", lttng::ours())] {
        let mut gcc = Command::new("gcc");
        gcc.arg("-I").arg(&source).arg("-o").arg(dir.join(name));
        run(gcc.args([source.join("fields.c"), source.join("messages.c")]).args(flags));
    }
    let theirs = first_contexts(&lttng::record_with(&dir, "", &FACTS, &["fields"], "./theirs"));
    let recording = dir.join("by-nopal");
    let mut record = Command::new(nopal());
    record.args(["record", "-e", "fields:*", "--context", &FACTS.join(","), "-o"]).arg(&recording);
    run(record.arg("--").arg(dir.join("ours")));
    // LTTng's session had a view of the file system of its own.
    let but_mounts = |text: &str| -> Vec<String> {
        text.split(", ").filter(|part| !part.starts_with("mnt_ns")).map(str::to_owned).collect()
    };
    let ours = first_contexts(&recording);
    assert_eq!(but_mounts(&ours), but_mounts(&theirs));
    let mounts = run(Command::new("stat").args(["-L", "-c", "%i", "/proc/self/ns/mnt"]));
    assert!(ours.contains(&format!("mnt_ns = {}", mounts.trim())), "{ours}");
    let details = ["--component=sink.text.details", "--params=with-metadata=yes"];
    let metadata = run(Command::new("babeltrace2").args(details).arg(&recording));
    assert!(metadata.contains("vuid: Unsigned integer (32-bit"), "{metadata}");
}

#[test]
fn conditions_ask_for_ids_and_namespaces() {
    let place = Place::new("facts");
    let mut counter = Counter::start_by(&["setpriv", "--reuid=54378", "--regid=54379", "--clear-groups"]);
    let pid = counter.child.id().to_string();
    let mounts = run(Command::new("stat").args(["-L", "-c", "%i", "/proc/self/ns/mnt"]));
    let conditions = [
        ("$ctx.vuid == 54378 && $ctx.vegid == 54379".to_owned(), 5),
        ("$ctx.vuid == 0".to_owned(), 0),
        (format!("$ctx.mnt_ns == {}", mounts.trim()), 5),
        (format!("$ctx.mnt_ns != {} || $ctx.vsuid == 1", mounts.trim()), 0),
    ];
    for (n, (condition, n_events)) in conditions.into_iter().enumerate() {
        let (name, out) = (format!("s{n}"), place.dir.join(n.to_string()));
        place.nopal(&["create", &name, "--output", out.to_str().unwrap()]);
        place.nopal(&["enable-event", "-u", "flight:pass", "--filter", &condition]);
        place.nopal(&["add-context", "-u", "-t", "vuid,vegid,mnt_ns,vsuid"]);
        place.nopal(&["track", "-u", "-p", &pid]);
        place.nopal(&["start"]);
        counter.hit(5);
        place.nopal(&["stop"]);
        let count = |pattern: &str| {
            let view = place.output(&["view", &name, pattern]);
            String::from_utf8_lossy(&view.stdout).lines().count()
        };
        assert_eq!(count("flight:pass"), n_events, "{condition}");
        // The same asked of the recording.
        if n_events > 0 {
            assert_eq!(count(&format!("flight:pass if {condition}")), n_events);
            assert_eq!(count("flight:pass if $ctx.vuid == 1"), 0);
            let theirs = run(Command::new("babeltrace2").arg(&out));
            assert!(theirs.contains("vuid = 54378, vegid = 54379, mnt_ns = "), "{theirs}");
            assert_eq!(place.nopal(&["view", &name]), theirs);
        }
    }
}
