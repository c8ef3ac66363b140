//! The stick on the XDP plane: a tree for each VLAN, and one program in front of all of them.
//!
//! A frame leaves through the device that it came through, so no other driver has to take it: the
//! first hook at which all of it works is the one. Filters and trees are for one kind of hook, so
//! another one is tried with programs of its own. Only a `veth` may attach a program and then lose
//! without a word what that sends back.

use super::{
    InDriver, NATIVE, failed, first_that_works, has_several_buffers, hooks_for, not_taken,
    sends_redirected, tree_port,
};
use crate::device::DeviceFacts;
use crate::error::InstanceError;
use crate::front::Fronts;
use crate::gates::Gates;
use narrows_bpf::tree::{Tree, TreeError};
use narrows_bpf::{Entry, Hook, Vlans};
use narrows_forwarding::{DeviceId, Forwarding, PerDevice, PerPort};
use narrows_policy::Plan;
use std::os::fd::BorrowedFd;

impl InDriver {
    /// Joins the VLANs of `forwarding`, as [`InDriver::open`] does ports.
    pub(super) fn open_stick(
        forwarding: &Forwarding,
        devices: PerDevice<DeviceFacts>,
        only: Option<Hook>,
        plans: PerPort<Plan>,
        fronts: &Fronts<'_>,
        gates: &Gates,
    ) -> Result<Self, InstanceError> {
        let device = DeviceId::FIRST;
        let facts = &devices[device];
        first_that_works(hooks_for(facts, gates.entry(device), only), facts, |hook| {
            if hook == NATIVE && !sends_back(facts) {
                return Err(not_taken(facts));
            }
            let (devices, plans) = (devices.clone(), plans.clone());
            Self::open_stick_at(forwarding, devices, hook, plans, fronts, gates)
        })
    }

    fn open_stick_at(
        forwarding: &Forwarding,
        devices: PerDevice<DeviceFacts>,
        hook: Hook,
        plans: PerPort<Plan>,
        fronts: &Fronts<'_>,
        gates: &Gates,
    ) -> Result<Self, InstanceError> {
        let device = DeviceId::FIRST;
        let facts = devices[device].clone();
        let entry = if hook == Hook::Tcx { Entry::Tcx } else { gates.entry(device) };
        let load = |port| Tree::at(tree_port(forwarding, port, &facts, entry, fronts), hook, &[]);
        let trees = forwarding.ids().map(load).collect::<Result<_, _>>();
        let trees = trees.map_err(failed(&facts))?;
        let mut plane = Self::of(trees, forwarding, devices, [hook].into_iter().collect());
        plane.prepare(plans, fronts)?;
        let mut vlans = plane.in_front_of_all(device, entry, None)?;
        let attached = match hook {
            Hook::Xdp(mode) if entry == Entry::Shared => {
                let several = has_several_buffers(&facts);
                let behind = gates.place(&facts.name, facts.ifindex, mode, several)?;
                vlans.take_over(behind).map_err(TreeError::Replace)
            }
            _ => vlans.attach(facts.ifindex, hook).map_err(TreeError::from),
        };
        attached.map_err(failed(&facts))?;
        plane.vlans[device] = Some(vlans);
        Ok(plane)
    }

    /// A program for `device` that leads to the tree of each of its ports, attached through
    /// `entry`.
    pub(super) fn in_front_of_all(
        &mut self,
        device: DeviceId,
        entry: Entry,
        counted: Option<BorrowedFd<'_>>,
    ) -> Result<Vlans, InstanceError> {
        let facts = &self.devices[device];
        let tags = self.forwarding.tags_on(device);
        let vlans = Vlans::load(&tags, has_several_buffers(facts), entry, counted);
        let vlans = vlans.map_err(|error| failed(facts)(TreeError::Load(error)))?;
        for port in self.forwarding.ports_on(device) {
            let place = self.forwarding.place(port);
            self.trees[port].stand_behind(&vlans, place).map_err(failed(facts))?;
        }
        Ok(vlans)
    }
}

/// Whether the driver of `port` sends the frames that a program gives back to it. A `veth` does so
/// on the terms on which it takes redirected ones: while its peer polls.
fn sends_back(port: &DeviceFacts) -> bool {
    // Kernels before Linux 6.3 do not report it.
    port.driver != "veth" || sends_redirected(port.ifindex).unwrap_or(false)
}
