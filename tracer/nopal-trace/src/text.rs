//! Events as lines of text, in the form that LTTng's and babeltrace2's users know:
//! `[15:30:19.334467738] (+0.000001222) host provider:event: { cpu_id = 15 }, { name = "set", duration = 0 }`.

use crate::digits;
use crate::escape::escape;
use crate::frames::FrameNames;
use crate::localtime::{ClockText, Second};
use crate::pipeline::Lines;
use crate::read::{Damage, Event, Scratch, ShortPrinter, TaskText, TextPrinter, run};
use std::sync::Arc;

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextForm {
    pub clock: ClockText,
    /// Times in UTC, not in the zone of this machine.
    pub is_utc: bool,
    pub has_no_delta: bool,
    pub look: Look,
}

/// What a line looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Look {
    /// As babeltrace2 prints it.
    #[default]
    Babeltrace,
    /// Time, process, probe, arguments; for people.
    Short { has_colour: bool },
}

/// What a short line is made of, beside the time and the process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShortLine<'a> {
    /// Escaped.
    pub name: &'a str,
    pub values: &'a [u8],
    pub extra: &'a [u8],
}

/// Makes lines; remembers the time of the last one.
#[derive(Debug)]
pub struct TextLines {
    form: TextForm,
    second: Second,
    last_ns: Option<i64>,
    scratch: Box<Scratch>,
    names: Option<Arc<dyn FrameNames>>,
}

impl TextLines {
    pub fn new(form: TextForm) -> Self {
        TextLines {
            form,
            second: Second::new(form.clock, form.is_utc),
            last_ns: None,
            scratch: Box::default(),
            names: None,
        }
    }

    /// Short lines name the addresses of stacks.
    pub fn with_names(self, names: Arc<dyn FrameNames>) -> Self {
        TextLines { names: Some(names), ..self }
    }

    pub(crate) fn look(&self) -> Look {
        self.form.look
    }

    pub(crate) fn time(&mut self, ns: i64, out: &mut Vec<u8>) {
        out.push(b'[');
        self.second.print(ns, out);
        out.extend_from_slice(b"] ");
        if !self.form.has_no_delta {
            match self.last_ns {
                Some(last) => {
                    let delta = ns.wrapping_sub(last).max(0) as u64;
                    out.extend_from_slice(b"(+");
                    digits::unsigned(out, delta / 1_000_000_000);
                    out.push(b'.');
                    digits::nine(out, (delta % 1_000_000_000) as u32);
                    out.extend_from_slice(b") ");
                }
                None => out.extend_from_slice(b"(+?.?????????) "),
            }
        }
        self.last_ns = Some(ns);
    }

    /// `15:30:19.334467  memcached[12]  memcached:command__get  key="user:1"`
    pub(crate) fn short_line(
        &mut self,
        ns: Option<i64>,
        task: &TaskText,
        line: ShortLine<'_>,
        out: &mut Vec<u8>,
    ) {
        let (dim, bold, plain) = match self.form.look {
            Look::Short { has_colour: true } => ("\x1b[2m", "\x1b[36m", "\x1b[0m"),
            Look::Short { has_colour: false } | Look::Babeltrace => ("", "", ""),
        };
        if let Some(ns) = ns {
            out.extend_from_slice(dim.as_bytes());
            self.second.print(ns, out);
            // People tell microseconds apart.
            out.truncate(out.len() - 3);
            out.extend_from_slice(plain.as_bytes());
            out.extend_from_slice(b"  ");
        }
        let thread =
            task.tid.filter(|tid| Some(*tid) != task.pid).map(|tid| format!("/{tid}")).unwrap_or_default();
        let who = match (&task.name, task.pid) {
            (Some(name), Some(pid)) => format!("{}[{pid}{thread}]", escape(name)),
            (None, Some(pid)) => format!("{pid}{thread}"),
            (Some(name), None) => escape(name).into_owned(),
            (None, None) => String::new(),
        };
        if !who.is_empty() {
            out.extend_from_slice(format!("{who:<20}  ").as_bytes());
        }
        out.extend_from_slice(format!("{bold}{}{plain} ", line.name).as_bytes());
        for values in [line.values, line.extra] {
            if !values.is_empty() {
                out.push(b' ');
                out.extend_from_slice(values.strip_prefix(b" ").unwrap_or(values));
            }
        }
        while out.last() == Some(&b' ') {
            out.pop();
        }
        out.push(b'\n');
    }

    fn short(&mut self, event: &Event<'_>, has_colour: bool, out: &mut Vec<u8>) -> Result<(), Damage> {
        let mut at = event.prepare(&mut self.scratch)?;
        let [of_stream, of_class, fields] = event.scopes();
        let (mut task, mut extra, mut values) = (TaskText::default(), Vec::new(), Vec::new());
        for scope in [of_stream, of_class].into_iter().flatten() {
            let mut printer = ShortPrinter::new(&mut extra, has_colour, Some(&mut task));
            printer.frames = event.frames(self.names.as_deref());
            at = run(&scope.plan, event.packet.content(), at, &mut self.scratch, &mut printer)?;
        }
        if let Some(scope) = fields {
            let mut printer = ShortPrinter::new(&mut values, has_colour, None);
            run(&scope.plan, event.packet.content(), at, &mut self.scratch, &mut printer)?;
        }
        let full = event.class().ty.full_name();
        let line = ShortLine { name: &escape(&full), values: &values, extra: &extra };
        self.short_line(event.ns(), &task, line, out);
        Ok(())
    }

    fn scopes(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), Damage> {
        let mut at = event.prepare(&mut self.scratch)?;
        let mut is_first = true;
        for scope in event.scopes().into_iter().flatten() {
            out.extend_from_slice(if is_first { b"{" } else { b", {" });
            is_first = false;
            let mut printer = TextPrinter::new(out);
            at = run(&scope.plan, event.packet.content(), at, &mut self.scratch, &mut printer)?;
            out.extend_from_slice(b" }");
        }
        Ok(())
    }
}

impl Lines for TextLines {
    fn set_last_ns(&mut self, ns: Option<i64>) {
        self.last_ns = ns;
    }

    fn print(&mut self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), Damage> {
        if let Look::Short { has_colour } = self.form.look {
            return self.short(event, has_colour, out);
        }
        let start = out.len();
        if let Some(ns) = event.ns() {
            self.time(ns, out);
        }
        out.extend_from_slice(&event.class().lead);
        out.extend_from_slice(&event.packet.text);
        match self.scopes(event, out) {
            Ok(()) => {
                out.push(b'\n');
                Ok(())
            }
            Err(damage) => {
                out.truncate(start);
                Err(damage)
            }
        }
    }
}
