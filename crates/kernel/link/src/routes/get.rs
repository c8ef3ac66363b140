//! What the kernel says about the way of one packet: `ip route get`.

use super::message::{
    self, ROUTE_HEADER, RTA_DST, RTA_GATEWAY, RTA_METRICS, RTA_MULTIPATH, RTA_OIF, RTA_PREFSRC,
    RTA_VIA, RTAX_MTU,
};
use crate::LinkError;
use crate::address::ip;
use crate::netlink::{self, Request};
use crate::status::{each, u32_at};
use narrows_routes::Family;
use std::net::IpAddr;

const RTA_SRC: u16 = 2;
const RTA_IIF: u16 = 3;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The destination.
    pub to: IpAddr,
    /// The source, and the device where the packet arrives; none for a packet of this host.
    pub from: Option<(IpAddr, u32)>,
}

/// What the kernel answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The packet leaves through a device.
    Leaves {
        /// The device.
        ifindex: u32,
        /// The gateway; none on the link.
        gateway: Option<IpAddr>,
        /// The source that a packet of this host has.
        source: Option<IpAddr>,
        /// The route's MTU in bytes, if it has one of its own.
        mtu: Option<u32>,
    },
    /// It is for this host, or broadcast or multicast.
    Local,
    /// There is no way, or it is refused: an error number of the kernel.
    Refused(i32),
}

/// Asks the kernel for the way of a packet.
///
/// # Errors
/// If it does not answer.
pub fn get(question: &Question) -> Result<Answer, LinkError> {
    let family = if question.to.is_ipv4() { Family::V4 } else { Family::V6 };
    let mut body = vec![0; ROUTE_HEADER];
    (body[0], body[1]) = (message::number_of(family), family.bits());
    add(&mut body, RTA_DST, &octets(question.to));
    if let Some((source, ifindex)) = question.from {
        body[2] = family.bits();
        add(&mut body, RTA_SRC, &octets(source));
        add(&mut body, RTA_IIF, &ifindex.to_ne_bytes());
    }
    match netlink::ask("asking for a route", Request::route(libc::RTM_GETROUTE, body), 0) {
        Ok(answers) => Ok(answers.first().and_then(|it| parse(it)).unwrap_or(Answer::Refused(0))),
        // What the look-up came to, rather than that it failed.
        Err(error) => match error.errno() {
            Some(errno @ (libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES)) => {
                Ok(Answer::Refused(errno))
            }
            // A blackhole, and a source that cannot be.
            Some(errno @ (libc::EINVAL | libc::EXDEV)) => Ok(Answer::Refused(errno)),
            _ => Err(error),
        },
    }
}

fn parse(body: &[u8]) -> Option<Answer> {
    let kind = *body.get(7)?;
    let (mut ifindex, mut gateway, mut source, mut mtu) = (None, None, None, None);
    each(body.get(ROUTE_HEADER..)?, |kind, value| match kind {
        RTA_OIF => ifindex = u32_at(value, 0),
        RTA_GATEWAY => gateway = ip(value),
        RTA_VIA => gateway = message::via(value),
        RTA_PREFSRC => source = ip(value),
        RTA_METRICS => each(value, |kind, value| {
            if kind == RTAX_MTU {
                mtu = u32_at(value, 0).filter(|mtu| *mtu != 0);
            }
        }),
        // One of several: as `struct rtnexthop`, with attributes behind it.
        RTA_MULTIPATH => ifindex = u32_at(value, 4),
        _ => {}
    });
    match kind {
        libc::RTN_UNICAST => Some(Answer::Leaves { ifindex: ifindex?, gateway, source, mtu }),
        libc::RTN_LOCAL | libc::RTN_BROADCAST | libc::RTN_ANYCAST | libc::RTN_MULTICAST => {
            Some(Answer::Local)
        }
        _ => Some(Answer::Refused(0)),
    }
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn add(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend((4 + value.len() as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}
