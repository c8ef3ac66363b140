//! The slow path of a router or a switch: what the kernel itself sends through the ports.
//!
//! In a switch, that are the frames that the bridge floods, among others; in a router, packets with
//! IP options, answers to packets that are too old or too long, packets without a
//! known neighbour, and all that the box sends itself: they pass no queue and no program in a
//! driver. At each port's egress a program charges them to the port's limits. If one port has no
//! such program, none has: limits that hold at some ports only would be misleading.
//!
//! Where the kernel takes no such programs nothing is charged, and a warning says so.

use crate::device::DeviceFacts;
use narrows_bpf::tree::TreeError;
use narrows_bpf::{SlowPath, SlowPathCounters, SlowPathShare};
use narrows_forwarding::{Forwarding, PerDevice, PerPort, PortId};
use narrows_policy::Plan;
use narrows_shaper::Beside;
use narrows_units::{Bytes, Nanos};
use std::fmt::Display;
use std::os::fd::{AsFd, OwnedFd};

/// What workers know of a port's slow path.
#[derive(Clone)]
pub(crate) struct Share(SlowPathShare);

impl Beside for Share {
    #[inline]
    fn claim(&self) -> Bytes {
        self.0.claim()
    }

    #[inline]
    fn waits(&self, now: Nanos) {
        self.0.waits(now);
    }
}

/// The slow paths of the ports of a plane with workers: none but in a router and a switch.
pub(crate) struct Shared {
    programs: SlowPaths,
    shares: PerPort<Share>,
}

impl Shared {
    /// Those of the ports of `forwarding`, with `maps` of another process, if it has any. Nothing
    /// is attached.
    pub(crate) fn load(forwarding: &Forwarding, maps: Vec<OwnedFd>) -> Self {
        if forwarding.is_paired() {
            return Self { programs: SlowPaths(Ok(PerPort::new())), shares: PerPort::new() };
        }
        let mut maps = maps.into_iter();
        let share = |_| maps.next().map_or_else(SlowPathShare::new, SlowPathShare::open);
        let shares: Result<PerPort<SlowPathShare>, _> = forwarding.ids().map(share).collect();
        let shares = match shares {
            Ok(shares) => shares,
            Err(error) => {
                return Self { programs: SlowPaths(Err(said(error))), shares: PerPort::new() };
            }
        };
        let programs = SlowPaths::load(forwarding, |port| shares[port].program());
        Self { programs, shares: shares.into_iter().map(Share).collect() }
    }

    /// For workers.
    pub(crate) fn shares(&self) -> PerPort<Share> {
        self.shares.clone()
    }

    /// Keeps to the limit of `plan` at `port`.
    pub(crate) fn follow(&self, port: PortId, plan: &Plan) {
        if let Some(Share(share)) = self.shares.get(port) {
            share.set_limit(plan.port_limit().map(|limit| (limit.rate, limit.overhead)));
        }
    }

    /// What the kernel has sent through `port`, if it is charged.
    pub(crate) fn counters(&self, port: PortId) -> Option<SlowPathCounters> {
        let share = self.shares.get(port).filter(|_| self.programs.are_attached())?;
        Some(share.0.counters())
    }

    /// The programs.
    pub(crate) fn programs(&self) -> &SlowPaths {
        &self.programs
    }

    /// The programs, to act on.
    pub(crate) fn programs_mut(&mut self) -> &mut SlowPaths {
        &mut self.programs
    }

    /// What another process needs to go on: what keeps the programs attached, and then their maps.
    /// Nothing if there is nothing to go on with; `None` if there are no descriptors left.
    pub(crate) fn descriptors(&self) -> Option<Vec<OwnedFd>> {
        let mut descriptors = self.programs.links()?;
        if !descriptors.is_empty() {
            for Share(share) in &self.shares {
                descriptors.push(share.map().try_clone_to_owned().ok()?);
            }
        }
        Some(descriptors)
    }
}

/// The programs of all ports, or why there are none.
pub(crate) struct SlowPaths(Result<PerPort<SlowPath>, String>);

impl SlowPaths {
    /// Those that `load` gives for each port. They are not attached.
    pub(crate) fn load(
        forwarding: &Forwarding,
        load: impl FnMut(PortId) -> Result<SlowPath, TreeError>,
    ) -> Self {
        Self(forwarding.ids().map(load).collect::<Result<_, _>>().map_err(said))
    }

    /// Attaches all, or none.
    pub(crate) fn attach(&mut self, forwarding: &Forwarding, devices: &PerDevice<DeviceFacts>) {
        let Ok(programs) = &mut self.0 else { return };
        let attached = programs.iter_mut_enumerated().try_for_each(|(port, program)| {
            program.attach(devices[forwarding.device_of(port)].ifindex)
        });
        if let Err(error) = attached {
            self.0 = Err(said(error));
        }
    }

    /// Replaces the programs of another process, in the order of the ports; attaches its own where
    /// that one had none.
    pub(crate) fn take_over(
        &mut self,
        links: Vec<OwnedFd>,
        forwarding: &Forwarding,
        devices: &PerDevice<DeviceFacts>,
    ) {
        if links.is_empty() {
            return self.attach(forwarding, devices);
        }
        let Ok(programs) = &mut self.0 else { return };
        let mut pairs = programs.iter_mut_enumerated().zip(links);
        let taken = pairs.try_for_each(|((port, program), link)| {
            program.take_over(link, devices[forwarding.device_of(port)].ifindex)
        });
        if let Err(error) = taken {
            self.0 = Err(said(error));
        }
    }

    /// Whether the slow path is charged.
    pub(crate) fn are_attached(&self) -> bool {
        self.0.is_ok()
    }

    /// Why it is not charged.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// What keeps the programs attached, for another process. `None` if there are no descriptors
    /// left.
    pub(crate) fn links(&self) -> Option<Vec<OwnedFd>> {
        let programs = self.0.iter().flatten();
        programs.map(|program| program.hold()?.as_fd().try_clone_to_owned().ok()).collect()
    }

    /// Takes the programs off the ports.
    pub(crate) fn detach(&mut self) {
        self.0.iter_mut().flatten().for_each(SlowPath::detach);
    }
}

fn said(error: impl Display) -> String {
    error.to_string()
}
