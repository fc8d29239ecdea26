//! Files that are cut off, damaged or made to harm: one clear error or a sound answer, never a panic, bounded memory.

mod elf;

use elf::{BASE_ADDRESS, Elf};
use nopal_sdt::{Object, ReadError, read};

fn sample(is_64_bit: bool) -> Elf {
    let mut elf = Elf { is_64_bit, symbols: vec![("table", 0x4000, false)], ..Elf::default() };
    elf.probe("demo:start", 0x1010, BASE_ADDRESS, 0x5002, "8@%rax -4@8+table(%rip) 8@(%rax,%rcx,8)")
        .probe("demo:start", 0x1020, BASE_ADDRESS, 0x5002, "8@%rax -4@$1 1@%dil")
        .probe("demo:ghost", 0, BASE_ADDRESS, 0, "")
        .note("GNU", 3, &[7; 20])
        .note("nopal", 1, b"\x01\0\0\0\x01\0\x04\0demo\x02\0\x05\0start\x10\0\x02\0\x01\x01\x11\0\x01\0n");
    elf
}

/// What every reader of an object relies on, whatever the file.
fn check(object: &Object, n_file_bytes: usize) {
    for probe in &object.probes {
        assert!(!probe.sites.is_empty());
        for site in &probe.sites {
            assert!(site.address != 0 && site.code.len() <= 32);
            assert!(site.code.is_empty() || site.file_offset as usize + site.code.len() <= n_file_bytes);
        }
    }
}

#[test]
fn every_truncation() {
    for is_64_bit in [true, false] {
        let whole = sample(is_64_bit).bytes();
        assert_eq!(read(&whole[..]).expect("the whole file is fine").probes.len(), 1);
        let mut n_errors = 0;
        for len in 0..whole.len() {
            match read(&whole[..len]) {
                Ok(object) => check(&object, len),
                Err(ReadError::NotElf) => assert!(len < 16, "{len}"),
                Err(error) => {
                    assert!(
                        error.to_string().starts_with("a damaged or truncated ELF file"),
                        "{len}: {error}"
                    );
                    n_errors += 1;
                }
            }
        }
        // The section table is at the end: no cut goes unnoticed.
        assert!(n_errors >= whole.len() - 16, "{n_errors} of {}", whole.len());
    }
}

/// A random sequence that is the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

#[test]
fn flipped_bytes() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut n_read, mut n_refused) = (0, 0);
    for is_64_bit in [true, false] {
        let whole = sample(is_64_bit).bytes();
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..=random.next(8) {
                let at = random.next(bytes.len());
                bytes[at] = match random.next(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => bytes[at] ^ (1 << random.next(8)),
                    _ => random.next(256) as u8,
                };
            }
            match read(&bytes[..]) {
                Ok(object) => {
                    check(&object, bytes.len());
                    n_read += 1;
                }
                Err(_) => n_refused += 1,
            }
        }
    }
    assert!(n_read > 1000 && n_refused > 1000, "{n_read} read, {n_refused} refused");
}

#[test]
fn every_byte_at_its_extremes() {
    let whole = sample(true).bytes();
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Ok(object) = read(&bytes[..]) {
                check(&object, bytes.len());
            }
        }
    }
}

#[test]
fn one_note_section_listed_many_times() {
    // Two thousand sections over the same 40 KiB: 80 MiB of notes in a file of 200 KiB.
    let mut elf = Elf { n_note_sections: 2000, ..Elf::default() };
    while elf.notes.len() < 40 << 10 {
        elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, "8@%rax");
    }
    let error = read(&elf.bytes()[..]).expect_err("no real program is like that");
    assert!(matches!(error, ReadError::TooManyNotes { .. }), "{error}");
}

#[test]
fn a_note_section_larger_than_any_program_needs() {
    let mut elf = Elf::default();
    elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, "8@%rax");
    let one = elf.notes.clone();
    elf.notes = one.repeat((17 << 20) / one.len());
    assert!(matches!(read(&elf.bytes()[..]), Err(ReadError::TooManyNotes { .. })));
    // A megabyte of notes is odd and read: one site, and all others its duplicates.
    elf.notes = one.repeat((1 << 20) / one.len());
    let object = read(&elf.bytes()[..]).expect("a megabyte is read");
    assert_eq!((object.n_sites(), object.n_duplicates), (1, (1 << 20) / one.len() - 1));
}

#[test]
fn more_arguments_than_any_probe_has() {
    let mut elf = Elf::default();
    elf.probe("a:b", 0x1010, BASE_ADDRESS, 0, &"1@%al ".repeat(10_000));
    elf.probe("a:c", 0x1010, BASE_ADDRESS, 0, &"(".repeat(100_000));
    elf.probe("a:d", 0x1010, BASE_ADDRESS, 0, &format!("8@${}", "+1".repeat(50_000)));
    let object = read(&elf.bytes()[..]).expect("the file is well formed");
    assert_eq!(object.probes[0].sites[0].args.len(), 64);
    assert!(object.probes[1].sites[0].args[0].operand.is_err());
    assert!(object.probes[2].sites[0].args[0].operand.is_ok());
}
