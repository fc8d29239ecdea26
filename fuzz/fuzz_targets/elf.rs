//! A whole ELF file that anybody may have made, through everything that looks at programs: symbols, function tables, edges
//! of functions, Go, thread contexts, unwind tables, sections that are compressed. And names alone, which are demangled.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_proc::file_functions::FileFunctions;
use nopal_proc::symbols::demangle;
use nopal_proc::unwind::Tables;
use nopal_proc::{Image, thread_context};
use std::path::PathBuf;

const ELF: &[u8] = b"\x7fELF";
/// No name that is shown is longer than what rustc-demangle allows.
const MAX_NAME_BYTES: usize = 2 << 20;

fuzz_target!(|bytes: &[u8]| {
    if !bytes.starts_with(ELF) {
        if let Ok(name) = std::str::from_utf8(bytes) {
            assert!(demangle(name).len() <= MAX_NAME_BYTES);
        }
        return;
    }
    let path = PathBuf::from(format!("/dev/shm/nopal-fuzz-elf-{}", std::process::id()));
    std::fs::write(&path, bytes).expect("there is memory");
    let image = Image::open(&path).expect("it is a file");
    let _ = nopal_sdt::read(image.bytes());
    let _ = thread_context::n_accesses(image.bytes());
    let _ = Tables::read(image.bytes());
    let functions = FileFunctions::read(image);
    for function in functions.symbols().functions().take(64) {
        let Ok(edges) = functions.edges(&function) else { continue };
        assert!(
            edges.exits.is_ok_and(|exits| exits.iter().all(|exit| exit.code.len() <= 16))
                || edges.entry.code.len() <= 16
        );
        let _ = functions.place(function.address);
    }
    let _ = functions.symbols().named("main");
});
