//! `fq`: a queue and a pace for every flow.
//!
//! Packets are classified by flow, and flows take turns by deficit round robin: new flows go before
//! backlogged ones. A flow may have a maximum rate, that of all (`maxrate`) or its own by a filter
//! (`pace.rs`): what it sends is converted into a time before which it may not continue, and until
//! then it waits in a heap of such times ([`Heap`]), out of the others' way. Nothing is dropped to
//! signal congestion, and there is no total rate: use `cake` or `tbf` for that.
//!
//! *By the quantum.* A flow's time is checked only at the beginning of a quantum, and then all of
//! it is sent; every byte advances its next time. So rounds of two frames at gigabit rates need no
//! timer each, and the rate is exact from one round to the next. At `low_rate_threshold` and below
//! every packet is a round of its own. A flow that could have left earlier, but was delayed here,
//! may catch up by half a quantum; one that was silent earns nothing. The first quantum is larger
//! (`initial_quantum`), and is paid for like any other; Linux gives it away.
//!
//! *Existing stamps.* A packet with an earliest departure time, from a meter above, waits for it as
//! well. If that is beyond `horizon`, the packet is dropped or leaves at the horizon. A flow's
//! packets leave in order of arrival, with any times.
//!
//! *Without sockets.* Forwarded packets have no socket, so all flows are Linux's orphans: the hash
//! of the headers within `orphan_mask` identifies them, and flows that it does not tell apart are
//! one. For the same reason no socket asks for a pace of its own, and `defrate` does not apply.
//! Packets have no priority either; they get the one that Linux gives to packets that it forwards,
//! by their code point (`bands.rs`). ARP goes first, where Linux has its control packets.
//!
//! *Limits* are per queue: `limit` counts the packets of a band, `flow_limit` those of a flow.
//!
//! Source: `tc-fq(8)`; M. Shreedhar, G. Varghese, "Efficient fair queuing using deficit
//! round-robin" (1995).
//!
//! Cost: a flow is one cache line, found through one bucket. A turn is O(1); throttling and
//! releasing is O(log n) in the number of throttled flows. Memory: 4 bytes per bucket, 80 per flow;
//! it doubles when there are more flows than ever before, which is the only allocation. At most
//! 262,144 flows without packets are remembered: 21 MiB, however many addresses send.
//!
//! Non-goals: pacing offload (no port here can: `offload_horizon` is 0), a shortcut for packets
//! that find the queues empty, freeing memory.

use crate::heap::Heap;
use crate::{Detail, Handover, Next, Qdisc, Spec, Stats, Verdict, Weight};
use bands::Bands;
use narrows_packet::{Backlog, Batch, Fifo, Paces, PacketId, Packets, Reading};
use narrows_units::Nanos;
use pace::Pace;
use table::Table;

mod arrival;
mod bands;
mod config;
mod departure;
mod figures;
mod flow;
mod list;
mod pace;
mod table;

pub use bands::{BANDS, PRIORITIES};
pub use config::{BUCKETS_MAX, Beyond, Config, QUANTUM_MAX, WEIGHT_MIN};
pub use figures::Figures;

/// An instance: one queue's.
pub(crate) struct Fq {
    config: Config,
    pace: Option<Pace>,
    /// The rates of flows' own that apply.
    paces: Paces,
    table: Table,
    bands: Bands,
    /// Flows that wait for their time.
    held: Heap,
    /// Packets that go before all flows.
    control: Fifo,
    backlog: Backlog,
    /// The time of the last call.
    now: Nanos,
    /// All but the backlog.
    stats: Stats,
    /// The counters; the other figures are computed on demand.
    counted: Figures,
}

impl Fq {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            pace: Pace::of(&config),
            paces: Paces::default(),
            table: Table::new(config.buckets, config.orphan_mask),
            bands: Bands::new(&config),
            held: Heap::default(),
            control: Fifo::new(),
            backlog: Backlog::default(),
            now: Nanos::ZERO,
            stats: Stats::default(),
            counted: Figures::default(),
            config,
        }
    }

    fn figures(&self) -> Figures {
        let held = self.held.len() as u32;
        let next = self.held.first().map(|at| at.since(self.now) + self.config.timer_slack);
        Figures {
            flows: self.table.flows.remembered(),
            throttled_flows: held,
            next_departure: next,
            gc: self.table.collected(),
            band_packets: self.bands.packets(),
            ..self.counted
        }
    }
}

impl Qdisc for Fq {
    fn reading(&self) -> Reading {
        Reading { headers: true, ..Reading::NOTHING }
    }

    fn enqueue(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) -> Verdict {
        self.arrive(packets, id, now)
    }

    fn refuse_all(&mut self, packets: &mut Packets, ids: &[PacketId]) {
        self.stats.refuse_all(packets, ids);
    }

    fn dequeue(&mut self, packets: &mut Packets, now: Nanos, out: &mut Batch) -> Next {
        self.follow_paces(packets, now);
        loop {
            if !out.has_room() {
                return Next::Now;
            }
            match self.depart(packets, now) {
                Ok(id) => out.push(id),
                Err(next) => return next,
            }
        }
    }

    fn dequeue_one(&mut self, packets: &mut Packets, now: Nanos) -> Result<PacketId, Next> {
        self.follow_paces(packets, now);
        self.depart(packets, now)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn weight(&self) -> Weight {
        Weight::of_flows(self.bands.flows())
    }

    fn flows(&self) -> Option<u32> {
        Some(self.bands.flows())
    }

    fn stats(&self, into: &mut Vec<Stats>) {
        let detail = Some(Detail::Fq(Box::new(self.figures())));
        into.push(Stats { backlog: self.backlog, detail, ..self.stats.clone() });
    }

    fn retune(&mut self, spec: Spec, handover: &mut Handover<'_>) {
        let crate::Config::Fq(config) = spec.config else {
            panic!("an fq cannot be retuned to {:?}", spec.config)
        };
        if config.buckets != self.config.buckets {
            self.table.flows.set_buckets(Table::buckets(config.buckets, config.orphan_mask));
        }
        self.bands.set_weights(config.weights);
        self.pace = Pace::of(&config);
        self.config = config;
        let now = handover.now;
        self.repace(handover.packets(), now);
    }

    fn drain(&mut self, packets: &mut Packets) -> Option<PacketId> {
        self.drain_one(packets)
    }

    fn adopt(&mut self, packets: &mut Packets, id: PacketId, now: Nanos) {
        // The meter that stamped it is gone.
        packets.meta_mut(id).edt = Nanos::ZERO;
        self.take_in(packets, id, now);
    }
}
