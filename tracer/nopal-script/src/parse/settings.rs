//! `config = { name = value }`, and the same settings from outside.

use super::{Parsed, Parser};
use crate::ast::MissingProbes;
use crate::diagnostic::{Diagnostic, Span, nearest};
use nopal_program::StackForm;

/// Settings that mean something here, with what they are.
const MEANT: [(&str, &str); 7] = [
    ("max_strlen", "a number from 8 to 4096"),
    ("max_map_keys", "a number from 1 to 16777216"),
    ("max_cat_bytes", "a number from 1 to 16777216"),
    ("print_maps_on_exit", "true or false"),
    ("missing_probes", "error, warn or ignore"),
    ("probe_inline", "true or false"),
    ("stack_mode", "bpftrace, perf, raw or build_id"),
];

/// Settings of bpftrace about what nopal finds out by itself, or does not have; they are taken, and change nothing.
const TAKEN: [&str; 15] = [
    "cache_user_symbols",
    "cpp_demangle",
    "lazy_symbolication",
    "license",
    "log_size",
    "max_ast_nodes",
    "max_bpf_progs",
    "max_probes",
    "max_type_res_iterations",
    "on_stack_limit",
    "perf_rb_pages",
    "show_debug_info",
    "str_trunc_trailer",
    "symbol_source",
    "use_blazesym",
];

/// Licenses that the kernel takes for compatible with its own.
const LICENSES: [&str; 6] =
    ["Dual MIT/GPL", "Dual BSD/GPL", "Dual MPL/GPL", "GPL and additional rights", "GPL v2", "GPL"];

/// Names that variables have had.
const OLD: [(&str, &str); 4] = [
    ("strlen", "max_strlen"),
    ("no_cpp_demangle", "cpp_demangle"),
    ("cat_bytes_max", "max_cat_bytes"),
    ("map_keys_max", "max_map_keys"),
];

impl Parser<'_> {
    pub(super) fn settings_from_outside(&mut self) -> Parsed<()> {
        for (name, value) in self.script.options.settings.clone() {
            let start = Span::default();
            // A variable that bpftrace has for other purposes.
            let known = canonical(&name);
            if MEANT.iter().any(|(meant, _)| *meant == known) {
                self.setting(&name, &value, start, start)?;
            }
        }
        Ok(())
    }

    pub(super) fn setting(
        &mut self,
        name: &str,
        value: &str,
        name_span: Span,
        value_span: Span,
    ) -> Parsed<()> {
        let known = canonical(name);
        let Some((_, form)) = MEANT.iter().find(|(meant, _)| *meant == known) else {
            if known == "license" {
                if let Some(license) = LICENSES.into_iter().find(|license| *license == value) {
                    self.script.license = license;
                    return Ok(());
                }
                let message = format!(
                    "Invalid value for license. Found: {value}. Valid values: {}",
                    LICENSES.join(", ")
                );
                return Err(Diagnostic::error(Span { end: value_span.end, ..name_span }, message).help(
                    "the kernel gives most of what scripts need to programs with these licenses alone",
                ));
            }
            if TAKEN.contains(&known.as_str()) || known.starts_with("unstable_") {
                return Ok(());
            }
            let names = MEANT.iter().map(|(name, _)| *name).chain(TAKEN);
            let whole = Span { end: value_span.end, ..name_span };
            let error = Diagnostic::error(whole, format!("{name}: not a known configuration option"));
            return Err(match nearest(&known, names) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help("settings are `max_strlen` (256), `max_map_keys` (4096), `print_maps_on_exit`, `missing_probes` and `stack_mode`"),
            });
        };
        let number = || crate::number::parse_number(value).and_then(Result::ok);
        let script = &mut self.script;
        let is_right = match (known.as_str(), value) {
            ("max_strlen", _) => match number().filter(|n| (8..=4096).contains(n)) {
                Some(n) => {
                    script.limits.string_bytes = n as u32;
                    true
                }
                None => false,
            },
            ("max_map_keys", _) => match number().filter(|n| (1..=1 << 24).contains(n)) {
                Some(n) => {
                    script.limits.map_entries = n as u32;
                    true
                }
                None => false,
            },
            ("max_cat_bytes", _) => match number().filter(|n| (1..=1 << 24).contains(n)) {
                Some(n) => {
                    script.limits.cat_bytes = n as u32;
                    true
                }
                None => false,
            },
            ("print_maps_on_exit", "true" | "1" | "false" | "0") => {
                script.limits.prints_maps = matches!(value, "true" | "1");
                true
            }
            ("probe_inline", "true" | "1" | "false" | "0") => {
                script.probes_inlined = matches!(value, "true" | "1");
                true
            }
            ("missing_probes", "error" | "warn" | "ignore") => {
                script.missing_probes = match value {
                    "error" => MissingProbes::Error,
                    "warn" => MissingProbes::Warn,
                    _ => MissingProbes::Ignore,
                };
                true
            }
            ("stack_mode", "bpftrace" | "perf" | "raw" | "build_id") => {
                script.stack_form = match value {
                    "bpftrace" => StackForm::Bpftrace,
                    "perf" => StackForm::Perf,
                    "build_id" => StackForm::BuildId,
                    _ => StackForm::Raw,
                };
                true
            }
            _ => false,
        };
        match is_right {
            true => Ok(()),
            false => Err(Diagnostic::error(value_span, format!("`{name}` is {form}, not `{value}`"))),
        }
    }
}

/// In small letters, without `BPFTRACE_`, by the name it has today.
fn canonical(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let name = name.strip_prefix("bpftrace_").unwrap_or(&name).to_owned();
    OLD.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| (*new).to_owned())
}
