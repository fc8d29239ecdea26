//! The spans one can ask for: definitions from every source, by precedence, as far as their probes are there; and what a
//! word on the command line means among them.

use crate::catalog;
use crate::convention::{self, common_name, name_of};
use crate::known_probe::{KnownField, KnownProbe};
use crate::no_span::NoSpan;
use crate::span::{GOROUTINE, KeyField, Mode, ProbeName, STACK, Shape, Source, Span};
use nopal_sdt::Pattern;
use nopal_sdt::pattern::{glob, nearest};

/// What there is.
#[derive(Debug, Clone)]
pub struct Available {
    /// With all their probes there, the source that comes first winning; by name.
    pub spans: Vec<Span>,
    pub probes: Vec<KnownProbe>,
    /// Definitions whose probes are not there, or not yet.
    elsewhere: Vec<Span>,
    /// More probes may come: of a command that has not been started.
    is_open: bool,
    /// Words that stand for functions, which are spans when they are asked for.
    functions: Vec<(String, Vec<Span>)>,
}

impl Available {
    /// `files` holds the spans of files in the order of their precedence.
    pub fn new(files: Vec<Span>, mut probes: Vec<KnownProbe>, is_open: bool) -> Available {
        probes.sort_by(|a, b| a.name.cmp(&b.name));
        probes.dedup_by(|a, b| a.name == b.name && a.fields == b.fields);
        let notes = paired(&probes, true, Source::Note);
        let declared = paired(&probes, false, Source::Declared);
        let names: Vec<ProbeName> = probes.iter().map(|probe| probe.name.clone()).collect();
        let by_name = convention::spans(&names).into_iter().map(|span| as_call(span, &probes));
        let by_name: Vec<Span> = by_name.collect();
        let mut available =
            Available { spans: Vec::new(), probes, elsewhere: Vec::new(), is_open, functions: Vec::new() };
        let all = files
            .into_iter()
            .chain(notes)
            .chain(catalog::spans().iter().cloned())
            .chain(declared)
            .chain(by_name);
        for span in all {
            available.add(span);
        }
        available.spans.sort_by(|a, b| (&a.provider, &a.name).cmp(&(&b.provider, &b.name)));
        available
    }

    fn add(&mut self, mut span: Span) {
        let is_same = |other: &Span| {
            let is_same_pair = other.begins() == span.begins() && other.ends() == span.ends();
            // What a catalog or a file calls several names it means so; what is only guessed gives way.
            let is_guessed = matches!(span.source, Source::Note | Source::Declared | Source::Convention);
            (other.provider == span.provider && other.name == span.name) || (is_guessed && is_same_pair)
        };
        if self.spans.iter().chain(&self.elsewhere).any(is_same) {
            return;
        }
        let has = |probe: &ProbeName| self.probes.iter().any(|known| known.name == *probe);
        let is_there = match &mut span.shape {
            Shape::Pair { begins, ends } => {
                let is_there = begins.iter().any(&has) && ends.iter().chain(&span.fails).any(&has);
                if is_there {
                    begins.retain(&has);
                    ends.retain(&has);
                }
                is_there
            }
            Shape::Whole { probe, .. } => has(probe),
        };
        if is_there {
            span.fails.retain(&has);
            span.carries.retain(|carry| has(&carry.probe));
            self.spans.push(span);
        } else {
            self.elsewhere.push(span);
        }
    }

    pub fn probe(&self, name: &ProbeName) -> Option<&KnownProbe> {
        let at = self.probes.partition_point(|probe| probe.name < *name);
        self.probes.get(at).filter(|probe| probe.name == *name)
    }

    /// Lets a word stand for functions. To be called before anything is asked.
    pub fn add_functions(&mut self, word: &str, spans: Vec<Span>, probes: Vec<KnownProbe>) {
        self.probes.extend(probes);
        self.probes.sort_by(|a, b| a.name.cmp(&b.name));
        self.probes.dedup_by(|a, b| a.name == b.name && a.fields == b.fields);
        self.functions.push((word.to_owned(), spans));
    }

    fn functions(&self, word: &str) -> Option<&Vec<Span>> {
        self.functions.iter().find(|(known, _)| known == word).map(|(_, spans)| spans)
    }

    /// The fields of a span: of its begins, of its ends, and those it carries along. None if no probe of it is known.
    pub fn fields_of(&self, span: &Span) -> Option<Vec<KnownField>> {
        let known: Vec<&KnownProbe> =
            span.begins().iter().chain(span.ends()).filter_map(|probe| self.probe(probe)).collect();
        if known.is_empty() {
            return None;
        }
        let mut fields: Vec<KnownField> = Vec::new();
        let carried = span.carries.iter().filter_map(|carry| {
            let probe = self.probe(&carry.probe)?;
            let field = probe.fields.iter().find(|field| field.name == carry.field)?;
            Some(KnownField { name: carry.name.clone(), ..field.clone() })
        });
        for field in carried.chain(known.iter().flat_map(|probe| probe.fields.iter().cloned())) {
            if !fields.iter().any(|known| known.name == field.name) {
                fields.push(field);
            }
        }
        Some(fields)
    }

    /// Whether the ends of a span have no field that its begins lack. Only the catalog is believed that fields with one name
    /// have one value.
    pub fn end_repeats(&self, span: &Span) -> bool {
        let fields = |probe| self.probe(probe).map(|known| &known.fields);
        let is_in = |name: &str, begin| {
            fields(begin).is_some_and(|fields| fields.iter().any(|field| field.name == name))
        };
        let repeats = |end| {
            fields(end).is_some_and(|fields| {
                fields.iter().all(|field| span.begins().iter().all(|begin| is_in(&field.name, begin)))
            })
        };
        span.source == Source::Catalog && span.ends().iter().all(repeats)
    }

    /// The spans that a word names: `provider:name`, a name, a pattern, or a probe at which one begins or ends.
    pub fn find(&self, word: &str) -> Result<Vec<Span>, NoSpan> {
        if let Some(spans) = self.functions(word) {
            return Ok(spans.clone());
        }
        let mut found = self.named(word, &self.spans);
        let is_pattern = is_pattern(word);
        // A pattern that matches others, too, does not ask for what is measured by its name alone.
        if is_pattern && found.iter().any(|span| !span.is_by_name) {
            found.retain(|span| !span.is_by_name);
        }
        match found.len() {
            0 => {}
            1 => return Ok(found.into_iter().cloned().collect()),
            _ if is_pattern => return Ok(found.into_iter().cloned().collect()),
            _ => {
                let names = found.iter().map(|span| span.full_name()).collect();
                return Err(NoSpan::Several { word: word.to_owned(), names });
            }
        }
        let later = self.named(word, &self.elsewhere);
        if let (true, [first, ..]) = (self.is_open && !is_pattern, &later[..]) {
            let provider = &first.provider;
            if later.iter().all(|span| span.provider == *provider) {
                return Ok(vec![(*first).clone()]);
            }
        }
        let touches = |span: &&Span| {
            let mut ends = span.begins().iter().chain(span.ends());
            ends.any(|probe| is_probe(word, probe))
        };
        let touching: Vec<&Span> = self.spans.iter().filter(touches).collect();
        match &touching[..] {
            [] => {}
            [one] => return Ok(vec![(*one).clone()]),
            several => {
                let names = several.iter().map(|span| span.full_name()).collect();
                return Err(NoSpan::Several { word: word.to_owned(), names });
            }
        }
        if self.probes.iter().any(|probe| is_probe(word, &probe.name)) {
            return Err(NoSpan::IsProbe { word: word.to_owned() });
        }
        // A short name that programs of several kinds have says nothing of which of them was meant.
        if let [first, ..] = &later[..]
            && later.iter().all(|span| span.provider == first.provider)
        {
            return Err(self.absent(first));
        }
        let there_are: Vec<String> = self.spans.iter().map(Span::full_name).collect();
        let near = nearest(word, there_are.iter().map(String::as_str)).map(str::to_owned).or_else(|| {
            let short = nearest(word, self.spans.iter().map(|span| span.name.as_str()))?;
            self.spans.iter().find(|span| span.name == short).map(Span::full_name)
        });
        Err(NoSpan::Unknown { word: word.to_owned(), nearest: near, there_are })
    }

    fn named<'s>(&self, word: &str, spans: &'s [Span]) -> Vec<&'s Span> {
        spans.iter().filter(|span| is_span(word, span)).collect()
    }

    /// All spans, but for those that are measured only if their names are asked for.
    pub fn all(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().filter(|span| !span.is_by_name)
    }

    /// The spans that words would mean, if they were not measured by their names alone: of no words, of all spans.
    pub fn left_out(&self, words: &[String], asked: &[Span]) -> Vec<String> {
        let is_meant = |span: &Span| {
            let is_matched = |word: &String| is_pattern(word) && is_span(word, span);
            words.is_empty() || words.iter().any(is_matched)
        };
        let is_asked = |span: &Span| asked.iter().any(|other| other.full_name() == span.full_name());
        let left_out = self.spans.iter().filter(|span| span.is_by_name && is_meant(span) && !is_asked(span));
        left_out.map(Span::full_name).collect()
    }

    /// Whether a word is the name of a span, not of a probe of one.
    pub fn is_name(&self, word: &str) -> bool {
        self.functions(word).is_some() || !self.named(word, &self.spans).is_empty()
    }

    /// The probes that a pattern names, each once.
    pub fn match_probes(&self, pattern: &str) -> Vec<&KnownProbe> {
        let parsed = Pattern::parse(pattern);
        let mut found: Vec<&KnownProbe> =
            self.probes.iter().filter(|p| parsed.matches(&p.name.provider, &p.name.name)).collect();
        found.dedup_by(|a, b| a.name == b.name);
        found
    }

    /// Whether more probes may come.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The probe that a word names.
    pub fn find_probe(&self, word: &str) -> Result<&KnownProbe, NoSpan> {
        let mut found: Vec<&KnownProbe> =
            self.probes.iter().filter(|probe| is_probe(word, &probe.name)).collect();
        found.dedup_by(|a, b| a.name == b.name);
        match &found[..] {
            [one] => Ok(one),
            [] => {
                let names = self.probes.iter().map(|p| (p.name.provider.as_str(), p.name.name.as_str()));
                let nearest = Pattern::parse(word).suggest(names);
                Err(self.no_probe(word, nearest))
            }
            several => {
                let names = several.iter().map(|probe| probe.name.to_string()).collect();
                Err(NoSpan::SeveralProbes { word: word.to_owned(), names })
            }
        }
    }

    /// Why a definition that is known is of no use here.
    fn absent(&self, span: &Span) -> NoSpan {
        let is_there = |probe: &&ProbeName| self.probe(probe).is_some();
        let missing: Vec<&ProbeName> =
            span.begins().iter().chain(span.ends()).filter(|probe| !is_there(probe)).collect();
        let near = |probe: &&ProbeName| {
            let kin = self.probes.iter().filter(|known| known.name.provider == probe.provider);
            let names = kin.map(|known| known.name.name.as_str());
            nearest(&probe.name, names).map(|name| format!("{}:{name}", probe.provider))
        };
        NoSpan::Absent {
            word: span.full_name(),
            nearest: missing.iter().find_map(near),
            probes: missing.into_iter().map(ProbeName::to_string).collect(),
        }
    }

    /// Tells of the probes there are, those of the same provider if it has some.
    pub fn no_probe(&self, word: &str, nearest: Option<String>) -> NoSpan {
        let provider = word.split_once(':').map_or("", |(provider, _)| provider);
        let is_kin = |probe: &&KnownProbe| probe.name.provider == provider;
        let has_kin = self.probes.iter().any(|probe| is_kin(&probe));
        let shown = self.probes.iter().filter(|probe| !has_kin || is_kin(probe));
        let mut there_are: Vec<String> = shown.map(|probe| probe.name.to_string()).collect();
        there_are.dedup();
        NoSpan::NoProbe { word: word.to_owned(), nearest, there_are }
    }

    /// The probe `PROVIDER:NAME` of a provider that is not here: what a command starts or loads may have it.
    pub fn to_come(&self, word: &str) -> Option<ProbeName> {
        let (provider, name) = word.split_once(':').filter(|(provider, name)| {
            self.is_open && !provider.is_empty() && !name.is_empty() && !is_pattern(word)
        })?;
        let is_here = self.probes.iter().any(|probe| probe.name.provider == provider);
        (!is_here && self.find(word).is_err()).then(|| ProbeName::new(provider, &name.replace('-', "__")))
    }

    /// A span between any two probes. Without a key they pair by thread.
    pub fn pair(&self, begin: &str, end: &str, key: &[KeyField]) -> Result<Span, NoSpan> {
        let named = |word: &str| match self.to_come(word) {
            Some(probe) => Ok(probe),
            None => self.find_probe(word).map(|known| known.name.clone()),
        };
        let (begin, end) = (named(begin)?, named(end)?);
        let name = common_name(&begin.name, &end.name);
        let mut span = Span::pair(&name, begin, end, Source::CommandLine);
        if !key.is_empty() {
            span.mode = Mode::Key(key.to_vec());
        }
        Ok(span)
    }
}

fn is_pattern(word: &str) -> bool {
    word.contains(['*', '?', '['])
}

/// `provider:name`, a name, or a pattern of either; `-`, `_` and `__` are the same.
fn is_span(word: &str, span: &Span) -> bool {
    let (provider, name) = word.rsplit_once(':').unwrap_or(("*", word));
    let provider = if provider.is_empty() { "*" } else { provider };
    let name = if name.is_empty() { "*".to_owned() } else { name_of(name) };
    glob(provider, &span.provider) && glob(&name, &name_of(&span.name))
}

/// `provider:name` or a name; `-` stands for `__` as in DTrace.
fn is_probe(word: &str, probe: &ProbeName) -> bool {
    let word_name = word.rsplit_once(':').map_or(word, |(_, name)| name);
    let provider =
        word.rsplit_once(':').map(|(provider, _)| provider).filter(|provider| !provider.is_empty());
    provider.is_none_or(|provider| provider == probe.provider)
        && (word_name == probe.name || word_name.replace('-', "__") == probe.name)
}

/// Probes that stand for a function and have its stack pointer pair by it.
fn as_call(span: Span, probes: &[KnownProbe]) -> Span {
    let has = |name: &ProbeName, field: &str| {
        let known = probes.iter().find(|probe| probe.name == *name);
        known.is_some_and(|probe| probe.fields.iter().any(|each| each.name == field))
    };
    match (span.begins(), span.ends()) {
        ([begin], [end])
            if begin.name.ends_with("__entry")
                && end.name.ends_with("__return")
                && has(begin, STACK)
                && has(end, STACK) =>
        {
            let make = if has(begin, GOROUTINE) { Span::goroutine_call } else { Span::call };
            make(&span.name, begin.clone(), end.clone(), span.source.clone())
        }
        _ => span,
    }
}

/// The spans that probes declare by naming their partners.
fn paired(probes: &[KnownProbe], is_of_note: bool, source: Source) -> Vec<Span> {
    let mut spans = Vec::new();
    for probe in probes {
        let Some(pair) = probe.pair.as_ref().filter(|pair| pair.is_start && pair.is_of_note == is_of_note)
        else {
            continue;
        };
        let partner = ProbeName::new(&probe.name.provider, &pair.partner);
        if probes.iter().any(|known| known.name == partner) {
            let name = common_name(&probe.name.name, &partner.name);
            spans.push(Span::pair(&name, probe.name.clone(), partner, source.clone()));
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_probe::{FieldKind, KnownPair};

    fn probe(name: &str) -> KnownProbe {
        KnownProbe { name: ProbeName::parse(name, ""), fields: Vec::new(), pair: None }
    }

    fn partner(name: &str, partner: &str, is_of_note: bool) -> KnownProbe {
        let pair = KnownPair { is_start: true, partner: partner.to_owned(), is_of_note };
        KnownProbe { pair: Some(pair), ..probe(name) }
    }

    fn names(available: &Available) -> Vec<String> {
        available.spans.iter().map(|s| format!("{} ({})", s.full_name(), s.source)).collect()
    }

    #[test]
    fn an_end_repeats_its_begin_if_the_catalog_has_the_span_and_nothing_is_new() {
        let of = |name: &str, fields: &[&str]| KnownProbe {
            fields: fields
                .iter()
                .map(|name| KnownField {
                    name: (*name).to_owned(),
                    kind: FieldKind::Text,
                    labels: Vec::new(),
                })
                .collect(),
            ..probe(name)
        };
        let [begin, end] = ["p:b", "p:e"];
        for (begins, ends, source, repeats) in [
            (&["q", "r"][..], &["q"][..], Source::Catalog, true),
            (&["q"], &[], Source::Catalog, true),
            (&["q"], &["q", "n"], Source::Catalog, false),
            (&[], &["q"], Source::Catalog, false),
            (&["q"], &["q"], Source::Convention, false),
        ] {
            let available = Available::new(Vec::new(), vec![of(begin, begins), of(end, ends)], false);
            let span =
                Span::pair("s", ProbeName::parse(begin, ""), ProbeName::parse(end, ""), source.clone());
            assert_eq!(available.end_repeats(&span), repeats, "{begins:?} {ends:?} {source}");
        }
        let nobody = Available::new(Vec::new(), Vec::new(), false);
        let span = Span::pair("s", ProbeName::parse(begin, ""), ProbeName::parse(end, ""), Source::Catalog);
        assert!(!nobody.end_repeats(&span), "nobody knows its fields");
    }

    #[test]
    fn the_earlier_source_wins() {
        let probes = vec![
            probe("redis:call__start"),
            probe("redis:call__end"),
            partner("redis:conn__create", "conn__close", true),
            probe("redis:conn__close"),
            partner("redis:save__start", "save__end", true),
            probe("redis:save__end"),
            partner("app:open", "close", false),
            probe("app:close"),
            probe("app:x__start"),
            probe("app:x__done"),
        ];
        let file = Span::pair(
            "x",
            ProbeName::new("app", "open"),
            ProbeName::new("app", "x__done"),
            Source::File("nopal.toml".into()),
        );
        let available = Available::new(vec![file], probes, false);
        assert_eq!(
            names(&available),
            [
                "app:open..close (.d file)",
                "app:x (nopal.toml)",
                "redis:call (catalog)",
                "redis:conn (the binary's note)",
                "redis:save (the binary's note)",
            ]
        );
    }

    #[test]
    fn words_find_spans() {
        let probes = [
            "postgresql:query__execute__start",
            "postgresql:query__execute__done",
            "postgresql:query__start",
            "postgresql:query__done",
            "app:get__start",
            "app:get__end",
            "shop:get__start",
            "shop:get__end",
            "app:tick",
        ];
        let put = Span::pair(
            "put",
            ProbeName::new("app", "gte__start"),
            ProbeName::new("app", "tick"),
            Source::File("nopal.toml".into()),
        );
        let available = Available::new(vec![put], probes.map(probe).to_vec(), false);
        let found = |word: &str| match available.find(word) {
            Ok(spans) => spans.iter().map(Span::full_name).collect::<Vec<_>>().join(" "),
            Err(error) => format!("{error}; {}", error.hint()),
        };
        for (word, want) in [
            ("query", "postgresql:query"),
            ("postgresql:query", "postgresql:query"),
            ("simple-query", "postgresql:simple_query"),
            ("query__start", "postgresql:simple_query"),
            ("app:get", "app:get"),
            ("app:get__start", "app:get"),
            ("*:get", "app:get shop:get"),
            ("get", "several spans are called `get`; name one of app:get, shop:get"),
            ("app:gte", "no span is called `app:gte`; did you mean `app:get`?"),
            ("qurey", "no span is called `qurey`; did you mean `postgresql:query`?"),
            (
                "query if size < 0",
                "no span is called `query if size < 0`; a condition has an option of its own: `query` `--where 'size < 0'`",
            ),
            (
                "tick",
                "`tick` is a probe, and no known span begins or ends there; `nopal latency tick END` pairs it with another probe; `nopal count tick` counts it",
            ),
            (
                "ruby:method",
                "the probes of `ruby:method` are not in what is traced; it needs ruby:method__entry, ruby:method__return",
            ),
            (
                "app:put",
                "the probes of `app:put` are not in what is traced; it needs app:gte__start; did you mean `app:get__start`?",
            ),
            (
                "query-execute-start",
                "several spans are called `query-execute-start`; name one of postgresql:execute, postgresql:query",
            ),
        ] {
            assert_eq!(found(word), want, "{word}");
        }
        let later = Available::new(Vec::new(), Vec::new(), true);
        assert_eq!(
            later.find("ruby:method").unwrap()[0].full_name(),
            "ruby:method",
            "of what a command may load"
        );
        assert!(later.find("nothing").is_err());
    }

    /// What a word finds, and which spans it leaves out as they are measured by their names alone.
    #[test]
    fn dear_spans_are_asked_for_by_name() {
        let probes = [
            "postgresql:lwlock__acquire",
            "postgresql:lwlock__release",
            "postgresql:lwlock__wait__start",
            "postgresql:lwlock__wait__done",
            "app:step__start",
            "app:step__done",
        ];
        let dear = |name: &str| {
            let ends = ["step__start", "step__done"].map(|probe| ProbeName::new("app", probe));
            let [begin, end] = ends;
            Span { is_by_name: true, ..Span::pair(name, begin, end, Source::File("nopal.toml".into())) }
        };
        let available = Available::new(vec![dear("step")], probes.map(probe).to_vec(), false);
        let all: Vec<String> = available.all().map(Span::full_name).collect();
        assert_eq!(all, ["postgresql:lwlock_wait"]);
        for (words, found, left_out) in [
            ("", "", "app:step postgresql:lwlock"),
            ("lwlock", "postgresql:lwlock", ""),
            ("lwlock__acquire", "postgresql:lwlock", ""),
            ("postgresql:*", "postgresql:lwlock_wait", "postgresql:lwlock"),
            ("*", "postgresql:lwlock_wait", "app:step postgresql:lwlock"),
            ("postgresql:* lwlock", "postgresql:lwlock_wait postgresql:lwlock", ""),
            ("app:*", "app:step", ""),
            ("lwlock-wait", "postgresql:lwlock_wait", ""),
        ] {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            let spans: Vec<Span> = words.iter().flat_map(|word| available.find(word).unwrap()).collect();
            let names = spans.iter().map(Span::full_name).collect::<Vec<_>>().join(" ");
            let left = available.left_out(&words, &spans).join(" ");
            assert_eq!((&*names, &*left), (found, left_out), "{words:?}");
        }
    }

    #[test]
    fn any_two_probes_make_a_span() {
        let available =
            Available::new(Vec::new(), ["app:open", "app:close", "b:open"].map(probe).to_vec(), false);
        let span = available.pair("app:open", "close", &[KeyField::parse("fd")]).unwrap();
        assert_eq!(
            (span.full_name().as_str(), &span.mode),
            ("app:open..close", &Mode::Key(vec![KeyField::parse("fd")]))
        );
        assert_eq!(
            available.pair("open", "close", &[]).unwrap_err().to_string(),
            "several probes are called `open`"
        );
        let error = available.pair("app:opne", "close", &[]).unwrap_err();
        assert_eq!(error.hint(), "did you mean `app:open`?");
        for (word, hint) in [
            ("app:something", "there are app:close, app:open"),
            ("other:something", "there are app:close, app:open, b:open"),
        ] {
            assert_eq!(available.pair(word, "close", &[]).unwrap_err().hint(), hint, "{word}");
        }
    }
}
