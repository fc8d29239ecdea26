//! Spans that are kept at the source: what probes do to them, and what is asked of their arguments.

use super::{relation, same_bits};
use crate::functions::STACK;
use crate::plan::{EventPlan, NotPlain};
use crate::predicate::Comparison;
use nopal_capture::span::{KEPT_BYTES, KEY_AT};
use nopal_capture::{Capture, Closing, Formula, Grouping, Predicate, Question, SpanSite, SpanStep};
use nopal_sdt::operand::Operand;
use std::collections::HashMap;

/// Spans that are kept at the source.
#[derive(Debug, Clone, Default)]
pub struct SpanRoles {
    /// What probes do, by provider and name, in this order.
    pub by_probe: HashMap<(String, String), Vec<SpanRole>>,
    pub spans: Vec<SpanQuestions>,
    /// How many of the slowest are wanted, with their arguments.
    pub n_slowest: u16,
    /// What the only span is grouped by.
    pub by: Option<SpanField>,
}

/// A field at one side of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanField {
    pub field: String,
    pub side: Side,
    /// The other side does not matter, if it had such a field: the side was asked for by name.
    pub is_of_side: bool,
}

/// What a probe does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpanRole {
    Begin {
        span: u8,
    },
    End {
        span: u8,
        /// Spans that cannot outlive it.
        parts: Vec<u8>,
    },
    /// Ends what is open of these as errors.
    Fail {
        spans: Vec<u8>,
    },
}

/// What is asked of a span's fields.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpanQuestions {
    /// A question's number is the bit of its answer.
    pub comparisons: Vec<FieldComparison>,
    /// Whether it counts at all.
    pub counts: Option<Formula>,
    /// The same: the least and the greatest duration, in nanoseconds.
    pub bounds: Option<(u64, u64)>,
    /// Whether it has failed.
    pub fails: Option<Formula>,
    /// Within an open one of its kind it does not count.
    pub is_outermost: bool,
    /// Calls of a function, which the stack pointer tells apart.
    pub is_call: bool,
}

/// `field OP constant`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldComparison {
    pub of: SpanField,
    pub comparison: Comparison,
    pub constant: i128,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Begin,
    End,
}

/// A stub cannot tell what is asked of this field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecidable(pub String);

impl SpanRoles {
    /// What a probe does to spans at one of its sites, if it is one of theirs.
    pub(super) fn at(&self, plan: &EventPlan, site: usize) -> Option<Result<SpanSite, Undecidable>> {
        let ty = &plan.event_type;
        let roles = self.by_probe.get(&(ty.provider.clone(), ty.name.clone()))?;
        let steps: Result<Vec<SpanStep>, Undecidable> =
            roles.iter().map(|role| self.step(role, plan, site)).collect();
        let values = self.values(&plan.sites[site].captures);
        let has_calls = self.spans.iter().any(|of_span| of_span.is_call);
        Some(steps.map(|steps| SpanSite { steps, values, n_slowest: self.n_slowest, has_calls }))
    }

    fn values(&self, captures: &[Capture]) -> Vec<Operand> {
        let operands = captures.iter().map(|capture| match capture {
            Capture::Value { operand } => Some(operand.clone()),
            Capture::CString { .. } | Capture::Bytes { .. } | Capture::ThreadContext { .. } => None,
        });
        let all = operands.collect::<Option<Vec<_>>>().unwrap_or_default();
        let bytes: usize = all.iter().map(|operand| usize::from(operand.size_bytes)).sum();
        let room = if self.by.is_some() { KEY_AT } else { KEPT_BYTES };
        if self.n_slowest > 0 && bytes <= room { all } else { Vec::new() }
    }

    fn step(&self, role: &SpanRole, plan: &EventPlan, site: usize) -> Result<SpanStep, Undecidable> {
        let questions = |span: u8, side: Side| match self.spans.get(usize::from(span)) {
            Some(of_span) => of_span.at(side, plan, site),
            None => Ok(Vec::new()),
        };
        let closing = |span: u8| {
            let of_span = self.spans.get(usize::from(span)).cloned().unwrap_or_default();
            let questions = questions(span, Side::End)?;
            let grouping = match (&self.by, self.key(Side::End, plan, site)?) {
                (None, _) => None,
                (Some(_), Some(operand)) => Some(Grouping::ByEnd(operand)),
                (Some(_), None) => Some(Grouping::ByBegin),
            };
            let SpanQuestions { counts, bounds, fails, .. } = of_span;
            Ok(Closing { questions, counts, bounds, fails, grouping })
        };
        let stack = |span: u8| match self.spans.get(usize::from(span)) {
            Some(of_span) if of_span.is_call => number(plan, site, STACK).map(Some),
            Some(_) | None => Ok(None),
        };
        let is_outermost = |span: u8| self.spans.get(usize::from(span)).is_some_and(|of| of.is_outermost);
        Ok(match role {
            SpanRole::Begin { span } => SpanStep::Begin {
                span: *span,
                is_outermost: is_outermost(*span),
                questions: questions(*span, Side::Begin)?,
                key: self.key(Side::Begin, plan, site)?,
                stack: stack(*span)?,
            },
            SpanRole::End { span, parts } => SpanStep::End {
                span: *span,
                is_outermost: is_outermost(*span),
                parts: parts.clone(),
                closing: closing(*span)?,
                stack: stack(*span)?,
            },
            SpanRole::Fail { spans } => {
                let each = spans.iter().map(|span| closing(*span).map(|closing| (*span, closing)));
                SpanStep::Fail { spans: each.collect::<Result<_, _>>()? }
            }
        })
    }

    /// What spans are grouped by, if it is something of this side: a number that the site has.
    fn key(&self, side: Side, plan: &EventPlan, site: usize) -> Result<Option<Operand>, Undecidable> {
        let Some(by) = &self.by else { return Ok(None) };
        match by.at(side, plan)? {
            Some(_) => number(plan, site, &by.field).map(Some),
            None if by.side == side => Err(Undecidable(by.field.clone())),
            None => Ok(None),
        }
    }

    /// A span needs a probe at which it begins and one at which it ends: the first that has none of either, by the probe it
    /// lacks.
    pub(super) fn absent(&self, is_there: impl Fn(&(String, String)) -> bool) -> Option<String> {
        (0..self.spans.len()).find_map(|at| {
            [true, false].into_iter().find_map(|is_begin| {
                let is_it = |role: &SpanRole| match role {
                    SpanRole::Begin { span } => is_begin && usize::from(*span) == at,
                    SpanRole::End { span, .. } => !is_begin && usize::from(*span) == at,
                    SpanRole::Fail { .. } => false,
                };
                let of_span = self.by_probe.iter().filter(|(_, roles)| roles.iter().any(is_it));
                let mut probes: Vec<_> = of_span.map(|(name, _)| name).collect();
                probes.sort();
                let (provider, name) = probes.first()?;
                (!probes.iter().any(|name| is_there(name))).then(|| format!("{provider}:{name}"))
            })
        })
    }
}

/// A field that a site has as a number.
fn number(plan: &EventPlan, site: usize, field: &str) -> Result<Operand, Undecidable> {
    let undecidable = || Undecidable(field.to_owned());
    let position = plan.field(field).ok_or_else(undecidable)?;
    let operand = plan.plain_operand(site, position).map_err(|NotPlain| undecidable())?;
    operand.cloned().ok_or_else(undecidable)
}

impl SpanQuestions {
    /// What is asked at a site at one side of the span. What the site has not is answered with no.
    fn at(&self, side: Side, plan: &EventPlan, site: usize) -> Result<Vec<Question>, Undecidable> {
        let mut questions = Vec::new();
        for (bit, comparison) in self.comparisons.iter().enumerate() {
            let undecidable = || Undecidable(comparison.of.field.clone());
            let Some(field) = comparison.of.at(side, plan)? else { continue };
            let operand = plan.plain_operand(site, field).map_err(|NotPlain| undecidable())?;
            if let Some(operand) = operand {
                let predicate = comparison.predicate(operand).ok_or_else(undecidable)?;
                questions.push(Question { bit: bit as u8, predicate });
            }
        }
        Ok(questions)
    }
}

impl SpanField {
    /// Its position at this side, if it is to be had there.
    fn at(&self, side: Side, plan: &EventPlan) -> Result<Option<usize>, Undecidable> {
        match (self.side == side, plan.field(&self.field)) {
            (true, Some(field)) => Ok(Some(field)),
            // Of the begin if it has the field, else of the end: this program has it otherwise than was thought.
            (true, None) | (false, Some(_)) if side == Side::Begin && !self.is_of_side => {
                Err(Undecidable(self.field.clone()))
            }
            (true | false, _) => Ok(None),
        }
    }
}

impl FieldComparison {
    /// The same of an operand; none if it is not the same for every value that the operand can have.
    fn predicate(&self, operand: &Operand) -> Option<Predicate> {
        let is_order = !matches!(self.comparison, Comparison::Eq | Comparison::Ne);
        // 64 bits that are the same are equal, whatever their signs.
        let is_other_sign = match operand.is_signed {
            true => self.constant > i128::from(i64::MAX),
            false => self.constant < 0,
        };
        if is_order && is_other_sign {
            return None;
        }
        let constant = if is_order { self.constant } else { same_bits(self.constant, operand) };
        Some(Predicate { operand: operand.clone(), relation: relation(self.comparison), constant })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_there_with_one_of_its_begins_and_one_of_its_ends() {
        let name = |name: &str| ("p".to_owned(), name.to_owned());
        let mut roles = SpanRoles { spans: vec![SpanQuestions::default()], ..SpanRoles::default() };
        for begin in ["begin", "begin2"] {
            roles.by_probe.insert(name(begin), vec![SpanRole::Begin { span: 0 }]);
        }
        roles.by_probe.insert(name("end"), vec![SpanRole::End { span: 0, parts: Vec::new() }]);
        roles.by_probe.insert(name("fail"), vec![SpanRole::Fail { spans: vec![0] }]);
        for (there, absent) in [
            (&["begin", "begin2", "end"][..], None),
            (&["begin2", "end"], None),
            (&["begin", "fail"], Some("p:end")),
            (&["end"], Some("p:begin")),
            (&[], Some("p:begin")),
        ] {
            let is_there = |(_, name): &(String, String)| there.contains(&name.as_str());
            assert_eq!(roles.absent(is_there).as_deref(), absent, "{there:?}");
        }
    }

    #[test]
    fn what_a_stub_would_decide_otherwise_it_is_not_asked() {
        use nopal_sdt::operand::{Arch, parse};
        for (text, comparison, constant, asked) in [
            ("-4@%edi", Comparison::Lt, -3, Some(-3)),
            ("-4@%edi", Comparison::Eq, i128::from(u64::MAX), Some(-1)),
            ("8@%rdi", Comparison::Eq, -1, Some(i128::from(u64::MAX))),
            ("4@%edi", Comparison::Ne, -1, Some(i128::from(u64::MAX))),
            // In the language of conditions the largest number is equal to -1, not above it.
            ("8@%rdi", Comparison::Gt, -1, None),
            ("-8@%rdi", Comparison::Lt, i128::from(u64::MAX), None),
        ] {
            let operand = parse(Arch::X86_64, text).unwrap();
            let field = FieldComparison {
                of: SpanField { field: "x".to_owned(), side: Side::Begin, is_of_side: false },
                comparison,
                constant,
            };
            let predicate = field.predicate(&operand);
            assert_eq!(predicate.map(|predicate| predicate.constant), asked, "{text} {constant}");
        }
    }
}
