//! One qdisc, its packets and a clock.

use narrows_packet::{
    Acknowledgement, Batch, Bytes32, DropReason, Headers, PacketId, Packets, Reading, Rewrite,
};
use narrows_qdisc::cake::{Config, Figures};
use narrows_qdisc::{
    Config as AnyConfig, Detail, Handover, Meter, Metering, Next, NodeId, Slot, Spec, Stats,
    Verdict,
};
use narrows_units::Nanos;
use std::collections::HashMap;

const CAPACITY: u32 = 1 << 13;

/// A packet that has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Left {
    pub headers: Headers,
    pub rewrite: Rewrite,
    pub delay: Nanos,
}

/// The headers of flow number `id`, of a host of its own to another.
pub fn flow(id: u32) -> Headers {
    hosts(id + 10_000, id + 20_000, id)
}

/// The headers of flow number `id` from host `source` to host `destination`.
pub fn hosts(source: u32, destination: u32, id: u32) -> Headers {
    Headers {
        flow: mix(id),
        source: mix(source ^ 0x5555_0000),
        destination: mix(destination ^ 0x3333_0000),
        network_offset: 14,
        ..Headers::default()
    }
}

fn mix(value: u32) -> u32 {
    let mut hash = value.wrapping_mul(0x9e37_79b9);
    hash ^= hash >> 16;
    hash = hash.wrapping_mul(0x85eb_ca6b);
    hash ^ (hash >> 13)
}

pub struct World {
    slot: Slot,
    name: NodeId,
    config: AnyConfig,
    packets: Packets,
    free: Vec<PacketId>,
    now: Nanos,
    next: Next,
    queued: HashMap<u32, u64>,
    sent: HashMap<u32, u64>,
    dropped: HashMap<u32, u64>,
    arrived: u64,
    marks: u64,
    just_left: Vec<u32>,
    /// The flows of packets that were dropped since the last arrival, that one's included.
    just_dropped: Vec<u32>,
    /// Packets sent and dropped by the instances that this one replaces.
    before: (u64, u64),
}

fn spec(config: Config) -> Spec {
    Spec::new(AnyConfig::Cake(config))
}

impl World {
    pub fn new(config: Config) -> Self {
        Self::of(spec(config))
    }

    /// With a meter at a limit that others share.
    pub fn shared(config: Config, meter: Box<dyn Meter>) -> Self {
        Self::of(Spec { metering: Metering::Shared(meter), ..spec(config) })
    }

    fn of(spec: Spec) -> Self {
        let mut packets = Packets::new(CAPACITY);
        packets.prepare(Reading { acknowledgements: true, ..Reading::NOTHING });
        Self {
            name: spec.id,
            config: spec.config.clone(),
            slot: Slot::new(spec),
            packets,
            free: (0..CAPACITY).map(PacketId).collect(),
            now: Nanos::from_secs(1),
            next: Next::Empty,
            queued: HashMap::new(),
            sent: HashMap::new(),
            dropped: HashMap::new(),
            arrived: 0,
            marks: 0,
            just_left: Vec::new(),
            just_dropped: Vec::new(),
            before: (0, 0),
        }
    }

    pub fn arrive(&mut self, headers: Headers, len: u32) -> Verdict {
        self.acknowledge(headers, len, Acknowledgement::default())
    }

    /// An acknowledgement arrives. It is parsed only if the qdisc asks for it.
    pub fn acknowledge(
        &mut self,
        headers: Headers,
        len: u32,
        acknowledgement: Acknowledgement,
    ) -> Verdict {
        let id = self.free.pop().expect("fewer packets are queued than there are");
        self.packets.arrive(id, len, self.now);
        self.packets.set_headers(id, headers);
        if self.slot.qdisc_mut().reading().acknowledgements {
            self.packets.set_acknowledgement(id, acknowledgement);
        }
        self.arrived += 1;
        *self.queued.entry(headers.flow).or_default() += 1;
        self.just_dropped.clear();
        let verdict = self.slot.qdisc_mut().enqueue(&mut self.packets, id, self.now);
        self.reclaim();
        verdict
    }

    fn reclaim(&mut self) {
        let mut back = Batch::new(64);
        while self.packets.unreclaimed() > 0 {
            back.clear();
            self.packets.reclaim(&mut back);
            for &id in back.as_slice() {
                let flow = self.packets.headers(id).flow;
                *self.dropped.entry(flow).or_default() += 1;
                *self.queued.entry(flow).or_default() -= 1;
                self.just_dropped.push(flow);
                self.free.push(id);
            }
        }
    }

    /// The flows of packets dropped at the last arrival, or at departures since.
    pub fn just_dropped(&self) -> &[u32] {
        &self.just_dropped
    }

    /// Packets that are queued, by flow.
    pub fn queues(&self) -> &HashMap<u32, u64> {
        &self.queued
    }

    /// The packets that leave now, at most `most`.
    pub fn leave_most(&mut self, most: usize) -> Vec<Left> {
        let mut out = Batch::new(most);
        self.next = self.slot.qdisc_mut().dequeue(&mut self.packets, self.now, &mut out);
        let mut left = Vec::new();
        self.just_left.clear();
        for &id in out.as_slice() {
            let headers = self.packets.headers(id);
            let meta = self.packets.meta(id);
            assert_ne!(meta.len, Bytes32(0));
            let delay = self.now.since(meta.arrival);
            left.push(Left { headers, rewrite: meta.rewrite, delay });
            self.marks += u64::from(meta.rewrite.marks());
            *self.sent.entry(headers.flow).or_default() += 1;
            *self.queued.entry(headers.flow).or_default() -= 1;
            self.just_left.push(headers.flow);
            self.free.push(id);
        }
        self.reclaim();
        left
    }

    pub fn leave(&mut self) -> Vec<Left> {
        self.leave_most(64)
    }

    /// Lets time pass until everything has left.
    pub fn leave_all(&mut self) -> Vec<Left> {
        let mut left = Vec::new();
        loop {
            left.extend(self.leave());
            match self.next {
                Next::Now => {}
                Next::At(when) | Next::Held(when) => self.now = when.max(self.now + Nanos(1)),
                Next::Empty => return left,
            }
        }
    }

    /// Lets `span` pass in steps of 100 us, calling `each` before the departures of each step.
    pub fn run(&mut self, span: Nanos, mut each: impl FnMut(&mut Self, Nanos)) {
        let end = self.now + span;
        while self.now < end {
            let now = self.now;
            each(self, now);
            while self.leave().len() == 64 {}
            self.now = (self.now + Nanos::from_micros(100)).min(end);
        }
        while self.leave().len() == 64 {}
    }

    /// Fills a flow's queue up to `packets`.
    pub fn top_up(&mut self, headers: Headers, packets: u64, len: u32) {
        while self.queued.get(&headers.flow).copied().unwrap_or_default() < packets {
            self.arrive(headers, len);
        }
    }

    pub fn keep_full(&mut self, flows: &[Headers], packets: u64, len: u32, span: Nanos) {
        self.run(span, |world, _| {
            flows.iter().for_each(|headers| world.top_up(*headers, packets, len));
        });
    }

    /// A sender with a window that grows by a packet a round trip of 20 ms and is halved, once a
    /// round trip, for a drop or a mark. The delays that its packets had.
    pub fn responsive(&mut self, headers: Headers, marks: bool, span: Nanos) -> Vec<Nanos> {
        let rtt = Nanos::from_millis(20);
        let (mut window, mut outstanding) = (10.0f64, 0u64);
        let mut acknowledged: Vec<Nanos> = Vec::new();
        let mut reacted = Nanos::ZERO;
        let mut delays = Vec::new();
        let end = self.now + span;
        while self.now < end {
            let now = self.now;
            let back = acknowledged.iter().filter(|at| **at <= now).count() as u64;
            acknowledged.retain(|at| *at > now);
            outstanding -= back;
            window += back as f64 / window;
            while (outstanding as f64) < window {
                self.arrive(headers, 1250);
                outstanding += 1;
            }
            let dropped = self.dropped(headers);
            let left = self.leave();
            let lost = self.dropped(headers) - dropped;
            outstanding -= lost;
            let marked = left.iter().any(|left| left.rewrite.marks());
            if (lost > 0 || marks && marked) && now.since(reacted) > rtt {
                window = (window / 2.0).max(2.0);
                reacted = now;
            }
            for left in left {
                acknowledged.push(now + rtt);
                delays.push(left.delay);
            }
            self.now += Nanos::from_micros(50);
        }
        delays
    }

    pub fn retune(&mut self, config: Config) {
        let spec = Spec { id: self.name, ..spec(config) };
        self.config = spec.config.clone();
        self.slot.take_over(spec, &mut Handover::new(&mut self.packets, self.now));
    }

    /// Applies another configuration, as a worker does.
    pub fn change(&mut self, config: Config) {
        let carries_on = self.config.carries_on(&spec(config).config);
        if !carries_on {
            self.name.0 += 1;
            self.before = self.counted();
        }
        self.retune(config);
    }

    /// The total of sent and dropped packets.
    fn counted(&self) -> (u64, u64) {
        (self.all_sent(), self.dropped.values().sum())
    }

    /// Nothing is lost, and the qdisc knows what it holds.
    pub fn check(&self) {
        let queued: u64 = self.queued.values().sum();
        let sum = self.all_sent() + queued + self.dropped.values().sum::<u64>();
        assert_eq!(self.arrived, sum);
        assert_eq!(u64::from(self.slot.qdisc().backlog().packets), queued);
        assert_eq!(self.free.len() as u64 + queued, u64::from(CAPACITY));
        let stats = self.stats();
        let (sent, dropped) = self.counted();
        assert_eq!(stats.sent_packets, sent - self.before.0);
        assert_eq!(stats.drops, dropped - self.before.1);
        let figures = self.figures();
        let tins = figures.tins.iter();
        assert_eq!(tins.map(|tin| tin.backlog.0).sum::<u64>(), stats.backlog.bytes.0);
    }

    pub fn has_just_left(&self, headers: Headers) -> bool {
        self.just_left.contains(&headers.flow)
    }

    pub fn next(&self) -> Next {
        self.next
    }

    pub fn now(&self) -> Nanos {
        self.now
    }

    pub fn sent(&self, headers: Headers) -> u64 {
        self.sent.get(&headers.flow).copied().unwrap_or_default()
    }

    pub fn all_sent(&self) -> u64 {
        self.sent.values().sum()
    }

    pub fn dropped(&self, headers: Headers) -> u64 {
        self.dropped.get(&headers.flow).copied().unwrap_or_default()
    }

    pub fn drops(&self, reason: DropReason) -> u64 {
        self.packets.drops().get(reason)
    }

    pub fn marks(&self) -> u64 {
        self.marks
    }

    pub fn queued(&self) -> u64 {
        u64::from(self.slot.qdisc().backlog().packets)
    }

    pub fn stats(&self) -> Stats {
        let mut stats = Vec::new();
        self.slot.stats(&mut stats);
        stats.remove(0)
    }

    pub fn figures(&self) -> Figures {
        let stats = self.stats();
        stats.detail.as_ref().and_then(Detail::cake).expect("a cake has figures").clone()
    }
}
