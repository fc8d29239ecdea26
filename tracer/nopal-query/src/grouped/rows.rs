//! Groups as a table that SQLite reads, for the length of a statement.

use super::evaluate::Scalar;
use super::statement::{GROUPS, Statement, column_name};
use super::sums::Grouped;
use crate::names::quoted;
use rusqlite::types::Null;
use rusqlite::vtab::{
    Context, CreateVTab, Filters, IndexInfo, Module, VTab, VTabConnection, VTabCursor, VTabKind,
};
use rusqlite::{Connection, Error, Result, ffi};
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

const MODULE_NAME: &CStr = c"nopal_groups";

/// What was added up for the statement at hand.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given(Arc<Mutex<Arc<Vec<Grouped>>>>);

impl Given {
    pub(crate) fn set(&self, groups: Vec<Grouped>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(groups);
    }

    fn get(&self) -> Arc<Vec<Grouped>> {
        Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(crate) fn load(connection: &Connection, given: &Given) -> Result<()> {
    const MODULE: Module<'static, Table> = Module::read_only_module();
    connection.create_module(MODULE_NAME, &MODULE, Some(given.clone()))
}

/// Makes the table of a statement's groups, which must be there when it is read.
pub(crate) fn create(connection: &Connection, statement: &Statement) -> Result<()> {
    let column = |(at, ty): (usize, &&str)| format!("{} {ty}", quoted(&column_name(at)));
    let columns: Vec<String> = statement.types.iter().enumerate().map(column).collect();
    let (name, columns) = (quoted(GROUPS), columns.join(", "));
    connection.execute_batch(&format!("CREATE VIRTUAL TABLE temp.{name} USING nopal_groups({columns})"))
}

pub(crate) fn drop_table(connection: &Connection) -> Result<()> {
    connection.execute_batch(&format!("DROP TABLE temp.{}", quoted(GROUPS)))
}

#[repr(C)]
struct Table {
    /// SQLite's own part, which comes first.
    base: ffi::sqlite3_vtab,
    given: Given,
}

// SAFETY: the structure is repr(C) and begins with SQLite's own part, as the trait asks.
unsafe impl<'vtab> VTab<'vtab> for Table {
    type Aux = Given;
    type Cursor = Cursor<'vtab>;

    fn connect(
        _: &mut VTabConnection,
        aux: Option<&Given>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let wrong = || Error::ModuleError("tables of nopal are made by nopal".to_owned());
        let given = aux.ok_or_else(wrong)?.clone();
        let columns: Vec<Cow<'_, str>> = args.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
        let sql = CString::new(format!("CREATE TABLE x({})", columns.join(", "))).map_err(|_| wrong())?;
        Ok((Cow::Owned(sql), Table { base: ffi::sqlite3_vtab::default(), given }))
    }

    /// SQLite checks every row: there are few.
    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        info.set_estimated_cost(1000.0);
        info.set_estimated_rows(1000);
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor<'vtab>> {
        Ok(Cursor {
            base: ffi::sqlite3_vtab_cursor::default(),
            groups: self.given.get(),
            row: 0,
            phantom: PhantomData,
        })
    }
}

impl CreateVTab<'_> for Table {
    const KIND: VTabKind = VTabKind::Default;
}

#[repr(C)]
struct Cursor<'vtab> {
    /// SQLite's own part, which comes first.
    base: ffi::sqlite3_vtab_cursor,
    groups: Arc<Vec<Grouped>>,
    row: usize,
    phantom: PhantomData<&'vtab Table>,
}

// SAFETY: the structure is repr(C) and begins with SQLite's own part, as the trait asks.
unsafe impl VTabCursor for Cursor<'_> {
    fn filter(&mut self, _: c_int, _: Option<&str>, _: &Filters<'_>) -> Result<()> {
        self.row = 0;
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.row += 1;
        Ok(())
    }

    fn eof(&self) -> bool {
        self.row >= self.groups.len()
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let row = self.groups.get(self.row);
        let value = row.zip(usize::try_from(column).ok()).and_then(|(row, column)| row.get(column));
        match value {
            None | Some(Scalar::Null) => context.set_result(Null),
            Some(Scalar::Integer(n)) => context.set_result(*n),
            Some(Scalar::Real(n)) => context.set_result(*n),
            Some(Scalar::Text(text)) => context.set_result(&**text),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.row as i64 + 1)
    }
}
