//! The bytes of one file, read where and when they are asked for. The file is never mapped: its owner may cut it at any
//! moment, and reading a mapped page behind the end would end the tracer. What was read once stays as it was read.

use super::TargetError;
use memmap2::{MmapOptions, MmapRaw};
use nopal_files::foreign::{self, ForeignError};
use object::ReadRef;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The unit of reading: sites lie scattered over a file, and each is sixteen bytes.
const PAGE_BYTES: usize = 4096;
/// Read at once where the end is not known: names of symbols.
const CHUNK_BYTES: usize = 64 << 10;
/// The symbol tables of the largest programs have some hundred megabytes. More is not read of one file.
const MAX_READ_BYTES: usize = 512 << 20;
/// A file without holes that is larger does not exist, and one with holes says nothing of value there.
const MAX_FILE_BYTES: u64 = 1 << 40;

/// An opened regular file. An empty one has no bytes and no memory.
#[derive(Debug)]
pub struct Image {
    pages: Option<Pages>,
    pub device: u64,
    pub inode: u64,
    file: File,
}

/// Memory as large as the file, of which only those pages take room that were read.
#[derive(Debug)]
struct Pages {
    memory: MmapRaw,
    len: usize,
    /// A bit for each page: whether it was read. Set once it was, after which nobody writes to the page.
    is_read: Box<[AtomicU64]>,
    /// Held by whoever reads: how much was read so far.
    n_read_bytes: Mutex<usize>,
}

impl Image {
    /// Opens a regular file. Never waits: a FIFO or a device is refused, not opened for reading.
    pub fn open(path: &Path) -> Result<Image, TargetError> {
        let of_io = |error: std::io::Error| TargetError::of_file(path, &error);
        let file = foreign::open(path).map_err(|error| match error {
            ForeignError::NotAFile => TargetError::NotAFile { path: path.to_owned() },
            other => of_io(other.into_io()),
        })?;
        let metadata = file.metadata().map_err(of_io)?;
        // Files of /proc and /sys say that they are empty.
        let pages = match metadata.len() {
            0 => None,
            len if len > MAX_FILE_BYTES => return Err(of_io(std::io::ErrorKind::FileTooLarge.into())),
            len => Some(Pages::new(len as usize).map_err(of_io)?),
        };
        Ok(Image { pages, device: metadata.dev(), inode: metadata.ino(), file })
    }

    /// The bytes, for readers of ELF files.
    pub fn bytes(&self) -> Bytes<'_> {
        Bytes { image: Some(self) }
    }

    /// The open file, for callers that hand it to the kernel.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the memory back of all that was read.
    pub fn forget(&mut self) {
        if let Some(pages) = &mut self.pages
            && let Ok(empty) = Pages::new(pages.len)
        {
            *pages = empty;
        }
    }
}

/// The bytes of a file, each read when it is asked for. What lies behind the end of a file that was cut is an error, as
/// what lies behind the end of any file.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bytes<'a> {
    image: Option<&'a Image>,
}

impl<'a> Bytes<'a> {
    /// How many the file had when it was opened.
    pub fn len(self) -> usize {
        self.pages().map_or(0, |(pages, _)| pages.len)
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub fn get(self, range: Range<usize>) -> Option<&'a [u8]> {
        if range.is_empty() {
            return (range.start <= range.end && range.end <= self.len()).then_some(&[]);
        }
        let (pages, file) = self.pages()?;
        pages.get(file, range)
    }

    pub fn starts_with(self, magic: &[u8]) -> bool {
        self.get(0..magic.len()) == Some(magic)
    }

    fn pages(self) -> Option<(&'a Pages, &'a File)> {
        let image = self.image?;
        Some((image.pages.as_ref()?, &image.file))
    }
}

impl<'a> ReadRef<'a> for Bytes<'a> {
    fn len(self) -> Result<u64, ()> {
        Ok(Bytes::len(self) as u64)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size == 0 {
            return Ok(&[]);
        }
        let start = usize::try_from(offset).map_err(drop)?;
        let end = usize::try_from(size).ok().and_then(|size| start.checked_add(size)).ok_or(())?;
        self.get(start..end).ok_or(())
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let start = usize::try_from(range.start).map_err(drop)?;
        let limit = usize::try_from(range.end).map_err(drop)?;
        if limit > Bytes::len(self) {
            return Err(());
        }
        let mut searched = start;
        while searched < limit {
            let end = (searched / CHUNK_BYTES + 1).saturating_mul(CHUNK_BYTES).min(limit);
            let chunk = self.get(searched..end).ok_or(())?;
            if let Some(at) = memchr::memchr(delimiter, chunk) {
                return self.get(start..searched + at).ok_or(());
            }
            searched = end;
        }
        Err(())
    }
}

impl Pages {
    fn new(len: usize) -> std::io::Result<Pages> {
        let memory = MmapOptions::new().len(len).no_reserve_swap().map_anon()?;
        let n_pages = len.div_ceil(PAGE_BYTES);
        let is_read = (0..n_pages.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Pages { memory: MmapRaw::from(memory), len, is_read, n_read_bytes: Mutex::new(0) })
    }

    /// The bytes of a range that is not empty; nothing if it ends behind the file, or too much was asked for.
    fn get(&self, file: &File, range: Range<usize>) -> Option<&[u8]> {
        if range.end > self.len {
            return None;
        }
        let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        if !pages.clone().all(|page| self.has(page)) {
            self.read(file, pages)?;
        }
        // SAFETY: the range is within the memory, and all its pages were read, so that nobody writes to them.
        Some(unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(range.start), range.len()) })
    }

    fn has(&self, page: usize) -> bool {
        self.is_read[page / 64].load(Ordering::Acquire) & 1 << (page % 64) != 0
    }

    /// Reads those of the pages that were not read yet, in as few pieces as there are.
    fn read(&self, file: &File, pages: Range<usize>) -> Option<()> {
        let mut n_read_bytes = self.n_read_bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut page = pages.start;
        while page < pages.end {
            if self.has(page) {
                page += 1;
                continue;
            }
            let end = (page..pages.end).find(|page| self.has(*page)).unwrap_or(pages.end);
            let bytes = page * PAGE_BYTES..(end * PAGE_BYTES).min(self.len);
            *n_read_bytes = n_read_bytes.checked_add(bytes.len()).filter(|n| *n <= MAX_READ_BYTES)?;
            // SAFETY: within the memory, which is all zeros where it was not written; no slice of these pages was given
            // to anybody, as their bits are not set, and whoever else would write to them waits for the lock.
            let room = unsafe {
                std::slice::from_raw_parts_mut(self.memory.as_mut_ptr().add(bytes.start), bytes.len())
            };
            // The file may have become shorter.
            file.read_exact_at(room, bytes.start as u64).ok()?;
            for page in page..end {
                self.is_read[page / 64].fetch_or(1 << (page % 64), Ordering::Release);
            }
            page = end;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn file(name: &str, bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("nopal-image-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn numbered(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i / 7 % 251) as u8 + 1).collect()
    }

    #[test]
    fn every_range_is_what_the_file_has() {
        let content = numbered(3 * CHUNK_BYTES + 5);
        let path = file("ranges", &content);
        let image = Image::open(&path).unwrap();
        let bytes = image.bytes();
        assert_eq!(bytes.len(), content.len());
        for range in [70_000..70_016, 4090..4100, 0..4, 0..0, 12_288..12_289, 0..content.len()] {
            assert_eq!(bytes.get(range.clone()), content.get(range.clone()), "{range:?}");
        }
        let end = content.len();
        for range in [end - 1..end + 1, end + 1..end + 2, usize::MAX - 1..usize::MAX] {
            assert_eq!(bytes.get(range.clone()), None, "{range:?}");
        }
        assert!(bytes.starts_with(&content[..4]) && !bytes.starts_with(b"\x7fELF"));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn names_end_where_their_delimiter_is() {
        let mut content = numbered(2 * CHUNK_BYTES + 100);
        content[2 * CHUNK_BYTES + 50] = 0;
        let path = file("names", &content);
        let image = Image::open(&path).unwrap();
        let whole = content.len() as u64;
        let bytes: &[u8] = &content;
        for range in
            [10..whole, CHUNK_BYTES as u64..whole, 10..CHUNK_BYTES as u64, whole - 10..whole, 5..whole + 1]
        {
            let want = ReadRef::read_bytes_at_until(bytes, range.clone(), 0);
            assert_eq!(image.bytes().read_bytes_at_until(range.clone(), 0), want, "{range:?}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_is_cut_has_no_more_bytes_there() {
        let content = numbered(10 * PAGE_BYTES);
        let path = file("cut", &content);
        let image = Image::open(&path).unwrap();
        assert!(image.bytes().get(0..100).is_some());
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        assert_eq!(image.bytes().get(0..100), content.get(0..100), "what was read stays");
        assert_eq!(image.bytes().get(5 * PAGE_BYTES..6 * PAGE_BYTES), None);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_of_holes_does_not_fill_the_memory() {
        let path = file("holes", b"\x7fELF");
        let handle = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        handle.set_len(64 << 30).unwrap();
        let mut image = Image::open(&path).unwrap();
        assert_eq!(image.bytes().get(0..MAX_READ_BYTES + PAGE_BYTES), None);
        assert_eq!(image.bytes().get((32 << 30)..(32 << 30) + 4), Some(&[0; 4][..]));
        image.forget();
        assert!(image.bytes().starts_with(b"\x7fELF"));
        handle.set_len(MAX_FILE_BYTES + 1).unwrap();
        assert!(Image::open(&path).is_err());
        std::fs::remove_file(path).unwrap();
    }
}
