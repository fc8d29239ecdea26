//! `nopal abi`: the probes of a program kept in a file, and what broke since.

use nopal_tests::{nopal, root, run, scratch};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn compile(folder: &Path, name: &str, probes: &str) -> PathBuf {
    let source = folder.join(format!("{name}.c"));
    let text = format!(
        "#include <nopal.h>\n#include <sys/sdt.h>\nint main(int n, char **v) {{ {probes} return 0; }}\n"
    );
    fs::write(&source, text).unwrap();
    let include = format!("-I{}", root().join("include").display());
    run(Command::new("gcc").arg(include).args(["-O1", "-o"]).arg(folder.join(name)).arg(&source));
    folder.join(name)
}

fn diff(old: &Path, new: &Path) -> (Value, Output) {
    let output = Command::new(nopal()).args(["abi", "diff", "--json"]).arg(old).arg(new).output().unwrap();
    let said = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (said, output)
}

#[test]
fn a_kept_file_tells_what_broke() {
    let folder = scratch("abi");
    let old = compile(
        &folder,
        "old",
        "STAP_PROBE2(shop, sale, n, v); STAP_PROBE1(shop, refund, (long)n); STAP_PROBE(shop, open_door);",
    );
    let new = compile(
        &folder,
        "new",
        "STAP_PROBE3(shop, sale, n, v, n); STAP_PROBE1(shop, refund, (short)n); STAP_PROBE(shop, open__door);",
    );
    let kept = folder.join("probes.toml");
    fs::write(&kept, run(Command::new(nopal()).arg("abi").arg(&old))).unwrap();
    let (same, output) = diff(&kept, &old);
    assert!(output.status.success() && same["changes"].as_array().unwrap().is_empty(), "{same}");
    let (changed, output) = diff(&kept, &new);
    let said: Vec<(String, bool)> = changed["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| {
            let text = format!("{} {}", c["probe"].as_str().unwrap(), c["what"].as_str().unwrap());
            (text, c["is_breaking"].as_bool().unwrap())
        })
        .collect();
    let want = [
        ("shop:open_door renamed to shop:open__door", true),
        ("shop:refund argument arg0 changed from i64 to i16", true),
        ("shop:sale argument arg2 added at the end", false),
    ];
    assert_eq!(said, want.map(|(text, b)| (text.to_owned(), b)));
    assert_eq!((output.status.code(), &changed["breaking"]), (Some(1), &Value::from(2)));
}

#[test]
fn real_programs_and_wrong_files() {
    let text = run(Command::new(nopal()).args(["abi", "/usr/lib/postgresql/15/bin/postgres"]));
    assert!(text.contains("[[probes.\"postgresql:query__start\".args]]\n"), "{text}");
    let folder = scratch("abi_wrong");
    let bad = folder.join("bad.toml");
    fs::write(&bad, "probes = 7\n").unwrap();
    for (file, said) in
        [("/bin/true", "has no probes"), (bad.to_str().unwrap(), "bad.toml"), ("/etc/passwd", "not")]
    {
        let mut command = Command::new(nopal());
        match said {
            "has no probes" => command.args(["abi", file]),
            _ => command.args(["abi", "diff", file, file]),
        };
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && errors.contains(said), "{file}: {errors}");
    }
}
