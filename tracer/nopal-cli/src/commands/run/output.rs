//! Where a script's results go, and what is said at its end.

use super::input::Source;
use super::release::Release;
use super::{Args, FormArg, Manner};
use crate::commands::answers::render;
use crate::failure::Failure;
use crate::verdict;
use crate::words;
use nopal_program::MessageOf;
use nopal_run::{Drain, Measured, Message, Performer};
use nopal_script::{Place, Span};
use nopal_spans::Unmatched;
use nopal_trace::Verdict;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Test runners of bpftrace wait for this line, and ask for it by a variable of this name.
const NOTICE: &str = "__BPFTRACE_NOTIFY_PROBES_ATTACHED";

/// Standard output, or a file.
#[derive(Debug, Default)]
pub(crate) struct Out {
    file: Option<File>,
    said: Option<Said>,
    /// What was printed last has no line break at its end.
    is_within_line: bool,
    /// Why it could not be written.
    failure: Option<Failure>,
}

pub(super) fn lock(out: &Mutex<Out>) -> MutexGuard<'_, Out> {
    out.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a macro is called that something was told in.
fn expanded_from(source: &Source, span: Span, level: &str) -> String {
    let Place { line_no, column, width, line } = span.place(&source.text);
    let (blanks, mark) = (" ".repeat(column), "~".repeat(width));
    let (name, from, to) = (source.shown_name(), column + 1, column + 1 + width);
    format!("\n{name}:{line_no}:{from}-{to}: {level}: expanded from\n{line}\n{blanks}{mark}")
}

/// As an object of bpftrace's JSON, its members in bpftrace's order.
fn in_json(message: &Message, text: &str, file: &str, place: &Place<'_>) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let (kind, text, helper) = match message.of {
        MessageOf::Error => ("errorf", text, String::new()),
        MessageOf::Warning => ("warnf", text, String::new()),
        MessageOf::Check => ("runtime_error", text, String::new()),
        MessageOf::Helper { name, code } => {
            // The message is that of the number alone.
            let text = if code == 0 { "Success" } else { text };
            ("helper_error", text, format!(", \"helper\": \"{name}\", \"retcode\": {code}"))
        }
    };
    let (text, file, line, column) = (quoted(text), quoted(file), place.line_no, place.column + 1);
    format!(
        "{{\"type\": \"{kind}\", \"msg\": {text}{helper}, \"filename\": {file}, \"line\": {line}, \"col\": {column}}}"
    )
}

/// Release 0.17 knows of one helper that reads memory.
fn old_helper(name: &'static str) -> &'static str {
    match name {
        "probe_read_user" | "probe_read_kernel" => "probe_read",
        "probe_read_user_str" | "probe_read_kernel_str" => "probe_read_str",
        other => other,
    }
}

/// The same as release 0.17 has it, which knows only of helpers.
fn in_old_json(message: &Message, text: &str, place: &Place<'_>) -> String {
    let (line, column) = (place.line_no, place.column + 1);
    match message.of {
        MessageOf::Helper { name, code } => format!(
            "{{\"type\": \"helper_error\", \"helper\": \"{}\", \"retcode\": {code}, \"line\": {line}, \"col\": {column}}}",
            old_helper(name)
        ),
        MessageOf::Error | MessageOf::Warning | MessageOf::Check => in_json(message, text, "stdin", place),
    }
}

/// How what `errorf()` and `warnf()` say is told.
#[derive(Debug)]
struct Said {
    source: Source,
    has_no_warnings: bool,
    is_json: bool,
    release: Release,
}

impl Out {
    pub(crate) fn open(path: Option<&Path>) -> Result<Out, Failure> {
        let Some(path) = path else { return Ok(Out::default()) };
        let file = nopal_files::own::create(path)
            .map_err(|e| Failure::new("output", format!("cannot write {}: {e}", path.display())))?;
        Ok(Out { file: Some(file), ..Out::default() })
    }

    /// What the script says of itself stands in its text.
    pub(super) fn of(args: &Args, source: Source) -> Result<Out, Failure> {
        let is_json = args.json || args.format == FormArg::Json;
        let Manner { has_no_warnings, release, .. } = args.manner;
        let said = Said { source, has_no_warnings, is_json, release };
        Ok(Out { said: Some(said), ..Out::open(args.output.as_deref())? })
    }

    /// Writes what the script printed; false if nobody reads it any more.
    pub(crate) fn take(&mut self, performer: &mut Performer) -> Result<bool, Failure> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => self.drain(&mut performer.out, &mut performer.messages),
        }
    }

    fn drain(&mut self, printed: &mut Vec<u8>, messages: &mut Vec<Message>) -> Result<bool, Failure> {
        let mut written = 0;
        for message in std::mem::take(messages) {
            let behind = message.behind.clamp(written, printed.len());
            if !self.write(&printed[written..behind])? {
                return Ok(false);
            }
            written = behind;
            if !self.say(&message)? {
                return Ok(false);
            }
        }
        let goes_on = self.write(&printed[written..])?;
        printed.clear();
        Ok(goes_on)
    }

    /// Has a script that prints much in a moment written as it goes. What goes wrong with that is told at the next `take`.
    pub(super) fn drains(out: &Arc<Mutex<Out>>) -> Drain {
        let out = Arc::clone(out);
        Drain(Box::new(move |printed, messages| {
            let mut out = lock(&out);
            let drained = out.drain(printed, messages);
            drained.unwrap_or_else(|failure| {
                out.failure = Some(failure);
                false
            })
        }))
    }

    /// On standard error, or as an object among the results.
    fn say(&mut self, message: &Message) -> Result<bool, Failure> {
        let Some(said) = &self.said else { return Ok(true) };
        let is_error = message.of == MessageOf::Error;
        if said.has_no_warnings && !is_error {
            return Ok(true);
        }
        let (source, text) = (&said.source, String::from_utf8_lossy(&message.text));
        let place = Span { start: message.place.0, end: message.place.1 }.place(&source.text);
        if said.is_json {
            let object = match said.release {
                Release::Old => in_old_json(message, &text, &place),
                Release::New => in_json(message, &text, source.shown_name(), &place),
            };
            return self.write(format!("{object}\n").as_bytes());
        }
        let mut text = nopal_trace::escape(text.strip_suffix('\n').unwrap_or(&text)).into_owned();
        if let MessageOf::Helper { name, code } = message.of {
            let separator = if source.is_bpftrace { "\nAdditional Info - " } else { "; " };
            match said.release {
                Release::Old if code == 0 => text = format!("Failed to {name}: 0"),
                Release::Old => text = format!("Failed to {}: {text} ({code})", old_helper(name)),
                Release::New => _ = write!(text, "{separator}helper: {name}, retcode: {code}"),
            }
        }
        // The script's own messages say enough by themselves.
        let is_ours = matches!(message.of, MessageOf::Check | MessageOf::Helper { .. });
        if source.is_bpftrace && is_ours {
            let (blanks, mark) = (" ".repeat(place.column), "~".repeat(place.width));
            let _ = write!(text, "\n{}\n{blanks}{mark}", place.line);
        }
        let (name, line_no, column) = (source.shown_name(), place.line_no, place.column + 1);
        let (loud, quiet) = if is_error { ("ERROR", "error") } else { ("WARNING", "warning") };
        match source.is_bpftrace {
            true => {
                let mut shown = format!("{name}:{line_no}:{column}-{}: {loud}: {text}", column + place.width);
                for (start, end) in &message.within {
                    shown.push_str(&expanded_from(source, Span { start: *start, end: *end }, loud));
                }
                tell!("{shown}");
            }
            false => tell!("{quiet}: {text} ({name}:{line_no}:{column})"),
        }
        Ok(true)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<bool, Failure> {
        if bytes.is_empty() {
            return Ok(true);
        }
        self.is_within_line = bytes.last() != Some(&b'\n');
        let written = match &mut self.file {
            Some(file) => file.write_all(bytes),
            None => {
                let mut stdout = std::io::stdout().lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
        };
        match written {
            Ok(()) => Ok(true),
            // A reader that has seen enough, such as `head`, ends the script.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Failure::new("output", format!("cannot print: {error}"))),
        }
    }

    /// Writes the maps at the end, behind what the script printed before: on a line of their own.
    pub(crate) fn take_maps(&mut self, performer: &mut Performer) -> Result<bool, Failure> {
        if self.is_within_line && !performer.out.is_empty() {
            self.write(b"\n")?;
        }
        self.take(performer)
    }

    /// How many points there are: called as bpftrace, where and as its newest release says it. `nopal run` says it in the
    /// words that scripts wait for, beside the results.
    pub(crate) fn attached(&mut self, args: &Args, n_points: usize) -> Result<(), Failure> {
        let ending = if n_points == 1 { "" } else { "s" };
        let notifies = std::env::var_os(NOTICE).is_some();
        if !args.manner.is_bpftrace {
            if !args.json && args.format == FormArg::Text {
                tell!("Attaching {n_points} probe{ending}...");
            }
            return Ok(());
        }
        if args.manner.release == Release::Old {
            let line = match args.format {
                _ if args.manner.is_quiet => String::new(),
                FormArg::Json => {
                    format!("{{\"type\": \"attached_probes\", \"data\": {{\"probes\": {n_points}}}}}\n")
                }
                FormArg::Text => format!("Attaching {n_points} probe{ending}...\n"),
            };
            self.write(line.as_bytes())?;
            if notifies {
                tell!("{NOTICE}");
            }
            return Ok(());
        }
        if args.manner.is_quiet {
            // Only the words for test runners are said.
        } else if args.format == FormArg::Json {
            let line = format!(
                "{{\"type\": \"attached_probes\", \"count\": {n_points}, \"data\": {{\"probes\": {n_points}}}}}\n"
            );
            self.write(line.as_bytes())?;
        } else {
            tell!("Attached {n_points} probe{ending}");
        }
        if notifies {
            show!("{NOTICE}");
        }
        Ok(())
    }

    /// What clauses take, as bpftrace shows it.
    pub(crate) fn measured(&mut self, args: &Args, measured: &[Measured]) -> Result<(), Failure> {
        let mut text = String::new();
        if args.format == FormArg::Text {
            let _ = writeln!(text, "\n{:<40} {:<14} Iterations\n{}", "Benchmark", "Time(ns)", "-".repeat(66));
        }
        for Measured { name, average_ns, n_rounds } in measured {
            let _ = match args.format {
                FormArg::Text => writeln!(text, "{name:<40} {average_ns:<14} {n_rounds}"),
                FormArg::Json => writeln!(
                    text,
                    "{{\"type\": \"benchmark_result\", \"data\": {{\"{name}\": {{\"average\": {average_ns}, \"iters\": {n_rounds}}}}}}}"
                ),
            };
        }
        self.write(text.as_bytes())?;
        Ok(())
    }

    /// The last line: `complete`, or what is missing. With --json an object with the rows of all maps.
    pub(crate) fn conclude(
        &mut self,
        args: &Args,
        verdict: &Verdict,
        unmatched: Option<Unmatched>,
        rows: Option<Vec<u8>>,
    ) -> Result<(), Failure> {
        if let Some(rows) = rows {
            let mut head = verdict::json(verdict);
            head.extend(unmatched.iter().flat_map(render::unmatched_json));
            let head = serde_json::Value::Object(head).to_string();
            let head = head.strip_suffix('}').unwrap_or(&head).as_bytes();
            self.write(&[head, b",\"rows\":[", &rows, b"]}\n"].concat())?;
            return Ok(());
        }
        if args.manner.is_bpftrace {
            if verdict.n_lost > 0 {
                tell!("Lost {} events", verdict.n_lost);
            }
            for (map, _) in &verdict.full_maps {
                tell!(
                    "WARNING: Map full; can't update element. Try increasing max_map_keys config or manually setting the max entries in a map declaration e.g. `let {map} = hash(5000)`"
                );
            }
            let rest = Verdict { full_maps: Default::default(), ..verdict.clone() };
            if !rest.is_complete() {
                tell!("WARNING: {}", verdict::text(&rest, verdict::Manner::LIVE));
            }
            return Ok(());
        }
        // What we say would stand behind what the script has printed.
        if self.is_within_line && self.file.is_none() && is_one_place() {
            self.write(b"\n")?;
        }
        if verdict.n_cut > 0 {
            let strings = words::counted(verdict.n_cut, "string");
            let were = if verdict.n_cut == 1 { "was" } else { "were" };
            tell!("{strings} {were} longer than the script keeps; config = {{ max_strlen = N }} keeps more");
        }
        if let Some(text) = unmatched.as_ref().and_then(render::unmatched) {
            tell!("{text}");
        }
        if args.format == FormArg::Json {
            let object = serde_json::json!({ "type": "verdict", "data": verdict::json(verdict) });
            tell_json!(object);
        } else {
            tell!("{}", verdict::text(verdict, verdict::Manner::LIVE));
        }
        Ok(())
    }
}

/// Whether standard output and standard error are read together: on a terminal, or as `2>&1` joins them.
fn is_one_place() -> bool {
    let place = |fd: u32| std::fs::metadata(format!("/proc/self/fd/{fd}")).map(|m| (m.dev(), m.ino())).ok();
    (std::io::stdout().is_terminal() && std::io::stderr().is_terminal())
        || place(1).is_some_and(|place_of_output| place(2) == Some(place_of_output))
}
