//! Any bytes as an instance's answer on the control socket.
//!
//! No answer of an instance may make `narrows show` panic, and a valid one survives a round trip.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_control::Answer;

fuzz_target!(|bytes: &[u8]| {
    let Ok(answer) = serde_json::from_slice::<Answer>(bytes) else { return };
    if let Answer::Show(show) = &answer {
        assert!(!show.render().is_empty());
    }
    let written = serde_json::to_string(&answer).expect("an answer can be written");
    let again: Answer = serde_json::from_str(&written).expect("what was written can be read");
    let written_again = serde_json::to_string(&again).expect("an answer can be written");
    assert_eq!(written_again, written);
});
