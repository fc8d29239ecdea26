//! Scripts: reading, compiling and showing what is wrong must not fail, and what comes out must be a program that names
//! only what it has.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_program::interpret::Interpreter;
use nopal_program::{Place, Point, PointKind};
use nopal_script::catalog::{ArgType, Catalog, KnownArg, KnownPoint, NoPoint, PointSpec};
use nopal_script::{Options, compile_with_warnings, parse};
use std::sync::Arc;

/// Every point exists; arguments have every shape there is.
struct Everything;

impl Catalog for Everything {
    fn points(&self, spec: &PointSpec) -> Result<Vec<KnownPoint>, NoPoint> {
        let last = spec.parts.last().cloned().unwrap_or_default();
        if last.ends_with('!') {
            return Err(NoPoint {
                reason: "no such point".into(),
                hint: None,
                is_only_absent: last.starts_with('!'),
            });
        }
        let path = spec.parts[0].clone();
        let place = || Place::Symbol { name: last.clone(), offset: 0 };
        let mut arg_types = Vec::new();
        let kind = match spec.kind.as_str() {
            "usdt" => {
                arg_types = vec![
                    ("a", ArgType::Int { size_bytes: 4, is_signed: true }),
                    ("b", ArgType::Str),
                    ("c", ArgType::Pointer),
                    ("d", ArgType::Enum { labels: vec![(1, "ONE".into())] }),
                    ("e", ArgType::Float),
                    ("f", ArgType::Bytes { length_arg: Some(0) }),
                ];
                PointKind::Usdt { path, provider: "p".into(), name: last }
            }
            "uprobe" => PointKind::Uprobe { path, place: place() },
            "uretprobe" => PointKind::Uretprobe { path, place: place() },
            "kprobe" => PointKind::Kprobe { function: last, offset: 0 },
            "kretprobe" => PointKind::Kretprobe { function: last },
            _ => {
                arg_types = vec![
                    ("a", ArgType::Field { offset: 8, size_bytes: 4, is_signed: true }),
                    ("b", ArgType::FieldString { offset: 12 }),
                    ("c", ArgType::FieldChars { offset: 16, size_bytes: 16 }),
                ];
                PointKind::Tracepoint { category: path, name: last }
            }
        };
        let args =
            arg_types.into_iter().map(|(name, arg_type)| KnownArg { name: name.into(), arg_type }).collect();
        Ok(vec![KnownPoint { point: Point { name: spec.kind.clone(), kind }, args, obstacle: None }])
    }

    fn constant(&self, name: &str) -> Option<i64> {
        name.starts_with("K_").then_some(7)
    }

    fn kernel_address(&self, _: &str) -> Option<u64> {
        Some(u64::MAX)
    }
}

fuzz_target!(|text: &str| {
    let options = Options { is_unsafe: true, ..Options::default() };
    let parameters = ["one".to_string(), "-2".to_string()];
    let outcome = parse(text, "a.bt", &parameters, &options)
        .and_then(|script| compile_with_warnings(&script, &Everything));
    match outcome {
        Ok((program, warnings)) => {
            assert!(!program.clauses.is_empty());
            for warning in warnings {
                warning.render(text, "a.bt", false);
            }
            let shown = program.to_string();
            if let Err(bad) = Interpreter::new(Arc::new(program), 0) {
                panic!("{shown}\n{bad}");
            }
        }
        Err(diagnostics) => {
            assert!(diagnostics.iter().any(|diagnostic| diagnostic.is_error()));
            for diagnostic in diagnostics.iter().take(3) {
                assert!(!diagnostic.render(text, "a.bt", false).is_empty());
            }
        }
    }
});
