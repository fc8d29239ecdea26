//! The rules of `nopal test`: any text is a rule or an error that quotes it, and what is a rule stays one without blanks around it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_answers::expectations::Rule;

fuzz_target!(|text: &str| {
    for read in [Rule::order, Rule::count, Rule::latency] {
        match read(text) {
            Ok(rule) => assert!(rule.text == text && read(text.trim()).is_ok()),
            Err(wrong) => assert!(!wrong.hint().is_empty() && wrong.to_string().contains("not a valid rule")),
        }
    }
});
