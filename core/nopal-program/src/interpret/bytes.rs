//! Strings and bytes of the frame: copied, compared, searched. No allocation.

/// Up to the first NUL.
pub(super) fn text(bytes: &[u8]) -> &[u8] {
    &bytes[..length(bytes)]
}

pub(super) fn length(bytes: &[u8]) -> usize {
    bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())
}

/// A string with zeros behind it, at least one; ends at its NUL.
pub(super) fn put_string(to: &mut [u8], from: &[u8], max_bytes: usize) {
    let room = to.len().saturating_sub(1).min(max_bytes).min(from.len());
    let n = length(&from[..room]);
    to[..n].copy_from_slice(&from[..n]);
    to[n..].fill(0);
}

/// u64 length, then the bytes, then zeros.
pub(super) fn put_buffer(to: &mut [u8], from: &[u8], max_bytes: usize) {
    let Some((head, body)) = to.split_first_chunk_mut::<8>() else { return };
    let n = body.len().min(max_bytes).min(from.len());
    *head = (n as u64).to_le_bytes();
    body[..n].copy_from_slice(&from[..n]);
    body[n..].fill(0);
}

/// As many bytes as both have, then zeros.
pub(super) fn put(to: &mut [u8], from: &[u8]) {
    let n = to.len().min(from.len());
    to[..n].copy_from_slice(&from[..n]);
    to[n..].fill(0);
}

/// A shorter one counts as followed by zeros.
pub(super) fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let n = a.len().min(b.len());
    a[..n] == b[..n] && a[n..].iter().chain(&b[n..]).all(|byte| *byte == 0)
}

/// Whether the first `n` bytes differ before both have ended.
pub(super) fn differs(a: &[u8], b: &[u8], n: usize) -> bool {
    for at in 0..n {
        let (x, y) = (a.get(at).copied().unwrap_or(0), b.get(at).copied().unwrap_or(0));
        if x != y {
            return true;
        }
        if x == 0 {
            return false;
        }
    }
    false
}

/// Where the text of the second begins in that of the first.
pub(super) fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let (haystack, needle) = (text(haystack), text(needle));
    match needle.is_empty() {
        true => Some(0),
        false => haystack.windows(needle.len()).position(|window| window == needle),
    }
}

/// `size_bytes` little-endian bytes, extended.
#[inline]
pub(super) fn number(bytes: &[u8], size_bytes: u8, is_signed: bool) -> u64 {
    let mut whole = [0; 8];
    let n = usize::from(size_bytes).min(8).min(bytes.len());
    whole[..n].copy_from_slice(&bytes[..n]);
    extend(u64::from_le_bytes(whole), size_bytes, is_signed)
}

#[inline]
pub(super) fn extend(value: u64, size_bytes: u8, is_signed: bool) -> u64 {
    let unused = 64 - 8 * u32::from(size_bytes.clamp(1, 8));
    if is_signed { ((value << unused) as i64 >> unused) as u64 } else { value << unused >> unused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_keep_a_nul() {
        for (from, max, want) in [
            (&b"abc"[..], 99, b"abc\0"),
            (b"abcdef", 99, b"abc\0"),
            (b"abcdef", 2, b"ab\0\0"),
            (b"a\0c", 99, b"a\0\0\0"),
            (b"", 99, b"\0\0\0\0"),
        ] {
            let mut to = *b"zzzz";
            put_string(&mut to, from, max);
            assert_eq!(&to, want, "{from:?} {max}");
        }
    }

    #[test]
    fn comparisons() {
        for (a, b, n, equal, differ) in [
            (&b"abc\0"[..], &b"abc\0\0\0"[..], 9, true, false),
            (b"abc", b"abd", 2, false, false),
            (b"abc", b"abd", 3, false, true),
            (b"ab\0x", b"ab\0y", 4, false, false),
            (b"", b"", 4, true, false),
            (b"a", b"", 1, false, true),
        ] {
            assert_eq!((is_equal(a, b), differs(a, b, n)), (equal, differ), "{a:?} {b:?}");
        }
        for (haystack, needle, want) in [
            (&b"hello\0"[..], &b"ell\0"[..], Some(1)),
            (b"x", b"", Some(0)),
            (b"", b"", Some(0)),
            (b"he\0llo", b"llo", None),
            (b"aaab", b"ab", Some(2)),
        ] {
            assert_eq!(find(haystack, needle), want, "{haystack:?} {needle:?}");
        }
    }

    #[test]
    fn numbers_are_extended_by_their_sign() {
        for (size, signed, want) in [
            (1, false, 0xfe),
            (1, true, -2i64 as u64),
            (2, false, 0xfffe),
            (4, true, -2i64 as u64),
            (8, false, u64::MAX - 1),
        ] {
            assert_eq!(number(&(-2i64).to_le_bytes(), size, signed), want);
        }
    }
}
