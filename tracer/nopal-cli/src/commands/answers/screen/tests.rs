//! The screen as people see it, and what keys do to it.

use super::draw::draw;
use super::view::{N_NUMBERS, Number, Page, Row, View};
use crate::commands::answers::{latency::Sort, render};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use nopal_answers::{Cell, Slow};
use nopal_spans::{Summary, Task};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

/// The characters of a screen of this size, without blanks at the ends of lines.
fn picture(view: &View, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(view, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    // Times are local ones.
    (0..height).map(|y| line(y) + "\n").collect::<String>().replace(&render::clock(0), "00:00:00.000000")
}

/// The picture must be that of the file; NOPAL_BLESS=1 makes it so, for somebody to look at the difference.
#[track_caller]
fn check(view: &View, width: u16, height: u16, name: &str) {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/commands/answers/screen/snapshots");
    let path = format!("{dir}/{name}-{width}x{height}.txt");
    let got = picture(view, width, height);
    if std::env::var_os("NOPAL_BLESS").is_some() {
        std::fs::write(&path, &got).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert!(got == expected, "{width}x{height} is now:\n{got}\nand was:\n{expected}");
}

fn row(id: usize, name: &str, count: u64, each_ns: u64, errors: u64) -> Row {
    let mut numbers = [each_ns; N_NUMBERS];
    numbers[Number::Count as usize] = count;
    numbers[Number::Errors as usize] = errors;
    numbers[Number::Total as usize] = count * each_ns;
    numbers[Number::SelfTime as usize] = count * each_ns / 2;
    numbers[Number::Max as usize] = each_ns * 40;
    Row { id, name: name.to_owned(), numbers }
}

fn rows(second: u64) -> Vec<Row> {
    vec![
        row(0, "postgresql:transaction", 200 * second, 1_400_000, 0),
        row(1, "postgresql:query  select * from accounts where id = ?", 1_000 * second, 210_000, second),
        row(2, "postgresql:checkpoint", 1, 2_300_000_000, 0),
        row(3, "postgresql:lwlock_wait", 31_000 * second * second, 900, 0),
    ]
}

fn view() -> View {
    let mut view = View::new("pid 4711", Sort::Total, true);
    (view.has_blocks, view.has_colour) = (true, true);
    for second in 1..=5 {
        view.refresh(rows(second), Duration::from_secs(second), 3);
    }
    view
}

fn slow(duration_ns: u64, text: &str) -> Slow {
    Slow {
        span: "postgresql:query".into(),
        start_ns: 0,
        duration_ns,
        self_ns: duration_ns,
        task: Task { pid: 4711, tid: 4712 },
        is_error: false,
        fields: vec![("query".into(), Cell::Text(text.into()))],
    }
}

fn press(view: &mut View, keys: &str) {
    for key in keys.split_whitespace() {
        let code = match key {
            "Enter" => KeyCode::Enter,
            "Esc" => KeyCode::Esc,
            "Down" => KeyCode::Down,
            "Up" => KeyCode::Up,
            "Left" => KeyCode::Left,
            "Right" => KeyCode::Right,
            "Space" => KeyCode::Char(' '),
            key => KeyCode::Char(key.chars().next().unwrap()),
        };
        view.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

fn names(view: &View) -> Vec<&str> {
    let shown = view.shown();
    shown.iter().map(|row| row.name.split(':').next_back().unwrap().split(' ').next().unwrap()).collect()
}

#[test]
fn the_table_fits_its_screen() {
    check(&view(), 80, 24, "table");
    check(&view(), 200, 50, "table");
    // However small: nothing is drawn outside, nothing panics.
    for (width, height) in [(1, 1), (20, 4), (33, 5), (60, 10), (79, 23), (120, 8), (500, 200)] {
        let got = picture(&view(), width, height);
        assert_eq!(got.lines().count(), usize::from(height));
        assert!(got.lines().all(|line| line.chars().count() <= usize::from(width)));
    }
}

#[test]
fn without_block_characters_and_with_nothing_to_see() {
    let mut plain = view();
    plain.has_blocks = false;
    let got = picture(&plain, 80, 24);
    assert!(got.is_ascii(), "{got}");
    let mut counting = View::new("pid 4711", Sort::Total, false);
    assert!(picture(&counting, 80, 24).contains("nothing yet"));
    let mut numbers = [0; N_NUMBERS];
    numbers[Number::Count as usize] = 12;
    counting.refresh(vec![Row { id: 0, name: "app:tick".into(), numbers }], Duration::from_secs(1), 0);
    let got = picture(&counting, 80, 24);
    assert!(got.contains("12 events") && got.contains("app:tick") && !got.contains("p99"), "{got}");
}

#[test]
fn a_row_is_looked_into() {
    let mut view = view();
    press(&mut view, "Down Down Enter");
    let mut summary = Summary::default();
    for i in 1..=3_000u64 {
        summary.add(150_000 + i * i * 3, 150_000, i % 1000 == 0);
    }
    view.look_into(|row| {
        assert_eq!(row, 1, "the third by total time");
        Some((summary, vec![slow(27_150_000, "select 1"), slow(9_000_000, "select\n2")]))
    });
    check(&view, 80, 24, "detail");
    press(&mut view, "Esc");
    assert_eq!(view.page, Page::Table);
    press(&mut view, "?");
    check(&view, 80, 24, "help");
    press(&mut view, "x");
    assert_eq!(view.page, Page::Table);
}

#[test]
fn keys_sort_and_filter() {
    let mut view = view();
    assert_eq!(names(&view), ["checkpoint", "transaction", "query", "lwlock_wait"]);
    press(&mut view, "r");
    assert_eq!(names(&view), ["lwlock_wait", "query", "transaction", "checkpoint"]);
    press(&mut view, "r Left Left");
    assert_eq!((view.sort, names(&view)[0]), (Number::Count, "lwlock_wait"));
    press(&mut view, "< <");
    assert_eq!(view.sort, Number::Max, "from the first column to the last");
    press(&mut view, ">");
    assert_eq!(view.sort, Number::Rate);
    // 31,000 times 25 less 16.
    assert_eq!(view.shown()[0].numbers[Number::Rate as usize], 279_000);
    press(&mut view, "/ L w L");
    assert!(picture(&view, 80, 24).contains("filter: LwL_"));
    assert_eq!(names(&view), ["lwlock_wait"]);
    press(&mut view, "q Esc");
    assert!(!view.is_over && view.filter.is_empty(), "q was a letter of the filter");
    press(&mut view, "/ z z Enter");
    assert!(names(&view).is_empty() && view.selected.is_none());
    press(&mut view, "Enter Down r >");
    assert!(picture(&view, 80, 24).contains("no row has this in its name"));
    press(&mut view, "Esc");
    assert_eq!(names(&view).len(), 4);
    press(&mut view, "q");
    assert!(view.is_over);
}

#[test]
fn pausing_keeps_what_is_shown() {
    let mut view = view();
    press(&mut view, "Space");
    view.refresh(rows(9), Duration::from_secs(9), 0);
    assert_eq!(view.elapsed, Duration::from_secs(5));
    assert!(picture(&view, 80, 24).contains("paused"));
    press(&mut view, "p");
    view.refresh(rows(9), Duration::from_secs(9), 0);
    assert_eq!(view.elapsed, Duration::from_secs(9));
    // The rate is that of all four seconds.
    let query = view.shown().into_iter().find(|row| row.id == 1).unwrap().numbers;
    assert_eq!(query[Number::Rate as usize], 1_000);
}

#[test]
fn the_cursor_stays_on_its_row() {
    let mut view = view();
    press(&mut view, "Down");
    assert_eq!(view.selected, Some(0));
    press(&mut view, "r");
    assert_eq!(view.selected, Some(0), "the row moved, and the cursor with it");
    press(&mut view, "Down Down Down Down");
    assert_eq!(view.selected, Some(2), "the last one");
    view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert!(view.is_over);
}

#[test]
fn more_rows_than_lines_follow_the_cursor() {
    let mut view = View::new("pid 1", Sort::Count, true);
    let many = (0..100).map(|id| row(id, &format!("app:span{id:03}"), 1_000 - id as u64, 1_000, 0)).collect();
    view.refresh(many, Duration::from_secs(1), 0);
    assert!(picture(&view, 80, 24).contains("span020") && !picture(&view, 80, 24).contains("span022"));
    view.press(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
    assert!(picture(&view, 80, 24).contains("span099"));
}
