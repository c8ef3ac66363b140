//! The structures under test, each with the data that it needs from its caller.

use super::frames::{Frames, LEN};
use super::work::{RATE, TURN};
use anyhow::Result;
use narrows_packet::dissect::Dissector;
use narrows_packet::{Batch, PacketId, Packets};
use narrows_peers::rte_sched::RteSched;
use narrows_qdisc::{Config, Qdisc, Spec, cake, fifo};
use narrows_units::{Bytes, Nanos};

/// Pipes of `rte_sched`'s port, at least.
const PIPES: u32 = 4096;

/// The ratio of a worker's frames to packets: `cake` queues at most a quarter of the frames, and a
/// lack of memory would measure drops from the longest queue.
const WORKER_PART: u32 = 4;

/// Something that packets pass through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The floor: `pfifo`.
    Fifo,
    /// `cake` with one tin, `triple-isolate`.
    CakeBesteffort,
    /// `cake diffserv4`, `triple-isolate`.
    CakeDiffserv4,
    /// DPDK's `rte_sched`, a pipe for each flow.
    RteSched,
}

impl Subject {
    /// All of them, the floor first.
    pub const ALL: [Self; 4] =
        [Self::Fifo, Self::CakeBesteffort, Self::CakeDiffserv4, Self::RteSched];

    /// Its name in tables and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::CakeBesteffort => "cake-besteffort",
            Self::CakeDiffserv4 => "cake-diffserv4",
            Self::RteSched => "rte_sched",
        }
    }

    /// The one of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|subject| subject.name() == name)
    }

    /// Makes it, empty, for a number of packets and flows.
    pub(super) fn build(self, packets: u32, flows: u32) -> Result<Box<dyn Scheduler>> {
        let own = |config, most| Own::new(config, packets, flows, most);
        Ok(match self {
            // Nothing limits it, so it is asked for as many packets as arrive.
            Self::Fifo => Box::new(own(Config::Fifo(fifo::Config::Packets(packets)), TURN)?),
            Self::CakeBesteffort => Box::new(own(cake(cake::Diffserv::BestEffort), 2 * TURN)?),
            Self::CakeDiffserv4 => Box::new(own(cake(cake::Diffserv::Diffserv4), 2 * TURN)?),
            Self::RteSched => Box::new(Peer::new(packets, flows)?),
        })
    }
}

/// `cake bandwidth 100gbit`, with memory for the whole backlog.
fn cake(diffserv: cake::Diffserv) -> Config {
    Config::Cake(cake::Config {
        rate: Some(RATE),
        diffserv,
        memory: Some(Bytes(1 << 30)),
        ..cake::Config::default()
    })
}

/// A structure, called once for a batch of arrivals and once for departures, so that the call
/// itself weighs nothing.
pub(super) trait Scheduler {
    /// Takes these in.
    fn arrive(&mut self, arriving: &[PacketId], now: Nanos);
    /// Adds departures to `left` and drops since the last call to `dropped`.
    fn leave(&mut self, now: Nanos, left: &mut Batch, dropped: &mut Batch);
}

/// A qdisc of ours, treated as a worker treats it.
struct Own {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    /// The key for reading headers, if the structure needs them.
    reader: Option<(Dissector, Frames)>,
    /// The most packets that it may release at once.
    most: usize,
}

impl Own {
    fn new(config: Config, packets: u32, flows: u32, most: usize) -> Result<Self> {
        let qdisc = Spec::new(config).build();
        let reading = qdisc.reading();
        let mut table = Packets::new(packets * WORKER_PART);
        table.prepare(reading);
        let reader = if reading.headers {
            Some((Dissector::new(1), Frames::new(packets, flows)?))
        } else {
            None
        };
        Ok(Self { qdisc, packets: table, reader, most })
    }
}

impl Scheduler for Own {
    fn arrive(&mut self, arriving: &[PacketId], now: Nanos) {
        for &id in arriving {
            self.packets.arrive(id, u32::from(LEN), now);
        }
        if let Some((dissector, frames)) = &self.reader {
            for &id in arriving {
                narrows_cpu::prefetch(&frames.of(id)[0]);
            }
            for &id in arriving {
                dissector.read(frames.of(id), false, self.packets.headers_mut(id));
            }
        }
        self.qdisc.enqueue_all(&mut self.packets, arriving, now);
    }

    fn leave(&mut self, now: Nanos, left: &mut Batch, dropped: &mut Batch) {
        left.limit(left.len() + self.most);
        self.qdisc.dequeue(&mut self.packets, now, left);
        if self.packets.unreclaimed() > 0 {
            self.packets.reclaim(dropped);
        }
    }
}

/// `rte_sched`. Its application need not read headers: a packet's number gives its pipe.
struct Peer {
    port: RteSched,
    flows: u32,
    dropped: Vec<PacketId>,
}

impl Peer {
    fn new(packets: u32, flows: u32) -> Result<Self> {
        let port = RteSched::new(flows.max(PIPES), RATE.bits_per_sec() / 8, packets, TURN)?;
        Ok(Self { port, flows, dropped: Vec::with_capacity(TURN) })
    }
}

impl Scheduler for Peer {
    fn arrive(&mut self, arriving: &[PacketId], _now: Nanos) {
        let mask = self.flows - 1;
        let arrivals = arriving.iter().map(|id| (id.0, id.0 & mask));
        self.port.enqueue(arrivals, LEN, |packet| self.dropped.push(PacketId(packet)));
    }

    fn leave(&mut self, _now: Nanos, left: &mut Batch, dropped: &mut Batch) {
        self.port.dequeue(TURN, |packet| left.push(PacketId(packet)));
        for id in self.dropped.drain(..) {
            dropped.push(id);
        }
    }
}
