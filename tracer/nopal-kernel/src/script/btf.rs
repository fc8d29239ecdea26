//! The type information the kernel wants of programs with callbacks: one type for the program, one for a callback. Pure.

use crate::bpf::FunctionInfo;

/// In the BTF of [`bytes`].
const PROGRAM: u32 = 3;
const CALLBACK: u32 = 4;

const KIND_INT: u32 = 1;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;

/// `int`, `int (*)()`, and two functions of it: a global one, the program, and a static one, its callbacks.
pub(super) fn bytes() -> Vec<u8> {
    let strings = b"\0int\0hit\0each\0";
    let (int, hit, each) = (1u32, 5u32, 9u32);
    let info = |kind: u32, vlen: u32| kind << 24 | vlen;
    let types: [u32; 13] = [
        // name, info, size; then the encoding of a signed number of 32 bits
        int,
        info(KIND_INT, 0),
        4,
        1 << 24 | 32, //
        // name, info, return type
        0,
        info(KIND_FUNC_PROTO, 0),
        1, //
        // name, info with the linkage, prototype
        hit,
        info(KIND_FUNC, 1),
        2, //
        each,
        info(KIND_FUNC, 0),
        2,
    ];
    let types_bytes = size_of_val(&types) as u32;
    // magic, version, flags; header length, offset and length of the types, of the strings
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, types_bytes, types_bytes, strings.len() as u32].iter().chain(&types) {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(strings);
    bytes
}

/// The program's own function at 0 and callbacks at these instructions.
pub(super) fn functions(callbacks: &[usize]) -> Vec<FunctionInfo> {
    let program = FunctionInfo { insn: 0, btf_type: PROGRAM };
    let each = callbacks.iter().map(|at| FunctionInfo { insn: *at as u32, btf_type: CALLBACK });
    std::iter::once(program).chain(each).collect()
}
