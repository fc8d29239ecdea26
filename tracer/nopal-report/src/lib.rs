//! Recordings as one HTML page that needs nothing else. Events are added up when the page is made (`gather`), into cells
//! of time (`cells`), so that its size depends on what there is to see and not on the number of events. Opens no file.

mod cells;
mod gather;
mod kept;
mod page;
mod sample;

pub use gather::{Failed, Made, Side, gather};
pub use page::{Named, Page, write};
