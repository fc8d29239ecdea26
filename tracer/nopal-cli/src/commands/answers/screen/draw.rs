//! Draws the screen into whatever room there is.

use super::super::{numbers, picture, render};
use super::view::{Detail, N_HISTORY, Number, Page, Row, View};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// A number and the gap behind it.
const NUMBER_WIDTH: usize = 7;
/// What is left for names on a narrow screen.
const NAME_WIDTH: usize = 20;

pub(super) fn draw(view: &View, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < 20 || area.height < 4 {
        frame.render_widget(Line::raw("too small"), area);
        return;
    }
    let width = usize::from(area.width);
    line(frame, 0, Line::styled(render::cut(&title(view), width), Style::new().bold()));
    let body = Rect { y: 1, height: area.height - 2, ..area };
    let lines = match view.page {
        Page::Table => table(view, width, usize::from(body.height)),
        Page::Detail => match &view.detail {
            Some(detail) => in_full(view, detail, width, usize::from(body.height)),
            None => Vec::new(),
        },
        Page::Help => help(),
    };
    for (at, text) in lines.into_iter().take(usize::from(body.height)).enumerate() {
        line(frame, body.y + at as u16, text);
    }
    line(frame, area.height - 1, bottom(view, width));
}

fn line(frame: &mut Frame<'_>, y: u16, text: Line<'_>) {
    let area = Rect { y, height: 1, ..frame.area() };
    frame.render_widget(text, area);
}

fn title(view: &View) -> String {
    let what = if view.has_durations { "spans" } else { "events" };
    let mut text = format!(
        "nopal top  {}  {}  {} {what}",
        view.title,
        numbers::duration(view.elapsed.as_nanos() as u64),
        numbers::count(view.n_spans())
    );
    if view.n_unmatched > 0 {
        text.push_str(&format!("  {} unmatched", numbers::count(view.n_unmatched)));
    }
    if view.is_paused {
        text.push_str("  paused");
    }
    text
}

/// Keys, or what is being typed, or what the tracer says.
fn bottom(view: &View, width: usize) -> Line<'static> {
    if view.is_typing {
        return Line::raw(render::cut(
            &format!("filter: {}_   Enter keeps it, Esc drops it", view.filter),
            width,
        ));
    }
    let keys = match view.page {
        Page::Table if view.has_durations => {
            "</> sort  r reverse  / filter  Enter look into  Space pause  ? help  q quit"
        }
        Page::Table => "</> sort  r reverse  / filter  Space pause  ? help  q quit",
        Page::Detail => "Esc back  Up/Down neighbours  Space pause  ? help  q quit",
        Page::Help => "any key goes back",
    };
    match &view.notice {
        Some(notice) if view.page == Page::Table => {
            Line::styled(render::cut(&render::printable(notice), width), Style::new().bold())
        }
        _ => Line::styled(render::cut(keys, width), Style::new().dim()),
    }
}

fn table(view: &View, width: usize, height: usize) -> Vec<Line<'static>> {
    let shown = columns(view, width);
    let spark = spark_width(width, shown.len());
    let name_width = width.saturating_sub(shown.len() * NUMBER_WIDTH + spark + 1);
    let mut head: Vec<Span<'static>> = shown.iter().map(|number| heading(view, *number)).collect();
    head.push(Span::styled(format!("{:<spark$} ", if spark > 0 { "trend" } else { "" }), BOLD));
    let filter = if view.filter.is_empty() { String::new() } else { format!(" (only *{}*)", view.filter) };
    let what = if view.has_durations { "span" } else { "probe" };
    head.push(Span::styled(render::cut(&format!("{what}{filter}"), name_width), BOLD));
    let mut lines = vec![Line::from(head)];
    let rows = view.shown();
    if rows.is_empty() {
        let text = if view.filter.is_empty() { "nothing yet" } else { "no row has this in its name" };
        lines.extend([Line::raw(""), Line::raw(text)]);
    }
    // The cursor is always on the screen.
    let at = rows.iter().position(|row| Some(row.id) == view.selected).unwrap_or(0);
    let room = height.saturating_sub(1).max(1);
    for row in rows.into_iter().skip((at + 1).saturating_sub(room)).take(room) {
        lines.push(row_line(view, row, &shown, spark, name_width));
    }
    lines
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// The columns there is room for; the one that sorts is always there.
fn columns(view: &View, width: usize) -> Vec<Number> {
    let room = width.saturating_sub(NAME_WIDTH) / NUMBER_WIDTH;
    let mut shown: Vec<Number> = view.numbers().collect();
    // What is left out first comes first.
    for number in
        [Number::P999, Number::SelfTime, Number::P90, Number::Errors, Number::P50, Number::P99, Number::Count]
    {
        // Where nothing else is missing there is a trend, too.
        if shown.len() < room || shown.len() <= 1 {
            break;
        }
        if number != view.sort {
            shown.retain(|one| *one != number);
        }
    }
    shown
}

fn spark_width(width: usize, n_numbers: usize) -> usize {
    let left = width.saturating_sub(n_numbers * NUMBER_WIDTH + NAME_WIDTH + 1);
    match left {
        0..4 => 0,
        left => (left / 2).clamp(4, N_HISTORY).max(left.min(8)),
    }
}

fn heading(view: &View, number: Number) -> Span<'static> {
    let is_sorted = number == view.sort;
    let mark = match (is_sorted, view.is_reversed, view.has_blocks) {
        (false, ..) => "",
        (true, false, true) => "\u{25bc}",
        (true, true, true) => "\u{25b2}",
        (true, false, false) => "v",
        (true, true, false) => "^",
    };
    let style = if is_sorted { BOLD.add_modifier(Modifier::UNDERLINED) } else { BOLD };
    let width = NUMBER_WIDTH - 1;
    Span::styled(format!("{:>width$} ", format!("{}{mark}", number.title())), style)
}

fn row_line(view: &View, row: &Row, shown: &[Number], spark: usize, name_width: usize) -> Line<'static> {
    let style = match Some(row.id) == view.selected {
        true => Style::new().add_modifier(Modifier::REVERSED),
        false => Style::new(),
    };
    let width = NUMBER_WIDTH - 1;
    let mut parts = Vec::new();
    for number in shown {
        let value = row.numbers[*number as usize];
        let text = if number.is_duration() { numbers::duration(value) } else { numbers::count(value) };
        let is_alarming = *number == Number::Errors && value > 0;
        let style = if is_alarming { coloured(view, style, Color::Red) } else { style };
        parts.push(Span::styled(format!("{text:>width$} "), style));
    }
    if spark > 0 {
        let history = view.history(row.id);
        let recent = &history[history.len().saturating_sub(spark)..];
        let text = format!("{:>spark$} ", picture::sparkline_of(recent, view.has_blocks));
        parts.push(Span::styled(text, coloured(view, style, Color::Cyan)));
    } else {
        parts.push(Span::styled(" ", style));
    }
    parts.push(Span::styled(format!("{:<name_width$}", render::cut(&row.name, name_width)), style));
    Line::from(parts)
}

fn coloured(view: &View, style: Style, colour: Color) -> Style {
    if view.has_colour { style.fg(colour) } else { style }
}

/// Histogram and slowest of one row.
fn in_full(view: &View, detail: &Detail, width: usize, height: usize) -> Vec<Line<'static>> {
    let Detail { name, summary, slowest } = detail;
    let quantile = |share| numbers::duration(summary.durations.quantile(share));
    let mut lines = vec![Line::styled(render::cut(name, width), BOLD)];
    lines.push(Line::raw(render::cut(
        &format!(
            "{} spans, {} errors; total {}, self {}; p50 {}, p99 {}, max {}",
            numbers::count(summary.count()),
            numbers::count(summary.errors),
            numbers::duration(summary.total_ns),
            numbers::duration(summary.self_ns),
            quantile(0.5),
            quantile(0.99),
            numbers::duration(summary.durations.max())
        ),
        width,
    )));
    lines.push(Line::raw(""));
    // The slowest get a third of the room at most, and what bars leave.
    let slow = render::slow_lines(slowest, width);
    let room = height.saturating_sub(lines.len());
    let n_slow = (slow.len() + 2).min((room / 3).max(4)).min(room);
    let bars = picture::duration_bars(&summary.durations);
    let most = room - n_slow;
    let n_bars = bars.len().min(most);
    // The slow end is the one that matters.
    let n_left_out: u64 = bars[..bars.len() - n_bars].iter().map(|bar| bar.count).sum();
    let bars = &bars[bars.len() - n_bars..];
    if n_left_out > 0
        && let Some(last) = lines.last_mut()
    {
        *last = Line::raw(format!("  {} faster ones are not shown", numbers::count(n_left_out)));
    }
    lines.extend(
        picture::bars_of(bars, width.min(100), view.has_blocks).lines().map(|bar| Line::raw(bar.to_owned())),
    );
    lines.push(Line::raw(""));
    lines.push(Line::styled("slowest", BOLD));
    let left = height.saturating_sub(lines.len());
    lines.extend(slow.into_iter().take(left).map(Line::raw));
    lines
}

fn help() -> Vec<Line<'static>> {
    const KEYS: [(&str, &str); 9] = [
        ("> Right, < Left", "sort by the next column, or the one before"),
        ("r", "the other way round"),
        ("Up Down j k", "move the cursor; also PgUp, PgDn, Home, End"),
        ("Enter", "look into a row: histogram and slowest; Esc goes back"),
        ("/", "show only rows with these letters; Esc shows all again"),
        ("Space p", "stop and go on refreshing; nothing is lost meanwhile"),
        ("? h", "this help"),
        ("q Ctrl-C", "quit: prints the table and says whether anything is missing"),
        ("", ""),
    ];
    let mut lines = vec![Line::raw("")];
    lines.extend(KEYS.map(|(key, what)| Line::raw(format!("  {key:<17} {what}"))));
    for text in [
        "  Numbers are since the start; `per s` and the trend are of the last seconds.",
        "  self: without the spans within it on the same thread. Quantiles within 0.8 %.",
    ] {
        lines.push(Line::raw(text));
    }
    lines
}
