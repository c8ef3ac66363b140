//! Any bytes as a policy file.
//!
//! No file may panic. A valid one must survive being saved and loaded; an invalid one is refused
//! with a message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_tc::{OfflineHost, load, save};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    match load(&text, "fuzz", &OfflineHost::default()) {
        Ok(policy) => {
            let again = load(&save(&policy), "saved", &OfflineHost::default());
            assert!(again.expect("what was saved is good") == policy, "saved as something else");
        }
        Err(refusal) => assert!(!format!("{refusal:?}").is_empty()),
    }
});
