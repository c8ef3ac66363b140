//! What is sent, and by what.

use super::system::System;
use crate::Testbed;
use crate::bed::{CLIENT, PORT_A, SERVER, SINK_MAC};
use crate::cpu;
use crate::flood::{self, Flood, Pace};
use crate::frames;
use crate::narrows::Instance;
use crate::receiving::Threaded;
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// A load that every system carries on one core, in packets per second.
const FIXED: f64 = 100_000.0;

/// How much is sent.
///
/// Loads that are [received on another core](Self::is_received_elsewhere) are only for what
/// forwards where it receives: workers would need a third core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Load {
    /// All that one core can send through a packet socket.
    Saturated,
    /// [`FIXED`], through a packet socket.
    Fixed,
    /// As [`Self::Saturated`], but received on another core, so always more than is taken.
    OtherCore,
    /// As [`Self::OtherCore`], sent as a NIC's driver has it.
    FromDriver,
}

impl Load {
    /// All, in the order in which they are measured.
    pub const ALL: [Self; 4] = [Self::Saturated, Self::Fixed, Self::OtherCore, Self::FromDriver];

    /// Its name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Saturated => "saturated",
            Self::Fixed => "fixed",
            Self::OtherCore => "other-core",
            Self::FromDriver => "from-driver",
        }
    }

    /// The target rate in packets per second, if it is fixed.
    pub(super) const fn promised(self) -> Option<f64> {
        match self {
            Self::Fixed => Some(FIXED),
            Self::Saturated | Self::OtherCore | Self::FromDriver => None,
        }
    }

    /// Whether the forwarder's device receives on another core than the sender's. Then the sender
    /// stands for the wire: it always takes all of its core, and its time is not in the machine's.
    pub(super) const fn is_received_elsewhere(self) -> bool {
        matches!(self, Self::OtherCore | Self::FromDriver)
    }

    /// Whether it is measured with `system`.
    pub(super) const fn suits(self, system: System) -> bool {
        !(self.is_received_elsewhere() && system.has_threads())
    }
}

/// Where a load is sent from.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) bed: &'a Testbed,
    pub(super) program: &'a Path,
    /// The source ports of a packet socket's flows; a driver sends one flow.
    pub(super) ports: &'a [u16],
    pub(super) forwarders_core: usize,
    pub(super) senders_core: usize,
}

impl<'a> Place<'a> {
    /// Prepares the ends for `load`.
    pub(super) fn prepare(self, load: Load) -> Result<Ends<'a>> {
        let Self { bed, program, forwarders_core, .. } = self;
        let mut ends = Ends { place: self, load, receives: None, drain: None };
        if load.is_received_elsewhere() {
            let receives = Threaded::start(bed.shaper(), PORT_A, bed.queues(), &[forwarders_core])?;
            ends.receives = Some(receives);
        }
        if load == Load::FromDriver {
            let drain = ["bench", "drain", SERVER];
            ends.drain = Some(Instance::start_in(bed.server(), program, &drain)?);
        }
        Ok(ends)
    }
}

/// Where frames start and end; as they were before when dropped.
pub(super) struct Ends<'a> {
    place: Place<'a>,
    load: Load,
    receives: Option<Threaded<'a>>,
    /// What drops frames at the server.
    drain: Option<Instance>,
}

/// What sends. Ends when dropped.
pub(super) enum Sender {
    Socket(flood::Running),
    Driver(#[expect(dead_code, reason = "it runs for as long as it is here")] Instance),
}

impl Ends<'_> {
    /// Starts to send frames of this length, for at most `limit`.
    pub(super) fn send(&self, frame_bytes: usize, limit: Duration) -> Result<Sender> {
        let Place { bed, program, ports, senders_core, .. } = self.place;
        if self.drain.is_some() {
            let [bytes, core] = [frame_bytes, senders_core].map(|number| number.to_string());
            let sends = ["bench", "live-frames", CLIENT, &bytes, &core];
            return Ok(Sender::Driver(Instance::start_in(bed.client(), program, &sends)?));
        }
        let frames = frames::udp_flows(ports, SINK_MAC, frame_bytes)?;
        let pace = self.load.promised().map_or(Pace::FlatOut, Pace::Packets);
        let flood = Flood { frames, pace, limit, core: Some(senders_core) };
        Ok(Sender::Socket(flood.start(bed.client(), CLIENT)?))
    }

    /// The time of all threads that `sender` keeps busy, without the forwarder's own, and without
    /// its own where it stands for the wire.
    pub(super) fn cpu(&self, sender: &Sender) -> Result<Duration> {
        let mut time = match sender {
            Sender::Socket(flood) if !self.load.is_received_elsewhere() => flood.cpu()?,
            Sender::Socket(_) | Sender::Driver(_) => Duration::ZERO,
        };
        if let Some(receives) = &self.receives {
            time += receives.cpu()?;
        }
        for thread in cpu::softirq_threads() {
            time += cpu::of_process(thread)?;
        }
        Ok(time)
    }
}
