//! The spans of well-known providers, and what their probes need to fire: one file each, in the form of a `nopal.toml`,
//! beside the `.d` files that describe the probes themselves.

use crate::file::{self, Trap};
use crate::span::{Source, Span};
use nopal_sdt::pattern::glob;
use std::sync::OnceLock;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../catalog/", $name)))),*]
    };
}

const FILES: [(&str, &str); 12] = files![
    "glib.toml",
    "hotspot.toml",
    "libvirt.toml",
    "memcached.toml",
    "mysql.toml",
    "node.toml",
    "php.toml",
    "postgresql.toml",
    "python.toml",
    "redis.toml",
    "ruby.toml",
    "valkey.toml",
];

fn all() -> &'static (Vec<Span>, Vec<Trap>) {
    static ALL: OnceLock<(Vec<Span>, Vec<Trap>)> = OnceLock::new();
    ALL.get_or_init(|| {
        let (mut spans, mut traps) = (Vec::new(), Vec::new());
        for (_, text) in FILES {
            // A test reads every file, so that a broken one cannot ship.
            if let Ok((more_spans, more_traps)) = file::parse_all(text, &Source::Catalog) {
                spans.extend(more_spans);
                traps.extend(more_traps);
            }
        }
        (spans, traps)
    })
}

/// The spans of all well-known providers.
pub fn spans() -> &'static [Span] {
    &all().0
}

/// What all probes need that need something.
pub fn traps() -> &'static [Trap] {
    &all().1
}

/// What a probe needs to fire, if there is more to it than passing its place.
pub fn trap(provider: &str, name: &str) -> Option<&'static Trap> {
    let full_name = format!("{provider}:{name}");
    all().1.iter().find(|trap| trap.probes.iter().any(|pattern| glob(pattern, &full_name)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::{Mode, ProbeName, Shape, Unit};
    use nopal_provider::Kind;

    fn declared(probe: &ProbeName) -> &'static nopal_provider::Probe {
        nopal_provider::catalog::provider(&probe.provider)
            .and_then(|provider| provider.probe(&probe.name))
            .unwrap_or_else(|| panic!("no probe {probe} is declared"))
    }

    fn has(probe: &ProbeName, field: &str) -> bool {
        declared(probe).args.iter().any(|arg| arg.name.as_deref() == Some(field))
    }

    #[test]
    fn every_file_is_right() {
        for (name, text) in FILES {
            file::parse_all(text, &Source::Catalog).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
    }

    #[test]
    fn every_span_is_made_of_declared_probes_and_their_fields() {
        for span in spans() {
            let name = span.full_name();
            for probe in span.probes() {
                declared(probe);
            }
            let (begins, ends) = (span.begins(), span.ends());
            for key in span.key() {
                assert!(begins.iter().all(|probe| has(probe, &key.begin)), "{name}: {key}");
                assert!(ends.iter().all(|probe| has(probe, &key.end)), "{name}: {key}");
            }
            for carry in &span.carries {
                assert!(has(&carry.probe, &carry.field), "{name}: {}", carry.name);
            }
            for field in &span.fields {
                let is_carried = span.carries.iter().any(|carry| carry.name == *field);
                assert!(is_carried || begins.iter().chain(ends).any(|p| has(p, field)), "{name}: {field}");
            }
            if let Shape::Whole { probe, duration, .. } = &span.shape {
                let arg = declared(probe).args.iter().find(|a| a.name.as_deref() == Some(duration));
                assert!(arg.is_some_and(|a| a.kind == Kind::Unsigned), "{name}");
            }
            if let Some(parent) = &span.parent {
                assert!(spans().iter().any(|s| s.provider == span.provider && s.name == *parent), "{name}");
            }
            assert!(
                !span.doc.is_empty() && !matches!(&span.mode, Mode::Key(key) if key.is_empty()),
                "{name}"
            );
        }
        assert!(spans().len() > 80, "{} spans", spans().len());
    }

    /// The span, where it begins and ends, and what an end has in common with its begin: `thread` and fields that must
    /// agree, or `key` and the fields it pairs by, whatever the thread; of one event, its duration.
    #[test]
    fn the_spans_that_people_ask_for() {
        for (name, begin, end, pairing) in [
            ("postgresql:transaction", "transaction__start", "transaction__commit", "thread"),
            ("postgresql:query", "query__execute__start", "query__execute__done", "thread"),
            ("postgresql:simple_query", "query__start", "query__done", "thread"),
            ("postgresql:parse", "query__parse__start", "query__parse__done", "thread"),
            ("postgresql:plan", "query__plan__start", "query__plan__done", "thread"),
            ("postgresql:execute", "query__execute__start", "query__execute__done", "thread"),
            ("postgresql:sort", "sort__start", "sort__done", "thread"),
            (
                "postgresql:lock_wait",
                "lock__wait__start",
                "lock__wait__done",
                "thread field1 field2 field3 field4",
            ),
            ("postgresql:lwlock_wait", "lwlock__wait__start", "lwlock__wait__done", "thread lwlock"),
            (
                "postgresql:lwlock",
                "lwlock__acquire lwlock__condacquire lwlock__acquire__or__wait",
                "lwlock__release",
                "thread",
            ),
            ("postgresql:buffer_read", "buffer__read__start", "buffer__read__done", "thread relOid blockNum"),
            ("postgresql:checkpoint", "checkpoint__start", "checkpoint__done", "thread"),
            ("hotspot:gc", "gc__begin", "gc__end", "thread"),
            (
                "hotspot:class_init",
                "class__initialization__clinit",
                "class__initialization__end",
                "thread className",
            ),
            (
                "hotspot:compile",
                "method__compile__begin",
                "method__compile__end",
                "thread className methodName signature",
            ),
            ("hotspot:monitor_wait", "monitor__wait", "monitor__waited", "thread monitor"),
            (
                "hotspot:monitor_contended",
                "monitor__contended__enter",
                "monitor__contended__entered",
                "thread monitor",
            ),
            ("hotspot:method", "method__entry", "method__return", "thread className methodName signature"),
            ("ruby:method", "method__entry", "method__return", "thread classname methodname"),
            ("ruby:cmethod", "cmethod__entry", "cmethod__return", "thread classname methodname"),
            ("ruby:gc", "gc__mark__begin gc__sweep__begin", "gc__mark__end gc__sweep__end", "thread"),
            ("ruby:require", "require__entry", "require__return", "thread path"),
            ("python:function", "function__entry", "function__return", "thread filename funcname"),
            ("php:request", "request__startup", "request__shutdown", "thread"),
            ("php:compile", "compile__file__entry", "compile__file__return", "thread compile_file"),
            ("php:execute", "execute__entry", "execute__return", "thread"),
            ("memcached:command", "process__command__start", "process__command__end", "key connid"),
            ("redis:call", "call__start", "call__end", "thread id"),
            ("redis:command", "process__command__start", "process__command__end", "thread clientid"),
            ("valkey_commands:command_call", "command_call", "", "duration x 1000 ns"),
            (
                "libvirt:rpc_server",
                "rpc_server_client_msg_rx",
                "rpc_server_client_msg_tx_queue",
                "key client serial",
            ),
            ("libvirt:rpc_client", "rpc_client_msg_tx_queue", "rpc_client_msg_rx", "key client serial"),
            ("glib:dispatch", "main__before_dispatch", "main__after_dispatch", "thread source"),
        ] {
            let span = spans().iter().find(|span| span.full_name() == name);
            let span = span.unwrap_or_else(|| panic!("there is no {name}"));
            let names = |probes: &[ProbeName]| {
                probes.iter().map(|probe| probe.name.as_str()).collect::<Vec<_>>().join(" ")
            };
            let fields: String = span.key().iter().map(|key| format!(" {key}")).collect();
            let how = match (&span.shape, &span.mode) {
                (Shape::Whole { duration, unit, .. }, _) => format!("{duration} x {} ns", unit.ns()),
                (Shape::Pair { .. }, Mode::Thread { .. }) => format!("thread{fields}"),
                (Shape::Pair { .. }, Mode::Key(_)) => format!("key{fields}"),
            };
            assert_eq!(
                (&*names(span.begins()), &*names(span.ends()), &*how),
                (begin, end, pairing),
                "{name}"
            );
        }
    }

    /// All that Valkey's events tell is how long something took: each of them is a span.
    #[test]
    fn every_event_of_valkey_is_a_span() {
        let mut n_events = 0;
        for provider in ["commands", "server", "db", "cluster", "rdb", "aof"] {
            let provider = format!("valkey_{provider}");
            for probe in &nopal_provider::catalog::provider(&provider).expect("it is described").probes {
                let is_it = |span: &&Span| match &span.shape {
                    Shape::Whole { probe: of, duration, unit } => {
                        (&*of.provider, &*of.name) == (&*provider, &*probe.name)
                            && (&**duration, *unit) == ("duration", Unit::Us)
                    }
                    Shape::Pair { .. } => false,
                };
                assert_eq!(spans().iter().filter(is_it).count(), 1, "{provider}:{}", probe.name);
                n_events += 1;
            }
        }
        assert_eq!(n_events, 35);
    }

    #[test]
    fn traps_are_of_declared_probes() {
        for trap in &all().1 {
            for pattern in &trap.probes {
                let (provider, name) = pattern.split_once(':').expect("a full name");
                let probes = &nopal_provider::catalog::provider(provider).expect("a known provider").probes;
                assert!(probes.iter().any(|probe| glob(name, &probe.name)), "{pattern}");
            }
        }
        assert_eq!(
            trap("python", "function__entry").and_then(|t| t.with.as_ref()).map(|with| with.probe.as_str()),
            Some("python:line")
        );
        assert!(trap("hotspot", "monitor__wait").is_some() && trap("hotspot", "gc__begin").is_none());
    }
}
