//! The `.d` language: whatever the text, it is parsed or refused with a place, and what is parsed can be generated.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_provider::generate::{self, Machine, ObjectOptions, WrapOptions};
use nopal_provider::{File, Severity};

fuzz_target!(|text: &str| {
    match nopal_provider::parse("fuzz.d", text) {
        Err(error) => {
            assert!(
                error.diagnostics.iter().any(|d| d.severity == Severity::Error && d.line > 0 && d.column > 0)
            );
            assert!(error.to_string().len() < 200_000);
        }
        Ok(file) => check(&file),
    }
});

/// What the generators and everybody who decodes arguments rely on.
fn check(file: &File) {
    let mut n_probes = 0;
    for provider in &file.providers {
        for probe in &provider.probes {
            n_probes += 1;
            assert!(probe.args.len() <= 12);
            assert!(probe.args.iter().all(|a| a.length.is_none_or(|l| l < probe.args.len())));
            if let Some(pair) = &probe.pair {
                assert!(pair.partner != probe.name && provider.probe(&pair.partner).is_some());
            }
        }
    }
    let header = generate::c_header(file);
    assert_eq!(header.lines().filter(|l| l.starts_with("DTRACE_PROBE")).count(), n_probes);
    // Code never has the spelling that projects rewrite.
    let code = header.lines().filter(|l| !l.starts_with("/*"));
    assert!(code.clone().all(|l| !l.contains("char *") && !l.contains("void *")));
    // A comment is one line, whatever the types in it.
    assert!(
        header
            .lines()
            .filter(|l| l.starts_with("/*"))
            .all(|l| l.ends_with("*/") && l.matches("*/").count() == 1)
    );
    for machine in [Machine::X86_64, Machine::Arm64] {
        let options = ObjectOptions { machine, is_exported: false, is_v1: false };
        let object = generate::elf_object(file, options);
        assert_eq!(object, generate::elf_object(file, options));
        // A relocatable file is not for listing; it must be refused in good order.
        let _ = nopal_sdt::read(&object[..]);
    }
    generate::rust_module(file);
    generate::tapset(file, None);
    generate::wrappers(file, WrapOptions { prefix: "TRACE_", guard: "USE_USDT", header: "x.h" });
}
