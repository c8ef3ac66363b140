//! An instance as it is now, for those who only look: its snapshot, and the host of `tc` commands
//! that show it.

use super::fleet::STANDING_MAX;
use super::{Instance, planning};
use crate::clock;
use crate::counters::{self, Counts, QueueCounters};
use crate::device::policy_facts;
use crate::plane::{PlaneKind, Report};
use crate::seen::Seen;
use narrows_forwarding::{PerPort, PortId};
use narrows_link::Link;
use narrows_policy::{Handle, Kind, PortFacts};
use narrows_shaper::{Beyond, PathCounters};
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
        let is_host = self.forwarding().is_host();
        let to_box =
            totals.ports.iter().filter(|_| is_host).map(|port| port.verdicts.to_self).sum();
        let verdicts = totals.ports.iter().map(|port| port.verdicts);
        let bypassed = verdicts.map(|verdicts| verdicts.unserved + verdicts.stalled).sum();
        for queue in totals.ports.iter().flat_map(|port| &port.queues) {
            paths.merge(&queue.outward);
            queued += u64::from(queue.backlog.packets);
        }
        Snapshot {
            state: if self.plane.is_some() { "running" } else { "waiting" }.into(),
            waiting_for: self.waiting_for.clone(),
            uptime_s: (clock::now() - self.began).as_secs_f64(),
            fail: self.standby.describe(),
            kept_by: self.kept_by,
            warnings: self.warnings(),
            findings: self.findings.clone(),
            ports: self
                .forwarding()
                .ids()
                .map(|port| self.view_port(port, totals, &report))
                .collect(),
            workers: report.workers,
            services: Vec::new(),
            fleet: self.fleet.standing(STANDING_MAX),
            fleet_agent: None,
            conservation: Conservation {
                received: paths.rx_packets,
                copied: paths.copied,
                sent: paths.tx_packets,
                to_box,
                queued,
                dropped: counters::by_reason(&paths.drops),
                unaccounted: paths.unaccounted(queued + to_box),
                bypassed,
            },
            events: self.events.list(),
        }
    }

    /// Everything about it, as it is now: what is left to do needs no instance.
    pub(crate) fn see_with_trees(&self) -> SeenWithTrees {
        let report = self.report();
        let totals = self.totals(&report);
        let beyond = totals.ports.iter().map(|port| port.beyond.clone()).collect();
        let services = self.balance.listed();
        let fleet = self.fleet.standing(usize::MAX);
        let snapshot = Snapshot { services, fleet, ..self.show_totals(&totals, report) };
        SeenWithTrees { snapshot, beyond, seen: self.see(true) }
    }

    fn view_port(&self, id: PortId, totals: &Counts, report: &Report) -> Port {
        let forwarding = self.forwarding();
        let name = forwarding.name(id).to_owned();
        let counts = &totals.ports[id];
        // The rate that is enforced, also where a fleet shares it.
        let in_force = planning::in_force(&self.enforced, forwarding, id);
        let root = in_force.as_ref().ok().and_then(|port| port.root());
        let rate_set_bps = root.and_then(|root| match &root.kind {
            Kind::Tbf(tbf) => Some(tbf.rate.bits_per_sec()),
            Kind::Cake(cake) => cake.params.config.rate.map(Rate::bits_per_sec),
            _ => None,
        });
        let total = counts.total();
        let fates = self.balance.fates(id);
        let beyond = |port: Option<PortId>| totals.ports[port?].beyond.as_ref();
        let beyond = [Some(id), forwarding.across(id)].map(beyond);
        let plane = self.plane.as_ref();
        let device = forwarding.device_of(id);
        let facts = plane.map(|plane| &plane.devices()[device]);
        let mode = plane.map(|plane| plane.mode());
        Port {
            name,
            xdp: mode.as_ref().map_or("none", |mode| mode.hooks[device].name()).into(),
            copy: mode.as_ref().map_or("none", |mode| mode.copy()).into(),
            no_carrier: plane.is_some_and(|plane| !plane.device(device).carrier),
            mtu: facts.map_or(0, |facts| facts.mtu),
            counted_by: match self.options.plane {
                PlaneKind::Xsk => CountedBy::Queue,
                PlaneKind::Xdp | PlaneKind::Host => CountedBy::Cpu,
            },
            own_traffic: plane.and_then(|plane| plane.own_traffic(id)),
            queues: plane.map_or(0, |plane| match self.options.plane {
                PlaneKind::Xsk => plane.queues() as u32,
                PlaneKind::Xdp | PlaneKind::Host => plane.devices()[device].counts.now.rx,
            }),
            qdisc: root.map_or("noqueue", |root| root.kind.name()).into(),
            rate_set_bps,
            follows: self.followed_line(id),
            instance_bytes: report.largest_cake.get(id).copied().flatten(),
            tx_rate_bps: self.rates.tx(id).bits_per_sec(),
            rx_rate_bps: self.rates.rx(id).bits_per_sec(),
            total: total.show(),
            per_queue: counts.queues.iter().map(QueueCounters::show).collect(),
            to_self: counts.verdicts.to_self,
            unserved: counts.verdicts.unserved,
            stalled: counts.verdicts.stalled,
            others: counts.verdicts.others,
            routes: counters::routes(&counts.routes),
            balance: counters::fates(&fates),
            connection_ids: counters::connection_ids(&fates),
            front: self.shown_verdicts(),
            slow_path: counts.slow_path.map(counters::slow_path),
            delays: counters::delays(&counts.delays),
            round_trips: beyond[0].map(counters::beyond),
            heaviest: counters::heaviest(&counts.heaviest, beyond),
            kernel_drops: total.kernel_drops(),
            qdiscs: Vec::new(),
            classes: Vec::new(),
            device_losses: counters::device_losses(counts.losses),
        }
    }
}

impl Instance {
    /// The facts about `port` now.
    pub(crate) fn facts_of(&self, port: PortId) -> Option<PortFacts> {
        let forwarding = self.forwarding();
        // A port that is away keeps its policy, but there is nothing to set.
        let link = Link::by_name(&forwarding.devices()[forwarding.device_of(port)]).ok()?;
        Some(policy_facts(&link, self.queues()))
    }

    /// The instance as it is now, `with_figures` or without.
    pub(crate) fn see(&self, with_figures: bool) -> Seen {
        let ports = || self.forwarding().ids();
        Seen {
            ports: self.forwarding().clone(),
            facts: ports().map(|port| self.facts_of(port)).collect(),
            policy: self.policy().clone(),
            stats: ports()
                .map(|port| if with_figures { self.qdisc_stats(port) } else { Vec::new() })
                .collect(),
            actions: if with_figures { self.action_stats() } else { Vec::new() },
            looks_up: self.can_look_up(),
        }
    }
}

/// Everything about an instance at one moment.
pub(crate) struct SeenWithTrees {
    snapshot: Snapshot,
    beyond: PerPort<Option<Beyond>>,
    seen: Seen,
}

impl SeenWithTrees {
    /// The snapshot for people and programs.
    pub(crate) fn show(self) -> Snapshot {
        let Self { mut snapshot, beyond, seen } = self;
        let (policy, forwarding) = (seen.policy(), &seen.ports);
        for (id, port) in forwarding.ids().zip(&mut snapshot.ports) {
            // That of an intermediate device, if what comes in opposite is redirected to one.
            let shaping = match forwarding.across(id) {
                Some(opposite) => policy.shaping(&port.name, forwarding.name(opposite)),
                None => port.name.clone(),
            };
            port.qdiscs = read(&narrows_tc::qdiscs(&shaping, &seen));
            port.classes = read(&narrows_tc::classes(&shaping, &seen));
            let major = policy.port(&shaping).outermost().map(Handle::major);
            if let (Some(major), Some(beyond)) = (major, &beyond[id]) {
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
