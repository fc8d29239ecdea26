//! Flags of the kernel's allocations, `%gr`: as the kernel writes them in its own records. The bits are those of
//! `include/linux/gfp_types.h` since 6.0.

/// What stands for several bits, the most first.
const COMBINED: [(u64, &str); 11] = [
    (0x1c_24ca, "GFP_TRANSHUGE"),
    (0x1c_20ca, "GFP_TRANSHUGE_LIGHT"),
    (0x10_0cca, "GFP_HIGHUSER_MOVABLE"),
    (0x10_0cc2, "GFP_HIGHUSER"),
    (0x10_0cc0, "GFP_USER"),
    (0x40_0cc0, "GFP_KERNEL_ACCOUNT"),
    (0xcc0, "GFP_KERNEL"),
    (0xc40, "GFP_NOFS"),
    (0x820, "GFP_ATOMIC"),
    (0xc00, "GFP_NOIO"),
    (0x2800, "GFP_NOWAIT"),
];

/// From the lowest bit on; the tenth is not used.
const SINGLE: [&str; 27] = [
    "GFP_DMA",
    "__GFP_HIGHMEM",
    "GFP_DMA32",
    "__GFP_MOVABLE",
    "__GFP_RECLAIMABLE",
    "__GFP_HIGH",
    "__GFP_IO",
    "__GFP_FS",
    "__GFP_ZERO",
    "",
    "__GFP_DIRECT_RECLAIM",
    "__GFP_KSWAPD_RECLAIM",
    "__GFP_WRITE",
    "__GFP_NOWARN",
    "__GFP_RETRY_MAYFAIL",
    "__GFP_NOFAIL",
    "__GFP_NORETRY",
    "__GFP_MEMALLOC",
    "__GFP_COMP",
    "__GFP_NOMEMALLOC",
    "__GFP_HARDWALL",
    "__GFP_THISNODE",
    "__GFP_ACCOUNT",
    "__GFP_ZEROTAGS",
    "__GFP_SKIP_ZERO",
    "__GFP_SKIP_KASAN",
    "__GFP_NOLOCKDEP",
];

/// `GFP_KERNEL|__GFP_ZERO`; bits without a name as a number.
pub(super) fn flags(flags: u64) -> String {
    let (mut rest, mut names) = (flags, Vec::new());
    for (bits, name) in COMBINED {
        if rest & bits == bits {
            names.push(name.to_owned());
            rest &= !bits;
        }
    }
    for (bit, name) in SINGLE.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
        if rest & 1 << bit != 0 {
            names.push((*name).to_owned());
            rest &= !(1 << bit);
        }
    }
    if rest != 0 {
        names.push(format!("{rest:#x}"));
    }
    if names.is_empty() { "0".to_owned() } else { names.join("|") }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_of_bits() {
        // Those of bpftrace 0.27, but for bits that it has no name for.
        for (bits, want) in [
            (0, "0"),
            (1, "GFP_DMA"),
            (8, "__GFP_MOVABLE"),
            (0x400, "__GFP_DIRECT_RECLAIM"),
            (0xcc0, "GFP_KERNEL"),
            (0xdc0, "GFP_KERNEL|__GFP_ZERO"),
            (0x10_0cca, "GFP_HIGHUSER_MOVABLE"),
            (0x14_0dca, "GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP"),
            (0x8000_0000, "0x80000000"),
        ] {
            assert_eq!(super::flags(bits), want);
        }
    }
}
