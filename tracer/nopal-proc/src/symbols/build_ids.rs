//! Addresses as those want them who have the files elsewhere: the build id of the file that is mapped there, and the place in it.

use super::Symbolizer;
use object::Object as _;
use object::read::elf::ElfFile64;

impl Symbolizer {
    /// The build id and the place in the file of an address of a process.
    pub fn build_id(&mut self, pid: u32, address: u64) -> Option<(Vec<u8>, u64)> {
        self.catch_up();
        if self.range_of(pid, address).is_none() {
            self.remember(pid);
        }
        let range = self.range_of(pid, address)?;
        let image = &self.files[range.file].image;
        let file = ElfFile64::<object::Endianness, _>::parse(image.bytes()).ok()?;
        Some((file.build_id().ok()??.to_vec(), address - range.start + range.offset))
    }
}
