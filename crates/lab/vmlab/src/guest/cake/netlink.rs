//! Netlink requests for features that this host's `tc` and libraries do not support yet.

use anyhow::{Context, Result, bail};
use netlink_sys::{Socket, SocketAddr};
use std::io;

/// Set in every request.
const REQUEST: u16 = 0x01;
/// Requests an acknowledgement.
pub const ACK: u16 = 0x04;
/// Requests a listing.
pub const DUMP: u16 = 0x300;
/// Creates the object if it does not exist.
pub const CREATE: u16 = 0x400;
/// The type of a message with an error or an acknowledgement.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Length of a message's header.
const HEADER: usize = 16;

/// A netlink socket.
pub struct Conversation(Socket);

impl Conversation {
    /// Over `protocol`, in the namespace of the calling thread.
    pub fn begin(protocol: isize) -> Result<Self> {
        let mut socket = Socket::new(protocol).context("cannot open a netlink socket")?;
        socket.bind_auto()?;
        Ok(Self(socket))
    }

    /// Sends one request, and returns the bodies of the answers.
    pub fn ask(&self, kind: u16, flags: u16, body: &[u8]) -> Result<Vec<Vec<u8>>> {
        let length = (HEADER + body.len()) as u32;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((flags | REQUEST).to_ne_bytes());
        message.extend([0; 8]); // sequence and port
        message.extend(body);
        self.0.send_to(&message, &SocketAddr::new(0, 0), 0)?;
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.0.recv_from_full()?;
            for (kind, body) in messages(&datagram) {
                match kind {
                    ERROR => {
                        let code = number(body, 0).context("netlink says half an error")? as i32;
                        if code != 0 {
                            bail!("the kernel refuses: {}", io::Error::from_raw_os_error(-code));
                        }
                        return Ok(answers);
                    }
                    DONE => return Ok(answers),
                    _ => answers.push(body.to_vec()),
                }
            }
        }
    }
}

/// An attribute.
pub fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The attributes in `bytes`, with their kinds.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    records(bytes, |head| {
        let length = u16::from_ne_bytes([*head.first()?, *head.get(1)?]);
        Some((usize::from(length), u16::from_ne_bytes([*head.get(2)?, *head.get(3)?]), 4))
    })
}

fn messages(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    records(bytes, |head| {
        let kind = u16::from_ne_bytes([*head.get(4)?, *head.get(5)?]);
        Some((number(head, 0)? as usize, kind, HEADER))
    })
}

/// Consecutive records. Each has its length, header included, in its header.
fn records(
    bytes: &[u8],
    header: impl Fn(&[u8]) -> Option<(usize, u16, usize)>,
) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (length, kind, begin) = header(rest)?;
        let value = rest.get(begin..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The number at `offset`.
pub fn number(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..offset + 4)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_are_written() {
        let bytes = [attribute(1, b"cake_mq\0"), attribute(7, &[1, 2, 3])].concat();
        assert_eq!(bytes.len() % 4, 0);
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(found, [(1, &b"cake_mq\0"[..]), (7, &[1, 2, 3])]);
    }

    #[test]
    fn half_a_record_is_none() {
        let bytes = attribute(2, &[5; 8]);
        assert_eq!(attributes(&bytes[..6]).count(), 0);
        assert_eq!(attributes(&[]).count(), 0);
        assert_eq!(messages(&[0; 16]).count(), 0);
    }
}
