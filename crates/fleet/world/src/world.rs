//! Boxes, events in true time, and the account of all boxes at once.

use crate::data_plane::{Changed, DataPlane};
use crate::network::Network;
use compact_str::CompactString;
use narrows_lending::message::{self, Message};
use narrows_lending::{Agent, Claim, Member};
use narrows_snapshot::{FleetFacts, FleetOrder};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::time::{ClockId, clock_gettime};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

/// A box, by its number.
pub type BoxId = usize;

/// What a world is made of.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// How many boxes.
    pub boxes: usize,
    /// The interval of turns, in nanoseconds.
    pub interval_ns: u64,
    /// The lease, in nanoseconds.
    pub lease_ns: u64,
    /// The network.
    pub network: Network,
    /// The longest that a data plane takes for an order, in nanoseconds.
    pub order_ns: u64,
    /// How fast or slow clocks may run, in parts of a million.
    pub drift_ppm: u32,
    /// The seed.
    pub seed: u64,
}

/// A limit at one box.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// Its name.
    pub name: CompactString,
    /// The rate of all boxes, in bits per second, as this box has it.
    pub limit_bps: u64,
    /// The box's safe share.
    pub safe_bps: u64,
    /// Whether the box waits for its agent's word after a start.
    pub rejoins: bool,
}

/// What can go wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The agent is killed, and starts again after so long, if at all.
    KillAgent {
        /// Of this box.
        at: BoxId,
        /// In nanoseconds; none means never.
        back_ns: Option<u64>,
    },
    /// The agent does not run for so long.
    StallAgent {
        /// Of this box.
        at: BoxId,
        /// In nanoseconds.
        for_ns: u64,
    },
    /// The data plane starts again.
    RestartDataPlane(BoxId),
    /// The box loses power, and has it again after so long, if at all. Its agent starts with it.
    PowerOff {
        /// This box.
        at: BoxId,
        /// In nanoseconds; none means never.
        back_ns: Option<u64>,
    },
    /// The boxes of this mask do not reach the others, until the next cut.
    Cut(u64),
}

#[derive(Clone, Debug)]
struct Box {
    data_plane: DataPlane,
    /// The clock: `offset + true time × rate`, and the rate is `1 + drift / 1e6`.
    clock_offset_ns: u64,
    clock_drift_ppm: i64,
    agent: Option<Agent>,
    /// What the agent saved: it is there after a start, too.
    saved: Vec<Claim>,
    is_off: bool,
    /// Whether its agent is of an older release.
    is_older: bool,
    /// Counts starts of the agent: what was on its way to an earlier one does not reach this one.
    life: u64,
    stalled_until: u64,
    /// When the next change of itself is planned for, in true time.
    wakes_ns: u64,
    /// Whether an order is on its way.
    is_ordering: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum What {
    Turn { life: u64 },
    Order { life: u64 },
    Answer { life: u64 },
    Message { from: BoxId, bytes: Vec<u8> },
    Start,
    Restart,
    Change,
    Demand { name: CompactString, bps: u64 },
    Flows { name: CompactString, flows: Option<u32> },
    Cut(u64),
    Kill { back_ns: Option<u64> },
    Stall { for_ns: u64 },
    PowerOff { back_ns: Option<u64> },
    PowerOn,
    Forget { off: Vec<BoxId> },
}

/// What is counted over a history.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// For each limit, by how much the sum of what was in force exceeded it at most, in bits per
    /// second.
    pub excess_bps: BTreeMap<CompactString, u64>,
    /// When the excess began first, in nanoseconds of true time.
    pub first_excess_ns: Option<u64>,
    /// The part of what could have passed that did, of all limits together: of the least of each
    /// limit and all demands for it.
    pub used: f64,
    /// The part that passes if each box always has its safe share, and nothing is lent.
    pub divided: f64,
    /// Messages sent (once for each receiver), and their bytes.
    pub messages: u64,
    /// Bytes of them.
    pub message_bytes: u64,
    /// Messages that agents of an older release did not understand.
    pub refused: u64,
    /// Orders that changed something.
    pub orders: u64,
    /// How long agents took, in this thread's time of a processor.
    pub agent_time: Duration,
}

impl Outcome {
    /// The largest excess, in bits per second.
    pub fn worst_excess_bps(&self) -> u64 {
        self.excess_bps.values().copied().max().unwrap_or(0)
    }
}

/// One limit at all boxes together.
#[derive(Clone, Debug, Default)]
struct Account {
    /// The limit: the largest that a box has.
    most_bps: u64,
    in_force_bps: u64,
    passes_bps: u64,
    demand_bps: u64,
    /// What would pass if each box had its safe share, always.
    divided_bps: u64,
    /// Until when it is accounted.
    until_ns: u64,
    passed: u128,
    possible: u128,
    divided: u128,
}

impl Account {
    /// Traffic passes until `now`.
    fn pass(&mut self, now: u64) {
        let elapsed = u128::from(now - self.until_ns);
        self.passed += u128::from(self.passes_bps) * elapsed;
        self.divided += u128::from(self.divided_bps) * elapsed;
        self.possible += u128::from(self.demand_bps.min(self.most_bps)) * elapsed;
        self.until_ns = now;
    }
}

/// A fleet in virtual time.
#[derive(Clone, Debug)]
pub struct World {
    settings: Settings,
    now: u64,
    boxes: Vec<Box>,
    limits: BTreeMap<CompactString, Account>,
    /// Events by time; those of one time in the order in which they were made.
    events: BinaryHeap<Reverse<(u64, u64)>>,
    pending: BTreeMap<u64, (BoxId, What)>,
    orders: BTreeMap<BoxId, FleetOrder>,
    answers: BTreeMap<BoxId, FleetFacts>,
    made: u64,
    cut: u64,
    random: Pcg64Mcg,
    outcome: Outcome,
}

/// The name of a box.
fn name(id: BoxId) -> String {
    format!("box-{id:04}")
}

impl World {
    /// A world at its beginning: data planes begin now, agents a moment later.
    pub fn new(settings: Settings, places: impl Fn(BoxId) -> Vec<Place>) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(settings.seed);
        let mut limits: BTreeMap<CompactString, Account> = BTreeMap::new();
        let mut boxes = Vec::new();
        for id in 0..settings.boxes {
            let clock_offset_ns = random.random_range(1..1_000_000_000_000);
            let drift = i64::from(settings.drift_ppm);
            let mut data_plane = DataPlane::default();
            for place in places(id) {
                let limit = limits.entry(place.name.clone()).or_default();
                limit.most_bps = place.limit_bps.max(limit.most_bps);
                let added = data_plane.add(clock_offset_ns, place);
                limit.in_force_bps += added.2.in_force_bps;
            }
            boxes.push(Box {
                data_plane,
                clock_offset_ns,
                clock_drift_ppm: random.random_range(-drift..=drift),
                agent: None,
                saved: Vec::new(),
                is_off: false,
                is_older: false,
                life: 0,
                stalled_until: 0,
                wakes_ns: 0,
                is_ordering: false,
            });
        }
        let mut world = Self {
            settings,
            now: 0,
            boxes,
            limits,
            events: BinaryHeap::new(),
            pending: BTreeMap::new(),
            orders: BTreeMap::new(),
            answers: BTreeMap::new(),
            made: 0,
            cut: 0,
            random,
            outcome: Outcome::default(),
        };
        for id in 0..world.boxes.len() {
            let begin = world.random.random_range(0..world.settings.interval_ns);
            world.at(begin, id, What::Start);
            world.wake_at_change(id);
        }
        world
    }

    /// The true time in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// What is in force of a limit at a box.
    pub fn in_force_bps(&self, id: BoxId, limit: &str) -> u64 {
        self.boxes[id].data_plane.rates(limit).in_force_bps
    }

    /// A box demands so much from `at` on.
    pub fn demand(&mut self, at: u64, id: BoxId, limit: &str, bps: u64) {
        self.at(at, id, What::Demand { name: limit.into(), bps });
    }

    /// The demand of a box is that of so many flows from `at` on. None means that its qdiscs do not
    /// count them.
    pub fn flows(&mut self, at: u64, id: BoxId, limit: &str, flows: Option<u32>) {
        self.at(at, id, What::Flows { name: limit.into(), flows });
    }

    /// The agent of this box is of an older release: it understands and speaks version 2 only.
    pub fn make_older(&mut self, id: BoxId) {
        self.boxes[id].is_older = true;
    }

    /// What passed a limit at a box until now.
    pub fn sent_bytes(&mut self, id: BoxId, limit: &str) -> u64 {
        let clock = self.clock(id);
        self.boxes[id].data_plane.sent_bytes(clock, limit)
    }

    /// Something goes wrong at `at`.
    pub fn fault(&mut self, at: u64, fault: Fault) {
        match fault {
            Fault::KillAgent { at: id, back_ns } => self.at(at, id, What::Kill { back_ns }),
            Fault::StallAgent { at: id, for_ns } => self.at(at, id, What::Stall { for_ns }),
            Fault::RestartDataPlane(id) => self.at(at, id, What::Restart),
            Fault::PowerOff { at: id, back_ns } => self.at(at, id, What::PowerOff { back_ns }),
            Fault::Cut(mask) => self.at(at, 0, What::Cut(mask)),
        }
    }

    /// An operator says to the agent of a box at `at` which boxes are off. He says so only of those
    /// that are.
    pub fn forget(&mut self, at: u64, id: BoxId, off: Vec<BoxId>) {
        self.at(at, id, What::Forget { off });
    }

    /// What was counted so far.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Forgets what passed and could have passed, so that a measurement begins now.
    pub fn begin_measurement(&mut self) {
        for limit in self.limits.values_mut() {
            limit.pass(self.now);
            (limit.passed, limit.possible, limit.divided) = (0, 0, 0);
        }
        self.outcome.messages = 0;
        self.outcome.message_bytes = 0;
        self.outcome.orders = 0;
        self.outcome.agent_time = Duration::ZERO;
    }

    /// Runs until `until`, in true time.
    pub fn run(&mut self, until: u64) {
        while let Some(&Reverse((time, number))) = self.events.peek() {
            if time > until {
                break;
            }
            self.events.pop();
            let Some((id, what)) = self.pending.remove(&number) else { continue };
            self.now = time;
            self.happen(id, what);
        }
        self.now = until;
        let (mut passed, mut possible, mut divided) = (0, 0, 0);
        for limit in self.limits.values_mut() {
            limit.pass(until);
            passed += limit.passed;
            possible += limit.possible;
            divided += limit.divided;
        }
        self.outcome.used = passed as f64 / (possible as f64).max(1.0);
        self.outcome.divided = divided as f64 / (possible as f64).max(1.0);
    }

    fn clock(&self, id: BoxId) -> u64 {
        let this = &self.boxes[id];
        let drift = i128::from(self.now) * i128::from(this.clock_drift_ppm) / 1_000_000;
        u64::try_from(i128::from(this.clock_offset_ns) + i128::from(self.now) + drift).unwrap_or(0)
    }

    /// When a box's clock shows `local`: not before.
    fn true_time(&self, id: BoxId, local: u64) -> u64 {
        let ahead = i128::from(local.saturating_sub(self.clock(id)));
        let rate = 1_000_000 + i128::from(self.boxes[id].clock_drift_ppm);
        let ahead = ahead * 1_000_000 / rate + 1;
        self.now + u64::try_from(ahead).unwrap_or(u64::MAX / 2)
    }

    fn at(&mut self, time: u64, id: BoxId, what: What) {
        self.made += 1;
        self.events.push(Reverse((time, self.made)));
        self.pending.insert(self.made, (id, what));
    }

    fn wake_at_change(&mut self, id: BoxId) {
        if let Some(local) = self.boxes[id].data_plane.next_change() {
            // A deadline that was put off since is looked at when it would have come.
            let time = self.true_time(id, local);
            let planned = self.boxes[id].wakes_ns;
            if planned <= self.now || time < planned {
                self.boxes[id].wakes_ns = time;
                self.at(time, id, What::Change);
            }
        }
    }

    /// Rates changed at a box: holds the sum of what is in force against each limit.
    fn account(&mut self, changed: Vec<Changed>) {
        // Of what changes at one moment, only the end counts.
        for (name, before, after) in &changed {
            let Some(limit) = self.limits.get_mut(name) else { continue };
            limit.pass(self.now);
            limit.in_force_bps = limit.in_force_bps + after.in_force_bps - before.in_force_bps;
            limit.passes_bps = limit.passes_bps + after.passes_bps - before.passes_bps;
            limit.demand_bps = limit.demand_bps + after.demand_bps - before.demand_bps;
            limit.divided_bps = limit.divided_bps + after.divided_bps - before.divided_bps;
        }
        for (name, ..) in changed {
            let Some(limit) = self.limits.get(&name) else { continue };
            let excess = limit.in_force_bps.saturating_sub(limit.most_bps);
            if excess > 0 {
                let worst = self.outcome.excess_bps.entry(name).or_default();
                *worst = excess.max(*worst);
                self.outcome.first_excess_ns.get_or_insert(self.now);
            }
        }
    }

    fn is_reached(&self, from: BoxId, to: BoxId) -> bool {
        let side = |id: BoxId| self.cut >> (id % 64) & 1;
        side(from) == side(to)
    }

    fn happen(&mut self, id: BoxId, what: What) {
        // What reaches an agent waits while it is stalled.
        let is_of_agent =
            matches!(what, What::Turn { .. } | What::Answer { .. } | What::Message { .. });
        let stalled_until = self.boxes[id].stalled_until;
        if is_of_agent && stalled_until > self.now {
            self.at(stalled_until, id, what);
            return;
        }
        let clock = self.clock(id);
        match what {
            What::Start => self.start(id),
            What::Turn { life } if life == self.boxes[id].life => self.turn(id),
            What::Order { life } => self.order(id, life),
            What::Answer { life } if life == self.boxes[id].life => self.answer(id),
            What::Turn { .. } | What::Answer { .. } => {}
            What::Change => {
                let changed = self.boxes[id].data_plane.refresh_all(clock);
                self.account(changed);
                self.wake_at_change(id);
            }
            What::Message { from, bytes } => {
                let is_older = self.boxes[id].is_older;
                let Some(agent) = &mut self.boxes[id].agent else { return };
                if is_older && bytes.first() != Some(&message::VERSION) {
                    self.outcome.refused += 1;
                    return;
                }
                // What is wrong with a message is among the agent's events.
                let began = cpu_time();
                let _ = agent.on_message(clock, &name(from), &bytes);
                self.outcome.agent_time += cpu_time().saturating_sub(began);
                self.save(id);
                self.plan_turn(id);
            }
            What::Restart if self.boxes[id].is_off => {}
            What::Restart => {
                let changed = self.boxes[id].data_plane.restart(clock);
                self.account(changed);
                self.wake_at_change(id);
            }
            What::Demand { name, bps } => {
                let changed = self.boxes[id].data_plane.demand(clock, &name, bps);
                self.account(vec![changed]);
            }
            What::Flows { name, flows } => self.boxes[id].data_plane.set_flows(&name, flows),
            What::Cut(mask) => self.cut = mask,
            What::Kill { back_ns } => {
                self.kill(id);
                if let Some(back_ns) = back_ns {
                    self.at(self.now + back_ns, id, What::Start);
                }
            }
            What::PowerOff { .. } if self.boxes[id].is_off => {}
            What::PowerOff { back_ns } => {
                self.kill(id);
                self.boxes[id].is_off = true;
                let changed = self.boxes[id].data_plane.power_off(clock);
                self.account(changed);
                if let Some(back_ns) = back_ns {
                    self.at(self.now + back_ns, id, What::PowerOn);
                }
            }
            What::PowerOn => {
                self.boxes[id].is_off = false;
                let changed = self.boxes[id].data_plane.restart(clock);
                self.account(changed);
                self.wake_at_change(id);
                self.start(id);
            }
            What::Forget { off } => {
                let off = off.into_iter().filter(|&off| self.boxes[off].is_off);
                let off: Vec<String> = off.map(name).collect();
                if let Some(agent) = &mut self.boxes[id].agent {
                    // What it refuses, it does not do.
                    let _ = agent.forget(clock, &off);
                    self.save(id);
                    self.plan_turn(id);
                }
            }
            What::Stall { for_ns } => {
                let until = self.now + for_ns;
                self.boxes[id].stalled_until = until.max(stalled_until);
            }
        }
    }

    fn kill(&mut self, id: BoxId) {
        self.boxes[id].agent = None;
        self.boxes[id].life += 1;
        self.orders.remove(&id);
    }

    /// What the agent wants to have saved is.
    fn save(&mut self, id: BoxId) {
        let this = &mut self.boxes[id];
        let Some(agent) = &mut this.agent else { return };
        if let Some(claims) = agent.unsaved() {
            this.saved = claims;
            agent.saved();
        }
    }

    fn start(&mut self, id: BoxId) {
        if self.boxes[id].agent.is_some() || self.boxes[id].is_off {
            return;
        }
        let member = |id| Member { name: name(id), weight: 1, most_bps: None };
        let settings = narrows_lending::Settings {
            me: name(id),
            members: (0..self.boxes.len()).map(member).collect(),
            interval_ns: self.settings.interval_ns,
            lease_ns: self.settings.lease_ns,
        };
        // The wall clock: true time, and not the same everywhere.
        let incarnation = self.now + 1 + self.boxes[id].clock_offset_ns;
        let clock = self.clock(id);
        let saved = self.boxes[id].saved.clone();
        self.boxes[id].agent = Agent::new(settings, incarnation, clock).ok().map(|mut agent| {
            agent.restore(saved);
            agent
        });
        self.boxes[id].life += 1;
        self.boxes[id].is_ordering = false;
        self.plan_turn(id);
    }

    /// The next turn happens when the agent asks for it. Of several that are planned, the first one
    /// counts.
    fn plan_turn(&mut self, id: BoxId) {
        let this = &self.boxes[id];
        let Some(agent) = this.agent.as_ref().filter(|_| !this.is_ordering) else { return };
        let time = self.true_time(id, agent.next_turn());
        let life = this.life;
        self.at(time, id, What::Turn { life });
    }

    fn turn(&mut self, id: BoxId) {
        let clock = self.clock(id);
        let this = &mut self.boxes[id];
        let Some(agent) = this.agent.as_mut().filter(|_| !this.is_ordering) else { return };
        if agent.next_turn() > clock {
            return;
        }
        let began = cpu_time();
        let order = agent.order(clock);
        self.outcome.agent_time += cpu_time().saturating_sub(began);
        self.save(id);
        let this = &mut self.boxes[id];
        this.is_ordering = true;
        let life = this.life;
        self.outcome.orders += u64::from(!order.shares.is_empty());
        self.orders.insert(id, order);
        let delay = self.random.random_range(0..=self.settings.order_ns);
        self.at(self.now + delay, id, What::Order { life });
    }

    /// An order arrives at the data plane, also if its agent is dead by now.
    fn order(&mut self, id: BoxId, life: u64) {
        let Some(order) = self.orders.remove(&id) else { return };
        let clock = self.clock(id);
        let data_plane = &mut self.boxes[id].data_plane;
        let (facts, changed) = data_plane.order(clock, &order, &mut self.random);
        self.account(changed);
        self.wake_at_change(id);
        self.answers.insert(id, facts);
        let delay = self.random.random_range(0..=self.settings.order_ns);
        self.at(self.now + delay, id, What::Answer { life });
    }

    fn answer(&mut self, id: BoxId) {
        let Some(facts) = self.answers.remove(&id) else { return };
        let clock = self.clock(id);
        let this = &mut self.boxes[id];
        let Some(agent) = &mut this.agent else { return };
        this.is_ordering = false;
        let began = cpu_time();
        let published = agent.answered(clock, &facts);
        self.outcome.agent_time += cpu_time().saturating_sub(began);
        self.save(id);
        let is_older = self.boxes[id].is_older;
        for mut outgoing in published {
            if is_older {
                outgoing.bytes = as_of_version_2(&outgoing.bytes);
            }
            let to = |other: BoxId| outgoing.to.as_ref().is_none_or(|to| *to == name(other));
            for other in (0..self.boxes.len()).filter(|&other| other != id && to(other)) {
                self.outcome.messages += 1;
                self.outcome.message_bytes += outgoing.bytes.len() as u64;
                if !self.is_reached(id, other) {
                    continue;
                }
                for delay in self.settings.network.deliver(&mut self.random) {
                    let bytes = outgoing.bytes.clone();
                    self.at(self.now + delay, other, What::Message { from: id, bytes });
                }
            }
        }
        self.plan_turn(id);
    }
}

/// A message as an agent of an older release would have sent it.
fn as_of_version_2(bytes: &[u8]) -> Vec<u8> {
    let message = Message::decode(bytes).map(|mut message| {
        message.understands = message::VERSION;
        message.encode()
    });
    message.unwrap_or_default()
}

/// What this thread has had of a processor. A clock on the wall would count other processes, too.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
