use super::*;

const NAMES: [&str; 7] = ["len", "name", "ratio", "gone", "big", "long", "list"];

fn field(name: &str) -> Option<usize> {
    NAMES.iter().position(|n| *n == name)
}

fn value(source: Source) -> Value<'static> {
    match source {
        Source::Field(index) => [
            Value::Int(120),
            Value::Text(b"get key"),
            Value::Float(0.5),
            Value::Absent,
            Value::Int(u64::MAX.into()),
            Value::Cut(b"get"),
            Value::Text(b"\x01\x02"),
        ][index],
        Source::Element { index, .. } => [1, 2].get(index).map_or(Value::Absent, |n| Value::Int(*n)),
        Source::Context(Context::Procname) => Value::Text(b"server"),
        Source::Context(Context::Fact(_)) => Value::Absent,
        Source::Context(Context::Vpid | Context::Vtid) => Value::Int(77),
        Source::Context(Context::CpuId) => Value::Int(0),
    }
}

#[track_caller]
fn decide(text: &str) -> Truth {
    Predicate::parse(text, &field).unwrap_or_else(|e| panic!("{text}: {e:?}")).decide(&value)
}

#[test]
fn conditions_hold_as_written() {
    for (text, expected) in [
        ("len > 100", true),
        ("len > 120", false),
        ("len >= 0x78", true),
        ("len == 120 && name == \"get*\"", true),
        ("len == 1 || name == 'get key'", true),
        ("!(len == 1) && ratio < 0.75", true),
        ("name != \"set*\"", true),
        ("name == \"*key\"", true),
        ("name == \"*t k*\"", true),
        ("name == \"get\"", false),
        ("name == 5", false),
        ("len < -3", false),
        ("ratio >= 1", false),
        ("gone == 0", false),
        ("gone != 0", false),
        ("len < 1k", true),
        ("len < 1us", true),
        ("len<1_000&&(len!=3)", true),
        // The rest of LTTng's operators.
        ("len", true),
        ("!len", false),
        ("!len == 0", true),
        ("0 || 1 && len", true),
        ("len & 8", true),
        ("len & 8 == 8", false),
        ("(len & 8) == 8", true),
        ("len | 7 ^ 1 & 3", true),
        ("(len ^ 120) == 0", true),
        ("len << 1 == 240 && len >> 3 == 15", true),
        ("len << 64", false),
        ("~len == -121 && ~len < 0 && (-len | 1) < 0 && (big & -1) > 0", true),
        ("-len == -120 && +len == 120", true),
        ("100 < len && \"get*\" == name", true),
        ("len > ratio && len != big && len == len", true),
        ("name == name && name != list", true),
        ("big == -1 && -1 == big && big > 0", true),
        ("list[1] == 2 && list[0] < list[1]", true),
        ("list[2] == 0", false),
        ("ratio < 1e300 && ratio > 1.5e-3 && ratio == .5", true),
        ("len == 0170", true),
        ("$ctx.vpid == $ctx.vtid && $ctx.procname == \"ser*\" && !$ctx.cpu_id", true),
        ("(len == 120 || gone == 1) && (ratio < 0.1 || name == 'g*')", true),
    ] {
        assert_eq!(decide(text), Truth::from(expected), "{text}");
    }
}

#[test]
fn what_a_cut_text_leaves_open_stays_open() {
    for (text, expected) in [
        ("long == 'get key'", Truth::Unknown),
        ("long == '*key'", Truth::Unknown),
        ("long != '*key'", Truth::Unknown),
        ("!(long == '*key')", Truth::Unknown),
        ("long == 'set*'", Truth::No),
        ("long == 'g*'", Truth::Yes),
        ("long == 'get'", Truth::No),
        ("long != 'get'", Truth::Yes),
        ("long > 'get'", Truth::Yes),
        ("long < 'get key'", Truth::Unknown),
        ("long < 'h'", Truth::Yes),
        ("long == name", Truth::Unknown),
        ("long == '*key' && len == 1", Truth::No),
        ("long == '*key' || len == 120", Truth::Yes),
        ("long == '*key' && len == 120", Truth::Unknown),
    ] {
        assert_eq!(decide(text), expected, "{text}");
    }
}

#[test]
fn a_broken_condition_names_place_and_reason() {
    for (text, offset, reason) in [
        ("lan > 1", 0, "the event has no argument `lan`"),
        ("len > ", 6, "expected a number, a string in quotes or an argument"),
        ("len > 12x", 6, "expected a number, a string in quotes or an argument"),
        ("name == \"abc", 8, "this text has no end"),
        ("(len > 1", 8, "expected `)`"),
        ("len > 1 len", 8, "expected an operator or the end"),
        ("len + 1 > 2", 4, "conditions do not compute with `+`"),
        ("list[0 == 1", 7, "expected `]`"),
        (
            "len > 1 && $ctx.pthread_id",
            11,
            "`$ctx.pthread_id` is not known to conditions; $ctx.vpid, $ctx.vtid, $ctx.cpu_id, $ctx.procname, \
             $ctx.vuid, $ctx.veuid, $ctx.vsuid, $ctx.vgid, $ctx.vegid, $ctx.vsgid, $ctx.cgroup_ns, $ctx.ipc_ns, \
             $ctx.mnt_ns, $ctx.net_ns, $ctx.pid_ns, $ctx.time_ns, $ctx.user_ns, $ctx.uts_ns are",
        ),
        ("", 0, "expected the name of an argument"),
    ] {
        let error = Predicate::parse(text, &field).unwrap_err();
        assert_eq!((error.offset, error.reason.as_str()), (offset, reason), "{text}");
    }
}

#[test]
fn texts_and_numbers_do_not_mix() {
    let is_text = |source| match source {
        Source::Field(field) => matches!(field, 1 | 5 | 6),
        Source::Element { .. } => false,
        Source::Context(context) => context == Context::Procname,
    };
    for (text, expected) in [
        ("len == ratio && name == 'x' && list[0] == 1", None),
        ("name == len", Some(Mismatch::Field(1))),
        ("name & 1", Some(Mismatch::Field(1))),
        ("len > 1 && name", Some(Mismatch::Field(1))),
        ("\"abc\"", Some(Mismatch::Constant)),
        ("1 == 'x'", Some(Mismatch::Constant)),
        ("$ctx.procname == 1", Some(Mismatch::Context(Context::Procname))),
        ("$ctx.vpid == 'x'", Some(Mismatch::Context(Context::Vpid))),
    ] {
        assert_eq!(Predicate::parse(text, &field).unwrap().mismatch(&is_text), expected, "{text}");
    }
}

#[test]
fn labels_stand_for_their_values() {
    let label = |field: usize, name: &str| match (field, name) {
        (0, "GET") => Some((7, 7)),
        (0, "SLOW" | "very slow") => Some((10, 19)),
        _ => None,
    };
    for (text, held) in [
        ("len == GET", &[7][..]),
        ("len == \"GET\"", &[7]),
        ("len != 'GET' && len < SLOW", &[6, 9]),
        ("len == SLOW || len == 20", &[10, 19, 20]),
        ("len != SLOW", &[6, 7, 9, 20]),
        ("len > 'very slow'", &[20]),
        ("len >= SLOW && len <= SLOW", &[10, 19]),
    ] {
        let predicate = Predicate::parse_labelled(text, &|_| Some(0), &label).unwrap();
        let holding: Vec<i128> = [6, 7, 9, 10, 19, 20]
            .into_iter()
            .filter(|n| predicate.decide(&|_| Value::Int(*n)) == Truth::Yes)
            .collect();
        assert_eq!(holding, held, "{text}");
    }
    let error = Predicate::parse_labelled("len == PUT", &field, &label).unwrap_err();
    assert_eq!((error.offset, &*error.reason), (7, "the event has no argument `PUT`"));
}

#[test]
fn deep_nesting_and_long_rows_are_refused_not_followed() {
    for (text, reason) in [
        ("(".repeat(100_000), "nested too deeply"),
        ("!".repeat(100_000), "nested too deeply"),
        ("len | ".repeat(100_000) + "1", "too many operators"),
    ] {
        assert_eq!(Predicate::parse(&text, &field).unwrap_err().reason, reason);
    }
}
