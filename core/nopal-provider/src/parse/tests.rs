//! What the language accepts and what it says to everything else.

use super::*;
use crate::ast::{Kind, Role};

/// Providers and probes in one line each: `p: a(int x, char *), b()`.
fn shape(text: &str) -> String {
    let file = parse("t.d", text).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let providers = file.providers.iter().map(|p| {
        let probes = p.probes.iter().map(|probe| {
            let args: Vec<String> = probe
                .args
                .iter()
                .map(|a| match &a.name {
                    Some(name) => format!("{}|{name}", a.c_type),
                    None => a.c_type.clone(),
                })
                .collect();
            format!("{}({})", probe.name, args.join(", "))
        });
        format!("{}: {}", p.name, probes.collect::<Vec<_>>().join(" "))
    });
    providers.collect::<Vec<_>>().join("; ")
}

#[test]
fn accepted() {
    let table = [
        ("provider p { probe a(); };", "p: a()"),
        ("provider p { probe a() ; }", "p: a()"),
        ("provider p{probe a(int);probe b(char*x);};", "p: a(int) b(char *|x)"),
        ("provider p {\n\tprobe a(void);\n};\n", "p: a()"),
        ("provider p { probe a(unsigned long long x); };", "p: a(unsigned long long|x)"),
        ("provider p { probe a(unsigned long int x, long long); };", "p: a(unsigned long int|x, long long)"),
        ("provider p { probe a(const char * const y); };", "p: a(const char *const|y)"),
        (
            "provider p { probe a(char const *y, char * x, char* z); };",
            "p: a(char const *|y, char *|x, char *|z)",
        ),
        ("provider p { probe a(enum e x, enum e); };", "p: a(enum e|x, enum e)"),
        (
            "provider p { probe a(struct T **x, struct T *, void**); };",
            "p: a(struct T **|x, struct T *, void **)",
        ),
        (
            "provider p { probe a(uintptr_t, string s, bool class); };",
            "p: a(uintptr_t, string|s, bool|class)",
        ),
        ("provider p { probe a(unsigned x, unsigned, size_t n); };", "p: a(unsigned|x, unsigned, size_t|n)"),
        (
            "provider p { probe a(char b[16], int probe, int provider); };",
            "p: a(char[16]|b, int|probe, int|provider)",
        ),
        ("provider p { probe a(void (*f)(int, char *), int x); };", "p: a(void (*)(int, char *)|f, int|x)"),
        ("provider p { probe Mixed_case9__x(int a_1); };", "p: Mixed_case9__x(int|a_1)"),
        ("provider p { probe a(conn_t *c, int x) : (conn_info_t *c, int x); };", "p: a(conn_t *|c, int|x)"),
        (
            "typedef struct { int a; } conn_t;\ntypedef int id;\nprovider p { probe a(conn_t *c); };",
            "p: a(conn_t *|c)",
        ),
        (
            "typedef struct x x_t; struct x { int a; struct { int b; } c; };\nprovider p { probe a(); };",
            "p: a()",
        ),
        ("translator info_t < raw_t *r > { a = r->b; };\nprovider p { probe a(); };", "p: a()"),
        ("provider p { probe a(); }; provider q { probe a(); };", "p: a(); q: a()"),
        ("provider p { probe a(); }; provider p { probe b(); };", "p: a() b()"),
        ("/* probe x(int); provider z { */ provider p { // probe c();\n probe a(); };", "p: a()"),
        ("  # provider z {\nprovider p {\n   # probe: it's c();\n probe a();\n};", "p: a()"),
        (
            "#pragma D attributes Evolving/Evolving/Common provider p provider\nprovider p { probe a(); };",
            "p: a()",
        ),
        ("#define X \\\n  provider q {\nprovider p { probe a(); };", "p: a()"),
        ("provider p { ; probe a();; };;", "p: a()"),
        ("BEGIN{}", ""),
        ("BEGIN { printf(\"}\"); }\nEND {}", ""),
        ("", ""),
        ("/* nothing */\n", ""),
        ("syscall::read*:entry,io:::start /pid == $1 && execname == \"a/b\"/ { @[pid] = count(); }", ""),
    ];
    for (text, expected) in table {
        assert_eq!(shape(text), expected, "{text}");
    }
}

#[test]
fn kinds() {
    let table = [
        ("int", Kind::Signed),
        ("unsigned", Kind::Unsigned),
        ("unsigned char", Kind::Unsigned),
        ("signed char", Kind::Signed),
        ("char", Kind::Char),
        ("const char *", Kind::CString),
        ("char *const", Kind::CString),
        ("string", Kind::CString),
        ("char **", Kind::Pointer),
        ("void *", Kind::Pointer),
        ("unsigned char *", Kind::Pointer),
        ("struct T *", Kind::Pointer),
        ("struct T", Kind::Unknown),
        ("enum e", Kind::Enum),
        ("bool", Kind::Bool),
        ("_Bool", Kind::Bool),
        ("long double", Kind::Float),
        ("int64_t", Kind::Signed),
        ("uintptr_t", Kind::Unsigned),
        ("LocalTransactionId", Kind::Unknown),
        ("int *", Kind::Pointer),
        ("num", Kind::Signed),
        ("text", Kind::CString),
        ("text *", Kind::Pointer),
        ("flavour", Kind::Enum),
        ("callback", Kind::Pointer),
    ];
    let sizes = [
        ("char", Some(1)),
        ("unsigned char", Some(1)),
        ("short int", Some(2)),
        ("unsigned", Some(4)),
        ("long", Some(8)),
        ("unsigned long long int", Some(8)),
        ("float", Some(4)),
        ("double", Some(8)),
        ("long double", Some(16)),
        ("num", Some(8)),
        ("string", Some(8)),
        ("struct T", None),
        ("Oid", None),
    ];
    for (c_type, size_bytes) in sizes {
        let file = parse("t.d", &format!("typedef long num; provider p {{ probe a({c_type}); }};")).unwrap();
        assert_eq!(file.providers[0].probes[0].args[0].size_bytes, size_bytes, "{c_type}");
    }
    for (c_type, kind) in table {
        let types =
            "typedef long num; typedef char *text; typedef enum { A } flavour; typedef int (*callback)(int);";
        let text = format!("{types}\nprovider p {{ probe a({c_type} x, {c_type}); }};");
        let file = parse("t.d", &text).unwrap();
        let args = &file.providers[0].probes[0].args;
        assert_eq!((args[0].kind, args[1].kind), (kind, kind), "{c_type}");
    }
}

#[test]
fn warnings_of_accepted_files() {
    let table = [
        (
            "provider p {\n probe a(int x)\n probe b();\n};",
            "t.d:2:16: warning: `;` is missing behind probe `a`",
        ),
        ("provider p { probe a() };", "t.d:1:23: warning: `;` is missing behind probe `a`"),
        ("#define T int\nprovider p { probe a(); };", "t.d:1:1: warning: `#define` is taken for a comment"),
        ("# define T int\nprovider p { probe a(); };", ""),
        ("provider p { };", "t.d:1:10: warning: provider `p` declares no probe"),
        ("foo:::bar {}", "t.d:1:1: warning: `foo...{}` is a clause of a script and declares no probe"),
        ("BEGIN{}", ""),
    ];
    for (text, expected) in table {
        let file = parse("t.d", text).unwrap_or_else(|e| panic!("{text}\n{e}"));
        let first = file.warnings.first().map(|w| w.to_string()).unwrap_or_default();
        assert_eq!(first.lines().next().unwrap_or_default(), expected, "{text}");
    }
}

/// Each broken text with the first lines of all of its errors.
#[test]
fn rejected() {
    let table: &[(&str, &[&str])] = &[
        ("provider", &["1:9: error: expected the provider's name, found the end of the file"]),
        ("provider {", &["1:10: error: expected the provider's name, found `{`"]),
        ("provider p", &["1:11: error: expected `{` behind `provider p`, found the end of the file"]),
        ("provider p-q { };", &["1:11: error: expected `{` behind `provider p`, found `-`"]),
        ("provider p { probe a();", &["1:12: error: this `{` of provider `p` is never closed"]),
        ("porvider p { probe a(); };", &["1:1: error: expected `provider`, found `porvider`"]),
        ("probe a();", &["1:1: error: a probe outside of a provider"]),
        ("hello world", &["1:1: error: expected `provider`, found `hello`"]),
        ("BEGIN", &["1:1: error: expected `provider`, found `BEGIN`"]),
        ("BEGIN {", &["1:7: error: this `{` is never closed"]),
        ("}", &["1:1: error: expected `provider`, found `}`"]),
        ("provider p { prob a(); };", &["1:14: error: expected `probe` or `}`, found `prob`"]),
        ("provider p { int a; probe b(); };", &["1:14: error: expected `probe` or `}`, found `int`"]),
        ("provider p { probe a; };", &["1:21: error: expected `(` behind `probe a`, found `;`"]),
        ("provider p { probe a-b(); };", &["1:21: error: expected `(` behind `probe a`, found `-`"]),
        ("provider p { probe (int); };", &["1:20: error: expected the probe's name, found `(`"]),
        ("provider p { probe 9a(); };", &["1:20: error: expected the probe's name, found `9a`"]),
        (
            "provider p { probe a(int x; };",
            &["1:27: error: expected `)` behind the arguments of probe `a`, found `;`"],
        ),
        ("provider p { probe a(int, ); };", &["1:27: error: expected a type, found `)`"]),
        ("provider p { probe a(, int); };", &["1:22: error: expected a type, found `,`"]),
        ("provider p { probe a(const); };", &["1:27: error: expected a type, found `)`"]),
        ("provider p { probe a(struct *x); };", &["1:29: error: expected a name behind `struct`, found `*`"]),
        ("provider p { probe a(int, ...); };", &["1:27: error: expected a type, found `.`"]),
        ("provider p { probe a(MACRO int x); };", &["1:28: error: expected `,` or `)`, found `int`"]),
        ("provider p { probe a(int x y); };", &["1:28: error: expected `,` or `)`, found `y`"]),
        ("provider p { probe a(int x, int x); };", &["1:29: error: probe `a` has two arguments named `x`"]),
        ("provider p { probe a(void x); };", &["1:22: error: an argument cannot have type `void`"]),
        (
            "provider p { probe a() probe_b(); };",
            &["1:23: error: expected `;` behind probe `a`, found `probe_b`"],
        ),
        (
            "provider p { probe a(int) : int; };",
            &["1:29: error: expected `(` and the translated arguments behind `:`, found `int`"],
        ),
        ("provider p { probe a(); probe a(); };", &["1:31: error: probe `a` is declared twice"]),
        (
            "provider p { probe a__b(); probe a_b(); };",
            &["1:34: error: probes `a__b` and `a_b` would have the same macro"],
        ),
        ("provider p { probe a(int\u{e4}); };", &["1:25: error: expected `,` or `)`, found `\u{e4}`"]),
        ("/* provider p { probe a(); };", &["1:1: error: this comment has no end"]),
        (
            "BEGIN { \"x }",
            &["1:7: error: this `{` is never closed", "1:9: error: this constant has no closing quote"],
        ),
        ("BEGIN { ( } )", &["1:11: error: `}` does not close the `{` that is open here"]),
        (
            "typedef int x\nprovider p { probe a(); };",
            &["1:14: error: expected `;` at the end of this `typedef`, found `provider`"],
        ),
        (
            "provider p {\n probe a(int x;\n probe b(int);\n prob c();\n};\nporvider q { };",
            &[
                "2:15: error: expected `)` behind the arguments of probe `a`, found `;`",
                "4:2: error: expected `probe` or `}`, found `prob`",
                "6:1: error: expected `provider`, found `porvider`",
            ],
        ),
        (
            "provider p { probe a(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j, int k, int l, int m); };",
            &["1:106: error: probe `a` has more than 12 arguments"],
        ),
    ];
    for (text, expected) in table {
        let error = parse("t.d", text).expect_err(text);
        let found: Vec<String> = error
            .diagnostics
            .iter()
            .filter(|d| d.severity == crate::Severity::Error)
            .map(|d| d.to_string().lines().next().unwrap_or_default().replacen("t.d:", "", 1))
            .collect();
        assert_eq!(found, *expected, "{text}\n{error}");
    }
}

#[test]
fn a_diagnostic_shows_the_line_and_a_caret() {
    let error = parse("dir/x.d", "provider p {\n\tprobe a(int x y);\n};").unwrap_err();
    let expected = "dir/x.d:2:16: error: expected `,` or `)`, found `y`\n 2 | \tprobe a(int x y);\n   | \t              ^\n   = help: \
                    an argument is a type and a name; if one of the words is a macro, run with -C";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn places_are_those_of_the_file_before_preprocessing() {
    let text =
        "# 1 \"x.d\"\n# 1 \"<command-line>\"\n# 7 \"src/probes.d\" 2\nprovider p {\n\n probe a(int $);\n};\n";
    let error = parse("-", text).unwrap_err().to_string();
    assert!(error.starts_with("src/probes.d:9:14: error: expected `,` or `)`, found `$`"), "{error}");
    // gcc counts the line in front of the first from 0; nothing a person wrote is on it. Found by fuzzing.
    let error = parse("-", "# 0 \"x.d\"\nprostruct ##v").unwrap_err().to_string();
    assert!(error.starts_with("x.d:1:1: error: expected `provider`, found `prostruct`"), "{error}");
}

#[test]
fn doc_comments() {
    let text = "/** Keeps things. */\nprovider p {\n\
        /**\n * Fires when a key\n * is stored.\n *\n * Even twice.\n * @param key the key,\n *   not ended by a NUL\n * @param n its length\n * @length key n\n\
         * @enum how 0=SET 1=ADD,\n *  -1=NONE 0x10=CAS\n * @see other\n */\n\
        probe store(const char *key, int n, int how);\n\
        // Plain line one.\n// Line two.\nprobe line(const void *p, size_t n); /* trailing */\n\
        probe none();\n\n/* A heading. */\n\nprobe more();\n /** @param id a number */ probe id(int connid);\n};";
    let file = parse("t.d", text).unwrap();
    let provider = &file.providers[0];
    assert_eq!(provider.doc, "Keeps things.");
    let store = &provider.probes[0];
    assert_eq!(store.doc, "Fires when a key is stored.\nEven twice.\n@see other");
    assert_eq!(store.args[0].doc, "the key, not ended by a NUL");
    assert_eq!((store.args[0].kind, store.args[0].length), (Kind::Str, Some(1)));
    let labels: Vec<String> =
        store.args[2].labels.iter().map(|l| format!("{}={}", l.value, l.text)).collect();
    assert_eq!((store.args[2].kind, labels.join(" ").as_str()), (Kind::Enum, "0=SET 1=ADD -1=NONE 16=CAS"));
    let docs: Vec<&str> = provider.probes[1..].iter().map(|p| p.doc.as_str()).collect();
    assert_eq!(docs, ["Plain line one. Line two.", "", "", ""]);
    assert_eq!(provider.probes[4].args[0].doc, "a number");
}

#[test]
fn doc_tags_that_cannot_be_used_are_reported() {
    let table = [
        ("@length key", "warning: `@length` needs two arguments of this probe: the text and its length"),
        ("@length n key", "warning: `@length`: `n` is not a pointer"),
        ("@length key key", "warning: `@length`: `key` is not an integer"),
        ("@enum x 1=A", "warning: `@enum`: probe `a` has no argument `x`"),
        ("@enum n 1:A", "warning: `@enum`: `1:A` is not of the form VALUE=NAME"),
        ("@enum n --1=A", "warning: `@enum`: `--1=A` is not of the form VALUE=NAME"),
        ("@pair b", "warning: `@pair`: provider `p` has no other probe `b`"),
        ("@pair a", "warning: `@pair`: provider `p` has no other probe `a`"),
        ("@param x text", "note: probe `a` has no argument `x`"),
    ];
    for (tag, expected) in table {
        let text = format!("provider p {{\n/** {tag} */ probe a(const char *key, int n);\n}};");
        let file = parse("t.d", &text).unwrap();
        assert!(file.warnings[0].to_string().contains(expected), "{tag}: {}", file.warnings[0]);
    }
}

#[test]
fn pairs() {
    let text = "provider p { probe q__start(); probe q__done(); probe f__entry(); probe f__return(); probe g__begin();
        probe g__end(); probe lone__start(); probe end(); probe x__done();
        /** @pair close */ probe open(); probe close(); /** @pair x__done */ probe xx();
        /** @pair m__start */ probe m__ok(); /** @pair m__start */ probe m__bad(); probe m__start(); };";
    let file = parse("t.d", text).unwrap();
    let probes = &file.providers[0].probes;
    let shown: Vec<String> = probes
        .iter()
        .map(|p| match &p.pair {
            Some(pair) if pair.role == Role::Start => format!("{}>{}", p.name, pair.partner),
            Some(pair) => format!("{}<{}", p.name, pair.partner),
            None => p.name.clone(),
        })
        .collect();
    let expected = "q__start>q__done q__done<q__start f__entry>f__return f__return<f__entry g__begin>g__end \
        g__end<g__begin lone__start end x__done<xx open>close close<open xx>x__done m__ok<m__start m__bad<m__start \
        m__start>m__ok";
    assert_eq!(shown.join(" "), expected);
}

/// Nesting, length and repetition cost no stack and no more memory than the text.
#[test]
fn huge_and_hostile_texts_end() {
    let many = 200_000;
    let table = [
        format!("BEGIN {}", "{".repeat(many)),
        format!("provider p {{ probe a(void (*f){}; }};", "(".repeat(many)),
        format!("provider p {{ probe a({}int x); }};", "struct { ".repeat(many)),
        format!("provider p {{ probe a(int {}x); }}", "*".repeat(many) + "$"),
        format!("provider p {{ {} }};", "prob ".repeat(many)),
        "provider ".repeat(many),
        "probe a(".repeat(many),
        "/*".repeat(many),
        "\"".repeat(many) + "x",
        "#".repeat(many) + "\nx",
        "# 1 \"\n".repeat(many) + "x",
        "x".repeat(10 << 20),
        format!("provider p {{ probe a(int {}", "x".repeat(10 << 20)),
    ];
    for text in table {
        let error = parse("t.d", &text).map(|f| f.providers.len()).expect_err(&text[..40]);
        let shown = error.to_string();
        assert!(shown.len() < 50_000, "{}: {} bytes of diagnostics", &text[..40], shown.len());
    }
    let fine = format!(
        "provider p {{ {} }};",
        (0..20_000).map(|i| format!("probe a{i}(int x); ")).collect::<String>()
    );
    assert_eq!(parse("t.d", &fine).unwrap().providers[0].probes.len(), 20_000);
}
