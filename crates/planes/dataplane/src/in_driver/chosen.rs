//! The router and the switch on the XDP plane: a program at each device that chooses where a frame
//! leaves, and a tree for each port that takes what leaves there.
//!
//! All programs are attached alike, since each of them may send through any port: all in drivers
//! that take redirected frames, or all at tcx. Before Linux 6.6 there is no tcx, and generic XDP
//! takes its place.

use super::handover::InheritedMaps;
use super::{
    InDriver, NATIVE, failed, first_that_works, has_several_buffers, hooks_for, not_taken,
    takes_redirected,
};
use crate::device::DeviceFacts;
use crate::error::InstanceError;
use crate::front::{Fronts, PortFront};
use crate::gates::Gates;
use crate::slow_path::SlowPaths;
use crate::ways::Ways;
use narrows_bpf::tree::{self, Tree};
use narrows_bpf::{Chooser, Entry, FrontPort, Hook, OwnAddress, RoutedBy};
use narrows_forwarding::{DeviceId, Forwarding, PerDevice, PerPort, PortId};
use narrows_policy::Plan;
use std::os::fd::AsFd;

/// What chooses in front of the trees.
pub(super) struct Chosen {
    // Declared first: they are detached before the maps go.
    pub(super) programs: PerPort<Chooser>,
    /// What charges to the trees what the kernel itself sends.
    pub(super) slow_paths: SlowPaths,
    pub(super) ways: Ways,
}

impl InDriver {
    /// Routes or switches between the ports of `forwarding`, as [`InDriver::open`] joins ports.
    pub(super) fn open_chosen(
        forwarding: &Forwarding,
        devices: PerDevice<DeviceFacts>,
        only: Option<Hook>,
        plans: PerPort<Plan>,
        fronts: &Fronts<'_>,
        gates: &Gates,
        routed_by: RoutedBy,
    ) -> Result<Self, InstanceError> {
        let entries: PerDevice<Entry> = devices.keys().map(|device| gates.entry(device)).collect();
        let Some(&entry) = entries.first() else {
            return Err(InstanceError::Inheritance("it has no ports".to_owned()));
        };
        if entries.iter().any(|other| *other != entry) {
            return Err(InstanceError::Dispatchers);
        }
        let mut hooks = hooks(&devices, entry, only);
        if routed_by == RoutedBy::Flows && only.is_none() {
            // Only programs at XDP can ask for flows.
            hooks.retain(|hook| *hook != Hook::Tcx);
        }
        first_that_works(hooks, &devices[DeviceId::FIRST], |hook| {
            let entry = if hook == Hook::Tcx { Entry::Tcx } else { entry };
            let mut plane = Self::chosen_at(hook, entry, forwarding, &devices, routed_by, None)?;
            plane.prepare(plans.clone(), fronts)?;
            plane.attach_chosen(hook, entry, gates)?;
            // Most drivers take frames only while they run a program, so they are asked after that.
            let untaken = devices.iter().find(|device| hook == NATIVE && !takes_redirected(device));
            if let Some(device) = untaken {
                return Err(not_taken(device));
            }
            plane.connect_chosen()?;
            Ok(plane)
        })
    }

    /// The plane with programs for `hook`, neither attached nor connected; they use `maps` of
    /// another process, if given.
    pub(super) fn chosen_at(
        hook: Hook,
        entry: Entry,
        forwarding: &Forwarding,
        devices: &PerDevice<DeviceFacts>,
        routed_by: RoutedBy,
        maps: Option<&InheritedMaps>,
    ) -> Result<Self, InstanceError> {
        let ways = Ways::of(forwarding, devices, routed_by)?;
        let in_pairs = || InstanceError::Inheritance("its ports are in pairs".to_owned());
        let ways = ways.ok_or_else(in_pairs)?;
        let takers = ways.takers();
        // They are all behind each other.
        let multi_buffer = devices.iter().any(has_several_buffers);
        let facts = |port: PortId| &devices[forwarding.device_of(port)];
        let mut trees = PerPort::new();
        for port in forwarding.ids() {
            let facts = facts(port);
            let of_it = maps.map_or(&[][..], |maps| &maps.trees[port]);
            let at = tree::Port::new(facts.own(), multi_buffer, entry);
            trees.push(Tree::behind(takers, at, hook, of_it).map_err(failed(facts))?);
        }
        let program = |port: PortId| {
            let facts = facts(port);
            let counted = maps.map(|maps| maps.counters[forwarding.device_of(port)].as_fd());
            ways.program(port, multi_buffer, entry, counted).map_err(failed(facts))
        };
        let programs = forwarding.ids().map(program).collect::<Result<_, _>>()?;
        let slow_paths = SlowPaths::load(forwarding, |port| trees[port].slow_path());
        let hooks = devices.iter().map(|_| hook).collect();
        let mut plane = Self::of(trees, forwarding, devices.clone(), hooks);
        plane.chosen = Some(Chosen { programs, slow_paths, ways });
        Ok(plane)
    }

    /// Attaches the programs at `hook`. The kernel gets all frames until they are connected.
    fn attach_chosen(
        &mut self,
        hook: Hook,
        entry: Entry,
        gates: &Gates,
    ) -> Result<(), InstanceError> {
        let multi_buffer = self.devices.iter().any(has_several_buffers);
        let Some(Chosen { programs, slow_paths, .. }) = &mut self.chosen else { return Ok(()) };
        slow_paths.attach(&self.forwarding, &self.devices);
        for (port, program) in programs.iter_mut_enumerated() {
            let facts = &self.devices[self.forwarding.device_of(port)];
            match hook {
                Hook::Xdp(mode) if entry == Entry::Shared => {
                    let gate = gates.place(&facts.name, facts.ifindex, mode, multi_buffer)?;
                    program.take_over(gate).map_err(failed(facts))?;
                }
                _ => program
                    .attach(facts.ifindex, hook)
                    .map_err(|error| failed(facts)(error.into()))?,
            }
        }
        Ok(())
    }

    /// Leads frames to the tree of the port where each leaves, from now on.
    pub(super) fn connect_chosen(&mut self) -> Result<(), InstanceError> {
        let Some(Chosen { ways, .. }) = &self.chosen else { return Ok(()) };
        for (port, tree) in self.trees.iter_mut_enumerated() {
            let facts = &self.devices[self.forwarding.device_of(port)];
            tree.connect(facts.ifindex).map_err(failed(facts))?;
            tree.take(ways.takers(), port).map_err(failed(facts))?;
        }
        Ok(())
    }
}

impl Chosen {
    /// Puts the filters `terms` in front of the program of `port`, whose device is `facts`.
    pub(super) fn put_in_front(
        &mut self,
        port: PortId,
        facts: &DeviceFacts,
        multi_buffer: bool,
        front: &mut PortFront,
        terms: &crate::front::Terms,
        tables: Option<&narrows_bpf::SetTables>,
    ) -> Result<(), crate::front::FrontError> {
        let program = &mut self.programs[port];
        let at = FrontPort {
            // All that a router routes is addressed to it, and a switch has no addresses.
            own: OwnAddress { is_addressed: false, ..facts.own() },
            multi_buffer,
            entry: program.entry(),
            handed: Some(self.ways.takers().handed()),
        };
        front.set(terms, tables, at, |front| program.put_in_front(front))
    }
}

/// The hooks to try, the best first: tcx where one device is better there.
fn hooks(devices: &PerDevice<DeviceFacts>, entry: Entry, only: Option<Hook>) -> Vec<Hook> {
    let of_each = devices.iter().map(|device| hooks_for(device, entry, only));
    let by_tcx = |hooks: &Vec<Hook>| hooks.iter().position(|hook| *hook == Hook::Tcx);
    of_each.min_by_key(|hooks| by_tcx(hooks).unwrap_or(usize::MAX)).unwrap_or_default()
}
