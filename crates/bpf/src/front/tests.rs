//! Filters in the driver, run by the kernel on frames that never were on a wire.

use super::*;
use narrows_sets::{Host, Key, Match, Named, Sets};
use narrows_units::Nanos;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

mod cost;

/// `XDP_DROP` and `XDP_PASS`.
const DROP: u32 = 1;
const PASS: u32 = 2;
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 9];
const PORT: FrontPort = FrontPort { mac: OWN, multi_buffer: false };

struct Alone;

impl Host for Alone {
    fn references(&self, _: &str) -> usize {
        0
    }

    fn counted(&self, _: &Named, _: &Key) -> (u64, u64) {
        (0, 0)
    }
}

/// Sets, and where they are looked up.
struct Bench {
    sets: Sets,
    tables: SetTables,
    counters: FrontCounters,
}

impl Bench {
    /// `None`, and a line that says why, where none can be made here.
    fn new() -> Option<Self> {
        let make = || {
            let tables = SetTables::new().map_err(|error| error.to_string())?;
            let counters = FrontCounters::new().map_err(|error| error.to_string())?;
            Ok::<_, String>(Self { sets: Sets::default(), tables, counters })
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
        LookUp { set, address: By::Source, port: None, is_negated }
    }

    fn front(&self, terms: &[Term]) -> Front {
        Front::load(PORT, terms, &self.tables, &self.counters).unwrap()
    }

    /// A program that drops what is in all of `look_ups`.
    fn dropping(&self, look_ups: &[LookUp]) -> Front {
        let look_ups = look_ups.to_vec();
        self.front(&[Term { ether_type: None, look_ups, drops: true, counter: Some(0) }])
    }
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

/// What becomes of `frame`, and how long one takes in ns where it comes `times`.
fn run(front: &Front, frame: &[u8], times: i32) -> (u32, u32) {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: times,
        ..Default::default()
    };
    let program = front.program().as_raw_fd();
    // SAFETY: `program` is an open descriptor, `frame` outlives the call, which only reads it, and
    // `options` says its own size.
    let outcome = unsafe { libbpf_sys::bpf_prog_test_run_opts(program, &mut options) };
    assert_eq!(outcome, 0, "the kernel does not run it");
    (options.retval, options.duration)
}

fn is_dropped(front: &Front, source: &str) -> bool {
    match run(front, &frame(source.parse().unwrap()), 1).0 {
        DROP => true,
        PASS => false,
        other => panic!("{other}"),
    }
}

#[test]
fn what_is_in_a_set_is_dropped_and_counted_and_nothing_else() {
    let Some(mut bench) = Bench::new() else { return };
    bench.run("create a hash:net");
    let front = bench.dropping(&[bench.look_up("a", false)]);
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
    let Counted { packets, bytes } = bench.counters.get(0);
    assert_eq!((packets, bytes), (3, 3 * 64));
    assert_eq!(bench.counters.dropped(), Counted { packets, bytes });
    bench.run("del a 192.0.2.7");
    assert!(!is_dropped(&front, "192.0.2.7"));
    bench.run("flush a");
    assert!(!is_dropped(&front, "10.0.0.1"));
    // What is for this box is nobody's but its kernel's.
    bench.run("add a 10.0.0.0/8");
    let mut own = frame("10.0.0.1".parse().unwrap());
    own[..6].copy_from_slice(&OWN);
    assert_eq!(run(&front, &own, 1).0, PASS);
    // Half a header is nobody's.
    let whole = frame("10.0.0.1".parse().unwrap());
    for len in 14..34 {
        assert_eq!(run(&front, &whole[..len], 1).0, PASS, "{len}");
    }
    // Behind a tag it is what it is.
    let tagged = [&whole[..12], &[0x81, 0, 0, 5], &whole[12..]].concat();
    assert_eq!(run(&front, &tagged, 1).0, DROP);
}

#[test]
fn the_first_term_that_matches_decides() {
    let Some(mut bench) = Bench::new() else { return };
    bench.run("create friends hash:ip");
    bench.run("create bad hash:net");
    bench.run("add bad 10.0.0.0/8");
    bench.run("add friends 10.0.0.1");
    let friends = bench.look_up("friends", false);
    let bad = bench.look_up("bad", false);
    let term = |look_up, drops, counter| Term {
        ether_type: Some(0x0800),
        look_ups: vec![look_up],
        drops,
        counter: Some(counter),
    };
    let front = bench.front(&[term(friends, false, 3), term(bad, true, 4)]);
    let sources = ["10.0.0.1", "10.0.0.2", "11.0.0.1"];
    assert_eq!(sources.map(|source| is_dropped(&front, source)), [false, true, false]);
    assert_eq!([3, 4].map(|counter| bench.counters.get(counter).packets), [1, 1]);
    assert_eq!(bench.counters.dropped().packets, 1);
    // The same as one term.
    let front = bench.dropping(&[bad, bench.look_up("friends", true)]);
    assert_eq!(sources.map(|source| is_dropped(&front, source)), [false, true, false]);
    // A protocol that is not the packet's.
    let front = bench.front(&[Term { ether_type: Some(0x86dd), ..term(bad, true, 4) }]);
    assert!(!is_dropped(&front, "10.0.0.2"));
}

#[test]
fn ipv6_ports_ethernet_addresses_and_counters_are_looked_up_too() {
    let Some(mut bench) = Bench::new() else { return };
    bench.run("create six hash:net family inet6");
    bench.run("add six 2001:db8::/29");
    bench.run("add six 2001:db9:7::/48");
    bench.run("add six 2001:db9:7:1::/64 nomatch");
    bench.run("add six 2001:db9:7:1::9");
    let front = bench.dropping(&[bench.look_up("six", false)]);
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
    let by = |port| LookUp { port: Some(port), ..bench.look_up("ports", false) };
    let (to, from) = (bench.dropping(&[by(By::Destination)]), bench.dropping(&[by(By::Source)]));
    assert!(is_dropped(&to, "10.0.0.1") && !is_dropped(&from, "10.0.0.1"));
    assert!(!is_dropped(&to, "11.0.0.1"));
    bench.run("create macs hash:mac");
    let front = bench.dropping(&[bench.look_up("macs", false)]);
    assert!(!is_dropped(&front, "10.0.0.1"));
    bench.run("add macs 04:04:04:04:04:04");
    assert!(is_dropped(&front, "10.0.0.1") && is_dropped(&front, "2001:db8::1"));
    bench.run("create counts hash:net counters");
    bench.run("add counts 10.0.0.0/8 packets 5 bytes 7");
    bench.run("add counts 10.1.0.0/16");
    let front = bench.dropping(&[bench.look_up("counts", false)]);
    for source in ["10.0.0.1", "10.1.0.1", "10.1.0.2", "11.0.0.1"] {
        is_dropped(&front, source);
    }
    let counted = |bench: &Bench, net: &str, len| {
        let contents = bench.sets.get("counts").unwrap().contents;
        bench.tables.counted(contents, &Key::prefix(net.parse().unwrap(), len))
    };
    assert_eq!(counted(&bench, "10.0.0.0", 8), Some((6, 7 + 64)));
    assert_eq!(counted(&bench, "10.1.0.0", 16), Some((2, 2 * 64)));
    // However much comes, what is there goes on.
    bench.run("add counts 172.16.0.0-172.31.255.255");
    bench.run("add counts 11.0.0.1-11.3.255.254");
    assert_eq!(counted(&bench, "10.1.0.0", 16), Some((2, 2 * 64)));
}

#[test]
fn swapped_sets_are_swapped_and_destroyed_ones_hold_nothing() {
    let Some(mut bench) = Bench::new() else { return };
    bench.run("create live hash:net");
    bench.run("add live 10.0.0.0/8");
    let front = bench.dropping(&[bench.look_up("live", false)]);
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

#[test]
fn many_changes_one_by_one_are_followed() {
    let Some(mut bench) = Bench::new() else { return };
    for family in ["inet", "inet6"] {
        bench.run(&format!("create a hash:net family {family}"));
        let front = bench.dropping(&[bench.look_up("a", false)]);
        let address = |number: u32| -> IpAddr {
            match family {
                "inet" => Ipv4Addr::from(number.wrapping_mul(0x9e37_79b1)).into(),
                _ => Ipv6Addr::from(u128::from(number % 7) << 96 | u128::from(number) << 64).into(),
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
            let is_in =
                bench.sets.get("a").unwrap().set.contains(&Match { address: asked, port: (0, 0) });
            assert_eq!(is_dropped(&front, &asked.to_string()), is_in, "{number}: {asked}");
        }
        bench.run("destroy a");
    }
}
