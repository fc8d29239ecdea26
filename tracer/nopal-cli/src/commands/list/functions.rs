//! `nopal list --functions`: the functions of files, and what each can be traced by.

use super::{Args, find, print};
use crate::failure::Failure;
use crate::words::counted;
use nopal_dwarf::{DebugInfo, GoParameter, GoPlace, GoSignature, GoValue, Parameter, Place, Signature};
use nopal_proc::Image;
use nopal_proc::demangle::demangle;
use nopal_proc::file_functions::FileFunctions;
use nopal_proc::symbols::Function;
use nopal_sdt::pattern::glob;
use nopal_trace::escape_lines;
use nopal_user::outlook::{Outlook, outlooks};
use serde::Serialize;
use std::fmt;
use std::fmt::Write as _;
use std::path::Path;

/// One function as scripts read it.
#[derive(Serialize)]
struct FunctionJson {
    name: String,
    /// As the linker knows it, if that is another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    symbol: Option<String>,
    file: String,
    address: u64,
    size: u64,
    entry: DoorJson,
    exits: ExitsJson,
    /// What debug information says of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<SignatureJson>,
}

#[derive(Serialize)]
struct SignatureJson {
    parameters: Vec<ParameterJson>,
    returns: String,
    #[serde(skip)]
    is_go: bool,
}

#[derive(Serialize)]
struct ParameterJson {
    name: String,
    #[serde(rename = "type")]
    written: String,
    /// Where it is when the function is entered, if it can be read there.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
}

impl From<Signature> for SignatureJson {
    fn from(signature: Signature) -> SignatureJson {
        let parameter = |parameter: Parameter| ParameterJson {
            place: match parameter.place {
                Place::Register(register) => Some(register.name().to_owned()),
                Place::Vector(number) => Some(format!("xmm{number}")),
                Place::Elsewhere => None,
            },
            name: parameter.name,
            written: parameter.written,
        };
        let parameters = signature.parameters.into_iter().map(parameter).collect();
        SignatureJson { parameters, returns: signature.returned, is_go: false }
    }
}

impl From<GoSignature> for SignatureJson {
    fn from(signature: GoSignature) -> SignatureJson {
        let place = |value: &GoValue| match value.place? {
            GoPlace::Register(register) => Some(register.name().to_owned()),
            GoPlace::Vector(number) => Some(format!("xmm{number}")),
            GoPlace::Stack(above) => Some(format!("{above}(%rsp)")),
        };
        let parameter = |parameter: GoParameter| {
            let places: Option<Vec<String>> = parameter.values.iter().map(place).collect();
            let place = places.filter(|places| !places.is_empty()).map(|places| places.join(", "));
            ParameterJson { place, name: parameter.name, written: parameter.written }
        };
        let results: Vec<String> = signature.results.into_iter().map(|result| result.written).collect();
        let returns = match results.as_slice() {
            [] => String::new(),
            [only] => only.clone(),
            several => format!("({})", several.join(", ")),
        };
        let parameters = signature.parameters.into_iter().map(parameter).collect();
        SignatureJson { parameters, returns, is_go: true }
    }
}

/// `int (const char *key, size_t nkey)`, and of Go `func (key string, n int) (string, error)`.
impl fmt::Display for SignatureJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: Vec<String> = self
            .parameters
            .iter()
            .map(|ParameterJson { name, written, place }| {
                let space = if written.ends_with(['*', '&']) || name.is_empty() { "" } else { " " };
                let is_read = place.as_ref().is_some_and(|place| !place.contains("xmm"));
                let unread = if is_read { "" } else { " [not read]" };
                match self.is_go {
                    true => format!("{name} {written}{unread}"),
                    false => format!("{written}{space}{name}{unread}"),
                }
            })
            .collect();
        match self.is_go {
            true if self.returns.is_empty() => write!(f, "func ({})", text.join(", ")),
            true => write!(f, "func ({}) {}", text.join(", "), self.returns),
            false => write!(f, "{} ({})", self.returns, text.join(", ")),
        }
    }
}

#[derive(Serialize)]
struct DoorJson {
    door: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tactic: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct ExitsJson {
    user: usize,
    kernel: usize,
    /// Why they are not known, or why the first of them is for the kernel door.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// How many of the functions of a file the user door opens at all their edges, as far as the file tells.
#[derive(Default)]
struct Tally {
    n_all: usize,
    n_entered: usize,
    n_whole: usize,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (files, patterns) = find::files_and_words(args)?;
    let (mut rows, mut tally) = (Vec::new(), Tally::default());
    for path in &files {
        list(path, &patterns, args.json || args.verbose, &mut rows, &mut tally)?;
    }
    if rows.is_empty() {
        let failure = match patterns.first() {
            Some(pattern) => Failure::new("no-such-function", format!("no function matches `{pattern}`"))
                .hint("the same command without the pattern shows all functions there are"),
            None => Failure::new("no-functions", "there is no symbol of a function".to_owned())
                .hint("install its debug symbols; functions without names can be traced by address"),
        };
        return Err(failure);
    }
    if args.json {
        let text = serde_json::to_string(&rows)
            .map_err(|error| Failure::new("output", format!("the list cannot be written: {error}")))?;
        return print(&(text + "\n"));
    }
    print(&render(&rows, &tally, args.verbose))
}

fn list(
    path: &Path,
    patterns: &[String],
    is_detailed: bool,
    rows: &mut Vec<FunctionJson>,
    tally: &mut Tally,
) -> Result<(), Failure> {
    let image = Image::open(path).map_err(|error| Failure::new("no-such-file", error.to_string()))?;
    if !image.bytes().starts_with(b"\x7fELF") {
        return Err(Failure::new("not-elf", format!("{}: not an ELF file", path.display()))
            .hint("name a program or a library"));
    }
    let file = FileFunctions::read(image);
    let mut functions: Vec<(Function<'_>, String)> = file
        .symbols()
        .functions()
        .filter(|function| function.address != 0 && !function.name.contains(".cold"))
        .map(|function| (function, demangle(function.name)))
        .filter(|(function, shown)| {
            patterns.is_empty() || patterns.iter().any(|p| fits(p, function.name, shown))
        })
        .collect();
    // Of several names for one place the first.
    functions.dedup_by_key(|(function, _)| function.address);
    let info = is_detailed.then(|| DebugInfo::of_file(path, file.image())).flatten();
    let bare: Vec<Function<'_>> = functions.iter().map(|(function, _)| *function).collect();
    for ((function, shown), outlook) in functions.iter().zip(outlooks(&file, &bare)) {
        tally.n_all += 1;
        tally.n_entered += usize::from(outlook.entry.is_ok());
        tally.n_whole += usize::from(outlook.is_all_by_user());
        let info = info.as_ref();
        let signature = match file.is_go(function.address) {
            true => info.and_then(|info| info.go_signature(function.address)).map(SignatureJson::from),
            false => {
                info.and_then(|info| info.signature(function.address, function.name)).map(SignatureJson::from)
            }
        };
        rows.push(row(path, function, shown, &outlook, signature));
    }
    Ok(())
}

/// A pattern is one of the name as the linker has it, or demangled with or without its parameters.
fn fits(pattern: &str, name: &str, shown: &str) -> bool {
    let bare = shown.split('(').next().unwrap_or_default();
    let is_part = !pattern.contains(['*', '?', '[']) && name.contains(pattern);
    glob(pattern, name) || glob(pattern, shown) || glob(pattern, bare) || is_part
}

fn row(
    path: &Path,
    function: &Function<'_>,
    shown: &str,
    outlook: &Outlook,
    signature: Option<SignatureJson>,
) -> FunctionJson {
    let entry = match &outlook.entry {
        Ok(tactic) => DoorJson { door: "user", tactic: Some(tactic.at_edge()), reason: None },
        Err(why) => DoorJson { door: "kernel", tactic: None, reason: Some(why.to_string()) },
    };
    let exits = match &outlook.exits {
        Ok(exits) => {
            let user = exits.iter().filter(|exit| exit.is_ok()).count();
            let reason = exits.iter().find_map(|exit| exit.as_ref().err()).map(ToString::to_string);
            ExitsJson { user, kernel: exits.len() - user, reason }
        }
        Err(why) => ExitsJson { user: 0, kernel: 0, reason: Some(why.to_string()) },
    };
    FunctionJson {
        name: shown.to_owned(),
        symbol: (shown != function.name).then(|| function.name.to_owned()),
        file: path.display().to_string(),
        address: function.address,
        size: function.size_bytes,
        entry,
        exits,
        signature,
    }
}

fn render(rows: &[FunctionJson], tally: &Tally, is_verbose: bool) -> String {
    let mut text = String::new();
    let mut file = "";
    for row in rows {
        if row.file != file {
            file = &row.file;
            let _ = writeln!(text, "{}", escape_lines(file));
        }
        let exits = match (&row.exits, row.exits.user + row.exits.kernel) {
            (ExitsJson { reason: Some(reason), .. }, 0) => format!("exits not known: {reason}"),
            (_, 0) => "never returns".to_owned(),
            (ExitsJson { kernel: 0, user, .. }, _) => format!("{user} {}", plural(*user)),
            (ExitsJson { kernel, .. }, n) => format!("{n} {}, {kernel} by the kernel", plural(n)),
        };
        let entry = match &row.entry.reason {
            None => "user door".to_owned(),
            Some(reason) => format!("kernel door: {reason}"),
        };
        let _ = writeln!(text, "  {}  {entry}; {exits}", escape_lines(&row.name));
        if is_verbose {
            if let Some(signature) = &row.signature {
                let _ = writeln!(text, "    {}", escape_lines(&signature.to_string()));
            }
            let tactic = row.entry.tactic.unwrap_or("a breakpoint of the kernel");
            let _ = writeln!(text, "    at {:#x}, {} bytes; entry: {tactic}", row.address, row.size);
            if let (Some(reason), true) = (&row.exits.reason, row.exits.kernel > 0) {
                let _ = writeln!(text, "    exits by the kernel: {reason}");
            }
        }
    }
    let percent = |n: usize| 100.0 * n as f64 / tally.n_all.max(1) as f64;
    let _ = writeln!(
        text,
        "{}; by the user door {} ({:.1} %), {} with all their exits ({:.1} %)",
        counted(tally.n_all as u64, "function"),
        if tally.n_entered == 1 { "1 entry".to_owned() } else { format!("{} entries", tally.n_entered) },
        percent(tally.n_entered),
        tally.n_whole,
        percent(tally.n_whole)
    );
    text
}

fn plural(n: usize) -> &'static str {
    if n == 1 { "exit" } else { "exits" }
}
