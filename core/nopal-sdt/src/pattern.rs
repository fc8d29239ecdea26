//! Patterns that name probes, such as `postgresql:query__*`, and the nearest name when one matches nothing.

use std::cmp::Reverse;

/// `PROVIDER:NAME` with globs in both, or one word that stands for either.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    parts: Parts,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Parts {
    /// Whole provider or whole name.
    Word(String),
    Both {
        provider: String,
        name: String,
    },
}

impl Pattern {
    /// Every text is a pattern. An empty part stands for all; `usdt:FILE:` of a bpftrace probe is left out, and
    /// DTrace's `query-start` finds `query__start`.
    pub fn parse(text: &str) -> Pattern {
        let rest = text.strip_prefix("usdt:").unwrap_or(text);
        let all_if_empty = |part: &str| if part.is_empty() { "*".to_owned() } else { part.to_owned() };
        let parts = match rest.rsplit_once(':') {
            Some((before, name)) => {
                let provider = before.rsplit(':').next().unwrap_or_default();
                Parts::Both { provider: all_if_empty(provider), name: all_if_empty(name) }
            }
            None => Parts::Word(all_if_empty(rest)),
        };
        Pattern { text: text.to_owned(), parts }
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether `text` can only be a pattern: it has a colon or a glob.
    pub fn is_evident(text: &str) -> bool {
        text.contains([':', '*', '?', '['])
    }

    pub fn matches(&self, provider: &str, name: &str) -> bool {
        match &self.parts {
            Parts::Word(word) => glob(word, provider) || name_glob(word, name),
            Parts::Both { provider: p, name: n } => glob(p, provider) && name_glob(n, name),
        }
    }

    /// Whether a single word without globs is part of the provider or the name.
    pub fn is_part_of(&self, provider: &str, name: &str) -> bool {
        match &self.parts {
            Parts::Word(word) => provider.contains(word.as_str()) || name.contains(word.as_str()),
            Parts::Both { .. } => false,
        }
    }

    /// The probe that was probably meant, as `provider:name`, or the provider if a word is like that.
    pub fn suggest<'a>(&self, probes: impl Iterator<Item = (&'a str, &'a str)>) -> Option<String> {
        let mut best: Option<(usize, Reverse<usize>, String)> = None;
        let mut offer = |distance: usize, wanted: &str, found: String| {
            // A third of the letters may be wrong; more is another word.
            let limit = (wanted.chars().count() / 3).max(1);
            let rank = (distance, Reverse(common_prefix(wanted, &found)), found);
            if distance <= limit && best.as_ref().is_none_or(|best| rank < *best) {
                best = Some(rank);
            }
        };
        for (provider, name) in probes {
            match &self.parts {
                Parts::Word(word) => {
                    offer(distance(word, name), word, format!("{provider}:{name}"));
                    offer(distance(word, provider), word, provider.to_owned());
                }
                Parts::Both { provider: p, name: n } => {
                    let in_provider = if glob(p, provider) { 0 } else { distance(p, provider) };
                    let n = n.replace('-', "__");
                    let in_name = if name_glob(&n, name) { 0 } else { distance(&n, name) };
                    let found = if n == "*" { format!("{provider}:*") } else { format!("{provider}:{name}") };
                    offer(in_provider + in_name, &format!("{p}:{n}"), found);
                }
            }
        }
        best.map(|(_, _, found)| found)
    }
}

/// The word most like `wanted`, if one is like it at all.
pub fn nearest<'a>(wanted: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (wanted.chars().count() / 3).max(1);
    words.map(|word| (distance(wanted, word), word)).filter(|(d, _)| *d <= limit).min().map(|(_, word)| word)
}

fn name_glob(pattern: &str, name: &str) -> bool {
    glob(pattern, name) || (pattern.contains('-') && glob(&pattern.replace('-', "__"), name))
}

/// `*` any text, `?` any character, `[a-z]` and `[!a-z]` one of a set.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on after the last `*` has swallowed one more byte.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, t));
            p += 1;
            continue;
        }
        if t == text.len() && p == pattern.len() {
            return true;
        }
        let step = match (pattern.get(p), text.get(t)) {
            (Some(&one), Some(&byte)) => match_one(&pattern[p..], one, byte),
            _ => None,
        };
        match (step, retry) {
            (Some(n_pattern), _) => {
                p += n_pattern;
                t += 1;
            }
            (None, Some((after_star, from))) if from < text.len() => {
                retry = Some((after_star, from + 1));
                p = after_star;
                t = from + 1;
            }
            _ => return false,
        }
    }
}

/// How many bytes of the pattern match `byte`.
fn match_one(pattern: &[u8], one: u8, byte: u8) -> Option<usize> {
    match one {
        b'?' => Some(1),
        b'[' => match set(pattern, byte) {
            Some((len, is_in)) => is_in.then_some(len),
            // A `[` without its `]` stands for itself.
            None => (byte == b'[').then_some(1),
        },
        _ => (one == byte).then_some(1),
    }
}

/// Length of the set `[...]` at the start of `pattern`, and whether `byte` is in it.
fn set(pattern: &[u8], byte: u8) -> Option<(usize, bool)> {
    let is_negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let first = 1 + usize::from(is_negated);
    // A `]` right at the start belongs to the set.
    let end = first + 1 + pattern.get(first + 1..)?.iter().position(|&b| b == b']')?;
    let mut members = &pattern[first..end];
    let mut is_in = false;
    while let Some((&low, rest)) = members.split_first() {
        members = rest;
        let mut high = low;
        if let [b'-', range_end, after @ ..] = members {
            high = *range_end;
            members = after;
        }
        is_in |= (low..=high).contains(&byte);
    }
    Some((end + 1, is_in != is_negated))
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// Insertions, deletions, replacements and swaps of neighbours between two names, without regard to case.
fn distance(a: &str, b: &str) -> usize {
    // Names from a file may be of any length; what is so long is not a typing error.
    const LONGEST: usize = 128;
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX / 2;
    }
    let a: Vec<char> = a.chars().flat_map(char::to_lowercase).collect();
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).collect();
    let mut rows = [vec![0; b.len() + 1], (0..=b.len()).collect::<Vec<usize>>(), vec![0; b.len() + 1]];
    for i in 1..=a.len() {
        let [before, last, row] = &mut rows;
        row[0] = i;
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        rows.rotate_left(1);
    }
    rows[1][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, text, want) in [
            ("", "", true),
            ("", "a", false),
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("*", "anything", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("*b", "abc", false),
            ("a*b*c", "a__b__c", true),
            ("a*b*c", "a__c__b", false),
            ("**", "x", true),
            ("*ab", "aab", true),
            ("?", "a", true),
            ("?", "", false),
            ("a?c", "abc", true),
            ("[abc]x", "bx", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[", "[", true),
            ("[a", "a", false),
            ("[a-", "[a-", true),
            ("*[0-9]", "item7", true),
            ("*__start", "query__parse__start", true),
        ] {
            assert_eq!(glob(pattern, text), want, "{pattern} on {text}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, want) in [
            ("postgresql:query__start", true),
            ("postgresql:query__*", true),
            ("postgresql:query-start", true),
            ("postgresql:", true),
            (":query__start", true),
            ("usdt:/usr/bin/postgres:postgresql:query__start", true),
            ("usdt:postgresql:query*", true),
            ("post*:*start", true),
            ("postgresql", true),
            ("query__start", true),
            ("query-start", true),
            ("query*", true),
            ("*", true),
            ("", true),
            ("query", false),
            ("mysql:query__start", false),
            ("postgresql:query", false),
        ] {
            let got = Pattern::parse(pattern).matches("postgresql", "query__start");
            assert_eq!(got, want, "{pattern}");
        }
        assert!(Pattern::parse("query").is_part_of("postgresql", "query__start"));
        assert!(!Pattern::parse("x:query").is_part_of("postgresql", "query__start"));
    }

    #[test]
    fn suggestions() {
        let probes = [("postgresql", "query__start"), ("postgresql", "query__done"), ("nginx", "request")];
        for (pattern, want) in [
            ("nginx:reqest", Some("nginx:request")),
            ("ngnix:request", Some("nginx:request")),
            ("postgres:query__start", Some("postgresql:query__start")),
            ("postgresql:qurey__strat", Some("postgresql:query__start")),
            ("postgresql:query-strat", Some("postgresql:query__start")),
            ("postgres:*", Some("postgresql:*")),
            ("Query__Done", Some("postgresql:query__done")),
            ("postgrsql", Some("postgresql")),
            ("something:else", None),
            ("x", None),
        ] {
            assert_eq!(Pattern::parse(pattern).suggest(probes.into_iter()).as_deref(), want, "{pattern}");
        }
        assert_eq!(Pattern::parse(&"x".repeat(1000)).suggest(probes.into_iter()), None);
    }
}
