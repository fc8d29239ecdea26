//! What a hit leaves, as a hostile program may write it: whatever its words and bytes, every value lies inside the payload,
//! read alone or in its turn. The layouts are those of hostile notes, too.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nopal_capture::record::{RecordLayout, Value};
use nopal_live::plan::{EventPlan, Limits};
use nopal_sdt::operand::{Arch, parse, split};
use nopal_sdt::probe::{Arg, ArgDescription, Description, Element, Kind, Probe, Site};

const OPERANDS: &str = "-4@%edi 8@%rsi 2@%dx 8@%rcx 1@%r8b 8f@%xmm0 4f@%xmm1 8@%r9 16@%xmm2";
const KINDS: [Kind; 13] = [
    Kind::Unknown,
    Kind::Signed,
    Kind::Unsigned,
    Kind::Pointer,
    Kind::Bool,
    Kind::CString,
    Kind::Str,
    Kind::Bytes,
    Kind::Float,
    Kind::Enum,
    Kind::Array,
    Kind::Sequence,
    Kind::Char,
];

/// An argument from three bytes.
fn argument(index: usize, [what, size, more]: [u8; 3]) -> ArgDescription {
    let kind = |n: u8| KINDS[usize::from(n) % KINDS.len()];
    ArgDescription {
        operand: (what & 0x80 == 0).then_some(1 + (size >> 4) % 10),
        name: format!("a{index}"),
        kind: kind(what & 0x1f),
        size_bytes: Some(size & 15),
        length_operand: (more & 0x80 != 0).then_some(1 + more % 10),
        element: Some(Element { kind: kind(more), size_bytes: more & 15, count: u32::from(more) << 4 }),
        is_big_endian: what & 0x40 != 0,
        is_unwritten: what & 0x20 != 0,
        ..ArgDescription::default()
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&[n_args, limits], rest)) = data.split_first_chunk() else { return };
    let n_bytes = usize::from(n_args % 8) * 3;
    let Some((shapes, payload)) = rest.split_at_checked(n_bytes) else { return };
    let arg = |text: &str| Arg { text: text.to_owned(), operand: parse(Arch::X86_64, text) };
    let args = split(OPERANDS).into_iter().map(arg).collect();
    let site = Site { address: 0, file_offset: 0, semaphore: None, args, code: vec![0x90], until_restartable: None, edge: None };
    let (shapes, _) = shapes.as_chunks::<3>();
    let description = Description {
        args: shapes.iter().enumerate().map(|(index, bytes)| argument(index, *bytes)).collect(),
        packed: (n_args & 0x80 != 0).then_some((2, 4)),
        ..Description::default()
    };
    let probe =
        Probe { provider: "p".into(), name: "n".into(), sites: vec![site], description: Some(description) };
    let limits = Limits {
        max_string_bytes: 1 + u32::from(limits & 0x7f),
        stack_bytes: u32::from(limits >> 7) * 64,
        has_thread_context: n_args & 0x40 != 0,
    };
    let plan = EventPlan::new(&probe, limits);
    let _ = plan.pack(0, payload, &mut Vec::new());
    for field in 0..plan.field_names().count() {
        plan.value(0, payload, field);
        for index in [0, 1, usize::MAX] {
            plan.element(0, payload, field, index);
        }
    }
    let layout = RecordLayout::new(&plan.sites[0].captures, true, true);
    let mut n_bytes = layout.fixed_bytes() as usize;
    for (index, value) in layout.values(payload).enumerate() {
        let alone = layout.text(payload, index);
        match value {
            Ok(Value::Text(text)) => {
                n_bytes += text.bytes.len();
                assert_eq!(alone, Some(text));
            }
            Ok(_) => assert_eq!(alone, None),
            Err(_) => return,
        }
    }
    assert!(n_bytes <= payload.len());
});
