//! Recordings as a database that lives as long as the command.

use crate::grouped::{self, Failure, Given, Statement};
use crate::ordered;
use crate::shared::Shared;
use crate::tables::{TableInfo, tables_of};
use crate::vtab;
use nopal_spans::histogram::bucket_of;
use nopal_spans::{Available, Unmatched};
use nopal_trace::{Recording, Report};
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Error};
use std::cell::Cell;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A database over recordings.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
    shared: Arc<Shared>,
    groups: Given,
    /// SQLite reads every row itself: a PRAGMA may have changed its rules.
    is_plain: Cell<bool>,
}

/// Takes the rows of an answer as they come.
pub trait Answer {
    /// The names of the columns, before any row. A statement without an answer has none.
    fn columns(&mut self, names: &[String]);
    /// False to end.
    fn row(&mut self, values: &[ValueRef<'_>]) -> bool;
}

/// Why SQL gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryError {
    /// SQLite does not understand it; with the place where it stopped, in bytes.
    Sql {
        message: String,
        offset: Option<usize>,
    },
    /// A recording could not be read.
    Read(String),
    Interrupted,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueryError::Sql { message, .. } | QueryError::Read(message) => f.write_str(message),
            QueryError::Interrupted => f.write_str("interrupted"),
        }
    }
}

/// Pages of tables that SQLite makes for itself: a sum over many groups may go to the disk.
const CACHE_KIB: u32 = 64 << 10;
/// Steps of SQLite's machine between two looks at whether to stop.
const STEPS: i32 = 100_000;

impl Database {
    /// `is_stopped` is asked now and then.
    pub fn open(
        recordings: Vec<(PathBuf, Recording)>,
        available: Available,
        is_stopped: fn() -> bool,
    ) -> Result<Database, QueryError> {
        let tables = tables_of(&recordings);
        let shared = Arc::new(Shared::new(recordings, available, tables, is_stopped));
        let mut connection = Connection::open_in_memory().map_err(sql_error)?;
        connection
            .execute_batch(&format!("PRAGMA cache_size = -{CACHE_KIB}; PRAGMA temp_store = FILE"))
            .map_err(sql_error)?;
        connection.progress_handler(STEPS, Some(is_stopped)).map_err(sql_error)?;
        // Recordings are read; nothing else is, and nothing is written (ATTACH, VACUUM INTO).
        let is_allowed = |asked: AuthContext<'_>| match asked.action {
            AuthAction::Attach { .. } => Authorization::Deny,
            _ => Authorization::Allow,
        };
        connection.authorizer(Some(is_allowed)).map_err(sql_error)?;
        vtab::load(&connection, &shared).map_err(sql_error)?;
        let groups = Given::default();
        grouped::load(&connection, &groups).map_err(sql_error)?;
        let database = Database { connection, shared, groups, is_plain: Cell::new(false) };
        database.make_views()?;
        Ok(database)
    }

    /// Views on the spans of well-known programs, where they are there.
    fn make_views(&self) -> Result<(), QueryError> {
        const VIEWS: [(&str, &str, &[&str]); 3] = [
            ("pg_statements", "key AS query", &["postgresql:query"]),
            ("redis_commands", "key AS command", &["redis:command", "valkey_commands:command_call"]),
            ("gc_pauses", "name AS program", &["ruby:gc", "hotspot:gc", "python:gc", "node:gc"]),
        ];
        self.make_histograms()?;
        for (view, column, names) in VIEWS {
            let there: Vec<String> = names
                .iter()
                .filter(|name| self.shared.spans.iter().any(|span| span.full_name() == **name))
                .map(|name| format!("'{name}'"))
                .collect();
            if !there.is_empty() && !self.shared.tables.iter().any(|table| table.name == view) {
                let sql = format!(
                    "CREATE TEMP VIEW {view} AS SELECT ts, dur, self, {column}, host, pid, tid, error, args, \
                     recording FROM spans WHERE name IN ({})",
                    there.join(", ")
                );
                self.connection.execute_batch(&sql).map_err(sql_error)?;
            }
        }
        Ok(())
    }

    /// The rows that `export --dataset` writes of the same recordings, so that what is asked of a fleet can be asked here.
    fn make_histograms(&self) -> Result<(), QueryError> {
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
        for (name, is_high) in [("bucket_low", false), ("bucket_high", true)] {
            let bound = move |context: &Context<'_>| {
                let ns: Option<i64> = context.get(0)?;
                let bounds = ns.map(|ns| bucket_of(ns.max(0).unsigned_abs()));
                let bound = bounds.map(|(low, high)| if is_high { high } else { low });
                Ok(bound.map(|bound| i64::try_from(bound).unwrap_or(i64::MAX)))
            };
            self.connection.create_scalar_function(name, 1, flags, bound).map_err(sql_error)?;
        }
        if self.shared.tables.iter().any(|table| table.name == "histograms") {
            return Ok(());
        }
        let sql = "CREATE TEMP VIEW histograms AS SELECT host, date(ts / 1000000000, 'unixepoch') AS day, name AS span, \
                   '' AS value, ts - ts % 60000000000 AS minute, bucket_low(dur) AS bucket, \
                   bucket_high(dur) AS bucket_high, count(*) AS count, sum(dur) AS sum, max(dur) AS max, \
                   sum(error) AS errors FROM spans GROUP BY host, day, span, minute, bucket, bucket_high";
        self.connection.execute_batch(sql).map_err(sql_error)
    }

    pub fn tables(&self) -> &[TableInfo] {
        &self.shared.tables
    }

    /// The views that were made, with their SQL.
    pub fn views(&self) -> Vec<(String, String)> {
        let sql = "SELECT name, sql FROM temp.sqlite_schema WHERE type = 'view' ORDER BY name";
        let rows = self.connection.prepare(sql).and_then(|mut statement| {
            statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<Vec<_>, _>>()
        });
        rows.unwrap_or_default()
    }

    /// Runs statements, one after the other; gives the rows of each to `answer`.
    pub fn query(&self, sql: &str, answer: &mut dyn Answer) -> Result<(), QueryError> {
        self.run(sql, answer).map_err(|error| {
            // SQLite hands on the words of a table, and not that they were a table's.
            let failed = self.shared.take_failure();
            failed.map_or(error, QueryError::Read)
        })
    }

    fn run(&self, sql: &str, answer: &mut dyn Answer) -> Result<(), QueryError> {
        let rewritten = ordered::rewrite(sql);
        // A place in another text would mislead.
        let is_same = rewritten == sql;
        let sql_error = |error| match sql_error(error) {
            QueryError::Sql { message, offset } => {
                QueryError::Sql { message, offset: offset.filter(|_| is_same) }
            }
            other => other,
        };
        let mut batch = rusqlite::Batch::new(&self.connection, &rewritten);
        let mut has_any = false;
        while let Some(mut statement) = batch.next().map_err(sql_error)? {
            has_any = true;
            let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
            let n_columns = names.len();
            answer.columns(&names);
            // Its own text, of all that were given.
            let text = statement.expanded_sql().unwrap_or_default();
            if text.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("pragma")) {
                self.is_plain.set(true);
            }
            if let Some(goes_on) = self.run_grouped(&text, n_columns, answer)? {
                if !goes_on {
                    return Ok(());
                }
                continue;
            }
            if !give(&mut statement, n_columns, answer).map_err(sql_error)? {
                return Ok(());
            }
        }
        match has_any {
            true => Ok(()),
            false => Err(QueryError::Sql { message: "there is no statement in it".to_owned(), offset: None }),
        }
    }

    /// Runs a statement that adds up rows by groups without giving SQLite the rows; none if it is not such a one.
    fn run_grouped(
        &self,
        sql: &str,
        n_columns: usize,
        answer: &mut dyn Answer,
    ) -> Result<Option<bool>, QueryError> {
        let recognised =
            if self.is_plain.get() { None } else { grouped::recognise(sql, &self.shared.tables) };
        let Some(statement) = recognised.filter(|statement| self.is_ours(statement)) else { return Ok(None) };
        grouped::create(&self.connection, &statement).map_err(sql_error)?;
        let given = self.run_over_groups(&statement, n_columns, answer);
        self.groups.set(Vec::new());
        grouped::drop_table(&self.connection).map_err(sql_error)?;
        given
    }

    fn run_over_groups(
        &self,
        statement: &Statement,
        n_columns: usize,
        answer: &mut dyn Answer,
    ) -> Result<Option<bool>, QueryError> {
        // What SQLite does not understand was not understood here, either.
        let Ok(mut prepared) = self.connection.prepare(&statement.sql) else { return Ok(None) };
        if prepared.column_count() != n_columns {
            return Ok(None);
        }
        let groups = grouped::read(&self.shared, statement).map_err(|failure| match failure {
            Failure::Read(why) => QueryError::Read(why),
            Failure::Interrupted => QueryError::Interrupted,
        })?;
        let Some(groups) = groups else { return Ok(None) };
        self.groups.set(groups);
        give(&mut prepared, n_columns, answer).map(Some).map_err(sql_error)
    }

    /// Whether the rows of a statement need not be given to SQLite.
    #[cfg(test)]
    pub(crate) fn is_answered_by_groups(&self, statement: &Statement) -> bool {
        grouped::create(&self.connection, statement).unwrap();
        let is_right = self.connection.prepare(&statement.sql).is_ok();
        grouped::drop_table(&self.connection).unwrap();
        is_right && self.is_ours(statement) && matches!(grouped::read(&self.shared, statement), Ok(Some(_)))
    }

    /// Whether the name still means the table that was made of recordings.
    fn is_ours(&self, statement: &Statement) -> bool {
        let sql = "SELECT count(*) FROM temp.sqlite_schema WHERE lower(name) = lower(?1) AND sql LIKE ?2";
        let name = &self.shared.tables[statement.table].name;
        let like = format!("CREATE VIRTUAL TABLE%USING nopal({})", statement.table);
        self.connection.query_row(sql, [name, &like], |row| row.get::<_, i64>(0)) == Ok(1)
    }

    /// What is missing in the recordings, whatever was asked of them; and events that could not be read.
    pub fn reports(&self) -> Result<(Vec<Report>, u64), QueryError> {
        let known = self.shared.reports();
        let (mut reports, mut n_damaged) = (Vec::new(), 0);
        for (at, known) in known.into_iter().enumerate() {
            match known {
                Some((report, n)) => {
                    reports.push(report);
                    n_damaged += n;
                }
                None => reports.push(self.shared.counts().map_err(QueryError::Read)?[at].report.clone()),
            }
        }
        Ok((reports, n_damaged))
    }

    /// Of the last query that read all spans.
    pub fn unmatched(&self) -> Unmatched {
        self.shared.unmatched()
    }
}

/// Runs a statement; false if nobody wants more of it.
fn give(
    statement: &mut rusqlite::Statement<'_>,
    n_columns: usize,
    answer: &mut dyn Answer,
) -> rusqlite::Result<bool> {
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let values: Vec<ValueRef<'_>> =
            (0..n_columns).map(|at| row.get_ref(at).unwrap_or(ValueRef::Null)).collect();
        if !answer.row(&values) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sql_error(error: Error) -> QueryError {
    use rusqlite::ffi::ErrorCode;
    match error {
        Error::SqliteFailure(failure, _) if failure.code == ErrorCode::OperationInterrupted => {
            QueryError::Interrupted
        }
        Error::SqlInputError { msg, offset, .. } => {
            QueryError::Sql { message: msg, offset: usize::try_from(offset).ok() }
        }
        Error::ModuleError(message) => QueryError::Read(message),
        Error::SqliteFailure(_, Some(message)) => QueryError::Sql { message, offset: None },
        other => QueryError::Sql { message: other.to_string(), offset: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The flags in `.cargo/config.toml` switch them on; `ordered` writes them as SQLite reads them.
    #[test]
    fn sqlite_has_percentiles() {
        let sql = "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x) FROM (SELECT 1 AS x UNION SELECT 2)";
        let connection = Connection::open_in_memory().unwrap();
        assert_eq!(connection.query_row(&ordered::rewrite(sql), [], |row| row.get::<_, f64>(0)), Ok(1.5));
    }
}
