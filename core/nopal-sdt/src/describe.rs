//! Brings together what is known about probes: their own nopal notes first, then `.d` files the user gave, then the
//! built-in catalog of well-known providers.

use crate::catalog;
use crate::probe::{ArgDescription, Description, Kind, Label, Pair, PairRole, Probe};
use nopal_provider as d;
use std::collections::HashMap;

/// Fills in [`Probe::description`] where no nopal note did, and what a note left out: many `.d` files declare types without names.
/// The first of `given` that declares a probe counts.
///
/// A declaration of the catalog is taken only if the probe has as many arguments as it declares: the program may be
/// of a version whose probe is another one, and no name is better than a wrong one.
pub fn describe(probes: &mut [Probe], given: &[d::File]) {
    for group in probes.chunk_by_mut(|a, b| a.provider == b.provider) {
        if group.iter().all(is_described) {
            continue;
        }
        let mut from_user = HashMap::new();
        for provider in given.iter().flat_map(|file| &file.providers).filter(|p| p.name == group[0].provider)
        {
            for declared in &provider.probes {
                from_user.entry(declared.name.clone()).or_insert(declared);
            }
        }
        let from_catalog = catalog::provider(&group[0].provider);
        for probe in group.iter_mut().filter(|probe| !is_described(probe)) {
            let fits = |entry: &&catalog::Entry| {
                probe.sites.iter().all(|site| site.args.len() == usize::from(entry.n_args))
            };
            let declared = match from_user.get(&probe.name) {
                Some(declared) => Some(description(declared)),
                None => {
                    from_catalog.get(probe.name.as_bytes()).filter(fits).and_then(catalog::Entry::description)
                }
            };
            match (&mut probe.description, declared) {
                (Some(noted), Some(declared)) => complete(noted, declared),
                (description @ None, declared) => *description = declared,
                (Some(_), None) => {}
            }
        }
    }
}

/// Whether the catalog says what the probe begins or ends.
pub fn is_paired_by_catalog(provider: &str, name: &str) -> bool {
    let entries = catalog::provider(provider);
    let description = entries.get(name.as_bytes()).and_then(catalog::Entry::description);
    description.is_some_and(|description| description.pair.is_some())
}

/// Whether its note says all that one can want: every argument has a name, and what lies in memory has a length.
fn is_described(probe: &Probe) -> bool {
    probe.description.as_ref().is_some_and(|description| {
        description.args.iter().all(|arg| !arg.name.is_empty() && !may_have_length(arg))
    })
}

/// Whether another declaration may know how long it is: of an address or a text that the note leaves without a length.
fn may_have_length(arg: &ArgDescription) -> bool {
    matches!(arg.kind, Kind::Pointer | Kind::CString) && arg.length_operand.is_none()
}

/// Adds what a note left out. Arguments are brought together by their place, so a declaration with another number of them is of
/// another probe.
fn complete(noted: &mut Description, declared: Description) {
    if noted.args.len() != declared.args.len() {
        return;
    }
    if noted.doc.is_empty() {
        noted.doc = declared.doc;
    }
    if noted.pair.is_none() {
        noted.pair = declared.pair;
    }
    for (arg, declared) in noted.args.iter_mut().zip(declared.args) {
        if arg.name == declared.name && may_have_length(arg) && declared.length_operand.is_some() {
            (arg.length_operand, arg.kind) = (declared.length_operand, declared.kind);
        }
        if !arg.name.is_empty() {
            continue;
        }
        arg.name = declared.name;
        if arg.doc.is_empty() {
            arg.doc = declared.doc;
        }
        if arg.labels.is_empty() {
            arg.labels = declared.labels;
        }
        if arg.length_operand.is_none() && declared.length_operand.is_some() {
            // Only the length makes the type what the declaration says.
            (arg.length_operand, arg.kind) = (declared.length_operand, declared.kind);
        }
    }
}

/// What a declaration in a `.d` file says of a probe.
pub fn description(declared: &d::Probe) -> Description {
    Description {
        doc: declared.doc.clone(),
        args: (1..).zip(&declared.args).map(|(operand, arg)| argument(operand, arg)).collect(),
        pair: declared.pair.as_ref().map(|pair| Pair {
            role: match pair.role {
                d::Role::Start => PairRole::Start,
                d::Role::End => PairRole::End,
            },
            partner: pair.partner.clone(),
        }),
        ..Description::default()
    }
}

fn argument(operand: u8, arg: &d::Arg) -> ArgDescription {
    ArgDescription {
        operand: Some(operand),
        // Both numberings are that of the nopal note.
        kind: Kind::from_code(arg.kind as u8),
        name: arg.name.clone().unwrap_or_default(),
        c_type: arg.c_type.clone(),
        doc: arg.doc.clone(),
        length_operand: arg.length.and_then(|idx| u8::try_from(idx + 1).ok()),
        labels: arg
            .labels
            .iter()
            .map(|label| Label { first: label.value, last: label.value, text: label.text.clone() })
            .collect(),
        ..ArgDescription::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operand::{Arch, parse, split};
    use crate::probe::{Arg, Site};

    fn probe(name: &str, args: &str) -> Probe {
        let (provider, name) = name.split_once(':').expect("provider:name");
        let args = split(args)
            .into_iter()
            .map(|text| Arg { text: text.to_owned(), operand: parse(Arch::X86_64, text) })
            .collect();
        Probe {
            provider: provider.to_owned(),
            name: name.to_owned(),
            sites: vec![Site {
                address: 1,
                file_offset: 1,
                semaphore: None,
                args,
                code: Vec::new(),
                until_restartable: None,
                edge: None,
            }],
            description: None,
        }
    }

    fn names(probe: &Probe) -> Vec<&str> {
        let description = probe.description.as_ref();
        description
            .map_or(Vec::new(), |description| description.args.iter().map(|arg| arg.name.as_str()).collect())
    }

    #[test]
    fn note_then_user_then_catalog() {
        let given = d::parse(
            "my.d",
            "provider postgresql {
               /** Says it better.
                *  @length sql len
                *  @enum how 0=slow 1=fast */
               probe query__start(const char *sql, int len, int how);
               probe query__done(char *mine);
             };
             provider mine { probe a(int x); };",
        )
        .expect("the file is right");
        let mut probes = [
            probe("mine:a", "-4@%eax"),
            probe("postgresql:query__done", "8@%rax"),
            probe("postgresql:query__parse__start", "8@%rax"),
            probe("postgresql:query__plan__start", "8@%rax 8@%rbx"),
            probe("postgresql:query__start", "8@%rax 4@%ebx 4@%ecx"),
            probe("unknown:a", "-4@%eax"),
        ];
        probes[1].description = Some(Description { doc: "its own".to_owned(), ..Description::default() });
        describe(&mut probes, &[given]);
        assert_eq!(names(&probes[0]), ["x"]);
        assert_eq!(
            probes[1].description.as_ref().map(|description| description.doc.as_str()),
            Some("its own")
        );
        assert_eq!(names(&probes[2]), ["query"], "from the catalog");
        assert_eq!(probes[3].description, None, "the catalog declares no argument, the probe has two");
        assert_eq!(names(&probes[4]), ["sql", "len", "how"]);
        assert_eq!(probes[5].description, None);

        let description = probes[4].description.as_ref().expect("it was given");
        assert_eq!(description.args[0].operand, Some(1));
        assert_eq!(description.args[0].length_operand, Some(2));
        assert_eq!(description.args[0].kind, Kind::Str);
        assert_eq!(description.args[2].labels[1], Label { first: 1, last: 1, text: "fast".to_owned() });
        assert_eq!(
            description.pair,
            Some(Pair { role: PairRole::Start, partner: "query__done".to_owned() }),
            "names tell the pair"
        );
    }

    #[test]
    fn a_note_without_names_is_completed() {
        let unnamed = |kind, c_type: &str| ArgDescription {
            operand: Some(1),
            kind,
            c_type: c_type.to_owned(),
            ..ArgDescription::default()
        };
        let noted = |args| Some(Description { args, ..Description::default() });
        let text = || unnamed(Kind::CString, "const char *");
        let given = d::parse("my.d", "provider mine { probe a(char *key, int); };").expect("it is right");
        let mut probes = [
            probe("mine:a", "8@%rax -4@%ebx"),
            probe("postgresql:query__done", "8@%rax"),
            probe("postgresql:query__start", "8@%rax"),
        ];
        probes[0].description = noted(vec![text(), ArgDescription { name: "size".to_owned(), ..text() }]);
        probes[1].description = noted(vec![text(), text()]);
        probes[2].description = noted(vec![text()]);
        describe(&mut probes, &[given]);
        assert_eq!(names(&probes[0]), ["key", "size"], "what the note says stays");
        assert_eq!(names(&probes[1]), ["", ""], "the catalog's has another number of arguments");
        assert_eq!(names(&probes[2]), ["query"]);
        let query = &probes[2].description.as_ref().expect("it has a note").args[0];
        assert_eq!((query.c_type.as_str(), query.kind), ("const char *", Kind::CString));
    }

    #[test]
    fn a_note_without_lengths_is_completed() {
        // As memcached's own `.d` file has it; the catalog says that `size` is the length of `request`.
        let own = "provider memcached {
            probe process__command__start(int connid, const void *request, int size);
            probe command__get(int connid, const char *other, int keylen, int size, int64_t casid);
        };";
        let own = d::parse("memcached_dtrace.d", own).expect("it is right");
        let mut probes = [
            probe("memcached:process__command__start", "-4@%eax 8@%rbx -4@%ecx"),
            probe("memcached:command__get", "-4@%eax 8@%rbx -4@%ecx -4@%edx -8@%rsi"),
        ];
        for (probe, declared) in probes.iter_mut().zip(&own.providers[0].probes) {
            probe.description = Some(description(declared));
        }
        describe(&mut probes, &[]);
        let arg = |n: usize| probes[n].description.as_ref().expect("it has one").args[1].clone();
        assert_eq!((arg(0).kind, arg(0).length_operand), (Kind::Str, Some(3)));
        assert_eq!(arg(0).c_type, "const void *", "what the note says stays");
        assert_eq!((arg(1).kind, arg(1).length_operand), (Kind::CString, None), "of another name");
    }

    #[test]
    fn kinds_are_numbered_alike() {
        use d::Kind as D;
        for (theirs, ours) in [
            (D::Unknown, Kind::Unknown),
            (D::Signed, Kind::Signed),
            (D::Unsigned, Kind::Unsigned),
            (D::Pointer, Kind::Pointer),
            (D::Bool, Kind::Bool),
            (D::CString, Kind::CString),
            (D::Str, Kind::Str),
            (D::Bytes, Kind::Bytes),
            (D::Float, Kind::Float),
            (D::Enum, Kind::Enum),
            (D::Char, Kind::Char),
        ] {
            assert_eq!(Kind::from_code(theirs as u8), ours);
        }
    }
}
