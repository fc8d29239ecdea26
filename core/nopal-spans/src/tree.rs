//! Spans within spans: one tree, or many merged into one. The slowest tree, one of middling duration and the sum of all
//! are kept; memory is bounded by the kinds of spans and durations, not by their number.

use crate::histogram::Histogram;
use std::collections::HashMap;

/// A span with what lies directly within it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// Kind of span, and what else tells it apart.
    pub label: u32,
    pub start_ns: i64,
    pub duration_ns: u64,
    pub self_ns: u64,
    pub is_error: bool,
    pub children: Vec<Node>,
}

/// Many spans with the same label in the same place.
#[derive(Debug, Clone, Default)]
pub struct Merged {
    pub label: u32,
    pub count: u64,
    pub errors: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    pub max_ns: u64,
    pub children: Vec<Merged>,
}

/// Spans of one tree that are kept one by one; more are left out and counted.
const MAX_NODES: u32 = 20_000;
const MAX_WAITING: usize = 1 << 20;

/// Finished spans that wait for what contains them, and the trees that were complete.
#[derive(Debug, Default)]
pub struct Forest {
    waiting: Vec<Option<Waiting>>,
    free: Vec<u32>,
    slowest: Option<Node>,
    /// By bucket of their duration: the first tree.
    samples: HashMap<u64, Node>,
    durations: Histogram,
    pub merged: Merged,
    /// Spans that are not in the trees shown one by one, because there were too many.
    pub n_left_out: u64,
}

#[derive(Debug)]
struct Waiting {
    node: Node,
    n_nodes: u32,
}

impl Forest {
    /// A span has finished; `nested` are the tokens of what lies directly within it. Its token, or 0 if it is not kept.
    pub fn finish(&mut self, mut node: Node, nested: impl Iterator<Item = u32>) -> u32 {
        let mut n_nodes = 1;
        for token in nested {
            let Some(child) = self.take(token) else { continue };
            if n_nodes + child.n_nodes > MAX_NODES {
                self.n_left_out += u64::from(child.n_nodes);
                continue;
            }
            n_nodes += child.n_nodes;
            node.children.push(child.node);
        }
        if self.waiting.len() - self.free.len() >= MAX_WAITING {
            self.n_left_out += u64::from(n_nodes);
            return 0;
        }
        let waiting = Some(Waiting { node, n_nodes });
        match self.free.pop() {
            Some(at) => {
                self.waiting[at as usize] = waiting;
                at + 1
            }
            None => {
                self.waiting.push(waiting);
                self.waiting.len() as u32
            }
        }
    }

    /// Nothing will contain this one.
    pub fn forget(&mut self, token: u32) {
        self.take(token);
    }

    fn take(&mut self, token: u32) -> Option<Waiting> {
        let at = token.checked_sub(1)?;
        let taken = self.waiting.get_mut(at as usize)?.take();
        if taken.is_some() {
            self.free.push(at);
        }
        taken
    }

    /// The span with this token is one that was asked for: its tree is complete.
    pub fn root(&mut self, token: u32) {
        let Some(at) = token.checked_sub(1) else { return };
        let Some(Some(Waiting { node, .. })) = self.waiting.get(at as usize) else { return };
        merge(&mut self.merged, node);
        self.durations.add(node.duration_ns);
        if self.slowest.as_ref().is_none_or(|slowest| node.duration_ns > slowest.duration_ns) {
            self.slowest = Some(node.clone());
        }
        self.samples.entry(bucket(node.duration_ns)).or_insert_with(|| node.clone());
    }

    pub fn slowest(&self) -> Option<&Node> {
        self.slowest.as_ref()
    }

    /// A tree whose duration is that of the median, as near as the histogram tells.
    pub fn median(&self) -> Option<&Node> {
        let median = self.durations.quantile(0.5);
        self.samples.values().min_by_key(|node| (node.duration_ns.abs_diff(median), node.start_ns))
    }

    pub fn durations(&self) -> &Histogram {
        &self.durations
    }
}

/// Coarser than the histogram: 16 to a power of two.
fn bucket(duration_ns: u64) -> u64 {
    match duration_ns.checked_ilog2() {
        Some(power) if power > 4 => duration_ns >> (power - 4) | u64::from(power) << 32,
        _ => duration_ns,
    }
}

fn merge(into: &mut Merged, node: &Node) {
    into.label = node.label;
    into.count += 1;
    into.errors += u64::from(node.is_error);
    into.total_ns += node.duration_ns;
    into.self_ns += node.self_ns;
    into.max_ns = into.max_ns.max(node.duration_ns);
    for child in &node.children {
        let at = match into.children.iter().position(|known| known.label == child.label) {
            Some(at) => at,
            None => {
                into.children.push(Merged { label: child.label, ..Merged::default() });
                into.children.len() - 1
            }
        };
        merge(&mut into.children[at], child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(label: u32, start_ns: i64, duration_ns: u64) -> Node {
        Node { label, start_ns, duration_ns, self_ns: duration_ns, ..Node::default() }
    }

    #[test]
    fn trees_grow_from_their_leaves() {
        let mut forest = Forest::default();
        for (start, duration) in [(0, 100), (200, 300), (600, 200)] {
            let a = forest.finish(node(1, start + 1, duration / 4), [].into_iter());
            let b = forest.finish(node(1, start + 50, duration / 5), [].into_iter());
            let root = forest.finish(node(0, start, duration), [a, b].into_iter());
            forest.root(root);
            forest.forget(root);
        }
        let lost = forest.finish(node(7, 0, 1), [].into_iter());
        forest.forget(lost);
        assert_eq!(forest.slowest().map(|n| (n.start_ns, n.children.len())), Some((200, 2)));
        assert_eq!(forest.median().map(|n| n.start_ns), Some(600));
        assert_eq!((forest.merged.count, forest.merged.total_ns, forest.merged.max_ns), (3, 600, 300));
        assert_eq!(forest.merged.children.len(), 1);
        assert_eq!((forest.merged.children[0].count, forest.merged.children[0].total_ns), (6, 270));
        assert!(forest.waiting.len() <= 3 && forest.waiting.iter().all(Option::is_none));
    }

    #[test]
    fn a_tree_does_not_grow_without_end() {
        let mut forest = Forest::default();
        let leaves: Vec<u32> = (0..30_000).map(|i| forest.finish(node(1, i, 1), [].into_iter())).collect();
        let root = forest.finish(node(0, 0, 30_000), leaves.into_iter());
        forest.root(root);
        assert_eq!(forest.n_left_out, 30_001 - u64::from(MAX_NODES));
    }
}
