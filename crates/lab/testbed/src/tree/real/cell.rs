//! One turn: one system in its place, its classes' rates and its costs.

use super::super::arrivals::Receiver;
use super::super::load::{self, Load};
use super::super::provider::{self, Node};
use super::super::share::{self, Share};
use super::{COMPARED, LOADED};
use crate::Testbed;
use crate::accounting::{Books, Devices};
use crate::bed::{PORT_B, QUEUES, tc};
use crate::bridge::Bridge;
use crate::cpu::{self, MachineTime};
use crate::narrows::Instance;
use anyhow::Result;
use narrows_coordination::TreeStrategy;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a load runs before its costs are measured.
const WARM_UP: Duration = Duration::from_millis(500);
/// How much longer than its measurement a load may last.
const SPARE: Duration = Duration::from_secs(5);

/// The system between the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    /// Nothing: the shaper's kernel drops every frame on arrival.
    SenderAlone,
    /// The kernel's bridge, with its HTB at the exit.
    Kernel,
    /// Narrows, with ours.
    Narrows,
    /// Narrows, with FlowValve's rules.
    FlowValve,
}

impl System {
    /// All of them, in the order of a round.
    pub(super) const ALL: [Self; 4] =
        [Self::SenderAlone, Self::Kernel, Self::Narrows, Self::FlowValve];
    /// Those that shape.
    pub(super) const SHAPERS: [Self; 3] = [Self::Kernel, Self::Narrows, Self::FlowValve];

    /// Its name in tables and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SenderAlone => "sender-alone",
            Self::Kernel => "bridge-htb",
            Self::Narrows => "narrows-htb",
            Self::FlowValve => "narrows-flowvalve",
        }
    }

    /// How its tree is kept.
    const fn strategy(self) -> TreeStrategy {
        match self {
            Self::FlowValve => TreeStrategy::FlowValve,
            Self::SenderAlone | Self::Kernel | Self::Narrows => TreeStrategy::Fair,
        }
    }
}

/// The results of one turn.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    /// The shares of each class, by phase; none for the sender alone.
    pub(super) shares: Vec<Vec<Share>>,
    pub(super) cost: Spent,
}

/// The cost of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) offered_per_second: f64,
    /// Taken in by the shaper.
    pub(super) taken_per_second: f64,
    /// Seconds in a second that the threads ran for which the traffic keeps busy.
    pub(super) threads_cores: f64,
    /// Seconds in a second that all cores together were not idle.
    pub(super) machine_cores: f64,
}

/// A system in its place; taken out again when dropped.
pub(super) struct Running<'a> {
    bed: &'a Testbed,
    system: System,
    instance: Option<Instance>,
    _bridge: Option<Bridge<'a>>,
}

impl<'a> Running<'a> {
    /// Puts `system` between the ports of `bed`, with the tree of `nodes` at the exit.
    pub(super) fn start(
        bed: &'a Testbed,
        system: System,
        program: &Path,
        nodes: &[Node],
    ) -> Result<Self> {
        let (mut instance, mut bridge) = (None, None);
        match system {
            System::SenderAlone => {}
            System::Kernel => {
                bridge = Some(Bridge::over(bed)?);
                for line in provider::commands(nodes, PORT_B, 1) {
                    tc(bed.shaper(), &line)?;
                }
            }
            System::Narrows | System::FlowValve => {
                let started = Instance::start(bed, program, &["--fail-closed"])?;
                let strategy = system.strategy();
                for line in provider::commands_by(strategy, nodes, PORT_B, QUEUES.into()) {
                    started.tc(&line)?;
                }
                instance = Some(started);
            }
        }
        Ok(Self { bed, system, instance, _bridge: bridge })
    }

    /// Measures rates in phases of `window`, and costs for as long.
    pub(super) fn measure(&self, nodes: &[Node], window: Duration) -> Result<Sample> {
        let shares = match self.system {
            System::SenderAlone => Vec::new(),
            System::Kernel | System::Narrows | System::FlowValve => self.shares(nodes, window)?,
        };
        Ok(Sample { shares, cost: self.cost(window)? })
    }

    fn shares(&self, nodes: &[Node], window: Duration) -> Result<Vec<Vec<Share>>> {
        let mut books = Books::open(self.bed)?;
        let receiver = Receiver::start(self.bed)?;
        let load = Load { phases: COMPARED.to_vec(), length: window };
        let total = load.total();
        let sender = load.start(self.bed)?;
        thread::sleep(total);
        let sent = sender.stop()?;
        books.settle()?;
        let arrived = receiver.stop()?;
        let of_phase = |phase| share::shares(nodes, phase, window, &sent, &arrived);
        Ok(COMPARED.iter().enumerate().map(of_phase).collect())
    }

    fn cost(&self, window: Duration) -> Result<Spent> {
        let mut books = Books::open(self.bed)?;
        let load = Load { phases: vec![LOADED], length: WARM_UP + window + SPARE };
        let sender = load.start(self.bed)?;
        thread::sleep(WARM_UP);
        let start = self.look(&mut books, &sender)?;
        thread::sleep(window);
        let end = self.look(&mut books, &sender)?;
        sender.stop()?;
        books.settle()?;
        Ok(spent(&start, &end))
    }

    fn look(&self, books: &mut Books, sender: &load::Running) -> Result<Look> {
        let (at, machine) = (Instant::now(), MachineTime::now()?);
        let mut threads = sender.cpu()?;
        if let Some(instance) = &self.instance {
            threads += instance.cpu()?;
        }
        for thread in cpu::softirq_threads() {
            threads += cpu::of_process(thread)?;
        }
        Ok(Look { at, machine, threads, devices: books.read()? })
    }
}

/// The readings at both ends of the window.
struct Look {
    at: Instant,
    machine: MachineTime,
    threads: Duration,
    devices: Devices,
}

fn spent(start: &Look, end: &Look) -> Spent {
    let seconds = (end.at - start.at).as_secs_f64();
    let offered = |look: &Look| look.devices.client.tx_packets + look.devices.client.tx_dropped;
    let taken = |look: &Look| look.devices.client.tx_packets - look.devices.port_a.rx_dropped;
    let idle = end.machine.idle.saturating_sub(start.machine.idle).as_secs_f64();
    let cores = cpu::online().unwrap_or_else(|_| cpu::cores());
    Spent {
        offered_per_second: (offered(end) - offered(start)) as f64 / seconds,
        taken_per_second: taken(end).saturating_sub(taken(start)) as f64 / seconds,
        threads_cores: end.threads.saturating_sub(start.threads).as_secs_f64() / seconds,
        machine_cores: (cores as f64 - idle / seconds).max(0.0),
    }
}
