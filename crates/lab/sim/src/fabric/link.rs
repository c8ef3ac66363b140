//! A port and the link behind it: a queue, a rate, a delay.
//!
//! Packets leave a port one after the other, so a packet's departure is known on arrival: when the
//! port has sent its backlog, and then the packet. The queue is what the port still has to send. So
//! a packet needs one event per hop, its arrival at the other end, and a queue needs none.
//!
//! A packet that finds more than `mark_above` is marked; one that does not fit is dropped. The part
//! of the current packet that has been sent no longer counts.

use super::packet::{Kind, Packet};
use narrows_units::{Bytes, Nanos, Rate};
use std::collections::VecDeque;

/// The properties of a switch's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Buffer {
    /// Its longest backlog.
    pub limit: Bytes,
    /// A packet that finds more than this is marked (ECN CE).
    pub mark_above: Bytes,
}

/// A port with its link.
pub(crate) struct Link {
    /// How long a byte takes, in picoseconds: nanoseconds would be too coarse for 40 Gbit/s.
    picos_per_byte: u64,
    /// When all has been sent that was given to it, in picoseconds.
    free_at: u64,
    /// From the last bit's departure to its arrival.
    delay: Nanos,
    /// None in a host, where the sender sees its own queue.
    buffer: Option<Buffer>,
    under_way: VecDeque<(Nanos, Packet)>,
    /// Packets of data that were marked here.
    pub(crate) marked: u64,
}

impl Link {
    pub(crate) fn new(rate: Rate, delay: Nanos, buffer: Option<Buffer>) -> Self {
        Self {
            picos_per_byte: 8_000_000_000_000 / rate.bits_per_sec().max(1),
            free_at: 0,
            delay,
            buffer,
            under_way: VecDeque::new(),
            marked: 0,
        }
    }

    /// Takes `packet`; returns when its last bit has left, and nothing if it was dropped.
    #[inline]
    pub(crate) fn send(&mut self, mut packet: Packet, now: Nanos) -> Option<Nanos> {
        let now = now.0 * 1000;
        let begins = self.free_at.max(now);
        if let Some(buffer) = self.buffer {
            let found = (begins - now) / self.picos_per_byte;
            if found + u64::from(packet.len) > buffer.limit.0 {
                return None;
            }
            if let Kind::Data { marked } = &mut packet.kind
                && found > buffer.mark_above.0
            {
                self.marked += u64::from(!*marked);
                *marked = true;
            }
        }
        self.free_at = begins + u64::from(packet.len) * self.picos_per_byte;
        let left = Nanos(self.free_at.div_ceil(1000));
        self.under_way.push_back((left + self.delay, packet));
        Some(left)
    }

    /// When the next packet arrives at the other end; [`Nanos::MAX`] if none is under way.
    #[inline]
    pub(crate) fn next_at(&self) -> Nanos {
        self.under_way.front().map_or(Nanos::MAX, |(at, _)| *at)
    }

    /// Packets of data that are under way.
    pub(crate) fn data_under_way(&self) -> u64 {
        let is_data = |(_, packet): &&(Nanos, Packet)| matches!(packet.kind, Kind::Data { .. });
        self.under_way.iter().filter(is_data).count() as u64
    }

    /// Takes the packet that arrives next.
    #[inline]
    pub(crate) fn arrive(&mut self) -> Option<Packet> {
        self.under_way.pop_front().map(|(_, packet)| packet)
    }

    /// How long `len` bytes take to the other end, if nothing is before them.
    pub(crate) fn passage(&self, len: u32) -> Nanos {
        Nanos((u64::from(len) * self.picos_per_byte).div_ceil(1000)) + self.delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GBIT_10: Rate = Rate::from_bits_per_sec(10_000_000_000);
    const BUFFER: Buffer = Buffer { limit: Bytes(6000), mark_above: Bytes(3000) };

    fn data() -> Packet {
        let kind = Kind::Data { marked: false };
        Packet { flow: 0, transmission: 0, len: 1500, hop: 0, kind }
    }

    fn is_marked(packet: Packet) -> bool {
        packet.kind == Kind::Data { marked: true }
    }

    #[test]
    fn packets_leave_one_behind_the_other_at_the_rate_and_arrive_after_the_delay() {
        let mut link = Link::new(GBIT_10, Nanos(500), None);
        assert_eq!(link.send(data(), Nanos(100)), Some(Nanos(1300)));
        assert_eq!(link.send(data(), Nanos(200)), Some(Nanos(2500)));
        assert_eq!(link.next_at(), Nanos(1800));
        assert!(link.arrive().is_some());
        assert_eq!(link.next_at(), Nanos(3000));
        // After a pause the time before it is lost.
        assert_eq!(link.send(data(), Nanos(9000)), Some(Nanos(10_200)));
    }

    #[test]
    fn the_time_of_a_byte_is_not_rounded() {
        let mut link = Link::new(Rate::from_bits_per_sec(40_000_000_000), Nanos::ZERO, None);
        let last =
            (0..1000).filter_map(|_| link.send(Packet { len: 52, ..data() }, Nanos::ZERO)).last();
        assert_eq!(last, Some(Nanos(10_400)));
    }

    #[test]
    fn a_packet_that_finds_more_than_the_threshold_is_marked() {
        let mut link = Link::new(GBIT_10, Nanos::ZERO, Some(BUFFER));
        for _ in 0..4 {
            link.send(data(), Nanos::ZERO);
        }
        let marked: Vec<bool> = std::iter::from_fn(|| link.arrive()).map(is_marked).collect();
        assert_eq!(marked, [false, false, false, true]);
        assert_eq!(link.marked, 1);
        // A byte's time later the fourth would have found 3000 bytes and no more.
        link.send(data(), Nanos(2400));
        assert!(!link.arrive().is_some_and(is_marked));
    }

    #[test]
    fn a_packet_that_does_not_fit_is_dropped_and_takes_no_time() {
        let mut link = Link::new(GBIT_10, Nanos::ZERO, Some(BUFFER));
        let left: Vec<_> = (0..5).map(|_| link.send(data(), Nanos::ZERO)).collect();
        assert_eq!(left[3..], [Some(Nanos(4800)), None]);
        assert_eq!(link.send(data(), Nanos(1200)), Some(Nanos(6000)));
    }

    #[test]
    fn acknowledgements_are_not_marked() {
        let mut link = Link::new(GBIT_10, Nanos::ZERO, Some(BUFFER));
        for _ in 0..3 {
            link.send(data(), Nanos::ZERO);
        }
        let kind = Kind::Ack { marked: false, delivered: Nanos::ZERO };
        link.send(Packet { len: 52, kind, ..data() }, Nanos::ZERO);
        assert_eq!(link.marked, 0);
    }
}
