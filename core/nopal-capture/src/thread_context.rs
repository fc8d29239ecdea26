//! The thread context of OpenTelemetry (OTEP 4947): which trace and span a thread works on, as its SDK publishes it. The
//! thread-local variable `otel_thread_ctx_v1` is null or points to a record:
//!
//! ```text
//! 0   trace_id   16 bytes; all zero: none is active
//! 16  span_id     8 bytes
//! 24  valid       1 if the rest may be believed
//! 25  reserved    1 byte
//! 26  size        of the attributes behind, 2 bytes
//! ```
//!
//! The SDK clears `valid`, or the pointer, before it writes, and sets it after. It writes on the thread itself, where the
//! hit is too: a record that is valid at a hit is whole.

/// How much of the record is read: all up to `valid`.
pub const RECORD_BYTES: u32 = 25;

/// The ids of a record, trace first; none if it is short, not valid, or no trace is active.
pub fn ids(record: &[u8]) -> Option<([u8; 16], [u8; 8])> {
    let (trace, rest) = record.split_first_chunk::<16>()?;
    let (span, rest) = rest.split_first_chunk::<8>()?;
    let is_valid = rest.first() == Some(&1) && *trace != [0; 16];
    is_valid.then_some((*trace, *span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_records_have_ids() {
        let record = |valid: u8| {
            let mut record: Vec<u8> = (1..=24).collect();
            record.push(valid);
            record
        };
        let (trace, span) = ids(&record(1)).expect("it is valid");
        assert_eq!((trace[0], trace[15], span[0], span[7]), (1, 16, 17, 24));
        assert_eq!(ids(&record(0)), None);
        assert_eq!(ids(&record(2)), None);
        assert_eq!(ids(&record(1)[..24]), None);
        assert_eq!(ids(&[]), None);
        let mut idle = vec![0; 24];
        idle.push(1);
        assert_eq!(ids(&idle), None, "no trace is active");
    }
}
