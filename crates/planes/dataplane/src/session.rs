//! A session: ports joined over AF_XDP, from binding the sockets to closing them.
//!
//! Opening goes from the inside out, so that no frame is lost: frames and sockets first, then
//! filled fill rings, then running workers, and only then the steering programs. Closing is the
//! reverse. An interface that disappears or changes ends a session; the instance opens the next
//! one.

use crate::device::{DeviceFacts, losses};
use crate::error::SessionError;
use crate::front::{Fronts, PortFront, Terms};
use crate::gates::Gates;
use crate::heartbeat::SILENT_AFTER;
use crate::options::SessionOptions;
use crate::runner::Settings;
use crate::sizing::{Sizing, may_share};
use crate::slow_path::Shared;
use crate::ways::Ways;
use crate::workers::Workers;
use crate::xdp_io::XdpIo;
use narrows_bpf::{
    AttachError, Entry, FrontPort, Heartbeats, Hook, OwnAddress, RoutedBy, SetTables, Stalled,
    Steer, SteerError, Watchdog, XdpMode,
};
use narrows_forwarding::{DeviceId, Forwarding, PerDevice, PerPort, PortId, PortSet};
use narrows_link::DeviceLosses;
use narrows_packet::dissect::Dissector;
use narrows_policy::Plan;
use narrows_qdisc::Slot;
use narrows_roundtrip::Awaited;
use narrows_shaper::{Installation, Io, Worker};
use narrows_xsk::{CopyMode, RingSizes, Socket, Umem, UmemError};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

mod handover;
mod plane;

pub(crate) use handover::InheritedSession;

/// The secret key of the hashes. One for all workers, which must agree on hosts, for all sessions,
/// whose qdiscs remember them, and for all processes that take over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Secrets {
    /// The key of hosts' and flows' hashes.
    pub(crate) hash_key: u64,
    /// The seal of the steering programs' metadata about translations. Never 0, the content of
    /// unused memory.
    pub(crate) seal: u32,
}

static SECRETS: OnceLock<Secrets> = OnceLock::new();

impl Secrets {
    /// The keys of this process.
    pub(crate) fn own() -> Self {
        *SECRETS.get_or_init(|| Self {
            hash_key: RandomState::new().hash_one(()),
            seal: RandomState::new().hash_one(()) as u32 | 1,
        })
    }

    /// Adopts the keys of another process, before the first session.
    pub(crate) fn take_over(self) {
        // If keys were already taken, they stay: then queued packets count as other flows.
        let _ = SECRETS.set(self);
    }
}

/// Ports whose devices have sockets and loaded programs, which are not attached.
pub(crate) struct Prepared {
    umem: Umem,
    forwarding: Forwarding,
    steers: PerDevice<Steer>,
    /// The filters in front of them.
    fronts: PerPort<PortFront>,
    heartbeats: Heartbeats,
    /// The I/O of each queue.
    ios: Vec<XdpIo>,
    devices: PerDevice<DeviceFacts>,
    /// In a router and a switch: what its programs know of the kernel,
    ways: Option<Ways>,
    /// and what charges what the kernel itself sends.
    slow_paths: Shared,
    copy_mode: CopyMode,
    sizing: Sizing,
}

impl Prepared {
    /// Binds the sockets of `queues` queues on each of `devices`, which the ports of `forwarding`
    /// are on. `stalled` is the treatment of frames for a silent worker, and `gates` says how the
    /// programs will be attached. A router routes by `routed_by`.
    pub(crate) fn new(
        forwarding: &Forwarding,
        devices: PerDevice<DeviceFacts>,
        options: &SessionOptions,
        queues: u32,
        stalled: Stalled,
        gates: &Gates,
        routed_by: RoutedBy,
    ) -> Result<Self, SessionError> {
        let Bound { umem, copy_mode, sizing, sockets } =
            bind_best(forwarding, &devices, options, queues)?;
        let several = sizing.buffer.several;
        let entries = devices.keys().map(|device| gates.entry(device)).collect();
        let ways = Ways::of(forwarding, &devices, routed_by)?;
        let loading = Loading { forwarding, devices: &devices, ways: ways.as_ref() };
        let (heartbeats, steers) = loading.load(several, stalled, &entries, &sockets)?;
        let slow_paths = Shared::load(forwarding, Vec::new());
        let Secrets { hash_key, seal } = Secrets::own();
        let dissector = Dissector::new(hash_key);
        let ios = sockets
            .into_iter()
            .map(|sockets| {
                let part = umem.part(sizing.frames())?;
                let io = XdpIo::new(sockets, part, forwarding, &sizing.shares, dissector, seal);
                Ok(io.beside(slow_paths.shares()).stocked())
            })
            .collect::<Result<_, UmemError>>()?;
        let fronts = forwarding.ids().map(|_| PortFront::default()).collect();
        let forwarding = forwarding.clone();
        Ok(Self {
            umem,
            forwarding,
            steers,
            fronts,
            heartbeats,
            ios,
            devices,
            ways,
            slow_paths,
            copy_mode,
            sizing,
        })
    }

    /// Puts the filters `terms` in front of `port`.
    fn put_in_front(
        &mut self,
        id: PortId,
        terms: &Terms,
        tables: Option<&SetTables>,
    ) -> Result<(), SessionError> {
        let name = self.forwarding.name(id);
        let (device, place) = (self.forwarding.device_of(id), self.forwarding.place(id));
        let own = match self.forwarding.is_paired() {
            true => self.devices[device].own(),
            // All that a router routes is addressed to it, and a switch has no addresses.
            false => OwnAddress { is_addressed: false, ..self.devices[device].own() },
        };
        let steer = &mut self.steers[device];
        let (multi_buffer, entry) = (self.sizing.buffer.several, steer.entry());
        let port = FrontPort { own, multi_buffer, entry, handed: None };
        self.fronts[id]
            .set(terms, tables, port, |front| steer.put_in_front(place, front))
            .map_err(|source| SessionError::Front { port: name.to_owned(), source })
    }

    /// Takes the queues' I/O, for their workers.
    pub(crate) fn take_ios(&mut self) -> Vec<XdpIo> {
        std::mem::take(&mut self.ios)
    }

    /// Attaches all programs: frames arrive from here on.
    pub(crate) fn attach(
        &mut self,
        only: Option<XdpMode>,
        gates: &Gates,
    ) -> Result<PerDevice<XdpMode>, SessionError> {
        let several = self.sizing.buffer.several;
        // Before packets come: the limit holds from the first one on.
        self.slow_paths.programs_mut().attach(&self.forwarding, &self.devices);
        let steers = self.steers.iter_mut().zip(&self.devices);
        steers.map(|(steer, device)| attach_best(steer, device, only, several, gates)).collect()
    }
}

/// The state that the workers of a session share to measure round trips, if enabled.
pub(crate) struct Boards(Option<PerPort<Arc<Awaited>>>);

impl Boards {
    pub(crate) fn new(forwarding: &Forwarding, options: &SessionOptions) -> Self {
        let boards = || forwarding.ids().map(|_| Awaited::new()).collect();
        Self(options.round_trips.then(boards))
    }

    /// That of `port`, if round trips are measured.
    pub(crate) fn of(&self, port: PortId) -> Option<&Awaited> {
        Some(&self.0.as_ref()?[port])
    }

    /// `worker`, with these boards if round trips are measured.
    pub(crate) fn give_to<I: Io>(&self, worker: Worker<I>) -> Worker<I> {
        match &self.0 {
            Some(boards) => worker.with_round_trips(boards, Secrets::own().hash_key),
            None => worker,
        }
    }
}

/// Ports joined over AF_XDP.
pub(crate) struct Session {
    // Declared first: the programs are dropped before the workers.
    prepared: Prepared,
    workers: Workers,
    /// Where the workers record round trips.
    boards: Boards,
    /// The live state of each port's plan.
    installed: PerPort<Arc<Installation>>,
    xdp_modes: PerDevice<XdpMode>,
    /// Packets that each device had lost before.
    losses_before: PerDevice<DeviceLosses>,
    /// The ports whose qdiscs need addresses before translation.
    looks_up: PortSet,
}

impl Session {
    /// Joins the ports of `forwarding` on `devices`, to run the plan of each, with `fronts` in
    /// front; `stalled` is the treatment of frames for a silent worker. `gates` has places beside
    /// other programs. A router routes by `routed_by`.
    #[expect(clippy::too_many_arguments, reason = "all that a session consists of")]
    pub(crate) fn open(
        forwarding: &Forwarding,
        devices: PerDevice<DeviceFacts>,
        options: &SessionOptions,
        plans: PerPort<Plan>,
        stalled: Stalled,
        fronts: &Fronts<'_>,
        gates: &Gates,
        routed_by: RoutedBy,
    ) -> Result<Self, SessionError> {
        let (installed, slots) = install(plans);
        let queues = slots.len() as u32;
        let mut prepared =
            Prepared::new(forwarding, devices, options, queues, stalled, gates, routed_by)?;
        let mut workers = Workers::new(prepared.heartbeats.clone());
        let boards = Boards::new(forwarding, options);
        let ios = (0u32..).zip(prepared.take_ios());
        for ((queue, io), qdiscs) in ios.zip(slots) {
            let worker = worker(forwarding, io, prepared.sizing.frames(), qdiscs);
            let worker = boards.give_to(worker).with_member_rates(fronts.member_rates());
            let settings = Settings::of(queue, queues, options);
            workers.start(worker, settings).map_err(SessionError::Thread)?;
        }
        let losses_before = losses(&prepared.devices);
        for port in forwarding.ids() {
            prepared.slow_paths.follow(port, installed[port].plan());
            prepared.put_in_front(port, &fronts.terms[port], fronts.tables)?;
        }
        let xdp_modes = prepared.attach(options.hook.and_then(Hook::xdp_mode), gates)?;
        let installed = installed.into_iter().map(Arc::new).collect();
        let looks_up = PortSet::NONE;
        Ok(Self { prepared, workers, boards, installed, xdp_modes, losses_before, looks_up })
    }
}

/// A worker for the ports of `forwarding`.
fn worker(forwarding: &Forwarding, io: XdpIo, packets: u32, qdiscs: Vec<Slot>) -> Worker<XdpIo> {
    let worker = Worker::new(io, packets, qdiscs);
    if forwarding.is_paired() { worker } else { worker.routed() }
}

/// The installation of each port's plan, and for each queue the qdiscs of all ports: as many queues
/// as all plans have.
fn install(plans: PerPort<Plan>) -> (PerPort<Installation>, Vec<Vec<Slot>>) {
    let reconciled = plans.into_iter().map(|plan| Installation::reconcile(plan, None));
    let (installed, specs): (Vec<_>, Vec<_>) = reconciled.unzip();
    let queues = specs.iter().map(Vec::len).min().unwrap_or(0);
    let mut slots: Vec<Vec<Slot>> = (0..queues).map(|_| Vec::new()).collect();
    for of_port in specs {
        for (of_queue, spec) in slots.iter_mut().zip(of_port) {
            of_queue.push(Slot::new(spec));
        }
    }
    (installed.into(), slots)
}

/// What steering programs are loaded for.
struct Loading<'a> {
    forwarding: &'a Forwarding,
    devices: &'a PerDevice<DeviceFacts>,
    ways: Option<&'a Ways>,
}

impl Loading<'_> {
    /// Loads the steering program of each device, which redirects frames to `sockets` while their
    /// workers' heartbeats are recent, and otherwise follows `stalled`.
    fn load(
        &self,
        multi_buffer: bool,
        stalled: Stalled,
        entries: &PerDevice<Entry>,
        sockets: &[PerDevice<Socket>],
    ) -> Result<(Heartbeats, PerDevice<Steer>), SessionError> {
        let heartbeats = Heartbeats::new().map_err(SessionError::Heartbeats)?;
        let watchdog = Watchdog { heartbeats: heartbeats.clone(), after: SILENT_AFTER, stalled };
        let steer = |(device, facts): (DeviceId, &DeviceFacts)| {
            let failed =
                |source| SessionError::Steer { port: facts.name.clone(), hint: "", source };
            let entry = entries[device];
            let steer = self.steer(device, multi_buffer, watchdog.clone(), entry);
            let steer = steer.map_err(failed)?;
            for (queue, sockets) in (0u32..).zip(sockets) {
                steer.serve(queue, sockets[device].as_fd()).map_err(failed)?;
            }
            Ok(steer)
        };
        let steers = self.devices.iter_enumerated().map(steer);
        Ok((heartbeats, steers.collect::<Result<_, SessionError>>()?))
    }

    fn steer(
        &self,
        device: DeviceId,
        multi_buffer: bool,
        watchdog: Watchdog,
        entry: Entry,
    ) -> Result<Steer, SteerError> {
        let (facts, seal) = (&self.devices[device], Secrets::own().seal);
        let port = self.forwarding.ports_on(device).next();
        if let (Some(ways), Some(port)) = (self.ways, port) {
            return ways.steer(port, facts, multi_buffer, seal, watchdog, entry);
        }
        let mut steer = Steer::load(facts.own(), multi_buffer, seal, watchdog, entry)?;
        let tags = self.forwarding.tags_on(device);
        if !tags.is_empty() {
            steer.split(&tags)?;
        }
        Ok(steer)
    }
}

/// All sockets of a session.
struct Bound {
    umem: Umem,
    copy_mode: CopyMode,
    sizing: Sizing,
    /// By queue.
    sockets: Vec<PerDevice<Socket>>,
}

/// Binds all sockets in the best mode of all devices: they share one UMEM, and so the slowest
/// device's mode.
fn bind_best(
    forwarding: &Forwarding,
    devices: &PerDevice<DeviceFacts>,
    options: &SessionOptions,
    queues: u32,
) -> Result<Bound, SessionError> {
    let bind = |copy_mode| {
        let sizing = Sizing::new(forwarding, devices, options, copy_mode);
        let umem = Umem::new(queues * sizing.frames(), sizing.buffer.size)?;
        let several = sizing.buffer.several;
        let sockets = bind_all(&umem, devices, options, queues, copy_mode, several)?;
        Ok(Bound { umem, copy_mode, sizing, sockets })
    };
    match options.copy_mode {
        Some(only) => bind(only),
        // The frames for zero copy are many, and to make them in vain takes long.
        None if !may_share(devices) => bind(CopyMode::Copy),
        None => bind(CopyMode::ZeroCopy).or_else(|error| {
            log::info!("frames are copied: {error}");
            bind(CopyMode::Copy)
        }),
    }
}

fn bind_all(
    umem: &Umem,
    devices: &PerDevice<DeviceFacts>,
    options: &SessionOptions,
    queues: u32,
    mode: CopyMode,
    multi_buffer: bool,
) -> Result<Vec<PerDevice<Socket>>, SessionError> {
    let sizes = RingSizes { rx: options.ring, tx: options.ring };
    let patience = Patience::own();
    let mut all: Vec<PerDevice<Socket>> = Vec::with_capacity(queues as usize);
    for queue in 0..queues {
        let mut of_queue = PerDevice::new();
        for device in devices {
            // All share the memory of the first.
            let first = all.first().unwrap_or(&of_queue).first();
            let bind =
                || Socket::bind(umem, device.ifindex, queue, sizes, mode, multi_buffer, first);
            let socket = patience.while_busy(bind, |error| error.raw_os_error());
            of_queue.push(socket.map_err(|source| SessionError::Socket {
                port: device.name.clone(),
                queue,
                hint: socket_hint(source.raw_os_error(), multi_buffer),
                source,
            })?);
        }
        all.push(of_queue);
    }
    Ok(all)
}

/// The kernel releases the queues of a process that was killed a moment after the process is gone.
/// One that is started right afterwards waits for them. Later it has other things to do meanwhile.
struct Patience {
    until: Instant,
}

/// How long queues may stay held from the first attempt of this process on.
const FREED_IN: Duration = Duration::from_secs(1);

static FIRST_ATTEMPT: OnceLock<Instant> = OnceLock::new();

impl Patience {
    /// That of this process.
    fn own() -> Self {
        Self { until: *FIRST_ATTEMPT.get_or_init(Instant::now) + FREED_IN }
    }

    /// What `attempt` returns, which is repeated while it fails with `EBUSY`.
    fn while_busy<T, E>(
        &self,
        mut attempt: impl FnMut() -> Result<T, E>,
        errno: impl Fn(&E) -> Option<i32>,
    ) -> Result<T, E> {
        loop {
            let result = attempt();
            let is_busy = |error: &E| errno(error) == Some(libc::EBUSY);
            if !result.as_ref().is_err_and(is_busy) || Instant::now() >= self.until {
                return result;
            }
            std::thread::sleep(FREED_IN / 50);
        }
    }
}

fn socket_hint(errno: Option<i32>, multi_buffer: bool) -> &'static str {
    match errno {
        Some(libc::EPERM | libc::EACCES) => "; AF_XDP needs root or CAP_NET_RAW and CAP_NET_ADMIN",
        Some(libc::EBUSY) => {
            "; another AF_XDP socket holds this queue: stop the program that opened it"
        }
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "; raise the locked-memory limit (ulimit -l unlimited) or use fewer --frames"
        }
        Some(libc::EAFNOSUPPORT) => "; this kernel has no AF_XDP (CONFIG_XDP_SOCKETS)",
        Some(libc::EINVAL | libc::EOPNOTSUPP) if multi_buffer => {
            "; MTUs above 3498 need AF_XDP with several buffers a packet (Linux 6.6 or newer): \
             lower the MTU of all ports"
        }
        _ => "",
    }
}

/// Attaches a steering program in the best mode of its device.
fn attach_best(
    steer: &mut Steer,
    device: &DeviceFacts,
    only: Option<XdpMode>,
    multi_buffer: bool,
    gates: &Gates,
) -> Result<XdpMode, SessionError> {
    let modes: &[XdpMode] = match &only {
        Some(only) => std::slice::from_ref(only),
        None => &[XdpMode::Native, XdpMode::Generic],
    };
    if steer.entry() == Entry::Shared {
        let (mode, behind) = gates.place_best(&device.name, device.ifindex, modes, multi_buffer)?;
        let failed = |source| SessionError::Steer { port: device.name.clone(), source, hint: "" };
        return steer.take_over(behind).map(|()| mode).map_err(failed);
    }
    let mut refusal = None;
    for &mode in modes {
        match steer.attach(device.ifindex, mode) {
            Ok(()) => return Ok(mode),
            // The first error is more useful: generic mode fails only as a consequence.
            Err(error) => refusal = refusal.or(Some(error)),
        }
    }
    let source = refusal.unwrap_or(SteerError::Attach(AttachError {
        hook: Hook::Xdp(XdpMode::Native),
        source: std::io::ErrorKind::Unsupported.into(),
    }));
    let refused = match &source {
        SteerError::Attach(error) => Some(error),
        _ => None,
    };
    let hint = match refused.and_then(|error| error.source.raw_os_error()) {
        _ if refused.is_some_and(AttachError::is_taken) => {
            "; another XDP program is attached: `ip link set dev DEV xdp off` removes it, or \
             `xdp-loader unload DEV --all` what libxdp has loaded"
        }
        Some(libc::ENOSPC) => {
            "; its peer has more TX queues than it has RX queues: give both the same number with \
             `ethtool -L`"
        }
        Some(libc::ERANGE) => "; its MTU is too large for XDP: lower it with `ip link set mtu`",
        Some(libc::EPERM) => "; attaching XDP programs needs root or CAP_NET_ADMIN",
        _ => "",
    };
    Err(SessionError::Steer { port: device.name.clone(), source, hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails with `errno` for so many times.
    fn failing(times: u32, errno: i32) -> impl FnMut() -> Result<u32, i32> {
        let mut attempts = 0;
        move || {
            attempts += 1;
            if attempts > times { Ok(attempts) } else { Err(errno) }
        }
    }

    #[test]
    fn a_queue_that_is_still_held_is_tried_again_and_other_errors_are_not() {
        let patience = Patience { until: Instant::now() + FREED_IN };
        let code = |errno: &i32| Some(*errno);
        assert_eq!(patience.while_busy(failing(3, libc::EBUSY), code), Ok(4));
        assert_eq!(patience.while_busy(failing(1, libc::EPERM), code), Err(libc::EPERM));
    }

    #[test]
    fn a_queue_that_another_process_keeps_is_refused_after_a_while() {
        let patience = Patience { until: Instant::now() };
        let result = patience.while_busy(failing(u32::MAX, libc::EBUSY), |errno| Some(*errno));
        assert_eq!(result, Err(libc::EBUSY));
    }
}
