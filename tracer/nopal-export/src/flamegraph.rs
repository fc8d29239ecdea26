//! Folded stacks, one to a line: `outer;inner 1500`, where the number is the time in nanoseconds that was spent there and
//! not further within. flamegraph.pl, inferno and speedscope read it.

use crate::out::Out;
use crate::run::Exporter;
use nopal_answers::At;
use nopal_answers::slices::{Slice, Taker, Wish};
use nopal_spans::{Fields, Span};
use nopal_trace::{EventType, Recording, Selection};
use std::collections::BTreeMap;

/// Spans added up by the stacks they make.
#[derive(Debug)]
pub struct Flamegraph {
    out: Out,
    names: Vec<String>,
    stack: Vec<usize>,
    sums: BTreeMap<Vec<usize>, u64>,
}

impl Flamegraph {
    pub fn new(out: Out, spans: &[Span]) -> Flamegraph {
        // What separates frames and counts cannot be part of a name.
        let names = spans.iter().map(|span| span.full_name().replace([';', ' ', '\n'], "_")).collect();
        Flamegraph { out, names, stack: Vec::new(), sums: BTreeMap::new() }
    }
}

impl Taker for Flamegraph {
    fn class(&mut self, _: usize, _: &EventType) -> Wish {
        Wish::Nothing
    }

    fn event(&mut self, _: &At, _: usize, _: &Fields) {}

    fn slice(&mut self, slice: &Slice) {
        self.stack.push(slice.span);
        match self.sums.get_mut(&self.stack) {
            Some(sum) => *sum = sum.saturating_add(slice.self_ns),
            None => drop(self.sums.insert(self.stack.clone(), slice.self_ns)),
        }
    }

    fn close(&mut self, _: &Slice) {
        self.stack.pop();
    }
}

impl Exporter for Flamegraph {
    fn recording(&mut self, _: &Recording, _: &Selection) {}

    fn finish(&mut self) {
        for (stack, sum) in std::mem::take(&mut self.sums) {
            let names: Vec<&str> = stack.iter().map(|span| self.names[*span].as_str()).collect();
            self.out.write(format!("{} {sum}\n", names.join(";")).as_bytes());
        }
    }

    fn out(&mut self) -> &mut Out {
        &mut self.out
    }
}
