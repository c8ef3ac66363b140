//! The far end of a tunnel of IP in IP, where the kernel has no device for one.
//!
//! A raw socket gets the packets; what is in them goes through a cable of its own back into the
//! same namespace, as a tunnel's device would deliver it.
//!
//! Non-goals: the way back; an inner packet of the other family.

use crate::background::Background;
use crate::bed::batch;
use crate::namespace::Namespace;
use crate::raw::{Offer, RawSocket};
use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, ipproto, recv, socket_with};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// The longest packet.
const PACKET_MAX: usize = 0x1_0000;
/// How often it looks for packets when there were none.
const PAUSE: Duration = Duration::from_micros(100);
/// The header that a raw socket of IPv4 leaves in front, without options; that of IPv6 leaves none.
const OUTER_V4: usize = 20;

/// Unpacks what arrives in `namespace` in packets of the family of `outer`, until it is dropped.
/// The cable is called after the family.
pub fn ip_in_ip(namespace: &Namespace, outer: IpAddr) -> Result<Background<()>> {
    let is_v4 = outer.is_ipv4();
    let (family, protocol, skipped, ether_type, name): (_, _, _, u16, _) = if is_v4 {
        (AddressFamily::INET, ipproto::IPIP, OUTER_V4, 0x0800, "unpack4")
    } else {
        (AddressFamily::INET6, ipproto::IPV6, 0, 0x86dd, "unpack6")
    };
    let far = format!("{name}-in");
    batch(
        &["-n", namespace.name()],
        &format!(
            "link add {name} type veth peer name {far}\n\
             link set {name} up\n\
             link set {far} up\n"
        ),
    )?;
    if is_v4 {
        namespace.set(&format!("ipv4/conf/{far}/rp_filter"), "0")?;
    }
    let header = [
        &namespace.mac_address(&far)?[..],
        &namespace.mac_address(name)?,
        &ether_type.to_be_bytes(),
    ]
    .concat();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let open = || Ok(socket_with(family, SocketType::RAW, flags, Some(protocol))?);
    let from = namespace.enter(open).context("cannot open a raw socket")?;
    let to = RawSocket::open(namespace, name)?;
    Background::start(name, move |end: &AtomicBool| {
        let mut packet = vec![0; PACKET_MAX];
        while !end.load(Ordering::Relaxed) {
            let Ok((_, bytes)) = recv(&from, packet.as_mut_slice(), RecvFlags::empty()) else {
                sleep(PAUSE);
                continue;
            };
            let inner = packet.get(skipped..bytes).context("shorter than a header")?;
            let offer = to.offer(&[&header, inner].concat())?;
            ensure!(offer == Offer::Taken, "{name} does not take a packet");
        }
        Ok(())
    })
}
