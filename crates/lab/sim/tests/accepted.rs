//! What a policy accepts is in force: trials from random bytes. A fuzzer's are in `fuzz`.

use narrows_sim::accepted::{script, trial};
use proptest::prelude::*;
use std::panic::AssertUnwindSafe;

/// The stack of a worker's thread, less than Rust's default.
const STACK: usize = 1 << 20;

/// Runs the trial of `bytes` on a worker's stack. The commands are printed if it fails.
fn run(bytes: &[u8]) -> Result<u64, String> {
    let owned = bytes.to_vec();
    let thread = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(move || std::panic::catch_unwind(AssertUnwindSafe(|| trial(&owned))));
    let outcome = thread.unwrap().join().unwrap();
    outcome.map_err(|_| format!("these commands are accepted and not in force:\n{}", script(bytes)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 2_000, ..Default::default() })]

    #[test]
    fn what_is_accepted_is_in_force(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let passed = run(&bytes);
        prop_assert!(passed.is_ok(), "{}", passed.unwrap_err());
    }
}

#[test]
fn most_trials_have_packets_that_pass() {
    let mut random = 1_u64;
    let mut byte = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 56) as u8
    };
    let passes = (0..60).filter(|_| {
        let bytes: Vec<u8> = (0..400).map(|_| byte()).collect();
        run(&bytes).unwrap() > 0
    });
    let passes = passes.count();
    assert!(passes > 30, "only {passes} of 60");
}
