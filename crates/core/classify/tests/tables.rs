//! The tables against the plain rule: filters tested one after the other.

use narrows_classify::{
    AHEAD, ANY_PROTOCOL, ActionId, ActionKind, Actions, Blocks, Classifier, Expression, Filter,
    Filters, Flower, Found, Mark, Matches, Meta, PortRange, Prefix, Relation, Route, SERVICE_VLAN,
    Selector, Subject, VLAN,
};
use narrows_packet::RouteTaken;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Addresses of a small range, so that prefixes of many lengths overlap.
fn address() -> impl Strategy<Value = u32> {
    (0..3_u32, 0..3_u32, 0..3_u32, 0..4_u32)
        .prop_map(|(a, b, c, d)| 0x0a00_0000 | a << 22 | b << 14 | c << 7 | d)
}

fn prefix() -> impl Strategy<Value = Prefix> {
    let four = (address(), 0..=32_u8)
        .prop_map(|(address, len)| Prefix::new(IpAddr::from(address.to_be_bytes()), len).unwrap());
    let six = (address(), prop_oneof![Just(128_u8), Just(48), 0..=128_u8])
        .prop_map(|(a, len)| Prefix::new(IpAddr::from(six(a).to_be_bytes()), len).unwrap());
    prop_oneof![3 => four, 1 => six]
}

/// An IPv6 address that differs in both halves.
fn six(address: u32) -> u128 {
    0x2001_0db8 << 96 | u128::from(address) << 70 | u128::from(address & 0xff)
}

fn ports() -> impl Strategy<Value = PortRange> {
    prop_oneof![
        (0..4_u16).prop_map(|port| PortRange { first: port, last: port }),
        (0..4_u16, 0..4_u16).prop_map(|(a, b)| PortRange { first: a.min(b), last: a.max(b) }),
        Just(PortRange { first: 0, last: u16::MAX }),
    ]
}

fn some<S: Strategy>(strategy: S) -> impl Strategy<Value = Option<S::Value>> {
    proptest::option::weighted(0.2, strategy)
}

fn flower() -> impl Strategy<Value = Flower> {
    let bytes = || (any::<u8>(), prop_oneof![Just(0xff_u8), Just(0xfc), any::<u8>()]);
    let behind = || prop_oneof![Just(0x0800_u16), Just(0x8100), Just(0x8864), Just(0x8847)];
    let tag = || (some(0..3_u16), some(0..8_u8), some(behind()));
    let link = (tag(), proptest::option::weighted(0.3, tag()), some(Just((2, 0xff_u64))));
    let network = (
        some(prop_oneof![Just(6_u8), Just(17), Just(1)]),
        some(bytes()),
        some(bytes()),
        proptest::option::of(prefix()),
        some(prefix()),
    );
    let transport = (
        some(ports()),
        some(ports()),
        some((0..0x40_u16, Just(0x12_u16))),
        some((Just(8_u8), Just(0xff_u8))),
        some((0..2_u8, Just(0xff_u8))),
        some(any::<bool>()),
        some(any::<bool>()),
    );
    (link, network, transport).prop_map(|(link, network, transport)| Flower {
        vlan_id: link.0.0,
        vlan_priority: link.0.1,
        vlan_ether_type: link.0.2,
        inner_vlan_id: link.1.and_then(|tag| tag.0),
        inner_vlan_priority: link.1.and_then(|tag| tag.1),
        inner_vlan_ether_type: link.1.and_then(|tag| tag.2),
        destination_mac: link.2,
        source_mac: None,
        protocol: network.0,
        traffic_class: network.1,
        ttl: network.2,
        destination: network.3,
        source: network.4,
        destination_port: transport.0,
        source_port: transport.1,
        tcp_flags: transport.2,
        icmp_type: transport.3,
        icmp_code: transport.4,
        is_fragment: transport.5,
        is_first_fragment: transport.6,
    })
}

fn selector() -> impl Strategy<Value = Selector> {
    let addresses = (prop_oneof![Just(12_i16), Just(16)], address(), 0..=32_u32).prop_map(
        |(offset, value, len)| {
            let mask = u32::MAX.checked_shl(32 - len).unwrap_or(0);
            Selector::network(offset, value, mask)
        },
    );
    let spot = (-16..44_i16, any::<u32>(), prop_oneof![Just(0_u32), Just(3), Just(0x100)]);
    let any = (spot, any::<bool>()).prop_map(|((offset, value, mask), is_behind_ip)| Selector {
        is_behind_ip,
        ..Selector::network(offset, value, mask)
    });
    prop_oneof![3 => addresses, 1 => any]
}

fn matches() -> impl Strategy<Value = Matches> {
    prop_oneof![
        1 => Just(Matches::All),
        8 => flower().prop_map(Matches::Flower),
        4 => proptest::collection::vec(selector(), 1..4).prop_map(Matches::Words),
        1 => proptest::collection::vec(selector(), 11..14).prop_map(Matches::Words),
        2 => (0..4_u32, 0..4_u32)
            .prop_map(|(value, mask)| Matches::Mark(Mark { value: value & mask, mask })),
        3 => (some(0..3_u8), some(0..3_u8), some(0..2_u32))
            .prop_map(|(to, from, metric)| Matches::Route(Route { to, from, metric })),
        1 => (0..4_u32).prop_map(|value| Matches::Basic(Some(Expression::Not(Box::new(
            Expression::Meta {
                what: Meta::Mark, shift: 0, mask: 0, relation: Relation::Greater, value,
            }
        ))))),
    ]
}

fn filter() -> impl Strategy<Value = Filter> {
    let protocol = prop_oneof![
        3 => Just(ANY_PROTOCOL), 3 => Just(0x0800_u16), 1 => Just(0x86dd), 1 => Just(VLAN),
        1 => Just(SERVICE_VLAN), 1 => Just(0x8864), 1 => Just(0x8847), 1 => Just(0x9100),
    ];
    // Some classes exceed the 16 bits that a rank holds.
    let class = prop_oneof![4 => 0..5_u32, 1 => 0xffff..0x1_0004_u32];
    let head = (1..6_u16, protocol, 1..8_u32, class, any::<bool>());
    (head, matches()).prop_map(|((pref, protocol, handle, class, acts), matches)| Filter {
        actions: match acts {
            true => vec![ActionId { kind: ActionKind::Gact, index: 1 }],
            false => vec![],
        },
        ..Filter::new(pref, handle, protocol, matches, class)
    })
}

/// A filter that tests little more than an address. Some have the same prefix.
fn prefix_filter() -> impl Strategy<Value = Filter> {
    let len = || prop_oneof![3 => 16..=32_u8, 1 => 0..=32_u8];
    let ports = some(Just(PortRange { first: 1, last: 2 }));
    let flower =
        (address(), len(), any::<bool>(), ports).prop_map(|(address, len, is_to, ports)| {
            let prefix = Prefix::new(IpAddr::from(address.to_be_bytes()), len);
            let (destination, source) = if is_to { (prefix, None) } else { (None, prefix) };
            Matches::Flower(Flower { destination, source, source_port: ports, ..Flower::default() })
        });
    let word = (address(), len()).prop_map(|(address, len)| {
        let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
        Matches::Words(vec![Selector::network(16, address & mask, mask)])
    });
    let ports = some(Just(PortRange { first: 1, last: 2 }));
    let len = prop_oneof![3 => 32..=64_u8, 1 => 0..=32_u8];
    let to_v6 = (address(), len, ports).prop_map(|(address, len, source_port)| {
        let destination = Prefix::new(IpAddr::from(six(address).to_be_bytes()), len);
        Matches::Flower(Flower { destination, source_port, ..Flower::default() })
    });
    let v4 = prop_oneof![2 => flower, 1 => word].prop_map(|matches| (0x0800, matches));
    let matches = prop_oneof![2 => v4, 1 => to_v6.prop_map(|matches| (0x86dd, matches))];
    (filter(), matches, 1..40_u32).prop_map(|(filter, (protocol, matches), handle)| {
        let protocol = if handle % 4 > 0 { protocol } else { ANY_PROTOCOL };
        Filter { protocol, handle, matches, ..filter }
    })
}

/// A frame; most of its headers are complete.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let tag = prop_oneof![3 => Just(0x8100_u16), 2 => Just(0x88a8), 1 => Just(0x9100)];
    let tags = proptest::collection::vec((tag, 0..3_u16), 0..4);
    let under = prop_oneof![4 => Just(0_u16), 1 => Just(0x8864), 1 => Just(0x8847)];
    let head = ((tags, under), any::<bool>(), 0..=1_u8, 0..80_usize);
    let ip = (address(), address(), prop_oneof![Just(6_u8), Just(17), Just(1)], any::<u8>());
    let transport = (0..4_u16, 0..4_u16, 0..0x40_u8, prop_oneof![5 => Just(0_u16), 1 => 0..3_u16]);
    (head, ip, transport).prop_map(|(((tags, under), is_v6, code, cut), ip, transport)| {
        let (source, destination, protocol, tos) = ip;
        let (one, other, flags, fragment) = transport;
        let mut frame = vec![0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 1];
        for (ether_type, vlan) in tags {
            frame.extend(ether_type.to_be_bytes());
            frame.extend((vlan << 13 | vlan).to_be_bytes());
        }
        frame.extend(match (under, is_v6) {
            (0x8864, false) => vec![0x88, 0x64, 0x11, 0, 0, 1, 0, 42, 0, 0x21],
            (0x8864, true) => vec![0x88, 0x64, 0x11, 0, 0, 1, 0, 62, 0, 0x57],
            (0x8847, _) => vec![0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64],
            (_, false) => vec![0x08, 0x00],
            (_, true) => vec![0x86, 0xdd],
        });
        if is_v6 {
            frame.extend([0x60 | tos >> 4, tos << 4, 0, 0, 0, 20, protocol, 64]);
            frame.extend(six(source).to_be_bytes());
            frame.extend(six(destination).to_be_bytes());
        } else {
            frame.extend([0x45, tos, 0, 40, 0, 0]);
            frame.extend(match fragment {
                0 => [0x40, 0],
                1 => [0x20, 0],
                _ => [0, 1],
            });
            frame.extend([tos, protocol, 0, 0]);
            frame.extend(source.to_be_bytes());
            frame.extend(destination.to_be_bytes());
        }
        if protocol == 1 {
            frame.extend([8, code, 0, 0]);
        } else {
            frame.extend(one.to_be_bytes());
            frame.extend(other.to_be_bytes());
        }
        frame.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        if cut < 15 {
            frame.truncate(frame.len() - 2 * cut);
        }
        frame
    })
}

/// The filters in evaluation order.
type Model = BTreeMap<u64, Arc<Filter>>;

fn filters(model: &Model) -> Filters {
    model.iter().map(|(order, filter)| (*order, Arc::clone(filter))).collect()
}

fn add(model: &mut Model, filter: Filter) {
    model.insert(filter.order(), Arc::new(filter));
}

/// `classifier` with other filters at the qdisc.
fn with(classifier: &Classifier, filters: &Filters) -> Classifier {
    classifier.with(&Blocks::from([(0, filters.clone())]), &Actions::default())
}

/// All matching filters, found by testing one after the other.
fn expected(model: &Model, subject: &Subject<'_>) -> Vec<u64> {
    let matching = model.iter().filter(|(_, filter)| filter.matches(subject));
    matching.map(|(order, _)| *order).collect()
}

/// All matching filters, each found after the one before.
fn found(classifier: &Classifier, subject: &Subject<'_>) -> Vec<u64> {
    let first = classifier.find(subject, None);
    let behind = |last: &&Arc<Filter>| classifier.find(subject, Some(last));
    std::iter::successors(first, behind).map(|filter| filter.order()).collect()
}

/// Sets the mark, and, where there is one, the route, which a mark leaves as it is.
fn set(subject: &mut Subject<'_>, mark: u32) {
    if let Some(from) = mark.checked_sub(1) {
        subject.set_route(RouteTaken { realms: from << 16 | 1, metric: mark & 1 });
    }
    subject.set_mark(mark);
}

/// Packets that are looked up together get the class that each gets alone.
fn check_together(
    classifier: &Classifier,
    model: &Model,
    frames: &[Vec<u8>],
) -> Result<(), TestCaseError> {
    for frames in frames.chunks(AHEAD) {
        let mut subjects: Vec<_> = frames.iter().map(|frame| Subject::new(frame)).collect();
        for (subject, mark) in subjects.iter_mut().flatten().zip((0..3).cycle()) {
            set(subject, mark);
        }
        for (subject, ahead) in subjects.iter().zip(classifier.look_ahead(&subjects)) {
            let Some(subject) = subject else { continue };
            let first = expected(model, subject).first().map_or(0, |order| model[order].class);
            prop_assert_eq!(classifier.class_of(ahead, subject), first);
        }
    }
    Ok(())
}

fn check(classifier: &Classifier, model: &Model, frame: &[u8]) -> Result<(), TestCaseError> {
    for mark in 0..3 {
        let Some(mut subject) = Subject::new(frame) else { return Ok(()) };
        set(&mut subject, mark);
        let expected = expected(model, &subject);
        let class = expected.first().map_or(0, |order| model[order].class);
        prop_assert_eq!(classifier.class_of(Found::default(), &subject), class);
        prop_assert_eq!(found(classifier, &subject), expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn tables_agree_with_a_walk(
        list in proptest::collection::vec(filter(), 0..40),
        frames in proptest::collection::vec(frame(), 1..40),
    ) {
        let mut model = Model::new();
        list.into_iter().for_each(|filter| add(&mut model, filter));
        let classifier = Classifier::new(filters(&model));
        check_together(&classifier, &model, &frames)?;
        for frame in frames {
            check(&classifier, &model, &frame)?;
        }
    }

    #[test]
    fn tables_agree_with_a_walk_where_filters_test_little_more_than_prefixes(
        list in proptest::collection::vec(prefix_filter(), 0..150),
        edits in proptest::collection::vec((prefix_filter(), any::<bool>()), 1..150),
        frames in proptest::collection::vec(frame(), 1..40),
    ) {
        let mut model = Model::new();
        list.into_iter().for_each(|filter| add(&mut model, filter));
        let (before, mut present) = (model.clone(), filters(&model));
        let first = Classifier::new(filters(&model));
        let mut classifier = with(&first, &present);
        for (filter, puts) in edits {
            let order = filter.order();
            if puts {
                present.insert(order, Arc::new(filter.clone()));
                add(&mut model, filter);
            } else {
                present.remove(order);
                model.remove(&order);
            }
            classifier = with(&classifier, &present);
        }
        for (classifier, model) in [(classifier, model), (first, before)] {
            check_together(&classifier, &model, &frames)?;
            frames.iter().try_for_each(|frame| check(&classifier, &model, frame))?;
        }
    }

    #[test]
    fn a_changed_table_is_that_of_the_changed_filters(
        list in proptest::collection::vec(filter(), 0..30),
        edits in proptest::collection::vec((filter(), any::<bool>()), 1..30),
        frames in proptest::collection::vec(frame(), 1..6),
    ) {
        let mut model = Model::new();
        list.into_iter().for_each(|filter| add(&mut model, filter));
        let before = model.clone();
        let first = Classifier::new(filters(&model));
        let mut present = filters(&model);
        let mut classifier = with(&first, &present);
        for (filter, puts) in edits {
            let order = filter.order();
            match puts {
                true => {
                    present.insert(order, Arc::new(filter.clone()));
                    add(&mut model, filter);
                }
                false => {
                    present.remove(order);
                    model.remove(&order);
                }
            }
            classifier = with(&classifier, &present);
            check(&classifier, &model, &frames[0])?;
        }
        check_together(&classifier, &model, &frames)?;
        for frame in frames {
            check(&classifier, &model, &frame)?;
            check(&first, &before, &frame)?;
        }
    }

    #[test]
    fn any_bytes_are_classified(bytes in proptest::collection::vec(any::<u8>(), 0..90),
                                list in proptest::collection::vec(filter(), 0..20)) {
        let mut model = Model::new();
        list.into_iter().for_each(|filter| add(&mut model, filter));
        check(&Classifier::new(filters(&model)), &model, &bytes)?;
    }
}

/// Enough prefix lengths that sieves are used.
#[test]
fn the_longest_prefix_decides_where_priorities_say_so() {
    let mut model = Model::new();
    for len in 0..=32_u16 {
        for address in [0x0a01_0203_u32, 0x0a01_ff00, 0x0b00_0000, 0xffff_ffff] {
            let prefix = Prefix::new(IpAddr::from(address.to_be_bytes()), len as u8).unwrap();
            let bits = prefix.bits().0 as u32;
            add(
                &mut model,
                Filter::new(
                    33 - len,
                    bits,
                    0x0800,
                    Matches::Flower(Flower { destination: Some(prefix), ..Flower::default() }),
                    u32::from(len) + 1,
                ),
            );
        }
    }
    let mut classifier = Classifier::new(filters(&model));
    let frame = |to: u32| {
        let mut frame = vec![0; 12];
        frame.extend([0x08, 0x00, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1]);
        frame.extend(to.to_be_bytes());
        frame
    };
    let class = |classifier: &Classifier, to| classifier.class(&frame(to));
    assert_eq!(class(&classifier, 0x0a01_0203), 33);
    assert_eq!(class(&classifier, 0x0a01_0202), 32);
    assert_eq!(class(&classifier, 0x0a01_0300), 24);
    assert_eq!(class(&classifier, 0x8000_0000), 2);
    assert_eq!(class(&classifier, 0x0bff_0000), 9);
    // Removes the filters one by one, the longest prefix first.
    let mut present = filters(&model);
    for len in (1..=32_u16).rev() {
        let prefix = Prefix::new(IpAddr::from([10, 1, 2, 3]), len as u8).unwrap();
        present.remove(narrows_classify::order(33 - len, prefix.bits().0 as u32));
        classifier = with(&classifier, &present);
        assert_eq!(class(&classifier, 0x0a01_0203), u32::from(len), "that of the next length");
    }
    assert_eq!(class(&classifier, 0x0a01_0203), 1);
}
