//! Comparisons that are decided at the hit itself.

pub use nopal_program::lower::Relation;
use nopal_sdt::operand::Operand;

/// `operand OP constant`
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate {
    pub operand: Operand,
    pub relation: Relation,
    pub constant: i128,
}
