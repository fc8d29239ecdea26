//! Where the functions of a file begin and end, as its tables for unwinding tell: those are there in stripped files, too.
//! Pure; takes every offset as an allegation.

use object::{Object as _, ObjectSection as _, ReadRef};

/// The functions of a file that `.eh_frame_hdr` lists, at link-time addresses, sorted.
#[derive(Debug, Default)]
pub struct FunctionRanges {
    /// Where each begins, and where its description is.
    entries: Vec<(u64, u64)>,
    /// Address and bytes of `.eh_frame`.
    frames: (u64, Vec<u8>),
}

impl FunctionRanges {
    /// Nothing for a file without the table, or with one in another form than linkers write.
    pub fn read<'a>(image: impl ReadRef<'a>) -> FunctionRanges {
        let Ok(file) = object::File::parse(image) else { return FunctionRanges::default() };
        let part = |name: &str| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.data().ok()?))
        };
        let (Some((address, table)), Some((frames, bytes))) = (part(".eh_frame_hdr"), part(".eh_frame"))
        else {
            return FunctionRanges::default();
        };
        let mut entries = search_table(address, table).unwrap_or_default();
        entries.sort_unstable();
        FunctionRanges { entries, frames: (frames, bytes.to_vec()) }
    }

    /// Where functions begin.
    pub fn starts(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().map(|(start, _)| *start)
    }

    /// Beginning and length of the function an address lies in.
    pub fn around(&self, address: u64) -> Option<(u64, u64)> {
        let after = self.entries.partition_point(|(start, _)| *start <= address);
        let (start, description) = *self.entries.get(after.checked_sub(1)?)?;
        let n_bytes = self.length(start, description)?;
        (address - start < n_bytes).then_some((start, n_bytes))
    }

    /// From the description of a function: u32 length, u32 distance to what is common to several, then beginning (relative
    /// to itself) and length of the code in 32 bits each. Another form does not yield the beginning that is known.
    fn length(&self, start: u64, description: u64) -> Option<u64> {
        let at = usize::try_from(description.checked_sub(self.frames.0)?).ok()?;
        let word = |at: usize| Some(u32::from_le_bytes(*self.frames.1.get(at..)?.first_chunk()?));
        let begins = description.wrapping_add(8).wrapping_add(word(at + 8)? as i32 as i64 as u64);
        (begins == start).then_some(u64::from(word(at + 12)?))
    }
}

/// Where functions begin and their descriptions are: the binary search table of `.eh_frame_hdr`, in the one form that
/// linkers write.
pub fn search_table(address: u64, bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    const VERSION: u8 = 1;
    const UDATA4: u8 = 0x03;
    const DATAREL_SDATA4: u8 = 0x3b;
    let [VERSION, _, UDATA4, DATAREL_SDATA4, rest @ ..] = bytes else { return None };
    let n_entries = u32::from_le_bytes(*rest.get(4..)?.first_chunk()?) as usize;
    let table = rest.get(8..)?.get(..n_entries.checked_mul(8)?)?;
    let (words, _) = table.as_chunks::<4>();
    let from_here = |word: &[u8; 4]| address.wrapping_add(i32::from_le_bytes(*word) as i64 as u64);
    Some(words.chunks_exact(2).map(|pair| (from_here(&pair[0]), from_here(&pair[1]))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;
    use crate::symbols::FileSymbols;

    #[test]
    fn the_functions_of_this_program_are_where_its_symbols_say() {
        let image = Image::open(&std::env::current_exe().unwrap()).unwrap();
        let (ranges, symbols) = (FunctionRanges::read(image.bytes()), FileSymbols::read(image.bytes()));
        let mut n_same = 0;
        for function in symbols.functions().filter(|function| function.size_bytes > 0).take(2000) {
            let middle = function.address + function.size_bytes / 2;
            n_same += usize::from(ranges.around(middle) == Some((function.address, function.size_bytes)));
        }
        assert!(n_same > 1000, "{n_same} of 2000");
        assert_eq!(ranges.around(0), None);
        assert_eq!(ranges.around(u64::MAX), None);
    }

    #[test]
    fn a_table_that_lies_leads_nowhere() {
        let table = |n: u32, words: &[u32]| {
            let mut bytes = vec![1, 0x1b, 0x03, 0x3b, 0, 0, 0, 0];
            bytes.extend(n.to_le_bytes());
            words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            bytes
        };
        assert_eq!(search_table(0x100, &table(1, &[0x10, 0x20])), Some(vec![(0x110, 0x120)]));
        assert_eq!(search_table(0x100, &table(u32::MAX, &[0x10, 0x20])), None);
        assert_eq!(search_table(0x100, &[1, 0x1b, 0x03]), None);
        assert_eq!(search_table(0x100, &table(9, &[])), None);
        let entries = vec![(0x110, 0x200), (0x120, u64::MAX), (0x130, 0)];
        let ranges = FunctionRanges { entries, frames: (0x200, vec![0xff; 10]) };
        assert_eq!([0x115, 0x125, 0x135].map(|address| ranges.around(address)), [None; 3]);
    }
}
