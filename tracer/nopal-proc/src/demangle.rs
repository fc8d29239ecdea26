//! Names as people write them, of names as linkers know them.

/// A C++ or Rust name as people write it; any other name as it is.
pub fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    if name.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(name)
    {
        let mut text = Bounded(String::new());
        if symbol.structured_demangle(&mut text, &cpp_demangle::DemangleOptions::default()).is_ok() {
            return text.0;
        }
    }
    name.to_owned()
}

/// A few letters can stand for a text that doubles with each of them. What is longer than any real name is given up.
struct Bounded(String);

const MAX_NAME_BYTES: usize = 64 << 10;

impl cpp_demangle::DemangleWrite for Bounded {
    fn write_string(&mut self, text: &str) -> std::fmt::Result {
        if self.0.len() + text.len() > MAX_NAME_BYTES {
            return Err(std::fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// `a::b(int) const` to `a::b`; parentheses in template arguments stay.
pub(crate) fn without_parameters(name: &str) -> &str {
    let mut depth = 0;
    for (at, character) in name.char_indices() {
        match character {
            '<' => depth += 1,
            '>' => depth -= 1,
            '(' if depth <= 0 && at > 0 && !name[..at].ends_with("operator") => return &name[..at],
            _ => {}
        }
    }
    name
}

/// Words that demanglers write of which the mangled name has only a letter or two.
const MADE_UP: &[&str] = &[
    "std::allocator<char> basic_string basic_istream basic_ostream basic_iostream char_traits string literal nullptr_t bfloat16_t",
    "operator new delete co_await sizeof alignof typeid decltype noexcept throw static_cast const_cast dynamic_cast reinterpret_cast",
    "unsigned signed short double float char8_t char16_t char32_t wchar_t __int128 __float128 decimal32 decimal64 decimal128",
    "const volatile restrict complex imaginary auto bool void this true false extension enum union struct class java resource half",
    "_Accum _Fract _Sat _BitInt __vector _block_invoke unified clone lambda unnamed type anonymous namespace transaction non virtual",
    "vtable for construction typeinfo name fn guard variable thunk to covariant return init function wrapper reference temporary invocation block",
    "global constructors destructors keyed base complete object allocating constructor destructor deleting maybe charge inline",
    "closure shim dyn impl for where unsafe extern static recursion limit reached invalid syntax size exceeded",
];

/// The longest piece of a pattern (or name) that a mangled name must have in it if the pattern means what it is
/// demangled to. Most names need not be demangled then.
pub fn piece_of(pattern: &str) -> Option<&str> {
    // What stands between brackets, or behind a backslash, is not what is looked for.
    if pattern.contains(['[', '\\']) {
        return None;
    }
    let is_certain = |piece: &&str| {
        piece.len() >= 4
            && !piece.starts_with(|c: char| c.is_ascii_digit())
            && !MADE_UP.iter().any(|words| words.contains(piece))
    };
    let pieces = pattern.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    pieces.filter(is_certain).max_by_key(|piece| piece.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_cpp_and_rust() {
        let cases = [
            ("main", "main", "main"),
            ("_ZN3foo3barEi", "foo::bar(int)", "foo::bar"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
                "std::vector<int, std::allocator<int> >::push_back",
            ),
            ("_ZN3fooclEv", "foo::operator()()", "foo::operator()"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write", "core::fmt::write"),
            ("_RNvC6_123foo3bar", "123foo::bar", "123foo::bar"),
        ];
        for (name, full, short) in cases {
            assert_eq!(demangle(name), full);
            assert_eq!(without_parameters(&demangle(name)), short);
        }
    }

    #[test]
    fn names_that_double_with_each_letter_are_given_up() {
        // pair<int, int>, then pairs of the pair before: each level twice as long.
        let levels = |n: u32| {
            let pair = |level| format!("S{}_", char::from_digit(level, 36).unwrap_or('0')).to_uppercase();
            let pairs: String = (0..n).map(|level| format!("S_I{0}{0}E", pair(level))).collect();
            format!("_Z1f4pairIiiE{pairs}")
        };
        assert_eq!(
            demangle(&levels(2)),
            "f(pair<int, int>, pair<pair<int, int>, pair<int, int> >, pair<pair<pair<int, int>, pair<int, int> >, \
             pair<pair<int, int>, pair<int, int> > >)"
        );
        assert_eq!(demangle(&levels(24)), levels(24));
    }

    #[test]
    fn a_name_without_a_piece_of_the_pattern_is_not_meant() {
        for (pattern, piece) in [
            ("SSL_read", Some("SSL_read")),
            ("std::vector*push_back*", Some("push_back")),
            ("*GCTask::do_it", Some("GCTask")),
            // Demanglers write these themselves.
            ("std::string*", None),
            ("*constructor*", None),
            ("operator*", None),
            ("foo<123456>", None),
            ("[gs]et_value", None),
            ("a*b", None),
        ] {
            assert_eq!(piece_of(pattern), piece, "{pattern}");
        }
        for name in [
            "_ZNSt6vectorIiSaIiEE9push_backERKi",
            "_ZN4core3fmt5write17h0123456789abcdefE",
            "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3barE",
            "_RNvMNtCs5CcWRJzwAYz_4core6optionINtB2_6OptionFwTlEEuE6unwrapCsiksvdpJ6Jnj_14splat_mangling",
            "_ZN12_GLOBAL__N_13runEv",
            "_ZNSt3mapISsiSt4lessISsESaISt4pairIKSsiEEEixERS3_",
        ] {
            let shown = demangle(name);
            assert_ne!(shown, name);
            for word in shown.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
                assert!(piece_of(word).is_none_or(|piece| name.contains(piece)), "{word} of {name}");
            }
        }
    }
}
