//! Everything that is measured, fed packet by packet.

use super::delays::Delays;
use super::fairness::{self, Claim};
use super::fullest::Fullest;
use super::groups::{Group, Meter};
use super::hosts::Hosts;
use super::overshoot::Overshoot;
use super::pacing::Pacing;
use super::settling::Settling;
use super::standing::Standing;
use super::timeline::Timeline;
use super::{Measure, Outcome, Series};
use crate::engine::{Passage, Tally};
use crate::setup::{Kind, Setup};
use crate::traffic::Offer;
use narrows_units::{Bytes, Nanos, Rate};
use std::collections::BTreeMap;
use std::ops::Range;

/// The windows whose fullest is looked for.
const WINDOWS: [(Measure, Nanos); 3] = [
    (Measure::Window1ms, Nanos::from_millis(1)),
    (Measure::Window10ms, Nanos::from_millis(10)),
    (Measure::Window100ms, Nanos::from_millis(100)),
];

/// The default longest packet.
const FULL_FRAME: u32 = 1514;

/// How the measures count a flow.
#[derive(Clone, Copy)]
struct Flow {
    group: u16,
    pings: bool,
    closed: bool,
    /// What left.
    bytes: u64,
}

/// The events of the next hop that are recorded.
struct Behind {
    most: Bytes,
    longest_wait: Nanos,
    standing: Option<Standing>,
    timeline: Timeline,
}

/// Measures a run.
pub(crate) struct Recorder {
    limit: Rate,
    measured: Range<Nanos>,
    /// The start of the measures of an event.
    event: Nanos,
    weights: Vec<f64>,
    flows: Vec<Flow>,
    has_pings: bool,
    hosts: Hosts,
    /// By group, with its name.
    groups: Vec<(String, Meter)>,
    /// By queue: bytes that left.
    queues: Vec<u64>,
    packets: u64,
    steps: u64,
    /// Packets that left in these steps, and how many of them sent any.
    taken: u64,
    batches: u64,
    busy: Nanos,
    /// Steps before which the core had been asleep.
    wakes: u64,
    fullest: [Fullest; 3],
    overshoot: Overshoot,
    settling: Option<Settling>,
    delays: Delays,
    pacing: Pacing,
    rate: Timeline,
    delay: Timeline,
    dropped: Timeline,
    behind: Option<Behind>,
}

impl Recorder {
    /// For `setup`, with the group of each flow, and those that are closed-loop.
    pub(crate) fn new<'a>(
        setup: &Setup,
        groups: &[u16],
        closed: impl Iterator<Item = &'a Range<u32>>,
    ) -> Self {
        let (limit, run) = (setup.port.rate, setup.run);
        let measured = run.warmup..run.end();
        let event = run.event.unwrap_or(run.warmup);
        let pings = |group: &u16| {
            let group = setup.traffic.get(usize::from(*group));
            group.is_some_and(|group| matches!(group.kind, Kind::Ping { .. }))
        };
        let flow =
            |group: &u16| Flow { group: *group, pings: pings(group), closed: false, bytes: 0 };
        let mut flows: Vec<Flow> = groups.iter().map(flow).collect();
        for range in closed {
            let range = range.start as usize..range.end as usize;
            flows[range].iter_mut().for_each(|flow| flow.closed = true);
        }
        let sizes = setup.traffic.iter().flat_map(|group| &group.sizes);
        let longest = sizes.map(|(len, _)| *len).max().unwrap_or(FULL_FRAME);
        let settling = |event| Settling::new(limit, event, Bytes(u64::from(longest)));
        let weight = |queue| setup.port.weights.get(queue).copied().unwrap_or(1.0);
        Self {
            has_pings: flows.iter().any(|flow| flow.pings),
            pacing: Pacing::new(setup, groups.len()),
            flows,
            hosts: Hosts::new(setup, groups),
            groups: setup.traffic.iter().map(|it| (it.name.clone(), Meter::new())).collect(),
            weights: (0..setup.port.queues).map(weight).collect(),
            queues: vec![0; setup.port.queues],
            packets: 0,
            steps: 0,
            taken: 0,
            batches: 0,
            busy: Nanos::ZERO,
            wakes: 0,
            fullest: WINDOWS.map(|(_, length)| Fullest::new(length, &measured)),
            overshoot: Overshoot::new(limit, event),
            settling: run.event.map(settling),
            delays: Delays::new(),
            rate: Timeline::new(run.end()),
            delay: Timeline::new(run.end()),
            dropped: Timeline::new(run.end()),
            behind: setup.next_hop.map(|next_hop| Behind {
                most: Bytes::ZERO,
                longest_wait: Nanos::ZERO,
                standing: run.event.map(|event| Standing::new(next_hop.rate, run.warmup, event)),
                timeline: Timeline::new(run.end()),
            }),
            limit,
            measured,
            event,
        }
    }

    /// A packet left the shaper. In order of time.
    #[inline]
    pub(crate) fn left(&mut self, at: Nanos, offer: &Offer, marked: bool) {
        let delay = at.since(offer.at);
        self.rate.add(at, u64::from(offer.len));
        self.delay.raise(at, delay.0);
        self.overshoot.left(at, offer.len);
        if let Some(settling) = &mut self.settling {
            settling.left(at, offer.len);
        }
        if self.measured.contains(&at) {
            self.packets += 1;
            self.queues[offer.queue] += u64::from(offer.len);
            self.fullest.iter_mut().for_each(|fullest| fullest.left(at, offer.len));
            if let Some(flow) = self.flows.get_mut(offer.flow as usize) {
                flow.bytes += u64::from(offer.len);
                if let Some((_, group)) = self.groups.get_mut(usize::from(flow.group)) {
                    group.left(offer.len, marked, delay);
                }
            }
        }
    }

    /// A worker dropped a packet.
    pub(crate) fn dropped(&mut self, at: Nanos, offer: &Offer) {
        self.dropped.add(at, 1);
        if self.measured.contains(&at)
            && let Some(flow) = self.flows.get(offer.flow as usize)
            && let Some((_, group)) = self.groups.get_mut(usize::from(flow.group))
        {
            group.dropped();
        }
    }

    /// A packet came to the next hop. In order of time.
    #[inline]
    pub(crate) fn passed(&mut self, at: Nanos, offer: &Offer, passage: &Passage) {
        let Some(behind) = &mut self.behind else { return };
        behind.timeline.raise(at, passage.found.0);
        if at >= self.event {
            behind.most = behind.most.max(passage.found);
            behind.longest_wait = behind.longest_wait.max(passage.wait);
        }
        if let Some(standing) = &mut behind.standing {
            let len = Bytes(u64::from(offer.len));
            standing.came(at, len, passage.found, passage.out.is_some());
        }
    }

    /// A packet is, or will be, through at `out`.
    #[inline]
    pub(crate) fn came_out(&mut self, out: Nanos, offer: &Offer) {
        if !self.measured.contains(&out) {
            return;
        }
        let flow = self.flows.get(offer.flow as usize);
        if let Some(flow) = flow {
            self.pacing.came(out, offer.len, offer.flow, flow.group);
        }
        if flow.is_some_and(|flow| flow.pings) || !self.has_pings {
            self.delays.record(out.since(offer.at));
        }
    }

    /// Records a step of a core at `at`: the packets that it sent, how long it is busy, and whether
    /// it had been asleep.
    #[inline]
    pub(crate) fn stepped(&mut self, at: Nanos, sent: usize, busy: Nanos, woke: bool) {
        if self.measured.contains(&at) {
            self.steps += 1;
            self.taken += sent as u64;
            self.batches += u64::from(sent > 0);
            self.busy += busy;
            self.wakes += u64::from(woke);
        }
    }

    /// The outcome, for the load offered by queue; fields that others count are left open.
    pub(crate) fn finish(self, offered: &[Tally]) -> Outcome {
        let end = self.measured.end;
        let length = end.since(self.measured.start).as_secs_f64();
        let whole = self.limit.bits_per_sec() as f64 / 8.0 * length;
        let sent: u64 = self.queues.iter().sum();
        let utilization = sent as f64 / whole;
        let packets = self.packets as f64;
        let cores = self.queues.len() as f64;
        let micros = |time: Nanos| time.0 as f64 / 1e3;

        let mut measures = BTreeMap::from([
            (Measure::Utilization, utilization),
            (Measure::DeviationPercent, (utilization - 1.0) * 100.0),
            (Measure::MbitPerSec, sent as f64 * 8.0 / length / 1e6),
            (Measure::Mpps, packets / length / 1e6),
            (Measure::OvershootBytes, self.overshoot.bytes().0 as f64),
            (Measure::CpuPercent, self.busy.as_secs_f64() * 100.0 / length / cores),
            (Measure::WakesPerSec, self.wakes as f64 / length),
        ]);
        let mut add = |measure, value: Option<f64>| {
            if let Some(value) = value {
                measures.insert(measure, value);
            }
        };
        let any = self.packets > 0;
        add(Measure::NsPerPacket, any.then(|| self.busy.0 as f64 / packets));
        add(Measure::StepsPerPacket, any.then(|| self.steps as f64 / packets));
        let batches = self.batches > 0;
        add(Measure::PacketsPerBatch, batches.then(|| self.taken as f64 / self.batches as f64));
        add(Measure::P50Us, self.delays.percentile_us(50.0));
        add(Measure::P99Us, self.delays.percentile_us(99.0));
        for ((measure, window), fullest) in WINDOWS.into_iter().zip(self.fullest) {
            let right = self.limit.bits_per_sec() as f64 / 8.0 * window.as_secs_f64();
            let percent = |bytes: u64| (bytes as f64 / right - 1.0) * 100.0;
            add(measure, fullest.finish().map(percent));
        }
        add(Measure::SettleUs, self.settling.map(|settling| micros(settling.finish(end))));

        let claims: Vec<Claim> = offered
            .iter()
            .zip(&self.queues)
            .zip(&self.weights)
            .map(|((tally, got), weight)| {
                // Closed-loop traffic offers the rate that it gets, and its demand is unlimited.
                let offered = tally.measured_bytes as f64;
                let wanted = if tally.closed_loop { f64::INFINITY } else { offered };
                Claim { wanted, got: *got as f64, weight: *weight }
            })
            .collect();
        add(Measure::Jain, fairness::of_claims(whole, &claims));
        let closed: Vec<f64> =
            self.flows.iter().filter(|flow| flow.closed).map(|flow| flow.bytes as f64).collect();
        add(Measure::JainFlows, fairness::jain(&closed));
        let flow_bytes: Vec<u64> = self.flows.iter().map(|flow| flow.bytes).collect();
        let host_bytes = self.hosts.got(&flow_bytes);
        add(Measure::JainHosts, self.hosts.jain(whole, &host_bytes));
        let group = |(number, (name, meter)): (usize, &(String, Meter))| {
            let own = self.flows.iter().filter(|flow| usize::from(flow.group) == number);
            meter.finish(
                name,
                length,
                &own.map(|flow| flow.bytes).collect::<Vec<_>>(),
                self.pacing.of_group(number),
            )
        };
        for (measure, value) in self.pacing.of_all() {
            add(measure, Some(value));
        }
        let groups: Vec<Group> = self.groups.iter().enumerate().map(group).collect();

        let mut series: Vec<Series> = vec![
            self.rate.series("rate, Gbit/s", self.rate.gbit_per_byte()),
            self.delay.series("delay, us", 1e-3),
            self.dropped.series("drops, packets", 1.0),
        ];
        if let Some(behind) = self.behind {
            series.push(behind.timeline.series("next hop, kB", 1e-3));
            add(Measure::InducedQueueBytes, Some(behind.most.0 as f64));
            add(Measure::InducedDelayUs, Some(micros(behind.longest_wait)));
            add(Measure::StandingUs, behind.standing.map(|it| micros(it.finish(end))));
        }
        let percent = |bytes: &u64| 100.0 * *bytes as f64 / whole;
        let queue_percent = self.queues.iter().map(percent).collect();
        Outcome {
            measures,
            queue_percent,
            series,
            groups,
            flow_bytes,
            host_bytes,
            ..Outcome::default()
        }
    }
}
