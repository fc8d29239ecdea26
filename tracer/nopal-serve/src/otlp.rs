//! The same metrics as OpenTelemetry's JSON: cumulative sums and histograms.

use crate::exposition::{bounds_ns, cumulative, labels};
use crate::target::Target;
use serde_json::{Value, json};

fn attributes(labels: &[(String, String)]) -> Value {
    labels.iter().map(|(name, value)| json!({ "key": name, "value": { "stringValue": value } })).collect()
}

/// One request of `/v1/metrics`. 64-bit numbers are texts there.
pub(crate) fn request(targets: &mut [Target], start_ns: i64, now_ns: i64) -> Value {
    const CUMULATIVE: u32 = 2;
    let (start, now) = (start_ns.to_string(), now_ns.to_string());
    let (mut histograms, mut errors, mut hits, mut lost) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let bounds: Vec<f64> = bounds_ns().map(|ns| ns as f64 / 1e9).collect();
    let point = |labels: &[(String, String)], n: u64| json!({ "attributes": attributes(labels), "startTimeUnixNano": start, "timeUnixNano": now, "asInt": n.to_string() });
    for target in targets {
        let label = target.config.label().to_owned();
        let (by, of_probes) =
            target.labels().map(|l| (l.of_spans.clone(), l.of_probes.clone())).unwrap_or_default();
        for series in target.spans(false) {
            let labels = labels(&label, "span", &by, series.values);
            let count = series.summary.count();
            let below = cumulative(series.summary);
            // Each bucket by itself, and what is above the last bound.
            let firsts = std::iter::once(&0).chain(&below);
            let each: Vec<String> =
                below.iter().chain([&count]).zip(firsts).map(|(n, less)| (n - less).to_string()).collect();
            histograms.push(json!({
                "attributes": attributes(&labels),
                "startTimeUnixNano": start,
                "timeUnixNano": now,
                "count": count.to_string(),
                "sum": series.summary.total_ns as f64 / 1e9,
                "max": series.summary.durations.max() as f64 / 1e9,
                "bucketCounts": each,
                "explicitBounds": bounds,
            }));
            errors.push(point(&labels, series.summary.errors));
        }
        for (values, n) in target.counts() {
            hits.push(point(&labels(&label, "probe", &of_probes, values), *n));
        }
        lost.push(point(&[("target".to_owned(), label)], target.state.verdict.n_all_lost()));
    }
    let sum = |points: Vec<Value>| json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true });
    let mut metrics = vec![
        json!({ "name": "nopal.span.duration", "unit": "s",
                "histogram": { "dataPoints": histograms, "aggregationTemporality": CUMULATIVE } }),
        json!({ "name": "nopal.span.errors", "unit": "1", "sum": sum(errors) }),
        json!({ "name": "nopal.probe.hits", "unit": "1", "sum": sum(hits) }),
        json!({ "name": "nopal.lost.events", "unit": "1", "sum": sum(lost) }),
    ];
    let is_empty = |metric: &Value| {
        let points =
            metric.get("sum").or(metric.get("histogram")).and_then(|data| data["dataPoints"].as_array());
        points.is_none_or(Vec::is_empty)
    };
    metrics.retain(|metric| !is_empty(metric));
    json!({ "resourceMetrics": [{
        "resource": { "attributes": attributes(&[("service.name".to_owned(), "nopal".to_owned())]) },
        "scopeMetrics": [{ "scope": { "name": "nopal", "version": env!("CARGO_PKG_VERSION") }, "metrics": metrics }],
    }] })
}
