//! Any bytes as another shaper's configuration.
//!
//! The first byte chooses the format. Nothing may panic, an imported policy must load, and each row
//! of a provider's devices must be in it or be named by its line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_import::libreqos::{self, Options};
use narrows_import::tc::Printed;
use narrows_import::{Imported, Ports, sqm};
use narrows_tc::{OfflineHost, load};
use std::collections::HashMap;

const HEADER: &str = "Circuit ID,Circuit Name,Parent Node,IPv4,IPv6,Download Min Mbps,Upload Min Mbps,Download Max Mbps,Upload Max Mbps,sqm\n";

fuzz_target!(|bytes: &[u8]| {
    let Some((format, bytes)) = bytes.split_first() else { return };
    let ports = Ports { internet: "wan0".to_owned(), subscribers: "lan0".to_owned() };
    let imported = match format {
        b'l' => {
            // Three files in one, with zeros between: rows below a header that is given, the
            // network, and the numbers of a former import.
            let mut parts = bytes.splitn(3, |byte| *byte == 0);
            let given = parts.next().unwrap_or_default();
            let rows = [HEADER.as_bytes(), given].concat();
            let network = parts.next();
            let numbers = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
            let options = Options { ports, uplink_kbit: [None, Some(1_000_000)], numbers };
            let imported = libreqos::import(&rows, network, &options);
            if let Ok(imported) = &imported {
                all_rows_are_there_or_named(given, imported);
                // The next import of the same files changes nothing.
                let options = Options { numbers: imported.numbers.clone(), ..options };
                let again = libreqos::import(&rows, network, &options).unwrap();
                assert_eq!(imported.policy, again.policy);
            }
            imported
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
        panic!("{why}\n{}", imported.policy);
    }
});

/// The rows whose first field is a plain number of a circuit; with quotes, rows are not lines.
fn all_rows_are_there_or_named(rows: &[u8], imported: &Imported) {
    let Ok(rows) = str::from_utf8(rows) else { return };
    if rows.contains(['"', '\r']) {
        return;
    }
    let report = imported.report();
    for (index, row) in rows.split('\n').enumerate() {
        let id = row.split(',').next().unwrap_or("").trim();
        if id.is_empty() || id.len() > 32 || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            continue;
        }
        // Below the header.
        let place = format!("line {}", index + 2);
        let is_named = report.match_indices(&place).any(|(at, _)| {
            !report[at + place.len()..].starts_with(|letter: char| letter.is_ascii_digit())
        });
        let circuit = format!("# circuit {id}");
        let is_there = imported.policy.lines().any(|line| {
            line.strip_prefix(&circuit).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        });
        assert!(is_named || is_there, "{place}: {row}\n{report}");
    }
}
