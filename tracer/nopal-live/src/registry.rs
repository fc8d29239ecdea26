//! Which probes are wanted, and the events they leave: one number per site, kept for the whole session, so that records
//! of any process and either door can be read.

mod roles;

pub use roles::{FieldComparison, Side, SpanField, SpanQuestions, SpanRole, SpanRoles, Undecidable};

use crate::context_field::ContextField;
use crate::functions::{self, FunctionPattern};
use crate::plan::{EventPlan, Limits};
use crate::predicate::{Comparison, Constant, Context, Predicate, PredicateError, Source, Truth, Value, fit};
use crate::process_cache::ProcessCache;
use crate::selection::{Absent, Chosen, Places, Selection};
use crate::stack::StackCopy;
use nopal_capture::Task;
use nopal_capture::{Action, Hit, Relation, Wanted};
use nopal_proc::facts::{Fact, Facts};
use nopal_proc::unwind::CodeRange;
use nopal_proc::{FileId, MappedObject};
use nopal_sdt::operand::Operand;
use nopal_sdt::probe::{Probe, Site};
use nopal_sdt::{Object, Pattern};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// Probes by pattern, with a condition on their arguments.
#[derive(Debug, Clone)]
pub struct Choice {
    pub pattern: Pattern,
    pub condition: Option<String>,
    /// Probes that the pattern names and that are not wanted nevertheless.
    pub except: Vec<Pattern>,
    /// Only probes with a log level in this range; the more severe, the smaller. A probe without one is a line of
    /// debugging, as in LTTng.
    pub log_levels: Option<RangeInclusive<i32>>,
}

/// LTTng's TRACE_DEBUG_LINE: the level of a probe that says nothing.
pub const DEFAULT_LOG_LEVEL: i32 = 13;

impl Choice {
    fn new(pattern: &str, condition: Option<&str>) -> Choice {
        Choice {
            pattern: Pattern::parse(pattern.trim()),
            condition: condition.map(|text| text.trim().to_owned()),
            except: Vec::new(),
            log_levels: None,
        }
    }

    /// `function:FILE:NAME` means functions, and no probes.
    fn functions(&self) -> Option<FunctionPattern<'_>> {
        FunctionPattern::parse(self.pattern.text())
    }

    fn accepts(&self, probe: &Probe, is_function: bool) -> bool {
        if let Some(functions) = self.functions() {
            return is_function && functions.accepts(probe);
        }
        if is_function {
            return false;
        }
        let level = probe
            .description
            .as_ref()
            .and_then(|description| description.log_level)
            .unwrap_or(DEFAULT_LOG_LEVEL);
        self.pattern.matches(&probe.provider, &probe.name)
            && !self.except.iter().any(|pattern| pattern.matches(&probe.provider, &probe.name))
            && self.log_levels.as_ref().is_none_or(|levels| levels.contains(&level))
    }

    /// `PATTERN` or `PATTERN if CONDITION`, as on the command line.
    pub fn parse(text: &str) -> Choice {
        match text.split_once(" if ") {
            Some((pattern, condition)) => Choice::new(pattern, Some(condition)),
            // A condition that was forgotten is reported like any other that cannot be read.
            None => match text.trim().strip_suffix(" if") {
                Some(pattern) => Choice::new(pattern, Some("")),
                None => Choice::new(text, None),
            },
        }
    }
}

/// A condition that does not fit a probe it was given for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionError {
    pub probe: String,
    pub condition: String,
    pub error: PredicateError,
    /// The names that could have stood there.
    pub arguments: Vec<String>,
}

/// One site's event.
#[derive(Debug, Clone)]
pub struct Event {
    pub plan: Arc<EventPlan>,
    /// Index of the plan in [`Registry::plans`].
    pub plan_idx: usize,
    /// Position of the site in the plan.
    pub site_idx: usize,
    pub site: Site,
    pub file: FileId,
    /// What the stub could not decide alone.
    pub condition: Option<Arc<Predicate>>,
    /// A slow span that is kept at the source has the arguments.
    pub keeps_values: bool,
    /// What stubs cannot tell of a span of this probe, so that its hits leave events.
    pub undecidable: Option<Undecidable>,
}

/// The events of a session. Grows as processes map more files; never shrinks.
#[derive(Debug)]
pub struct Registry {
    choices: Vec<Choice>,
    given: Vec<nopal_provider::File>,
    limits: Limits,
    spans: Option<SpanRoles>,
    /// Probes, by provider and name, whose arguments are not read.
    without_arguments: HashSet<(String, String)>,
    pub plans: Vec<Arc<EventPlan>>,
    pub events: Vec<Event>,
    places: Places,
    /// Probes seen that no pattern asked for: what "did you mean" chooses from.
    pub others: Vec<(String, String)>,
    /// By choice: whether a probe fits it, and why its condition did not fit one.
    outcomes: Vec<Outcome>,
    /// Of the processes; it grows as hits are read.
    remembered: RefCell<ProcessCache>,
    /// Hits let through because a string was cut too short to decide about them.
    n_undecided: Cell<u64>,
}

#[derive(Debug, Clone, Default)]
struct Outcome {
    fits: bool,
    error: Option<ConditionError>,
}

/// A choice that no probe fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    Condition(ConditionError),
    /// With the nearest name there is.
    NoProbe {
        pattern: String,
        suggestion: Option<String>,
        has_probes: bool,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Condition(ConditionError { probe, condition, error, .. }) => {
                write!(f, "{probe}: in `{condition}` at column {}: {}", error.offset + 1, error.reason)
            }
            Unfit::NoProbe { pattern, .. } => write!(f, "no probe matches `{pattern}` in what is traced"),
        }
    }
}

impl Registry {
    pub fn new(choices: Vec<Choice>, given: Vec<nopal_provider::File>, limits: Limits) -> Registry {
        let n_choices = choices.len();
        Registry {
            choices,
            given,
            limits,
            spans: None,
            without_arguments: HashSet::new(),
            plans: Vec::new(),
            events: Vec::new(),
            places: Places::default(),
            others: Vec::new(),
            outcomes: vec![Outcome::default(); n_choices],
            remembered: RefCell::default(),
            n_undecided: Cell::new(0),
        }
    }

    /// Probes of these spans leave no events where the user door opens them.
    pub fn keep_spans(&mut self, roles: SpanRoles) {
        self.spans = Some(roles);
    }

    /// The arguments of these probes are not read, unless a condition asks for them.
    pub fn leave_out_arguments(&mut self, probes: HashSet<(String, String)>) {
        self.without_arguments = probes;
    }

    /// Whether an event's probe is one of a span that is kept at the source.
    pub fn is_of_span(&self, event: u32) -> bool {
        let (Some(roles), Some(event)) = (&self.spans, self.events.get(event as usize)) else { return false };
        let ty = &event.plan.event_type;
        roles.by_probe.contains_key(&(ty.provider.clone(), ty.name.clone()))
    }

    /// Whether what spans are grouped by at the source has a sign.
    pub fn has_signed_groups(&self) -> bool {
        let Some(by) = self.spans.as_ref().and_then(|roles| roles.by.as_ref()) else { return false };
        self.events.iter().enumerate().any(|(number, event)| {
            let field = event.plan.field(&by.field).filter(|_| self.is_of_span(number as u32));
            field.is_some_and(|field| event.plan.is_signed(field))
        })
    }

    /// Something that was asked of a span and that stubs cannot tell: the field and its probe.
    pub fn undecidable(&self) -> Option<(String, String)> {
        self.events.iter().find_map(|event| {
            let Undecidable(field) = event.undecidable.as_ref()?;
            let ty = &event.plan.event_type;
            Some((field.clone(), format!("{}:{}", ty.provider, ty.name)))
        })
    }

    /// From now on remembers of processes what these fields need, as they may have ended when their hits are read.
    pub fn keep_for(&mut self, fields: &[ContextField]) {
        self.remembered.get_mut().keep_for(fields);
    }

    fn files(&self) -> HashSet<FileId> {
        self.events.iter().map(|event| event.file).collect()
    }

    /// The name of a thread, by our numbers, as it was last seen.
    pub(crate) fn name_of(&self, task: Task) -> Option<Vec<u8>> {
        self.remembered.borrow().name(task).map(<[u8]>::to_vec)
    }

    /// Whose a process is, by our number.
    pub(crate) fn facts_of(&self, pid: u32) -> Facts {
        self.remembered.borrow_mut().facts(pid)
    }

    /// Where an event's site is in a process; its link-time address if nobody knows.
    pub(crate) fn address_in(&self, pid: u32, event: u32) -> u64 {
        let event = &self.events[event as usize];
        let bias = self.remembered.borrow_mut().bias(pid, event.file, &self.files());
        event.site.address.wrapping_add(bias.unwrap_or(0))
    }

    /// Appends where an event's thread was: its site, which is at `address`, and the callers.
    pub(crate) fn unwind(
        &self,
        pid: u32,
        event: u32,
        address: u64,
        stack: Option<StackCopy<'_>>,
        max_frames: usize,
        into: &mut Vec<u64>,
    ) {
        let file = self.events[event as usize].file;
        self.remembered.borrow_mut().unwind(pid, file, address, stack, max_frames, into);
    }

    /// The code at an address of a process, as far as its stacks need it.
    pub(crate) fn code_at(&self, pid: u32, event: u32, address: u64) -> Option<CodeRange> {
        let file = self.events[event as usize].file;
        self.remembered.borrow().code_at(pid, file, address).cloned()
    }

    /// Another number whenever the code of a process was looked at again.
    pub(crate) fn look_of(&self, pid: u32, event: u32) -> u64 {
        self.remembered.borrow().look_of(pid, self.events[event as usize].file)
    }

    /// What cannot be decided is let through, and counted.
    fn decide(&self, event: &Event, condition: &Predicate, hit: &Hit<'_>) -> bool {
        let is_name = |source| source == Source::Context(Context::Procname);
        let name = match condition.has_source(&is_name) {
            true => self.remembered.borrow_mut().current_name(hit.task),
            false => Vec::new(),
        };
        let truth = condition.decide(&|source| match source {
            Source::Field(field) => event.plan.value(event.site_idx, hit.payload, field),
            Source::Element { field, index } => event.plan.element(event.site_idx, hit.payload, field, index),
            Source::Context(Context::Vpid) => Value::Int(hit.task.pid.into()),
            Source::Context(Context::Vtid) => Value::Int(hit.task.tid.into()),
            Source::Context(Context::CpuId) => Value::Int(hit.stream.cpu.into()),
            Source::Context(Context::Procname) => Value::Text(&name),
            Source::Context(Context::Fact(fact)) => Value::Int(self.facts_of(hit.task.pid).get(fact).into()),
        });
        if truth == Truth::Unknown {
            self.n_undecided.set(self.n_undecided.get() + 1);
        }
        truth != Truth::No
    }

    /// How many hits were let through undecided since the last time.
    pub fn take_undecided(&self) -> u64 {
        self.n_undecided.take()
    }

    /// The first choice that no probe fits.
    pub fn unfit(&self) -> Option<Unfit> {
        self.each_unfit().next()
    }

    /// Every choice that no probe fits.
    pub fn all_unfit(&self) -> Vec<Unfit> {
        self.each_unfit().collect()
    }

    fn each_unfit(&self) -> impl Iterator<Item = Unfit> {
        let outcomes = self.choices.iter().zip(&self.outcomes).filter(|(_, outcome)| !outcome.fits);
        outcomes.map(|(choice, outcome)| match &outcome.error {
            Some(error) => Unfit::Condition(error.clone()),
            None => self.no_probe(choice),
        })
    }

    fn no_probe(&self, choice: &Choice) -> Unfit {
        let wanted = self.plans.iter().map(|plan| (&plan.event_type.provider, &plan.event_type.name));
        let others = self.others.iter().map(|(provider, name)| (provider, name));
        let known: Vec<(&str, &str)> = wanted.chain(others).map(|(p, n)| (p.as_str(), n.as_str())).collect();
        Unfit::NoProbe {
            pattern: choice.pattern.text().to_owned(),
            suggestion: choice.pattern.suggest(known.iter().copied()),
            has_probes: !known.is_empty(),
        }
    }
}

impl Selection for Registry {
    fn choose(&mut self, mapped: &MappedObject, object: &Object) -> Vec<Chosen> {
        let mut probes = object.probes.clone();
        nopal_sdt::describe(&mut probes, &self.given);
        let n_static = probes.len();
        let functions: Vec<FunctionPattern<'_>> = self.choices.iter().filter_map(Choice::functions).collect();
        if !functions.is_empty() {
            let taken: Vec<u64> = probes.iter().flat_map(|p| p.sites.iter().map(|s| s.address)).collect();
            probes.extend(functions::probes(mapped, &functions, taken.into_iter()));
        }
        let mut chosen = Vec::new();
        for (at, probe) in probes.iter().enumerate() {
            let is_asked_for = |c: &&Choice| c.accepts(probe, at >= n_static);
            if !self.choices.iter().any(|c| is_asked_for(&c)) {
                self.others.push((probe.provider.clone(), probe.name.clone()));
                continue;
            }
            let full_name = format!("{}:{}", probe.provider, probe.name);
            let plan = Arc::new(EventPlan::new(probe, self.limits));
            let mut conditions = Vec::new();
            for (choice, outcome) in
                self.choices.iter().zip(&mut self.outcomes).filter(|(c, _)| is_asked_for(c))
            {
                match condition(choice, &plan, &full_name) {
                    Ok(condition) => {
                        outcome.fits = true;
                        conditions.push(condition);
                    }
                    Err(error) => outcome.error = Some(error),
                }
            }
            if conditions.is_empty() {
                continue;
            }
            // A probe asked for several times is wanted if any of the conditions holds; without one, always.
            let condition = conditions.into_iter().collect::<Option<Vec<_>>>().map(|mut parts| {
                Arc::new(if parts.len() == 1 { parts.remove(0) } else { Predicate::Any(parts) })
            });
            let is_name = |source| source == Source::Context(Context::Procname);
            if condition.as_ref().is_some_and(|condition: &Arc<Predicate>| condition.has_source(&is_name)) {
                self.keep_for(&[ContextField::Procname]);
            }
            let facts = Fact::ALL.into_iter().filter(|fact| {
                let is_it = |source| source == Source::Context(Context::Fact(*fact));
                condition.as_ref().is_some_and(|condition: &Arc<Predicate>| condition.has_source(&is_it))
            });
            self.remembered.get_mut().keep_for(&facts.map(ContextField::Fact).collect::<Vec<_>>());
            let name = (probe.provider.clone(), probe.name.clone());
            let is_bare = condition.is_none() && self.without_arguments.contains(&name);
            let plan_idx = self.plans.len();
            self.plans.push(plan.clone());
            for (site_idx, site) in probe.sites.iter().enumerate() {
                let lowered = condition.as_ref().and_then(|c| lower(c, &plan, site_idx));
                let event = self.events.len() as u32;
                let captures = match is_bare {
                    true => Vec::new(),
                    false => plan.sites[site_idx].captures.clone(),
                };
                let by_kernel = Wanted {
                    probe: full_name.clone(),
                    site: site.clone(),
                    event,
                    predicates: Vec::new(),
                    action: Action::Record { captures, has_time: true, has_task: true },
                };
                let mut by_user = Wanted { predicates: lowered.unwrap_or_default(), ..by_kernel.clone() };
                let (mut keeps_values, mut undecidable) = (false, None);
                match self.spans.as_ref().and_then(|roles| roles.at(&plan, site_idx)) {
                    Some(Ok(site)) => {
                        keeps_values = !site.values.is_empty();
                        by_user.action = Action::Spans(site);
                    }
                    Some(Err(what)) => undecidable = Some(what),
                    None => {}
                }
                chosen.push(Chosen { by_user, by_kernel });
                self.events.push(Event {
                    plan: plan.clone(),
                    plan_idx,
                    site_idx,
                    site: site.clone(),
                    file: mapped.file().unwrap_or_default(),
                    condition: condition.clone(),
                    keeps_values,
                    undecidable,
                });
            }
        }
        chosen
    }

    fn places(&self) -> &Places {
        &self.places
    }

    fn places_mut(&mut self) -> &mut Places {
        &mut self.places
    }

    fn absent(&self) -> Option<Absent> {
        if let Some(undecidable) = self.undecidable() {
            return Some(Absent::Answer(undecidable));
        }
        let is_there = |(provider, name): &(String, String)| {
            self.plans.iter().any(|p| p.event_type.provider == *provider && p.event_type.name == *name)
        };
        self.spans.as_ref()?.absent(is_there).map(Absent::Probe)
    }

    /// Whether a hit's condition holds; a record that cannot be read fails it.
    #[inline]
    fn holds(&self, hit: &Hit<'_>) -> bool {
        match self.events.get(hit.event as usize) {
            Some(Event { condition: None, .. }) => true,
            Some(event @ Event { condition: Some(condition), .. }) => self.decide(event, condition, hit),
            None => false,
        }
    }

    fn look(&mut self, pid: u32) {
        let files = self.files();
        self.remembered.get_mut().look(pid, &files);
    }

    fn follow(&mut self, pid: u32) {
        let files = self.files();
        self.remembered.get_mut().follow(pid, &files);
    }
}

/// The choice's condition on this probe, if it has one.
fn condition(choice: &Choice, plan: &EventPlan, probe: &str) -> Result<Option<Predicate>, ConditionError> {
    let Some(text) = &choice.condition else { return Ok(None) };
    let misfit = |error| ConditionError {
        probe: probe.to_owned(),
        condition: text.clone(),
        error,
        arguments: plan.field_names().map(str::to_owned).collect(),
    };
    fit(text, plan).map(Some).map_err(misfit)
}

/// The part of a condition that a stub can decide: comparisons of integers that must all hold. What is left out is
/// decided again by the tracer, which evaluates the whole condition.
fn lower(predicate: &Predicate, plan: &EventPlan, site: usize) -> Option<Vec<nopal_capture::Predicate>> {
    match predicate {
        Predicate::Compare { field, comparison, constant: Constant::Int(constant) } => {
            let operand = plan.integer_operand(site, *field)?.clone();
            let relation = relation(*comparison);
            let constant = match comparison {
                Comparison::Eq | Comparison::Ne => same_bits(*constant, &operand),
                Comparison::Lt | Comparison::Le | Comparison::Gt | Comparison::Ge => *constant,
            };
            Some(vec![nopal_capture::Predicate { operand, relation, constant }])
        }
        Predicate::All(parts) => {
            Some(parts.iter().filter_map(|part| lower(part, plan, site)).flatten().collect())
        }
        Predicate::Compare { .. }
        | Predicate::Relate { .. }
        | Predicate::Holds(_)
        | Predicate::Not(_)
        | Predicate::Any(_) => None,
    }
}

fn relation(comparison: Comparison) -> Relation {
    match comparison {
        Comparison::Eq => Relation::Equal,
        Comparison::Ne => Relation::NotEqual,
        Comparison::Lt => Relation::Less,
        Comparison::Le => Relation::LessEqual,
        Comparison::Gt => Relation::Greater,
        Comparison::Ge => Relation::GreaterEqual,
    }
}

/// The number with the same 64 bits that the operand can have.
fn same_bits(constant: i128, operand: &Operand) -> i128 {
    match operand.is_signed {
        false => i128::from(constant as u64),
        true => i128::from(constant as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nopal_sdt::operand::{Arch, parse, split};
    use nopal_sdt::probe::{Arg, ArgDescription, Description, Kind};

    #[test]
    fn a_choice_is_a_pattern_with_or_without_a_condition() {
        let choice = Choice::parse("postgresql:query__start if len > 100");
        assert!(choice.pattern.matches("postgresql", "query__start"));
        assert_eq!(choice.condition.as_deref(), Some("len > 100"));
        assert_eq!(Choice::parse("memcached:*").condition, None);
        assert_eq!(Choice::parse("memcached:* if ").condition.as_deref(), Some(""));
    }

    #[test]
    fn exceptions_and_log_levels_narrow_a_choice() {
        let probe = |name: &str, log_level| Probe {
            provider: "p".into(),
            name: name.into(),
            sites: Vec::new(),
            description: Some(Description { log_level, ..Description::default() }),
        };
        let choice = Choice {
            except: vec![Pattern::parse("p:get_*")],
            log_levels: Some(0..=6),
            ..Choice::parse("p:*")
        };
        for (name, log_level, is_accepted) in [
            ("set", Some(4), true),
            ("set", Some(7), false),
            ("set", None, false),
            ("get_hit", Some(4), false),
        ] {
            assert_eq!(choice.accepts(&probe(name, log_level), false), is_accepted, "{name} {log_level:?}");
        }
        assert!(Choice::parse("p:*").accepts(&probe("set", None), false));
    }

    #[test]
    fn a_text_is_not_compared_with_a_number() {
        let arg = |number, name: &str, kind| ArgDescription {
            operand: Some(number),
            name: name.into(),
            kind,
            ..ArgDescription::default()
        };
        let description = Description {
            args: vec![arg(1, "id", Kind::Signed), arg(2, "name", Kind::CString)],
            ..Description::default()
        };
        let args = split("-4@%edi 8@%rsi")
            .into_iter()
            .map(|text| Arg { text: text.to_owned(), operand: parse(Arch::X86_64, text) })
            .collect();
        let site = Site {
            address: 0,
            file_offset: 0,
            semaphore: None,
            args,
            code: vec![0x90],
            until_restartable: None,
            edge: None,
        };
        let probe = Probe {
            provider: "p".into(),
            name: "n".into(),
            sites: vec![site],
            description: Some(description),
        };
        let plan = EventPlan::new(&probe, Limits::default());
        for (text, reason) in [
            ("id > 3 && name == 'x*'", None),
            ("name > 3", Some("`name` is a string")),
            ("id > 3 || !(id == 'x')", Some("`id` is a number")),
            ("", Some("expected the name")),
        ] {
            let choice = Choice::new("p:n", Some(text));
            let said = condition(&choice, &plan, "p:n").err().map(|e| e.error.reason);
            assert_eq!(said.is_some(), reason.is_some(), "{text}: {said:?}");
            assert!(said.unwrap_or_default().starts_with(reason.unwrap_or_default()), "{text}");
        }
    }
}
