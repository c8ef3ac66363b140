//! An instance as it is now, for those who only look: its snapshot, and the host of `tc` commands
//! that show it.

use super::{Instance, planning};
use crate::clock;
use crate::counters::{self, Counts, QueueCounters};
use crate::plane::{PlaneKind, Report};
use crate::port::policy_facts;
use crate::seen::Seen;
use narrows_link::Link;
use narrows_policy::{Handle, Kind, PortFacts};
use narrows_shaper::{Beyond, PathCounters, Side};
use narrows_snapshot::{Conservation, CountedBy, Port, Snapshot};
use narrows_tc::Host;
use narrows_units::Rate;
use serde::de::DeserializeOwned;

impl Instance {
    /// Everything about it but its trees of qdiscs and classes.
    pub fn show(&self) -> Snapshot {
        let report = self.report();
        self.show_totals(&self.totals(&report), report)
    }

    fn show_totals(&self, totals: &Counts, report: Report) -> Snapshot {
        let mut paths = PathCounters::default();
        let mut queued = 0;
        let bypassed = totals.verdicts.iter().map(|port| port.unserved + port.stalled).sum();
        for queue in totals.queues.iter().flatten() {
            paths.merge(&queue.outward);
            queued += u64::from(queue.backlog.packets);
        }
        Snapshot {
            state: if self.plane.is_some() { "running" } else { "waiting" }.into(),
            waiting_for: self.waiting_for.clone(),
            uptime_s: (clock::now() - self.began).as_secs_f64(),
            fail: self.standby.describe(),
            warnings: self.warnings(),
            findings: self.findings.clone(),
            ports: Side::BOTH.map(|side| self.view_port(side, totals, &report)).into(),
            workers: report.workers,
            conservation: Conservation {
                received: paths.rx_packets,
                copied: paths.copied,
                sent: paths.tx_packets,
                queued,
                dropped: counters::by_reason(&paths.drops),
                unaccounted: paths.unaccounted(queued),
                bypassed,
            },
            events: self.events.list(),
        }
    }

    /// Everything about it, as it is now: what is left to do needs no instance.
    pub(crate) fn see_with_trees(&self) -> SeenWithTrees {
        let report = self.report();
        let totals = self.totals(&report);
        let beyond = totals.beyond.clone();
        SeenWithTrees { snapshot: self.show_totals(&totals, report), beyond, seen: self.see(true) }
    }

    fn view_port(&self, side: Side, totals: &Counts, report: &Report) -> Port {
        let name = self.options.ports[side.index()].clone();
        let queues = &totals.queues[side.index()];
        let verdicts = totals.verdicts[side.index()];
        let in_force = planning::in_force(&self.policy, &self.options.ports, side);
        let root = in_force.as_ref().ok().and_then(|port| port.root());
        let rate_set_bps = root.and_then(|root| match &root.kind {
            Kind::Tbf(tbf) => Some(tbf.rate.bits_per_sec()),
            Kind::Cake(cake) => cake.params.config.rate.map(Rate::bits_per_sec),
            _ => None,
        });
        let mut total = QueueCounters::default();
        queues.iter().for_each(|queue| total.merge(queue));
        let beyond = [side, side.other()].map(|side| totals.beyond[side.index()].as_ref());
        let plane = self.plane.as_ref();
        let mode = plane.map(|plane| plane.mode());
        Port {
            name,
            xdp: mode.map_or("none", |mode| mode.hooks[side.index()].name()).into(),
            copy: mode.map_or("none", |mode| mode.copy()).into(),
            no_carrier: plane.is_some_and(|plane| !plane.device(side).carrier),
            mtu: plane.map_or(0, |plane| plane.port(side).mtu),
            counted_by: match self.options.plane {
                PlaneKind::Xsk => CountedBy::Queue,
                PlaneKind::Xdp => CountedBy::Cpu,
            },
            queues: plane.map_or(0, |plane| match self.options.plane {
                PlaneKind::Xsk => plane.queues() as u32,
                PlaneKind::Xdp => plane.port(side).counts.now.rx,
            }),
            qdisc: root.map_or("noqueue", |root| root.kind.name()).into(),
            rate_set_bps,
            instance_bytes: report.largest_cake[side.index()],
            tx_rate_bps: self.rates.tx(side).bits_per_sec(),
            rx_rate_bps: self.rates.rx(side).bits_per_sec(),
            total: total.show(),
            per_queue: queues.iter().map(QueueCounters::show).collect(),
            to_self: verdicts.to_self,
            unserved: verdicts.unserved,
            stalled: verdicts.stalled,
            delays: counters::delays(&totals.delays[side.index()]),
            round_trips: beyond[0].map(counters::beyond),
            heaviest: counters::heaviest(&totals.heaviest[side.index()], beyond),
            kernel_drops: total.kernel_drops(),
            qdiscs: Vec::new(),
            classes: Vec::new(),
            device_losses: counters::device_losses(totals.losses[side.index()]),
        }
    }
}

impl Instance {
    /// The facts about the port of `side` now.
    pub(crate) fn facts_of(&self, side: Side) -> Option<PortFacts> {
        // A port that is away keeps its policy, but there is nothing to set.
        let link = Link::by_name(&self.ports()[side.index()]).ok()?;
        Some(policy_facts(&link, self.queues()))
    }

    /// The instance as it is now, `with_figures` or without.
    pub(crate) fn see(&self, with_figures: bool) -> Seen {
        Seen {
            ports: self.ports().clone(),
            facts: Side::BOTH.map(|side| self.facts_of(side)),
            policy: self.policy().clone(),
            stats: Side::BOTH.map(|side| match with_figures {
                true => self.qdisc_stats(side),
                false => Vec::new(),
            }),
            actions: if with_figures { self.action_stats() } else { Vec::new() },
            looks_up: self.can_look_up(),
        }
    }
}

/// Everything about an instance at one moment.
pub(crate) struct SeenWithTrees {
    snapshot: Snapshot,
    beyond: [Option<Beyond>; 2],
    seen: Seen,
}

impl SeenWithTrees {
    /// The snapshot for people and programs.
    pub(crate) fn show(self) -> Snapshot {
        let Self { mut snapshot, beyond, seen } = self;
        let names: Vec<String> = snapshot.ports.iter().map(|port| port.name.clone()).collect();
        let policy = seen.policy();
        for ((port, beyond), opposite) in
            snapshot.ports.iter_mut().zip(&beyond).zip(names.iter().rev())
        {
            // That of an intermediate device, if what comes in opposite is redirected to one.
            let shaping = policy.shaping(&port.name, opposite);
            port.qdiscs = read(&narrows_tc::qdiscs(&shaping, &seen));
            port.classes = read(&narrows_tc::classes(&shaping, &seen));
            let major = policy.port(&shaping).outermost().map(Handle::major);
            if let (Some(major), Some(beyond)) = (major, beyond) {
                counters::add_beyond(&mut port.classes, major, beyond);
            }
        }
        snapshot
    }
}

/// The JSON output of `tc`, one value for each qdisc or class.
fn read<T: DeserializeOwned>(printed: &str) -> Vec<T> {
    serde_json::from_str(printed).unwrap_or_else(|error| {
        log::error!("the tree is not shown, what tc prints is not the snapshot's form: {error}");
        Vec::new()
    })
}
