//! The tools of Debian's bpftrace package: all parse; those without kernel functions become programs.

mod catalog;

use catalog::TestCatalog;
use nopal_program::interpret::Interpreter;
use nopal_script::{Options, compile, parse};
use std::sync::Arc;

#[test]
fn every_tool_parses_and_those_without_kprobes_compile() {
    let mut n_compiled = 0;
    let mut failures = String::new();
    let mut tools: Vec<_> = std::fs::read_dir("/usr/sbin")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "bt"))
        .collect();
    tools.sort();
    assert!(
        tools.len() >= 30,
        "needs Debian's bpftrace package (apt install bpftrace), found {} tools",
        tools.len()
    );
    for tool in tools {
        let (text, name) = (std::fs::read_to_string(&tool).unwrap(), tool.display().to_string());
        let outcome = parse(&text, &name, &[], &Options::default()).and_then(|script| {
            if script.specs().iter().any(|spec| spec.kind.starts_with('k')) {
                return Ok(());
            }
            n_compiled += 1;
            compile(&script, &TestCatalog).map(|program| {
                assert!(!program.clauses.is_empty());
                Interpreter::new(Arc::new(program), 0).unwrap();
            })
        });
        for diagnostic in outcome.err().unwrap_or_default() {
            failures += &(diagnostic.render(&text, &name, false) + "\n");
        }
    }
    assert!(failures.is_empty(), "{failures}");
    assert!(n_compiled >= 20, "{n_compiled} compiled");
}
