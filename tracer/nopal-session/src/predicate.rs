//! Conditions on an event's arguments, such as `len > 100 && name == "get*"`: parsed once, evaluated per event without
//! allocating. Does not know where values come from.

/// What an argument holds at evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// Wide enough for every 64-bit integer, signed or not.
    Int(i128),
    Float(f64),
    Text(&'a [u8]),
    /// The argument could not be read; no comparison with it holds.
    Absent,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// First and last value of a label of the field's enum.
pub type LabelOf<'a> = dyn Fn(usize, &str) -> Option<(i128, i128)> + 'a;

/// A condition over fields named by their position in the event.
#[derive(Debug, Clone, PartialEq)]
pub enum Predicate {
    Compare { field: usize, comparison: Comparison, constant: Constant },
    Not(Box<Predicate>),
    All(Vec<Predicate>),
    Any(Vec<Predicate>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Constant {
    Int(i128),
    Float(f64),
    /// May hold `*`, which stands for any bytes; `\*` is a star.
    Text(Glob),
}

/// A text with wildcards, as pieces that must follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    pieces: Vec<Vec<u8>>,
}

/// Where and why a condition cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredicateError {
    /// Byte offset in the text.
    pub offset: usize,
    pub reason: String,
}

impl Predicate {
    /// Parses `text`; `field` gives the position of a name, or `None` where the event has no such argument.
    pub fn parse(text: &str, field: &dyn Fn(&str) -> Option<usize>) -> Result<Predicate, PredicateError> {
        Predicate::parse_labelled(text, field, &|_, _| None)
    }

    /// The same where numbers may have names: `label` gives the first and the last value of a field that has this one.
    pub fn parse_labelled(
        text: &str,
        field: &dyn Fn(&str) -> Option<usize>,
        label: &LabelOf<'_>,
    ) -> Result<Predicate, PredicateError> {
        let mut parser = Parser { text, at: 0, field, label, depth: 0 };
        let predicate = parser.any()?;
        parser.skip_blanks();
        if parser.at < text.len() {
            return Err(parser.error("expected `&&`, `||` or the end"));
        }
        Ok(predicate)
    }

    pub fn holds<'a>(&self, value: &dyn Fn(usize) -> Value<'a>) -> bool {
        match self {
            Predicate::Compare { field, comparison, constant } => comparison.holds(value(*field), constant),
            Predicate::Not(inner) => !inner.holds(value),
            Predicate::All(parts) => parts.iter().all(|p| p.holds(value)),
            Predicate::Any(parts) => parts.iter().any(|p| p.holds(value)),
        }
    }

    /// The first field that is compared with what it never is: a text with a number, or a number with a text.
    pub fn mismatch(&self, is_text: &dyn Fn(usize) -> bool) -> Option<usize> {
        match self {
            Predicate::Compare { field, constant, .. } => {
                (matches!(constant, Constant::Text(_)) != is_text(*field)).then_some(*field)
            }
            Predicate::Not(inner) => inner.mismatch(is_text),
            Predicate::All(parts) | Predicate::Any(parts) => parts.iter().find_map(|p| p.mismatch(is_text)),
        }
    }
}

impl Comparison {
    /// The comparison of a field with values that have one name.
    fn with_range(self, field: usize, (first, last): (i128, i128)) -> Predicate {
        let compare =
            |comparison, value| Predicate::Compare { field, comparison, constant: Constant::Int(value) };
        match self {
            Comparison::Eq if first != last => {
                Predicate::All(vec![compare(Comparison::Ge, first), compare(Comparison::Le, last)])
            }
            Comparison::Ne if first != last => {
                Predicate::Any(vec![compare(Comparison::Lt, first), compare(Comparison::Gt, last)])
            }
            Comparison::Eq | Comparison::Ne | Comparison::Lt | Comparison::Ge => compare(self, first),
            Comparison::Le | Comparison::Gt => compare(self, last),
        }
    }

    fn holds(self, value: Value<'_>, constant: &Constant) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let order = match (value, constant) {
            (Value::Int(left), Constant::Int(right)) => Some(left.cmp(right)),
            (Value::Int(left), Constant::Float(right)) => (left as f64).partial_cmp(right),
            (Value::Float(left), Constant::Int(right)) => left.partial_cmp(&(*right as f64)),
            (Value::Float(left), Constant::Float(right)) => left.partial_cmp(right),
            (Value::Text(left), Constant::Text(glob)) => {
                return match self {
                    Comparison::Eq => glob.matches(left),
                    Comparison::Ne => !glob.matches(left),
                    Comparison::Lt => left < glob.literal(),
                    Comparison::Le => left <= glob.literal(),
                    Comparison::Gt => left > glob.literal(),
                    Comparison::Ge => left >= glob.literal(),
                };
            }
            (Value::Text(_), Constant::Int(_) | Constant::Float(_))
            | (Value::Int(_) | Value::Float(_), Constant::Text(_))
            | (Value::Absent, _) => None,
        };
        let Some(order) = order else { return self == Comparison::Ne && value != Value::Absent };
        match self {
            Comparison::Eq => order == Equal,
            Comparison::Ne => order != Equal,
            Comparison::Lt => order == Less,
            Comparison::Le => order != Greater,
            Comparison::Gt => order == Greater,
            Comparison::Ge => order != Less,
        }
    }
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

    fn literal(&self) -> &[u8] {
        &self.pieces[0]
    }
}

fn find(text: &[u8], piece: &[u8]) -> Option<usize> {
    if piece.is_empty() { Some(0) } else { text.windows(piece.len()).position(|w| w == piece) }
}

/// Nesting beyond this is refused, so that no input can exhaust the stack.
const MAX_DEPTH: usize = 64;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    field: &'a dyn Fn(&str) -> Option<usize>,
    label: &'a LabelOf<'a>,
    depth: usize,
}

impl Parser<'_> {
    fn any(&mut self) -> Result<Predicate, PredicateError> {
        let mut parts = vec![self.all()?];
        while self.take("||") {
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Predicate::Any))
    }

    fn all(&mut self) -> Result<Predicate, PredicateError> {
        let mut parts = vec![self.term()?];
        while self.take("&&") {
            parts.push(self.term()?);
        }
        Ok(one_or(parts, Predicate::All))
    }

    fn term(&mut self) -> Result<Predicate, PredicateError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        let result = if self.take("(") {
            let inner = self.any()?;
            if !self.take(")") {
                return Err(self.error("expected `)`"));
            }
            Ok(inner)
        } else if !self.rest().starts_with("!=") && self.take("!") {
            Ok(Predicate::Not(Box::new(self.term()?)))
        } else {
            self.compare()
        };
        self.depth -= 1;
        result
    }

    fn compare(&mut self) -> Result<Predicate, PredicateError> {
        self.skip_blanks();
        let start = self.at;
        let name_end = self
            .rest()
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')))
            .unwrap_or(self.rest().len());
        let name = &self.text[start..start + name_end];
        if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(self.error("expected the name of an argument"));
        }
        let Some(field) = (self.field)(name) else {
            return Err(self.error(&format!("the event has no argument `{name}`")));
        };
        self.at += name_end;
        const SPELLINGS: [(&str, Comparison); 6] = [
            ("==", Comparison::Eq),
            ("!=", Comparison::Ne),
            ("<=", Comparison::Le),
            (">=", Comparison::Ge),
            ("<", Comparison::Lt),
            (">", Comparison::Gt),
        ];
        for (spelling, comparison) in SPELLINGS {
            if self.take(spelling) {
                if let Some(range) = self.label(field) {
                    return Ok(comparison.with_range(field, range));
                }
                let constant = self.constant()?;
                return Ok(Predicate::Compare { field, comparison, constant });
            }
        }
        Err(self.error("expected one of == != < <= > >="))
    }

    /// The values that the next word or quoted text names, if it is a label of the field.
    fn label(&mut self, field: usize) -> Option<(i128, i128)> {
        self.skip_blanks();
        let rest = self.rest();
        let (name, end) = match rest.chars().next()? {
            quote @ ('"' | '\'') => {
                let length = rest[1..].find(quote)?;
                (&rest[1..1 + length], length + 2)
            }
            _ => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | ':' | '$');
                let end = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len());
                (&rest[..end], end)
            }
        };
        let range = (self.label)(field, name)?;
        self.at += end;
        Some(range)
    }

    fn constant(&mut self) -> Result<Constant, PredicateError> {
        self.skip_blanks();
        let rest = self.rest();
        if let Some(quote @ (b'"' | b'\'')) = rest.bytes().next() {
            let bytes = rest.as_bytes();
            let mut end = 1;
            while end < bytes.len() && bytes[end] != quote {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            if end >= bytes.len() {
                return Err(self.error("this text has no end"));
            }
            let glob = Glob::new(&bytes[1..end]);
            self.at += end + 1;
            return Ok(Constant::Text(glob));
        }
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '_')))
            .unwrap_or(rest.len());
        let word = &rest[..end];
        let constant = number(word).ok_or_else(|| self.error("expected a number or a text in quotes"))?;
        self.at += end;
        Ok(constant)
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip_blanks(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_blanks();
        let is_there = self.rest().starts_with(token);
        if is_there {
            self.at += token.len();
        }
        is_there
    }

    fn error(&self, reason: &str) -> PredicateError {
        PredicateError { offset: self.at, reason: reason.to_owned() }
    }
}

fn one_or(mut parts: Vec<Predicate>, many: fn(Vec<Predicate>) -> Predicate) -> Predicate {
    if parts.len() == 1 { parts.remove(0) } else { many(parts) }
}

/// `10`, `-3`, `0x1f`, `1_000`, `2.5`, and the units of sizes and times: `10ms` are nanoseconds, `4k` are bytes.
fn number(word: &str) -> Option<Constant> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, word),
    };
    let digits: String = digits.chars().filter(|c| *c != '_').collect();
    if let Some(hex) = digits.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok().map(|n| Constant::Int(negative * i128::from(n)));
    }
    const UNITS: [(&str, i128); 8] = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("k", 1 << 10),
        ("K", 1 << 10),
        ("M", 1 << 20),
        ("G", 1 << 30),
    ];
    for (unit, factor) in UNITS {
        if let Some(n) = digits.strip_suffix(unit).and_then(|d| d.parse::<u64>().ok()) {
            return Some(Constant::Int(negative * i128::from(n) * factor));
        }
    }
    if let Ok(n) = digits.parse::<u64>() {
        return Some(Constant::Int(negative * i128::from(n)));
    }
    let is_decimal = digits.contains('.') && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if is_decimal { digits.parse::<f64>().ok().map(|n| Constant::Float(negative as f64 * n)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str) -> Option<usize> {
        ["len", "name", "ratio", "gone"].iter().position(|n| *n == name)
    }

    fn value(index: usize) -> Value<'static> {
        [Value::Int(120), Value::Text(b"get key"), Value::Float(0.5), Value::Absent][index]
    }

    #[test]
    fn conditions_hold_as_written() {
        for (text, expected) in [
            ("len > 100", true),
            ("len > 120", false),
            ("len >= 0x78", true),
            ("len == 120 && name == \"get*\"", true),
            ("len == 1 || name == 'get key'", true),
            ("!(len == 1) && ratio < 0.75", true),
            ("name != \"set*\"", true),
            ("name == \"*key\"", true),
            ("name == \"*t k*\"", true),
            ("name == \"get\"", false),
            ("name == 5", false),
            ("len < -3", false),
            ("ratio >= 1", false),
            ("gone == 0", false),
            ("gone != 0", false),
            ("len < 1k", true),
            ("len < 1us", true),
            ("len<1_000&&(len!=3)", true),
        ] {
            let predicate = Predicate::parse(text, &field).unwrap_or_else(|e| panic!("{text}: {e:?}"));
            assert_eq!(predicate.holds(&value), expected, "{text}");
        }
    }

    #[test]
    fn a_broken_condition_names_place_and_reason() {
        for (text, offset, reason) in [
            ("len", 3, "expected one of == != < <= > >="),
            ("lan > 1", 0, "the event has no argument `lan`"),
            ("len > ", 6, "expected a number or a text in quotes"),
            ("len > 12x", 6, "expected a number or a text in quotes"),
            ("name == \"abc", 8, "this text has no end"),
            ("(len > 1", 8, "expected `)`"),
            ("len > 1 len", 8, "expected `&&`, `||` or the end"),
            ("", 0, "expected the name of an argument"),
        ] {
            let error = Predicate::parse(text, &field).unwrap_err();
            assert_eq!((error.offset, error.reason.as_str()), (offset, reason), "{text}");
        }
    }

    #[test]
    fn labels_stand_for_their_values() {
        let label = |field: usize, name: &str| match (field, name) {
            (0, "GET") => Some((7, 7)),
            (0, "SLOW" | "very slow") => Some((10, 19)),
            _ => None,
        };
        for (text, held) in [
            ("len == GET", &[7][..]),
            ("len == \"GET\"", &[7]),
            ("len != 'GET' && len < SLOW", &[6, 9]),
            ("len == SLOW || len == 20", &[10, 19, 20]),
            ("len != SLOW", &[6, 7, 9, 20]),
            ("len > 'very slow'", &[20]),
            ("len >= SLOW && len <= SLOW", &[10, 19]),
        ] {
            let predicate = Predicate::parse_labelled(text, &|_| Some(0), &label).unwrap();
            let holding: Vec<i128> =
                [6, 7, 9, 10, 19, 20].into_iter().filter(|n| predicate.holds(&|_| Value::Int(*n))).collect();
            assert_eq!(holding, held, "{text}");
        }
        let error = Predicate::parse_labelled("len == PUT", &|_| Some(0), &label).unwrap_err();
        assert_eq!((error.offset, &*error.reason), (7, "expected a number or a text in quotes"));
    }

    #[test]
    fn deep_nesting_is_refused_not_followed() {
        let text = "(".repeat(100_000);
        assert_eq!(Predicate::parse(&text, &field).unwrap_err().reason, "nested too deeply");
    }

    #[test]
    fn a_backslash_takes_the_wildcard_literally() {
        assert!(Glob::new(br"a\*b").matches(b"a*b"));
        assert!(!Glob::new(br"a\*b").matches(b"axb"));
        assert!(Glob::new(b"*").matches(b""));
        assert!(!Glob::new(b"ab*ba").matches(b"aba"));
    }
}
