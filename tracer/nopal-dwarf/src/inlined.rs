//! Where the compiler has put the body of a function into others.

use crate::info::{At, DebugInfo};
use gimli::constants as dw;
use std::rc::Rc;

impl DebugInfo {
    /// The first address of each copy of a function, by the name its source or its symbol has.
    pub fn inlined(&self, name: &str) -> Vec<u64> {
        let mut found = Vec::new();
        for (part, file) in self.files.iter().enumerate() {
            for index in 0..file.headers.len() {
                let Some(unit) = file.unit(index) else { continue };
                let mut entries = unit.entries();
                while let Ok(Some(entry)) = entries.next_dfs() {
                    if entry.tag() != dw::DW_TAG_inlined_subroutine {
                        continue;
                    }
                    let at = At { part, unit: Rc::clone(&unit), entry: entry.clone() };
                    let is_called =
                        |attribute| self.text_of(&at, attribute).is_some_and(|known| known == name);
                    if is_called(dw::DW_AT_name) || is_called(dw::DW_AT_linkage_name) {
                        found.extend(self.first_address(&at).filter(|address| *address != 0));
                    }
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Where it is entered, or else begins.
    fn first_address(&self, at: &At) -> Option<u64> {
        let dwarf = &self.files[at.part].dwarf;
        let address = |attribute| {
            let value = at.entry.attr_value(attribute)?;
            dwarf.attr_address(&at.unit, value).ok().flatten()
        };
        let ranges = || {
            let value = at.entry.attr_value(dw::DW_AT_ranges)?;
            let mut ranges = dwarf.attr_ranges(&at.unit, value).ok().flatten()?;
            ranges.next().ok().flatten().map(|range| range.begin)
        };
        address(dw::DW_AT_entry_pc).or_else(|| address(dw::DW_AT_low_pc)).or_else(ranges)
    }
}
