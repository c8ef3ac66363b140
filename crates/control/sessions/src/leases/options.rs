//! What relays add to a request: which line it came from.
//!
//! *Source.* RFC 3046 section 2 (DHCPv4), RFC 8415 section 21.18, RFC 4649 section 3 and RFC 4580
//! section 2 (DHCPv6).

use super::Field;
use crate::radius::attribute;
use std::collections::BTreeMap;

/// The sub-options of option 82: each a code, a length and a value. Those behind one that has an
/// impossible length are left out.
pub fn relay4(bytes: &[u8], fields: &mut BTreeMap<Field, String>) {
    let mut rest = bytes;
    while let [code, length, behind @ ..] = rest
        && let Some((value, behind)) = behind.split_at_checked(usize::from(*length))
    {
        let field = match code {
            1 => Some(Field::CircuitId),
            2 => Some(Field::RemoteId),
            6 => Some(Field::SubscriberId),
            _ => None,
        };
        insert(fields, field, value);
        rest = behind;
    }
}

/// The options of a Relay-forward message: each has a code and a length of two bytes.
pub fn relay6(bytes: &[u8], fields: &mut BTreeMap<Field, String>) {
    let mut rest = bytes;
    while let [c0, c1, l0, l1, behind @ ..] = rest
        && let Some((value, behind)) =
            behind.split_at_checked(usize::from(u16::from_be_bytes([*l0, *l1])))
    {
        let (field, value) = match u16::from_be_bytes([*c0, *c1]) {
            18 => (Some(Field::CircuitId), value),
            // The identifier follows the vendor's enterprise number.
            37 => (Some(Field::RemoteId), value.get(4..).unwrap_or_default()),
            38 => (Some(Field::SubscriberId), value),
            _ => (None, value),
        };
        insert(fields, field, value);
        rest = behind;
    }
}

/// The first relay is the one at the line.
fn insert(fields: &mut BTreeMap<Field, String>, field: Option<Field>, value: &[u8]) {
    if let Some((field, text)) = field.zip(attribute::text(value)) {
        fields.entry(field).or_insert(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sub_options_are_read_up_to_a_wrong_one() {
        let mut fields = BTreeMap::new();
        relay4(b"\x01\x05eth/1\x02\x02\xff\x01\x06\x09x", &mut fields);
        assert_eq!(fields[&Field::CircuitId], "eth/1");
        assert_eq!(fields[&Field::RemoteId], "0xff01");
        assert_eq!(fields.len(), 2);
    }

    #[test]
    fn a_remote_id_of_dhcpv6_comes_after_a_vendor() {
        let mut fields = BTreeMap::new();
        relay6(b"\x00\x12\x00\x03abc\x00\x25\x00\x06\x00\x00\x00\x09me", &mut fields);
        assert_eq!(fields[&Field::CircuitId], "abc");
        assert_eq!(fields[&Field::RemoteId], "me");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            relay4(&bytes, &mut BTreeMap::new());
            relay6(&bytes, &mut BTreeMap::new());
        }
    }
}
