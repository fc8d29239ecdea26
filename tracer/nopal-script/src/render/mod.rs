//! What a program gathers and emits, as text or JSON: printf, values, maps as bpftrace prints them. Pure: what only the
//! tracer knows comes through [`Names`].

mod gfp;
mod json;
mod map;
mod printf;
mod series;
mod value;

pub use json::{escaped, json_rows};
pub use map::{Entry, MapShown, sorted};
pub use printf::printf;
pub use series::json_rows as series_rows;
pub use value::value;

use map::Scale;
use nopal_program::aggregate::Aggregate;
use nopal_program::series::{Points, Series};
use nopal_program::{Field, Look, MapDef, MapValue, Program, SpanDef};

/// What numbers are called.
pub trait Names {
    /// Name and offset of the function at an address of a process.
    fn user_symbol(&self, pid: u32, address: u64) -> Option<(String, u64)>;
    /// The file that is mapped at an address of a process.
    fn user_file(&self, _pid: u32, _address: u64) -> Option<String> {
        None
    }
    /// The build id of that file, and the place in it.
    fn user_build_id(&self, _pid: u32, _address: u64) -> Option<(Vec<u8>, u64)> {
        None
    }
    fn kernel_symbol(&self, address: u64) -> Option<(String, u64)>;
    /// As `probe` gives it.
    fn probe(&self, clause: u32, point: u32) -> String;
    fn user(&self, uid: u32) -> Option<String>;
    /// Where a control group is, in each hierarchy whose name matches a wildcard: `unified:/system.slice,memory:/x`.
    fn cgroup_path(&self, _id: u64, _filter: &str) -> String {
        String::new()
    }
    /// A time of `nsecs` in local time, by a strftime format.
    fn time(&self, format: &str, ns: u64) -> String;
    /// A time since the epoch in local time.
    fn clock_time(&self, format: &str, epoch_ns: u64) -> String;
}

/// How results are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    #[default]
    Text,
    /// One object a line, in bpftrace's shapes.
    Json,
}

/// Shows what one program gathers.
pub struct Renderer<'a> {
    pub program: &'a Program,
    pub names: &'a dyn Names,
    pub form: Form,
}

impl std::fmt::Debug for Renderer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renderer").field("form", &self.form).finish_non_exhaustive()
    }
}

impl Renderer<'_> {
    /// What `printf` and `time` print.
    pub fn text(&self, text: &[u8], kind: &str, out: &mut Vec<u8>) {
        match self.form {
            Form::Text => out.extend_from_slice(text),
            Form::Json => {
                out.extend_from_slice(format!("{{\"type\": \"{kind}\", \"data\": ").as_bytes());
                json::string(text, out);
                out.extend_from_slice(b"}\n");
            }
        }
    }

    /// `print(value)`.
    pub fn value(&self, field: &Field, payload: &[u8], out: &mut Vec<u8>) {
        let bytes = part(payload, field);
        match self.form {
            Form::Text => {
                value::value(&field.value_type, bytes, self.names, out);
                out.push(b'\n');
            }
            Form::Json => {
                out.extend_from_slice(b"{\"type\": \"value\", \"data\": ");
                json::value(&field.value_type, bytes, self.names, out);
                out.extend_from_slice(b"}\n");
            }
        }
    }

    /// `print(@map, top, div)`: the largest last; `top` 0 is all.
    pub fn map(&self, map: u32, mut entries: Vec<Entry>, shown: MapShown, out: &mut Vec<u8>) {
        let Some(def) = self.program.maps.get(map as usize) else { return };
        let has_zero = self.program.look == Look::New && def.key.is_empty() && !map::has_buckets(def);
        if entries.is_empty() && has_zero {
            entries.push((Vec::new(), vec![0; def.value_bytes() as usize / 8]));
        }
        let MapShown { top, div, rank } = shown;
        let entries = sorted(def, entries, top, rank);
        match self.form {
            Form::Text => map::text(def, &entries, self.scale(def, div), self.names, out),
            Form::Json => json::map(def, &entries, div, self.names, out),
        }
    }

    /// `print()` of a map of time series, and the same at the end.
    pub fn series(&self, def: &MapDef, series: Series, entries: &[(Vec<u8>, Points)], out: &mut Vec<u8>) {
        match self.form {
            Form::Text => series::text(def, series, entries, self.names, out),
            Form::Json => series::json(def, series, entries, self.names, out),
        }
    }

    /// All maps at the end of a script: those with something in them.
    pub fn map_at_end(&self, map: u32, entries: Vec<Entry>, out: &mut Vec<u8>) {
        let Some(def) = self.program.maps.get(map as usize) else { return };
        // A counter that was never hit is 0 in old releases.
        let is_counter = def.key.is_empty() && def.value == MapValue::Aggregate(Aggregate::Count);
        if !entries.is_empty() || is_counter && self.program.look == Look::Old {
            self.map(map, entries, MapShown { div: 1, ..MapShown::default() }, out);
        }
    }

    /// `print(@map[key])`: newer releases print the value alone.
    pub fn entry(&self, def: &MapDef, entry: Entry, out: &mut Vec<u8>) {
        let scale = self.scale(def, 1);
        match (self.form, self.program.look) {
            (Form::Text, Look::Old) => map::text(def, &[entry], scale, self.names, out),
            (Form::Text, Look::New) => map::value(def, &entry.1, scale, self.names, out),
            (Form::Json, Look::Old) => json::map(def, &[entry], 1, self.names, out),
            (Form::Json, Look::New) => json::entry(def, &entry.1, self.names, out),
        }
    }

    /// What `latency()` measures is known to be nanoseconds, unless the script divides them.
    fn scale(&self, def: &MapDef, div: u64) -> Scale {
        let is_of_spans = |span: &SpanDef| {
            self.program.maps.get(span.map as usize).is_some_and(|measured| measured.name == def.name)
        };
        let is_time = div <= 1 && self.program.spans.iter().any(is_of_spans);
        Scale { div: div.max(1), unit: if is_time { " ns" } else { "" }, look: self.program.look }
    }
}

/// A field's bytes; those a payload does not have are none.
pub(crate) fn part<'a>(payload: &'a [u8], field: &Field) -> &'a [u8] {
    let at = (field.at as usize).min(payload.len());
    let end = at.saturating_add(field.value_type.size_bytes() as usize).min(payload.len());
    &payload[at..end]
}

/// Eight bytes as a number; missing ones are zero.
pub(crate) fn word(bytes: &[u8], index: usize) -> u64 {
    let mut whole = [0; 8];
    let rest = bytes.get(index * 8..).unwrap_or_default();
    let n = rest.len().min(8);
    whole[..n].copy_from_slice(&rest[..n]);
    u64::from_le_bytes(whole)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) struct TestNames;

    impl Names for TestNames {
        fn user_symbol(&self, _: u32, address: u64) -> Option<(String, u64)> {
            (address >= 0x1000).then(|| ("main".to_owned(), address - 0x1000))
        }
        fn kernel_symbol(&self, address: u64) -> Option<(String, u64)> {
            (address >= 0x1000).then(|| ("vfs_read".to_owned(), address - 0x1000))
        }
        fn probe(&self, clause: u32, point: u32) -> String {
            format!("probe{clause}.{point}")
        }
        fn user(&self, uid: u32) -> Option<String> {
            (uid == 0).then(|| "root".to_owned())
        }
        fn time(&self, format: &str, ns: u64) -> String {
            format!("{format}@{ns}")
        }
        fn clock_time(&self, format: &str, epoch_ns: u64) -> String {
            format!("{format}@{epoch_ns}")
        }
    }
}
