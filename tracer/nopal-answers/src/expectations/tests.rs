//! Rules against events that are made up.

use super::*;

#[test]
fn threads_that_a_program_makes_up_are_forgotten_again() {
    let mut reached = Reached::default();
    let task = |n: usize| Some(Task { pid: 1, tid: n as u32 });
    for n in 0..=2 * MAX_UNDER_WAY {
        assert!(reached.step(task(n), 0) && reached.by_task.len() <= MAX_UNDER_WAY);
    }
    assert!(reached.is_cut && !reached.step(task(0), 1), "it was forgotten");
    assert!(reached.step(task(2 * MAX_UNDER_WAY), 1) && reached.furthest == 2);
}

#[test]
fn rules_are_read() {
    for text in ["a:start -> a:end", "a:start", " a:* ->b:x->c:y by thread ", "a->b", "a:x -> a:x"] {
        assert!(Rule::order(text).is_ok(), "{text}");
    }
    for text in ["", "->", "a ->", "-> a", "a -> -> b", "a:x if n > 3", "a b", "a -> b > 3", "by thread"] {
        assert!(Rule::order(text).is_err(), "{text}");
    }
    for (text, op, n) in [
        ("b:x >= 3", Op::AtLeast, 3),
        ("b:x>=3", Op::AtLeast, 3),
        ("b:x = 0", Op::Equal, 0),
        ("b:[!a]* == 7", Op::Equal, 7),
        ("b:x != 1", Op::NotEqual, 1),
        ("b:x < 18446744073709551615", Op::Less, u64::MAX),
        ("b:x <= 2", Op::AtMost, 2),
        ("b:x > 2", Op::More, 2),
    ] {
        let kind = Rule::count(text).expect(text).kind;
        assert!(matches!(kind, Kind::Count { op: o, n: m, .. } if (o, m) == (op, n)), "{text}");
    }
    for text in [
        "",
        "b:x",
        "b:x >=",
        ">= 3",
        "b:x >= x",
        "b:x >= -1",
        "b:x >= 3 3",
        "a b >= 3",
        "b:x => 3",
        "b:x >= 18446744073709551616",
    ] {
        assert!(Rule::count(text).is_err(), "{text}");
    }
    for (text, n_words, metric, limit) in [
        ("query p99 < 5ms", 1, Metric::Quantile(0.99), 5_000_000),
        ("query p999<=1s", 1, Metric::Quantile(0.999), 1_000_000_000),
        ("query p99.9 <= 1s", 1, Metric::Quantile(0.999), 1_000_000_000),
        ("query p5 > 1us", 1, Metric::Quantile(0.05), 1000),
        ("a:b a:c max < 7ns", 2, Metric::Max, 7),
        ("a:b avg < 2s", 1, Metric::Mean, 2_000_000_000),
    ] {
        let kind = Rule::latency(text).expect(text).kind;
        let Kind::Latency { words, metric: m, ns, .. } = kind else { panic!("{text}") };
        assert_eq!((words.len(), ns), (n_words, limit), "{text}");
        let close = match (m, metric) {
            (Metric::Quantile(a), Metric::Quantile(b)) => (a - b).abs() < 1e-9,
            (a, b) => a == b,
        };
        assert!(close, "{text}: {m:?}");
    }
    for text in [
        "",
        "query",
        "query < 5ms",
        "p99 < 5ms",
        "query p100 < 1s",
        "query p < 1s",
        "query p99 < x",
        "query p99 < 500",
        "query p99 == 1s",
        "a b c max < 1s",
        "query p1e3 < 1s",
        "query pNaN < 1",
    ] {
        assert!(Rule::latency(text).is_err(), "{text}");
    }
}

fn events(rules: &[Rule], came: &[(&str, u32)]) -> Expectations {
    let available = Available::new(Vec::new(), Vec::new(), false);
    let mut all = Expectations::new(rules.to_vec(), &available).expect("rules without spans");
    let names = ["start", "end", "other"];
    for name in names {
        let (provider, name) = ("a".to_owned(), name.to_owned());
        all.class(&EventType { provider, name, fields: Vec::new(), log_level: None, model_uri: None });
    }
    for (ns, (name, tid)) in came.iter().enumerate() {
        let class = names.iter().position(|known| known == name).expect("a known name");
        let at = At { ns: ns as i64, task: Task { pid: 1, tid: *tid }, cpu: 0 };
        all.event(&at, class, &Fields::default());
    }
    all.end();
    all
}

#[test]
fn what_is_missing_decides_nothing() {
    use Judgement::{Broken, Holds, Unproven};
    let probes = ["start", "end", "other"].map(|name| ("a".to_owned(), name.to_owned()));
    let came = [("end", 1), ("start", 1), ("end", 2)];
    let order = |text| Rule::order(text).expect(text);
    let count = |text| Rule::count(text).expect(text);
    for (rule, whole, with_losses) in [
        (order("a:start -> a:end"), Holds, Holds),
        (order("a:start -> a:end by thread"), Broken, Unproven),
        (order("a:end -> a:start -> a:end"), Holds, Holds),
        (order("a:end -> a:end"), Holds, Holds),
        (order("a:end -> a:end -> a:end"), Broken, Unproven),
        (order("a:other"), Broken, Unproven),
        (order("a:gone"), Broken, Unproven),
        (count("a:end >= 2"), Holds, Holds),
        (count("a:* > 2"), Holds, Holds),
        (count("a:end >= 3"), Broken, Unproven),
        (count("a:end == 2"), Holds, Unproven),
        (count("a:end == 1"), Broken, Broken),
        (count("a:end <= 2"), Holds, Unproven),
        (count("a:end < 2"), Broken, Broken),
        (count("a:end != 1"), Holds, Holds),
        (count("a:end != 3"), Holds, Unproven),
        (count("a:other == 0"), Holds, Unproven),
        (count("a:gone == 0"), Broken, Unproven),
    ] {
        let text = rule.text.clone();
        let all = events(&[rule], &came);
        let judge = |is_complete, closed| {
            all.judge(&Known { is_complete, probes: &probes, names: &probes, closed })[0].judgement
        };
        assert_eq!((judge(true, &[]), judge(false, &[])), (whole, with_losses), "{text}");
        // A site that is closed counts for the rules that it belongs to, and no other.
        if !text.contains("gone") {
            let all_closed = judge(true, &probes);
            assert_eq!(all_closed, with_losses, "{text}");
            assert_eq!(judge(true, &[("b".to_owned(), "x".to_owned())]), whole, "{text}");
        }
    }
}
