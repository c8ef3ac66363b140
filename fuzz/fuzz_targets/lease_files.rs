//! Any bytes as lease files and as answers of a control socket.
//!
//! No bytes may panic, and what is leased is an address.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_sessions::leases::{dnsmasq, isc_file, kea_file, kea_socket};

fuzz_target!(|input: &[u8]| {
    let mut log = kea_file::Log::default();
    log.feed(
        b"address,hwaddr,client_id,valid_lifetime,expire,duid,lease_type,prefix_len,state,\
          user_context\n",
    );
    log.feed(input);
    log.feed(b"\n");
    let table = dnsmasq::read(&String::from_utf8_lossy(input));
    let mut isc = isc_file::Log::default();
    isc.feed(input);
    // However the bytes come, the leases are the same.
    let mut parts = isc_file::Log::default();
    input.chunks(7).for_each(|part| parts.feed(part));
    assert_eq!(isc.table(), parts.table());
    let page = kea_socket::page(input).map(|page| page.leases).unwrap_or_default();
    let leases =
        log.table().values().chain(table.values()).chain(isc.table().values()).chain(&page);
    for lease in leases {
        assert!(lease.address.bits >= 8);
        assert!(!lease.address.ip.is_unspecified() && !lease.address.ip.is_loopback());
    }
});
