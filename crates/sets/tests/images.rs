//! What is laid out says of every address what the set says, however it came about.

use narrows_sets::image::{Cell, Cells, Full, Layout, find, layers};
use narrows_sets::{Changes, Host, Key, Match, Named, Sets};
use narrows_units::Nanos;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};

struct Alone;

impl Host for Alone {
    fn references(&self, _: &str) -> usize {
        0
    }

    fn counted(&self, _: &Named, _: &Key) -> (u64, u64) {
        (0, 0)
    }
}

/// Cells as whoever looks up sees them.
#[derive(Default)]
struct Memory(Vec<Cell>);

impl Cells for Memory {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn write(&mut self, index: usize, cell: &Cell) {
        assert_eq!(self.0[index], [0; 8], "what may be read is never written again");
        self.0[index] = *cell;
    }

    fn publish(&mut self, index: usize, word: usize, value: u32) {
        self.0[index][word] = value;
    }
}

fn run(sets: &mut Sets, line: &str) {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let reply = sets.run(&words, Nanos::ZERO, &Alone);
    assert_eq!(reply.code, 0, "{line}: {}", reply.stderr);
}

/// Close to each other, so that prefixes meet, at the borders of /8, /18 and /24.
fn address() -> impl Strategy<Value = u32> {
    let high = prop_oneof![
        Just(0x0a00_0000_u32),
        Just(0x0a00_3f00),
        Just(0x0aff_ff00),
        Just(u32::MAX << 8)
    ];
    (high, 0..0x4100_u32).prop_map(|(high, low)| high.wrapping_add(low))
}

#[derive(Clone, Debug)]
struct Edit {
    address: u32,
    len: u8,
    is_exception: bool,
    is_deletion: bool,
}

fn edit() -> impl Strategy<Value = Edit> {
    let len = prop_oneof![1 => 1..=17_u8, 3 => 18..=24_u8, 3 => 25..=32_u8];
    (address(), len, any::<bool>(), prop::bool::weighted(0.3)).prop_map(
        |(address, len, is_exception, is_deletion)| Edit {
            address,
            len,
            is_exception,
            is_deletion,
        },
    )
}

proptest! {
    // Each case lays a million addresses out, again and again.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_is_added_and_deleted(
        edits in prop::collection::vec(edit(), 0..40),
        asked in prop::collection::vec(address(), 40),
        apart in 1..10_usize,
    ) {
        let mut sets = Sets::default();
        run(&mut sets, "create a hash:net");
        let mut memory = Memory::default();
        let mut layout: Option<Layout> = None;
        let all = asked.into_iter().chain(edits.iter().flat_map(|edit| {
            let last = edit.address | u32::MAX.checked_shr(edit.len.into()).unwrap_or(0);
            [edit.address, last, last.wrapping_add(1)]
        }));
        let all: Vec<u32> = all.collect();
        for some in edits.chunks(apart) {
            for Edit { address, len, is_exception, is_deletion } in some {
                let (net, except) = (Ipv4Addr::from(*address), if *is_exception { "nomatch" } else { "" });
                run(&mut sets, &if *is_deletion {
                    format!("-exist del a {net}/{len}")
                } else {
                    format!("-exist add a {net}/{len} {except}")
                });
            }
            let (_, Named { set, .. }) = sets.iter_mut().next().unwrap();
            let changes = set.take_changes();
            let updated = match (&mut layout, &changes) {
                (Some(layout), Changes::Of(keys)) => layout.update(set, keys, &mut memory),
                _ => Err(Full),
            };
            if updated.is_err() {
                // With a little room for what is to come.
                memory = Memory(vec![[0; 8]; Layout::size(set) + 70]);
                layout = Some(Layout::new(set, &mut memory).unwrap());
            }
            for &address in &all {
                let packet = Match { address: IpAddr::V4(address.into()), port: (0, 0) };
                prop_assert_eq!(find(&memory.0, 0, address), set.contains(&packet),
                    "{}", Ipv4Addr::from(address));
            }
        }
    }

    #[test]
    fn of_ipv6_short_prefixes_are_painted_and_longer_ones_announced(
        nets in prop::collection::vec((address(), 1..=128_u8), 0..30),
        asked in prop::collection::vec(address(), 40),
    ) {
        let mut sets = Sets::default();
        run(&mut sets, "create a hash:net family inet6");
        let v6 = |top: u32| std::net::Ipv6Addr::from(u128::from(top) << 96);
        for (top, len) in &nets {
            run(&mut sets, &format!("-exist add a {}/{len}", v6(*top)));
        }
        let set = &sets.get("a").unwrap().set;
        let mut memory = Memory(vec![[0; 8]; Layout::size(set)]);
        Layout::new(set, &mut memory).unwrap();
        prop_assert_eq!(layers(set), 2);
        for top in asked.into_iter().chain(nets.iter().map(|(top, _)| *top)) {
            let covers = |(net, len): &(u32, u8)| *len <= 32 && (net ^ top) >> (32 - len) == 0;
            prop_assert_eq!(find(&memory.0, 0, top), nets.iter().any(covers));
            let is_deeper = nets.iter().any(|(net, len)| *len > 32 && *net == top);
            prop_assert_eq!(find(&memory.0, 1, top), is_deeper);
        }
    }
}

#[test]
fn a_million_addresses_take_64_bytes_each_at_most() {
    let mut sets = Sets::default();
    run(&mut sets, "create a hash:ip maxelem 100000");
    for number in 0..100_000_u32 {
        // Each in a block of its own, as far as there are some.
        run(&mut sets, &format!("add a {}", Ipv4Addr::from(number.wrapping_mul(0x9e37_79b1))));
    }
    let size = Layout::size(&sets.get("a").unwrap().set) * size_of::<Cell>();
    assert!(size <= (1 << 20) + 64 * 100_000, "{size}");
}
