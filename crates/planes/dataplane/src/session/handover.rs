//! A session that continues in another process: what the old process offers, and how the new
//! process inherits it.

use super::{Boards, Prepared, Secrets, Session, load};
use crate::clock;
use crate::error::{InstanceError, SessionError};
use crate::front::Fronts;
use crate::options::SessionOptions;
use crate::owners::Share;
use crate::plane::{InheritedPlane, Plane, Still};
use crate::port::{PortFacts, losses};
use crate::runner::Settings;
use crate::sizing::Sizing;
use crate::upgrade::WorkerQueued;
use crate::upgrade::state::{PortManifest, SessionManifest, WorkerManifest};
use crate::workers::Workers;
use crate::xdp_io::XdpIo;
use narrows_bpf::{Hook, Stalled, XdpMode};
use narrows_link::Buffer;
use narrows_packet::dissect::Dissector;
use narrows_policy::Plan;
use narrows_qdisc::Slot;
use narrows_shaper::{Installation, Side, Worker};
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
        let Prepared { umem, steers, ports, copy_mode, sizing, .. } = &self.prepared;
        let mut descriptors = vec![umem.as_fd().try_clone_to_owned().ok()?];
        for steer in steers {
            descriptors.push(steer.hold()?.try_clone_to_owned().ok()?);
        }
        let shares = sizing.shares.map(|share| [share.receive, share.wait]);
        let mut workers = Vec::with_capacity(self.workers.count());
        for sockets in self.workers.sockets(ANSWER_TIME)? {
            let rings = sockets.each_ref().map(|(_, sizes)| [sizes.rx, sizes.tx]);
            workers.push(WorkerManifest { shares, rings });
            descriptors.extend(sockets.map(|(socket, _)| socket));
        }
        let [a, b] = [Side::A, Side::B].map(|side| {
            let index = side.index();
            let hook = Hook::Xdp(self.xdp_modes[index]);
            PortManifest::new(&ports[index], hook, steers[index].entry())
        });
        let manifest = SessionManifest {
            ports: [a, b],
            frame_size: sizing.buffer.size,
            multi_buffer: sizing.buffer.several,
            zero_copy: *copy_mode == CopyMode::ZeroCopy,
            workers,
        };
        Some((manifest, descriptors))
    }
}

/// A session that another process still runs, ready to continue in this one.
pub(crate) struct InheritedSession {
    prepared: Prepared,
    workers: Vec<Worker<XdpIo>>,
    /// The first frame of each worker and how many it has.
    parts: Vec<(u32, u32)>,
    installed: [Installation; 2],
    /// The link of each port, or the array of its gate.
    holds: [OwnedFd; 2],
    xdp_modes: [XdpMode; 2],
}

impl InheritedSession {
    /// Maps the session that `manifest` describes for `ports`, from `descriptors`, and loads
    /// programs for it, to run the plan of each port, with `fronts` in front. Nothing of the other
    /// process is changed.
    pub(crate) fn prepare(
        manifest: SessionManifest,
        ports: [PortFacts; 2],
        descriptors: Vec<OwnedFd>,
        options: &SessionOptions,
        plans: [Plan; 2],
        stalled: Stalled,
        fronts: &Fronts<'_>,
    ) -> Result<Self, SessionError> {
        let missing = || SessionError::Inheritance("descriptors are missing".to_owned());
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or_else(missing);
        let frame_size = manifest.frame_size;
        let [first, ..] = &manifest.workers[..] else { return Err(missing()) };
        let shares = first.shares.map(|[receive, wait]| Share { receive, wait });
        if manifest.workers.iter().any(|worker| worker.shares != first.shares) {
            return Err(SessionError::Inheritance("its workers differ".to_owned()));
        }
        let parts = parts(&manifest.workers).ok_or_else(missing)?;
        let all = parts.last().map_or(0, |(first, count)| first + count);
        let umem = Umem::open(next()?, all, frame_size)?;
        let holds = [next()?, next()?];
        let multi_buffer = manifest.multi_buffer;
        let copy_mode = if manifest.zero_copy { CopyMode::ZeroCopy } else { CopyMode::Copy };
        let described = manifest.ports.each_ref();
        let mut xdp_modes = [XdpMode::Native; 2];
        for ((facts, described), mode) in ports.iter().zip(described).zip(&mut xdp_modes) {
            let changed = || SessionError::Inheritance(format!("{} has changed", facts.name));
            *mode = described.hook_on(facts).and_then(Hook::xdp_mode).ok_or_else(changed)?;
        }
        let mut pairs = Vec::with_capacity(parts.len());
        for (queue, worker) in (0u32..).zip(&manifest.workers) {
            let [a, b] = worker.rings.map(|[rx, tx]| RingSizes { rx, tx });
            let open = |side: Side, socket, sizes| {
                Socket::open(socket, sizes, &umem).map_err(|source| SessionError::Socket {
                    port: ports[side.index()].name.clone(),
                    queue,
                    hint: match source.raw_os_error() {
                        Some(libc::EBUSY) => "; kernels before Linux 6.4 cannot pass rings on",
                        _ => "",
                    },
                    source,
                })
            };
            pairs.push([open(Side::A, next()?, a)?, open(Side::B, next()?, b)?]);
        }
        let (heartbeats, steers) =
            load(&ports, multi_buffer, stalled, described.map(PortManifest::entry), &pairs)?;
        let Secrets { hash_key, seal } = Secrets::own();
        let dissector = Dissector::new(hash_key);
        let [(a, of_a), (b, of_b)] = plans.map(|plan| Installation::reconcile(plan, None));
        let boards = Boards::new(options);
        let mut workers = Vec::with_capacity(parts.len());
        for (((pair, (_, count)), of_a), of_b) in pairs.into_iter().zip(&parts).zip(of_a).zip(of_b)
        {
            let io = XdpIo::new(pair, umem.part(*count)?, shares, dissector, seal);
            let worker = Worker::new(io, *count, [Slot::new(of_a), Slot::new(of_b)]);
            workers.push(boards.give_to(worker));
        }
        if workers.len() != parts.len() {
            let reason = "the policy is for another number of queues".to_owned();
            return Err(SessionError::Inheritance(reason));
        }
        let ios = Vec::new();
        let buffer = Buffer { size: frame_size, several: multi_buffer };
        let sizing = Sizing { buffer, shares };
        let before = Default::default();
        let mut prepared =
            Prepared { umem, steers, fronts: before, heartbeats, ios, ports, copy_mode, sizing };
        for side in Side::BOTH {
            prepared.put_in_front(side, &fronts.terms[side.index()], fronts.tables)?;
        }
        Ok(Self { prepared, workers, parts, installed: [a, b], holds, xdp_modes })
    }
}

impl InheritedPlane for InheritedSession {
    /// Queues the packets of the other process's workers, and continues each limit from where it
    /// was.
    fn take_in(&mut self, still: Still) -> Result<(), InstanceError> {
        let Still { queued, used, .. } = still;
        let now = clock::now();
        for (installed, used) in self.installed.iter().zip(&used) {
            installed.resume(used, now);
        }
        let frame_size = self.prepared.sizing.buffer.size;
        let fits = |(of_worker, &(first, count)): (&WorkerQueued, &(u32, u32))| {
            of_worker.fits(first, count, frame_size)
        };
        if queued.len() != self.parts.len() || !queued.iter().zip(&self.parts).all(fits) {
            let reason = "queued packets lie outside the workers' frames".to_owned();
            return Err(SessionError::Inheritance(reason).into());
        }
        for (worker, queued) in self.workers.iter_mut().zip(&queued) {
            worker.io_mut().go_on(queued);
            for (egress, packets) in Side::BOTH.into_iter().zip(&queued.queued) {
                for (arrival, frames) in packets.iter() {
                    if let Some((id, len)) = worker.io_mut().adopt(egress.other(), frames) {
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
        let Self { mut prepared, workers, installed, holds, xdp_modes, .. } = *self;
        let mut threads = Workers::new(prepared.heartbeats.clone());
        let queues = workers.len() as u32;
        for (queue, worker) in (0u32..).zip(workers) {
            let settings = Settings::of(queue, queues, options);
            threads.start(worker, settings).map_err(SessionError::Thread)?;
        }
        let began = clock::now();
        let losses_before = losses(&prepared.ports);
        // Frames keep arriving meanwhile: the other's programs lead to the same sockets.
        for ((steer, hold), port) in prepared.steers.iter_mut().zip(holds).zip(&prepared.ports) {
            steer.take_over(hold).map_err(|source| SessionError::Steer {
                port: port.name.clone(),
                source,
                hint: "",
            })?;
        }
        let installed = installed.map(Arc::new);
        let session = Session { prepared, workers: threads, installed, xdp_modes, losses_before };
        Ok((Box::new(session), Some(began)))
    }
}

/// The first frame of each worker and how many it has; `None` if that is more than can be.
fn parts(workers: &[WorkerManifest]) -> Option<Vec<(u32, u32)>> {
    let mut end = 0u32;
    let part = |worker: &WorkerManifest| {
        let first = end;
        let mut shares = worker.shares.iter().flatten();
        let frames = shares.try_fold(0u32, |sum, share| sum.checked_add(*share))?;
        end = end.checked_add(frames)?;
        Some((first, frames))
    };
    workers.iter().map(part).collect()
}
