//! Block scope: a variable that is first assigned in a block ends with it, and `let` makes a new one. Each gets a name of its
//! own, the first in a body the one that was written. A script from before bpftrace had scopes may read a variable
//! behind the block that assigned it: such a variable is one for the whole body.

use super::{Clause, Declared, Expr, ExprKind, Stmt, StmtKind};
use std::collections::{HashMap, HashSet};

/// Gives the variables of a clause names that say which they are.
pub(crate) fn resolve(clause: &mut Clause) {
    let mut first = Scopes::default();
    first.clause(&mut clause.clone());
    let mut second = Scopes { whole_body: first.outside, ..Scopes::default() };
    second.clause(clause);
}

/// As it was written, without what tells it from others of its name.
pub(crate) fn written(name: &str) -> &str {
    name.split('\'').next().unwrap_or(name)
}

#[derive(Default)]
struct Scopes {
    /// By name as written: the name it has now. The innermost last.
    blocks: Vec<HashMap<String, String>>,
    n_made: HashMap<String, u32>,
    /// Read where no block around has it, though an earlier one had.
    outside: HashSet<String>,
    whole_body: HashSet<String>,
}

impl Scopes {
    fn clause(&mut self, clause: &mut Clause) {
        self.blocks.push(HashMap::new());
        clause.predicate.iter_mut().for_each(|predicate| self.expr(predicate));
        self.statements(&mut clause.body);
    }

    fn make(&mut self, name: &mut String) {
        let number = self.n_made.entry(name.clone()).or_insert(0);
        *number += 1;
        let own = if *number == 1 { name.clone() } else { format!("{name}'of{number}") };
        if let Some(block) = self.blocks.last_mut() {
            block.insert(name.clone(), own.clone());
        }
        *name = own;
    }

    fn find(&self, name: &str) -> Option<String> {
        self.blocks.iter().rev().find_map(|block| block.get(name)).cloned()
    }

    fn read(&mut self, name: &mut String) {
        match self.find(name) {
            Some(own) => *name = own,
            None if self.n_made.contains_key(name) => _ = self.outside.insert(name.clone()),
            None => {}
        }
    }

    fn assign(&mut self, name: &mut String) {
        match self.find(name) {
            Some(own) => *name = own,
            None if self.whole_body.contains(name) => {
                self.n_made.insert(name.clone(), 1);
                if let Some(body) = self.blocks.first_mut() {
                    body.insert(name.clone(), name.clone());
                }
            }
            None => self.make(name),
        }
    }

    fn block(&mut self, statements: &mut [Stmt]) {
        self.blocks.push(HashMap::new());
        self.statements(statements);
        self.blocks.pop();
    }

    fn loop_block(&mut self, variable: &mut String, statements: &mut [Stmt]) {
        self.blocks.push(HashMap::new());
        self.make(variable);
        self.block(statements);
        self.blocks.pop();
    }

    fn statements(&mut self, statements: &mut [Stmt]) {
        statements.iter_mut().for_each(|statement| self.statement(statement));
    }

    fn statement(&mut self, statement: &mut Stmt) {
        match &mut statement.kind {
            StmtKind::Expr(expr) => self.expr(expr),
            StmtKind::AssignVar { name, op, value, .. } => {
                self.expr(value);
                if op.is_some() { self.read(name) } else { self.assign(name) }
            }
            StmtKind::AssignMap { map, value, .. } => {
                map.keys.iter_mut().for_each(|key| self.expr(key));
                self.expr(value);
            }
            StmtKind::Let { name, value, declared, .. } => {
                if let Some(Declared::Like(like)) = declared {
                    self.expr(like);
                }
                value.iter_mut().for_each(|value| self.expr(value));
                self.make(name);
            }
            StmtKind::If { condition, then, otherwise } => {
                self.expr(condition);
                self.block(then);
                self.block(otherwise);
            }
            StmtKind::While { condition: head, body } | StmtKind::Unroll { count: head, body } => {
                self.expr(head);
                self.block(body);
            }
            StmtKind::ForMap { variable, body, .. } => self.loop_block(variable, body),
            StmtKind::ForRange { variable, from, to, body } => {
                self.expr(from);
                self.expr(to);
                self.loop_block(variable, body);
            }
            StmtKind::Block(body) => self.block(body),
            StmtKind::SpanEdge { keys, .. } => keys.iter_mut().for_each(|key| self.expr(key)),
            StmtKind::Break | StmtKind::Continue | StmtKind::Return => {}
        }
    }

    fn expr(&mut self, expr: &mut Expr) {
        match &mut expr.kind {
            ExprKind::Var(name) => self.read(name),
            ExprKind::Int { .. }
            | ExprKind::Str(_)
            | ExprKind::Param(_)
            | ExprKind::ParamCount
            | ExprKind::Name(_)
            | ExprKind::SizeofType(_)
            | ExprKind::Type(_)
            | ExprKind::Offsetof { .. } => {}
            ExprKind::Map(map) => map.keys.iter_mut().for_each(|key| self.expr(key)),
            ExprKind::Call { args, .. } | ExprKind::Tuple(args) => {
                args.iter_mut().for_each(|arg| self.expr(arg));
            }
            ExprKind::Record(members) => members.iter_mut().for_each(|(_, member)| self.expr(member)),
            ExprKind::Member { base: inner, .. }
            | ExprKind::TupleMember { base: inner, .. }
            | ExprKind::Unary { operand: inner, .. }
            | ExprKind::Cast { operand: inner, .. }
            | ExprKind::Step { target: inner, .. }
            | ExprKind::SizeofExpr(inner)
            | ExprKind::AddressOf(inner)
            | ExprKind::TypeOf(inner)
            | ExprKind::PointerType(inner) => self.expr(inner),
            ExprKind::Index { base: a, index: b }
            | ExprKind::Binary { left: a, right: b, .. }
            | ExprKind::CastTo { to: a, operand: b } => {
                self.expr(a);
                self.expr(b);
            }
            ExprKind::Ternary { condition, then, otherwise } => {
                self.expr(condition);
                self.expr(then);
                self.expr(otherwise);
            }
            ExprKind::Block { body, value, .. } => {
                self.blocks.push(HashMap::new());
                self.statements(body);
                value.iter_mut().for_each(|value| self.expr(value));
                self.blocks.pop();
            }
        }
    }
}
