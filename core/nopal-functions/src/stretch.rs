//! Code of a function that is in one piece.

/// A piece of code without a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch<'a> {
    /// Link-time.
    pub address: u64,
    pub code: &'a [u8],
    /// What follows up to the next function, and some bytes of that.
    pub behind: &'a [u8],
    /// Of `behind`, what belongs to no function.
    pub n_unowned: usize,
}

impl Stretch<'_> {
    pub(crate) fn contains(&self, address: u64) -> bool {
        address >= self.address && address - self.address < self.code.len() as u64
    }
}
