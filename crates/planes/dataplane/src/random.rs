//! Random filters and frames, for tests.

use narrows_classify::{
    ANY_PROTOCOL, Expression, Filter, Flower, Layer, Mark, Matches, Meta, PortRange, Prefix,
    Relation, Route, SERVICE_VLAN, Selector, Spot, VLAN,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use std::net::IpAddr;

/// Few values, so that filters and frames often agree.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0_u8), Just(1), Just(0x12), Just(6), Just(17), Just(58), any::<u8>()]
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0_u16), Just(53), Just(80), Just(0x0102), any::<u16>()]
}

fn pair8() -> impl Strategy<Value = Option<(u8, u8)>> {
    option::weighted(
        0.1,
        (byte(), prop_oneof![Just(0xff), any::<u8>()]).prop_map(|(v, m)| (v & m, m)),
    )
}

fn prefix() -> impl Strategy<Value = Option<Prefix>> {
    let four = (0_u8..=32).prop_map(|len| Prefix::new(IpAddr::from([10, 0, 0, 1]), len));
    let six = (0_u8..=128).prop_map(|len| {
        Prefix::new(IpAddr::from([10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1]), len)
    });
    prop_oneof![5 => Just(None), 2 => four, 1 => six]
}

fn ports() -> impl Strategy<Value = Option<PortRange>> {
    let range = (port(), port());
    option::weighted(0.2, range.prop_map(|(a, b)| PortRange { first: a.min(b), last: a.max(b) }))
}

pub(crate) fn flower() -> impl Strategy<Value = Matches> {
    let behind = || {
        prop_oneof![Just(0x0800_u16), Just(0x86dd), Just(VLAN), Just(SERVICE_VLAN), Just(0x8864)]
    };
    let tag = || {
        (
            option::weighted(0.05, prop_oneof![Just(5_u16), Just(7), 0_u16..4096]),
            option::weighted(0.05, 0_u8..8),
            option::weighted(0.05, behind()),
        )
    };
    let link = (
        tag(),
        tag(),
        option::weighted(0.05, prop_oneof![Just(0x0404_0404_0404_u64), 0..1_u64 << 48]),
    );
    let ip = (
        option::weighted(0.3, prop_oneof![Just(6_u8), Just(17), Just(1), Just(58), byte()]),
        pair8(),
        pair8(),
        prefix(),
        prefix(),
        ports(),
        ports(),
    );
    let rest = (
        option::weighted(0.1, (0_u16..4096, prop_oneof![Just(0xfff_u16), Just(0x12), 0_u16..4096])),
        pair8(),
        pair8(),
        option::weighted(0.1, any::<bool>()),
        option::weighted(0.1, any::<bool>()),
    );
    (link, ip, rest).prop_map(|(link, ip, rest)| {
        Matches::Flower(Flower {
            vlan_id: link.0.0,
            vlan_priority: link.0.1,
            vlan_ether_type: link.0.2,
            inner_vlan_id: link.1.0,
            inner_vlan_priority: link.1.1,
            inner_vlan_ether_type: link.1.2,
            destination_mac: link.2.map(|mac| (mac, (1 << 48) - 1)),
            source_mac: None,
            protocol: ip.0,
            traffic_class: ip.1,
            ttl: ip.2,
            destination: ip.3,
            source: ip.4,
            destination_port: ip.5,
            source_port: ip.6,
            tcp_flags: rest.0.map(|(value, mask)| (value & mask, mask)),
            icmp_type: rest.1,
            icmp_code: rest.2,
            is_fragment: rest.3,
            is_first_fragment: rest.4,
        })
    })
}

pub(crate) fn words() -> impl Strategy<Value = Matches> {
    let word =
        (any::<u32>(), prop_oneof![Just(0_u32), Just(0xff), Just(0x00ff_0000), any::<u32>()]);
    let place = (prop_oneof![Just(0_i16), Just(8), Just(16), -20_i16..80], any::<bool>());
    let word = (word, place).prop_map(|((value, mask), (offset, is_behind_ip))| {
        // Often a value that occurs.
        let value = if value % 2 == 0 { 0 } else { value };
        Selector { value: value & mask, mask, offset, is_behind_ip }
    });
    vec(word, 1..4).prop_map(Matches::Words)
}

/// The mark that most packets have is 0.
pub(crate) fn mark() -> impl Strategy<Value = Matches> {
    (0_u32..2, 0_u32..4).prop_map(|(v, mask)| Matches::Mark(Mark { value: v, mask }))
}

/// The routes that packets take in these tests have few realms and metrics.
pub(crate) fn route() -> impl Strategy<Value = Matches> {
    let realm = || option::weighted(0.5, 0_u8..3);
    (realm(), realm(), option::weighted(0.3, 0_u32..2))
        .prop_map(|(to, from, metric)| Matches::Route(Route { to, from, metric }))
}

/// A number that a comparison finds: often one that occurs.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![byte().prop_map(u32::from), port().prop_map(u32::from), any::<u32>()]
}

fn relation() -> impl Strategy<Value = Relation> {
    prop_oneof![Just(Relation::Equal), Just(Relation::Less), Just(Relation::Greater)]
}

fn spot() -> impl Strategy<Value = Spot> {
    let layer = prop_oneof![Just(Layer::Link), Just(Layer::Network), Just(Layer::Transport)];
    (layer, prop_oneof![0_i16..24, -20_i16..80]).prop_map(|(layer, offset)| Spot { layer, offset })
}

fn mask() -> impl Strategy<Value = u32> {
    prop_oneof![3 => Just(0), 1 => Just(0xff), 1 => any::<u32>()]
}

/// Expressions without sets.
pub(crate) fn basic() -> impl Strategy<Value = Matches> {
    let sizes = prop_oneof![Just(1_u8), Just(2), Just(4)];
    let cmp = (spot(), sizes, mask(), any::<bool>(), relation(), number());
    let cmp = cmp.prop_map(|(at, size, mask, is_little_endian, relation, value)| {
        Expression::Number { at, size, mask, is_little_endian, relation, value }
    });
    let bytes = (spot(), vec(prop_oneof![Just(0_u8), Just(1), Just(4)], 1..8));
    let bytes = bytes.prop_map(|(at, bytes)| Expression::Bytes { at, bytes });
    let word = (any::<u32>(), mask(), -20_i16..80, any::<bool>());
    let word = word.prop_map(|(value, mask, offset, is_behind_ip)| {
        Expression::Word(Selector { value: value & mask, mask, offset, is_behind_ip })
    });
    let what = prop_oneof![
        Just(Meta::Mark),
        Just(Meta::Length),
        Just(Meta::Protocol),
        Just(Meta::Vlan),
        Just(Meta::Priority),
    ];
    let values = prop_oneof![Just(0x0800), Just(0x2005), Just(60), Just(100), number()];
    let meta = (what, prop_oneof![4 => Just(0_u8), 1 => 0_u8..32], mask(), relation(), values);
    let meta = meta.prop_map(|(what, shift, mask, relation, value)| Expression::Meta {
        what,
        shift,
        mask,
        relation,
        value,
    });
    let leaf = prop_oneof![3 => cmp, 1 => bytes, 1 => word, 3 => meta];
    leaf.prop_recursive(3, 6, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 1..4).prop_map(Expression::And),
            vec(inner.clone(), 1..4).prop_map(Expression::Or),
            inner.prop_map(|one| Expression::Not(Box::new(one))),
        ]
    })
    .prop_map(|expression| Matches::Basic(Some(expression)))
}

/// A filter of some protocol, for class 0.
pub(crate) fn filter(matches: impl Strategy<Value = Matches>) -> impl Strategy<Value = Filter> {
    let protocols = prop_oneof![
        4 => Just(ANY_PROTOCOL), 2 => Just(0x0800_u16), 1 => Just(0x86dd), 1 => Just(VLAN),
        1 => Just(0x8864), 1 => Just(0x8847), 1 => Just(SERVICE_VLAN), 1 => Just(0x9100),
        1 => Just(0x0001), 1 => Just(0x0004), 1 => Just(0x0060),
    ];
    (matches, protocols).prop_map(|(matches, protocol)| Filter::new(1, 1, protocol, matches, 0))
}

/// A random frame, most of whose headers are valid.
pub(crate) fn frames() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop_oneof![
        4 => Just(Vec::new()),
        1 => Just(vec![0x81, 0, 0x20, 5]),
        1 => Just(vec![0x88, 0xa8, 0, 7]),
        1 => Just(vec![0x88, 0xa8, 0, 7, 0x81, 0, 0x60, 5]),
        1 => Just(vec![0x91, 0, 0, 5, 0x88, 0xa8, 0, 7, 0x92, 0, 0, 5]),
        1 => Just(vec![0x81, 0, 0, 5, 0x81, 0, 0, 7, 0x81, 0, 0, 5, 0x88, 0xa8, 0, 7, 0x81, 0, 0, 5]),
    ];
    let under = prop_oneof![
        4 => Just(Vec::new()),
        1 => Just(vec![0x88, 0x64, 0x11, 0, 0, 1, 0, 99]),
        1 => Just(vec![0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64]),
    ];
    let ip = prop_oneof![Just(4_u8), Just(6)];
    let protocols = prop_oneof![
        Just(6_u8),
        Just(17),
        Just(1),
        Just(58),
        Just(44),
        Just(0),
        Just(60),
        Just(51),
        byte()
    ];
    let extension = prop_oneof![Just(6_u8), Just(17), Just(44), Just(60), Just(51), any::<u8>()];
    let fragment =
        prop_oneof![4 => Just(0_u16), 1 => Just(0x2000), 1 => Just(5), 1 => Just(0x4000)];
    let payload = vec(byte(), 0..90);
    // Also some that leave hardly any room.
    let lens = prop_oneof![0_u16..100, 0_u16..5, 20_u16..25];
    let lens = prop_oneof![3 => Just(None), 1 => lens.prop_map(Some)];
    let length = prop_oneof![9 => Just(None), 1 => (0_u16..0x600).prop_map(Some)];
    let rest = (byte(), byte(), length);
    (tags, under, ip, protocols, (extension, 0_u8..3), fragment, payload, lens, rest).prop_map(
        |(tags, under, ip, protocol, extension, fragment, payload, len, (tos, ttl, length))| {
            let mut frame = vec![4; 12];
            frame.extend(tags);
            let is_plain = under.is_empty();
            let is_ppp = under.get(1) == Some(&0x64);
            frame.extend(under);
            let kind: [u8; 2] = match (ip, is_ppp) {
                (4, false) => [8, 0],
                (4, true) => [0, 0x21],
                (_, false) => [0x86, 0xdd],
                (_, true) => [0, 0x57],
            };
            if is_plain || is_ppp {
                frame.extend(kind);
            }
            let behind = payload.len() as u16;
            if ip == 4 {
                let len = len.unwrap_or(20 + behind).to_be_bytes();
                frame.extend([0x45, tos, len[0], len[1], 0, 1]);
                frame.extend(fragment.to_be_bytes());
                frame.extend([ttl, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            } else {
                let len = len.unwrap_or(behind).to_be_bytes();
                frame.extend([0x60 | tos >> 4, tos << 4, 0, 0, len[0], len[1], protocol, ttl]);
                frame.extend([10, 0, 0, 1].repeat(4));
                frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1]);
            }
            let mut payload = payload;
            if let Some(length) = length.filter(|_| is_plain) {
                // Its payload begins with a checksum of IPX or with a header of IEEE 802.2.
                let at = frame.len() - if ip == 4 { 22 } else { 42 };
                frame[at..at + 2].copy_from_slice(&length.to_be_bytes());
                frame[at + 2..at + 4].fill(if length % 2 == 0 { 0xff } else { 0x42 });
            }
            if payload.len() > 4 {
                (payload[0], payload[1]) = extension;
            }
            frame.extend(payload);
            frame.resize(frame.len().max(60), 0);
            frame
        },
    )
}
