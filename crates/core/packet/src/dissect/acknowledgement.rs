//! What a TCP segment acknowledges.

use super::bytes::{be16, be32, byte, chunk};
use super::hash::Key;
use super::network::{Carried, Packet};
use super::protocol::TCP;
use crate::headers::Acknowledgement;

/// The length of a TCP header without options.
const HEADER_LEN: usize = 20;

/// The kinds of options that are parsed.
mod sort {
    pub(super) const END: u8 = 0;
    pub(super) const NO_OPERATION: u8 = 1;
    pub(super) const SELECTIVE: u8 = 5;
    pub(super) const TIME_STAMP: u8 = 8;
}

/// The acknowledgement in `packet`, if it is a TCP segment with a complete header.
#[inline(always)]
pub(super) fn read(key: &Key, frame: &[u8], packet: &Packet) -> Option<Acknowledgement> {
    let Carried { protocol, at, is_fragment, .. } = packet.carried;
    if protocol != TCP || is_fragment {
        return None;
    }
    let bytes = packet.bytes(frame);
    let header: &[u8; HEADER_LEN] = chunk(bytes, at)?;
    let header_len = usize::from(header[12] >> 4) * 4;
    let options = bytes.get(at + HEADER_LEN..at + header_len)?;
    let [source, destination] = key.hosts(frame, packet);
    let connection = key.flow(source, destination, TCP, packet.ports(frame));
    let mut read = Acknowledgement {
        connection: connection.max(1),
        number: be32(header, 8)?,
        flags: be16(header, 12)? & 0x0fff,
        // By the packet's declared length: the frame may be padded, or truncated.
        is_empty: at + header_len == packet.declared_end,
        ..Acknowledgement::default()
    };
    read.has_plain_options = read_options(&mut read, options).is_some();
    Some(read)
}

/// Records the `options`. `None` if one is malformed, occurs twice, or forbids dropping the
/// acknowledgement.
fn read_options(read: &mut Acknowledgement, options: &[u8]) -> Option<()> {
    let mut left = options;
    while let Some(&sort) = left.first() {
        match sort {
            sort::END => break,
            sort::NO_OPERATION => {
                left = &left[1..];
                continue;
            }
            _ => {}
        }
        let len = usize::from(byte(left, 1)?);
        let (option, behind) = left.split_at_checked(len)?;
        // In the two known kinds both lengths are at least 2; all other kinds end here.
        match sort {
            sort::TIME_STAMP if len == 10 && read.time_stamp.is_none() => {
                read.time_stamp = Some((be32(option, 2)?, be32(option, 6)?));
            }
            sort::SELECTIVE if matches!(len, 10 | 18 | 26 | 34) && read.block_count == 0 => {
                read.block_count = (len / 8) as u8;
                for (index, block) in read.blocks.iter_mut().take(len / 8).enumerate() {
                    *block = (be32(option, 2 + 8 * index)?, be32(option, 6 + 8 * index)?);
                }
            }
            _ => return None,
        }
        left = behind;
    }
    Some(())
}
