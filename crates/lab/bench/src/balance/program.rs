//! A program under test, behind the one that makes connections.

use super::{Shape, System};
use crate::xdp::object::{map, with_maps};
use anyhow::{Result, ensure};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use narrows_balance::{SERVERS_MAX, SLOTS, Services};
use narrows_bpf::{BalanceTables, BalancedPort, Balancer, Entry, NextHop, Way};
use narrows_forwarding::PortId;
use narrows_units::Nanos;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

const FLOWS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/flows.bpf.o"));
const SEND_BACK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/send_back.bpf.o"));
const LRU: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/lru.bpf.o"));

/// The port's MAC address.
const MAC: [u8; 6] = [2; 6];
/// The first server's address.
const FIRST: u32 = 0xc612_0001;
/// What clients connect to.
const SERVICE: &str = "192.0.2.1:80";

/// A program in the kernel. What leads to the one under test is emptied when no descriptor holds
/// it.
pub(super) struct Program {
    flows: OwnedFd,
    /// Begins each connection.
    beginning: OwnedFd,
    _subject: OwnedFd,
    _maps: Vec<MapHandle>,
    _tables: Option<BalanceTables>,
}

impl Program {
    pub(super) fn load(shape: Shape) -> Result<Self> {
        ensure!(usize::from(shape.servers) <= SERVERS_MAX, "at most {SERVERS_MAX} servers");
        let flows =
            |are_new: bool| with_maps(FLOWS, &[u64::from(shape.connections), u64::from(are_new)]);
        let (program, mut maps) = flows(shape.are_new)?;
        let (beginning, of_beginning) = flows(true)?;
        let mut tables = None;
        let subject = match shape.system {
            System::Tx => with_maps(SEND_BACK, &[])?.0,
            System::Lru => {
                let (program, own) = with_maps(LRU, &[])?;
                let ring = map(&own, "ring")?;
                for slot in 0..SLOTS as u32 {
                    ring.update(&slot.to_ne_bytes(), &slot.to_ne_bytes(), MapFlags::ANY)?;
                }
                maps.extend(own);
                program
            }
            System::Narrows => balancer("mh -b mh-port", shape.servers, &mut tables)?,
            System::NarrowsRecorded => balancer("rr", shape.servers, &mut tables)?,
        };
        for maps in [&maps, &of_beginning] {
            let fd = subject.as_raw_fd();
            let leads_to = map(maps, "subject")?;
            leads_to.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
        }
        maps.extend(of_beginning);
        Ok(Self { flows: program, beginning, _subject: subject, _maps: maps, _tables: tables })
    }

    /// Makes packets of its shape.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.flows.as_fd()
    }

    /// Makes the first packet of each connection.
    pub(super) fn beginning(&self) -> BorrowedFd<'_> {
        self.beginning.as_fd()
    }
}

fn balancer(scheduler: &str, servers: u16, kept: &mut Option<BalanceTables>) -> Result<OwnedFd> {
    let mut text = format!("-A -t {SERVICE} -s {scheduler}\n");
    let mut ways = BTreeMap::new();
    for number in 0..u32::from(servers) {
        let address = Ipv4Addr::from(FIRST + number);
        let _ = writeln!(text, "-a -t {SERVICE} -r {address} -g");
        let source = IpAddr::from([198, 18, 0, 254]);
        let way =
            Way::Beyond(NextHop { port: PortId::FIRST, to: [4; 6], from: MAC, source, mtu: 1500 });
        ways.insert(IpAddr::from(address), way);
    }
    let mut services = Services::default();
    services.restore(&text, Nanos::ZERO).map_err(anyhow::Error::msg)?;
    let tables = kept.insert(BalanceTables::new()?);
    tables.follow(&services, &ways)?;
    let number = PortId::FIRST;
    let port = BalancedPort { number, mac: MAC, multi_buffer: false, entry: Entry::Own };
    let balancer = Balancer::load(tables, port)?;
    Ok(balancer.program().try_clone_to_owned()?)
}

/// A TCP packet to the service, of 64 bytes.
pub(super) fn frame() -> Vec<u8> {
    let mut frame = [MAC, [6; 6]].concat();
    frame.extend([0x08, 0x00]);
    frame.extend([0x45, 0, 0, 50, 0, 1, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([10, 0, 0, 1, 192, 0, 2, 1]);
    frame.extend([4, 0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    frame.resize(64, 0);
    frame
}
