//! Recordings that neither nopal nor LTTng wrote, made here bit by bit: both byte orders, bit fields, nested types,
//! variants, references between scopes, clocks of other frequencies, packetised metadata, streams with equal times.
//! babeltrace2 says what is right.

use nopal_tests::scratch;
use nopal_trace::{Recording, Selection, TextForm, TextLines, print};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Packs values bit by bit, as CTF does: from the lowest bit of a byte on in little endian, from the highest in big.
struct Bits {
    bytes: Vec<u8>,
    at: usize,
    is_big: bool,
}

impl Bits {
    fn new(is_big: bool) -> Self {
        Bits { bytes: Vec::new(), at: 0, is_big }
    }

    fn align(&mut self, bits: usize) -> &mut Self {
        self.at = self.at.next_multiple_of(bits);
        self
    }

    fn put(&mut self, value: u64, bits: usize) -> &mut Self {
        for i in 0..bits {
            let bit = if self.is_big { value >> (bits - 1 - i) & 1 } else { value >> i & 1 };
            let (byte, place) = ((self.at + i) / 8, (self.at + i) % 8);
            if self.bytes.len() <= byte {
                self.bytes.resize(byte + 1, 0);
            }
            self.bytes[byte] |= (bit as u8) << if self.is_big { 7 - place } else { place };
        }
        self.at += bits;
        self
    }

    fn string(&mut self, text: &str) -> &mut Self {
        self.align(8);
        for byte in text.bytes().chain([0]) {
            self.put(u64::from(byte), 8);
        }
        self
    }
}

fn ours(dir: &Path) -> String {
    let recording = Recording::open(dir).unwrap_or_else(|e| panic!("{e}"));
    let mut out = Vec::new();
    let lines = || TextLines::new(TextForm::default());
    let printed = print(&recording, &Selection::default(), lines, &mut out, &AtomicBool::new(false)).unwrap();
    assert!(printed.report.verdict.is_complete(), "{:?}", printed.report);
    String::from_utf8(out).unwrap()
}

fn theirs(dir: &Path) -> String {
    let out = Command::new("babeltrace2").arg(dir).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

#[track_caller]
fn same(dir: &Path, count: usize) -> String {
    let (ours, theirs) = (ours(dir), theirs(dir));
    for (a, b) in ours.lines().zip(theirs.lines()) {
        assert_eq!(a, b);
    }
    assert_eq!(ours, theirs);
    assert_eq!(ours.lines().count(), count);
    ours
}

const NESTED: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 32; align = 32; signed = false; } := uint32_t;
typealias integer { size = 64; align = 64; signed = false; map = clock.odd.value; } := stamp_t;
typedef integer { size = 3; align = 1; signed = true; } three_t;
typealias integer { size = 11; align = 1; signed = false; base = hex; } := unsigned eleven;
trace {
	major = 1; minor = 8;
	byte_order = ORDER;
	packet.header := struct { uint32_t magic; uint32_t stream_id; };
};
env { hostname = "elsewhere"; };
clock { name = odd; freq = 2100000000; offset_s = 1700000000; offset = 123456789; };
stream {
	id = 7;
	typealias integer { size = 16; align = 16; signed = false; } := local_t;
	packet.context := struct { local_t packet_size; local_t content_size; uint8_t n_shared; uint8_t colour; };
	event.header := struct { uint8_t id; stamp_t timestamp; };
	event.context := struct { enum : uint8_t { none, one = 5, many = 6 ... 9 } depth; };
};
enum choice : uint8_t { number, text = 3, "list" };
struct point { three_t x; three_t y; unsigned eleven z; } align(16);
variant any { uint32_t number; string text; struct { uint8_t n; three_t items[n]; } list; };
event {
	name = "nested"; id = 200; stream_id = 7;
	context := struct { integer { size = 1; align = 1; signed = false; } flag; };
	fields := struct {
		struct point points[2];
		enum choice tag;
		variant any <tag> value;
		uint8_t shared[stream.packet.context.n_shared];
		struct { uint8_t n; struct { uint8_t m; uint8_t inner[m]; } rows[n]; } table;
		floating_point { exp_dig = 11; mant_dig = 53; align = 64; byte_order = be; } ratio;
		integer { size = 64; align = 1; signed = true; } unaligned;
		integer { size = 7; align = 1; signed = true; base = octal; } seven, eight[2];
		integer { size = 13; align = 1; signed = true; base = binary; } thirteen;
		integer { size = 8; align = 8; signed = true; encoding = ASCII; } word[4];
		string { encoding = ASCII; } last;
	};
};
event { name = plain; id = 3; stream_id = 7; };
"#;

/// A packet with events of every choice.
fn nested_packet(is_big: bool) -> Bits {
    let mut bits = Bits::new(is_big);
    bits.put(0xc1fc_1fc1, 32).put(7, 32);
    let sizes_at = bits.at;
    bits.put(0, 16).put(0, 16).put(3, 8).put(9, 8);
    for (event, tag) in [0u64, 3, 4, 0, 3, 4].into_iter().enumerate() {
        let event = event as u64;
        bits.align(64).put(200, 8).align(64).put(1_000_000 + event * 777_777, 64);
        bits.align(8).put([0, 1, 5, 6, 9, 10][event as usize], 8);
        bits.put(event & 1, 1);
        // A struct is aligned as its widest member, here a float of 64 bits and in the header the time.
        bits.align(64);
        for point in 0..2 {
            bits.align(16).put(event + point, 3).put(7 - event, 3).put(event * 300 + point, 11);
        }
        bits.align(8).put(tag, 8);
        match tag {
            0 => {
                bits.align(32).put(0xdead_beef, 32);
            }
            3 => {
                bits.string("some text");
            }
            _ => {
                bits.align(8).put(event, 8);
                for item in 0..event {
                    bits.put(item, 3);
                }
            }
        }
        bits.align(8).put(1, 8).put(2, 8).put(3, 8);
        bits.align(8).put(event % 3, 8);
        for row in 0..event % 3 {
            bits.align(8).put(row, 8);
            for inner in 0..row {
                bits.put(inner + 100, 8);
            }
        }
        bits.align(64);
        let ratio = (event as f64 / 7.0).to_bits();
        bits.put(if is_big { ratio } else { ratio.swap_bytes() }, 64);
        bits.put(event.wrapping_sub(3), 64);
        bits.put(event + 60, 7).put(1, 7).put(127, 7).put(event << 10 | 5, 13).align(8);
        for c in *b"ab\0d" {
            bits.put(u64::from(c), 8);
        }
        bits.string("the end");
        bits.align(64).put(3, 8).align(64).put(1_000_000 + event * 777_777 + 5, 64).align(8).put(0, 8);
    }
    let content = bits.at;
    bits.align(8 * 64);
    let packet = bits.at;
    bits.bytes.resize(packet / 8, 0);
    bits.at = sizes_at;
    bits.put(packet as u64, 16).put(content as u64, 16);
    bits.at = packet;
    bits
}

#[test]
fn nested_types_bit_fields_and_references_in_both_byte_orders() {
    for (order, is_big) in [("le", false), ("be", true)] {
        let dir = scratch(&format!("foreign-nested-{order}"));
        fs::write(dir.join("metadata"), NESTED.replace("ORDER", order)).unwrap();
        let packet = nested_packet(is_big);
        fs::write(dir.join("stream"), packet.bytes).unwrap();
        let text = same(&dir, 12);
        for part in [
            "elsewhere nested: { n_shared = 3, colour = 9 }, { depth = ( \"one\" : container = 5 ) }",
            "value = { 3735928559 }",
            "value = { \"some text\" }",
            "word = \"ab\"",
        ] {
            assert!(text.contains(part), "{order}: {part} in {text}");
        }
    }
}

/// Metadata in packets, as LTTng writes it, in the byte order of another machine.
#[test]
fn packetised_metadata_in_both_byte_orders() {
    for (order, is_big) in [("le", false), ("be", true)] {
        let dir = scratch(&format!("foreign-packets-{order}"));
        let text = NESTED.replace("ORDER", order).into_bytes();
        let mut metadata = Vec::new();
        for chunk in text.chunks(1000) {
            let mut bits = Bits::new(is_big);
            bits.put(0x75d1_1d57, 32);
            for byte in 0..16 {
                bits.put(byte, 8);
            }
            bits.put(0, 32).put((chunk.len() as u64 + 37) * 8, 32).put(2048 * 8, 32);
            for byte in [0, 0, 0, 1, 8] {
                bits.put(byte, 8);
            }
            for byte in chunk {
                bits.put(u64::from(*byte), 8);
            }
            bits.bytes.resize(2048, 0);
            metadata.extend(bits.bytes);
        }
        fs::write(dir.join("metadata"), metadata).unwrap();
        fs::write(dir.join("stream"), nested_packet(is_big).bytes).unwrap();
        same(&dir, 12);
    }
}

/// Streams with equal times: the order between them is babeltrace2's.
#[test]
fn equal_times_in_several_streams_come_in_the_same_order() {
    let dir = scratch("foreign-ties");
    let mut writer = nopal_trace::RecordingWriter::create(
        &dir.join("recording"),
        nopal_trace::RecordingInfo::of_this_host(),
    )
    .unwrap();
    let ty = nopal_trace::EventType::new("tie", "n").field("n", nopal_trace::Type::unsigned(64));
    let ty = writer.add_event_type(ty).unwrap();
    for cpu in [10, 2, 0, 1] {
        let mut stream = writer.stream(cpu).unwrap();
        for n in 0..50u64 {
            stream.append(ty, 1_000 + n / 3 * 10, &[], &n.to_le_bytes()).unwrap();
        }
        stream.finish().unwrap();
    }
    same(&dir, 200);
}
