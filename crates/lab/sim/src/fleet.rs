//! Boxes that share one limit: the agents' own code in virtual time.
//!
//! *Idea.* What a fleet promises is a statement about all its boxes at one moment. Here is the
//! place that sees them all: [`narrows_fleet_world`] runs the agents over a network with delays and
//! losses, with clocks that disagree, and adds up what is in force whenever something changes.
//!
//! *Beside it* stands the peer that needs no agents: each box has its part of the limit, always.
//!
//! *Source.* The limit of a group is that of Raghavan et al., "Cloud Control with Distributed Rate
//! Limiting" (SIGCOMM 2007); the algorithm is `narrows_lending`'s.
//!
//! *Non-goals.* Packets, TCP (the tests end to end have both), the transport.

use narrows_coordination::jain;
use narrows_fleet_world::{Fault, Network, Place, Settings, World};
use narrows_units::{Nanos, Rate};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The limit's name in all boxes.
const NAME: &str = "limit";

/// How near a share has to be to count as there, in percent.
const THERE_PERCENT: u64 = 98;

/// How the demand of boxes changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// One box demands four fifths of the limit, the others a fifth together; every `every`
    /// another box is the first.
    Moves {
        /// How often.
        every: Nanos,
    },
    /// All boxes but one demand the whole limit. The idle one wakes every `every`, and is idle for
    /// half of it.
    Wakes {
        /// How often.
        every: Nanos,
    },
    /// All boxes demand the whole limit, each by as many flows as [`Case::flows`] says. Every
    /// `every` the flows of each box move to the next one.
    Flows {
        /// How often.
        every: Nanos,
    },
    /// All demands are drawn anew every `every`: none, or up to twice the limit.
    Redraws {
        /// How often.
        every: Nanos,
    },
}

/// A case.
#[derive(Clone, PartialEq, Debug)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// How many boxes.
    pub boxes: usize,
    /// The network between them.
    pub network: Network,
    /// What they demand.
    pub load: Load,
    /// The flows of each box, where the load is of flows.
    pub flows: Vec<u32>,
    /// Whether the boxes' qdiscs count flows.
    pub counts_flows: bool,
    /// How many agents are killed, hang, or are cut off, and data planes start again, in a history.
    pub faults: u32,
    /// How many histories, each with a seed of its own.
    pub histories: u32,
}

/// A scenario's parameters.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// The limit of all boxes together.
    pub limit: Rate,
    /// The interval of turns.
    pub interval: Nanos,
    /// The lease.
    pub lease: Nanos,
    /// What passes before counts for the sum only.
    pub settle: Nanos,
    /// The length of a history.
    pub length: Nanos,
    /// How fast or slow clocks run at most, in parts of a million.
    pub drift_ppm: u32,
    /// The seed.
    pub seed: u64,
    /// The cases.
    pub cases: Vec<Case>,
}

/// The result of a case, over all its histories.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Row {
    /// By how much the sum of what was in force exceeded the limit at most.
    pub excess_bps: u64,
    /// The part of what could have passed that did.
    pub used: f64,
    /// The part of what could have passed that did, in the worst history.
    pub used_worst: f64,
    /// The part that passes if each box always has its part of the limit.
    pub divided: f64,
    /// How long a box that wakes waited for its share, in ms, the shortest first.
    pub waits_ms: Vec<u64>,
    /// Jain's index of all flows between two moves, the mean over the time, and the least.
    pub jain: Option<[f64; 2]>,
    /// Messages that a box received in a second.
    pub messages_s: f64,
    /// Their bits, in Mbit/s.
    pub mbit_s: f64,
}

/// Runs a case. Reports the finished part to `tell`.
pub fn run(setup: &Setup, case: &Case, tell: &mut dyn FnMut(f64)) -> Row {
    let mut row = Row { used_worst: 1.0, ..Row::default() };
    for history in 0..case.histories {
        let seed = setup.seed.wrapping_add(u64::from(history) << 32);
        one(setup, case, seed, &mut row);
        tell(f64::from(history + 1) / f64::from(case.histories));
    }
    let histories = f64::from(case.histories.max(1));
    for sum in [&mut row.used, &mut row.divided, &mut row.messages_s, &mut row.mbit_s] {
        *sum /= histories;
    }
    if let Some([mean, _]) = &mut row.jain {
        *mean /= histories;
    }
    row.waits_ms.sort_unstable();
    row
}

fn one(setup: &Setup, case: &Case, seed: u64, row: &mut Row) {
    let limit_bps = setup.limit.bits_per_sec();
    let mut world = World::new(
        Settings {
            boxes: case.boxes,
            interval_ns: setup.interval.0,
            lease_ns: setup.lease.0,
            network: case.network,
            order_ns: 1_000_000,
            drift_ppm: setup.drift_ppm,
            seed,
        },
        |_| {
            let safe_bps = limit_bps / case.boxes as u64;
            vec![Place { name: NAME.into(), limit_bps, safe_bps, rejoins: false }]
        },
    );
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ 1);
    for _ in 0..case.faults {
        let at = random.random_range(setup.settle.0..setup.length.0);
        let id = random.random_range(0..case.boxes);
        let long = random.random_range(0..3 * setup.lease.0);
        let fault = match random.random_range(0..5) {
            0 => Fault::KillAgent { at: id, back_ns: Some(long) },
            1 => Fault::StallAgent { at: id, for_ns: long },
            2 => Fault::RestartDataPlane(id),
            _ => {
                world.fault(at + long, Fault::Cut(0));
                Fault::Cut(random.random_range(0..1_u64 << case.boxes.min(63)))
            }
        };
        world.fault(at, fault);
    }
    match case.load {
        Load::Moves { every } => moves(&mut world, setup, case, every),
        Load::Flows { every } => {
            let [mean, least] = flows(&mut world, setup, case, every);
            let [sum, worst] = row.jain.unwrap_or([0.0, 1.0]);
            row.jain = Some([sum + mean, worst.min(least)]);
        }
        Load::Redraws { every } => redraws(&mut world, setup, case, every, &mut random),
        Load::Wakes { every } => wakes(&mut world, setup, case, every, &mut row.waits_ms),
    }
    let outcome = world.outcome();
    row.excess_bps = row.excess_bps.max(outcome.worst_excess_bps());
    row.used += outcome.used;
    row.used_worst = row.used_worst.min(outcome.used);
    row.divided += outcome.divided;
    let seconds = (setup.length.0 - setup.settle.0) as f64 / 1e9 * case.boxes as f64;
    row.messages_s += outcome.messages as f64 / seconds;
    row.mbit_s += outcome.message_bytes as f64 * 8.0 / 1e6 / seconds;
}

/// Runs until the end, and counts what passes from `settle` on.
fn measure(world: &mut World, setup: &Setup) {
    world.run(setup.settle.0);
    world.begin_measurement();
    world.run(setup.length.0);
}

fn moves(world: &mut World, setup: &Setup, case: &Case, every: Nanos) {
    let limit_bps = setup.limit.bits_per_sec();
    for (turn, at) in (0..setup.length.0).step_by(every.0 as usize).enumerate() {
        for id in 0..case.boxes {
            let demand_bps = if turn % case.boxes == id {
                limit_bps / 5 * 4
            } else {
                limit_bps / 5 / (case.boxes as u64 - 1)
            };
            world.demand(at, id, NAME, demand_bps);
        }
    }
    measure(world, setup);
}

/// Returns the mean and the least of Jain's index between two moves.
fn flows(world: &mut World, setup: &Setup, case: &Case, every: Nanos) -> [f64; 2] {
    let of_box = |turn: usize, id: usize| case.flows[(id + turn) % case.boxes];
    for id in 0..case.boxes {
        world.demand(0, id, NAME, setup.limit.bits_per_sec());
    }
    for (turn, at) in (0..setup.length.0).step_by(every.0 as usize).enumerate() {
        for id in 0..case.boxes {
            world.flows(at, id, NAME, case.counts_flows.then(|| of_box(turn, id)));
        }
    }
    let (mut sum, mut least, mut turns) = (0.0, 1.0_f64, 0_u32);
    for (turn, at) in (0..setup.length.0).step_by(every.0 as usize).enumerate() {
        if at < setup.settle.0 {
            continue;
        }
        world.run(at);
        if turns == 0 {
            world.begin_measurement();
        }
        let before: Vec<u64> = (0..case.boxes).map(|id| world.sent_bytes(id, NAME)).collect();
        world.run((at + every.0).min(setup.length.0));
        let mut rates = Vec::new();
        for (id, before) in before.into_iter().enumerate() {
            let sent = (world.sent_bytes(id, NAME) - before) as f64;
            let count = of_box(turn, id);
            rates.extend((0..count).map(|_| sent / f64::from(count)));
        }
        let fair = jain(&rates);
        (sum, least, turns) = (sum + fair, least.min(fair), turns + 1);
    }
    world.run(setup.length.0);
    [sum / f64::from(turns.max(1)), least]
}

fn redraws(world: &mut World, setup: &Setup, case: &Case, every: Nanos, random: &mut Pcg64Mcg) {
    let limit_bps = setup.limit.bits_per_sec();
    for at in (0..setup.length.0).step_by(every.0 as usize) {
        for id in 0..case.boxes {
            let is_idle = random.random_bool(0.5);
            let demand_bps = if is_idle { 0 } else { random.random_range(0..2 * limit_bps) };
            world.demand(at, id, NAME, demand_bps);
        }
    }
    measure(world, setup);
}

fn wakes(world: &mut World, setup: &Setup, case: &Case, every: Nanos, waits_ms: &mut Vec<u64>) {
    let limit_bps = setup.limit.bits_per_sec();
    let sleeper = case.boxes - 1;
    for id in 0..sleeper {
        world.demand(0, id, NAME, limit_bps);
    }
    world.run(setup.settle.0);
    world.begin_measurement();
    let share_bps = limit_bps / case.boxes as u64 / 100 * THERE_PERCENT;
    let mut begin = setup.settle.0;
    // Not at the same moment of an interval each time.
    while begin + every.0 <= setup.length.0 {
        world.demand(begin, sleeper, NAME, limit_bps);
        let mut waited_ms = 0;
        while world.in_force_bps(sleeper, NAME) < share_bps && waited_ms < every.0 / 2_000_000 {
            waited_ms += 1;
            world.run(begin + waited_ms * 1_000_000);
        }
        waits_ms.push(waited_ms);
        world.demand(begin + every.0 / 2, sleeper, NAME, 0);
        world.run(begin + every.0);
        begin += every.0 + 7_000_000;
    }
    world.run(setup.length.0);
}
