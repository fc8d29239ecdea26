//! Programs of ours, built in every way; what is expected is what their sources say.

use super::*;
use nopal_proc::Image;
use nopal_proc::symbols::FileSymbols;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const C: &str = r#"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
enum state { IDLE, BUSY = 7, BROKEN = -2 };
struct inner { unsigned low : 3, high : 5; };
struct conn { char name[16]; int fd; struct conn *next; struct { short x, y; }; union { long l; double d; } u; struct inner bits; };
typedef struct { int a, b; } pair;
typedef struct { double a; long b; } mixed;
struct big { long a[3]; };
struct opaque;
typedef const char *text;
volatile long sink;
__attribute__((noinline)) int plain(struct conn *c, const char *key, size_t nkey, bool is_set, char letter, enum state s)
{ sink += (long)c + (long)key + nkey + is_set + letter + s; return 1; }
__attribute__((noinline)) double floats(double x, int n, float y, uint8_t m)
{ sink += n + m; return x + y; }
__attribute__((noinline)) struct big returned_in_memory(int n) { struct big b = { { n, n, n } }; sink += n; return b; }
__attribute__((noinline)) long records(pair p, mixed m, struct big b, int last) { sink += p.a + m.b + b.a[0] + last; return 0; }
__attribute__((noinline)) long many(int a, int b, int c, int d, int e, int f, int seventh, double x)
{ sink += a + b + c + d + e + f + seventh; return x; }
__attribute__((noinline)) void names(text t, char *buffer, struct opaque *o, void (*f)(int), const pair *const *pp)
{ sink += (long)t + (long)buffer + (long)o + (long)f + (long)pp; }
int main(int argc, char **argv)
{ pair p = { argc, 2 }; mixed m = { 1, 2 }; struct big b = { { 1 } };
  plain(0, argv[0], 1, argc, 'x', BUSY); floats(1, argc, 2, 3); b = returned_in_memory(argc); records(p, m, b, argc);
  many(1, 2, 3, 4, 5, 6, argc, 8); names(argv[0], argv[0], 0, 0, 0); return 0; }
"#;

fn scratch(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("nopal-dwarf-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[track_caller]
fn run(program: &str, args: &[&str], folder: &Path) {
    let output = Command::new(program).args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn built(name: &str, compiler: &str, source: &str, flags: &[&str]) -> PathBuf {
    let folder = scratch(name);
    let file = if compiler == "c++" { "a.cpp" } else { "a.c" };
    fs::write(folder.join(file), source).unwrap();
    run(compiler, &[&[file, "-o", "app"], flags].concat(), &folder);
    folder.join("app")
}

/// What is known of a function: `int (struct conn *c: rdi, ...)`.
#[track_caller]
fn shown(path: &Path, function: &str) -> String {
    let image = Image::open(path).unwrap();
    let info = DebugInfo::of_file(path, &image).unwrap();
    let symbols = FileSymbols::read(image.bytes());
    let found = symbols.functions().find(|f| f.name == function).map(|f| f.address);
    let signature = info.signature(found.unwrap(), function).unwrap();
    let parameters: Vec<String> = signature
        .parameters
        .iter()
        .map(|parameter| {
            let place = match parameter.place {
                Place::Register(register) => register.name().to_owned(),
                Place::Vector(number) => format!("xmm{number}"),
                Place::Elsewhere => "-".to_owned(),
            };
            let space = if parameter.written.ends_with(['*', '&']) { "" } else { " " };
            format!("{}{space}{}: {place}", parameter.written, parameter.name)
        })
        .collect();
    format!("{} ({})", signature.returned, parameters.join(", "))
}

#[test]
fn parameters_of_c_by_every_compiler_setting() {
    const PLAIN: &str = "int (struct conn *c: rdi, const char *key: rsi, size_t nkey: rdx, _Bool is_set: rcx, \
                         char letter: r8, enum state s: r9)";
    for (name, flags) in [
        ("o0", &["-g", "-O0"][..]),
        ("o2", &["-g", "-O2"]),
        ("dwarf4", &["-gdwarf-4", "-O2"]),
        ("dwarf3", &["-gdwarf-3", "-gstrict-dwarf", "-O0"]),
        ("packed", &["-g", "-O2", "-gz"]),
    ] {
        let app = built(name, "cc", C, flags);
        assert_eq!(shown(&app, "plain"), PLAIN, "{name}");
        assert_eq!(
            shown(&app, "floats"),
            "double (double x: xmm0, int n: rdi, float y: xmm1, uint8_t m: rsi)",
            "{name}"
        );
        // Where it is returned is the first thing it is told.
        assert_eq!(shown(&app, "returned_in_memory"), "struct big (int n: rsi)", "{name}");
        assert_eq!(
            shown(&app, "names"),
            "void (text t: rdi, char *buffer: rsi, struct opaque *o: rdx, void (...) *f: rcx, const pair * const *pp: r8)",
            "{name}"
        );
        fs::remove_dir_all(app.parent().unwrap()).unwrap();
    }
}

#[test]
fn records_take_as_many_registers_as_the_rules_say() {
    let app = built("records", "cc", C, &["-g", "-O0"]);
    // `p` is one number, `m` one of each, `b` is on the stack.
    assert_eq!(shown(&app, "records"), "long int (pair p: rdi, mixed m: -, struct big b: -, int last: rdx)");
    assert_eq!(
        shown(&app, "many"),
        "long int (int a: rdi, int b: rsi, int c: rdx, int d: rcx, int e: r8, int f: r9, int seventh: -, double x: xmm0)"
    );
    fs::remove_dir_all(app.parent().unwrap()).unwrap();
}

#[test]
fn members_are_where_the_compiler_put_them() {
    let app = built("members", "cc", C, &["-g"]);
    let image = Image::open(&app).unwrap();
    let info = DebugInfo::of_file(&app, &image).unwrap();
    let members = |name: &str| info.members(info.record(name).unwrap().id).unwrap();
    let conn = members("struct conn");
    let places: Vec<(&str, u64)> = conn.iter().map(|member| (member.name.as_str(), member.offset)).collect();
    assert_eq!(places, [("name", 0), ("fd", 16), ("next", 24), ("", 32), ("u", 40), ("bits", 48)]);
    assert_eq!(conn[0].ty, Type::Array { of: Box::new(Type::Char), n: 16 });
    assert!(
        matches!(&conn[2].ty, Type::Pointer { to, .. } if matches!(&**to, Type::Record(r) if r.name == "struct conn"))
    );
    let Type::Record(unnamed) = &conn[3].ty else { panic!("{:?}", conn[3]) };
    assert_eq!(info.members(unnamed.id).unwrap().iter().map(|m| m.offset).collect::<Vec<_>>(), [0, 2]);
    let bits: Vec<_> =
        members("struct inner").into_iter().map(|member| (member.offset, member.bits)).collect();
    assert_eq!(bits, [(0, Some((0, 3))), (0, Some((3, 5)))]);
    // One without a name has that of its typedef; one that is only declared has no members.
    assert_eq!(members("pair").len(), 2);
    assert_eq!(info.record("struct opaque"), None);
    assert_eq!(info.record("struct conn").unwrap().size_bytes, 56);
    fs::remove_dir_all(app.parent().unwrap()).unwrap();
}

#[test]
fn enums_have_their_labels() {
    let app = built("enums", "cc", C, &["-g", "-O2"]);
    let image = Image::open(&app).unwrap();
    let info = DebugInfo::of_file(&app, &image).unwrap();
    let symbols = FileSymbols::read(image.bytes());
    let address = symbols.named("plain")[0].address;
    let signature = info.signature(address, "plain").unwrap();
    let Type::Enum { labels, is_signed, size_bytes } = &signature.parameters[5].ty else { panic!() };
    let labels: Vec<(i64, &str)> = labels.iter().map(|label| (label.value, label.text.as_str())).collect();
    assert_eq!((labels, *is_signed, *size_bytes), (vec![(0, "IDLE"), (7, "BUSY"), (-2, "BROKEN")], true, 4));
    assert!(signature.parameters[1].ty.is_text());
    assert_eq!(signature.returns, Type::Int { size_bytes: 4, is_signed: true });
    fs::remove_dir_all(app.parent().unwrap()).unwrap();
}

/// The debug file of the C library is found by its build id; what is expected is what glibc's sources declare.
#[test]
fn functions_of_the_c_library_are_known_by_its_debug_file() {
    let libc = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    for (name, expected) in [
        ("fopen64", "FILE * (const char *filename: rdi, const char *mode: rsi)"),
        ("qsort", "void (void *b: rdi, size_t n: rsi, size_t s: rdx, __compar_fn_t cmp: rcx)"),
        // It moves `mode` on before its first instruction; the structure is on the stack.
        (
            "fopencookie",
            "FILE * (void *cookie: rdi, const char *mode: rsi, cookie_io_functions_t io_functions: -)",
        ),
        ("strtol", "long int (const char *nptr: rdi, char **endptr: rsi, int base: rdx)"),
    ] {
        assert_eq!(shown(libc, name), expected, "{name}");
    }
}

#[test]
fn a_debug_file_is_found_by_link_and_must_have_the_same_build_id() {
    let app = built("linked", "cc", C, &["-g", "-O2", "-Wl,--build-id"]);
    let folder = app.parent().unwrap();
    run("objcopy", &["--only-keep-debug", "app", "app.debug"], folder);
    run("strip", &["-g", "app"], folder);
    let is_known = || DebugInfo::of_file(&app, &Image::open(&app).unwrap()).is_some();
    assert!(!is_known(), "nothing leads to it");
    run("objcopy", &["--add-gnu-debuglink=app.debug", "app"], folder);
    assert!(shown(&app, "floats").starts_with("double (double x: xmm0"));
    fs::create_dir(folder.join(".debug")).unwrap();
    fs::rename(folder.join("app.debug"), folder.join(".debug/app.debug")).unwrap();
    assert!(is_known());
    // Another program's.
    let other = built("linked_other", "cc", "int main() { return 3; }", &["-g", "-Wl,--build-id"]);
    fs::copy(&other, folder.join(".debug/app.debug")).unwrap();
    assert!(!is_known());
    fs::remove_dir_all(folder).unwrap();
    fs::remove_dir_all(other.parent().unwrap()).unwrap();
}

#[test]
fn what_cpp_passes_by_its_address_takes_one_register() {
    const SOURCE: &str = r#"
        #include <string>
        volatile long sink;
        struct plain { int a, b; };
        struct Conn { int fd; __attribute__((noinline)) long put(std::string by_address, const std::string &key, plain p, int last) const; };
        long Conn::put(std::string by_address, const std::string &key, plain p, int last) const
        { sink += by_address.size() + key.size() + p.a + last + fd; return sink; }
        __attribute__((noinline)) std::string made(int n) { sink += n; return std::string(n, 'x'); }
        int main(int argc, char **argv) { Conn c { argc }; return made(argc).size() + c.put("a", "b", plain { 1, 2 }, argc) > 1000; }
    "#;
    for (name, flags) in [("cpp0", &["-g", "-O0"][..]), ("cpp2", &["-g", "-O2"])] {
        let app = built(name, "c++", SOURCE, flags);
        let put =
            shown(&app, "_ZNK4Conn3putENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKS5_5plaini");
        assert!(
            put.starts_with(
                "long int (const Conn * const this: rdi, string by_address: -, const string &key: rdx, "
            ),
            "{name}: {put}"
        );
        assert!(put.ends_with("plain p: rcx, int last: r8)"), "{name}: {put}");
        assert!(shown(&app, "_Z4madeB5cxx11i").ends_with("(int n: rsi)"), "{name}");
        fs::remove_dir_all(app.parent().unwrap()).unwrap();
    }
}

/// 256 MB of nothing in some 250 KB.
#[test]
fn what_unpacks_to_too_much_is_not_unpacked() {
    let app = built("bomb", "cc", C, &["-g", "-O2"]);
    let folder = app.parent().unwrap();
    fs::File::create(folder.join("zeros")).unwrap().set_len(256 << 20).unwrap();
    run("objcopy", &["--update-section", ".debug_str=zeros", "app", "large"], folder);
    run("objcopy", &["--compress-debug-sections", "large", "bomb"], folder);
    let bomb = folder.join("bomb");
    assert!(fs::metadata(&bomb).unwrap().len() < 1 << 20);
    assert!(DebugInfo::of_file(&bomb, &Image::open(&bomb).unwrap()).is_none());
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn damaged_information_is_no_information() {
    let app = built("damaged", "cc", C, &["-g", "-O2"]);
    let whole = fs::read(&app).unwrap();
    let symbols = FileSymbols::read(Image::open(&app).unwrap().bytes());
    let functions: Vec<(u64, String)> = symbols.functions().map(|f| (f.address, f.name.to_owned())).collect();
    let damaged = app.with_file_name("damaged");
    for round in 0..400_usize {
        let mut bytes = whole.clone();
        // Debug information is the second half of such a small file.
        for n in 0..=round % 7 {
            let at = bytes.len() / 4 + (round * 7919 + n * 104_729) % (bytes.len() * 3 / 4);
            bytes[at] ^= (1 + round % 255) as u8;
        }
        fs::write(&damaged, &bytes).unwrap();
        let image = Image::open(&damaged).unwrap();
        let Some(info) = DebugInfo::of_file(&damaged, &image) else { continue };
        for (address, name) in &functions {
            let _ = info.signature(*address, name);
        }
        if let Some(record) = info.record("struct conn") {
            let _ = info.members(record.id);
        }
    }
    fs::remove_dir_all(app.parent().unwrap()).unwrap();
}

/// Sections made by hand: a function that returns what an entry describes, and `struct s` with a member of some bits.
fn made_up(enum_leads_to: u32, member_offset: u64) -> DebugInfo {
    let abbreviations: &[&[u8]] = &[
        // Tag, whether it has children, then attributes with their forms: a unit, a function, an enum, a record, a member, a number.
        &[1, 0x11, 1, 0x11, 0x01, 0x12, 0x07, 0, 0],
        &[2, 0x2e, 0, 0x11, 0x01, 0x49, 0x13, 0, 0],
        &[3, 0x04, 0, 0x49, 0x13, 0x0b, 0x0b, 0, 0],
        &[4, 0x13, 1, 0x03, 0x08, 0x0b, 0x0b, 0, 0],
        &[5, 0x0d, 0, 0x03, 0x08, 0x49, 0x13, 0x38, 0x07, 0x0d, 0x0b, 0x0c, 0x0b, 0, 0],
        &[6, 0x24, 0, 0x0b, 0x0b, 0x3e, 0x0b, 0, 0, 0],
    ];
    const ENUM_AT: u32 = 41;
    let mut info: Vec<u8> = vec![0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8];
    let mut add = |parts: &[&[u8]]| info.extend(parts.concat());
    add(&[&[1], &0x1000_u64.to_le_bytes(), &0x100_u64.to_le_bytes()]);
    add(&[&[2], &0x1000_u64.to_le_bytes(), &ENUM_AT.to_le_bytes()]);
    add(&[&[3], &enum_leads_to.to_le_bytes(), &[4]]);
    let number_at = ENUM_AT + 6;
    add(&[&[6, 4, 5]]);
    add(&[&[4], b"s\0", &[8]]);
    add(&[&[5], b"m\0", &number_at.to_le_bytes(), &member_offset.to_le_bytes(), &[3, 1]]);
    add(&[&[0, 0]]);
    let length = (info.len() - 4) as u32;
    info[..4].copy_from_slice(&length.to_le_bytes());
    let abbreviations = abbreviations.concat();
    DebugInfo::of_sections(|name| match name {
        ".debug_abbrev" => abbreviations.clone(),
        ".debug_info" => info.clone(),
        _ => Vec::new(),
    })
}

#[test]
fn what_leads_to_itself_or_lies_beyond_all_memory_has_an_end() {
    let returned = |info: &DebugInfo| info.signature(0x1000, "f").unwrap().returns;
    let members = |info: &DebugInfo| info.members(info.record("struct s").unwrap().id).unwrap();
    // As it should be: an enum of four bytes over a number, and bits 28 to 30 of the number at 0.
    let info = made_up(47, 0);
    assert!(matches!(returned(&info), Type::Enum { size_bytes: 4, is_signed: true, .. }), "{info:?}");
    assert_eq!(members(&info)[0].bits, Some((28, 3)));
    let info = made_up(41, 1 << 61);
    assert!(matches!(returned(&info), Type::Enum { size_bytes: 4, is_signed: false, .. }), "{info:?}");
    assert_eq!(members(&info), []);
}
