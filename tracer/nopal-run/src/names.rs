//! Names for numbers: functions of processes and of the kernel, users, times.

use nopal_proc::demangle::demangle;
use nopal_proc::file_names::FileNames;
use nopal_proc::symbols::{FileSymbols, Symbol, Symbolizer};
use nopal_program::{Action, MapValue, Piece, PointKind, Program, Type};
use nopal_script::render::Names;
use nopal_trace::CodeTable;
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// What this machine knows of numbers, looked up once and kept.
#[derive(Debug)]
pub struct TracerNames {
    program: Arc<Program>,
    needs_functions: bool,
    symbolizer: RefCell<Symbolizer>,
    users: RefCell<Option<HashMap<u32, String>>>,
    /// CLOCK_REALTIME less CLOCK_MONOTONIC.
    epoch_offset_ns: i64,
    fixed: OnceCell<Option<(String, FileSymbols)>>,
    /// Of a recording.
    recorded: Option<(Vec<CodeTable>, FileNames)>,
}

impl TracerNames {
    pub fn new(program: Arc<Program>) -> TracerNames {
        TracerNames {
            needs_functions: shows_functions(&program),
            program,
            symbolizer: RefCell::default(),
            users: RefCell::default(),
            epoch_offset_ns: nopal_trace::clock::monotonic_to_epoch_ns(),
            recorded: None,
            fixed: OnceCell::new(),
        }
    }

    /// From now on numbers are those of a recording: its times are since the epoch already, and its processes have ended; what their
    /// addresses are, its tables say.
    pub fn set_recorded(&mut self, code: Vec<CodeTable>) {
        self.epoch_offset_ns = 0;
        self.recorded = Some((code, FileNames::default()));
    }

    /// A time of a hit, since the epoch.
    pub fn epoch_ns(&self, ns: u64) -> u64 {
        ns.wrapping_add_signed(self.epoch_offset_ns)
    }

    /// Looks at the code a process maps now, so that its addresses can be named when it has ended.
    pub fn remember(&mut self, pid: u32) {
        if self.needs_functions {
            self.symbolizer.get_mut().remember(pid);
        }
    }

    /// The same for all that it and what it forks will ever map, from now on.
    pub fn follow(&mut self, pid: u32) {
        if self.needs_functions {
            self.symbolizer.get_mut().follow(pid);
        }
    }

    /// To be called now and then; the kernel holds only so much of what has happened.
    pub fn catch_up(&mut self) {
        self.symbolizer.get_mut().catch_up();
    }

    fn function(&self, pid: u32, address: u64) -> Option<Symbol> {
        if let Some((tables, names)) = &self.recorded {
            let code = tables.iter().find_map(|table| table.always_at(pid.into(), address))?;
            let place = address.checked_sub(code.start)?.checked_add(code.offset)?;
            let (name, offset) = names.at(&code.path, &code.build_id, place)?;
            return Some(Symbol { name, offset, module: code.path.display().to_string() });
        }
        let mut symbolizer = self.symbolizer.borrow_mut();
        symbolizer.catch_up();
        symbolizer.user(pid, address).or_else(|| self.fixed_function(address))
    }

    /// Of a process that nobody could look at in time: where all points are in one program that is loaded where its file says,
    /// the file has the names.
    fn fixed_function(&self, address: u64) -> Option<Symbol> {
        let (path, symbols) = self.fixed.get_or_init(|| fixed_program(&self.program)).as_ref()?;
        // What lies elsewhere is of a library.
        symbols.file_offset_of(address)?;
        let function = symbols.at(address)?;
        let offset = address - function.address;
        Some(Symbol { name: demangle(function.name), offset, module: path.clone() })
    }

    /// Now, by a strftime format.
    pub fn wall_time(&self, format: &str) -> String {
        let now_ns = nopal_trace::clock::monotonic_ns() as i64 + nopal_trace::clock::monotonic_to_epoch_ns();
        strftime(format, now_ns)
    }
}

impl Names for TracerNames {
    fn user_symbol(&self, pid: u32, address: u64) -> Option<(String, u64)> {
        let found = self.function(pid, address)?;
        Some((found.name, found.offset))
    }

    fn user_file(&self, pid: u32, address: u64) -> Option<String> {
        Some(self.function(pid, address)?.module)
    }

    fn user_build_id(&self, pid: u32, address: u64) -> Option<(Vec<u8>, u64)> {
        if let Some((tables, _)) = &self.recorded {
            let code = tables.iter().find_map(|table| table.always_at(pid.into(), address))?;
            let place = address.checked_sub(code.start)?.checked_add(code.offset)?;
            return Some((code.build_id.clone(), place)).filter(|(id, _)| !id.is_empty());
        }
        self.symbolizer.borrow_mut().build_id(pid, address)
    }

    fn kernel_symbol(&self, address: u64) -> Option<(String, u64)> {
        let found = self.symbolizer.borrow_mut().kernel(address)?;
        Some((found.name, found.offset))
    }

    fn probe(&self, clause: u32, point: u32) -> String {
        let point = self.program.clauses.get(clause as usize).and_then(|c| c.points.get(point as usize));
        point.map_or_else(String::new, |point| point.name.clone())
    }

    fn user(&self, uid: u32) -> Option<String> {
        let mut users = self.users.borrow_mut();
        let users =
            users.get_or_insert_with(|| users_of(&fs::read_to_string("/etc/passwd").unwrap_or_default()));
        users.get(&uid).cloned()
    }

    fn cgroup_path(&self, id: u64, filter: &str) -> String {
        super::cgroups::paths(id, filter)
    }

    fn time(&self, format: &str, ns: u64) -> String {
        strftime(format, (ns as i64).wrapping_add(self.epoch_offset_ns))
    }

    fn clock_time(&self, format: &str, epoch_ns: u64) -> String {
        strftime(format, epoch_ns as i64)
    }
}

fn fixed_program(program: &Program) -> Option<(String, FileSymbols)> {
    let points = program.clauses.iter().flat_map(|clause| &clause.points);
    let mut path = None;
    for point in points {
        let own = match &point.kind {
            PointKind::Usdt { path, .. }
            | PointKind::Uprobe { path, .. }
            | PointKind::Uretprobe { path, .. } => path,
            PointKind::Begin | PointKind::End | PointKind::Interval { .. } => continue,
            _ => return None,
        };
        if path.replace(own).is_some_and(|known| known != own) {
            return None;
        }
    }
    let path = path?;
    FileSymbols::of_fixed(Path::new(path)).map(|symbols| (path.clone(), symbols))
}

/// Whether a map or an output holds addresses of programs.
fn shows_functions(program: &Program) -> bool {
    fn is_of_function(value_type: &Type) -> bool {
        match value_type {
            Type::UserSymbol | Type::UserStack { .. } => true,
            Type::Tuple(members) => members.iter().any(is_of_function),
            _ => false,
        }
    }
    let in_map = |def: &nopal_program::MapDef| {
        let value = match &def.value {
            MapValue::Plain(value) => is_of_function(value),
            MapValue::Aggregate(_) | MapValue::Series(_) => false,
        };
        value || def.key.iter().any(is_of_function)
    };
    let in_action = |action: &Action| match action {
        Action::Printf { format }
        | Action::Message { format, .. }
        | Action::Cat { format }
        | Action::System { format } => format
            .pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Field { field, .. } if is_of_function(&field.value_type))),
        Action::PrintValue { field } => is_of_function(&field.value_type),
        _ => false,
    };
    program.maps.iter().any(in_map) || program.actions.iter().any(in_action)
}

fn users_of(passwd: &str) -> HashMap<u32, String> {
    let line = |line: &str| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        Some((parts.nth(1)?.parse().ok()?, name.to_owned()))
    };
    // The first line with a number counts.
    passwd.lines().rev().filter_map(line).collect()
}

/// Local time in a format of strftime(3); `%f` is microseconds.
fn strftime(format: &str, epoch_ns: i64) -> String {
    let seconds = epoch_ns.div_euclid(1_000_000_000);
    let micros = epoch_ns.rem_euclid(1_000_000_000) / 1000;
    let format = format.replace("%f", &format!("{micros:06}"));
    let Ok(format) = std::ffi::CString::new(format) else { return String::new() };
    if format.is_empty() {
        return String::new();
    }
    // SAFETY: a zeroed tm is a valid value of a struct of numbers and a pointer that may be null.
    let mut parts: libc::tm = unsafe { std::mem::zeroed() };
    let seconds: libc::time_t = seconds;
    // SAFETY: both pointers are of live values; localtime_r keeps neither.
    if unsafe { libc::localtime_r(&seconds, &mut parts) }.is_null() {
        return String::new();
    }
    let mut text = vec![0u8; 256 + format.as_bytes().len() * 4];
    // SAFETY: the buffer has the length given, the format ends in a NUL, `parts` was filled by localtime_r.
    let n = unsafe { libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &parts) };
    String::from_utf8_lossy(&text[..n]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_functions_have_names() {
        let shows = Program {
            maps: vec![nopal_program::MapDef {
                name: "@".into(),
                key: vec![Type::UserSymbol],
                value: MapValue::Plain(Type::U64),
            }],
            ..Program::default()
        };
        let names = TracerNames::new(Arc::new(shows));
        let here = own_functions_have_names as fn() as usize as u64;
        let (name, offset) = names.user_symbol(std::process::id(), here + 1).expect("this function");
        assert!(name.contains("own_functions_have_names") && offset == 1, "{name}+{offset}");
        assert_eq!(names.user_symbol(std::process::id(), 1), None);
    }

    #[test]
    fn users_by_number() {
        let users = users_of("root:x:0:0::/root:/bin/sh\nalias:x:0:0::/:/bin/sh\nbad\nwww:x:33:33::/:\n");
        assert_eq!((users[&0].as_str(), users[&33].as_str(), users.len()), ("root", "www", 2));
    }

    #[test]
    fn times_have_microseconds() {
        assert_eq!(strftime("%f|", 1_000_000_000_123_456_789), "123456|");
        assert_eq!(strftime("%Y", 1_500_000_000_000_000_000), "2017");
        assert_eq!(strftime("", 0), "");
    }
}
