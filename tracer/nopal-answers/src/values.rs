//! How the values of a field are spread: by powers of two, or in steps of equal width.

use crate::ask::{self, By, Wrong, by};
use crate::condition::Condition;
use crate::counts::{parse, value};
use crate::event::{At, Consumer, OrderWithin, visible_fields};
use crate::groups::Groups;
use crate::table::{Answer, Cell, Column};
use nopal_spans::{Available, Fields, Histogram, KnownProbe, Needs, ProbeName};
use nopal_trace::EventType;

/// The steps of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// By powers of two.
    #[default]
    Log,
    /// From `low` up to `high` in steps; what is outside has a bucket at each end.
    Linear { low: i64, high: i64, step: u64 },
}

/// Steps of a linear scale; more would not fit a screen or a mind.
pub const MAX_STEPS: u64 = 1000;

/// Values being counted.
#[derive(Debug)]
pub struct Values {
    probes: Vec<ProbeName>,
    field: String,
    by: Vec<String>,
    condition: Option<String>,
    scale: Scale,
    classes: Vec<Option<ClassAsk>>,
    groups: Groups<Spread>,
    /// Values that are not whole numbers or not there.
    n_unfit: u64,
}

#[derive(Debug)]
struct ClassAsk {
    field: usize,
    by: Vec<By>,
    condition: Option<Condition>,
}

/// The values of one group.
#[derive(Debug, Default)]
pub struct Spread {
    pub count: u64,
    pub sum: f64,
    pub min: i128,
    pub max: i128,
    /// Of a logarithmic scale: from 0 up, and below 0 by their size.
    pub positive: Histogram,
    pub negative: Histogram,
    /// Of a linear scale: below, each step, above.
    pub steps: Vec<u64>,
}

/// One line of a picture: from `low` to `high`, both included; open ends are None.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub low: Option<i128>,
    pub high: Option<i128>,
    pub count: u64,
}

impl Values {
    pub fn new(
        probes: Vec<ProbeName>,
        field: &str,
        by_words: &[String],
        condition: Option<String>,
        scale: Scale,
        available: &Available,
    ) -> Result<Values, Wrong> {
        let known: Vec<&KnownProbe> = probes.iter().filter_map(|probe| available.probe(probe)).collect();
        for probe in &known {
            let name = probe.name.to_string();
            ask::number(&name, &probe.fields, field)?;
            by_words.iter().try_for_each(|word| by(&name, Some(&probe.fields), word, |_| 0).map(|_| ()))?;
            if let Some(text) = &condition {
                parse(text, &name, &probe.fields)?;
            }
        }
        Ok(Values {
            probes,
            field: field.to_owned(),
            by: by_words.to_vec(),
            condition,
            scale,
            classes: Vec::new(),
            groups: Groups::default(),
            n_unfit: 0,
        })
    }

    pub fn n_values(&self) -> u64 {
        self.groups.all.iter().map(|(_, spread)| spread.count).sum()
    }

    /// The groups, the largest first.
    pub fn groups(&self) -> Vec<(&[Cell], &Spread)> {
        let mut groups: Vec<_> =
            self.groups.all.iter().map(|(values, spread)| (&values[..], spread)).collect();
        groups.sort_by_key(|(_, spread)| std::cmp::Reverse(spread.count));
        groups
    }

    /// The lines of a group's picture.
    pub fn lines(&self, spread: &Spread) -> Vec<Line> {
        match self.scale {
            Scale::Log => log_lines(spread),
            Scale::Linear { low, high, step } => linear_lines(spread, low, high, step),
        }
    }

    pub fn answer(&self) -> Answer {
        let mut columns: Vec<Column> = self.by.iter().map(|name| Column::new(name, "", "key")).collect();
        columns.extend([
            Column::new("low", "", "number"),
            Column::new("high", "", "number"),
            Column::count("count"),
        ]);
        let mut rows = Vec::new();
        for (values, spread) in self.groups() {
            for line in self.lines(spread) {
                let mut row = values.to_vec();
                row.push(line.low.map_or(Cell::None, Cell::Integer));
                row.push(line.high.map_or(Cell::None, Cell::Integer));
                row.push(Cell::Count(line.count));
                rows.push(row);
            }
        }
        let mut notes = Vec::new();
        if self.n_unfit > 0 {
            notes.push(format!("{} events had no number in `{}`", self.n_unfit, self.field));
        }
        Answer { columns, rows, notes, ..Answer::default() }
    }
}

fn log_lines(spread: &Spread) -> Vec<Line> {
    let negative = spread.negative.powers().into_iter().rev().map(|bucket| Line {
        low: Some(-i128::from(bucket.high)),
        high: Some(-i128::from(bucket.low)),
        count: bucket.count,
    });
    let positive = spread.positive.powers().into_iter().map(|bucket| Line {
        low: Some(bucket.low.into()),
        high: Some(bucket.high.into()),
        count: bucket.count,
    });
    negative.chain(positive).collect()
}

fn linear_lines(spread: &Spread, low: i64, high: i64, step: u64) -> Vec<Line> {
    let n_steps = spread.steps.len().saturating_sub(2);
    let bound = |at: usize| i128::from(low) + at as i128 * i128::from(step);
    let line = |(at, count): (usize, &u64)| Line {
        low: (at > 0).then(|| bound(at - 1).min(high.into())),
        high: match at {
            0 => Some(i128::from(low) - 1),
            at if at <= n_steps => Some((bound(at) - 1).min(i128::from(high) - 1)),
            _ => None,
        },
        count: *count,
    };
    let mut lines: Vec<Line> = spread.steps.iter().enumerate().map(line).collect();
    // The ends only if there is something in them.
    if lines.last().is_some_and(|line| line.count == 0) {
        lines.pop();
    }
    if lines.first().is_some_and(|line| line.count == 0) {
        lines.remove(0);
    }
    lines
}

impl Spread {
    fn add(&mut self, number: i128, scale: Scale) {
        (self.min, self.max) = match self.count {
            0 => (number, number),
            _ => (self.min.min(number), self.max.max(number)),
        };
        self.count += 1;
        self.sum += number as f64;
        match scale {
            Scale::Log if number < 0 => self.negative.add(number.unsigned_abs() as u64),
            Scale::Log => self.positive.add(number as u64),
            Scale::Linear { low, high, step } => {
                let step = i128::from(step.max(1));
                let n_steps = ((i128::from(high) - i128::from(low) + step - 1) / step).max(0) as usize;
                self.steps.resize(n_steps + 2, 0);
                let at = match number {
                    number if number < i128::from(low) => 0,
                    number if number >= i128::from(high) => n_steps + 1,
                    number => 1 + ((number - i128::from(low)) / step) as usize,
                };
                self.steps[at] += 1;
            }
        }
    }
}

impl Consumer for Values {
    fn class(&mut self, ty: &EventType) -> Needs {
        let names = visible_fields(ty);
        let known = crate::inventory::of_type(ty);
        let is_asked_for = self.probes.iter().any(|probe| probe.is(&ty.provider, &ty.name));
        let field = ask::position(&known.fields, &self.field).filter(|_| is_asked_for);
        let (Some(field), true) = (field, is_asked_for) else {
            self.classes.push(None);
            return Needs::default();
        };
        let position = |word: &str| ask::position(&known.fields, word).unwrap_or(usize::MAX);
        let found = self
            .by
            .iter()
            .map(|word| by("", Some(&known.fields), word, position).unwrap_or(By::Field(usize::MAX)));
        let condition = self.condition.as_deref().and_then(|text| parse(text, "", &known.fields).ok());
        self.classes.push(Some(ClassAsk { field, by: found.collect(), condition }));
        Needs { fields: vec![true; names.len()], is_used: true }
    }

    fn event(&mut self, at: &At, class: usize, fields: &Fields) {
        let Some(ask) = &self.classes[class] else { return };
        if ask.condition.as_ref().is_some_and(|condition| !condition.holds(|field| fields.get(field))) {
            return;
        }
        let number = fields.get(ask.field);
        // A float counts by its whole part.
        let Some(number) = number.integer().or_else(|| number.number().map(|n| n.floor() as i128)) else {
            self.n_unfit += 1;
            return;
        };
        let group = self.groups.get(ask.by.iter().map(|by| value(*by, at, fields)));
        self.groups.all[group].1.add(number, self.scale);
    }

    fn order_within(&self) -> OrderWithin {
        OrderWithin::Nothing
    }

    fn loss(&mut self, _: i64) {}

    fn end(&mut self) {
        self.classes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(numbers: &[i128], scale: Scale) -> Vec<(Option<i128>, Option<i128>, u64)> {
        let mut spread = Spread::default();
        numbers.iter().for_each(|number| spread.add(*number, scale));
        let lines = match scale {
            Scale::Log => log_lines(&spread),
            Scale::Linear { low, high, step } => linear_lines(&spread, low, high, step),
        };
        lines.into_iter().map(|line| (line.low, line.high, line.count)).collect()
    }

    #[test]
    fn steps_of_equal_width_with_open_ends() {
        let scale = Scale::Linear { low: 0, high: 10, step: 4 };
        assert_eq!(
            lines(&[-1, 0, 3, 4, 9, 10, 99], scale),
            [
                (None, Some(-1), 1),
                (Some(0), Some(3), 2),
                (Some(4), Some(7), 1),
                (Some(8), Some(9), 1),
                (Some(10), None, 2)
            ]
        );
        assert_eq!(lines(&[5], scale), [(Some(0), Some(3), 0), (Some(4), Some(7), 1), (Some(8), Some(9), 0)]);
    }

    #[test]
    fn powers_of_two_on_both_sides_of_zero() {
        assert_eq!(
            lines(&[-3, 0, 1, 5], Scale::Log),
            [
                (Some(-3), Some(-2), 1),
                (Some(0), Some(0), 1),
                (Some(1), Some(1), 1),
                (Some(2), Some(3), 0),
                (Some(4), Some(7), 1)
            ]
        );
    }
}
