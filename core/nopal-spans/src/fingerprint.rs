//! SQL texts that differ in their literals only, made equal: literals and parameters become `?`, comments go, blanks
//! become one.

/// The text with its literals replaced.
pub fn sql(text: &str) -> String {
    let mut scanner = Scanner { text, bytes: text.as_bytes(), at: 0, out: String::with_capacity(text.len()) };
    while scanner.at < scanner.bytes.len() {
        scanner.token();
    }
    scanner.out.truncate(scanner.out.trim_end_matches([' ', ';']).len());
    scanner.out
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    out: String,
}

impl Scanner<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn token(&mut self) {
        match (self.peek(0), self.peek(1)) {
            (b'-', b'-') => self.skip_to(|rest| rest.find('\n')),
            (b'/', b'*') => self.comment(),
            (byte, _) if byte.is_ascii_whitespace() => {
                self.at += 1;
                self.blank();
            }
            (b'\'', _) => self.quoted(false),
            // Escapes, bits, hexadecimal and national texts.
            (b'e' | b'E' | b'b' | b'B' | b'x' | b'X' | b'n' | b'N', b'\'') => {
                self.at += 1;
                let is_escaped = matches!(self.bytes[self.at - 1], b'e' | b'E');
                self.quoted(is_escaped);
            }
            (b'"' | b'`', _) => self.identifier_in_quotes(),
            (b'$', byte) if byte.is_ascii_digit() => {
                self.at += 1;
                self.skip_while(|byte| byte.is_ascii_digit());
                self.literal();
            }
            (b'$', _) if self.dollar_quoted() => self.literal(),
            (byte, _) if byte.is_ascii_digit() => self.number(),
            (b'.', byte) if byte.is_ascii_digit() => self.number(),
            (b'-' | b'+', next) if (next.is_ascii_digit() || next == b'.') && self.is_sign() => {
                self.at += 1;
                self.number();
            }
            (byte, _) if is_word(byte) => {
                let from = self.at;
                self.skip_while(|byte| is_word(byte) || byte == b'$');
                self.out.push_str(&self.text[from..self.at]);
            }
            _ => {
                let from = self.at;
                self.at += 1;
                while !self.text.is_char_boundary(self.at) {
                    self.at += 1;
                }
                self.out.push_str(&self.text[from..self.at]);
            }
        }
    }

    /// Whether a sign belongs to the number behind it: nothing that could be subtracted from is before it.
    fn is_sign(&self) -> bool {
        let before = self.out.trim_end();
        let last_word = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or("");
        match before.bytes().last() {
            None => true,
            Some(b')' | b']' | b'?' | b'"' | b'`') => false,
            Some(byte) if is_word(byte) => {
                const BEFORE_A_VALUE: [&str; 16] = [
                    "select", "where", "and", "or", "not", "in", "between", "then", "else", "when", "limit",
                    "offset", "values", "set", "return", "by",
                ];
                BEFORE_A_VALUE.iter().any(|word| word.eq_ignore_ascii_case(last_word))
            }
            Some(_) => true,
        }
    }

    fn literal(&mut self) {
        self.out.push('?');
    }

    fn blank(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with(' ') {
            self.out.push(' ');
        }
    }

    fn skip_while(&mut self, is_part: impl Fn(u8) -> bool) {
        while self.at < self.bytes.len() && is_part(self.bytes[self.at]) {
            self.at += 1;
        }
    }

    /// To where `find` says, or to the end.
    fn skip_to(&mut self, find: impl Fn(&str) -> Option<usize>) {
        self.at = find(&self.text[self.at..]).map_or(self.bytes.len(), |length| self.at + length);
    }

    fn comment(&mut self) {
        let mut depth = 0;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        break;
                    }
                }
                _ => self.at += 1,
            }
        }
        self.blank();
    }

    /// A text in single quotes; a text that was cut has no end.
    fn quoted(&mut self, is_escaped: bool) {
        self.at += 1;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'\\', _) if is_escaped => self.at += 2,
                (b'\'', b'\'') => self.at += 2,
                (b'\'', _) => {
                    self.at += 1;
                    break;
                }
                _ => self.at += 1,
            }
        }
        self.at = self.at.min(self.bytes.len());
        self.literal();
    }

    fn identifier_in_quotes(&mut self) {
        let quote = self.bytes[self.at];
        let from = self.at;
        self.at += 1;
        self.skip_while(|byte| byte != quote);
        self.at = (self.at + 1).min(self.bytes.len());
        self.out.push_str(&self.text[from..self.at]);
    }

    /// `$tag$ ... $tag$`
    fn dollar_quoted(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let Some(end) = rest[1..].find('$').map(|at| at + 2) else { return false };
        let tag = &rest[..end];
        if !tag[1..end - 1].bytes().all(is_word) {
            return false;
        }
        self.at += rest[end..].find(tag).map_or(rest.len(), |at| end + at + tag.len());
        true
    }

    fn number(&mut self) {
        if self.peek(0) == b'0' && matches!(self.peek(1), b'x' | b'X') {
            self.at += 2;
            self.skip_while(|byte| byte.is_ascii_hexdigit());
            return self.literal();
        }
        self.skip_while(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'_');
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                self.at += 1 + sign;
                self.skip_while(|byte| byte.is_ascii_digit());
            }
        }
        self.literal();
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::sql;

    #[test]
    fn literals_become_question_marks() {
        for (text, want) in [
            ("SELECT 1;", "SELECT ?"),
            ("select * from t1 where a = 'it''s' and b=2.5e-3", "select * from t1 where a = ? and b=?"),
            ("UPDATE a SET b = b + -500 WHERE c = 7;", "UPDATE a SET b = b + ? WHERE c = ?"),
            ("UPDATE a SET b = b + $1 WHERE c = $2;", "UPDATE a SET b = b + ? WHERE c = ?"),
            ("select a-1, -1, (-2), b - 3", "select a-?, ?, (?), b - ?"),
            ("select 1 -1", "select ? -?"),
            ("select E'a\\'b', x'1f', $tag$ it's $tag$, $$q$$", "select ?, ?, ?, ?"),
            ("select /* why */ a -- what\n  from \"Tab 1\"", "select a from \"Tab 1\""),
            ("  select\n\ta1_2  ", "select a1_2"),
            ("select 0x1F, 1_000", "select ?, ?"),
            ("select 'cut of", "select ?"),
            ("select a::int4, ré1, $x", "select a::int4, ré1, $x"),
            ("", ""),
            ("'\\", "?"),
            ("select e'\\", "select ?"),
            ("/* /* deep */ still */ x", "x"),
        ] {
            assert_eq!(sql(text), want, "{text}");
        }
    }

    #[test]
    fn any_text_is_survived() {
        let mut x = 1u32;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                x = x.wrapping_mul(1664525).wrapping_add(1013904223);
                text.push(
                    ['\'', '"', '$', 'e', '1', '-', '/', '*', '\\', 'é', ' ', '.', '`', 'x']
                        [(x >> 24) as usize % 14],
                );
            }
            sql(&text);
        }
    }
}
