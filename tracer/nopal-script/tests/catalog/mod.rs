//! A catalog for tests: every point exists; probes, tracepoints and a few kernel types have known arguments.

use nopal_program::{Place, Point, PointKind};
use nopal_script::catalog::{ArgType, Catalog, KnownArg, KnownPoint, NoPoint, PointSpec};
use nopal_script::ctype::{CType, Member, Record};

pub(crate) struct TestCatalog;

fn arg(name: &str, arg_type: ArgType) -> KnownArg {
    KnownArg { name: name.into(), arg_type }
}

fn int(size_bytes: u8, is_signed: bool) -> ArgType {
    ArgType::Int { size_bytes, is_signed }
}

/// `usdt:./app:prov:request` and any other probe but `plain` (no arguments) and `pair*` (two points that differ).
fn probe_args() -> Vec<KnownArg> {
    let labels = vec![(0, "IDLE".to_string()), (1, "BUSY".to_string())];
    vec![
        arg("id", int(4, true)),
        arg("path", ArgType::Str),
        arg("data", ArgType::Pointer),
        arg("size", int(8, false)),
        arg("state", ArgType::Enum { labels }),
        arg("load", ArgType::Float),
        arg("body", ArgType::Bytes { length_arg: Some(3) }),
    ]
}

/// Fields of the tracepoints that bpftrace's tools name.
fn tracepoint_args(category: &str) -> Vec<KnownArg> {
    let numbers = [
        "pid",
        "sig",
        "ret",
        "id",
        "bytes",
        "uid",
        "ruid",
        "euid",
        "suid",
        "filename",
        "pathname",
        "argv",
        "rqtp",
        "prev_state",
        "prev_pid",
        "next_pid",
        "sb_dev",
        "nr_pages",
        "reason",
        "skbaddr",
    ];
    let mut args: Vec<KnownArg> = numbers
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let offset = 8 + 8 * index as u16;
            arg(name, ArgType::Field { offset, size_bytes: 8, is_signed: true })
        })
        .collect();
    args.push(arg("comm", ArgType::FieldChars { offset: 400, size_bytes: 16 }));
    args.push(arg("name", ArgType::FieldChars { offset: 416, size_bytes: 32 }));
    args.push(arg("saddr_v6", ArgType::FieldChars { offset: 448, size_bytes: 16 }));
    if category == "sched" {
        args.push(arg("text", ArgType::FieldString { offset: 464 }));
    }
    args
}

/// Of `uprobe:./app:typed`; other functions have no debug information.
fn function_args() -> Vec<KnownArg> {
    let in_register = |number, value| ArgType::InRegister { number, value, labels: Vec::new() };
    let labels = vec![(0, "IDLE".to_string()), (7, "BUSY".to_string())];
    let number = CType::Int { size_bytes: 4, is_signed: true };
    vec![
        arg("key", in_register(1, CType::U64)),
        arg("is_set", in_register(2, CType::Bool)),
        arg("state", ArgType::InRegister { number: 3, value: number, labels }),
        arg("n", in_register(4, CType::Int { size_bytes: 2, is_signed: true })),
        arg("text", in_register(0, CType::Char.pointer())),
        arg("scale", ArgType::Absent { why: "floating-point numbers of functions are not read".into() }),
    ]
}

impl Catalog for TestCatalog {
    fn parameters(&self, point: &Point) -> Vec<KnownArg> {
        if point.name.ends_with(":typed") { function_args() } else { Vec::new() }
    }

    fn points(&self, spec: &PointSpec) -> Result<Vec<KnownPoint>, NoPoint> {
        let name = format!("{}:{}", spec.kind, spec.parts.join(":"));
        let last = spec.parts.last().cloned().unwrap_or_default();
        let path = spec.parts[0].clone();
        let point = |kind| Point { name: name.clone(), kind };
        let symbol = || {
            let (symbol, offset) = last.split_once('+').unwrap_or((&last, "0"));
            let digits = offset.trim_start_matches("0x");
            let radix = if digits == offset { 10 } else { 16 };
            Place::Symbol { name: symbol.into(), offset: u64::from_str_radix(digits, radix).unwrap_or(0) }
        };
        let mut args = Vec::new();
        let kind = match spec.kind.as_str() {
            "usdt" if last == "missing" => {
                return Err(NoPoint {
                    reason: format!("no probe `{last}` in {path}"),
                    hint: Some("did you mean `prov:request`?".into()),
                    is_only_absent: false,
                });
            }
            "usdt" => {
                let usdt = |name: &str| PointKind::Usdt {
                    path: path.clone(),
                    provider: "prov".into(),
                    name: name.into(),
                };
                if last == "pair*" {
                    let known = |name: &str, arg_type| KnownPoint {
                        point: Point { name: format!("usdt:{path}:prov:{name}"), kind: usdt(name) },
                        args: vec![arg("n", arg_type)],
                        obstacle: None,
                    };
                    return Ok(vec![
                        known("pair_a", int(4, true)),
                        known("pair_b", int(8, false)),
                        known("pair_c", int(4, true)),
                    ]);
                }
                if last != "plain" {
                    args = probe_args();
                }
                usdt(&last)
            }
            "uprobe" | "uretprobe" if last.starts_with("absent") => {
                return Err(NoPoint {
                    reason: format!("there is no function `{last}` in {path}"),
                    hint: None,
                    is_only_absent: true,
                });
            }
            "uretprobe" if last == "_start" || last == "*" => {
                let known = |name: &str, obstacle: Option<&str>| KnownPoint {
                    point: Point {
                        name: format!("uretprobe:{path}:{name}"),
                        kind: PointKind::Uretprobe {
                            path: path.clone(),
                            place: Place::Symbol { name: name.into(), offset: 0 },
                        },
                    },
                    args: Vec::new(),
                    obstacle: obstacle.map(String::from),
                };
                let entry = known("_start", Some("nothing returns from it"));
                return Ok(if last == "*" { vec![known("main", None), entry] } else { vec![entry] });
            }
            "uprobe" => PointKind::Uprobe { path, place: symbol() },
            "uretprobe" => PointKind::Uretprobe { path, place: symbol() },
            "kprobe" => PointKind::Kprobe { function: last, offset: 0 },
            "kretprobe" => PointKind::Kretprobe { function: last },
            "tracepoint" => {
                args = tracepoint_args(&spec.parts[0]);
                PointKind::Tracepoint { category: spec.parts[0].clone(), name: last }
            }
            other => panic!("asked for {other}"),
        };
        Ok(vec![KnownPoint { point: point(kind), args, obstacle: None }])
    }

    fn record(&self, name: &str) -> Option<Record> {
        let int = |size_bytes, is_signed| CType::Int { size_bytes, is_signed };
        let pointer = |name: &str| CType::Record(name.into()).pointer();
        let members: Vec<(&str, u32, CType)> = match name {
            "struct task_struct" => vec![
                ("pid", 1000, int(4, true)),
                ("real_parent", 1008, pointer("struct task_struct")),
                ("comm", 1016, CType::Array(Box::new(CType::Char), 16)),
                ("se", 1040, CType::Record("struct sched_entity".into())),
            ],
            "struct sched_entity" => vec![("cfs_rq", 64, pointer("struct cfs_rq"))],
            "struct cfs_rq" => vec![("nr_running", 16, int(4, false))],
            "struct __kernel_timespec" => vec![("tv_sec", 0, int(8, true)), ("tv_nsec", 8, int(8, true))],
            "struct sk_buff" => vec![("sk", 24, pointer("struct sock"))],
            "struct sock" => vec![("__sk_common", 0, CType::Record("struct sock_common".into()))],
            "struct sock_common" => vec![
                ("skc_daddr", 0, int(4, false)),
                ("skc_rcv_saddr", 4, int(4, false)),
                ("skc_dport", 12, int(2, false)),
                ("skc_num", 14, int(2, false)),
                ("skc_family", 16, int(2, false)),
                ("skc_state", 18, int(1, false)),
                ("skc_v6_daddr", 56, CType::Record("struct in6_addr".into())),
                ("skc_v6_rcv_saddr", 72, CType::Record("struct in6_addr".into())),
            ],
            "struct in6_addr" => vec![("in6_u", 0, CType::Record("union in6_u".into()))],
            "union in6_u" => vec![("u6_addr8", 0, CType::Array(Box::new(int(1, false)), 16))],
            _ => return None,
        };
        let members = members
            .into_iter()
            .map(|(name, offset, value_type)| Member { name: name.into(), offset, value_type, bits: None })
            .collect();
        Some(Record { size_bytes: 4096, align_bytes: 8, members })
    }

    fn constant(&self, name: &str) -> Option<i64> {
        matches!(name, "TASK_RUNNING" | "SKB_DROP_REASON_NOT_SPECIFIED").then_some(0)
    }

    fn arg_type(&self, _: &Point, name: &str) -> Option<CType> {
        (name == "rqtp").then(|| CType::Record("struct __kernel_timespec".into()).pointer())
    }

    fn kernel_address(&self, symbol: &str) -> Option<u64> {
        (symbol == "avenrun").then_some(0xffff_ffff_8200_0000)
    }

    fn cgroup_id(&self, path: &str) -> Option<u64> {
        path.starts_with("/sys/fs/cgroup").then_some(77)
    }

    fn child_pid(&self) -> Option<u32> {
        Some(4242)
    }
}
