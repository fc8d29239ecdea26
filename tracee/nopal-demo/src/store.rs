//! The data: keys, values, expiry, and a bound on memory that evicts what was not used for long. Knows no protocol.
//!
//! Time is given by the caller, in ms since the epoch.

use crate::probes::{self, valkey_db};
use crate::random::Random;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Longest key, as in memcached.
pub(crate) const MAX_KEY_BYTES: usize = 250;
/// Longest value, as in memcached.
pub(crate) const MAX_VALUE_BYTES: usize = 1 << 20;
/// What an entry takes beside its key and value, roughly.
const ENTRY_BYTES: usize = 96;
/// Of so many entries, chosen at random, the one that was not used for longest is evicted.
const N_CANDIDATES: usize = 5;

#[derive(Debug, Clone)]
pub(crate) struct Entry {
    key: Arc<[u8]>,
    pub value: Vec<u8>,
    /// What a memcached client stored beside the value.
    pub flags: u32,
    /// `None`: never.
    pub expires_ms: Option<u64>,
    /// Changes with every change of the value.
    pub casid: u64,
    last_used: u64,
}

impl Entry {
    fn size_bytes(&self) -> usize {
        ENTRY_BYTES + self.key.len() + self.value.len()
    }

    fn is_expired(&self, now_ms: u64) -> bool {
        self.expires_ms.is_some_and(|end| end <= now_ms)
    }
}

/// The value cannot be stored even in an empty store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub n_hits: u64,
    pub n_misses: u64,
    pub n_expired: u64,
    pub n_evicted: u64,
}

#[derive(Debug)]
pub(crate) struct Store {
    /// Dense, so that one can be chosen at random.
    entries: Vec<Entry>,
    index: HashMap<Arc<[u8]>, usize>,
    used_bytes: usize,
    max_bytes: usize,
    /// Goes up by one with each use.
    clock: u64,
    /// Where the next expiry cycle goes on.
    cursor: usize,
    random: Random,
    pub counts: Counts,
}

impl Store {
    pub(crate) fn new(max_bytes: usize) -> Store {
        Store {
            entries: Vec::new(),
            index: HashMap::new(),
            used_bytes: 0,
            max_bytes,
            clock: 0,
            cursor: 0,
            random: Random::new(0x9e37_79b9_7f4a_7c15),
            counts: Counts::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// The entry, if it is there and has not expired. One that has expired is deleted at this moment.
    pub(crate) fn get(&mut self, key: &[u8], now_ms: u64) -> Option<&Entry> {
        let Some(idx) = self.find(key, now_ms) else {
            self.counts.n_misses += 1;
            return None;
        };
        self.counts.n_hits += 1;
        self.clock += 1;
        let entry = &mut self.entries[idx];
        entry.last_used = self.clock;
        Some(entry)
    }

    /// Gives an entry another end.
    pub(crate) fn touch(&mut self, key: &[u8], expires_ms: Option<u64>, now_ms: u64) -> Option<&Entry> {
        let idx = self.find(key, now_ms)?;
        self.entries[idx].expires_ms = expires_ms;
        self.entries.get(idx)
    }

    /// Whether the key is there; does not count as a use.
    pub(crate) fn has(&mut self, key: &[u8], now_ms: u64) -> bool {
        self.find(key, now_ms).is_some()
    }

    /// Stores a value and returns its compare-and-swap number; evicts others if there is no room.
    pub(crate) fn set(
        &mut self,
        key: &[u8],
        value: &[u8],
        flags: u32,
        expires_ms: Option<u64>,
        now_ms: u64,
    ) -> Result<u64, TooLarge> {
        let need_bytes = ENTRY_BYTES + key.len() + value.len();
        if need_bytes > self.max_bytes {
            return Err(TooLarge);
        }
        if let Some(idx) = self.find(key, now_ms) {
            self.remove_at(idx);
        }
        while self.used_bytes + need_bytes > self.max_bytes {
            self.evict_one();
        }
        self.clock += 1;
        let entry = Entry {
            key: key.into(),
            value: value.to_vec(),
            flags,
            expires_ms,
            casid: self.clock,
            last_used: self.clock,
        };
        self.index.insert(entry.key.clone(), self.entries.len());
        self.used_bytes += need_bytes;
        self.entries.push(entry);
        Ok(self.clock)
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, key: &[u8], now_ms: u64) -> bool {
        let found = self.find(key, now_ms);
        found.map(|idx| self.remove_at(idx)).is_some()
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.index.clear();
        self.used_bytes = 0;
    }

    /// The keys that match. Looks at every key there is: with many of them this is what makes a server stop.
    pub(crate) fn keys<'a>(&'a self, pattern: &'a [u8], now_ms: u64) -> impl Iterator<Item = &'a [u8]> {
        let live = self.entries.iter().filter(move |entry| !entry.is_expired(now_ms));
        live.map(|entry| &*entry.key).filter(move |key| is_match(pattern, key))
    }

    /// Looks at the next `n_entries` and deletes those that have expired, so that what nobody asks for goes too.
    pub(crate) fn expire_cycle(&mut self, n_entries: usize, now_ms: u64) {
        for _ in 0..n_entries.min(self.entries.len()) {
            if self.cursor >= self.entries.len() {
                self.cursor = 0;
            }
            match self.entries.get(self.cursor) {
                // Another entry takes its place and is looked at next.
                Some(entry) if entry.is_expired(now_ms) => self.expire(self.cursor),
                Some(_) => self.cursor += 1,
                None => return,
            }
        }
    }

    fn find(&mut self, key: &[u8], now_ms: u64) -> Option<usize> {
        let idx = *self.index.get(key)?;
        if self.entries[idx].is_expired(now_ms) {
            self.expire(idx);
            return None;
        }
        Some(idx)
    }

    fn expire(&mut self, idx: usize) {
        let start = valkey_db::expire_del::is_enabled().then(Instant::now);
        self.remove_at(idx);
        self.counts.n_expired += 1;
        if let Some(start) = start {
            valkey_db::expire_del(probes::micros_since(start));
        }
    }

    fn evict_one(&mut self) {
        let start = valkey_db::eviction_del::is_enabled().then(Instant::now);
        let n_entries = self.entries.len();
        let candidates = (0..N_CANDIDATES).map(|_| self.random.below(n_entries));
        let victim = candidates.min_by_key(|idx| self.entries[*idx].last_used);
        if let Some(idx) = victim {
            self.remove_at(idx);
            self.counts.n_evicted += 1;
        }
        if let Some(start) = start {
            valkey_db::eviction_del(probes::micros_since(start));
        }
    }

    fn remove_at(&mut self, idx: usize) {
        let gone = self.entries.swap_remove(idx);
        self.used_bytes -= gone.size_bytes();
        self.index.remove(&gone.key);
        if let Some(moved) = self.entries.get(idx) {
            self.index.insert(moved.key.clone(), idx);
        }
    }
}

/// `*` is any text, `?` any one byte.
fn is_match(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on after the last `*` if what followed does not match.
    let mut star = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
        } else if pattern.get(p).is_some_and(|c| *c == b'?' || *c == text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((star_p, star_t)) = star {
            (p, t) = (star_p + 1, star_t + 1);
            star = Some((star_p, t));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000;

    #[test]
    fn a_value_stays_until_it_expires_or_is_deleted() {
        let mut store = Store::new(1 << 20);
        let first = store.set(b"a", b"1", 7, None, NOW).unwrap();
        let second = store.set(b"a", b"22", 7, None, NOW).unwrap();
        assert_ne!(first, second, "each change has its own number");
        assert_eq!((store.len(), store.used_bytes()), (1, ENTRY_BYTES + 3));
        let entry = store.get(b"a", NOW).unwrap();
        assert_eq!((&entry.value[..], entry.flags, entry.casid), (&b"22"[..], 7, second));
        assert!(store.remove(b"a", NOW) && !store.remove(b"a", NOW));
        assert_eq!((store.len(), store.used_bytes()), (0, 0));

        store.set(b"b", b"1", 0, Some(NOW + 10), NOW).unwrap();
        assert!(store.get(b"b", NOW + 9).is_some());
        assert!(store.get(b"b", NOW + 10).is_none());
        assert_eq!((store.len(), store.counts.n_expired), (0, 1), "asking for it deleted it");
    }

    #[test]
    fn cycles_delete_what_nobody_asks_for() {
        let mut store = Store::new(1 << 20);
        for i in 0..100u32 {
            let expires_ms = (i % 2 == 0).then_some(NOW + 10);
            store.set(&i.to_le_bytes(), b"x", 0, expires_ms, NOW).unwrap();
        }
        store.expire_cycle(1000, NOW + 9);
        assert_eq!(store.len(), 100);
        for _ in 0..20 {
            store.expire_cycle(10, NOW + 10);
        }
        assert_eq!((store.len(), store.counts.n_expired), (50, 50));
        for i in 0..100u32 {
            assert_eq!(store.has(&i.to_le_bytes(), NOW + 10), i % 2 == 1, "{i}");
        }
        store.expire_cycle(10, NOW + 10);
        store.clear();
        store.expire_cycle(10, NOW + 10);
    }

    #[test]
    fn memory_is_bounded_and_what_is_in_use_stays() {
        let max_bytes = 64 << 10;
        let mut store = Store::new(max_bytes);
        for i in 0..10_000u32 {
            store.set(format!("key:{i}").as_bytes(), &[b'x'; 100], 0, None, NOW).unwrap();
            assert!(store.used_bytes() <= max_bytes);
            if i >= 100 {
                store.get(b"key:100", NOW);
            }
        }
        let n_left = store.len() as u64;
        assert!(n_left > 100, "{n_left}");
        assert_eq!(store.counts.n_evicted, 10_000 - n_left);
        let used: usize = store.entries.iter().map(Entry::size_bytes).sum();
        assert_eq!(store.used_bytes(), used);
        assert!(store.has(b"key:100", NOW), "a key in use is the last to go");
        assert_eq!(store.set(b"big", &vec![0; max_bytes], 0, None, NOW), Err(TooLarge));
        assert_eq!(store.len() as u64, n_left, "a value that cannot be stored evicts nothing");
    }

    #[test]
    fn keys_match_patterns() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "abc", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("user:*7", "user:177", true),
            ("user:*7", "user:178", false),
            ("*a*b*", "xxaxxbxx", true),
            ("", "", true),
            ("", "a", false),
            ("a", "ab", false),
        ] {
            assert_eq!(is_match(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        let mut store = Store::new(1 << 20);
        for key in [&b"user:1"[..], b"user:2", b"gone:3"] {
            store.set(key, b"", 0, (key == b"gone:3").then_some(NOW), NOW - 1).unwrap();
        }
        let mut found: Vec<&[u8]> = store.keys(b"*", NOW).collect();
        found.sort();
        assert_eq!(found, [b"user:1", b"user:2"]);
    }
}
