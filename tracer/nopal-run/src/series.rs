//! The time series of a running script.

use nopal_program::series::{Points, SERIES_KEY_AT, Series};
use nopal_program::{MapDef, MapValue, Program};
use nopal_script::render::{Names, Renderer, series_rows};
use std::collections::BTreeMap;

/// By map.
#[derive(Debug, Default)]
pub(crate) struct SeriesMaps {
    maps: BTreeMap<u32, SeriesMap>,
}

#[derive(Debug)]
struct SeriesMap {
    name: String,
    series: Series,
    max_entries: usize,
    by_key: BTreeMap<Vec<u8>, Points>,
    n_refused: u64,
}

impl SeriesMaps {
    pub(crate) fn new(program: &Program) -> SeriesMaps {
        let of = |(at, def): (usize, &MapDef)| {
            let MapValue::Series(series) = def.value else { return None };
            let max_entries = if def.key.is_empty() { 1 } else { program.room(at).0 as usize };
            let name = def.name.clone();
            Some((at as u32, SeriesMap { name, series, max_entries, by_key: BTreeMap::new(), n_refused: 0 }))
        };
        SeriesMaps { maps: program.maps.iter().enumerate().filter_map(of).collect() }
    }

    pub(crate) fn is_of(&self, map: u32) -> bool {
        self.maps.contains_key(&map)
    }

    /// Takes in what a hit has handed over.
    pub(crate) fn take(
        &mut self,
        program: &Program,
        map: u32,
        payload: &[u8],
        epoch_ns: impl Fn(u64) -> u64,
    ) {
        let (Some(of), Some(def)) = (self.maps.get_mut(&map), program.maps.get(map as usize)) else { return };
        let word = |at: usize| Some(u64::from_le_bytes(payload.get(at..at + 8)?.try_into().ok()?));
        let (Some(ns), Some(value)) = (word(0), word(8)) else { return };
        let at = SERIES_KEY_AT as usize;
        let Some(key) = payload.get(at..at + def.key_bytes() as usize) else { return };
        let ns = if of.series.is_given_time { ns } else { epoch_ns(ns) };
        if let Some(points) = of.by_key.get_mut(key) {
            points.take(of.series, ns, value);
        } else if of.by_key.len() < of.max_entries {
            of.by_key.entry(key.to_vec()).or_default().take(of.series, ns, value);
        } else {
            of.n_refused += 1;
        }
    }

    pub(crate) fn forget(&mut self, map: u32, key: &[u8]) {
        if let Some(of) = self.maps.get_mut(&map) {
            of.by_key.remove(key);
        }
    }

    pub(crate) fn clear(&mut self, map: u32) {
        if let Some(of) = self.maps.get_mut(&map) {
            of.by_key.clear();
        }
    }

    /// Keeps the keys.
    pub(crate) fn zero(&mut self, map: u32) {
        if let Some(of) = self.maps.get_mut(&map) {
            of.by_key.values_mut().for_each(|points| *points = Points::default());
        }
    }

    pub(crate) fn print(&self, map: u32, renderer: &Renderer<'_>, out: &mut Vec<u8>) {
        let Some((of, def)) = self.maps.get(&map).zip(renderer.program.maps.get(map as usize)) else {
            return;
        };
        renderer.series(def, of.series, &of.entries(), out);
    }

    /// As rows of an answer, behind those that are there.
    pub(crate) fn rows(&self, map: u32, def: &MapDef, names: &dyn Names, out: &mut Vec<u8>) {
        let Some(of) = self.maps.get(&map) else { return };
        let mut rows = Vec::new();
        series_rows(def, of.series, &of.entries(), names, &mut rows);
        if !rows.is_empty() && !out.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(&rows);
    }

    /// By map: values of keys that had no room.
    pub(crate) fn full(&self) -> Vec<(String, u64)> {
        let full = self.maps.values().filter(|of| of.n_refused > 0);
        full.map(|of| (of.name.clone(), of.n_refused)).collect()
    }
}

impl SeriesMap {
    fn entries(&self) -> Vec<(Vec<u8>, Points)> {
        self.by_key.iter().map(|(key, points)| (key.clone(), points.clone())).collect()
    }
}
