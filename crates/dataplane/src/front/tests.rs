//! Filters in the driver give the same results as in a worker.

use super::terms::resolve;
use narrows_bpf::{Entry, Front, FrontMaps, FrontPort, test_run};
use narrows_classify::{
    ANY_PROTOCOL, Action, ActionId, ActionKind, Control, Filter, Flower, Mark, Matches, PortRange,
    Prefix, Selector, Subject, VLAN,
};
use narrows_policy::FrontTerm;
use narrows_sets::Sets;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::ProptestConfig;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof, proptest};
use std::net::IpAddr;

const PORT: FrontPort<'static> =
    FrontPort { mac: [2, 0, 0, 0, 0, 9], multi_buffer: false, entry: Entry::Own, handed: None };

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

fn flower() -> impl Strategy<Value = Matches> {
    let link = (
        option::weighted(0.05, prop_oneof![Just(5_u16), 0_u16..4096]),
        option::weighted(0.05, 0_u8..8),
        option::weighted(0.05, prop_oneof![Just(0x0800_u16), Just(0x86dd)]),
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
            vlan_id: link.0,
            vlan_priority: link.1,
            vlan_ether_type: link.2,
            destination_mac: link.3.map(|mac| (mac, (1 << 48) - 1)),
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

fn words() -> impl Strategy<Value = Matches> {
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

fn filters() -> impl Strategy<Value = Vec<Filter>> {
    let matches = prop_oneof![
        6 => flower(),
        2 => words(),
        1 => Just(Matches::All),
        1 => (0_u32..2, 0_u32..4).prop_map(|(v, mask)| Matches::Mark(Mark { value: v & mask, mask })),
    ];
    let protocols = prop_oneof![
        4 => Just(ANY_PROTOCOL), 2 => Just(0x0800_u16), 1 => Just(0x86dd), 1 => Just(VLAN),
        1 => Just(0x8864), 1 => Just(0x8847),
    ];
    let filter = (matches, protocols).prop_map(|(matches, protocol)| Filter {
        pref: 1,
        protocol,
        handle: 1,
        matches,
        class: 0,
        named: 0,
        actions: Vec::new(),
    });
    vec(filter, 32)
}

/// A random frame, most of whose headers are valid.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop_oneof![
        4 => Just(Vec::new()),
        1 => Just(vec![0x81, 0, 0x20, 5]),
        1 => Just(vec![0x88, 0xa8, 0, 7, 0x81, 0, 0, 5]),
    ];
    let under = prop_oneof![
        6 => Just(Vec::new()),
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
    let lens = prop_oneof![3 => Just(None), 1 => (0_u16..100).prop_map(Some)];
    (tags, under, ip, protocols, (extension, 0_u8..3), fragment, payload, lens, (byte(), byte()))
        .prop_map(|(tags, under, ip, protocol, extension, fragment, payload, len, (tos, ttl))| {
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
            if payload.len() > 4 {
                (payload[0], payload[1]) = extension;
            }
            frame.extend(payload);
            frame.resize(frame.len().max(60), 0);
            frame
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_filter_matches_the_same_in_the_driver_and_in_a_worker(
        filters in filters(),
        frames in vec(frames(), 150),
    ) {
        let Ok(mut maps) = FrontMaps::new() else {
            eprintln!("SKIPPED: the kernel makes no maps here");
            return Ok(());
        };
        let term = |(index, filter): (u32, &Filter)| {
            let id = ActionId { kind: ActionKind::Gact, index };
            let action = Action::Gact { control: Control::Continue, random: None };
            let (mut flower, mut words, mut mark) = Default::default();
            match &filter.matches {
                Matches::Flower(one) => flower = *one,
                Matches::Words(all) => words = all.clone(),
                Matches::Mark(one) => mark = Some(*one),
                _ => {}
            }
            let (protocol, look_ups, has_more) = (filter.protocol, Vec::new(), false);
            let actions = vec![(id, action)];
            let is_repeated = false;
            FrontTerm { protocol, flower, words, mark, look_ups, actions, is_repeated, has_more }
        };
        let terms: Vec<FrontTerm> = (0..).zip(&filters).map(term).collect();
        let resolved = resolve(&terms, &Sets::default()).unwrap();
        let terms: Vec<_> =
            resolved.iter().map(|term| term.counted_by(|id| Some(id.index as u8))).collect();
        let front = Front::load(PORT, &terms, None, &mut maps).unwrap();
        let mut expected = vec![0; filters.len()];
        for frame in &frames {
            test_run::test_run(front.program(), frame, 1).unwrap();
            let subject = Subject::new(frame).unwrap();
            for (filter, expected) in filters.iter().zip(&mut expected) {
                *expected += u64::from(filter.matches(&subject));
            }
            for (number, (filter, expected)) in filters.iter().zip(&expected).enumerate() {
                let counted = maps.get(number as u8).packets;
                prop_assert_eq!(counted, *expected, "{:?}\n{:02x?}", filter, frame);
            }
        }
    }
}
