//! What a script emits is done here: printed, cleared, run. The output is bytes that somebody else writes.

use super::names::TracerNames;
use super::series::SeriesMaps;
use super::spans::ScriptSpans;
use super::{Maps, entries_of};
use nopal_files::foreign::{self, ForeignError};
use nopal_program::rank::Rank;
use nopal_program::{Action, Format, Look, MessageOf, Program};
use nopal_script::render::{Entry, Form, MapShown, Renderer, printf};
use nopal_spans::Unmatched;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The maps of a running script, wherever they are kept.
pub trait MapAccess {
    fn entries(&mut self, map: u32) -> Vec<Entry>;
    fn clear(&mut self, map: u32);
    fn zero(&mut self, map: u32);
    /// Takes a value into an aggregate without a key.
    fn take(&mut self, map: u32, value: i64);
}

/// An interpreter's.
impl MapAccess for Maps {
    fn entries(&mut self, map: u32) -> Vec<Entry> {
        entries_of(self, map)
    }

    fn clear(&mut self, map: u32) {
        if let Some(table) = self.get_mut(map as usize) {
            table.clear();
        }
    }

    fn zero(&mut self, map: u32) {
        if let Some(table) = self.get_mut(map as usize) {
            table.zero();
        }
    }

    fn take(&mut self, map: u32, value: i64) {
        if let Some(table) = self.get_mut(map as usize) {
            table.take(&[], value);
        }
    }
}

/// A hit that prints more than this does not end.
const MAX_HIT_BYTES: usize = 256 << 20;
/// So much is held before it is written: many hits come at once.
const MAX_HELD_BYTES: usize = 4 << 20;

/// What takes bytes and messages away.
type Taking = dyn FnMut(&mut Vec<u8>, &mut Vec<Message>) -> bool + Send;

/// Writes what was printed; false if nobody reads it any more.
pub struct Drain(pub Box<Taking>);

impl std::fmt::Debug for Drain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Drain")
    }
}

/// Does what a script emits.
#[derive(Debug)]
pub struct Performer {
    program: Arc<Program>,
    pub names: TracerNames,
    pub(crate) spans: ScriptSpans,
    pub(crate) series: SeriesMaps,
    pub form: Form,
    /// What is to be written to standard output.
    pub out: Vec<u8>,
    /// So much was printed and said by one hit.
    n_hit_bytes: usize,
    /// Takes it when it becomes much. Without one it is held until somebody asks.
    pub drain: Option<Drain>,
    /// What `errorf()` and `warnf()` said.
    pub messages: Vec<Message>,
    /// Something has been written there.
    pub has_written: bool,
    /// Set by `exit()`: nothing is performed any more.
    pub exit: Option<u8>,
}

/// Something that a script says is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub of: MessageOf,
    pub text: Vec<u8>,
    /// Where the script says it: first byte and end.
    pub place: (u32, u32),
    /// The same of the calls of macros around it, the innermost first.
    pub within: Vec<(u32, u32)>,
    /// How much of [`Performer::out`] came before it.
    pub behind: usize,
}

impl Performer {
    pub fn new(program: Arc<Program>, form: Form) -> Performer {
        let names = TracerNames::new(Arc::clone(&program));
        let spans = ScriptSpans::new(&program);
        let series = SeriesMaps::new(&program);
        let (out, messages) = (Vec::new(), Vec::new());
        Performer {
            program,
            names,
            spans,
            series,
            form,
            out,
            messages,
            has_written: false,
            exit: None,
            n_hit_bytes: 0,
            drain: None,
        }
    }

    pub fn is_over(&self) -> bool {
        self.exit.is_some()
    }

    /// What comes now is another hit's.
    pub fn begin_hit(&mut self) {
        self.n_hit_bytes = 0;
    }

    /// Does one action with what a hit handed over; false if it has printed so much that it is to be given up.
    pub fn perform(&mut self, maps: &mut dyn MapAccess, action: u32, payload: &[u8]) -> bool {
        let (n_before, n_said) = (self.out.len(), self.messages.len());
        self.act(maps, action, payload);
        self.has_written |= self.out.len() > n_before;
        let said = self.messages[n_said..].iter().map(|message| size_of::<Message>() + message.text.len());
        self.n_hit_bytes += self.out.len() - n_before + said.sum::<usize>();
        let held = self.out.len() + self.messages.len() * size_of::<Message>();
        if held > MAX_HELD_BYTES
            && let Some(Drain(drain)) = &mut self.drain
            && !drain(&mut self.out, &mut self.messages)
        {
            self.exit.get_or_insert(0);
        }
        self.n_hit_bytes <= MAX_HIT_BYTES
    }

    fn act(&mut self, maps: &mut dyn MapAccess, action: u32, payload: &[u8]) {
        let program = Arc::clone(&self.program);
        let Some(action) = program.actions.get(action as usize) else { return };
        if self.is_over() {
            return;
        }
        let renderer = Renderer { program: &program, names: &self.names, form: self.form };
        match action {
            Action::Printf { format } => {
                let text = self.formatted(format, payload);
                renderer.text(&text, "printf", &mut self.out);
            }
            Action::PrintMap { map, .. } if self.series.is_of(*map) => {
                self.series.print(*map, &renderer, &mut self.out);
            }
            Action::PrintMap { map, top, div, rank } => {
                let shown = MapShown { top: *top, div: *div, rank: *rank };
                renderer.map(*map, maps.entries(*map), shown, &mut self.out);
            }
            Action::PrintValue { field } => renderer.value(field, payload, &mut self.out),
            Action::PrintEntry { map, key_at, value } => {
                let Some(def) = program.maps.get(*map as usize) else { return };
                let at = (*key_at as usize).min(payload.len());
                let key = &payload[at..(at + def.key_bytes() as usize).min(payload.len())];
                let found = maps.entries(*map).into_iter().find(|(k, _)| k == key);
                let own = words(payload.get(value.at as usize..).unwrap_or_default(), def.value_bytes());
                let entry = match def.value {
                    // The value of when it was printed.
                    nopal_program::MapValue::Plain(_) | nopal_program::MapValue::Series(_) => {
                        (key.to_vec(), own)
                    }
                    nopal_program::MapValue::Aggregate(aggregate) => {
                        found.unwrap_or_else(|| (key.to_vec(), vec![0; aggregate.n_words() as usize]))
                    }
                };
                renderer.entry(def, entry, &mut self.out);
            }
            Action::SpanEdge { span, is_end } => {
                let Some(def) = program.spans.get(*span as usize) else { return };
                if let Some(duration_ns) = self.spans.edge(*span, *is_end, payload) {
                    maps.take(def.map, duration_ns.min(i64::MAX as u64) as i64);
                }
            }
            Action::TakeSeries { map } => {
                let names = &self.names;
                self.series.take(&program, *map, payload, |ns| names.epoch_ns(ns));
            }
            Action::ForgetSeries { map } => self.series.forget(*map, payload),
            Action::Clear { map } if self.series.is_of(*map) => self.series.clear(*map),
            Action::Zero { map } if self.series.is_of(*map) => self.series.zero(*map),
            Action::Clear { map } => maps.clear(*map),
            Action::Zero { map } => maps.zero(*map),
            Action::Exit { code } => {
                let code =
                    code.as_ref().map_or(0, |field| payload.get(field.at as usize).copied().unwrap_or(0));
                self.exit = Some(code);
            }
            Action::Time { format } => {
                let text = self.names.wall_time(format);
                renderer.text(text.as_bytes(), "time", &mut self.out);
            }
            Action::Join { at, max_count, max_bytes, separator } => {
                let text = joined(payload, *at, *max_count, *max_bytes, separator);
                renderer.text(&text, "join", &mut self.out);
            }
            Action::Message { format, of, place, within } => {
                let (text, behind) = (self.formatted(format, payload), self.out.len());
                self.messages.push(Message { of: *of, text, place: *place, within: within.clone(), behind });
            }
            Action::Cat { format } => {
                let path = self.formatted(format, payload);
                let text = read_file(&String::from_utf8_lossy(&path), program.limits.cat_bytes, program.look);
                renderer.text(&text, "cat", &mut self.out);
            }
            Action::System { format } => {
                let command = self.formatted(format, payload);
                let text = run(&String::from_utf8_lossy(&command));
                renderer.text(&text, "syscall", &mut self.out);
            }
        }
    }

    /// Every map with something in it, as at the end of a script.
    pub fn print_maps(&mut self, maps: &mut dyn MapAccess) {
        let program = Arc::clone(&self.program);
        let renderer = Renderer { program: &program, names: &self.names, form: self.form };
        for map in in_order(&program) {
            match self.series.is_of(map) {
                true => self.series.print(map, &renderer, &mut self.out),
                false => renderer.map_at_end(map, maps.entries(map), &mut self.out),
            }
        }
    }

    /// The rows of an answer: every entry of every map.
    pub fn rows(&self, maps: &mut dyn MapAccess) -> Vec<u8> {
        let mut rows = Vec::new();
        for map in in_order(&self.program) {
            let def = &self.program.maps[map as usize];
            if self.series.is_of(map) {
                self.series.rows(map, def, &self.names, &mut rows);
                continue;
            }
            let entries = nopal_script::render::sorted(def, maps.entries(map), 0, Rank::Usual);
            if !rows.is_empty() && !entries.is_empty() {
                rows.push(b',');
            }
            nopal_script::render::json_rows(def, &entries, &self.names, &mut rows);
        }
        rows
    }

    /// Begins and ends of `latency()` without a partner, if the script has any spans.
    pub fn unmatched(&self) -> Option<Unmatched> {
        (!self.program.spans.is_empty()).then(|| self.spans.unmatched())
    }

    fn formatted(&self, format: &Format, payload: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        printf(format, payload, &self.names, &mut text);
        text
    }
}

/// By name.
fn in_order(program: &Program) -> Vec<u32> {
    let mut order: Vec<u32> = (0..program.maps.len() as u32).collect();
    order.sort_by(|a, b| program.maps[*a as usize].name.cmp(&program.maps[*b as usize].name));
    order
}

fn words(bytes: &[u8], n_bytes: u32) -> Vec<u64> {
    (0..n_bytes as usize / 8)
        .map(|index| {
            let mut word = [0; 8];
            let rest = bytes.get(index * 8..).unwrap_or_default();
            let n = rest.len().min(8);
            word[..n].copy_from_slice(&rest[..n]);
            u64::from_le_bytes(word)
        })
        .collect()
}

/// u64 count, then strings of `max_bytes` each.
fn joined(payload: &[u8], at: u32, max_count: u32, max_bytes: u32, separator: &str) -> Vec<u8> {
    let part = payload.get(at as usize..).unwrap_or_default();
    let count = words(part, 8)[0].min(u64::from(max_count)) as usize;
    let mut text = Vec::new();
    for place in part.get(8..).unwrap_or_default().chunks(max_bytes.max(1) as usize).take(count) {
        if !text.is_empty() {
            text.extend_from_slice(separator.as_bytes());
        }
        text.extend_from_slice(&place[..place.iter().position(|b| *b == 0).unwrap_or(place.len())]);
    }
    text.push(b'\n');
    text
}

fn read_file(path: &str, n_bytes: u32, look: Look) -> Vec<u8> {
    let mut text = Vec::new();
    // The name may come from the program that is traced.
    let file = foreign::open(Path::new(path)).map_err(ForeignError::into_io);
    match file.and_then(|file| file.take(n_bytes.into()).read_to_end(&mut text)) {
        Ok(_) => text,
        Err(error) => {
            let error = error.to_string();
            let why = error.split(" (os error").next().unwrap_or_default();
            let text = match look {
                Look::Old => format!("ERROR: failed to open file '{path}': {why}\n"),
                Look::New => format!("ERROR: failed to open file '{path}' ({why})\n"),
            };
            text.into_bytes()
        }
    }
}

fn run(command: &str) -> Vec<u8> {
    match Command::new("/bin/sh").args(["-c", command]).stdin(Stdio::null()).stderr(Stdio::inherit()).output()
    {
        Ok(output) => output.stdout,
        Err(error) => format!("system: {command}: {error}\n").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_joined_as_far_as_there_are_any() {
        let mut payload = vec![9; 8];
        payload.extend(2u64.to_le_bytes());
        payload.extend(b"ls\0\0-l\0\0xx\0\0");
        assert_eq!(joined(&payload, 8, 16, 4, " "), b"ls -l\n");
        assert_eq!(joined(&payload, 8, 1, 4, " "), b"ls\n");
        assert_eq!(joined(&payload[..10], 8, 16, 4, " "), b"\n");
    }

    #[test]
    fn files_and_commands() {
        assert_eq!(read_file("/proc/version", 5, Look::Old), b"Linux");
        for (look, want) in [(Look::Old, ": No such"), (Look::New, " (No such")] {
            let want = format!("ERROR: failed to open file '/nonexistent/file'{want}");
            assert!(read_file("/nonexistent/file", 5, look).starts_with(want.as_bytes()));
        }
        assert_eq!(run("echo hi"), b"hi\n");
    }
}
