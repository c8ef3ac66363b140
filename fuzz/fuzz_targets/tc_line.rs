//! Any bytes as a batch of `tc` lines.
//!
//! No line may panic, a failing one changes nothing, and the resulting policy must survive being
//! saved and loaded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_tc::{Host, OfflineHost, Options, execute, execute_batch, load, save};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut host = OfflineHost::default();
    for line in text.lines() {
        let before = host.policy();
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if execute(&args, &mut host).code != 0 {
            assert!(host.policy() == before, "a failed line changed the policy");
        }
    }
    execute_batch(&text, "-", &Options { force: true, ..Options::default() }, &mut host);
    let saved = save(&host.policy());
    let loaded = load(&saved, "saved", &OfflineHost::default()).expect("what was saved is good");
    assert!(loaded == host.policy(), "what was saved is something else");
});
