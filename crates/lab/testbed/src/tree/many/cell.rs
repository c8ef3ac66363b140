//! One turn: one system in its place, all classes overloaded.

use super::subscribers::Subscribers;
use crate::Testbed;
use crate::accounting::{Books, Devices};
use crate::bed::{CLIENT, PORT_B, tc_batch};
use crate::bridge::Bridge;
use crate::cpu::{self, MachineTime};
use crate::flood::{self, Flood, Pace};
use crate::narrows::Instance;
use anyhow::Result;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a load runs before it is measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// How much longer than its measurement a load may last.
const SPARE: Duration = Duration::from_secs(5);
/// Frames of a worker beside those that wait in the tree: the program's default.
const FRAMES: u64 = 16_384;
/// The most that a worker may have.
const FRAMES_MAX: u64 = 1 << 20;

/// The system between the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// Nothing: the shaper's kernel drops every frame on arrival.
    SendersAlone,
    /// The kernel's bridge.
    Bridge,
    /// The kernel's bridge, with its HTB at the exit.
    Kernel,
    /// Narrows, with ours.
    Narrows,
}

impl System {
    /// Those that take turns.
    pub(super) const TURNS: [Self; 3] = [Self::SendersAlone, Self::Kernel, Self::Narrows];

    /// Its name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SendersAlone => "senders-alone",
            Self::Bridge => "bridge",
            Self::Kernel => "bridge-htb",
            Self::Narrows => "narrows-htb",
        }
    }
}

/// Where a turn is, and how long.
#[derive(Clone, Copy)]
pub(super) struct Turn<'a> {
    pub(super) bed: &'a Testbed,
    pub(super) program: &'a Path,
    pub(super) window: Duration,
    /// Threads that send.
    pub(super) senders: usize,
}

/// The results of one turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// What the senders passed to their device.
    pub(super) offered_per_second: f64,
    /// Received by the server's device.
    pub(super) delivered_per_second: f64,
    /// Seconds in a second that all cores together were not idle.
    pub(super) machine_cores: f64,
}

impl Sample {
    /// In short.
    pub(super) fn shown(&self) -> String {
        let Self { offered_per_second, delivered_per_second, machine_cores } = self;
        format!(
            "{delivered_per_second:.0} of {offered_per_second:.0} packets a second arrived, \
             {machine_cores:.2} cores were busy"
        )
    }
}

/// A system in its place; taken out again when dropped.
pub(super) struct Running<'a> {
    turn: Turn<'a>,
    _instance: Option<Instance>,
    _bridge: Option<Bridge<'a>>,
}

impl<'a> Running<'a> {
    /// Puts `system` between the ports, with the tree of `subscribers` at the exit if it has one.
    pub(super) fn start(turn: Turn<'a>, system: System, subscribers: &Subscribers) -> Result<Self> {
        let bed = turn.bed;
        let (mut instance, mut bridge) = (None, None);
        match system {
            System::SendersAlone => {}
            System::Bridge => bridge = Some(Bridge::over(bed)?),
            System::Kernel => {
                bridge = Some(Bridge::over(bed)?);
                tc_batch(bed.shaper(), &subscribers.tree(PORT_B, 1))?;
                tc_batch(bed.shaper(), &subscribers.hashed_filters(PORT_B))?;
            }
            System::Narrows => {
                let queues = u64::from(bed.queues());
                // Half of the frames are for each direction.
                let frames = (FRAMES + 2 * subscribers.waiting(queues)).min(FRAMES_MAX).to_string();
                let arguments = ["--fail-closed", "--frames", &frames];
                let started = Instance::start(bed, turn.program, &arguments)?;
                started.tc_batch(&subscribers.tree(PORT_B, queues))?;
                started.tc_batch(&subscribers.filters(PORT_B))?;
                instance = Some(started);
            }
        }
        Ok(Self { turn, _instance: instance, _bridge: bridge })
    }

    /// Offers `wanted` packets a second, all classes the same, or all that the senders can send.
    pub(super) fn measure(&self, subscribers: &Subscribers, wanted: Option<f64>) -> Result<Sample> {
        let Turn { bed, window, senders, .. } = self.turn;
        let of_each = |per_second| Pace::Packets(per_second / senders as f64);
        let pace = wanted.map_or(Pace::FlatOut, of_each);
        let mut books = Books::open(bed)?;
        let mut floods: Vec<flood::Running> = Vec::new();
        for frames in subscribers.frames(senders)? {
            let flood = Flood { frames, pace, limit: WARM_UP + window + SPARE, core: None };
            floods.push(flood.start_with_room(bed.client(), CLIENT, subscribers.room())?);
        }
        thread::sleep(WARM_UP);
        let start = Look::take(&mut books)?;
        thread::sleep(window);
        let end = Look::take(&mut books)?;
        for flood in floods {
            flood.stop()?;
        }
        books.settle()?;
        Ok(sample(&start, &end, cpu::online()?))
    }
}

/// The readings at both ends of the window.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    machine: MachineTime,
    devices: Devices,
}

impl Look {
    fn take(books: &mut Books) -> Result<Self> {
        Ok(Self { at: Instant::now(), machine: MachineTime::now()?, devices: books.read()? })
    }
}

fn sample(start: &Look, end: &Look, cores: usize) -> Sample {
    let seconds = (end.at - start.at).as_secs_f64();
    let [from, to] = [start.devices, end.devices];
    let offered = to.client - from.client;
    let idle = end.machine.idle.saturating_sub(start.machine.idle).as_secs_f64();
    Sample {
        offered_per_second: (offered.tx_packets + offered.tx_dropped) as f64 / seconds,
        delivered_per_second: (to.server - from.server).rx_packets as f64 / seconds,
        machine_cores: (cores as f64 - idle / seconds).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counts;

    #[test]
    fn a_sample_is_of_the_time_between_two_looks() {
        let look = |at: Instant, idle: u64, sent: u64, received: u64| Look {
            at,
            machine: MachineTime { idle: Duration::from_millis(idle), switches: 0 },
            devices: Devices {
                client: Counts { tx_packets: sent, tx_dropped: sent / 10, ..Counts::default() },
                server: Counts { rx_packets: received, ..Counts::default() },
                ..Devices::default()
            },
        };
        let now = Instant::now();
        let start = look(now, 100, 1000, 500);
        let end = look(now + Duration::from_secs(2), 600, 21_000, 9500);
        let sample = sample(&start, &end, 2);
        assert_eq!(sample.offered_per_second, 11_000.0);
        assert_eq!(sample.delivered_per_second, 4500.0);
        assert_eq!(sample.machine_cores, 1.75);
    }
}
