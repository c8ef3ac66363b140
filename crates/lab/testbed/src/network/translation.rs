//! Entries of connection tracking with translated addresses, without sending packets.
//!
//! This takes one message of conntrack's netlink interface
//! (`linux/netfilter/nfnetlink_conntrack.h`), which needs no firewall rule and no tool. The kernel
//! requires the privilege to administer the network, in the namespace of the caller.
//!
//! Non-goals: listing and removing entries; a namespace takes its own with it.

use crate::bed::{CLIENT_IP, SERVER_IP};
use crate::frames::DISCARD;
use crate::namespace::Namespace;
use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket,
};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

/// `IPCTNL_MSG_CT_NEW` of `NFNL_SUBSYS_CTNETLINK`.
const NEW_CONNECTION: u16 = 1 << 8;
/// `NLM_F_REQUEST`, `NLM_F_ACK`, `NLM_F_EXCL` and `NLM_F_CREATE`.
const CREATE: u16 = 0x1 | 0x4 | 0x200 | 0x400;
/// `NLM_F_NESTED`: the attribute's value are attributes.
const NESTED: u16 = 1 << 15;
/// How long the kernel keeps an entry that sees no packet, in seconds.
const KEPT: u32 = 600;
const AF_INET: u8 = 2;
const UDP: u8 = 17;

/// Makes the kernel of `namespace` believe that it hides the flow of `port` (see
/// [`crate::frames::udp`]): that its packets come from `inside`, and leave as the client's.
pub fn hide(namespace: &Namespace, inside: Ipv4Addr, port: u16) -> Result<()> {
    let message = message(inside, port);
    namespace.enter(|| {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkNetFilter,
        )
        .context("cannot open a netfilter socket")?;
        send(socket.as_raw_fd(), &message, MsgFlags::empty())?;
        let mut answer = [0; 512];
        let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
        // The header is followed by a negative error number, or 0.
        let code = answer[..len].get(16..20).and_then(|code| code.try_into().ok());
        let code = i32::from_ne_bytes(code.context("the kernel's answer is cut off")?);
        ensure!(code == 0, "the kernel takes no connection: {}", Errno::from_raw(-code));
        Ok(())
    })
}

fn message(inside: Ipv4Addr, port: u16) -> Vec<u8> {
    let tuple = |from: Ipv4Addr, to: Ipv4Addr, ports: [u16; 2]| {
        let addresses = [attribute(1, &from.octets()), attribute(2, &to.octets())].concat();
        let [source, destination] = ports.map(u16::to_be_bytes);
        let protocol =
            [attribute(1, &[UDP]), attribute(2, &source), attribute(3, &destination)].concat();
        [attribute(1 | NESTED, &addresses), attribute(2 | NESTED, &protocol)].concat()
    };
    let outside = CLIENT_IP.octets();
    let outside = [attribute(1, &outside), attribute(2, &outside)].concat();
    // Family, version and an unused number; then the two tuples, of which the kernel changes the
    // second as the translation of the source asks for.
    let body = [
        vec![AF_INET, 0, 0, 0],
        attribute(1 | NESTED, &tuple(inside, SERVER_IP, [port, DISCARD])),
        attribute(2 | NESTED, &tuple(SERVER_IP, inside, [DISCARD, port])),
        attribute(6 | NESTED, &outside),
        attribute(7, &KEPT.to_be_bytes()),
    ]
    .concat();
    let len = 16 + body.len() as u32;
    [
        &len.to_ne_bytes()[..],
        &NEW_CONNECTION.to_ne_bytes(),
        &CREATE.to_ne_bytes(),
        // A sequence number and a sender, which one question and one answer do without.
        &[0; 8],
        &body,
    ]
    .concat()
}

/// A netlink attribute, filled up to a multiple of four bytes.
fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = (4 + value.len()) as u16;
    let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
