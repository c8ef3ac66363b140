//! The workers' counters, added up over sessions, in the form of the snapshot.

use crate::worker_report::WorkerReport;
use narrows_bpf::{Counted, FateCounters, Outcome, OutcomeCounters, SlowPathCounters, Verdicts};
use narrows_forwarding::{PerPort, PortId};
use narrows_link::DeviceLosses;
use narrows_packet::{Backlog, DropCounters, DropReason};
use narrows_roundtrip::{Class, Losses, Trips};
use narrows_shaper::{
    Arrived, Beyond, Delays, Entry, Flow, HeaviestReport, Host, PathCounters, WINDOW,
};
use narrows_snapshot::{self as snapshot, Queue};
use narrows_xsk::KernelDrops;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

/// The number of hosts and flows of each kind that are reported.
const HEAVY_MAX: usize = 16;

/// The counters of one queue of one port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueCounters {
    /// Packets that arrived here.
    pub(crate) arrived: Arrived,
    /// Packets that leave, or were to leave, here.
    pub(crate) outward: PathCounters,
    /// System calls made to send them.
    pub(crate) tx_kicks: u64,
    pub(crate) backlog: Backlog,
    pub(crate) kernel_drops: KernelDrops,
}

impl QueueCounters {
    /// Adds the counts of `other`; backlogs do not add up over time and are replaced.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.arrived.add(other.arrived.packets, other.arrived.bytes);
        self.outward.merge(&other.outward);
        self.tx_kicks += other.tx_kicks;
        self.backlog += other.backlog;
        let (mine, theirs) = (&mut self.kernel_drops, &other.kernel_drops);
        mine.rx_dropped += theirs.rx_dropped;
        mine.rx_ring_full += theirs.rx_ring_full;
        mine.fill_ring_empty += theirs.fill_ring_empty;
        mine.rx_invalid += theirs.rx_invalid;
        mine.tx_invalid += theirs.tx_invalid;
    }

    /// Adds packets that left here without a worker, or were to leave here and were dropped.
    pub(crate) fn add_outward(&mut self, packets: u64, bytes: u64, dropped: Option<DropReason>) {
        let path = &mut self.outward;
        path.rx_packets += packets;
        path.rx_bytes += bytes;
        match dropped {
            Some(reason) => path.drops.add(reason, packets),
            None => {
                path.tx_packets += packets;
                path.tx_bytes += bytes;
            }
        }
    }

    pub(crate) fn show(&self) -> Queue {
        Queue {
            rx_packets: self.arrived.packets,
            rx_bytes: self.arrived.bytes,
            tx_packets: self.outward.tx_packets,
            tx_bytes: self.outward.tx_bytes,
            tx_kicks: self.tx_kicks,
            backlog_packets: u64::from(self.backlog.packets),
            backlog_bytes: self.backlog.bytes.0,
            drops: self.outward.drops.total(),
            drops_by_reason: by_reason(&self.outward.drops),
        }
    }

    /// Packets lost by the kernel.
    pub(crate) fn kernel_drops(&self) -> snapshot::KernelDrops {
        snapshot::KernelDrops {
            rx_ring_full: self.kernel_drops.rx_ring_full,
            rx_dropped: self.kernel_drops.rx_dropped,
            fill_ring_empty: self.kernel_drops.fill_ring_empty,
            rx_invalid: self.kernel_drops.rx_invalid,
            tx_invalid: self.kernel_drops.tx_invalid,
        }
    }
}

/// The counters of a port. Those of a device with several ports are with the first of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct PortCounts {
    /// By queue; by CPU where there are none.
    pub(crate) queues: Vec<QueueCounters>,
    /// The delays of packets that left here.
    pub(crate) delays: Delays,
    /// The recent heaviest hosts and flows that left here.
    pub(crate) heaviest: HeaviestReport,
    /// Round trips beyond it, if measured.
    pub(crate) beyond: Option<Beyond>,
    /// The counters of its device's program.
    pub(crate) verdicts: Verdicts,
    /// In a router and a switch: what became of frames that arrived here.
    pub(crate) routes: OutcomeCounters,
    /// What the kernel itself sent here, where a program charges it.
    pub(crate) slow_path: Option<SlowPathCounters>,
    /// Packets lost by its device.
    pub(crate) losses: DeviceLosses,
}

/// The counters of each port.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) ports: PerPort<PortCounts>,
}

impl Counts {
    /// None yet, of `ports` ports.
    pub(crate) fn none(ports: usize) -> Self {
        Self { ports: PortId::first(ports).map(|_| PortCounts::default()).collect() }
    }

    /// Adds the counts of `other`: another session, or other queues.
    pub(crate) fn add(&mut self, other: &Self) {
        for (port, other) in self.ports.iter_mut().zip(&other.ports) {
            for (queue, counters) in other.queues.iter().enumerate() {
                port.queue(queue).merge(counters);
            }
            port.delays.merge(&other.delays);
            port.heaviest.merge(&other.heaviest);
            merge_beyond(&mut port.beyond, other.beyond.as_ref());
            port.verdicts = add_verdicts(port.verdicts, other.verdicts);
            port.routes += other.routes;
            if let Some(more) = other.slow_path {
                *port.slow_path.get_or_insert_default() += more;
            }
            port.losses = port.losses.and(&other.losses);
        }
    }

    /// Adds the report of the worker of `queue`.
    pub(crate) fn add_worker(&mut self, queue: usize, report: &WorkerReport) {
        for (id, of_worker) in report.ports.iter_enumerated() {
            let port = &mut self.ports[id];
            port.delays.merge(&of_worker.delays);
            port.heaviest.merge(&of_worker.heaviest);
            merge_beyond(&mut port.beyond, of_worker.beyond.as_ref());
            port.queue(queue).merge(&QueueCounters {
                arrived: of_worker.arrived,
                outward: of_worker.path,
                tx_kicks: of_worker.tx_kicks,
                backlog: of_worker.backlog,
                kernel_drops: of_worker.kernel_drops,
            });
        }
    }

    /// Adds the packets that the driver `dropped` on arrival at `port`, at `queue`, which were to
    /// leave `across`, or nobody knows where.
    pub(crate) fn add_dropped_in_front(
        &mut self,
        port: PortId,
        across: Option<PortId>,
        queue: usize,
        dropped: Counted,
    ) {
        if dropped == Counted::default() {
            return;
        }
        let Counted { packets, bytes, .. } = dropped;
        self.ports[port].queue(queue).arrived.add(packets, bytes);
        let out = self.ports[across.unwrap_or(port)].queue(queue);
        out.add_outward(packets, bytes, Some(DropReason::Filter));
    }

    /// Clears backlogs and the heaviest hosts and flows: only counters are history.
    pub(crate) fn clear_backlogs(&mut self) {
        for port in &mut self.ports {
            port.heaviest = HeaviestReport::default();
            port.beyond.iter_mut().for_each(|beyond| beyond.hosts.clear());
            for queue in &mut port.queues {
                queue.backlog = Backlog::default();
            }
        }
    }
}

impl PortCounts {
    /// All queues together.
    pub(crate) fn total(&self) -> QueueCounters {
        let mut total = QueueCounters::default();
        self.queues.iter().for_each(|queue| total.merge(queue));
        total
    }

    pub(crate) fn queue(&mut self, queue: usize) -> &mut QueueCounters {
        if self.queues.len() <= queue {
            self.queues.resize(queue + 1, QueueCounters::default());
        }
        &mut self.queues[queue]
    }
}

/// Adds the measurements of another worker or session beyond the same port.
fn merge_beyond(into: &mut Option<Beyond>, from: Option<&Beyond>) {
    match (into, from) {
        (Some(known), Some(other)) => known.merge(other),
        (none @ None, Some(other)) => *none = Some(other.clone()),
        (_, None) => {}
    }
}

/// Adds the counters of two sessions' steering programs.
fn add_verdicts(one: Verdicts, two: Verdicts) -> Verdicts {
    Verdicts {
        to_worker: one.to_worker + two.to_worker,
        to_self: one.to_self + two.to_self,
        unserved: one.unserved + two.unserved,
        stalled: one.stalled + two.stalled,
        others: one.others + two.others,
    }
}

/// The reasons that occurred, with their counts.
pub(crate) fn by_reason(drops: &DropCounters) -> BTreeMap<String, u64> {
    drops
        .iter()
        .filter(|(_, packets)| *packets > 0)
        .map(|(reason, packets)| (reason.name().to_owned(), packets))
        .collect()
}

/// What became of frames that a router or a switch got, in the form of the snapshot: outcomes that
/// occurred.
pub(crate) fn routes(routes: &OutcomeCounters) -> BTreeMap<String, u64> {
    let occurred = routes.iter().filter(|(_, frames)| *frames > 0);
    occurred.map(|(outcome, frames)| (outcome.name().to_owned(), frames)).collect()
}

/// What became of frames at a balancer, in the form of the snapshot: outcomes that occurred.
pub(crate) fn fates(fates: &FateCounters) -> BTreeMap<String, u64> {
    let occurred = fates.iter().filter(|(_, fated)| fated.packets > 0);
    occurred.map(|(fate, fated)| (fate.name().to_owned(), fated.packets)).collect()
}

/// What is led by connection ids at a balancer, in the form of the snapshot.
pub(crate) fn connection_ids(fates: &FateCounters) -> Option<snapshot::ConnectionIds> {
    let [named, others] = [fates.by_id(), fates.not_by_id()].map(|fated| fated.packets);
    (named + others > 0).then_some(snapshot::ConnectionIds { named, others })
}

/// The inverse. Outcomes that this version does not know are left out.
pub(crate) fn routes_of(named: &BTreeMap<String, u64>) -> OutcomeCounters {
    let count = |outcome: &Outcome| named.get(outcome.name()).copied().unwrap_or(0);
    let words: Vec<u64> = Outcome::ALL.iter().map(count).collect();
    OutcomeCounters::of(&words)
}

/// What the kernel itself sent through a port, in the form of the snapshot.
pub(crate) fn slow_path(counters: SlowPathCounters) -> snapshot::SlowPath {
    let SlowPathCounters { sent_packets, sent_bytes, dropped_packets, dropped_bytes } = counters;
    snapshot::SlowPath { sent_packets, sent_bytes, dropped_packets, dropped_bytes }
}

/// The delays of packets, in the form of the snapshot.
pub(crate) fn delays(delays: &Delays) -> snapshot::Delays {
    let counts = delays.counts().map(|(time, packets)| (time.0 as f64 / 1e3, packets));
    snapshot::Delays::new(counts.collect())
}

/// Round trips beyond a port, in the form of the snapshot.
pub(crate) fn beyond(beyond: &Beyond) -> snapshot::RoundTrips {
    snapshot::RoundTrips { times: delays(&beyond.trips), losses: losses(&beyond.losses) }
}

fn losses(losses: &Losses) -> snapshot::Losses {
    let Losses { segments, before, beyond } = *losses;
    snapshot::Losses { segments, before, beyond }
}

/// The heaviest hosts and flows that left through a port, in the form of the snapshot: the heaviest
/// of each kind first. `beyond` holds the measurements beyond that port, and beyond the other one.
pub(crate) fn heaviest(
    report: &HeaviestReport,
    beyond: [Option<&Beyond>; 2],
) -> snapshot::Heaviest {
    let [here, across] = beyond;
    let hosts = |entries: &[Entry<Host>], is_source: bool| {
        let mut heavies = ranked(entries, |host| host.address().to_string());
        for (heavy, host) in &mut heavies {
            let known = |beyond: Option<&Beyond>| {
                beyond?.hosts.iter().find(|known| known.address == host.address()).cloned()
            };
            // Senders through this port are beyond the other one.
            let far = known(if is_source { across } else { here });
            heavy.round_trip = far.and_then(|far| round_trip(&far.trips));
            let sent = known(here).map(|known| if is_source { known.from } else { known.to });
            heavy.losses = sent.and_then(|sent| known_losses(&sent));
        }
        heavies.into_iter().map(|(heavy, _)| heavy).collect()
    };
    snapshot::Heaviest {
        window_s: WINDOW.as_secs_f64(),
        sources: hosts(&report.sources, true),
        destinations: hosts(&report.destinations, false),
        flows: ranked(&report.flows, described).into_iter().map(|(heavy, _)| heavy).collect(),
    }
}

/// Adds the measurements `beyond` a port to its `classes`, to those of the qdisc `major`.
pub(crate) fn add_beyond(classes: &mut [snapshot::Class], major: u32, beyond: &Beyond) {
    let known: HashMap<u32, &Class> =
        beyond.classes.iter().map(|class| (class.id, class)).collect();
    for class in classes {
        let known = match class.id() {
            Some((of, minor)) if of == major => known.get(&minor),
            _ => None,
        };
        let Some(known) = known else { continue };
        class.stats.round_trip = round_trip(&known.trips);
        class.stats.losses = known_losses(&known.losses);
    }
}

fn known_losses(known: &Losses) -> Option<snapshot::Losses> {
    (known.segments > 0).then(|| losses(known))
}

fn round_trip(trips: &Trips) -> Option<snapshot::RoundTrip> {
    let micros = |of| trips.all.quantile(of).map_or(0, |time| time.0 / 1_000);
    (!trips.is_empty()).then(|| snapshot::RoundTrip {
        min_us: trips.shortest.0 / 1_000,
        p50_us: micros(0.5),
        p99_us: micros(0.99),
    })
}

/// The heaviest of `entries`, without those whose own bytes are less than half of their count.
fn ranked<K: Copy>(entries: &[Entry<K>], name: impl Fn(&K) -> String) -> Vec<(snapshot::Heavy, K)> {
    let mut known: Vec<&Entry<K>> =
        entries.iter().filter(|entry| entry.own_bytes() > entry.over).collect();
    known.sort_by_key(|entry| Reverse(entry.own_bytes()));
    let heavy = |entry: &&Entry<K>| {
        let bytes = entry.own_bytes();
        let quantile = |of| entry.delays.quantile(of).map_or(0, |time| time.0 / 1_000);
        let heavy = snapshot::Heavy {
            name: name(&entry.key),
            bps: (bytes as f64 * 8.0 / WINDOW.as_secs_f64()) as u64,
            delay_mean_us: entry.stayed.checked_div(bytes).unwrap_or(0),
            delay_max_us: entry.longest.0 / 1_000,
            delay_p50_us: quantile(0.5),
            delay_p99_us: quantile(0.99),
            delay_p999_us: quantile(0.999),
            ..snapshot::Heavy::default()
        };
        (heavy, entry.key)
    };
    known.iter().take(HEAVY_MAX).map(heavy).collect()
}

/// `udp 192.0.2.1:53 > 192.0.2.2:4711`, as tcpdump writes ends.
fn described(flow: &Flow) -> String {
    let protocol = match flow.protocol {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmp6".to_owned(),
        number => format!("ip-{number}"),
    };
    let end = |host: &Host, port: u16| match (host.address(), port) {
        (address, 0) => address.to_string(),
        (address, port) => SocketAddr::new(address, port).to_string(),
    };
    let (from, to) = flow.ports;
    format!("{protocol} {} > {}", end(&flow.source, from), end(&flow.destination, to))
}

/// Packets lost by the device, in the form of the snapshot.
pub(crate) fn device_losses(losses: DeviceLosses) -> snapshot::DeviceLosses {
    let DeviceLosses { rx_dropped, rx_errors, rx_missed, tx_dropped, tx_errors, tx_carrier } =
        losses;
    snapshot::DeviceLosses { rx_dropped, rx_errors, rx_missed, tx_dropped, tx_errors, tx_carrier }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_did_not_occur_are_left_out() {
        let mut drops = DropCounters::default();
        drops.add(DropReason::Horizon, 2);
        assert_eq!(by_reason(&drops), BTreeMap::from([("horizon".to_owned(), 2)]));
    }
}
