//! The auxiliary vector: what the kernel told a program when it started it.

use std::{fs, io};

const AT_BASE: u64 = 7;
const AT_ENTRY: u64 = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Auxv {
    /// Where the program begins.
    pub entry: u64,
    /// Where its dynamic linker is mapped; 0 if it has none.
    pub loader_base: u64,
}

impl Auxv {
    /// `None` if the process has ended: it has no vector any more.
    pub fn read(pid: u32) -> io::Result<Option<Auxv>> {
        Ok(Auxv::parse(&fs::read(format!("/proc/{pid}/auxv"))?))
    }

    fn parse(bytes: &[u8]) -> Option<Auxv> {
        let mut auxv = Auxv { entry: 0, loader_base: 0 };
        let (words, _) = bytes.as_chunks::<8>();
        for pair in words.chunks_exact(2) {
            let value = u64::from_le_bytes(pair[1]);
            match u64::from_le_bytes(pair[0]) {
                AT_BASE => auxv.loader_base = value,
                AT_ENTRY => auxv.entry = value,
                _ => {}
            }
        }
        (auxv.entry != 0).then_some(auxv)
    }
}
