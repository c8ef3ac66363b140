//! The router beside a routing daemon: BIRD speaks BGP in four routers between two hosts
//! ([`narrows_testbed::diamond`]), and Narrows routes in the two at the ends, where paths part.
//!
//! Numbered datagrams go both ways meanwhile, so every loss is known. The kernel's routes are held
//! against where packets leave, as the next router's device sees them.

use crate::setup::{NARROWS, turn_to_count, wait_until};
use narrows_testbed::background::Background;
use narrows_testbed::capture::Capture;
use narrows_testbed::diamond::{Announced, Diamond, Node, PATIENCE};
use narrows_testbed::narrows::Instance;
use narrows_testbed::requirements::{self, BIRD};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Between the datagrams of a flow.
const PACE: Duration = Duration::from_millis(1);
/// How long its last ones may take.
const LINGER: Duration = Duration::from_millis(500);
/// Datagrams that show which way a flow takes.
const MANY: u64 = 300;
/// Datagrams that a change of routes costs at most: those of BGP's hold time.
const MOST_LOST: u32 = 3000;
/// Datagrams that may come before a neighbour answers who it is.
const FIRST: u64 = 48;
/// Routes that come and go.
const ROUTES: usize = 1000;
/// Addresses whose ways are compared.
const ADDRESSES: usize = 1000;
/// Where the announced networks are.
const WHOLE: u32 = u32::from_be_bytes([10, 128, 0, 0]);
const WHOLE_BITS: u32 = 9;

/// Narrows in both routers with a host, with cake on their slow links.
fn instances(diamond: &Diamond) -> [Instance; 2] {
    [Node::Left, Node::Right].map(|node| {
        let words = ["run", "--router", &node.ports()].map(str::to_owned);
        let words = words.each_ref().map(String::as_str);
        let namespace = diamond.namespace(node);
        let instance = Instance::start_in(namespace, Path::new(NARROWS), &words).unwrap();
        instance.tc("qdisc add dev slow root cake bandwidth 20mbit").unwrap();
        instance
    })
}

/// Frames that arrived at `port` and were routed in the driver.
fn routed(instance: &Instance, port: &str) -> u64 {
    instance.show().unwrap().port(port).unwrap().routes.get("routed").copied().unwrap_or(0)
}

/// Frames that left through `port`.
fn sent(instance: &Instance, port: &str) -> u64 {
    instance.show().unwrap().port(port).unwrap().total.tx_packets
}

/// Waits until nothing is queued, and asserts that no packet is missing.
#[track_caller]
fn assert_accounted(instances: &[Instance]) {
    for instance in instances {
        wait_until("at rest", PATIENCE, || instance.show().unwrap().is_at_rest());
        let sum = instance.show().unwrap().conservation;
        assert_eq!(sum.unaccounted, 0, "{sum:?}\n{}", instance.log());
    }
}

/// Numbered datagrams from one host to the other.
struct Flow {
    writer: Background<u32>,
    reader: Background<BTreeSet<u32>>,
}

impl Flow {
    fn start(diamond: &Diamond, from: Node, to: Node) -> Self {
        let [near, far] = [from, to].map(|node| diamond.end(node).unwrap());
        let socket = |ip, host: &narrows_testbed::Namespace| {
            host.enter(|| Ok(UdpSocket::bind((ip, 0))?)).unwrap()
        };
        let (writer, reader) = (socket(near.ip, near.namespace), socket(far.ip, far.namespace));
        reader.set_read_timeout(Some(LINGER)).unwrap();
        let address = reader.local_addr().unwrap();
        let write = move |end: &AtomicBool| {
            let mut number = 0_u32;
            while !end.load(Ordering::Relaxed) {
                let mut datagram = [0; 200];
                datagram[..4].copy_from_slice(&number.to_be_bytes());
                // Its router may have no route for a moment.
                if writer.send_to(&datagram, address).is_ok() {
                    number += 1;
                }
                sleep(PACE);
            }
            Ok(number)
        };
        let read = move |end: &AtomicBool| {
            let mut came = BTreeSet::new();
            let mut datagram = [0; 200];
            loop {
                match reader.recv(&mut datagram) {
                    Ok(_) => {
                        let number = [datagram[0], datagram[1], datagram[2], datagram[3]];
                        came.insert(u32::from_be_bytes(number));
                    }
                    Err(_) if end.load(Ordering::Relaxed) => return Ok(came),
                    Err(_) => {}
                }
            }
        };
        Self {
            writer: Background::start("writer", write).unwrap(),
            reader: Background::start("reader", read).unwrap(),
        }
    }

    /// Ends it, and returns the runs of datagrams that did not come: the first, and how many.
    fn stop(self) -> Vec<(u32, u32)> {
        let sent = self.writer.stop().unwrap();
        let came = self.reader.stop().unwrap();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for number in (0..sent).filter(|number| !came.contains(number)) {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == number => *count += 1,
                _ => runs.push((number, 1)),
            }
        }
        runs
    }
}

#[track_caller]
fn ping_both_families(diamond: &Diamond) {
    let east = diamond.end(Node::East).unwrap().ip.to_string();
    for to in [east, diamond.ip6(Node::East).unwrap().to_string()] {
        let west = diamond.namespace(Node::West);
        let said = west.run("ping", &["-c", "3", "-i", "0.05", "-W", "2", &to]);
        assert!(said.as_ref().is_ok_and(|said| said.contains(" 0% packet loss")), "{said:?}");
    }
}

fn can_run() -> bool {
    let refusal = requirements::check(&[BIRD]).err();
    if let Some(refusal) = &refusal {
        eprintln!("SKIPPED: {refusal}");
    }
    refusal.is_none()
}

#[test]
fn a_flow_moves_with_its_route_when_a_link_fails_and_comes_back_after() {
    let Some(_turn) = turn_to_count() else { return };
    if !can_run() {
        return;
    }
    let diamond = Diamond::up(2, &[]).unwrap();
    let instances = instances(&diamond);
    let [left, right] = &instances;
    ping_both_families(&diamond);
    let flows = [(Node::West, Node::East), (Node::East, Node::West)]
        .map(|(from, to)| Flow::start(&diamond, from, to));
    // Both ways, in the driver, and through the queues of the port to `router`.
    let takes = |router: Node| {
        let count = || {
            let ways = [(left, "west"), (right, "east")];
            ways.map(|(at, host)| [routed(at, host), sent(at, router.name())])
        };
        let before = count();
        wait_until(&format!("by {router:?}, routed in the driver"), PATIENCE, || {
            let now = count();
            (0..2).all(|way| (0..2).all(|what| now[way][what] >= before[way][what] + MANY))
        });
        ping_both_families(&diamond);
    };
    takes(Node::Fast);
    // A port of Narrows goes down; and a link that one router has no carrier of, and the other must
    // be told of.
    for (node, to) in [(Node::Left, Node::Fast), (Node::Fast, Node::Right)] {
        diamond.set_link(node, to, false).unwrap();
        diamond.wait_for_path(Node::Slow).unwrap();
        takes(Node::Slow);
        diamond.set_link(node, to, true).unwrap();
        diamond.wait_for_path(Node::Fast).unwrap();
        takes(Node::Fast);
    }
    for flow in flows {
        let lost = flow.stop();
        assert!(lost.iter().all(|(_, count)| *count < MOST_LOST), "{lost:?}");
    }
    assert_accounted(&instances);
}

/// Pseudo-random numbers, the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) >> 32) as u32) % bound
    }

    /// A network of 20 to 28 bits.
    fn network(&mut self) -> (u32, u32) {
        let bits = 20 + self.below(9);
        (WHOLE | (self.below(1 << (bits - WHOLE_BITS)) << (32 - bits)), bits)
    }
}

/// Networks, each once and many of them within others, announced by three routers in turn; and
/// addresses, most of which are in one.
fn networks(random: &mut Random) -> (Vec<Announced>, Vec<Ipv4Addr>) {
    let mut networks = BTreeSet::new();
    while networks.len() < ROUTES {
        networks.insert(random.network());
    }
    let networks: Vec<(u32, u32)> = networks.into_iter().collect();
    let written: Vec<String> =
        networks.iter().map(|(net, bits)| format!("{}/{bits}", Ipv4Addr::from(*net))).collect();
    let set = |from: usize| written.iter().skip(from).step_by(3).cloned().collect();
    let announced = vec![
        (Node::Fast, "near", set(0)),
        (Node::Slow, "aside", set(1)),
        (Node::Right, "far", set(2)),
    ];
    let mut addresses = BTreeSet::new();
    while addresses.len() < ADDRESSES {
        addresses.insert(if random.below(4) == 0 {
            WHOLE | random.below(1 << (32 - WHOLE_BITS))
        } else {
            let (net, bits) = networks[random.below(ROUTES as u32) as usize];
            net | random.below(1 << (32 - bits))
        });
    }
    (announced, addresses.into_iter().map(Ipv4Addr::from).collect())
}

/// Sends a packet to each of `addresses`, and asserts that it leaves where the kernel's route says,
/// or nowhere. Returns how many leave, by device; `None` if the kernel's routes changed meanwhile,
/// as the daemons look for each other.
#[track_caller]
fn compare(diamond: &Diamond, addresses: &[Ipv4Addr]) -> Option<BTreeMap<String, usize>> {
    let asked: Vec<IpAddr> = addresses.iter().copied().map(IpAddr::V4).collect();
    let of_the_kernel = || diamond.routes(Node::Left, Node::West, &asked).unwrap();
    let ways = of_the_kernel();
    // Which answers once the router knows all that the kernel has announced.
    let known = diamond.namespace(Node::Left).command(NARROWS).args(["route", "stats"]).output();
    assert!(known.unwrap().status.success());
    let wanted: BTreeMap<Ipv4Addr, String> =
        addresses.iter().zip(&ways).filter_map(|(to, way)| Some((*to, way.clone()?))).collect();
    let captures = [Node::Fast, Node::Slow].map(|node| {
        let capture = Capture::start(diamond.namespace(node), "left", "udp port 9").unwrap();
        (node.name(), capture)
    });
    let west = diamond.end(Node::West).unwrap();
    let socket = west.namespace.enter(|| Ok(UdpSocket::bind((west.ip, 0))?)).unwrap();
    for some in addresses.chunks(16) {
        for address in some {
            assert_eq!(socket.send_to(&[0; 64], (*address, 9)).unwrap(), 64);
        }
        // No more than a ring holds.
        sleep(Duration::from_millis(2));
    }
    let mut count = BTreeMap::new();
    let mut left = BTreeMap::new();
    for (device, capture) in captures {
        let expected = wanted.values().filter(|way| *way == device).count();
        capture.wait_for(expected, Duration::from_secs(5));
        count.insert(device.to_owned(), expected);
        for frame in capture.stop().unwrap() {
            let to = Ipv4Addr::new(frame[30], frame[31], frame[32], frame[33]);
            assert_eq!(left.insert(to, device.to_owned()), None, "{to} leaves twice");
        }
    }
    if of_the_kernel() != ways {
        return None;
    }
    assert_eq!(left, wanted);
    Some(count)
}

#[test]
fn packets_follow_a_thousand_routes_that_come_and_go() {
    let Some(_turn) = turn_to_count() else { return };
    if !can_run() {
        return;
    }
    let (announced, addresses) = networks(&mut Random(1));
    let diamond = Diamond::up(2, &announced).unwrap();
    let instances = instances(&diamond);
    let [left, _] = &instances;
    ping_both_families(&diamond);
    let flow = Flow::start(&diamond, Node::West, Node::East);
    let whole = format!("{}/{WHOLE_BITS}", Ipv4Addr::from(WHOLE));
    // Announces the sets of these routers, and withdraws the others.
    let announce = |routers: &[Node]| {
        for (router, set, _) in &announced {
            diamond.bird(*router).unwrap().announce(set, routers.contains(router)).unwrap();
        }
        let of = |is_it: &dyn Fn(Node) -> bool| -> usize {
            let on = announced.iter().filter(|(router, ..)| is_it(*router));
            on.map(|(.., networks)| networks.len()).sum()
        };
        let wanted = of(&|router| routers.contains(&router));
        // They are all there before two neighbours have found each other: then by the other way.
        let by_slow = of(&|router| router == Node::Slow && routers.contains(&router));
        wait_until(&format!("{wanted} routes, {by_slow} by slow"), PATIENCE, || {
            let words = ["-4", "route", "show", "root", &whole];
            let routes = diamond.namespace(Node::Left).run("ip", &words).unwrap();
            let is_by_slow = |route: &&str| route.contains("dev slow ");
            let slow = routes.lines().filter(is_by_slow).count();
            (routes.lines().count(), slow) == (wanted, by_slow)
        });
    };
    let (fast, slow) = ("fast".to_owned(), "slow".to_owned());
    for routers in [
        &[Node::Fast, Node::Slow, Node::Right][..],
        &[Node::Slow],
        &[Node::Right, Node::Fast],
        &[],
        &[Node::Fast, Node::Slow, Node::Right],
    ] {
        announce(routers);
        let compared = (0..5).find_map(|_| {
            let before = sent(left, &slow);
            let count = compare(&diamond, &addresses)?;
            Some((count, sent(left, &slow) - before))
        });
        let (count, sent) = compared.expect("routes that stay for a second");
        println!("{routers:?}: {count:?}");
        assert_eq!(count[&slow] > 100, routers.contains(&Node::Slow));
        assert_eq!(count[&fast] > 100, routers.contains(&Node::Fast));
        // The flow takes the other port. The kernel has those for which it asks who the neighbour
        // is.
        let all = count[&slow] as u64;
        assert!((all.saturating_sub(FIRST)..=all).contains(&sent), "{sent} of {count:?}");
    }
    announce(&[]);
    assert_eq!(flow.stop(), [], "the flow's own route stays");
    assert_accounted(&instances);
}
