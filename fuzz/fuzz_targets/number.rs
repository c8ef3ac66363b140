//! Any bytes as numbers with units, as `tc` words have them.
//!
//! No word may panic, and valid ones stay within their type's bounds: rates whose bits can be
//! counted, sizes below 4 GiB, handles that print as they were read.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_tc::number;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    for word in text.split_whitespace() {
        if let Some(rate) = number::rate(word) {
            // A plain number of bits means the same rate.
            assert_eq!(number::rate(&format!("{}bit", rate.bits_per_sec())), Some(rate), "{word}");
        }
        if let Some(size) = number::size(word) {
            // A number of which an f64 knows every digit is read digit for digit.
            assert_eq!(number::size(&format!("{size}b")), Some(size), "{word}");
        }
        if let Some(time) = number::time(word) {
            assert_eq!(number::time(&format!("{}us", time.0 / 1000)), Some(time), "{word}");
        }
    }
});
