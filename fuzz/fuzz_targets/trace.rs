//! Any bytes as a capture file.
//!
//! It is refused in words, or is a trace that can be replayed: frames of a wire, in the order of
//! time, each of a flow that is there.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_trace::Trace;

fuzz_target!(|bytes: &[u8]| {
    let trace = match Trace::read(bytes) {
        Ok(trace) => trace,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let frames = trace.frames();
    assert!(frames.len() >= 2 && frames.is_sorted_by_key(|frame| frame.at));
    for frame in frames {
        assert!((60..=9_216).contains(&frame.len), "{frame:?}");
        assert!((frame.flow as usize) < trace.flows().len(), "{frame:?}");
        assert!(trace.first_bytes(frame).len() <= frame.len as usize, "{frame:?}");
    }
    assert!(trace.length() > narrows_units::Nanos::ZERO);
    let _ = trace.rate();
});
