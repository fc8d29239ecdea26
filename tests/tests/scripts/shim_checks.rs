//! What nopal, called as bpftrace, tells of a script that runs but does what has no sense: in the words of release 0.27.

use super::shim::{call, link, text};
use nopal_tests::scratch;
use std::fs;

#[test]
fn entries_that_are_not_there_and_memory_that_cannot_be_read_are_told_if_asked_for() {
    let folder = scratch("shim_helpers");
    let ours = link(&folder);
    let script = "i:ms:1 { @[1] = 1; printf(\"%d\\n\", @[2]); $x = *(uint32 *)8; exit(); }";
    let output = call(&ours, &folder, &["-q", "-k", "-e", script]);
    let mark = |from: usize, n: usize| format!("{}{}", " ".repeat(from - 1), "~".repeat(n));
    let want = format!(
        "stdin:1:35-39: WARNING: Can't lookup map element because it does not exist.\n\
         Additional Info - helper: map_lookup_elem, retcode: 0\n{script}\n{}\n\
         stdin:1:47-59: WARNING: Bad address\n\
         Additional Info - helper: probe_read_kernel, retcode: -14\n{script}\n{}\n",
        mark(35, 4),
        mark(47, 12)
    );
    assert_eq!((text(&output.stderr), text(&output.stdout).lines().next()), (want, Some("0")));
    let output = call(&ours, &folder, &["-q", "-e", script]);
    assert_eq!(text(&output.stderr), "");
    let output = call(&ours, &folder, &["-q", "-k", "-f", "json", "-e", script]);
    let want = "{\"type\": \"helper_error\", \"msg\": \"Success\", \"helper\": \"map_lookup_elem\", \"retcode\": 0, \
                \"filename\": \"stdin\", \"line\": 1, \"col\": 35}";
    assert_eq!(text(&output.stdout).lines().next(), Some(want));
}

#[test]
fn what_divides_by_zero_or_lies_outside_of_an_array_is_shown_with_its_line() {
    let folder = scratch("shim_values");
    let ours = link(&folder);
    let script = "begin { $a = 0; print(3/$a); $t = (uint8[4])1; $i = (uint64)9; print($t[$i]); }";
    let output = call(&ours, &folder, &["-q", "-e", script]);
    let blanks = |n: usize| " ".repeat(n);
    let want = format!(
        "stdin:1:23-27: WARNING: Divide or modulo by 0 detected. This can lead to unexpected results. 1 is being used as the result.\n\
         {script}\n{}~~~~\nstdin:1:70-76: WARNING: Array access out of bounds. This can lead to unexpected results.\n{script}\n{}~~~~~~\n",
        blanks(22),
        blanks(69)
    );
    assert_eq!((text(&output.stderr), text(&output.stdout).trim_end()), (want, "1\n0"));
    let output = call(&ours, &folder, &["-q", "-f", "json", "-e", script]);
    let kinds = text(&output.stdout).matches("\"type\": \"runtime_error\"").count();
    assert_eq!(kinds, 2, "{}", text(&output.stdout));
}

#[test]
fn messages_within_macros_say_where_those_are_called() {
    let folder = scratch("shim_macros");
    let ours = link(&folder);
    let script =
        "macro bad() { errorf(\"no\"); } macro worse(x) { bad(); warnf(\"odd %d\", x); } begin { worse(3); }";
    let output = call(&ours, &folder, &["-q", "-e", script]);
    let mark = |from: usize, to: usize| format!("{}{}", " ".repeat(from - 1), "~".repeat(to - from));
    let (inner, outer) = (mark(48, 53), mark(85, 93));
    // As release 0.27 says it.
    let want = format!(
        "stdin:1:15-27: ERROR: no\nstdin:1:48-53: ERROR: expanded from\n{script}\n{inner}\n\
         stdin:1:85-93: ERROR: expanded from\n{script}\n{outer}\n\
         stdin:1:55-73: WARNING: odd 3\nstdin:1:85-93: WARNING: expanded from\n{script}\n{outer}\n"
    );
    assert_eq!(text(&output.stderr), want);
}

#[test]
fn headers_are_looked_for_and_missing_ones_told() {
    let folder = scratch("shim_headers");
    let ours = link(&folder);
    fs::create_dir_all(folder.join("include/sub")).unwrap();
    fs::write(folder.join("include/own.h"), "#include \"sub/more.h\"\n#define OWN (MORE << 1 | 1)\n")
        .unwrap();
    fs::write(folder.join("include/sub/more.h"), "#ifndef MORE\n#define MORE 0x20UL\n#endif\n").unwrap();
    let script = "begin { printf(\"%d %d\\n\", OWN, EPERM); }";
    let output = call(
        &ours,
        &folder,
        &["-q", "-I", "include", "--include", "own.h", "--include", "errno.h", "-e", script],
    );
    assert_eq!(text(&output.stdout).trim_end(), "65 1", "{}", text(&output.stderr));
    // The file is what clang makes of the script; release 0.27 says the same.
    for (args, want) in [
        (
            &["-e", "#include <no/such.h>\nbegin { }"][..],
            "definitions.h:2:10: fatal error: 'no/such.h' file not found\n",
        ),
        (&["--include", "no.h", "-e", "begin { }"], "fatal error: 'no.h' file not found\n"),
    ] {
        let output = call(&ours, &folder, args);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).starts_with(want), "{}", text(&output.stderr));
    }
    // The kernel describes itself, so its headers need not be there.
    let output = call(&ours, &folder, &["-q", "-e", "#include <linux/no_such.h>\nbegin { print(1); }"]);
    assert_eq!(text(&output.stdout).trim_end(), "1", "{}", text(&output.stderr));
}
