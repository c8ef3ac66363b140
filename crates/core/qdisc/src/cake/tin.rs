//! One tin: its flows in their rotation, its hosts, its clock, its figures.

use super::clock::PerByte;
use super::cobalt::Terms;
use super::delays::Delays;
use super::flow::{Flow, Standing};
use super::load::{Quanta, WHOLE_HOST, reweighed};
use super::neighbours::Neighbours;
use super::rotation::{Link, Linked, List, ROUNDS, Wheel};
use super::slab::Slab;
use super::tables::Tables;
use super::{Config, TinFigures};
use narrows_cpu::prefetch;
use narrows_packet::Packets;
use narrows_units::{Bytes, Nanos, Rate, Spread};
use std::num::NonZeroU32;

/// A flow's quantum: what its tin may send in 1/4096 s,
const QUANTUM_PART: u64 = 4096;
/// within the longest frame of plain Ethernet, and a minimum that bounds the number of turns.
const QUANTUM_MAX: u32 = 1514;
const QUANTUM_MIN: u32 = 300;

/// A tin.
pub(super) struct Tin {
    pub(super) tables: Option<Box<Tables>>,
    pub(super) sparse: List,
    pub(super) wheel: Wheel,
    /// Flows that are not idle.
    pub(super) sparse_flows: u32,
    pub(super) bulk_flows: u32,
    /// The sum of the weights of flows that are not idle, in parts of a host. Sparse flows count,
    /// too: where they go first they are soon gone, and where they never get a turn, siblings must
    /// know of them. Maintained only if there are siblings.
    pub(super) weight: u64,
    quanta: Quanta,
    pub(super) backlog: Bytes,
    /// The part of the rate up to which this tin goes first, on this queue.
    per_byte: PerByte,
    pub(super) next: Nanos,
    /// What it may still send in its turn among tins, if there is no rate.
    pub(super) deficit: i64,
    /// Its quantum on this queue.
    pub(super) quantum: u32,
    pub(super) terms: Terms,
    /// Bytes that have left, as charged.
    pub(super) sent: u64,
    pub(super) unresponsive: u32,
    delays: Delays,
    /// The delays of sent packets.
    pub(super) spread: Spread,
    /// The statistics, without those kept elsewhere.
    pub(super) figures: TinFigures,
}

/// The arrivals of a batch for a tin.
#[derive(Clone, Copy)]
pub(super) struct Came {
    pub(super) packets: u32,
    pub(super) longest: u32,
    pub(super) bytes: u64,
}

impl Came {
    pub(super) const NOTHING: Self = Self { packets: 0, longest: 0, bytes: 0 };

    /// A packet of `len` bytes more.
    #[inline(always)]
    pub(super) fn add(&mut self, len: u32) {
        self.packets += 1;
        self.longest = self.longest.max(len);
        self.bytes += u64::from(len);
    }
}

impl Tin {
    pub(super) fn new(quantum: u32) -> Self {
        let zero = Nanos::ZERO;
        Self {
            tables: None,
            sparse: List::EMPTY,
            wheel: Wheel::new(),
            sparse_flows: 0,
            bulk_flows: 0,
            weight: 0,
            quanta: Quanta::new(QUANTUM_MAX),
            backlog: Bytes::ZERO,
            per_byte: PerByte::at(Rate::default()),
            next: zero,
            deficit: 0,
            quantum,
            terms: Terms::new(zero, zero, zero),
            sent: 0,
            unresponsive: 0,
            delays: Delays::default(),
            spread: Spread::default(),
            figures: TinFigures::default(),
        }
    }

    /// Applies `config`, with `rate` as its threshold over all queues: a flow waits for packets of
    /// all flows of the port, on whichever queue.
    pub(super) fn follow(&mut self, config: &Config, rate: Option<Rate>) {
        let frame = Bytes(u64::from(config.frame));
        let quantum = rate.map_or(QUANTUM_MAX, |rate| {
            let quantum = u32::try_from(rate.bytes_per_sec() / QUANTUM_PART).unwrap_or(u32::MAX);
            quantum.clamp(QUANTUM_MIN, QUANTUM_MAX)
        });
        self.quanta.set_whole(quantum);
        let frame_time = rate.map_or(Nanos::ZERO, |rate| rate.time_for(frame));
        self.terms = Terms::new(config.interval, config.target, frame_time);
        self.figures.threshold = rate.unwrap_or_default();
        self.figures.target = self.terms.target;
        self.figures.interval = self.terms.interval;
        self.figures.quantum = quantum;
    }

    /// Counts an arrival.
    #[inline]
    pub(super) fn receive(&mut self, came: Came, now: Nanos) {
        if self.backlog == Bytes::ZERO {
            self.next = self.next.max(now);
        }
        self.backlog.0 += came.bytes;
        self.figures.packets += u64::from(came.packets);
        self.figures.bytes += came.bytes;
        self.figures.max_len = self.figures.max_len.max(came.longest);
    }

    /// Goes first up to `rate` on this queue.
    pub(super) fn set_threshold(&mut self, rate: Rate) {
        self.per_byte = PerByte::at(rate);
    }

    /// With a new threshold it waits at most for the time of a packet of `frame` bytes.
    pub(super) fn begin_anew_soon(&mut self, frame: u32, now: Nanos) {
        self.next = self.next.min(now + self.per_byte.time(frame));
    }

    /// Whether any flow waits for its turn, with packets or without.
    #[inline]
    pub(super) fn has_flows(&self) -> bool {
        self.flows() != 0
    }

    /// How many do.
    #[inline]
    pub(super) fn flows(&self) -> u32 {
        self.sparse_flows + self.bulk_flows
    }

    /// The current flow. If it has no packets, or may not send, its turn is over.
    #[inline(always)]
    pub(super) fn front(&mut self) -> Option<u16> {
        self.sparse.front().or_else(|| self.wheel.front())
    }

    /// The current flow, without a change of the round.
    #[inline]
    pub(super) fn first(&self) -> Option<u16> {
        self.sparse.front().or_else(|| self.wheel.first())
    }

    /// Prefetches the data for the turn of `next` and the one after: that flow's first packet, and
    /// the flow after it.
    #[inline(always)]
    pub(super) fn prefetch(flows: &Slab<Flow>, next: u16, packets: &Packets) {
        let Some(flow) = flows.get(next) else { return };
        packets.prefetch(flow.queue.front());
        if let Some(after) = flows.get(flow.next()) {
            prefetch(after);
        }
    }

    /// Takes out the backlogged flow at the head, which is in debt and followed by `next`. Returns
    /// in how many rounds it can pay.
    #[inline(always)]
    pub(super) fn end_usual_turn(
        &mut self,
        flow: &mut Flow,
        next: u16,
        neighbours: &mut Option<Neighbours>,
    ) -> u32 {
        self.wheel.pop_front(next);
        let load = self.weigh(flow, neighbours);
        self.wait(flow, load)
    }

    /// The flow at the head has no packets, or may not send: it becomes idle, or goes to a later
    /// round.
    #[inline(never)]
    pub(super) fn end_turn(
        &mut self,
        flows: &mut Slab<Flow>,
        id: u16,
        idle: &mut List,
        neighbours: &mut Option<Neighbours>,
        now: Nanos,
    ) {
        let flow = &mut flows[id];
        let next = flow.next();
        let is_sparse = flow.standing == Standing::Sparse;
        if is_sparse {
            self.sparse.pop_front(next);
        } else {
            self.wheel.pop_front(next);
        }
        if flow.deficit > 0 {
            // The tin is empty.
            self.retire(flow, neighbours, now);
            idle.push_back(flows, id);
            return;
        }
        if is_sparse {
            if flow.is_empty() {
                flow.standing = Standing::SparseWait;
            } else {
                self.sparse_flows -= 1;
                self.begin_to_stand(flow);
            }
        }
        // A flow that waits without packets counts on other queues, too: its next packet may arrive
        // before its turn.
        let counts = flow.standing == Standing::Bulk || neighbours.is_some();
        let load = if counts { self.weigh(flow, neighbours) } else { flow.load };
        let rounds = self.wait(flow, load);
        self.wheel.put(flows, id, rounds);
    }

    /// Puts a flow that is in debt, and in no list, into the round in which it can pay. Returns how
    /// many rounds that is. Its host has `load` flows.
    #[inline(always)]
    fn wait(&self, flow: &mut Flow, load: u16) -> u32 {
        let quantum = self.quantum_of(load);
        let debt = -flow.deficit;
        // Divides even if it is less: the branch would be unpredictable.
        let rounds = (debt as u32 / quantum + 1).min(ROUNDS - 1);
        flow.deficit += (quantum.get() * rounds) as i32;
        *flow.link_mut() = Link::NOBODY;
        rounds
    }

    /// The quantum of a flow of a host with `load` flows, in 1/256 byte.
    #[inline]
    pub(super) fn quantum_of(&self, load: u16) -> NonZeroU32 {
        self.quanta.of(load)
    }

    /// A flow with packets has used up its quantum.
    pub(super) fn begin_to_stand(&mut self, flow: &mut Flow) {
        flow.standing = Standing::Bulk;
        self.bulk_flows += 1;
        if let Some(tables) = &mut self.tables {
            tables.stand(flow, true);
        }
    }

    /// Looks up and returns the load of the flow's hosts.
    #[inline(always)]
    fn weigh(&mut self, flow: &mut Flow, neighbours: &mut Option<Neighbours>) -> u16 {
        let Some(tables) = &mut self.tables else { return flow.load };
        let load = match neighbours {
            None => tables.own_load(flow),
            Some(neighbours) => {
                let load = tables.tell_and_load(flow, neighbours);
                self.weight = reweighed(self.weight, flow.load, load);
                load
            }
        };
        flow.load = load;
        self.quanta.turn(load, self.bulk_flows);
        load
    }

    /// The flow, which is in no list, has no packets and no debt.
    fn retire(&mut self, flow: &mut Flow, neighbours: &mut Option<Neighbours>, now: Nanos) {
        let was_unresponsive = flow.cobalt.is_unresponsive();
        flow.cobalt.emptied(&self.terms, now);
        if was_unresponsive && !flow.cobalt.is_unresponsive() {
            self.unresponsive -= 1;
        }
        if neighbours.is_some() {
            self.weight -= WHOLE_HOST / u64::from(flow.load);
        }
        if flow.standing == Standing::Bulk {
            self.bulk_flows -= 1;
            self.quanta.fewer();
            if let Some(tables) = &mut self.tables {
                tables.stand(flow, false);
            }
        } else {
            self.sparse_flows -= 1;
        }
        if flow.published
            && let (Some(tables), Some(neighbours)) = (&mut self.tables, neighbours)
        {
            tables.take_back(flow, neighbours);
        }
        flow.standing = Standing::Idle;
        let way = flow.home.way();
        if let Some(tables) = &mut self.tables {
            tables.ways.set_busy(way, false);
        }
    }

    /// A packet with the charge `charge` has left, or counts as if it had. Called only if there are
    /// other tins.
    #[inline]
    pub(super) fn charge(&mut self, charge: u32, now: Nanos) {
        let time = self.per_byte.time(charge);
        // It may catch up on a deficit; excess is forgiven.
        self.next = if self.next < now { self.next + time } else { self.next.max(now + time) };
        self.deficit -= i64::from(charge);
    }

    /// A packet leaves after it has stood for `sojourn`.
    #[inline(always)]
    pub(super) fn delayed(&mut self, sojourn: Nanos) {
        self.delays.follow(sojourn);
        self.spread.record(sojourn);
    }

    /// Its statistics.
    pub(super) fn figures(&self) -> TinFigures {
        let [average_delay, peak_delay, base_delay] = self.delays.get();
        TinFigures {
            backlog: self.backlog,
            sparse_flows: self.sparse_flows,
            bulk_flows: self.bulk_flows,
            unresponsive_flows: self.unresponsive,
            average_delay,
            peak_delay,
            base_delay,
            ..self.figures
        }
    }
}
