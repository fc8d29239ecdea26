//! The prompt of `nopal query`: statements end with a semicolon, Tab completes, the arrows bring back what was typed.

use super::{Form, ask, rows};
use crate::commands::answers::print;
use crate::failure::Failure;
use crate::signals;
use nopal_query::Database;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::path::PathBuf;

const WORDS: [&str; 30] = [
    "SELECT",
    "FROM",
    "WHERE",
    "GROUP BY",
    "ORDER BY",
    "HAVING",
    "LIMIT",
    "AS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "LIKE",
    "GLOB",
    "IS NULL",
    "BETWEEN",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "DISTINCT",
    "JOIN",
    "ON",
    "DESC",
    "count(*)",
    "sum(",
    "avg(",
    "max(",
    "percentile_cont(",
];
const DOTS: [&str; 5] = [".help", ".tables", ".schema", ".mode", ".quit"];
const HELP: &str = "\
.tables           the tables
.schema [TABLE]   the columns of all tables, or of one
.mode table|json|csv
.quit             or Ctrl-D
Statements end with a semicolon. Ctrl-C ends a query that takes too long.
";

struct Words {
    names: Vec<String>,
}

impl Helper for Words {}
impl Hinter for Words {
    type Hint = String;
}
impl Highlighter for Words {}

impl Validator for Words {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        let text = context.input().trim();
        let is_whole = text.is_empty() || text.starts_with('.') || text.ends_with(';');
        Ok(if is_whole { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Completer for Words {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let before = &line[..at];
        let start = before
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .map_or(0, |place| place + before[place..].chars().next().map_or(1, char::len_utf8));
        let word = before[start..].to_lowercase();
        let found = self.names.iter().filter(|name| name.to_lowercase().starts_with(&word)).cloned();
        Ok((start, found.collect()))
    }
}

/// Where what was typed is kept.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    state.filter(|path| path.is_absolute()).or(home).map(|folder| folder.join("nopal/query_history"))
}

pub(super) fn run(database: &Database, mut form: Form) -> Result<(), Failure> {
    let failed =
        |error: ReadlineError| Failure::new("prompt", format!("the terminal cannot be used: {error}"));
    let config = Config::builder().completion_type(CompletionType::List).build();
    let mut editor: Editor<Words, FileHistory> = Editor::with_config(config).map_err(failed)?;
    let mut names: Vec<String> = WORDS.iter().chain(&DOTS).map(|word| (*word).to_owned()).collect();
    for table in database.tables() {
        names.push(table.name.clone());
        names.extend(table.columns.iter().map(|column| column.name.clone()));
    }
    names.extend(database.views().into_iter().map(|(name, _)| name));
    names.sort();
    names.dedup();
    editor.set_helper(Some(Words { names }));
    let history = history_file();
    if let Some(path) = &history {
        // There may be none yet.
        let _ = editor.load_history(path);
    }
    tell!("{} tables; .help says more, Ctrl-D ends", database.tables().len());
    loop {
        let line = match editor.readline("nopal> ") {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(failed(error)),
        };
        let text = line.trim();
        if text.is_empty() {
            continue;
        }
        let _ = editor.add_history_entry(text);
        match text.split_whitespace().collect::<Vec<_>>()[..] {
            [".quit" | ".exit" | ".q"] => break,
            [".help"] => print(HELP)?,
            [".tables"] => {
                let tables = database.tables().iter().map(|table| table.name.clone());
                let views = database.views().into_iter().map(|(name, _)| name);
                let names: Vec<String> = tables.chain(views).collect();
                print(&format!("{}\n", names.join("\n")))?;
            }
            [".schema"] => print(&rows::tables(database, None))?,
            [".schema", table] => print(&rows::tables(database, Some(table)))?,
            [".mode", "table"] => form = Form::Table,
            [".mode", "json"] => form = Form::Json,
            [".mode", "csv"] => form = Form::Csv,
            [dot, ..] if dot.starts_with('.') => tell!("nopal: `{text}` is not known; .help lists what is"),
            _ => {
                if let Err(failure) = ask(database, text, form) {
                    anstream::eprintln!("{failure}");
                }
                signals::go_on();
            }
        }
    }
    if let Some(path) = history {
        save(&mut editor, &path);
    }
    Ok(())
}

/// Keeps what was typed; a prompt without memory is not a failure.
fn save(editor: &mut Editor<Words, FileHistory>, path: &std::path::Path) {
    if let Some(folder) = path.parent() {
        let _ = nopal_files::own::Folder::make(folder);
    }
    let _ = editor.save_history(path);
}
