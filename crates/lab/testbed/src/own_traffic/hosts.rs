//! Hosts that receive, with different numbers of flows.

use crate::bed::{End, ip};
use anyhow::Result;
use std::net::Ipv4Addr;

/// The most hosts: the last one has 128 flows.
pub const HOSTS_MAX: u8 = 8;
/// How far apart their addresses are.
const APART: u32 = 16;

/// A host, which is an address of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) ip: Ipv4Addr,
    pub(super) flows: usize,
}

/// Gives `receiver` the addresses of `count` hosts. The first one has a single flow, and each other
/// one twice as many as that before it.
pub(super) fn several(receiver: End<'_>, count: u8) -> Result<Vec<Host>> {
    let hosts: Vec<Host> = (0..count)
        .map(|number| Host {
            ip: Ipv4Addr::from(u32::from(receiver.ip) + u32::from(number) * APART),
            flows: 1 << number,
        })
        .collect();
    for Host { ip: address, .. } in hosts.iter().skip(1) {
        ip(receiver.namespace, &format!("addr add {address}/24 dev {}", receiver.device))?;
    }
    Ok(hosts)
}

/// What each host has of what flows have, which are in the order of their hosts.
pub(super) fn by_host(hosts: &[Host], flows: &[u64]) -> Vec<u64> {
    let mut flows = flows.iter();
    hosts.iter().map(|host| flows.by_ref().take(host.flows).sum()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_what_its_flows_have() {
        let ip = Ipv4Addr::LOCALHOST;
        let hosts = [1, 2, 4].map(|flows| Host { ip, flows });
        assert_eq!(by_host(&hosts, &[7, 1, 2, 3, 3, 3, 4]), [7, 3, 13]);
    }
}
