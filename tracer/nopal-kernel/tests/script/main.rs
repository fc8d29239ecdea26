//! Programs in the kernel do what the interpreter says: every operation by itself, then random programs. They run as the
//! kernel runs a raw tracepoint program for testing, in this process, so that its memory is what they read.

mod maps;
mod operations;
mod random;
mod typical;

use nopal_kernel::script::{Entry, ScriptDoor, ScriptError, ScriptOptions};
use nopal_program::interpret::{Hit, Interpreter};
use nopal_program::op::{Builtin, Op, Slot, Space};
use nopal_program::{Action, Clause, Code, MapDef, Point, PointKind, Program};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What string operations read: texts of different lengths, one without an end, one empty.
static MEMORY: &[u8] = b"hello\0a longer text than most\0\0caf\xc3\xa9\0no end";

struct Here<'a> {
    args: &'a [u64; 12],
    comm: Vec<u8>,
}

impl Here<'_> {
    fn memory(address: u64) -> Option<&'static [u8]> {
        let at = address.checked_sub(MEMORY.as_ptr() as u64)? as usize;
        MEMORY.get(at..)
    }
}

impl Hit for Here<'_> {
    fn arg(&self, index: u8) -> i64 {
        self.args.get(usize::from(index)).copied().unwrap_or(0) as i64
    }
    fn arg_string(&self, index: u8) -> &[u8] {
        let bytes = Here::memory(self.arg(index) as u64).unwrap_or_default();
        &bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())]
    }
    fn arg_bytes(&self, index: u8) -> &[u8] {
        Here::memory(self.arg(index) as u64).unwrap_or_default()
    }
    fn builtin(&self, what: Builtin) -> u64 {
        match what {
            Builtin::Pid => u64::from(std::process::id()),
            // SAFETY: these calls have no preconditions.
            Builtin::Tid => unsafe { libc::gettid() as u64 },
            // SAFETY: as above.
            Builtin::Uid => unsafe { u64::from(libc::getuid()) },
            // SAFETY: as above.
            Builtin::Gid => unsafe { u64::from(libc::getgid()) },
            Builtin::Cpu
            | Builtin::Nsecs
            | Builtin::Elapsed
            | Builtin::Rand
            | Builtin::Cgroup
            | Builtin::Curtask
            | Builtin::Retval
            | Builtin::Ip
            | Builtin::Ctx
            | Builtin::NsecsBoot
            | Builtin::NsecsTai
            | Builtin::Jiffies
            | Builtin::NumaNode => 0,
        }
    }
    fn comm(&self) -> &[u8] {
        &self.comm
    }
    fn read(&self, space: Space, address: u64, to: &mut [u8]) -> bool {
        let found = (space == Space::User).then(|| Here::memory(address)).flatten();
        match found.and_then(|bytes| bytes.get(..to.len())) {
            Some(bytes) => {
                to.copy_from_slice(bytes);
                true
            }
            None => to.is_empty(),
        }
    }
    fn read_string(&self, space: Space, address: u64, to: &mut [u8]) -> bool {
        let found = (space == Space::User).then(|| Here::memory(address)).flatten();
        let Some(bytes) = found else { return false };
        let n = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len()).min(to.len());
        to[..n].copy_from_slice(&bytes[..n]);
        to[n..].fill(0);
        true
    }
}

fn program(code: Code, maps: Vec<MapDef>) -> Program {
    let begin = Point { name: "BEGIN".to_owned(), kind: PointKind::Begin };
    Program {
        clauses: vec![Clause { points: vec![begin], code }],
        maps,
        actions: vec![Action::PrintMap { map: 0, top: 0, div: 1, rank: Default::default() }; 4],
        constants: vec![b"hello".to_vec(), b"text\0tail".to_vec(), vec![7; 300], Vec::new()],
        ..Program::default()
    }
}

/// One whose maps have all their memory from the beginning: the kernel gives no large shares in the middle of a hit whenever it has
/// none ready.
fn small(code: Code, maps: Vec<MapDef>) -> Program {
    let mut program = program(code, maps);
    program.limits.map_entries = 16;
    program
}

type Outcome = (Vec<(u32, Vec<u8>)>, Vec<BTreeMap<Vec<u8>, Vec<u8>>>);

/// One run for each of `inputs`, one after another.
fn in_kernel(program: &Program, inputs: &[[u64; 12]]) -> Outcome {
    let options = ScriptOptions { ring_bytes: 1 << 20, ..ScriptOptions::default() };
    let mut door = match ScriptDoor::open(program, &options) {
        Ok(door) => door,
        Err(error) => panic!("{error}"),
    };
    let mut emitted = Vec::new();
    for args in inputs {
        match door.run_with(&PointKind::Begin, args) {
            Ok(()) => {}
            Err(ScriptError::Refused { error, log, .. }) => {
                let tail: Vec<&str> = log.lines().rev().take(60).collect();
                let tail: Vec<&str> = tail.into_iter().rev().collect();
                panic!("{error}\n{}\n{:#?}", tail.join("\n"), program.clauses[0].code.ops);
            }
            Err(error) => panic!("{error}: {:#?}", program.clauses[0].code.ops),
        }
        door.poll(|each| emitted.push((each.action, each.payload.to_vec())));
    }
    let loss = door.loss().unwrap();
    assert_eq!((loss.n_emitted, loss.n_crowded, loss.n_cut), (0, 0, 0), "{loss:?}");
    let entries = |map| {
        let all = door.map_entries(map).unwrap().into_iter();
        all.map(|Entry { key, value }| (key, value)).collect()
    };
    (emitted, (0..program.maps.len() as u32).map(entries).collect())
}

fn in_interpreter(program: &Program, inputs: &[[u64; 12]]) -> Outcome {
    let mut interpreter = Interpreter::new(Arc::new(program.clone()), 1).unwrap();
    let mut emitted = Vec::new();
    let comm = std::fs::read("/proc/thread-self/comm").unwrap();
    for args in inputs {
        let here = Here { args, comm: comm.trim_ascii_end().to_vec() };
        interpreter.run(0, 0, &here, |_, each| {
            emitted.push((each.action, each.payload.to_vec()));
            true
        });
    }
    let entries = |table: &nopal_program::interpret::Table| {
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        table.entries().map(|(key, words)| (key.to_vec(), bytes(words))).collect()
    };
    (emitted, interpreter.maps.iter().map(entries).collect())
}

#[track_caller]
fn agree(program: &Program, inputs: &[[u64; 12]]) {
    let (want, got) = (in_interpreter(program, inputs), in_kernel(program, inputs));
    assert_eq!(got.0, want.0, "emitted by\n{:#?}", program.clauses[0].code);
    for (map, (got, want)) in got.1.iter().zip(&want.1).enumerate() {
        assert_eq!(got, want, "map {} after\n{:#?}", program.maps[map].name, program.clauses[0].code);
    }
}

/// Ops, then everything in registers and frame is emitted.
fn shown(mut ops: Vec<Op>, n_regs: u16, frame_bytes: u32) -> Code {
    let regs_at = frame_bytes.next_multiple_of(8);
    let all = regs_at + u32::from(n_regs) * 8;
    for reg in 0..n_regs {
        ops.push(Op::Store { at: regs_at + u32::from(reg) * 8, src: reg, size_bytes: 8 });
    }
    ops.push(Op::Emit { action: 1, payload: Slot { at: 0, len: all } });
    Code { ops, n_regs, frame_bytes: all }
}
