//! Tree to program. Types and code are found by the same walk, which is repeated until the types of maps and variables
//! no longer change: a map may be read above the place that says what it holds.

mod points;

use crate::ast::Script;
use crate::catalog::Catalog;
use crate::diagnostic::Diagnostic;
use nopal_program::{Clause, Program};

/// Makes a program of a script. What is wrong with it is told all at once.
pub fn compile(script: &Script, catalog: &dyn Catalog) -> Result<Program, Vec<Diagnostic>> {
    compile_with_warnings(script, catalog).map(|(program, _)| program)
}

/// As [`compile`], with what looks wrong but is not.
pub fn compile_with_warnings(
    script: &Script,
    catalog: &dyn Catalog,
) -> Result<(Program, Vec<Diagnostic>), Vec<Diagnostic>> {
    let mut program = Program { limits: script.limits, ..Program::default() };
    for clause in &script.clauses {
        for variant in points::variants(script, clause, true, catalog).map_err(|error| vec![error])? {
            if let Some(statement) = clause.body.first() {
                return Err(vec![Diagnostic::error(statement.span, "statements are not compiled yet")]);
            }
            program.clauses.push(Clause { points: variant.points, code: Default::default() });
        }
    }
    Ok((program, Vec::new()))
}
