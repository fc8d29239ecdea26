//! The built-in catalog of well-known providers, as nopal notes that the build script made from its `.d` files.

use crate::nopal_note;
use crate::probe::Description;
use std::collections::HashMap;
use std::sync::OnceLock;

// `static CATALOG: [(provider, packed records); N]`, written by the build script. A record is:
// u32 length of the note, u8 number of arguments, u8 length of the name, name, description of the nopal note.
include!(concat!(env!("OUT_DIR"), "/catalog.rs"));

/// The records of a provider, deflated until somebody asks for them.
struct Packed {
    packed: &'static [u8],
    records: OnceLock<Vec<u8>>,
}

impl Packed {
    const fn new(packed: &'static [u8]) -> Packed {
        Packed { packed, records: OnceLock::new() }
    }

    /// A test unpacks all of them, so that a broken one (which would be empty) cannot ship.
    fn records(&self) -> &[u8] {
        self.records.get_or_init(|| miniz_oxide::inflate::decompress_to_vec(self.packed).unwrap_or_default())
    }
}

/// What the catalog has of one probe.
#[derive(Debug)]
pub(crate) struct Entry {
    pub n_args: u8,
    note: &'static [u8],
}

impl Entry {
    pub(crate) fn description(&self) -> Option<Description> {
        nopal_note::decode(self.note, false).ok().map(|note| note.description)
    }
}

/// The probes of a provider by name; none if it is not well known.
pub(crate) fn provider(name: &str) -> HashMap<&'static [u8], Entry> {
    let mut rest = CATALOG
        .iter()
        .find(|(provider, _)| *provider == name)
        .map_or(&[][..], |(_, packed)| packed.records());
    let mut entries = HashMap::new();
    while let Some((name, entry, after)) = record(rest) {
        entries.entry(name).or_insert(entry);
        rest = after;
    }
    entries
}

fn record(bytes: &'static [u8]) -> Option<(&'static [u8], Entry, &'static [u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (&[n_args, n_name_bytes], rest) = rest.split_first_chunk::<2>()?;
    let (name, rest) = rest.split_at_checked(n_name_bytes.into())?;
    let (note, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((name, Entry { n_args, note }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_catalog_is_there_and_says_what_its_files_say() {
        let mut n_probes = 0;
        for declared in nopal_provider::catalog::catalog().iter().flat_map(|entry| &entry.file().providers) {
            let entries = provider(&declared.name);
            assert_eq!(entries.len(), declared.probes.len(), "{}", declared.name);
            for probe in &declared.probes {
                let entry = &entries[probe.name.as_bytes()];
                assert_eq!(usize::from(entry.n_args), probe.args.len());
                assert_eq!(
                    entry.description(),
                    Some(crate::describe::description(probe)),
                    "{}:{}",
                    declared.name,
                    probe.name
                );
                let is_paired = crate::describe::is_paired_by_catalog(&declared.name, &probe.name);
                assert_eq!(is_paired, probe.pair.is_some(), "{}:{}", declared.name, probe.name);
                n_probes += 1;
            }
        }
        assert!(n_probes > 700, "{n_probes} probes");
    }
}
