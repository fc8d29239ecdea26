//! The static command where other C libraries are: the user lands of Debian 11 and 13, with their own Python to trace.

use nopal_tests::{debian, lab, run};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Says itself how often the first two of its three generations were collected.
const COLLECTS: &str = "\
import gc
for n in range(7):
    gc.collect(1)
print(gc.get_stats()[1]['collections'])
";

/// Runs words in a folder that is the root, with /proc, /sys and /dev, which are gone afterwards.
fn inside(root: &Path, words: &str) -> String {
    let script = format!(
        "mount -t proc proc {0}/proc && mount -t sysfs sysfs {0}/sys && mount --bind /dev {0}/dev && exec chroot {0} {words}",
        root.display()
    );
    run(Command::new("unshare").args(["--mount", "sh", "-c", &script]))
}

fn python_is_traced(suite: &str, version: &str, more: &[&str]) {
    let minimal = [format!("python{version}-minimal"), format!("libpython{version}-minimal")];
    let needed = ["base-files", "libc6", "libexpat1", "zlib1g"];
    let names: Vec<&str> =
        minimal.iter().map(String::as_str).chain(needed).chain(more.iter().copied()).collect();
    let root = debian::programs(suite, &names);
    for folder in ["proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::copy(lab::static_nopal(), root.join("tmp/nopal")).unwrap();
    fs::write(root.join("tmp/collects.py"), COLLECTS).unwrap();
    let os = fs::read_to_string(root.join("usr/lib/os-release")).unwrap();
    assert!(os.contains(&format!("VERSION_CODENAME={suite}")), "{os}");
    let python = format!("/usr/bin/python{version}");
    let listed = inside(&root, &format!("/tmp/nopal list {python} python:gc__start"));
    assert!(listed.contains("python:gc__start"), "{listed}");
    for door in ["user", "kernel", "auto"] {
        let words = format!(
            "/tmp/nopal count --door {door} --json --where 'generation == 1' python:gc__start -- {python} -S /tmp/collects.py"
        );
        let said = inside(&root, &words);
        let (theirs, answer) = said.split_once('\n').expect("a number, and an answer");
        let answer: serde_json::Value =
            serde_json::from_str(answer).unwrap_or_else(|e| panic!("{e}: {said}"));
        let theirs: u64 = theirs.parse().expect("a number");
        assert!(theirs >= 7, "{said}");
        assert_eq!(answer["rows"][0]["count"], theirs, "{suite}, {door}: {said}");
        assert_eq!(answer["complete"], true, "{suite}, {door}: {said}");
    }
}

#[test]
fn debian_11() {
    python_is_traced("bullseye", "3.9", &["libcrypt1"]);
}

#[test]
fn debian_13() {
    python_is_traced("trixie", "3.13", &[]);
}
