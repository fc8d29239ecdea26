//! Comparisons that are decided at the hit itself.

use nopal_sdt::operand::Operand;

/// `operand OP constant`
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate {
    pub operand: Operand,
    pub relation: Relation,
    pub constant: i128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}
