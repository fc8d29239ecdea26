//! The bytes of libraries with all their functions open, instruction by instruction as objdump takes it apart: what changed,
//! and where a jump of ours leads, as it is and with the breakpoints of another tool anywhere inside it.

use super::functions::{attach, stop};
use super::thousand_functions::{LIBRARIES, code_is_back};
use nopal_tests::process::{Running, wait_until};
use nopal_tests::{run, scratch};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

const BREAKPOINT: u8 = 0xcc;
const JUMP: u8 = 0xe9;
const JUMP_BYTES: usize = 5;

struct Instruction {
    address: u64,
    bytes: Vec<u8>,
    /// Between functions, or in front of a loop: what stands there does nothing.
    is_padding: bool,
}

/// What another disassembler makes of the file's code.
fn instructions(file: &str) -> Vec<Instruction> {
    let listing = run(Command::new("objdump").args(["-d", "-w", "-j", ".text", file]));
    let parsed = listing.lines().filter_map(|line| {
        let mut columns = line.split('\t');
        let address = u64::from_str_radix(columns.next()?.trim().strip_suffix(':')?, 16).ok()?;
        let bytes = columns.next()?.split_whitespace().map(|byte| u8::from_str_radix(byte, 16));
        let text = columns.next().unwrap_or_default();
        let is_padding =
            ["nop", "cs nop", "xchg   %ax,%ax", "data16", "int3"].iter().any(|p| text.starts_with(p));
        Some(Instruction { address, bytes: bytes.collect::<Result<_, _>>().ok()?, is_padding })
    });
    parsed.collect()
}

/// Where the process has the file, and all places where code may run.
fn mapped(pid: u32, file: &str) -> (u64, Vec<(u64, u64)>) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let (mut start_of_file, mut code) = (None, Vec::new());
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, rights, offset) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        if line.ends_with(file) && offset.trim_start_matches('0').is_empty() && start_of_file.is_none() {
            start_of_file = Some(start);
        }
        if rights.contains('x') {
            code.push((start, end));
        }
    }
    (start_of_file.expect("the file is mapped"), code)
}

/// Where the jump at `at` leads with a breakpoint on each of these bytes.
fn target(memory: &[u8], at: usize, breakpoints: &[usize]) -> u64 {
    let mut distance = [0; 4];
    distance.copy_from_slice(&memory[at + 1..at + JUMP_BYTES]);
    for byte in breakpoints {
        distance[byte - at - 1] = BREAKPOINT;
    }
    (at as u64 + JUMP_BYTES as u64).wrapping_add_signed(i64::from(i32::from_le_bytes(distance)))
}

/// Where a jump that lands there comes to at last: over what fills up and over jumps, near and far, to what is none of these, which
/// is the one place that all of a site's jumps must lead to.
fn followed(memory: &fs::File, from: u64) -> u64 {
    let mut at = from;
    for _ in 0..64 {
        // A landing may be the last that its page has.
        let mut code = [0; 14];
        if memory.read_at(&mut code, at).is_err() {
            return at;
        }
        at = match code {
            [0x90, ..] => at + 1,
            [JUMP, a, b, c, d, ..] => {
                (at + JUMP_BYTES as u64).wrapping_add_signed(i64::from(i32::from_le_bytes([a, b, c, d])))
            }
            [0xff, 0x25, 0, 0, 0, 0, ..] => u64::from_le_bytes(code[6..].try_into().unwrap()),
            _ => return at,
        };
    }
    panic!("jumps from {from:#x} lead nowhere");
}

#[test]
fn every_instruction_of_a_library_is_one_that_other_tools_can_break_on() {
    let script = r#"loop { a = (1..50).map { |i| i.to_s }.join; h = { a => a.size }; h.each { |k, v| k.hash ^ v }; sleep 0.001 }"#;
    check("libruby-3.1.so.3.1.2", Command::new("ruby").args(["-e", script]));
}

#[test]
fn every_instruction_of_another_library_is_one_that_other_tools_can_break_on() {
    let script = "import ssl, time\nwhile True: ssl.create_default_context(); time.sleep(0.001)";
    check("libssl.so.3", Command::new("python3.11").args(["-c", script]));
}

/// Opens all functions of the library in a process that runs in the meantime.
fn check(library: &str, command: &mut Command) {
    let file = format!("{LIBRARIES}/{library}");
    let folder = scratch(&format!("function_boundaries_{library}"));
    let program = Running::start(command.stdout(Stdio::null()));
    wait_until("it runs", 60, || {
        fs::read_to_string(format!("/proc/{}/maps", program.pid())).is_ok_and(|maps| maps.contains(&file))
    });
    let code = instructions(&file);
    let text =
        (code[0].address as usize, code.last().map(|last| last.address as usize + last.bytes.len()).unwrap());
    let both = format!("uprobe:{file}:* {{ @in = count(); }} uretprobe:{file}:* {{ @out = count(); }}");
    let tracer = attach(program.pid(), &both, &folder.join("log"));

    let (bias, executable) = mapped(program.pid(), &file);
    let memory_file = fs::File::open(format!("/proc/{}/mem", program.pid())).unwrap();
    let mut memory = vec![0; text.1];
    memory_file.read_exact_at(&mut memory[text.0..], bias + text.0 as u64).unwrap();
    // What fills up behind the end of a function is never reached: nobody traces it.
    let mut is_behind_end = false;
    let mut starts = BTreeSet::new();
    for Instruction { address, bytes, is_padding } in &code {
        if !(*is_padding && is_behind_end) {
            starts.insert(*address as usize);
            is_behind_end = matches!(bytes[..], [0xc3] | [0xf2 | 0xf3, 0xc3] | [0xe9 | 0xeb | 0xff, ..])
                // A jump through a register, with a prefix.
                || matches!(bytes[..], [0x3e | 0x41, 0xff, to, ..] if to & 0x38 == 0x20);
        }
    }
    let (mut n_jumps, mut n_led_elsewhere, mut n_guards, mut was_changed) = (0, 0, 0, false);
    for Instruction { address, bytes, is_padding } in &code {
        let at = *address as usize;
        let now = &memory[at..at + bytes.len()];
        let changed: Vec<usize> = (0..bytes.len()).filter(|i| now[*i] != bytes[*i]).collect();
        let Some(first) = changed.first() else {
            was_changed = false;
            continue;
        };
        // A jump at the end of a function may take what stands between it and the next one.
        if *is_padding && was_changed {
            continue;
        }
        was_changed = true;
        // Whoever puts a breakpoint there saves and restores the first byte, and nothing else.
        assert!(*first > 0 || changed.len() == 1, "{address:x}: {bytes:02x?} is {now:02x?}");
        let jump = match *first {
            0 if now[0] == BREAKPOINT => continue,
            0 => 0,
            // Its distance was changed, not the jump; or there is one behind a prefix that stays.
            _ if matches!(bytes[..], [0xe9, ..] | [0xf2, 0xe9, ..] | [0x0f, 0x80..=0x8f, ..]) => {
                bytes.len() - JUMP_BYTES
            }
            behind_prefix => behind_prefix,
        };
        let is_jump = now[jump] == JUMP || bytes.get(jump).is_some_and(|byte| (0x80..0x90).contains(byte));
        let behind: Vec<usize> =
            (at + jump + 1..at + jump + JUMP_BYTES).filter(|b| starts.contains(b)).collect();
        assert!(is_jump, "{address:x}: {bytes:02x?} is {now:02x?}");
        n_jumps += usize::from(*first == jump);
        n_led_elsewhere += usize::from(*first != jump);
        let stub = followed(&memory_file, target(&memory, at + jump, &[]).wrapping_add(bias));
        for subset in 0..1 << behind.len() {
            let breakpoints: Vec<usize> =
                (0..behind.len()).filter(|i| subset & 1 << i != 0).map(|i| behind[i]).collect();
            let lands = target(&memory, at + jump, &breakpoints).wrapping_add(bias);
            let has_room = executable.iter().any(|(start, end)| (*start..*end).contains(&lands));
            assert!(
                has_room,
                "{address:x}: {now:02x?} with {breakpoints:x?} leads to {lands:#x}, where no code is"
            );
            let comes_to = followed(&memory_file, lands);
            assert_eq!(comes_to, stub, "{address:x}: {now:02x?} with {breakpoints:x?} leads elsewhere");
            n_guards += usize::from(subset > 0);
        }
    }
    eprintln!(
        "{library}: {} instructions: {n_jumps} jumps, {n_led_elsewhere} led elsewhere, {n_guards} guards",
        code.len()
    );
    assert!(n_jumps > 500 && n_guards > 500, "{n_jumps} jumps with {n_guards} guards are too few to tell");
    stop(tracer);
    code_is_back(program.pid(), "objdump's instructions");
}
