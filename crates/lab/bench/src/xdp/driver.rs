//! Frames as from a driver: they reach the other end of a cable without ever having had a socket
//! buffer.
//!
//! A packet socket makes a socket buffer, and a `veth` carries it to the other end. A NIC's driver
//! has a page with a frame in it, which its XDP program sees first. Live frames are such pages,
//! from a pool as a driver's, and a `veth` that is sent some hands them on as they are.

use super::object::map;
use super::program::{EMPTY_LIVE, leaving_by};
use super::sink::{SINK, attached, attached_with};
use anyhow::{Context, Result};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use narrows_bpf::test_run::{DROP, PASS, REDIRECT, TX, live_run};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};

const FLOOD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/flood.bpf.o"));
const TOWARDS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/towards.bpf.o"));
const CONNECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/connect.bpf.o"));
const STATIONS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stations.bpf.o"));
const VERDICT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/verdict.bpf.o"));
const DROP_UDP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/drop_udp.bpf.o"));

/// Frames of one call of the kernel, which takes tens of milliseconds to begin and to end, however
/// many they are. A signal ends it earlier.
const AT_ONCE: u32 = 1 << 28;

/// The frames that may wait for another CPU.
const CPU_QUEUE: u32 = 2048;

/// The frames of a burst.
const BURST: u64 = 32;

/// Sends frames by one interface. Its other end must run NAPI: have an XDP program or GRO.
pub struct Driver {
    program: OwnedFd,
    maps: Vec<MapHandle>,
}

impl Driver {
    /// That of the interface with this number, in the caller's network namespace.
    ///
    /// # Errors
    /// If the kernel does not load the program that sends; without root it does not.
    pub fn of(interface: u32) -> Result<Self> {
        Self::with(EMPTY_LIVE, &[], interface)
    }

    /// The driver of the interface for a flood of IPv4 frames, at so many a second, or as many as
    /// the core sends. Each frame has the next one of `sources`, or a new one if there are none.
    /// They go in bursts of 32.
    ///
    /// # Errors
    /// If the kernel does not load the program that sends, or if there are too many sources.
    pub fn flooding(interface: u32, per_second: Option<f64>, sources: &[Ipv4Addr]) -> Result<Self> {
        // Of no frames a second it is more than any time.
        let interval = per_second.map_or(0, |rate| (BURST as f64 * 1e9 / rate) as u64);
        let constants = [interval, BURST, sources.len() as u64];
        Self::varying(FLOOD, &constants, interface, sources.iter().map(|ip| ip.octets()))
    }

    /// Frames leave by `interface`, as many as the core sends, each to the next one of
    /// `destinations`, all of the family of the frames, through the router with this MAC address.
    ///
    /// # Errors
    /// If the kernel does not load the program that sends, or if there are too many destinations.
    pub fn towards(interface: u32, router: [u8; 6], destinations: &[IpAddr]) -> Result<Self> {
        let constants = [lowest_first(router), destinations.len() as u64];
        let octets = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => {
                let mut octets = [0; 16];
                octets[..4].copy_from_slice(&ip.octets());
                octets
            }
            IpAddr::V6(ip) => ip.octets(),
        };
        Self::varying(TOWARDS, &constants, interface, destinations.iter().map(octets))
    }

    /// Frames leave by `interface`, as many as the core sends, through a switch: from one of so
    /// many stations after the other, each to the one on the other side with the same number. A
    /// station's address is 06, 01 on this side and 02 on the other, and its number in network
    /// order.
    ///
    /// # Errors
    /// If the kernel does not load the program that sends.
    pub fn switched(interface: u32, stations: u32) -> Result<Self> {
        Self::with(STATIONS, &[u64::from(stations)], interface)
    }

    /// TCP frames over IPv4 leave by `interface`, as many as the core sends, each of another one of
    /// so many `connections`, between these MAC addresses: to and from. The first `begin` frames
    /// begin connections: each in turn or, if they are more, any.
    ///
    /// # Errors
    /// If the kernel does not load the program that sends.
    pub fn connecting(
        interface: u32,
        macs: [[u8; 6]; 2],
        connections: u32,
        begin: u64,
    ) -> Result<Self> {
        let [to, from] = macs.map(lowest_first);
        Self::with(CONNECT, &[connections.into(), begin, to, from], interface)
    }

    /// With `addresses`, which differ from frame to frame.
    fn varying<const LENGTH: usize>(
        object: &[u8],
        constants: &[u64],
        interface: u32,
        addresses: impl Iterator<Item = [u8; LENGTH]>,
    ) -> Result<Self> {
        let driver = Self::with(object, constants, interface)?;
        let into = map(&driver.maps, "addresses")?;
        for (number, address) in (0_u32..).zip(addresses) {
            into.update(&number.to_ne_bytes(), &address, MapFlags::ANY)?;
        }
        Ok(driver)
    }

    fn with(object: &[u8], constants: &[u64], interface: u32) -> Result<Self> {
        let (program, maps) = leaving_by(interface, object, constants)?;
        Ok(Self { program, maps })
    }

    /// Sends frames like `frame` for a minute or so, as fast as the calling thread's core can.
    /// Those for which the other end has no room are lost, as in a NIC's ring.
    ///
    /// # Errors
    /// If the kernel has no live frames (before Linux 5.18).
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        live_run(self.program.as_fd(), frame, AT_ONCE).context("the kernel sends no live frames")
    }
}

/// A MAC address as a number whose lowest byte is the first.
fn lowest_first([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// What a [`Drain`] drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dropped {
    /// Everything.
    All,
    /// UDP over IPv4. The rest passes.
    Udp,
}

/// Drops what arrives at an interface, in its driver, by the smallest program there is for it.
pub struct Drain {
    _link: Link,
}

impl Drain {
    /// At the interface with this number, in the caller's network namespace, for as long as it
    /// lives.
    ///
    /// # Errors
    /// If the kernel does not attach the program.
    pub fn at(interface: u32, what: Dropped) -> Result<Self> {
        let object = match what {
            Dropped::All => SINK,
            Dropped::Udp => DROP_UDP,
        };
        let (_, link) = attached(object, interface).context("the drain")?;
        Ok(Self { _link: link })
    }
}

/// What a [`Bare`] program does with all frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Drops them.
    Drop,
    /// Lets the stack have them.
    Pass,
    /// Sends them back.
    Tx,
    /// Sends them through the interface with this number.
    Redirect(u32),
    /// Lets the stack have them on the CPU with this number.
    Cpu(u32),
}

/// The smallest program that gives one verdict.
pub struct Bare {
    _link: Link,
    /// The kernel forgets where a redirection leads once nobody has them open.
    _maps: Vec<MapHandle>,
}

impl Bare {
    /// At the interface with this number, in the caller's network namespace, for as long as it
    /// lives.
    ///
    /// # Errors
    /// If the kernel does not attach the program, or the verdict leads nowhere.
    pub fn at(interface: u32, verdict: Verdict) -> Result<Self> {
        let (number, is_to_cpu, cpu) = match verdict {
            Verdict::Drop => (DROP, 0, 0),
            Verdict::Pass => (PASS, 0, 0),
            Verdict::Tx => (TX, 0, 0),
            Verdict::Redirect(_) => (REDIRECT, 0, 0),
            Verdict::Cpu(cpu) => (REDIRECT, 1, cpu),
        };
        let constants = [number.into(), is_to_cpu, cpu.into()];
        let fill = |maps: &[MapHandle]| match verdict {
            Verdict::Redirect(to) => {
                let zero = 0_u32.to_ne_bytes();
                Ok(map(maps, "port")?.update(&zero, &to.to_ne_bytes(), MapFlags::ANY)?)
            }
            Verdict::Cpu(cpu) => {
                // Its queue, and no second program.
                let to = [CPU_QUEUE.to_ne_bytes(), [0; 4]].concat();
                Ok(map(maps, "cpus")?.update(&cpu.to_ne_bytes(), &to, MapFlags::ANY)?)
            }
            Verdict::Drop | Verdict::Pass | Verdict::Tx => Ok(()),
        };
        let (maps, link) =
            attached_with(VERDICT, &constants, interface, fill).context("the verdict")?;
        Ok(Self { _link: link, _maps: maps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp::object::with_maps;
    use etherparse::{Ipv4Header, NetSlice, PacketBuilder, SlicedPacket, TcpHeader};
    use narrows_bpf::test_run::test_run;
    use std::collections::BTreeSet;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    /// The loopback device, where nothing is sent.
    const NOWHERE: u32 = 1;

    /// What leaves of `count` frames, each run on what the last one left; nothing but a line if
    /// this is not root.
    fn sent(per_second: Option<f64>, sources: &[Ipv4Addr], count: usize) -> Option<Vec<Ipv4Addr>> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            eprintln!("SKIPPED: loading BPF programs needs root");
            return None;
        }
        let driver = Driver::flooding(NOWHERE, per_second, sources).unwrap();
        let mut frame = Vec::new();
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([0; 4], [10, 0, 0, 1], 64);
        builder.udp(1, 9).write(&mut frame, &[0; 18]).unwrap();
        let mut left = Vec::new();
        for _ in 0..count {
            let run = test_run(driver.program.as_fd(), &frame, 1).unwrap();
            frame = run.frame;
            if run.verdict == REDIRECT {
                let ip = Ipv4Header::from_slice(&frame[14..]).unwrap().0;
                assert_eq!(ip.header_checksum, ip.calc_header_checksum());
                left.push(ip.source.into());
            } else {
                assert_eq!(run.verdict, DROP);
            }
        }
        Some(left)
    }

    #[test]
    fn a_bare_program_gives_its_verdict_and_what_it_sends_back_is_addressed_to_the_sender() {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            eprintln!("SKIPPED: loading BPF programs needs root");
            return;
        }
        let frame: Vec<u8> = (0..64).collect();
        for verdict in [DROP, PASS, TX] {
            let (program, _) = with_maps(VERDICT, &[verdict.into(), 0, 0]).unwrap();
            let run = test_run(program.as_fd(), &frame, 1).unwrap();
            assert_eq!(run.verdict, verdict);
            let mut expected = frame.clone();
            if verdict == TX {
                expected[..12].rotate_left(6);
            }
            assert_eq!(run.frame, expected);
        }
        for to_cpu in [0, 1] {
            // It leads nowhere.
            let (program, _) = with_maps(VERDICT, &[REDIRECT.into(), to_cpu, 0]).unwrap();
            assert_eq!(test_run(program.as_fd(), &frame, 1).unwrap().verdict, 0);
        }
    }

    #[test]
    fn a_flood_takes_its_sources_in_turn() {
        let sources = [[20, 255, 3, 255], [83, 0, 0, 1]].map(Ipv4Addr::from);
        let Some(sent) = sent(None, &sources, 3) else { return };
        assert_eq!(sent, [sources[0], sources[1], sources[0]]);
    }

    #[test]
    fn a_flood_without_sources_invents_one_each() {
        let Some(sent) = sent(None, &[], 1000) else { return };
        assert_eq!(sent.iter().collect::<BTreeSet<_>>().len(), 1000);
        assert!(sent.iter().all(|source| (84..88).contains(&source.octets()[0])));
    }

    #[test]
    fn what_goes_through_a_router_takes_its_destinations_in_turn() {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            eprintln!("SKIPPED: loading BPF programs needs root");
            return;
        }
        let router = [2, 0, 0, 0, 0, 9];
        for [one, other] in [["192.0.2.1", "198.51.100.7"], ["2001:db8::1", "2001:db8:1::2"]] {
            let [one, other]: [IpAddr; 2] = [one, other].map(|ip| ip.parse().unwrap());
            let driver = Driver::towards(NOWHERE, router, &[one, other]).unwrap();
            let mut frame = Vec::new();
            let builder = PacketBuilder::ethernet2([2; 6], [4; 6]);
            // What a router has left of it, with one hop less.
            let builder = match one {
                IpAddr::V4(_) => builder.ipv4([10, 0, 0, 2], [10, 0, 0, 1], 63),
                IpAddr::V6(_) => builder.ipv6([1; 16], [2; 16], 63),
            };
            builder.udp(1, 9).write(&mut frame, &[0; 18]).unwrap();
            for wanted in [one, other, one] {
                let run = test_run(driver.program.as_fd(), &frame, 1).unwrap();
                frame = run.frame;
                assert_eq!((run.verdict, &frame[..6]), (REDIRECT, &router[..]));
                let parsed = SlicedPacket::from_ethernet(&frame).unwrap();
                let (to, hops): (IpAddr, u8) = match parsed.net.unwrap() {
                    NetSlice::Ipv4(ip) => {
                        let header = ip.header().to_header();
                        assert_eq!(header.header_checksum, header.calc_header_checksum());
                        (header.destination.into(), header.time_to_live)
                    }
                    NetSlice::Ipv6(ip) => {
                        let header = ip.header().to_header();
                        (header.destination.into(), header.hop_limit)
                    }
                    _ => panic!("no IP"),
                };
                assert_eq!((to, hops), (wanted, 64));
            }
        }
    }

    #[test]
    fn what_goes_through_a_switch_is_from_each_station_to_its_peer() {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            eprintln!("SKIPPED: loading BPF programs needs root");
            return;
        }
        let driver = Driver::switched(NOWHERE, 300).unwrap();
        let mut frame = vec![0; 64];
        for number in (0..300).chain([0]) {
            let run = test_run(driver.program.as_fd(), &frame, 1).unwrap();
            frame = run.frame;
            let [high, low] = u16::to_be_bytes(number);
            assert_eq!((run.verdict, &frame[..6]), (REDIRECT, &[6, 2, 0, 0, high, low][..]));
            assert_eq!(frame[6..12], [6, 1, 0, 0, high, low]);
        }
    }

    #[test]
    fn connections_begin_and_then_go_on_whatever_was_made_of_the_frame() {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            eprintln!("SKIPPED: loading BPF programs needs root");
            return;
        }
        let macs = [[2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 1]];
        let driver = Driver::connecting(NOWHERE, macs, 3, 3).unwrap();
        let builder = PacketBuilder::ethernet2([9; 6], [8; 6]).ipv4([1; 4], [10, 0, 0, 1], 63);
        let mut frame = Vec::new();
        builder.tcp(1, 80, 0, 0).write(&mut frame, &[]).unwrap();
        let mut seen = Vec::new();
        for _ in 0..6 {
            let run = test_run(driver.program.as_fd(), &frame, 1).unwrap();
            frame = run.frame;
            assert_eq!((run.verdict, &frame[..12]), (REDIRECT, &macs.concat()[..]));
            let (ip, rest) = Ipv4Header::from_slice(&frame[14..]).unwrap();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(ip.time_to_live, 64);
            let tcp = TcpHeader::from_slice(rest).unwrap().0;
            assert_ne!(tcp.syn, tcp.ack);
            seen.push((ip.source, tcp.source_port, tcp.syn));
        }
        assert!(seen[..3].iter().all(|(.., syn)| *syn) && seen[3..].iter().all(|(.., syn)| !syn));
        let named = |part: &[([u8; 4], u16, bool)]| -> BTreeSet<_> {
            part.iter().map(|(ip, port, _)| (*ip, *port)).collect()
        };
        assert_eq!(named(&seen[..3]).len(), 3);
        assert_eq!(named(&seen[..3]), named(&seen[3..]));
    }

    #[test]
    fn a_flood_with_a_rate_goes_in_bursts() {
        // One is due at once, the next in 32 seconds.
        let Some(slow) = sent(Some(1.0), &[], 100) else { return };
        assert_eq!(slow.len() as u64, BURST);
        assert!(sent(Some(0.0), &[], 100).unwrap().is_empty());
    }
}
