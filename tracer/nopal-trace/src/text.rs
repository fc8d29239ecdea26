//! Events as lines of text, in the form that LTTng's and babeltrace2's users know:
//! `[15:30:19.334467738] (+0.000001222) host provider:event: { cpu_id = 15 }, { name = "set", duration = 0 }`.

use crate::digits;
use crate::localtime::{ClockText, Second};
use crate::pipeline::Lines;
use crate::read::{Damage, Event, Scratch, TextPrinter, run};

/// How lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TextForm {
    pub clock: ClockText,
    /// Times in UTC, not in the zone of this machine.
    pub is_utc: bool,
    pub has_no_delta: bool,
}

/// Makes lines; remembers the time of the last one.
#[derive(Debug)]
pub struct TextLines {
    form: TextForm,
    second: Second,
    last_ns: Option<i64>,
    scratch: Box<Scratch>,
}

impl TextLines {
    pub fn new(form: TextForm) -> Self {
        TextLines {
            form,
            second: Second::new(form.clock, form.is_utc),
            last_ns: None,
            scratch: Box::default(),
        }
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
