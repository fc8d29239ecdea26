//! The text of a condition: C's operators with C's precedence, as in LTTng, without arithmetic.

use super::{Binary, Comparison, Constant, Context, Glob, LabelOf, Predicate, Source, Term, Unary};

/// Where and why a condition cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredicateError {
    /// Byte offset in the text.
    pub offset: usize,
    pub reason: String,
}

/// Nesting beyond this is refused, so that no input can exhaust the stack.
const MAX_DEPTH: usize = 64;
/// And so is a row of operators.
const MAX_OPERATORS: usize = 1000;

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
        let mut parser = Parser { text, at: 0, field, label, depth: 0, n_operators: 0 };
        if text.trim().is_empty() {
            return Err(parser.error("expected the name of an argument"));
        }
        let predicate = parser.expression(0)?.into_predicate();
        parser.skip_blanks();
        if parser.at == text.len() {
            return Ok(predicate);
        }
        Err(match parser.rest().chars().next() {
            Some(sign @ ('+' | '-' | '*' | '/' | '%')) => {
                parser.error(&format!("conditions do not compute with `{sign}`"))
            }
            _ => parser.error("expected an operator or the end"),
        })
    }
}

/// A part of a condition.
enum Node {
    Predicate(Predicate),
    Term(Term),
}

impl Node {
    fn into_predicate(self) -> Predicate {
        match self {
            Node::Predicate(predicate) => predicate,
            Node::Term(Term::Truth(predicate)) => *predicate,
            Node::Term(term) => Predicate::Holds(term),
        }
    }

    fn into_term(self) -> Term {
        match self {
            Node::Predicate(predicate) => Term::Truth(Box::new(predicate)),
            Node::Term(term) => term,
        }
    }
}

#[derive(Clone, Copy)]
enum Operator {
    Any,
    All,
    Compute(Binary),
    Compare(Comparison),
}

/// How each is written and how strongly it binds; of two that begin alike the longer one comes first.
const OPERATORS: [(&str, u8, Operator); 13] = [
    ("||", 1, Operator::Any),
    ("&&", 2, Operator::All),
    ("==", 6, Operator::Compare(Comparison::Eq)),
    ("!=", 6, Operator::Compare(Comparison::Ne)),
    ("<<", 8, Operator::Compute(Binary::Left)),
    (">>", 8, Operator::Compute(Binary::Right)),
    ("<=", 7, Operator::Compare(Comparison::Le)),
    (">=", 7, Operator::Compare(Comparison::Ge)),
    ("<", 7, Operator::Compare(Comparison::Lt)),
    (">", 7, Operator::Compare(Comparison::Gt)),
    ("|", 3, Operator::Compute(Binary::Or)),
    ("^", 4, Operator::Compute(Binary::Xor)),
    ("&", 5, Operator::Compute(Binary::And)),
];

struct Parser<'a> {
    text: &'a str,
    at: usize,
    field: &'a dyn Fn(&str) -> Option<usize>,
    label: &'a LabelOf<'a>,
    depth: usize,
    n_operators: usize,
}

impl Parser<'_> {
    /// Operands with the operators between them that bind more strongly than `least`.
    fn expression(&mut self, least: u8) -> Result<Node, PredicateError> {
        let mut left = self.operand()?;
        loop {
            self.skip_blanks();
            let rest = self.rest();
            let Some((spelling, strength, operator)) =
                OPERATORS.into_iter().find(|(spelling, ..)| rest.starts_with(spelling))
            else {
                return Ok(left);
            };
            if strength <= least {
                return Ok(left);
            }
            self.n_operators += 1;
            if self.n_operators > MAX_OPERATORS {
                return Err(self.error("too many operators"));
            }
            self.at += spelling.len();
            left = match operator {
                Operator::Any => self.row(left, strength, Predicate::Any)?,
                Operator::All => self.row(left, strength, Predicate::All)?,
                Operator::Compute(binary) => {
                    let right = self.expression(strength)?.into_term();
                    Node::Term(Term::Binary(binary, Box::new(left.into_term()), Box::new(right)))
                }
                Operator::Compare(comparison) => {
                    Node::Predicate(self.comparison(left, comparison, strength)?)
                }
            };
        }
    }

    /// One more part of a row of `&&` or `||`.
    fn row(
        &mut self,
        left: Node,
        strength: u8,
        many: fn(Vec<Predicate>) -> Predicate,
    ) -> Result<Node, PredicateError> {
        let is_any = matches!(many(Vec::new()), Predicate::Any(_));
        let right = self.expression(strength)?.into_predicate();
        let mut parts = match left.into_predicate() {
            Predicate::Any(parts) if is_any => parts,
            Predicate::All(parts) if !is_any => parts,
            left => vec![left],
        };
        parts.push(right);
        Ok(Node::Predicate(many(parts)))
    }

    fn comparison(
        &mut self,
        left: Node,
        comparison: Comparison,
        strength: u8,
    ) -> Result<Predicate, PredicateError> {
        if let Node::Term(Term::Source(Source::Field(field))) = left
            && let Some(range) = self.label(field)
        {
            return Ok(comparison.with_range(field, range));
        }
        let right = self.expression(strength)?;
        Ok(match (left.into_term(), right.into_term()) {
            (Term::Source(Source::Field(field)), Term::Constant(constant)) => {
                Predicate::Compare { field, comparison, constant }
            }
            (Term::Constant(constant), Term::Source(Source::Field(field))) => {
                Predicate::Compare { field, comparison: comparison.mirrored(), constant }
            }
            (left, right) => Predicate::Relate { left, comparison, right },
        })
    }

    fn operand(&mut self) -> Result<Node, PredicateError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("nested too deeply"));
        }
        let result = if self.take("(") {
            let inner = self.expression(0)?;
            if !self.take(")") {
                return Err(self.error("expected `)`"));
            }
            Ok(inner)
        } else if self.take("!") {
            Ok(Node::Predicate(Predicate::Not(Box::new(self.operand()?.into_predicate()))))
        } else if self.take("~") {
            let inner = self.operand()?.into_term();
            Ok(Node::Term(Term::Unary(Unary::Invert, Box::new(inner))))
        } else if self.take("-") {
            Ok(Node::Term(match self.operand()?.into_term() {
                Term::Constant(Constant::Int(n)) => Term::Constant(Constant::Int(-n)),
                Term::Constant(Constant::Float(n)) => Term::Constant(Constant::Float(-n)),
                inner => Term::Unary(Unary::Minus, Box::new(inner)),
            }))
        } else if self.take("+") {
            self.operand()
        } else {
            self.value().map(Node::Term)
        };
        self.depth -= 1;
        result
    }

    fn value(&mut self) -> Result<Term, PredicateError> {
        self.skip_blanks();
        match self.rest().chars().next() {
            Some(c) if c.is_ascii_alphabetic() || matches!(c, '_' | '$') => self.source().map(Term::Source),
            _ => self.constant().map(Term::Constant),
        }
    }

    fn source(&mut self) -> Result<Source, PredicateError> {
        let end = self
            .rest()
            .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$')))
            .unwrap_or(self.rest().len());
        let name = &self.text[self.at..self.at + end];
        if name.starts_with('$') {
            let context = name.strip_prefix("$ctx.").and_then(Context::parse).ok_or_else(|| {
                let known: Vec<String> =
                    Context::all().map(|context| format!("$ctx.{}", context.name())).collect();
                let known = known.join(", ");
                self.error(&format!("`{name}` is not known to conditions; {known} are"))
            })?;
            self.at += end;
            return Ok(Source::Context(context));
        }
        let Some(field) = (self.field)(name) else {
            return Err(self.error(&format!("the event has no argument `{name}`")));
        };
        self.at += end;
        if !self.take("[") {
            return Ok(Source::Field(field));
        }
        let index = match self.constant()? {
            Constant::Int(index) => usize::try_from(index).ok(),
            Constant::Float(_) | Constant::Text(_) => None,
        };
        let Some(index) = index else {
            return Err(self.error("expected the number of an element before this"));
        };
        if !self.take("]") {
            return Err(self.error("expected `]`"));
        }
        Ok(Source::Element { field, index })
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
        let end = number_end(rest);
        let constant = number(&rest[..end])
            .ok_or_else(|| self.error("expected a number, a string in quotes or an argument"))?;
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

/// Where the word ends that may be a number; the sign of an exponent is part of it.
fn number_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_hex = text.starts_with("0x") || text.starts_with("0X");
    let is_part = |at: usize| match bytes[at] {
        b'+' | b'-' => !is_hex && at > 0 && matches!(bytes[at - 1], b'e' | b'E'),
        byte => byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_'),
    };
    (0..bytes.len()).find(|at| !is_part(*at)).unwrap_or(bytes.len())
}

/// `10`, `0x1f`, `017`, `1_000`, `2.5`, `1e9`, and the units of sizes and times: `10ms` are nanoseconds, `4k` are bytes.
fn number(word: &str) -> Option<Constant> {
    let digits: String = word.chars().filter(|c| *c != '_').collect();
    let of_base =
        |digits: &str, base| u64::from_str_radix(digits, base).ok().map(|n| Constant::Int(n.into()));
    if let Some(hex) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        return of_base(hex, 16);
    }
    if let Some(octal) = digits.strip_prefix('0').filter(|rest| !rest.is_empty())
        && octal.bytes().all(|byte| matches!(byte, b'0'..=b'7'))
    {
        return of_base(octal, 8);
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
            return Some(Constant::Int(i128::from(n) * factor));
        }
    }
    if let Ok(n) = digits.parse::<u64>() {
        return Some(Constant::Int(n.into()));
    }
    let is_decimal = digits.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && digits.contains(['.', 'e', 'E'])
        && digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'));
    if is_decimal { digits.parse::<f64>().ok().map(Constant::Float) } else { None }
}
