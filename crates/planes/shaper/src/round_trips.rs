//! Round trips beyond each port, measured by one worker from the packets that it forwards.
//!
//! See [`narrows_roundtrip`] for the method. If enabled, a worker passes it each packet that
//! arrives, and those that leave while the port is watched. It reads the headers of a whole batch
//! together, because a processor waits for several frames at once.

use crate::Delays;
use crate::heaviest::WINDOW;
use crate::io::Io;
use narrows_forwarding::{PerPort, PortId};
use narrows_packet::{PacketId, Packets};
use narrows_roundtrip::{Awaited, Class, Host, Losses, Observer};
use narrows_units::Nanos;
use std::sync::Arc;

/// A worker's round-trip measurements at each port.
pub(crate) struct RoundTrips(PerPort<Port>);

/// One port.
struct Port {
    observer: Observer,
    trips: Delays,
}

/// A worker's measurements beyond a port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beyond {
    /// Round-trip times.
    pub trips: Delays,
    /// Losses of segments that left.
    pub losses: Losses,
    /// Hosts of the last complete window, unordered.
    pub hosts: Vec<Host>,
    /// Classes of the same window, unordered.
    pub classes: Vec<Class>,
}

impl Beyond {
    /// Adds another worker's measurements of the same port.
    pub fn merge(&mut self, other: &Self) {
        self.trips.merge(&other.trips);
        self.losses.merge(&other.losses);
        narrows_roundtrip::merge(&mut self.hosts, &other.hosts);
        narrows_roundtrip::merge(&mut self.classes, &other.classes);
    }
}

impl RoundTrips {
    /// The measurements of a worker of the ports with these boards, which hashes with `key`.
    pub(crate) fn new(boards: &PerPort<Arc<Awaited>>, key: u64) -> Self {
        let port = |board: &Arc<Awaited>| Port {
            observer: Observer::new(Arc::clone(board), key, WINDOW),
            trips: Delays::default(),
        };
        Self(boards.iter().map(port).collect())
    }

    /// `ids` have arrived at `port`. Their frames are prefetched.
    pub(crate) fn come(&mut self, port: PortId, ids: &[PacketId], io: &impl Io, now: Nanos) {
        let Port { observer, trips } = &mut self.0[port];
        for &id in ids {
            if let Some(trip) = observer.comes(io.bytes(id), now) {
                trips.record(trip);
            }
        }
    }

    /// `ids` of `packets` leave through `port`.
    pub(crate) fn leave(
        &mut self,
        port: PortId,
        ids: &[PacketId],
        packets: &Packets,
        io: &impl Io,
        now: Nanos,
    ) {
        let observer = &mut self.0[port].observer;
        let Some(stretch) = observer.stretch(now) else { return };
        ids.iter().for_each(|id| io.prefetch(*id));
        for &id in ids {
            observer.leaves(io.bytes(id), packets.meta(id).class, stretch, now);
        }
    }

    /// The measurements beyond `port` at `now`.
    pub(crate) fn beyond(&self, port: PortId, now: Nanos) -> Beyond {
        let Port { observer, trips } = &self.0[port];
        let (trips, losses) = (trips.clone(), observer.losses());
        Beyond { trips, losses, hosts: observer.hosts(now), classes: observer.classes(now) }
    }
}
