//! Frames as from a driver: they reach the other end of a cable without ever having had a socket
//! buffer.
//!
//! A packet socket makes a socket buffer, and a `veth` carries it to the other end. A NIC's driver
//! has a page with a frame in it, which its XDP program sees first. Live frames are such pages,
//! from a pool as a driver's, and a `veth` that is sent some hands them on as they are.

use super::program::{EMPTY_LIVE, map, with_maps};
use super::sink::{SINK, attached};
use anyhow::{Context, Result};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle};
use narrows_bpf::test_run::live_run;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

const FLOOD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/flood.bpf.o"));
const DROP_UDP: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/drop_udp.bpf.o"));

/// Frames of one call of the kernel, which takes tens of milliseconds to begin and to end, however
/// many they are. A signal ends it earlier.
const AT_ONCE: u32 = 1 << 28;

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

    /// The same for a flood of IPv4 frames, at so many a second, or as many as the core sends. Each
    /// frame has the next one of `sources`, or a new one if there are none. They go in bursts of
    /// 32.
    ///
    /// # Errors
    /// The same, or if there are too many sources.
    pub fn flooding(interface: u32, per_second: Option<f64>, sources: &[Ipv4Addr]) -> Result<Self> {
        // Of no frames a second it is more than any time.
        let interval = per_second.map_or(0, |rate| (BURST as f64 * 1e9 / rate) as u64);
        let driver = Self::with(FLOOD, &[interval, BURST, sources.len() as u64], interface)?;
        let into = map(&driver.maps, "sources")?;
        for (number, source) in (0_u32..).zip(sources) {
            into.update(&number.to_ne_bytes(), &source.octets(), MapFlags::ANY)?;
        }
        Ok(driver)
    }

    fn with(object: &[u8], constants: &[u64], interface: u32) -> Result<Self> {
        let (program, maps) = with_maps(object, constants)?;
        let key = 0_u32.to_ne_bytes();
        map(&maps, "port")?.update(&key, &interface.to_ne_bytes(), MapFlags::ANY)?;
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
