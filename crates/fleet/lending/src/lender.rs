//! A lender's side of the loans to one borrower.
//!
//! *What is lent* of a limit is the most that the borrower may have in force: the largest of what
//! it confirmed and of each offer that it has not confirmed. An offer has a version; the borrower
//! confirms versions in order, and may say that less is in force than its newest offer allows.
//!
//! *The lease.* All loans to a borrower have one lease, which each message to it renews: it carries
//! the newest stamp of the borrower's clock, and the lease is over `lease` after that stamp. The
//! lender received the stamp later than the borrower made it, so it counts the same time from the
//! reception, and a little more for clocks of different speed. If a borrower is silent for so long,
//! all its loans are over, and a new generation begins: what was said about the old one means
//! nothing any more.
//!
//! Invariant: at any moment, `lent_bps(name)` is at least what the borrower has in force of the
//! limit by loans of this lender. `tests/histories.rs` and `tests/model.rs` hold both sides to it.

use crate::message::{Held, ITEMS_MAX, Lend, Offer};
use compact_str::CompactString;
use std::collections::{BTreeMap, VecDeque};

/// How much faster one box's clock may run than another's: a 64th, far above the 500 parts in a
/// million that time services correct.
pub(crate) const CLOCK_DRIFT: u64 = 64;

/// How many offers of one limit may wait for confirmation. More would only say again what the last
/// one says.
const OFFERS_MAX: usize = 2;

/// The loans of one limit.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Loan {
    /// What the borrower confirmed.
    confirmed_bps: u64,
    /// Offers that it has not confirmed, the oldest first: version and amount.
    offers: VecDeque<(u64, u64)>,
}

impl Loan {
    /// The most that the borrower may have.
    fn lent_bps(&self) -> u64 {
        self.offers.iter().map(|&(_, bps)| bps).fold(self.confirmed_bps, u64::max)
    }

    /// What the borrower has once it confirmed everything.
    fn last_bps(&self) -> u64 {
        self.offers.back().map_or(self.confirmed_bps, |&(_, bps)| bps)
    }
}

/// A borrower, as its lender sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Lender {
    lease_ns: u64,
    generation: u64,
    /// The borrower's newest stamp, and when it was received.
    stamp: Option<(u64, u64)>,
    /// When the lease that was last sent is certainly over, in this box's time.
    over_ns: u64,
    /// The version of the newest offer.
    newest: u64,
    /// The version that the borrower confirmed.
    confirmed: u64,
    /// How many offers were made, in all generations.
    made: u64,
    /// Offers to confirm, in order of their versions.
    waiting: VecDeque<(u64, CompactString)>,
    loans: BTreeMap<CompactString, Loan>,
}

impl Lender {
    /// A borrower to which nothing is lent.
    pub fn new(lease_ns: u64) -> Self {
        Self {
            lease_ns,
            generation: 1,
            stamp: None,
            over_ns: 0,
            newest: 0,
            confirmed: 0,
            made: 0,
            waiting: VecDeque::new(),
            loans: BTreeMap::new(),
        }
    }

    /// The most that the borrower may have in force of a limit.
    pub fn lent_bps(&self, name: &str) -> u64 {
        self.loans.get(name).map_or(0, Loan::lent_bps)
    }

    /// Whether there is a loan of a limit, or an offer that ends one.
    pub fn has(&self, name: &str) -> bool {
        self.loans.contains_key(name)
    }

    /// Whether anything is lent or offered.
    pub fn is_used(&self) -> bool {
        !self.loans.is_empty()
    }

    /// A stamp of the borrower's clock arrived. Older ones than the newest change nothing.
    pub fn heard(&mut self, now: u64, stamp: u64) {
        if self.stamp.is_none_or(|(newest, _)| stamp > newest) {
            self.stamp = Some((stamp, now));
        }
    }

    /// The borrower's agent began anew. It says so only after nothing that it borrowed before is in
    /// force, so all loans are over. Returns their names.
    pub fn restarted(&mut self) -> Vec<CompactString> {
        self.stamp = None;
        self.next_generation()
    }

    /// Ends the lease if the borrower was silent for too long. Returns the names of loans that are
    /// over by that.
    pub fn expire(&mut self, now: u64) -> Vec<CompactString> {
        if self.is_used() && now > self.over_ns { self.next_generation() } else { Vec::new() }
    }

    fn next_generation(&mut self) -> Vec<CompactString> {
        self.generation += 1;
        self.newest = 0;
        self.confirmed = 0;
        self.waiting.clear();
        std::mem::take(&mut self.loans).into_keys().collect()
    }

    /// Whether an offer may be made now: the borrower was heard within the lease.
    fn is_heard(&self, now: u64) -> bool {
        self.stamp.is_some_and(|(_, heard)| now < heard.saturating_add(self.lease_ns))
    }

    /// Offers so much of a limit. The caller has seen to it that this box enforces a rate that
    /// leaves as much, before [`lend`](Self::lend) is sent. Returns whether it was offered: no if
    /// too many offers of this limit wait for confirmation, or the borrower is not heard.
    pub fn offer(&mut self, now: u64, name: &CompactString, bps: u64) -> bool {
        let loan = self.loans.get(name);
        if loan.map_or(0, Loan::last_bps) == bps {
            return true;
        }
        if loan.is_some_and(|loan| loan.offers.len() == OFFERS_MAX) || !self.is_heard(now) {
            return false;
        }
        if self.loans.is_empty() {
            // The first loan of a lease: it can be in force for as long as the stamp says.
            self.over_ns = self.over_ns.max(self.end_of_lease(now));
        }
        self.push(name, bps);
        true
    }

    /// Makes an offer.
    fn push(&mut self, name: &CompactString, bps: u64) {
        self.newest += 1;
        self.made += 1;
        self.loans.entry(name.clone()).or_default().offers.push_back((self.newest, bps));
        self.waiting.push_back((self.newest, name.clone()));
    }

    fn end_of_lease(&self, now: u64) -> u64 {
        let heard = self.stamp.map_or(now, |(_, heard)| heard);
        heard.saturating_add(self.lease_ns).saturating_add(self.lease_ns / CLOCK_DRIFT)
    }

    /// What to send to the borrower. It renews the lease. None if there is nothing to renew, or the
    /// borrower was silent for as long as a lease.
    pub fn lend(&mut self, now: u64) -> Option<Lend> {
        let (echo, _) = self.stamp.filter(|_| self.is_used() && self.is_heard(now))?;
        self.over_ns = self.over_ns.max(self.end_of_lease(now));
        let offer = |(version, name): &(u64, CompactString)| {
            let offers = &self.loans.get(name)?.offers;
            let bps = offers.iter().find(|offer| offer.0 == *version)?.1;
            Some(Offer { version: *version, name: name.clone(), bps })
        };
        let offers = self.waiting.iter().take(ITEMS_MAX).map_while(offer).collect();
        Some(Lend { generation: self.generation, echo, offers })
    }

    /// How many offers were made so far.
    pub fn offers_made(&self) -> u64 {
        self.made
    }

    /// Whether offers wait for confirmation.
    pub fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The borrower said what it has. Returns the names of which less is lent than before, or of
    /// which an offer can be made again.
    pub fn confirm(&mut self, held: &Held) -> Vec<CompactString> {
        // An answer that an earlier one overtook says nothing about now.
        let is_of_now = held.version >= self.confirmed && held.version <= self.newest;
        if held.generation != self.generation || !is_of_now {
            return Vec::new();
        }
        self.confirmed = held.version;
        let mut confirmed: Vec<CompactString> = Vec::new();
        let mut changed = Vec::new();
        let waited = self.waiting.partition_point(|(version, _)| *version <= held.version);
        for (version, name) in self.waiting.drain(..waited) {
            let Some(loan) = self.loans.get_mut(&name) else { continue };
            let (lent_bps, was_full) = (loan.lent_bps(), loan.offers.len() == OFFERS_MAX);
            let of_loan = loan.offers.partition_point(|offer| offer.0 <= version);
            if let Some((_, bps)) = loan.offers.drain(..of_loan).next_back() {
                loan.confirmed_bps = bps;
            }
            if loan.lent_bps() < lent_bps || was_full {
                changed.push(name.clone());
            }
            confirmed.push(name);
        }
        for (name, bps) in &held.returned {
            let Some(loan) = self.loans.get_mut(name) else { continue };
            if *bps < loan.confirmed_bps {
                loan.confirmed_bps = *bps;
                changed.push(name.clone());
            }
        }
        for name in confirmed.iter().chain(&changed) {
            // A borrower that gave something back waits for an offer that says the same: then both
            // sides forget the return.
            let is_over = self.loans.get(name).is_some_and(|loan| loan.lent_bps() == 0);
            let is_returned = held.returned.iter().any(|(returned, _)| returned == name);
            if is_over && !is_returned {
                self.loans.remove(name);
            }
        }
        changed
    }

    /// Offers what the borrower still has of what it gave back, so that it forgets the return.
    pub fn accept_returns(&mut self, held: &Held) {
        if held.generation != self.generation || held.version != self.confirmed {
            return;
        }
        for (name, _) in &held.returned {
            let loan = self.loans.get(name).filter(|loan| loan.offers.is_empty());
            if let Some(bps) = loan.map(|loan| loan.confirmed_bps) {
                self.push(name, bps);
            }
        }
    }
}
