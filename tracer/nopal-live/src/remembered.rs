//! How much is remembered of processes and threads that a traced program tells of. It may make up other numbers with every hit;
//! what is forgotten is looked up again.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Entries of one table.
pub const MAX_REMEMBERED: usize = 1 << 15;

/// Forgets everything if there is no room for what is new.
pub fn make_room<K: Eq + Hash, V, S: BuildHasher>(known: &mut HashMap<K, V, S>, new: &K) {
    if known.len() >= MAX_REMEMBERED && !known.contains_key(new) {
        known.clear();
    }
}
