//! By what the entries of a map are put in order when it is printed.

use crate::MapValue;
use crate::aggregate::Aggregate;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rank {
    /// By the number that a script reads: count, sum, mean, extreme; histograms and quantiles by their count.
    #[default]
    Usual,
    Key,
    Count,
    Sum,
    Mean,
    Max,
    /// In thousandths.
    Quantile(u16),
}

impl Rank {
    /// As scripts write them; the first of each rank is the usual one.
    pub const WORDS: [(&'static str, Rank); 11] = [
        ("key", Rank::Key),
        ("count", Rank::Count),
        ("sum", Rank::Sum),
        ("total", Rank::Sum),
        ("avg", Rank::Mean),
        ("average", Rank::Mean),
        ("max", Rank::Max),
        ("p50", Rank::Quantile(500)),
        ("p90", Rank::Quantile(900)),
        ("p99", Rank::Quantile(990)),
        ("p99.9", Rank::Quantile(999)),
    ];

    pub fn parse(word: &str) -> Option<Rank> {
        Rank::WORDS.iter().find(|(known, _)| *known == word).map(|(_, rank)| *rank)
    }

    pub fn word(self) -> Option<&'static str> {
        Rank::WORDS.iter().find(|(_, rank)| *rank == self).map(|(word, _)| *word)
    }

    /// Whether values like these have it.
    pub fn fits(self, value: &MapValue) -> bool {
        let MapValue::Aggregate(aggregate) = value else { return matches!(self, Rank::Usual | Rank::Key) };
        match self {
            Rank::Usual | Rank::Key => true,
            Rank::Count => !matches!(aggregate, Aggregate::Sum { .. }),
            Rank::Sum => {
                matches!(aggregate, Aggregate::Sum { .. } | Aggregate::Avg { .. } | Aggregate::Stats { .. })
            }
            Rank::Mean => matches!(aggregate, Aggregate::Avg { .. } | Aggregate::Stats { .. }),
            Rank::Max => matches!(aggregate, Aggregate::Max { .. } | Aggregate::Quantiles { .. }),
            Rank::Quantile(_) => matches!(
                aggregate,
                Aggregate::Hist { .. } | Aggregate::Lhist { .. } | Aggregate::Quantiles { .. }
            ),
        }
    }
}
