//! Metrics as text: Prometheus' own form, and OpenMetrics, which has exemplars.

use crate::target::Target;
use nopal_answers::{Cell, Slow};
use nopal_spans::Summary;
use std::fmt::Write;

/// Which of the two forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Prometheus,
    OpenMetrics,
}

impl Form {
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Form::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Form::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    /// OpenMetrics names a family of counters without the end that its samples have.
    fn counter(self, name: &str) -> String {
        match self {
            Form::Prometheus => format!("{name}_total"),
            Form::OpenMetrics => name.to_owned(),
        }
    }
}

/// Upper bounds of buckets: the last nanosecond before each power of two, from a microsecond to a minute. Our histograms
/// have a bound there, so that nothing is guessed.
pub(crate) fn bounds_ns() -> impl Iterator<Item = u64> {
    (10..37).map(|power| (1u64 << power) - 1)
}

/// How many spans took at most as long as each bound.
pub(crate) fn cumulative(summary: &Summary) -> Vec<u64> {
    let mut buckets = summary.durations.buckets().peekable();
    let mut seen = 0;
    bounds_ns()
        .map(|bound| {
            while let Some(bucket) = buckets.next_if(|bucket| bucket.high <= bound) {
                seen += bucket.count;
            }
            seen
        })
        .collect()
}

/// The names of labels: what SQL and Prometheus allow, and none of ours.
fn label_name(field: &str) -> String {
    let mut name: String =
        field.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect();
    let is_taken = matches!(name.as_str(), "target" | "span" | "probe" | "le" | "quantile");
    if is_taken || name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || name.starts_with("__")
    {
        name.insert_str(0, "arg_");
    }
    name
}

const MAX_LABEL_CHARS: usize = 128;

/// As the formats ask for it; what would steer a terminal that shows them stands as its number.
fn escaped(text: &str) -> String {
    let text: String = text.chars().take(MAX_LABEL_CHARS).collect();
    nopal_trace::escape_lines(&text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

pub(crate) fn text_of(cell: &Cell) -> String {
    match cell {
        Cell::None => String::new(),
        Cell::Text(text) => text.clone(),
        Cell::Count(n) | Cell::Duration(n) => n.to_string(),
        Cell::Integer(n) => n.to_string(),
        Cell::Float(n) => n.to_string(),
        Cell::Time(ns) => ns.to_string(),
    }
}

/// The labels of a series, by name.
pub(crate) fn labels(target: &str, first: &str, by: &[String], values: &[Cell]) -> Vec<(String, String)> {
    let mut labels = vec![("target".to_owned(), target.to_owned())];
    let names = std::iter::once(first.to_owned()).chain(by.iter().map(|field| label_name(field)));
    labels.extend(names.zip(values.iter().map(text_of)));
    labels
}

fn joined(labels: &[(String, String)]) -> String {
    let all: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    all.join(",")
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Runes that OpenMetrics allows in the labels of an exemplar, names and values together.
const MAX_EXEMPLAR_CHARS: usize = 128;
const MAX_IDS_BYTES: usize = MAX_EXEMPLAR_CHARS - "trace_id".len() - "span_id".len();

/// ` # {trace_id="..."} seconds time`: a trace where the span has one, else where it ran.
fn exemplar(slow: &Slow) -> String {
    let called = |names: &[&str]| {
        let texts = slow.fields.iter().filter(|(name, _)| names.contains(&name.as_str()));
        // A span that belongs to no trace has none.
        texts.map(|(_, cell)| text_of(cell)).find(|text| !text.is_empty())
    };
    let labels = match called(&["trace_id", "traceid", "trace"]) {
        Some(trace) => {
            let span = called(&["span_id"]).filter(|span| trace.len() + span.len() <= MAX_IDS_BYTES);
            let trace: String = trace.chars().take(MAX_EXEMPLAR_CHARS - "trace_id".len()).collect();
            let span = span.map(|span| format!(",span_id=\"{}\"", escaped(&span))).unwrap_or_default();
            format!("trace_id=\"{}\"{span}", escaped(&trace))
        }
        None => format!("pid=\"{}\",tid=\"{}\"", slow.task.pid, slow.task.tid),
    };
    let end_ns = slow.start_ns.saturating_add_unsigned(slow.duration_ns);
    format!(" # {{{labels}}} {} {:.3}", seconds(slow.duration_ns), end_ns as f64 / 1e9)
}

/// All metrics.
pub(crate) fn render(targets: &mut [Target], form: Form) -> String {
    let mut out = String::new();
    spans(targets, form, &mut out);
    let counter = |out: &mut String, name: &str, help: &str| {
        let family = form.counter(name);
        let _ = writeln!(out, "# HELP {family} {help}\n# TYPE {family} counter");
    };
    counter(&mut out, "nopal_probe_hits", "Hits of a probe.");
    for target in targets.iter() {
        let by = target.labels().map_or(&[][..], |labels| &labels.of_probes);
        for (values, n) in target.counts() {
            let labels = joined(&labels(target.config.label(), "probe", by, values));
            let _ = writeln!(out, "nopal_probe_hits_total{{{labels}}} {n}");
        }
    }
    type Number = fn(&Target) -> u64;
    let counters: [(&str, &str, Number); 5] = [
        ("nopal_events", "Events that were taken.", |target| target.n_events()),
        ("nopal_lost_events", "Events that were lost.", |target| target.state.verdict.n_all_lost()),
        ("nopal_gaps", "Times in which hits may have been missed.", |target| target.state.verdict.n_gaps),
        ("nopal_late_programs", "Programs and libraries whose first hits may be missing.", |target| {
            target.state.verdict.n_late
        }),
        ("nopal_folded", "Spans and hits beyond max_series, whose labels are (others).", |target| {
            target.n_folded()
        }),
    ];
    for (name, help, get) in counters {
        counter(&mut out, name, help);
        for target in targets.iter() {
            let _ = writeln!(
                out,
                "{name}_total{{target=\"{}\"}} {}",
                escaped(target.config.label()),
                get(target)
            );
        }
    }
    let _ = writeln!(out, "# HELP nopal_processes Processes that are traced.\n# TYPE nopal_processes gauge");
    for target in targets.iter() {
        let label = escaped(target.config.label());
        let _ = writeln!(out, "nopal_processes{{target=\"{label}\"}} {}", target.state.n_processes);
    }
    if form == Form::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

fn spans(targets: &mut [Target], form: Form, out: &mut String) {
    const NAME: &str = "nopal_span_duration_seconds";
    let _ = writeln!(out, "# HELP {NAME} How long spans took.\n# TYPE {NAME} histogram");
    let mut errors = String::new();
    for target in targets {
        let label = target.config.label().to_owned();
        let by = target.labels().map(|labels| labels.of_spans.clone()).unwrap_or_default();
        for series in target.spans(form == Form::OpenMetrics) {
            let labels = joined(&labels(&label, "span", &by, series.values));
            let mut slowest = series.slowest.as_ref();
            let below = cumulative(series.summary);
            let bounds = bounds_ns().map(|bound| (bound, seconds(bound).to_string()));
            let all = bounds.chain([(u64::MAX, "+Inf".to_owned())]);
            for ((bound, le), n) in all.zip(below.into_iter().chain([series.summary.count()])) {
                // In the bucket that it belongs to.
                let shown =
                    slowest.take_if(|slow| slow.duration_ns <= bound).map(exemplar).unwrap_or_default();
                let _ = writeln!(out, "{NAME}_bucket{{{labels},le=\"{le}\"}} {n}{shown}");
            }
            let _ = writeln!(out, "{NAME}_sum{{{labels}}} {}", seconds(series.summary.total_ns));
            let _ = writeln!(out, "{NAME}_count{{{labels}}} {}", series.summary.count());
            let _ = writeln!(errors, "nopal_span_errors_total{{{labels}}} {}", series.summary.errors);
        }
    }
    let family = form.counter("nopal_span_errors");
    let _ = write!(out, "# HELP {family} Spans that failed.\n# TYPE {family} counter\n{errors}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_count_exactly() {
        let mut summary = Summary::default();
        let values = [0, 5, 1023, 1024, 1025, 2047, 2048, 1 << 20, (1 << 36) - 1, 1 << 36, u64::MAX];
        values.iter().for_each(|ns| summary.add(*ns, 0, false));
        for (bound, n) in bounds_ns().zip(cumulative(&summary)) {
            assert_eq!(n, values.iter().filter(|ns| **ns <= bound).count() as u64, "{bound}");
        }
    }

    #[test]
    fn labels_cannot_break_out() {
        let values = [Cell::Text("p:s".into()), Cell::Text("a\"} 1\nx \\".into()), Cell::Integer(-3)];
        let by = ["query".to_owned(), "le".to_owned()];
        let text = joined(&labels("t", "span", &by, &values));
        assert_eq!(text, r#"target="t",span="p:s",query="a\"} 1\nx \\",arg_le="-3""#);
        assert_eq!(escaped("a\x1b[2J\u{9b}\n"), r"a\\u{1b}[2J\\u{9b}\n");
        assert_eq!(label_name("end.status"), "end_status");
        assert_eq!(label_name("0"), "arg_0");
    }
}
