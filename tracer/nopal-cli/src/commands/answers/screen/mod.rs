//! The live screen of `nopal top`: rows that are refreshed once a second, keys to sort, filter and look into one of them.
//! `view` holds what is shown and what keys do, `draw` puts it on a terminal of any kind, `terminal` takes hold of the real
//! one and gives it back. Knows nothing of where the numbers come from.

mod draw;
mod terminal;
#[cfg(test)]
mod tests;
mod view;

use crate::failure::Failure;
use crate::{say, signals};
use crossterm::event::{self, Event, KeyEventKind};
use nopal_answers::Slow;
use nopal_spans::Summary;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};
use terminal::Terminal;
pub(super) use view::Row;
use view::View;

/// What a screen shows, as it stands now.
pub(super) trait Board {
    /// Every row, in no order. Numbers of rows stay what they are.
    fn rows(&self) -> Vec<Row>;

    /// One row in full, and the slowest of it.
    fn detail(&self, row: usize) -> Option<(Summary, Vec<Slow>)>;

    /// Begins and ends without a partner.
    fn n_unmatched(&self) -> u64;
}

/// How often the numbers change.
const TICK: Duration = Duration::from_secs(1);
/// The first ones come sooner.
const FIRST: Duration = Duration::from_millis(300);

/// The terminal, as long as it is ours.
pub(super) struct Screen {
    view: View,
    terminal: Option<Terminal>,
    keys: Option<Receiver<Event>>,
    start: Instant,
    next: Instant,
    has_tried: bool,
}

impl Screen {
    /// `title` says what is looked at; rows that only count have no durations.
    pub(super) fn new(title: &str, sort: super::latency::Sort, has_durations: bool) -> Screen {
        let start = Instant::now();
        let view = View::new(title, sort, has_durations);
        Screen { view, terminal: None, keys: None, start, next: start, has_tried: false }
    }

    /// Takes keys, and draws if something has changed. The first call takes hold of the terminal.
    pub(super) fn round(&mut self, board: &impl Board) -> Result<(), Failure> {
        let mut has_changed = false;
        if !std::mem::replace(&mut self.has_tried, true) {
            self.terminal = Some(Terminal::enter().map_err(|error| broken(&error))?);
            self.keys = Some(keys());
            (self.start, self.next) = (Instant::now(), Instant::now() + FIRST);
            has_changed = true;
        }
        let Some(terminal) = &mut self.terminal else { return Ok(()) };
        // A burst of keys must not keep the rings from being read.
        for _ in 0..64 {
            match self.keys.as_ref().map(Receiver::try_recv) {
                Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => self.view.press(key),
                Some(Ok(_)) => {}
                Some(Err(TryRecvError::Disconnected)) => {
                    signals::stop();
                    break;
                }
                Some(Err(TryRecvError::Empty)) | None => break,
            }
            has_changed = true;
        }
        if self.view.is_over {
            signals::stop();
        }
        let now = Instant::now();
        if now >= self.next {
            self.next = now + TICK;
            self.view.refresh(board.rows(), now - self.start, board.n_unmatched());
            has_changed = true;
        }
        if has_changed {
            self.view.look_into(|row| board.detail(row));
            self.view.notice = say::last_held();
            terminal.draw(|frame| draw::draw(&self.view, frame)).map_err(|error| broken(&error))?;
        }
        Ok(())
    }
}

/// What is typed, read by a thread of its own: whoever reads from a terminal that has gone may never come back.
fn keys() -> Receiver<Event> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                break;
            }
        }
    });
    receiver
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::new("terminal", format!("the terminal does not work: {error}"))
        .hint("`nopal top --once` prints a table instead")
}
