//! Kernel tracepoints: which there are, and the fields their format files tell of.

use nopal_program::{Point, PointKind};
use nopal_script::catalog::{ArgType, KnownArg, KnownPoint, NoPoint};
use nopal_script::ctype::CType;
use nopal_sdt::pattern::{glob, nearest};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where tracefs may be.
const FOLDERS: [&str; 2] = ["/sys/kernel/tracing/events", "/sys/kernel/debug/tracing/events"];

/// The tracepoints that `category:name` stands for.
pub(crate) fn find(category: &str, name: &str) -> Result<Vec<KnownPoint>, NoPoint> {
    let folder =
        FOLDERS.iter().map(Path::new).find(|folder| folder.join("sched").is_dir() || folder.is_dir());
    let Some(folder) = folder else {
        return Err(unreadable());
    };
    let mut found = Vec::new();
    for category in matching(folder, category) {
        for name in matching(&folder.join(&category), name) {
            let path = folder.join(&category).join(&name).join("format");
            let Ok(text) = fs::read_to_string(path) else { continue };
            found.push(KnownPoint {
                point: Point {
                    name: format!("tracepoint:{category}:{name}"),
                    kind: PointKind::Tracepoint { category: category.clone(), name },
                },
                args: fields(&text),
                obstacle: None,
            });
        }
    }
    if found.is_empty() {
        return Err(none(folder, category, name));
    }
    Ok(found)
}

fn none(folder: &Path, category: &str, name: &str) -> NoPoint {
    let categories = folders_in(folder);
    let hint = if !categories.is_empty() && !categories.iter().any(|c| glob(category, c)) {
        nearest(category, categories.iter().map(String::as_str))
            .map(|near| format!("did you mean `{near}:{name}`?"))
    } else {
        let names: Vec<String> = matching(folder, category)
            .iter()
            .flat_map(|category| folders_in(&folder.join(category)))
            .collect();
        nearest(name, names.iter().map(String::as_str))
            .map(|near| format!("did you mean `{category}:{near}`?"))
    };
    if categories.is_empty() {
        return unreadable();
    }
    no_point(format!("this kernel has no tracepoint `{category}:{name}`"), hint)
}

/// What stands between us and tracefs.
fn unreadable() -> NoPoint {
    let is_forbidden =
        |folder: &&str| fs::read_dir(folder).is_err_and(|e| e.kind() == ErrorKind::PermissionDenied);
    let (reason, hint) = match FOLDERS.iter().any(is_forbidden) {
        true => (
            "tracefs may not be read: tracepoints need root, or CAP_BPF, CAP_PERFMON and CAP_DAC_READ_SEARCH",
            "run it as root; static probes (usdt) of your own processes need none of these: --door user",
        ),
        false => (
            "tracefs, which lists the tracepoints, is not mounted",
            "mount -t tracefs tracefs /sys/kernel/tracing (needs root)",
        ),
    };
    no_point(reason.to_owned(), Some(hint.to_owned()))
}

fn matching(folder: &Path, pattern: &str) -> Vec<String> {
    if !pattern.contains(['*', '?', '[']) {
        // A name must not lead elsewhere.
        let is_name = !pattern.is_empty() && !pattern.contains('/') && !pattern.starts_with('.');
        return if is_name && folder.join(pattern).is_dir() { vec![pattern.to_owned()] } else { Vec::new() };
    }
    folders_in(folder).into_iter().filter(|name| glob(pattern, name)).collect()
}

fn folders_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| PathBuf::from(entry.file_name()).to_str().map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// What a field that is a pointer to a record leads to.
pub(crate) fn pointer(category: &str, tracepoint: &str, name: &str) -> Option<CType> {
    let path = |folder: &&str| Path::new(folder).join(category).join(tracepoint).join("format");
    let text = FOLDERS.iter().find_map(|folder| fs::read_to_string(path(folder)).ok())?;
    text.lines().find_map(|line| pointer_field(line, name))
}

fn pointer_field(line: &str, name: &str) -> Option<CType> {
    let declaration = line.trim().strip_prefix("field:")?.split(';').next()?;
    let (declared, own_name) = declaration.trim().rsplit_once([' ', '*'])?;
    let before = declaration[..declared.len() + 1].trim().trim_start_matches("const ").trim_end();
    let record = before.strip_suffix('*')?.trim();
    let is_record = ["struct ", "union "].iter().any(|word| record.starts_with(word));
    (own_name == name && is_record && !record.contains('*'))
        .then(|| CType::Record(record.to_owned()).pointer())
}

/// The fields as the kernel declares them: `char comm[16]`.
pub(crate) fn declarations(category: &str, tracepoint: &str) -> Vec<String> {
    let path = |folder: &&str| Path::new(folder).join(category).join(tracepoint).join("format");
    let text = FOLDERS.iter().find_map(|folder| fs::read_to_string(path(folder)).ok()).unwrap_or_default();
    let declared =
        |line: &str| Some(line.trim().strip_prefix("field:")?.split(';').next()?.trim().to_owned());
    let is_own = |line: &&str| field(line).is_none_or(|arg| !arg.name.starts_with("common_"));
    text.lines().filter(is_own).filter_map(declared).collect()
}

/// The fields of a format file, those common to all tracepoints left out.
fn fields(text: &str) -> Vec<KnownArg> {
    text.lines().filter_map(field).filter(|arg| !arg.name.starts_with("common_")).collect()
}

/// `field:const char * filename; offset:16; size:8; signed:0;`
fn field(line: &str) -> Option<KnownArg> {
    let rest = line.trim().strip_prefix("field:")?;
    let (declaration, rest) = rest.split_once(';')?;
    let number = |key: &str| -> Option<u64> {
        let at = rest.find(key)? + key.len();
        rest[at..].split(';').next()?.trim().parse().ok()
    };
    let (offset, size_bytes) = (u16::try_from(number("offset:")?).ok()?, number("size:")?);
    let is_signed = number("signed:") == Some(1);
    // `char comm[16]`, `__data_loc char[] filename`.
    let declared = declaration.trim();
    let before_array = declared.split('[').next().unwrap_or_default();
    let named = if declared.ends_with(']') { before_array } else { declared };
    let (c_type, name) = named.trim().rsplit_once([' ', '*'])?;
    let is_array = declaration.contains('[');
    let is_chars = is_array && c_type.contains("char") && !c_type.contains('*');
    let arg_type = if declaration.starts_with("__data_loc") {
        ArgType::FieldString { offset }
    } else if is_chars {
        ArgType::FieldChars { offset, size_bytes: u16::try_from(size_bytes).ok()? }
    } else {
        // Arrays of numbers can be looked at by their first.
        let size_bytes = match size_bytes {
            1 | 2 | 4 | 8 => size_bytes as u8,
            _ => 8,
        };
        ArgType::Field { offset, size_bytes, is_signed }
    };
    Some(KnownArg { name: name.trim().to_owned(), arg_type })
}

pub(super) fn no_point(reason: String, hint: Option<String>) -> NoPoint {
    NoPoint { reason, hint, is_only_absent: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_to_records() {
        let of = |declaration: &str| pointer_field(&format!("\tfield:{declaration};\toffset:16;"), "it");
        let request = Some(CType::Record("struct request".into()).pointer());
        for (declaration, want) in [
            ("struct request * it", request.clone()),
            ("const struct request *it", request),
            ("struct request * other", None),
            ("const char * it", None),
            ("struct request ** it", None),
            ("pid_t it", None),
        ] {
            assert_eq!(of(declaration), want, "{declaration}");
        }
    }

    #[test]
    fn fields_of_format_files() {
        let text = "\
name: sched_process_exec
ID: 311
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;
\tfield:pid_t pid;\toffset:12;\tsize:4;\tsigned:1;
\tfield:const char * path;\toffset:16;\tsize:8;\tsigned:0;
\tfield:char comm[16];\toffset:24;\tsize:16;\tsigned:0;
\tfield:unsigned long args[6];\toffset:40;\tsize:48;\tsigned:0;

print fmt: \"filename=%s\", __get_str(filename)
";
        let arg = |name: &str, arg_type| KnownArg { name: name.into(), arg_type };
        assert_eq!(
            fields(text),
            [
                arg("filename", ArgType::FieldString { offset: 8 }),
                arg("pid", ArgType::Field { offset: 12, size_bytes: 4, is_signed: true }),
                arg("path", ArgType::Field { offset: 16, size_bytes: 8, is_signed: false }),
                arg("comm", ArgType::FieldChars { offset: 24, size_bytes: 16 }),
                arg("args", ArgType::Field { offset: 40, size_bytes: 8, is_signed: false }),
            ]
        );
    }
}
