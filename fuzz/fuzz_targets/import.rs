//! Any bytes as another shaper's configuration.
//!
//! The first byte chooses the format. Nothing may panic, and an imported policy must load.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_import::libreqos::{self, Options};
use narrows_import::tc::Printed;
use narrows_import::{Ports, sqm};
use narrows_tc::{OfflineHost, load};
use std::collections::HashMap;

const HEADER: &str = "Circuit ID,Circuit Name,Parent Node,IPv4,IPv6,Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,sqm\n";

fuzz_target!(|bytes: &[u8]| {
    let Some((format, bytes)) = bytes.split_first() else { return };
    let ports = Ports { internet: "wan0".to_owned(), subscribers: "lan0".to_owned() };
    let imported = match format {
        b'l' => {
            // Both files in one: rows below a header that is given, and what follows a zero.
            let mut parts = bytes.splitn(2, |byte| *byte == 0);
            let rows = [HEADER.as_bytes(), parts.next().unwrap_or_default()].concat();
            let options = Options { ports, uplink_kbit: [None, Some(1_000_000)] };
            libreqos::import(&rows, parts.next(), &options)
        }
        b's' => sqm::import(&String::from_utf8_lossy(bytes), None, &ports),
        _ => {
            let mut printed = Printed::default();
            printed.add(bytes, Some("eth0"), None).and_then(|()| printed.import(&HashMap::new()))
        }
    };
    if let Ok(imported) = imported
        && let Err(why) = load(&imported.policy, "imported", &OfflineHost::default())
    {
        // The values of tc's JSON are its own affair: those that tc would not print may be refused.
        assert!(!matches!(format, b'l' | b's'), "{why}\n{}", imported.policy);
    }
});
