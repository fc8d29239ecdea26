//! Functions by their bytes.

use crate::{Body, Obstacle, Stretch, leads_into};
use nopal_sdt::probe::Side;

const AT: u64 = 0x1000;

fn stretch(code: &[u8]) -> Stretch<'_> {
    Stretch { address: AT, code, behind: &[0x90; 32], n_unowned: 16 }
}

fn exits(code: &[u8]) -> String {
    let body = match Body::new(vec![stretch(code)]) {
        Ok(body) => body,
        Err(obstacle) => return obstacle.to_string(),
    };
    match body.exits(false) {
        Ok(exits) => {
            let shown = exits.iter().map(|exit| {
                let edge = &exit.edge;
                let side = match edge.side {
                    Side::Entry => "entry",
                    Side::Return => "ret",
                    Side::Tail => "tail",
                    Side::ConditionalTail => "if tail",
                    Side::AnyReturn => "any",
                };
                format!(
                    "{side} +{} line -{} filling {}",
                    exit.address - AT,
                    exit.address - edge.start,
                    edge.n_filling
                )
            });
            shown.collect::<Vec<_>>().join(", ")
        }
        Err(obstacle) => obstacle.to_string(),
    }
}

#[test]
fn where_functions_are_left() {
    let table: &[(&str, &[u8], &str)] = &[
        // lea (%rdi,%rsi),%eax; ret
        ("one return", &[0x8d, 0x04, 0x37, 0xc3], "ret +3 line -0 filling 16"),
        // push %rbx; pop %rbx; ret: what is popped is not what is returned.
        ("a pop before", &[0x53, 0x5b, 0xc3], "ret +2 line -2 filling 16"),
        // test %edi,%edi; je +1; ret; xor %eax,%eax; ret
        (
            "two",
            &[0x85, 0xff, 0x74, 0x01, 0xc3, 0x31, 0xc0, 0xc3],
            "ret +4 line -0 filling 0, ret +7 line -0 filling 16",
        ),
        // nop; jmp far away
        ("tail", &[0x90, 0xe9, 0, 1, 0, 0], "tail +1 line -1 filling 16"),
        // test; je far away; ret
        (
            "conditional tail",
            &[0x85, 0xff, 0x0f, 0x84, 0, 1, 0, 0, 0xc3],
            "if tail +2 line -2 filling 0, ret +8 line -0 filling 16",
        ),
        // sub $8,%rsp; jmp out: whoever knows the file says whether that is a part of it.
        ("an outward jump", &[0x48, 0x83, 0xec, 0x08, 0xe9, 0, 1, 0, 0], "tail +4 line -4 filling 16"),
        (
            "short conditional",
            &[0x85, 0xff, 0x74, 0x70, 0xc3],
            "it is left by a short conditional jump at 0x1002",
        ),
        ("runs on", &[0x31, 0xc0, 0x31, 0xd2], "it runs on into other code behind 0x1002"),
        ("a call that does not return", &[0x50, 0xe8, 0, 1, 0, 0], ""),
        ("leaves at once", &[0xc3], "its first instruction, at 0x1000, leaves it"),
        (
            "behind endbr64",
            &[0xf3, 0x0f, 0x1e, 0xfa, 0xe9, 0, 1, 0, 0],
            "its first instruction, at 0x1004, leaves it",
        ),
        ("indirect", &[0x31, 0xc0, 0xff, 0xe0], "the jump at 0x1002 may leave it or not"),
        // nop; jmp *0x100(%rip)
        ("a word of the file", &[0x90, 0xff, 0x25, 0, 1, 0, 0], "tail +1 line -1 filling 16"),
        // mov 0x18(%rdi),%rax; jmp *%rax
        (
            "a word of a table of functions",
            &[0x48, 0x8b, 0x47, 0x18, 0xff, 0xe0],
            "tail +4 line -0 filling 16",
        ),
        // lea (%rdi,%rsi),%rax; jmp *%rax
        ("computed", &[0x48, 0x8d, 0x04, 0x37, 0xff, 0xe0], "the jump at 0x1004 may leave it or not"),
        // push; jmp *%rax: the stack says that it stays.
        ("a table by its stack", &[0x53, 0xff, 0xe0, 0x5b, 0xc3], "ret +4 line -1 filling 16"),
        ("a table by its prefix", &[0x31, 0xc0, 0x3e, 0xff, 0xe0, 0xc3], "ret +5 line -0 filling 16"),
        // movslq (%rdx,%rax,4),%rax; add %rdx,%rax; jmp *%rax; ret
        (
            "a table of distances",
            &[0x48, 0x63, 0x04, 0x82, 0x48, 0x01, 0xd0, 0xff, 0xe0, 0xc3],
            "ret +9 line -0 filling 16",
        ),
        // jmp *table(,%rax,8); ret
        ("a table of addresses", &[0x90, 0xff, 0x24, 0xc5, 0, 0x20, 0, 0, 0xc3], "ret +8 line -0 filling 16"),
        // ret; nopl 0(%rax), which something leads to; ret
        (
            "filling that is run",
            &[0x74, 0x01, 0xc3, 0x0f, 0x1f, 0x40, 0x00, 0xc3],
            "ret +2 line -0 filling 0, ret +7 line -4 filling 16",
        ),
        ("not code", &[0x06, 0xc3], "the bytes at 0x1000 are not an instruction"),
        ("nothing", &[], "the file does not say where its code ends"),
        // leave; ret
        ("leave", &[0x55, 0x48, 0x89, 0xe5, 0xc9, 0xc3], "ret +5 line -0 filling 16"),
    ];
    for (name, code, expected) in table {
        assert_eq!(exits(code), *expected, "{name}");
    }
}

#[test]
fn a_line_ends_where_something_else_leads() {
    // push %rbx; sub $16,%rsp; xor %eax,%eax; loop: inc %eax; jmp loop
    let code = [0x53, 0x48, 0x83, 0xec, 0x10, 0x31, 0xc0, 0xff, 0xc0, 0xeb, 0xfc];
    let body = Body::new(vec![stretch(&code)]).unwrap();
    let edge = body.entry_edge(0);
    assert_eq!((edge.start, edge.line_len), (AT, 7));
    assert_eq!(edge.code[..7], code[..7]);
    // ... and with the first instruction that leads elsewhere.
    let code = [0x53, 0x85, 0xff, 0x74, 0x01, 0x90, 0x5b, 0xc3];
    assert_eq!(Body::new(vec![stretch(&code)]).unwrap().entry_edge(0).line_len, 5);
}

#[test]
fn a_part_that_is_elsewhere_belongs_to_it() {
    // test %edi,%edi; jne cold; ret, and far away: xor %eax,%eax; jmp back
    let code = [0x85, 0xff, 0x0f, 0x85, 0xf8, 0x0f, 0, 0, 0xc3];
    let cold = [0x31, 0xc0, 0xe9, 0x01, 0xf0, 0xff, 0xff];
    let main = stretch(&code);
    let cold = Stretch { address: 0x2000, code: &cold, ..main };
    let alone = Body::new(vec![main]).unwrap();
    let outward = alone.outward();
    assert_eq!(
        outward.iter().map(|o| (o.address, o.target, o.is_level)).collect::<Vec<_>>(),
        [(0x1002, 0x2000, true)]
    );
    assert!(leads_into(&cold, &(AT..AT + 9)) && !leads_into(&main, &(AT..AT + 9)));
    let exits = Body::new(vec![main, cold]).unwrap().exits(false).unwrap();
    assert_eq!(exits.iter().map(|exit| exit.address).collect::<Vec<_>>(), [0x1008]);
}

#[test]
fn the_stack_tells_an_own_part_from_a_tail_call() {
    // sub $8,%rsp; test; jne far; add $8,%rsp; jmp far
    let code = [
        0x48, 0x83, 0xec, 0x08, 0x85, 0xff, 0x0f, 0x85, 0, 1, 0, 0, 0x48, 0x83, 0xc4, 0x08, 0xe9, 0, 2, 0, 0,
    ];
    let body = Body::new(vec![stretch(&code)]).unwrap();
    let level: Vec<bool> = body.outward().iter().map(|out| out.is_level).collect();
    assert_eq!(level, [false, true]);
}

#[test]
fn behind_a_call_that_does_not_return_the_stack_is_that_of_whoever_jumps_there() {
    // test %rdi,%rdi; jne 1f; push %rax; call far, which does not return; 1: jmp far. So PyEval_AcquireLock of Python 3.11.
    let code = [0x48, 0x85, 0xff, 0x75, 0x06, 0x50, 0xe8, 0, 1, 0, 0, 0xe9, 0, 2, 0, 0];
    let body = Body::new(vec![stretch(&code)]).unwrap();
    let level: Vec<bool> = body.outward().iter().map(|out| out.is_level).collect();
    assert_eq!(level, [true]);
    // sub $8,%rsp; call; test; je 1f; xor %edi,%edi; 1: call; jne far: calls that return keep the stack as it is.
    let code = [
        0x48, 0x83, 0xec, 0x08, 0xe8, 0, 1, 0, 0, 0x85, 0xc0, 0x74, 0x02, 0x31, 0xff, 0xe8, 0, 1, 0, 0, 0x0f,
        0x85, 0, 1, 0, 0, 0x48, 0x83, 0xc4, 0x08, 0xc3,
    ];
    let body = Body::new(vec![stretch(&code)]).unwrap();
    let level: Vec<bool> = body.outward().iter().map(|out| out.is_level).collect();
    assert_eq!(level, [false]);
}

#[test]
fn no_bytes_make_it_panic() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20_000 {
        let code: Vec<u8> = (0..seed % 48)
            .map(|_| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed as u8
            })
            .collect();
        seed = seed.wrapping_add(1);
        if let Ok(body) = Body::new(vec![stretch(&code)]) {
            body.entry_edge(0);
            let _: Result<_, Obstacle> = body.exits(false);
        }
    }
}
