//! Requests as trees: which spans lie within the one that was asked for.

use crate::ask::Wrong;
use crate::event::{At, Consumer, OrderWithin, order_of, visible_fields};
use crate::table::{Answer, Cell, Column};
use nopal_spans::tree::{Forest, Merged, Node};
use nopal_spans::{Available, Done, Fields, Finished, Needs, Pairing, Sink, Span};
use nopal_trace::EventType;
use std::collections::HashMap;

/// Trees being gathered.
#[derive(Debug)]
pub struct Trees {
    pairing: Pairing,
    grown: Grown,
}

#[derive(Debug)]
struct Grown {
    forest: Forest,
    /// How many of the spans are roots; they come first.
    n_roots: usize,
    /// The most telling field of each span, for trees that are shown one by one.
    telling: Vec<Option<usize>>,
    names: Vec<String>,
    /// Texts of labels: span and value.
    labels: Vec<(usize, String)>,
    by_label: HashMap<(usize, String), u32>,
    is_merged: bool,
}

/// One line of a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeRow {
    pub depth: usize,
    pub span: String,
    pub value: String,
    pub count: u64,
    pub errors: u64,
    pub total_ns: u64,
    pub self_ns: u64,
    /// Since the start of the tree; of a merged one nothing.
    pub offset_ns: Option<u64>,
}

/// Different values that are told apart; more become one.
const MAX_LABELS: usize = 20_000;

impl Trees {
    /// `roots` are the requests, `parts` what may lie within them. Merged trees are told apart by the spans alone.
    pub fn new(
        roots: Vec<Span>,
        parts: Vec<Span>,
        is_merged: bool,
        available: &Available,
    ) -> Result<Trees, Wrong> {
        let n_roots = roots.len();
        let mut spans = roots;
        parts.into_iter().for_each(|part| {
            if !spans.contains(&part) {
                spans.push(part);
            }
        });
        let mut pairing = Pairing::new(spans.clone());
        let telling = spans.iter().enumerate().map(|(idx, span)| {
            let first = crate::ask::telling_field(available, span);
            first.filter(|_| !is_merged).map(|name| pairing.want(idx, &name))
        });
        let telling = telling.collect();
        Ok(Trees {
            pairing,
            grown: Grown {
                forest: Forest::default(),
                n_roots,
                telling,
                names: spans.iter().map(Span::full_name).collect(),
                labels: Vec::new(),
                by_label: HashMap::new(),
                is_merged,
            },
        })
    }

    pub fn n_trees(&self) -> u64 {
        self.grown.forest.durations().count()
    }

    /// The tree of the slowest request, of one of median duration, or all in one.
    pub fn slowest(&self) -> Vec<TreeRow> {
        self.grown.forest.slowest().map_or(Vec::new(), |node| self.grown.rows(node))
    }

    pub fn median(&self) -> Vec<TreeRow> {
        self.grown.forest.median().map_or(Vec::new(), |node| self.grown.rows(node))
    }

    pub fn merged(&self) -> Vec<TreeRow> {
        let mut rows = Vec::new();
        if self.n_trees() > 0 {
            self.grown.merged_rows(&self.grown.forest.merged, 0, &mut rows);
        }
        rows
    }

    pub fn pairing(&self) -> &Pairing {
        &self.pairing
    }

    pub fn answer(&self, rows: &[TreeRow]) -> Answer {
        let columns = vec![
            Column::new("depth", "", "number"),
            Column::text("span"),
            Column::text("value"),
            Column::count("count"),
            Column::count("errors"),
            Column::duration("total_ns"),
            Column::duration("self_ns"),
            Column::duration("offset_ns"),
        ];
        let rows = rows.iter().map(|row| {
            vec![
                Cell::Integer(row.depth as i128),
                Cell::Text(row.span.clone()),
                Cell::Text(row.value.clone()),
                Cell::Count(row.count),
                Cell::Count(row.errors),
                Cell::Duration(row.total_ns),
                Cell::Duration(row.self_ns),
                row.offset_ns.map_or(Cell::None, Cell::Duration),
            ]
        });
        let mut notes = Vec::new();
        if self.grown.forest.n_left_out > 0 {
            notes.push(format!(
                "{} spans of trees that were too large are left out",
                self.grown.forest.n_left_out
            ));
        }
        let unmatched = self.pairing.unmatched();
        Answer { columns, rows: rows.collect(), unmatched, notes, ..Answer::default() }
    }
}

impl Grown {
    fn label(&mut self, span: usize, value: String) -> u32 {
        let value = if self.labels.len() >= MAX_LABELS { String::new() } else { value };
        let next = self.labels.len() as u32;
        *self.by_label.entry((span, value)).or_insert_with_key(|key| {
            self.labels.push(key.clone());
            next
        })
    }

    fn rows(&self, root: &Node) -> Vec<TreeRow> {
        let mut rows = Vec::new();
        self.node_rows(root, root.start_ns, 0, &mut rows);
        rows
    }

    fn node_rows(&self, node: &Node, start_ns: i64, depth: usize, rows: &mut Vec<TreeRow>) {
        let (span, value) = &self.labels[node.label as usize];
        rows.push(TreeRow {
            depth,
            span: self.names[*span].clone(),
            value: value.clone(),
            count: 1,
            errors: u64::from(node.is_error),
            total_ns: node.duration_ns,
            self_ns: node.self_ns,
            offset_ns: Some(node.start_ns.saturating_sub(start_ns).max(0) as u64),
        });
        node.children.iter().for_each(|child| self.node_rows(child, start_ns, depth + 1, rows));
    }

    fn merged_rows(&self, node: &Merged, depth: usize, rows: &mut Vec<TreeRow>) {
        let (span, _) = &self.labels[node.label as usize];
        rows.push(TreeRow {
            depth,
            span: self.names[*span].clone(),
            value: String::new(),
            count: node.count,
            errors: node.errors,
            total_ns: node.total_ns,
            self_ns: node.self_ns,
            offset_ns: None,
        });
        let mut children: Vec<&Merged> = node.children.iter().collect();
        children.sort_by_key(|child| std::cmp::Reverse(child.total_ns));
        children.into_iter().for_each(|child| self.merged_rows(child, depth + 1, rows));
    }
}

impl Consumer for Trees {
    fn class(&mut self, ty: &EventType) -> Needs {
        self.pairing.add_class(&ty.provider, &ty.name, &visible_fields(ty))
    }

    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        self.pairing.event(at.ns, at.task, class, fields, &mut self.grown);
    }

    fn order_within(&self) -> OrderWithin {
        order_of(self.pairing.spans())
    }

    fn loss(&mut self, to_ns: i64) {
        self.pairing.loss(to_ns, &mut self.grown);
    }

    fn restart(&mut self, pid: u32) {
        self.pairing.restart(pid, &mut self.grown);
    }

    fn end(&mut self) {
        self.pairing.close(&mut self.grown);
        self.pairing.forget_classes();
    }
}

impl Sink for Grown {
    fn finish(&mut self, span: &Finished<'_>, nested: &[Done]) -> u32 {
        let value = match self.telling[span.span] {
            Some(wanted) if !self.is_merged => span.get(wanted).text(),
            _ => String::new(),
        };
        let node = Node {
            label: self.label(span.span, value),
            start_ns: span.start_ns,
            duration_ns: span.duration_ns(),
            self_ns: span.self_ns,
            is_error: span.is_failed,
            children: Vec::new(),
        };
        let token = self.forest.finish(node, nested.iter().map(|done| done.token));
        if span.span < self.n_roots {
            self.forest.root(token);
        }
        token
    }

    fn forget(&mut self, token: u32) {
        self.forest.forget(token);
    }
}
