//! The parameters of `cake`, as an operator states them: `tc-cake(8)`.

use narrows_packet::Reading;
use narrows_units::{Bytes, Nanos, Rate, wire::Overhead};

/// The parameters of an instance. Plain data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// The rate that is kept, all queues together; `None` is unlimited (`bandwidth`, `unlimited`).
    pub rate: Option<Rate>,
    /// The rate follows the arrivals (`autorate-ingress`); only without siblings.
    pub autorate: bool,
    /// Packets that are dropped count as sent: they have passed the bottleneck (`ingress`).
    pub ingress: bool,
    /// The overhead that a packet is charged.
    pub overhead: Overhead,
    /// `overhead` is added to the length of the network layer, without the link's header: true with
    /// any overhead keyword except `raw`.
    pub network_length: bool,
    /// The round trip that congestion control is expected to take (`rtt`): CoDel's interval.
    pub interval: Nanos,
    /// The sojourn time that is aimed at: CoDel's target.
    pub target: Nanos,
    /// Which entities are isolated and get equal shares.
    pub isolation: Isolation,
    /// Hosts are those on the inside of address translation (`nat`).
    pub nat: bool,
    /// Flows and hosts are those inside of tunnels (`inner`; not in Linux).
    pub inner: bool,
    /// Priority queueing.
    pub diffserv: Diffserv,
    /// Which bits of the firewall's mark choose the tin, from 1; 0 is none (`fwmark`).
    pub mark_mask: u32,
    /// The code point is cleared once the tin is chosen (`wash`).
    pub wash: bool,
    /// Which acknowledgements are dropped.
    pub ack_filter: AckFilter,
    /// The memory limit of one queue; `None` derives it (`memlimit`).
    pub memory: Option<Bytes>,
    /// The longest frame of the port, Ethernet header included, in bytes.
    pub frame: u32,
}

/// The lateness that workers make up for at a shared limit: 1 ms,
const CATCH_UP: Nanos = Nanos::from_millis(1);
/// but little enough that the next hop does not notice: at 20 Gbit/s this is 0.1 ms.
const CATCH_UP_MOST: Bytes = Bytes(256 << 10);
/// One frame that is being sent and one that waits must both fit.
const CATCH_UP_FRAMES: u64 = 2;

impl Config {
    /// The packet fields that it reads.
    pub(crate) fn reading(&self) -> Reading {
        Reading {
            headers: true,
            inner: self.inner,
            nat: self.nat,
            acknowledgements: self.ack_filter != AckFilter::Off,
            ..Reading::NOTHING
        }
    }

    /// The part of a configuration that assigns packets to queues. If it changes, the instance
    /// cannot keep its queues: another must adopt the packets.
    pub fn sorting(&self) -> (Diffserv, Isolation) {
        (self.diffserv, self.isolation)
    }

    /// How much the queues of a port may send at once at a shared limit of `rate`, because their
    /// workers came late or they have paused. A private clock needs no burst: it knows when it had
    /// packets.
    pub fn catch_up(&self, rate: Rate) -> Bytes {
        let frame = self.overhead.cost(Bytes(u64::from(self.frame)));
        let most = rate.bytes_in(CATCH_UP).min(CATCH_UP_MOST);
        most.max(Bytes(CATCH_UP_FRAMES * frame.0))
    }
}

impl Default for Config {
    /// `cake` without any keyword, on Ethernet.
    fn default() -> Self {
        Self {
            rate: None,
            autorate: false,
            ingress: false,
            overhead: Overhead::NONE,
            network_length: false,
            interval: Nanos::from_millis(100),
            target: Nanos::from_millis(5),
            isolation: Isolation::default(),
            nat: false,
            inner: false,
            diffserv: Diffserv::default(),
            mark_mask: 0,
            wash: false,
            ack_filter: AckFilter::default(),
            memory: None,
            frame: 1514,
        }
    }
}

/// How flows are isolated (`flowblind` to `triple-isolate`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Isolation {
    /// One queue for everything.
    Flowblind,
    /// A queue for each source host.
    Srchost,
    /// A queue for each destination host.
    Dsthost,
    /// A queue for each pair of hosts.
    Hosts,
    /// A queue for each flow, all equal.
    Flows,
    /// A queue for each flow, source hosts equal.
    DualSrchost,
    /// A queue for each flow, destination hosts equal.
    DualDsthost,
    /// A queue for each flow, hosts equal at either end.
    #[default]
    TripleIsolate,
}

impl Isolation {
    /// Whether flows have queues of their own, and not only their hosts.
    #[inline]
    pub(super) const fn tells_flows_apart(self) -> bool {
        matches!(self, Self::Flows | Self::DualSrchost | Self::DualDsthost | Self::TripleIsolate)
    }
}

/// The mapping from code points to tins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Diffserv {
    /// One for all.
    BestEffort,
    /// Eight, by the IP precedence bits of RFC 791.
    Precedence,
    /// Bulk, best effort, voice.
    #[default]
    Diffserv3,
    /// Bulk, best effort, video, voice.
    Diffserv4,
    /// Eight.
    Diffserv8,
}

/// Which acknowledgements count as superfluous.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum AckFilter {
    /// None (`no-ack-filter`).
    #[default]
    Off,
    /// Those that two later ones make so (`ack-filter`).
    On,
    /// Those that one later one makes so (`ack-filter-aggressive`).
    Aggressive,
}
