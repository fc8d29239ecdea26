//! The built-in descriptions of well-known providers: one `.d` file each, embedded, parsed on first use only.

use crate::ast::{File, Provider};
use std::sync::OnceLock;

/// One embedded `.d` file.
#[derive(Debug)]
pub struct Entry {
    /// Name of the file, such as `memcached.d`.
    pub name: &'static str,
    /// The providers it declares; known without parsing it.
    pub providers: &'static [&'static str],
    pub text: &'static str,
    parsed: OnceLock<File>,
}

impl Entry {
    const fn new(name: &'static str, providers: &'static [&'static str], text: &'static str) -> Self {
        Entry { name, providers, text, parsed: OnceLock::new() }
    }

    /// The parsed file. A test parses every embedded file, so a broken one (which would read as empty) cannot ship.
    pub fn file(&self) -> &File {
        self.parsed.get_or_init(|| crate::parse(self.name, self.text).unwrap_or_default())
    }
}

// `static CATALOG: [Entry; N]`, written by the build script.
include!(concat!(env!("OUT_DIR"), "/catalog.rs"));

/// All embedded files, by name.
pub fn catalog() -> &'static [Entry] {
    &CATALOG
}

/// The description of the provider `name`, if it is a well-known one.
pub fn provider(name: &str) -> Option<&'static Provider> {
    CATALOG.iter().find(|e| e.providers.contains(&name))?.file().provider(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_parses_without_a_word() {
        for entry in catalog() {
            let file = crate::parse(entry.name, entry.text).unwrap_or_else(|e| panic!("{e}"));
            assert!(file.warnings.is_empty(), "{}", file.warnings[0]);
            let names: Vec<&str> = file.providers.iter().map(|p| p.name.as_str()).collect();
            assert_eq!(names, entry.providers, "{}", entry.name);
            for name in entry.providers {
                assert!(provider(name).is_some_and(|p| !p.probes.is_empty()), "{name}");
            }
        }
    }

    #[test]
    fn each_provider_is_described_once() {
        let mut names: Vec<&str> = catalog().iter().flat_map(|e| e.providers).copied().collect();
        names.sort_unstable();
        let n_names = names.len();
        names.dedup();
        assert_eq!(names.len(), n_names);
    }
}
