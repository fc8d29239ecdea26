//! The tables as SQLite sees them: it asks for a plan (`best_index`), then for rows.

use crate::batch::{Batch, Datum};
use crate::names::quoted;
use crate::plan::{Ask, Op};
use crate::scan::{Part, Scan, Side};
use crate::shared::Shared;
use crate::tables::Rows;
use rusqlite::types::{Null, ValueRef};
use rusqlite::vtab::{
    Context, CreateVTab, Filters, IndexInfo, Module, VTab, VTabConnection, VTabCursor, VTabKind,
};
use rusqlite::{Connection, Error, Result, ffi};
use std::borrow::Cow;
use std::ffi::{CStr, CString, c_int};
use std::marker::PhantomData;
use std::sync::Arc;

const MODULE_NAME: &CStr = c"nopal";

/// Makes the tables of `shared` known.
pub(crate) fn load(connection: &Connection, shared: &Arc<Shared>) -> Result<()> {
    const MODULE: Module<'static, Table> = Module::read_only_module();
    connection.create_module(MODULE_NAME, &MODULE, Some(Arc::clone(shared)))?;
    for (at, table) in shared.tables.iter().enumerate() {
        let name = quoted(&table.name);
        // `grouped` looks for these words.
        connection.execute_batch(&format!("CREATE VIRTUAL TABLE temp.{name} USING nopal({at})"))?;
    }
    Ok(())
}

/// One table.
#[repr(C)]
struct Table {
    /// SQLite's own part, which comes first.
    base: ffi::sqlite3_vtab,
    shared: Arc<Shared>,
    table: usize,
}

// SAFETY: the structure is repr(C) and begins with SQLite's own part, as the trait asks.
unsafe impl<'vtab> VTab<'vtab> for Table {
    type Aux = Arc<Shared>;
    type Cursor = Cursor<'vtab>;

    fn connect(
        _: &mut VTabConnection,
        aux: Option<&Arc<Shared>>,
        _: &[u8],
        _: &[u8],
        _: &[u8],
        args: &[&[u8]],
    ) -> Result<(Cow<'static, CStr>, Self)> {
        let wrong = || Error::ModuleError("tables of nopal are made by nopal".to_owned());
        let shared = aux.ok_or_else(wrong)?;
        let number = args.first().and_then(|arg| std::str::from_utf8(arg).ok());
        let table: usize = number.and_then(|text| text.trim().parse().ok()).ok_or_else(wrong)?;
        let about = shared.tables.get(table).ok_or_else(wrong)?;
        let columns: Vec<String> =
            about.columns.iter().map(|column| format!("{} {}", quoted(&column.name), column.ty)).collect();
        let sql = CString::new(format!("CREATE TABLE x({})", columns.join(", "))).map_err(|_| wrong())?;
        let table = Table { base: ffi::sqlite3_vtab::default(), shared: Arc::clone(shared), table };
        Ok((Cow::Owned(sql), table))
    }

    fn best_index(&self, info: &mut IndexInfo) -> Result<bool> {
        let about = &self.shared.tables[self.table];
        let mut ask = Ask { columns: info.col_used(), comparisons: Vec::new() };
        let mut used = Vec::new();
        for (at, constraint) in info.constraints().enumerate() {
            let Some(column) = usize::try_from(constraint.column()).ok() else { continue };
            let Some(op) = Op::of(constraint.operator()).filter(|_| constraint.is_usable()) else { continue };
            let is_known = match about.columns.get(column).map(|column| column.name.as_str()) {
                Some("ts") => true,
                Some("pid" | "tid" | "recording") => op == Op::Eq,
                // Other collations make other texts equal.
                Some("host" | "provider" | "name" | "event") => {
                    op == Op::Eq && info.collation(at) == Ok("BINARY")
                }
                _ => false,
            };
            if is_known {
                ask.comparisons.push((column, op));
                used.push(at);
            }
        }
        for (argument, at) in used.iter().enumerate() {
            info.constraint_usage(*at).set_argv_index(argument as c_int + 1);
        }
        let is_timed =
            matches!(about.rows, Rows::Events | Rows::Type(..)) && self.shared.recordings.len() == 1;
        let by_time = |order: rusqlite::vtab::OrderBy<'_>| order.column() == 0 && !order.is_order_by_desc();
        if is_timed && info.num_of_order_by() == 1 && info.order_bys().all(by_time) {
            info.set_order_by_consumed(true);
        }
        let n_rows = 1e6 / 10f64.powi(ask.comparisons.len() as i32);
        info.set_estimated_cost(n_rows + 1000.0);
        info.set_estimated_rows(n_rows as i64 + 1);
        info.set_idx_str(&ask.text());
        Ok(true)
    }

    fn open(&'vtab mut self) -> Result<Cursor<'vtab>> {
        Ok(Cursor {
            base: ffi::sqlite3_vtab_cursor::default(),
            shared: Arc::clone(&self.shared),
            table: self.table,
            scan: None,
            batch: Batch::default(),
            row: 0,
            n_before: 0,
            places: Vec::new(),
            width: 0,
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
    shared: Arc<Shared>,
    table: usize,
    /// None at the end.
    scan: Option<Scan>,
    batch: Batch,
    row: usize,
    n_before: i64,
    /// By column: its place among the values of a row.
    places: Vec<Option<usize>>,
    width: usize,
    phantom: PhantomData<&'vtab Table>,
}

impl Cursor<'_> {
    fn next_batch(&mut self) -> Result<()> {
        let Some(scan) = &mut self.scan else { return Ok(()) };
        self.n_before += self.batch.n_rows() as i64;
        self.row = 0;
        match scan.next(std::mem::take(&mut self.batch)) {
            Ok(Some(batch)) => self.batch = batch,
            Ok(None) => self.scan = None,
            Err(why) => {
                self.scan = None;
                return Err(Error::ModuleError(why));
            }
        }
        Ok(())
    }
}

// SAFETY: the structure is repr(C) and begins with SQLite's own part, as the trait asks.
unsafe impl VTabCursor for Cursor<'_> {
    fn filter(&mut self, _: c_int, idx_str: Option<&str>, args: &Filters<'_>) -> Result<()> {
        let wrong = || Error::ModuleError("a plan that is not ours".to_owned());
        let ask = idx_str.and_then(Ask::parse).ok_or_else(wrong)?;
        let sides: Vec<Side> = args
            .iter()
            .map(|value| match value {
                ValueRef::Integer(n) => Side::Integer(n),
                ValueRef::Text(text) => {
                    std::str::from_utf8(text).map_or(Side::Other, |text| Side::Text(text.to_owned()))
                }
                ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => Side::Other,
            })
            .collect();
        let columns: Vec<String> =
            self.shared.tables[self.table].columns.iter().map(|column| column.name.clone()).collect();
        self.places.clear();
        self.width = 0;
        for column in 0..columns.len() {
            let is_used = ask.uses(column);
            self.places.push(is_used.then_some(self.width));
            self.width += usize::from(is_used);
        }
        self.n_before = 0;
        self.batch.clear();
        self.scan = Some(Scan::start(&self.shared, self.table, Part::new(ask, &sides, &columns)));
        self.next_batch()
    }

    fn next(&mut self) -> Result<()> {
        self.row += 1;
        if self.row >= self.batch.n_rows() { self.next_batch() } else { Ok(()) }
    }

    fn eof(&self) -> bool {
        self.scan.is_none()
    }

    fn column(&self, context: &mut Context, column: c_int) -> Result<()> {
        let place =
            usize::try_from(column).ok().and_then(|column| self.places.get(column).copied().flatten());
        let Some(place) = place else { return context.set_result(Null) };
        match self.batch.get(self.row, self.width, place) {
            Datum::Null => context.set_result(Null),
            Datum::Integer(n) => context.set_result(n),
            Datum::Real(n) => context.set_result(n),
            Datum::Text(from, to) => context.set_result(self.batch.text(from, to)),
        }
    }

    fn rowid(&self) -> Result<i64> {
        Ok(self.n_before + self.row as i64 + 1)
    }
}
