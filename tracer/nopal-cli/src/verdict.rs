//! The last word of every verb: `complete`, or what is missing, for people and as JSON.

use crate::words::counted;
use nopal_trace::Verdict;
use nopal_trace::localtime::{ClockText, text_of};
use serde_json::{Map, Value, json};

/// How a verb tells it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub clock: ClockText,
    pub is_utc: bool,
    /// Tracing was done just now, with options that may help the next time.
    pub is_live: bool,
    /// Gaps were told one by one.
    pub has_told_gaps: bool,
    /// So many losses are listed below, each with its time.
    pub n_listed: u64,
}

impl Manner {
    /// Of a verb that traces.
    pub(crate) const LIVE: Manner =
        Manner { clock: ClockText::Time, is_utc: false, is_live: true, has_told_gaps: true, n_listed: 0 };
    /// Of a verb that reads recordings.
    pub(crate) const READ: Manner = Manner { is_live: false, ..Manner::LIVE };
    /// Of a verb that tells no gaps itself.
    pub(crate) const SESSION: Manner = Manner { has_told_gaps: false, ..Manner::READ };
}

pub(crate) const UNFINISHED: &str = "its recorder was ended before it could finish, or is still at work";

/// `complete`, or what is missing and when.
pub(crate) fn text(verdict: &Verdict, manner: Manner) -> String {
    let mut parts = lost(verdict, manner);
    let missing = missing(verdict, manner);
    if !missing.is_empty() {
        parts.push(format!("not complete: {}", missing.join("; ")));
    }
    if manner.n_listed > 0 {
        let packets =
            (verdict.n_lost_packets > 0).then(|| format!("{} packets of events", verdict.n_lost_packets));
        let events = (verdict.n_lost > 0).then(|| counted(verdict.n_lost, "event"));
        let lost: Vec<String> = events.into_iter().chain(packets).collect();
        parts.push(format!("lost {} in {}:", lost.join(" and "), counted(manner.n_listed, "gap")));
    }
    match (verdict.is_complete(), parts.is_empty()) {
        (true, _) if verdict.is_overwriting => "complete but for what was written over".to_owned(),
        (true, _) => "complete".to_owned(),
        (false, true) => "not complete, see above".to_owned(),
        (false, false) => parts.join("; "),
    }
}

/// What was counted.
fn lost(verdict: &Verdict, manner: Manner) -> Vec<String> {
    let mut parts = Vec::new();
    let time = |ns| text_of(ns, manner.clock, manner.is_utc);
    if verdict.n_lost > 0 && manner.n_listed == 0 {
        let when = match verdict.lost_span {
            Some((first, last)) => format!(" between {} and {}", time(first), time(last)),
            None => String::new(),
        };
        let help = if manner.is_live { "; a larger --buffer-size helps" } else { "" };
        parts.push(format!("{} lost{when}{help}", verdict.n_lost));
    }
    if verdict.n_lost_packets > 0 && manner.n_listed == 0 {
        parts.push(format!("{} of events were overwritten", counted(verdict.n_lost_packets, "packet")));
    }
    if verdict.n_malformed > 0 {
        parts.push(format!("{} could not be read", counted(verdict.n_malformed, "record")));
    }
    for (map, n) in &verdict.full_maps {
        parts
            .push(format!("{n} not stored: {map} was full; config = {{ max_map_keys = N }} makes it larger"));
    }
    if verdict.n_endless > 0 {
        parts.push(format!("{} given up in a loop without end", counted(verdict.n_endless, "hit")));
    }
    if verdict.n_ticks > 0 {
        parts.push(format!("{} missed; longer ones help", counted(verdict.n_ticks, "interval")));
    }
    parts
}

/// What nobody could count, and what was there and is not any more.
fn missing(verdict: &Verdict, manner: Manner) -> Vec<String> {
    let mut parts = Vec::new();
    if verdict.n_missing > 0 {
        let events = counted(verdict.n_missing, "event");
        parts.push(format!("{events} that the recorder wrote are not in the files any more"));
    }
    parts.extend(let_go(verdict, manner));
    if verdict.n_disk > 0 {
        parts.push(format!("{} could not be written", counted(verdict.n_disk, "event")));
    } else if verdict.is_cut_short {
        parts.push("the end is missing".to_owned());
    }
    if verdict.n_gaps > 0 {
        let which = if manner.has_told_gaps { ", see above" } else { "; `nopal view` says which" };
        parts.push(format!("{}{which}", counted(verdict.n_gaps, "gap")));
    }
    if verdict.n_late > 0 {
        let what = match verdict.n_late {
            1 => "1 program or library".to_owned(),
            n => format!("{n} programs or libraries"),
        };
        let which = if manner.is_live { "; -v says which" } else { "" };
        parts.push(format!("the first hits of {what} that started while tracing may be missing{which}"));
    }
    if verdict.n_unordered > 0 {
        let help = if manner.is_live { "; --door user or --door kernel alone can tell" } else { "" };
        parts.push(format!(
            "{} came by one door so shortly after one by the other that their order is not known{help}",
            counted(verdict.n_unordered, "event")
        ));
    }
    if verdict.is_unfinished {
        parts.push(UNFINISHED.to_owned());
    }
    parts
}

/// What went on purpose.
fn let_go(verdict: &Verdict, manner: Manner) -> Option<String> {
    let what = match (verdict.n_let_go, verdict.n_let_go_packets) {
        (0, 0) => return None,
        (0, packets) => format!("{} of events", counted(packets, "packet")),
        (events, _) => counted(events, "event"),
    };
    let until = verdict.let_go_until.map_or(String::new(), |ns| {
        format!(", none later than {},", text_of(ns, manner.clock, manner.is_utc))
    });
    Some(format!("{what}{until} went with the oldest files, whose number is limited"))
}

/// What is cut or undecided, which is not missing.
pub(crate) fn remarks(verdict: &Verdict, cut_at: Option<u64>) -> Vec<String> {
    let mut said = Vec::new();
    if verdict.n_cut > 0 {
        let were = if verdict.n_cut == 1 { "was" } else { "were" };
        said.push(match cut_at {
            Some(bytes) => {
                format!(
                    "{} {were} cut at {bytes} bytes; --max-string keeps more",
                    counted(verdict.n_cut, "string")
                )
            }
            None => format!(
                "{} {were} cut, of texts and arrays; --max-string keeps more",
                counted(verdict.n_cut, "value")
            ),
        });
    }
    if verdict.n_repeated > 0 {
        said.push(format!(
            "{} that later snapshots have again {} counted once",
            counted(verdict.n_repeated, "event"),
            if verdict.n_repeated == 1 { "is" } else { "are" }
        ));
    }
    if verdict.n_undecided > 0 {
        let are = if verdict.n_undecided == 1 { "is" } else { "are" };
        said.push(format!(
            "{} {are} here because a string was cut too short to decide the filter",
            counted(verdict.n_undecided, "event")
        ));
    }
    said
}

/// What every answer says of itself.
pub(crate) fn json(verdict: &Verdict) -> Map<String, Value> {
    let members = [
        ("complete", json!(verdict.is_complete())),
        ("lost", json!(verdict.n_all_lost())),
        ("lost_packets", json!(verdict.n_lost_packets)),
        ("let_go", json!(verdict.n_let_go)),
        ("let_go_packets", json!(verdict.n_let_go_packets)),
        ("gaps", json!(verdict.n_gaps)),
        ("late_processes", json!(verdict.n_late)),
        ("cut", json!(verdict.n_cut)),
        ("undecided", json!(verdict.n_undecided)),
        ("repeated", json!(verdict.n_repeated)),
        ("unordered", json!(verdict.n_unordered)),
        ("nesting_in_doubt", json!(verdict.n_nesting)),
        ("unfinished", json!(verdict.is_unfinished)),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The same with more members.
pub(crate) fn json_with(verdict: &Verdict, more: Value) -> Value {
    let mut object = json(verdict);
    if let Value::Object(more) = more {
        object.extend(more);
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_names_everything_that_is_missing() {
        let some = Verdict::default;
        let lost = Verdict { n_lost: 3, lost_span: Some((1, 2)), ..some() };
        let both = Verdict { n_gaps: 2, n_late: 1, ..lost.clone() };
        let late = Verdict { n_late: 2, ..some() };
        let full_maps = vec![("@".to_owned(), 3)];
        let listed = Manner { n_listed: 2, ..Manner::READ };
        for (verdict, manner, has, has_not) in [
            (some(), Manner::LIVE, &["complete"][..], "not"),
            (Verdict { is_overwriting: true, ..some() }, Manner::LIVE, &["complete but for"], "not"),
            (lost.clone(), Manner::LIVE, &["3 lost between", "--buffer-size"], "complete"),
            (lost.clone(), Manner::READ, &["3 lost between"], "--buffer-size"),
            (lost, listed, &["lost 3 events in 2 gaps:"], "between"),
            (Verdict { n_lost: 3, ..some() }, Manner::READ, &["3 lost"], "between"),
            (
                Verdict { n_lost_packets: 1, ..some() },
                Manner::READ,
                &["1 packet of events were overwritten"],
                "not",
            ),
            (Verdict { n_malformed: 1, ..some() }, Manner::LIVE, &["1 record could not be read"], "complete"),
            (Verdict { n_gaps: 1, ..some() }, Manner::LIVE, &["not complete: 1 gap,"], "gaps"),
            (
                both,
                Manner::LIVE,
                &["3 lost", "not complete: 2 gaps", "1 program or library that"],
                "programs",
            ),
            (
                Verdict { n_unordered: 1, ..some() },
                Manner::LIVE,
                &["not complete: 1 event came by one door", "--door user"],
                "events",
            ),
            (
                Verdict { n_unordered: 2, ..some() },
                Manner::READ,
                &["not complete: 2 events came by one door", "order is not known"],
                "--door",
            ),
            (late, Manner::LIVE, &["2 programs or libraries", "-v says which"], "gap"),
            (
                Verdict { n_missing: 4, ..some() },
                Manner::READ,
                &["not complete: 4 events that the recorder wrote"],
                "gap",
            ),
            (
                Verdict { n_let_go: 4, let_go_until: Some(1), ..some() },
                Manner::READ,
                &["not complete: 4 events, none later than", "went with the oldest files"],
                "lost",
            ),
            (
                Verdict { n_let_go_packets: 1, ..some() },
                Manner::READ,
                &["not complete: 1 packet of events went with the oldest files"],
                "later",
            ),
            (
                Verdict { n_disk: 4, is_cut_short: true, ..some() },
                Manner::LIVE,
                &["not complete: 4 events could not be written"],
                "end",
            ),
            (
                Verdict { is_cut_short: true, ..some() },
                Manner::LIVE,
                &["not complete: the end is missing"],
                "0",
            ),
            (
                Verdict { is_unfinished: true, ..some() },
                Manner::READ,
                &["not complete: its recorder was ended"],
                "gap",
            ),
            (Verdict { full_maps, ..some() }, Manner::LIVE, &["3 not stored: @ was full"], "complete"),
            (Verdict { n_endless: 1, ..some() }, Manner::LIVE, &["1 hit given up"], "complete"),
            (Verdict { n_ticks: 7, ..some() }, Manner::LIVE, &["7 intervals missed"], "complete"),
        ] {
            let said = text(&verdict, manner);
            assert!(has.iter().all(|part| said.contains(part)) && !said.contains(has_not), "{said}");
            assert!(said.matches("complete").count() <= 1, "{said}");
            assert_eq!(said.starts_with("complete"), verdict.is_complete(), "{said}");
            assert_eq!(json(&verdict)["complete"], verdict.is_complete());
        }
    }

    #[test]
    fn what_is_cut_is_not_missing() {
        let verdict = Verdict { n_cut: 1, n_undecided: 2, ..Verdict::default() };
        assert_eq!(text(&verdict, Manner::LIVE), "complete");
        assert_eq!(remarks(&verdict, Some(32))[0], "1 string was cut at 32 bytes; --max-string keeps more");
        assert!(remarks(&verdict, None)[1].starts_with("2 events are here because"));
        let twice = Verdict { n_repeated: 2, ..Verdict::default() };
        assert_eq!(remarks(&twice, None)[0], "2 events that later snapshots have again are counted once");
        assert!(remarks(&Verdict::default(), None).is_empty());
    }
}
