//! Packets under way.

use narrows_units::Nanos;

/// A full packet, in bytes: what a link has to send, without framing.
pub(crate) const FULL: u32 = 1500;
/// Of that, data: headers of IP and TCP with timestamps take 52 bytes.
pub(crate) const SEGMENT: u32 = 1448;
/// An acknowledgement, in bytes: nothing but these headers.
pub(crate) const ACK: u32 = FULL - SEGMENT;

/// A packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    /// Its connection.
    pub(crate) flow: u32,
    /// The number of the transmission, its low half; that which it answers, if it is an
    /// acknowledgement.
    pub(crate) transmission: u32,
    /// In bytes.
    pub(crate) len: u32,
    /// How many links of its route it has been given to.
    pub(crate) hop: u8,
    pub(crate) kind: Kind,
}

/// The contents of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// A segment.
    Data {
        /// Congestion was experienced on its way.
        marked: bool,
    },
    /// The answer to a segment.
    Ack {
        /// The segment came marked.
        marked: bool,
        /// When the segment came.
        delivered: Nanos,
    },
}
