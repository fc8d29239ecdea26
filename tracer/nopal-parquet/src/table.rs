//! One table being written: rows are gathered by column and written a group of rows at a time.

use nopal_export::{Column, Kind, Out};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Rows to a group, if they are small.
const GROUP_ROWS: usize = 1 << 16;
/// Bytes of text to a group.
const GROUP_BYTES: usize = 16 << 20;

/// A value on its way into a column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Datum<'a> {
    None,
    Integer(i64),
    Unsigned(u64),
    Float(f64),
    Text(&'a [u8]),
}

/// A Parquet file of rows.
pub struct Table {
    writer: SerializedFileWriter<Out>,
    columns: Vec<Gathered>,
    n_rows: usize,
    n_text_bytes: usize,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("columns", &self.columns.len()).field("n_rows", &self.n_rows).finish()
    }
}

/// The values of one column; a level of 0 stands for none.
enum Gathered {
    Integers(Vec<i64>, Vec<i16>),
    Floats(Vec<f64>, Vec<i16>),
    Texts(Vec<ByteArray>, Vec<i16>),
}

impl Table {
    pub fn new(out: Out, columns: &[Column]) -> io::Result<Table> {
        let fields = columns.iter().map(|column| field(column).map(Arc::new)).collect::<Result<Vec<_>, _>>();
        let schema = fields.and_then(|fields| Type::group_type_builder("nopal").with_fields(fields).build());
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(concat!("nopal ", env!("CARGO_PKG_VERSION")).to_owned())
            .build();
        let writer =
            schema.and_then(|schema| SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties)));
        let gathered = |column: &Column| match column.kind {
            Kind::Integer | Kind::Unsigned => Gathered::Integers(Vec::new(), Vec::new()),
            Kind::Float => Gathered::Floats(Vec::new(), Vec::new()),
            Kind::Text => Gathered::Texts(Vec::new(), Vec::new()),
        };
        Ok(Table {
            writer: writer.map_err(io_error)?,
            columns: columns.iter().map(gathered).collect(),
            n_rows: 0,
            n_text_bytes: 0,
        })
    }

    /// The next value of a column. Every column gets one for each row.
    pub fn put(&mut self, column: usize, datum: Datum<'_>) {
        match &mut self.columns[column] {
            Gathered::Integers(values, levels) => {
                let value = match datum {
                    Datum::Integer(n) => Some(n),
                    Datum::Unsigned(n) => Some(n as i64),
                    Datum::None | Datum::Float(_) | Datum::Text(_) => None,
                };
                levels.push(i16::from(value.is_some()));
                values.extend(value);
            }
            Gathered::Floats(values, levels) => {
                let value = match datum {
                    Datum::Float(n) => Some(n),
                    Datum::Integer(n) => Some(n as f64),
                    Datum::Unsigned(n) => Some(n as f64),
                    Datum::None | Datum::Text(_) => None,
                };
                levels.push(i16::from(value.is_some()));
                values.extend(value);
            }
            Gathered::Texts(values, levels) => {
                let value = match datum {
                    Datum::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
                    Datum::Integer(n) => Some(n.to_string()),
                    Datum::Unsigned(n) => Some(n.to_string()),
                    Datum::Float(n) => Some(n.to_string()),
                    Datum::None => None,
                };
                self.n_text_bytes += value.as_ref().map_or(0, String::len);
                levels.push(i16::from(value.is_some()));
                values.extend(value.map(|text| ByteArray::from(text.into_bytes())));
            }
        }
    }

    /// All columns of a row have their values.
    pub fn end_row(&mut self) {
        self.n_rows += 1;
        if self.n_rows >= GROUP_ROWS || self.n_text_bytes >= GROUP_BYTES {
            self.write_group();
        }
    }

    fn write_group(&mut self) {
        if self.n_rows > 0
            && let Err(error) = self.try_write_group()
        {
            self.out().fail(io_error(error));
        }
        self.n_rows = 0;
        self.n_text_bytes = 0;
    }

    fn try_write_group(&mut self) -> Result<(), ParquetError> {
        let mut group = self.writer.next_row_group()?;
        for column in &mut self.columns {
            let Some(mut writer) = group.next_column()? else { break };
            match column {
                Gathered::Integers(values, levels) => {
                    writer.typed::<Int64Type>().write_batch(values, Some(levels), None)?;
                    values.clear();
                    levels.clear();
                }
                Gathered::Floats(values, levels) => {
                    writer.typed::<DoubleType>().write_batch(values, Some(levels), None)?;
                    values.clear();
                    levels.clear();
                }
                Gathered::Texts(values, levels) => {
                    writer.typed::<ByteArrayType>().write_batch(values, Some(levels), None)?;
                    values.clear();
                    levels.clear();
                }
            }
            writer.close()?;
        }
        group.close().map(|_| ())
    }

    /// Writes the rest and the end of the file.
    pub fn finish(&mut self) {
        self.write_group();
        if let Err(error) = self.writer.finish() {
            self.out().fail(io_error(error));
        }
    }

    pub fn out(&mut self) -> &mut Out {
        self.writer.inner_mut()
    }
}

fn field(column: &Column) -> Result<Type, ParquetError> {
    let (physical, logical) = match column.kind {
        Kind::Integer => (Physical::INT64, None),
        Kind::Unsigned => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Kind::Float => (Physical::DOUBLE, None),
        Kind::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
    };
    Type::primitive_type_builder(&column.name, physical)
        .with_repetition(Repetition::OPTIONAL)
        .with_logical_type(logical)
        .build()
}

fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        other => io::Error::other(other),
    }
}
