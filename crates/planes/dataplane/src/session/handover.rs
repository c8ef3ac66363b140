//! A session that continues in another process: what the old process offers, and how the new
//! process inherits it.

use super::{Boards, Loading, Prepared, Secrets, Session, install, worker};
use crate::clock;
use crate::device::{DeviceFacts, losses};
use crate::error::{InstanceError, SessionError};
use crate::front::{Fronts, PortFront};
use crate::options::SessionOptions;
use crate::owners::Shares;
use crate::plane::{InheritedPlane, Plane, Still};
use crate::runner::Settings;
use crate::sizing::Sizing;
use crate::slow_path::Shared;
use crate::upgrade::WorkerQueued;
use crate::upgrade::state::{DeviceManifest, SessionManifest, WorkerManifest};
use crate::ways::Ways;
use crate::workers::Workers;
use crate::xdp_io::XdpIo;
use narrows_bpf::{Hook, RoutedBy, Stalled, XdpMode};
use narrows_forwarding::{DeviceId, Forwarding, PerDevice, PerPort, PortId, PortSet};
use narrows_link::Buffer;
use narrows_packet::dissect::Dissector;
use narrows_policy::Plan;
use narrows_shaper::{Installation, Worker};
use narrows_units::Nanos;
use narrows_xsk::{CopyMode, RingSizes, Socket, Umem};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long workers may take to report their sockets.
const ANSWER_TIME: Duration = Duration::from_millis(500);

impl Session {
    /// The manifest for another process, while this one continues. `None` if a worker does not
    /// answer.
    pub(super) fn manifest(&self) -> Option<(SessionManifest, Vec<OwnedFd>)> {
        let Prepared { umem, steers, slow_paths, devices, copy_mode, sizing, .. } = &self.prepared;
        let mut descriptors = vec![umem.as_fd().try_clone_to_owned().ok()?];
        for steer in steers {
            descriptors.push(steer.hold()?.try_clone_to_owned().ok()?);
        }
        let slow_paths = slow_paths.descriptors()?;
        let charges_slow_path = !slow_paths.is_empty();
        descriptors.extend(slow_paths);
        let mut workers = Vec::with_capacity(self.workers.count());
        for sockets in self.workers.sockets(ANSWER_TIME)? {
            let rings = sockets.iter().map(|(_, sizes)| [sizes.rx, sizes.tx]).collect();
            workers.push(WorkerManifest { rings });
            descriptors.extend(sockets.into_iter().map(|(socket, _)| socket));
        }
        let device = |(device, facts): (DeviceId, &DeviceFacts)| {
            let hook = Hook::Xdp(self.xdp_modes[device]);
            DeviceManifest::new(facts, hook, steers[device].entry())
        };
        let manifest = SessionManifest {
            devices: devices.iter_enumerated().map(device).collect(),
            receive: sizing.shares.receive.clone(),
            wait: sizing.shares.wait.clone(),
            frame_size: sizing.buffer.size,
            multi_buffer: sizing.buffer.several,
            zero_copy: *copy_mode == CopyMode::ZeroCopy,
            charges_slow_path,
            workers,
        };
        Some((manifest, descriptors))
    }
}

/// A session that another process still runs, ready to continue in this one.
pub(crate) struct InheritedSession {
    prepared: Prepared,
    workers: Vec<Worker<XdpIo>>,
    boards: Boards,
    /// The first frame of each worker and how many it has.
    parts: Vec<(u32, u32)>,
    installed: PerPort<Installation>,
    /// The link of each device, or the array of its gate.
    holds: PerDevice<OwnedFd>,
    /// The links of what charges the slow path, if something does.
    slow_paths: Vec<OwnedFd>,
    xdp_modes: PerDevice<XdpMode>,
}

impl InheritedSession {
    /// Maps the session that `manifest` describes for the ports of `forwarding` on `devices`, from
    /// `descriptors`, and loads programs for it, to run the plan of each port, with `fronts` in
    /// front. Nothing of the other process is changed. A router routes by `routed_by`.
    #[expect(clippy::too_many_arguments, reason = "all that a session consists of")]
    pub(crate) fn prepare(
        manifest: SessionManifest,
        forwarding: &Forwarding,
        devices: PerDevice<DeviceFacts>,
        descriptors: Vec<OwnedFd>,
        options: &SessionOptions,
        plans: PerPort<Plan>,
        stalled: Stalled,
        fronts: &Fronts<'_>,
        routed_by: RoutedBy,
    ) -> Result<Self, SessionError> {
        let missing = || SessionError::Inheritance("descriptors are missing".to_owned());
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(missing);
        let frame_size = manifest.frame_size;
        let (ports, its_devices) = (forwarding.ports().len(), devices.len());
        let has_other_ports = manifest.wait.len() != ports
            || manifest.receive.len() != its_devices
            || manifest.devices.len() != its_devices
            || manifest.workers.iter().any(|worker| worker.rings.len() != its_devices);
        if has_other_ports {
            return Err(SessionError::Inheritance("it has other ports".to_owned()));
        }
        let shares = Shares { receive: manifest.receive, wait: manifest.wait };
        let parts = parts(manifest.workers.len(), &shares).ok_or_else(missing)?;
        let all = parts.last().map_or(0, |(first, count)| first + count);
        let umem = Umem::open(next()?, all, frame_size)?;
        let holds = devices.iter().map(|_| next()).collect::<Result<PerDevice<_>, _>>()?;
        let mut of_each_port = || -> Result<Vec<_>, _> {
            let ids = forwarding.ids().filter(|_| manifest.charges_slow_path);
            ids.map(|_| next()).collect()
        };
        let (slow_paths, maps) = (of_each_port()?, of_each_port()?);
        let shared = Shared::load(forwarding, maps);
        let multi_buffer = manifest.multi_buffer;
        let copy_mode = if manifest.zero_copy { CopyMode::ZeroCopy } else { CopyMode::Copy };
        let mut xdp_modes = PerDevice::new();
        for (facts, described) in devices.iter().zip(&manifest.devices) {
            let changed = || SessionError::Inheritance(format!("{} has changed", facts.name));
            let mode = described.hook_on(facts).and_then(Hook::xdp_mode).ok_or_else(changed)?;
            xdp_modes.push(mode);
        }
        let mut sockets = Vec::with_capacity(parts.len());
        for (queue, worker) in (0u32..).zip(&manifest.workers) {
            let mut of_queue = PerDevice::new();
            for (facts, &[rx, tx]) in devices.iter().zip(&worker.rings) {
                let socket = Socket::open(next()?, RingSizes { rx, tx }, &umem);
                of_queue.push(socket.map_err(|source| SessionError::Socket {
                    port: facts.name.clone(),
                    queue,
                    hint: match source.raw_os_error() {
                        Some(libc::EBUSY) => "; kernels before Linux 6.4 cannot pass rings on",
                        _ => "",
                    },
                    source,
                })?);
            }
            sockets.push(of_queue);
        }
        let entries = manifest.devices.iter().map(DeviceManifest::entry).collect();
        let ways = Ways::of(forwarding, &devices, routed_by)?;
        let loading = Loading { forwarding, devices: &devices, ways: ways.as_ref() };
        let (heartbeats, steers) = loading.load(multi_buffer, stalled, &entries, &sockets)?;
        let Secrets { hash_key, seal } = Secrets::own();
        let dissector = Dissector::new(hash_key);
        let (installed, slots) = install(plans);
        let boards = Boards::new(forwarding, options);
        let mut workers = Vec::with_capacity(parts.len());
        for ((sockets, (_, count)), qdiscs) in sockets.into_iter().zip(&parts).zip(slots) {
            let part = umem.part(*count)?;
            let io = XdpIo::new(sockets, part, forwarding, &shares, dissector, seal);
            let io = io.beside(shared.shares());
            let worker = boards.give_to(worker(forwarding, io, *count, qdiscs));
            workers.push(worker.with_member_rates(fronts.member_rates()));
        }
        if workers.len() != parts.len() {
            let reason = "the policy is for another number of queues".to_owned();
            return Err(SessionError::Inheritance(reason));
        }
        let ios = Vec::new();
        let buffer = Buffer { size: frame_size, several: multi_buffer };
        let sizing = Sizing { buffer, shares };
        let mut prepared = Prepared {
            umem,
            forwarding: forwarding.clone(),
            steers,
            fronts: forwarding.ids().map(|_| PortFront::default()).collect(),
            heartbeats,
            ios,
            devices,
            ways,
            slow_paths: shared,
            copy_mode,
            sizing,
        };
        for port in forwarding.ids() {
            prepared.put_in_front(port, &fronts.terms[port], fronts.tables)?;
        }
        Ok(Self { prepared, workers, boards, parts, installed, holds, slow_paths, xdp_modes })
    }
}

impl InheritedPlane for InheritedSession {
    fn ways(&self) -> Option<&Ways> {
        self.prepared.ways.as_ref()
    }

    fn plan(&self, port: PortId) -> &Plan {
        self.installed[port].plan()
    }

    fn retune(&mut self, port: PortId, plan: Plan) {
        let (next, specs) = Installation::reconcile(plan, Some(&self.installed[port]));
        next.commit();
        self.installed[port] = next;
        let now = clock::now();
        for (worker, spec) in self.workers.iter_mut().zip(specs) {
            worker.update(port, spec, now);
        }
    }

    /// Queues the packets of the other process's workers, and continues each limit from where it
    /// was.
    fn take_in(&mut self, still: Still) -> Result<(), InstanceError> {
        let Still { queued, used, .. } = still;
        let now = clock::now();
        for (installed, used) in self.installed.iter().zip(&used) {
            installed.resume(used, now);
        }
        let frame_size = self.prepared.sizing.buffer.size;
        let (ports, devices) = (self.installed.len(), self.prepared.devices.len());
        let fits = |(of_worker, &(first, count)): (&WorkerQueued, &(u32, u32))| {
            of_worker.is_of(ports, devices) && of_worker.fits(first, count, frame_size)
        };
        if queued.len() != self.parts.len() || !queued.iter().zip(&self.parts).all(fits) {
            let reason = "queued packets lie outside the workers' frames".to_owned();
            return Err(SessionError::Inheritance(reason).into());
        }
        for (worker, queued) in self.workers.iter_mut().zip(&queued) {
            worker.io_mut().go_on(queued);
            for (egress, packets) in queued.queued.iter_enumerated() {
                for (arrival, frames) in packets.iter() {
                    if let Some((id, len)) = worker.io_mut().adopt(egress, frames) {
                        worker.adopt(egress, id, len, arrival, now);
                    }
                }
            }
        }
        Ok(())
    }

    /// Starts the workers and replaces the other process's programs by this process's.
    fn start(
        self: Box<Self>,
        options: &SessionOptions,
    ) -> Result<(Box<dyn Plane>, Option<Nanos>), InstanceError> {
        let Self { mut prepared, workers, boards, installed, holds, slow_paths, xdp_modes, .. } =
            *self;
        let mut threads = Workers::new(prepared.heartbeats.clone());
        let queues = workers.len() as u32;
        for (queue, worker) in (0u32..).zip(workers) {
            let settings = Settings::of(queue, queues, options);
            threads.start(worker, settings).map_err(SessionError::Thread)?;
        }
        let began = clock::now();
        let losses_before = losses(&prepared.devices);
        // Frames keep arriving meanwhile: the other's programs lead to the same sockets.
        for ((steer, hold), device) in prepared.steers.iter_mut().zip(holds).zip(&prepared.devices)
        {
            steer.take_over(hold).map_err(|source| SessionError::Steer {
                port: device.name.clone(),
                source,
                hint: "",
            })?;
        }
        for (port, installed) in installed.iter_enumerated() {
            prepared.slow_paths.follow(port, installed.plan());
        }
        let Prepared { slow_paths: shared, forwarding, devices, .. } = &mut prepared;
        shared.programs_mut().take_over(slow_paths, forwarding, devices);
        let installed = installed.into_iter().map(Arc::new).collect();
        let looks_up = PortSet::NONE;
        let workers = threads;
        let session =
            Session { prepared, workers, boards, installed, xdp_modes, losses_before, looks_up };
        Ok((Box::new(session), Some(began)))
    }
}

/// The first frame of each of `workers` workers and how many it has; `None` if there is none, or if
/// that is more than can be.
fn parts(workers: usize, shares: &Shares) -> Option<Vec<(u32, u32)>> {
    let frames = shares.checked_frames()?;
    let count = u32::try_from(workers).ok().filter(|count| *count > 0)?;
    frames.checked_mul(count)?;
    Some((0..count).map(|worker| (worker * frames, frames)).collect())
}
