//! All histories of one loan, in a small world: what a borrower has in force is never more than
//! what its lender counts as lent.
//!
//! A lender and a borrower, one limit, and a network that may deliver any message that was ever
//! sent, at any time, any number of times, in any order, or never. Time passes at any moment. Both
//! agents may start again. The search visits every state that the bounds below allow; the code of
//! both sides is the product's. That what is lent is not in force at the lender, and that an order
//! is in force before a message, is `Agent`'s part; `tests/histories.rs` of the fleet in virtual
//! time holds it to that.

mod all_states;

use all_states::{spend, visit};
use compact_str::CompactString;
use narrows_lending::borrower::Borrower;
use narrows_lending::lender::Lender;
use narrows_lending::message::{Held, Lend};
use std::collections::BTreeSet;

/// A lease, in the model's nanoseconds; a 64th of it is the margin for clocks.
const LEASE: u64 = 64;

/// How much time passes at once.
const TICK: u64 = 33;

/// The difference between both clocks.
const OFFSET: u64 = 1_000;

/// What a lender of which nothing is known holds back after its start: more than a lease.
const HOLD: u64 = 96;

/// How often each thing may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Budget {
    ticks: u8,
    offers: u8,
    lends: u8,
    stamps: u8,
    keeps: u8,
    helds: u8,
    lender_restarts: u8,
    borrower_restarts: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
enum Message {
    Stamp { incarnation: u64, stamp: u64 },
    Lend { incarnation: u64, to: u64, generation: u64, echo: u64, offers: Vec<(u64, u64)> },
    Held { to: u64, lender: u64, generation: u64, version: u64, returned: Option<u64> },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    now: u64,
    left: Budget,
    lender: Lender,
    lender_incarnation: u64,
    /// The borrower's incarnation that the lender listens to.
    heard: Option<u64>,
    /// What an earlier lender may have lent, and until when.
    orphan: (u64, u64),
    borrower: Borrower,
    borrower_incarnation: u64,
    /// Whether the borrower's agent set its data plane since its start.
    is_set: bool,
    /// What the borrower's data plane has in force, and until when by its clock.
    in_force: (u64, u64),
    sent: BTreeSet<Message>,
}

fn name() -> CompactString {
    CompactString::const_new("limit")
}

impl State {
    fn new(left: Budget) -> Self {
        Self {
            now: HOLD,
            left,
            lender: Lender::new(LEASE),
            lender_incarnation: 1,
            heard: None,
            orphan: (0, 0),
            borrower: Borrower::new(LEASE),
            borrower_incarnation: 1,
            is_set: true,
            in_force: (0, 0),
            sent: BTreeSet::new(),
        }
    }

    fn borrower_clock(&self) -> u64 {
        self.now + OFFSET
    }

    fn lent(&self) -> u64 {
        let orphan = if self.now < self.orphan.1 { self.orphan.0 } else { 0 };
        self.lender.lent_bps("limit") + orphan
    }

    fn in_force(&self) -> u64 {
        if self.borrower_clock() < self.in_force.1 { self.in_force.0 } else { 0 }
    }

    /// The states that follow.
    fn next(&self) -> Vec<Self> {
        let mut next = Vec::new();
        let mut with = |change: &dyn Fn(&mut Self) -> bool| {
            let mut state = self.clone();
            if change(&mut state) {
                next.push(state);
            }
        };
        with(&|state| spend(&mut state.left.ticks) && state.tick());
        with(&|state| spend(&mut state.left.stamps) && state.stamp());
        for bps in 0..3 {
            with(&|state| spend(&mut state.left.offers) && state.offer(bps));
        }
        with(&|state| spend(&mut state.left.lends) && state.lend());
        with(&State::order);
        for bps in 0..2 {
            with(&|state| spend(&mut state.left.keeps) && state.borrower.keep("limit", bps));
        }
        with(&|state| spend(&mut state.left.helds) && state.held());
        with(&|state| spend(&mut state.left.lender_restarts) && state.restart_lender());
        with(&|state| spend(&mut state.left.borrower_restarts) && state.restart_borrower());
        with(&State::expire_lender);
        for message in &self.sent {
            with(&|state| state.deliver(message));
        }
        next
    }

    fn tick(&mut self) -> bool {
        self.now += TICK;
        true
    }

    fn stamp(&mut self) -> bool {
        let (incarnation, stamp) = (self.borrower_incarnation, self.borrower_clock());
        self.is_set && self.sent.insert(Message::Stamp { incarnation, stamp })
    }

    fn offer(&mut self, bps: u64) -> bool {
        self.lender.offer(self.now, &name(), bps)
    }

    fn lend(&mut self) -> bool {
        let Some(to) = self.heard else { return false };
        let Some(lend) = self.lender.lend(self.now) else { return false };
        let offers = lend.offers.iter().map(|offer| (offer.version, offer.bps)).collect();
        let incarnation = self.lender_incarnation;
        let Lend { generation, echo, .. } = lend;
        self.sent.insert(Message::Lend { incarnation, to, generation, echo, offers });
        true
    }

    /// The borrower's turn: an order that is in force at once.
    fn order(&mut self) -> bool {
        let clock = self.borrower_clock();
        self.borrower.expire(clock, 1);
        let until = self.borrower.valid_until().unwrap_or(u64::MAX);
        self.in_force = (self.borrower.held_bps("limit"), until);
        self.is_set = true;
        if let Some(mark) = self.borrower.mark() {
            self.borrower.in_force(mark);
        }
        true
    }

    fn held(&mut self) -> bool {
        let Some(held) = self.borrower.held() else { return false };
        let Held { lender, generation, version, returned } = held;
        let returned = returned.first().map(|(_, bps)| *bps);
        let to = self.lender_incarnation;
        self.is_set && self.sent.insert(Message::Held { to, lender, generation, version, returned })
    }

    fn expire_lender(&mut self) -> bool {
        !self.lender.expire(self.now).is_empty()
    }

    fn restart_lender(&mut self) -> bool {
        self.orphan = (self.lent(), self.now + HOLD);
        self.lender = Lender::new(LEASE);
        self.lender_incarnation += 1;
        self.heard = None;
        true
    }

    fn restart_borrower(&mut self) -> bool {
        self.borrower = Borrower::new(LEASE);
        self.borrower_incarnation += 1;
        self.is_set = false;
        true
    }

    fn deliver(&mut self, message: &Message) -> bool {
        match message.clone() {
            Message::Stamp { incarnation, stamp } => {
                if self.heard.is_some_and(|heard| incarnation < heard) {
                    return false;
                }
                if self.heard != Some(incarnation) {
                    self.heard = Some(incarnation);
                    self.lender.restarted();
                }
                self.lender.heard(self.now, stamp);
            }
            Message::Lend { incarnation, to, generation, echo, offers } => {
                if to != self.borrower_incarnation {
                    return false;
                }
                let offer =
                    |(version, bps)| narrows_lending::message::Offer { version, name: name(), bps };
                let offers = offers.into_iter().map(offer).collect();
                let lend = Lend { generation, echo, offers };
                self.borrower.receive(self.borrower_clock(), incarnation, &lend);
            }
            Message::Held { to, lender, generation, version, returned } => {
                if to != self.lender_incarnation || lender != self.lender_incarnation {
                    return false;
                }
                let returned = returned.map(|bps| (name(), bps)).into_iter().collect();
                let held = Held { lender, generation, version, returned };
                self.lender.confirm(&held);
                self.lender.accept_returns(&held);
            }
        }
        true
    }
}

/// Visits all states from the first. Returns how many there are.
fn search(left: Budget) -> usize {
    visit(State::new(left), State::next, |state| {
        assert!(
            state.in_force() <= state.lent(),
            "{} of {} lent: {state:#?}",
            state.in_force(),
            state.lent()
        );
    })
}

#[test]
fn what_is_in_force_is_never_more_than_what_is_lent() {
    let budget = Budget {
        ticks: 4,
        offers: 3,
        lends: 2,
        stamps: 2,
        keeps: 1,
        helds: 1,
        lender_restarts: 0,
        borrower_restarts: 0,
    };
    let states = search(budget);
    eprintln!("{states} states");
    assert!(states > 100_000);
}

#[test]
fn nor_where_agents_start_again() {
    let budget = Budget {
        ticks: 3,
        offers: 2,
        lends: 2,
        stamps: 2,
        keeps: 0,
        helds: 1,
        lender_restarts: 1,
        borrower_restarts: 1,
    };
    let states = search(budget);
    eprintln!("{states} states");
    assert!(states > 100_000);
}
