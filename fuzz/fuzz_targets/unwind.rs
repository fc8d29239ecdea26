//! Unwind tables of a file that anybody may have made, and a stack that its program may have left: the callers come to an
//! end, whatever the tables say.
#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use nopal_proc::unwind::{StackTop, Tables, unwind_by};
use object::{Object as _, ObjectSection as _};

/// This program's own file up to and with its section table is too large to be changed at random; a small library is not.
fn library() -> &'static [u8] {
    static LIBRARY: OnceLock<Vec<u8>> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let names = ["/lib/x86_64-linux-gnu/libdl.so.2", "/lib64/libdl.so.2", "/usr/lib/libdl.so.2"];
        names.iter().find_map(|name| std::fs::read(name).ok()).expect("a small library")
    })
}

const MAX_FRAMES: usize = 64;

/// Where the unwind tables of the library are in its file.
fn tables() -> [(usize, usize); 2] {
    static TABLES: OnceLock<[(usize, usize); 2]> = OnceLock::new();
    *TABLES.get_or_init(|| {
        let file = object::File::parse(library()).expect("ELF");
        [".eh_frame", ".eh_frame_hdr"].map(|name| {
            let (at, size) = file.section_by_name(name).and_then(|s| s.file_range()).expect("a table");
            (at as usize, size as usize)
        })
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((head, rest)) = data.split_at_checked(13) else { return };
    let number = |at: usize| u64::from(u32::from_le_bytes(head[at..at + 4].try_into().unwrap()));
    let (ip, bp) = (number(0), number(4));
    let n_frames = usize::from(u16::from_le_bytes([head[8], head[9]]));
    let (frames, rest) = rest.split_at(n_frames.min(rest.len()));
    let (index, stack) = rest.split_at(usize::from(head[10]).min(rest.len()));
    let mut file = library().to_vec();
    for ((at, size), bytes) in tables().into_iter().zip([frames, index]) {
        let n = bytes.len().min(size);
        file[at..at + n].copy_from_slice(&bytes[..n]);
    }
    // A byte of the header or of a section's entry.
    let at = usize::from(u16::from_le_bytes([head[11], head[12]]));
    if let Some(byte) = file.get_mut(at) {
        *byte = head[8];
    }
    let Some(tables) = Tables::read(&file[..]) else { return };
    for ip in [ip, 0x1000, 0x1010, ip % 0x4000] {
        let mut found = Vec::new();
        let top = StackTop { ip, sp: 0x7fff_0000, bp: 0x7fff_0000 + bp % 4096, bytes: stack };
        unwind_by(&tables, top, MAX_FRAMES, &mut found);
        assert!(found.len() <= MAX_FRAMES);
    }
});
