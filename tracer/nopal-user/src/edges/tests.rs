//! Ways by bytes: which instruction has the jump, and which of its bytes change.

use super::*;

fn shown(side: Side, code: &[u8], line_len: usize, n_filling: usize) -> String {
    let edge = Edge {
        side,
        function: 0x1000,
        start: 0x1000,
        code: code.to_vec(),
        line_len,
        n_filling,
        is_go: false,
        unfit: None,
    };
    match ways(&edge, 0x10_0000) {
        Ok(ways) => ways
            .iter()
            .map(|EdgeWay { way, may_fault, .. }| {
                let n_guards = way.distance.under_breakpoints(0).len();
                let (from, above) = (way.patch - 0x10_1000, way.above);
                let fault = if *may_fault { " may fault" } else { "" };
                format!("{:?} {from}+{} guards {n_guards} above {above}{fault}", way.tactic, way.patch_len)
            })
            .collect::<Vec<_>>()
            .join(", "),
        Err(refusal) => refusal.to_string(),
    }
}

/// A line and what follows it.
fn with_rest(line: &[u8]) -> Vec<u8> {
    [line, &[0x89, 0xd8, 0x89, 0xd8, 0x89, 0xd8, 0x89, 0xd8]].concat()
}

#[test]
fn entries() {
    let table: &[(&str, &[u8], &str)] = &[
        (
            "push %r15; push %r14",
            &[0x41, 0x57, 0x41, 0x56],
            "Behind 1+1 guards 3 above 0, Pun 0+1 guards 3 above 0, \
             Behind 3+1 guards 3 above 8, Pun 2+1 guards 3 above 8",
        ),
        (
            "sub $0x128,%rsp holds a whole jump",
            &[0x48, 0x81, 0xec, 0x28, 1, 0, 0],
            "Behind 1+5 guards 0 above 0, Pun 0+1 guards 0 above 0",
        ),
        ("endbr64 is skipped; push %rbp", &[0xf3, 0x0f, 0x1e, 0xfa, 0x55], "Pun 4+1 guards 3 above 0"),
        // Nothing is put behind the change of an argument.
        (
            "mov %rsi,%rdi; push %rbx",
            &[0x48, 0x89, 0xf7, 0x53],
            "Behind 1+2 guards 3 above 0, Pun 0+1 guards 3 above 0",
        ),
        (
            "mov (%rdi),%rax may fault",
            &[0x48, 0x8b, 0x07],
            "Behind 1+2 guards 3 above 0 may fault, Pun 0+1 guards 1 above 0 may fault",
        ),
        ("call", &[0xe8, 0, 0, 0, 0], "no instruction at its entry can have a jump put on it"),
        (
            "a store to what an argument leads to is not passed",
            &[0x89, 0x37, 0x53],
            "Pun 0+1 guards 3 above 0 may fault",
        ),
        ("rep movs", &[0xf3, 0xa4], "no instruction at its entry can have a jump put on it"),
    ];
    for (name, line, expected) in table {
        assert_eq!(shown(Side::Entry, &with_rest(line), line.len(), 0), *expected, "{name}");
    }
}

#[test]
fn exits() {
    let table: &[(&str, Side, &[u8], usize, &str)] = &[
        ("ret and filling", Side::Return, &[0xc3], 8, "Jump 0+5 guards 0 above 0, Pun 0+1 guards 0 above 0"),
        ("ret and code", Side::Return, &[0xc3], 0, "Pun 0+1 guards 3 above 0"),
        ("rep ret and filling", Side::Return, &[0xf3, 0xc3], 8, "Behind 1+5 guards 0 above 0"),
        ("rep ret and code", Side::Return, &[0xf3, 0xc3], 0, "Behind 1+1 guards 3 above 0"),
        (
            "add $8,%rsp; ret",
            Side::Return,
            &[0x48, 0x83, 0xc4, 0x08, 0xc3],
            0,
            "Pun 4+1 guards 3 above 0, Behind 1+3 guards 3 above 8, Pun 0+1 guards 1 above 8",
        ),
        (
            "pop %rbx; pop %r12; ret",
            Side::Return,
            &[0x5b, 0x41, 0x5c, 0xc3],
            0,
            "Pun 3+1 guards 3 above 0, Behind 2+1 guards 7 above 8, Pun 1+1 guards 3 above 8, Pun 0+1 guards 7 above 16",
        ),
        ("jmp", Side::Tail, &[0xe9, 0, 1, 0, 0], 0, "Retarget 1+4 guards 0 above 0"),
        ("short jmp", Side::Tail, &[0xeb, 0x40], 0, "Pun 0+1 guards 3 above 0"),
        ("jmp *0x100(%rip)", Side::Tail, &[0xff, 0x25, 0, 1, 0, 0], 0, "Pun 0+1 guards 0 above 0"),
        ("jmp *%rax", Side::Tail, &[0xff, 0xe0], 0, "Pun 0+1 guards 3 above 0"),
        ("je", Side::ConditionalTail, &[0x0f, 0x84, 0, 1, 0, 0], 0, "Retarget 2+4 guards 0 above 0"),
        // Before a condition nobody knows what comes of it.
        (
            "add; je",
            Side::ConditionalTail,
            &[0x48, 0x83, 0xc4, 0x08, 0x0f, 0x84, 0, 1, 0, 0],
            0,
            "Retarget 6+4 guards 0 above 0",
        ),
        (
            "by the kernel",
            Side::AnyReturn,
            &[0xc3],
            8,
            "no instruction at this exit can have a jump put on it",
        ),
    ];
    for (name, side, line, n_filling, expected) in table {
        let mut code = with_rest(line);
        code[line.len()..line.len() + n_filling].fill(0x90);
        assert_eq!(shown(*side, &code, line.len(), *n_filling), *expected, "{name}");
    }
}

#[test]
fn of_an_instruction_the_first_byte_changes_alone_or_stays() {
    // Every way of many lines, against the rule itself.
    let lines: &[&[u8]] = &[
        &[0x41, 0x57, 0x41, 0x56, 0x55, 0x53, 0x48, 0x83, 0xec, 0x18],
        &[0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x48, 0x81, 0xec, 0, 1, 0, 0],
        &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x85, 0xff, 0x74, 0x10],
        &[0x48, 0x8b, 0x05, 1, 2, 3, 4, 0x48, 0x85, 0xc0],
        &[0x4c, 0x8d, 0x25, 1, 2, 3, 4, 0x53],
    ];
    for line in lines {
        let code = with_rest(line);
        let edge = Edge {
            side: Side::Entry,
            function: 0x1000,
            start: 0,
            code: code.clone(),
            line_len: line.len(),
            n_filling: 0,
            is_go: false,
            unfit: None,
        };
        let starts = distance::starts(&code, 0);
        for EdgeWay { way, .. } in ways(&edge, 0).unwrap() {
            let changed: Vec<usize> = (way.patch as usize..way.patch as usize + way.patch_len).collect();
            let firsts = changed.iter().filter(|at| starts.contains(at)).count();
            assert!(firsts == 0 || (firsts == 1 && changed.len() == 1), "{line:02x?} {way:?}");
        }
    }
}
