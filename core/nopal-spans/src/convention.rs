//! Spans seen in the names of probes: `x__start` and `x__done`, `x__entry` and `x__return`, `x-begin` and `x-end`.

use crate::span::{ProbeName, Source, Span};
use std::collections::HashSet;

/// How a name ends at the start of an interval, and how its partner's may, the likeliest first.
const ENDINGS: [(&str, &[&str]); 3] =
    [("start", &["done", "end", "stop"]), ("entry", &["return", "exit"]), ("begin", &["end", "done"])];
const SEPARATORS: [&str; 3] = ["__", "_", "-"];

/// The spans that the names of `probes` suggest.
pub(crate) fn spans(probes: &[ProbeName]) -> Vec<Span> {
    let known: HashSet<&ProbeName> = probes.iter().collect();
    let mut found = Vec::new();
    for begin in probes {
        let end = SEPARATORS.iter().find_map(|separator| {
            ENDINGS.iter().find_map(|(start, ends)| {
                let stem = begin.name.strip_suffix(start)?.strip_suffix(separator)?;
                let partner = ends.iter().find_map(|end| {
                    let partner = ProbeName::new(&begin.provider, &format!("{stem}{separator}{end}"));
                    known.contains(&partner).then_some(partner)
                })?;
                (!stem.is_empty()).then(|| (stem.to_owned(), partner))
            })
        });
        if let Some((stem, end)) = end {
            found.push(Span::pair(&name_of(&stem), begin.clone(), end, Source::Convention));
        }
    }
    found
}

/// The name of the span whose probes begin with `stem`.
pub(crate) fn name_of(stem: &str) -> String {
    stem.replace("__", "_").replace('-', "_")
}

/// The name of the span between two probes: what their names have in common.
pub(crate) fn common_name(begin: &str, end: &str) -> String {
    let n_common = begin.bytes().zip(end.bytes()).take_while(|(a, b)| a == b).count();
    // Not half a word, and no half character.
    let mut stem = &begin[..(0..=n_common).rev().find(|at| begin.is_char_boundary(*at)).unwrap_or(0)];
    if stem.len() < begin.len() && !stem.ends_with(['_', '-']) {
        stem = stem.rfind(['_', '-']).map_or("", |at| &stem[..at]);
    }
    match stem.trim_end_matches(['_', '-']) {
        "" => format!("{}..{}", name_of(begin), name_of(end)),
        stem => name_of(stem),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_belong_together() {
        let names = [
            "query__start",
            "query__done",
            "get__entry",
            "get__return",
            "tx-begin",
            "tx-end",
            "job_start",
            "job_end",
            "a__b__start",
            "a__b__end",
            "lonely__start",
            "start",
            "done",
            "x__begin",
            "x__done",
        ];
        let probes: Vec<ProbeName> = names.iter().map(|name| ProbeName::new("p", name)).collect();
        let found: Vec<_> = spans(&probes)
            .iter()
            .map(|s| format!("{} {} {}", s.name, s.begins()[0].name, s.ends()[0].name))
            .collect();
        assert_eq!(
            found,
            [
                "query query__start query__done",
                "get get__entry get__return",
                "tx tx-begin tx-end",
                "job job_start job_end",
                "a_b a__b__start a__b__end",
                "x x__begin x__done",
            ]
        );
    }

    #[test]
    fn a_pair_is_called_by_what_its_names_share() {
        for (begin, end, name) in [
            ("request__startup", "request__shutdown", "request"),
            ("lwlock__acquire", "lwlock__release", "lwlock"),
            ("open", "close", "open..close"),
            ("monitor__wait", "monitor__waited", "monitor_wait"),
            ("same", "same", "same"),
        ] {
            assert_eq!(common_name(begin, end), name, "{begin} {end}");
        }
    }
}
