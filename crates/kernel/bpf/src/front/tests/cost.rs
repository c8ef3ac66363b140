//! The cost of a look-up, compared with the kernel's own trie.

use super::*;
use crate::Field;
use crate::test_run::duration;
use libbpf_cargo::SkeletonBuilder;
use libbpf_rs::ObjectBuilder;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

/// `AT_ONCE` and `ASKED` of `cost.bpf.c`.
const AT_ONCE: u32 = 64;
const ASKED: u32 = 65_536;
/// The offset of the address in a key of the trie, after the length.
const TRIE_LEN_BYTES: u32 = 4;

/// A number from `seed`, the same each time.
fn number(seed: u32) -> u32 {
    let mixed = (seed ^ seed >> 16).wrapping_mul(0x7feb_352d);
    let mixed = (mixed ^ mixed >> 15).wrapping_mul(0x846c_a68b);
    mixed ^ mixed >> 16
}

/// The prefixes of a list of `count`: single addresses and prefixes of 24 bits and others, as
/// blocklists have them, anywhere or in a tenth of all /24s.
fn prefix(seed: u32, is_six: bool) -> (IpAddr, u8) {
    let len = match number(seed ^ 0x5555) % 10 {
        0..6 => 32,
        6..8 => 24,
        _ => 16 + (number(seed ^ 0x7777) % 15) as u8,
    };
    let top = number(seed);
    match is_six {
        false => (Ipv4Addr::from(top).into(), len),
        // Most of them /48 and /64, under some thousand /32s.
        true => {
            let net = 0x2001_0000 + top % 4096;
            let rest = u128::from(number(seed ^ 0x3333)) << 64;
            let len = [48, 48, 56, 64, 64, 128][(number(seed ^ 0x1111) % 6) as usize];
            (Ipv6Addr::from(u128::from(net) << 96 | rest).into(), len)
        }
    }
}

/// The nanoseconds of a look-up, without choosing the address: the best of several runs over all
/// addresses.
fn cost(bench: &Bench, object: &[u8], mode: u32, asked: &[IpAddr], trie: &[(IpAddr, u8)]) -> f64 {
    let mut open = ObjectBuilder::default().open_memory(object).unwrap();
    let is_six = asked[0].is_ipv6();
    let names = ["set_words", "tables", "paintings", "members"];
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(at) = names.iter().position(|known| *known == name) {
            map.reuse_fd(bench.tables.maps()[at].as_fd()).unwrap();
        }
        if name == "trie" {
            map.set_key_size(TRIE_LEN_BYTES + if is_six { 16 } else { 4 }).unwrap();
        }
        if name.ends_with(".rodata") {
            let data = map.initial_value_mut().unwrap();
            let (first, rest) = data.split_at_mut(4);
            first.copy_from_slice(&mode.to_ne_bytes());
            rest[..4].copy_from_slice(&u32::from(is_six).to_ne_bytes());
        }
    }
    let loaded = open.load().unwrap();
    for map in loaded.maps() {
        let bytes = |address: &IpAddr| {
            let mut bytes = [0; 16];
            match address {
                IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
                IpAddr::V6(v6) => bytes = v6.octets(),
            }
            bytes
        };
        if map.name() == "asked" {
            for (index, address) in (0..ASKED).zip(asked) {
                map.update(&index.to_ne_bytes(), &bytes(address), MapFlags::ANY).unwrap();
            }
        }
        if map.name() == "trie" {
            for (address, len) in trie {
                let bits = if is_six { 16 } else { 4 };
                let key = [&u32::from(*len).to_ne_bytes()[..], &bytes(address)[..bits]].concat();
                map.update(&key, &[1], MapFlags::ANY).unwrap();
            }
        }
    }
    let program = loaded.progs().next().unwrap();
    f64::from(fastest(program.as_fd(), 12, ASKED / AT_ONCE)) / f64::from(AT_ONCE)
}

/// The shortest time in nanoseconds that `program` takes, of several `runs` with so many `times`.
fn fastest(program: BorrowedFd<'_>, runs: u32, times: u32) -> u32 {
    let frame = frame(Ipv4Addr::LOCALHOST.into());
    let run = |_| duration(program, &frame, times).unwrap();
    (0..runs).map(run).min().unwrap_or_default()
}

/// The object of the program `name` beside this file.
fn compiled(name: &str) -> Vec<u8> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let object = std::env::temp_dir().join(format!("nrw-{}-{name}.o", std::process::id()));
    let headers = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let programs = format!("-I{}", place.join("programs").display());
    SkeletonBuilder::new()
        .source(place.join(format!("front/tests/{name}.bpf.c")))
        .obj(&object)
        .clang_args([headers.as_str(), programs.as_str(), "-mcpu=v3"])
        .build()
        .unwrap();
    let bytes = std::fs::read(&object).unwrap();
    std::fs::remove_file(&object).unwrap();
    bytes
}

/// `cargo test --release -p narrows-bpf --lib what_metadata_costs -- --ignored --nocapture`
///
/// What it saves a worker: `cargo test --release -p narrows-packet --lib what_metadata_saves`.
#[test]
#[ignore = "measures; nothing can fail"]
fn what_metadata_costs() {
    let bytes = compiled("metadata");
    let names = ["nothing", "room, filled", "headers read", "headers read, room filled"];
    for (mode, name) in (0_u32..).zip(names) {
        let mut open = ObjectBuilder::default().open_memory(&bytes).unwrap();
        for mut map in open.maps_mut() {
            if map.name().to_string_lossy().ends_with(".rodata") {
                // The first constant.
                map.initial_value_mut().unwrap()[..4].copy_from_slice(&mode.to_ne_bytes());
            }
        }
        let loaded = open.load().unwrap();
        let program = loaded.progs().next().unwrap();
        let best = fastest(program.as_fd(), 9, 1_000_000);
        println!("{name}: {best} ns");
    }
}

/// The memory of this process without that of files, in KiB.
fn of_process() -> u64 {
    kib("/proc/self/status", "RssAnon:")
}

/// What the kernel, for whomever, has allocated in the way of maps, in KiB.
fn of_kernel() -> u64 {
    kib("/proc/meminfo", "VmallocUsed:")
}

fn kib(file: &str, field: &str) -> u64 {
    let text = std::fs::read_to_string(file).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// `cargo test --release -p narrows-bpf --lib what_a_look_up_costs -- --ignored --nocapture`
#[test]
#[ignore = "measures; nothing can fail"]
fn what_a_look_up_costs() {
    let bytes = compiled("cost");
    println!(
        "IPv4/6, prefixes: seconds to load; memory of the process, and what the kernel allocated \
         meanwhile; ns per look-up of a member (of a non-member): set, trie"
    );
    for (is_six, count) in [
        (false, 1000),
        (false, 100_000),
        (false, 1_000_000),
        (true, 1000),
        (true, 100_000),
        (true, 1_000_000),
    ] {
        let Some(mut bench) = Bench::at(Entry::Own) else { return };
        let all: Vec<(IpAddr, u8)> = (0..count).map(|seed| prefix(seed, is_six)).collect();
        let family = if is_six { "inet6" } else { "inet" };
        // The kernel frees the maps of the set before somewhat later.
        thread::sleep(Duration::from_secs(1));
        let before = [of_process(), of_kernel()];
        let mut text = format!("create a hash:net maxelem 2000000 family {family}\n");
        for (address, len) in &all {
            text += &format!("add a {address}/{len}\n");
        }
        let began = Instant::now();
        let mut restore = narrows_sets::Restore::new(text, 1, true);
        while restore.step(&mut bench.sets, Nanos::ZERO, &Alone) {}
        assert_eq!(restore.end().code, 0, "{}", restore.end().stderr);
        bench.tables.follow(&mut bench.sets).unwrap();
        let loading = began.elapsed().as_secs_f64();
        drop(restore);
        let after = [of_process(), of_kernel()];
        let [process, maps] = [0, 1].map(|at| after[at].saturating_sub(before[at]) / 1024);
        let members = (0..ASKED).map(|seed| all[number(seed ^ 0x9999) as usize % all.len()].0);
        let members: Vec<IpAddr> = members.collect();
        let others = (0..ASKED).map(|seed| prefix(seed ^ 0x8000_0000, is_six).0);
        let others: Vec<IpAddr> = others.collect();
        let costs = [&members, &others].map(|asked| {
            let without = cost(&bench, &bytes, 0, asked, &[]);
            let set = cost(&bench, &bytes, 1, asked, &[]) - without;
            let trie = cost(&bench, &bytes, 2, asked, &all) - without;
            (set, trie)
        });
        let [(set, trie), (set_not, trie_not)] = costs;
        println!(
            "{family} {count}: {loading:.2} s, {process} + {maps} MiB; set {set:.0} ({set_not:.0}), trie {trie:.0} ({trie_not:.0})"
        );
    }
}

/// `cargo test --release -p narrows-bpf --lib the_cost_of_a_filter -- --ignored --nocapture`
#[test]
#[ignore = "measures; nothing can fail"]
fn the_cost_of_a_filter() {
    let Some(mut bench) = Bench::at(Entry::Own) else { return };
    bench.run("create a hash:net");
    bench.run("create counts hash:net counters");
    for set in ["a", "counts"] {
        bench.run(&format!("add {set} 10.0.0.1"));
    }
    let best = |front: &Loaded, source: &str| {
        let frame = frame(source.parse().unwrap());
        (0..9).map(|_| run(front, &frame, 1_000_000).1).min().unwrap_or_default()
    };
    let nothing = bench.front(&[]);
    println!("no filter: {} ns, all without the plane's program", best(&nothing, "10.0.0.2"));
    for set in ["a", "counts"] {
        let look_up = bench.look_up(set, false);
        let front = bench.dropping(&[look_up]);
        let (dropped, passed) = (best(&front, "10.0.0.1"), best(&front, "10.0.0.2"));
        println!("set {set}: dropped {dropped} ns, passed {passed} ns");
    }
    let from = |host: u8| {
        let mut flower = term(&[], Then::Drop, 0);
        flower.headers.ask(Field::Ip, &[4], &[0xff]);
        flower.headers.ask(Field::Source, &[10, 0, 0, host], &[0xff; 4]);
        flower
    };
    let front = bench.front(&[from(1)]);
    let (dropped, passed) = (best(&front, "10.0.0.1"), best(&front, "10.0.0.2"));
    println!("flower src_ip: dropped {dropped} ns, passed {passed} ns");
    let with_port = |host: u8| {
        let mut flower = from(host);
        flower.headers.ask(Field::DestinationPort, &53_u16.to_be_bytes(), &[0xff; 2]);
        flower
    };
    let front = bench.front(&[with_port(1)]);
    let (dropped, passed) = (best(&front, "10.0.0.1"), best(&front, "10.0.0.2"));
    println!("flower src_ip dst_port: dropped {dropped} ns, passed {passed} ns");
    let others: Vec<Term> = (0..TERMS_MAX as u8).map(|host| with_port(host + 10)).collect();
    let front = bench.front(&others);
    println!("{TERMS_MAX} flowers, none of which matches: {} ns", best(&front, "10.0.0.1"));
    for (name, packets, key) in [
        ("all, conforming", 1_000_000_000, None),
        ("all, exceeding", 1, None),
        ("each source, conforming", 1_000_000_000, Some(AccountKey::Source)),
        ("each source, exceeding", 1, Some(AccountKey::Source)),
        ("each flow, conforming", 1_000_000_000, Some(AccountKey::Flow)),
    ] {
        let front = bench.front(&[police::policing(packets, 1000, key)]);
        println!("police of {name}: {} ns", best(&front, "10.0.0.1"));
    }
}
