//! One file of debug information: its units, the addresses they describe and the functions they have.

use crate::find::Reader;
use gimli::{UnitOffset, constants as dw};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Which part of the information several files share.
pub(crate) const COMMON: usize = 1;

/// The file's own information, what it shares with others, or a file that it was split into.
#[derive(Debug)]
pub(crate) struct Part {
    pub dwarf: Arc<gimli::Dwarf<Reader>>,
    pub headers: Vec<gimli::UnitHeader<Reader>>,
    units: RefCell<HashMap<usize, Rc<gimli::Unit<Reader>>>>,
    /// Of a file that another was split into: the unit that stands in for it there, which has what depends on addresses.
    skeleton: Option<(usize, Rc<gimli::Unit<Reader>>)>,
}

impl Part {
    pub(crate) fn new(dwarf: Arc<gimli::Dwarf<Reader>>) -> Part {
        let mut headers = Vec::new();
        let mut units = dwarf.units();
        while let Ok(Some(header)) = units.next() {
            headers.push(header);
        }
        Part { dwarf, headers, units: RefCell::default(), skeleton: None }
    }

    /// Of a file that `skeleton`, a unit of the first, stands for there.
    pub(crate) fn split(dwarf: gimli::Dwarf<Reader>, skeleton: (usize, Rc<gimli::Unit<Reader>>)) -> Part {
        Part { skeleton: Some(skeleton), ..Part::new(Arc::new(dwarf)) }
    }

    /// The unit of the first file that stands in for it.
    pub(crate) fn stands_in(&self) -> Option<usize> {
        self.skeleton.as_ref().map(|(index, _)| *index)
    }

    pub(crate) fn unit(&self, index: usize) -> Option<Rc<gimli::Unit<Reader>>> {
        if let Some(known) = self.units.borrow().get(&index) {
            return Some(Rc::clone(known));
        }
        let mut unit = self.dwarf.unit(self.headers.get(index)?.clone()).ok()?;
        if let Some((_, skeleton)) = &self.skeleton {
            unit.copy_relocated_attributes(skeleton);
        }
        let unit = Rc::new(unit);
        self.units.borrow_mut().insert(index, Rc::clone(&unit));
        Some(unit)
    }

    /// First and last address of what each unit describes.
    pub(crate) fn ranges(&self) -> Vec<(u64, u64, usize)> {
        let mut found = Vec::new();
        for index in 0..self.headers.len() {
            let Some(unit) = self.unit(index) else { continue };
            let Ok(mut ranges) = self.dwarf.unit_ranges(&unit) else { continue };
            while let Ok(Some(range)) = ranges.next() {
                if range.begin < range.end {
                    found.push((range.begin, range.end - 1, index));
                }
            }
        }
        found
    }

    /// Where the functions of a unit begin, and what describes each.
    pub(crate) fn functions(&self, index: usize) -> Option<HashMap<u64, UnitOffset>> {
        let unit = self.unit(index)?;
        let mut found = HashMap::new();
        let mut entries = unit.entries_raw(None).ok()?;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation().ok()? else { continue };
            if abbreviation.tag() != dw::DW_TAG_subprogram {
                entries.skip_attributes(abbreviation.attributes()).ok()?;
                continue;
            }
            let mut low = None;
            for attribute in abbreviation.attributes() {
                let attribute = entries.read_attribute(*attribute).ok()?;
                if attribute.name() == dw::DW_AT_low_pc {
                    low = self.dwarf.attr_address(&unit, attribute.value()).ok().flatten();
                } else if attribute.name() == dw::DW_AT_ranges && low.is_none() {
                    // Its first part is where it begins.
                    let ranges = self.dwarf.attr_ranges(&unit, attribute.value()).ok().flatten();
                    low = ranges.and_then(|mut ranges| ranges.next().ok().flatten()).map(|range| range.begin);
                }
            }
            if let Some(low) = low.filter(|low| *low != 0) {
                found.entry(low).or_insert(offset);
            }
        }
        Some(found)
    }
}
