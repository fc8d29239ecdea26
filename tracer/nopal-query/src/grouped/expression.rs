//! Expressions that are worked out while a recording is read, exactly as SQLite would. Where SQLite changes the type of a
//! value, expressions are refused here, or found to be odd when the value comes; SQLite then does all of it.

use super::words::{Kind, Word};
use crate::tables::TableInfo;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Column(usize),
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    Compare(Comparison, Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    IsNull(Box<Expr>),
    /// A pattern of `LIKE`.
    Like(Box<Expr>, String),
    /// Conditions with what follows from them, and what else.
    Case(Vec<(Expr, Expr)>, Box<Expr>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub op: Compare,
    /// SQLite reads texts as numbers here, as a column of numbers takes part.
    pub is_of_numbers: bool,
}

/// What SQLite makes of the other side of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Affinity {
    Number,
    Text,
    None,
}

/// How tables and their columns may be called.
#[derive(Debug)]
pub(super) struct Scope<'a> {
    pub table: &'a TableInfo,
    /// The name the statement gives the table, in lower case.
    pub called: String,
}

impl Scope<'_> {
    /// The column that the words at `at` name, and how many words that takes.
    pub(super) fn column(&self, words: &[Word], at: usize) -> Option<(usize, usize)> {
        let name = words.get(at)?.name()?;
        match words.get(at + 1) {
            Some(dot) if dot.is(".") => {
                let column = words.get(at + 2)?.name()?;
                let is_ours = name == self.called && !words.get(at + 3).is_some_and(|word| word.is("."));
                is_ours.then(|| self.position(column)).flatten().map(|column| (column, 3))
            }
            _ => self.position(name).map(|column| (column, 1)),
        }
    }

    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.table.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
    }

    fn affinity(&self, expr: &Expr) -> Affinity {
        match expr {
            Expr::Column(column) if self.table.columns[*column].ty == "TEXT" => Affinity::Text,
            Expr::Column(_) => Affinity::Number,
            _ => Affinity::None,
        }
    }
}

/// Reads an expression that takes up all of `words`.
pub(super) fn parse(words: &[Word], scope: &Scope<'_>) -> Option<Expr> {
    let mut parser = Parser { words, at: 0, scope, depth: 0 };
    let expr = parser.or()?;
    (parser.at == words.len()).then_some(expr)
}

struct Parser<'a> {
    words: &'a [Word],
    at: usize,
    scope: &'a Scope<'a>,
    depth: u32,
}

/// Parentheses within parentheses.
const MAX_DEPTH: u32 = 64;

impl Parser<'_> {
    fn take(&mut self, name: &str) -> bool {
        let is_next = self.words.get(self.at).is_some_and(|word| word.is(name));
        self.at += usize::from(is_next);
        is_next
    }

    fn or(&mut self) -> Option<Expr> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut left = self.and()?;
        while self.take("or") {
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        self.depth -= 1;
        Some(left)
    }

    fn and(&mut self) -> Option<Expr> {
        let mut left = self.not()?;
        while self.take("and") {
            left = Expr::And(Box::new(left), Box::new(self.not()?));
        }
        Some(left)
    }

    fn not(&mut self) -> Option<Expr> {
        if self.take("not") {
            self.depth += 1;
            let within = if self.depth > MAX_DEPTH { None } else { self.not() };
            self.depth -= 1;
            return Some(Expr::Not(Box::new(within?)));
        }
        self.equality()
    }

    /// `=`, `IS NULL`, `IN`, `LIKE` and `BETWEEN` bind alike and to the left; two in a row are left to SQLite.
    fn equality(&mut self) -> Option<Expr> {
        let left = self.relation()?;
        for (symbol, op) in [("=", Compare::Eq), ("<>", Compare::Ne), ("!=", Compare::Ne)] {
            if self.take(symbol) {
                let right = self.relation()?;
                return self.ended(self.compare(op, left, right)?);
            }
        }
        if self.take("isnull") {
            return self.ended(Expr::IsNull(Box::new(left)));
        }
        if self.take("notnull") {
            return self.ended(Expr::Not(Box::new(Expr::IsNull(Box::new(left)))));
        }
        if self.take("is") {
            let is_not = self.take("not");
            let is_null = self.take("null").then(|| Expr::IsNull(Box::new(left)))?;
            return self.ended(if is_not { Expr::Not(Box::new(is_null)) } else { is_null });
        }
        let is_not = self.take("not");
        let found = if self.take("in") {
            self.list(left)?
        } else if self.take("like") {
            let Some(Kind::Text(pattern)) = self.words.get(self.at).map(|word| word.kind.clone()) else {
                return None;
            };
            self.at += 1;
            Expr::Like(Box::new(left), pattern)
        } else if self.take("between") {
            let low = self.relation()?;
            if !self.take("and") {
                return None;
            }
            let high = self.relation()?;
            let above = self.compare(Compare::Ge, left.clone(), low)?;
            Expr::And(Box::new(above), Box::new(self.compare(Compare::Le, left, high)?))
        } else if is_not {
            return None;
        } else {
            return Some(left);
        };
        self.ended(if is_not { Expr::Not(Box::new(found)) } else { found })
    }

    /// What cannot follow a comparison without changing what it means.
    fn ended(&self, expr: Expr) -> Option<Expr> {
        let follows = ["=", "<>", "!=", "is", "isnull", "notnull", "in", "like", "between", "not", "escape"];
        let is_followed =
            self.words.get(self.at).is_some_and(|word| follows.iter().any(|name| word.is(name)));
        (!is_followed).then_some(expr)
    }

    fn list(&mut self, left: Expr) -> Option<Expr> {
        if !self.take("(") {
            return None;
        }
        let mut any: Option<Expr> = None;
        loop {
            let value = self.relation()?;
            // A column in a list has no say in how values are compared, and two columns would.
            if matches!(value, Expr::Column(_)) {
                return None;
            }
            let is_it = self.compare(Compare::Eq, left.clone(), value)?;
            any = Some(match any {
                Some(any) => Expr::Or(Box::new(any), Box::new(is_it)),
                None => is_it,
            });
            if self.take(")") {
                return any;
            }
            if !self.take(",") {
                return None;
            }
        }
    }

    fn relation(&mut self) -> Option<Expr> {
        let left = self.sum()?;
        for (symbol, op) in [("<", Compare::Lt), ("<=", Compare::Le), (">", Compare::Gt), (">=", Compare::Ge)]
        {
            if self.take(symbol) {
                let right = self.sum()?;
                let is_followed = ["<", "<=", ">", ">="]
                    .iter()
                    .any(|name| self.words.get(self.at).is_some_and(|word| word.is(name)));
                return if is_followed { None } else { self.compare(op, left, right) };
            }
        }
        Some(left)
    }

    /// Refused where SQLite would turn a number into a text or a text into a number first.
    fn compare(&self, op: Compare, left: Expr, right: Expr) -> Option<Expr> {
        let (a, b) = (self.scope.affinity(&left), self.scope.affinity(&right));
        let is_text = |expr: &Expr| matches!(expr, Expr::Text(_));
        let is_number = |expr: &Expr| matches!(expr, Expr::Integer(_) | Expr::Real(_) | Expr::Arithmetic(..));
        let mixes = |a: Affinity, b: Affinity, other: &Expr| match a {
            Affinity::Number => b == Affinity::Text || is_text(other),
            Affinity::Text => b == Affinity::Number || is_number(other),
            Affinity::None => false,
        };
        if mixes(a, b, &right) || mixes(b, a, &left) {
            return None;
        }
        let is_of_numbers = a == Affinity::Number || b == Affinity::Number;
        Some(Expr::Compare(Comparison { op, is_of_numbers }, Box::new(left), Box::new(right)))
    }

    fn sum(&mut self) -> Option<Expr> {
        let mut left = self.product()?;
        loop {
            let op = if self.take("+") {
                Arithmetic::Add
            } else if self.take("-") {
                Arithmetic::Subtract
            } else {
                return Some(left);
            };
            left = Expr::Arithmetic(op, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Option<Expr> {
        let mut left = self.atom()?;
        loop {
            let op = if self.take("*") {
                Arithmetic::Multiply
            } else if self.take("/") {
                Arithmetic::Divide
            } else if self.take("%") {
                Arithmetic::Remainder
            } else {
                return Some(left);
            };
            left = Expr::Arithmetic(op, Box::new(left), Box::new(self.atom()?));
        }
    }

    fn atom(&mut self) -> Option<Expr> {
        if self.take("(") {
            let within = self.or()?;
            return self.take(")").then_some(within);
        }
        if self.take("-") {
            return match self.words.get(self.at)?.kind {
                Kind::Integer(n) => {
                    self.at += 1;
                    Some(Expr::Integer(-n))
                }
                Kind::Real(n) => {
                    self.at += 1;
                    Some(Expr::Real(-n))
                }
                _ => None,
            };
        }
        if self.take("null") {
            return Some(Expr::Null);
        }
        if self.words.get(self.at).is_some_and(|word| word.is("case")) {
            self.at += 1;
            return self.case();
        }
        let literal = match &self.words.get(self.at)?.kind {
            Kind::Integer(n) => Some(Expr::Integer(*n)),
            Kind::Real(n) => Some(Expr::Real(*n)),
            Kind::Text(text) => Some(Expr::Text(text.clone())),
            Kind::Name(_) | Kind::Quoted(_) | Kind::Symbol(_) => None,
        };
        if let Some(literal) = literal {
            self.at += 1;
            return Some(literal);
        }
        let (column, n_words) = self.scope.column(self.words, self.at)?;
        self.at += n_words;
        // A function, however it is called.
        if self.words.get(self.at).is_some_and(|word| word.is("(")) {
            return None;
        }
        Some(Expr::Column(column))
    }

    fn case(&mut self) -> Option<Expr> {
        let mut arms = Vec::new();
        while self.take("when") {
            let condition = self.or()?;
            if !self.take("then") {
                return None;
            }
            arms.push((condition, self.or()?));
        }
        let other = if self.take("else") { self.or()? } else { Expr::Null };
        (self.take("end") && !arms.is_empty()).then_some(Expr::Case(arms, Box::new(other)))
    }
}

impl Expr {
    /// Calls `each` with every column it uses.
    pub(crate) fn columns(&self, each: &mut impl FnMut(usize)) {
        match self {
            Expr::Null | Expr::Integer(_) | Expr::Real(_) | Expr::Text(_) => {}
            Expr::Column(column) => each(*column),
            Expr::Arithmetic(_, a, b) | Expr::Compare(_, a, b) | Expr::And(a, b) | Expr::Or(a, b) => {
                a.columns(each);
                b.columns(each);
            }
            Expr::Not(a) | Expr::IsNull(a) | Expr::Like(a, _) => a.columns(each),
            Expr::Case(arms, other) => {
                for (condition, value) in arms {
                    condition.columns(each);
                    value.columns(each);
                }
                other.columns(each);
            }
        }
    }
}
