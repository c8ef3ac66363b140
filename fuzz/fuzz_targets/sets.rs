//! Any bytes as what `narrows set restore` is given.
//!
//! No line may panic, the resulting sets must survive being saved and restored, and the image for
//! the driver must agree with the set for each member.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_image::Words;
use narrows_sets::image::{Layout, find};
use narrows_sets::{Family, Host, Key, Match, Named, Restore, Sets, Shape};
use narrows_units::Nanos;

struct Alone;

impl Host for Alone {
    fn references(&self, _: &str) -> usize {
        0
    }

    fn counted(&self, named: &Named, key: &Key) -> (u64, u64) {
        named.set.initial(key)
    }
}

fn restore(sets: &mut Sets, text: &str) -> i32 {
    let mut restore = Restore::new(text.to_owned(), 1, false);
    while restore.step(sets, Nanos::ZERO, &Alone) {}
    restore.end().code
}

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut sets = Sets::default();
    // What takes memory because it may is no fault: small sets find the same.
    for line in text.lines().filter(|line| !line.contains("maxelem")).take(50) {
        let before = sets.edits();
        let small = if line.trim_start().starts_with("create") { " maxelem 1000" } else { "" };
        if restore(&mut sets, &format!("{line}{small}")) != 0 {
            assert_eq!(sets.edits(), before, "a failed line changed something");
        }
    }
    let saved = sets.save(Nanos::ZERO, &Alone);
    let mut again = Sets::default();
    assert_eq!(restore(&mut again, &saved), 0, "what was saved is good");
    assert_eq!(again.save(Nanos::ZERO, &Alone), saved);
    for (_, named) in sets.iter().take(2) {
        let (set, kind) = (&named.set, named.set.kind());
        if matches!(kind.shape, Shape::NetPort | Shape::Mac) {
            continue;
        }
        let mut memory = Words(vec![0; Layout::size(set)]);
        Layout::new(set, &mut memory).expect("it was measured");
        for (key, _) in set.iter().take(100) {
            let (address, bits) = match kind.family {
                Family::Inet => (key.v4().into(), u128::from(u32::from(key.v4())) << 96),
                Family::Inet6 => (key.v6().into(), key.v6().into()),
            };
            let packet = Match { address, port: (0, 0) };
            assert_eq!(find(&memory.0, kind.family, bits), set.contains(&packet));
        }
    }
});
