//! Every operation by itself.

use crate::{MEMORY, agree, program, shown};
use nopal_kernel::script::{ScriptDoor, ScriptOptions};
use nopal_program::op::{Binary, Builtin, Op, Slot, Space, Unary};
use nopal_program::{Code, PointKind};

pub(crate) const NUMBERS: [u64; 12] = [
    0,
    1,
    2,
    7,
    63,
    64,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
    0xffff_ffff,
    0x1234_5678_9abc_def0,
    0xffff_ffff_ffff_fff9,
];

pub(crate) const BINARY: [Binary; 23] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::DivUnsigned,
    Binary::DivSigned,
    Binary::RemUnsigned,
    Binary::RemSigned,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::Shl,
    Binary::ShrUnsigned,
    Binary::ShrSigned,
    Binary::Eq,
    Binary::Ne,
    Binary::LtUnsigned,
    Binary::LtSigned,
    Binary::LeUnsigned,
    Binary::LeSigned,
    Binary::GtUnsigned,
    Binary::GtSigned,
    Binary::GeUnsigned,
    Binary::GeSigned,
];

#[test]
fn arithmetic() {
    for op in BINARY {
        // Every pair of the numbers, each with its emitted result.
        let mut ops = Vec::new();
        for a in 0..12 {
            ops.push(Op::Arg { dst: 0, index: a });
            for b in 0..12 {
                ops.push(Op::Arg { dst: 1, index: b });
                ops.push(Op::Binary { op, dst: 2, a: 0, b: 1 });
                ops.push(Op::BinaryConst { op, dst: 3, a: 0, b: NUMBERS[usize::from(b)] as i64 });
                ops.push(Op::Store { at: 0, src: 2, size_bytes: 8 });
                ops.push(Op::Store { at: 8, src: 3, size_bytes: 8 });
                ops.push(Op::Emit { action: 0, payload: Slot { at: 0, len: 16 } });
            }
        }
        agree(&program(Code { ops, n_regs: 4, frame_bytes: 16 }, Vec::new()), &[NUMBERS]);
    }
    let mut ops = Vec::new();
    for index in 0..12 {
        ops.push(Op::Arg { dst: 0, index });
        for op in [Unary::Neg, Unary::BitNot, Unary::Not] {
            ops.push(Op::Unary { op, dst: 1, a: 0 });
            ops.push(Op::Store { at: 0, src: 1, size_bytes: 8 });
            ops.push(Op::Emit { action: 0, payload: Slot { at: 0, len: 8 } });
        }
        for size_bytes in [1, 2, 4, 8] {
            for is_signed in [false, true] {
                ops.push(Op::Extend { dst: 1, src: 0, size_bytes, is_signed });
                ops.push(Op::Store { at: 0, src: 1, size_bytes: 8 });
                ops.push(Op::Store { at: 8, src: 0, size_bytes });
                ops.push(Op::Load { dst: 1, at: 8, size_bytes, is_signed });
                ops.push(Op::Store { at: 16, src: 1, size_bytes: 8 });
                ops.push(Op::Emit { action: 0, payload: Slot { at: 0, len: 24 } });
            }
        }
    }
    agree(&program(Code { ops, n_regs: 2, frame_bytes: 24 }, Vec::new()), &[NUMBERS]);
}

/// A frame that fits the stack and one that does not.
pub(crate) const FRAMES: [u32; 2] = [256, 2048];

#[test]
fn strings_and_bytes() {
    let texts: Vec<u64> = [0u64, 1, 6, 28, 29, 30, 31].iter().map(|at| MEMORY.as_ptr() as u64 + at).collect();
    let mut args = [0; 12];
    args[..7].copy_from_slice(&texts);
    args[7] = 8;
    args[8] = 3;
    let slot = |at, len| Slot { at, len };
    for frame in FRAMES {
        for index in 0..8 {
            for len in [24, 19, 8, 1] {
                let ops = vec![
                    Op::Arg { dst: 0, index },
                    Op::Arg { dst: 1, index: 8 },
                    Op::Constant { to: slot(24, 40), constant: 2 },
                    Op::ArgString { to: slot(0, len), index, len: None },
                    Op::ArgString { to: slot(24, 8), index, len: Some(1) },
                    Op::String { to: slot(32, 16), address: 0, len: None, space: Space::User },
                    Op::String { to: slot(48, len.min(8)), address: 0, len: Some(1), space: Space::User },
                    Op::Buffer { to: slot(64, 24), address: 0, len: 1, space: Space::User },
                    Op::ArgBytes { to: slot(88, 24), index, len: 1 },
                    Op::Read { to: slot(112, 5), address: 0, space: Space::User },
                    Op::String { to: slot(120, 8), address: 2, len: None, space: Space::Kernel },
                    Op::Read { to: slot(128, 8), address: 2, space: Space::Kernel },
                    Op::Strlen { dst: 3, a: slot(0, len) },
                    Op::Constant { to: slot(136, 9), constant: 0 },
                    Op::Strncmp { dst: 4, a: slot(0, len), b: slot(136, 9), n: 3 },
                    Op::Strncmp { dst: 5, a: slot(0, len), b: slot(136, 9), n: 100 },
                    Op::Equal { dst: 6, a: slot(0, len), b: slot(136, 9) },
                    Op::Constant { to: slot(152, 9), constant: 1 },
                    Op::StrFind { dst: 7, haystack: slot(32, 16), needle: slot(152, 9) },
                    Op::Element {
                        dst: 2,
                        from: slot(136, 9),
                        index: 6,
                        n: 9,
                        size_bytes: 1,
                        is_signed: true,
                    },
                    Op::StrFind { dst: 8, haystack: slot(0, len), needle: slot(136, 3) },
                    Op::StrFind { dst: 9, haystack: slot(0, len), needle: slot(200, 8) },
                    Op::Move { to: slot(168, 13), from: slot(0, len) },
                    Op::Move { to: slot(184, 16), from: slot(192, 16) },
                    Op::Zero { to: slot(64, 3) },
                    Op::StrConcat { to: slot(88, 24), a: slot(0, len), b: slot(136, 9) },
                    Op::StrConcat { to: slot(112, 5), a: slot(152, 9), b: slot(0, len) },
                ];
                agree(&program(shown(ops, 10, frame), Vec::new()), &[args]);
            }
        }
    }
}

#[test]
fn long_constants_strings_and_comparisons() {
    let slot = |at, len| Slot { at, len };
    let ops = vec![
        Op::Constant { to: slot(0, 1024), constant: 2 },
        Op::Constant { to: slot(1024, 299), constant: 2 },
        Op::Equal { dst: 0, a: slot(0, 1024), b: slot(1024, 299) },
        Op::Move { to: slot(1400, 1000), from: slot(0, 1024) },
        Op::Equal { dst: 1, a: slot(0, 1000), b: slot(1400, 1000) },
        Op::Strlen { dst: 2, a: slot(1400, 1000) },
        Op::StrFind { dst: 3, haystack: slot(0, 1024), needle: slot(1024, 299) },
        Op::StrConcat { to: slot(1400, 1000), a: slot(0, 1024), b: slot(1024, 299) },
        Op::Strncmp { dst: 4, a: slot(0, 1024), b: slot(1024, 299), n: 1000 },
        Op::Strncmp { dst: 5, a: slot(0, 1024), b: slot(1024, 299), n: 299 },
        Op::Move { to: slot(0, 1000), from: slot(8, 1000) },
        Op::Comm { to: slot(2400, 40) },
        Op::Comm { to: slot(2440, 4) },
    ];
    agree(&program(shown(ops, 6, 2600), Vec::new()), &[[0; 12]]);
}

#[test]
fn what_lies_in_the_frame_is_read_by_its_address() {
    let slot = |at, len| Slot { at, len };
    for frame in FRAMES {
        let ops = vec![
            Op::Constant { to: slot(0, 16), constant: 0 },
            Op::FrameAddress { dst: 0, at: 0 },
            Op::BinaryConst { op: Binary::Add, dst: 1, a: 0, b: 1 },
            Op::Const { dst: 2, value: 5 },
            Op::Read { to: slot(16, 8), address: 1, space: Space::Kernel },
            Op::String { to: slot(24, 16), address: 0, len: None, space: Space::Kernel },
            Op::String { to: slot(40, 16), address: 0, len: Some(2), space: Space::Kernel },
            Op::Buffer { to: slot(56, 24), address: 1, len: 2, space: Space::Kernel },
            Op::Readable { dst: 3, address: 0, space: Space::Kernel },
            Op::Const { dst: 0, value: 8 },
            Op::Const { dst: 1, value: 0 },
            Op::Readable { dst: 4, address: 0, space: Space::Kernel },
            Op::Readable { dst: 5, address: 0, space: Space::User },
        ];
        agree(&program(shown(ops, 6, frame), Vec::new()), &[[0; 12]]);
    }
}

#[test]
fn the_task() {
    let mut ops = vec![Op::Probe { dst: 4 }, Op::Comm { to: Slot { at: 0, len: 16 } }];
    for (dst, what) in [(0, Builtin::Pid), (1, Builtin::Tid), (2, Builtin::Uid), (3, Builtin::Gid)] {
        ops.push(Op::Builtin { dst, what });
    }
    ops.push(Op::Builtin { dst: 5, what: Builtin::Retval });
    ops.push(Op::Builtin { dst: 6, what: Builtin::Ip });
    ops.push(Op::Register { dst: 7, index: 3 });
    ops.push(Op::Field { dst: 8, offset: 8, size_bytes: 4, is_signed: true });
    ops.push(Op::FieldString { to: Slot { at: 16, len: 8 }, offset: 8 });
    ops.push(Op::FieldBytes { to: Slot { at: 24, len: 8 }, offset: 8 });
    agree(&program(shown(ops, 9, 32), Vec::new()), &[[0; 12]]);
}

#[test]
fn what_only_the_kernel_knows() {
    let all = [Builtin::Cpu, Builtin::Nsecs, Builtin::Elapsed, Builtin::Rand, Builtin::Curtask, Builtin::Ctx];
    let mut ops: Vec<Op> = (0..).zip(all).map(|(dst, what)| Op::Builtin { dst, what }).collect();
    ops.push(Op::Builtin { dst: 6, what: Builtin::Cgroup });
    ops.push(Op::KernelStack { to: Slot { at: 0, len: 808 } });
    ops.push(Op::UserStack { to: Slot { at: 808, len: 816 } });
    let program = program(shown(ops, 7, 1624), Vec::new());
    let now = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a live timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let start_ns = now();
    let mut door = ScriptDoor::open(
        &program,
        &ScriptOptions { ring_bytes: 1 << 16, start_ns, ..ScriptOptions::default() },
    )
    .unwrap();
    door.run(&PointKind::Begin).unwrap();
    door.run(&PointKind::Begin).unwrap();
    let end_ns = now();
    let mut rounds = Vec::new();
    door.poll(|each| {
        let words: Vec<u64> =
            each.payload.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
        assert!(start_ns <= each.ns && each.ns <= end_ns);
        assert_eq!(each.pid, std::process::id());
        rounds.push((u64::from(each.cpu), words));
    });
    assert_eq!(rounds.len(), 2);
    let regs: Vec<&[u64]> = rounds.iter().map(|(_, words)| &words[203..]).collect();
    for ((cpu, words), regs) in rounds.iter().zip(&regs) {
        assert_eq!(regs[0], *cpu);
        assert!(start_ns <= regs[1] && regs[1] <= end_ns, "nsecs");
        assert!(regs[2] <= end_ns - start_ns, "elapsed");
        assert!(regs[4] >> 48 == 0xffff && regs[5] >> 48 == 0xffff, "pointers of the kernel: {regs:x?}");
        assert!(regs[6] > 0, "cgroup");
        let n = words[0] as usize;
        assert!(n > 2 && n <= 100, "{n} frames of the kernel");
        assert!(words[1..=n].iter().all(|address| address >> 48 == 0xffff), "{words:x?}");
        assert!(words[n + 1..101].iter().all(|address| *address == 0), "zeros behind the stack");
        assert_eq!(words[101], u64::from(std::process::id()));
        let n = words[102] as usize;
        assert!(n > 0 && n <= 100, "{n} frames of the program");
        assert!(words[103 + n..203].iter().all(|address| *address == 0));
    }
    assert_eq!(regs[0][4], regs[1][4], "the same task");
    assert_ne!(regs[0][3], regs[1][3], "random numbers");
}
