//! A session: the two ports joined, from binding the sockets to closing them.
//!
//! Opening goes from the inside out, so that no frame is lost: frames and sockets first, then
//! filled fill rings, then running workers, and only then the steering programs. Closing is the
//! reverse. An interface that disappears or changes ends a session; the instance opens the next
//! one.

use crate::error::SessionError;
use crate::front::{Fronts, PortFront, Terms};
use crate::gates::Gates;
use crate::heartbeat::SILENT_AFTER;
use crate::options::SessionOptions;
use crate::port::{PortFacts, losses};
use crate::runner::Settings;
use crate::sizing::{Sizing, may_share};
use crate::workers::Workers;
use crate::xdp_io::XdpIo;
use narrows_bpf::{
    AttachError, Entry, FrontPort, Heartbeats, Hook, SetTables, Stalled, Steer, SteerError,
    Watchdog, XdpMode,
};
use narrows_link::DeviceLosses;
use narrows_packet::dissect::Dissector;
use narrows_policy::Plan;
use narrows_qdisc::Slot;
use narrows_roundtrip::Awaited;
use narrows_shaper::{Installation, Io, Side, Worker};
use narrows_xsk::{CopyMode, RingSizes, Socket, Umem, UmemError};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};

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

/// Ports whose sockets are bound and whose programs are loaded, but not attached.
pub(crate) struct Prepared {
    umem: Umem,
    steers: [Steer; 2],
    /// The filters in front of them.
    fronts: [PortFront; 2],
    heartbeats: Heartbeats,
    /// The I/O of each queue pair.
    ios: Vec<XdpIo>,
    ports: [PortFacts; 2],
    copy_mode: CopyMode,
    sizing: Sizing,
}

impl Prepared {
    /// Binds the sockets of `queues` queues on both `ports`. `stalled` is the treatment of frames
    /// for a silent worker, and `entries` how the programs will be attached.
    pub(crate) fn new(
        ports: [PortFacts; 2],
        options: &SessionOptions,
        queues: u32,
        stalled: Stalled,
        entries: [Entry; 2],
    ) -> Result<Self, SessionError> {
        let Bound { umem, copy_mode, sizing, sockets } = bind_best(&ports, options, queues)?;
        let several = sizing.buffer.several;
        let (heartbeats, steers) = load(&ports, several, stalled, entries, &sockets)?;
        let Secrets { hash_key, seal } = Secrets::own();
        let dissector = Dissector::new(hash_key);
        let ios = sockets
            .into_iter()
            .map(|pair| {
                let part = umem.part(sizing.frames())?;
                Ok(XdpIo::new(pair, part, sizing.shares, dissector, seal).stocked())
            })
            .collect::<Result<_, UmemError>>()?;
        let fronts = Default::default();
        Ok(Self { umem, steers, fronts, heartbeats, ios, ports, copy_mode, sizing })
    }

    /// Puts the filters `terms` in front of `side`.
    fn put_in_front(
        &mut self,
        side: Side,
        terms: &Terms,
        tables: Option<&SetTables>,
    ) -> Result<(), SessionError> {
        let index = side.index();
        let name = &self.ports[index].name;
        let own = self.ports[index].own();
        let steer = &mut self.steers[index];
        let (multi_buffer, entry) = (self.sizing.buffer.several, steer.entry());
        let port = FrontPort { own, multi_buffer, entry, handed: None };
        self.fronts[index]
            .set(terms, tables, port, |front| steer.put_in_front(front))
            .map_err(|source| SessionError::Front { port: name.clone(), source })
    }

    /// Takes the queue pairs' I/O, for their workers.
    pub(crate) fn take_ios(&mut self) -> Vec<XdpIo> {
        std::mem::take(&mut self.ios)
    }

    /// Attaches both programs: frames arrive from here on.
    pub(crate) fn attach(
        &mut self,
        only: Option<XdpMode>,
        gates: &Gates,
    ) -> Result<[XdpMode; 2], SessionError> {
        let several = self.sizing.buffer.several;
        let [a, b] = &mut self.steers;
        Ok([
            attach_best(a, &self.ports[0], only, several, gates)?,
            attach_best(b, &self.ports[1], only, several, gates)?,
        ])
    }
}

/// The state that the workers of a session share to measure round trips, if enabled.
pub(crate) struct Boards(Option<[Arc<Awaited>; 2]>);

impl Boards {
    pub(crate) fn new(options: &SessionOptions) -> Self {
        Self(options.round_trips.then(|| [Awaited::new(), Awaited::new()]))
    }

    /// `worker`, with these boards if round trips are measured.
    pub(crate) fn give_to<I: Io>(&self, worker: Worker<I>) -> Worker<I> {
        match &self.0 {
            Some(boards) => worker.with_round_trips(boards, Secrets::own().hash_key),
            None => worker,
        }
    }
}

/// Two ports joined over AF_XDP.
pub(crate) struct Session {
    // Declared first: the programs are dropped before the workers.
    prepared: Prepared,
    workers: Workers,
    /// The live state of each port's plan.
    installed: [Arc<Installation>; 2],
    xdp_modes: [XdpMode; 2],
    /// Packets that each device had lost before.
    losses_before: [DeviceLosses; 2],
}

impl Session {
    /// Joins `ports`, to run the plan of each, with `fronts` in front; `stalled` is the treatment
    /// of frames for a silent worker. `gates` has places beside other programs.
    pub(crate) fn open(
        ports: [PortFacts; 2],
        options: &SessionOptions,
        plans: [Plan; 2],
        stalled: Stalled,
        fronts: &Fronts<'_>,
        gates: &Gates,
    ) -> Result<Self, SessionError> {
        let [(a, of_a), (b, of_b)] = plans.map(|plan| Installation::reconcile(plan, None));
        let queues = of_a.len().min(of_b.len()) as u32;
        let mut prepared = Prepared::new(ports, options, queues, stalled, gates.entries())?;
        let mut workers = Workers::new(prepared.heartbeats.clone());
        let boards = Boards::new(options);
        let ios = (0u32..).zip(prepared.take_ios());
        for (((queue, io), of_a), of_b) in ios.zip(of_a).zip(of_b) {
            let qdiscs = [Slot::new(of_a), Slot::new(of_b)];
            let worker = boards.give_to(Worker::new(io, prepared.sizing.frames(), qdiscs));
            let settings = Settings::of(queue, queues, options);
            workers.start(worker, settings).map_err(SessionError::Thread)?;
        }
        let losses_before = losses(&prepared.ports);
        for side in Side::BOTH {
            prepared.put_in_front(side, &fronts.terms[side.index()], fronts.tables)?;
        }
        let xdp_modes = prepared.attach(options.hook.and_then(Hook::xdp_mode), gates)?;
        let installed = [a, b].map(Arc::new);
        Ok(Self { prepared, workers, installed, xdp_modes, losses_before })
    }
}

/// Loads the steering programs of both `ports`, which redirect frames to `sockets` while their
/// workers' heartbeats are recent, and otherwise follow `stalled`.
fn load(
    ports: &[PortFacts; 2],
    multi_buffer: bool,
    stalled: Stalled,
    entries: [Entry; 2],
    sockets: &[[Socket; 2]],
) -> Result<(Heartbeats, [Steer; 2]), SessionError> {
    let heartbeats = Heartbeats::new().map_err(SessionError::Heartbeats)?;
    let watchdog = Watchdog { heartbeats: heartbeats.clone(), after: SILENT_AFTER, stalled };
    let steer = |port: &PortFacts, entry| {
        let (seal, watchdog) = (Secrets::own().seal, watchdog.clone());
        let loaded = Steer::load(port.own(), multi_buffer, seal, watchdog, entry);
        loaded.map_err(|source| SessionError::Steer { port: port.name.clone(), hint: "", source })
    };
    let steers = [steer(&ports[0], entries[0])?, steer(&ports[1], entries[1])?];
    for (queue, pair) in (0u32..).zip(sockets) {
        for side in Side::BOTH {
            let index = side.index();
            steers[index].serve(queue, pair[index].as_fd()).map_err(|source| {
                SessionError::Steer { port: ports[index].name.clone(), source, hint: "" }
            })?;
        }
    }
    Ok((heartbeats, steers))
}

/// All sockets of a session.
struct Bound {
    umem: Umem,
    copy_mode: CopyMode,
    sizing: Sizing,
    sockets: Vec<[Socket; 2]>,
}

/// Binds all sockets in the best mode of both ports: they share one UMEM, and so the slower port's
/// mode.
fn bind_best(
    ports: &[PortFacts; 2],
    options: &SessionOptions,
    queues: u32,
) -> Result<Bound, SessionError> {
    let bind = |copy_mode| {
        let sizing = Sizing::new(ports, options, copy_mode);
        let umem = Umem::new(queues * sizing.frames(), sizing.buffer.size)?;
        let several = sizing.buffer.several;
        let sockets = bind_all(&umem, ports, options, queues, copy_mode, several)?;
        Ok(Bound { umem, copy_mode, sizing, sockets })
    };
    match options.copy_mode {
        Some(only) => bind(only),
        // The frames for zero copy are many, and to make them in vain takes long.
        None if !may_share(ports) => bind(CopyMode::Copy),
        None => bind(CopyMode::ZeroCopy).or_else(|error| {
            log::info!("frames are copied: {error}");
            bind(CopyMode::Copy)
        }),
    }
}

fn bind_all(
    umem: &Umem,
    ports: &[PortFacts; 2],
    options: &SessionOptions,
    queues: u32,
    mode: CopyMode,
    multi_buffer: bool,
) -> Result<Vec<[Socket; 2]>, SessionError> {
    let sizes = RingSizes { rx: options.ring, tx: options.ring };
    let mut pairs: Vec<[Socket; 2]> = Vec::with_capacity(queues as usize);
    for queue in 0..queues {
        let bind = |port: &PortFacts, first: Option<&Socket>| {
            Socket::bind(umem, port.ifindex, queue, sizes, mode, multi_buffer, first).map_err(
                |source| SessionError::Socket {
                    port: port.name.clone(),
                    queue,
                    hint: socket_hint(source.raw_os_error(), multi_buffer),
                    source,
                },
            )
        };
        let a = bind(&ports[0], pairs.first().map(|pair| &pair[0]))?;
        let b = bind(&ports[1], Some(pairs.first().map_or(&a, |pair| &pair[0])))?;
        pairs.push([a, b]);
    }
    Ok(pairs)
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
             lower the MTU of both ports"
        }
        _ => "",
    }
}

/// Attaches a steering program in the best mode of the port.
fn attach_best(
    steer: &mut Steer,
    port: &PortFacts,
    only: Option<XdpMode>,
    multi_buffer: bool,
    gates: &Gates,
) -> Result<XdpMode, SessionError> {
    let modes: &[XdpMode] = match &only {
        Some(only) => std::slice::from_ref(only),
        None => &[XdpMode::Native, XdpMode::Generic],
    };
    if steer.entry() == Entry::Shared {
        let (mode, behind) = gates.place_best(&port.name, port.ifindex, modes, multi_buffer)?;
        let failed = |source| SessionError::Steer { port: port.name.clone(), source, hint: "" };
        return steer.take_over(behind).map(|()| mode).map_err(failed);
    }
    let mut refusal = None;
    for &mode in modes {
        match steer.attach(port.ifindex, mode) {
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
    Err(SessionError::Steer { port: port.name.clone(), source, hint })
}
