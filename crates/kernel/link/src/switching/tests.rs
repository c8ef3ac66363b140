//! What a bridge says is read as it is meant.

use super::*;
use crate::status::tests::attribute;
use proptest::prelude::*;

/// Attributes in one.
fn nested(kind: u16, inside: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind, &inside.concat())
}

fn link(ifindex: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![libc::AF_BRIDGE as u8, 0, 0, 0];
    body.extend(ifindex.to_ne_bytes());
    body.extend([0; 8]);
    body.extend(attributes.concat());
    body
}

#[test]
fn a_bridge_that_filters_has_tags_of_its_protocol_and_ages_faster_in_a_change_with_spanning_tree() {
    let of = |settings: &[Vec<u8>]| {
        let info = nested(IFLA_LINKINFO, &[nested(IFLA_INFO_DATA, settings)]);
        Bridge::parse(7, &link(7, &[info])).unwrap()
    };
    let ageing = attribute(IFLA_BR_AGEING_TIME, &30_000_u32.to_ne_bytes());
    let delay = attribute(IFLA_BR_FORWARD_DELAY, &1500_u32.to_ne_bytes());
    let plain = of(&[ageing.clone(), delay.clone()]);
    let expected = Bridge { ifindex: 7, ageing: Duration::from_secs(300), ..Bridge::default() };
    assert_eq!(plain, expected);
    let stp = attribute(IFLA_BR_STP_STATE, &1_u32.to_ne_bytes());
    let filters = attribute(IFLA_BR_VLAN_FILTERING, &[1]);
    let service = attribute(IFLA_BR_VLAN_PROTOCOL, &0x88a8_u16.to_be_bytes());
    let calls = attribute(37, &[1]);
    let all = of(&[ageing, delay, stp, filters.clone(), service, calls]);
    assert_eq!(all.ageing_in_change, Some(Duration::from_secs(15)));
    assert_eq!((all.tag_type, all.calls_netfilter), (Some(0x88a8), true));
    assert_eq!(of(&[filters]).tag_type, Some(0x8100));
}

#[test]
fn a_port_forwards_in_one_state_only_and_is_special_if_it_does_more() {
    let of = |flags: &[(u16, u8)]| {
        let flags: Vec<_> = flags.iter().map(|(kind, value)| attribute(*kind, &[*value])).collect();
        PortState::parse(&link(3, &[nested(IFLA_PROTINFO, &flags)])).unwrap()
    };
    for state in 0..=4 {
        assert_eq!(of(&[(IFLA_BRPORT_STATE, state)]).1.forwards, state == 3, "{state}");
    }
    let (ifindex, plain) = of(&[(IFLA_BRPORT_STATE, 3), (IFLA_BRPORT_LEARNING, 1)]);
    let expected = PortState { forwards: true, learns: true, ..PortState::default() };
    assert_eq!((ifindex, plain), (3, expected));
    assert!(of(&[(IFLA_BRPORT_ISOLATED, 1)]).1.isolated);
    for more in [10, 12, 29, 32, 35, 36, 43] {
        assert!(of(&[(more, 1)]).1.special && !of(&[(more, 0)]).1.special, "{more}");
    }
}

#[test]
fn vlans_come_in_ranges_each_with_its_state() {
    let entry = |flags: u16, vid: u16, more: &[Vec<u8>]| {
        let info = [flags.to_ne_bytes(), vid.to_ne_bytes()].concat();
        let mut inside = vec![attribute(BRIDGE_VLANDB_ENTRY_INFO, &info)];
        inside.extend(more.iter().cloned());
        nested(BRIDGE_VLANDB_ENTRY, &inside)
    };
    let mut body = vec![libc::AF_BRIDGE as u8, 0, 0, 0];
    body.extend(5_u32.to_ne_bytes());
    body.extend(entry(IS_PVID | IS_UNTAGGED, 10, &[attribute(3, &[3])]));
    body.extend(entry(0, 100, &[attribute(2, &199_u16.to_ne_bytes()), attribute(3, &[4])]));
    // Nonsense.
    body.extend(entry(0, 0, &[]));
    body.extend(entry(0, 4095, &[]));
    body.extend(entry(0, 4000, &[attribute(2, &u16::MAX.to_ne_bytes())]));
    let found = PortVlans::parse(&body);
    let pvid = PortVlans { first: 10, last: 10, is_pvid: true, untagged: true, forwards: true };
    let blocked = PortVlans { first: 100, last: 199, ..PortVlans::default() };
    let cut = PortVlans { first: 4000, last: 4094, forwards: true, ..PortVlans::default() };
    assert_eq!(found, [(5, pvid), (5, blocked), (5, cut)]);
}

/// A message about an entry of the bridge 9.
fn entry(state: u16, flags: u8, more: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![libc::AF_BRIDGE as u8, 0, 0, 0];
    body.extend(3_u32.to_ne_bytes());
    body.extend(state.to_ne_bytes());
    body.extend([flags, 0]);
    body.extend(attribute(2, &[2, 0, 0, 0, 0, 5]));
    body.extend(attribute(9, &9_u32.to_ne_bytes()));
    body.extend(more.concat());
    body
}

#[test]
fn an_entry_says_where_its_station_is_and_whether_it_ages() {
    let kind = |state, flags, more: &[Vec<u8>]| {
        let entry = Entry::parse(&entry(state, flags, more), 9).unwrap();
        assert_eq!((entry.mac, entry.ifindex), ([2, 0, 0, 0, 0, 5], 3));
        entry.kind
    };
    assert_eq!(kind(0x02, 0, &[]), EntryKind::Learned);
    assert_eq!(kind(0x04, 0, &[]), EntryKind::Learned, "stale");
    assert_eq!(kind(0x40, 0, &[]), EntryKind::Fixed);
    assert_eq!(kind(0x02, 1 << 4, &[]), EntryKind::Fixed, "another daemon's");
    assert_eq!(kind(0x80, 0, &[]), EntryKind::Own);
    let locked = attribute(15, &2_u32.to_ne_bytes());
    assert_eq!(kind(0x02, 0, &[locked]), EntryKind::Locked);
    let vlan = attribute(5, &100_u16.to_ne_bytes());
    assert_eq!(Entry::parse(&entry(2, 0, &[vlan]), 9).unwrap().vid, 100);
    assert_eq!(Entry::parse(&entry(2, 0, &[]), 8), None, "of another bridge");
    let mut neighbour = entry(2, 0, &[]);
    neighbour[0] = libc::AF_INET as u8;
    assert_eq!(Entry::parse(&neighbour, 9), None);
}

#[test]
fn entries_come_and_go_and_all_else_is_to_be_read() {
    let body = entry(2, 0, &[]);
    let it = Entry::parse(&body, 9).unwrap();
    assert_eq!(SwitchEvent::parse(28, &body, Some(9)), Some(SwitchEvent::Put(it)));
    assert_eq!(SwitchEvent::parse(29, &body, Some(9)), Some(SwitchEvent::Gone(it)));
    assert_eq!(SwitchEvent::parse(28, &body, None), None);
    for kind in [16, 17, 112, 113] {
        assert_eq!(SwitchEvent::parse(kind, &[], None), Some(SwitchEvent::Ports));
    }
    assert_eq!(SwitchEvent::parse(24, &body, Some(9)), None);
}

proptest! {
    #[test]
    fn any_bytes_parse_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Bridge::parse(1, &bytes), PortState::parse(&bytes), PortVlans::parse(&bytes));
        for kind in [16, 17, 28, 29, 112] {
            let _ = SwitchEvent::parse(kind, &bytes, Some(1));
        }
    }
}
