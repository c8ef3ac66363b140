//! Filters in the driver, run by the kernel on frames that never were on a wire.

use super::*;
use crate::Field;
use crate::test_run::{DROP, PASS, TestRun, as_xdp, test_run};
use narrows_sets::{Host, Key, Match, Named, Sets};
use narrows_units::Nanos;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

mod cost;
mod police;
mod verified;

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];
const PORT: FrontPort<'static> = FrontPort {
    own: OwnAddress::of(OWN, true),
    multi_buffer: false,
    entry: Entry::Own,
    handed: None,
};

struct Alone;

impl Host for Alone {
    fn references(&self, _: &str) -> usize {
        0
    }

    fn counted(&self, _: &Named, _: &Key) -> (u64, u64) {
        (0, 0)
    }
}

/// Sets, and their maps, for programs at one of the hooks.
struct Bench {
    entry: Entry,
    sets: Sets,
    tables: SetTables,
    maps: FrontMaps,
}

impl Bench {
    /// One for each hook; none, and a line with the reason, if none can be made here.
    fn at_each_hook() -> impl Iterator<Item = Self> {
        [Entry::Own, Entry::Tcx].into_iter().filter_map(Self::at)
    }

    fn at(entry: Entry) -> Option<Self> {
        let make = || {
            let tables = SetTables::new().map_err(|error| error.to_string())?;
            let maps = FrontMaps::new().map_err(|error| error.to_string())?;
            Ok::<_, String>(Self { entry, sets: Sets::default(), tables, maps })
        };
        make().map_err(|error| eprintln!("SKIPPED: {error}")).ok()
    }

    #[track_caller]
    fn run(&mut self, line: &str) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let reply = self.sets.run(&words, Nanos::ZERO, &Alone);
        assert_eq!(reply.code, 0, "{line}: {}", reply.stderr);
        self.tables.follow(&mut self.sets).unwrap();
    }

    fn look_up(&self, set: &str, is_negated: bool) -> LookUp {
        let set = self.sets.get(set).unwrap().slot as u16;
        LookUp { set, address: Endpoint::Source, port: None, is_negated }
    }

    fn front(&mut self, terms: &[Term]) -> Loaded {
        let entry = self.entry;
        let port = FrontPort { entry, ..PORT };
        let front = Front::load(port, terms, Some(&self.tables), &mut self.maps).unwrap();
        Loaded { front, entry }
    }

    /// Drops what comes from the set `live`, which is 10.0.0.0/8 at first.
    fn dropping_live(&mut self) -> Loaded {
        self.run("create live hash:net");
        self.run("add live 10.0.0.0/8");
        let look_up = self.look_up("live", false);
        self.dropping(&[look_up])
    }

    /// A program that drops frames in all of `look_ups`.
    fn dropping(&mut self, look_ups: &[LookUp]) -> Loaded {
        self.front(&[term(look_ups, Then::Drop, 0)])
    }
}

/// A program, and its hook.
struct Loaded {
    front: Front,
    entry: Entry,
}

/// A step that decides, and counts.
fn decide(then: Then, counter: u8) -> Step {
    Step { does: Does::Decide, then, exceed: then, counter: Some(counter) }
}

/// A term for packets in all of `look_ups`, and what happens to them.
fn term(look_ups: &[LookUp], then: Then, counter: u8) -> Term {
    let steps = vec![decide(then, counter)];
    Term { look_ups: look_ups.to_vec(), steps, ..Term::any() }
}

/// A frame of UDP from `source`, from port 1000 to port 53 of some other box.
fn frame(source: IpAddr) -> Vec<u8> {
    let mut frame = vec![4; 12];
    match source {
        IpAddr::V4(source) => {
            frame.extend([8, 0, 0x45, 0, 0, 50, 0, 0, 0, 0, 64, 17, 0, 0]);
            frame.extend(source.octets());
            frame.extend([192, 0, 2, 1]);
        }
        IpAddr::V6(source) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 30, 17, 64]);
            frame.extend(source.octets());
            frame.extend([0x20; 16]);
        }
    }
    frame.extend([1000_u16.to_be_bytes(), 53_u16.to_be_bytes(), [0, 30], [0, 0]].concat());
    frame.extend([0; 22]);
    frame
}

/// The verdict on `frame`, as XDP's, and the time per frame in ns over `times` runs.
fn run(loaded: &Loaded, frame: &[u8], times: u32) -> (u32, u32) {
    let TestRun { verdict, ns, .. } = test_run(loaded.front.program(), frame, times).unwrap();
    (as_xdp(loaded.entry, verdict), ns)
}

fn is_dropped(front: &Loaded, source: &str) -> bool {
    match run(front, &frame(source.parse().unwrap()), 1).0 {
        DROP => true,
        PASS => false,
        other => panic!("{other}"),
    }
}

/// What was dropped, on all CPUs together.
fn dropped(maps: &FrontMaps) -> Counted {
    maps.dropped().into_iter().sum()
}

#[test]
fn programs_of_another_process_count_drops_in_the_same_place_and_steps_anew() {
    for mut bench in Bench::at_each_hook() {
        bench.run("create a hash:net");
        bench.run("add a 10.0.0.0/8");
        let look_up = bench.look_up("a", false);
        let before = bench.dropping(&[look_up]);
        assert!(is_dropped(&before, "10.0.0.1"));
        let inherited = bench.maps.counts_dropped().try_clone_to_owned().unwrap();
        bench.maps = FrontMaps::counting_on(Some(inherited)).unwrap();
        let after = bench.dropping(&[look_up]);
        // Meanwhile either may run.
        assert!(is_dropped(&before, "10.0.0.2") && is_dropped(&after, "10.0.0.3"));
        assert_eq!((dropped(&bench.maps).drops, bench.maps.get(0).drops), (3, 1));
        let inherited = bench.maps.counts_dropped().try_clone_to_owned().unwrap();
        bench.maps = FrontMaps::counting_on(Some(inherited)).unwrap();
        bench.dropping(&[look_up]);
        assert_eq!((dropped(&bench.maps).drops, bench.maps.get(0).drops), (3, 0));
    }
}

#[test]
fn only_packets_in_a_set_are_dropped_and_counted() {
    for mut bench in Bench::at_each_hook() {
        bench.run("create a hash:net");
        let look_up = bench.look_up("a", false);
        let front = bench.dropping(&[look_up]);
        assert!(!is_dropped(&front, "10.0.0.1"), "nothing is in it");
        bench.run("add a 10.0.0.0/8");
        bench.run("add a 10.1.0.0/16 nomatch");
        bench.run("add a 192.0.2.7");
        for (source, is) in [
            ("10.0.0.1", true),
            ("10.255.255.255", true),
            ("10.1.0.1", false),
            ("11.0.0.0", false),
            ("192.0.2.7", true),
            ("192.0.2.6", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_dropped(&front, source), is, "{source}");
        }
        let counted = bench.maps.get(0);
        assert_eq!((counted.packets, counted.bytes, counted.drops), (3, 3 * 64, 3));
        assert_eq!(dropped(&bench.maps), counted);
        bench.run("del a 192.0.2.7");
        assert!(!is_dropped(&front, "192.0.2.7"));
        bench.run("flush a");
        assert!(!is_dropped(&front, "10.0.0.1"));
        // Frames for this box go to its kernel only.
        bench.run("add a 10.0.0.0/8");
        let mut own = frame("10.0.0.1".parse().unwrap());
        own[..6].copy_from_slice(&OWN);
        assert_eq!(run(&front, &own, 1).0, PASS);
        // Half a header matches nothing. The kernel has no test runs for such packets.
        let whole = frame("10.0.0.1".parse().unwrap());
        for len in (14..34).filter(|_| bench.entry == Entry::Own) {
            assert_eq!(run(&front, &whole[..len], 1).0, PASS, "{len}");
        }
        // A tag in front makes no difference.
        let tagged = [&whole[..12], &[0x81, 0, 0, 5], &whole[12..]].concat();
        assert_eq!(run(&front, &tagged, 1).0, DROP);
    }
}

#[test]
fn the_first_term_that_matches_decides() {
    for mut bench in Bench::at_each_hook() {
        bench.run("create friends hash:ip");
        bench.run("create bad hash:net");
        bench.run("add bad 10.0.0.0/8");
        bench.run("add friends 10.0.0.1");
        let friends = bench.look_up("friends", false);
        let bad = bench.look_up("bad", false);
        let of = |ether_type: u16, look_up, then, counter| {
            let mut term = term(&[look_up], then, counter);
            term.headers.ask(Field::EtherType, &ether_type.to_be_bytes(), &[0xff; 2]);
            term
        };
        let [friend, foe] = [of(0x0800, friends, Then::Pass, 3), of(0x0800, bad, Then::Drop, 4)];
        let front = bench.front(&[friend.clone(), foe.clone()]);
        let sources = ["10.0.0.1", "10.0.0.2", "11.0.0.1"];
        assert_eq!(sources.map(|source| is_dropped(&front, source)), [false, true, false]);
        assert_eq!([3, 4].map(|counter| bench.maps.get(counter).packets), [1, 1]);
        assert_eq!(dropped(&bench.maps).packets, 1);
        // The same as one term.
        let not_friends = bench.look_up("friends", true);
        let front = bench.dropping(&[bad, not_friends]);
        assert_eq!(sources.map(|source| is_dropped(&front, source)), [false, true, false]);
        // A protocol that is not the packet's.
        let front = bench.front(&[of(0x86dd, bad, Then::Drop, 4)]);
        assert!(!is_dropped(&front, "10.0.0.2"));
        // One filter of two terms acts once, and with `Continue` the next filter is tested.
        let either = [
            Term { has_more: true, ..term(&[bad], Then::Continue, 5) },
            term(&[friends], Then::Continue, 5),
            term(&[bad], Then::Drop, 6),
        ];
        let front = bench.front(&either);
        assert_eq!(sources.map(|source| is_dropped(&front, source)), [true, true, false]);
        assert_eq!([5, 6].map(|counter| bench.maps.get(counter).packets), [2, 2]);
    }
}

#[test]
fn as_many_look_ups_as_there_may_be_are_accepted() {
    for mut bench in Bench::at_each_hook() {
        bench.run("create a hash:net");
        bench.run("create b hash:net family inet6");
        bench.run("add a 10.0.0.0/8");
        let [in_a, not_in_b] = [bench.look_up("a", false), bench.look_up("b", true)];
        let other = LookUp { address: Endpoint::Destination, ..in_a };
        let mut terms = vec![term(&[in_a, not_in_b, in_a, other], Then::Drop, 0); TERMS_MAX];
        // Only the last one matches.
        terms.last_mut().unwrap().look_ups.truncate(LOOK_UPS_MAX - 1);
        let front = bench.front(&terms);
        assert!(is_dropped(&front, "10.0.0.1"));
        assert!(!is_dropped(&front, "11.0.0.1"));
    }
}

#[test]
fn ipv6_ports_ethernet_addresses_and_counters_are_looked_up_too() {
    for mut bench in Bench::at_each_hook() {
        bench.run("create six hash:net family inet6");
        bench.run("add six 2001:db8::/29");
        bench.run("add six 2001:db9:7::/48");
        bench.run("add six 2001:db9:7:1::/64 nomatch");
        bench.run("add six 2001:db9:7:1::9");
        let look_up = bench.look_up("six", false);
        let front = bench.dropping(&[look_up]);
        for (source, is) in [
            ("2001:db8:1::1", true),
            ("2001:dbf:ffff::1", true),
            ("2001:dc0::1", false),
            ("2001:db9:7::1", true),
            ("2001:db9:7:1::1", false),
            ("2001:db9:7:1::9", true),
            ("10.0.0.1", false),
        ] {
            assert_eq!(is_dropped(&front, source), is, "{source}");
        }
        bench.run("create ports hash:net,port");
        bench.run("add ports 10.0.0.0/8,udp:53");
        let look_up = bench.look_up("ports", false);
        let by = |port| LookUp { port: Some(port), ..look_up };
        let (to, from) =
            (bench.dropping(&[by(Endpoint::Destination)]), bench.dropping(&[by(Endpoint::Source)]));
        assert!(is_dropped(&to, "10.0.0.1") && !is_dropped(&from, "10.0.0.1"));
        assert!(!is_dropped(&to, "11.0.0.1"));
        bench.run("create macs hash:mac");
        let look_up = bench.look_up("macs", false);
        let front = bench.dropping(&[look_up]);
        assert!(!is_dropped(&front, "10.0.0.1"));
        bench.run("add macs 04:04:04:04:04:04");
        assert!(is_dropped(&front, "10.0.0.1") && is_dropped(&front, "2001:db8::1"));
        bench.run("create counts hash:net counters");
        bench.run("add counts 10.0.0.0/8 packets 5 bytes 7");
        bench.run("add counts 10.1.0.0/16");
        let look_up = bench.look_up("counts", false);
        let front = bench.dropping(&[look_up]);
        for source in ["10.0.0.1", "10.1.0.1", "10.1.0.2", "11.0.0.1"] {
            is_dropped(&front, source);
        }
        let counted = |bench: &Bench, net: &str, len| {
            let contents = bench.sets.get("counts").unwrap().contents;
            bench.tables.counted(contents, &Key::prefix(net.parse().unwrap(), len))
        };
        assert_eq!(counted(&bench, "10.0.0.0", 8), Some((6, 7 + 64)));
        assert_eq!(counted(&bench, "10.1.0.0", 16), Some((2, 2 * 64)));
        // Existing accounts survive any flood.
        bench.run("add counts 172.16.0.0-172.31.255.255");
        bench.run("add counts 11.0.0.1-11.3.255.254");
        assert_eq!(counted(&bench, "10.1.0.0", 16), Some((2, 2 * 64)));
    }
}

#[test]
fn swapped_sets_are_swapped_and_destroyed_ones_hold_nothing() {
    for mut bench in Bench::at_each_hook() {
        let front = bench.dropping_live();
        // More often than there are tables: they are used again.
        for round in 0..200 {
            bench.run("create next hash:net");
            bench.run(&format!("add next 11.{round}.0.0/16"));
            bench.run("swap live next");
            bench.run("destroy next");
            assert!(is_dropped(&front, &format!("11.{round}.0.1")), "{round}");
            assert!(!is_dropped(&front, "10.0.0.1"));
        }
        bench.run("destroy live");
        assert!(!is_dropped(&front, "11.199.0.1"));
    }
}

#[test]
fn many_changes_one_by_one_are_followed() {
    for mut bench in Bench::at_each_hook() {
        for family in ["inet", "inet6"] {
            bench.run(&format!("create a hash:net family {family}"));
            let look_up = bench.look_up("a", false);
            let front = bench.dropping(&[look_up]);
            let address = |number: u32| -> IpAddr {
                match family {
                    "inet" => Ipv4Addr::from(number.wrapping_mul(0x9e37_79b1)).into(),
                    _ => Ipv6Addr::from(u128::from(number % 7) << 96 | u128::from(number) << 64)
                        .into(),
                }
            };
            let len = |number: u32| match family {
                "inet" => 9 + number % 24,
                _ => 64 + number % 65,
            };
            for number in 1..1500 {
                bench.run(&format!("-exist add a {}/{}", address(number), len(number)));
                if number % 3 == 0 {
                    let gone = number / 2;
                    bench.run(&format!("-exist del a {}/{}", address(gone), len(gone)));
                }
                let asked = address(number * 2 / 3);
                let is_in = bench
                    .sets
                    .get("a")
                    .unwrap()
                    .set
                    .contains(&Match { address: asked, port: (0, 0) });
                assert_eq!(is_dropped(&front, &asked.to_string()), is_in, "{number}: {asked}");
            }
            bench.run("destroy a");
        }
    }
}

#[test]
fn sets_of_many_chunks_agree_with_the_set_before_and_after_changes() {
    for mut bench in Bench::at_each_hook() {
        for family in ["inet", "inet6"] {
            let line = format!("create a hash:net family {family} maxelem 100000");
            bench.run(&line);
            let look_up = bench.look_up("a", false);
            let front = bench.dropping(&[look_up]);
            let address = |number: u32| -> IpAddr {
                let spread = number.wrapping_mul(0x9e37_79b1);
                match family {
                    "inet" => Ipv4Addr::from(spread).into(),
                    _ => Ipv6Addr::from(u128::from(spread) << 96 | u128::from(number) << 64).into(),
                }
            };
            let len = |number: u32| match family {
                "inet" => 20 + number % 13,
                _ => 40 + number % 89,
            };
            for number in 0..60_000 {
                let line = format!("-exist add a {}/{}", address(number), len(number));
                let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
                assert_eq!(bench.sets.run(&words, Nanos::ZERO, &Alone).code, 0);
            }
            for round in 0..3 {
                bench.tables.follow(&mut bench.sets).unwrap();
                let set = &bench.sets.get("a").unwrap().set;
                for number in (0..120_000).step_by(97) {
                    let address = address(number);
                    let is_in = set.contains(&Match { address, port: (0, 0) });
                    assert_eq!(
                        is_dropped(&front, &address.to_string()),
                        is_in,
                        "{round}: {address}"
                    );
                }
                for number in (round * 10..60_000).step_by(1000) {
                    bench.run(&format!("-exist del a {}/{}", address(number), len(number)));
                }
            }
            bench.run("destroy a");
        }
    }
}

#[test]
fn no_packet_misses_a_set_while_it_is_replaced() {
    for mut bench in Bench::at_each_hook() {
        let front = bench.dropping_live();
        let frame = frame("10.0.0.1".parse().unwrap());
        let is_over = AtomicBool::new(false);
        let frames = thread::scope(|scope| {
            let running = scope.spawn(|| {
                let mut frames = 0;
                while !is_over.load(Relaxed) {
                    run(&front, &frame, 1000);
                    frames += 1000;
                }
                frames
            });
            for round in 0..10 {
                bench.run("create next hash:net");
                bench.run("add next 10.0.0.0/8");
                bench.run("swap live next");
                bench.run("destroy next");
                // Until there is no room for more changes, and the set is written anew.
                for host in 0..2048_u32 {
                    let [a, b] = [host / 256, host % 256];
                    bench.run(&format!("add live 11.{}.{b}.{round}", round * 8 + a));
                }
            }
            is_over.store(true, Relaxed);
            running.join().unwrap()
        });
        assert_eq!(dropped(&bench.maps).packets, frames);
    }
}
