//! For build scripts: from a `.d` file to a Rust module. The one place of this crate that reads and writes files.
//!
//! ```no_run
//! // build.rs
//! nopal_provider::build::rust_module("redis.d");
//! ```
//!
//! and in the program
//!
//! ```text
//! include!(concat!(env!("OUT_DIR"), "/redis.rs"));
//! ```

use std::path::{Path, PathBuf};

/// Writes `$OUT_DIR/NAME.rs` for `NAME.d`, which is found from the package's folder. Tells cargo to run again when the
/// file changes. Ends the build script with the diagnostics if the file is broken.
pub fn rust_module(path: impl AsRef<Path>) {
    let path = path.as_ref();
    println!("cargo::rerun-if-changed={}", path.display());
    match write(path) {
        Ok(warnings) => {
            for warning in warnings {
                println!("cargo::warning={warning}");
            }
        }
        Err(message) => {
            eprintln!("{message}");
            std::process::exit(1);
        }
    }
}

/// Returns what there is to warn of, a line each.
fn write(path: &Path) -> Result<Vec<String>, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let file = crate::parse(&path.display().to_string(), &String::from_utf8_lossy(&bytes))
        .map_err(|e| e.to_string())?;
    let folder = std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set; call this from a build script")?;
    let name = path.with_extension("rs");
    let name = name.file_name().ok_or_else(|| format!("{} names no file", path.display()))?;
    let output = PathBuf::from(folder).join(name);
    std::fs::write(&output, crate::generate::rust_module(&file))
        .map_err(|e| format!("cannot write {}: {e}", output.display()))?;
    let shown = file.warnings.iter().filter(|w| w.severity > crate::Severity::Note);
    Ok(shown.map(|w| format!("{}:{}:{}: {}", w.file, w.line, w.column, w.message)).collect())
}
