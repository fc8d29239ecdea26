//! A ring's control page, its cells and its table of spans as a hostile program may leave them: the page is refused or made
//! right again, sums are sums, and all that is asked ends.
#![no_main]

use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use libfuzzer_sys::fuzz_target;
use nopal_capture::cell::Cell;
use nopal_capture::span::{MAX_SPANS, SlowSpan};
use nopal_program::aggregate::Aggregate;
use nopal_sdt::operand::{Arch, parse};
use nopal_user::consumer::Reader;
use nopal_user::ring::{RingConfig, RingMemory, memfd};

struct Target {
    file: std::fs::File,
    ring: Arc<RingMemory>,
}

fn target() -> &'static Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let file = memfd(c"nopal-fuzz").unwrap();
        let mut config = RingConfig::new(1);
        (config.ring_bytes, config.sub_bytes) = (8 << 10, 4 << 10);
        (config.locked_ring_bytes, config.locked_sub_bytes) = (8 << 10, 4 << 10);
        (config.cells_bytes, config.span_slots) = (64 << 10, 4);
        let ring = Arc::new(RingMemory::format(&file, &config).unwrap());
        Target { file: std::fs::File::from(file), ring }
    })
}

fuzz_target!(|data: &[u8]| {
    let Some((&[n_page, n_cells], rest)) = data.split_first_chunk() else { return };
    let (page, rest) = rest.split_at(rest.len().min(usize::from(n_page)));
    let (cells, spans) = rest.split_at(rest.len().min(usize::from(n_cells) * 16));
    let Target { file, ring } = target();
    let layout = *ring.layout();
    file.write_all_at(page, 0).unwrap();
    file.write_all_at(cells, layout.cells_offset).unwrap();
    let spans = &spans[..spans.len().min((layout.total_bytes - layout.spans_offset) as usize)];
    file.write_all_at(spans, layout.spans_offset).unwrap();
    // Whoever opens it now takes it for what it was made, or not at all.
    if let Ok(again) = RingMemory::open(file) {
        assert_eq!(*again.layout(), layout);
    }
    let mut reader = Reader::of_one(ring.clone());
    reader.poll(|_, _| ());
    assert!(RingMemory::open(file).is_ok(), "a look makes the page right");
    for span in 0..=MAX_SPANS {
        let _ = ring.read_span(span);
        ring.raise_span_floor(span, 7);
    }
    let _ = ring.read_groups();
    let open = ring.open_spans();
    assert!(open.n_open.iter().sum::<u64>() < 1 << 20);
    let operand = parse(Arch::X86_64, "8@%rdi").unwrap();
    let cells = [
        Cell::count(0),
        Cell::new(8, Aggregate::Hist { bits: 0 }, operand.clone()),
        Cell::new(8 << 10, Aggregate::Stats { is_signed: false }, operand),
        Cell::count(u32::MAX - 7),
    ];
    for cell in &cells {
        assert!(ring.read_cell(cell).keys.len() <= cell.n_keys() as usize);
        ring.clear_cell(cell);
    }
    let mut n_open = [0; MAX_SPANS];
    ring.free_slots(|owner| owner % 2 == 0, &mut n_open);
    let _ = (ring.is_waited_for(), ring.impatient());
    ring.take_turn(ring.tickets());
    if let Some((slow, rest)) = SlowSpan::read(spans) {
        assert_eq!(rest.len() + SlowSpan::BYTES, spans.len());
        let _ = (slow.is_long(), slow.is_error());
    }
});
