//! Things added up by group. Beyond a number of groups, what is new goes into one that stands for all others.

use crate::table::Cell;
use nopal_spans::Value;
use std::collections::HashMap;

/// What is added up, by the values that tell groups apart.
#[derive(Debug)]
pub(crate) struct Groups<T> {
    by_key: HashMap<Box<[u8]>, usize>,
    pub all: Vec<(Vec<Cell>, T)>,
    others: Option<usize>,
    /// Things that were added to the group of all others.
    pub n_folded: u64,
    key: Vec<u8>,
    max: usize,
}

pub(crate) const MAX_GROUPS: usize = 10_000;

impl<T> Default for Groups<T> {
    fn default() -> Self {
        Groups {
            by_key: HashMap::new(),
            all: Vec::new(),
            others: None,
            n_folded: 0,
            key: Vec::new(),
            max: MAX_GROUPS,
        }
    }
}

impl<T: Default> Groups<T> {
    /// Beyond this many, what is new is one group.
    pub(crate) fn limit(&mut self, max: usize) {
        self.max = max;
    }

    /// The group of these values.
    pub(crate) fn get<'v>(&mut self, values: impl Iterator<Item = Value<'v>> + Clone) -> usize {
        self.key.clear();
        values.clone().for_each(|value| value.identify(&mut self.key));
        if let Some(at) = self.by_key.get(&self.key[..]) {
            return *at;
        }
        if self.all.len() >= self.max {
            self.n_folded += 1;
            return self.others(values.count());
        }
        self.all.push((values.map(Cell::from).collect(), T::default()));
        self.by_key.insert(self.key.as_slice().into(), self.all.len() - 1);
        self.all.len() - 1
    }

    /// The group of all others, with so many values.
    pub(crate) fn others(&mut self, n_values: usize) -> usize {
        *self.others.get_or_insert_with(|| {
            self.all.push((vec![Cell::Text("(others)".to_owned()); n_values], T::default()));
            self.all.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_groups_become_one() {
        let mut groups: Groups<u64> = Groups::default();
        for n in 0..3 * MAX_GROUPS as u64 {
            let group = groups.get([Value::Unsigned(n)].into_iter());
            groups.all[group].1 += 1;
        }
        assert_eq!(groups.all.len(), MAX_GROUPS + 1);
        assert_eq!(groups.n_folded, 2 * MAX_GROUPS as u64);
        assert_eq!(groups.all[MAX_GROUPS], (vec![Cell::Text("(others)".into())], 2 * MAX_GROUPS as u64));
        let again = groups.get([Value::Unsigned(7)].into_iter());
        assert_eq!(groups.all[again].0, [Cell::Integer(7)]);
    }
}
