//! The image agrees with the set for every address, after any sequence of changes.

use narrows_image::{Full, Words};
use narrows_sets::image::{Layout, find};
use narrows_sets::{Changes, Family, Host, Key, Match, Named, Sets};
use narrows_units::Nanos;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

struct Alone;

impl Host for Alone {
    fn references(&self, _: &str) -> usize {
        0
    }

    fn counted(&self, _: &Named, _: &Key) -> (u64, u64) {
        (0, 0)
    }
}

fn run(sets: &mut Sets, line: &str) {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let reply = sets.run(&words, Nanos::ZERO, &Alone);
    assert_eq!(reply.code, 0, "{line}: {}", reply.stderr);
}

/// Close to each other, so that prefixes meet, at the borders of /8, /16, /18 and /24.
fn v4() -> impl Strategy<Value = IpAddr> {
    let high = prop_oneof![
        Just(0x0a00_0000_u32),
        Just(0x0a00_3f00),
        Just(0x0aff_ff00),
        Just(u32::MAX << 8)
    ];
    (high, 0..0x4100_u32).prop_map(|(high, low)| IpAddr::V4(Ipv4Addr::from(high.wrapping_add(low))))
}

fn v4_len() -> BoxedStrategy<u8> {
    prop_oneof![1 => 1..=17_u8, 3 => 18..=24_u8, 3 => 25..=32_u8].boxed()
}

/// Alike up to some bit, at which some of them differ: long common parts and short ones.
fn v6() -> impl Strategy<Value = IpAddr> {
    let begin = prop_oneof![4 => Just(0x2001_0db8_u128 << 96), 1 => Just(u128::MAX), 1 => Just(0)];
    let bit = || prop_oneof![0..128_u32, 28..40_u32, 60..68_u32, 120..128_u32];
    (begin, bit(), bit(), 0..4_u128, 0..128_u32).prop_map(|(begin, one, other, few, at)| {
        IpAddr::V6(Ipv6Addr::from(begin ^ 1 << one ^ 1 << other ^ few << at))
    })
}

fn v6_len() -> BoxedStrategy<u8> {
    prop_oneof![1 => 1..=18_u8, 4 => 19..=64_u8, 2 => 65..=127_u8, 3 => Just(128_u8)].boxed()
}

#[derive(Clone, Debug)]
struct Edit {
    address: IpAddr,
    len: u8,
    is_exception: bool,
    is_deletion: bool,
}

fn edit(
    address: impl Strategy<Value = IpAddr>,
    len: BoxedStrategy<u8>,
) -> impl Strategy<Value = Edit> {
    (address, len, any::<bool>(), prop::bool::weighted(0.3)).prop_map(
        |(address, len, is_exception, is_deletion)| Edit {
            address,
            len,
            is_exception,
            is_deletion,
        },
    )
}

/// The address as the first of 128 bits.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => v6.into(),
    }
}

/// The address of `family` that has these bits.
fn address(family: Family, bits: u128) -> IpAddr {
    match family {
        Family::Inet => Ipv4Addr::from((bits >> 96) as u32).into(),
        Family::Inet6 => Ipv6Addr::from(bits).into(),
    }
}

/// The first and last addresses of the prefixes in `edits`, and those just behind.
fn borders(edits: &[Edit]) -> impl Iterator<Item = IpAddr> + '_ {
    edits.iter().flat_map(|edit| {
        let family = if edit.address.is_ipv4() { Family::Inet } else { Family::Inet6 };
        let end = bits(edit.address) | u128::MAX.checked_shr(edit.len.into()).unwrap_or(0);
        let unit = 1 << (128 - family.bits());
        [bits(edit.address), end, end.wrapping_add(unit)].map(|bits| address(family, bits))
    })
}

/// Makes `edits` in a set of `family`, some at a time, and asks for all addresses each time.
fn follow(family: Family, edits: &[Edit], asked: Vec<IpAddr>, apart: usize) -> TestCaseResult {
    let mut sets = Sets::default();
    run(&mut sets, &format!("create a hash:net family {}", family.name()));
    let mut memory = Words::default();
    let mut layout: Option<Layout> = None;
    let all: Vec<IpAddr> = asked.into_iter().chain(borders(edits)).collect();
    for some in edits.chunks(apart) {
        for Edit { address, len, is_exception, is_deletion } in some {
            let except = if *is_exception { "nomatch" } else { "" };
            run(
                &mut sets,
                &if *is_deletion {
                    format!("-exist del a {address}/{len}")
                } else {
                    format!("-exist add a {address}/{len} {except}")
                },
            );
        }
        let (_, Named { set, .. }) = sets.iter_mut().next().unwrap();
        let changes = set.take_changes();
        let updated = match (&mut layout, &changes) {
            (Some(layout), Changes::Of(keys)) => layout.update(set, keys, &mut memory),
            _ => Err(Full),
        };
        if updated.is_err() {
            // With a little room for additions.
            memory = Words(vec![0; Layout::size(set) + 300]);
            layout = Some(Layout::new(set, &mut memory).unwrap());
        }
        for &address in &all {
            let packet = Match { address, port: (0, 0) };
            prop_assert_eq!(
                find(&memory.0, family, bits(address)),
                set.contains(&packet),
                "{}",
                address
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn images_follow_any_changes_of_members(
        edits in prop::collection::vec(edit(v4(), v4_len()), 0..40),
        asked in prop::collection::vec(v4(), 40),
        apart in 1..10_usize,
    ) {
        follow(Family::Inet, &edits, asked, apart)?;
    }

    #[test]
    fn images_follow_any_changes_of_ipv6_members(
        edits in prop::collection::vec(edit(v6(), v6_len()), 0..60),
        asked in prop::collection::vec(v6(), 40),
        apart in 1..10_usize,
    ) {
        follow(Family::Inet6, &edits, asked, apart)?;
    }
}

#[test]
fn single_addresses_take_32_bytes_each_at_most() {
    let mut sets = Sets::default();
    run(&mut sets, "create a hash:ip maxelem 100000");
    for number in 0..100_000_u32 {
        // Each in a block of its own, as long as there are free ones.
        run(&mut sets, &format!("add a {}", Ipv4Addr::from(number.wrapping_mul(0x9e37_79b1))));
    }
    let size = Layout::size(&sets.get("a").unwrap().set) * size_of::<u64>();
    assert!(size <= (512 << 10) + 32 * 100_000, "{size}");
}

#[test]
fn prefixes_of_ipv6_take_64_bytes_each_at_most() {
    let mut sets = Sets::default();
    run(&mut sets, "create a hash:net family inet6 maxelem 100000");
    for number in 0..100_000_u32 {
        let mixed = u128::from(number.wrapping_mul(0x9e37_79b1));
        let net = 0x2001_0000_u128 << 96 | mixed << 64 & (0xfff << 96) | mixed << 64 | mixed << 7;
        let len = [48, 56, 64, 128][(number % 4) as usize];
        run(&mut sets, &format!("-exist add a {}/{len}", Ipv6Addr::from(net)));
    }
    let size = Layout::size(&sets.get("a").unwrap().set) * size_of::<u64>();
    assert!(size <= (32 << 10) + 64 * 100_000, "{size}");
}
