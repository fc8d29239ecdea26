//! Probes of the `nopal` crate on arm64: compiled with Debian's Rust, which has an arm64 library, and run by qemu.

use nopal_sdt::operand::Arch;
use nopal_tests::arm64::{debian_rust, rustc};
use nopal_tests::run;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

/// `nop`.
const SITE: [u8; 4] = [0x1f, 0x20, 0x03, 0xd5];

#[test]
fn arm64_programs_have_the_same_probes() {
    let usr = debian_rust();
    for level in ["opt-level=0", "opt-level=3"] {
        let out = nopal_tests::scratch(&format!("rust-arm64-{level}"));
        let nopal = rustc(&usr, "tracee/nopal/src/lib.rs", level, &[], "rlib", out.join("libnopal.rlib"));
        let inner = "tests/fixtures/rust-probes/inner/src/lib.rs";
        let inner = rustc(&usr, inner, level, &[("nopal", &nopal)], "rlib", out.join("libinner.rlib"));
        let app = "tests/fixtures/rust-probes/app/src/main.rs";
        let app = rustc(&usr, app, level, &[("nopal", &nopal), ("inner", &inner)], "bin", out.join("app"));
        // The app checks its own guards.
        run(Command::new("qemu-aarch64").args(["-L", "/usr/aarch64-linux-gnu"]).arg(&app));

        let object = nopal_sdt::read(&fs::read(&app).unwrap()[..]).unwrap();
        assert_eq!(object.arch, Some(Arch::Arm64));
        assert_eq!(object.probes.len(), 14, "{level}: {:?}", object.probes);
        for probe in &object.probes {
            let semaphores: BTreeSet<_> =
                probe.sites.iter().map(|s| s.semaphore.map(|s| s.address)).collect();
            assert_eq!(semaphores.len(), 1, "{level}: one semaphore or none: {probe:?}");
            assert!(probe.description.is_some(), "{level}: {probe:?}");
            for site in &probe.sites {
                assert!(site.code.starts_with(&SITE), "{level}: {probe:?}");
                for arg in &site.args {
                    assert!(arg.operand.is_ok(), "{level}: {probe:?}");
                }
            }
        }
        for (name, expected) in [
            ("signed", &[-1, -2, -4, -8, -8][..]),
            ("twelve", &[-4; 12]),
            ("seven", &[1, 8, 8, -2, 8, 8, 8, 8, 8, 8, 8, 8]),
        ] {
            let site = &object.probe("types", name).unwrap().sites[0];
            let sizes: Vec<i32> = site
                .args
                .iter()
                .map(|a| a.operand.as_ref().unwrap())
                .map(|o| i32::from(o.size_bytes) * if o.is_signed { -1 } else { 1 })
                .collect();
            assert_eq!(sizes, expected, "{level}: types:{name}");
        }
    }
}
