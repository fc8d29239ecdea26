//! The functions and libraries that a file names.

use nopal_proc::Image;
use nopal_proc::demangle::{demangle, piece_of};
use nopal_proc::symbols::FileSymbols;
use nopal_sdt::pattern::glob;
use object::read::elf::Dyn as _;
use object::{Object as _, ReadRef};
use std::path::Path;

/// The names of functions that a name or pattern stands for, as they are in the file: `main`, `std::*`, `Foo::bar`
/// without its parameters.
pub(crate) fn matching(symbols: &FileSymbols, wanted: &str) -> Vec<String> {
    let exact = symbols.named(wanted);
    // `operator*` is a name before it is a pattern.
    let mut found: Vec<String> = if exact.is_empty() && wanted.contains(['*', '?', '[']) {
        let piece = piece_of(wanted);
        let fits = |name: &str| {
            glob(wanted, name)
                || piece.is_none_or(|piece| name.contains(piece)) && {
                    let shown = demangle(name);
                    shown != name
                        && (glob(wanted, &shown) || glob(wanted, shown.split('(').next().unwrap_or_default()))
                }
        };
        // `name.cold` is a part of `name` that compilers have put elsewhere.
        let is_whole = |name: &str| !name.ends_with(".cold") && !name.contains(".cold.");
        symbols
            .functions()
            .filter(|f| f.address != 0 && is_whole(f.name) && fits(f.name))
            .map(|f| f.name.to_owned())
            .collect()
    } else {
        exact.iter().map(|f| f.name.to_owned()).collect()
    };
    found.sort();
    found.dedup();
    found
}

/// Where the kernel jumps to when it has loaded the program.
pub(crate) fn entry<'data, R: ReadRef<'data>>(bytes: R) -> Option<u64> {
    object::File::parse(bytes).ok().map(|file| file.entry()).filter(|entry| *entry != 0)
}

/// The names of that; `_start`, usually.
pub(crate) fn entry_functions<'data, R: ReadRef<'data>>(symbols: &FileSymbols, bytes: R) -> Vec<String> {
    let entry = entry(bytes);
    symbols.functions().filter(|f| Some(f.address) == entry).map(|f| f.name.to_owned()).collect()
}

/// The libraries a program names.
pub(crate) fn libraries_of(path: &Path) -> Vec<String> {
    let Ok(image) = Image::open(path) else { return Vec::new() };
    let Ok(file) = object::read::elf::ElfFile64::<object::Endianness, _>::parse(image.bytes()) else {
        return Vec::new();
    };
    let Ok(Some((dynamic, link))) = file.elf_section_table().dynamic(file.endian(), file.data()) else {
        return Vec::new();
    };
    let Ok(strings) = file.elf_section_table().strings(file.endian(), file.data(), link) else {
        return Vec::new();
    };
    dynamic
        .iter()
        .filter(|entry| entry.d_tag(file.endian()) == object::elf::DT_NEEDED)
        .filter_map(|entry| strings.get(u32::try_from(entry.d_val(file.endian())).ok()?).ok())
        .filter_map(|name| std::str::from_utf8(name).ok())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_functions_by_name_and_pattern() {
        let own = std::fs::read("/proc/self/exe").expect("a program may read itself");
        let symbols = FileSymbols::read(&own[..]);
        assert_eq!(matching(&symbols, "main"), ["main"]);
        assert!(!matching(&symbols, "*own_functions_by_name_and_pat*").is_empty());
        assert!(matching(&symbols, "no_such_function_anywhere").is_empty());
        let program = std::env::current_exe().expect("the test has a path");
        assert!(libraries_of(&program).iter().any(|name| name.starts_with("libc.so")));
        assert_eq!(entry_functions(&symbols, &own[..]), ["_start"]);
        assert!(libraries_of(Path::new("/etc/passwd")).is_empty());
    }
}
