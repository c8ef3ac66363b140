//! The lease file of dnsmasq.
//!
//! *Source.* `lease-init` and `lease_update_file` write a line for each lease: when it ends, the
//! MAC address, the address, the name and the identifier of the client. Behind a line `duid ...`
//! the second word is the IAID, and the last is the DUID of the client. `*` is nothing, and an end
//! of 0 is never.

use super::{Field, LEASES_MAX, Lease, Table, usable};
use crate::{hardware, prefix};
use std::collections::BTreeMap;

/// The leases in `text`. Lines that are none are left out.
pub fn read(text: &str) -> Table {
    text.lines().filter_map(line).take(LEASES_MAX).map(|lease| (lease.address, lease)).collect()
}

fn line(line: &str) -> Option<Lease> {
    let mut words = line.split_ascii_whitespace();
    let expires: u64 = words.next()?.parse().ok()?;
    let hardware = words.next()?;
    let address = usable(words.next()?.parse().ok().map(prefix::host))?;
    let mut fields = BTreeMap::new();
    let mut insert = |field, value: Option<String>| {
        fields.extend(value.filter(|value| value != "*").map(|value| (field, value)));
    };
    // A type of hardware other than Ethernet stands before the address: `06-aa:bb:...`.
    insert(Field::HwAddress, hardware::address(hardware));
    insert(Field::Hostname, words.next().map(str::to_owned));
    let identifier = if address.ip.is_ipv4() { Field::ClientId } else { Field::Duid };
    insert(identifier, words.next().map(str::to_owned));
    let expires = (expires > 0).then_some(expires);
    Some(Lease { address, expires, fields, context: BTreeMap::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn both_families_are_read() {
        let table = read(
            "1800003600 00:0c:29:aa:bb:cc 10.0.0.5 ann 01:00:0c:29:aa:bb:cc\n\
             0 00:0c:29:aa:bb:cd 10.0.0.6 * *\n\
             duid 00:01:00:01:2b\n\
             1800003600 7654321 2001:db8::5 ann 00:01:00:01:2c\n\
             what is this\n",
        );
        assert_eq!(table.len(), 3);
        let lease = &table[&prefix::parse("10.0.0.5").unwrap()];
        assert_eq!(lease.expires, Some(1_800_003_600));
        assert_eq!(lease.fields[&Field::HwAddress], "00:0c:29:aa:bb:cc");
        assert_eq!(lease.fields[&Field::Hostname], "ann");
        let lease = &table[&prefix::parse("10.0.0.6").unwrap()];
        assert_eq!((lease.expires, lease.fields.len()), (None, 1));
        let lease = &table[&prefix::parse("2001:db8::5").unwrap()];
        assert_eq!(lease.fields[&Field::Duid], "00:01:00:01:2c");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*") {
            read(&text);
        }
    }
}
