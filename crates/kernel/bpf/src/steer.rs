//! `steer`: sends each frame to the worker of its queue, and on request tells the worker the
//! frame's addresses before translation.
//!
//! A second program serves that request, and replaces the first while the request lasts, so the
//! request costs nothing when it is not made. The second program is an object of its own, loaded
//! only on request, because it calls functions that a kernel may lack, or have only once a module
//! is loaded. A kernel without them loses only this look-up, and loading can be tried again.
//!
//! One program serves a device. Where its ports are VLANs, [`Vlans`] is what is attached, and each
//! port has filters of its own in front of the steering program.
//!
//! A third program serves the ports of a [`Router`]: it tells the worker the port through which a
//! frame leaves, and leaves to the kernel what it does not route.

use crate::attach::{AttachError, Entry, Hold, Hook, XdpMode, attach};
use crate::front::Front;
use crate::heartbeat::{Heartbeats, has_coarse_clock};
use crate::load::{LoadError, Tries, keep};
use crate::maps::sums_in;
use crate::outcome::OutcomeCounters;
use crate::own_address::OwnAddress;
use crate::router::{RoutedBy, Router, share_router};
use crate::switch::{Switch, share_switch};
use crate::vlans::Vlans;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapMut};
use narrows_forwarding::{PortId, Tag};
use narrows_units::Nanos;
use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod plain {
    include!(concat!(env!("OUT_DIR"), "/steer.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod translated {
    include!(concat!(env!("OUT_DIR"), "/steer_translated.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod routing {
    include!(concat!(env!("OUT_DIR"), "/steer_router.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod by_flows {
    include!(concat!(env!("OUT_DIR"), "/steer_flow.skel.rs"));
}
#[allow(missing_docs, unsafe_code, clippy::all, clippy::undocumented_unsafe_blocks)]
mod switching {
    include!(concat!(env!("OUT_DIR"), "/steer_switch.skel.rs"));
}

/// The program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// The kernel did not load it.
    #[error("the kernel does not load the steering program: {0}")]
    Load(LoadError),
    /// The kernel did not load the program with the translation look-up.
    #[error("the kernel offers no conntrack look-up: {0}")]
    NoLookUp(LoadError),
    /// The program of a router or a switch has no such look-up.
    #[error("a router or a switch looks up no addresses before translation")]
    Chooses,
    /// The kernel did not load the program in front of it that tells VLANs apart.
    #[error("the kernel does not load the program that tells VLANs apart: {0}")]
    Vlans(LoadError),
    /// A map of it cannot be written or read.
    #[error("the steering program's {map} map cannot be used: {source}")]
    Map {
        /// The map's name.
        map: &'static str,
        /// The kernel's error.
        source: libbpf_rs::Error,
    },
    /// The program with the translation look-up cannot replace the other, or be replaced by it.
    #[error("the kernel does not replace the steering program: {0}")]
    Replace(io::Error),
    /// Filters cannot be put in front of it.
    #[error("the kernel puts no filters in front of the steering program: {0}")]
    Front(libbpf_rs::Error),
    /// It cannot be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// The verdicts on frames that arrived at a device since the program was attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Verdicts {
    /// Handed to a worker's socket.
    pub to_worker: u64,
    /// Addressed to this box and given to the kernel: on a router or a switch, all
    /// that it does not forward.
    pub to_self: u64,
    /// Given to the kernel because no worker served their queue.
    pub unserved: u64,
    /// Treated as [`Stalled`] says, because the worker of their queue was silent.
    pub stalled: u64,
    /// Given to the kernel because they were in no VLAN that is a port.
    pub others: u64,
}

/// The treatment of frames for a silent worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stalled {
    /// The kernel gets them, and the standby bridge forwards them.
    Pass,
    /// They are dropped.
    Drop,
}

impl Stalled {
    /// `XDP_PASS` and `XDP_DROP` of `linux/bpf.h`.
    const fn action(self) -> u32 {
        match self {
            Self::Pass => 2,
            Self::Drop => 1,
        }
    }
}

/// How the workers behind a program are watched.
#[derive(Clone)]
pub struct Watchdog {
    /// Theirs. A worker that has no heart is not watched.
    pub heartbeats: Heartbeats,
    /// How old the last beat of a worker may be.
    pub after: Nanos,
    /// The treatment of its frames from then on.
    pub stalled: Stalled,
}

/// The steering program of one device: loaded, and attached once [`Steer::attach`] was called.
///
/// The device is a port, or [has several](Steer::split).
pub struct Steer {
    // Declared first, so that the program is detached before its maps go.
    hold: Option<Hold>,
    sockets: MapHandle,
    verdicts: MapHandle,
    plain: OwnedFd,
    /// Once it was asked for, and the kernel took it.
    translated: OnceCell<OwnedFd>,
    looks_up: bool,
    /// What is attached in its place if ports are VLANs.
    vlans: Option<Vlans>,
    /// The program in front of it at each port.
    fronts: Vec<Option<Front>>,
    /// What became of frames, if it routes or switches.
    outcomes: Option<MapHandle>,
    settings: Settings,
}

/// The parameters of the programs.
struct Settings {
    own: OwnAddress,
    multi_buffer: bool,
    seal: u32,
    watchdog: Watchdog,
    entry: Entry,
    has_coarse_clock: bool,
}

impl Settings {
    fn of(
        own: OwnAddress,
        multi_buffer: bool,
        seal: u32,
        watchdog: Watchdog,
        entry: Entry,
    ) -> Self {
        let has_coarse_clock = has_coarse_clock();
        Self { own, multi_buffer, seal, watchdog, entry, has_coarse_clock }
    }
}

/// Tells an open object the settings that both programs have. A macro, because each object's
/// skeleton has types of its own.
macro_rules! set_up {
    ($open:expr, $settings:expr) => {{
        let settings: &Settings = $settings;
        if let Some(rodata) = $open.maps.rodata_data.as_deref_mut() {
            rodata.own_mac = settings.own.mac;
            rodata.is_addressed = settings.own.is_addressed.into();
            rodata.bridge_mac = settings.own.bridge_mac;
            (rodata.own_ips, rodata.own_ips_count) = settings.own.ips.parts();
            rodata.stalled_after = settings.watchdog.after.0;
            rodata.stalled_action = settings.watchdog.stalled.action();
            rodata.has_coarse_clock = settings.has_coarse_clock.into();
        }
        $open.maps.heartbeats.reuse_fd(settings.watchdog.heartbeats.map())
    }};
}

/// Loads an object whose program chooses the port where a frame leaves, on the maps of `$shared`,
/// which the macro `$share` gives it.
macro_rules! load_choosing {
    (
        $builder:ty, $program:ident, $share:ident, $shared:expr, $port:expr, $settings:expr
    ) => {{
        let settings: Settings = $settings;
        let (multi_buffer, entry) = (settings.multi_buffer, settings.entry);
        let mut tries = Tries::new();
        let loaded = tries.explained(|storage| {
            let mut open = <$builder>::default().open(storage)?;
            if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                rodata.seal = settings.seal;
                rodata.multi_buffer = multi_buffer.into();
                rodata.arrives_at = $port.index() as u32;
            }
            set_up!(open, &settings)?;
            $share!(open, $shared);
            entry.set_up(&mut open.progs.$program, multi_buffer);
            open.load()
        });
        let loaded = loaded.map_err(SteerError::Load)?;
        let program = keep(&loaded.progs.$program).map_err(SteerError::Load)?;
        let outcomes = Some(handle("outcomes", &loaded.maps.outcomes)?);
        let steer = Self::of(settings, program, &loaded.maps.sockets, &loaded.maps.verdicts)?;
        Ok(Self { outcomes, ..steer })
    }};
}

/// The map `map` of an object.
fn handle(map: &'static str, from: &MapMut<'_>) -> Result<MapHandle, SteerError> {
    MapHandle::try_from(from).map_err(|source| SteerError::Map { map, source })
}

impl Steer {
    /// Loads the program for a device with the address `own`; `multi_buffer` if its frames may be
    /// in several buffers. `seal` marks its metadata about translations; it is not 0 and should be
    /// random. `watchdog` decides when and how it bypasses silent workers. `entry` is how it will
    /// be attached.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges or of a feature.
    pub fn load(
        own: impl Into<OwnAddress>,
        multi_buffer: bool,
        seal: u32,
        watchdog: Watchdog,
        entry: Entry,
    ) -> Result<Self, SteerError> {
        let settings = Settings::of(own.into(), multi_buffer, seal, watchdog, entry);
        let mut tries = Tries::new();
        let loaded = tries.explained(|storage| {
            let mut open = plain::SteerSkelBuilder::default().open(storage)?;
            set_up!(open, &settings)?;
            entry.set_up(&mut open.progs.steer, multi_buffer);
            open.load()
        });
        let loaded = loaded.map_err(SteerError::Load)?;
        let program = keep(&loaded.progs.steer).map_err(SteerError::Load)?;
        Self::of(settings, program, &loaded.maps.sockets, &loaded.maps.verdicts)
    }

    /// A loaded program, which neither routes nor switches.
    fn of(
        settings: Settings,
        program: OwnedFd,
        sockets: &MapMut<'_>,
        verdicts: &MapMut<'_>,
    ) -> Result<Self, SteerError> {
        Ok(Self {
            hold: None,
            sockets: handle("sockets", sockets)?,
            verdicts: handle("verdicts", verdicts)?,
            plain: program,
            translated: OnceCell::new(),
            looks_up: false,
            vlans: None,
            fronts: vec![None],
            outcomes: None,
            settings,
        })
    }

    /// Loads the program for a device with the address `own_mac` that is the port `port` of
    /// `router`. The other parameters are those of [`load`](Self::load).
    /// [`egress_port`](crate::egress_port) reads, with the same `seal`, through which port a frame
    /// leaves. The device has no VLANs that are ports.
    ///
    /// All frames that it routes are to the device's own address. Filters in front see them only if
    /// they are loaded for one that is not [addressed](OwnAddress::is_addressed), and then they see
    /// those for the box itself, too.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges or of a feature.
    pub fn load_router(
        own_mac: [u8; 6],
        multi_buffer: bool,
        seal: u32,
        watchdog: Watchdog,
        entry: Entry,
        router: &Router,
        port: PortId,
    ) -> Result<Self, SteerError> {
        let settings = Settings::of(own_mac.into(), multi_buffer, seal, watchdog, entry);
        macro_rules! load {
            ($builder:ty) => {
                load_choosing!($builder, steer_router, share_router, router, port, settings)
            };
        }
        match router.by() {
            RoutedBy::Routes => load!(routing::SteerRouterSkelBuilder),
            RoutedBy::Flows => load!(by_flows::SteerFlowSkelBuilder),
        }
    }

    /// Loads the program for a device that is the port `port` of `switch`, as
    /// [`load_router`](Self::load_router) does for one of a router. Frames that it forwards are to
    /// any address.
    ///
    /// # Errors
    /// If the kernel refuses it: for lack of privileges or of a feature.
    pub fn load_switch(
        own_mac: [u8; 6],
        multi_buffer: bool,
        seal: u32,
        watchdog: Watchdog,
        entry: Entry,
        switch: &Switch,
        port: PortId,
    ) -> Result<Self, SteerError> {
        let settings = Settings::of(own_mac.into(), multi_buffer, seal, watchdog, entry);
        load_choosing!(
            switching::SteerSwitchSkelBuilder,
            steer_switch,
            share_switch,
            switch,
            port,
            settings
        )
    }

    /// Gives the device a port for each of `tags`, in the place of one for all frames, before it is
    /// attached. A port's *place* is its number among them. Frames of none of them go to the
    /// kernel.
    ///
    /// # Errors
    /// If the kernel does not load the program that tells VLANs apart.
    pub fn split(&mut self, tags: &[Tag]) -> Result<(), SteerError> {
        let Settings { multi_buffer, entry, .. } = self.settings;
        let vlans = Vlans::load(tags, multi_buffer, entry, None).map_err(SteerError::Vlans)?;
        let program = self.program().as_fd();
        for place in 0..tags.len() {
            vlans.lead_to(place, program).map_err(SteerError::Replace)?;
        }
        self.vlans = Some(vlans);
        self.fronts = tags.iter().map(|_| None).collect();
        Ok(())
    }

    /// Loads the program that looks up translations, on the maps of the plain one.
    fn load_translated(&self) -> Result<OwnedFd, LoadError> {
        let Settings { multi_buffer, seal, entry, .. } = self.settings;
        let mut tries = Tries::new();
        let loaded = tries.explained(|storage| {
            let mut open = translated::SteerTranslatedSkelBuilder::default().open(storage)?;
            if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
                rodata.seal = seal;
            }
            set_up!(open, &self.settings)?;
            entry.set_up(&mut open.progs.steer_translated, multi_buffer);
            open.maps.sockets.reuse_fd(self.sockets.as_fd())?;
            open.maps.verdicts.reuse_fd(self.verdicts.as_fd())?;
            open.load()
        })?;
        keep(&loaded.progs.steer_translated)
    }

    /// Sends the frames of `queue` to `socket`, which is bound to it.
    ///
    /// # Errors
    /// If the kernel does not take the socket.
    pub fn serve(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        let fd = socket.as_raw_fd() as u32;
        self.sockets
            .update(&queue.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| SteerError::Map { map: "sockets", source })
    }

    /// Attaches the program to `ifindex`. Until this handle is dropped, or the process ends,
    /// it decides about the frames that arrive there.
    ///
    /// # Errors
    /// If the kernel refuses: no XDP in the driver, an MTU too large for it, another program
    /// attached.
    pub fn attach(&mut self, ifindex: u32, mode: XdpMode) -> Result<(), SteerError> {
        self.hold = Some(Hold::Link(attach(self.attached(), ifindex, Hook::Xdp(mode))?));
        Ok(())
    }

    /// Takes over where another process's program is attached, or none behind a gate: replaces it,
    /// so that each frame passes one of them, and keeps `hold`, a link or the array of a gate, from
    /// then on.
    ///
    /// # Errors
    /// If the kernel refuses; the other program stays then.
    pub fn take_over(&mut self, hold: OwnedFd) -> Result<(), SteerError> {
        let hold = self.settings.entry.hold(hold);
        hold.replace(self.attached()).map_err(SteerError::Replace)?;
        self.hold = Some(hold);
        Ok(())
    }

    /// What it is attached by, to be passed on to another process.
    pub fn hold(&self) -> Option<BorrowedFd<'_>> {
        self.hold.as_ref().map(AsFd::as_fd)
    }

    /// How it is attached.
    pub fn entry(&self) -> Entry {
        self.settings.entry
    }

    /// Whether the kernel now has a look-up for addresses before translation. A module may add it
    /// later, so ask again. A router and a switch look up none.
    ///
    /// # Errors
    /// Why it cannot.
    pub fn can_look_up(&self) -> Result<(), SteerError> {
        match self.outcomes {
            Some(_) => Err(SteerError::Chooses),
            None => self.translated().map(drop).map_err(SteerError::NoLookUp),
        }
    }

    /// Turns the look-up of each frame's addresses before translation on or off;
    /// [`translation`](crate::translation) reads the results.
    ///
    /// # Errors
    /// If the kernel offers no look-up, as of now ([`SteerError::NoLookUp`]), if it routes, or if
    /// the attached program cannot be replaced; all is as it was then.
    pub fn look_up(&mut self, wanted: bool) -> Result<(), SteerError> {
        if wanted == self.looks_up {
            return Ok(());
        }
        if self.outcomes.is_some() {
            return Err(SteerError::Chooses);
        }
        let program = match wanted {
            true => self.translated().map_err(SteerError::NoLookUp)?,
            false => &self.plain,
        };
        for place in 0..self.fronts.len() {
            if let Err(error) = self.lead_behind_front(place, program.as_fd()) {
                for place in 0..place {
                    // It was there just now.
                    let _ = self.lead_behind_front(place, self.program().as_fd());
                }
                return Err(error);
            }
        }
        self.looks_up = wanted;
        Ok(())
    }

    /// Replaces the program in front of it by `front`, or removes it, for frames of the port at
    /// `place`: 0 for a device that is one. Each frame passes the old or the new one.
    ///
    /// # Errors
    /// If the kernel refuses; all is as it was then.
    ///
    /// # Panics
    /// If the device has no such port.
    pub fn put_in_front(&mut self, place: usize, front: Option<Front>) -> Result<(), SteerError> {
        let program = self.program().as_fd();
        if let Some(front) = &front {
            front.lead_to(program).map_err(SteerError::Front)?;
        }
        self.lead(place, front.as_ref().map_or(program, Front::program))?;
        self.fronts[place] = front;
        Ok(())
    }

    /// Makes `program` the steering program for frames of the port at `place`, behind its filters.
    fn lead_behind_front(&self, place: usize, program: BorrowedFd<'_>) -> Result<(), SteerError> {
        match &self.fronts[place] {
            Some(front) => front.lead_to(program).map_err(SteerError::Front),
            None => self.lead(place, program),
        }
    }

    /// Makes `program` the first for frames of the port at `place`.
    fn lead(&self, place: usize, program: BorrowedFd<'_>) -> Result<(), SteerError> {
        let led = match (&self.vlans, &self.hold) {
            (Some(vlans), _) => vlans.lead_to(place, program),
            (None, Some(hold)) => hold.replace(program),
            (None, None) => Ok(()),
        };
        led.map_err(SteerError::Replace)
    }

    /// The program that sees a frame first.
    fn attached(&self) -> BorrowedFd<'_> {
        match (&self.vlans, &self.fronts[..]) {
            (Some(vlans), _) => vlans.program(),
            (None, [Some(front), ..]) => front.program(),
            (None, _) => self.program().as_fd(),
        }
    }

    /// The program that sees a frame first, for test runs.
    #[cfg(test)]
    pub(crate) fn first(&self) -> BorrowedFd<'_> {
        self.attached()
    }

    /// The program that looks up, loaded when it is first asked for.
    fn translated(&self) -> Result<&OwnedFd, LoadError> {
        match self.translated.get() {
            Some(program) => Ok(program),
            None => {
                let program = self.load_translated()?;
                Ok(self.translated.get_or_init(|| program))
            }
        }
    }

    /// The program that decides now.
    fn program(&self) -> &OwnedFd {
        self.translated.get().filter(|_| self.looks_up).unwrap_or(&self.plain)
    }

    /// Takes the program off the interface; frames take the kernel's path from here on. The
    /// counters stay readable.
    pub fn detach(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.release();
        }
    }

    /// The frames that went to the kernel because they are of none of the VLANs that are ports.
    pub fn others(&self) -> u64 {
        self.vlans.as_ref().map_or(0, Vlans::others)
    }

    /// What became of frames so far; nothing on a wire or a stick.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn outcomes(&self) -> Result<OutcomeCounters, SteerError> {
        let read =
            self.outcomes.as_ref().map_or(Ok(OutcomeCounters::default()), OutcomeCounters::read);
        read.map_err(|source| SteerError::Map { map: "outcomes", source })
    }

    /// The verdicts on frames so far, of all its ports.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn verdicts(&self) -> Result<Verdicts, SteerError> {
        let sum = |verdict: u32| {
            let sums = sums_in(&self.verdicts, verdict);
            sums.map_err(|source| SteerError::Map { map: "verdicts", source })
        };
        let [[to_worker], [to_self], [unserved], [stalled]] = [sum(0)?, sum(1)?, sum(2)?, sum(3)?];
        Ok(Verdicts { to_worker, to_self, unserved, stalled, others: self.others() })
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;
