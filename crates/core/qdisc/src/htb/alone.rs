//! A scheduler for trees whose classes each ask for themselves.
//!
//! A class that is refused learns when to ask again. Classes within their rates go before those
//! that borrow, better priorities before worse ones, and classes of one priority take turns.
//!
//! *Non-goals.* Thousands of classes that wait for the same: each of them asks.
//!
//! Cost: a call of the class's [`ClassMeter`] for each turn, or two for one that borrows.

use super::{
    Class, ClassMeter, Grant, LINGER, LeafClass, PRIORITIES, Scheduler, Then, Times, Turns,
};
use narrows_packet::Reading;
use narrows_units::{Bytes, Nanos};

/// The classes of such a tree.
pub trait Meters: Send {
    /// The class `id`, if there is one and no class is below it.
    fn leaf(&self, id: u32) -> Option<LeafClass>;

    /// The parameters of the class `id`, if there is one.
    fn class(&self, id: u32) -> Option<Class>;

    /// The queue's meter of the class `id`, if there is one.
    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>>;

    /// The packet fields that the qdiscs below any class read.
    fn reading(&self) -> Reading;

    /// See [`Scheduler::owe`].
    fn owe(&mut self, _id: u32, _bytes: Bytes, _now: Nanos) {}
}

/// What a class waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Packets.
    Idle,
    /// Its turn.
    Ready,
    /// A time.
    Waiting(Nanos),
}

struct Leaf {
    meter: Box<dyn ClassMeter>,
    prio: usize,
    state: State,
    is_active: bool,
}

/// A scheduler for trees whose classes each ask for credit themselves.
pub struct Alone<M> {
    meters: M,
    leaves: Vec<Option<Leaf>>,
    /// Classes that may have credit of their own, by priority, and those that have none.
    turns: [[Turns; PRIORITIES]; 2],
    /// Whether the class whose turn it is borrows.
    borrows: bool,
    /// When classes ask again, and when idle ones are no longer active.
    times: Times,
}

impl<M: Meters> Alone<M> {
    /// The scheduler of a queue over these classes.
    pub fn new(meters: M) -> Self {
        let (turns, times) = (Default::default(), Times::default());
        Self { meters, leaves: Vec::new(), turns, borrows: false, times }
    }

    fn at(&mut self, place: u32) -> Option<&mut Leaf> {
        self.leaves.get_mut(place as usize)?.as_mut()
    }

    fn make_ready(&mut self, place: u32) {
        if let Some(leaf) = self.at(place) {
            leaf.state = State::Ready;
            let prio = leaf.prio;
            self.turns[0][prio].push(place);
        }
    }

    fn wait(&mut self, place: u32, until: Nanos) {
        if let Some(leaf) = self.at(place) {
            leaf.state = State::Waiting(until);
            self.times.insert(until, place);
        }
    }
}

impl<M: Meters> Scheduler for Alone<M> {
    fn leaf(&self, id: u32) -> Option<LeafClass> {
        self.meters.leaf(id)
    }

    fn reading(&self) -> Reading {
        self.meters.reading()
    }

    fn open(&mut self, place: u32, id: u32) -> bool {
        let opened = self.meters.class(id).zip(self.meters.meter(id));
        let Some((class, meter)) = opened else { return false };
        if self.leaves.len() <= place as usize {
            self.leaves.resize_with(place as usize + 1, || None);
        }
        let (prio, state) = (prio_of(&class), State::Idle);
        self.leaves[place as usize] = Some(Leaf { meter, prio, state, is_active: false });
        true
    }

    fn close(&mut self, place: u32) {
        if let Some(Some(mut leaf)) = self.leaves.get_mut(place as usize).map(Option::take) {
            if leaf.is_active {
                leaf.meter.set_active(false);
            }
            self.turns.iter_mut().flatten().for_each(|turns| turns.retain(|one| one != place));
            self.times.retain(|one| one != place);
        }
    }

    fn retune(&mut self, place: u32) {
        // Where classes change, all are opened anew.
        self.reconsider(place);
    }

    fn arrived(&mut self, place: u32) {
        if self.at(place).is_some_and(|leaf| leaf.state == State::Idle) {
            self.make_ready(place);
        }
    }

    fn reconsider(&mut self, place: u32) {
        if self.at(place).is_some_and(|leaf| matches!(leaf.state, State::Waiting(_))) {
            self.make_ready(place);
        }
    }

    fn owe(&mut self, id: u32, bytes: Bytes, now: Nanos) {
        self.meters.owe(id, bytes, now);
    }

    fn begin(&mut self, now: Nanos) {
        while let Some(at) = self.times.first()
            && at <= now
            && let Some((_, place)) = self.times.pop()
        {
            match self.at(place) {
                Some(leaf) if leaf.state == State::Waiting(at) => self.make_ready(place),
                Some(leaf) if leaf.state == State::Idle && leaf.is_active => {
                    leaf.is_active = false;
                    leaf.meter.set_active(false);
                }
                _ => {}
            }
        }
    }

    fn next(&mut self, _: Nanos) -> Option<u32> {
        for (borrows, turns) in [false, true].into_iter().zip(&mut self.turns) {
            if let Some(place) = turns.iter_mut().find_map(Turns::pop) {
                self.borrows = borrows;
                return Some(place);
            }
        }
        None
    }

    fn acquire(&mut self, place: u32, least: Bytes, want: Bytes, now: Nanos) -> Option<Grant> {
        let borrows = self.borrows;
        let leaf = self.at(place)?;
        if !leaf.is_active {
            leaf.is_active = true;
            leaf.meter.set_active(true);
        }
        match leaf.meter.buy(least, want, borrows, now) {
            Ok(grant) => return Some(grant),
            Err(until) if borrows => self.wait(place, until),
            Err(_) => {
                let prio = leaf.prio;
                self.turns[1][prio].push(place);
            }
        }
        None
    }

    fn finish(&mut self, place: u32, unused: Bytes, then: Then, now: Nanos) {
        let borrows = self.borrows;
        let Some(leaf) = self.at(place) else { return };
        if unused > Bytes::ZERO {
            leaf.meter.give_back(unused);
        }
        match then {
            Then::More(_) => {
                let prio = leaf.prio;
                self.turns[usize::from(borrows)][prio].push(place);
            }
            Then::Held(until) => self.wait(place, until),
            Then::Empty => {
                leaf.state = State::Idle;
                self.times.insert(now + LINGER, place);
            }
        }
    }

    fn end(&mut self, _: Nanos) -> Option<Nanos> {
        self.times.first()
    }

    fn tokens(&self, place: u32, now: Nanos) -> Vec<[i64; 2]> {
        let leaf = self.leaves.get(place as usize).and_then(Option::as_ref);
        leaf.map(|leaf| leaf.meter.tokens(now)).unwrap_or_default()
    }

    fn meter(&self, id: u32) -> Option<Box<dyn ClassMeter>> {
        self.meters.meter(id)
    }
}

fn prio_of(class: &Class) -> usize {
    usize::from(class.prio).min(PRIORITIES - 1)
}
