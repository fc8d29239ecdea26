//! Names of places in files, for addresses that were written down when the files were mapped: only while a file is the one it
//! was, by its build id.

use super::Image;
use super::demangle::demangle;
use super::symbols::FileSymbols;
use object::Object as _;
use object::read::elf::ElfFile64;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// By path and build id: nothing for what is not there any more.
type Known = HashMap<(PathBuf, Vec<u8>), Option<FileSymbols>>;

/// Finds names, and remembers the files. May be shared by threads.
#[derive(Debug, Default)]
pub struct FileNames(Mutex<Known>);

impl FileNames {
    /// The function at a place in a file, and how far behind its beginning. A file without a build id has no names, as nobody can
    /// say whether it is the same.
    pub fn at(&self, path: &Path, build_id: &[u8], file_offset: u64) -> Option<(String, u64)> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let file =
            known.entry((path.to_owned(), build_id.to_vec())).or_insert_with(|| symbols_of(path, build_id));
        let symbols = file.as_ref()?;
        let address = symbols.address_of(file_offset)?;
        let function = symbols.at(address)?;
        Some((demangle(function.name), address - function.address))
    }
}

fn symbols_of(path: &Path, build_id: &[u8]) -> Option<FileSymbols> {
    let image = Image::open(path).ok()?;
    let file = ElfFile64::<object::Endianness, _>::parse(image.bytes()).ok()?;
    let own = file.build_id().ok().flatten()?;
    (!build_id.is_empty() && own == build_id).then(|| FileSymbols::read(image.bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_file_has_no_names() {
        let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
        let image = Image::open(libc).unwrap();
        let file = ElfFile64::<object::Endianness, _>::parse(image.bytes()).unwrap();
        let id = file.build_id().unwrap().unwrap().to_vec();
        let symbols = FileSymbols::read(image.bytes());
        let malloc = symbols.named("malloc")[0].address;
        let offset = symbols.file_offset_of(malloc).unwrap();
        let names = FileNames::default();
        let (name, distance) = names.at(libc, &id, offset + 3).unwrap();
        assert!(name.contains("malloc") && distance == 3, "{name}+{distance}");
        assert_eq!(names.at(libc, &[1, 2, 3], offset), None);
        assert_eq!(names.at(libc, &[], offset), None);
        assert_eq!(names.at(Path::new("/nonexistent"), &id, offset), None);
    }
}
