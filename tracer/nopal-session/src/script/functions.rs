//! The functions of an ELF file or of the kernel, by name and by address.

use nopal_sdt::pattern::glob;
use object::{Object as _, ObjectSymbol as _, SymbolKind};
use std::fs;

/// Functions sorted by their address.
#[derive(Debug, Default)]
pub struct Functions {
    all: Vec<Function>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    address: u64,
    size: u64,
    name: String,
}

/// A file may claim any number of symbols.
const MAX_FUNCTIONS: usize = 4 << 20;

impl Functions {
    /// Of an ELF image, from both of its symbol tables. Nothing that can be read is no function.
    pub fn of_elf(bytes: &[u8]) -> Functions {
        let Ok(file) = object::File::parse(bytes) else { return Functions::default() };
        let all = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|s| s.kind() == SymbolKind::Text && s.is_definition() && s.address() != 0)
            .filter_map(|s| {
                let name = s.name().ok().filter(|name| !name.is_empty())?;
                Some(Function { address: s.address(), size: s.size(), name: name.to_owned() })
            })
            .take(MAX_FUNCTIONS)
            .collect();
        Functions::sorted(all)
    }

    /// Of the running kernel; empty where it hides its addresses.
    pub fn of_kernel() -> Functions {
        let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let line = |line: &str| {
            let mut parts = line.split_whitespace();
            let address = u64::from_str_radix(parts.next()?, 16).ok().filter(|a| *a != 0)?;
            let kind = parts.next()?;
            let name = parts.next().filter(|_| matches!(kind, "t" | "T" | "w" | "W"))?;
            Some(Function { address, size: 0, name: name.to_owned() })
        };
        Functions::sorted(text.lines().filter_map(line).take(MAX_FUNCTIONS).collect())
    }

    fn sorted(mut all: Vec<Function>) -> Functions {
        // Of several names of an address the one with a size and the shortest counts first.
        all.sort_by(|a, b| {
            (a.address, a.size == 0, a.name.len(), &a.name).cmp(&(
                b.address,
                b.size == 0,
                b.name.len(),
                &b.name,
            ))
        });
        all.dedup_by(|b, a| a.address == b.address && a.name == b.name);
        Functions { all }
    }

    /// The function an address is in, and how far from its start.
    pub fn at(&self, address: u64) -> Option<(String, u64)> {
        let after = self.all.partition_point(|f| f.address <= address);
        let start = self.all.get(after.checked_sub(1)?)?.address;
        let first = self.all.partition_point(|f| f.address < start);
        let function = &self.all[first];
        let offset = address - function.address;
        (function.size == 0 || offset < function.size).then(|| (function.name.clone(), offset))
    }

    /// The names of functions that a name or pattern stands for, as they are in the file: `main`, `std::*`,
    /// `Foo::bar` without its parameters.
    pub fn matching(&self, wanted: &str) -> Vec<String> {
        if let Some(exact) = self.all.iter().find(|f| f.name == wanted) {
            return vec![exact.name.clone()];
        }
        let is_pattern = wanted.contains(['*', '?', '[']);
        let mut found: Vec<String> = self
            .all
            .iter()
            .filter(|f| {
                if is_pattern && glob(wanted, &f.name) {
                    return true;
                }
                let Some(shown) = demangled(&f.name) else { return false };
                let without_parameters = shown.split('(').next().unwrap_or_default();
                if is_pattern {
                    glob(wanted, &shown) || glob(wanted, without_parameters)
                } else {
                    shown == wanted || without_parameters == wanted
                }
            })
            .map(|f| f.name.clone())
            .collect();
        found.sort();
        found.dedup();
        found
    }

    /// Names and addresses.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.all.iter().map(|f| (f.name.as_str(), f.address))
    }
}

/// A name of C++ or Rust as its author wrote it.
pub(super) fn demangled(name: &str) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // Without the hash.
        return Some(format!("{rust:#}"));
    }
    if !name.starts_with("_Z") {
        return None;
    }
    cpp_demangle::Symbol::new(name).ok()?.demangle().ok()
}

/// The libraries a program names.
pub(super) fn libraries_of(path: &std::path::Path) -> Vec<String> {
    let Ok(image) = nopal_engine::target::Image::open(path) else { return Vec::new() };
    let Ok(file) = object::read::elf::ElfFile64::<object::Endianness>::parse(image.bytes()) else {
        return Vec::new();
    };
    let Ok(Some((dynamic, link))) = file.elf_section_table().dynamic(file.endian(), file.data()) else {
        return Vec::new();
    };
    let Ok(strings) = file.elf_section_table().strings(file.endian(), file.data(), link) else {
        return Vec::new();
    };
    use object::read::elf::Dyn as _;
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
    fn an_address_is_in_the_function_before_it() {
        let f = |address, size, name: &str| Function { address, size, name: name.into() };
        let functions =
            Functions::sorted(vec![f(0x20, 8, "b"), f(0x10, 8, "a"), f(0x10, 8, "a_alias"), f(0x30, 0, "c")]);
        for (address, want) in [
            (0xf, None),
            (0x10, Some(("a", 0))),
            (0x17, Some(("a", 7))),
            (0x18, None),
            (0x21, Some(("b", 1))),
            (0x99, Some(("c", 0x69))),
        ] {
            assert_eq!(functions.at(address), want.map(|(n, o)| (n.to_owned(), o)), "{address:#x}");
        }
    }

    #[test]
    fn files_that_are_no_elf_have_none() {
        assert_eq!(Functions::of_elf(b"#!/bin/sh").iter().count(), 0);
        let own = fs::read("/proc/self/exe").expect("a program may read itself");
        assert!(Functions::of_elf(&own).iter().any(|(name, _)| name == "main"));
    }
}
