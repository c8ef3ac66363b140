//! Any bytes as lines for `narrows balance`, and as what `narrows balance restore` is given.
//!
//! No line may panic, one that fails changes nothing, and what is saved makes the same services.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_balance::{Seen, Services};
use narrows_units::Nanos;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut services = Services::default();
    // Each line may deal out a ring.
    for line in text.lines().take(8) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let (before, version) = (services.save(), services.version());
        if services.run(&words, &Seen::default, Nanos::ZERO).code != 0 {
            assert_eq!((services.save(), services.version()), (before, version), "{line}");
        }
    }
    let saved = services.save();
    let mut again = Services::default();
    again.restore(&saved, Nanos::ZERO).expect("what was saved is good");
    assert_eq!(again.save(), saved);
    let before = again.version();
    if again.restore(&text, Nanos::ZERO).is_err() {
        assert_eq!((again.save(), again.version()), (saved, before), "half a file");
    }
});
