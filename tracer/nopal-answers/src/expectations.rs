//! What a test expects of a program's probes: that they come, in which order, how often, and how long spans take. Rules are
//! read here, fed with events, and judged. What was lost may have been anything: a rule that it could decide is unproven.

use crate::ask::{Wrong, spans};
use crate::event::{At, Consumer, OrderWithin};
use crate::latency::{Latency, LatencyAsk};
use crate::table::Cell;
use crate::trigger::duration_with_unit_ns;
use nopal_sdt::Pattern;
use nopal_spans::{Available, Fields, Needs, Span, Summary, Task};
use nopal_trace::EventType;
use std::collections::HashMap;

/// One rule, as it was written and what it means.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The option that it belongs to, without dashes.
    pub option: &'static str,
    pub text: String,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Order { steps: Vec<Pattern>, is_by_thread: bool },
    Count { pattern: Pattern, op: Op, n: u64 },
    Latency { words: Vec<String>, metric: Metric, op: Op, ns: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Less,
    AtMost,
    Equal,
    NotEqual,
    AtLeast,
    More,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Metric {
    Min,
    Mean,
    Max,
    Quantile(f64),
}

impl Op {
    const ALL: [(&'static str, Op); 7] = [
        (">=", Op::AtLeast),
        ("<=", Op::AtMost),
        ("==", Op::Equal),
        ("!=", Op::NotEqual),
        (">", Op::More),
        ("<", Op::Less),
        ("=", Op::Equal),
    ];

    fn holds(self, left: u64, right: u64) -> bool {
        match self {
            Op::Less => left < right,
            Op::AtMost => left <= right,
            Op::Equal => left == right,
            Op::NotEqual => left != right,
            Op::AtLeast => left >= right,
            Op::More => left > right,
        }
    }

    /// Whether it holds of what can only be more than was seen.
    fn judge_at_least(self, seen: u64, limit: u64) -> Judgement {
        let is_beyond = seen > limit;
        match self {
            Op::AtLeast | Op::More if self.holds(seen, limit) => Judgement::Holds,
            Op::NotEqual if is_beyond => Judgement::Holds,
            Op::Less if seen >= limit => Judgement::Broken,
            Op::AtMost | Op::Equal if is_beyond => Judgement::Broken,
            Op::AtLeast | Op::More | Op::NotEqual | Op::Less | Op::AtMost | Op::Equal => Judgement::Unproven,
        }
    }
}

impl Metric {
    fn parse(word: &str) -> Option<Metric> {
        match word {
            "min" => return Some(Metric::Min),
            "mean" | "avg" => return Some(Metric::Mean),
            "max" => return Some(Metric::Max),
            _ => {}
        }
        let digits = word.strip_prefix('p')?;
        let is_number = !digits.is_empty()
            && digits.len() <= 6
            && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let share: f64 = match is_number {
            // `p999` is 99.9 %, as everywhere.
            true if digits.len() > 2 && !digits.contains('.') && !digits.starts_with('9') => return None,
            true if digits.len() > 2 && !digits.contains('.') => format!("0.{digits}").parse().ok()?,
            true => digits.parse::<f64>().ok()? / 100.0,
            false => return None,
        };
        (0.0..1.0).contains(&share).then_some(Metric::Quantile(share))
    }

    fn of(self, summary: &Summary) -> u64 {
        match self {
            Metric::Min => summary.durations.min(),
            Metric::Mean => summary.total_ns / summary.count().max(1),
            Metric::Max => summary.durations.max(),
            Metric::Quantile(share) => summary.durations.quantile(share),
        }
    }
}

impl Rule {
    /// `a:start -> a:end`, `a:start -> a:end by thread`, or one probe that must come at all.
    pub fn order(text: &str) -> Result<Rule, Wrong> {
        let wrong = |why| Wrong::Rule { text: text.to_owned(), why, form: "PROBE -> PROBE [by thread]" };
        let trimmed = text.trim();
        let (steps, is_by_thread) = match trimmed.strip_suffix("by thread") {
            Some(steps) if steps.ends_with(char::is_whitespace) => (steps, true),
            _ => (trimmed, false),
        };
        let steps =
            steps.split("->").map(|step| pattern(step).map_err(wrong)).collect::<Result<Vec<_>, _>>()?;
        Ok(Rule { option: "expect", text: text.to_owned(), kind: Kind::Order { steps, is_by_thread } })
    }

    /// `b:x >= 3`
    pub fn count(text: &str) -> Result<Rule, Wrong> {
        let wrong = |why| Wrong::Rule { text: text.to_owned(), why, form: "PROBE >= N" };
        let (left, op, right) =
            compared(text).ok_or(wrong("it has no `>=`, `<=`, `==`, `!=`, `>` or `<`"))?;
        let n = right.parse().map_err(|_| wrong("what follows the comparison is not a number"))?;
        let kind = Kind::Count { pattern: pattern(left).map_err(wrong)?, op, n };
        Ok(Rule { option: "count", text: text.to_owned(), kind })
    }

    /// `query p99 < 5ms`, `a:start a:end max <= 1s`
    pub fn latency(text: &str) -> Result<Rule, Wrong> {
        let wrong = |why| Wrong::Rule { text: text.to_owned(), why, form: "SPAN p99 < 5ms" };
        let (left, op, right) = compared(text).ok_or(wrong("it has no `<`, `<=`, `>` or `>=`"))?;
        if matches!(op, Op::Equal | Op::NotEqual) {
            return Err(wrong("a time is never exactly another; use `<`, `<=`, `>` or `>=`"));
        }
        let ns = duration_with_unit_ns(right)
            .ok_or(wrong("what follows the comparison is not a time with its unit, such as `5ms`"))?;
        let mut words: Vec<String> = left.split_whitespace().map(str::to_owned).collect();
        let metric = words.pop().as_deref().and_then(Metric::parse);
        let metric = metric
            .ok_or(wrong("before the comparison stands none of min, mean, max, p50, p90, p99, p999"))?;
        if words.is_empty() || words.len() > 2 {
            return Err(wrong("one span or two probes are needed"));
        }
        let kind = Kind::Latency { words, metric, op, ns };
        Ok(Rule { option: "latency", text: text.to_owned(), kind })
    }
}

fn pattern(text: &str) -> Result<Pattern, &'static str> {
    let text = text.trim();
    match () {
        () if text.is_empty() => Err("a probe is missing"),
        () if text.contains(char::is_whitespace) => {
            Err("the name of a probe has no blanks; conditions are not known here")
        }
        () if text.contains(['<', '>', '=']) => Err("a comparison cannot be part of a probe's name"),
        () => Ok(Pattern::parse(text)),
    }
}

/// What stands left and right of the last comparison.
fn compared(text: &str) -> Option<(&str, Op, &str)> {
    let last = text.rfind(['<', '>', '='])?;
    let (before, right) = text.split_at(last + 1);
    // Longer operators come first.
    let (sign, op) = Op::ALL.iter().find(|(sign, _)| before.ends_with(sign))?;
    Some((before[..before.len() - sign.len()].trim(), *op, right.trim()))
}

/// What became of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    Holds,
    Broken,
    /// Something is missing that could have decided it.
    Unproven,
}

impl Judgement {
    pub fn name(self) -> &'static str {
        match self {
            Judgement::Holds => "holds",
            Judgement::Broken => "broken",
            Judgement::Unproven => "unproven",
        }
    }
}

/// A judged rule and why.
#[derive(Debug, Clone)]
pub struct Judged {
    pub option: &'static str,
    pub text: String,
    pub judgement: Judgement,
    pub reason: Reason,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// No probe fits a pattern: it was renamed, or left out of the build. With what may be meant.
    NoProbe {
        pattern: String,
        near: Option<String>,
    },
    /// All steps came; how often the first and the last.
    Came {
        n_first: u64,
    },
    /// So many steps came in order; the next one did not.
    Stopped {
        n_steps: usize,
        missing: String,
        n_missing: u64,
        after: Option<String>,
    },
    Counted {
        n: u64,
    },
    NoSpan {
        span: String,
    },
    Took {
        ns: u64,
        n_spans: u64,
    },
}

/// Rules at work.
#[derive(Debug)]
pub struct Expectations {
    rules: Vec<Rule>,
    /// What is to be traced.
    wanted: Vec<Pattern>,
    latency: Option<Latency>,
    /// The spans of each rule on latencies, by rule.
    spans: Vec<Vec<Span>>,
    /// For each kind of event: the rules and steps that it fits.
    classes: Vec<Vec<(usize, usize)>>,
    /// For each rule: hits of each step.
    n_hits: Vec<Vec<u64>>,
    /// For each rule: how far it has come, by thread or in all.
    reached: Vec<Reached>,
}

/// How far a rule has come.
#[derive(Debug, Clone, Default)]
struct Reached {
    /// Threads that have taken a step, or nobody for all of them.
    by_task: HashMap<Option<Task>, usize>,
    furthest: usize,
    /// Some threads are forgotten: they may have come further since.
    is_cut: bool,
}

/// Threads of a rule that are under way. A program may make up any number of them.
const MAX_UNDER_WAY: usize = 1 << 20;

impl Reached {
    /// Whether this step of the task was the next one.
    fn step(&mut self, task: Option<Task>, step: usize) -> bool {
        if self.by_task.get(&task).copied().unwrap_or(0) != step {
            return false;
        }
        if step == 0 && self.by_task.len() >= MAX_UNDER_WAY {
            self.by_task.clear();
            self.is_cut = true;
        }
        self.by_task.insert(task, step + 1);
        self.furthest = self.furthest.max(step + 1);
        true
    }
}

/// What is known when tracing is over.
#[derive(Debug, Default)]
pub struct Known<'a> {
    /// Nothing was lost.
    pub is_complete: bool,
    /// The probes that there were, whether hit or not: provider and name.
    pub probes: &'a [(String, String)],
    /// All that the program has, whether asked for or not, to say which was meant.
    pub names: &'a [(String, String)],
    /// Of which sites could not be opened.
    pub closed: &'a [(String, String)],
}

impl Expectations {
    pub fn new(rules: Vec<Rule>, available: &Available) -> Result<Expectations, Wrong> {
        let (mut wanted, mut of_rules, mut all) = (Vec::new(), Vec::new(), Vec::<Span>::new());
        for rule in &rules {
            let mut of_rule = Vec::new();
            match &rule.kind {
                Kind::Order { steps, .. } => wanted.extend(steps.iter().cloned()),
                Kind::Count { pattern, .. } => wanted.push(pattern.clone()),
                Kind::Latency { words, .. } => {
                    of_rule = spans(available, words, &[])?;
                    let new = of_rule.iter().filter(|span| !all.contains(span)).cloned().collect::<Vec<_>>();
                    all.extend(new);
                }
            }
            of_rules.push(of_rule);
        }
        let probes = all.iter().flat_map(Span::probes).map(|probe| Pattern::parse(&probe.to_string()));
        wanted.extend(probes);
        let ask = LatencyAsk { n_slowest: 0, ..LatencyAsk::default() };
        let latency = match all.is_empty() {
            true => None,
            false => Some(Latency::new(all, &ask, available)?),
        };
        let n_hits = rules.iter().map(|rule| vec![0; rule.patterns().len()]).collect();
        let reached = vec![Reached::default(); rules.len()];
        Ok(Expectations { rules, wanted, latency, spans: of_rules, classes: Vec::new(), n_hits, reached })
    }

    /// What must be traced, each once.
    pub fn patterns(&self) -> Vec<String> {
        let mut all: Vec<String> = self.wanted.iter().map(|pattern| pattern.text().to_owned()).collect();
        all.sort();
        all.dedup();
        all
    }

    pub fn judge(&self, known: &Known<'_>) -> Vec<Judged> {
        (0..self.rules.len()).map(|idx| self.judge_one(idx, known)).collect()
    }

    fn judge_one(&self, idx: usize, known: &Known<'_>) -> Judged {
        let rule = &self.rules[idx];
        let fits =
            |pattern: &Pattern| known.probes.iter().any(|(provider, name)| pattern.matches(provider, name));
        let mut patterns: Vec<Pattern> = rule.patterns().into_iter().cloned().collect();
        patterns
            .extend(self.spans[idx].iter().flat_map(Span::probes).map(|p| Pattern::parse(&p.to_string())));
        // A probe that is not there makes every rule on it wrong, also one that wants none of its hits: it could never be broken.
        let absent = rule.patterns().into_iter().find(|pattern| !fits(pattern));
        let is_whole = known.is_complete
            && !self.reached[idx].is_cut
            && !patterns.iter().any(|pattern| known.closed.iter().any(|(p, n)| pattern.matches(p, n)));
        let (judgement, reason) = match (absent, &rule.kind) {
            (Some(pattern), _) => {
                let names = known.names.iter().map(|(provider, name)| (provider.as_str(), name.as_str()));
                let reason =
                    Reason::NoProbe { pattern: pattern.text().to_owned(), near: pattern.suggest(names) };
                // Something may have been loaded unseen.
                (if known.is_complete { Judgement::Broken } else { Judgement::Unproven }, reason)
            }
            (None, Kind::Order { steps, .. }) => {
                let n_steps = self.reached[idx].furthest;
                let n_hits = &self.n_hits[idx];
                match steps.get(n_steps) {
                    None => (Judgement::Holds, Reason::Came { n_first: n_hits[0] }),
                    Some(missing) => {
                        let after = n_steps.checked_sub(1).map(|before| steps[before].text().to_owned());
                        let missing = missing.text().to_owned();
                        let reason = Reason::Stopped { n_steps, missing, n_missing: n_hits[n_steps], after };
                        (if is_whole { Judgement::Broken } else { Judgement::Unproven }, reason)
                    }
                }
            }
            (None, Kind::Count { op, n, .. }) => {
                let seen = self.n_hits[idx][0];
                let judgement = match is_whole {
                    true if op.holds(seen, *n) => Judgement::Holds,
                    true => Judgement::Broken,
                    false => op.judge_at_least(seen, *n),
                };
                (judgement, Reason::Counted { n: seen })
            }
            (None, Kind::Latency { metric, op, ns, words }) => {
                self.judge_latency(idx, (*metric, *op, *ns), words, is_whole)
            }
        };
        Judged { option: rule.option, text: rule.text.clone(), judgement, reason }
    }

    fn judge_latency(
        &self,
        idx: usize,
        (metric, op, ns): (Metric, Op, u64),
        words: &[String],
        is_whole: bool,
    ) -> (Judgement, Reason) {
        let mut summary = Summary::default();
        let names: Vec<String> = self.spans[idx].iter().map(Span::full_name).collect();
        for (cells, group) in self.latency.iter().flat_map(Latency::groups) {
            if matches!(cells.first(), Some(Cell::Text(name)) if names.contains(name)) {
                summary.merge(group);
            }
        }
        if summary.count() == 0 {
            let judgement = if is_whole { Judgement::Broken } else { Judgement::Unproven };
            return (judgement, Reason::NoSpan { span: words.join(" ") });
        }
        let seen = metric.of(&summary);
        let judgement = match is_whole {
            true if op.holds(seen, ns) => Judgement::Holds,
            true => Judgement::Broken,
            // The longest can only be longer.
            false if metric == Metric::Max => op.judge_at_least(seen, ns),
            false => Judgement::Unproven,
        };
        (judgement, Reason::Took { ns: seen, n_spans: summary.count() })
    }
}

impl Rule {
    fn patterns(&self) -> Vec<&Pattern> {
        match &self.kind {
            Kind::Order { steps, .. } => steps.iter().collect(),
            Kind::Count { pattern, .. } => vec![pattern],
            Kind::Latency { .. } => Vec::new(),
        }
    }
}

impl Consumer for Expectations {
    fn class(&mut self, ty: &EventType) -> Needs {
        let mut fits = Vec::new();
        for (rule_idx, rule) in self.rules.iter().enumerate() {
            for (step, pattern) in rule.patterns().into_iter().enumerate() {
                if pattern.matches(&ty.provider, &ty.name) {
                    fits.push((rule_idx, step));
                }
            }
        }
        let mut needs = self.latency.as_mut().map(|latency| latency.class(ty)).unwrap_or_default();
        needs.is_used |= !fits.is_empty();
        self.classes.push(fits);
        needs
    }

    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        let mut moved = Vec::new();
        for &(rule, step) in &self.classes[class] {
            self.n_hits[rule][step] += 1;
            if let Kind::Order { is_by_thread, .. } = self.rules[rule].kind {
                // One event is one step, also where it fits two in a row.
                if !moved.contains(&rule) && self.reached[rule].step(is_by_thread.then_some(at.task), step) {
                    moved.push(rule);
                }
            }
        }
        if let Some(latency) = &mut self.latency {
            latency.event(at, class, fields);
        }
    }

    fn order_within(&self) -> OrderWithin {
        // Steps that are not by thread, and what pairs by key, can be of several.
        OrderWithin::Process
    }

    fn loss(&mut self, to_ns: i64) {
        if let Some(latency) = &mut self.latency {
            latency.loss(to_ns);
        }
    }

    fn restart(&mut self, pid: u32) {
        if let Some(latency) = &mut self.latency {
            latency.restart(pid);
        }
    }

    fn end(&mut self) {
        self.classes.clear();
        if let Some(latency) = &mut self.latency {
            latency.end();
        }
    }
}

#[cfg(test)]
mod tests;
