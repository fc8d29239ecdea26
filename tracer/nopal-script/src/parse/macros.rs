//! What stands beside probes at the top level: `macro`, `let @map = ...`, `import`. And the macros that come with the
//! language, written in it.

use super::{Parsed, Parser};
use crate::ast::expand::{Macro, Param};
use crate::ast::{DeclaredMap, Script};
use crate::diagnostic::{Diagnostic, Span};
use crate::lex::Token;
use nopal_program::Room;

/// Names that are short for something longer.
const PROVIDED: &str = r#"
macro ppid() { ((struct task_struct *)curtask)->real_parent->tgid }
macro ppid(task) { ((struct task_struct *)(task))->real_parent->tgid }
macro pcomm(task) { str(((struct task_struct *)(task))->real_parent->comm) }
macro pcomm() { str(((struct task_struct *)curtask)->real_parent->comm) }
macro leader_tid() { ((struct task_struct *)curtask)->group_leader->pid }
macro leader_comm() { str(((struct task_struct *)curtask)->group_leader->comm) }
macro find(@map, key, $value) { let $found = has_key(@map, key); if ($found) { $value = @map[key]; } $found }
macro strcap(text) { sizeof(text) }
macro assert(condition, message) { if (!(condition)) { errorf("assert failed: %s", message); exit(1); } }
macro is_err(p) { ((uint64)(p)) >= (uint64)18446744073709547521 }
"#;

/// The macros of the script, and those it uses of what comes with the language.
pub(super) fn provided(script: &Script, own: &[Macro]) -> Parsed<Vec<Macro>> {
    let mut parser = Parser::of(PROVIDED);
    loop {
        parser.lexer.skip_blank()?;
        if parser.lexer.rest().is_empty() {
            break;
        }
        parser.macro_definition()?;
    }
    let is_own =
        |each: &Macro| own.iter().any(|o| o.name == each.name && o.params.len() == each.params.len());
    let is_constant = |each: &Macro| script.records.constants.contains_key(&each.name);
    let mut macros = own.to_vec();
    macros.extend(parser.macros.into_iter().filter(|each| !is_own(each) && !is_constant(each)).map(
        |mut each| {
            each.span = Span::default();
            each
        },
    ));
    Ok(macros)
}

impl Parser<'_> {
    /// `macro name($variable, @map, expression) { ... }`.
    pub(super) fn macro_definition(&mut self) -> Parsed<()> {
        self.take()?;
        let (name, span) = self.name("the name of a macro")?;
        self.expect("(")?;
        let mut params = Vec::new();
        while !self.is_next(")")? {
            let (token, param_span) = self.take()?;
            let param = match token {
                Token::Var(name) => Param::Variable(name),
                Token::Map(name) => Param::Map(name),
                Token::Name(name) => Param::Expression(name),
                other => {
                    return Err(Diagnostic::error(
                        param_span,
                        format!("expected a parameter, found {}", other.text()),
                    )
                    .help("parameters are `$variable`, `@map` and `name`"));
                }
            };
            if params.contains(&param) {
                return Err(Diagnostic::error(param_span, "this parameter is there already"));
            }
            params.push(param);
            if !self.accept(",")? {
                break;
            }
        }
        self.expect(")")?;
        let open = self.peek()?.1;
        self.note_body(open);
        let (body, value) = self.block_with_value()?;
        if let Some(same) = self.macros.iter().find(|m| m.name == name && m.params.len() == params.len()) {
            return Err(Diagnostic::error(span, format!("the macro `{name}` is there already"))
                .related(same.span, "here"));
        }
        self.macros.push(Macro { name, params, body, value, span });
        Ok(())
    }

    /// `let @map = lruhash(100);`.
    pub(super) fn map_declaration(&mut self) -> Parsed<()> {
        let (_, first) = self.take()?;
        let (name, span) = match self.take()? {
            (Token::Map(name), span) => (name, span),
            (token, span) => {
                return Err(Diagnostic::error(span, format!("expected a map, found {}", token.text()))
                    .help("outside of probes `let` declares maps: `let @name = hash(100);`"));
            }
        };
        self.expect("=")?;
        let (kind, kind_span) = self.name("the type of a map")?;
        self.expect("(")?;
        let entries = match self.take()? {
            (Token::Int { value, .. }, _) if (1..=1 << 24).contains(&value) => value as u32,
            (_, span) => {
                return Err(Diagnostic::error(span, "a map has room for 1 to 16777216 entries"));
            }
        };
        let last = self.expect(")")?;
        self.accept(";")?;
        let is_lru = match kind.as_str() {
            "hash" | "percpuhash" => false,
            "lruhash" | "percpulruhash" => true,
            "percpuarray" if entries == 1 => false,
            "percpuarray" => {
                return Err(Diagnostic::error(kind_span, "`percpuarray` has room for one entry"));
            }
            _ => {
                return Err(Diagnostic::error(kind_span, format!("there is no type of map `{kind}`"))
                    .help("types are hash, lruhash, percpuhash, percpulruhash and percpuarray"));
            }
        };
        if self.script.declared.iter().any(|declared| declared.name == name) {
            return Err(Diagnostic::error(span, format!("`{name}` is declared already")));
        }
        let room = Room { entries: Some(entries), is_lru };
        self.script.declared.push(DeclaredMap { name, room, span: Span { end: last.end, ..first } });
        Ok(())
    }

    /// `import "stdlib/..."` brings what is there anyway.
    pub(super) fn import(&mut self) -> Parsed<()> {
        self.take()?;
        let (token, span) = self.take()?;
        self.accept(";")?;
        match token {
            Token::Str(path) if path.starts_with(b"stdlib") => Ok(()),
            _ => Err(Diagnostic::error(span, "only parts of `stdlib` can be imported")
                .help("put the macros of the file into the script")),
        }
    }
}
