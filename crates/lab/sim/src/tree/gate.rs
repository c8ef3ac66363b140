//! What decides about packets: qdiscs in which they wait, the tree alone, or a program of the
//! kernel.

use super::departs::Departs;
use super::driver::Driver;
use super::setup::{Keeper, Scheduler, Setup};
use narrows_packet::{Batch, PacketId, Packets};
use narrows_policy::Plan;
use narrows_qdisc::htb::ClassMeter;
use narrows_qdisc::{Next, Qdisc, Spec};
use narrows_shaper::Installation;
use narrows_tc::{Host, OfflineHost};
use narrows_units::{Bytes, Nanos};
use std::collections::VecDeque;

/// Packets that a queue can hold.
const PACKETS: u32 = 1 << 14;
/// And its ring, from which the line takes them.
const RING: usize = 64;

/// A packet: of which flow, and which transmission of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Packet {
    pub(super) flow: u32,
    pub(super) transmission: u32,
}

/// A queue of the device.
pub(super) struct Queue {
    qdisc: Box<dyn Qdisc>,
    packets: Packets,
    free: Vec<PacketId>,
    held: Vec<Packet>,
    /// The time of the next dequeue.
    ask_at: Nanos,
    ring: VecDeque<Packet>,
}

/// What decides about packets: a program of the kernel, meters alone, or qdiscs in which they wait.
pub(super) enum Gate {
    /// The XDP plane's program.
    Driver(Driver),
    /// The program of departure times.
    Departs(Departs),
    /// By application: its meter at its class.
    Drops(Vec<Box<dyn ClassMeter>>),
    /// By application: its queue; those that go first; and the one that is next.
    Holds { queues: Vec<Queue>, before: VecDeque<Packet>, turn: usize },
}

/// The specification of each of `queues` queues, compiled by `tc` from the policy of `scheduler`.
pub(super) fn lay_out(
    scheduler: &Scheduler,
    queues: usize,
) -> Result<(Installation, Vec<Spec>), String> {
    let policy = narrows_tc::load(&scheduler.policy, &scheduler.name, &OfflineHost::default())?;
    let dev = policy.ports().map(|(dev, _)| dev.to_owned()).next();
    let dev = dev.ok_or("the policy has no port: begin with qdisc add dev eth1 root …")?;
    let mut host = OfflineHost::new(policy);
    let coordination = scheduler.keeper.strategy().name();
    let words = format!("qdisc change dev {dev} root handle 1: htb coordination {coordination}");
    let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
    let outcome = narrows_tc::execute(&words, &mut host);
    if outcome.code != 0 {
        return Err(outcome.stderr.trim().to_owned());
    }
    let plan = Plan::of(host.policy().port(&dev), queues).map_err(|error| error.to_string())?;
    Ok(Installation::reconcile(plan, None))
}

/// The meters of one queue at `classes`, in their order.
pub(super) fn meters(spec: &Spec, classes: &[u32]) -> Result<Vec<Box<dyn ClassMeter>>, String> {
    let tree = spec.tree.as_ref().ok_or("the root of the policy is no htb")?;
    let meter = |class: &u32| {
        let is_leaf = tree.leaf(*class).is_some();
        let meter = tree.meter(*class).filter(|_| is_leaf);
        meter.ok_or_else(|| format!("the policy has no leaf class 1:{class:x}"))
    };
    classes.iter().map(meter).collect()
}

impl Gate {
    pub(super) fn new(setup: &Setup, scheduler: &Scheduler) -> Result<Self, String> {
        let classes: Vec<u32> = setup.apps.iter().map(|app| app.class).collect();
        match scheduler.keeper {
            Keeper::Driver(_) => {
                return Driver::new(scheduler, &classes, classes.len()).map(Self::Driver);
            }
            Keeper::Departures => {
                return Departs::new(scheduler, &classes, classes.len()).map(Self::Departs);
            }
            Keeper::Workers(_) => {}
        }
        let (_, specs) = lay_out(scheduler, setup.apps.len())?;
        let mut all = Vec::new();
        for ((app, spec), before) in setup.apps.iter().zip(&specs).zip(&scheduler.before) {
            if !before {
                all.extend(meters(spec, &[app.class])?);
            }
        }
        if scheduler.drops {
            return Ok(Self::Drops(all));
        }
        drop(all);
        let queues = specs.into_iter().map(Queue::new).collect();
        Ok(Self::Holds { queues, before: VecDeque::new(), turn: 0 })
    }

    /// Moves packets that the qdiscs release at `now` into the rings. Returns their number.
    pub(super) fn fill(&mut self, now: Nanos) -> u64 {
        match self {
            Self::Driver(_) | Self::Drops(_) => 0,
            Self::Departs(departs) => departs.fill(now),
            Self::Holds { queues, .. } => queues.iter_mut().map(|queue| queue.fill(now)).sum(),
        }
    }

    /// The packet that the line takes next.
    pub(super) fn take(&mut self) -> Option<Packet> {
        if let Self::Departs(departs) = self {
            return departs.take();
        }
        let Self::Holds { queues, before, turn } = self else { return None };
        if let Some(packet) = before.pop_front() {
            return Some(packet);
        }
        for _ in 0..queues.len() {
            *turn = (*turn + 1) % queues.len();
            if let Some(packet) = queues[*turn].ring.pop_front() {
                return Some(packet);
            }
        }
        None
    }

    /// When the next packet can be released or sent, if the line is busy until then.
    pub(super) fn next(&self, busy_until: Nanos) -> Nanos {
        if let Self::Departs(departs) = self {
            return departs.next(busy_until);
        }
        let Self::Holds { queues, before, .. } = self else { return Nanos::MAX };
        let waits = !before.is_empty() || queues.iter().any(|queue| !queue.ring.is_empty());
        let have_room = queues.iter().filter(|queue| queue.ring.len() < RING);
        let let_go = have_room.map(|queue| queue.ask_at).min().unwrap_or(Nanos::MAX);
        if waits { let_go.min(busy_until) } else { let_go }
    }

    /// Packets that wait.
    pub(super) fn backlog(&self) -> u64 {
        match self {
            Self::Driver(_) | Self::Drops(_) => 0,
            Self::Departs(departs) => departs.backlog(),
            Self::Holds { queues, before, .. } => {
                let of = |it: &Queue| u64::from(it.qdisc.backlog().packets) + it.ring.len() as u64;
                queues.iter().map(of).sum::<u64>() + before.len() as u64
            }
        }
    }
}

impl Queue {
    fn new(spec: Spec) -> Self {
        let qdisc = spec.build();
        let mut packets = Packets::new(PACKETS);
        packets.prepare(qdisc.reading());
        Self {
            qdisc,
            packets,
            free: (0..PACKETS).rev().map(PacketId).collect(),
            held: vec![Packet::default(); PACKETS as usize],
            ask_at: Nanos::MAX,
            ring: VecDeque::with_capacity(RING),
        }
    }

    /// Takes `packet` of `class`. Packets that were dropped for it go into `dropped`.
    pub(super) fn push(
        &mut self,
        packet: Packet,
        class: u32,
        len: Bytes,
        now: Nanos,
        dropped: &mut Vec<Packet>,
    ) {
        let Some(id) = self.free.pop() else { return dropped.push(packet) };
        self.held[id.0 as usize] = packet;
        self.packets.arrive(id, len.0 as u32, now);
        self.packets.meta_mut(id).class = class;
        self.qdisc.enqueue(&mut self.packets, id, now);
        self.ask_at = now;
        let mut reclaimed = Batch::new(1);
        self.packets.reclaim(&mut reclaimed);
        for &id in reclaimed.as_slice() {
            dropped.push(self.held[id.0 as usize]);
            self.free.push(id);
        }
    }

    fn fill(&mut self, now: Nanos) -> u64 {
        let mut moved = 0;
        while self.ask_at <= now && self.ring.len() < RING {
            match self.qdisc.dequeue_one(&mut self.packets, now) {
                Ok(id) => {
                    self.free.push(id);
                    self.ring.push_back(self.held[id.0 as usize]);
                    moved += 1;
                }
                Err(Next::Empty) => self.ask_at = Nanos::MAX,
                Err(Next::Now) => self.ask_at = now + Nanos(1),
                Err(Next::At(at) | Next::Held(at)) => self.ask_at = at.max(now + Nanos(1)),
            }
        }
        moved
    }
}
