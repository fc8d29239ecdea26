//! What there is to attach to: the probes of the traced processes, of files, functions, and the kernel's own points.

use super::addresses;
use super::btf::Btf;
use super::debug_types::DebugTypes;
use super::functions::{entry, entry_functions, libraries_of, matching};
use super::later_point::later_point;
use super::named_files::{expand, file_name, find_library, in_path, own_path};
use super::probe_args::known_args;
use super::source_lines::{SourceLine, source_line};
use super::tracepoints::{self, no_point};
use nopal_proc::symbols::FileSymbols;
use nopal_proc::{Image, TargetError, descendants, mapped_objects};
use nopal_program::{Place, Point, PointKind};
use nopal_script::catalog::{Catalog, KnownArg, KnownPoint, NoPoint, PointSpec, UserSymbol};
use nopal_script::ctype::{CType, Record};
use nopal_sdt::pattern::{glob, nearest};
use nopal_sdt::probe::Probe;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Numbers that the kernel's headers define, and that its own description has not: states of `prev_state`.
const MACROS: [(&str, i64); 4] =
    [("TASK_RUNNING", 0), ("TASK_INTERRUPTIBLE", 1), ("TASK_UNINTERRUPTIBLE", 2), ("TASK_DEAD", 128)];

/// Where a program is entered there is no return address on the stack but the number of its arguments.
const NO_RETURN: &str =
    "nothing returns from where a program begins, and a uretprobe would overwrite its argc";

const NAME_A_TARGET: &str = "name a file (usdt:FILE:PROVIDER:NAME), a process (-p PID) or a command (-- CMD)";

/// Answers for running processes, a command to be started, and files.
#[derive(Debug)]
pub struct LiveCatalog {
    /// Files the targets map, or will.
    files: Vec<Arc<ProbedFile>>,
    given: Vec<nopal_provider::File>,
    /// Whether a command will be started: it ends, so that what it never loads is told.
    has_command: bool,
    /// Files that were asked for by name.
    named: RefCell<HashMap<PathBuf, Option<Arc<ProbedFile>>>>,
    /// The process of the command, if it exists already.
    pub child_pid: Option<u32>,
    /// The kernel's types, read when the first is asked for.
    kernel_types: OnceCell<Option<Btf>>,
    /// What debug information says of functions.
    debug_types: DebugTypes,
}

/// A file with its probes.
#[derive(Debug)]
pub struct ProbedFile {
    path: PathBuf,
    /// A path that leads to it from here.
    reachable: PathBuf,
    pub(crate) probes: Vec<Probe>,
    /// A process that maps it.
    pid: Option<u32>,
}

impl LiveCatalog {
    pub fn new(given: Vec<nopal_provider::File>) -> LiveCatalog {
        LiveCatalog {
            files: Vec::new(),
            given,
            has_command: false,
            named: RefCell::default(),
            child_pid: None,
            kernel_types: OnceCell::new(),
            debug_types: DebugTypes::default(),
        }
    }

    /// Adds the files a process and its live descendants map.
    pub fn add_process(&mut self, pid: u32) -> Result<(), TargetError> {
        for (index, pid) in std::iter::once(pid).chain(descendants(pid)).enumerate() {
            let objects = match mapped_objects(pid) {
                Ok(objects) => objects,
                Err(error) if index == 0 => return Err(error),
                // A descendant that has gone meanwhile.
                Err(_) => continue,
            };
            for object in objects {
                if self.files.iter().any(|file| file.path == object.path) {
                    continue;
                }
                let Ok(image) = object.open() else { continue };
                let Ok(mut read) = nopal_sdt::read(image.bytes()) else { continue };
                nopal_sdt::describe(&mut read.probes, &self.given);
                let reachable = object.reachable_path().unwrap_or_else(|_| object.path.clone());
                self.files.push(Arc::new(ProbedFile {
                    path: object.path,
                    reachable,
                    probes: read.probes,
                    pid: Some(pid),
                }));
            }
        }
        Ok(())
    }

    /// Adds the program of a command that will be started, and the libraries it names.
    pub fn add_program(&mut self, program: &Path) {
        self.has_command = true;
        let Some(path) = in_path(program) else { return };
        if let Some(file) = self.named_file(&path) {
            let libraries = libraries_of(&file.reachable);
            self.files.push(file);
            for library in libraries {
                if let Some(file) = find_library(&library).and_then(|path| self.named_file(&path)) {
                    self.files.push(file);
                }
            }
        }
    }

    /// All probes of the files added, with what is known about them.
    pub fn probes(&self) -> impl Iterator<Item = &Probe> {
        self.files.iter().flat_map(|file| &file.probes)
    }

    /// The files added: as the targets call each, a path that leads to it from here, and its probes.
    pub fn paths(&self) -> impl Iterator<Item = (&Path, &Path, &[Probe])> {
        self.files.iter().map(|file| (file.path.as_path(), file.reachable.as_path(), file.probes.as_slice()))
    }

    /// What a point in a file of a process is called from outside of it.
    pub(crate) fn name_by_process(&self, point: &Point) -> Option<String> {
        let (PointKind::Usdt { path, .. }
        | PointKind::Uprobe { path, .. }
        | PointKind::Uretprobe { path, .. }) = &point.kind
        else {
            return None;
        };
        let pid = self.files.iter().find(|file| file.path.as_os_str() == path.as_str())?.pid?;
        Some(point.name.replacen(&format!(":{path}:"), &format!(":/proc/{pid}/root{path}:"), 1))
    }

    /// The parameters of a function as its source declares them.
    pub(crate) fn written_parameters(&self, path: &str, place: &Place) -> Vec<String> {
        let file = self.files.iter().find(|file| file.path.as_os_str() == path).cloned();
        let file = file.or_else(|| self.named_file(Path::new(path)));
        file.map(|file| self.debug_types.written(&file.path, &file.reachable, place)).unwrap_or_default()
    }

    pub(crate) fn kernel_types(&self) -> Option<&Btf> {
        self.kernel_types.get_or_init(Btf::of_kernel).as_ref()
    }

    pub(crate) fn named_file(&self, path: &Path) -> Option<Arc<ProbedFile>> {
        let path = own_path(path)?;
        if let Some(known) = self.files.iter().find(|file| file.path == path) {
            return Some(Arc::clone(known));
        }
        let read = || {
            let image = Image::open(&path).ok()?;
            let mut read = nopal_sdt::read(image.bytes()).ok()?;
            nopal_sdt::describe(&mut read.probes, &self.given);
            let file =
                ProbedFile { path: path.clone(), reachable: path.clone(), probes: read.probes, pid: None };
            Some(Arc::new(file))
        };
        self.named.borrow_mut().entry(path.clone()).or_insert_with(read).clone()
    }

    /// The files a script means: by path, by the name of a mapped file or library, by the name of a command, or by a
    /// pattern over the mapped files.
    fn files(&self, text: &str) -> Result<Vec<Arc<ProbedFile>>, NoPoint> {
        if text.contains(['*', '?', '[']) {
            let found: Vec<_> = self
                .files
                .iter()
                .filter(|file| glob(text, &file.path.to_string_lossy()) || glob(text, file_name(&file.path)))
                .cloned()
                .collect();
            if !found.is_empty() {
                return Ok(found);
            }
            return Err(no_point(format!("no file that is traced matches `{text}`"), None));
        }
        if text.contains('/') {
            if let Some(known) = self.files.iter().find(|file| file.path.as_os_str() == text) {
                return Ok(vec![Arc::clone(known)]);
            }
            return match self.named_file(Path::new(text)) {
                Some(file) => Ok(vec![file]),
                None if Path::new(text).exists() => {
                    Err(no_point(format!("`{text}` is not an ELF program or library"), None))
                }
                None => Err(no_point(format!("there is no file `{text}`"), None)),
            };
        }
        let is_named = |file: &&Arc<ProbedFile>| {
            let name = file_name(&file.path);
            name == text
                || name
                    .strip_prefix(text)
                    .is_some_and(|rest| rest.starts_with(".so") || rest.starts_with('-'))
        };
        if let Some(file) = self.files.iter().find(is_named) {
            return Ok(vec![Arc::clone(file)]);
        }
        let by_name = in_path(Path::new(text)).or_else(|| find_library(text));
        match by_name.and_then(|path| self.named_file(&path)) {
            Some(file) => Ok(vec![file]),
            None => {
                let hint = nearest(text, self.file_names()).map(|near| format!("did you mean `{near}`?"));
                Err(no_point(format!("no program or library is called `{text}`"), hint))
            }
        }
    }

    /// The files that a pattern with folders stands for where nothing that is traced has such a file. Where something is, a path
    /// from the root may be that of a library to come, and is left alone.
    fn expanded(&self, file: &str) -> Vec<String> {
        let is_traced = |known: &Arc<ProbedFile>| glob(file, &known.path.to_string_lossy());
        let has_target = self.has_command || !self.files.is_empty();
        let is_pattern = file.contains('/') && !is_spelled_out(file) && !file.starts_with('*');
        if !is_pattern || (has_target && file.starts_with('/')) || self.files.iter().any(is_traced) {
            return Vec::new();
        }
        expand(file).into_iter().filter(|path| self.named_file(Path::new(path)).is_some()).collect()
    }

    /// The points in each of several files, of which some may have none.
    fn in_each(
        &self,
        spec: &PointSpec,
        files: Vec<String>,
        one: impl Fn(&[String]) -> Result<Vec<KnownPoint>, NoPoint>,
    ) -> Result<Vec<KnownPoint>, NoPoint> {
        let mut found = Vec::new();
        let mut missing = None;
        for file in files {
            let mut parts = spec.parts.clone();
            parts[0] = file;
            match one(&parts) {
                Ok(points) => found.extend(points),
                Err(no_point) => missing = missing.or(Some(no_point)),
            }
        }
        match missing {
            Some(no_point) if found.is_empty() => Err(no_point),
            _ => Ok(found),
        }
    }

    /// `usdt:FILE:PROVIDER:NAME`, `usdt:FILE:NAME`, `usdt:PROVIDER:NAME`, `usdt:NAME`. Unless the file is spelled out, probes
    /// of files that are mapped later are meant, too.
    fn usdt(&self, parts: &[String]) -> Result<Vec<KnownPoint>, NoPoint> {
        let has_target = self.has_command || !self.files.is_empty();
        let (files, provider, name, file) = match parts {
            [file, provider, name] => {
                let provider = if provider.is_empty() { "*" } else { provider };
                let files = match self.files(file) {
                    _ if file.is_empty() => self.files.clone(),
                    Err(_) if has_target && !is_spelled_out(file) => Vec::new(),
                    files => files?,
                };
                (files, provider, name.as_str(), Some(file).filter(|file| !file.is_empty()))
            }
            [first, name] if self.is_provider(first) => {
                (self.files.clone(), first.as_str(), name.as_str(), None)
            }
            [first, name] => match self.files(first) {
                Ok(files) => (files, "*", name.as_str(), Some(first)),
                Err(_) if has_target && !first.contains('/') && self.can_wait(first, self.file_names()) => {
                    (Vec::new(), first.as_str(), name.as_str(), None)
                }
                Err(no_file) if has_target => return Err(no_file),
                Err(no_file) => return Err(NoPoint { hint: Some(NAME_A_TARGET.to_owned()), ..no_file }),
            },
            [file] if file.contains('/') => {
                let hint = "write `usdt:FILE:PROVIDER:NAME`; `usdt:FILE:*` are all of its probes".to_owned();
                return Err(no_point(format!("`{file}` is a file, and no probe of it is named"), Some(hint)));
            }
            [name] => (self.files.clone(), "*", name.as_str(), None),
            _ => return Err(no_point("a static probe is written usdt:FILE:PROVIDER:NAME".to_owned(), None)),
        };
        let mut found = Vec::new();
        for file in &files {
            for probe in &file.probes {
                if glob(provider, &probe.provider) && is_name(name, &probe.name) {
                    found.push(known_probe(file, probe));
                }
            }
        }
        let is_open = has_target && file.is_none_or(|file| !is_spelled_out(file));
        if found.is_empty() {
            let all: Vec<String> = files
                .iter()
                .flat_map(|file| file.probes.iter().map(|p| format!("{}:{}", p.provider, p.name)))
                .collect();
            let wanted = format!("{provider}:{name}");
            let all = || all.iter().map(String::as_str);
            if !is_open || parts.len() < 3 && !self.can_wait(&wanted, all()) {
                return Err(self.no_probe(&files, &wanted, all(), file.is_none()));
            }
        }
        let later = is_open
            .then(|| later_point(&found, file.map_or("", String::as_str), provider, name, &self.given));
        // A probe is called as the script calls it, so that a recording calls it the same.
        if file.is_none_or(|file| is_spelled_out(file)) {
            found.iter_mut().for_each(|known| rename(known, file.map(String::as_str)));
        }
        found.extend(later);
        Ok(found)
    }

    /// Whether a probe that is written short and is not there may come later. A name that is nearly that of one there is,
    /// is taken for a mistake, unless it is a command that is traced.
    fn can_wait<'a>(&self, wanted: &str, names: impl Iterator<Item = &'a str>) -> bool {
        self.has_command || nearest(wanted, names).is_none()
    }

    fn no_probe<'a>(
        &self,
        files: &[Arc<ProbedFile>],
        wanted: &str,
        mut all: impl Iterator<Item = &'a str> + Clone,
        is_anywhere: bool,
    ) -> NoPoint {
        let hint = match nearest(wanted, all.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if all.next().is_some() => "`nopal list` shows the probes of a process or a file".to_owned(),
            None if self.files.is_empty() && is_anywhere => NAME_A_TARGET.to_owned(),
            None => "there are no probes at all".to_owned(),
        };
        let place = match files {
            [file] => format!(" in {}", file.path.display()),
            _ => " in what is traced".to_owned(),
        };
        no_point(format!("there is no probe `{wanted}`{place}"), Some(hint))
    }

    fn file_names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file_name(&file.path))
    }

    fn is_provider(&self, text: &str) -> bool {
        !text.contains('/')
            && self.files.iter().flat_map(|file| &file.probes).any(|probe| glob(text, &probe.provider))
    }

    /// `FILE:FUNCTION`, `FILE:FUNCTION+8`, `FILE:0x1234`, and with `cpp` or `rust` in the middle.
    fn function(&self, parts: &[String], is_return: bool) -> Result<Vec<KnownPoint>, NoPoint> {
        if let Some(line) = source_line(parts, is_return) {
            return self.line(&line?);
        }
        let (file, wanted) = match parts {
            [file, function] | [file, _, function] => (file, function),
            _ => return Err(no_point("a function is written uprobe:FILE:FUNCTION".to_owned(), None)),
        };
        let mut found = Vec::new();
        let mut names = Vec::new();
        let files = self.files(file)?;
        // What these libraries had is in libc since glibc 2.34.
        let moved = ["libpthread", "libdl", "librt", "libutil"].contains(&file.as_str());
        let libc = if moved { self.files("libc").unwrap_or_default() } else { Vec::new() };
        for file in files.iter().chain(&libc) {
            if !found.is_empty() && libc.iter().any(|libc| Arc::ptr_eq(libc, file)) {
                break;
            }
            self.debug_types.mention(&file.path, &file.reachable);
            if let Some(address) = number(wanted) {
                let mut known = function_point(file, Place::Address(address), wanted, is_return);
                let image = Image::open(&file.reachable).ok().filter(|_| is_return);
                if image.as_ref().and_then(|image| entry(image.bytes())) == Some(address) {
                    known.obstacle = Some(NO_RETURN.to_owned());
                }
                found.push(known);
                continue;
            }
            let (name, offset) = name_and_offset(wanted);
            let Ok(image) = Image::open(&file.reachable) else { continue };
            let symbols = FileSymbols::read(image.bytes());
            let of_entry = if is_return { entry_functions(&symbols, image.bytes()) } else { Vec::new() };
            for symbol in matching(&symbols, name) {
                let place = Place::Symbol { name: symbol.clone(), offset };
                let shown = if offset == 0 { symbol.clone() } else { format!("{symbol}+{offset}") };
                let mut known = function_point(file, place, &shown, is_return);
                if of_entry.contains(&symbol) {
                    known.obstacle = Some(NO_RETURN.to_owned());
                }
                found.push(known);
            }
            names.extend(symbols.functions().map(|f| f.name.to_owned()));
        }
        if !found.is_empty() {
            if file.contains('/') && is_spelled_out(file) {
                found.iter_mut().for_each(|known| rename(known, Some(file)));
            }
            return Ok(found);
        }
        let hint = nearest(wanted, names.iter().map(String::as_str));
        let hint = hint.map(|near| format!("did you mean `{near}`?"));
        let missing = no_point(format!("there is no function `{wanted}` in {file}"), hint);
        Err(NoPoint { is_only_absent: true, ..missing })
    }

    /// Where a line of a source begins.
    fn line(&self, line: &SourceLine<'_>) -> Result<Vec<KnownPoint>, NoPoint> {
        let mut found = Vec::new();
        for file in self.files(line.file)? {
            self.debug_types.mention(&file.path, &file.reachable);
            let address = self.debug_types.line_address(&file.path, &file.reachable, line);
            let address = address.map_err(|why| line.missing(why))?;
            let mut known = function_point(&file, Place::Address(address), "", false);
            known.point.name = format!("uprobe:{}@{}", line.file, line.shown());
            found.push(known);
        }
        Ok(found)
    }

    /// Debug files are looked for there, too: absolute, or seen from where the traced file is.
    pub fn look_for_debug_files(&mut self, folders: Vec<PathBuf>) {
        self.debug_types.folders = folders;
    }

    fn kernel_function(&self, parts: &[String], is_return: bool) -> Result<Vec<KnownPoint>, NoPoint> {
        let wanted = parts.last().map(String::as_str).unwrap_or_default();
        let (name, offset) = name_and_offset(wanted);
        let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let all = text.lines().filter_map(|line| {
            let mut parts = line.split_whitespace().skip(1);
            let kind = parts.next()?;
            parts.next().filter(|_| matches!(kind, "t" | "T" | "w" | "W"))
        });
        let mut names: Vec<&str> = all.clone().filter(|known| glob(name, known)).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() {
            let hint = nearest(name, all).map(|near| format!("did you mean `{near}`?"));
            let missing = no_point(format!("this kernel has no function `{name}`"), hint);
            return Err(NoPoint { is_only_absent: true, ..missing });
        }
        let point = |name: &str| {
            let (kind, word) = match is_return {
                true => (PointKind::Kretprobe { function: name.to_owned() }, "kretprobe"),
                false => (PointKind::Kprobe { function: name.to_owned(), offset }, "kprobe"),
            };
            let name = format!("{word}:{name}");
            KnownPoint { point: Point { name, kind }, args: Vec::new(), obstacle: None }
        };
        Ok(names.into_iter().map(point).collect())
    }
}

impl Catalog for LiveCatalog {
    fn n_cpus(&self) -> u32 {
        nopal_proc::possible_cpus().unwrap_or(1)
    }

    fn child_pid(&self) -> Option<u32> {
        self.child_pid
    }

    fn tai_offset_ns(&self) -> Option<i64> {
        Some(nopal_trace::clock::monotonic_to_tai_ns())
    }

    fn has_initial_pids(&self) -> bool {
        addresses::has_initial_pids()
    }

    fn record(&self, name: &str) -> Option<Record> {
        let of_program = self.debug_types.record(name);
        of_program.or_else(|| self.kernel_types().and_then(|types| types.record(name)))
    }

    fn constant(&self, name: &str) -> Option<i64> {
        let of_macro = MACROS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        of_macro.or_else(|| self.kernel_types()?.constant(name))
    }

    fn arg_type(&self, point: &Point, name: &str) -> Option<CType> {
        match &point.kind {
            PointKind::Tracepoint { category, name: tracepoint } => {
                tracepoints::pointer(category, tracepoint, name)
            }
            _ => None,
        }
    }

    fn parameters(&self, point: &Point) -> Vec<KnownArg> {
        let PointKind::Uprobe { path, place } = &point.kind else { return Vec::new() };
        let file = self.files.iter().find(|file| file.path.as_os_str() == path.as_str()).cloned();
        match file.or_else(|| self.named_file(Path::new(path))) {
            Some(file) => self.debug_types.parameters(&file.path, &file.reachable, place),
            None => Vec::new(),
        }
    }

    fn inlined(&self, spec: &PointSpec) -> Vec<KnownPoint> {
        let ([text, name] | [text, _, name]) = &spec.parts[..] else { return Vec::new() };
        let files = self.files(text).unwrap_or_default();
        let of_file = |file: Arc<ProbedFile>| {
            let places = self.debug_types.inlined(&file.path, &file.reachable, name);
            let point = move |address| {
                let mut known = function_point(&file, Place::Address(address), name, false);
                rename(&mut known, Some(text).filter(|text| text.contains('/')).map(String::as_str));
                known
            };
            places.into_iter().map(point).collect::<Vec<_>>()
        };
        files.into_iter().flat_map(of_file).collect()
    }

    fn kernel_address(&self, symbol: &str) -> Option<u64> {
        addresses::of_kernel(symbol)
    }

    fn user_symbol(&self, point: &Point, symbol: &str) -> Result<UserSymbol, String> {
        addresses::of_program(point, symbol)
    }

    fn cgroup_id(&self, path: &str) -> Option<u64> {
        addresses::of_cgroup(path)
    }

    fn points(&self, spec: &PointSpec) -> Result<Vec<KnownPoint>, NoPoint> {
        let of_file = |parts: &[String]| match spec.kind.as_str() {
            "usdt" => self.usdt(parts),
            kind => self.function(parts, kind == "uretprobe"),
        };
        match (spec.kind.as_str(), &spec.parts[..]) {
            ("usdt" | "uprobe" | "uretprobe", parts) => match self.expanded(&parts[0]) {
                files if files.is_empty() => of_file(parts),
                files => self.in_each(spec, files, of_file),
            },
            ("tracepoint", [category, name]) => tracepoints::find(category, name),
            ("kprobe", parts) => self.kernel_function(parts, false),
            ("kretprobe", parts) => self.kernel_function(parts, true),
            (kind, _) => Err(no_point(format!("there are no points of the kind `{kind}`"), None)),
        }
    }
}

/// DTrace's `query-start` finds `query__start`.
pub(super) fn is_name(pattern: &str, name: &str) -> bool {
    glob(pattern, name) || (pattern.contains('-') && glob(&pattern.replace('-', "__"), name))
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// `main+8`. An offset is a number: `operator+(int)` is a name.
fn name_and_offset(wanted: &str) -> (&str, u64) {
    let parted = wanted.rsplit_once('+');
    parted.and_then(|(name, offset)| Some((name, number_or_decimal(offset)?))).unwrap_or((wanted, 0))
}

fn number_or_decimal(text: &str) -> Option<u64> {
    number(text).or_else(|| text.parse().ok())
}

fn function_point(file: &ProbedFile, place: Place, shown: &str, is_return: bool) -> KnownPoint {
    let path = file.path.to_string_lossy().into_owned();
    let word = if is_return { "uretprobe" } else { "uprobe" };
    let name = format!("{word}:{path}:{shown}");
    let kind = match is_return {
        true => PointKind::Uretprobe { path, place },
        false => PointKind::Uprobe { path, place },
    };
    KnownPoint { point: Point { name, kind }, args: Vec::new(), obstacle: None }
}

/// A file that is named, and not by a pattern.
pub(super) fn is_spelled_out(file: &str) -> bool {
    !file.is_empty() && !file.contains(['*', '?', '['])
}

/// Puts another spelling of the file into a point's name, or none.
fn rename(known: &mut KnownPoint, file: Option<&str>) {
    let path = match &known.point.kind {
        PointKind::Usdt { path, .. } | PointKind::Uprobe { path, .. } | PointKind::Uretprobe { path, .. } => {
            path
        }
        _ => return,
    };
    let (old, new) = (format!(":{path}:"), file.map_or_else(|| ":".to_owned(), |file| format!(":{file}:")));
    known.point.name = known.point.name.replacen(&old, &new, 1);
}

fn known_probe(file: &ProbedFile, probe: &Probe) -> KnownPoint {
    let path = file.path.to_string_lossy().into_owned();
    let (provider, name) = (probe.provider.clone(), probe.name.clone());
    KnownPoint {
        point: Point {
            name: format!("usdt:{path}:{provider}:{name}"),
            kind: PointKind::Usdt { path, provider, name },
        },
        args: known_args(probe),
        obstacle: None,
    }
}
