//! Splits TSDL text into tokens with their places. Knows no grammar.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    Number(u64),
    Text(String),
    /// One of `{ } ( ) [ ] < > ; : = , . * -`, and `...`, `:=`, `->`.
    Mark(&'static str),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Place {
    pub line: u32,
    pub column: u32,
}

#[derive(Debug)]
pub(crate) struct Unreadable {
    pub place: Place,
    pub reason: String,
}

const MARKS: [&str; 19] =
    ["...", ":=", "->", "{", "}", "(", ")", "[", "]", "<", ">", ";", ":", "=", ",", ".", "*", "-", "+"];

/// The tokens of `text`, the last one [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<(Token, Place)>, Unreadable> {
    let mut lexer = Lexer { rest: text, place: Place { line: 1, column: 1 } };
    let mut found = Vec::new();
    loop {
        lexer.skip_blanks()?;
        let place = lexer.place;
        let token = lexer.next()?;
        let is_end = token == Token::End;
        found.push((token, place));
        if is_end {
            return Ok(found);
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
    place: Place,
}

impl Lexer<'_> {
    fn fail<T>(&self, reason: impl Into<String>) -> Result<T, Unreadable> {
        Err(Unreadable { place: self.place, reason: reason.into() })
    }

    fn advance(&mut self, bytes: usize) {
        for c in self.rest[..bytes].chars() {
            if c == '\n' {
                self.place.line += 1;
                self.place.column = 1;
            } else {
                self.place.column += 1;
            }
        }
        self.rest = &self.rest[bytes..];
    }

    fn skip_blanks(&mut self) -> Result<(), Unreadable> {
        loop {
            // Padding of packetised metadata may leave NULs.
            let blank = self.rest.len()
                - self.rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\0').len();
            self.advance(blank);
            if self.rest.starts_with("/*") {
                match self.rest.find("*/") {
                    Some(end) => self.advance(end + 2),
                    None => return self.fail("this comment has no end"),
                }
            } else if self.rest.starts_with("//") || self.rest.starts_with('#') {
                self.advance(self.rest.find('\n').unwrap_or(self.rest.len()));
            } else if blank == 0 {
                return Ok(());
            }
        }
    }

    fn next(&mut self) -> Result<Token, Unreadable> {
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        if first.is_ascii_alphabetic() || first == '_' {
            let len = self.span(|c| c.is_ascii_alphanumeric() || c == '_');
            let word = self.rest[..len].to_owned();
            self.advance(len);
            return Ok(Token::Word(word));
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '"' || first == '\'' {
            return self.text(first);
        }
        for mark in MARKS {
            if self.rest.starts_with(mark) {
                self.advance(mark.len());
                return Ok(Token::Mark(mark));
            }
        }
        self.fail(format!("unexpected character `{}`", first.escape_debug()))
    }

    fn span(&self, belongs: impl Fn(char) -> bool) -> usize {
        self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len())
    }

    fn number(&mut self) -> Result<Token, Unreadable> {
        let len = self.span(|c| c.is_ascii_alphanumeric());
        let whole = &self.rest[..len];
        let text = whole.trim_end_matches(['u', 'U', 'l', 'L']);
        let value = if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            u64::from_str_radix(hex, 16)
        } else if let Some(binary) = text.strip_prefix("0b") {
            u64::from_str_radix(binary, 2)
        } else if text.len() > 1 && text.starts_with('0') {
            u64::from_str_radix(text, 8)
        } else {
            text.parse()
        };
        match value {
            Ok(value) => {
                self.advance(len);
                Ok(Token::Number(value))
            }
            Err(_) => self.fail(format!("`{whole}` is not a number of 64 bits")),
        }
    }

    fn text(&mut self, quote: char) -> Result<Token, Unreadable> {
        let mut bytes = Vec::new();
        let body = &self.rest[1..];
        let mut chars = body.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.advance(at + 2);
                    return Ok(Token::Text(String::from_utf8_lossy(&bytes).into_owned()));
                }
                '\\' => {
                    let Some((at, escaped)) = chars.next() else { break };
                    match escaped {
                        'n' => bytes.push(b'\n'),
                        't' => bytes.push(b'\t'),
                        'r' => bytes.push(b'\r'),
                        'a' => bytes.push(7),
                        'b' => bytes.push(8),
                        'f' => bytes.push(12),
                        'v' => bytes.push(11),
                        'e' => bytes.push(27),
                        'x' => {
                            let digits: String =
                                body[at + 1..].chars().take(2).take_while(char::is_ascii_hexdigit).collect();
                            bytes.push(u8::from_str_radix(&digits, 16).unwrap_or(b'x'));
                            for _ in 0..digits.len() {
                                chars.next();
                            }
                        }
                        '0'..='7' => {
                            let digits: String =
                                body[at..].chars().take(3).take_while(|c| ('0'..='7').contains(c)).collect();
                            bytes.push(u32::from_str_radix(&digits, 8).unwrap_or(0) as u8);
                            for _ in 1..digits.len() {
                                chars.next();
                            }
                        }
                        other => bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes()),
                    }
                }
                c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        self.fail("this string has no end")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_their_places() {
        let found = tokens("a := 0x10; /* x\n*/ \"q\\\"\\n\" ... // end").unwrap();
        let expected = [
            (Token::Word("a".into()), 1, 1),
            (Token::Mark(":="), 1, 3),
            (Token::Number(16), 1, 6),
            (Token::Mark(";"), 1, 10),
            (Token::Text("q\"\n".into()), 2, 4),
            (Token::Mark("..."), 2, 12),
            (Token::End, 2, 22),
        ];
        let found: Vec<_> = found.into_iter().map(|(t, p)| (t, p.line, p.column)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_no_token_is_refused_with_its_place() {
        for (text, line, column) in
            [("a\n \"x", 2, 2), ("/* a", 1, 1), ("12z", 1, 1), ("a @", 1, 3), ("99999999999999999999", 1, 1)]
        {
            let failure = tokens(text).unwrap_err();
            assert_eq!((failure.place.line, failure.place.column), (line, column), "{text}");
        }
    }
}
