//! Tree to program. Types and code are found by the same walk, which is repeated until the types of maps and variables
//! no longer change: a map may be read above the place that says what it holds.

mod addresses;
pub(crate) mod body;
mod builtins;
mod cast;
mod checks;
mod choice;
mod config;
mod declare;
mod expression;
pub(crate) mod format;
pub(crate) mod maps;
mod memory;
mod names;
mod operators;
pub(crate) mod points;
mod series;
mod spans;
mod statement;
mod tidy;
pub(crate) mod types;
mod whole;

use crate::ast::MissingProbes;
use crate::ast::{self, Script, walk};
use crate::catalog::Catalog;
use crate::ctype::Record;
use crate::diagnostic::{Diagnostic, Severity, Span};
use body::{Body, Variable};
use maps::Maps;
use nopal_program::{Action, Clause, Code, Program};
use points::{UsedArgs, Variant};

pub use builtins::reference;

pub(crate) type Lowered<T> = Result<T, Diagnostic>;

/// A type settles after as many walks as it has parts; this is beyond what scripts nest.
const MAX_WALKS: usize = 32;

/// Whether the language has a function or a variable of this name.
pub(crate) fn is_builtin(name: &str) -> bool {
    builtins::variable_names().any(|known| known == name) || builtins::has_function(name)
}

/// Makes a program of a script. What is wrong with it is told all at once.
pub fn compile(script: &Script, catalog: &dyn Catalog) -> Result<Program, Vec<Diagnostic>> {
    compile_with_warnings(script, catalog).map(|(program, _)| program)
}

/// As [`compile`], with what looks wrong but is not.
pub fn compile_with_warnings(
    script: &Script,
    catalog: &dyn Catalog,
) -> Result<(Program, Vec<Diagnostic>), Vec<Diagnostic>> {
    let errors = match compile_for(script, catalog, true) {
        Err(errors) => errors,
        compiled => return compiled,
    };
    // What is known of the probes there are may not hold for those that are loaded later.
    let (program, mut warnings) = compile_for(script, catalog, false)?;
    let reason = errors.into_iter().find(Diagnostic::is_error);
    warnings.extend(reason.map(|error| Diagnostic {
        severity: Severity::Warning,
        message: format!("libraries that are loaded later are not traced: {}", error.message),
        ..error
    }));
    Ok((program, warnings))
}

fn compile_for(
    script: &Script,
    catalog: &dyn Catalog,
    has_later: bool,
) -> Result<(Program, Vec<Diagnostic>), Vec<Diagnostic>> {
    let (mut errors, mut missing, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
    let mut bodies: Vec<Vec<(Variant, Vec<Variable>)>> = Vec::new();
    for clause in &script.clauses {
        match points::variants(script, clause, used_args(clause), catalog, has_later, &mut warnings) {
            Ok(variants) => bodies.push(variants.into_iter().map(|variant| (variant, Vec::new())).collect()),
            Err(error) => match script.missing_probes {
                MissingProbes::Error => errors.push(error),
                MissingProbes::Warn | MissingProbes::Ignore => {
                    bodies.push(Vec::new());
                    missing.push(error);
                }
            },
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if bodies.iter().all(Vec::is_empty) {
        return Err(missing);
    }
    if script.missing_probes == MissingProbes::Warn {
        warnings.extend(missing.into_iter().map(|error| Diagnostic { severity: Severity::Warning, ..error }));
    }
    let mut shared = Shared {
        script,
        catalog,
        maps: Maps::default(),
        span_keys: Maps::default(),
        diagnostics: Vec::new(),
        actions: Vec::new(),
        constants: Vec::new(),
    };
    let mut codes = Vec::new();
    for _ in 0..MAX_WALKS {
        shared.begin_walk();
        codes = walk_bodies(&mut shared, &mut bodies);
        if !shared.has_changed() {
            break;
        }
    }
    warnings.into_iter().for_each(|warning| shared.report(warning));
    shared.finish(bodies, codes)
}

fn used_args(clause: &ast::Clause) -> UsedArgs {
    // Other names may be labels of the enums among them.
    let is_known = |name: &str| builtins::variable_names().any(|known| known == name);
    if walk::names(clause, |name| name == "args") {
        return UsedArgs::ByName;
    }
    match walk::names(clause, |name| name.starts_with("arg") || !is_known(name)) {
        true => UsedArgs::Any,
        false => UsedArgs::None,
    }
}

/// What all bodies of a script share.
pub(crate) struct Shared<'s> {
    pub script: &'s Script,
    pub catalog: &'s dyn Catalog,
    pub maps: Maps,
    /// The keys of spans, by the names of their maps.
    pub span_keys: Maps,
    pub diagnostics: Vec<Diagnostic>,
    actions: Vec<Action>,
    constants: Vec<Vec<u8>>,
}

fn walk_bodies(shared: &mut Shared<'_>, bodies: &mut [Vec<(Variant, Vec<Variable>)>]) -> Vec<Vec<Code>> {
    let script = shared.script;
    let mut codes = Vec::new();
    for (clause, variants) in script.clauses.iter().zip(bodies) {
        let mut of_clause = Vec::new();
        for (variant, variables) in variants {
            let place = variant.place.span;
            let mut body = Body::new(shared, variant, variables);
            body.clause(clause);
            let code = body.finish(place).unwrap_or_else(|error| {
                shared.report(error);
                Code::default()
            });
            of_clause.push(code);
        }
        codes.push(of_clause);
    }
    codes
}

impl Shared<'_> {
    fn begin_walk(&mut self) {
        self.maps.has_changed = false;
        self.span_keys.has_changed = false;
        self.diagnostics.clear();
        self.actions.clear();
        self.constants.clear();
    }

    /// Whether something was learnt that may change what came before it.
    fn has_changed(&self) -> bool {
        self.maps.has_changed || self.span_keys.has_changed
    }

    /// Once, however many points a body has.
    pub(crate) fn report(&mut self, diagnostic: Diagnostic) {
        if !self.diagnostics.contains(&diagnostic) && self.diagnostics.len() < 100 {
            self.diagnostics.push(diagnostic);
        }
    }

    pub(crate) fn action(&mut self, action: Action) -> u32 {
        intern(&mut self.actions, action)
    }

    pub(crate) fn constant(&mut self, bytes: &[u8]) -> u32 {
        intern(&mut self.constants, bytes.to_vec())
    }

    pub(crate) fn record(&self, name: &str, span: Span) -> Lowered<Record> {
        if let Some(record) = self.script.records.records.get(name) {
            return Ok(record.clone());
        }
        self.catalog.record(name).ok_or_else(|| {
            Diagnostic::error(span, format!("`{name}` is not defined"))
                .help(format!("define it in the script: `{name} {{ ... }};`"))
        })
    }

    fn finish(
        mut self,
        bodies: Vec<Vec<(Variant, Vec<Variable>)>>,
        codes: Vec<Vec<Code>>,
    ) -> Result<(Program, Vec<Diagnostic>), Vec<Diagnostic>> {
        if self.has_changed() {
            let message = "the types of the maps depend on each other without end";
            self.report(Diagnostic::error(Span::default(), message));
        }
        self.diagnostics.sort_by_key(|diagnostic| diagnostic.span.start);
        if self.diagnostics.iter().any(Diagnostic::is_error) {
            return Err(self.diagnostics);
        }
        let mut clauses: Vec<Clause> = Vec::new();
        for (variants, codes) in bodies.into_iter().zip(codes) {
            let first = clauses.len();
            for ((variant, _), code) in variants.into_iter().zip(codes) {
                match clauses[first..].iter_mut().find(|clause| clause.code == code) {
                    Some(same) => same.points.extend(variant.points),
                    None => clauses.push(Clause { points: variant.points, code }),
                }
            }
        }
        let spans = self.spans();
        let maps = self.maps.definitions(self.script.options.has_plain_pointers);
        let declared = &self.script.declared;
        for declared in declared.iter().filter(|declared| maps.iter().all(|map| map.name != declared.name)) {
            let message = format!("Unused map: {}", declared.name);
            self.diagnostics.push(Diagnostic::warning(declared.span, message));
        }
        let room = |name: &str| declared.iter().find(|d| d.name == name).map(|d| d.room).unwrap_or_default();
        let rooms = match declared.is_empty() {
            true => Vec::new(),
            false => maps.iter().map(|map| room(&map.name)).collect(),
        };
        let program = Program {
            clauses: names::shared(clauses),
            rooms,
            maps,
            spans,
            actions: self.actions,
            constants: self.constants,
            limits: self.script.limits,
            look: self.script.options.look,
        };
        Ok((program, self.diagnostics))
    }
}

fn intern<T: PartialEq>(known: &mut Vec<T>, new: T) -> u32 {
    match known.iter().position(|known| *known == new) {
        Some(index) => index as u32,
        None => {
            known.push(new);
            known.len() as u32 - 1
        }
    }
}
