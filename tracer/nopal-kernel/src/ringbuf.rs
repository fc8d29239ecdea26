//! Reads the kernel's BPF ring buffer. Polled, never woken: wake-ups double the cost of a hit.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const HEADER_BYTES: usize = 8;
const BUSY: u32 = 1 << 31;
const DISCARD: u32 = 1 << 30;
const LENGTH_MASK: u32 = DISCARD - 1;

/// The ring buffer of one map: a page the consumer writes, a page the kernel writes, then the data mapped twice in a
/// row so that no record is ever cut in two.
#[derive(Debug)]
pub(crate) struct RingBuffer {
    consumer: *mut u8,
    producer: *const u8,
    page_bytes: usize,
    size_bytes: usize,
    _map: OwnedFd,
}

// SAFETY: the mappings belong to this value alone; the kernel side is synchronised by the two positions.
unsafe impl Send for RingBuffer {}

impl RingBuffer {
    /// Maps the ring buffer `map` of `size_bytes`.
    pub(crate) fn new(map: OwnedFd, size_bytes: usize) -> io::Result<Self> {
        // SAFETY: sysconf has no preconditions.
        let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let fd = map.as_raw_fd();
        let consumer = map_pages(fd, page_bytes, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        let producer = match map_pages(fd, page_bytes + 2 * size_bytes, libc::PROT_READ, page_bytes) {
            Ok(address) => address,
            Err(error) => {
                // SAFETY: mapped just above with this length and not yet shared with anyone.
                unsafe { libc::munmap(consumer.cast(), page_bytes) };
                return Err(error);
            }
        };
        Ok(RingBuffer { consumer, producer, page_bytes, size_bytes, _map: map })
    }

    /// Hands at most `limit` finished records to `take`, in the order the kernel reserved them; returns how many there were.
    pub(crate) fn poll(&mut self, limit: usize, mut take: impl FnMut(&[u8])) -> usize {
        // SAFETY: both positions are the first word of a mapped page and aligned to it.
        let (consumer, producer) =
            unsafe { (&*self.consumer.cast::<AtomicU64>(), &*self.producer.cast::<AtomicU64>()) };
        let mut position = consumer.load(Ordering::Relaxed);
        let mut n_records = 0;
        while n_records < limit && position < producer.load(Ordering::Acquire) {
            let offset = (position as usize) & (self.size_bytes - 1);
            // SAFETY: offset < size, and the data is mapped twice, so header and record lie within the mapping.
            let data = unsafe { self.producer.add(self.page_bytes + offset) };
            // SAFETY: records start at multiples of eight bytes.
            let header = unsafe { &*data.cast::<AtomicU32>() }.load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let length = (header & LENGTH_MASK) as usize;
            if header & DISCARD == 0 && length <= self.size_bytes {
                // SAFETY: the kernel finished this record (BUSY is clear) and will not touch it before we move on.
                take(unsafe { std::slice::from_raw_parts(data.add(HEADER_BYTES), length) });
                n_records += 1;
            }
            position += (HEADER_BYTES + length).next_multiple_of(8) as u64;
            consumer.store(position, Ordering::Release);
        }
        n_records
    }
}

impl Drop for RingBuffer {
    fn drop(&mut self) {
        // SAFETY: both were mapped in `new` with these lengths and nothing borrowed from them outlives `poll`.
        unsafe {
            libc::munmap(self.consumer.cast(), self.page_bytes);
            libc::munmap(self.producer.cast_mut().cast(), self.page_bytes + 2 * self.size_bytes);
        }
    }
}

fn map_pages(fd: i32, length: usize, protection: i32, offset: usize) -> io::Result<*mut u8> {
    // SAFETY: a fresh mapping at an address of the kernel's choice harms nobody.
    let address = unsafe {
        libc::mmap(std::ptr::null_mut(), length, protection, libc::MAP_SHARED, fd, offset as libc::off_t)
    };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address.cast()) }
}
