//! Recognises statements that add up the rows of one table by groups, and writes what is left of them for SQLite: everything
//! behind the sums. The statement itself has been found to be right by SQLite before.

use super::expression::{Expr, Scope, parse};
use super::sums::{Aggregate, Function, Question};
use super::words::{Kind, Word, words};
use crate::names::quoted;
use crate::tables::{Rows, TableInfo};

/// A statement that was recognised.
#[derive(Debug)]
pub(crate) struct Statement {
    pub table: usize,
    pub question: Question,
    /// The statement over the groups, which are the table [`GROUPS`].
    pub sql: String,
    /// Types of the columns of that table; none have those that are not plain columns.
    pub types: Vec<&'static str>,
    /// By key: whether its groups come from the last to the first.
    pub is_descending: Vec<bool>,
}

/// The table of groups while a statement runs.
pub(crate) const GROUPS: &str = "nopal groups";

/// Names of its columns: first the keys, then the answers.
pub(crate) fn column_name(at: usize) -> String {
    format!("nopal {at}")
}

/// Words that are not names of columns.
const KEYWORDS: [&str; 34] = [
    "and", "or", "not", "null", "is", "isnull", "notnull", "in", "between", "like", "glob", "escape", "case",
    "when", "then", "else", "end", "as", "asc", "desc", "nulls", "first", "last", "integer", "real", "text",
    "numeric", "int", "blob", "true", "false", "limit", "offset", "cast",
];
/// Functions of single values that give the same for the same.
const FUNCTIONS: [&str; 44] = [
    "abs",
    "ceil",
    "ceiling",
    "cast",
    "char",
    "coalesce",
    "date",
    "datetime",
    "exp",
    "floor",
    "format",
    "hex",
    "ifnull",
    "iif",
    "instr",
    "julianday",
    "length",
    "ln",
    "log",
    "log10",
    "log2",
    "lower",
    "ltrim",
    "max",
    "min",
    "mod",
    "nullif",
    "pow",
    "power",
    "printf",
    "quote",
    "replace",
    "round",
    "rtrim",
    "sign",
    "sqrt",
    "strftime",
    "substr",
    "substring",
    "time",
    "trim",
    "trunc",
    "typeof",
    "upper",
];
/// In no statement that is recognised.
const STRANGERS: [&str; 21] = [
    "distinct",
    "all",
    "union",
    "except",
    "intersect",
    "join",
    "natural",
    "window",
    "over",
    "collate",
    "with",
    "exists",
    "indexed",
    "values",
    "rowid",
    "oid",
    "_rowid_",
    "current_timestamp",
    "current_time",
    "current_date",
    "returning",
];
const CLAUSES: [&str; 7] = ["select", "from", "where", "group", "having", "order", "limit"];

pub(crate) fn recognise(sql: &str, tables: &[TableInfo]) -> Option<Statement> {
    let mut words = words(sql)?;
    if words.last().is_some_and(|word| word.is(";")) {
        words.pop();
    }
    if words.iter().any(|word| STRANGERS.iter().any(|name| word.is(name)) || word.is(";")) {
        return None;
    }
    let clauses = clauses(&words)?;
    let [items, from, filter, group, having, order, limit] = clauses;
    let (items, from) = (items?, from?);
    let (table, called) = source(from, tables)?;
    if !matches!(tables[table].rows, Rows::Events | Rows::Type(..) | Rows::Spans) {
        return None;
    }
    let scope = Scope { table: &tables[table], called };
    let items: Vec<Item<'_>> =
        split(items)?.into_iter().map(|words| Item::of(words, &scope)).collect::<Option<_>>()?;
    let group = match group {
        Some(words) => split(words)?,
        None => Vec::new(),
    };
    let keys = group.into_iter().map(|words| key(words, &items, &scope)).collect::<Option<Vec<Key<'_>>>>()?;
    let filter = match filter {
        Some(words) => Some(parse(words, &scope)?),
        None => None,
    };
    let is_one = keys.is_empty();
    let question = Question {
        filter,
        keys: keys.iter().map(|key| key.expr.clone()).collect(),
        sums: Vec::new(),
        answers: Vec::new(),
        is_one,
    };
    let is_descending = descending(order, keys.len())?;
    let mut writer = Writer { sql, scope, keys, items: &items, question };
    let mut select = Vec::new();
    for item in &items {
        let text = writer.text(item.words)?;
        select.push(match item.alias {
            Some(alias) => format!("{text} AS {}", &sql[alias.from..alias.to]),
            None => text,
        });
    }
    let mut text = format!("SELECT {} FROM temp.{}", select.join(", "), quoted(GROUPS));
    if let Some(having) = having {
        text.push_str(&format!(" WHERE {}", writer.text(having)?));
    }
    if let Some(order) = order {
        text.push_str(&format!(" ORDER BY {}", writer.text(order)?));
    }
    if let Some(limit) = limit {
        text.push_str(&format!(" LIMIT {}", writer.text(limit)?));
    }
    let Writer { question, keys, .. } = writer;
    if question.sums.is_empty() && is_one || uses_json(&question, &tables[table]) {
        return None;
    }
    let ty = |key: &Key<'_>| match key.expr {
        Expr::Column(column) => tables[table].columns[column].ty,
        _ => "",
    };
    let types = keys.iter().map(ty).chain(question.answers.iter().map(|_| "")).collect();
    Some(Statement { table, question, sql: text, types, is_descending })
}

/// Fields as JSON are made for SQLite alone.
fn uses_json(question: &Question, table: &TableInfo) -> bool {
    let mut uses = false;
    let has_json = matches!(table.rows, Rows::Events | Rows::Spans);
    question.columns(&mut |column| uses |= has_json && table.columns[column].name == "args");
    uses
}

/// What follows each of [`CLAUSES`], in their order.
fn clauses(words: &[Word]) -> Option<[Option<&[Word]>; 7]> {
    let mut starts: Vec<(usize, usize, usize)> = Vec::new();
    let mut depth = 0i32;
    for (at, word) in words.iter().enumerate() {
        depth += i32::from(word.is("(")) - i32::from(word.is(")"));
        let Some(clause) = CLAUSES.iter().position(|name| word.is(name)) else { continue };
        // Within parentheses it is a statement of its own, or a condition on what is added up.
        if depth != 0 {
            if word.is("where") {
                continue;
            }
            return None;
        }
        let has_by = word.is("group") || word.is("order");
        if has_by && !words.get(at + 1).is_some_and(|word| word.is("by")) {
            return None;
        }
        if starts.last().is_some_and(|(last, ..)| *last >= clause) {
            return None;
        }
        starts.push((clause, at, at + 1 + usize::from(has_by)));
    }
    if starts.first().is_none_or(|(clause, at, _)| (*clause, *at) != (0, 0)) {
        return None;
    }
    let mut clauses = [None; 7];
    for (place, (clause, _, from)) in starts.iter().enumerate() {
        let to = starts.get(place + 1).map_or(words.len(), |(_, at, _)| *at);
        clauses[*clause] = Some(words.get(*from..to).filter(|words| !words.is_empty())?);
    }
    Some(clauses)
}

/// The table, and what the statement calls it.
fn source(words: &[Word], tables: &[TableInfo]) -> Option<(usize, String)> {
    let name = words.first()?.name()?;
    let table = tables.iter().position(|table| table.name.eq_ignore_ascii_case(name))?;
    let called = match &words[1..] {
        [] => name,
        [alias] => alias.name()?,
        [word, alias] if word.is("as") => alias.name()?,
        _ => return None,
    };
    Some((table, called.to_owned()))
}

/// Which keys SQLite's own groups would come in descending order of: with as many terms of `ORDER BY` as of `GROUP BY`, it goes by those. This
/// decides between rows that are alike to `ORDER BY`.
fn descending(order: Option<&[Word]>, n_keys: usize) -> Option<Vec<bool>> {
    let terms = order.map_or(Some(Vec::new()), split)?;
    let is_descending = |term: &&[Word]| term.iter().any(|word| word.is("desc"));
    Some(match terms.len() == n_keys {
        true => terms.iter().map(is_descending).collect(),
        false => vec![false; n_keys],
    })
}

/// The parts between commas.
fn split(words: &[Word]) -> Option<Vec<&[Word]>> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0i32);
    for (at, word) in words.iter().enumerate() {
        depth += i32::from(word.is("(")) - i32::from(word.is(")"));
        if depth == 0 && word.is(",") {
            parts.push(&words[from..at]);
            from = at + 1;
        }
    }
    parts.push(&words[from..]);
    (depth == 0 && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

/// One column of the answer.
struct Item<'a> {
    /// Without its alias.
    words: &'a [Word],
    alias: Option<&'a Word>,
}

impl<'a> Item<'a> {
    fn of(words: &'a [Word], scope: &Scope<'_>) -> Option<Item<'a>> {
        let is_name = |word: &Word| {
            word.name().is_some_and(|name| matches!(word.kind, Kind::Quoted(_)) || !is_keyword(name))
        };
        let item = match words {
            [rest @ .., word, alias] if word.is("as") && is_name(alias) => {
                Item { words: rest, alias: Some(alias) }
            }
            // Without AS it follows the end of an expression.
            [rest @ .., before, alias] if is_name(alias) && ends_expression(before) => {
                Item { words: &words[..rest.len() + 1], alias: Some(alias) }
            }
            _ => Item { words, alias: None },
        };
        if let Some(alias) = item.alias
            && let Some(column) = scope.position(alias.name()?)
            && scope.column(item.words, 0) != Some((column, item.words.len()))
        {
            // Whether a name is that of the column or of the expression depends on where it stands.
            return None;
        }
        (!item.words.is_empty()).then_some(item)
    }
}

fn is_keyword(name: &str) -> bool {
    KEYWORDS.contains(&name)
}

fn ends_expression(word: &Word) -> bool {
    match &word.kind {
        Kind::Name(name) => name == "end" || name == "null" || !is_keyword(name),
        Kind::Quoted(_) | Kind::Text(_) | Kind::Integer(_) | Kind::Real(_) => true,
        Kind::Symbol(symbol) => *symbol == ")",
    }
}

/// One term of `GROUP BY`, with the words that it is elsewhere.
struct Key<'a> {
    words: &'a [Word],
    expr: Expr,
}

fn key<'a>(words: &'a [Word], items: &[Item<'a>], scope: &Scope<'_>) -> Option<Key<'a>> {
    let words = match words {
        // A number is the place of a column.
        [Word { kind: Kind::Integer(n), .. }] => items.get(usize::try_from(*n).ok()?.checked_sub(1)?)?.words,
        [word] if word.name().is_some() && scope.position(word.name()?).is_none() => {
            let mut named =
                items.iter().filter(|item| item.alias.is_some_and(|alias| alias.name() == word.name()));
            let item = named.next()?;
            // A name that two columns have.
            if named.next().is_some() {
                return None;
            }
            item.words
        }
        words => words,
    };
    let expr = parse(words, scope)?;
    let mut has_columns = false;
    expr.columns(&mut |_| has_columns = true);
    has_columns.then_some(Key { words, expr })
}

/// Writes parts of the statement again, with sums and keys as columns of the groups.
struct Writer<'a> {
    sql: &'a str,
    scope: Scope<'a>,
    keys: Vec<Key<'a>>,
    items: &'a [Item<'a>],
    question: Question,
}

impl Writer<'_> {
    fn text(&mut self, words: &[Word]) -> Option<String> {
        let mut parts: Vec<String> = Vec::new();
        let mut at = 0;
        while at < words.len() {
            if let Some((part, n_words)) = self.key(words, at).or_else(|| self.plain(words, at)) {
                parts.push(part);
                at += n_words;
                continue;
            }
            let is_call = words.get(at + 1).is_some_and(|word| word.is("("));
            let name = words[at].name()?;
            if is_call && matches!(words[at].kind, Kind::Name(_)) {
                if let Some((part, n_words)) = self.sum(words, at) {
                    parts.push(part);
                    at += n_words;
                    continue;
                }
                if !FUNCTIONS.contains(&name) || is_single(words, at + 1) && matches!(name, "min" | "max") {
                    return None;
                }
            } else {
                let is_alias = || {
                    self.items.iter().any(|item| item.alias.is_some_and(|alias| alias.name() == Some(name)))
                };
                // What SQLite knows a name to be depends on whether it is a column.
                if is_call || self.scope.position(name).is_some() || !is_alias() {
                    return None;
                }
            }
            parts.push(self.sql[words[at].from..words[at].to].to_owned());
            at += 1;
        }
        Some(parts.join(" "))
    }

    /// What means the same over groups: numbers, texts, symbols, keywords.
    fn plain(&self, words: &[Word], at: usize) -> Option<(String, usize)> {
        let word = &words[at];
        let is_plain = match &word.kind {
            Kind::Name(name) => is_keyword(name) && name != "cast",
            Kind::Quoted(_) => false,
            Kind::Text(_) | Kind::Integer(_) | Kind::Real(_) => true,
            Kind::Symbol(symbol) => match *symbol {
                "." => false,
                "*" => is_operator(words, at),
                _ => true,
            },
        };
        is_plain.then(|| (self.sql[word.from..word.to].to_owned(), 1))
    }

    /// A key at this place: a column wherever it is, an expression where nothing can bind it otherwise.
    fn key(&self, words: &[Word], at: usize) -> Option<(String, usize)> {
        if let Some((column, n_words)) = self.scope.column(words, at)
            && !words.get(at + n_words).is_some_and(|word| word.is("("))
        {
            let key = self.keys.iter().position(|key| key.expr == Expr::Column(column));
            if let Some(key) = key {
                return Some((quoted(&column_name(key)), n_words));
            }
        }
        let is_open = at == 0 || words[at - 1].is("(") || words[at - 1].is(",");
        let fits = |key: &Key<'_>| {
            let n = key.words.len();
            let end = words.get(at + n);
            let is_closed = end.is_none_or(|word| [")", ",", "asc", "desc"].iter().any(|name| word.is(name)));
            let is_same = words
                .get(at..at + n)
                .is_some_and(|words| words.iter().zip(key.words).all(|(a, b)| a.kind == b.kind));
            is_open && is_closed && is_same && !matches!(key.expr, Expr::Column(_))
        };
        let key = self.keys.iter().position(fits)?;
        // A plus: it is not a column that others are compared with as such.
        Some((format!("(+{})", quoted(&column_name(key))), self.keys[key].words.len()))
    }

    /// A function of all rows of a group.
    fn sum(&mut self, words: &[Word], at: usize) -> Option<(String, usize)> {
        let name = words[at].name()?;
        let end = closing(words, at + 1)?;
        let arguments = words.get(at + 2..end)?;
        let (function, argument) = match (name, arguments) {
            ("count", [word]) if word.is("*") => (Function::Count, None),
            ("count", []) => (Function::Count, None),
            _ => {
                let arguments = split(arguments)?;
                let number = |at: usize| match arguments.get(at).copied() {
                    Some([Word { kind: Kind::Real(n), .. }]) => Some(*n),
                    Some([Word { kind: Kind::Integer(n), .. }]) => Some(*n as f64),
                    _ => None,
                };
                let share =
                    |most: f64| number(1).map(|n| n / most).filter(|share| (0.0..=1.0).contains(share));
                let function = match (name, arguments.len()) {
                    ("count", 1) => Function::Count,
                    ("sum", 1) => Function::Sum,
                    ("total", 1) => Function::Total,
                    ("avg", 1) => Function::Average,
                    ("min", 1) => Function::Least,
                    ("max", 1) => Function::Most,
                    ("median", 1) => Function::Percentile { share: 0.5, is_discrete: false },
                    ("percentile_cont", 2) => Function::Percentile { share: share(1.0)?, is_discrete: false },
                    ("percentile_disc", 2) => Function::Percentile { share: share(1.0)?, is_discrete: true },
                    ("percentile", 2) => Function::Percentile { share: share(100.0)?, is_discrete: false },
                    _ => return None,
                };
                (function, Some(parse(arguments[0], &self.scope)?))
            }
        };
        let mut n_words = end + 1 - at;
        let mut filter = None;
        if words.get(end + 1).is_some_and(|word| word.is("filter")) {
            let filter_end = closing(words, end + 2)?;
            let condition = words.get(end + 3..filter_end)?;
            let (first, condition) = condition.split_first()?;
            filter = Some(parse(condition, &self.scope).filter(|_| first.is("where"))?);
            n_words = filter_end + 1 - at;
        }
        let answer = self.question.ask(Aggregate { function, argument, filter });
        Some((format!("(+{})", quoted(&column_name(self.keys.len() + answer))), n_words))
    }
}

/// A star that multiplies stands behind an expression.
fn is_operator(words: &[Word], at: usize) -> bool {
    at > 0 && ends_expression(&words[at - 1])
}

/// Whether a call has one argument.
fn is_single(words: &[Word], open: usize) -> bool {
    let within = closing(words, open).and_then(|end| split(words.get(open + 1..end)?));
    within.is_none_or(|parts| parts.len() == 1)
}

/// The parenthesis that closes the one at `open`.
fn closing(words: &[Word], open: usize) -> Option<usize> {
    if !words.get(open)?.is("(") {
        return None;
    }
    let mut depth = 0i32;
    for (at, word) in words.iter().enumerate().skip(open) {
        depth += i32::from(word.is("(")) - i32::from(word.is(")"));
        if depth == 0 {
            return Some(at);
        }
    }
    None
}
