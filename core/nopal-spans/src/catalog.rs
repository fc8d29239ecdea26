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
    use crate::span::{Mode, ProbeName, Shape};
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

    #[test]
    fn traps_are_of_declared_probes() {
        for trap in &all().1 {
            for pattern in &trap.probes {
                let (provider, name) = pattern.split_once(':').expect("a full name");
                let probes = &nopal_provider::catalog::provider(provider).expect("a known provider").probes;
                assert!(probes.iter().any(|probe| glob(name, &probe.name)), "{pattern}");
            }
        }
        assert_eq!(trap("python", "function__entry").and_then(|t| t.with.as_deref()), Some("python:line"));
        assert!(trap("hotspot", "monitor__wait").is_some() && trap("hotspot", "gc__begin").is_none());
    }
}
