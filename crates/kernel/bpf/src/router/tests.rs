//! Routing, by the kernel, of frames that never were on a wire, in namespaces of their own.

use super::*;
use crate::attach::Entry;
use crate::chooser::Chooser;
use crate::egress_port::{PORT_SEAL, ROUTE_TAKEN_BYTES, egress_port, route_taken};
use crate::front::{Does, Front, FrontMaps, FrontPort, Step, Term, Then};
use crate::headers::Field;
use crate::heartbeat::{Heart, Heartbeats};
use crate::outcome::{OUTCOMES, Outcome, OutcomeCounters};
use crate::own_address::OwnAddress;
use crate::routes::RouteTables;
use crate::steer::{Stalled, Steer, SteerError, Verdicts, Watchdog};
use crate::test_run::{DROP, PASS, REDIRECT, TestRun, run_arriving};
use crate::tree::tests::checksum;
use narrows_link::routes::Follower;
use narrows_link::routing::RoutingFacts;
use narrows_packet::RouteTaken;
use narrows_routes::Family;
use narrows_units::Nanos;
use proptest::prelude::*;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

mod flows;
mod follows;
mod live;
mod model;
mod plane;
mod taken;
mod vlans;

const LAN: PortId = PortId::FIRST;
const WAN: PortId = PortId::SECOND;
const LAN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const WAN_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Of the next hops behind `wan`.
const HOP: [u8; 6] = [2, 0, 0, 0, 1, 2];
const SECOND_HOP: [u8; 6] = [2, 0, 0, 0, 1, 3];
/// Of a host behind `lan`.
const HOST: [u8; 6] = [2, 0, 0, 0, 0, 5];
const SEAL: u32 = 0x1234_5678;
/// Behind a next hop.
const FAR: &str = "198.51.100.7";
const FAR6: &str = "2001:db8:f::7";
/// Behind `lan`.
const NEAR: &str = "10.0.0.5";
const NEAR6: &str = "2001:db8:a::5";

/// The devices, addresses and routes of a router; it forwards.
const SET_UP: &str = "
    link set lo up
    link add lan address 02:00:00:00:00:01 type veth peer name lan-far
    link add wan address 02:00:00:00:00:02 type veth peer name wan-far
    link add aside address 02:00:00:00:00:03 type veth peer name aside-far
    link set lan up
    link set lan-far up
    link set wan up
    link set wan-far up
    link set aside up
    link set aside-far up
    addr add 10.0.0.1/24 dev lan
    addr add 10.0.1.1/24 dev wan
    addr add 10.0.2.1/24 dev aside
    addr add 2001:db8:a::1/64 dev lan nodad
    addr add 2001:db8:b::1/64 dev wan nodad
    addr add 2001:db8:c::1/64 dev aside nodad
    neigh add 10.0.0.5 lladdr 02:00:00:00:00:05 dev lan nud permanent
    neigh add 10.0.1.2 lladdr 02:00:00:00:01:02 dev wan nud permanent
    neigh add 10.0.1.3 lladdr 02:00:00:00:01:03 dev wan nud permanent
    neigh add 10.0.2.2 lladdr 02:00:00:00:02:02 dev aside nud permanent
    neigh add 2001:db8:a::5 lladdr 02:00:00:00:00:05 dev lan nud permanent
    neigh add 2001:db8:b::2 lladdr 02:00:00:00:01:02 dev wan nud permanent
    neigh add 2001:db8:b::3 lladdr 02:00:00:00:01:03 dev wan nud permanent
    neigh add 2001:db8:c::2 lladdr 02:00:00:00:02:02 dev aside nud permanent
    route add 198.51.100.0/24 via 10.0.1.2
    route add 2001:db8:f::/64 via 2001:db8:b::2
";

/// A namespace with such a router, of which `lan` is the port 0 and `wan` the port 1.
struct Bed {
    router: Router,
    lan: u32,
    /// Whether programs look into images first.
    by_tables: bool,
    followed: RefCell<(Follower, RouteTables)>,
    /// How each port's frames are to be routed, and whether its images may be looked into.
    ingresses: RefCell<[Ingress; 2]>,
    suffice: Cell<[[bool; 2]; 2]>,
}

thread_local! {
    /// Whether the kernel's routing has changed.
    static IS_CHANGED: Cell<bool> = const { Cell::new(true) };
}

/// Runs `work` twice, in a namespace of its own each time: once by the kernel's look-up alone, and
/// once with images that follow the kernel. Both have to come to the same.
fn in_a_bed(work: impl Fn(&Bed) + Send + Sync) {
    in_one_bed(false, &work);
    in_one_bed(true, &work);
}

/// Runs `work` in a namespace of its own; says why if there is none.
fn in_one_bed(by_tables: bool, work: &(impl Fn(&Bed) + Send + Sync)) {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: network namespaces and BPF programs need root");
    }
    thread::scope(|scope| {
        // With the thread, the namespace goes.
        let inside = scope.spawn(|| {
            // SAFETY: no memory or descriptor is unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            ip(SET_UP);
            await_own_addresses();
            set("ipv4/conf/all/rp_filter", "0");
            set("ipv4/conf/all/forwarding", "1");
            set("ipv6/conf/all/forwarding", "1");
            let (lan, wan) = (index("lan"), index("wan"));
            let tables = RouteTables::new().unwrap();
            let router = Router::new(&tables).unwrap();
            let follower = Follower::new([(lan, 0), (wan, 1)]).unwrap();
            let followed = RefCell::new((follower, tables));
            let ingresses = RefCell::new([Ingress::default(); 2]);
            let suffice = Cell::default();
            let bed = Bed { router, lan, by_tables, followed, ingresses, suffice };
            bed.write(&bed.router);
            work(&bed);
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Waits until addresses of IPv6 are the box's own: the kernel adds their routes some time after
/// the addresses, also without duplicate address detection, and later on a busy machine.
fn await_own_addresses() {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let output = Command::new("ip").args(["-6", "route", "show", "table", "local"]).output();
        let routes = String::from_utf8(output.unwrap().stdout).unwrap();
        let has = |own: &&str| routes.contains(&format!("local {own} "));
        if ["2001:db8:a::1", "2001:db8:b::1", "2001:db8:c::1"].iter().all(has) {
            return;
        }
        assert!(Instant::now() < deadline, "{routes}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs each line with `ip`.
fn ip(lines: &str) {
    IS_CHANGED.set(true);
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let output = Command::new("ip").args(line.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Writes a setting of this namespace.
fn set(setting: &str, value: &str) {
    IS_CHANGED.set(true);
    std::fs::write(format!("/proc/sys/net/{setting}"), value).unwrap();
}

/// The index of a device of this namespace.
pub(crate) fn index(device: &str) -> u32 {
    rustix::net::netdevice::name_to_index(
        socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap(),
        device,
    )
    .unwrap()
}

/// A program for `lan`, of which queue 0 has a socket.
struct Steered {
    steer: Steer,
    heart: Heart,
    _socket: OwnedFd,
}

impl Bed {
    fn steer(&self) -> Steered {
        self.steer_with(Stalled::Pass, true, false)
    }

    fn steer_with(&self, stalled: Stalled, is_served: bool, multi_buffer: bool) -> Steered {
        let heartbeats = Heartbeats::new().unwrap();
        let mut heart = heartbeats.heart(0, Nanos(1)).unwrap();
        heart.beat(Nanos::ZERO);
        let watchdog = Watchdog { heartbeats, after: Nanos::from_millis(500), stalled };
        let (entry, router) = (Entry::Own, &self.router);
        let steer =
            Steer::load_router(LAN_MAC, multi_buffer, SEAL, watchdog, entry, router, LAN).unwrap();
        let socket = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
        // Linux 7.3 refuses one without a ring.
        rustix::net::sockopt::set_xdp_rx_ring_size(&socket, 64).unwrap();
        if is_served {
            steer.serve(0, socket.as_fd()).unwrap();
        }
        Steered { steer, heart, _socket: socket }
    }

    /// Another router of these ports, whose programs look into the same images.
    fn router(&self) -> Router {
        IS_CHANGED.set(true);
        let router = Router::new(&self.followed.borrow().1).unwrap();
        self.write(&router);
        router
    }

    /// Routes frames that arrive at `port` of `router` as `ingress` says.
    fn set_ingress(&self, router: &Router, port: PortId, ingress: Ingress) {
        self.ingresses.borrow_mut()[port.index()] = ingress;
        self.write(router);
    }

    fn write(&self, router: &Router) {
        let ports = [("lan", LAN, LAN_MAC), ("wan", WAN, WAN_MAC)];
        let ports = ports.into_iter().zip(self.suffice.get()).zip(*self.ingresses.borrow());
        let interface = |(((device, port, mac), suffice), ingress): (_, Ingress)| {
            let suffice: [bool; 2] = suffice;
            let by_tables = suffice.map(|suffice| suffice && self.by_tables);
            let ingress = Ingress { by_tables, ..ingress };
            Interface { port, tag: None, ifindex: index(device), mac, ingress }
        };
        router.set_interfaces(&ports.map(interface).collect::<Vec<_>>()).unwrap();
    }

    /// Lets the programs of `router` know how the kernel routes now.
    fn follow(&self, router: &Router) {
        if !IS_CHANGED.replace(false) {
            return;
        }
        let (follower, tables) = &mut *self.followed.borrow_mut();
        while follower.follow() {}
        // The kernel tells of a carrier later.
        follower.refresh().unwrap();
        if follower.needs_listing() {
            follower.list().unwrap();
        }
        tables.follow(follower.mirror_mut()).unwrap();
        let facts = RoutingFacts::read(&["lan", "wan"].map(index)).unwrap();
        let suffice = [0, 1].map(|port| facts.two_tables_suffice(&facts.devices[port]));
        self.suffice.set(suffice);
        self.write(router);
    }

    /// What becomes of a frame that arrives at `lan`, and what lies in front of it.
    fn run(&self, steered: &Steered, frame: &[u8]) -> (u32, Vec<u8>, Vec<u8>) {
        self.follow(&self.router);
        let (TestRun { verdict, frame, .. }, before) =
            run_arriving(steered.steer.first(), &[], frame, self.lan).unwrap();
        (verdict, frame, before)
    }

    /// Checks that a frame goes to the kernel as it is, for the reason `outcome`.
    #[track_caller]
    fn check_passes(&self, steered: &Steered, frame: &[u8], outcome: Outcome) {
        let mut expected = steered.steer.outcomes().unwrap();
        expected.0[outcome as usize] += 1;
        let (verdict, after, before) = self.run(steered, frame);
        assert!(after == frame, "{outcome:?}: it is altered");
        assert_eq!((verdict, before.as_slice()), (PASS, &[][..]), "{outcome:?}");
        let counters = steered.steer.outcomes().unwrap();
        let found: Vec<_> = counters.iter().zip(expected.iter()).filter(|(a, b)| a != b).collect();
        assert_eq!(counters, expected, "{outcome:?}: {found:?}");
    }

    /// Checks that a frame leaves through the port `port` from `from` to `to`.
    #[track_caller]
    fn check_routed(
        &self,
        steered: &Steered,
        frame: &[u8],
        port: PortId,
        from: [u8; 6],
        to: [u8; 6],
    ) {
        let mut counters = steered.steer.outcomes().unwrap();
        counters.0[Outcome::Routed as usize] += 1;
        let (verdict, after, before) = self.run(steered, frame);
        assert_eq!(steered.steer.outcomes().unwrap(), counters);
        assert_eq!(verdict, REDIRECT);
        assert!(after == model::leaving(frame, from, to), "it leaves otherwise");
        assert_eq!(before.len(), ROUTE_TAKEN_BYTES as usize);
        assert_eq!(egress_port(&before, SEAL), Some(port.index() as u8));
    }
}

/// Makes the checksum of an IPv4 header right.
fn seal_header(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let sum = checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// A frame to `lan` with `bytes` of UDP, ports 1000 and 53.
fn frame(source: &str, destination: &str, bytes: usize) -> Vec<u8> {
    let mut frame = [LAN_MAC, HOST].concat();
    let ends: [IpAddr; 2] = [source, destination].map(|address| address.parse().unwrap());
    match ends {
        [IpAddr::V4(source), IpAddr::V4(destination)] => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + bytes as u16).to_be_bytes());
            frame.extend([0x12, 0x34, 0, 0, 64, 17, 0, 0]);
            frame.extend([source.octets(), destination.octets()].concat());
            seal_header(&mut frame);
        }
        [IpAddr::V6(source), IpAddr::V6(destination)] => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((bytes as u16).to_be_bytes());
            frame.extend([17, 64]);
            frame.extend([source.octets(), destination.octets()].concat());
        }
        _ => panic!("{source} and {destination}"),
    }
    let udp = [1000_u16.to_be_bytes(), 53_u16.to_be_bytes(), (bytes as u16).to_be_bytes()];
    frame.extend(udp.concat());
    frame.resize(frame.len() - 6 + bytes, 0x55);
    frame
}

/// With another byte.
fn with(mut frame: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    frame[at] = byte;
    if frame[12..15] == [8, 0, 0x45] {
        seal_header(&mut frame);
    }
    frame
}

#[test]
fn a_frame_leaves_to_the_next_hop_with_one_less_to_live_and_nothing_else_changed() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        for (source, destination) in [(NEAR, FAR), (NEAR6, FAR6)] {
            let v4 = frame(source, destination, 100);
            bed.check_routed(&steered, &v4, WAN, WAN_MAC, HOP);
        }
        // Directly to a host, and out of the device where it arrived.
        bed.check_routed(&steered, &frame(NEAR, "10.0.1.3", 8), WAN, WAN_MAC, SECOND_HOP);
        bed.check_routed(&steered, &frame("10.9.9.9", NEAR, 8), LAN, LAN_MAC, HOST);
        // Whatever its checksum is.
        for word in 0..=u16::MAX {
            let mut frame = frame(NEAR, FAR, 8);
            frame[18..20].copy_from_slice(&word.to_be_bytes());
            seal_header(&mut frame);
            let (_, after, _) = bed.run(&steered, &frame);
            assert_eq!(after, model::leaving(&frame, WAN_MAC, HOP), "{word}");
            let mut right = after.clone();
            seal_header(&mut right);
            assert_eq!(after, right, "{word}");
        }
    });
}

#[test]
fn padding_stays_and_a_frame_may_be_of_any_protocol() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        let mut padded = frame(NEAR, FAR, 8);
        padded.resize(60, 0);
        bed.check_routed(&steered, &padded, WAN, WAN_MAC, HOP);
        for protocol in [1, 6, 41, 44, 47, 50, 58, 132, 255] {
            let v4 = with(frame(NEAR, FAR, 8), 23, protocol);
            bed.check_routed(&steered, &v4, WAN, WAN_MAC, HOP);
            let v6 = with(frame(NEAR6, FAR6, 8), 20, protocol);
            bed.check_routed(&steered, &v6, WAN, WAN_MAC, HOP);
        }
        // Nothing but a header.
        bed.check_routed(&steered, &frame(NEAR, FAR, 6)[..40], WAN, WAN_MAC, HOP);
        // A fragment.
        bed.check_routed(&steered, &with(frame(NEAR, FAR, 8), 20, 0x20), WAN, WAN_MAC, HOP);
    });
}

#[test]
fn a_frame_for_the_box_and_one_whose_ttl_is_used_up_go_to_the_kernel_as_they_are() {
    in_a_bed(|bed| {
        bed.router.set_own_addresses(&model::OWN.map(|own| own.parse().unwrap())).unwrap();
        let steered = bed.steer();
        for own in ["10.0.0.1", "10.0.1.1", "10.0.2.1", "10.0.0.255"] {
            bed.check_passes(&steered, &frame(NEAR, own, 8), Outcome::NotForwarded);
        }
        for own in ["2001:db8:a::1", "2001:db8:b::1", "2001:db8:b::"] {
            bed.check_passes(&steered, &frame(NEAR6, own, 8), Outcome::NotForwarded);
        }
        for left in [0, 1] {
            bed.check_passes(&steered, &with(frame(NEAR, FAR, 8), 22, left), Outcome::Ttl);
            bed.check_passes(&steered, &with(frame(NEAR6, FAR6, 8), 21, left), Outcome::Ttl);
            // A routing daemon's, for the box.
            for (at, source, own) in [(22, NEAR, "10.0.1.1"), (21, NEAR6, "2001:db8:b::1")] {
                let frame = with(frame(source, own, 8), at, left);
                bed.check_passes(&steered, &frame, Outcome::NotForwarded);
            }
        }
        for (at, end) in [(22, FAR), (21, FAR6)] {
            let source = if at == 22 { NEAR } else { NEAR6 };
            for left in [2, 128, 255] {
                let frame = with(frame(source, end, 8), at, left);
                bed.check_routed(&steered, &frame, WAN, WAN_MAC, HOP);
            }
        }
    });
}

#[test]
fn only_ip_of_a_known_vlan_or_none_to_the_device_s_own_address_is_routed() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        for (source, destination) in [(NEAR, FAR), (NEAR6, FAR6)] {
            let good = frame(source, destination, 8);
            for to in [[0xff; 6], [1, 0, 0x5e, 0, 0, 1], WAN_MAC, [2, 0, 0, 0, 0, 0x81]] {
                let mut frame = good.clone();
                frame[..6].copy_from_slice(&to);
                bed.check_passes(&steered, &frame, Outcome::NotForUs);
            }
            for ether_type in [0x0806, 0x8100, 0x88a8, 0x8847, 0x8864, 0x0026_u16] {
                let outcome = match ether_type {
                    0x8100 | 0x88a8 => Outcome::OtherTag,
                    _ => Outcome::NotIp,
                };
                let mut frame = good.clone();
                frame[12..14].copy_from_slice(&ether_type.to_be_bytes());
                bed.check_passes(&steered, &frame, outcome);
                frame.splice(14..14, [0, 100, good[12], good[13]]);
                bed.check_passes(&steered, &frame, outcome);
            }
            for version in (0..16).filter(|version| *version != good[14] >> 4) {
                let mut frame = good.clone();
                frame[14] = version << 4 | 5;
                bed.check_passes(&steered, &frame, Outcome::NotIp);
            }
        }
    });
}

#[test]
fn a_frame_with_options_goes_to_the_kernel() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        for words in (0..16).filter(|words| *words != 5) {
            let mut frame = frame(NEAR, FAR, 60);
            frame[14] = 0x40 | words;
            bed.check_passes(&steered, &frame, Outcome::Options);
        }
        bed.check_passes(&steered, &with(frame(NEAR6, FAR6, 60), 20, 0), Outcome::Options);
    });
}

#[test]
fn a_frame_that_is_shorter_than_its_headers_say_goes_to_the_kernel() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        for (source, destination) in [(NEAR, FAR), (NEAR6, FAR6)] {
            let whole = frame(source, destination, 20);
            for bytes in 14..whole.len() {
                bed.check_passes(&steered, &whole[..bytes], Outcome::Short);
            }
        }
        for claimed in [0, 1, 19_u16] {
            let mut frame = frame(NEAR, FAR, 20);
            frame[16..18].copy_from_slice(&claimed.to_be_bytes());
            bed.check_passes(&steered, &frame, Outcome::Short);
        }
    });
}

#[test]
fn addresses_that_no_router_forwards_go_to_the_kernel() {
    in_a_bed(|bed| {
        // Also where a route would lead them somewhere.
        ip("route add default via 10.0.1.2\nroute add default via 2001:db8:b::2");
        let steered = bed.steer();
        let strange = [
            "0.0.0.0",
            "0.255.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
        ];
        let strange6 = [
            "::",
            "::1",
            "::10.0.0.9",
            "::ffff:10.0.0.9",
            "ff02::1",
            "ff0e::7",
            "fe80::5",
            "febf:ffff::1",
        ];
        for (all, near, far) in [(strange, NEAR, FAR), (strange6, NEAR6, FAR6)] {
            for address in all {
                bed.check_passes(&steered, &frame(address, far, 8), Outcome::Martian);
                bed.check_passes(&steered, &frame(near, address, 8), Outcome::Martian);
            }
        }
        for plain in ["1.0.0.0", "126.255.255.255", "128.0.0.1", "223.255.255.255"] {
            bed.check_routed(&steered, &frame(plain, FAR, 8), WAN, WAN_MAC, HOP);
            bed.check_routed(&steered, &frame(NEAR, plain, 8), WAN, WAN_MAC, HOP);
        }
        for plain in ["::1:0:0:1", "::fffe:0:1", "64:ff9b::1", "fe7f::1", "fec0::1", "feff::1"] {
            bed.check_routed(&steered, &frame(plain, FAR6, 8), WAN, WAN_MAC, HOP);
            bed.check_routed(&steered, &frame(NEAR6, plain, 8), WAN, WAN_MAC, HOP);
        }
    });
}

#[test]
fn what_claims_to_come_from_this_box_goes_to_the_kernel() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        let own = ["10.0.1.1", "2001:db8:b::1"];
        let frames = [frame(own[0], FAR, 8), frame(own[1], FAR6, 8)];
        for frame in &frames {
            bed.check_routed(&steered, frame, WAN, WAN_MAC, HOP);
        }
        let own = own.map(|address| address.parse().unwrap());
        bed.router.set_own_addresses(&own).unwrap();
        for frame in &frames {
            bed.check_passes(&steered, frame, Outcome::OwnSource);
        }
        bed.check_routed(&steered, &frame(NEAR, FAR, 8), WAN, WAN_MAC, HOP);
        // One of them goes.
        bed.router.set_own_addresses(&[own[1], "192.0.2.9".parse().unwrap()]).unwrap();
        bed.check_routed(&steered, &frames[0], WAN, WAN_MAC, HOP);
        bed.check_passes(&steered, &frames[1], Outcome::OwnSource);
        bed.check_passes(&steered, &frame("192.0.2.9", FAR, 8), Outcome::OwnSource);
    });
}

#[test]
fn a_source_comes_from_where_the_way_back_leads_if_that_is_checked() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        // By whether it would have to come from there, from elsewhere, or from nowhere.
        let sources = [NEAR, "10.0.1.3", "192.0.2.9"];
        let check = |accepted: [bool; 3]| {
            for (source, is_accepted) in sources.into_iter().zip(accepted) {
                let frame = frame(source, FAR, 8);
                match is_accepted {
                    true => bed.check_routed(&steered, &frame, WAN, WAN_MAC, HOP),
                    false => bed.check_passes(&steered, &frame, Outcome::BadSource),
                }
            }
        };
        let set = |rp_filter| {
            let source_check = SourceCheck::of(rp_filter);
            for direct in [false, true] {
                bed.set_ingress(
                    &bed.router,
                    LAN,
                    Ingress { source_check, direct, ..Ingress::default() },
                );
                check([
                    true,
                    source_check != SourceCheck::Strict,
                    source_check == SourceCheck::Off,
                ]);
            }
        };
        check([true; 3]);
        for rp_filter in [1, 2, 0, 1] {
            set(rp_filter);
            // IPv6 has no such check.
            bed.check_routed(&steered, &frame("2001:db8:9::9", FAR6, 8), WAN, WAN_MAC, HOP);
        }
        // A source whose neighbour is not known is one as well, but no address that is this box's.
        bed.check_routed(&steered, &frame("10.0.0.77", FAR, 8), WAN, WAN_MAC, HOP);
        bed.check_passes(&steered, &frame("10.0.0.1", FAR, 8), Outcome::BadSource);
        // That another port's frames are not checked does not matter.
        bed.set_ingress(&bed.router, WAN, Ingress::default());
        check([true, false, false]);
        // By a next hop of IPv6 the look-up answers in its own way.
        ip("route replace 198.51.100.0/24 via inet6 2001:db8:b::2 dev wan");
        check([true, false, false]);
    });
}

#[test]
fn rules_see_the_way_back_from_where_the_frame_leaves() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        let check = SourceCheck::Strict;
        bed.set_ingress(&bed.router, LAN, Ingress { source_check: check, ..Ingress::default() });
        // Several providers: what comes from the LAN has a table of its own, without the LAN.
        ip("rule add iif lan table 7\nroute add default via 10.0.1.3 dev wan table 7");
        bed.check_routed(&steered, &frame(NEAR, FAR, 8), WAN, WAN_MAC, SECOND_HOP);
    });
}

#[test]
fn all_rules_are_asked_unless_only_the_table_is_to_be() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        ip("rule add from 10.0.0.0/24 ipproto 17 dport 53 table 7
            route add default via 10.0.1.3 dev wan table 7");
        let dns = frame(NEAR, FAR, 8);
        let other = with(frame(NEAR, FAR, 8), 37, 54);
        bed.check_routed(&steered, &dns, WAN, WAN_MAC, SECOND_HOP);
        bed.check_routed(&steered, &other, WAN, WAN_MAC, HOP);
        let direct = Ingress { direct: true, ..Ingress::default() };
        bed.set_ingress(&bed.router, LAN, direct);
        bed.check_routed(&steered, &dns, WAN, WAN_MAC, HOP);
    });
}

#[test]
fn routes_say_what_becomes_of_a_frame() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        ip("route add 203.0.113.0/24 via 10.0.2.2
            route add unreachable 203.0.114.0/24
            route add prohibit 203.0.115.0/24
            route add throw 203.0.116.0/24
            route add 2001:db8:113::/64 via 2001:db8:c::2
            route add unreachable 2001:db8:114::/64
            route add prohibit 2001:db8:115::/64
            route add throw 2001:db8:116::/64");
        let expected =
            [Outcome::OtherPort, Outcome::Unreachable, Outcome::Unreachable, Outcome::NotForwarded];
        for (number, outcome) in (113..).zip(expected) {
            let v4 = frame(NEAR, &format!("203.0.{number}.1"), 8);
            let v6 = frame(NEAR6, &format!("2001:db8:{number}::1"), 8);
            bed.check_passes(&steered, &v4, outcome);
            bed.check_passes(&steered, &v6, outcome);
        }
        // Without a route.
        bed.check_passes(&steered, &frame(NEAR, "192.0.2.1", 8), Outcome::NotForwarded);
        bed.check_passes(&steered, &frame(NEAR6, "2001:db8:9::1", 8), Outcome::NotForwarded);
    });
}

#[test]
fn a_blackhole_drops() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        ip("route add blackhole 203.0.113.0/24\nroute add blackhole 2001:db8:113::/64");
        let frames = [frame(NEAR, "203.0.113.1", 8), frame(NEAR6, "2001:db8:113::1", 8)];
        for (count, frame) in (1..).zip(&frames) {
            assert_eq!(bed.run(&steered, frame), (DROP, frame.clone(), Vec::new()));
            assert_eq!(steered.steer.outcomes().unwrap()[Outcome::Blackhole], count);
        }
        assert_eq!(steered.steer.verdicts().unwrap(), Verdicts::default());
    });
}

#[test]
fn a_route_that_encapsulates_is_the_kernel_s() {
    in_a_bed(|bed| {
        let words = "route add 203.0.113.0/24 encap ip id 7 dst 10.0.1.2 dev wan";
        let made = Command::new("ip").args(words.split_whitespace()).output().unwrap();
        if !made.status.success() {
            return eprintln!("SKIPPED: {}", String::from_utf8_lossy(&made.stderr));
        }
        bed.check_passes(&bed.steer(), &frame(NEAR, "203.0.113.1", 8), Outcome::Unsupported);
    });
}

#[test]
fn a_device_that_does_not_forward_leaves_its_frames_to_the_kernel() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        set("ipv4/conf/lan/forwarding", "0");
        bed.check_passes(&steered, &frame(NEAR, FAR, 8), Outcome::Disabled);
        bed.check_routed(&steered, &frame(NEAR6, FAR6, 8), WAN, WAN_MAC, HOP);
        set("ipv6/conf/lan/forwarding", "0");
        bed.check_passes(&steered, &frame(NEAR6, FAR6, 8), Outcome::Disabled);
    });
}

#[test]
fn the_kernel_finds_out_where_a_neighbour_is() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        let frames = [frame(NEAR, "10.0.1.9", 8), frame(NEAR6, "2001:db8:b::9", 8)];
        for frame in &frames {
            bed.check_passes(&steered, frame, Outcome::NoNeighbour);
        }
        let mac = [2, 0, 0, 0, 1, 9];
        ip("neigh add 10.0.1.9 lladdr 02:00:00:00:01:09 dev wan nud stale
            neigh add 2001:db8:b::9 lladdr 02:00:00:00:01:09 dev wan nud reachable");
        for frame in &frames {
            bed.check_routed(&steered, frame, WAN, WAN_MAC, mac);
        }
        ip("neigh del 10.0.1.9 dev wan\nneigh replace 2001:db8:b::9 dev wan nud failed");
        for frame in &frames {
            bed.check_passes(&steered, frame, Outcome::NoNeighbour);
        }
    });
}

#[test]
fn a_next_hop_of_ipv4_may_have_an_address_of_ipv6() {
    in_a_bed(|bed| {
        ip("route add 203.0.113.0/24 via inet6 2001:db8:b::3 dev wan");
        let frame = frame(NEAR, "203.0.113.1", 8);
        bed.check_routed(&bed.steer(), &frame, WAN, WAN_MAC, SECOND_HOP);
    });
}

#[test]
fn what_is_longer_than_its_route_takes_goes_to_the_kernel() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        ip("route add 203.0.113.0/24 via 10.0.1.2 mtu lock 1400
            route add 2001:db8:113::/64 via 2001:db8:b::2 mtu lock 1400");
        let ways = [
            (NEAR, FAR, 1500, 20),
            (NEAR6, FAR6, 1500, 40),
            (NEAR, "203.0.113.1", 1400, 20),
            (NEAR6, "2001:db8:113::1", 1400, 40),
        ];
        for (source, destination, mtu, header) in ways {
            let fits = frame(source, destination, mtu - header);
            bed.check_routed(&steered, &fits, WAN, WAN_MAC, HOP);
            for more in 1..=header + 4 {
                let frame = frame(source, destination, mtu - header + more);
                bed.check_passes(&steered, &frame, Outcome::TooLong);
            }
            // The kernel takes off what belongs to no header.
            let trailed = [fits, vec![0]].concat();
            bed.check_passes(&steered, &trailed, Outcome::TooLong);
        }
    });
}

#[test]
fn a_frame_may_be_in_several_buffers() {
    in_a_bed(|bed| {
        ip("link set wan mtu 9000");
        let steered = bed.steer_with(Stalled::Pass, true, true);
        bed.check_routed(&steered, &frame(NEAR, FAR, 8980), WAN, WAN_MAC, HOP);
        bed.check_passes(&steered, &frame(NEAR, FAR, 8981), Outcome::TooLong);
        bed.check_routed(&steered, &frame(NEAR6, FAR6, 8960), WAN, WAN_MAC, HOP);
        bed.check_passes(&steered, &frame(NEAR6, FAR6, 8961), Outcome::TooLong);
    });
}

#[test]
fn a_flow_takes_one_of_several_next_hops_and_flows_take_all() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        ip("route add 203.0.113.0/24 nexthop via 10.0.1.2 nexthop via 10.0.1.3
            route add 2001:db8:113::/64 nexthop via 2001:db8:b::2 nexthop via 2001:db8:b::3");
        let hop = |frame: &[u8]| {
            let (verdict, after, _) = bed.run(&steered, frame);
            assert_eq!(verdict, REDIRECT);
            let hop: [u8; 6] = after[..6].try_into().unwrap();
            assert!(hop == HOP || hop == SECOND_HOP, "{hop:x?}");
            hop
        };
        let (sources, sources6): (Vec<_>, Vec<_>) =
            (2..66).map(|host| (format!("10.0.0.{host}"), format!("2001:db8:a::{host:x}"))).unzip();
        for (sources, to) in [(sources, "203.0.113.1"), (sources6, "2001:db8:113::1")] {
            // The port of the flow does not matter at first.
            set("ipv4/fib_multipath_hash_policy", "0");
            set("ipv6/fib_multipath_hash_policy", "0");
            let mut hops = BTreeSet::new();
            for source in &sources {
                let of_flow = frame(source, to, 8);
                let first = hop(&of_flow);
                let transport = of_flow.len() - 8;
                for port in 0..8 {
                    assert_eq!(hop(&with(of_flow.clone(), transport + 1, port)), first);
                }
                hops.insert(first);
            }
            assert_eq!(hops.len(), 2);
            set("ipv4/fib_multipath_hash_policy", "1");
            set("ipv6/fib_multipath_hash_policy", "1");
            let of_port = |port| {
                let frame = frame(&sources[0], to, 8);
                let at = frame.len() - 7;
                with(frame, at, port)
            };
            let hops: Vec<_> = (0..64).map(|port| hop(&of_port(port))).collect();
            assert!(hops.contains(&HOP) && hops.contains(&SECOND_HOP));
            assert_eq!(hops, (0..64).map(|port| hop(&of_port(port))).collect::<Vec<_>>());
            if to.contains(':') {
                continue;
            }
            // All fragments of a datagram take the same, whatever their first bytes are.
            let fragment =
                |offset: [u8; 2], port| with(with(of_port(port), 20, offset[0]), 21, offset[1]);
            let first = hop(&fragment([0x20, 0], 0));
            for port in 0..64 {
                for offset in [[0x20, 0], [0x20, 9], [0, 9]] {
                    assert_eq!(hop(&fragment(offset, port)), first);
                }
            }
        }
    });
}

#[test]
fn a_queue_without_a_socket_and_one_whose_worker_is_silent_leave_frames_to_the_kernel() {
    in_a_bed(|bed| {
        let routed = frame(NEAR, FAR, 8);
        let own = frame(NEAR, "10.0.0.1", 8);
        let unserved = bed.steer_with(Stalled::Drop, false, false);
        assert_eq!(bed.run(&unserved, &routed), (PASS, routed.clone(), Vec::new()));
        assert_eq!(bed.run(&unserved, &own), (PASS, own.clone(), Vec::new()));
        let expected = Verdicts { unserved: 2, ..Verdicts::default() };
        assert_eq!(unserved.steer.verdicts().unwrap(), expected);
        assert_eq!(unserved.steer.outcomes().unwrap(), OutcomeCounters::default());

        let mut silent = bed.steer_with(Stalled::Pass, true, false);
        silent.heart.beat(Nanos(1));
        assert_eq!(bed.run(&silent, &routed), (PASS, routed.clone(), Vec::new()));
        assert_eq!(bed.run(&silent, &own), (PASS, own.clone(), Vec::new()));
        let expected = Verdicts { stalled: 2, ..Verdicts::default() };
        assert_eq!(silent.steer.verdicts().unwrap(), expected);
        assert_eq!(silent.steer.outcomes().unwrap(), OutcomeCounters::default());

        // Where they are to be dropped, frames for the box are not.
        let mut silent = bed.steer_with(Stalled::Drop, true, false);
        silent.heart.beat(Nanos(1));
        assert_eq!(bed.run(&silent, &routed), (DROP, routed.clone(), Vec::new()));
        bed.check_passes(&silent, &own, Outcome::NotForwarded);
        let expected = Verdicts { stalled: 1, to_self: 1, ..Verdicts::default() };
        assert_eq!(silent.steer.verdicts().unwrap(), expected);
        silent.heart.beat(Nanos::ZERO);
        bed.check_routed(&silent, &routed, WAN, WAN_MAC, HOP);
        let expected = Verdicts { to_worker: 1, ..expected };
        assert_eq!(silent.steer.verdicts().unwrap(), expected);
    });
}

#[test]
fn filters_stand_in_front_of_it() {
    in_a_bed(|bed| {
        let mut steered = bed.steer();
        let own = OwnAddress::of(LAN_MAC, false);
        let port = FrontPort { own, multi_buffer: false, entry: Entry::Own, handed: None };
        let step = Step { does: Does::Decide, then: Then::Drop, exceed: Then::Drop, counter: None };
        let mut term = Term { steps: vec![step], ..Term::any() };
        term.headers.ask(Field::DestinationPort, &53_u16.to_be_bytes(), &[0xff; 2]);
        let front = Front::load(port, &[term], None, &mut FrontMaps::new().unwrap()).unwrap();
        steered.steer.put_in_front(0, Some(front)).unwrap();
        let dns = frame(NEAR, FAR, 8);
        assert_eq!(bed.run(&steered, &dns), (DROP, dns.clone(), Vec::new()));
        let other = with(dns.clone(), 37, 54);
        bed.check_routed(&steered, &other, WAN, WAN_MAC, HOP);
        steered.steer.put_in_front(0, None).unwrap();
        bed.check_routed(&steered, &dns, WAN, WAN_MAC, HOP);
    });
}

#[test]
fn addresses_before_translation_are_not_looked_up() {
    in_a_bed(|bed| {
        let mut steered = bed.steer();
        assert!(matches!(steered.steer.look_up(true), Err(SteerError::Chooses)));
        assert!(matches!(steered.steer.can_look_up(), Err(SteerError::Chooses)));
        steered.steer.look_up(false).unwrap();
        bed.check_routed(&steered, &frame(NEAR, FAR, 8), WAN, WAN_MAC, HOP);
    });
}

/// Two ends of the same version of IP, many of which the model has routes for.
fn any_ends() -> impl Strategy<Value = [IpAddr; 2]> {
    let network = || prop_oneof![4 => 0_u8..3, 1 => any::<u8>()];
    let host = || prop_oneof![4 => 0_u8..6, 1 => Just(255), 1 => any::<u8>()];
    let v4 = || {
        prop_oneof![
            4 => (network(), host()).prop_map(|(network, host)| [10, 0, network, host]),
            1 => (112_u8..116, host()).prop_map(|(network, host)| [203, 0, network, host]),
            1 => any::<[u8; 4]>(),
        ]
    };
    let v6 = || {
        let network = prop_oneof![9_u16..14, 0x112_u16..0x116, any::<u16>()];
        let near = (network, host()).prop_map(|(network, host)| {
            std::net::Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, host.into()).octets()
        });
        prop_oneof![6 => near, 1 => any::<[u8; 16]>(), 1 => any::<u8>().prop_map(|byte| {
            std::array::from_fn(|at| if at == 15 { byte } else { 0 })
        })]
    };
    prop_oneof![
        [v4(), v4()].prop_map(|ends| ends.map(IpAddr::from)),
        [v6(), v6()].prop_map(|ends| ends.map(IpAddr::from)),
    ]
}

/// Frames that mostly are what a router routes, or almost.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let any_byte = (prop_oneof![0_usize..60, 12_usize..24], prop_oneof![any::<u8>(), 0_u8..3]);
    // Of IPv4: the version and how long its header is.
    let first_byte = (Just(14_usize), 0x40_u8..0x50);
    let changes = proptest::collection::vec(prop_oneof![9 => any_byte, 1 => first_byte], 0..3);
    let longer = prop_oneof![3 => Just(0_isize), 1 => 1_isize..5, 1 => -8_isize..0];
    let near = (any_ends(), 6_usize..80, changes, longer).prop_map(
        |([source, destination], bytes, changes, longer)| {
            let mut frame = frame(&source.to_string(), &destination.to_string(), bytes);
            for (at, byte) in changes {
                if let Some(into) = frame.get_mut(at) {
                    *into = byte;
                }
            }
            frame.resize(frame.len().saturating_add_signed(longer), 0);
            frame
        },
    );
    let random = (proptest::collection::vec(any::<u8>(), 14..120), any::<u8>());
    let random = random.prop_map(|(mut frame, kind)| {
        if kind & 7 != 0 {
            frame[..6].copy_from_slice(&LAN_MAC);
            let ether_type = if kind & 8 == 0 { [8, 0, 0x45] } else { [0x86, 0xdd, 0x60] };
            frame.splice(12..frame.len().min(15), ether_type);
        }
        frame
    });
    let near = (near, proptest::bool::weighted(0.1)).prop_map(|(mut frame, is_tagged)| {
        if is_tagged {
            frame.splice(12..12, [0x81, 0, 0, 100]);
        }
        frame
    });
    prop_oneof![6 => near, 1 => random]
}

#[test]
fn whatever_a_frame_is_it_is_routed_as_the_model_says_or_not_altered() {
    in_a_bed(|bed| {
        ip(model::ROUTES);
        bed.router.set_own_addresses(&model::OWN.map(|own| own.parse().unwrap())).unwrap();
        let steered = bed.steer();
        let checks = [SourceCheck::Off, SourceCheck::Strict, SourceCheck::Loose];
        let config = ProptestConfig::with_cases(4000);
        proptest!(config, |(frame in any_frame(), check in 0_usize..3, direct: bool)| {
            let source_check = checks[check];
            bed.set_ingress(&bed.router, LAN, Ingress { source_check, direct, ..Ingress::default() });
            let mut expected = steered.steer.outcomes().unwrap();
            let (verdict, after, before) = bed.run(&steered, &frame);
            let outcome = match model::way_of(&frame, source_check) {
                Ok((port, from, to)) => {
                    prop_assert_eq!(verdict, REDIRECT);
                    prop_assert_eq!(after, model::leaving(&frame, from, to));
                    prop_assert_eq!(egress_port(&before, SEAL), Some(port.index() as u8));
                    Outcome::Routed
                }
                Err(outcome) => {
                    let is_drop = outcome == Outcome::Blackhole;
                    prop_assert_eq!(verdict, if is_drop { DROP } else { PASS });
                    prop_assert_eq!((after, before), (frame, Vec::new()));
                    outcome
                }
            };
            expected.0[outcome as usize] += 1;
            prop_assert_eq!(steered.steer.outcomes().unwrap(), expected);
        });
        // What frames alone cannot be the reason for.
        let other = [
            Outcome::Disabled,
            Outcome::TooLong,
            Outcome::Unsupported,
            Outcome::NoRoom,
            Outcome::Nobody,
        ];
        let outcomes = steered.steer.outcomes().unwrap();
        let is_of_router = |(outcome, _): &(Outcome, u64)| {
            *outcome <= Outcome::Nobody || *outcome == Outcome::OtherTag
        };
        for (outcome, frames) in outcomes.iter().filter(is_of_router) {
            assert_eq!(frames > 0, !other.contains(&outcome), "{outcome:?}: {frames}");
        }
    });
}

/// What the program writes in front of a frame.
fn written(port: u32, seal: u32) -> Vec<u8> {
    [port.to_ne_bytes(), (seal ^ PORT_SEAL).to_ne_bytes()].concat()
}

#[test]
fn what_another_program_left_in_front_of_a_frame_does_not_hide_the_port() {
    in_a_bed(|bed| {
        let steered = bed.steer();
        for bytes in [4, 8, 24, 32] {
            let before = vec![0xaa; bytes];
            let run = |frame: &[u8]| {
                run_arriving(steered.steer.first(), &before, frame, bed.lan).unwrap()
            };
            let routed = frame(NEAR, FAR, 8);
            let (TestRun { verdict, frame: after, .. }, left) = run(&routed);
            assert_eq!(verdict, REDIRECT);
            assert_eq!(left.len(), ROUTE_TAKEN_BYTES as usize);
            assert_eq!(egress_port(&left, SEAL), Some(1));
            assert_eq!(after, model::leaving(&routed, WAN_MAC, HOP));
            let own = frame(NEAR, "10.0.0.1", 8);
            let (TestRun { verdict, frame: after, .. }, left) = run(&own);
            assert_eq!((verdict, after, left), (PASS, own, before.clone()));
        }
    });
}

#[test]
fn a_port_in_front_of_a_frame_counts_only_with_the_seal() {
    for port in [0, 1, 63] {
        assert_eq!(egress_port(&written(port, SEAL), SEAL), Some(port as u8));
        // Bytes further in front do not matter.
        let behind_others = [vec![0xaa; 24], written(port, SEAL)].concat();
        assert_eq!(egress_port(&behind_others, SEAL), Some(port as u8));
    }
    let good = written(1, SEAL);
    let plain = [1_u32.to_ne_bytes(), SEAL.to_ne_bytes()].concat();
    let translation = [4_u32.to_ne_bytes(), SEAL.to_ne_bytes()].concat();
    // The route is told in front of it.
    let told = [&7_u32.to_ne_bytes(), &9_u32.to_ne_bytes(), &good[..]].concat();
    assert_eq!(route_taken(&told, SEAL), Some(RouteTaken { realms: 7, metric: 9 }));
    assert_eq!(egress_port(&told, SEAL), Some(1));
    for bytes in [&told[1..], &good, &told[..8], &[]] {
        assert_eq!(route_taken(bytes, SEAL), None, "{bytes:x?}");
    }
    assert_eq!(route_taken(&told, SEAL ^ 1), None);
    let cases = [
        &good[..0],
        &good[1..],
        &good[..7],
        &[0; 8],
        &written(1, SEAL ^ 1),
        &plain,
        &translation,
        &written(256, SEAL),
    ];
    for bytes in cases {
        assert_eq!(egress_port(bytes, SEAL), None, "{bytes:x?}");
    }
    assert_eq!(crate::translation(&[vec![0; 40], good].concat(), SEAL), None);
}

#[test]
fn counters_are_read_by_name_and_added_up() {
    let words: Vec<u64> = (1..=OUTCOMES as u64).collect();
    let mut counters = OutcomeCounters::of(&words);
    assert_eq!(counters.words(), words);
    assert_eq!((counters[Outcome::Routed], counters[Outcome::NotForUs]), (1, 2));
    let elsewhere = [Outcome::Routed, Outcome::ByFlow, Outcome::Switched, Outcome::Blackhole];
    let of_kernel =
        words.iter().sum::<u64>() - elsewhere.map(|it| counters[it]).iter().sum::<u64>();
    assert_eq!(counters.passed(), of_kernel);
    counters += counters;
    assert_eq!(counters.passed(), 2 * of_kernel);
    // Those of a process that knows fewer of them.
    assert_eq!(OutcomeCounters::of(&[7]).iter().map(|(_, frames)| frames).sum::<u64>(), 7);
    let names: BTreeSet<_> = Outcome::ALL.iter().map(|outcome| outcome.name()).collect();
    assert_eq!(names.len(), OUTCOMES);
}
