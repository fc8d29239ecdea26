//! `nopal query`: SQL over recordings.

use super::answers::print_json;
use super::recordings::{Opened, interrupted, verdict_on};
use crate::failure::Failure;
use crate::verdict::{self, Manner};
use crate::{signals, words};
use nopal_query::{Database, QueryError};
use nopal_sdt::pattern::nearest;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;

mod prompt;
mod rows;

use rows::{Form, Printer};

/// Answers SQL about recordings.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal query pg.rec 'SELECT name, count(*), max(dur) FROM spans GROUP BY name'
  nopal query pg.rec 'SELECT key, percentile_cont(0.99) WITHIN GROUP (ORDER BY dur) AS p99 FROM spans
                      WHERE name = '\\''postgresql:query'\\'' GROUP BY key ORDER BY p99 DESC LIMIT 10'
  nopal query a.rec b.rec 'SELECT host, event, count(*) FROM events GROUP BY host, event'
  nopal query pg.rec --csv 'SELECT * FROM postgresql_query__start' > queries.csv
  nopal query pg.rec --tables                      the tables and their columns
  nopal query pg.rec                               a prompt, with completion and history
  nopal query pg.rec < report.sql

Tables: events, spans, histograms, losses, recordings, and one for each event type: provider:name is provider_name. Times and
durations are nanoseconds; ts is since the epoch. SQLite's language, with percentile_cont and median. Conditions on ts, pid, tid, host, event,
provider, name and recording are answered by reading less. Sums by groups over one table are worked out while it is read, on all cores.
docs/recordings.md has the columns, and says which statements that are.")]
pub(super) struct Args {
    /// The recordings (folders, or names of sessions), then the SQL. Without SQL a prompt, or what standard input says.
    #[arg(value_name = "RECORDING... [SQL]", required = true)]
    pub words: Vec<String>,
    /// Lists the tables and their columns.
    #[arg(long)]
    pub tables: bool,
    /// Prints one JSON object with described columns.
    #[arg(long)]
    pub json: bool,
    /// Prints comma-separated values.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// A file that declares spans; without it `nopal.toml` here, if there is one.
    #[arg(long = "spans", value_name = "FILE.toml")]
    pub spans_file: Option<PathBuf>,
}

/// No statement anybody writes is near this.
const MAX_SQL_BYTES: u64 = 1 << 20;

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let (named, sql) = split(&args.words)?;
    let opened = Opened::open(&named, args.spans_file.as_deref())?;
    signals::stop_on_signals();
    let database = Database::open(opened.all, opened.available, signals::is_stopped)
        .map_err(|error| Failure::new("query", error.to_string()))?;
    let form = match (args.json, args.csv) {
        (true, _) => Form::Json,
        (_, true) => Form::Csv,
        _ => Form::Table,
    };
    if args.tables {
        return match form {
            Form::Json => print_json(&format!("{}\n", rows::tables_json(&database))),
            Form::Csv | Form::Table => super::answers::print(&rows::tables(&database, None)),
        };
    }
    let sql = match sql {
        Some(sql) => sql,
        None if io::stdin().is_terminal() => return prompt::run(&database, form),
        None => {
            let mut sql = String::new();
            io::stdin()
                .lock()
                .take(MAX_SQL_BYTES)
                .read_to_string(&mut sql)
                .map_err(|error| Failure::new("cannot-read", format!("standard input: {error}")))?;
            sql
        }
    };
    ask(&database, &sql, form)
}

/// The last word is SQL if it is neither a folder nor a single word.
fn split(words: &[String]) -> Result<(Vec<PathBuf>, Option<String>), Failure> {
    let is_sql = |word: &String| !PathBuf::from(word).exists() && word.trim().contains(char::is_whitespace);
    match words.split_last() {
        Some((last, [])) if is_sql(last) => Err(Failure::usage("no recording is named")
            .hint("the recordings come first, then the SQL: nopal query DIR 'SELECT ...'")),
        Some((last, rest)) if is_sql(last) => {
            Ok((rest.iter().map(PathBuf::from).collect(), Some(last.clone())))
        }
        _ => Ok((words.iter().map(PathBuf::from).collect(), None)),
    }
}

/// One question, answered on standard output; the last line on standard error says what is missing.
fn ask(database: &Database, sql: &str, form: Form) -> Result<(), Failure> {
    let mut printer = Printer::new(form);
    database.query(sql, &mut printer).map_err(|error| failure_of(&error, sql, database))?;
    let (reports, n_damaged) = database.reports().map_err(|error| failure_of(&error, sql, database))?;
    let verdict = verdict_on(reports.iter(), n_damaged);
    let n_rows = printer.finish(&verdict, database)?;
    if form != Form::Json {
        tell!("{}; {}", words::counted(n_rows, "row"), verdict::text(&verdict, Manner::SESSION));
    }
    Ok(())
}

fn failure_of(error: &QueryError, sql: &str, database: &Database) -> Failure {
    match error {
        QueryError::Interrupted => interrupted("the answer is not whole"),
        QueryError::Read(why) => Failure::new("cannot-read", why.clone())
            .hint("`nopal view RECORDING --count` says what can be read of it"),
        QueryError::Sql { message, offset } => {
            let place = offset.and_then(|offset| pointed(sql, offset));
            let failure = Failure::new(
                "bad-sql",
                match place {
                    Some(place) => format!("{message}\n{place}"),
                    None => message.clone(),
                },
            );
            failure.hint(hint(message, sql, database))
        }
    }
}

/// The line of the statement in which it went wrong, and a mark below the place.
fn pointed(sql: &str, offset: usize) -> Option<String> {
    let before = sql.get(..offset)?;
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = sql[start..].lines().next()?;
    let column = sql[start..offset].chars().count();
    Some(format!("  {line}\n  {}^", " ".repeat(column)))
}

/// What to try instead.
fn hint(message: &str, sql: &str, database: &Database) -> String {
    let names = || database.tables().iter().map(|table| table.name.as_str());
    let of = |prefix: &str| message.strip_prefix(prefix).map(|rest| rest.trim().to_owned());
    if let Some(table) = of("no such table: ") {
        return match nearest(&table.replace(':', "_"), names()) {
            Some(near) => format!("did you mean `{near}`? `nopal query RECORDING --tables` lists all"),
            None => "`nopal query RECORDING --tables` lists the tables".to_owned(),
        };
    }
    if let Some(column) = of("no such column: ") {
        let column = column.rsplit('.').next().unwrap_or(&column).to_owned();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let is_named = |name: &str| sql.split(|c| !is_word(c)).any(|word| word.eq_ignore_ascii_case(name));
        let named = database.tables().iter().filter(|table| is_named(&table.name));
        let columns = named.flat_map(|table| table.columns.iter().map(|c| c.name.as_str()));
        return match nearest(&column, columns) {
            Some(near) => format!("did you mean `{near}`? Texts have single quotes in SQL"),
            None => "texts have single quotes in SQL; `--tables` lists the columns".to_owned(),
        };
    }
    if message.contains("not authorized") || message.contains("authorization denied") {
        return "only recordings are read here; --json, --csv and `nopal export` give what others read"
            .to_owned();
    }
    "it is SQLite's language; `nopal query RECORDING --tables` lists tables and columns".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_is_sql_if_it_can_only_be_that() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (named, sql) = split(&words(&["a.rec", "b.rec", "SELECT 1"])).unwrap();
        assert_eq!((named.len(), sql.as_deref()), (2, Some("SELECT 1")));
        assert_eq!(split(&words(&["a.rec", "b.rec"])).unwrap().1, None);
        assert!(split(&words(&["SELECT 1"])).is_err());
    }

    #[test]
    fn a_mark_shows_the_place() {
        assert_eq!(pointed("SELECT\n  x FRM y", 15).as_deref(), Some("    x FRM y\n          ^"));
        assert_eq!(pointed("SELECT", 99), None);
    }
}
