//! Synchronous requests to the kernel over netlink.
//!
//! One request, all its answers, done. Each request opens a socket of its own: a netlink socket
//! belongs to the network namespace of the thread that opens it, requests are rare, and no answer
//! can be taken for that of another request.
//!
//! Requests are built with the typed messages of `netlink-packet-route`, or from bytes
//! ([`Request`]) where it has no type for them. Answers are bytes; [`crate::status`] says why.

use crate::LinkError;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkSerializable,
    NlasIterator,
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

/// A request without its netlink header.
pub(crate) struct Request {
    /// The netlink protocol, such as `NETLINK_ROUTE`.
    pub(crate) protocol: isize,
    /// The type of the message.
    pub(crate) kind: u16,
    /// The header of its family, and its attributes.
    pub(crate) body: Body,
    /// Whether the kernel lists only what the header and the attributes ask for. It did not before
    /// 4.20, and does not unless it is told so.
    pub(crate) strict: bool,
}

impl From<RouteNetlinkMessage> for Request {
    fn from(message: RouteNetlinkMessage) -> Self {
        let mut body = vec![0; message.buffer_len()];
        message.serialize(&mut body);
        Self { strict: false, ..Self::route(message.message_type(), body) }
    }
}

impl Request {
    /// One of `NETLINK_ROUTE`, strict.
    pub(crate) fn route(kind: u16, body: Body) -> Self {
        Self { protocol: NETLINK_ROUTE, kind, body, strict: true }
    }

    /// The message on the wire. Sequence number and port stay 0: a socket with one request does not
    /// need them.
    fn bytes(&self, flags: u16) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER + self.body.len());
        bytes.extend(((HEADER + self.body.len()) as u32).to_ne_bytes());
        bytes.extend(self.kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(&self.body);
        bytes
    }
}

/// Sends one request or command and returns the kernel's answers.
pub(crate) fn ask(
    doing: &str,
    request: impl Into<Request>,
    flags: u16,
) -> Result<Vec<Body>, LinkError> {
    let mut answers = Vec::new();
    let flags = NLM_F_REQUEST | NLM_F_ACK | flags;
    converse(doing, &request.into(), flags, |body| answers.push(body.to_vec()))?;
    Ok(answers)
}

/// Requests a listing. If a change interrupts it, it is read again.
pub(crate) fn dump(doing: &str, request: impl Into<Request>) -> Result<Vec<Body>, LinkError> {
    let request = request.into();
    let mut attempts = DUMP_ATTEMPTS;
    loop {
        let mut answers = Vec::new();
        let torn = stream(doing, &request, |body| answers.push(body.to_vec()))?;
        attempts -= 1;
        if !torn || attempts == 0 {
            return Ok(answers);
        }
    }
}

/// Requests a listing that may be too long to keep, and lets `see` have each answer. Returns
/// whether a change interrupted it, so that something may be missing.
pub(crate) fn stream(
    doing: &str,
    request: &Request,
    see: impl FnMut(&[u8]),
) -> Result<bool, LinkError> {
    converse(doing, request, NLM_F_REQUEST | NLM_F_DUMP, see)
}

/// Sends commands, many at once, without waiting for an answer to each. The kernel has carried all
/// of them out when this returns.
///
/// # Errors
/// The first refusal. The others are carried out all the same.
pub(crate) fn tell(doing: &str, requests: impl Iterator<Item = Request>) -> Result<(), LinkError> {
    /// As many messages as are sent at once.
    const TOGETHER: usize = 64;
    let failed = |error| LinkError::from_io(doing, error);
    let socket = open().map_err(failed)?;
    socket.set_non_blocking(true).map_err(failed)?;
    let mut requests = requests.peekable();
    let mut result = Ok(());
    while requests.peek().is_some() {
        let mut bytes = Vec::new();
        for request in requests.by_ref().take(TOGETHER) {
            bytes.extend(request.bytes(NLM_F_REQUEST));
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map_err(failed)?;
        // Only what is refused is answered, and before sending returns.
        while let Ok(datagram) = receive(&socket) {
            for message in messages(&datagram) {
                if let Some((error, said)) = refusal(message.payload(), message.flags()) {
                    result = result.and(Err(LinkError::from_kernel(doing, error, said)));
                }
            }
        }
    }
    result
}

/// Appends an attribute.
pub(crate) fn attach(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend(((4 + value.len()) as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// A socket for `NETLINK_ROUTE` in the namespace of the calling thread, with explanations turned
/// on.
pub(crate) fn open() -> io::Result<Socket> {
    open_for(NETLINK_ROUTE)
}

fn open_for(protocol: isize) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
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

/// As much of a listing as the kernel ever puts into one datagram. It puts that much into one only
/// for those who have asked for as much before, and begins a bridge's table anew for each: with
/// 120,000 stations and the few that fit into a page, that takes seconds.
const MOST_AT_ONCE: usize = 32 << 10;

/// Receives a datagram of any length, from the kernel only.
pub(crate) fn receive(socket: &Socket) -> io::Result<Vec<u8>> {
    let whole = || -> io::Result<_> {
        let length = libc::MSG_PEEK | libc::MSG_TRUNC;
        let (length, _) = socket.recv_from(&mut Vec::new(), length)?;
        let mut datagram = Vec::with_capacity(length.max(MOST_AT_ONCE));
        let (_, from) = socket.recv_from(&mut datagram, 0)?;
        Ok((datagram, from))
    };
    loop {
        match whole() {
            Ok((datagram, from)) if from.port_number() == 0 => return Ok(datagram),
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
    }
}

/// Sends `request`, and lets `see` have each answer. Returns whether a change interrupted a
/// listing.
fn converse(
    doing: &str,
    request: &Request,
    flags: u16,
    mut see: impl FnMut(&[u8]),
) -> Result<bool, LinkError> {
    let failed = |error| LinkError::from_io(doing, error);
    let socket = open_for(request.protocol).map_err(failed)?;
    // An older kernel lists more, and who asks has to expect that.
    let _ = request.strict.then(|| socket.set_netlink_get_strict_chk(true));
    socket.send_to(&request.bytes(flags), &SocketAddr::new(0, 0), 0).map_err(failed)?;

    let mut torn = false;
    loop {
        let datagram = receive(&socket).map_err(failed)?;
        for message in messages(&datagram) {
            torn |= message.flags() & NLM_F_DUMP_INTR != 0;
            match message.message_type() {
                NLMSG_ERROR => {
                    return match refusal(message.payload(), message.flags()) {
                        None => Ok(torn),
                        Some((error, said)) => Err(LinkError::from_kernel(doing, error, said)),
                    };
                }
                // The end of a listing says whether it is complete.
                NLMSG_DONE => {
                    return match code(message.payload()) {
                        Some(code @ ..0) => Err(failed(error(code))),
                        _ => Ok(torn),
                    };
                }
                _ => see(message.payload()),
            }
        }
    }
}

/// Parses an acknowledgement: `None` for success.
fn refusal(payload: &[u8], flags: u16) -> Option<(io::Error, Option<String>)> {
    let code = code(payload).unwrap_or(-libc::EPROTO);
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
    Some((error(code), said))
}

/// The number at the beginning of an acknowledgement or of the end of a listing.
fn code(payload: &[u8]) -> Option<i32> {
    payload.first_chunk().map(|code| i32::from_ne_bytes(*code))
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code.saturating_neg())
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

    #[test]
    fn a_request_says_its_own_length_and_type() {
        let request = Request::route(34, vec![2, 0, 0, 0]);
        let bytes = request.bytes(NLM_F_REQUEST | NLM_F_DUMP);
        let seen: Vec<_> = messages(&bytes).collect();
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].message_type(), seen[0].flags()), (34, NLM_F_REQUEST | NLM_F_DUMP));
        assert_eq!(seen[0].payload(), [2, 0, 0, 0]);
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
