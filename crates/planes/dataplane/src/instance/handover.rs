//! An instance that continues in another process: the state that it passes on, and how the other
//! inherits it.

use super::{Balance, Instance, InstanceOptions, planning, read_all, read_sets, ways};
use crate::clock;
use crate::counters::{self, QueueCounters};
use crate::device::DeviceFacts;
use crate::error::InstanceError;
use crate::events::Events;
use crate::gates::Gates;
use crate::in_driver::InheritedPrograms;
use crate::offloads::Repairs;
use crate::plane::{InheritedPlane, PlaneKind, Still};
use crate::session::{InheritedSession, Secrets};
use crate::upgrade::spent;
use crate::upgrade::state::{
    Contents, Manifest, PathCounted, PlaneManifest, PortCounted, QueueCounted, UserFrontManifest,
};
use crate::workers::Standstill;
use narrows_bpf::{SlowPathCounters, UserFront, Verdicts};
use narrows_control::UpgradeStatus;
use narrows_forwarding::PerDevice;
use narrows_link::DeviceLosses;
use narrows_packet::{DropCounters, DropReason};
use narrows_policy::Policy;
use narrows_shaper::{Arrived, PathCounters, Used};
use narrows_snapshot::KernelDrops as KernelDropsSeen;
use narrows_units::Nanos;
use narrows_xsk::KernelDrops;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// The offer, to check whether it is still valid.
pub(crate) struct Offer {
    policy: Policy,
    /// The state of the sets, without regard to expired members: the other process removes them,
    /// too.
    edits: u64,
    /// The state of the services.
    services: u64,
    devices: Option<PerDevice<DeviceFacts>>,
}

impl Instance {
    /// The manifest for another process, with its descriptors.
    ///
    /// # Errors
    /// If it could not continue exactly as this one.
    pub(crate) fn offer(
        &self,
        attempt: u64,
        version: &str,
        control: usize,
    ) -> Result<(Offer, Manifest, Vec<OwnedFd>), String> {
        if let Some(why) = &self.let_go {
            return Err(format!("the ports are released ({why}); try again when they are joined"));
        }
        let policy = narrows_tc::save(&self.policy);
        let (gates, keeper) = self.gates.offer().map_err(|error| error.to_string())?.unzip();
        let mut descriptors: Vec<OwnedFd> = keeper.into_iter().collect();
        let (balance, maps) = self.balance.offer().map_err(|error| error.to_string())?;
        descriptors.extend(maps);
        let user_front = match &self.user_front {
            None => None,
            Some(users) => {
                let of_it = users.descriptors().map_err(|error| error.to_string())?;
                let multi_buffer = users.is_multi_buffer();
                let manifest = UserFrontManifest { descriptors: of_it.len(), multi_buffer };
                descriptors.extend(of_it);
                Some(manifest)
            }
        };
        let plane = match &self.plane {
            None => None,
            Some(plane) => {
                let (manifest, of_plane) = plane.offer()?;
                descriptors.extend(of_plane);
                Some(manifest)
            }
        };
        let Secrets { hash_key, seal } = Secrets::own();
        let edits = self.sets.edits();
        let services = self.balance.version();
        let offer = Offer { policy: self.policy.clone(), edits, services, devices: self.facts() };
        let manifest = Manifest {
            forwarding: self.options.forwarding.words(),
            policy,
            shares: self.fleet.state(),
            sets: self.save_sets(),
            balance,
            user_front,
            attempt,
            version: version.to_owned(),
            began: self.began.0,
            hash_key,
            seal,
            plane,
            control,
            gates,
        };
        Ok((offer, manifest, descriptors))
    }

    /// The devices whose ports are joined.
    fn facts(&self) -> Option<PerDevice<DeviceFacts>> {
        Some(self.plane.as_ref()?.devices().clone())
    }

    /// Pauses all workers and returns their state. They resume when the [`Standstill`] is dropped.
    ///
    /// # Errors
    /// If the offer is no longer valid, or a worker does not pause within `time`; then all resume.
    pub(crate) fn stand_still(
        &self,
        offer: &Offer,
        time: Duration,
    ) -> Result<(Contents, Standstill), String> {
        if self.policy != offer.policy {
            return Err("the policy has changed meanwhile; try again".to_owned());
        }
        if self.sets.edits() != offer.edits {
            return Err("the sets have changed meanwhile; try again".to_owned());
        }
        if self.balance.version() != offer.services {
            return Err("the services have changed meanwhile; try again".to_owned());
        }
        if self.facts() != offer.devices {
            return Err("the ports have changed meanwhile; try again".to_owned());
        }
        let stopped = clock::now();
        let (still, standstill) = match &self.plane {
            None => Default::default(),
            Some(plane) => {
                plane.stand_still(time).ok_or("a worker took too long to stop; try again")?
            }
        };
        let mut totals = self.past.clone();
        totals.add(&still.counts);
        let mut used = still.used.clone();
        // Nothing is joined, and nothing is used.
        used.resize(totals.ports.len(), Used::default());
        let spent = used.iter().map(spent::of_limits).collect();
        let classes = used.iter().map(spent::of_classes).collect();
        let counted = totals.ports.iter().zip(&self.past.ports).map(|(port, past)| {
            let queues = port.queues.iter().enumerate();
            let queues = queues.map(|(queue, counters)| counted(counters, past.queues.get(queue)));
            let Verdicts { to_worker, to_self, unserved, stalled, others } = port.verdicts;
            let DeviceLosses {
                rx_dropped,
                rx_errors,
                rx_missed,
                tx_dropped,
                tx_errors,
                tx_carrier,
            } = port.losses;
            PortCounted {
                queues: queues.collect(),
                verdicts: [to_worker, to_self, unserved, stalled, others],
                routes: counters::routes(&port.routes),
                slow_path: port.slow_path.map(|counters| counters.words()),
                losses: [rx_dropped, rx_errors, rx_missed, tx_dropped, tx_errors, tx_carrier],
            }
        });
        let counted = counted.collect();
        let events = self.events.list();
        let (stopped, shares, lines) = (stopped.0, self.fleet.state(), self.lines.state());
        let Still { queued: workers, programs, .. } = still;
        let contents =
            Contents { stopped, shares, lines, counted, events, spent, programs, classes, workers };
        Ok((contents, standstill))
    }
}

/// An instance that another process still runs, ready to continue in this one.
pub(crate) struct Inherited {
    instance: Instance,
    inherited: Option<Box<dyn InheritedPlane>>,
    attempt: u64,
    from: String,
    packets: u64,
    stopped: Nanos,
}

impl Inherited {
    /// Prepares to continue from `manifest`, whose `descriptors` are those of its gates and its
    /// plane. Nothing of the other process is changed.
    pub(crate) fn prepare(
        options: InstanceOptions,
        repairs: Repairs,
        manifest: Manifest,
        mut descriptors: Vec<OwnedFd>,
    ) -> Result<Self, InstanceError> {
        let unfit = |reason: String| InstanceError::Inheritance(reason);
        if manifest.forwarding != options.forwarding.words() {
            return Err(unfit(format!("the running process has {}", manifest.forwarding)));
        }
        let name = "the policy of the running process";
        let host = narrows_tc::OfflineHost::default();
        let policy = narrows_tc::load(&manifest.policy, name, &host).map_err(unfit)?;
        if narrows_tc::save(&policy) != manifest.policy {
            return Err(unfit("it understands the policy otherwise; restart instead".to_owned()));
        }
        Secrets { hash_key: manifest.hash_key, seal: manifest.seal }.take_over();
        let gates = match manifest.gates {
            None => Gates::none(),
            Some(_) if descriptors.is_empty() => {
                return Err(unfit("a descriptor is missing".to_owned()));
            }
            Some(shared) => Gates::take_over(shared, descriptors.remove(0), options.dispatcher),
        };
        let mut instance = Instance::new(options, repairs, gates);
        let maps = manifest.balance.descriptors.min(descriptors.len());
        let maps: Vec<OwnedFd> = descriptors.drain(..maps).collect();
        instance.balance = Balance::resume(manifest.balance, &maps).map_err(unfit)?;
        if let Some(UserFrontManifest { descriptors: of_it, multi_buffer }) = manifest.user_front {
            let of_it = of_it.min(descriptors.len());
            let of_it = descriptors.drain(..of_it).collect();
            let users = UserFront::inherit(of_it, multi_buffer);
            instance.user_front = Some(users.map_err(|error| unfit(error.to_string()))?);
        }
        instance.began = Nanos(manifest.began);
        planning::check_ports(&policy, &instance.options.forwarding, instance.options.plane)?;
        instance.adopt_policy(policy);
        instance.adopt_shares(manifest.shares);
        instance.adopt_sets(read_sets(manifest.sets).map_err(unfit)?)?;
        let inherited = match manifest.plane {
            None => None,
            Some(plane) => {
                let mut inherited = instance.inherit(plane, descriptors)?;
                inherited.balance(instance.balance.tables())?;
                inherited.receive_on(&instance.options.session.receive_on)?;
                Some(inherited)
            }
        };
        let ways = inherited.as_ref().and_then(|inherited| inherited.ways());
        ways::wait_for_realms(&instance.policy, ways);
        Ok(Self {
            instance,
            inherited,
            attempt: manifest.attempt,
            from: manifest.version,
            packets: 0,
            stopped: Nanos::ZERO,
        })
    }

    /// Takes over the state of the paused process.
    pub(crate) fn take_in(&mut self, contents: Contents) -> Result<(), InstanceError> {
        self.packets = contents.packets();
        self.stopped = contents.stopped();
        let Contents {
            shares,
            lines,
            counted,
            events,
            spent,
            programs,
            classes,
            workers: queued,
            ..
        } = contents;
        let ports = self.instance.past.ports.len();
        if counted.len() != ports || !(programs.is_empty() || programs.len() == ports) {
            return Err(InstanceError::Inheritance("it counts other ports".to_owned()));
        }
        for (past, counted) in self.instance.past.ports.iter_mut().zip(counted) {
            let [to_worker, to_self, unserved, stalled, others] = counted.verdicts;
            past.verdicts = Verdicts { to_worker, to_self, unserved, stalled, others };
            past.routes = counters::routes_of(&counted.routes);
            past.slow_path = counted.slow_path.map(SlowPathCounters::of);
            let [rx_dropped, rx_errors, rx_missed, tx_dropped, tx_errors, tx_carrier] =
                counted.losses;
            past.losses = DeviceLosses {
                rx_dropped,
                rx_errors,
                rx_missed,
                tx_dropped,
                tx_errors,
                tx_carrier,
            };
            let queues = counted.queues.iter().map(counters).collect::<Option<_>>();
            past.queues = queues.ok_or_else(|| {
                let reason = "it counts drops for reasons that this version does not know";
                InstanceError::Inheritance(reason.to_owned())
            })?;
        }
        self.instance.events = Events::from_list(events);
        if let Some(inherited) = &mut self.inherited {
            self.instance.retune(&mut **inherited, shares, lines)?;
            let used = spent.iter().zip(&classes);
            let used = used.map(|(limits, classes)| spent::used(limits, classes)).collect();
            inherited.take_in(Still { queued, used, programs, ..Still::default() })?;
        } else {
            self.instance.adopt_shares(shares);
            self.instance.lines.inherit(lines);
        }
        Ok(())
    }

    /// Continues where the other process stopped, which touches nothing more. Never fails: if the
    /// session cannot continue, a new one starts as soon as possible.
    pub(crate) fn go_on(self, version: &str) -> (Instance, UpgradeStatus) {
        let Self { mut instance, inherited, attempt, from, packets, stopped } = self;
        let started = inherited.map(|inherited| inherited.start(&instance.options.session));
        let pause = match &started {
            Some(Ok((_, began))) => began.map_or(Nanos::ZERO, |began| began - stopped),
            Some(Err(_)) => clock::now() - stopped,
            None => Nanos::ZERO,
        };
        let status = UpgradeStatus::Done {
            attempt,
            pid: std::process::id(),
            from,
            to: version.to_owned(),
            pause_us: pause.0 / 1000,
            packets,
        };
        instance.events.say(status.to_string());
        match started {
            None => instance.reconsider(),
            Some(Ok((plane, _))) => {
                let hooks = plane.mode().hooks;
                instance.plane = Some(plane);
                instance.follow_lines();
                instance.ask(ways::asks(&instance.policy));
                instance.repairs.watch(&instance.options.forwarding, &hooks);
            }
            Some(Err(error)) => {
                instance.events.warn(format!("starting a new session: {error}"));
                instance.reconsider();
            }
        }
        instance.look_up();
        (instance, status)
    }
}

impl Instance {
    /// Prepares to continue a plane of another process, as [`Instance::open`] does to start one.
    fn inherit(
        &mut self,
        plane: PlaneManifest,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Box<dyn InheritedPlane>, InstanceError> {
        self.standby.prepare(&self.options.forwarding)?;
        self.routed_by = self.may_forward()?;
        let forwarding = &self.options.forwarding;
        let devices = read_all(forwarding)?;
        self._promiscuous = plane
            .devices()
            .iter()
            .filter(|_| forwarding.takes_all())
            .map(|device| narrows_link::promiscuous(device.ifindex))
            .collect::<Result<_, _>>()?;
        match (plane, self.options.plane) {
            (PlaneManifest::Xsk(session), PlaneKind::Xsk) => {
                let plans = self.compile(session.workers.len())?;
                let fronts = self.fronts(&plans)?;
                let (options, stalled) = (&self.options.session, self.options.fail.stalled());
                Ok(Box::new(InheritedSession::prepare(
                    session,
                    forwarding,
                    devices,
                    descriptors,
                    options,
                    plans,
                    stalled,
                    &fronts,
                    self.routed_by,
                )?))
            }
            (PlaneManifest::Xdp(driver), kind)
                if !kind.has_workers() && driver.is_host() == (kind == PlaneKind::Host) =>
            {
                let plans = self.compile(self.queues_of(&devices)?)?;
                let fronts = self.fronts(&plans)?;
                let prepared = InheritedPrograms::prepare(
                    driver,
                    forwarding,
                    devices,
                    descriptors,
                    plans,
                    &fronts,
                    self.routed_by,
                )?;
                Ok(Box::new(prepared))
            }
            _ => Err(InstanceError::Inheritance("the running process is another plane".to_owned())),
        }
    }
}

/// The counters of `all`, without those that the sockets of this session keep themselves.
fn counted(all: &QueueCounters, past: Option<&QueueCounters>) -> QueueCounted {
    QueueCounted {
        arrived: [all.arrived.packets, all.arrived.bytes],
        outward: path_counted(&all.outward),
        tx_kicks: all.tx_kicks,
        kernel_drops: past.map(QueueCounters::kernel_drops).unwrap_or_default(),
    }
}

fn path_counted(path: &PathCounters) -> PathCounted {
    PathCounted {
        received: [path.rx_packets, path.rx_bytes],
        sent: [path.tx_packets, path.tx_bytes],
        copied: path.copied,
        dropped: counters::by_reason(&path.drops),
    }
}

/// The inverse; `None` if a packet was dropped for an unknown reason.
fn counters(counted: &QueueCounted) -> Option<QueueCounters> {
    let KernelDropsSeen { rx_ring_full, rx_dropped, fill_ring_empty, rx_invalid, tx_invalid } =
        counted.kernel_drops;
    let [packets, bytes] = counted.arrived;
    Some(QueueCounters {
        arrived: Arrived { packets, bytes },
        outward: path(&counted.outward)?,
        tx_kicks: counted.tx_kicks,
        backlog: Default::default(),
        kernel_drops: KernelDrops {
            rx_dropped,
            rx_ring_full,
            fill_ring_empty,
            rx_invalid,
            tx_invalid,
        },
    })
}

fn path(counted: &PathCounted) -> Option<PathCounters> {
    let mut drops = DropCounters::default();
    for (name, &packets) in &counted.dropped {
        let reason = DropReason::ALL.into_iter().find(|reason| reason.name() == name)?;
        drops.add(reason, packets);
    }
    let ([rx_packets, rx_bytes], [tx_packets, tx_bytes]) = (counted.received, counted.sent);
    let copied = counted.copied;
    Some(PathCounters { rx_packets, rx_bytes, tx_packets, tx_bytes, copied, drops })
}
