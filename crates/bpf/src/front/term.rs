//! What a program in front asks of a packet, and what it does with it then: plain data.

use narrows_units::{Bytes, Nanos, Rate};

/// As many terms a program may have: `TERMS_MAX` of `programs/front.bpf.c`.
pub const TERMS_MAX: usize = 32;
/// As many look-ups a term may have: `LOOK_UPS_MAX` there.
pub const LOOK_UPS_MAX: usize = 4;
/// As many words of the frame: `SELECTORS_MAX` there.
pub const SELECTORS_MAX: usize = 4;
/// As many steps: `STEPS_MAX` there.
pub const STEPS_MAX: usize = 3;
/// As many actions may count: `COUNTERS_MAX` of `programs/police.h`, without the last one.
pub const COUNTERS_MAX: usize = 96;
/// `PACKET_WORDS` of `programs/packet.h`.
pub(super) const PACKET_WORDS: usize = 9;
/// The bytes of these words.
pub(super) const PACKET_BYTES: usize = PACKET_WORDS * 8;

/// What a packet has, as bits of [`Field::Has`].
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
    /// A tag of IEEE 802.1Q.
    pub const TAG: u8 = 32;
}

/// Where a field of `struct packet` begins. All are in network order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Field {
    /// 16 bytes; an IPv4 address in the first four.
    Source = 0,
    /// The same of where it goes.
    Destination = 16,
    /// 6 bytes.
    SourceMac = 32,
    /// 6 bytes.
    DestinationMac = 40,
    /// 2 bytes.
    SourcePort = 48,
    /// 2 bytes.
    DestinationPort = 50,
    /// 2 bytes, behind all tags.
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
    /// What it [has].
    Has = 64,
}

/// Which end of a packet's way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// A look-up in a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LookUp {
    /// The set's number, below [`SETS_MAX`](narrows_sets::SETS_MAX).
    pub set: u16,
    /// Whose address is looked up.
    pub address: By,
    /// Whose port, where the set has ports.
    pub port: Option<By>,
    /// Whether the packet must not be in the set.
    pub is_negated: bool,
}

/// Four bytes of the frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// What they are,
    pub value: u32,
    /// as far as these bits go.
    pub mask: u32,
    /// Where they begin, from the network layer on.
    pub offset: i16,
    /// Whether the offset is from the transport layer on.
    pub is_behind_ip: bool,
}

/// What becomes of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// It goes on to the plane.
    Pass = 0,
    /// It is dropped.
    Drop = 1,
    /// The next filter is asked.
    Continue = 2,
    /// The next step is taken; behind the last one it is as with `Pass`.
    Pipe = 3,
}

/// For whom there is an account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// Each source: an IPv4 address, or the first 64 bits of an IPv6 address.
    Source = 1,
    /// Each destination's whole address.
    Destination = 2,
    /// Each flow: both addresses, protocol and ports.
    Flow = 3,
}

/// Accounts of many, of a policer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accounts {
    /// For whom.
    pub who: Who,
    /// How long who exceeds is blocked; [`Nanos::ZERO`] for not at all.
    pub block: Nanos,
    /// For how many there is room; rounded up to a power of two.
    pub room: u32,
    /// As many a second, and at once, get an account that had none; not 0.
    pub newcomers: u32,
}

/// Up to what packets conform.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policer {
    /// Bytes over time, and as many at once.
    pub rate: Option<(Rate, Bytes)>,
    /// Packets a second, and as many at once; not 0.
    pub packets: Option<(u64, u64)>,
    /// The longest packet in bytes; 0 for any.
    pub longest: u32,
    /// What is added to a packet's bytes,
    pub per_frame: i32,
    /// and the least of that.
    pub minimum: u32,
    /// Accounts of many; `None` for one of all.
    pub accounts: Option<Accounts>,
}

/// What a step does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Does {
    /// Nothing: it says what becomes of the packet.
    Decide,
    /// Tells packets within a rate from others. It needs a counter, beside which are its accounts.
    Police(Policer),
    /// Sets bits of the mark, which filters behind it in the driver see.
    Mark {
        /// What they are,
        value: u32,
        /// and which.
        mask: u32,
    },
}

/// A step of a term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What it does.
    pub does: Does,
    /// What becomes of the packet then,
    pub then: Then,
    /// or, where it does not conform.
    pub exceed: Then,
    /// Where it is counted, below [`COUNTERS_MAX`].
    pub counter: Option<u8>,
}

/// What a packet has to be, and what becomes of it then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Term {
    pub(super) values: [u8; PACKET_BYTES],
    pub(super) masks: [u8; PACKET_BYTES],
    /// Whether two things are asked for that cannot be at once.
    pub(super) is_never: bool,
    /// From the first to the last, which is not 0.
    pub source_ports: Option<(u16, u16)>,
    /// The same of where it goes.
    pub destination_ports: Option<(u16, u16)>,
    /// Bits of its mark, and which.
    pub mark: Option<(u32, u32)>,
    /// Words of the frame; at most [`SELECTORS_MAX`].
    pub words: Vec<Word>,
    /// All have to say yes; at most [`LOOK_UPS_MAX`].
    pub look_ups: Vec<LookUp>,
    /// What is done; at most [`STEPS_MAX`].
    pub steps: Vec<Step>,
    /// Whether the next term is of the same filter, of which one has to match; its steps count.
    pub has_more: bool,
}

impl Term {
    /// One that asks nothing, and passes all.
    pub fn any() -> Self {
        Self {
            values: [0; PACKET_BYTES],
            masks: [0; PACKET_BYTES],
            is_never: false,
            source_ports: None,
            destination_ports: None,
            mark: None,
            words: Vec::new(),
            look_ups: Vec::new(),
            steps: Vec::new(),
            has_more: false,
        }
    }

    /// Asks for the bits `mask` of `field` to be those of `value`, beside what was asked of it.
    pub fn ask(&mut self, field: Field, value: &[u8], mask: &[u8]) {
        let from = field as usize;
        let places = self.values.iter_mut().zip(&mut self.masks).skip(from);
        for ((into, bits), (value, mask)) in places.zip(value.iter().zip(mask)) {
            self.is_never |= (*into ^ value) & *bits & mask != 0;
            *into = *into & !mask | value & mask;
            *bits |= mask;
        }
    }

    /// Asks for `what` to be among what it [has].
    pub fn ask_for(&mut self, what: u8) {
        self.ask(Field::Has, &[what], &[what]);
    }

    /// Whether anything behind the IP header is asked for.
    pub(super) fn reads_transport(&self) -> bool {
        let fields = |from: Field, to: Field| {
            self.masks[from as usize..to as usize].iter().any(|bits| *bits != 0)
        };
        let of_flows = |step: &Step| match step.does {
            Does::Police(Policer { accounts: Some(accounts), .. }) => accounts.who == Who::Flow,
            _ => false,
        };
        fields(Field::SourcePort, Field::EtherType)
            || fields(Field::Protocol, Field::TrafficClass)
            || fields(Field::TcpFlags, Field::Tag)
            || self.masks[Field::Has as usize] & !has::TAG != 0
            || self.source_ports.is_some()
            || self.destination_ports.is_some()
            || self.words.iter().any(|word| word.is_behind_ip)
            || self.look_ups.iter().any(|look_up| look_up.port.is_some())
            || self.steps.iter().any(of_flows)
    }

    /// The policers among its steps that have accounts of many, with their counters.
    pub(super) fn accounts(&self) -> impl Iterator<Item = (u8, Accounts)> {
        self.steps.iter().filter_map(|step| match step.does {
            Does::Police(Policer { accounts: Some(accounts), .. }) => {
                Some((step.counter?, accounts))
            }
            _ => None,
        })
    }
}
