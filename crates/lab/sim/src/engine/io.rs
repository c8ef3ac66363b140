//! A worker's I/O without packets: what arrives at port A of one queue, and what leaves at B.
//!
//! Arrivals are taken when the worker asks, from open-loop traffic that is generated at that moment
//! and from what closed-loop traffic has sent here. In between they would have been in an RX ring
//! of [`RING`] packets; a worker that asks too late loses the excess, and as with a NIC its
//! counters do not include it. Nothing arrives at B: ACKs do not pass the shaper, their path is
//! part of the round trip.

use crate::traffic::{Offer, Source};
use narrows_forwarding::PortId;
use narrows_packet::{Batch, Ecn, Headers, PacketId, Packets, Reading};
use narrows_shaper::{BATCH, Io};
use narrows_units::{Bytes, Nanos};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Packets that the RX ring holds.
pub(super) const RING: usize = 4096;

/// Frames kept back from the qdiscs: one batch from each port.
pub(super) const FRAMES_RESERVED: usize = 2 * BATCH;

/// The memory of a packet.
pub(super) const FRAME: Bytes = Bytes(2048);

/// The load offered to a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// Packets.
    pub(crate) packets: u64,
    /// Of these, the ones that did not fit into the RX ring.
    pub(crate) overflowed: u64,
    /// Bytes of the packets that came while it was measured.
    pub(crate) measured_bytes: u64,
    /// Whether closed-loop traffic was among them.
    pub(crate) closed_loop: bool,
}

/// One queue of the two ports.
pub(super) struct SimIo {
    source: Box<dyn Source>,
    /// Packets that closed-loop traffic has sent, in the order of arrival.
    sent: VecDeque<Offer>,
    ring: VecDeque<Offer>,
    /// The content of each frame that has ever been in use. Most queues never use most of theirs.
    frames: Vec<Offer>,
    /// How many frames there are.
    places: u32,
    /// Those of `frames` that are free.
    free: Vec<u32>,
    /// By flow: what its packets say.
    headers: Arc<[Headers]>,
    /// Departures of this step, with their marks.
    left: Vec<(Offer, bool)>,
    /// The drops of this step.
    lost: Vec<Offer>,
    /// The time up to which arrivals are in the ring.
    at: Nanos,
    measured: Range<Nanos>,
    tally: Tally,
}

impl SimIo {
    /// A queue that receives from `source`, with so many frames. The load offered in `measured` is
    /// counted in bytes.
    pub(super) fn new(
        source: Box<dyn Source>,
        headers: Arc<[Headers]>,
        frames: u32,
        measured: Range<Nanos>,
    ) -> Self {
        Self {
            source,
            sent: VecDeque::new(),
            ring: VecDeque::with_capacity(RING),
            frames: Vec::new(),
            places: frames,
            free: Vec::new(),
            headers,
            left: Vec::with_capacity(BATCH),
            lost: Vec::with_capacity(BATCH),
            at: Nanos::ZERO,
            measured,
            tally: Tally::default(),
        }
    }

    /// Takes in what closed-loop traffic sends.
    pub(super) fn offer(&mut self, offer: Offer) {
        self.tally.closed_loop = true;
        // Offers come nearly in order.
        let place = self.sent.partition_point(|before| before.at <= offer.at);
        self.sent.insert(place, offer);
    }

    /// Starts a step: arrivals up to `at` can be received, and there are no departures or drops
    /// yet.
    pub(super) fn begin(&mut self, at: Nanos) {
        self.at = at;
        self.left.clear();
        self.lost.clear();
    }

    /// Within a step, arrivals up to `at` can be received.
    pub(super) fn see(&mut self, at: Nanos) {
        self.at = at;
    }

    /// Departures of this step in order, with their marks.
    pub(super) fn left(&self) -> &[(Offer, bool)] {
        &self.left
    }

    /// The drops of this step.
    pub(super) fn lost(&self) -> &[Offer] {
        &self.lost
    }

    /// When the next packet arrives, or has arrived; [`Nanos::MAX`] if none is known.
    pub(super) fn next_arrival(&self) -> Nanos {
        if !self.ring.is_empty() {
            return Nanos::ZERO;
        }
        let sent = self.sent.front().map_or(Nanos::MAX, |offer| offer.at);
        sent.min(self.source.next_at())
    }

    /// Packets in the RX ring.
    pub(super) fn waiting(&self) -> u64 {
        self.ring.len() as u64
    }

    /// The load offered so far.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// Puts arrivals up to `at` into the ring.
    pub(super) fn fill(&mut self, at: Nanos) {
        loop {
            let sent = self.sent.front().map_or(Nanos::MAX, |offer| offer.at);
            let made = self.source.next_at();
            let offer = if made <= sent && made <= at && made != Nanos::MAX {
                self.source.take()
            } else if sent <= at
                && let Some(offer) = self.sent.pop_front()
            {
                offer
            } else {
                return;
            };
            self.tally.packets += 1;
            if self.measured.contains(&offer.at) {
                self.tally.measured_bytes += u64::from(offer.len);
            }
            if self.ring.len() < RING {
                self.ring.push_back(offer);
            } else {
                self.tally.overflowed += 1;
            }
        }
    }

    /// Puts `offer` into a free frame, or into the next that was never used.
    fn place(&mut self, offer: Offer) -> u32 {
        if let Some(frame) = self.free.pop() {
            self.frames[frame as usize] = offer;
            return frame;
        }
        self.frames.push(offer);
        self.frames.len() as u32 - 1
    }
}

impl Io for SimIo {
    fn receive(&mut self, port: PortId, packets: &mut Packets, now: Nanos, out: &mut Batch) {
        if port == PortId::SECOND {
            return;
        }
        self.fill(self.at);
        while out.has_room() && !self.ring.is_empty() {
            // Without a free frame a device receives nothing.
            if self.free.is_empty() && self.frames.len() as u32 == self.places {
                break;
            }
            let Some(offer) = self.ring.pop_front() else { break };
            let frame = self.place(offer);
            packets.arrive(PacketId(frame), offer.len, now);
            out.push(PacketId(frame));
        }
    }

    fn places(&self) -> u32 {
        self.places
    }

    fn spare_frames(&self, _ingress: PortId, _: PortId) -> Option<u32> {
        let used = self.frames.len() - self.free.len();
        (self.places as usize - used).checked_sub(FRAMES_RESERVED).map(|spare| spare as u32)
    }

    fn put_aside(&mut self, ingress: PortId, _longest: Bytes, out: &mut Batch) {
        while out.has_room()
            && self.spare_frames(ingress, ingress.partner()).is_some_and(|spare| spare > 0)
        {
            let (at, queue, flow, len, tag, ect) = (Nanos::ZERO, 0, 0, 0, 0, false);
            out.push(PacketId(self.place(Offer { at, queue, flow, len, tag, ect })));
        }
    }

    fn copy(&mut self, from: PacketId, to: PacketId) {
        self.frames[to.0 as usize] = self.frames[from.0 as usize];
    }

    fn room(&mut self, _side: PortId) -> usize {
        BATCH
    }

    fn read(&self, packet: PacketId, reading: Reading, packets: &mut Packets) {
        let offer = &self.frames[packet.0 as usize];
        if reading.headers
            && let Some(headers) = self.headers.get(offer.flow as usize)
        {
            let ecn = if offer.ect { Ecn::Capable0 } else { headers.ecn };
            packets.set_headers(packet, Headers { ecn, ..*headers });
        }
    }

    fn frame(&self) -> Bytes {
        FRAME
    }

    fn transmit(&mut self, _side: PortId, packets: &Packets, batch: &Batch) {
        for &id in batch.as_slice() {
            let marked = packets.meta(id).rewrite.marks();
            self.left.push((self.frames[id.0 as usize], marked));
            self.free.push(id.0);
        }
    }

    fn release(&mut self, dropped: &Batch) {
        for id in dropped.as_slice() {
            // What was put aside for a copy and not used is nobody's.
            if self.frames[id.0 as usize].len == 0 {
                self.free.push(id.0);
                continue;
            }
            self.lost.push(self.frames[id.0 as usize]);
            self.free.push(id.0);
        }
    }

    fn is_unsent(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet every 10 ns, from 10 on.
    struct Every10(u64);

    impl Source for Every10 {
        fn next_at(&self) -> Nanos {
            Nanos(self.0)
        }

        fn take(&mut self) -> Offer {
            let at = Nanos(self.0);
            self.0 += 10;
            Offer { at, queue: 0, flow: 0, len: 100, tag: 0, ect: false }
        }
    }

    const FRAMES: u32 = 512;

    fn io() -> SimIo {
        SimIo::new(Box::new(Every10(10)), [].into(), FRAMES, Nanos(30)..Nanos(50))
    }

    fn receive(io: &mut SimIo, at: u64) -> Vec<u64> {
        let mut packets = Packets::new(FRAMES);
        let mut batch = Batch::new(BATCH);
        io.begin(Nanos(at));
        io.receive(PortId::FIRST, &mut packets, Nanos(at), &mut batch);
        io.receive(PortId::SECOND, &mut packets, Nanos(at), &mut batch);
        io.transmit(PortId::SECOND, &packets, &batch);
        io.left().iter().map(|(offer, _)| offer.at.0).collect()
    }

    #[test]
    fn both_kinds_of_traffic_come_in_together_in_order_of_time() {
        let mut io = io();
        for at in [44, 12, 25] {
            let (queue, flow, len, tag, ect) = (0, 1, 7, 0, false);
            io.offer(Offer { at: Nanos(at), queue, flow, len, tag, ect });
        }
        assert_eq!(io.next_arrival(), Nanos(10));
        assert_eq!(receive(&mut io, 30), [10, 12, 20, 25, 30]);
        assert_eq!(io.next_arrival(), Nanos(40));
        assert_eq!(receive(&mut io, 60), [40, 44, 50, 60]);
        let (packets, overflowed, closed_loop) = (9, 0, true);
        let tally = Tally { packets, overflowed, measured_bytes: 207, closed_loop };
        assert_eq!(io.tally(), tally);
    }

    #[test]
    fn a_packet_has_its_flow_s_headers_and_ecn_capability() {
        let flow =
            Headers { flow: 7, source: 8, dscp: 46, network_offset: 14, ..Default::default() };
        let mut io = SimIo::new(
            Box::new(Every10(1000)),
            [Headers::default(), flow].into(),
            FRAMES,
            Nanos(0)..Nanos(50),
        );
        let mut packets = Packets::new(FRAMES);
        let reading = Reading { headers: true, ..Reading::NOTHING };
        packets.prepare(reading);
        for (at, ect) in [(1, false), (2, true)] {
            let (queue, flow, len, tag) = (0, 1, 60, 0);
            io.offer(Offer { at: Nanos(at), queue, flow, len, tag, ect });
        }
        let mut batch = Batch::new(BATCH);
        io.begin(Nanos(5));
        io.receive(PortId::FIRST, &mut packets, Nanos(5), &mut batch);
        let [plain, capable] = *batch.as_slice() else { panic!("two came in") };
        for id in [plain, capable] {
            io.read(id, reading, &mut packets);
        }
        assert_eq!(packets.headers(plain), flow);
        assert_eq!(packets.headers(capable), Headers { ecn: Ecn::Capable0, ..flow });

        packets.meta_mut(capable).rewrite.mark();
        io.transmit(PortId::SECOND, &packets, &batch);
        let marked: Vec<bool> = io.left().iter().map(|(_, marked)| *marked).collect();
        assert_eq!(marked, [false, true]);
    }

    #[test]
    fn packets_beyond_the_ring_are_lost() {
        let mut io = io();
        let packets = RING as u64 + 5;
        assert_eq!(receive(&mut io, 10 * packets).len(), BATCH);
        assert_eq!(io.waiting() as usize, RING - BATCH);
        assert_eq!(io.next_arrival(), Nanos::ZERO);
        assert_eq!((io.tally().packets, io.tally().overflowed), (packets, 5));
    }
}
