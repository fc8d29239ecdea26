//! Events that have not been recorded: printed as they come, in the same lines as those of a recording.

use crate::digits;
use crate::escape::escape;
use crate::escape::json_string;
use crate::json::{JsonPrinter, print_number};
use crate::location::ScopeKind;
use crate::model::{ByteOrder, EventType, Type};
use crate::read::{
    Content, Damage, Scope, Scratch, ShortPrinter, Slots, TaskText, TextPrinter, Visitor, compile, run,
};
use crate::text::{Look, ShortLine, TextForm, TextLines};

/// An event type, ready to be printed.
#[derive(Debug)]
pub struct LiveClass {
    ty: EventType,
    /// Its full name, for people.
    shown: String,
    fields: Scope,
}

/// What is known of one event beside its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen<'a> {
    /// Since the epoch.
    pub ns: i64,
    pub cpu: u32,
    pub pid: u32,
    pub tid: u32,
    /// The numbers the process itself knows, where they differ.
    pub own: Option<(u32, u32)>,
    /// Of the process, for short lines.
    pub name: Option<&'a str>,
}

/// Prints events that come one at a time.
#[derive(Debug)]
pub struct LivePrinter {
    host: String,
    form: Form,
    scratch: Box<Scratch>,
}

#[derive(Debug)]
enum Form {
    Text(TextLines),
    Json { has_strings: bool },
}

impl LiveClass {
    /// Fails for a type that no recording could hold either.
    pub fn new(ty: &EventType) -> Result<LiveClass, String> {
        let scope = Type::structure(ty.fields.clone());
        let fields =
            compile(ScopeKind::EventFields, &scope, ByteOrder::Little, &mut [], &mut Slots::default())?;
        let shown = escape(&ty.full_name()).into_owned();
        Ok(LiveClass { ty: ty.clone(), shown, fields })
    }

    pub fn event_type(&self) -> &EventType {
        &self.ty
    }

    /// Shows the fields that `payload` holds to `visitor`, as those of a recorded event are shown.
    pub fn fields<V: Visitor>(
        &self,
        payload: &[u8],
        scratch: &mut Scratch,
        visitor: &mut V,
    ) -> Result<(), Damage> {
        let content = Content { bytes: payload, end_bits: payload.len() as u64 * 8 };
        run(&self.fields.plan, content, 0, scratch, visitor).map(|_| ())
    }
}

impl LivePrinter {
    pub fn text(host: &str, form: TextForm) -> LivePrinter {
        let host = escape(host).into_owned();
        LivePrinter { host, form: Form::Text(TextLines::new(form)), scratch: Box::default() }
    }

    /// With `has_strings`, integers above 2^53 become strings.
    pub fn json(host: &str, has_strings: bool) -> LivePrinter {
        LivePrinter { host: host.to_owned(), form: Form::Json { has_strings }, scratch: Box::default() }
    }

    /// Appends one line; `payload` holds the event's fields as its type lays them out.
    pub fn print(
        &mut self,
        class: &LiveClass,
        seen: Seen<'_>,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Damage> {
        let start = out.len();
        let result = self.line(class, seen, payload, out);
        if result.is_err() {
            out.truncate(start);
        }
        result
    }

    fn line(
        &mut self,
        class: &LiveClass,
        seen: Seen<'_>,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Damage> {
        let content = Content { bytes: payload, end_bits: payload.len() as u64 * 8 };
        if let Form::Text(lines) = &mut self.form
            && let Look::Short { has_colour } = lines.look()
        {
            let mut values = Vec::new();
            let mut printer = ShortPrinter::new(&mut values, has_colour, None);
            run(&class.fields.plan, content, 0, &mut self.scratch, &mut printer)?;
            let task = TaskText {
                pid: Some(u64::from(seen.pid)),
                tid: Some(u64::from(seen.tid)),
                name: seen.name.map(str::to_owned),
            };
            let line = ShortLine { name: &class.shown, values: &values, extra: &[] };
            lines.short_line(Some(seen.ns), &task, line, out);
            return Ok(());
        }
        match &mut self.form {
            Form::Text(lines) => {
                lines.time(seen.ns, out);
                out.extend_from_slice(self.host.as_bytes());
                out.push(b' ');
                out.extend_from_slice(class.shown.as_bytes());
                let (vpid, vtid) = seen.own.unwrap_or((seen.pid, seen.tid));
                for (lead, value) in [
                    (&b": { cpu_id = "[..], seen.cpu),
                    (&b" }, { vpid = "[..], vpid),
                    (&b", vtid = "[..], vtid),
                ] {
                    out.extend_from_slice(lead);
                    digits::unsigned(out, u64::from(value));
                }
                out.extend_from_slice(b" }, {");
                run(&class.fields.plan, content, 0, &mut self.scratch, &mut TextPrinter::new(out))?;
                out.extend_from_slice(b" }\n");
            }
            Form::Json { has_strings } => {
                out.extend_from_slice(b"{\"ts\":");
                print_number(out, i128::from(seen.ns), *has_strings);
                out.extend_from_slice(b",\"host\":");
                json_string(out, self.host.as_bytes());
                let own = seen.own.into_iter().flat_map(|(pid, tid)| [("vpid", pid), ("vtid", tid)]);
                let numbers = [("pid", seen.pid), ("tid", seen.tid), ("cpu", seen.cpu)];
                for (key, value) in numbers.into_iter().chain(own) {
                    out.extend_from_slice(b",\"");
                    out.extend_from_slice(key.as_bytes());
                    out.extend_from_slice(b"\":");
                    digits::unsigned(out, u64::from(value));
                }
                out.extend_from_slice(b",\"provider\":");
                json_string(out, class.ty.provider.as_bytes());
                out.extend_from_slice(b",\"name\":");
                json_string(out, class.ty.name.as_bytes());
                out.extend_from_slice(b",\"args\":{");
                let mut printer = JsonPrinter { out, has_strings: *has_strings, is_first: true };
                run(&class.fields.plan, content, 0, &mut self.scratch, &mut printer)?;
                out.extend_from_slice(b"}}\n");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class() -> LiveClass {
        let ty = EventType::new("demo", "set").field("key", Type::String).field("bytes", Type::unsigned(64));
        LiveClass::new(&ty).unwrap()
    }

    const SEEN: Seen<'_> = Seen { ns: 1_000_000_007, cpu: 3, pid: 12, tid: 13, own: None, name: None };
    const PAYLOAD: &[u8] = b"user:1\0\x0c\0\0\0\0\0\0\0";

    #[test]
    fn people_get_a_short_line() {
        let form =
            |has_colour| TextForm { is_utc: true, look: Look::Short { has_colour }, ..TextForm::default() };
        let line = |has_colour, name| {
            let mut out = Vec::new();
            LivePrinter::text("host", form(has_colour))
                .print(&class(), Seen { name, ..SEEN }, PAYLOAD, &mut out)
                .unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            line(false, Some("a\x1bb")),
            "00:00:01.000000  a\\u{1b}b[12/13]       demo:set  key=\"user:1\" bytes=12\n"
        );
        assert_eq!(
            line(false, None),
            "00:00:01.000000  12/13                 demo:set  key=\"user:1\" bytes=12\n"
        );
        let coloured = line(true, None);
        assert!(
            coloured.contains("\x1b[36mdemo:set\x1b[0m") && coloured.matches("\x1b[2m").count() == 3,
            "{coloured:?}"
        );
    }

    #[test]
    fn a_line_has_the_shape_of_a_recordings() {
        let mut printer = LivePrinter::text("host", TextForm { is_utc: true, ..TextForm::default() });
        let mut out = Vec::new();
        printer.print(&class(), SEEN, PAYLOAD, &mut out).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert_eq!(
            line,
            "[00:00:01.000000007] (+?.?????????) host demo:set: { cpu_id = 3 }, { vpid = 12, vtid = 13 }, { key = \
             \"user:1\", bytes = 12 }\n"
        );
    }

    #[test]
    fn json_has_the_documented_keys() {
        let mut out = Vec::new();
        LivePrinter::json("host", false).print(&class(), SEEN, PAYLOAD, &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "{\"ts\":1000000007,\"host\":\"host\",\"pid\":12,\"tid\":13,\"cpu\":3,\"provider\":\"demo\",\"name\":\
             \"set\",\"args\":{\"key\":\"user:1\",\"bytes\":12}}\n"
        );
    }

    #[test]
    fn a_payload_that_ends_early_leaves_no_half_line() {
        let mut out = Vec::new();
        assert!(LivePrinter::json("host", false).print(&class(), SEEN, b"user", &mut out).is_err());
        assert!(out.is_empty());
    }
}
