//! Notices changes made with ethtool.
//!
//! `NETLINK_ROUTE` does not announce a new number of queues, unless the driver happens to drop the
//! carrier for it, which virtio_net, for one, does not. The generic netlink family `ethtool`
//! announces every change of an interface's settings to its group `monitor`. The content of an
//! announcement is not decoded: announcements are rare, and reading the settings again is simpler.

use crate::netlink::{messages, receive};
use crate::status::{each, text, u32_at};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use std::io;

/// The controller, which lists all families (`GENL_ID_CTRL`), and the request for it.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const NLM_F_REQUEST: u16 = 1;
const FAMILY_NAME: u16 = 2;
const MULTICAST_GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;
/// Lengths of a netlink header, of a generic netlink header and of an attribute's.
const HEADERS: usize = 16 + 4;
const GENERIC_HEADER: usize = 4;
const ATTRIBUTE_HEADER: usize = 4;
const NAME: &[u8; 8] = b"ethtool\0";

/// Subscribes, without blocking, in the namespace of the calling thread.
///
/// # Errors
///
/// If the kernel, before 5.6 or built without CONFIG_ETHTOOL_NETLINK, has no such group.
pub(crate) fn subscribe() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.send_to(&question(), &SocketAddr::new(0, 0), 0)?;
    let answer = receive(&socket)?;
    let group = messages(&answer)
        .find_map(|message| monitor_group(message.payload()))
        .ok_or(io::ErrorKind::Unsupported)?;
    socket.add_membership(group)?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// Reads all pending announcements. Returns whether there were any, or some were lost.
pub(crate) fn announced(socket: &Socket) -> bool {
    let mut any = false;
    loop {
        match receive(socket) {
            Ok(_) => any = true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return any,
            Err(_) => return true,
        }
    }
}

/// The request to the controller for the family `ethtool`.
fn question() -> Vec<u8> {
    let attribute = (ATTRIBUTE_HEADER + NAME.len()) as u16;
    let mut bytes = Vec::new();
    bytes.extend((HEADERS as u32 + u32::from(attribute)).to_ne_bytes());
    bytes.extend(CONTROLLER.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    // Sequence number and port, which a socket with one request does not need.
    bytes.extend([0; 8]);
    bytes.extend([GET_FAMILY, 1, 0, 0]);
    bytes.extend(attribute.to_ne_bytes());
    bytes.extend(FAMILY_NAME.to_ne_bytes());
    bytes.extend(NAME);
    bytes
}

/// Finds the number of the group `monitor` in the controller's answer.
fn monitor_group(answer: &[u8]) -> Option<u32> {
    let mut found = None;
    each(answer.get(GENERIC_HEADER..)?, |kind, groups| {
        if kind != MULTICAST_GROUPS {
            return;
        }
        each(groups, |_, group| {
            let (mut name, mut id) = (String::new(), None);
            each(group, |kind, value| match kind {
                GROUP_NAME => name = text(value),
                GROUP_ID => id = u32_at(value, 0),
                _ => {}
            });
            if name == "monitor" {
                found = id;
            }
        });
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_question_says_its_own_length() {
        let question = question();
        assert_eq!(u32_at(&question, 0), Some(question.len() as u32));
    }

    proptest! {
        #[test]
        fn any_answer_reads_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = monitor_group(&bytes);
        }
    }
}
