//! The headers that a filter asks for, in the words of `programs/packet.h`. Plain data.

/// `PACKET_WORDS` of `programs/packet.h`.
pub(crate) const PACKET_WORDS: usize = 9;
/// The bytes of these words.
pub(crate) const PACKET_BYTES: usize = PACKET_WORDS * 8;

/// The word in which the version of IP is.
const VERSION: usize = Field::Ip as usize / 8;

/// Which headers a packet has, as bits of [`Field::Has`].
pub mod has {
    /// Ports.
    pub const PORTS: u8 = 1;
    /// TCP's flags.
    pub const FLAGS: u8 = 2;
    /// ICMP's type and code.
    pub const ICMP: u8 = 4;
    /// It is a fragment,
    pub const FRAGMENT: u8 = 8;
    /// and the first one.
    pub const FIRST: u8 = 16;
    /// A tag,
    pub const TAG: u8 = 32;
    /// and another one behind it.
    pub const INNER_TAG: u8 = 64;
}

/// Offsets of the fields of `struct packet`. All are in network order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Field {
    /// 16 bytes; an IPv4 address in the first four.
    Source = 0,
    /// 16 bytes, likewise.
    Destination = 16,
    /// 6 bytes.
    SourceMac = 32,
    /// 6 bytes.
    DestinationMac = 40,
    /// 2 bytes.
    SourcePort = 48,
    /// 2 bytes.
    DestinationPort = 50,
    /// 2 bytes, behind all tags; that of IP, where it is in PPPoE or MPLS.
    EtherType = 52,
    /// 4, 6, or 0 for no IP.
    Ip = 54,
    /// 1 byte.
    Protocol = 55,
    /// 1 byte.
    TrafficClass = 56,
    /// 1 byte.
    Ttl = 57,
    /// 2 bytes.
    TcpFlags = 58,
    /// 1 byte.
    IcmpType = 60,
    /// 1 byte.
    IcmpCode = 61,
    /// 2 bytes: priority and VLAN of the outer tag.
    Tag = 62,
    /// The headers that it [has].
    Has = 64,
    /// 1 byte: what IP may be in, as [`carrier`] numbers it.
    Carrier = 65,
    /// 2 bytes: the EtherType of the outer tag.
    TagType = 66,
    /// 2 bytes: priority and VLAN of the second tag.
    InnerTag = 68,
    /// 2 bytes: its EtherType.
    InnerTagType = 70,
}

/// The number of an EtherType behind all tags that carries IP further: PPPoE sessions, and MPLS.
pub fn carrier(ether_type: u16) -> Option<u8> {
    match ether_type {
        0x8864 => Some(1),
        0x8847 => Some(2),
        0x8848 => Some(3),
        _ => None,
    }
}

/// Bits of the headers, and ranges of ports. The default asks for nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Headers {
    values: [u8; PACKET_BYTES],
    masks: [u8; PACKET_BYTES],
    /// Whether two conditions exclude each other.
    is_never: bool,
    /// The first and the last port; the last is not 0.
    pub source_ports: Option<(u16, u16)>,
    /// Likewise.
    pub destination_ports: Option<(u16, u16)>,
}

impl Default for Headers {
    fn default() -> Self {
        Self {
            values: [0; PACKET_BYTES],
            masks: [0; PACKET_BYTES],
            is_never: false,
            source_ports: None,
            destination_ports: None,
        }
    }
}

impl Headers {
    /// Adds a condition: `field` equals `value` under `mask`.
    pub fn ask(&mut self, field: Field, value: &[u8], mask: &[u8]) {
        let from = field as usize;
        let places = self.values.iter_mut().zip(&mut self.masks).skip(from);
        for ((into, bits), (value, mask)) in places.zip(value.iter().zip(mask)) {
            self.is_never |= (*into ^ value) & *bits & mask != 0;
            *into = *into & !mask | value & mask;
            *bits |= mask;
        }
    }

    /// Adds a condition: the packet [has] `what`.
    pub fn ask_for(&mut self, what: u8) {
        self.ask(Field::Has, &[what], &[what]);
    }

    /// Whether a condition needs the transport header.
    pub(crate) fn ask_for_transport(&self) -> bool {
        let fields = |from: Field, to: Field| {
            self.masks[from as usize..to as usize].iter().any(|bits| *bits != 0)
        };
        fields(Field::SourcePort, Field::EtherType)
            || fields(Field::Protocol, Field::TrafficClass)
            || fields(Field::TcpFlags, Field::Tag)
            || self.masks[Field::Has as usize] & !(has::TAG | has::INNER_TAG) != 0
            || self.source_ports.is_some()
            || self.destination_ports.is_some()
    }

    /// The words of the packet, as the program compares them: their values, and the bits that
    /// count.
    pub(crate) fn words(&self) -> [[u64; PACKET_WORDS]; 2] {
        let words = |bytes: &[u8; PACKET_BYTES]| {
            let mut words = [0; PACKET_WORDS];
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            words
        };
        let [mut values, mut masks] = [words(&self.values), words(&self.masks)];
        if self.is_never {
            // No packet is of this version of IP.
            (values[VERSION], masks[VERSION]) = (u64::MAX, u64::MAX);
        }
        [values, masks]
    }
}
