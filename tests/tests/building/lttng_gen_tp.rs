//! `lttng-gen-tp`: providers made of templates, as LTTng's tool of this name makes them.

use nopal_tests::{lttng, nopal, run, scratch};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The provider stands in comments, too, where it means nothing.
const TEMPLATE: &str = r#"
// LTTNG_UST_TRACEPOINT_EVENT(not, this,
/* nor
   LTTNG_UST_TRACEPOINT_EVENT(this, one, */
#include <stdint.h>
LTTNG_UST_TRACEPOINT_EVENT(
    // The provider,
    greeting,
    /* and the name. */ said,
    LTTNG_UST_TP_ARGS(int, n, const char *, text),
    LTTNG_UST_TP_FIELDS(
        lttng_ust_field_integer(int32_t, n, n)
        lttng_ust_field_string(text, text)
    )
)
LTTNG_UST_TRACEPOINT_LOGLEVEL(greeting, said, LTTNG_UST_TRACEPOINT_LOGLEVEL_INFO)
LTTNG_UST_TRACEPOINT_EVENT(greeting, left, LTTNG_UST_TP_ARGS(), LTTNG_UST_TP_FIELDS())
"#;
const PROGRAM: &str = r#"
#include "greeting.h"
int main(void) {
    for (int n = 0; n < 3; n++)
        lttng_ust_tracepoint(greeting, said, n, n == 1 ? "hello" : "");
    lttng_ust_tracepoint(greeting, left);
    return 0;
}
"#;

/// Generates in `dir` and builds the program there.
fn build(dir: &Path, generator: &Path, flags: &[String]) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("greeting.tp"), TEMPLATE).unwrap();
    fs::write(dir.join("main.c"), PROGRAM).unwrap();
    run(Command::new(generator).arg("greeting.tp").current_dir(dir));
    let mut gcc = Command::new("gcc");
    gcc.args(["-I.", "-o", "program", "main.c", "greeting.o"]).args(flags).current_dir(dir);
    run(&mut gcc);
    // The source is enough, too.
    gcc = Command::new("gcc");
    gcc.args(["-I.", "-o", "from-source", "main.c", "greeting.c"]).args(flags).current_dir(dir);
    run(&mut gcc);
}

#[test]
fn a_template_makes_the_provider_that_lttngs_tool_makes_of_it() {
    let dir = scratch("lttng gen-tp");
    let generator = lttng::installed().join("bin/lttng-gen-tp");
    let (ours, theirs) = (dir.join("ours"), dir.join("theirs"));
    build(&ours, &generator, &lttng::ours());
    build(&theirs, Path::new("/usr/bin/lttng-gen-tp"), &lttng::theirs());
    let wanted = lttng::events(&lttng::record(&dir, &["greeting"], "./theirs/program"));
    assert_eq!(wanted.len(), 4);
    for program in ["program", "from-source"] {
        let recording = dir.join(format!("by-nopal-{program}"));
        let mut record = Command::new(nopal());
        record.args(["record", "-e", "greeting:*", "-o"]).arg(&recording);
        run(record.arg("--").arg(ours.join(program)));
        assert_eq!(lttng::events(&recording), wanted, "{program}");
    }
    let listed = run(Command::new(nopal()).args(["list", "--json"]).arg(ours.join("program")));
    assert!(listed.contains("\"log_level\": 6"), "{listed}");
}

#[test]
fn only_what_is_asked_for_is_made_and_errors_say_what_is_wrong() {
    let dir = scratch("lttng-gen-tp-asked");
    fs::write(dir.join("greeting.tp"), TEMPLATE).unwrap();
    let generator = lttng::installed().join("bin/lttng-gen-tp");
    let call = |words: &[&str]| Command::new(&generator).args(words).current_dir(&dir).output().unwrap();
    assert!(call(&["-o", "other.h", "--output=other.o", "greeting.tp"]).status.success());
    let mut files: Vec<String> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    assert_eq!(files, ["greeting.tp", "other.h", "other.o"]);
    assert!(fs::read_to_string(dir.join("other.h")).unwrap().contains("\"./other.h\""));

    fs::write(dir.join("none.tp"), "int none;\n").unwrap();
    let two = format!(
        "{TEMPLATE}\nLTTNG_UST_TRACEPOINT_EVENT(other, said, LTTNG_UST_TP_ARGS(), LTTNG_UST_TP_FIELDS())\n"
    );
    fs::write(dir.join("two.tp"), two).unwrap();
    for (words, part) in [
        (&["missing.tp"][..], "cannot read missing.tp"),
        (&["none.tp"], "defines no tracepoint"),
        (&["two.tp"], "one provider"),
        (&["-o", "x.cc", "greeting.tp"], ".h, .c or .o"),
        (&["--bogus", "greeting.tp"], "no option --bogus"),
        (&[], "usage"),
    ] {
        let output = call(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(part), "{words:?}: {said}");
    }
}
