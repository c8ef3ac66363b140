//! The XDP plane: a program at each port, and no worker.
//!
//! Packets that arrive at one port are classified, metered and redirected to the other port in the
//! driver. There are no queues, so nothing is ever queued, and no thread, so nothing can hang: the
//! limits hold for as long as this process lives, even while it is stopped. The programs are
//! attached through links that die with it.
//!
//! *Native or tcx.* A program in the driver can hand a frame only to a driver that takes it, and
//! most take frames only while they run a program themselves. So both programs are attached first,
//! then the drivers are asked. Where one does not take them (it has no XDP, or too few queues), the
//! other port's program moves to tcx: behind the driver, where it can send through any device. Only
//! then are the ports connected: a driver that takes nothing loses frames without a word. Before
//! Linux 6.6 there is no tcx, and generic XDP takes its place.
//!
//! *The host plane* has the same programs where packets arrive, and others at the egress of each
//! port, where this host's own packets leave ([`egress`]).
//!
//! A `veth` receives packets that the stack has built. XDP in its driver would copy each of them
//! into a frame, and let nobody send it long ones, so it has tcx first.

use crate::counters::{Counts, QueueCounters};
use crate::device::{DeviceFacts, losses};
use crate::error::InstanceError;
use crate::front::{Fronts, PortFront, Terms};
use crate::gates::Gates;
use crate::heartbeat::SilentWorker;
use crate::plane::{Closed, Mode, Plane, Report, Still};
use crate::upgrade::state::PlaneManifest;
use crate::ways::Ways;
use crate::worker_report::RootCount;
use crate::workers::Standstill;
use chosen::Chosen;
use egress::AtEgress;
use narrows_bpf::tree::{self, Acted, ClassCounters, Totals, Tree, TreeError};
use narrows_bpf::{
    Asks, AttachError, BalanceError, BalanceTables, BalancedPort, Balancer, Chooser, Entry,
    FrontPort, Hook, OwnAddress, Pulse, RoutedBy, SetTables, SlowPathCounters, ToIfb, TripsBeyond,
    UserFront, Verdicts, Vlans, XdpMode, sends_redirected,
};
use narrows_classify::{Action, ActionId, ActionStats, Control};
use narrows_forwarding::{DeviceId, Forwarding, PerDevice, PerPort, PortId, PortSet};
use narrows_link::doctor::{self, Redirected};
use narrows_link::{Device, DeviceLosses};
use narrows_packet::{DropCounters, DropReason};
use narrows_policy::{NodeStats, Plan};
use narrows_roundtrip::Seen;
use narrows_shaper::{Arrived, PathCounters};
use narrows_snapshot::OwnTraffic;
use narrows_units::Bytes;
use narrows_xdp::{
    Compiled, Counted, Enforcement, Limits, Name, Numbers, changed_rates, compile, figures,
};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

mod chosen;
mod egress;
mod handover;
mod stick;

pub(crate) use handover::InheritedPrograms;

/// XDP in the driver, and in the stack.
const NATIVE: Hook = Hook::Xdp(XdpMode::Native);
const GENERIC: Hook = Hook::Xdp(XdpMode::Generic);

/// The largest MTU with which a frame is one buffer in any driver.
const MTU_OF_ONE_BUFFER: u32 = 3498;

/// The hooks for the program of `port`, the best first.
pub(crate) fn preferred(port: &DeviceFacts) -> [Hook; 3] {
    if doctor::is_better_at_tcx(&port.driver) {
        [Hook::Tcx, NATIVE, GENERIC]
    } else {
        [NATIVE, Hook::Tcx, GENERIC]
    }
}

/// The hooks for the program of `port` where it is attached through `entry`, the best first; only
/// `only` if there is one.
fn hooks_for(port: &DeviceFacts, entry: Entry, only: Option<Hook>) -> Vec<Hook> {
    match (only, entry) {
        (Some(only), _) => vec![only],
        // In a dispatcher its place among other programs counts for more.
        (None, Entry::Shared) => vec![NATIVE, GENERIC, Hook::Tcx],
        (None, Entry::Own | Entry::Tcx) => preferred(port).into(),
    }
}

/// Whether its driver sends frames that other drivers redirect to it.
fn takes_redirected(device: &DeviceFacts) -> bool {
    let known = doctor::redirected(&device.driver);
    let has_queues = known != Redirected::ByQueue || device.counts.now.tx >= doctor::online_cpus();
    // If an older kernel does not report it, a table of drivers decides.
    let takes = sends_redirected(device.ifindex).unwrap_or(known != Redirected::Unknown);
    takes && has_queues
}

/// Whether another XDP program is attached there.
fn is_taken(error: &InstanceError) -> bool {
    matches!(error, InstanceError::Driver { source: TreeError::Attach(why), .. } if why.is_taken())
}

/// What `open` makes at the first of `hooks` at which it works. If there is none, the first
/// refusal: the best hook's is the most useful. `facts` are of the device that is named if there
/// are no hooks at all.
fn first_that_works(
    hooks: Vec<Hook>,
    facts: &DeviceFacts,
    mut open: impl FnMut(Hook) -> Result<InDriver, InstanceError>,
) -> Result<InDriver, InstanceError> {
    let mut refusal = None;
    for hook in hooks {
        match open(hook) {
            // A foreign program there is a reason to stop, and none to go behind it.
            Err(error) if is_taken(&error) => return Err(error),
            Err(error) => {
                log::debug!("{hook}: {error}");
                refusal = refusal.or(Some(error));
            }
            opened => return opened,
        }
    }
    let source = std::io::ErrorKind::Unsupported.into();
    let none = || failed(facts)(AttachError { hook: NATIVE, source }.into());
    Err(refusal.unwrap_or_else(none))
}

/// That `device` does not accept what is sent through it in its driver.
fn not_taken(device: &DeviceFacts) -> InstanceError {
    InstanceError::NotTaken { port: device.name.clone(), driver: device.driver.clone() }
}

/// Whether frames of `port` may be in several buffers.
fn has_several_buffers(port: &DeviceFacts) -> bool {
    port.mtu > MTU_OF_ONE_BUFFER
}

/// Ports joined in their drivers.
pub(crate) struct InDriver {
    /// In a router and a switch: what chooses in front of the trees.
    chosen: Option<Chosen>,
    /// Of a device whose ports are VLANs: what is attached there.
    vlans: PerDevice<Option<Vlans>>,
    /// In the host plane: what redirects arriving packets to ifbs.
    to_ifbs: Vec<ToIfb>,
    /// And what is where packets leave.
    egress: PerPort<AtEgress>,
    /// By the port where frames arrive: the plan of the other port applies to them. In a router
    /// and a switch by the port where they leave.
    trees: PerPort<Tree>,
    /// The filters in front of them.
    fronts: PerPort<PortFront>,
    /// By the port where frames leave.
    installed: PerPort<Installed>,
    forwarding: Forwarding,
    devices: PerDevice<DeviceFacts>,
    hooks: PerDevice<Hook>,
    losses_before: PerDevice<DeviceLosses>,
    /// The lines that somebody follows, by the port that they are beyond.
    lines: PerPort<Option<TripsBeyond>>,
}

/// The program and plan for packets that leave at a port.
#[derive(Default)]
struct Installed {
    plan: Plan,
    numbers: Numbers,
    /// What other rates of the plan change; `None` if they are not known.
    limits: Option<Limits>,
    /// The packets that had left when the root qdisc was installed.
    before_root: Totals,
    /// What qdiscs counted that were in a class and are gone.
    inherited: BTreeMap<Name, ClassCounters>,
}

impl InDriver {
    /// Joins the ports of `forwarding` on `devices`, to run the plan of each, with `fronts` in
    /// front of it; at the hook `only`, or else the best that works. `gates` has places beside
    /// other programs. A router routes by `routed_by`.
    pub(crate) fn open(
        forwarding: &Forwarding,
        devices: PerDevice<DeviceFacts>,
        only: Option<Hook>,
        plans: PerPort<Plan>,
        fronts: &Fronts<'_>,
        gates: &Gates,
        routed_by: RoutedBy,
    ) -> Result<Self, InstanceError> {
        if forwarding.is_chosen() {
            return Self::open_chosen(forwarding, devices, only, plans, fronts, gates, routed_by);
        }
        if forwarding.is_stick() {
            return Self::open_stick(forwarding, devices, only, plans, fronts, gates);
        }
        let load = |port: PortId| {
            let device = forwarding.device_of(port);
            let facts = &devices[device];
            let entry = gates.entry(device);
            let at = tree_port(forwarding, port, facts, entry, fronts);
            let load = |hook| Tree::at(at, hook, &[]);
            let first = hooks_for(facts, entry, only)[0];
            // Where this kernel has no such hook, its programs may not be loadable.
            let loaded = load(first).or_else(|error| {
                log::debug!("{first}: {error}");
                load(NATIVE)
            });
            loaded.map_err(failed(facts))
        };
        let trees = forwarding.ids().map(load).collect::<Result<_, _>>()?;
        let hooks = devices.iter().map(|_| NATIVE).collect();
        let mut plane = Self::of(trees, forwarding, devices, hooks);
        // Before they are attached: from then on frames are lost until the ports are connected.
        plane.prepare(plans, fronts)?;
        let before: PerPort<Entry> = plane.trees.iter().map(Tree::entry).collect();
        plane.attach_all(only, gates)?;
        for port in forwarding.ids() {
            // Filters do not move to another hook.
            if plane.trees[port].entry() != before[port] {
                plane.fronts[port] = PortFront::default();
                plane.put_in_front(port, &fronts.terms[port], fronts.tables)?;
            }
        }
        plane.connect()?;
        Ok(plane)
    }

    /// The plane of `trees`, which have no plans yet; they are, or will be, at `hooks`.
    fn of(
        trees: PerPort<Tree>,
        forwarding: &Forwarding,
        devices: PerDevice<DeviceFacts>,
        hooks: PerDevice<Hook>,
    ) -> Self {
        Self {
            chosen: None,
            to_ifbs: Vec::new(),
            egress: PerPort::new(),
            vlans: devices.iter().map(|_| None).collect(),
            trees,
            fronts: forwarding.ids().map(|_| PortFront::default()).collect(),
            installed: forwarding.ids().map(|_| Installed::default()).collect(),
            forwarding: forwarding.clone(),
            losses_before: losses(&devices),
            lines: forwarding.ids().map(|_| None).collect(),
            devices,
            hooks,
        }
    }

    /// Installs `plans`, with `fronts` in front.
    fn prepare(&mut self, plans: PerPort<Plan>, fronts: &Fronts<'_>) -> Result<(), InstanceError> {
        for (port, plan) in plans.into_iter_enumerated() {
            self.install(port, plan)?;
        }
        self.run_first(fronts)?;
        for port in fronts.terms.keys() {
            self.put_in_front(port, &fronts.terms[port], fronts.tables)?;
        }
        Ok(())
    }

    /// Runs a user's own program first at a host's port, from when it is attached.
    fn run_first(&mut self, fronts: &Fronts<'_>) -> Result<(), InstanceError> {
        let Some(users) = fronts.users.filter(|_| self.forwarding.is_host()) else { return Ok(()) };
        for (port, tree) in self.trees.iter_mut_enumerated() {
            let refused = |source| InstanceError::UserFront {
                port: self.forwarding.name(port).to_owned(),
                source,
            };
            tree.run_first(users).map_err(refused)?;
        }
        Ok(())
    }

    /// Attaches all programs, each at the best hook for both ports of its pair, or at `only`. No
    /// frame passes yet.
    fn attach_all(&mut self, only: Option<Hook>, gates: &Gates) -> Result<(), InstanceError> {
        for port in self.forwarding.ids() {
            let hooks = hooks_for(self.facts(port), self.trees[port].entry(), only);
            self.attach(port, &hooks, gates)?;
        }
        // A port that leaves its driver may no longer accept frames there.
        while let Some(id) = self.forwarding.ids().find(|port| self.loses(*port)) {
            if only.is_some() {
                return Err(not_taken(self.facts(self.pair(id))));
            }
            let tree = &mut self.trees[id];
            tree.detach();
            let hooks = match tree.entry() {
                Entry::Shared => [GENERIC, Hook::Tcx],
                Entry::Own | Entry::Tcx => [Hook::Tcx, GENERIC],
            };
            self.attach(id, &hooks, gates)?;
        }
        Ok(())
    }

    /// Connects the ports: frames pass from now on. Those of a host do from the start.
    fn connect(&mut self) -> Result<(), InstanceError> {
        for port in self.forwarding.ids().filter(|_| !self.forwarding.is_host()) {
            let other = self.facts(self.pair(port)).ifindex;
            self.trees[port].connect(other).map_err(failed(self.facts(port)))?;
        }
        Ok(())
    }

    /// Attaches the program of `port` at the first of `hooks` that works.
    fn attach(&mut self, port: PortId, hooks: &[Hook], gates: &Gates) -> Result<(), InstanceError> {
        let device = self.forwarding.device_of(port);
        let facts = &self.devices[device];
        let tree = &mut self.trees[port];
        let mut refusal = None;
        for &hook in hooks {
            let attached = match hook {
                Hook::Xdp(mode) if tree.entry() == Entry::Shared => gates
                    .place(&facts.name, facts.ifindex, mode, tree.is_multi_buffer())
                    .map_err(InstanceError::from)
                    .and_then(|behind| tree.take_over(behind).map_err(failed(facts))),
                _ => tree.attach(facts.ifindex, hook).map_err(failed(facts)),
            };
            match attached {
                Ok(()) => {
                    self.hooks[device] = hook;
                    return Ok(());
                }
                // A foreign program there is a reason to stop, and none to go behind it.
                Err(error) if is_taken(&error) => return Err(error),
                // What the driver says is the most useful; other hooks fail as a consequence, or
                // because the kernel is older.
                Err(error) if hook == NATIVE || refusal.is_none() => refusal = Some(error),
                Err(_) => {}
            }
        }
        let source = std::io::ErrorKind::Unsupported.into();
        let unsupported = || failed(facts)(AttachError { hook: NATIVE, source }.into());
        Err(refusal.unwrap_or_else(unsupported))
    }

    /// Whether frames that arrive at `port` are redirected to a driver that does not accept them.
    fn loses(&self, port: PortId) -> bool {
        if self.forwarding.is_host() {
            return false;
        }
        let takes = takes_redirected(self.facts(self.pair(port)));
        self.hooks[self.forwarding.device_of(port)] == NATIVE && !takes
    }

    /// The ports of a host that do not send what drivers of others redirect to them.
    fn refusing(&self) -> PortSet {
        let mut refusing = PortSet::NONE;
        if self.forwarding.ports().len() > 1 {
            let refuse = |port: &PortId| !takes_redirected(self.facts(*port));
            self.forwarding.ids().filter(refuse).for_each(|port| refusing.insert(port));
        }
        refusing
    }

    /// The other ports that send what arrives at `port` of a host, unless they are `refusing`, with
    /// the indices of their devices. Behind a driver, any device sends.
    fn reached_from(&self, port: PortId, refusing: PortSet) -> BTreeMap<PortId, u32> {
        let is_native = self.hooks[self.forwarding.device_of(port)] == NATIVE;
        let others = self.forwarding.ids().filter(|other| *other != port);
        let reached = others.filter(|other| !(is_native && refusing.has(*other)));
        reached.map(|other| (other, self.facts(other).ifindex)).collect()
    }

    /// Balances what arrives at `port` of a host by `tables`, or nothing, and sends it through the
    /// ports `reached`, too.
    fn balance_at(
        &mut self,
        port: PortId,
        tables: Option<&BalanceTables>,
        reached: &BTreeMap<PortId, u32>,
    ) -> Result<(), InstanceError> {
        let facts = &self.devices[self.forwarding.device_of(port)];
        let refused = |source| InstanceError::Balance { port: facts.name.clone(), source };
        let tree = &mut self.trees[port];
        match (tables, tree.balancer()) {
            (None, None) => Ok(()),
            (None, Some(_)) => tree.balance(None).map_err(failed(facts)),
            (Some(_), Some(balancer)) => balancer.reach(reached).map_err(refused),
            (Some(tables), None) => {
                let at = BalancedPort {
                    number: port,
                    mac: facts.own().mac,
                    multi_buffer: tree.is_multi_buffer(),
                    entry: tree.entry(),
                };
                let mut balancer = Balancer::load(tables, at).map_err(refused)?;
                balancer.reach(reached).map_err(refused)?;
                tree.balance(Some(balancer)).map_err(failed(facts))
            }
        }
    }

    /// The program for packets that leave at `port`.
    fn tree(&self, port: PortId) -> &Tree {
        match self.egress.get(port) {
            Some(egress) => &egress.tree,
            None => &self.trees[self.pair(port)],
        }
    }

    fn tree_mut(&mut self, port: PortId) -> &mut Tree {
        let across = self.pair(port);
        match self.egress.get_mut(port) {
            Some(egress) => &mut egress.tree,
            None => &mut self.trees[across],
        }
    }

    /// Puts the rates of `plan` in force at `port`, if only these differ from what is installed
    /// there. Returns whether they do; else nothing has changed.
    fn change_rates(&mut self, port: PortId, plan: &Plan) -> Result<bool, InstanceError> {
        let enforcement = self.enforcement(port);
        let installed = &mut self.installed[port];
        let Some(changes) = changed_rates(&installed.plan, plan) else { return Ok(false) };
        // If they do not come into force, those that are installed are compiled again.
        let limits = installed.limits.take();
        let Some(mut limits) = limits.filter(|limits| limits.enforcement() == enforcement) else {
            return Ok(false);
        };
        let classes = limits.follow(&changes);
        let error = failed(self.facts(self.pair(port)));
        let is_in_force = self.tree_mut(port).change(&classes).map_err(error)?.is_some();
        self.installed[port].limits = Some(limits).filter(|_| is_in_force);
        Ok(is_in_force)
    }

    /// How limits hold for what leaves at `port`.
    fn enforcement(&self, port: PortId) -> Enforcement {
        self.egress.get(port).map_or(Enforcement::Policing, AtEgress::enforcement)
    }

    /// Has its programs time what leaves through `port` and arrives there, into `line`, or no
    /// longer.
    fn time(&mut self, port: PortId, line: Option<&TripsBeyond>) -> Result<(), InstanceError> {
        let error = failed(self.facts(port));
        self.tree_mut(port).time_leaving(line).map_err(error)?;
        let facts = &self.devices[self.forwarding.device_of(port)];
        // Behind what chooses, a frame meets the tree of the port where it leaves.
        let is_chosen = self.chosen.is_some();
        for (at, tree) in self.trees.iter_mut_enumerated() {
            if at == port || is_chosen {
                tree.time_arriving(facts.ifindex, line).map_err(failed(facts))?;
            }
        }
        Ok(())
    }

    /// The other port of its pair.
    fn pair(&self, port: PortId) -> PortId {
        self.forwarding.across(port).unwrap_or(port)
    }

    /// The facts about the device of `port`.
    fn facts(&self, port: PortId) -> &DeviceFacts {
        &self.devices[self.forwarding.device_of(port)]
    }

    /// The counts of the actions of filters at the qdiscs of `port`.
    fn acted(&self, port: PortId) -> impl Iterator<Item = (ActionId, ActionStats)> {
        let Installed { plan, numbers, .. } = &self.installed[port];
        numbers.actions().filter_map(move |(id, number)| {
            let Acted { packets, bytes } = self.tree(port).acted(number).ok()?;
            let drops = match plan.actions.get(id.key())?.action {
                Action::Gact { control: Control::Drop, .. } => packets,
                _ => 0,
            };
            Some((id, ActionStats { packets, bytes, drops, ..ActionStats::default() }))
        })
    }

    fn totals(&self, egress: PortId) -> Totals {
        self.tree(egress).totals().unwrap_or_default()
    }

    /// With what the kernel itself sent, which is charged to the same tree.
    fn totals_of_all(&self, egress: PortId) -> Totals {
        self.totals(egress).and(&self.slow_path_totals(egress))
    }

    fn slow_path_totals(&self, egress: PortId) -> Totals {
        self.tree(egress).slow_path_totals().unwrap_or_default()
    }

    fn counts(&self) -> Counts {
        // By the port where frames leave.
        let by_cpu = |egress| {
            let tree = &self.trees[self.pair(egress)];
            of_cpus_there(tree.totals_by_cpu().unwrap_or_default())
        };
        let by_cpu: PerPort<Vec<Totals>> = self.forwarding.ids().map(by_cpu).collect();
        let mut counts = Counts::none(by_cpu.len());
        for (id, port) in counts.ports.iter_mut_enumerated() {
            let [inward, outward] = [self.pair(id), id].map(|egress| &by_cpu[egress]);
            let is_host = self.forwarding.is_host();
            let of = |cpu: usize| {
                let mut outward = outward.get(cpu).map(path).unwrap_or_default();
                if is_host {
                    // It leaves through no port.
                    (outward.tx_packets, outward.tx_bytes) = (0, 0);
                }
                let arrived = inward.get(cpu).map(arrived).unwrap_or_default();
                QueueCounters { arrived, outward, ..Default::default() }
            };
            port.queues = (0..inward.len().max(outward.len())).map(of).collect();
            let Totals { to_self, sent_packets, lost_behind, .. } =
                self.trees[id].totals().unwrap_or_default();
            let to_self = if is_host { sent_packets.saturating_sub(lost_behind) } else { to_self };
            let vlans = self.vlans[self.forwarding.device_of(id)].as_ref();
            let others = vlans.filter(|_| self.forwarding.is_first(id)).map_or(0, Vlans::others);
            port.verdicts = Verdicts { to_self, others, ..Verdicts::default() };
        }
        self.add_outcomes(&mut counts);
        self.add_egress(&mut counts);
        self.add_losses(&mut counts);
        self.add_dropped_in_front(&mut counts, |_| true);
        counts
    }

    /// Adds what programs of the host plane have counted where packets leave.
    fn add_egress(&self, counts: &mut Counts) {
        for (port, egress) in self.egress.iter_enumerated() {
            let by_cpu = of_cpus_there(egress.totals_by_cpu());
            let queues = &mut counts.ports[port].queues;
            queues.resize(queues.len().max(by_cpu.len()), QueueCounters::default());
            for (queue, totals) in queues.iter_mut().zip(&by_cpu) {
                queue.outward.merge(&path(totals));
            }
        }
    }

    /// Sets what the programs of a router or a switch have counted where frames arrived. Trees only
    /// know where they leave, and on which CPU a frame was forwarded is not told: it is told of the
    /// first.
    fn add_outcomes(&self, counts: &mut Counts) {
        let Some(Chosen { programs, slow_paths, .. }) = &self.chosen else { return };
        for (port, program) in programs.iter_enumerated() {
            let of_port = &mut counts.ports[port];
            of_port.slow_path =
                slow_paths.are_attached().then(|| slow_path(&self.slow_path_totals(port)));
            of_port.routes = program.outcomes().unwrap_or_default();
            of_port.verdicts.to_self = 0;
            of_port.queues.iter_mut().for_each(|queue| queue.arrived = Arrived::default());
            if let Some(first) = of_port.queues.first_mut() {
                let packets = of_port.routes.left();
                let bytes = program.left_bytes().unwrap_or_default();
                first.arrived = Arrived { packets, bytes };
            }
        }
    }

    /// Adds what devices have lost.
    fn add_losses(&self, counts: &mut Counts) {
        for (id, port) in counts.ports.iter_mut_enumerated() {
            if self.forwarding.is_first(id) {
                port.losses = self.device(self.forwarding.device_of(id)).losses;
            }
        }
    }

    /// Adds what those filters in front have dropped that are `wanted`.
    fn add_dropped_in_front(&self, counts: &mut Counts, wanted: impl Fn(&PortFront) -> bool) {
        for (port, front) in self.fronts.iter_enumerated().filter(|(_, front)| wanted(front)) {
            for (cpu, dropped) in front.dropped().into_iter().enumerate() {
                counts.add_dropped_in_front(port, self.forwarding.across(port), cpu, dropped);
            }
        }
    }
}

/// `all` but those of CPUs that are not there: there may be far more than there are.
fn of_cpus_there(mut all: Vec<Totals>) -> Vec<Totals> {
    let counting = all.iter().rposition(|totals| *totals != Totals::default());
    let there = doctor::online_cpus() as usize;
    all.resize(there.max(counting.map_or(0, |last| last + 1)), Totals::default());
    all
}

/// The program's counters, in the form of a worker's for one direction.
fn path(totals: &Totals) -> PathCounters {
    let mut drops = DropCounters::default();
    drops.add(DropReason::Limit, totals.limit_drops);
    drops.add(DropReason::Aqm, totals.aqm_drops);
    drops.add(DropReason::Unclassified, totals.unclassified_drops);
    drops.add(DropReason::PortGone, totals.port_gone_drops);
    drops.add(DropReason::Filter, totals.filter_drops);
    let rx_packets = totals.sent_packets + drops.total();
    drops.add(DropReason::CpuBusy, totals.lost_behind);
    PathCounters {
        rx_packets,
        rx_bytes: totals.sent_bytes + totals.dropped_bytes,
        tx_packets: totals.sent_packets,
        tx_bytes: totals.sent_bytes,
        copied: 0,
        drops,
    }
}

/// What the kernel itself sent, and what was dropped of it.
fn slow_path(totals: &Totals) -> SlowPathCounters {
    SlowPathCounters {
        sent_packets: totals.sent_packets,
        sent_bytes: totals.sent_bytes,
        dropped_packets: totals.drops(),
        dropped_bytes: totals.dropped_bytes,
    }
}

/// What came to the program, in the form of a worker's for a port of arrival.
fn arrived(totals: &Totals) -> Arrived {
    let path = path(totals);
    Arrived { packets: path.rx_packets, bytes: path.rx_bytes }
}

/// What the tree of `port` on the device `facts` is for, with `fronts` in front.
fn tree_port(
    forwarding: &Forwarding,
    port: PortId,
    facts: &DeviceFacts,
    entry: Entry,
    fronts: &Fronts<'_>,
) -> tree::Port {
    // Programs that call each other are alike.
    let of_user = fronts.users.is_some_and(UserFront::is_multi_buffer);
    tree::Port {
        other_tag: forwarding.across(port).and_then(|across| forwarding.ports()[across].tag),
        leads_to_box: forwarding.is_host(),
        headerless: facts.headerless,
        ..tree::Port::new(facts.own(), has_several_buffers(facts) || of_user, entry)
    }
}

/// A problem with `port`.
fn failed(port: &DeviceFacts) -> impl Fn(TreeError) -> InstanceError + use<> {
    let port = port.name.clone();
    move |source| InstanceError::Driver { port: port.clone(), source }
}

impl Plane for InDriver {
    fn devices(&self) -> &PerDevice<DeviceFacts> {
        &self.devices
    }

    fn queues(&self) -> usize {
        // The program runs on all of them.
        self.devices.iter().map(|device| device.counts.now.rx.max(device.queues)).max().unwrap_or(1)
            as usize
    }

    fn mode(&self) -> Mode {
        Mode { hooks: self.hooks.clone(), frames: None }
    }

    fn device(&self, device: DeviceId) -> Device {
        let now = Device::read(self.devices[device].ifindex).unwrap_or_default();
        Device { losses: now.losses.since(&self.losses_before[device]), ..now }
    }

    fn plan(&self, port: PortId) -> &Plan {
        &self.installed[port].plan
    }

    fn install(&mut self, port: PortId, plan: Plan) -> Result<(), InstanceError> {
        if self.change_rates(port, &plan)? {
            self.installed[port].plan = plan;
            return Ok(());
        }
        let before = &self.installed[port];
        let refused =
            |source| InstanceError::Refused { port: self.forwarding.name(port).to_owned(), source };
        let Compiled { image, numbers, limits, .. } =
            compile(&plan, &before.numbers, self.enforcement(port)).map_err(refused)?;
        let mut new = numbers.new_since(&before.numbers);
        let is_new_root = before.plan.roots.first() != plan.roots.first();
        // With a new root, packets without a class are counted from zero, too.
        new.extend(is_new_root.then_some(0));
        let before_root = if is_new_root { self.totals_of_all(port) } else { before.before_root };
        let across = self.pair(port);
        let error = failed(self.facts(across));
        let actions = numbers.new_actions_since(&before.numbers);
        let tree = self.tree_mut(port);
        let forgotten = actions.into_iter().try_for_each(|action| tree.forget(action));
        forgotten.and_then(|()| tree.install(image, &new)).map_err(error)?;
        let Installed { plan: before, numbers: old, inherited, .. } = &self.installed[port];
        let mut taken_over: BTreeMap<Name, ClassCounters> = BTreeMap::new();
        for (name, counted) in inherited.iter().filter(|(name, _)| numbers.get(**name).is_some()) {
            taken_over.insert(*name, *counted);
        }
        for (number, successor) in narrows_xdp::successor_classes(before, old, &numbers) {
            let mut counted = self.tree(port).class_counters(number).unwrap_or_default();
            let gone = inherited.iter().filter(|(name, _)| old.get(**name) == Some(number));
            gone.for_each(|(_, before)| counted += *before);
            *taken_over.entry(successor).or_default() += counted;
        }
        self.installed[port] =
            Installed { plan, numbers, limits, before_root, inherited: taken_over };
        Ok(())
    }

    fn put_in_front(
        &mut self,
        id: PortId,
        terms: &Terms,
        tables: Option<&SetTables>,
    ) -> Result<(), InstanceError> {
        let facts = &self.devices[self.forwarding.device_of(id)];
        let refused = |source| {
            let port = self.forwarding.name(id).to_owned();
            InstanceError::Front { port, source }
        };
        if facts.headerless && !terms.is_empty() {
            return Err(InstanceError::NoFilters(self.forwarding.name(id).to_owned()));
        }
        let front = &mut self.fronts[id];
        if let Some(chosen) = &mut self.chosen {
            let several = self.devices.iter().any(has_several_buffers);
            let put = chosen.put_in_front(id, facts, several, front, terms, tables);
            return put.map_err(refused);
        }
        let is_host = self.forwarding.is_host();
        let tree = &mut self.trees[id];
        let handed = tree.handed().map_err(failed(facts))?;
        let own = facts.own();
        let port = FrontPort {
            // All that a host gets is addressed to it, and filtered.
            own: OwnAddress { is_addressed: own.is_addressed && !is_host, ..own },
            multi_buffer: tree.is_multi_buffer(),
            entry: tree.entry(),
            handed: Some(&handed),
        };
        self.fronts[id].set(terms, tables, port, |front| tree.put_in_front(front)).map_err(
            |source| InstanceError::Front { port: self.forwarding.name(id).to_owned(), source },
        )
    }

    fn balance(&mut self, tables: Option<&BalanceTables>) -> Result<PortSet, InstanceError> {
        if !self.forwarding.is_host() {
            return Ok(PortSet::NONE);
        }
        // All of them, or none.
        let at_tcx = self.trees.keys().find(|port| self.trees[*port].entry() == Entry::Tcx);
        if let Some(port) = at_tcx.filter(|_| tables.is_some()) {
            let port = self.forwarding.name(port).to_owned();
            return Err(InstanceError::Balance { port, source: BalanceError::NoXdp });
        }
        let refusing = self.refusing();
        for port in self.forwarding.ids() {
            let reached = self.reached_from(port, refusing);
            self.balance_at(port, tables, &reached)?;
        }
        let is_native = self.hooks.iter().any(|hook| *hook == NATIVE);
        Ok(if is_native { refusing } else { PortSet::NONE })
    }

    fn receive_on(&mut self, cpus: &[u32]) -> Result<(), InstanceError> {
        if !self.forwarding.is_host() || cpus.is_empty() {
            return Ok(());
        }
        for (port, tree) in self.trees.iter_mut_enumerated() {
            tree.receive_on(cpus).map_err(|source| {
                let port = self.forwarding.name(port).to_owned();
                InstanceError::ReceiveOn { port, source }
            })?;
        }
        Ok(())
    }

    fn stats(&self, port: PortId) -> Vec<NodeStats> {
        let Installed { plan, numbers, before_root, inherited, .. } = &self.installed[port];
        let counted = |number: u32| -> (u32, ClassCounters) {
            (number, self.tree(port).class_counters(number).unwrap_or_default())
        };
        let mut classes: BTreeMap<u32, ClassCounters> = numbers.all().map(counted).collect();
        for (name, counted) in inherited {
            if let Some(number) = numbers.get(*name) {
                *classes.entry(number).or_default() += *counted;
            }
        }
        let totals = self.totals_of_all(port).since(before_root);
        figures(plan, numbers, &Counted { totals, classes })
    }

    /// Where packets wait they wait in `fq`, after they were counted.
    fn roots(&self, ports: &[PortId]) -> Vec<RootCount> {
        let of = |port: &PortId| {
            let counted = self.totals_of_all(*port);
            let Totals { sent_bytes, sent_packets, limit_drops, aqm_drops, .. } = counted;
            let (drops, backlog) = (limit_drops + aqm_drops, Bytes::default());
            RootCount { sent_bytes, sent_packets, drops, backlog }
        };
        ports.iter().map(of).collect()
    }

    fn polices(&self, port: PortId) -> bool {
        !self.enforcement(port).is_shaping()
    }

    fn sees_trips(&self, _: PortId) -> bool {
        true
    }

    fn watch_trips(&mut self, port: PortId, is_watched: bool) -> Result<(), InstanceError> {
        if is_watched == self.lines[port].is_some() {
            return Ok(());
        }
        let refused = |error| failed(self.facts(port))(TreeError::Load(error));
        let line = is_watched.then(TripsBeyond::new).transpose().map_err(refused)?;
        let timed = self.time(port, line.as_ref());
        if timed.is_ok() || !is_watched {
            self.lines[port] = line;
        }
        timed
    }

    fn take_trips(&self, port: PortId) -> Seen {
        let trips = self.lines[port].as_ref().map(TripsBeyond::take).unwrap_or_default();
        Seen { trips, ..Seen::default() }
    }

    fn action_stats(&self) -> Vec<(ActionId, ActionStats)> {
        let in_front = self.fronts.iter().flat_map(PortFront::action_stats);
        in_front.chain(self.forwarding.ids().flat_map(|port| self.acted(port))).collect()
    }

    fn report(&self) -> Report {
        Report { counts: self.counts(), ..Report::default() }
    }

    fn ways(&self) -> Option<&Ways> {
        self.chosen.as_ref().map(|chosen| &chosen.ways)
    }

    fn follow(&mut self) -> Result<(), InstanceError> {
        let followed = self.chosen.as_mut().map_or(Ok(()), |chosen| chosen.ways.follow());
        Ok(followed?)
    }

    fn ask(&mut self, asks: Asks) -> Result<(), InstanceError> {
        let asked = self.chosen.as_mut().map_or(Ok(()), |chosen| chosen.ways.ask(asks));
        Ok(asked?)
    }

    fn slow_path_refusal(&self) -> Option<&str> {
        self.chosen.as_ref().and_then(|chosen| chosen.slow_paths.refusal())
    }

    fn own_traffic(&self, port: PortId) -> Option<OwnTraffic> {
        self.egress.get(port).map(AtEgress::own_traffic)
    }

    fn policing_at_egress(&self) -> Vec<String> {
        self.why_policed()
    }

    fn look_after(&mut self) -> Vec<String> {
        self.look_after_egress()
    }

    fn pulses(&self) -> Vec<Pulse> {
        Vec::new()
    }

    fn silent(&self) -> Vec<SilentWorker> {
        Vec::new()
    }

    fn can_look_up(&self) -> bool {
        self.can_tell_inside()
    }

    fn offer(&self) -> Result<(PlaneManifest, Vec<OwnedFd>), &'static str> {
        let (manifest, descriptors) = self.manifest().ok_or("it has no descriptors left")?;
        Ok((PlaneManifest::Xdp(manifest), descriptors))
    }

    /// Nothing waits here, so nothing pauses.
    fn stand_still(&self, _: Duration) -> Option<(Still, Standstill)> {
        Some((self.still(), Standstill::default()))
    }

    fn close(mut self: Box<Self>, _: bool) -> Closed {
        self.to_ifbs.drain(..).for_each(ToIfb::detach);
        let not_restored = self.egress.iter_mut().filter_map(|egress| egress.release().err());
        let not_restored = not_restored.map(|error| error.to_string()).collect();
        self.chosen.iter_mut().for_each(|chosen| chosen.slow_paths.detach());
        let choosers = self.chosen.iter_mut().flat_map(|chosen| &mut chosen.programs);
        choosers.for_each(Chooser::detach);
        self.vlans.iter_mut().flatten().for_each(Vlans::detach);
        self.trees.iter_mut().for_each(Tree::detach);
        Closed { counts: self.counts(), left_behind: Vec::new(), not_restored }
    }
}

#[cfg(test)]
mod tests;
