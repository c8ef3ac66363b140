//! Any bytes in the places where the kernel speaks: link and address messages of netlink, entries
//! of a bridge's table, the name of its release, and the word about translation that a steering
//! program leaves before a frame.  None may panic, truncated or not.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_bpf::translation;
use narrows_link::doctor::KernelVersion;
use narrows_link::routes::RouteEvent;
use narrows_link::switching::SwitchEvent;
use narrows_link::{Address, LinkStatus};
use narrows_packet::dissect::Dissector;

fuzz_target!(|bytes: &[u8]| {
    // Routes, neighbours and next-hop objects, as added and as removed.
    for kind in [24, 25, 28, 29, 104, 105] {
        let _ = RouteEvent::parse(kind, true, bytes);
    }
    let status = LinkStatus::parse(bytes);
    assert!(status.is_none() || bytes.len() >= 16, "an interface without a header");
    let address = Address::parse(bytes);
    assert!(address.is_none() || bytes.len() >= 8, "an address without a header");
    // RTM_NEWNEIGH, of the bridge that the last bytes name.
    let bridge = bytes.last_chunk().map(|index| u32::from_ne_bytes(*index));
    let entry = SwitchEvent::parse(28, bytes, bridge);
    assert!(entry.is_none() || bytes.len() >= 12, "an entry without a header");
    KernelVersion::parse(&String::from_utf8_lossy(bytes));

    // The last four bytes are the seal; with any other nothing is read.
    let Some(seal) = bytes.last_chunk().map(|seal| u32::from_ne_bytes(*seal)) else { return };
    assert_eq!(translation(bytes, seal.wrapping_add(1)), None);
    if let Some(known) = translation(bytes, seal) {
        let dissector = Dissector::new(0x5eed);
        let plain = dissector.headers(bytes, false);
        let translated = dissector.translated(bytes, false, &known);
        assert_eq!(translated.network_offset, plain.network_offset);
    }
});
