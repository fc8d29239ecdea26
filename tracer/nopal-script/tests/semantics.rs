//! What scripts mean: run by the interpreter, with numbers that are constants, and the same numbers as arguments.

mod catalog;

use catalog::TestCatalog;
use nopal_program::interpret::{Hit, Interpreter};
use nopal_program::op::{Builtin, Space};
use nopal_program::{Action, Type};
use nopal_script::{Options, compile, parse};
use std::sync::Arc;

/// A call of `main(args...)` in a process whose memory begins at 0x1000.
struct Call {
    args: [i64; 6],
    memory: &'static [u8],
}

impl Hit for Call {
    fn arg(&self, index: u8) -> i64 {
        self.args[usize::from(index)]
    }

    fn arg_string(&self, index: u8) -> &[u8] {
        let bytes = &self.memory[self.args[usize::from(index)] as usize - 0x1000..];
        &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap()]
    }

    fn arg_bytes(&self, index: u8) -> &[u8] {
        &self.memory[self.args[usize::from(index)] as usize - 0x1000..]
    }

    fn builtin(&self, what: Builtin) -> u64 {
        match what {
            Builtin::Pid => 42,
            Builtin::Tid => 43,
            _ => 7,
        }
    }

    fn comm(&self) -> &[u8] {
        b"app"
    }

    fn read(&self, _: Space, address: u64, to: &mut [u8]) -> bool {
        let Some(at) = (address as usize).checked_sub(0x1000) else { return false };
        match self.memory.get(at..at + to.len()) {
            Some(bytes) => to.copy_from_slice(bytes),
            None => return false,
        }
        true
    }
}

/// What the body prints with print(): numbers and strings, one a line.
fn printed(script: &str, args: [i64; 6], memory: &'static [u8]) -> String {
    let parsed = parse(script, "a.bt", &[], &Options::default())
        .and_then(|parsed| compile(&parsed, &TestCatalog))
        .unwrap_or_else(|errors| panic!("{}", errors[0].render(script, "a.bt", false)));
    let program = Arc::new(parsed);
    let mut interpreter = Interpreter::new(Arc::clone(&program), 1).unwrap();
    let mut lines = Vec::new();
    interpreter.run(0, 0, &Call { args, memory }, |_, emitted| {
        let Action::PrintValue { field } = &program.actions[emitted.action as usize] else { return true };
        let bytes = &emitted.payload[field.at as usize..];
        lines.push(match &field.value_type {
            Type::Int { is_signed: true, .. } | Type::Bool => {
                i64::from_le_bytes(bytes[..8].try_into().unwrap()).to_string()
            }
            Type::Int { .. } => u64::from_le_bytes(bytes[..8].try_into().unwrap()).to_string(),
            Type::Str { max_bytes } => {
                let text = &bytes[..*max_bytes as usize];
                String::from_utf8_lossy(&text[..text.iter().position(|byte| *byte == 0).unwrap()])
                    .into_owned()
            }
            other => panic!("{other:?}"),
        });
        true
    });
    lines.join(" ")
}

fn run(body: &str) -> String {
    printed(&format!("uprobe:./app:main {{ {body} }}"), [0; 6], b"")
}

#[test]
fn tuples_are_equal_if_their_members_are() {
    for (comparison, want) in [
        ("(1, 2) == (1, 2)", "1"),
        ("(1, 2) == (1, 3)", "0"),
        ("(1, \"a\") == (1, \"a\")", "1"),
        ("(1, \"a\") != (1, \"abcdefghi\")", "1"),
        ("(1, (2, 3), \"x\") == (1, (2, 3), \"x\")", "1"),
        ("(1, (2, 3), \"x\") == (1, (2, 4), \"x\")", "0"),
        ("(arg0, arg1) == (0, 0)", "1"),
        ("$t == (7, \"t\") && $t.0 == 7", "1"),
        ("((1, 2) == (1, 2)) + ((1, 2) != (1, 2)) * 10 + ($t != (8, \"t\")) * 100", "101"),
    ] {
        assert_eq!(run(&format!("$t = (7, \"t\"); print({comparison});")), want, "{comparison}");
    }
}

#[test]
fn operators_mean_the_same_for_constants_and_arguments() {
    let cases: [(&str, i64, i64, &str); 26] = [
        ("+", 2, 3, "5"),
        ("+", i64::MAX, 1, "-9223372036854775808"),
        ("-", 2, 3, "-1"),
        ("*", -4, 3, "-12"),
        ("/", 7, 2, "3"),
        ("/", -7, 2, "-3"),
        ("/", 7, 0, "0"),
        ("%", 7, 3, "1"),
        ("%", -7, 3, "-1"),
        ("%", 7, 0, "7"),
        ("&", 12, 10, "8"),
        ("|", 12, 10, "14"),
        ("^", 12, 10, "6"),
        ("<<", 1, 4, "16"),
        ("<<", 1, 65, "2"),
        (">>", 16, 2, "4"),
        (">>", -16, 2, "-4"),
        ("==", 3, 3, "1"),
        ("!=", 3, 3, "0"),
        ("<", -1, 1, "1"),
        ("<=", 1, 1, "1"),
        (">", -1, 1, "0"),
        (">=", 2, 1, "1"),
        ("&&", 2, 0, "0"),
        ("&&", 2, 1, "1"),
        ("||", 0, 5, "1"),
    ];
    for (op, a, b, expected) in cases {
        let ways = [
            format!("print({a} {op} {b});"),
            format!("print((int64)arg0 {op} (int64)arg1);"),
            format!("$a = (int64)arg0; print($a {op} {b});"),
            format!("$b = (int64)arg1; print({a} {op} $b);"),
            format!(
                "if ({a} {op} (int64)arg1) {{ $x = (int64)arg0 {op} {b}; print($x); }} else {{ print((int64)arg0 {op} (int64)arg1); }}"
            ),
        ];
        for way in ways {
            let script = format!("uprobe:./app:main {{ {way} }}");
            assert_eq!(printed(&script, [a, b, 0, 0, 0, 0], b""), expected, "{way}");
        }
    }
}

#[test]
fn statements() {
    let cases = [
        (
            "$i = 0; while ($i < 5) { $i++; if ($i == 2) { continue; } if ($i == 4) { break; } print($i); }",
            "1 3",
        ),
        ("unroll(3) { print(1); }", "1 1 1"),
        ("unroll(3) { @n++; if (@n == 2) { break; } print(@n + 0); }", "1"),
        ("for ($i : 1..4) { if ($i == 2) { continue; } print($i); }", "1 3"),
        (
            "for ($i : 0..3) { for ($j : 0..3) { if ($j > $i) { break; } print($i * 10 + $j); } }",
            "0 10 11 20 21 22",
        ),
        ("@a[1] = 10; @a[2] = 20; for ($kv : @a) { @s += $kv.0 * $kv.1; } print(@s + 0);", "50"),
        ("@a[1] = 10; for ($kv : @a) { print($kv.0); break; } print(9);", "1 9"),
        ("@a[1, \"x\"] = 5; for ($kv : @a) { print($kv.0.1); print($kv.0.0); print($kv.1); }", "x 1 5"),
        (
            "@a[1] = 1; @b[2] = 2; for ($x : @a) { for ($y : @b) { print($x.0 + $y.0); continue; } print(8); }",
            "3 8",
        ),
        ("$x = 1; $y = $x++ + $x; print($y); print($x); print(++$x); print($x--); print($x);", "3 2 3 3 2"),
        ("@m = 5; print(@m++); print(++@m); @m -= 3; print(@m + 0); @m *= 4; print(@m + 0);", "5 7 4 16"),
        (
            "$s = 1 ? \"yes\" : \"longer\"; print($s); $s = pid == 1 ? \"a\" : \"text\"; print($s);",
            "yes text",
        ),
        ("if (pid == 42 && (tid == 1 || !(comm == \"x\"))) { print(1); } else { print(2); }", "1"),
        (
            "if (comm == \"app\") { print(1); } if (comm != \"app\") { print(2); } if (comm == \"ap\") { print(3); }",
            "1",
        ),
        ("if (pid == 41) { print(1); } else if (pid == 42) { print(2); } else { print(3); }", "2"),
        ("print(1); return; print(2);", "1"),
        ("print(1); exit(); print(2);", "1"),
        ("if (pid == 1) { $x = 5; } print($x);", "0"),
        (
            "@a = count(); @a = count(); print(@a + 0); @b = avg(4); @b = avg(7); print(@b + 0); @c = max(-5); print(@c + 0);",
            "2 5 -5",
        ),
        (
            "@k[\"a\"] = 1; @k[\"long\"] = 2; @k[comm] = 3; print(@k[\"a\"] + 0); print(@k[\"app\"] + 0); print(@k[\"none\"] + 0);",
            "1 3 0",
        ),
        ("@k[1] = 1; print(has_key(@k, 1)); delete(@k[1]); print(has_key(@k, 1)); print(len(@k));", "1 0 0"),
        (
            "@t[(\"a\", 1)] = (\"b\", 2); @t[(\"much longer\", 3)] = (\"also longer\", 4); $v = @t[(\"a\", 1)]; print($v.0); print($v.1);",
            "b 2",
        ),
        (
            "$t = ((\"a\", 1), 2); $t = ((\"much longer\", 3), 4); print($t.0.0); $t = ((\"c\", 5), 6); print($t.0.0); print($t.0.1); print($t.1);",
            "much longer c 5 6",
        ),
        ("@t = (1, \"two\", (3, 4)); $t = @t; print($t.1); print(@t.2.1); print($t.2.0 + $t.0);", "two 4 4"),
        (
            "$l = \"abc\"; $l = \"abcdef\"; print(strlen($l)); print(strncmp(\"abc\", \"abd\", 2)); print(strcontains(\"haystack\", \"st\"));",
            "6 0 1",
        ),
        (
            "print((int8)200); print((uint8)300); print((int32)3000000000); print((uint16)-1);",
            "-56 44 -1294967296 65535",
        ),
        (
            "print(-5 < pid); print(bswap((uint16)0x1234)); $p = (uint32)pid; print(bswap($p)); print(~5); print(!5);",
            "0 13330 704643072 -6 0",
        ),
        (
            "@s = \"x\"; @s = \"longer\"; $s = @s; print($s); $a = \"q\"; @m[$a] = \"w\"; $m = @m[\"q\"]; print($m); $m = @m[\"z\"]; print($m);",
            "longer w ",
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(run(body), expected, "{body}");
    }
}

#[test]
fn memory_is_read_as_its_types_say() {
    // 0x1000: "key", 0x1008: -2 and 515, 0x1010: bits, 0x1018: pointer to 0x1008, 0x1020: 1, 2, 3, 4.
    const MEMORY: &[u8] = b"key\0\0\0\0\0\xfe\xff\xff\xff\x03\x02\0\0\x2d\0\0\0\0\0\0\0\x08\x10\0\0\0\0\0\0\x01\0\x02\0\x03\0\x04\0";
    let types = "struct inner { int32 n; uint16 m; };
        struct item { char key[8]; struct inner in; uint8 low : 3; int8 high : 5; struct inner *next; uint16 list[4]; };";
    let cases = [
        ("print($i->key);", "key"),
        ("print(str(arg0));", "key"),
        ("print(str(arg0, 2));", "ke"),
        ("print($i->in.n); print($i->in.m);", "-2 515"),
        ("print($i->next->n); print((*$i->next).m);", "-2 515"),
        ("print($i->list[2]); $n = 3; print($i->list[$n]);", "3 4"),
        (
            "print(*(uint16 *)(arg0 + 0x20)); $p = (uint16 *)(arg0 + 0x20); print(*($p + 1)); print($p[3]); $p++; print(*$p);",
            "1 2 4 2",
        ),
        (
            "print(sizeof(struct item)); print(offsetof(struct item, in.m)); print(sizeof($i->list));",
            "40 12 8",
        ),
        ("print($i->low); print($i->high);", "5 5"),
        ("print(*(uint32 *)5);", "0"),
    ];
    for (body, expected) in cases {
        let script = format!("{types} uprobe:./app:main {{ $i = (struct item *)arg0; {body} }}");
        assert_eq!(printed(&script, [0x1000, 0, 0, 0, 0, 0], MEMORY), expected, "{body}");
    }
}
