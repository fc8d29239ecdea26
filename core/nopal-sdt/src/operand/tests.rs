//! Tables of operands: every form of the grammar, and every operand that real packages have.

use super::{Arch, Base, Operand, Place, Symbols, parse, parse_with, split};

/// An operand in words, short enough for a table.
fn show(operand: &Operand) -> String {
    let kind = match (operand.is_float, operand.is_signed) {
        (true, _) => 'f',
        (false, true) => 'i',
        (false, false) => 'u',
    };
    let register = |r: &super::Register| {
        format!("r{}/{}{}", r.number, r.width_bytes, if r.is_high_byte { "h" } else { "" })
    };
    let place = match &operand.place {
        Place::Register(r) => register(r),
        Place::Vector(number) => format!("v{number}"),
        Place::Constant(value) => format!("={value}"),
        Place::Memory(memory) => {
            let base = match &memory.base {
                Base::None => "0".to_owned(),
                Base::Register(r) => register(r),
                Base::Symbol { name, address: None } => format!("{name}?"),
                Base::Symbol { name, address: Some(address) } => format!("{name}@{address:#x}"),
            };
            let index = memory.index.as_ref().map(|(r, scale)| format!("+{}*{scale}", register(r)));
            format!("[{base}{}{:+}]", index.unwrap_or_default(), memory.displacement)
        }
    };
    format!("{kind}{} {place}", u32::from(operand.size_bytes) * 8)
}

#[track_caller]
fn check(arch: Arch, rows: &[(&str, &str)]) {
    for (text, want) in rows {
        let got =
            parse(arch, text).map_or_else(|error| format!("! {}", error.reason), |operand| show(&operand));
        assert_eq!(got, *want, "operand {text}");
    }
}

#[test]
fn x86_64_places() {
    check(
        Arch::X86_64,
        &[
            ("8@%rax", "u64 r0/8"),
            ("-4@%eax", "i32 r0/4"),
            ("2@%ax", "u16 r0/2"),
            ("1@%al", "u8 r0/1"),
            ("1@%ah", "u8 r0/1h"),
            ("-1@%bh", "i8 r3/1h"),
            ("1@%ch", "u8 r1/1h"),
            ("1@%dh", "u8 r2/1h"),
            ("1@%dil", "u8 r7/1"),
            ("1@%sil", "u8 r6/1"),
            ("1@%bpl", "u8 r5/1"),
            ("1@%spl", "u8 r4/1"),
            ("4@%r13d", "u32 r13/4"),
            ("-2@%r13w", "i16 r13/2"),
            ("1@%r8b", "u8 r8/1"),
            ("1@%r15l", "u8 r15/1"),
            ("8@%r9", "u64 r9/8"),
            ("4@%rdx", "u32 r2/8"),
            ("8@-88(%rbp)", "u64 [r5/8-88]"),
            ("8@8(%rsp)", "u64 [r4/8+8]"),
            ("8@(%rax)", "u64 [r0/8+0]"),
            ("8@(%rax,%rcx)", "u64 [r0/8+r1/8*1+0]"),
            ("8@(%rax,%rcx,8)", "u64 [r0/8+r1/8*8+0]"),
            ("-4@16(%rax, %rcx, 4)", "i32 [r0/8+r1/8*4+16]"),
            ("8@-8(,%rcx,8)", "u64 [0+r1/8*8-8]"),
            ("8@0x10(%rdi)", "u64 [r7/8+16]"),
            ("8@$0", "u64 =0"),
            ("-4@$-1", "i32 =-1"),
            ("8@$0xffffffffffffffff", "u64 =-1"),
            ("8@$18446744073709551615", "u64 =-1"),
            ("8@$-9223372036854775808", "u64 =-9223372036854775808"),
            ("4@$010", "u32 =8"),
            ("4@$40+2", "u32 =42"),
            ("-4@NBuffers(%rip)", "i32 [NBuffers?+0]"),
            ("-4@40+CheckpointStats(%rip)", "i32 [CheckpointStats?+40]"),
            ("-4@CheckpointStats+40(%rip)", "i32 [CheckpointStats?+40]"),
            ("-4@-4+tail(%rip)", "i32 [tail?-4]"),
            ("-4@tail-4(%rip)", "i32 [tail?-4]"),
            ("8@.LC0(%rip)", "u64 [.LC0?+0]"),
            ("8@_ZN4core3fmtE.llvm.123(%rip)", "u64 [_ZN4core3fmtE.llvm.123?+0]"),
            ("8@6295616", "u64 [0+6295616]"),
            ("8@0x601040", "u64 [0+6295616]"),
            ("-4@counter", "i32 [counter?+0]"),
            ("8f@%rax", "f64 r0/8"),
            ("4f@%edx", "f32 r2/4"),
            ("8f@%xmm0", "f64 v0"),
            ("-8@%xmm15", "i64 v15"),
            ("16@%xmm31", "u128 v31"),
            ("32@%ymm1", "u256 v1"),
            ("8f@-16(%rbp)", "f64 [r5/8-16]"),
            ("%rax", "u64 r0/8"),
            ("%al", "u8 r0/1"),
            ("-8(%rbp)", "u64 [r5/8-8]"),
        ],
    );
}

#[test]
fn x86_64_refusals() {
    check(
        Arch::X86_64,
        &[
            ("", "! it is empty"),
            ("8@", "! it is empty"),
            ("3@%rax", "! a value of 3 bytes does not exist"),
            ("300@%rax", "! a value of 300 bytes does not exist"),
            ("1f@%al", "! a float of 1 bytes does not exist"),
            ("8@%rxx", "! `%rxx` is not a register that holds values"),
            ("8@%r16", "! `%r16` is not a register that holds values"),
            ("8@%r08", "! `%r08` is not a register that holds values"),
            ("8@%st(0)", "! `%st(0)` is not a register that holds values"),
            ("8@%xmm32", "! `%xmm32` is not a register that holds values"),
            ("8@%", "! `%` is not a register that holds values"),
            ("8@%fs:0x28", "! it is relative to a segment register (thread-local storage)"),
            ("8@%fs:errno@tpoff", "! it is relative to a segment register (thread-local storage)"),
            ("8@sym@GOTPCREL(%rip)", "! `sym` goes through a linker table (GOTPCREL)"),
            ("8@16(%rip)", "! it is relative to `%rip` without a symbol"),
            ("8@sym(%rip,%rax)", "! `%rip` takes no index"),
            ("8@(%rax,%rsp)", "! the stack pointer cannot be an index"),
            ("8@(%rax,%rcx,3)", "! `3` is not a scale factor"),
            ("8@(%rax,%rcx,8,1)", "! it has more than base, index and scale"),
            ("8@(%ax)", "! `%ax` cannot be part of an address"),
            ("8@()", "! it has neither base nor index"),
            ("8@8(%rsp", "! its `)` is missing"),
            ("8@$", "! a number is missing"),
            ("8@$.LC1", "! the address of `.LC1` is not known before the program runs"),
            ("8@table(,%rax,8)", "! the address of `table` is not known before the program runs"),
            ("8@a-b(%rip)", "! `a-b` is a difference or sum of symbols"),
            ("8@a+b(%rip)", "! `a+b` is a difference or sum of symbols"),
            ("8@$99999999999999999999", "! `99999999999999999999` is not a number of 64 bits"),
            ("8@$0x", "! `0x` is not a number of 64 bits"),
            ("8@**", "! `**` is not a symbol"),
        ],
    );
}

#[test]
fn arm64_places() {
    check(
        Arch::Arm64,
        &[
            ("8@x0", "u64 r0/8"),
            ("-4@x21", "i32 r21/8"),
            ("4@w30", "u32 r30/4"),
            ("8@sp", "u64 r31/8"),
            ("8@fp", "u64 r29/8"),
            ("8@lr", "u64 r30/8"),
            ("8@xzr", "u64 =0"),
            ("8@[x1]", "u64 [r1/8+0]"),
            ("8@[sp, 8]", "u64 [r31/8+8]"),
            ("8@[sp,8]", "u64 [r31/8+8]"),
            ("-4@[x29, -20]", "i32 [r29/8-20]"),
            ("-4@[x29, #-20]", "i32 [r29/8-20]"),
            ("8@[x1, x2]", "u64 [r1/8+r2/8*1+0]"),
            ("8@[x1, x2, lsl 3]", "u64 [r1/8+r2/8*8+0]"),
            ("8@[x1, x2, lsl #3]", "u64 [r1/8+r2/8*8+0]"),
            ("8@[x1, w2, uxtw #2]", "u64 [r1/8+r2/4*4+0]"),
            ("8@[x21, #:lo12:.LANCHOR2]", "u64 [.LANCHOR2?+0]"),
            ("8@[x21, :lo12:table+16]", "u64 [table?+16]"),
            ("-4@0", "i32 =0"),
            ("-4@-1", "i32 =-1"),
            ("8@#255", "u64 =255"),
            ("-8@v0", "i64 v0"),
            ("8f@d31", "f64 v31"),
            ("4f@s7", "f32 v7"),
        ],
    );
}

#[test]
fn arm64_refusals() {
    check(
        Arch::Arm64,
        &[
            ("8@x31", "! the address of `x31` is not known before the program runs"),
            ("8@[w0]", "! `w0` cannot be the base of an address"),
            ("8@[x0", "! its `]` is missing, or it writes its base back"),
            ("8@[x0, 8]!", "! its `]` is missing, or it writes its base back"),
            ("8@[x1, w2, sxtw #2]", "! an index extended with `sxtw` is not supported"),
            ("8@[x1, x2, lsl 9]", "! `9` is not a shift of an index"),
            ("8@[x1, 8, lsl 3]", "! only a register can be shifted"),
            ("8@[x1, #:lo12:16]", "! `:lo12:` has no symbol"),
            ("8@[x1, x2, lsl 3, 4]", "! it has more than base, index and shift"),
            ("8@[]", "! `` cannot be the base of an address"),
        ],
    );
}

/// One symbol, in a file that stays where it was linked.
struct Fixed;

impl Symbols for Fixed {
    fn address(&mut self, name: &str) -> Option<u64> {
        (name == "table").then_some(0x4000)
    }

    fn fixed_address(&mut self, name: &str) -> Option<u64> {
        self.address(name)
    }
}

#[test]
fn symbols_become_addresses() {
    for (arch, text, want) in [
        (Arch::X86_64, "8@8+table(%rip)", "u64 [table@0x4000+8]"),
        (Arch::X86_64, "8@other(%rip)", "u64 [other?+0]"),
        (Arch::X86_64, "8@$table+1", "u64 =16385"),
        (Arch::X86_64, "8@table+8(,%rax,4)", "u64 [0+r0/8*4+16392]"),
        (Arch::X86_64, "8@table(%rbx)", "u64 [r3/8+16384]"),
        (Arch::Arm64, "8@[x21, #:lo12:table]", "u64 [table@0x4000+0]"),
        (Arch::Arm64, "8@table", "u64 =16384"),
    ] {
        let got = parse_with(arch, text, &mut Fixed).map(|operand| show(&operand));
        assert_eq!(got.as_deref(), Ok(want), "operand {text}");
    }
}

#[test]
fn arguments_are_split_at_blanks_outside_brackets() {
    for (text, want) in [
        ("", &[][..]),
        ("   ", &[]),
        ("8@%rax", &["8@%rax"]),
        ("8@%rax -4@$-1", &["8@%rax", "-4@$-1"]),
        (" 8@%rax\t-4@%ebx ", &["8@%rax", "-4@%ebx"]),
        ("8@[sp, 8] 4@[x1, x2, lsl 3] 8@x0", &["8@[sp, 8]", "4@[x1, x2, lsl 3]", "8@x0"]),
        ("8@(%rax, %rcx, 8) 1@%al", &["8@(%rax, %rcx, 8)", "1@%al"]),
        ("8@[sp, 8 4@x1 -4f@x2", &["8@[sp, 8", "4@x1", "-4f@x2"]),
        ("%rax %rbx", &["%rax", "%rbx"]),
        ("8@) ( 4@x", &["8@)", "(", "4@x"]),
        ("8@x1 \r", &["8@x1"]),
        ("8@x1\n8@x2\u{2003}", &["8@x1", "8@x2\u{2003}"]),
        ("8@[x1  8@x2", &["8@[x1", "8@x2"]),
    ] {
        assert_eq!(split(text), want, "arguments {text:?}");
    }
}

#[test]
fn every_operand_of_debian_is_read() {
    let mut n_read = [0; 2];
    for line in include_str!("../../tests/data/operands.tsv").lines().filter(|line| !line.starts_with('#')) {
        let (arch, text) = line.split_once('\t').expect("two columns");
        let arch = arch_named(arch);
        let operand = parse(arch, text).unwrap_or_else(|error| panic!("{text}: {}", error.reason));
        let size: i32 = text.split(['@', 'f']).next().and_then(|size| size.parse().ok()).expect("a size");
        assert_eq!(i32::from(operand.size_bytes), size.abs(), "{text}");
        assert_eq!(operand.is_signed, size < 0, "{text}");
        assert_eq!(operand.is_float, text.contains("f@"), "{text}");
        n_read[arch as usize] += 1;
    }
    assert!(n_read[0] > 200 && n_read[1] > 100, "{n_read:?}");
}

#[test]
fn whole_argument_texts_of_debian_are_split() {
    for line in include_str!("../../tests/data/arguments.tsv").lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<_> = line.split('\t').collect();
        let [arch, n_args, text] = columns[..] else { panic!("three columns: {line}") };
        let args = split(text);
        assert_eq!(args.len().to_string(), n_args, "{text}");
        assert!(args.iter().all(|arg| parse(arch_named(arch), arg).is_ok()), "{text}");
    }
}

fn arch_named(name: &str) -> Arch {
    match name {
        "amd64" => Arch::X86_64,
        "arm64" => Arch::Arm64,
        _ => panic!("architecture {name}"),
    }
}
