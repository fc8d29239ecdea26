//! Which spans have to do with each other. An event of one span cannot change what another comes to, but for the time that one
//! lies within the other, unless they share a probe or one is the parent of the other.

use super::rule::Rule;
use crate::span::ProbeName;
use std::collections::HashMap;

/// By rule: a number that it has in common with those it has to do with.
pub(super) fn of(rules: &[Rule]) -> Vec<u32> {
    let mut heads: Vec<usize> = (0..rules.len()).collect();
    let mut first_of: HashMap<&ProbeName, usize> = HashMap::new();
    for (idx, rule) in rules.iter().enumerate() {
        for probe in rule.span.probes() {
            let other = *first_of.entry(probe).or_insert(idx);
            join(&mut heads, other, idx);
        }
        for child in &rule.children {
            join(&mut heads, idx, *child);
        }
    }
    (0..rules.len()).map(|idx| head(&heads, idx) as u32).collect()
}

fn join(heads: &mut [usize], one: usize, other: usize) {
    let (one, other) = (head(heads, one), head(heads, other));
    heads[one.max(other)] = one.min(other);
}

fn head(heads: &[usize], mut of: usize) -> usize {
    while heads[of] != of {
        of = heads[of];
    }
    of
}

#[cfg(test)]
mod tests {
    use crate::span::Source;

    #[test]
    fn spans_that_share_a_probe_are_kin() {
        for (spans, want) in [
            ("[spans.'p:f']\nbegin='b'\nend='e'\n[spans.'p:g']\nbegin='c'\nend='d'", &[0, 1][..]),
            ("[spans.'p:f']\nbegin='b'\nend='e'\n[spans.'p:g']\nbegin='b'\nend='d'", &[0, 0]),
            (
                "[spans.'p:f']\nbegin='b'\nend='e'\nfail='x'\n[spans.'p:g']\nbegin='c'\nend='d'\nfail='x'",
                &[0, 0],
            ),
            (
                "[spans.'p:f']\nbegin='b'\nend='e'\ncarry={u='c.a'}\n[spans.'p:g']\nbegin='c'\nend='d'",
                &[0, 0],
            ),
            (
                "[spans.'p:f']\nbegin='b'\nend='e'\n[spans.'p:g']\nbegin='c'\nend='d'\nparent='h'\n\
                 [spans.'p:h']\nbegin='i'\nend='j'",
                &[0, 1, 1],
            ),
            // Through a third.
            (
                "[spans.'p:f']\nbegin='b'\nend='e'\n[spans.'p:g']\nbegin='c'\nend='d'\n\
                 [spans.'p:h']\nbegin='b'\nend='d'",
                &[0, 0, 0],
            ),
        ] {
            let parsed = crate::file::parse(spans, &Source::CommandLine).unwrap();
            assert_eq!(crate::Pairing::new(parsed).kin, want, "{spans}");
        }
    }
}
