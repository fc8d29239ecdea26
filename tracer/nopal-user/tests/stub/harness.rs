//! Puts stubs on sites of this very process: maps ring and stub space twice, once as the tracer and once as the target,
//! and patches the text by making it writable for a moment.
#![allow(dead_code)]

use std::arch::global_asm;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use nopal_abi::stub_space::{DEFAULT_JOURNAL_ENTRIES, KEPT_OFFSET, KeptPages, Path, RSEQ_SIGNATURE};
use nopal_capture::{Action, Capture, Predicate};
use nopal_proc::possible_cpus;
use nopal_sdt::operand::{Arch, Operand, parse};
use nopal_user::consumer::Reader;
use nopal_user::ring::{RingConfig, RingMemory, memfd};
use nopal_user::stub::chain::PlacedStub;
use nopal_user::stub::space::{ObjectIdentity, Session, SessionFacts, Space};
use nopal_user::stub::tail::Tail;
use nopal_user::stub::{StubError, StubSpec};

/// The registers and the stack around a site, before and after.
#[repr(C)]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct State {
    /// As the instruction set numbers them; 4 (rsp) is only an output.
    pub gpr: [u64; 16],
    pub flags: u64,
    pub unused: u64,
    /// The 128 bytes below the stack pointer.
    pub red_zone: [u64; 16],
    /// 16(%rsp) to 48(%rsp).
    pub stack: [u64; 4],
    pub xmm: [[u8; 16]; 16],
}

// nopal_test_hit(before, after): makes everything as `before` says, passes the site, writes everything to `after`.
global_asm!(
    ".globl nopal_test_hit, nopal_test_hit_site, nopal_test_hit2, nopal_test_hit2_site, nopal_test_pun, nopal_test_pun_site",
    ".p2align 6",
    "nopal_test_hit:",
    "push rbx; push rbp; push r12; push r13; push r14; push r15",
    "sub rsp, 56",
    "mov [rsp], rsi",
    "push qword ptr [rdi + 128]; popfq",
    ".irp i, 0, 8, 16, 24",
    "mov rax, [rdi + 272 + \\i]; mov [rsp + 16 + \\i], rax",
    ".endr",
    ".irp i, 0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120",
    "mov rax, [rdi + 144 + \\i]; mov [rsp - 128 + \\i], rax",
    ".endr",
    ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups xmm\\i, [rdi + 304 + 16 * \\i]",
    ".endr",
    "mov rax, [rdi]; mov rcx, [rdi + 8]; mov rdx, [rdi + 16]; mov rbx, [rdi + 24]; mov rbp, [rdi + 40]",
    "mov rsi, [rdi + 48]",
    ".irp i, 8, 9, 10, 11, 12, 13, 14, 15",
    "mov r\\i, [rdi + 8 * \\i]",
    ".endr",
    "mov rdi, [rdi + 56]",
    "nopal_test_hit_site:",
    "nop",
    ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0",
    "mov [rsp + 8], rax",
    "mov rax, [rsp]",
    "mov [rax + 8], rcx; mov [rax + 16], rdx; mov [rax + 24], rbx; mov [rax + 32], rsp; mov [rax + 40], rbp",
    "mov [rax + 48], rsi; mov [rax + 56], rdi",
    ".irp i, 8, 9, 10, 11, 12, 13, 14, 15",
    "mov [rax + 8 * \\i], r\\i",
    ".endr",
    "mov rcx, [rsp + 8]; mov [rax], rcx",
    ".irp i, 0, 8, 16, 24",
    "mov rcx, [rsp + 16 + \\i]; mov [rax + 272 + \\i], rcx",
    ".endr",
    ".irp i, 0, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120",
    "mov rcx, [rsp - 128 + \\i]; mov [rax + 144 + \\i], rcx",
    ".endr",
    ".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
    "movups [rax + 304 + 16 * \\i], xmm\\i",
    ".endr",
    "pushfq; pop rcx; mov [rax + 128], rcx",
    "cld",
    "add rsp, 56",
    "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx",
    "ret",
    // nopal_test_hit2(a, b): nothing but the site.
    ".p2align 6",
    "nopal_test_hit2:",
    "nopal_test_hit2_site:",
    "nop",
    ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0",
    "ret",
    // nopal_test_pair(a, b): a site where a span begins, and one where it ends.
    ".globl nopal_test_pair, nopal_test_pair_begin, nopal_test_pair_end",
    ".p2align 6",
    "nopal_test_pair:",
    "nopal_test_pair_begin:",
    "nop",
    ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0",
    "nopal_test_pair_end:",
    "nop",
    ".byte 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0",
    "ret",
    // nopal_test_pun(a, b) = a + b + 16: a classic site.
    ".p2align 6",
    "nopal_test_pun:",
    "nopal_test_pun_site:",
    "nop",
    ".byte 0x48, 0x89, 0xf8", // mov rax, rdi
    ".byte 0x48, 0x01, 0xf0", // add rax, rsi
    "lea rax, [rax + 16]",
    "ret",
);

unsafe extern "C" {
    pub(crate) fn nopal_test_hit(before: *const State, after: *mut State);
    pub(crate) fn nopal_test_hit2(a: u64, b: u64);
    pub(crate) fn nopal_test_pair(a: u64, b: u64);
    pub(crate) fn nopal_test_pun(a: u64, b: u64) -> u64;
    static nopal_test_hit_site: u8;
    static nopal_test_hit2_site: u8;
    static nopal_test_pair_begin: u8;
    static nopal_test_pair_end: u8;
    static nopal_test_pun_site: u8;
    static __rseq_offset: isize;
    static __rseq_size: u32;
}

/// The sites above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Everything,
    TwoArguments,
    PairBegin,
    PairEnd,
    Classic,
}

impl Place {
    pub(crate) fn address(self) -> u64 {
        match self {
            Place::Everything => &raw const nopal_test_hit_site as u64,
            Place::TwoArguments => &raw const nopal_test_hit2_site as u64,
            Place::PairBegin => &raw const nopal_test_pair_begin as u64,
            Place::PairEnd => &raw const nopal_test_pair_end as u64,
            Place::Classic => &raw const nopal_test_pun_site as u64,
        }
    }
}

pub(crate) fn hit2(a: u64, b: u64) {
    // SAFETY: the function only passes its site.
    unsafe { nopal_test_hit2(a, b) }
}

pub(crate) fn pair(a: u64, b: u64) {
    // SAFETY: the function only passes its two sites.
    unsafe { nopal_test_pair(a, b) }
}

/// Whether glibc registered rseq for its threads.
pub(crate) fn has_rseq() -> bool {
    // SAFETY: written by the dynamic linker before any of our code runs.
    unsafe { (&raw const __rseq_size).read() != 0 }
}

pub(crate) fn fs_base() -> u64 {
    let base: u64;
    // SAFETY: the first word of a thread's control block is its own address.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) base, options(nostack, readonly, preserves_flags)) };
    base
}

/// What the kernel does when it sees that a restartable sequence is over; it does not always look.
pub(crate) fn forget_sequence() {
    const RSEQ_CS: u64 = 8;
    // SAFETY: written by the dynamic linker before any of our code runs.
    let offset = unsafe { (&raw const __rseq_offset).read() };
    let at = fs_base().wrapping_add_signed(offset as i64) + RSEQ_CS;
    if has_rseq() {
        // SAFETY: this thread's own rseq area, of which it writes this field itself.
        unsafe { (at as *mut u64).write_volatile(0) };
    }
}

fn tid_offset() -> i64 {
    const PR_GET_TID_ADDRESS: i32 = 40;
    let mut address: u64 = 0;
    // SAFETY: the kernel writes one pointer to `address`.
    let result = unsafe { libc::prctl(PR_GET_TID_ADDRESS, &raw mut address) };
    assert_eq!(result, 0, "PR_GET_TID_ADDRESS");
    address.wrapping_sub(fs_base()) as i64
}

/// What glibc registers, if the kernel does not ask for more.
pub(crate) const RSEQ_BYTES: u32 = 32;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Ring, stub space and the patches of one test. The sites belong to one test at a time.
pub(crate) struct Harness {
    pub ring: Arc<RingMemory>,
    pub space: Space,
    pub session: Session,
    pub ring_address: u64,
    patched: Vec<Place>,
    rings: Mutex<Vec<(u64, usize)>>,
    _alone: MutexGuard<'static, ()>,
}

pub(crate) fn operand(text: &str) -> Operand {
    parse(Arch::X86_64, text).unwrap_or_else(|error| panic!("{text}: {error:?}"))
}

pub(crate) fn value(text: &str) -> Capture {
    Capture::Value { operand: operand(text) }
}

/// A record of these values with time and task.
pub(crate) fn record(event: u32, captures: Vec<Capture>) -> StubSpec {
    StubSpec {
        event,
        predicates: Vec::<Predicate>::new(),
        action: Action::Record { captures, has_time: true, has_task: true },
        load_bias: 0,
        own_file: 0..0,
        above: 0,
        heap: None,
    }
}

impl Harness {
    pub(crate) fn new(configure: impl FnOnce(&mut RingConfig)) -> Harness {
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut config = RingConfig::new(possible_cpus().unwrap());
        configure(&mut config);

        let bytes = 1 << 20;
        let file = memfd(c"nopal-stubs").unwrap();
        let private_bytes = KEPT_OFFSET + size_of::<KeptPages>();
        let address = near_text(bytes + private_bytes);
        let space =
            Space::format(&file, address, bytes, DEFAULT_JOURNAL_ENTRIES.min(1024), RSEQ_SIGNATURE).unwrap();
        map(address, bytes, libc::PROT_READ | libc::PROT_EXEC, Some(file.as_fd()));
        map(space.process_page(), private_bytes, libc::PROT_READ | libc::PROT_WRITE, None);
        // SAFETY: the page was just mapped.
        assert_eq!(unsafe { libc::madvise(space.process_page() as *mut _, 4096, libc::MADV_WIPEONFORK) }, 0);
        let path = if has_rseq() { Path::Rseq } else { Path::LockedTls };
        // SAFETY: written by the dynamic linker before any of our code runs.
        let rseq_offset = unsafe { (&raw const __rseq_offset).read() } as i64;
        space.set_path(path, rseq_offset, RSEQ_BYTES, tid_offset());

        let (ring, ring_address, session) = add_session(&space, &config);
        let rings = Mutex::new(vec![(ring_address, ring.layout().total_bytes as usize)]);
        Harness { ring, space, session, ring_address, patched: Vec::new(), rings, _alone: alone }
    }

    /// Another session on the same stub space.
    pub(crate) fn another_session(
        &self,
        configure: impl FnOnce(&mut RingConfig),
    ) -> (Arc<RingMemory>, Session) {
        let mut config = RingConfig::new(possible_cpus().unwrap());
        configure(&mut config);
        let (ring, address, session) = add_session(&self.space, &config);
        self.rings.lock().unwrap().push((address, ring.layout().total_bytes as usize));
        (ring, session)
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::of_one(self.ring.clone())
    }

    /// Generates and chains a stub and makes the site jump to it.
    pub(crate) fn attach(&mut self, place: Place, spec: &StubSpec) -> PlacedStub {
        let session = self.session;
        self.attach_for(&session, place, spec)
    }

    /// Generates a stub without chaining it.
    pub(crate) fn try_stub(&self, place: Place, spec: &StubSpec) -> Result<PlacedStub, StubError> {
        let address = place.address();
        let site = self.space.add_site(address, &Tail::to(address + 11), ObjectIdentity::default())?;
        self.space.add_stub(&site, &self.session, spec)
    }

    pub(crate) fn attach_for(&mut self, session: &Session, place: Place, spec: &StubSpec) -> PlacedStub {
        assert_ne!(place, Place::Classic, "classic sites need a landing page");
        let address = place.address();
        let tail = Tail::to(address + 11);
        let site = self.space.add_site(address, &tail, ObjectIdentity::default()).unwrap();
        let stub = self.space.add_stub(&site, session, spec).unwrap();
        self.space.link(&stub);
        let offset = i32::try_from(site.thunk as i64 - (address as i64 + 6)).unwrap();
        write_text(address + 1, &[&[0xe9][..], &offset.to_le_bytes()].concat());
        self.patched.push(place);
        stub
    }

    /// Sets everything as `before` says, passes the site, and checks that nothing changed.
    pub(crate) fn pass(&self, before: &State) -> State {
        let mut after = before.clone();
        // SAFETY: the function restores what the calling convention asks for.
        unsafe { nopal_test_hit(before, &mut after) };
        let mut expected = before.clone();
        expected.gpr[4] = after.gpr[4];
        // Bit 1 reads as one; the trap, interrupt and identification bits are not the program's.
        expected.flags = before.flags & 0xcd5 | after.flags & !0xcd5;
        assert_eq!(after, expected);
        after
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        for place in &self.patched {
            write_text(place.address() + 1, &[0x66, 0x2e, 0x0f, 0x1f, 0x84]);
        }
        // The rings may go, since no thread is in a stub any more. The stub space stays: the kernel may still look at
        // the descriptor that a thread's rseq area points to.
        for (address, bytes) in self.rings.lock().unwrap().drain(..) {
            // SAFETY: mapped by add_session, used by stubs only.
            unsafe { libc::munmap(address as *mut _, bytes) };
        }
    }
}

fn add_session(space: &Space, config: &RingConfig) -> (Arc<RingMemory>, u64, Session) {
    let file = memfd(c"nopal-ring").unwrap();
    let ring = RingMemory::format(&file, config).unwrap();
    let layout = *ring.layout();
    let address = map(0, layout.total_bytes as usize, libc::PROT_READ | libc::PROT_WRITE, Some(file.as_fd()));
    ring.set_enabled(true);
    let facts = SessionFacts {
        tracer_pid: std::process::id(),
        tracer_start: 0,
        generation: ring.generation(),
        ring_address: address,
        ring_inode: 0,
        layout,
    };
    let index = space.free_session().unwrap();
    let session = space.enter_session(index, &facts).unwrap();
    (Arc::new(ring), address, session)
}

pub(crate) fn map(address: u64, bytes: usize, protection: i32, file: Option<BorrowedFd<'_>>) -> u64 {
    let flags = if address == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let (kind, fd) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    // SAFETY: a new mapping that replaces nothing.
    let at = unsafe { libc::mmap(address as *mut _, bytes, protection, kind | flags, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    assert!(address == 0 || at as u64 == address);
    at as u64
}

/// A free place within reach of the text.
pub(crate) fn near_text(bytes: usize) -> u64 {
    let text = Place::Everything.address() & !0xfff;
    for distance in (64 << 20..1u64 << 30).step_by(2 << 20) {
        for address in [text.saturating_sub(distance), text + distance] {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: a new mapping that replaces nothing; removed again at once.
            unsafe {
                let at = libc::mmap(address as *mut _, bytes, libc::PROT_NONE, flags, -1, 0);
                if at != libc::MAP_FAILED {
                    libc::munmap(at, bytes);
                    return address;
                }
            }
        }
    }
    panic!("no room near the text");
}

/// Changes bytes of our own text.
pub(crate) fn write_text(address: u64, bytes: &[u8]) {
    let page = address & !0xfff;
    let length = (address + bytes.len() as u64 - page) as usize;
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: the sites are ours, and no other thread is at them while a test patches.
    unsafe {
        assert_eq!(libc::mprotect(page as *mut _, length, all), 0);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len());
        assert_eq!(libc::mprotect(page as *mut _, length, libc::PROT_READ | libc::PROT_EXEC), 0);
    }
}

/// A state in which every part has a value of its own.
pub(crate) fn distinct() -> State {
    let mut state = State {
        gpr: std::array::from_fn(|i| 0x8182_8384_8586_8700 + 0x0101 * i as u64),
        flags: 0x2,
        unused: 0,
        red_zone: std::array::from_fn(|i| 0xdead_0000_0000_0000 | i as u64),
        stack: std::array::from_fn(|i| 0xf1f2_f3f4_f5f6_f700 | (0x91 + i as u64)),
        xmm: std::array::from_fn(|i| std::array::from_fn(|j| (16 * i + j) as u8 ^ 0x5a)),
    };
    state.gpr[4] = 0;
    state
}

/// A timer that interrupts the calling thread with a signal again and again, until dropped.
pub(crate) struct Timer(libc::timer_t);

impl Timer {
    /// The handler may only do what a handler may.
    pub(crate) fn start(signal: i32, handler: extern "C" fn(i32), period_ns: i64) -> Timer {
        // SAFETY: zeroed is valid for these plain structures.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
            let mut event: libc::sigevent = std::mem::zeroed();
            event.sigev_notify = libc::SIGEV_THREAD_ID;
            event.sigev_signo = signal;
            event.sigev_notify_thread_id = libc::gettid();
            let mut timer = std::mem::zeroed();
            assert_eq!(libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer), 0);
            let period = libc::timespec { tv_sec: 0, tv_nsec: period_ns };
            let spec = libc::itimerspec { it_interval: period, it_value: period };
            assert_eq!(libc::timer_settime(timer, 0, &spec, std::ptr::null_mut()), 0);
            Timer(timer)
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: made by timer_create, deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}
