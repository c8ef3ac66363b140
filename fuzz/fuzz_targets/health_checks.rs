//! Any bytes as a file for `narrows health`.
//!
//! A file is refused with a line that it has, or each of its checks keeps to the bounds.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_health::{Config, Unchecked};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let config = match Config::parse(&text) {
        Ok(config) => config,
        Err(wrong) => {
            assert!((1..=text.lines().count()).contains(&wrong.line), "{wrong}");
            return;
        }
    };
    for service in config.services() {
        match config.check(service) {
            Ok(check) => {
                assert!(check.port != 0 && check.timeout <= check.interval, "{check:?}");
                assert!(check.thresholds.rise > 0 && check.thresholds.fall > 0, "{check:?}");
            }
            Err(why) => assert_eq!(why, Unchecked::Excluded),
        }
    }
});
