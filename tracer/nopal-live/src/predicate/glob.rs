//! Texts with wildcards. A text of which only the beginning is known is decided where that is enough.

use super::Truth;

/// A text with wildcards, as pieces that must follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    pieces: Vec<Vec<u8>>,
}

impl Glob {
    /// `pattern` with `*` for any bytes and a backslash before a byte that stands for itself.
    pub fn new(pattern: &[u8]) -> Glob {
        let mut pieces = vec![Vec::new()];
        let mut bytes = pattern.iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'*' => pieces.push(Vec::new()),
                b'\\' => pieces.last_mut().expect("there is always a piece").extend(bytes.next()),
                byte => pieces.last_mut().expect("there is always a piece").push(*byte),
            }
        }
        Glob { pieces }
    }

    pub fn matches(&self, text: &[u8]) -> bool {
        let [first, rest @ ..] = &self.pieces[..] else { return false };
        let Some(mut text) = text.strip_prefix(&first[..]) else { return false };
        let [middle @ .., last] = rest else { return text.is_empty() };
        for piece in middle {
            match find(text, piece) {
                Some(at) => text = &text[at + piece.len()..],
                None => return false,
            }
        }
        text.ends_with(last)
    }

    /// The same of a text that begins with `start` and goes on.
    pub(super) fn matches_start(&self, start: &[u8]) -> Truth {
        let first = &self.pieces[0];
        let n_common = first.len().min(start.len());
        if first[..n_common] != start[..n_common] || (self.is_literal() && first.len() <= start.len()) {
            return Truth::No;
        }
        let is_open = self.pieces.len() > 1 && self.pieces.last().is_some_and(Vec::is_empty);
        if is_open && self.matches(start) { Truth::Yes } else { Truth::Unknown }
    }

    /// Whether it has no wildcard.
    pub fn is_literal(&self) -> bool {
        self.pieces.len() == 1
    }

    pub(super) fn literal(&self) -> &[u8] {
        &self.pieces[0]
    }
}

fn find(text: &[u8], piece: &[u8]) -> Option<usize> {
    if piece.is_empty() { Some(0) } else { text.windows(piece.len()).position(|w| w == piece) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_takes_the_wildcard_literally() {
        assert!(Glob::new(br"a\*b").matches(b"a*b"));
        assert!(!Glob::new(br"a\*b").matches(b"axb"));
        assert!(Glob::new(b"*").matches(b""));
        assert!(!Glob::new(b"ab*ba").matches(b"aba"));
    }

    #[test]
    fn of_a_text_that_goes_on_only_what_is_certain_is_decided() {
        for (pattern, expected) in [
            ("abc", Truth::No),
            ("ab", Truth::No),
            ("abcd", Truth::Unknown),
            ("x*", Truth::No),
            ("abx*", Truth::No),
            ("a*", Truth::Yes),
            ("*", Truth::Yes),
            ("*b*", Truth::Yes),
            ("*d*", Truth::Unknown),
            ("*c", Truth::Unknown),
            ("abcd*", Truth::Unknown),
        ] {
            assert_eq!(Glob::new(pattern.as_bytes()).matches_start(b"abc"), expected, "{pattern}");
        }
    }
}
