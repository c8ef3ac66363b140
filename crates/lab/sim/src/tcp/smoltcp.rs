//! A few TCP flows by a real stack: `smoltcp`, which takes time as an argument.
//!
//! Each flow has a client and a server with an interface and a socket of its own. The client's
//! packets go through the shaper; the server's answers are back a round trip later. There are at
//! most 16 flows, so a scan finds the one that acts next.
//!
//! *Limits*, all the stack's own: a first window of two segments; repairs one at a time, without
//! selective acknowledgement, so that several losses in a window end in a time-out; at most 32
//! gaps at the receiver; a time-out of at least a second (Linux: 200 ms). It is here to hold the
//! model against, where losses are few.

mod end;

use crate::setup::Control;
use crate::tcp::Group;
use crate::traffic::{ClosedLoop, Delivery, Offer};
use end::End;
use narrows_units::Nanos;
use std::collections::VecDeque;

/// An Ethernet header, in bytes.
const HEADER: u32 = 14;
/// The shortest Ethernet frame, in bytes.
const SHORTEST_FRAME: u32 = 60;
/// A packet that is not delivered within this time never is: drops are not reported.
const LOST_AFTER: Nanos = Nanos::from_secs(4);

/// A group of flows.
pub(crate) struct Smoltcp {
    group: Group,
    /// By flow of the group.
    connections: Vec<Connection>,
    sent: Sent,
}

/// Packets in the shaper, counted through. Memory: those of the last four seconds at most.
#[derive(Default)]
struct Sent {
    packets: VecDeque<(Nanos, Option<Vec<u8>>)>,
    /// The number of the first.
    first: u64,
}

impl Sent {
    fn put(&mut self, now: Nanos, packet: Vec<u8>) -> u64 {
        while let Some((at, packet)) = self.packets.front()
            && (packet.is_none() || now.since(*at) > LOST_AFTER)
        {
            self.packets.pop_front();
            self.first += 1;
        }
        self.packets.push_back((now, Some(packet)));
        self.first + self.packets.len() as u64 - 1
    }

    fn take(&mut self, number: u64) -> Option<Vec<u8>> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.packets.get_mut(index)?.1.take()
    }
}

struct Connection {
    client: End,
    server: End,
    /// On the way from server to client: when each arrives.
    back: VecDeque<(Nanos, Vec<u8>)>,
    /// When it acts next.
    wake: Nanos,
}

impl Connection {
    /// Lets both ends act at `now`: the client's packets stay in its device.
    fn act(&mut self, now: Nanos, rtt: Nanos) {
        let due = self.back.partition_point(|&(at, _)| at <= now);
        self.back.drain(..due).for_each(|(_, packet)| self.client.hear(packet));
        self.client.poll(now);
        self.serve(now, rtt);
    }

    /// Lets the server act at `now`.
    fn serve(&mut self, now: Nanos, rtt: Nanos) {
        self.server.poll(now);
        self.back.extend(self.server.said().map(|packet| (now + rtt, packet)));
        let arrival = self.back.front().map_or(Nanos::MAX, |&(at, _)| at);
        self.wake = arrival.min(self.client.next_at(now)).min(self.server.next_at(now));
    }
}

impl Smoltcp {
    /// The flows of `group`.
    pub(crate) fn new(group: Group, control: Control) -> Self {
        let mtu = group.frame.saturating_sub(HEADER) as usize;
        let connection = |&start: &Nanos| Connection {
            client: End::client(mtu, control),
            server: End::server(mtu, control),
            back: VecDeque::new(),
            wake: start,
        };
        let connections = group.starts.iter().map(connection).collect();
        Self { group, connections, sent: Sent::default() }
    }
}

impl ClosedLoop for Smoltcp {
    fn next_at(&self) -> Nanos {
        let wake = self.connections.iter().map(|connection| connection.wake).min();
        wake.filter(|&at| at < self.group.stop).unwrap_or(Nanos::MAX)
    }

    fn act(&mut self, now: Nanos, offers: &mut Vec<Offer>) {
        if now >= self.group.stop {
            return;
        }
        for (flow, connection) in (0u32..).zip(&mut self.connections) {
            if connection.wake > now {
                continue;
            }
            connection.act(now, self.group.rtt);
            for packet in connection.client.said() {
                offers.push(Offer {
                    at: now,
                    queue: usize::from(self.group.queue_of[flow as usize]),
                    flow: self.group.first + flow,
                    len: (packet.len() as u32 + HEADER).max(SHORTEST_FRAME),
                    tag: self.sent.put(now, packet),
                    ect: false,
                });
            }
        }
    }

    fn delivered(&mut self, delivery: &Delivery, now: Nanos) {
        let Some(packet) = self.sent.take(delivery.offer.tag) else { return };
        let flow = delivery.offer.flow - self.group.first;
        let connection = &mut self.connections[flow as usize];
        connection.server.hear(packet);
        connection.serve(now, self.group.rtt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_are_dropped_are_forgotten_after_a_while() {
        let mut sent = Sent::default();
        assert_eq!(sent.put(Nanos::ZERO, vec![1]), 0);
        assert_eq!(sent.put(Nanos::from_secs(1), vec![2]), 1);
        assert_eq!(sent.take(1), Some(vec![2]));
        assert_eq!(sent.take(1), None);
        assert_eq!(sent.put(Nanos::from_secs(5), vec![3]), 2);
        assert_eq!(sent.packets.len(), 1);
        assert_eq!(sent.take(0), None);
        assert_eq!(sent.take(2), Some(vec![3]));
    }
}
