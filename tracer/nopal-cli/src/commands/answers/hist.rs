//! `nopal hist`: how the values of a field are spread.

use super::count::matched;
use super::source::Source;
use super::{AnswerArgs, numbers, picture, print, render};
use crate::failure::Failure;
use nopal_answers::{Line, MAX_STEPS, Scale, Spread, Values};
use serde_json::Map;
use std::fmt::Write;

/// Draws a histogram of the values of a field.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nopal hist memcached:command__set size -p 1234
  nopal hist hotspot:object__alloc objectSize --by className -n java --duration 10s
  nopal hist postgresql:sort__done spaceUsed --linear 0,4096,256 --recording pg.rec

The steps are powers of two, or of equal width with --linear; what lies outside has a line at each end.")]
pub(crate) struct Args {
    /// `provider:name` with `*` and `?`.
    #[arg(value_name = "PROBE")]
    pub probe: String,
    /// A field of it that is a number.
    #[arg(value_name = "FIELD")]
    pub field: String,
    /// One histogram for each value of these fields.
    #[arg(long, value_name = "FIELD,...", value_delimiter = ',')]
    pub by: Vec<String>,
    /// Only events whose fields meet this condition.
    #[arg(long = "where", value_name = "COND")]
    pub condition: Option<String>,
    /// Steps of equal width: from LO up to HI, each STEP wide.
    #[arg(long, value_name = "LO,HI,STEP", value_parser = linear)]
    pub linear: Option<Scale>,
    /// How many histograms to print.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub limit: usize,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

/// `LO,HI,STEP`
fn linear(text: &str) -> Result<Scale, String> {
    let numbers: Vec<i64> = text.split(',').map_while(|word| word.trim().parse().ok()).collect();
    let ([low, high, step], 3) = (&numbers[..], text.split(',').count()) else {
        return Err("write three whole numbers, LO,HI,STEP, such as 0,100,10".to_owned());
    };
    if high <= low || *step <= 0 {
        return Err("HI must be above LO, and STEP above 0".to_owned());
    }
    if (i128::from(*high) - i128::from(*low)) / i128::from(*step) > i128::from(MAX_STEPS) {
        return Err(format!("that makes more than {MAX_STEPS} steps; choose a larger STEP"));
    }
    Ok(Scale::Linear { low: *low, high: *high, step: *step as u64 })
}

pub(crate) fn run(mut args: Args) -> Result<(), Failure> {
    let source = Source::find(&mut args.answer)?;
    let probes = matched(&source.available, std::slice::from_ref(&args.probe))?;
    let mut values = Values::new(
        probes.clone(),
        &args.field,
        &args.by,
        args.condition.clone(),
        args.linear.unwrap_or_default(),
        &source.available,
    )?;
    let gathered = source.gather(&args.answer, &probes, &mut values, |_, _| Ok(()))?;
    let answer = values.answer();
    if args.answer.json {
        render::json(&gathered, &answer, &args.answer, Map::new())?;
    } else {
        let mut text = String::new();
        let groups = values.groups();
        for (group, spread) in groups.iter().take(args.limit) {
            let keys =
                args.by.iter().zip(*group).map(|(name, value)| format!("{name}={}", render::cell(value)));
            let keys = keys.collect::<Vec<_>>().join(" ");
            let title = if keys.is_empty() { args.field.clone() } else { format!("{} {keys}", args.field) };
            let _ = writeln!(text, "{}", render::cut(&render::heading(&title), render::width()));
            let bars: Vec<picture::Bar> = values
                .lines(spread)
                .iter()
                .map(|line| picture::Bar { label: label(line), count: line.count })
                .collect();
            text.push_str(&picture::bars(&bars, render::picture_width()));
            let _ = writeln!(text, "  {}\n", statistics(spread));
        }
        if groups.len() > args.limit {
            let _ = writeln!(text, "and {} more; --limit shows them", groups.len() - args.limit);
        }
        print(&text)?;
        render::conclude(&gathered, &answer, values.n_values(), "value");
    }
    gathered.finish()
}

fn label(line: &Line) -> String {
    match (line.low, line.high) {
        (Some(low), Some(high)) if low == high => numbers::integer(low),
        (Some(low), Some(high)) => format!("{} - {}", numbers::integer(low), numbers::integer(high)),
        (Some(low), None) => format!("{} and more", numbers::integer(low)),
        (None, Some(high)) => format!("up to {}", numbers::integer(high)),
        (None, None) => "all".to_owned(),
    }
}

fn statistics(spread: &Spread) -> String {
    let average = spread.sum / spread.count.max(1) as f64;
    format!(
        "count {}, min {}, average {average:.1}, max {}",
        numbers::count(spread.count),
        spread.min,
        spread.max
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_scale_makes_sense_or_is_refused() {
        assert_eq!(linear("0,100,10"), Ok(Scale::Linear { low: 0, high: 100, step: 10 }));
        assert_eq!(linear("-5, 5, 1"), Ok(Scale::Linear { low: -5, high: 5, step: 1 }));
        for text in ["", "1,2", "1,2,3,4", "5,5,1", "0,9,0", "0,9,x", "0,99999,1"] {
            assert!(linear(text).is_err(), "{text}");
        }
    }
}
