//! Actions: what happens to a packet that a filter matches, as data.
//!
//! An action has a kind and an index. Several filters may refer to the same action; they then share
//! its counters and, for a policer, its rate.
//!
//! Source: `tc-actions(8)`, `tc-police(8)`, `tc-skbedit(8)`, `net/sched/act_gact.c`,
//! `act_police.c`, `act_skbedit.c`. `pace` is ours.

use crate::{DeviceName, Mark, SetName};
use narrows_packet::PaceId;
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};

/// Identifies an action by kind and index, as `tc actions` does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ActionId {
    /// The kind.
    pub kind: ActionKind,
    /// The index, unique within the kind; starts at 1.
    pub index: u32,
}

/// The kinds of actions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ActionKind {
    /// Decides the fate of the packet.
    Gact = 1,
    /// Separates packets within a rate from packets above it.
    Police,
    /// Sets the packet's mark or priority.
    Skbedit,
    /// Sends the packet through another device.
    Mirred,
    /// Gives the packet's flow a rate, in the qdisc that paces it.
    Pace,
}

impl ActionKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Gact, Self::Police, Self::Skbedit, Self::Mirred, Self::Pace];

    /// The name in `tc`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gact => "gact",
            Self::Police => "police",
            Self::Skbedit => "skbedit",
            Self::Mirred => "mirred",
            Self::Pace => "pace",
        }
    }
}

impl ActionId {
    /// The highest index of a `pace`: packets have no room for a higher one.
    pub const PACE_MAX: u32 = PaceId::MAX;

    /// The number of the rate that a `pace` gives, which is its index; `None` for other kinds.
    pub fn pace(self) -> Option<PaceId> {
        let is_pace = self.kind == ActionKind::Pace && self.index <= Self::PACE_MAX;
        if is_pace { PaceId::new(self.index) } else { None }
    }

    /// The action's key in a [`PersistentMap`](crate::PersistentMap).
    pub fn key(self) -> u64 {
        (self.kind as u64) << 32 | u64::from(self.index)
    }
}

/// The fate of a packet after an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    /// The packet gets the class that its filter assigns (`pass`, `ok`).
    Pass,
    /// The packet is dropped (`drop`, `shot`).
    Drop,
    /// The search goes on with the next filter.
    Continue,
    /// The search starts again at the first filter.
    Reclassify,
    /// The next action of the filter runs; after the last one, the same as `Pass`.
    Pipe,
    /// The action of the filter with this index runs next, counted from 0; the same as `Pass` if
    /// the filter has none there, and for 0.
    Jump(u16),
}

/// The parameters of an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// `gact`
    Gact {
        /// The fate of the packets that `random` does not select.
        control: Control,
        /// Selects some packets for another fate.
        random: Option<Random>,
    },
    /// `police`
    Police(Police),
    /// `skbedit`
    Skbedit {
        /// The class of a qdisc: major number in the upper half, minor in the lower.
        priority: Option<u32>,
        /// The bits of the mark to set.
        mark: Option<Mark>,
        /// What is kept as given, and which no packet can have.
        idle: Idle,
        /// The fate of the packet afterwards.
        control: Control,
    },
    /// `mirred`
    Mirred(Mirred),
    /// `pace`
    Pace {
        /// The rate of the packet's flow.
        rate: PaceRate,
        /// The fate of the packet afterwards.
        control: Control,
    },
}

/// Where the rate of a [`Pace`](Action::Pace) is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PaceRate {
    /// It is this one.
    Of(Rate),
    /// The member of a set that covers the packet's address has it. Packets that none covers get
    /// no rate.
    Member {
        /// The set.
        set: SetName,
        /// Whether the source's address counts, not the destination's.
        is_source: bool,
    },
}

/// What `skbedit` sets of a packet that no frame at a port has. No filter can have such an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Idle {
    /// `queue_mapping`: the queue by which the packet is to leave.
    pub queue: Option<u16>,
    /// `ptype`: whom the packet is for, as a `PACKET_` number of `linux/if_packet.h`.
    pub packet_type: Option<u16>,
    /// `inheritdsfield`: the priority is that of the DS field.
    pub inherits_ds_field: bool,
}

/// Sends packets through a device. With [`Mirred::is_served`] the packet passes: the policy knows
/// which qdiscs that device stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mirred {
    /// The device.
    pub to: DeviceName,
    /// Whether a copy goes there, and not the packet itself.
    pub is_mirror: bool,
    /// Whether it arrives there, and does not leave there.
    pub is_ingress: bool,
    /// The fate of the packet of which a copy goes; redirected packets are stolen.
    pub control: Control,
}

impl Mirred {
    /// Whether a filter can have it: `egress redirect`.
    pub fn is_served(&self) -> bool {
        !self.is_mirror && !self.is_ingress
    }
}

/// Selects one packet in `of` for another fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Random {
    /// Whether it selects exactly every `of`th packet (`determ`) or each packet with probability
    /// 1/`of` (`netrand`).
    pub is_determined: bool,
    /// The divisor; at least 1.
    pub of: u16,
    /// The fate of a selected packet.
    pub control: Control,
}

/// The parameters of a policer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Police {
    /// The rate in bytes on the wire.
    pub rate: Option<Rate>,
    /// The burst that may exceed `rate`.
    pub burst: Bytes,
    /// A second rate, whose burst is at most `mtu`.
    pub peak_rate: Option<Rate>,
    /// The longest packet, in bytes; [`Bytes::default`] means no limit.
    pub mtu: Bytes,
    /// Packets per second, and the burst in packets.
    pub packets: Option<(u64, u64)>,
    /// How a packet's length is counted.
    pub overhead: Overhead,
    /// A rate for each source, destination or flow, instead of one for all.
    pub per: Option<Per>,
    /// The fate of packets that exceed the rate.
    pub exceed: Control,
    /// The fate of packets that conform.
    pub conform: Control,
}

/// A policer that keeps one rate per key, in the driver. Its table has a fixed size. When the table
/// is full, a new key evicts the entry that loses the least by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Per {
    /// The key.
    pub key: AccountKey,
    /// How long a key that exceeds the rate is blocked; [`Nanos::ZERO`] for no blocking.
    pub block: Nanos,
    /// The table's capacity, in keys.
    pub room: u32,
    /// How many packets per second from unknown keys are admitted.
    pub newcomers: u32,
}

/// The key of a per-key policer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccountKey {
    /// The source: an IPv4 address, or the first 64 bits of an IPv6 address.
    Source,
    /// The full destination address.
    Destination,
    /// The flow: both addresses, protocol and ports.
    Flow,
}

impl Per {
    /// The smallest and largest capacity.
    pub const ROOM: std::ops::RangeInclusive<u32> = 1024..=1 << 22;
    /// The default capacity.
    pub const ROOM_DEFAULT: u32 = 1 << 16;
    /// Newcomers need at least this many seconds to replace the whole table.
    const TURNOVER_SECS: u64 = 16;

    /// The default of [`Per::newcomers`].
    pub fn newcomers_default(room: u32, block: Nanos) -> u32 {
        let slowest = u64::from(room) / Self::TURNOVER_SECS;
        slowest.min(Self::newcomers_max(room, block)).max(1) as u32
    }

    /// The largest [`Per::newcomers`]: even if every newcomer were blocked, half of the table would
    /// stay free.
    pub fn newcomers_max(room: u32, block: Nanos) -> u64 {
        let half = u128::from(room / 2);
        match block.0 {
            0 => half as u64,
            block => (half * 1_000_000_000 / u128::from(block)).clamp(1, half) as u64,
        }
    }
}

impl AccountKey {
    /// All keys.
    pub const ALL: [Self; 3] = [Self::Source, Self::Destination, Self::Flow];

    /// The word for it in `tc`'s syntax.
    pub fn name(self) -> &'static str {
        match self {
            Self::Source => "src",
            Self::Destination => "dst",
            Self::Flow => "flow",
        }
    }
}

impl Action {
    /// The kind of this action.
    pub fn kind(&self) -> ActionKind {
        match self {
            Self::Gact { .. } => ActionKind::Gact,
            Self::Police(_) => ActionKind::Police,
            Self::Skbedit { .. } => ActionKind::Skbedit,
            Self::Mirred(_) => ActionKind::Mirred,
            Self::Pace { .. } => ActionKind::Pace,
        }
    }

    /// The fates it can decide: that of conforming (or all) packets, and that of the others.
    pub fn controls(&self) -> [Control; 2] {
        match self {
            Self::Gact { control, random } => {
                [*control, random.map_or(*control, |random| random.control)]
            }
            Self::Police(police) => [police.conform, police.exceed],
            Self::Skbedit { control, .. } | Self::Pace { control, .. } => [*control; 2],
            Self::Mirred(_) => [Control::Pass; 2],
        }
    }

    /// Why no filter can have this action; `None` if one can. Without a filter it does nothing, as
    /// in the kernel.
    pub fn why_idle(&self) -> Option<&'static str> {
        match self {
            Self::Mirred(Mirred { is_ingress: true, .. }) => Some(
                "\"mirred ingress\" is not supported here: packets come in by the ports alone; \
                 redirect to the egress of an ifb, as mirred egress redirect dev ifb0",
            ),
            Self::Mirred(Mirred { is_mirror: true, .. }) => Some(
                "\"mirror\" is not supported here: a packet leaves once, at the other port. To \
                 see packets, capture at the port",
            ),
            Self::Skbedit { idle: Idle { queue: Some(_), .. }, .. } => Some(
                "\"queue_mapping\" is not supported here: a packet leaves by the queue of the \
                 worker that took it in, so that flows keep their order",
            ),
            Self::Skbedit { idle: Idle { packet_type: Some(_), .. }, .. } => Some(
                "\"ptype\" is not supported here: what comes in at a port leaves at the other \
                 one, whomever it is for. Give priority or mark",
            ),
            Self::Skbedit { idle: Idle { inherits_ds_field: true, .. }, .. } => Some(
                "\"inheritdsfield\" is not supported here: give priority or mark, and a filter by \
                 ip_tos",
            ),
            _ => None,
        }
    }

    /// The per-key part of a policer, if it has one.
    pub fn per(&self) -> Option<Per> {
        match self {
            Self::Police(police) => police.per,
            _ => None,
        }
    }
}
