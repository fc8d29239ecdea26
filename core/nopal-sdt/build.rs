//! Turns the catalog of well-known providers into nopal notes, so that no `.d` file is parsed when nopal runs.
//! `src/catalog.rs` reads what this writes.

use std::fmt::Write;
use std::path::PathBuf;
use std::{env, fs};

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let providers: Vec<_> =
        nopal_provider::catalog::catalog().iter().flat_map(|entry| &entry.file().providers).collect();
    let mut table = format!("static CATALOG: [(&str, Packed); {}] = [\n", providers.len());
    for provider in providers {
        let mut records = Vec::new();
        for probe in &provider.probes {
            let note = nopal_provider::generate::nopal_note(provider, probe);
            let n_args = u8::try_from(probe.args.len()).expect("a probe has at most 12 arguments");
            let n_name_bytes = u8::try_from(probe.name.len()).expect("a name of the catalog is short");
            records.extend(u32::try_from(note.len()).expect("a note is short").to_le_bytes());
            records.extend([n_args, n_name_bytes]);
            records.extend(probe.name.as_bytes());
            records.extend(note);
        }
        let file = out.join(format!("{}.notes", provider.name));
        // Texts, which take a quarter of the room so.
        let packed = miniz_oxide::deflate::compress_to_vec(&records, 10);
        fs::write(&file, packed).expect("OUT_DIR can be written");
        let file = file.display().to_string();
        writeln!(table, "    ({:?}, Packed::new(include_bytes!({file:?}))),", provider.name)
            .expect("a string takes any text");
    }
    table.push_str("];\n");
    fs::write(out.join("catalog.rs"), table).expect("OUT_DIR can be written");
    // Cargo runs this again when nopal-provider, which holds the catalog, has changed.
    println!("cargo::rerun-if-changed=build.rs");
}
