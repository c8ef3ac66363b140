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
//! A `veth` receives packets that the stack has built. XDP in its driver would copy each of them
//! into a frame, and let nobody send it long ones, so it has tcx first.

use crate::counters::{Counts, QueueCounters};
use crate::error::InstanceError;
use crate::front::{Fronts, PortFront, Terms};
use crate::gates::Gates;
use crate::heartbeat::SilentWorker;
use crate::look_ups::LooksUp;
use crate::plane::{Closed, Mode, Plane, Report, Still};
use crate::port::{PortFacts, losses};
use crate::upgrade::state::PlaneManifest;
use crate::workers::Standstill;
use narrows_bpf::tree::{Acted, ClassCounters, Totals, Tree, TreeError};
use narrows_bpf::{
    AttachError, Entry, FrontPort, Hook, Pulse, SetTables, SteerError, Verdicts, XdpMode,
    sends_redirected,
};
use narrows_classify::{Action, ActionId, ActionStats, Control};
use narrows_link::doctor::{self, Redirected};
use narrows_link::{Device, DeviceLosses};
use narrows_packet::{DropCounters, DropReason};
use narrows_policy::{NodeStats, Plan};
use narrows_shaper::{PathCounters, Side};
use narrows_xdp::{Compiled, Counted, Name, Numbers, compile, figures};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

mod handover;

pub(crate) use handover::InheritedPrograms;

/// XDP in the driver, and in the stack.
const NATIVE: Hook = Hook::Xdp(XdpMode::Native);
const GENERIC: Hook = Hook::Xdp(XdpMode::Generic);

/// The largest MTU with which a frame is one buffer in any driver.
const MTU_OF_ONE_BUFFER: u32 = 3498;

/// The hooks for the program of `port`, the best first.
pub(crate) fn preferred(port: &PortFacts) -> [Hook; 3] {
    if doctor::is_better_at_tcx(&port.driver) {
        [Hook::Tcx, NATIVE, GENERIC]
    } else {
        [NATIVE, Hook::Tcx, GENERIC]
    }
}

/// The hooks for the program of `port` where it is attached through `entry`, the best first; only
/// `only` if there is one.
fn hooks_for(port: &PortFacts, entry: Entry, only: Option<Hook>) -> Vec<Hook> {
    match (only, entry) {
        (Some(only), _) => vec![only],
        // In a dispatcher its place among other programs counts for more.
        (None, Entry::Shared) => vec![NATIVE, GENERIC, Hook::Tcx],
        (None, Entry::Own | Entry::Tcx) => preferred(port).into(),
    }
}

/// Whether another XDP program is attached there.
fn is_taken(error: &InstanceError) -> bool {
    matches!(error, InstanceError::Driver { source: TreeError::Attach(why), .. } if why.is_taken())
}

/// Whether frames of `port` may be in several buffers.
fn has_several_buffers(port: &PortFacts) -> bool {
    port.mtu > MTU_OF_ONE_BUFFER
}

/// Two ports joined in their drivers.
pub(crate) struct InDriver {
    /// By the port where frames arrive: the plan of the other port applies to them.
    trees: [Tree; 2],
    /// The filters in front of them.
    fronts: [PortFront; 2],
    /// By the port where frames leave.
    installed: [Installed; 2],
    ports: [PortFacts; 2],
    hooks: [Hook; 2],
    losses_before: [DeviceLosses; 2],
}

/// The program and plan for packets that leave at a port.
#[derive(Default)]
struct Installed {
    plan: Plan,
    numbers: Numbers,
    /// The packets that had left when the root qdisc was installed.
    before_root: Totals,
    /// What qdiscs counted that were in a class and are gone.
    inherited: BTreeMap<Name, ClassCounters>,
}

impl InDriver {
    /// Joins `ports`, to run the plan of each, with `fronts` in front of it; at the hook `only`, or
    /// else the best that works. `gates` has places beside other programs.
    pub(crate) fn open(
        ports: [PortFacts; 2],
        only: Option<Hook>,
        plans: [Plan; 2],
        fronts: &Fronts<'_>,
        gates: &Gates,
    ) -> Result<Self, InstanceError> {
        let load = |side: Side| {
            let port = &ports[side.index()];
            let entry = gates.entry(side);
            let load = |hook| Tree::load(port.own(), has_several_buffers(port), entry, hook);
            let first = hooks_for(port, entry, only)[0];
            // Where this kernel has no such hook, its programs may not be loadable.
            let loaded = load(first).or_else(|error| {
                log::debug!("{first}: {error}");
                load(NATIVE)
            });
            loaded.map_err(failed(port))
        };
        let trees = [load(Side::A)?, load(Side::B)?];
        let losses_before = losses(&ports);
        let hooks = [NATIVE; 2];
        let installed = Default::default();
        let before = Default::default();
        let mut plane = Self { trees, fronts: before, installed, ports, hooks, losses_before };
        for (side, plan) in Side::BOTH.into_iter().zip(plans) {
            plane.install(side, plan)?;
        }
        // Before they are attached: from then on frames are lost until the ports are connected.
        for side in Side::BOTH {
            plane.put_in_front(side, &fronts.terms[side.index()], fronts.tables)?;
        }
        let before = plane.trees.each_ref().map(Tree::entry);
        plane.attach_both(only, gates)?;
        for side in Side::BOTH {
            // Filters do not move to another hook.
            if plane.trees[side.index()].entry() != before[side.index()] {
                plane.fronts[side.index()] = PortFront::default();
                plane.put_in_front(side, &fronts.terms[side.index()], fronts.tables)?;
            }
        }
        plane.connect()?;
        Ok(plane)
    }

    /// Attaches both programs, each at the best hook for both ports, or at `only`. No frame passes
    /// yet.
    fn attach_both(&mut self, only: Option<Hook>, gates: &Gates) -> Result<(), InstanceError> {
        for side in Side::BOTH {
            let hooks = hooks_for(self.port(side), self.trees[side.index()].entry(), only);
            self.attach(side, &hooks, gates)?;
        }
        // A port that leaves its driver may no longer accept frames there.
        while let Some(side) = Side::BOTH.into_iter().find(|side| self.loses(*side)) {
            if only.is_some() {
                let PortFacts { name: port, driver, .. } = self.port(side.other()).clone();
                return Err(InstanceError::NotTaken { port, driver });
            }
            let tree = &mut self.trees[side.index()];
            tree.detach();
            let hooks = match tree.entry() {
                Entry::Shared => [GENERIC, Hook::Tcx],
                Entry::Own | Entry::Tcx => [Hook::Tcx, GENERIC],
            };
            self.attach(side, &hooks, gates)?;
        }
        Ok(())
    }

    /// Connects the ports: frames pass from now on.
    fn connect(&mut self) -> Result<(), InstanceError> {
        for side in Side::BOTH {
            let port = self.port(side);
            let other = self.port(side.other()).ifindex;
            self.trees[side.index()].connect(other).map_err(failed(port))?;
        }
        Ok(())
    }

    /// Attaches the program of the port of `side` at the first of `hooks` that works.
    fn attach(&mut self, side: Side, hooks: &[Hook], gates: &Gates) -> Result<(), InstanceError> {
        let port = &self.ports[side.index()];
        let tree = &mut self.trees[side.index()];
        let mut refusal = None;
        for &hook in hooks {
            let attached = match hook {
                Hook::Xdp(mode) if tree.entry() == Entry::Shared => gates
                    .place(&port.name, port.ifindex, mode, has_several_buffers(port))
                    .map_err(InstanceError::from)
                    .and_then(|behind| tree.take_over(behind).map_err(failed(port))),
                _ => tree.attach(port.ifindex, hook).map_err(failed(port)),
            };
            match attached {
                Ok(()) => {
                    self.hooks[side.index()] = hook;
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
        let unsupported = || failed(port)(AttachError { hook: NATIVE, source }.into());
        Err(refusal.unwrap_or_else(unsupported))
    }

    /// Whether frames that arrive at `side` are redirected to a driver that does not accept them.
    fn loses(&self, side: Side) -> bool {
        let other = self.port(side.other());
        let known = doctor::redirected(&other.driver);
        let has_queues =
            known != Redirected::ByQueue || other.counts.now.tx >= doctor::online_cpus();
        // If an older kernel does not report it, a table of drivers decides.
        let takes = sends_redirected(other.ifindex).unwrap_or(known != Redirected::Unknown);
        self.hooks[side.index()] == NATIVE && !(takes && has_queues)
    }

    /// The program for packets that leave at `side`.
    fn tree(&self, side: Side) -> &Tree {
        &self.trees[side.other().index()]
    }

    /// The counts of the actions of filters at the qdiscs of the port of `side`.
    fn acted(&self, side: Side) -> impl Iterator<Item = (ActionId, ActionStats)> {
        let Installed { plan, numbers, .. } = &self.installed[side.index()];
        numbers.actions().filter_map(move |(id, number)| {
            let Acted { packets, bytes } = self.tree(side).acted(number).ok()?;
            let drops = match plan.actions.get(id.key())?.action {
                Action::Gact { control: Control::Drop, .. } => packets,
                _ => 0,
            };
            Some((id, ActionStats { packets, bytes, drops, ..ActionStats::default() }))
        })
    }

    fn totals(&self, egress: Side) -> Totals {
        self.tree(egress).totals().unwrap_or_default()
    }

    fn counts(&self) -> Counts {
        // By the port where frames leave.
        let by_cpu = Side::BOTH.map(|egress| {
            let mut all = self.tree(egress).totals_by_cpu().unwrap_or_default();
            // There may be far more than there are.
            let counting = all.iter().rposition(|totals| *totals != Totals::default());
            let there = doctor::online_cpus() as usize;
            all.resize(there.max(counting.map_or(0, |last| last + 1)), Totals::default());
            all
        });
        let queues = Side::BOTH.map(|side| {
            let [inward, outward] = [side.other(), side].map(|egress| &by_cpu[egress.index()]);
            let of = |cpu: usize| QueueCounters {
                inward: inward.get(cpu).map(path).unwrap_or_default(),
                outward: outward.get(cpu).map(path).unwrap_or_default(),
                ..Default::default()
            };
            (0..inward.len().max(outward.len())).map(of).collect()
        });
        let mut counts = Counts {
            queues,
            verdicts: Side::BOTH.map(|side| {
                let Totals { to_self, .. } = self.totals(side.other());
                Verdicts { to_self, ..Verdicts::default() }
            }),
            losses: Side::BOTH.map(|side| self.device(side).losses),
            // Nothing waits here.
            delays: Default::default(),
            heaviest: Default::default(),
            beyond: Default::default(),
        };
        self.add_dropped_in_front(&mut counts);
        counts
    }

    /// Adds what filters in front have dropped.
    fn add_dropped_in_front(&self, counts: &mut Counts) {
        for side in Side::BOTH {
            for (cpu, dropped) in self.fronts[side.index()].dropped().into_iter().enumerate() {
                counts.add_dropped_in_front(side, cpu, dropped);
            }
        }
    }
}

/// The program's counters, in the form of a worker's for one direction.
fn path(totals: &Totals) -> PathCounters {
    let mut drops = DropCounters::default();
    drops.add(DropReason::Limit, totals.limit_drops);
    drops.add(DropReason::Aqm, totals.aqm_drops);
    drops.add(DropReason::Unclassified, totals.unclassified_drops);
    drops.add(DropReason::PortGone, totals.port_gone_drops);
    drops.add(DropReason::Filter, totals.filter_drops);
    PathCounters {
        rx_packets: totals.sent_packets + drops.total(),
        rx_bytes: totals.sent_bytes + totals.dropped_bytes,
        tx_packets: totals.sent_packets,
        tx_bytes: totals.sent_bytes,
        copied: 0,
        drops,
    }
}

/// A problem with `port`.
fn failed(port: &PortFacts) -> impl Fn(TreeError) -> InstanceError + use<> {
    let port = port.name.clone();
    move |source| InstanceError::Driver { port: port.clone(), source }
}

impl Plane for InDriver {
    fn port(&self, side: Side) -> &PortFacts {
        &self.ports[side.index()]
    }

    fn queues(&self) -> usize {
        // The program runs on all of them.
        self.ports.iter().map(|port| port.counts.now.rx.max(port.queues)).max().unwrap_or(1)
            as usize
    }

    fn mode(&self) -> Mode {
        Mode { hooks: self.hooks, frames: None }
    }

    fn device(&self, side: Side) -> Device {
        let now = Device::read(self.port(side).ifindex).unwrap_or_default();
        Device { losses: now.losses.since(&self.losses_before[side.index()]), ..now }
    }

    fn plan(&self, side: Side) -> &Plan {
        &self.installed[side.index()].plan
    }

    fn install(&mut self, side: Side, plan: Plan) -> Result<(), InstanceError> {
        let before = &self.installed[side.index()];
        let refused =
            |source| InstanceError::Refused { port: self.port(side).name.clone(), source };
        let Compiled { image, numbers, .. } = compile(&plan, &before.numbers).map_err(refused)?;
        let mut new = numbers.new_since(&before.numbers);
        let is_new_root = before.plan.roots.first() != plan.roots.first();
        // With a new root, packets without a class are counted from zero, too.
        new.extend(is_new_root.then_some(0));
        let before_root = if is_new_root { self.totals(side) } else { before.before_root };
        let error = failed(self.port(side.other()));
        let tree = &mut self.trees[side.other().index()];
        let actions = numbers.new_actions_since(&before.numbers);
        let forgotten = actions.into_iter().try_for_each(|action| tree.forget(action));
        forgotten.and_then(|()| tree.install(image, &new)).map_err(error)?;
        let Installed { plan: before, numbers: old, inherited, .. } = &self.installed[side.index()];
        let mut taken_over: BTreeMap<Name, ClassCounters> = BTreeMap::new();
        for (name, counted) in inherited.iter().filter(|(name, _)| numbers.get(**name).is_some()) {
            taken_over.insert(*name, *counted);
        }
        for (number, successor) in narrows_xdp::successor_classes(before, old, &numbers) {
            let mut counted = self.tree(side).class_counters(number).unwrap_or_default();
            let gone = inherited.iter().filter(|(name, _)| old.get(**name) == Some(number));
            gone.for_each(|(_, before)| counted += *before);
            *taken_over.entry(successor).or_default() += counted;
        }
        self.installed[side.index()] =
            Installed { plan, numbers, before_root, inherited: taken_over };
        Ok(())
    }

    fn put_in_front(
        &mut self,
        side: Side,
        terms: &Terms,
        tables: Option<&SetTables>,
    ) -> Result<(), InstanceError> {
        let facts = &self.ports[side.index()];
        let tree = &mut self.trees[side.index()];
        let handed = tree.handed().map_err(failed(facts))?;
        let port = FrontPort {
            own: facts.own(),
            multi_buffer: has_several_buffers(facts),
            entry: tree.entry(),
            handed: Some(&handed),
        };
        self.fronts[side.index()]
            .set(terms, tables, port, |front| tree.put_in_front(front))
            .map_err(|source| InstanceError::Front { port: facts.name.clone(), source })
    }

    fn stats(&self, side: Side) -> Vec<NodeStats> {
        let Installed { plan, numbers, before_root, inherited } = &self.installed[side.index()];
        let counted = |number: u32| -> (u32, ClassCounters) {
            (number, self.tree(side).class_counters(number).unwrap_or_default())
        };
        let mut classes: BTreeMap<u32, ClassCounters> = numbers.all().map(counted).collect();
        for (name, counted) in inherited {
            if let Some(number) = numbers.get(*name) {
                *classes.entry(number).or_default() += *counted;
            }
        }
        let totals = self.totals(side).since(before_root);
        figures(plan, numbers, &Counted { totals, classes })
    }

    fn action_stats(&self) -> Vec<(ActionId, ActionStats)> {
        let in_front = self.fronts.iter().flat_map(PortFront::action_stats);
        in_front.chain(Side::BOTH.into_iter().flat_map(|side| self.acted(side))).collect()
    }

    fn report(&self) -> Report {
        Report { counts: self.counts(), ..Report::default() }
    }

    fn pulses(&self) -> Vec<Pulse> {
        Vec::new()
    }

    fn silent(&self) -> Vec<SilentWorker> {
        Vec::new()
    }

    fn can_look_up(&self) -> bool {
        false
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
        self.trees.iter_mut().for_each(Tree::detach);
        Closed { counts: self.counts(), left_behind: Vec::new() }
    }
}

/// Nothing that this plane runs reads addresses before translation.
impl LooksUp for InDriver {
    fn look_up(&mut self, _: Side, _: bool) -> Result<(), SteerError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
