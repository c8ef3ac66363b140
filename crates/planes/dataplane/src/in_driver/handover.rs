//! The XDP plane continues in another process: what the old process offers, and how the new process
//! inherits it.
//!
//! The new process loads programs of its own onto the old process's maps, and then replaces the old
//! process's in their links. So plan, credit and counters are the same before and after, no frame
//! waits, and no program has to stop. Only after that the new process installs the plan as it
//! compiles it itself.
//!
//! *Non-goals.* Filters in front start over, with counters and accounts of their own, as on the
//! other plane. All that they drop is counted on.

use super::egress::{AtEgress, InheritedEgress};
use super::{InDriver, Installed, failed, tree_port};
use crate::counters::Counts;
use crate::device::DeviceFacts;
use crate::error::InstanceError;
use crate::front::{Fronts, PortFront};
use crate::options::SessionOptions;
use crate::plane::{InheritedPlane, Plane, Still};
use crate::slow_path::SlowPaths;
use crate::upgrade::state::{DeviceManifest, DriverManifest, ProgramState};
use crate::ways::Ways;
use narrows_bpf::tree::{ClassCounters, Totals, Tree, TreeError};
use narrows_bpf::{BalanceTables, Chooser, Entry, Hook, RoutedBy, Vlans};
use narrows_classify::{ActionId, ActionKind};
use narrows_forwarding::{DeviceId, Forwarding, PerDevice, PerPort, PortId, PortSet};
use narrows_policy::{Handle, Plan};
use narrows_units::Nanos;
use narrows_xdp::Numbers;
use std::os::fd::{AsFd, OwnedFd};

impl InDriver {
    /// The manifest for another process. `None` if there are no descriptors left.
    pub(super) fn manifest(&self) -> Option<(DriverManifest, Vec<OwnedFd>)> {
        let mut descriptors = Vec::new();
        for device in self.devices.keys() {
            let first = self.forwarding.ports_on(device).next()?;
            let hold = match (&self.chosen, &self.vlans[device]) {
                (Some(chosen), _) => chosen.programs[first].hold(),
                (None, Some(vlans)) => vlans.hold(),
                (None, None) => self.trees[first].hold(),
            };
            descriptors.push(hold?.try_clone_to_owned().ok()?);
        }
        let slow_paths = self.chosen.as_ref().map(|chosen| &chosen.slow_paths);
        if let Some(slow_paths) = slow_paths {
            descriptors.extend(slow_paths.links()?);
        }
        for egress in &self.egress {
            descriptors.push(egress.hold()?.try_clone_to_owned().ok()?);
        }
        let charges_slow_path =
            slow_paths.is_some_and(SlowPaths::are_attached) || !self.egress.is_empty();
        let choosers = self.chosen.iter().flat_map(|chosen| &chosen.programs);
        let counters = choosers.map(Chooser::counters);
        for map in counters.chain(self.vlans.iter().flatten().map(Vlans::counters)) {
            descriptors.push(map.try_clone_to_owned().ok()?);
        }
        for (port, tree) in self.trees.iter_enumerated() {
            for map in tree.maps().iter().copied().chain(self.fronts[port].counts_dropped()) {
                descriptors.push(map.try_clone_to_owned().ok()?);
            }
        }
        for map in self.egress.iter().flat_map(AtEgress::maps) {
            descriptors.push(map.try_clone_to_owned().ok()?);
        }
        let egress = self.egress.iter().map(AtEgress::manifest).collect();
        let has_front = self.fronts.iter().map(|front| front.counts_dropped().is_some()).collect();
        let device = |(device, facts): (DeviceId, &DeviceFacts)| {
            let first = self.forwarding.ports_on(device).next()?;
            let entry = match &self.chosen {
                Some(chosen) => chosen.programs[first].entry(),
                None => self.trees[first].entry(),
            };
            Some(DeviceManifest::new(facts, self.hooks[device], entry))
        };
        let devices = self.devices.iter_enumerated().map(device).collect::<Option<_>>()?;
        Some((DriverManifest { devices, charges_slow_path, has_front, egress }, descriptors))
    }

    /// What maps do not say.
    pub(super) fn still(&self) -> Still {
        let programs = self.installed.iter().map(|installed| ProgramState {
            numbers: installed
                .numbers
                .named()
                .map(|((qdisc, class), number)| [qdisc.major(), class, number])
                .collect(),
            actions: installed
                .numbers
                .actions()
                .map(|(id, number)| [id.kind as u32, id.index, number])
                .collect(),
            before_root: installed.before_root.words(),
            inherited: installed
                .inherited
                .iter()
                .map(|((qdisc, class), counted)| ([qdisc.major(), *class], counted.words()))
                .collect(),
        });
        let mut counts = Counts::none(self.installed.len());
        self.add_losses(&mut counts);
        // The other process reads what others count.
        self.add_dropped_in_front(&mut counts, |front| front.counts_dropped().is_none());
        Still { counts, programs: programs.collect(), ..Still::default() }
    }
}

/// Maps of another process's programs.
pub(super) struct InheritedMaps {
    pub(super) trees: PerPort<Vec<OwnedFd>>,
    /// Of what is in front of all ports of a device, in a router, a switch or a stick.
    pub(super) counters: PerDevice<OwnedFd>,
}

/// The programs of another process, with ones ready to replace them.
pub(crate) struct InheritedPrograms {
    plane: InDriver,
    plans: PerPort<Plan>,
    /// The link of each device's program, or the array of its gate.
    holds: PerDevice<OwnedFd>,
    /// The links of what is at the ports' egress, if something is.
    slow_paths: PerDevice<OwnedFd>,
}

impl InheritedPrograms {
    /// Loads programs onto the maps that `manifest` describes for the ports of `forwarding` on
    /// `devices`, from `descriptors`, to run the plan of each port, with `fronts` in front. Nothing
    /// of the other process is changed. A router routes by `routed_by`.
    pub(crate) fn prepare(
        manifest: DriverManifest,
        forwarding: &Forwarding,
        devices: PerDevice<DeviceFacts>,
        descriptors: Vec<OwnedFd>,
        plans: PerPort<Plan>,
        fronts: &Fronts<'_>,
        routed_by: RoutedBy,
    ) -> Result<Self, InstanceError> {
        let missing = || InstanceError::Inheritance("descriptors are missing".to_owned());
        if manifest.devices.len() != devices.len() {
            return Err(InstanceError::Inheritance("it has other devices".to_owned()));
        }
        // Of the devices, what charges the slow path, the counters in front of all their ports, and
        // the maps of each port's tree.
        let is_in_front = forwarding.is_chosen() || forwarding.is_stick();
        let charges = manifest.charges_slow_path;
        let of_each_device = 1 + usize::from(charges) + usize::from(is_in_front);
        let of_devices = of_each_device * devices.len();
        let fronts_before = manifest.has_front.iter().filter(|has_front| **has_front).count();
        let at_egress: usize = manifest.egress.iter().map(|of| of.maps + of.kept).sum();
        let of_trees = descriptors.len().saturating_sub(of_devices + fronts_before + at_egress);
        let of_tree = of_trees / forwarding.ports().len();
        let mut descriptors = descriptors.into_iter();
        let mut of_each = |is_there: bool| -> Result<PerDevice<OwnedFd>, InstanceError> {
            let devices = devices.iter().filter(|_| is_there);
            devices.map(|_| descriptors.next().ok_or_else(missing)).collect()
        };
        let holds = of_each(true)?;
        let slow_paths = of_each(charges)?;
        let counters = of_each(is_in_front)?;
        let mut hooks = PerDevice::new();
        for (facts, described) in devices.iter().zip(&manifest.devices) {
            let changed = || InstanceError::Inheritance(format!("{} has changed", facts.name));
            hooks.push(described.hook_on(facts).ok_or_else(changed)?);
        }
        let mut trees: PerPort<Vec<OwnedFd>> = PerPort::new();
        let mut dropped: PerPort<Option<OwnedFd>> = PerPort::new();
        for port in forwarding.ids() {
            trees.push(descriptors.by_ref().take(of_tree).collect());
            let has_front = manifest.has_front.get(port).is_some_and(|has_front| *has_front);
            dropped.push(descriptors.by_ref().take(usize::from(has_front)).next());
        }
        let at_egress = manifest.egress.iter().map(|of| InheritedEgress::of(of, &mut descriptors));
        let at_egress: PerPort<InheritedEgress> = at_egress.collect();
        let maps = InheritedMaps { trees, counters };
        let mut plane = if forwarding.is_chosen() {
            let (hook, entry) = alike(&hooks, &manifest.devices)?;
            InDriver::chosen_at(hook, entry, forwarding, &devices, routed_by, Some(&maps))?
        } else {
            let mut trees = PerPort::new();
            for port in forwarding.ids() {
                let device = forwarding.device_of(port);
                let (facts, entry) = (&devices[device], manifest.devices[device].entry());
                let tree = tree_port(forwarding, port, facts, entry, fronts);
                trees
                    .push(Tree::at(tree, hooks[device], &maps.trees[port]).map_err(failed(facts))?);
            }
            InDriver::of(trees, forwarding, devices, hooks)
        };
        plane.load_egress(&at_egress)?;
        plane.run_first(fronts)?;
        for (port, dropped) in dropped.into_iter_enumerated() {
            plane.fronts[port] = PortFront::counting_on(dropped);
            plane.put_in_front(port, &fronts.terms[port], fronts.tables)?;
        }
        if forwarding.is_stick() {
            for (device, described) in manifest.devices.iter_enumerated() {
                let counted = maps.counters[device].as_fd();
                let entry = match plane.hooks[device] {
                    Hook::Tcx => Entry::Tcx,
                    Hook::Xdp(_) => described.entry(),
                };
                plane.vlans[device] = Some(plane.in_front_of_all(device, entry, Some(counted))?);
            }
        } else if forwarding.is_chosen() {
            plane.connect_chosen()?;
        } else {
            plane.connect()?;
        }
        Ok(Self { plane, plans, holds, slow_paths })
    }
}

impl InheritedPlane for InheritedPrograms {
    fn balance(&mut self, tables: Option<&BalanceTables>) -> Result<PortSet, InstanceError> {
        self.plane.balance(tables)
    }

    fn receive_on(&mut self, cpus: &[u32]) -> Result<(), InstanceError> {
        self.plane.receive_on(cpus)
    }

    fn ways(&self) -> Option<&Ways> {
        self.plane.ways()
    }

    fn plan(&self, port: PortId) -> &Plan {
        &self.plans[port]
    }

    /// The other process's programs go on with its plan, which has the same rates.
    fn retune(&mut self, port: PortId, plan: Plan) {
        self.plans[port] = plan;
    }

    fn take_in(&mut self, still: Still) -> Result<(), InstanceError> {
        let unfit = || InstanceError::Inheritance("its classes have no numbers".to_owned());
        if still.programs.len() != self.plans.len() {
            return Err(unfit());
        }
        for (port, state) in self.plane.forwarding.ids().zip(still.programs) {
            let name = |major, class| Some((Handle::new(major)?, class));
            let classes = state.numbers.into_iter();
            let classes = classes.map(|[major, class, number]| Some((name(major, class)?, number)));
            let classes: Vec<_> = classes.collect::<Option<_>>().ok_or_else(unfit)?;
            let actions = state.actions.into_iter();
            let actions = actions.map(|[kind, index, number]| {
                let kind = ActionKind::ALL.into_iter().find(|known| *known as u32 == kind)?;
                Some((ActionId { kind, index }, number))
            });
            let actions: Vec<_> = actions.collect::<Option<_>>().ok_or_else(unfit)?;
            let inherited = state.inherited.into_iter();
            let inherited = inherited.map(|([major, class], words)| {
                Some((name(major, class)?, ClassCounters::of(words)))
            });
            // It is not in force here yet.
            let plan = self.plans[port].clone();
            self.plane.installed[port] = Installed {
                plan,
                numbers: Numbers::of(classes, actions),
                limits: None,
                before_root: Totals::of(state.before_root),
                inherited: inherited.collect::<Option<_>>().ok_or_else(unfit)?,
            };
        }
        Ok(())
    }

    fn start(
        self: Box<Self>,
        _: &SessionOptions,
    ) -> Result<(Box<dyn Plane>, Option<Nanos>), InstanceError> {
        let Self { mut plane, plans, holds, slow_paths } = *self;
        for (device, hold) in holds.into_iter_enumerated() {
            let facts = &plane.devices[device];
            for port in plane.forwarding.ports_on(device) {
                plane.trees[port].resume().map_err(failed(facts))?;
            }
            let first = plane.forwarding.ports_on(device).next();
            let replaced = match (&mut plane.chosen, &mut plane.vlans[device], first) {
                (Some(chosen), _, Some(port)) => chosen.programs[port].take_over(hold),
                (_, Some(vlans), _) => vlans.take_over(hold).map_err(TreeError::Replace),
                (None, None, Some(port)) => plane.trees[port].take_over(hold),
                (_, None, None) => Ok(()),
            };
            replaced.map_err(failed(facts))?;
        }
        if let Some(chosen) = &mut plane.chosen {
            let links = slow_paths.into_iter().collect();
            chosen.slow_paths.take_over(links, &plane.forwarding, &plane.devices);
        } else {
            plane.take_over_egress(slow_paths)?;
        }
        for (port, plan) in plane.forwarding.ids().zip(plans) {
            plane.install(port, plan)?;
        }
        Ok((Box::new(plane), None))
    }
}

/// Where all programs of a router or a switch are, and how.
fn alike(
    hooks: &PerDevice<Hook>,
    devices: &PerDevice<DeviceManifest>,
) -> Result<(Hook, Entry), InstanceError> {
    let entry = |(hook, device): (&Hook, &DeviceManifest)| match hook {
        Hook::Tcx => (Hook::Tcx, Entry::Tcx),
        hook => (*hook, device.entry()),
    };
    let mut all = hooks.iter().zip(devices).map(entry);
    let first = all.next();
    match first.filter(|first| all.all(|other| other == *first)) {
        Some(first) => Ok(first),
        None => Err(InstanceError::Inheritance("its programs are not alike".to_owned())),
    }
}
