//! Tables that follow a kernel with many routes say what it says, before, during and after changes.
//!
//! `NARROWS_ROUTES=1000000` makes a table of the Internet's size; fewer will do to try it.

use super::*;
use narrows_link::routes::{Answer, Question, get};
use narrows_routes::{Family, Number, address_of, bits_of};
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;

/// A generator of numbers, from a seed (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

/// The lengths of prefixes, as often as they are in a full table.
const LENGTHS_V4: [u8; 20] =
    [24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 24, 23, 22, 22, 21, 20, 19, 16, 28];
const LENGTHS_V6: [u8; 12] = [48, 48, 48, 48, 48, 44, 40, 36, 32, 32, 29, 64];

/// The first next hop; others follow. Each has a neighbour but the last.
const HOPS: usize = 40;

type Routes = BTreeMap<(Family, u128, u8), usize>;

fn prefix(random: &mut Random, family: Family) -> (Family, u128, u8) {
    let (bits, len) = match family {
        Family::V4 => {
            let first = 11 + random.below(110) as u128;
            (first << 120 | u128::from(random.next() as u32) << 92, random.of(&LENGTHS_V4))
        }
        Family::V6 => {
            let first = random.of(&[0x2001_u128, 0x2400, 0x2600, 0x2a00]) << 112;
            (first | u128::from(random.next()) << 42, random.of(&LENGTHS_V6))
        }
    };
    let kept = u128::MAX << (128 - len);
    (family, bits & kept, len)
}

fn line(what: &str, (family, bits, len): (Family, u128, u8), hop: usize) -> String {
    let to = address_of(family, bits);
    let at = hop + 2;
    match (family, hop) {
        // Not all are plain.
        (_, 7) => format!("route {what} blackhole {to}/{len}\n"),
        (Family::V4, 8) => format!("route {what} {to}/{len} via 10.0.1.{at} dev wan mtu 1400\n"),
        (Family::V4, 9) => {
            format!("route {what} {to}/{len} nexthop via 10.0.1.2 nexthop via 10.0.1.3\n")
        }
        (Family::V4, _) => format!("route {what} {to}/{len} via 10.0.1.{at} dev wan\n"),
        (Family::V6, _) => format!("route {what} {to}/{len} via 2001:db8:b::{at:x} dev wan\n"),
    }
}

fn batch(lines: &str) {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The program finds for one address of so many what the tables have.
const RUN: usize = 16;

/// Checks addresses beside the kernel: inside of prefixes, and anywhere. Returns how many the
/// tables knew, and how many leave.
fn check(
    bed: &Bed,
    steered: &Steered,
    routes: &Routes,
    count: usize,
    random: &mut Random,
) -> (usize, usize) {
    bed.follow(&bed.router);
    let (follower, tables) = &*bed.followed.borrow();
    let wan = index("wan");
    let all: Vec<_> = routes.keys().copied().collect();
    let (mut known, mut leaving) = (0, 0);
    for _ in 0..count {
        let (family, bits, len) =
            if random.below(8) > 0 { random.of(&all) } else { prefix(random, Family::V4) };
        let rest = u128::from(random.next()) << 64 | u128::from(random.next());
        let inside = (bits | rest & !(u128::MAX << (128 - len))) >> (128 - family.bits());
        let to = address_of(family, inside << (128 - family.bits()));
        let answer = get(&Question { to, from: None }).unwrap();
        leaving += usize::from(matches!(answer, Answer::Leaves { .. }));
        let Some((number, Some(hop))) = tables.find(family, bits_of(to)) else { continue };
        known += 1;
        let gateway = follower.mirror().gateway(number);
        let Answer::Leaves { ifindex, gateway: Some(by), .. } = answer else {
            panic!("{to}: {gateway:?} in the table, {answer:?} by the kernel")
        };
        assert_eq!((ifindex, hop.port, gateway), (wan, 1, Some((ifindex, by))), "{to}");
        assert_ne!(number, Number::ASK);
        // No router forwards to loopback.
        if known % RUN == 0 && !to.is_loopback() {
            let frame = frame(if to.is_ipv4() { NEAR } else { NEAR6 }, &to.to_string(), 8);
            let left = model::leaving(&frame, hop.source, hop.destination);
            assert_eq!(run_as_it_is(bed, steered, &frame), (REDIRECT, left), "{to}");
        }
    }
    (known, leaving)
}

/// The verdict on a frame, and the frame after it, by what the programs know already.
fn run_as_it_is(bed: &Bed, steered: &Steered, frame: &[u8]) -> (u32, Vec<u8>) {
    let (TestRun { verdict, frame, .. }, _) =
        run_arriving(steered.steer.first(), &[], frame, bed.lan).unwrap();
    (verdict, frame)
}

#[test]
fn tables_say_what_a_kernel_with_many_routes_says_before_during_and_after_changes() {
    follow(std::env::var("NARROWS_ROUTES").map_or(6_000, |it| it.parse().unwrap()));
}

#[test]
fn tables_with_a_large_top_say_the_same() {
    follow(150_000);
}

/// Checks so many routes of IPv4, and a fifth as many of IPv6.
fn follow(many: usize) {
    in_one_bed(true, &|bed: &Bed| {
        let mut random = Random(0x6e61_7272_6f77_7301);
        set("ipv6/route/max_size", "4000000");
        let steered = bed.steer();
        let mut lines = String::new();
        for hop in 2..HOPS + 1 {
            lines +=
                &format!("neigh replace 10.0.1.{hop} lladdr 02:00:00:00:01:{hop:02x} dev wan\n");
            lines += &format!(
                "neigh replace 2001:db8:b::{hop:x} lladdr 02:00:00:00:01:{hop:02x} dev wan\n"
            );
        }
        let mut routes = Routes::new();
        while routes.len() < many * 122 / 100 {
            let family = if routes.len() < many { Family::V4 } else { Family::V6 };
            routes.insert(prefix(&mut random, family), random.below(HOPS));
        }
        lines.extend(routes.iter().map(|(prefix, hop)| line("add", *prefix, *hop)));
        batch(&lines);
        IS_CHANGED.set(true);
        let checked = (many / 10).max(2_000);
        let (known, leaving) = check(bed, &steered, &routes, checked, &mut random);
        assert!(known * 10 > leaving * 8, "{known} of {leaving} are known");
        let keys: Vec<_> = routes.keys().copied().collect();
        for round in 0..6 {
            let mut lines = String::new();
            for _ in 0..many / 60 {
                let key = random.of(&keys);
                let hop = random.below(HOPS);
                match (random.below(3), routes.contains_key(&key)) {
                    (0, true) => {
                        let had = routes.remove(&key).unwrap();
                        lines += &line("del", key, had);
                    }
                    (_, true) => {
                        lines += &line("replace", key, hop);
                        routes.insert(key, hop);
                    }
                    (_, false) => {
                        lines += &line("add", key, hop);
                        routes.insert(key, hop);
                    }
                }
            }
            // What leads to a few next hops changes with these, too.
            lines += match round {
                1 => "neigh del 10.0.1.5 dev wan\nneigh del 2001:db8:b::5 dev wan\n",
                2 => {
                    "route replace default via 10.0.1.3\nroute replace default via 2001:db8:b::3\n"
                }
                3 => "link set wan-far down\n",
                4 => "link set wan-far up\n",
                5 => {
                    "route del default\naddr add 10.0.9.1/32 dev lan\naddr del 10.0.9.1/32 dev lan\n"
                }
                _ => "",
            };
            batch(&lines);
            IS_CHANGED.set(true);
            let (known, leaving) = check(bed, &steered, &routes, checked, &mut random);
            if round == 3 {
                assert_eq!(known, 0, "nothing leaves through a device without a carrier");
            } else {
                assert!(known * 10 > leaving * 7, "{known} of {leaving} are known in {round}");
            }
        }
        // The kernel removes what leaves there, and tells of the IPv6 part only.
        batch("link set wan down\n");
        IS_CHANGED.set(true);
        assert_eq!(check(bed, &steered, &routes, checked, &mut random).0, 0);
        batch("link set wan up\n");
        IS_CHANGED.set(true);
        check(bed, &steered, &routes, checked, &mut random);
    });
}
