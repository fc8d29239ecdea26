//! Points at lines of a source. The program does each of its lines a known number of times.

use nopal_tests::{nopal, run, scratch};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "volatile int sink;
static void step(int n) {
  if (n % 2)
    sink += 1;
  else
    sink += 2;
}
/* nothing here */
int main(void) {
  for (int i = 0; i < 10; i++)
    step(i);
  return 0;
}
";

fn built(name: &str, flags: &[&str]) -> PathBuf {
    let folder = scratch(&format!("source_lines_{name}"));
    fs::write(folder.join("steps.c"), SOURCE).unwrap();
    run(Command::new("gcc").args(["-g", "-O0", "steps.c", "-o", "app"]).args(flags).current_dir(&folder));
    folder.join("app")
}

fn traced(program: &Path, more: &[&str], script: &str) -> (bool, String) {
    let script = script.replace("FILE", &program.display().to_string());
    let output = Command::new(nopal())
        .arg("run")
        .args(more)
        .args(["-e", &script, "--"])
        .arg(program)
        .output()
        .unwrap();
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (output.status.success(), text)
}

#[test]
fn a_line_is_hit_as_often_as_it_is_done() {
    let script = "uprobe:FILE@steps.c:4 { @odd = count(); } uprobe:FILE@steps.c:6 { @even = count(); }
        uprobe:FILE@steps.c:12 { @end[probe] = count(); }";
    for (name, flags) in
        [("pie", &[][..]), ("fixed", &["-no-pie"]), ("old", &["-gdwarf-4"]), ("split", &["-gsplit-dwarf"])]
    {
        let program = built(name, flags);
        for door in ["auto", "kernel"] {
            let (is_done, text) = traced(&program, &["--door", door], script);
            assert!(
                is_done && text.contains("@odd: 5\n") && text.contains("@even: 5\n"),
                "{name} {door}: {text}"
            );
            let end = format!("@end[uprobe:{}@steps.c:12]: 1\n", program.display());
            assert!(text.contains(&end) && text.contains("complete"), "{name} {door}: {text}");
        }
    }
}

#[test]
fn a_line_without_code_is_an_error_that_names_the_next() {
    let program = built("refused", &[]);
    for (script, expected) in [
        ("uprobe:FILE@steps.c:8 {}", "Unable to map 'steps.c:8' to address"),
        ("uprobe:FILE@steps.c:8 {}", "the next with code is steps.c:9"),
        ("uprobe:FILE@steps.c:90 {}", "nor of one behind it"),
        ("uprobe:FILE@teps.c:4 {}", "No compilation unit matches teps.c"),
        ("uprobe:FILE@steps.c:four {}", "Invalid line number"),
        ("uretprobe:FILE@steps.c:4 {}", "Source code location not allowed"),
    ] {
        let (is_done, text) = traced(&program, &[], script);
        assert!(!is_done && text.contains(expected), "{script}: {text}");
    }
    run(Command::new("strip").arg("-g").arg(&program));
    let (is_done, text) = traced(&program, &[], "uprobe:FILE@steps.c:4 {}");
    assert!(!is_done && text.contains("No DWARF debug info found") && text.contains("--debuginfo"), "{text}");
}

/// Debug information aside: in a folder that is named, and where the compiler has split it off.
#[test]
fn debug_information_is_found_aside() {
    let program = built("aside", &["-Wl,--build-id"]);
    let folder = program.parent().unwrap();
    fs::create_dir(folder.join("symbols")).unwrap();
    let within = |program: &str, args: &[&str]| run(Command::new(program).args(args).current_dir(folder));
    within("objcopy", &["--only-keep-debug", "app", "symbols/app.debug"]);
    within("strip", &["-g", "app"]);
    let script = "uprobe:FILE@steps.c:4 { @odd = count(); } uprobe:FILE:step { @n = sum(args.n); }";
    for folders in ["--debuginfo=symbols", "--debuginfo=/nowhere:./symbols"] {
        let (is_done, text) = traced(&program, &[folders], script);
        assert!(is_done && text.contains("@odd: 5\n") && text.contains("@n: 45\n"), "{folders}: {text}");
    }
    let split = built("split_args", &["-gsplit-dwarf"]);
    let (is_done, text) = traced(&split, &[], "uprobe:FILE:step { @n = sum(args.n); }");
    assert!(is_done && text.contains("@n: 45\n"), "{text}");
}

/// A function that the compiler has put into others is hit there, if the script says so.
#[test]
fn inlined_functions_are_hit_where_they_were_put() {
    const INLINED: &str = "volatile int sink;
static inline __attribute__((always_inline)) void twice(int n) { sink += 2 * n; }
__attribute__((noinline)) void first(void) { twice(1); }
__attribute__((noinline)) void second(void) { twice(2); sink++; }
int main(void) { for (int i = 0; i < 5; i++) { first(); second(); } return 0; }
";
    let folder = scratch("source_lines_inlined");
    fs::write(folder.join("a.c"), INLINED).unwrap();
    for level in ["-O0", "-O2"] {
        run(Command::new("gcc").args(["-g", level, "a.c", "-o", "app"]).current_dir(&folder));
        let program = folder.join("app");
        let script = "config = { probe_inline = true } uprobe:FILE:twice { @[probe] = count(); }";
        let (is_done, text) = traced(&program, &[], script);
        let counted = format!("@[uprobe:{}:twice]: 10\n", program.display());
        assert!(is_done && text.contains(&counted), "{level}: {text}");
        let (is_done, text) = traced(&program, &[], "uprobe:FILE:twice { @ = count(); }");
        assert!(!is_done && text.contains("there is no function `twice`"), "{level}: {text}");
    }
}
