//! A plane: a way to run a policy's plans between ports.
//!
//! An [`Instance`](crate::Instance) has a policy and interfaces that come and go; a plane joins
//! them while all are there. It takes plans, which are data, and installs them by key: unchanged
//! parts of a plan keep their queues, credit and meters. It reports its counters, and hands over
//! queued packets when another process takes over.
//!
//! [`Session`](crate::session::Session) is the plane of AF_XDP, with queues and a worker for each
//! of them; [`InDriver`](crate::in_driver::InDriver) is the XDP plane, without either. A test has
//! one that forwards nothing.
//!
//! *Non-goals.* The interfaces, their changes, and the standby bridge: the instance handles these
//! for every plane.

use crate::counters::Counts;
use crate::device::DeviceFacts;
use crate::error::InstanceError;
use crate::front::Terms;
use crate::heartbeat::SilentWorker;
use crate::look_ups::LooksUp;
use crate::options::SessionOptions;
use crate::upgrade::WorkerQueued;
use crate::upgrade::state::{PlaneManifest, ProgramState};
use crate::ways::Ways;
use crate::worker_report::RootCount;
use crate::workers::Standstill;
use narrows_bpf::{Asks, BalanceTables, Hook, Pulse, SetTables};
use narrows_classify::{ActionId, ActionStats};
use narrows_forwarding::{DeviceId, PerDevice, PerPort, PortId, PortSet};
use narrows_link::Device;
use narrows_policy::{NodeStats, Plan};
use narrows_qdisc::Spec;
use narrows_qdisc::htb::ClassCount;
use narrows_roundtrip::Seen;
use narrows_shaper::{Installation, Used};
use narrows_snapshot::{OwnTraffic, Worker};
use narrows_units::Nanos;
use narrows_xdp::Enforcement;
use narrows_xsk::CopyMode;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Ports joined. Dropped without [`Plane::close`], it releases them at once.
pub(crate) trait Plane: LooksUp {
    /// The devices, as they were when their ports were joined.
    fn devices(&self) -> &PerDevice<DeviceFacts>;

    /// How many queue pairs are served.
    fn queues(&self) -> usize;

    /// How the ports are joined.
    fn mode(&self) -> Mode;

    /// The `device` as it is now, with what it lost since the ports were joined; a device
    /// that cannot be read counts as having lost nothing.
    fn device(&self, device: DeviceId) -> Device;

    /// The plan for packets that leave at `port`.
    fn plan(&self, port: PortId) -> &Plan;

    /// Replaces the present plan of `port` by `plan`, and loses no packet of the parts that are in
    /// both.
    ///
    /// # Errors
    /// If the kernel does not take it, for lack of memory: the present one goes on then.
    fn install(&mut self, port: PortId, plan: Plan) -> Result<(), InstanceError>;

    /// What runs at `port`, if a plan can be reconciled with it on another thread.
    fn installed(&self, _: PortId) -> Option<Arc<Installation>> {
        None
    }

    /// Installs a plan as [`Plane::install`] does that was reconciled before. Returns what it has
    /// replaced: dropping that may take long.
    ///
    /// # Errors
    /// As [`Plane::install`].
    fn install_reconciled(
        &mut self,
        port: PortId,
        reconciled: Reconciled,
    ) -> Result<Option<Arc<Installation>>, InstanceError> {
        self.install(port, reconciled.next.plan().clone()).map(|()| None)
    }

    /// Replaces the filters in front of `port` by `terms`, which look up in `tables`.
    ///
    /// # Errors
    /// If the kernel does not take them: what is there goes on then.
    fn put_in_front(
        &mut self,
        port: PortId,
        terms: &Terms,
        tables: Option<&SetTables>,
    ) -> Result<(), InstanceError>;

    /// At a host's ports: has packets of services go to their servers, which are in `tables`; to
    /// nobody if there are none. Says which ports send nothing that arrives at others.
    ///
    /// # Errors
    /// If the kernel does not take the program.
    fn balance(&mut self, _: Option<&BalanceTables>) -> Result<PortSet, InstanceError> {
        Ok(PortSet::NONE)
    }

    /// At a host's ports: has the stacks of these CPUs receive; if there are none, that of the CPU
    /// where a frame arrives.
    ///
    /// # Errors
    /// If a CPU is not there, or the kernel does not take the program.
    fn receive_on(&mut self, _: &[u32]) -> Result<(), InstanceError> {
        Ok(())
    }

    /// The figures of every qdisc of `port`.
    fn stats(&self, port: PortId) -> Vec<NodeStats>;

    /// What the root qdiscs of `ports` have counted, in their order, where limits can follow a
    /// line; else nothing.
    fn roots(&self, _: &[PortId]) -> Vec<RootCount> {
        Vec::new()
    }

    /// Whether what exceeds a limit at `port` is dropped at once, as nothing waits there.
    fn polices(&self, _: PortId) -> bool {
        false
    }

    /// Whether round trips beyond `port` can be seen, of packets that pass.
    fn sees_trips(&self, _: PortId) -> bool {
        false
    }

    /// Has single round trips beyond `port` kept for [`Plane::take_trips`], or no longer.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn watch_trips(&mut self, _: PortId, _is_watched: bool) -> Result<(), InstanceError> {
        Ok(())
    }

    /// The round trips and losses beyond `port` since the last call.
    fn take_trips(&self, _: PortId) -> Seen {
        Seen::default()
    }

    /// What the leaf classes of the tree at the root of `port` count on each queue; `None` if
    /// [`Plane::stats`] is as cheap.
    fn class_counts(&self, _: PortId) -> Option<Vec<Vec<ClassCount>>> {
        None
    }

    /// The counters of filters' actions at each port.
    fn action_stats(&self) -> Vec<(ActionId, ActionStats)>;

    /// The counters since the ports were joined.
    fn report(&self) -> Report;

    /// In a router and a switch: what its programs know of the kernel.
    fn ways(&self) -> Option<&Ways> {
        None
    }

    /// In a router: tells its programs how the kernel routes now.
    ///
    /// # Errors
    /// If the kernel does not say. Then packets are looked up in the longest way.
    fn follow(&mut self) -> Result<(), InstanceError> {
        Ok(())
    }

    /// In a router: has its programs find out what filters ask of routes, and no more. At first
    /// they find out all that filters may ask.
    ///
    /// # Errors
    /// If they cannot be told.
    fn ask(&mut self, _: Asks) -> Result<(), InstanceError> {
        Ok(())
    }

    /// In a router and a switch: why what the kernel itself sends is not charged to limits; `None`
    /// if it is.
    fn slow_path_refusal(&self) -> Option<&str> {
        None
    }

    /// In the host plane: how limits hold for what this host sends through `port`.
    fn own_traffic(&self, _: PortId) -> Option<OwnTraffic> {
        None
    }

    /// In the host plane: why limits police and do not shape, a line for each port where they do.
    fn policing_at_egress(&self) -> Vec<String> {
        Vec::new()
    }

    /// In the host plane: looks after what holds packets, once a second. Returns what has changed,
    /// in words.
    fn look_after(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The state of each worker, as seen from outside.
    fn pulses(&self) -> Vec<Pulse>;

    /// The silent workers.
    fn silent(&self) -> Vec<SilentWorker>;

    /// Whether the kernel now has a look-up for addresses before translation.
    fn can_look_up(&self) -> bool;

    /// The manifest for another process, with its descriptors, while this one continues.
    ///
    /// # Errors
    /// Why there is nothing to offer.
    fn offer(&self) -> Result<(PlaneManifest, Vec<OwnedFd>), &'static str>;

    /// Pauses all workers and returns the plane's state. They resume when the [`Standstill`] is
    /// dropped. `None` if one does not pause within `time`; then all resume.
    fn stand_still(&self, time: Duration) -> Option<(Still, Standstill)>;

    /// Releases the ports. With `drain`, the queues drain for a short while; the rest counts as
    /// dropped. Returns all final counters.
    fn close(self: Box<Self>, drain: bool) -> Closed;
}

/// A plan that is ready to follow what ran when it was reconciled.
pub(crate) struct Reconciled {
    /// What ran.
    pub(crate) base: Arc<Installation>,
    pub(crate) next: Installation,
    /// For each queue.
    pub(crate) specs: Vec<Spec>,
}

impl Reconciled {
    /// Reconciles `plan` with what runs.
    pub(crate) fn new(plan: Plan, base: Arc<Installation>) -> Self {
        let (next, specs) = Installation::reconcile(plan, Some(&base));
        Self { base, next, specs }
    }
}

/// Which plane joins the ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PlaneKind {
    /// Queues and workers over AF_XDP.
    #[default]
    Xsk,
    /// Programs in the driver, without queues.
    Xdp,
    /// Programs at egress, for what this host sends itself.
    Host,
}

impl PlaneKind {
    /// How limits hold; `None` where packets wait in queues of workers.
    pub(crate) fn enforcement(self) -> Option<Enforcement> {
        match self {
            Self::Xsk => None,
            Self::Xdp => Some(Enforcement::Policing),
            Self::Host => Some(Enforcement::Shaping),
        }
    }

    /// Whether workers serve queues.
    pub(crate) fn has_workers(self) -> bool {
        self == Self::Xsk
    }
}

impl Mode {
    /// Whether frames are in the device's own rings.
    pub(crate) fn is_zero_copy(&self) -> bool {
        matches!(self.frames, Some((CopyMode::ZeroCopy, _)))
    }

    /// The copy mode's name, for people.
    pub(crate) fn copy(&self) -> &'static str {
        self.frames.map_or("none", |(copy, _)| copy.name())
    }
}

/// How ports are joined.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mode {
    /// Where the program of each device runs.
    pub(crate) hooks: PerDevice<Hook>,
    /// How frames are copied to and from workers, and the size of a frame's buffer in bytes; `None`
    /// if frames stay in the driver.
    pub(crate) frames: Option<(CopyMode, u32)>,
}

/// A plane's state and counters since the ports were joined.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    /// Its counters.
    pub(crate) counts: Counts,
    /// Its workers; silent ones as of their last report.
    pub(crate) workers: Vec<Worker>,
    /// The memory of the largest `cake` instance of each port, in bytes.
    pub(crate) largest_cake: PerPort<Option<u64>>,
}

/// A plane that another process still runs, ready to continue in this one.
pub(crate) trait InheritedPlane {
    /// In a router and a switch: what its programs know of the kernel.
    fn ways(&self) -> Option<&Ways>;

    /// As [`Plane::balance`], before it runs.
    ///
    /// # Errors
    /// If the kernel does not take the program.
    fn balance(&mut self, _: Option<&BalanceTables>) -> Result<PortSet, InstanceError> {
        Ok(PortSet::NONE)
    }

    /// As [`Plane::receive_on`], before it runs.
    ///
    /// # Errors
    /// If a CPU is not there, or the kernel does not take the program.
    fn receive_on(&mut self, _: &[u32]) -> Result<(), InstanceError> {
        Ok(())
    }

    /// The plan for packets that leave at `port`.
    fn plan(&self, port: PortId) -> &Plan;

    /// Has it run `plan` at `port`, before it takes anything in.
    fn retune(&mut self, port: PortId, plan: Plan);

    /// Takes the state of the other process in, which has paused.
    ///
    /// # Errors
    /// If it is inconsistent. Nothing has been changed then.
    fn take_in(&mut self, still: Still) -> Result<(), InstanceError>;

    /// Runs from now on, in place of the other process, which touches nothing more. Also returns
    /// since when its workers run, if there are any.
    ///
    /// # Errors
    /// If the kernel refuses: then the ports are released.
    fn start(
        self: Box<Self>,
        options: &SessionOptions,
    ) -> Result<(Box<dyn Plane>, Option<Nanos>), InstanceError>;
}

/// The state of a plane that pauses.
#[derive(Default)]
pub(crate) struct Still {
    /// The counters, without those that the other process gets to read itself.
    pub(crate) counts: Counts,
    /// Each worker's queued packets and free frames.
    pub(crate) queued: Vec<WorkerQueued>,
    /// By port: how far its limits are used.
    pub(crate) used: PerPort<Used>,
    /// Programs that go on meanwhile, by the port where frames leave.
    pub(crate) programs: PerPort<ProgramState>,
}

/// The end of a plane.
pub(crate) struct Closed {
    /// All its counters. Its backlogs are empty.
    pub(crate) counts: Counts,
    /// Workers that have not ended, by queue.
    pub(crate) left_behind: Vec<u32>,
    /// What could not be put back, in words.
    pub(crate) not_restored: Vec<String>,
}
