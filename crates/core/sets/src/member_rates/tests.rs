use super::*;
use crate::kind::{Kind, Shape};
use narrows_units::Rate;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn pace(kbit: u64) -> PaceId {
    PaceId::of(Rate::from_bits_per_sec(kbit * 1000)).unwrap_or_default()
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => v6.into(),
    }
}

/// Few addresses and many lengths, so that prefixes cover one another.
fn address(family: Family) -> impl Strategy<Value = IpAddr> {
    any::<u8>().prop_map(move |low| {
        let low = u32::from(low & 0x83);
        match family {
            Family::Inet => Ipv4Addr::from(0x0a00_0000 | low << 24 | low).into(),
            Family::Inet6 => Ipv6Addr::from(u128::from(low) << 120 | u128::from(low)).into(),
        }
    })
}

proptest! {
    /// The oracle looks for the longest prefix in a map.
    #[test]
    fn a_packet_has_the_rate_of_the_longest_prefix_that_covers_it(
        (family, steps) in prop::sample::select(vec![Family::Inet, Family::Inet6]).prop_flat_map(
            |family| {
                let len = 1..=family.bits();
                let step = (address(family), len, prop::option::of(0u64..5));
                (Just(family), prop::collection::vec(step, 1..400))
            },
        ),
        asked in prop::collection::vec(any::<u8>(), 10),
    ) {
        let mut rates = MemberRates::new(family);
        let mut model: BTreeMap<Key, PaceId> = BTreeMap::new();
        for (address, len, kbit) in steps {
            let key = Key::prefix(address, len);
            match kbit {
                Some(kbit) => {
                    rates.put(&key, pace(kbit));
                    model.insert(key, pace(kbit));
                }
                None if model.remove(&key).is_some() => rates.remove(&key),
                None => {}
            }
            prop_assert_eq!(rates.live, model.len());
        }
        for low in asked.into_iter().map(|low| u32::from(low & 0x83)) {
            let address: IpAddr = match family {
                Family::Inet => Ipv4Addr::from(0x0a00_0000 | low << 24 | low).into(),
                Family::Inet6 => Ipv6Addr::from(u128::from(low) << 120 | u128::from(low)).into(),
            };
            let lengths = (1..=family.bits()).rev();
            let found = lengths.map(|len| Key::prefix(address, len)).find_map(|key| model.get(&key));
            let expected = found.copied().filter(|pace| *pace != PaceId::NONE);
            prop_assert_eq!(rates.table().find(bits(address)), expected);
        }
    }
}

#[test]
fn a_million_members_take_at_most_21_bytes_each() {
    let mut rates = MemberRates::new(Family::Inet);
    for number in 0..1_000_000u32 {
        rates.put(
            &Key::prefix(Ipv4Addr::from(0x0a00_0000 + number).into(), 32),
            pace(1 + number as u64),
        );
    }
    assert_eq!(size_of_val(&*rates.table().words), 8 << 21);
    assert_eq!(rates.table().find(bits(Ipv4Addr::new(10, 0, 0, 7).into())), Some(pace(8)));
    assert_eq!(rates.table().find(bits(Ipv4Addr::new(11, 0, 0, 7).into())), None);
}

#[test]
fn members_that_come_and_go_do_not_make_the_table_grow() {
    let mut rates = MemberRates::new(Family::Inet6);
    for number in 0..100_000u128 {
        let key = Key::prefix(Ipv6Addr::from(number << 64).into(), 64);
        rates.put(&key, pace(5));
        rates.remove(&key);
    }
    assert_eq!(rates.table().words.len(), 3 * LEAST);
    assert_eq!(rates.table().find(7 << 64), None);
}

#[test]
fn a_look_up_beside_changes_finds_a_rate_that_the_member_has_had() {
    let mut rates = MemberRates::new(Family::Inet6);
    let key = |number: u128| Key::prefix(Ipv6Addr::from(number << 64 | number).into(), 128);
    (1..40).for_each(|number| rates.put(&key(number), pace(7)));
    let table = Arc::clone(rates.table());
    let stop = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut found = 0;
            while stop.load(Relaxed) == 0 {
                for number in 1..48u128 {
                    let got = table.find(number << 64 | number);
                    let is_had = [None, Some(pace(7)), Some(pace(9_999))].contains(&got);
                    assert!(is_had && (number >= 40 || got.is_some()), "{number}: {got:?}");
                    found += 1;
                }
            }
            found
        });
        for turn in 0..20_000 {
            let changed = if turn % 2 == 0 { pace(9_999) } else { pace(7) };
            (1..40).for_each(|number| rates.put(&key(number), changed));
            if turn % 2 == 0 {
                rates.put(&key(40), changed);
            } else {
                rates.remove(&key(40));
            }
        }
        stop.store(1, Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    assert!(Arc::ptr_eq(&table, rates.table()), "nothing made the table full");
}

#[test]
fn a_reader_follows_the_board_when_it_is_refreshed() {
    use crate::{Host, Named};
    struct Nobody;
    impl Host for Nobody {
        fn references(&self, _: &str) -> usize {
            0
        }
        fn counted(&self, _: &Named, _: &Key) -> (u64, u64) {
            (0, 0)
        }
    }
    let (board, mut sets) = (Arc::new(RateBoard::default()), Sets::default());
    let mut reader = RateReader::new(Arc::clone(&board));
    let mut run = |line: &str| {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let reply = sets.run(&words, narrows_units::Nanos::ZERO, &Nobody);
        assert_eq!(reply.code, 0, "{line}: {reply:?}");
        board.show(&sets);
    };
    let to = bits(Ipv4Addr::new(10, 0, 0, 7).into());
    run("create plans hash:net rate");
    run("create next hash:net rate");
    run("create plain hash:net");
    run("add plans 10.0.0.0/8 rate 5mbit");
    run("add next 10.0.0.0/8 rate 1mbit");
    run("add plain 10.0.0.0/8");
    assert_eq!(reader.rate_of("plans", to, false), None, "not before it is refreshed");
    reader.follow();
    assert_eq!(reader.rate_of("plans", to, false), Some(pace(5000)));
    assert_eq!(
        (reader.rate_of("plain", to, false), reader.rate_of("none", to, false)),
        (None, None)
    );
    assert_eq!(reader.rate_of("plans", to, true), None, "another family");
    run("add plans 10.0.0.7 rate 3mbit");
    run("add plans 10.0.0.8 nomatch");
    assert_eq!(reader.rate_of("plans", to, false), Some(pace(3000)), "a change is there at once");
    assert_eq!(reader.rate_of("plans", to + (1 << 96), false), None, "nomatch");
    run("swap plans next");
    reader.follow();
    assert_eq!(reader.rate_of("plans", to, false), Some(pace(1000)));
    run("flush plans");
    reader.follow();
    assert_eq!(reader.rate_of("plans", to, false), None);
    assert_eq!(sets.get("next").map(|named| named.set.kind().shape), Some(Shape::Net));
    assert!(Kind::new(Shape::Net).fits(&Kind::new(Shape::Net)));
}
