//! What the screen shows and what keys do to it. Does no IO.

use super::super::latency::Sort;
use super::super::{picture, render};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use nopal_answers::Slow;
use nopal_spans::Summary;
use std::collections::VecDeque;
use std::time::Duration;

/// A group of spans, or a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Stays the same from one refresh to the next.
    pub id: usize,
    pub name: String,
    /// By [`Number`]; the rate is worked out here.
    pub numbers: [u64; N_NUMBERS],
}

/// The columns of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Number {
    Rate,
    Count,
    Errors,
    Total,
    SelfTime,
    P50,
    P90,
    P99,
    P999,
    Max,
}

pub(super) const N_NUMBERS: usize = 10;

pub(super) const NUMBERS: [Number; N_NUMBERS] = [
    Number::Rate,
    Number::Count,
    Number::Errors,
    Number::Total,
    Number::SelfTime,
    Number::P50,
    Number::P90,
    Number::P99,
    Number::P999,
    Number::Max,
];

impl Number {
    pub(super) fn title(self) -> &'static str {
        match self {
            Number::Rate => "per s",
            Number::Count => "count",
            Number::Errors => "error",
            Number::Total => "total",
            Number::SelfTime => "self",
            Number::P50 => "p50",
            Number::P90 => "p90",
            Number::P99 => "p99",
            Number::P999 => "p99.9",
            Number::Max => "max",
        }
    }

    pub(super) fn is_duration(self) -> bool {
        !matches!(self, Number::Rate | Number::Count | Number::Errors)
    }
}

/// What takes the room between title and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    Table,
    Detail,
    Help,
}

/// One row in full.
#[derive(Debug)]
pub(super) struct Detail {
    pub name: String,
    pub summary: Summary,
    pub slowest: Vec<Slow>,
}

/// How many seconds a sparkline can show.
pub(super) const N_HISTORY: usize = 60;

#[derive(Debug)]
pub(super) struct View {
    pub title: String,
    pub has_durations: bool,
    /// Whether the terminal can show block characters.
    pub has_blocks: bool,
    pub has_colour: bool,
    pub page: Page,
    pub sort: Number,
    pub is_reversed: bool,
    pub is_paused: bool,
    pub filter: String,
    /// Keys are letters of the filter now.
    pub is_typing: bool,
    /// The number of the row that the cursor is on.
    pub selected: Option<usize>,
    pub elapsed: Duration,
    pub n_unmatched: u64,
    /// Something that the tracer has to say.
    pub notice: Option<String>,
    pub detail: Option<Detail>,
    pub is_over: bool,
    rows: Vec<Row>,
    /// By the number of a row: its count at the last refresh, and how many came in each second.
    history: Vec<(u64, VecDeque<u64>)>,
    last: Duration,
}

impl View {
    pub(super) fn new(title: &str, sort: Sort, has_durations: bool) -> View {
        let sort = match sort {
            _ if !has_durations => Number::Count,
            Sort::Count => Number::Count,
            Sort::Total => Number::Total,
            Sort::SelfTime => Number::SelfTime,
            Sort::P50 => Number::P50,
            Sort::P90 => Number::P90,
            Sort::P99 => Number::P99,
            Sort::Max => Number::Max,
            Sort::Errors => Number::Errors,
            Sort::Rate => Number::Rate,
        };
        View {
            title: title.to_owned(),
            has_durations,
            has_blocks: picture::has_blocks(),
            has_colour: render::is_coloured(),
            page: Page::Table,
            sort,
            is_reversed: false,
            is_paused: false,
            filter: String::new(),
            is_typing: false,
            selected: None,
            elapsed: Duration::ZERO,
            n_unmatched: 0,
            notice: None,
            detail: None,
            is_over: false,
            rows: Vec::new(),
            history: Vec::new(),
            last: Duration::ZERO,
        }
    }

    /// Takes new numbers, unless it is paused.
    pub(super) fn refresh(&mut self, mut rows: Vec<Row>, elapsed: Duration, n_unmatched: u64) {
        if self.is_paused {
            return;
        }
        let seconds = (elapsed - self.last).as_secs_f64().max(0.001);
        for row in &mut rows {
            let count = row.numbers[Number::Count as usize];
            if self.history.len() <= row.id {
                self.history.resize_with(row.id + 1, Default::default);
            }
            let (before, history) = &mut self.history[row.id];
            let rate = (count.saturating_sub(*before) as f64 / seconds).round() as u64;
            *before = count;
            history.push_back(rate);
            if history.len() > N_HISTORY {
                history.pop_front();
            }
            row.numbers[Number::Rate as usize] = rate;
        }
        self.rows = rows;
        (self.last, self.elapsed, self.n_unmatched) = (elapsed, elapsed, n_unmatched);
        self.arrange();
    }

    /// Gets the details of the row that is looked into.
    pub(super) fn look_into(&mut self, detail: impl FnOnce(usize) -> Option<(Summary, Vec<Slow>)>) {
        if self.page != Page::Detail || (self.is_paused && self.detail.is_some()) {
            return;
        }
        let row = self.selected.and_then(|id| self.rows.iter().find(|row| row.id == id));
        self.detail = row.and_then(|row| {
            let (summary, slowest) = detail(row.id)?;
            Some(Detail { name: row.name.clone(), summary, slowest })
        });
        if self.detail.is_none() {
            self.page = Page::Table;
        }
    }

    /// The rows that the filter lets through, in their order.
    pub(super) fn shown(&self) -> Vec<&Row> {
        let wanted = self.filter.to_lowercase();
        self.rows.iter().filter(|row| row.name.to_lowercase().contains(&wanted)).collect()
    }

    /// How many came in each of the last seconds, the newest last.
    pub(super) fn history(&self, row: usize) -> Vec<u64> {
        self.history.get(row).map(|(_, counts)| counts.iter().copied().collect()).unwrap_or_default()
    }

    pub(super) fn n_spans(&self) -> u64 {
        self.rows.iter().map(|row| row.numbers[Number::Count as usize]).sum()
    }

    pub(super) fn numbers(&self) -> impl Iterator<Item = Number> + use<> {
        let has_durations = self.has_durations;
        NUMBERS
            .into_iter()
            .filter(move |number| has_durations || matches!(number, Number::Rate | Number::Count))
    }

    fn arrange(&mut self) {
        let (at, is_reversed) = (self.sort as usize, self.is_reversed);
        self.rows.sort_by(|a, b| {
            let order = b.numbers[at].cmp(&a.numbers[at]);
            (if is_reversed { order.reverse() } else { order }).then_with(|| a.name.cmp(&b.name))
        });
        self.keep_selection();
    }

    /// The cursor is on a row that is shown, if any is.
    fn keep_selection(&mut self) {
        let ids: Vec<usize> = self.shown().iter().map(|row| row.id).collect();
        if self.selected.is_none_or(|id| !ids.contains(&id)) {
            self.selected = ids.first().copied();
        }
    }

    pub(super) fn press(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            if matches!(key.code, KeyCode::Char('c' | 'd')) {
                self.is_over = true;
            }
            return;
        }
        match (self.is_typing, self.page) {
            (true, _) => self.type_filter(key.code),
            (false, Page::Help) => self.page = Page::Table,
            (false, Page::Table | Page::Detail) => self.command(key.code),
        }
    }

    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.chars().count() < 60 => self.filter.push(letter),
            _ => {}
        }
        self.keep_selection();
    }

    fn command(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('q') => self.is_over = true,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.page = Page::Help,
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char('>' | '.') | KeyCode::Right => self.sort_by_next(1),
            KeyCode::Char('<' | ',') | KeyCode::Left => self.sort_by_next(-1),
            KeyCode::Char('r') => {
                self.is_reversed = !self.is_reversed;
                self.arrange();
            }
            KeyCode::Char('/') => {
                self.page = Page::Table;
                self.is_typing = true;
            }
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-10),
            KeyCode::PageDown => self.step(10),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Enter if self.has_durations && self.selected.is_some() => {
                self.detail = None;
                self.page = Page::Detail;
            }
            KeyCode::Esc | KeyCode::Backspace if self.page == Page::Detail => self.page = Page::Table,
            KeyCode::Esc => {
                self.filter.clear();
                self.keep_selection();
            }
            _ => {}
        }
    }

    fn sort_by_next(&mut self, step: isize) {
        let numbers: Vec<Number> = self.numbers().collect();
        let at = numbers.iter().position(|number| *number == self.sort).unwrap_or(0) as isize;
        self.sort = numbers[(at + step).rem_euclid(numbers.len() as isize) as usize];
        self.arrange();
    }

    /// Moves the cursor; in the details of a row to those of its neighbour.
    fn step(&mut self, step: isize) {
        let ids: Vec<usize> = self.shown().iter().map(|row| row.id).collect();
        let Some(last) = ids.len().checked_sub(1) else { return };
        let at = ids.iter().position(|id| Some(*id) == self.selected).unwrap_or(0);
        self.selected = Some(ids[at.saturating_add_signed(step).min(last)]);
        self.detail = None;
    }
}
