//! The maps of a script on the tracer's side: made, read with the shares of all CPUs together, cleared.

use super::code::extreme_mask;
use super::{Entry, ScriptError};
use crate::bpf::{self, MapKind};
use nopal_program::aggregate::Aggregate;
use nopal_program::{MapDef, MapValue};
use std::os::fd::OwnedFd;

/// In front of the value of a map without a key: whether there is a value.
const PRESENCE_BYTES: usize = super::code::PRESENCE_BYTES as usize;

/// Above this the kernel takes memory for entries only when they are made.
const MAX_PREALLOCATED_BYTES: u64 = 64 << 20;

/// Key, and the shares one after another, as the kernel has them.
type RawEntry = (Vec<u8>, Vec<u8>);

#[derive(Debug)]
pub(super) struct HostMap {
    pub fd: OwnedFd,
    def: MapDef,
    n_cpus: usize,
    max_entries: u32,
}

impl HostMap {
    pub(super) fn new(def: &MapDef, room: (u32, bool), n_cpus: usize) -> Result<HostMap, ScriptError> {
        let (max_entries, is_lru) = room;
        let is_percpu = matches!(def.value, MapValue::Aggregate(_));
        let (key, value) = (def.key_bytes(), def.value_bytes());
        let made = if key == 0 {
            let kind = if is_percpu { MapKind::PercpuArray } else { MapKind::Array };
            bpf::create_map(kind, 4, value + PRESENCE_BYTES as u32, 1, 0, &def.name)
        } else {
            let kind = match (is_percpu, is_lru) {
                (false, false) => MapKind::Hash,
                (true, false) => MapKind::PercpuHash,
                (false, true) => MapKind::LruHash,
                (true, true) => MapKind::LruPercpuHash,
            };
            let n_shares = if is_percpu { n_cpus as u64 } else { 1 };
            let all = u64::from(max_entries) * (u64::from(key) + u64::from(value) * n_shares);
            // Those that forget have all their memory from the beginning.
            let flags = if all > MAX_PREALLOCATED_BYTES && !is_lru { bpf::NO_PREALLOC } else { 0 };
            bpf::create_map(kind, key, value, max_entries, flags, &def.name)
        };
        let fd = made.map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => ScriptError::io("making a BPF map", error),
            _ => ScriptError::Map { name: def.name.clone(), error },
        })?;
        Ok(HostMap { fd, def: def.clone(), n_cpus, max_entries })
    }

    fn has_key(&self) -> bool {
        self.def.key_bytes() > 0
    }

    /// Bytes of one share as the kernel has it, and how many there are.
    fn share(&self) -> (usize, usize) {
        let presence = if self.has_key() { 0 } else { PRESENCE_BYTES };
        let n_shares = if matches!(self.def.value, MapValue::Aggregate(_)) { self.n_cpus } else { 1 };
        (self.def.value_bytes() as usize + presence, n_shares)
    }

    fn failed(&self, what: &str) -> impl Fn(std::io::Error) -> ScriptError {
        let what = format!("{what} the map {}", self.def.name);
        move |error| ScriptError::io(what.clone(), error)
    }

    /// All entries as the kernel has them: key, and the shares one after another.
    fn raw_entries(&self) -> Result<Vec<RawEntry>, ScriptError> {
        let (share, n_shares) = self.share();
        let size = share * n_shares;
        if !self.has_key() {
            let mut value = vec![0; size];
            bpf::lookup(&self.fd, &[0; 4], &mut value).map_err(self.failed("reading"))?;
            let is_there =
                value.chunks_exact(share).any(|share| share[..PRESENCE_BYTES] != [0; PRESENCE_BYTES]);
            return Ok(if is_there { vec![(Vec::new(), value)] } else { Vec::new() });
        }
        let key_bytes = self.def.key_bytes() as usize;
        let (keys, values) = bpf::entries(&self.fd, key_bytes, size, self.max_entries as usize)
            .map_err(self.failed("reading"))?;
        let values = values.chunks_exact(size.max(1));
        Ok(keys
            .chunks_exact(key_bytes)
            .zip(values)
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect())
    }

    pub(super) fn entries(&self) -> Result<Vec<Entry>, ScriptError> {
        let raw = self.raw_entries()?;
        Ok(raw.into_iter().map(|(key, value)| Entry { key, value: self.merged(&value) }).collect())
    }

    /// The value of all shares together, in the layout of the script.
    fn merged(&self, raw: &[u8]) -> Vec<u8> {
        let (share, _) = self.share();
        let skip = if self.has_key() { 0 } else { PRESENCE_BYTES };
        match self.def.value {
            MapValue::Plain(_) | MapValue::Series(_) => raw[skip..].to_vec(),
            MapValue::Aggregate(aggregate) => {
                let mut sum = vec![0u64; aggregate.n_words() as usize];
                for share in raw.chunks_exact(share) {
                    let mut words: Vec<u64> = share[skip..]
                        .chunks_exact(8)
                        .map(|word| u64::from_le_bytes(word.try_into().expect("chunks of 8")))
                        .collect();
                    if matches!(aggregate, Aggregate::Min { .. } | Aggregate::Max { .. }) && words[0] > 0 {
                        words[1] ^= extreme_mask(aggregate);
                    }
                    aggregate.merge(&mut sum, &words);
                }
                sum.iter().flat_map(|word| word.to_le_bytes()).collect()
            }
        }
    }

    /// Removes all entries.
    pub(super) fn clear(&self) -> Result<(), ScriptError> {
        if !self.has_key() {
            let (share, n_shares) = self.share();
            return bpf::update(&self.fd, &[0; 4], &vec![0; share * n_shares])
                .map_err(self.failed("clearing"));
        }
        for (key, _) in self.raw_entries()? {
            match bpf::delete(&self.fd, &key) {
                // A hit was faster.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                result => result.map_err(self.failed("clearing"))?,
            }
        }
        Ok(())
    }

    /// Sets all values to zero; keys stay.
    pub(super) fn zero(&self) -> Result<(), ScriptError> {
        let (share, _) = self.share();
        for (key, mut value) in self.raw_entries()? {
            if self.has_key() {
                value.fill(0);
                bpf::update(&self.fd, &key, &value).map_err(self.failed("zeroing"))?;
            } else {
                value.chunks_exact_mut(share).for_each(|share| share[PRESENCE_BYTES..].fill(0));
                bpf::update(&self.fd, &[0; 4], &value).map_err(self.failed("zeroing"))?;
            }
        }
        Ok(())
    }
}
