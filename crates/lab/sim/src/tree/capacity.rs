//! How many packets per second cores can decide about together.
//!
//! All cores send for all applications as fast as they can: each takes a batch for one, asks the
//! tree, and goes on to the next. The decisions are those of the tree's own meters; their time
//! follows from the accesses to cache lines that other cores write, and from the cost model
//! ([`Costs`]): a core must fetch a line that another has written, and only one at a time can
//! update it. FlowValve asks for each packet, `lock` likewise and with the lock for as long as it
//! takes, which has to be handed over where another core waits for it, and `fair` once for a batch,
//! for which it prefetches the lines of all classes of the path at once. The XDP plane's program is
//! asked for each packet, and buys from classes when its CPU has used up its credit: three updates
//! at the leaf and one at each class above it. The program of departure times books each packet, or
//! super-packet. At the leaf it updates what came and what is assured, the calendar, the time in
//! which its flow is busy, and what departs early, which are lines of their own; and the calendar
//! of each class above it.
//!
//! *Non-goals.* A network processor, whose memory updates counters in hardware; receiving and
//! sending, except for the cost of a packet in user space.

use super::departs::Departs;
use super::driver::Driver;
use super::gate::{lay_out, meters};
use super::setup::{Keeper, Scheduler};
use crate::setup::Costs;
use narrows_coordination::TreeStrategy;
use narrows_policy::Plan;
use narrows_qdisc::htb::ClassMeter;
use narrows_units::{Bytes, Nanos, Rate};
use std::collections::BTreeMap;

/// When runs begin: shared clocks count from some time before that.
const BEGIN: Nanos = Nanos::from_secs(1);
/// Packets that a core takes at a time.
const BATCH: u64 = 64;

/// The question.
#[derive(Clone, PartialEq, Debug)]
pub struct Load {
    /// The numbers of the applications' classes.
    pub classes: Vec<u32>,
    /// Of every packet.
    pub frame: Bytes,
    /// How many there are.
    pub cores: usize,
    /// The line rate.
    pub line: Rate,
    /// For how long.
    pub length: Nanos,
}

/// Lines that a class may have.
const LINES: usize = 4;
/// Updates of them by the program of departure times: of what came and what is assured; of the
/// calendar; of the time in which flows are busy; and of what departs early, and when none waits.
const UPDATES: [f64; LINES] = [2.0, 1.0, 1.0, 2.0];

/// A line that cores update in turn.
#[derive(Clone, Copy, Default)]
struct Line {
    /// The last writer.
    owner: usize,
    free_at: f64,
}

/// A core, and its meters by application.
struct Core {
    /// In nanoseconds since the beginning.
    time: f64,
    /// None if a program of the kernel is asked.
    meters: Vec<Box<dyn ClassMeter>>,
    /// The next application.
    app: usize,
    /// Packets of its batch that it has not asked for.
    left: u64,
}

/// A program of the kernel.
enum Program {
    Driver(Driver),
    Departs(Departs),
}

struct Model<'a> {
    costs: &'a Costs,
    keeper: Keeper,
    /// None if workers' meters are asked.
    program: Option<Program>,
    /// By application, the lines of its class and of those above.
    paths: Vec<Vec<usize>>,
    lines: Vec<Line>,
}

/// How many packets per second pass, in millions.
///
/// # Errors
/// A policy that is none, or has no such classes.
pub fn run(scheduler: &Scheduler, load: &Load, costs: &Costs) -> Result<f64, String> {
    let (installation, specs) = lay_out(scheduler, load.cores.max(1))?;
    let paths = paths(installation.plan(), &load.classes);
    let lines = 1 + paths.iter().flatten().max().copied().unwrap_or(0);
    let mut model = Model {
        costs,
        keeper: scheduler.keeper,
        program: match scheduler.keeper {
            Keeper::Driver(_) => {
                Some(Program::Driver(Driver::new(scheduler, &load.classes, load.cores)?))
            }
            Keeper::Departures => {
                Some(Program::Departs(Departs::new(scheduler, &load.classes, load.cores)?))
            }
            Keeper::Workers(_) => None,
        },
        paths,
        lines: vec![Line { owner: usize::MAX, free_at: 0.0 }; lines * LINES],
    };
    let core = |(number, spec)| {
        let meters = match scheduler.keeper {
            Keeper::Workers(_) => meters(spec, &load.classes)?,
            Keeper::Driver(_) | Keeper::Departures => Vec::new(),
        };
        // Not all begin with the same.
        let app = number % load.classes.len().max(1);
        Ok(Core { time: number as f64, meters, app, left: 0 })
    };
    let mut cores = specs.iter().enumerate().map(core).collect::<Result<Vec<_>, String>>()?;
    let (end, mut passed) = (load.length.0 as f64, 0);
    loop {
        let next = (0..cores.len()).min_by(|a, b| cores[*a].time.total_cmp(&cores[*b].time));
        let Some(number) = next.filter(|number| cores[*number].time < end) else { break };
        passed += model.step(number, &mut cores[number], load.frame);
    }
    let most = load.line.bytes_per_sec() as f64 / load.frame.0 as f64 / 1e6;
    Ok((passed as f64 * 1_000.0 / end).min(most))
}

/// By application, which lines it goes to: its class's, and those of the classes above.
fn paths(plan: &Plan, classes: &[u32]) -> Vec<Vec<usize>> {
    let all = plan.classes.values().flatten();
    let place: BTreeMap<u32, usize> = all.clone().map(|(id, _)| *id).zip(0..).collect();
    let parents: BTreeMap<u32, Option<u32>> =
        all.map(|(id, class)| (*id, class.class.parent())).collect();
    let above = |id: &u32| parents.get(id).copied().flatten();
    let path = |id: &u32| {
        let path = std::iter::successors(Some(*id), above);
        path.filter_map(|id| Some(LINES * place.get(&id)?)).collect()
    };
    classes.iter().map(path).collect()
}

impl Model<'_> {
    /// A core asks once, for the batch that it is at. How many packets pass.
    fn step(&mut self, number: usize, core: &mut Core, frame: Bytes) -> u64 {
        if core.left == 0 {
            core.left = BATCH;
            core.app = (core.app + 1) % self.paths.len();
            core.time += self.costs.packet_ns * BATCH as f64;
        }
        let now = BEGIN + Nanos(core.time as u64);
        if let Some(program) = &mut self.program {
            let (passes, asked) = match program {
                Program::Driver(driver) => driver.passes(core.app, number, frame, now),
                // Each core has a flow of each application.
                Program::Departs(departs) => {
                    (departs.ask(core.app, number as u32, frame, now).is_some(), true)
                }
            };
            core.left -= 1;
            if asked {
                core.time = self.cost(number, core.app, core.time);
            }
            return passes.into();
        }
        let want = if self.keeper == Keeper::Workers(TreeStrategy::Fair) { core.left } else { 1 };
        let answer = core.meters[core.app].buy(frame, Bytes(frame.0 * want), true, now);
        core.time = self.cost(number, core.app, core.time);
        match answer {
            Ok(grant) => {
                let packets = grant.bytes.0 / frame.0;
                core.left -= packets;
                packets
            }
            Err(_) => {
                // A packet without credit counts for a later batch.
                core.left = 0;
                0
            }
        }
    }

    /// When a core that began at `time` has asked.
    fn cost(&mut self, number: usize, app: usize, time: f64) -> f64 {
        let path = std::mem::take(&mut self.paths[app]);
        let time = match self.keeper {
            Keeper::Driver(TreeStrategy::Fair | TreeStrategy::Lock) => {
                // What came, the clock and that of the assured rate; and the clocks above.
                let leaf = self.touch(number, path[0], 3.0, time);
                path[1..].iter().fold(leaf, |time, at| self.touch(number, *at, 1.0, time))
            }
            Keeper::Departures => {
                let own = |time, line| self.touch(number, path[0] + line, UPDATES[line], time);
                let leaf = (0..LINES).fold(time, own);
                path[1..].iter().fold(leaf, |time, at| self.touch(number, *at, 1.0, time))
            }
            // The lock's own line represents all that it protects.
            Keeper::Workers(TreeStrategy::Lock) => self.hold(number, path.len() as f64, time),
            Keeper::Workers(TreeStrategy::FlowValve) | Keeper::Driver(TreeStrategy::FlowValve) => {
                // The bucket, and a counter at each class.
                let leaf = self.touch(number, path[0], 2.0, time);
                path[1..].iter().fold(leaf, |time, at| self.touch(number, *at, 1.0, time))
            }
            // Rate and ceiling. It asks for all lines at the start.
            Keeper::Workers(TreeStrategy::Fair) => {
                let ready = time + self.costs.line_read_ns;
                let buy = |now: f64, at: &usize| {
                    let Line { owner, free_at } = self.lines[*at];
                    if owner != number && free_at <= ready {
                        return self.update(number, *at, 2.0, now.max(ready));
                    }
                    // A core that asked before has not used it when it leaves for this one: one of
                    // the two asks again.
                    self.touch(number, *at, 2.0, now.max(free_at))
                };
                path.iter().fold(time, buy)
            }
        };
        self.paths[app] = path;
        time
    }

    /// When a core that wanted to update a line `updates` times from `time` on has done so.
    fn touch(&mut self, number: usize, line: usize, updates: f64, time: f64) -> f64 {
        let is_own = self.lines[line].owner == number;
        let fetched = time + if is_own { 0.0 } else { self.costs.line_read_ns };
        self.update(number, line, updates, fetched)
    }

    /// When a core that wanted the lock at `time`, to update `updates` lines, has done so. Where it
    /// has to wait for the lock, nobody has it on its way from the last one.
    fn hold(&mut self, number: usize, updates: f64, time: f64) -> f64 {
        let Line { owner, free_at } = self.lines[0];
        let handed = if owner == number { free_at } else { free_at + self.costs.lock_handover_ns };
        self.lines[0].free_at = handed;
        self.touch(number, 0, updates, time)
    }

    /// When a core that has the line at `fetched` has done `updates` of it.
    fn update(&mut self, number: usize, line: usize, updates: f64, fetched: f64) -> f64 {
        let line = &mut self.lines[line];
        line.free_at = line.free_at.max(fetched) + updates * self.costs.line_update_ns;
        line.owner = number;
        line.free_at
    }
}
