//! The headers that a filter asks for, as programs compare them.

use narrows_bpf::{Field, Headers, carrier, has};
use narrows_classify::{ANY_PROTOCOL, Flower, PortRange, Prefix, is_tag};

/// The headers of packets of `protocol` that meet the conditions of `flower`.
pub fn headers(protocol: u16, flower: &Flower) -> Headers {
    let mut headers = Headers::default();
    match protocol {
        ANY_PROTOCOL => {}
        protocol if is_tag(protocol) => ask_type(&mut headers, Field::TagType, protocol),
        protocol => ask_behind_tags(&mut headers, protocol),
    }
    ask(&mut headers, flower);
    headers
}

/// Adds the conditions of `flower`, by the rules of its own `matches`.
fn ask(headers: &mut Headers, flower: &Flower) {
    let link = Flower {
        vlan_id: flower.vlan_id,
        vlan_priority: flower.vlan_priority,
        vlan_ether_type: flower.vlan_ether_type,
        inner_vlan_id: flower.inner_vlan_id,
        inner_vlan_priority: flower.inner_vlan_priority,
        inner_vlan_ether_type: flower.inner_vlan_ether_type,
        destination_mac: flower.destination_mac,
        source_mac: flower.source_mac,
        ..Flower::default()
    };
    let tags = [
        (Field::Tag, has::TAG, flower.vlan_id, flower.vlan_priority),
        (Field::InnerTag, has::INNER_TAG, flower.inner_vlan_id, flower.inner_vlan_priority),
    ];
    for (field, tag, id, priority) in tags {
        if let Some(id) = id {
            headers.ask(field, &id.to_be_bytes(), &0x0fff_u16.to_be_bytes());
            headers.ask_for(tag);
        }
        if let Some(priority) = priority {
            let bits = u16::from(priority) << 13;
            headers.ask(field, &bits.to_be_bytes(), &0xe000_u16.to_be_bytes());
            headers.ask_for(tag);
        }
    }
    if let Some(ether_type) = flower.vlan_ether_type {
        headers.ask_for(has::TAG);
        match is_tag(ether_type) {
            true => ask_type(headers, Field::InnerTagType, ether_type),
            false => ask_behind_tags(headers, ether_type),
        }
    }
    if let Some(ether_type) = flower.inner_vlan_ether_type {
        headers.ask_for(has::INNER_TAG);
        ask_behind_tags(headers, ether_type);
    }
    let macs =
        [(Field::DestinationMac, flower.destination_mac), (Field::SourceMac, flower.source_mac)];
    for (field, mac) in macs {
        if let Some((value, mask)) = mac {
            headers.ask(field, &value.to_be_bytes()[2..], &mask.to_be_bytes()[2..]);
        }
    }
    if *flower == link {
        return;
    }
    // The bit that is set in 4 and 6, but not in 0 (no IP).
    headers.ask(Field::Ip, &[4], &[4]);
    if let Some(protocol) = flower.protocol {
        headers.ask(Field::Protocol, &[protocol], &[0xff]);
    }
    for (field, pair) in [(Field::TrafficClass, flower.traffic_class), (Field::Ttl, flower.ttl)] {
        if let Some((value, mask)) = pair {
            headers.ask(field, &[value], &[mask]);
        }
    }
    ask_address(headers, Field::Source, flower.source);
    ask_address(headers, Field::Destination, flower.destination);
    headers.source_ports = ask_port(headers, Field::SourcePort, flower.source_port);
    headers.destination_ports = ask_port(headers, Field::DestinationPort, flower.destination_port);
    if let Some((value, mask)) = flower.tcp_flags {
        headers.ask(Field::TcpFlags, &value.to_be_bytes(), &mask.to_be_bytes());
        headers.ask_for(has::FLAGS);
    }
    for (field, pair) in [(Field::IcmpType, flower.icmp_type), (Field::IcmpCode, flower.icmp_code)]
    {
        if let Some((value, mask)) = pair {
            headers.ask(field, &[value], &[mask]);
            headers.ask_for(has::ICMP);
        }
    }
    let fragments = [(has::FRAGMENT, flower.is_fragment), (has::FIRST, flower.is_first_fragment)];
    for (bit, is) in fragments {
        if let Some(is) = is {
            headers.ask(Field::Has, &[if is { bit } else { 0 }], &[bit]);
        }
    }
}

/// The EtherType behind all tags: of PPPoE or MPLS, or of what is carried.
fn ask_behind_tags(headers: &mut Headers, ether_type: u16) {
    match carrier(ether_type) {
        Some(number) => headers.ask(Field::Carrier, &[number], &[0xff]),
        None => ask_type(headers, Field::EtherType, ether_type),
    }
}

fn ask_type(headers: &mut Headers, field: Field, ether_type: u16) {
    headers.ask(field, &ether_type.to_be_bytes(), &[0xff; 2]);
}

fn ask_address(headers: &mut Headers, field: Field, prefix: Option<Prefix>) {
    let Some(prefix) = prefix else { return };
    let (bits, mask) = (prefix.bits().0, prefix.mask());
    if prefix.is_v6() {
        headers.ask(Field::Ip, &[6], &[0xff]);
        headers.ask(field, &bits.to_be_bytes(), &mask.to_be_bytes());
    } else {
        headers.ask(Field::Ip, &[4], &[0xff]);
        headers.ask(field, &(bits as u32).to_be_bytes(), &(mask as u32).to_be_bytes());
    }
}

/// The range, if it is more than one port.
fn ask_port(headers: &mut Headers, field: Field, range: Option<PortRange>) -> Option<(u16, u16)> {
    let PortRange { first, last } = range?;
    headers.ask_for(has::PORTS);
    if first < last {
        return Some((first, last));
    }
    headers.ask(field, &first.to_be_bytes(), &[0xff; 2]);
    None
}
