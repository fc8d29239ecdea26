//! The entries of one map: found by the bytes of their key, without allocating but for a new entry.
//!
//! Entries lie one after another; an index of open places with linear probing leads to them.

use crate::aggregate::Aggregate;
use crate::{MapDef, MapValue};

/// One map's entries.
#[derive(Debug, Clone)]
pub struct Table {
    key_bytes: usize,
    value_words: usize,
    aggregate: Option<Aggregate>,
    max_entries: usize,
    keys: Vec<u8>,
    values: Vec<u64>,
    len: usize,
    /// 1 + the entry's number; 0 is an open place. Its length is a power of two.
    index: Vec<u32>,
    seed: u64,
    /// By entry: when it was last changed, if the one unused for the longest time makes room for a new one.
    used: Option<Vec<u64>>,
    now: u64,
    /// Entries that were not made because the map was full.
    pub n_refused: u64,
}

const FIRST_INDEX: usize = 16;

impl Table {
    /// `seed` keeps a traced program from choosing keys that collide.
    pub fn new(def: &MapDef, max_entries: u32, seed: u64) -> Table {
        Table {
            key_bytes: def.key_bytes() as usize,
            value_words: def.value_bytes() as usize / 8,
            aggregate: match &def.value {
                MapValue::Plain(_) | MapValue::Series(_) => None,
                MapValue::Aggregate(aggregate) => Some(*aggregate),
            },
            // A map without a key has one entry, whatever the limit.
            max_entries: if def.key.is_empty() { 1 } else { max_entries as usize },
            keys: Vec::new(),
            values: Vec::new(),
            len: 0,
            index: vec![0; FIRST_INDEX],
            seed,
            used: None,
            now: 0,
            n_refused: 0,
        }
    }

    /// Lets a full map forget old entries.
    pub fn with_lru(mut self, is_lru: bool) -> Table {
        self.used = is_lru.then(Vec::new);
        self
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn aggregate(&self) -> Option<Aggregate> {
        self.aggregate
    }

    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<&[u64]> {
        let entry = self.find(key).ok()?;
        Some(self.value(entry))
    }

    /// The entry's value, made of zeros if there is none yet; `None` if the map is full.
    #[inline]
    pub fn get_or_make(&mut self, key: &[u8]) -> Option<&mut [u64]> {
        let entry = match self.find(key) {
            Ok(entry) => entry,
            Err(place) => self.make(key, place)?,
        };
        if let Some(used) = &mut self.used {
            self.now += 1;
            used[entry] = self.now;
        }
        Some(&mut self.values[entry * self.value_words..(entry + 1) * self.value_words])
    }

    /// Takes a value into an aggregate.
    #[inline]
    pub fn take(&mut self, key: &[u8], value: i64) {
        if let Some(aggregate) = self.aggregate
            && let Some(words) = self.get_or_make(key)
        {
            aggregate.take(words, value);
        }
    }

    /// The number an entry stands for; 0 without one.
    pub fn number(&self, key: &[u8]) -> i64 {
        match (self.get(key), self.aggregate) {
            (Some(words), Some(aggregate)) => aggregate.number(words),
            (Some(words), None) => words.first().map_or(0, |word| *word as i64),
            (None, _) => 0,
        }
    }

    pub fn remove(&mut self, key: &[u8]) -> bool {
        let Ok(entry) = self.find(key) else { return false };
        let place = self.place_of(entry);
        self.close_gap(place);
        let last = self.len - 1;
        if entry != last {
            let moved = self.place_of(last);
            self.index[moved] = entry as u32 + 1;
            self.keys.copy_within(last * self.key_bytes..(last + 1) * self.key_bytes, entry * self.key_bytes);
            let (from, to) = (last * self.value_words, entry * self.value_words);
            self.values.copy_within(from..from + self.value_words, to);
        }
        if let Some(used) = &mut self.used {
            used.swap_remove(entry);
        }
        self.len = last;
        self.keys.truncate(last * self.key_bytes);
        self.values.truncate(last * self.value_words);
        true
    }

    /// Keeps the memory for the entries to come.
    pub fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.used.iter_mut().for_each(Vec::clear);
        self.len = 0;
        self.index.fill(0);
    }

    /// All values to zero; the keys stay.
    pub fn zero(&mut self) {
        self.values.fill(0);
    }

    /// Keys and values in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &[u64])> {
        (0..self.len).map(|entry| (self.key(entry), self.value(entry)))
    }

    /// Adds what another table, a CPU's cells or a kernel map gathered under a key.
    pub fn merge(&mut self, key: &[u8], words: &[u64]) {
        let aggregate = self.aggregate;
        let Some(own) = self.get_or_make(key) else { return };
        match aggregate {
            Some(aggregate) if own.len() == words.len() => aggregate.merge(own, words),
            Some(_) => {}
            None => own.iter_mut().zip(words).for_each(|(own, word)| *own = *word),
        }
    }

    #[inline]
    pub(super) fn key(&self, entry: usize) -> &[u8] {
        &self.keys[entry * self.key_bytes..(entry + 1) * self.key_bytes]
    }

    #[inline]
    fn value(&self, entry: usize) -> &[u64] {
        &self.values[entry * self.value_words..(entry + 1) * self.value_words]
    }

    /// The entry with this key, or the open place where it would be found.
    #[inline]
    fn find(&self, key: &[u8]) -> Result<usize, usize> {
        debug_assert_eq!(key.len(), self.key_bytes);
        let mask = self.index.len() - 1;
        let mut place = self.hash(key) & mask;
        loop {
            match self.index[place] {
                0 => return Err(place),
                number if is_same(self.key(number as usize - 1), key) => return Ok(number as usize - 1),
                _ => place = (place + 1) & mask,
            }
        }
    }

    fn make(&mut self, key: &[u8], mut place: usize) -> Option<usize> {
        if self.len >= self.max_entries {
            let Some(oldest) = self.oldest() else {
                self.n_refused += 1;
                return None;
            };
            let oldest = self.key(oldest).to_vec();
            self.remove(&oldest);
            place = self.find(key).err()?;
        }
        // At most half of the places are taken, so that a search is short.
        if (self.len + 1) * 2 > self.index.len() {
            self.grow();
            place = self.find(key).err()?;
        }
        let entry = self.len;
        self.len += 1;
        if let Some(used) = &mut self.used {
            used.push(self.now);
        }
        self.keys.extend_from_slice(key);
        self.values.resize(self.len * self.value_words, 0);
        self.index[place] = entry as u32 + 1;
        Some(entry)
    }

    fn oldest(&self) -> Option<usize> {
        let used = self.used.as_ref()?;
        (0..self.len).min_by_key(|entry| used[*entry])
    }

    fn grow(&mut self) {
        let mask = self.index.len() * 2 - 1;
        self.index.clear();
        self.index.resize(mask + 1, 0);
        for entry in 0..self.len {
            let mut place = self.hash(self.key(entry)) & mask;
            while self.index[place] != 0 {
                place = (place + 1) & mask;
            }
            self.index[place] = entry as u32 + 1;
        }
    }

    /// Where the index leads to an entry.
    fn place_of(&self, entry: usize) -> usize {
        let mask = self.index.len() - 1;
        let mut place = self.hash(self.key(entry)) & mask;
        while self.index[place] != entry as u32 + 1 {
            place = (place + 1) & mask;
        }
        place
    }

    /// Opens a place, and moves up those behind it that would no longer be found.
    fn close_gap(&mut self, mut gap: usize) {
        let mask = self.index.len() - 1;
        let mut place = gap;
        loop {
            place = (place + 1) & mask;
            let number = self.index[place];
            if number == 0 {
                self.index[gap] = 0;
                return;
            }
            let home = self.hash(self.key(number as usize - 1)) & mask;
            // It may move if its home is not between the gap and where it is.
            if (place.wrapping_sub(home) & mask) >= (place.wrapping_sub(gap) & mask) {
                self.index[gap] = number;
                gap = place;
            }
        }
    }

    #[inline]
    fn hash(&self, key: &[u8]) -> usize {
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut state = self.seed;
        let (words, rest) = key.as_chunks::<8>();
        for word in words {
            state = fold(state ^ u64::from_le_bytes(*word), ODD);
        }
        for byte in rest {
            state = fold(state ^ u64::from(*byte), ODD);
        }
        state as usize
    }
}

/// Both halves of the product, so that every bit of the key reaches the low bits.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn is_same(a: &[u8], b: &[u8]) -> bool {
    match (<&[u8; 8]>::try_from(a), <&[u8; 8]>::try_from(b)) {
        (Ok(a), Ok(b)) => u64::from_ne_bytes(*a) == u64::from_ne_bytes(*b),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Type;
    use std::collections::HashMap;

    fn table(max_entries: u32) -> Table {
        let def =
            MapDef { name: "@".into(), key: vec![Type::U64], value: MapValue::Aggregate(Aggregate::Count) };
        Table::new(&def, max_entries, 12345)
    }

    #[test]
    fn behaves_as_a_map_under_random_use() {
        let (mut table, mut model) = (table(1000), HashMap::<u64, u64>::new());
        let mut state = 1u64;
        for step in 0..100_000u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let key = (state >> 33) % 300;
            match state >> 61 {
                0 | 1 => assert_eq!(table.remove(&key.to_le_bytes()), model.remove(&key).is_some()),
                _ => {
                    table.take(&key.to_le_bytes(), 0);
                    *model.entry(key).or_default() += 1;
                }
            }
            if step % 20_000 == 19_999 {
                table.clear();
                model.clear();
            }
            assert_eq!(table.len(), model.len());
            assert_eq!(
                table.get(&key.to_le_bytes()).map(|words| words[0]),
                model.get(&key).copied(),
                "step {step}"
            );
        }
        let found: HashMap<u64, u64> =
            table.entries().map(|(k, v)| (u64::from_le_bytes(k.try_into().unwrap()), v[0])).collect();
        assert_eq!(found, model);
    }

    #[test]
    fn a_full_map_makes_no_entry_and_counts_it() {
        let mut table = table(3);
        for key in 0..5u64 {
            table.take(&key.to_le_bytes(), 0);
        }
        table.take(&0u64.to_le_bytes(), 0);
        assert_eq!((table.len(), table.n_refused), (3, 2));
        assert_eq!(table.number(&0u64.to_le_bytes()), 2);
        table.remove(&1u64.to_le_bytes());
        table.take(&9u64.to_le_bytes(), 0);
        assert_eq!((table.len(), table.n_refused), (3, 2));
    }

    #[test]
    fn a_map_without_a_key_has_one_entry() {
        let def = MapDef { name: "@".into(), key: vec![], value: MapValue::Plain(Type::U64) };
        let mut table = Table::new(&def, 1, 7);
        table.get_or_make(&[]).unwrap()[0] = 5;
        table.get_or_make(&[]).unwrap()[0] += 1;
        assert_eq!((table.len(), table.number(&[])), (1, 6));
        table.remove(&[]);
        assert_eq!(table.number(&[]), 0);
    }
}
