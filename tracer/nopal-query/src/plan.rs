//! What SQLite asks of a table: which columns, and which rows at most. Goes from `best_index` to `filter` as a short text:
//! `columns;number:operator,...`.

use rusqlite::vtab::IndexConstraintOp;

/// A comparison that the reader can do by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Eq,
    Gt,
    Ge,
    Lt,
    Le,
}

impl Op {
    pub(crate) fn of(op: IndexConstraintOp) -> Option<Op> {
        match op {
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ => Some(Op::Eq),
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT => Some(Op::Gt),
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE => Some(Op::Ge),
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT => Some(Op::Lt),
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE => Some(Op::Le),
            _ => None,
        }
    }

    fn letter(self) -> char {
        match self {
            Op::Eq => '=',
            Op::Gt => '>',
            Op::Ge => 'g',
            Op::Lt => '<',
            Op::Le => 'l',
        }
    }

    fn of_letter(letter: char) -> Option<Op> {
        [Op::Eq, Op::Gt, Op::Ge, Op::Lt, Op::Le].into_iter().find(|op| op.letter() == letter)
    }
}

/// Columns in use, and comparisons whose other sides `filter` gets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ask {
    /// A bit for each column; the last one stands for all columns from there on.
    pub columns: u64,
    pub comparisons: Vec<(usize, Op)>,
}

impl Ask {
    pub(crate) fn text(&self) -> String {
        let comparisons: Vec<String> =
            self.comparisons.iter().map(|(column, op)| format!("{column}{}", op.letter())).collect();
        format!("{:x};{}", self.columns, comparisons.join(","))
    }

    pub(crate) fn parse(text: &str) -> Option<Ask> {
        let (columns, comparisons) = text.split_once(';')?;
        let comparison = |text: &str| {
            let letter = text.chars().last()?;
            Some((text[..text.len() - letter.len_utf8()].parse().ok()?, Op::of_letter(letter)?))
        };
        let comparisons = comparisons.split(',').filter(|text| !text.is_empty());
        Some(Ask {
            columns: u64::from_str_radix(columns, 16).ok()?,
            comparisons: comparisons.map(comparison).collect::<Option<_>>()?,
        })
    }

    pub(crate) fn uses(&self, column: usize) -> bool {
        self.columns >> column.min(63) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_comes_back() {
        let ask = Ask { columns: 0b1011, comparisons: vec![(0, Op::Ge), (0, Op::Lt), (12, Op::Eq)] };
        assert_eq!(Ask::parse(&ask.text()), Some(ask));
        assert_eq!(Ask::parse(";"), None);
        let none = Ask::default();
        assert_eq!(Ask::parse(&none.text()), Some(none));
        assert!(Ask { columns: 1 << 63, ..Ask::default() }.uses(100));
    }
}
