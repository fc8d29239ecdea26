//! How many places in its file a point is at, where they are counted by themselves.

use crate::catalog::LiveCatalog;
use nopal_program::{Point, PointKind};
use std::path::Path;

/// A probe may have several; any other point is one.
pub fn n_locations(catalog: &LiveCatalog, point: &Point) -> usize {
    let PointKind::Usdt { path, provider, name } = &point.kind else { return 1 };
    let Some(file) = catalog.named_file(Path::new(path)) else { return 1 };
    let same = file.probes.iter().filter(|probe| probe.provider == *provider && probe.name == *name);
    same.map(|probe| probe.sites.len()).sum::<usize>().max(1)
}
