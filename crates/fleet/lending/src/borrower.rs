//! A borrower's side of the loans from one lender.
//!
//! *What is held* of a limit is what the newest offer gave, or less if this box gave some back.
//! Offers come in versions without a gap; an offer that was lost is sent again, one that comes
//! twice or late is passed over.
//!
//! *The lease* is over `lease` after the newest stamp of this box's own clock that the lender
//! returned. A message whose stamp is older than that says nothing, however it got here.
//!
//! *Confirmation.* What this box enforces follows what is held with the next order to the data
//! plane. Only what the data plane has in force is confirmed to the lender: a
//! [`mark`](Borrower::mark) at the order, [`in_force`](Borrower::in_force) at its answer.

use crate::message::{Held, ITEMS_MAX, Lend};
use compact_str::CompactString;
use std::collections::BTreeMap;

/// Which lease the loans are of: the lender's incarnation and generation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Lease {
    lender: u64,
    generation: u64,
}

/// What was held when an order was made.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mark {
    lease: Lease,
    version: u64,
    returned: Vec<(CompactString, u64)>,
}

/// A lender, as its borrower sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Borrower {
    lease_ns: u64,
    lease: Option<Lease>,
    /// The newest stamp that the lender returned.
    echo: u64,
    /// The newest version that was received.
    received: u64,
    /// What is held of each limit, if anything.
    loans: BTreeMap<CompactString, u64>,
    /// What is left of loans of which some was given back, until the lender makes an offer.
    returned: BTreeMap<CompactString, u64>,
    /// What the data plane has in force, to be confirmed.
    in_force: Option<Mark>,
}

impl Borrower {
    /// A lender from which nothing is borrowed.
    pub fn new(lease_ns: u64) -> Self {
        Self {
            lease_ns,
            lease: None,
            echo: 0,
            received: 0,
            loans: BTreeMap::new(),
            returned: BTreeMap::new(),
            in_force: None,
        }
    }

    /// What is held of a limit.
    pub fn held_bps(&self, name: &str) -> u64 {
        self.loans.get(name).copied().unwrap_or(0)
    }

    /// Whether anything is held, or was given back lately.
    pub fn is_used(&self) -> bool {
        !self.loans.is_empty() || !self.returned.is_empty()
    }

    /// Until when what is held may be in force, in this box's time; none if nothing is held.
    pub fn valid_until(&self) -> Option<u64> {
        (!self.loans.is_empty()).then(|| self.echo.saturating_add(self.lease_ns))
    }

    /// A lender's message arrived, from this incarnation of its agent. Returns the names of which
    /// something else is held now.
    pub fn receive(&mut self, now: u64, lender: u64, lend: &Lend) -> Vec<CompactString> {
        // A stamp that this box has not made yet is no stamp of it; an old one has no lease.
        if lend.echo > now || lend.echo.saturating_add(self.lease_ns) <= now {
            return Vec::new();
        }
        let lease = Lease { lender, generation: lend.generation };
        let mut changed = Vec::new();
        if self.lease != Some(lease) {
            let is_newer = self.lease.is_none_or(|old| {
                if old.lender == lender {
                    lend.generation > old.generation
                } else {
                    lend.echo > self.echo
                }
            });
            if !is_newer {
                return Vec::new();
            }
            changed.extend(std::mem::take(&mut self.loans).into_keys());
            self.returned.clear();
            self.lease = Some(lease);
            self.echo = lend.echo;
            self.received = 0;
        }
        self.echo = self.echo.max(lend.echo);
        for offer in &lend.offers {
            if offer.version <= self.received {
                continue;
            }
            if offer.version != self.received + 1 {
                break;
            }
            self.received = offer.version;
            self.returned.remove(&offer.name);
            if offer.bps > 0 {
                self.loans.insert(offer.name.clone(), offer.bps);
            } else {
                self.loans.remove(&offer.name);
            }
            changed.push(offer.name.clone());
        }
        changed
    }

    /// Gives back what is held of a limit above `bps`. Returns whether anything was.
    pub fn keep(&mut self, name: &str, bps: u64) -> bool {
        let Some(held) = self.loans.get_mut(name).filter(|held| **held > bps) else { return false };
        *held = bps;
        if bps == 0 {
            self.loans.remove(name);
        }
        self.returned.insert(name.into(), bps);
        true
    }

    /// Gives everything back once less than `guard_ns` of the lease is left. Returns the names.
    pub fn expire(&mut self, now: u64, guard_ns: u64) -> Vec<CompactString> {
        if self.valid_until().is_none_or(|until| now.saturating_add(guard_ns) < until) {
            return Vec::new();
        }
        let names: Vec<CompactString> = std::mem::take(&mut self.loans).into_keys().collect();
        self.returned.extend(names.iter().map(|name| (name.clone(), 0)));
        names
    }

    /// What an order that is made now contains of this lender's loans; none if all of it is in
    /// force already.
    pub fn mark(&self) -> Option<Mark> {
        let lease = self.lease?;
        let returned = || self.returned.iter().take(ITEMS_MAX);
        let is_known = self.in_force.as_ref().is_some_and(|known| {
            let same = known.returned.iter().map(|(name, bps)| (name, bps)).eq(returned());
            same && (known.lease, known.version) == (lease, self.received)
        });
        if is_known {
            return None;
        }
        let returned = returned().map(|(name, &bps)| (name.clone(), bps)).collect();
        Some(Mark { lease, version: self.received, returned })
    }

    /// The order with this mark is in force.
    pub fn in_force(&mut self, mark: Mark) {
        if self.lease == Some(mark.lease) {
            self.in_force = Some(mark);
        }
    }

    /// What to say to the lender: what is in force.
    pub fn held(&self) -> Option<Held> {
        let mark = self.in_force.as_ref().filter(|mark| self.lease == Some(mark.lease))?;
        Some(Held {
            lender: mark.lease.lender,
            generation: mark.lease.generation,
            version: mark.version,
            returned: mark.returned.clone(),
        })
    }
}
