//! A statement as a list of words. What SQLite reads in a way of its own is not read at all: the statement then goes the way of all rows.

/// One word, with its place in the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Word {
    pub kind: Kind,
    pub from: usize,
    pub to: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// A name or a keyword, in lower case.
    Name(String),
    /// A name within quotes, in lower case.
    Quoted(String),
    Text(String),
    Integer(i64),
    Real(f64),
    Symbol(&'static str),
}

impl Word {
    pub(super) fn is(&self, name: &str) -> bool {
        match &self.kind {
            Kind::Name(own) => own == name,
            Kind::Symbol(own) => *own == name,
            Kind::Quoted(_) | Kind::Text(_) | Kind::Integer(_) | Kind::Real(_) => false,
        }
    }

    /// A name, within quotes or not.
    pub(super) fn name(&self) -> Option<&str> {
        match &self.kind {
            Kind::Name(name) | Kind::Quoted(name) => Some(name),
            Kind::Text(_) | Kind::Integer(_) | Kind::Real(_) | Kind::Symbol(_) => None,
        }
    }
}

/// The longer ones first.
const SYMBOLS: [&str; 19] =
    ["||", "<=", ">=", "<>", "!=", "==", "=", "(", ")", ",", ".", ";", "+", "-", "*", "/", "%", "<", ">"];

/// None if there is something in it that is not known here.
pub(super) fn words(sql: &str) -> Option<Vec<Word>> {
    let bytes = sql.as_bytes();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let (mut words, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let from = at;
        let rest = &sql[at..];
        let kind = match bytes[at] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            _ if rest.starts_with("--") => {
                at = rest.find('\n').map_or(bytes.len(), |end| at + end + 1);
                continue;
            }
            _ if rest.starts_with("/*") => {
                at += rest[2..].find("*/")? + 4;
                continue;
            }
            quote @ (b'\'' | b'"') => {
                let (text, end) = quoted(rest, quote)?;
                at += end;
                if quote == b'"' { Kind::Quoted(text.to_ascii_lowercase()) } else { Kind::Text(text) }
            }
            byte if byte.is_ascii_digit()
                || byte == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) =>
            {
                let (number, end) = number(rest)?;
                at += end;
                number
            }
            byte if is_name(byte) => {
                at = bytes[at..].iter().position(|byte| !is_name(*byte)).map_or(bytes.len(), |n| at + n);
                Kind::Name(sql[from..at].to_ascii_lowercase())
            }
            _ => {
                let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol))?;
                at += symbol.len();
                Kind::Symbol(if symbol == "==" { "=" } else { symbol })
            }
        };
        // Letters beyond ASCII belong to names, and a name or number that runs on is not what was read.
        let runs_on = bytes.get(at).is_some_and(|byte| *byte >= 0x80 || *byte == b'$' || *byte == b'#');
        let is_word = !matches!(kind, Kind::Symbol(_));
        if runs_on || is_word && bytes.get(at).is_some_and(|byte| is_name(*byte)) {
            return None;
        }
        words.push(Word { kind, from, to: at });
    }
    Some(words)
}

/// What stands between quotes, and where it ends.
fn quoted(rest: &str, quote: u8) -> Option<(String, usize)> {
    let (quote, mut text, mut at) = (char::from(quote), String::new(), 1);
    loop {
        let end = at + rest[at..].find(quote)?;
        text.push_str(&rest[at..end]);
        at = end + 1;
        if !rest[at..].starts_with(quote) {
            return (!text.contains('\0')).then_some((text, at));
        }
        text.push(quote);
        at += 1;
    }
}

fn number(rest: &str) -> Option<(Kind, usize)> {
    let bytes = rest.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut end = digits(0);
    let mut is_real = false;
    if bytes.get(end) == Some(&b'.') {
        is_real = true;
        end += 1 + digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let n = digits((end + 1 + sign).min(bytes.len()));
        if n == 0 {
            return None;
        }
        is_real = true;
        end += 1 + sign + n;
    }
    let text = &rest[..end];
    // An integer too large for SQLite is a real number to it.
    let kind = if is_real { Kind::Real(text.parse().ok()?) } else { Kind::Integer(text.parse().ok()?) };
    // Beyond this many digits SQLite's own reading of a real number might differ from ours.
    let n_digits = text.bytes().filter(u8::is_ascii_digit).count();
    (!is_real || n_digits <= 15).then_some((kind, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_read_and_nothing_else() {
        let kinds =
            |sql: &str| words(sql).map(|all| all.into_iter().map(|word| word.kind).collect::<Vec<_>>());
        let name = |text: &str| Kind::Name(text.to_owned());
        assert_eq!(
            kinds("SELECT \"A b\", 'it''s'/* x */ -- y\n, 1.5e3, 12 == .5"),
            Some(vec![
                name("select"),
                Kind::Quoted("a b".to_owned()),
                Kind::Symbol(","),
                Kind::Text("it's".to_owned()),
                Kind::Symbol(","),
                Kind::Real(1500.0),
                Kind::Symbol(","),
                Kind::Integer(12),
                Kind::Symbol("="),
                Kind::Real(0.5),
            ])
        );
        for odd in [
            "a $b",
            "?1",
            "[a]",
            "`a`",
            "'open",
            "/* open",
            "0x10",
            "1_000",
            "ä",
            "aä",
            "99999999999999999999",
            "1e",
            "a->b",
        ] {
            let found = kinds(odd);
            assert!(found.is_none() || odd == "a->b" && found.is_some(), "{odd}: {found:?}");
        }
    }
}
