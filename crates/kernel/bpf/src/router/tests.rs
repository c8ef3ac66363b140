//! Routing, by the kernel, of frames that never were on a wire, in a network namespace of their own.

use super::*;
use crate::attach::Entry;
use crate::heartbeat::Heartbeats;
use crate::steer::{Stalled, Steer, Watchdog};
use crate::test_run::{PASS, REDIRECT, TestRun, run_arriving};
use narrows_units::Nanos;
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::os::fd::OwnedFd;
use std::process::Command;
use std::thread;

mod model;

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
}

/// Runs `work` in a namespace of its own; says why if there is none.
fn in_a_bed(work: impl FnOnce(&Bed) + Send) {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: network namespaces and BPF programs need root");
    }
    thread::scope(|scope| {
        // With the thread, the namespace goes.
        let inside = scope.spawn(|| {
            // SAFETY: no memory or descriptor is unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.unwrap();
            ip(SET_UP);
            set("ipv4/conf/all/rp_filter", "0");
            set("ipv4/conf/all/forwarding", "1");
            set("ipv6/conf/all/forwarding", "1");
            let (lan, wan) = (index("lan"), index("wan"));
            let router = Router::new(&[(lan, LAN), (wan, WAN)]).unwrap();
            work(&Bed { router, lan });
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Runs each line with `ip`.
fn ip(lines: &str) {
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let output = Command::new("ip").args(line.split_whitespace()).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Writes a setting of this namespace.
fn set(setting: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{setting}"), value).unwrap();
}

/// The index of a device of this namespace.
fn index(device: &str) -> u32 {
    rustix::net::netdevice::name_to_index(
        socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap(),
        device,
    )
    .unwrap()
}

/// A program for `lan`, of which queue 0 has a socket.
struct Steered {
    steer: Steer,
    _socket: OwnedFd,
}

impl Bed {
    fn steer(&self) -> Steered {
        self.steer_with(Stalled::Pass, true)
    }

    fn steer_with(&self, stalled: Stalled, is_served: bool) -> Steered {
        let heartbeats = Heartbeats::new().unwrap();
        let mut heart = heartbeats.heart(0, Nanos(1)).unwrap();
        heart.beat(Nanos::ZERO);
        let watchdog = Watchdog { heartbeats, after: Nanos::from_millis(500), stalled };
        let (entry, router) = (Entry::Own, &self.router);
        let steer = Steer::load_router(LAN_MAC, false, SEAL, watchdog, entry, router, LAN).unwrap();
        let socket = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
        if is_served {
            steer.serve(0, socket.as_fd()).unwrap();
        }
        Steered { steer, _socket: socket }
    }

    /// What becomes of a frame that arrives at `lan`, and what lies in front of it.
    fn run(&self, steered: &Steered, frame: &[u8]) -> (u32, Vec<u8>, Vec<u8>) {
        let (TestRun { verdict, frame, .. }, before) =
            run_arriving(steered.steer.first(), frame, self.lan).unwrap();
        (verdict, frame, before)
    }

    /// Checks that a frame goes to the kernel as it is, for the reason `outcome`.
    #[track_caller]
    fn check_passes(&self, steered: &Steered, frame: &[u8], outcome: Outcome) {
        let mut expected = steered.steer.routed().unwrap();
        expected.0[outcome as usize] += 1;
        let (verdict, after, before) = self.run(steered, frame);
        assert_eq!(after, frame, "{outcome:?}");
        assert_eq!((verdict, before.as_slice()), (PASS, &[][..]), "{outcome:?}");
        let counters = steered.steer.routed().unwrap();
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
        let mut counters = steered.steer.routed().unwrap();
        counters.0[Outcome::Routed as usize] += 1;
        let (verdict, after, before) = self.run(steered, frame);
        assert_eq!(steered.steer.routed().unwrap(), counters);
        assert_eq!(verdict, REDIRECT);
        assert_eq!(after, model::leaving(frame, from, to));
        assert_eq!(before.len(), EGRESS_PORT_BYTES as usize);
        assert_eq!(egress_port(&before, SEAL), Some(port.index() as u8));
    }
}

/// RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let words = header.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
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
        let steered = bed.steer();
        bed.check_passes(&steered, &frame(NEAR, "10.0.1.1", 8), Outcome::NotForwarded);
        bed.check_passes(&steered, &frame(NEAR6, "2001:db8:b::1", 8), Outcome::NotForwarded);
        for left in [0, 1] {
            bed.check_passes(&steered, &with(frame(NEAR, FAR, 8), 22, left), Outcome::Ttl);
            bed.check_passes(&steered, &with(frame(NEAR6, FAR6, 8), 21, left), Outcome::Ttl);
        }
    });
}
