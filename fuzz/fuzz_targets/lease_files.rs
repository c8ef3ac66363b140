//! Any bytes as lease files and as answers of a control socket.
//!
//! No bytes may panic, and what is leased is an address.

#![no_main]

use libfuzzer_sys::fuzz_target;
use narrows_sessions::leases::{dnsmasq, kea_file, kea_socket};

fuzz_target!(|input: &[u8]| {
    let mut log = kea_file::Log::default();
    log.feed(
        b"address,hwaddr,client_id,valid_lifetime,expire,duid,lease_type,prefix_len,state,\
          user_context\n",
    );
    log.feed(input);
    log.feed(b"\n");
    let table = dnsmasq::read(&String::from_utf8_lossy(input));
    let page = kea_socket::page(input).map(|page| page.leases).unwrap_or_default();
    let leases = log.table().values().chain(table.values()).chain(&page);
    for lease in leases {
        assert!(lease.address.bits >= 8);
        assert!(!lease.address.ip.is_unspecified() && !lease.address.ip.is_loopback());
    }
});
