//! Debug information that the compiler has put aside (`-gsplit-dwarf`): a file `.dwo` for each unit, or all of them as one
//! package `.dwp` beside the program. DWARF 5, section 7.3.2 and appendix F.

use crate::find::{self, Reader};
use crate::part::Part;
use gimli::{AttributeValue, DwoId, LittleEndian, SectionId};
use nopal_proc::Image;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// No more files are opened for one program.
const MAX_FILES: usize = 4096;

/// What the units of a file stand in for. Files that are not there, or are of another build, are left out.
pub(crate) fn parts(path: &Path, own: &Part) -> Vec<Part> {
    let mut found = Vec::new();
    let mut package = None;
    let mut n_bytes = 0;
    for index in 0..own.headers.len() {
        let Some(skeleton) = own.unit(index) else { continue };
        let (Some(id), Some(name)) = (skeleton.dwo_id, file_of(own, &skeleton)) else { continue };
        if found.len() >= MAX_FILES {
            break;
        }
        let package = package.get_or_insert_with(|| package_of(path, &mut n_bytes));
        let packed = package.as_ref().and_then(|package| package.find_cu(id, &own.dwarf).ok().flatten());
        let dwarf = packed.or_else(|| load(path, &name, id, own, &mut n_bytes));
        found.extend(dwarf.map(|dwarf| Part::split(dwarf, (index, skeleton))));
    }
    found
}

/// The name of a unit's file, seen from where it was compiled.
fn file_of(own: &Part, unit: &gimli::Unit<Reader>) -> Option<PathBuf> {
    let text = |value: AttributeValue<Reader>| own.dwarf.attr_string(unit, value).ok();
    let name = text(unit.dwo_name().ok()??)?;
    let folder = unit.comp_dir.as_ref().map(|folder| PathBuf::from(OsStr::from_bytes(folder.bytes())));
    Some(folder.unwrap_or_default().join(OsStr::from_bytes(name.bytes())))
}

/// `app.dwp` beside `app`.
fn package_of(path: &Path, n_bytes: &mut u64) -> Option<gimli::DwarfPackage<Reader>> {
    let mut name = path.as_os_str().to_owned();
    name.push(".dwp");
    let image = Image::open(Path::new(&name)).ok()?;
    let file = object::File::parse(image.bytes()).ok()?;
    let empty = Reader::new(Arc::default(), LittleEndian);
    gimli::DwarfPackage::load(|id| section(&file, id, n_bytes), empty).ok()
}

/// The file where it was compiled, or beside the program, if it is of the same build.
fn load(path: &Path, name: &Path, id: DwoId, own: &Part, n_bytes: &mut u64) -> Option<gimli::Dwarf<Reader>> {
    let beside = path.parent().zip(name.file_name()).map(|(folder, name)| folder.join(name));
    std::iter::once(name.to_owned()).chain(beside).find_map(|candidate| {
        let image = Image::open(&candidate).ok()?;
        let file = object::File::parse(image.bytes()).ok()?;
        let mut dwarf = gimli::Dwarf::load(|id| section(&file, id, n_bytes)).ok()?;
        dwarf.make_dwo(&own.dwarf);
        let mut units = dwarf.units();
        while let Some(header) = units.next().ok()? {
            if dwarf.unit(header).ok()?.dwo_id == Some(id) {
                return Some(dwarf);
            }
        }
        None
    })
}

fn section<'a>(
    file: &object::File<'a, nopal_proc::Bytes<'a>>,
    id: SectionId,
    n_bytes: &mut u64,
) -> Result<Reader, gimli::Error> {
    let bytes = match id.dwo_name() {
        // Too much of it is as none.
        Some(name) => find::bytes(file, name, n_bytes).map_err(|_| gimli::Error::OffsetOutOfBounds(0))?,
        None => Arc::default(),
    };
    Ok(Reader::new(bytes, LittleEndian))
}
