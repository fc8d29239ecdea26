//! The C preprocessor as far as scripts use it: constants of `#define`, and the conditions of `#if`. The lexer asks it line by
//! line; headers are not read, since the kernel describes its own types.

use crate::number::parse_number;
use std::cell::Cell;
use std::collections::HashMap;

/// What `#define` and the tracer have defined.
#[derive(Debug, Clone)]
pub(crate) struct Defines {
    texts: HashMap<String, String>,
    /// What conditions have cost so far: a few names can stand for a text that doubles with each of them.
    n_steps: Cell<u32>,
}

/// More than the conditions of all headers of a system have.
const MAX_STEPS: u32 = 1_000_000;

impl Default for Defines {
    fn default() -> Defines {
        // Types come from the kernel's own description.
        let texts = HashMap::from([("BPFTRACE_HAVE_BTF".to_owned(), "1".to_owned())]);
        Defines { texts, n_steps: Cell::new(0) }
    }
}

/// Longer texts are no numbers.
const MAX_NUMBER_BYTES: usize = 200;

/// Names that stand for names for ever.
const MAX_LEVELS: u32 = 16;

impl Defines {
    /// `NAME text`, as behind `#define`. `Err` says what is wrong with it.
    pub(crate) fn define(&mut self, line: &str) -> Result<(), String> {
        let line = without_comment(line).trim();
        let length = line.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let (name, text) = line.split_at(length);
        if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
            return Err("`#define` needs a name".to_owned());
        }
        if text.starts_with('(') {
            return Err(format!("`{name}` takes parameters; a `macro` of the script can do that"));
        }
        self.texts.insert(name.to_owned(), text.trim().to_owned());
        Ok(())
    }

    pub(crate) fn undefine(&mut self, name: &str) {
        self.texts.remove(name.trim());
    }

    pub(crate) fn is_defined(&self, name: &str) -> bool {
        self.texts.contains_key(without_comment(name).trim())
    }

    /// What a name stands for, through other names.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let mut text = self.texts.get(name)?.as_str();
        for _ in 0..MAX_LEVELS {
            match self.texts.get(text) {
                Some(next) => text = next,
                None => return Some(text),
            }
        }
        None
    }

    /// The names that stand for numbers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = (&str, i64)> {
        self.texts.keys().filter_map(|name| Some((name.as_str(), self.number(name)?)))
    }

    fn number(&self, name: &str) -> Option<i64> {
        let text = self.text(name).filter(|text| text.len() <= MAX_NUMBER_BYTES)?;
        let words =
            text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        let is_known = |word: &str| match self.text(word) {
            // Names in it stand for single numbers, so that none can lead back here.
            Some(text) => parse_number(text).is_some(),
            None => parse_number(word).is_some(),
        };
        if !words.into_iter().all(is_known) {
            return None;
        }
        let mut reader = Condition { defines: self, rest: text, levels: 0 };
        let value = reader.level(0)?;
        reader.skip();
        reader.rest.is_empty().then_some(value)
    }

    /// The condition of `#if`; names that are not defined are 0. `None` if it cannot be understood.
    pub(crate) fn condition(&self, text: &str) -> Option<bool> {
        let mut reader = Condition { defines: self, rest: without_comment(text).trim(), levels: 0 };
        let value = reader.level(0)?;
        reader.skip();
        reader.rest.is_empty().then_some(value != 0)
    }
}

fn without_comment(line: &str) -> &str {
    let end = line.find("//").unwrap_or(line.len()).min(line.find("/*").unwrap_or(line.len()));
    &line[..end]
}

struct Condition<'a> {
    defines: &'a Defines,
    rest: &'a str,
    levels: u32,
}

/// Loosest first, the longer sign before the shorter.
const SIGNS: [&[&str]; 9] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!=", "<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl<'a> Condition<'a> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn accept(&mut self, sign: &str) -> bool {
        self.skip();
        let mut found = self.rest.strip_prefix(sign);
        // `|` is no part of `||`.
        if matches!(sign, "|" | "&" | "<" | ">") && found.is_some_and(|rest| rest.starts_with(sign)) {
            found = None;
        }
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn level(&mut self, level: usize) -> Option<i64> {
        self.defines.n_steps.set(self.defines.n_steps.get().checked_add(1).filter(|n| *n < MAX_STEPS)?);
        self.levels += 1;
        let Some(signs) = SIGNS.get(level).filter(|_| self.levels < 2000) else { return self.value() };
        let mut left = self.level(level + 1)?;
        while let Some(sign) = signs.iter().find(|sign| self.accept(sign)) {
            let right = self.level(level + 1)?;
            left = match *sign {
                "||" => i64::from(left != 0 || right != 0),
                "&&" => i64::from(left != 0 && right != 0),
                "==" => i64::from(left == right),
                "!=" => i64::from(left != right),
                "<=" => i64::from(left <= right),
                ">=" => i64::from(left >= right),
                "<" => i64::from(left < right),
                ">" => i64::from(left > right),
                "|" => left | right,
                "^" => left ^ right,
                "&" => left & right,
                "<<" => left.wrapping_shl(right as u32),
                ">>" => left.wrapping_shr(right as u32),
                "+" => left.wrapping_add(right),
                "-" => left.wrapping_sub(right),
                "*" => left.wrapping_mul(right),
                "/" => left.checked_div(right)?,
                _ => left.checked_rem(right)?,
            };
        }
        Some(left)
    }

    fn value(&mut self) -> Option<i64> {
        if self.levels >= 2000 {
            return None;
        }
        self.levels += 1;
        if self.accept("!") {
            return self.value().map(|value| i64::from(value == 0));
        }
        if self.accept("-") {
            return self.value().map(i64::wrapping_neg);
        }
        if self.accept("(") {
            let value = self.level(0)?;
            return self.accept(")").then_some(value);
        }
        let word = self.word();
        match word {
            "" => None,
            "defined" => {
                let has_parens = self.accept("(");
                let name = self.word();
                (!has_parens || self.accept(")")).then_some(i64::from(self.defines.is_defined(name)))
            }
            _ => match parse_number(word) {
                Some(number) => number.ok().map(|number| number as i64),
                None => match self.defines.text(word) {
                    Some("") | None => Some(0),
                    Some(text) => {
                        let mut inner =
                            Condition { defines: self.defines, rest: text, levels: self.levels + 100 };
                        inner.level(0)
                    }
                },
            },
        }
    }

    fn word(&mut self) -> &'a str {
        self.skip();
        let length = self.rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let (word, rest) = self.rest.split_at(length);
        self.rest = rest;
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_and_names() {
        let mut defines = Defines::default();
        defines.define("A 3 // three").unwrap();
        defines.define("B A /* as A */").unwrap();
        defines.define("EMPTY").unwrap();
        defines.define("LOOP LOOP").unwrap();
        assert_eq!(defines.text("B"), Some("3"));
        assert_eq!(defines.text("LOOP"), None);
        assert!(defines.define("F(x) x").is_err() && defines.define("1").is_err());
        for (text, want) in [
            ("1", Some(true)),
            ("0", Some(false)),
            ("A == 3 && B > 2", Some(true)),
            ("!defined(A) || defined EMPTY", Some(true)),
            ("(A + 1) * 2 == 8", Some(true)),
            ("UNKNOWN", Some(false)),
            ("defined(BPFTRACE_HAVE_BTF)", Some(true)),
            ("-1 < 0", Some(true)),
            ("(1 << 4 | 2) == 18 || 0", Some(true)),
            ("(6 & 3 ^ 1) == 3 && 8 >> 2 > 1", Some(true)),
            ("A ==", None),
            ("", None),
            ("1 2", None),
            ("1 / 0", None),
        ] {
            assert_eq!(defines.condition(text), want, "{text}");
        }
        let deep = "(".repeat(5000);
        assert_eq!(defines.condition(&deep), None);
        defines.define("A0 1").unwrap();
        for n in 1..12 {
            defines.define(&format!("A{n} {}", vec![format!("A{}", n - 1); 12].join("+"))).unwrap();
        }
        assert_eq!(defines.condition("A2 == 144"), Some(true));
        assert_eq!(defines.condition("A8 > 0"), None);
    }
}
