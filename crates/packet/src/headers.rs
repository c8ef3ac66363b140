//! What a packet's headers say, as far as queueing depends on it.
//!
//! Whoever owns the frames reads them once, on arrival and only for qdiscs that ask for it
//! ([`Reading`]), and writes them once, on departure, where a qdisc has asked for that
//! ([`Rewrite`]). In between nobody touches a payload: a qdisc sees hashes and code points.
//! So a simulator needs no frames at all, and a parser's mistake cannot become a qdisc's.

/// What a qdisc wants to know of its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    /// [`Headers`] of every packet.
    pub headers: bool,
    /// Hosts and flow are those inside of tunnels, where there is one.
    pub inner: bool,
    /// Hosts and flow are those on the inside of network address translation, where the kernel
    /// tells.
    pub nat: bool,
    /// [`Acknowledgement`]s of TCP packets.
    pub acknowledgements: bool,
    /// [`Headers`] and [`Acknowledgement`]s of what comes the other way.
    pub echoes: bool,
    /// The class that filters assign.
    pub class: bool,
}

impl Reading {
    /// Nothing but the length.
    pub const NOTHING: Self = Self {
        headers: false,
        inner: false,
        nat: false,
        acknowledgements: false,
        echoes: false,
        class: false,
    };

    /// What is to be known for both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            headers: self.headers || other.headers,
            inner: self.inner || other.inner,
            nat: self.nat || other.nat,
            acknowledgements: self.acknowledgements || other.acknowledgements,
            echoes: self.echoes || other.echoes,
            class: self.class || other.class,
        }
    }

    /// What is to be known of a packet where this is what the qdisc that it is offered to wants,
    /// and `opposite` what the one wants that sends the other way.
    #[must_use]
    pub const fn beside(self, opposite: Self) -> Self {
        Self {
            headers: self.headers || opposite.echoes,
            acknowledgements: self.acknowledgements || opposite.echoes,
            ..self
        }
    }
}

/// The two bits of explicit congestion notification (RFC 3168).
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
    /// That of the low two bits of a traffic class.
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

/// What the headers of one packet say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Headers {
    /// A hash of the flow: both addresses, the protocol, and the ports where there are any and
    /// the packet is no fragment. The same for both fragments of a packet.
    pub flow: u32,
    /// A hash of the source's address.
    pub source: u32,
    /// A hash of the destination's address. The same address hashes to the same value as a source.
    pub destination: u32,
    /// The firewall's mark, where whoever owns the frames knows one; else 0.
    pub mark: u32,
    /// Where the network layer begins, in bytes: 14 for plain Ethernet.
    pub network_offset: u16,
    /// The differentiated services code point, 0 to 63 (RFC 2474); 0 where there is no IP header.
    pub dscp: u8,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// Whether it is an address resolution of IPv4, which is not to wait.
    pub is_arp: bool,
}

impl Headers {
    /// What is known of a packet whose headers nobody has read.
    pub(crate) const NOTHING: Self = Self {
        flow: 0,
        source: 0,
        destination: 0,
        mark: 0,
        network_offset: 0,
        dscp: 0,
        ecn: Ecn::NotCapable,
        is_arp: false,
    };
}

/// What is to be written into a frame before it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rewrite {
    /// The code point becomes [`Ecn::Experienced`].
    pub mark: bool,
    /// The differentiated services code point becomes 0.
    pub wash: bool,
}

impl Rewrite {
    /// Whether there is anything to write.
    pub const fn is_any(self) -> bool {
        self.mark || self.wash
    }
}

/// What of a TCP packet decides whether it, or another one, is a superfluous acknowledgement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acknowledgement {
    /// A hash of addresses and ports, never 0; 0 where the packet is not TCP (or a fragment, or
    /// truncated).
    pub connection: u64,
    /// The cumulative acknowledgement number.
    pub number: u32,
    /// The flags: `0x01` FIN, `0x02` SYN, `0x04` RST, `0x08` PSH, `0x10` ACK, `0x20` URG, `0x40`
    /// ECE, `0x80` CWR, `0x100`, `0x200`, `0x400` and `0x800` the four bits beside the header
    /// length.
    pub flags: u16,
    /// Whether there is no data behind the header.
    pub is_empty: bool,
    /// Whether all options are of sorts that an earlier acknowledgement may be dropped with:
    /// end, no-operation, time stamps, selective acknowledgement.
    pub has_plain_options: bool,
    /// The time stamp's value and echo, where there is the option (RFC 7323).
    pub time_stamp: Option<(u32, u32)>,
    /// How many of `blocks` there are.
    pub block_count: u8,
    /// Selectively acknowledged ranges, from and up to (RFC 2018).
    pub blocks: [(u32, u32); 4],
}

impl Acknowledgement {
    /// The ranges.
    pub fn blocks(&self) -> &[(u32, u32)] {
        &self.blocks[..usize::from(self.block_count.min(4))]
    }
}
