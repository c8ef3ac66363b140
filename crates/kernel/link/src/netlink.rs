//! Synchronous requests to the kernel over `NETLINK_ROUTE`.
//!
//! One request, all its answers, done. Each request opens a socket of its own: a netlink socket
//! belongs to the network namespace of the thread that opens it, requests are rare, and no answer
//! can be taken for that of another request.
//!
//! Requests are built with the typed messages of `netlink-packet-route`. Answers are returned as
//! bytes; [`crate::status`] says why.

use crate::LinkError;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader,
    NetlinkMessage, NetlinkPayload, NlasIterator,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::io;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// The acknowledgement carries attributes (`NLM_F_ACK_TLVS`).
const ACK_ATTRIBUTES: u16 = 0x200;
/// The attribute that holds the kernel's explanation (`NLMSGERR_ATTR_MSG`).
const EXPLANATION: u16 = 1;
/// The length of a netlink header. An acknowledgement repeats the header of the request.
const HEADER: usize = 16;
/// How often a listing is read again that changed while it was read.
const DUMP_ATTEMPTS: usize = 5;

/// An answer after its netlink header.
type Body = Vec<u8>;

/// Sends one request or command and returns the kernel's answers.
pub(crate) fn ask(
    doing: &str,
    message: RouteNetlinkMessage,
    flags: u16,
) -> Result<Vec<Body>, LinkError> {
    converse(doing, message, NLM_F_REQUEST | NLM_F_ACK | flags).map(|(messages, _)| messages)
}

/// Requests a listing. If a change interrupts it, it is read again.
pub(crate) fn dump(doing: &str, message: RouteNetlinkMessage) -> Result<Vec<Body>, LinkError> {
    let mut attempts = DUMP_ATTEMPTS;
    loop {
        let (messages, torn) = converse(doing, message.clone(), NLM_F_REQUEST | NLM_F_DUMP)?;
        attempts -= 1;
        if !torn || attempts == 0 {
            return Ok(messages);
        }
    }
}

/// A socket in the namespace of the calling thread, with explanations turned on.
pub(crate) fn open() -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    // Kernels before 4.12 support neither; their errors have less explanation.
    let _ = socket.set_ext_ack(true);
    let _ = socket.set_cap_ack(true);
    Ok(socket)
}

/// Splits a datagram into messages; stops at the first incomplete one.
pub(crate) fn messages(datagram: &[u8]) -> impl Iterator<Item = NetlinkBuffer<&[u8]>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        let buffer = NetlinkBuffer::new_checked(rest).ok()?;
        let length = buffer.length() as usize;
        let this = NetlinkBuffer::new(rest.get(..length)?);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(this)
    })
}

/// Receives a datagram of any length, from the kernel only.
pub(crate) fn receive(socket: &Socket) -> io::Result<Vec<u8>> {
    loop {
        match socket.recv_from_full() {
            Ok((datagram, from)) if from.port_number() == 0 => return Ok(datagram),
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
    }
}

fn converse(
    doing: &str,
    message: RouteNetlinkMessage,
    flags: u16,
) -> Result<(Vec<Body>, bool), LinkError> {
    let failed = |error| LinkError::from_io(doing, error);
    let socket = open().map_err(failed)?;
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map_err(failed)?;

    let mut answers = Vec::new();
    let mut torn = false;
    loop {
        let datagram = receive(&socket).map_err(failed)?;
        for message in messages(&datagram) {
            torn |= message.flags() & NLM_F_DUMP_INTR != 0;
            match message.message_type() {
                NLMSG_ERROR => {
                    return match refusal(message.payload(), message.flags()) {
                        None => Ok((answers, torn)),
                        Some((error, said)) => Err(LinkError::from_kernel(doing, error, said)),
                    };
                }
                NLMSG_DONE => return Ok((answers, torn)),
                _ => answers.push(message.payload().to_vec()),
            }
        }
    }
}

/// Parses an acknowledgement: `None` for success.
fn refusal(payload: &[u8], flags: u16) -> Option<(io::Error, Option<String>)> {
    let code = payload.first_chunk().map(|code| i32::from_ne_bytes(*code)).unwrap_or(-libc::EPROTO);
    if code == 0 {
        return None;
    }
    let attributes = payload.get(4 + HEADER..).filter(|_| flags & ACK_ATTRIBUTES != 0);
    let said = NlasIterator::new(attributes.unwrap_or_default())
        .filter_map(Result::ok)
        .find(|attribute| attribute.kind() == EXPLANATION)
        .map(|attribute| {
            String::from_utf8_lossy(attribute.value()).trim_end_matches('\0').to_owned()
        });
    Some((io::Error::from_raw_os_error(code.saturating_neg()), said))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_acknowledgement_says_yes() {
        assert!(refusal(&[0; 20], 0).is_none());
    }

    #[test]
    fn a_refusal_carries_the_kernel_s_explanation() {
        let mut payload = (-libc::EBUSY).to_ne_bytes().to_vec();
        payload.extend([0; HEADER]);
        payload.extend(8u16.to_ne_bytes());
        payload.extend(EXPLANATION.to_ne_bytes());
        payload.extend(b"no!\0");
        let (error, said) = refusal(&payload, ACK_ATTRIBUTES).unwrap();
        assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
        assert_eq!(said.as_deref(), Some("no!"));
    }

    proptest! {
        #[test]
        fn any_bytes_split_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for message in messages(&bytes) {
                let _ = refusal(message.payload(), message.flags());
            }
        }
    }
}
