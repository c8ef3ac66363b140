//! The parts of a packet's headers that queueing depends on.
//!
//! The owner of the frames parses them once, on arrival and only for qdiscs that need it
//! ([`Reading`]), and writes them once, on departure, if a qdisc has requested it ([`Rewrite`]). In
//! between nothing touches the payload: a qdisc sees hashes and DSCPs. So a simulator needs no
//! frames at all, and a bug of the parser stays in the parser.

use crate::PaceId;

/// What a qdisc needs to know about its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// [`Headers`] of every packet.
    pub headers: bool,
    /// Hosts and flow are those inside tunnels, if any.
    pub inner: bool,
    /// Hosts and flow are those on the inside of network address translation, if the kernel knows
    /// them.
    pub nat: bool,
    /// [`Acknowledgement`]s of TCP packets.
    pub acknowledgements: bool,
    /// [`Headers`] and [`Acknowledgement`]s of packets in the opposite direction.
    pub echoes: bool,
    /// The class that filters assign.
    pub class: bool,
    /// Frames for copies of packets.
    pub copies: bool,
    /// Room for another length of each packet than its frame's.
    pub sizes: bool,
}

impl Reading {
    /// Only the length.
    pub const NOTHING: Self = Self {
        headers: false,
        inner: false,
        nat: false,
        acknowledgements: false,
        echoes: false,
        class: false,
        copies: false,
        sizes: false,
    };

    /// The union of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            headers: self.headers || other.headers,
            inner: self.inner || other.inner,
            nat: self.nat || other.nat,
            acknowledgements: self.acknowledgements || other.acknowledgements,
            echoes: self.echoes || other.echoes,
            class: self.class || other.class,
            copies: self.copies || other.copies,
            sizes: self.sizes || other.sizes,
        }
    }

    /// What to parse of a packet, if its own qdisc needs this and the qdisc of the opposite
    /// direction needs `opposite`.
    #[must_use]
    pub const fn beside(self, opposite: Self) -> Self {
        Self {
            headers: self.headers || opposite.echoes,
            acknowledgements: self.acknowledgements || opposite.echoes,
            ..self
        }
    }
}

/// The ECN field (RFC 3168).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Ecn {
    /// The packet can only be dropped.
    #[default]
    NotCapable = 0,
    /// ECT(1).
    Capable1 = 1,
    /// ECT(0).
    Capable0 = 2,
    /// Congestion was experienced.
    Experienced = 3,
}

impl Ecn {
    /// From the low two bits of a traffic class.
    pub const fn of(traffic_class: u8) -> Self {
        match traffic_class & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::Experienced,
        }
    }

    /// Whether the packet may be marked instead of dropped.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Self::NotCapable)
    }
}

/// The headers of one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    /// A hash of the flow: both addresses, the protocol, and the ports, if there are any and the
    /// packet is no fragment. The same for all fragments of a packet.
    pub flow: u32,
    /// A hash of the source's address.
    pub source: u32,
    /// A hash of the destination's address. The same address hashes to the same value as a source.
    pub destination: u32,
    /// The firewall mark, if the owner of the frames knows it; otherwise 0.
    pub mark: u32,
    /// The offset of the network layer in bytes: 14 for plain Ethernet.
    pub network_offset: u16,
    /// The DSCP, 0 to 63 (RFC 2474); 0 without an IP header.
    pub dscp: u8,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// Whether it is an ARP packet for IPv4, which must not wait.
    pub is_arp: bool,
    /// The number of its flow's rate, if a filter has given it one; see [`crate::Paces`].
    pub pace: PaceId,
}

impl Headers {
    /// The value for a packet whose headers were not parsed.
    pub(crate) const NOTHING: Self = Self {
        flow: 0,
        source: 0,
        destination: 0,
        mark: 0,
        network_offset: 0,
        dscp: 0,
        ecn: Ecn::NotCapable,
        is_arp: false,
        pace: PaceId::NONE,
    };
}

/// What to write into a frame before it is sent. Two bytes, because all metadata of a packet must
/// fit a cache line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rewrite(u16);

impl Rewrite {
    /// Nothing.
    pub const NOTHING: Self = Self(0);

    const MARK: u16 = 1 << 15;
    const WASH: u16 = 1 << 14;
    /// The upper bound of places for a bit flip, which are fractions of the frame.
    pub const PLACES: u16 = Self::WASH;

    /// Whether to mark and to wash.
    pub const fn new(mark: bool, wash: bool) -> Self {
        Self(if mark { Self::MARK } else { 0 } | if wash { Self::WASH } else { 0 })
    }

    /// Flips the bit at `place`.
    pub fn flipping(place: u16) -> Self {
        let mut rewrite = Self::NOTHING;
        rewrite.flip(place);
        rewrite
    }

    /// Sets ECN to [`Ecn::Experienced`].
    #[inline]
    pub fn mark(&mut self) {
        self.0 |= Self::MARK;
    }

    /// Sets the DSCP to 0, or leaves it.
    #[inline]
    pub fn wash(&mut self, wash: bool) {
        self.0 = self.0 & !Self::WASH | if wash { Self::WASH } else { 0 };
    }

    /// Flips a bit at `place`, in 1/[`PLACES`](Self::PLACES) of the frame; 0 is nowhere. The bit
    /// may be anything: the packet becomes corrupt.
    pub fn flip(&mut self, place: u16) {
        self.0 = self.0 & !(Self::PLACES - 1) | place & (Self::PLACES - 1);
    }

    /// Whether to mark it.
    pub const fn marks(self) -> bool {
        self.0 & Self::MARK != 0
    }

    /// Whether to wash it.
    pub const fn washes(self) -> bool {
        self.0 & Self::WASH != 0
    }

    /// Where to flip a bit; 0 for nowhere.
    pub const fn place(self) -> u16 {
        self.0 & (Self::PLACES - 1)
    }

    /// Whether there is anything to write.
    pub const fn is_any(self) -> bool {
        self.0 != 0
    }
}

/// The fields of a TCP packet that decide whether it, or another one, is a redundant
/// acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acknowledgement {
    /// A hash of addresses and ports, never 0; 0 if the packet is not TCP (or a fragment, or
    /// truncated).
    pub connection: u64,
    /// The cumulative acknowledgement number.
    pub number: u32,
    /// The flags: `0x01` FIN, `0x02` SYN, `0x04` RST, `0x08` PSH, `0x10` ACK, `0x20` URG, `0x40`
    /// ECE, `0x80` CWR; `0x100`, `0x200`, `0x400` and `0x800` are the four bits beside the header
    /// length.
    pub flags: u16,
    /// Whether there is no data after the header.
    pub is_empty: bool,
    /// Whether all options allow an earlier acknowledgement to be dropped: end, no-operation, time
    /// stamps, selective acknowledgement.
    pub has_plain_options: bool,
    /// The time stamp's value and echo, if it has the option (RFC 7323).
    pub time_stamp: Option<(u32, u32)>,
    /// The number of entries in `blocks`.
    pub block_count: u8,
    /// Selectively acknowledged ranges, with exclusive ends (RFC 2018).
    pub blocks: [(u32, u32); 4],
}

impl Acknowledgement {
    /// The selectively acknowledged ranges.
    pub fn blocks(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.block_count.min(4))]
    }
}
