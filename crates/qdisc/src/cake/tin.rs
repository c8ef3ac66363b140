//! One tin: its flows in their rotation, its hosts, its clock, its figures.

use super::clock::PerByte;
use super::cobalt::Terms;
use super::flow::{Flow, Standing, TOLD};
use super::hosts::Hosts;
pub(super) use super::load::WHOLE_HOST;
use super::load::{Quanta, reweighed};
use super::neighbours::Neighbours;
use super::rotation::{List, ROUNDS, Wheel};
use super::slab::{Links, Slab};
use super::ways::Ways;
use super::{Config, TinFigures, average};
use crate::Census;
use narrows_cpu::prefetch;
use narrows_packet::Packets;
use narrows_units::{Bytes, Nanos, Rate};

/// A flow's quantum: what its tin may send in 1/4096 s,
const QUANTUM_PART: u64 = 4096;
/// within the longest frame of plain Ethernet, and what keeps turns from being too many.
const QUANTUM_MAX: u32 = 1514;
const QUANTUM_MIN: u32 = 300;

/// Averages follow a value beyond their purpose by 1/4, others by 1/256.
const FAST: u32 = 2;
const SLOW: u32 = 8;

/// What is allocated when the first packet of a tin comes.
pub(super) struct Tables {
    pub(super) ways: Ways,
    /// By end, where hosts matter there.
    pub(super) sources: Option<Hosts>,
    pub(super) destinations: Option<Hosts>,
}

impl Tables {
    pub(super) fn memory(&self) -> usize {
        let hosts = [&self.sources, &self.destinations];
        size_of::<Self>()
            + Ways::memory()
            + hosts.into_iter().flatten().map(Hosts::memory).sum::<usize>()
    }
}

/// A tin.
pub(super) struct Tin {
    pub(super) tables: Option<Box<Tables>>,
    pub(super) sparse: List,
    pub(super) wheel: Wheel,
    /// Flows that are not idle.
    pub(super) sparse_flows: u32,
    pub(super) bulk_flows: u32,
    /// The sum of what flows that are not idle count for, in parts of a host. Those that are sparse
    /// count, too: where they go first they are soon gone, and where they do not get a turn at all
    /// nobody else would know of them.
    pub(super) weight: u64,
    quanta: Quanta,
    pub(super) backlog: Bytes,
    /// The part of the rate up to which this tin goes first, on this queue.
    per_byte: PerByte,
    pub(super) next: Nanos,
    /// What it may still send in its turn among tins, where there is no rate.
    pub(super) deficit: i64,
    /// What it gets a turn.
    pub(super) quantum: u32,
    pub(super) terms: Terms,
    /// Bytes that have left, as charged.
    pub(super) sent: u64,
    pub(super) unresponsive: u32,
    /// All but what is known otherwise.
    pub(super) figures: TinFigures,
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
            figures: TinFigures::default(),
        }
    }

    /// Works to `config` from now on, with `rate` as its threshold, on a queue that gets `here`: control
    /// aims at what can be had here, turns are what the tin may have.
    pub(super) fn follow(&mut self, config: &Config, rate: Option<Rate>, here: Rate) {
        let frame = Bytes(u64::from(config.frame));
        let quantum = rate.map_or(QUANTUM_MAX, |rate| {
            let quantum = u32::try_from(rate.bytes_per_sec() / QUANTUM_PART).unwrap_or(u32::MAX);
            quantum.clamp(QUANTUM_MIN, QUANTUM_MAX)
        });
        self.quanta.set_whole(quantum);
        let terms = |rate: Option<Rate>| {
            let frame_time = rate.map_or(Nanos::ZERO, |rate| rate.time_for(frame));
            Terms::new(config.interval, config.target, frame_time)
        };
        self.terms = terms(rate.map(|rate| rate.min(here)));
        let told = terms(rate);
        self.figures.threshold = rate.unwrap_or_default();
        self.figures.target = told.target;
        self.figures.interval = told.interval;
        self.figures.quantum = quantum;
    }

    /// Goes first up to `rate` on this queue.
    pub(super) fn set_threshold(&mut self, rate: Rate) {
        self.per_byte = PerByte::at(rate);
    }

    /// With another threshold it waits no longer than for a packet of `frame` bytes at that.
    pub(super) fn begin_anew_soon(&mut self, frame: u32, now: Nanos) {
        self.next = self.next.min(now + self.per_byte.time(frame));
    }

    /// Whether any flow waits for its turn, with packets or without.
    #[inline]
    pub(super) fn has_flows(&self) -> bool {
        self.sparse_flows + self.bulk_flows != 0
    }

    /// The flow whose turn it is. It may have no packets, or may not send: then its turn is over.
    #[inline(always)]
    pub(super) fn front(&mut self) -> Option<u16> {
        self.sparse.front().or_else(|| self.wheel.front())
    }

    /// Has brought near what the turns after that of `id` will need: the first packet of the next flow,
    /// and the flow after that.
    #[inline(always)]
    pub(super) fn approach_next(flows: &Slab<Flow>, id: u16, packets: &Packets) {
        let Some((next, flow)) = flows.next(id) else { return };
        packets.approach(flow.queue.front());
        if let Some((_, after)) = flows.next(next) {
            prefetch(after);
        }
    }

    /// The flow at the head has nothing to send, or may not: it goes to rest, or to a later round.
    #[inline(always)]
    pub(super) fn end_turn(
        &mut self,
        flows: &mut Slab<Flow>,
        id: u16,
        idle: &mut List,
        neighbours: &mut Option<Neighbours>,
        now: Nanos,
    ) {
        let (flow, links) = flows.with_links(id);
        if flow.standing != Standing::Bulk || flow.deficit > 0 {
            self.end_rare_turn(flow, links, id, idle, neighbours, now);
            return;
        }
        self.wheel.pop_front(links);
        self.wait(flow, links, id, neighbours);
    }

    /// The same for a flow that is sparse, or goes to rest.
    #[inline(never)]
    fn end_rare_turn(
        &mut self,
        flow: &mut Flow,
        links: &mut Links,
        id: u16,
        idle: &mut List,
        neighbours: &mut Option<Neighbours>,
        now: Nanos,
    ) {
        let is_sparse = flow.standing == Standing::Sparse;
        if is_sparse {
            self.sparse.pop_front(links);
        } else {
            self.wheel.pop_front(links);
        }
        if flow.deficit > 0 {
            // It is empty.
            self.retire(flow, neighbours, now);
            idle.push_back(links, id);
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
        self.wait(flow, links, id, neighbours);
    }

    /// A flow that is in debt goes to the round in which it can pay.
    #[inline(always)]
    fn wait(
        &mut self,
        flow: &mut Flow,
        links: &mut Links,
        id: u16,
        neighbours: &mut Option<Neighbours>,
    ) {
        if flow.standing == Standing::Bulk {
            self.weigh(flow, neighbours);
        }
        let quantum = self.quantum_of(flow.load);
        let debt = -flow.deficit;
        // Divided even where it is less: whether it is cannot be foreseen.
        let rounds = (debt as u32 / quantum as u32 + 1).min(ROUNDS - 1);
        flow.deficit += quantum * rounds as i32;
        self.wheel.put(links, id, rounds);
    }

    /// What a flow of a host with `load` flows may send a round, in 1/256 byte.
    #[inline]
    pub(super) fn quantum_of(&self, load: u16) -> i32 {
        self.quanta.of(load)
    }

    /// A flow with packets has used up its quantum.
    pub(super) fn begin_to_stand(&mut self, flow: &mut Flow) {
        flow.standing = Standing::Bulk;
        flow.turns = 0;
        self.bulk_flows += 1;
        if let Some(tables) = &mut self.tables {
            tables.stand(flow, true);
        }
    }

    /// Looks up how many flows the flow's hosts have.
    #[inline(always)]
    fn weigh(&mut self, flow: &mut Flow, neighbours: &mut Option<Neighbours>) {
        let Some(tables) = &mut self.tables else { return };
        let load = match neighbours {
            None => tables.load(flow, None),
            Some(neighbours) => tables.tell_and_load(flow, neighbours),
        };
        self.weight = reweighed(self.weight, flow.load, load);
        flow.load = load;
        self.quanta.turn(load, self.bulk_flows);
    }

    /// The flow, which is in no list, has no packets and no debt.
    fn retire(&mut self, flow: &mut Flow, neighbours: &mut Option<Neighbours>, now: Nanos) {
        let was_unresponsive = flow.cobalt.is_unresponsive();
        flow.cobalt.emptied(&self.terms, now);
        if was_unresponsive && !flow.cobalt.is_unresponsive() {
            self.unresponsive -= 1;
        }
        self.weight -= WHOLE_HOST / u64::from(flow.load);
        if flow.standing == Standing::Bulk {
            self.bulk_flows -= 1;
            if let Some(tables) = &mut self.tables {
                tables.end_standing(flow, neighbours.as_mut());
            }
        } else {
            self.sparse_flows -= 1;
        }
        flow.standing = Standing::Idle;
        let way = flow.home.way();
        if let Some(tables) = &mut self.tables {
            tables.ways.set_busy(way, false);
        }
    }

    /// A packet that is charged `charge` has left, or counts as if it had. Where it is the only tin
    /// nobody asks whose turn it is.
    #[inline]
    pub(super) fn charge(&mut self, charge: u32, now: Nanos, has_others: bool) {
        self.sent += u64::from(charge);
        if !has_others {
            return;
        }
        let time = self.per_byte.time(charge);
        // What it missed it may make up for; what it had beyond its part is not held against it.
        self.next = if self.next < now { self.next + time } else { self.next.max(now + time) };
        self.deficit -= i64::from(charge);
    }

    /// A packet leaves after it has stood for `sojourn`.
    #[inline]
    pub(super) fn delayed(&mut self, sojourn: Nanos) {
        let TinFigures { peak_delay, average_delay, base_delay, .. } = &mut self.figures;
        let follow = |value: &mut Nanos, shift: u32| {
            value.0 = average(value.0, sojourn.0, shift);
        };
        follow(average_delay, SLOW);
        follow(peak_delay, if sojourn > *peak_delay { FAST } else { SLOW });
        follow(base_delay, if sojourn < *base_delay { FAST } else { SLOW });
    }
}

impl Tables {
    /// A flow begins to stand, or ends.
    fn stand(&mut self, flow: &Flow, begins: bool) {
        if let Some(hosts) = &mut self.sources {
            hosts.stand(flow.source, begins);
        }
        if let Some(hosts) = &mut self.destinations {
            hosts.stand(flow.destination, begins);
        }
    }

    fn tell(&mut self, flow: &Flow, begins: bool, census: &mut dyn Census) {
        if let Some(hosts) = &mut self.sources {
            hosts.tell(flow.source, begins, census);
        }
        if let Some(hosts) = &mut self.destinations {
            hosts.tell(flow.destination, begins, census);
        }
    }

    /// New siblings have heard of nobody.
    pub(super) fn forget_what_was_told(&mut self) {
        for hosts in [&mut self.sources, &mut self.destinations].into_iter().flatten() {
            hosts.forget_what_was_told();
        }
    }

    /// The most flows that one of its hosts has.
    #[inline(always)]
    pub(super) fn load(&mut self, flow: &Flow, neighbours: Option<&Neighbours>) -> u16 {
        let mut load = 1;
        if let Some(hosts) = &mut self.sources {
            load = load.max(hosts.load(flow.source, neighbours));
        }
        if let Some(hosts) = &mut self.destinations {
            load = load.max(hosts.load(flow.destination, neighbours));
        }
        u16::try_from(load).unwrap_or(u16::MAX)
    }

    /// The same, and tells siblings of the flow if it has stood for some turns.
    #[inline(never)]
    fn tell_and_load(&mut self, flow: &mut Flow, neighbours: &mut Neighbours) -> u16 {
        if flow.turns < TOLD {
            flow.turns += 1;
            if flow.turns == TOLD {
                self.tell(flow, true, &mut *neighbours.census);
            }
        }
        self.load(flow, Some(neighbours))
    }

    fn end_standing(&mut self, flow: &mut Flow, neighbours: Option<&mut Neighbours>) {
        self.stand(flow, false);
        if flow.turns >= TOLD
            && let Some(neighbours) = neighbours
        {
            self.tell(flow, false, &mut *neighbours.census);
        }
        flow.turns = 0;
    }
}
