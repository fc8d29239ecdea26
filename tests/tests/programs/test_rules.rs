//! `nopal test`: rules on the probes of a program that hold, are broken, or cannot be proven.

use nopal_tests::{nopal, root, run, scratch};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Opens a shop, sells as often as it is told, and closes it; ends with the exit code of the second argument.
const SHOP: &str = "#include <sys/sdt.h>
#include <stdlib.h>
#include <unistd.h>
int main(int n, char **v) {
  DTRACE_PROBE(shop, open);
  for (int i = 0; i < atoi(v[1]); i++) {
    DTRACE_PROBE1(shop, sale__start, i);
    usleep(2000);
    DTRACE_PROBE1(shop, sale__done, i);
  }
  if (n > 3) DTRACE_PROBE(shop, fire);
  DTRACE_PROBE(shop, close);
  return n > 2 ? atoi(v[2]) : 0;
}";

fn shop(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("shop.c"), folder.join("shop"));
    fs::write(&source, SHOP).unwrap();
    let include = format!("-I{}", root().join("include").display());
    run(Command::new("gcc").arg(include).args(["-O1", "-o"]).arg(&program).arg(&source));
    program
}

fn test(rules: &[&str], command: &[&str]) -> Output {
    Command::new(nopal()).arg("test").args(rules).arg("--").args(command).output().unwrap()
}

#[test]
fn rules_hold_or_are_broken_for_a_reason() {
    let folder = scratch("test_rules");
    let program = shop(&folder);
    let program = program.to_str().unwrap();
    for (rules, code, wanted) in [
        (&["--expect", "shop:open -> shop:sale__start -> shop:sale__done -> shop:close"][..], 0, "holds"),
        (&["--expect", "shop:open -> shop:close by thread"], 0, "holds"),
        (&["--expect", "shop:close -> shop:open"], 1, "`shop:open` came 1 time, but not in this order"),
        (&["--expect", "shop:fire"], 1, "`shop:fire` never came"),
        (&["--count", "shop:sale__* == 6"], 0, "it came 6 times"),
        (&["--count", "shop:sale__done >= 4"], 1, "it came 3 times"),
        (&["--count", "shop:fire == 0"], 0, "holds"),
        // A probe that was renamed breaks even a rule that wants none of its hits.
        (&["--count", "shop:sales__done == 0"], 1, "did you mean `shop:sale__done`?"),
        (&["--latency", "sale p50 > 2ms", "--latency", "shop:sale max < 5m"], 0, "holds"),
        (&["--latency", "sale min < 2ms"], 1, "of 3 spans"),
        (&["--latency", "shop:open shop:close max > 6ms"], 0, "of 1 span"),
        (&["--count", "shop:open == 1", "--expect", "shop:fire"], 1, "1 of 2 rules broken"),
    ] {
        let output = test(rules, &[program, "3"]);
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.code() == Some(code) && said.contains(wanted), "{rules:?}: {output:?}");
    }
}

#[test]
fn a_program_that_fails_fails_the_test() {
    let folder = scratch("test_exit");
    let program = shop(&folder);
    let program = program.to_str().unwrap();
    let output = test(&["--expect", "shop:open"], &[program, "1", "7"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("exit code 7"), "{output:?}");
    let output = test(&["--ignore-exit", "--expect", "shop:open"], &[program, "1", "7"]);
    assert!(output.status.success(), "{output:?}");
    for (rules, wanted) in [
        (&["--count", "shop:open"][..], "not a valid rule: `shop:open`"),
        (&["--expect", "a -> "], "a probe is missing"),
        (&["--latency", "sale p99 < soon"], "not a time"),
        (&[], "no rule is given"),
    ] {
        let output = test(rules, &[program, "1"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && said.contains(wanted), "{rules:?}: {output:?}");
    }
}

#[test]
fn what_was_lost_leaves_a_rule_unproven() {
    let folder = scratch("test_lost");
    let source = folder.join("burst.c");
    // Far more than the smallest ring can hold, from the first instruction on.
    let text = "#include <sys/sdt.h>
int main(void) { for (int i = 0; i < 3000000; i++) DTRACE_PROBE1(burst, hit, i); DTRACE_PROBE(burst, end); }";
    fs::write(&source, text).unwrap();
    let program = folder.join("burst");
    let include = format!("-I{}", root().join("include").display());
    run(Command::new("gcc").arg(include).args(["-O1", "-o"]).arg(&program).arg(&source));
    let args = [
        "test",
        "--json",
        "--buffer-size",
        "64k",
        "--count",
        "burst:hit >= 1",
        "--count",
        "burst:hit == 3000000",
    ];
    let output = Command::new(nopal()).args(args).arg("--").arg(&program).output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let results: Vec<&str> =
        said["rules"].as_array().unwrap().iter().map(|r| r["result"].as_str().unwrap()).collect();
    assert_eq!(said["complete"], false, "{said}");
    assert_eq!((results, output.status.code()), (vec!["holds", "unproven"], Some(3)), "{said}");
}

#[test]
fn a_recording_is_judged_the_same() {
    let folder = scratch("test_recording");
    let (program, recording) = (shop(&folder), folder.join("shop.rec"));
    run(Command::new(nopal())
        .args(["record", "-e", "shop:*", "-o"])
        .arg(&recording)
        .arg("--")
        .arg(&program)
        .arg("3"));
    for (rule, code) in [("shop:open -> shop:close", 0), ("shop:close -> shop:open", 1), ("shop:gone", 1)] {
        let output = Command::new(nopal())
            .args(["test", "--expect", rule, "--recording"])
            .arg(&recording)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
}
