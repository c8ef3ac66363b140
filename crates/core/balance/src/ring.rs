//! The ring of a service: what the program in the driver looks up.
//!
//! A slot has the server that gets the slot's new connections, and the one *before*, which still
//! has older ones. While they are the same, and no others have been in between, all connections of
//! the slot are at that server, and none has to be recorded. If they differ, new connections are
//! recorded, and a packet of a connection that is not recorded goes to the server before.
//!
//! ```text
//! steady(A) ── A drains, B gets it ─▶ moved(B, before A) ── A is removed ─▶ steady(B)
//! moved(B, before A) ── C gets it ─▶ mixed(C, before A): recorded ones may be at B or C
//! ```
//!
//! A slot whose servers are all gone begins anew. A mixed slot stays so, since only the records say
//! where its connections are.
//!
//! *After a while a slot settles.* A packet of a connection that is not recorded, and goes to the
//! server before, records it. So after [a time](crate::services::SETTLES_AFTER) all that has sent
//! meanwhile is recorded, and the slot forgets the server before: if a record is lost then, because
//! others needed its place, the connection is at the server that has the slot.

use serde::{Deserialize, Serialize};

/// The slots of a ring: a prime number, for which Maglev moves few slots.
pub const SLOTS: usize = 65_537;

/// No server.
const NOBODY: u16 = 0;
/// The bits of a slot's word: see `programs/balance.h`.
const BEFORE_SHIFT: u32 = 16;
const RECORDS: u32 = 1 << 31;

/// Where the connections of a slot go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Slot {
    /// New ones. 0 for nobody; below 2¹⁵.
    pub now: u16,
    /// Those that are not recorded.
    pub before: u16,
    /// Whether some are recorded.
    pub records: bool,
    /// Whether those that are recorded may be at several servers.
    is_mixed: bool,
}

impl Slot {
    /// It as the program reads it.
    pub fn word(self) -> u32 {
        u32::from(self.now)
            | u32::from(self.before) << BEFORE_SHIFT
            | if self.records { RECORDS } else { 0 }
    }

    const fn steady(now: u16) -> Self {
        Self { now, before: now, records: false, is_mixed: false }
    }

    /// The slot once new connections go to `now`, while of the servers those live that `lives`
    /// says.
    fn next(self, now: u16, lives: impl Fn(u16) -> bool) -> Self {
        let (before_lives, now_lives) = (lives(self.before), lives(self.now));
        if !self.records {
            return match now == self.now || !now_lives {
                true => Self::steady(now),
                false => Self { now, before: self.before, records: true, is_mixed: false },
            };
        }
        // Recorded connections are at `self.now`, or at any server if it is mixed.
        if !self.is_mixed && !before_lives && (now == self.now || !now_lives) {
            return Self::steady(now);
        }
        Self {
            now,
            before: if before_lives { self.before } else { now },
            records: true,
            is_mixed: self.is_mixed || (now != self.now && now_lives),
        }
    }
}

/// A slot that records: which, the server before, and whether it is mixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Moved(u32, u16, bool);

/// The slots of a service. Empty if no server takes new connections.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ring {
    slots: Vec<Slot>,
}

impl Ring {
    /// The ring in which new connections go to the servers in `dealt`.
    pub(crate) fn new(dealt: &[u16]) -> Self {
        Self { slots: dealt.iter().copied().map(Slot::steady).collect() }
    }

    /// What is not said by the servers in its slots: which slots record, and the servers before.
    pub(crate) fn moved(&self) -> Vec<Moved> {
        let slots = (0..).zip(&self.slots).filter(|(_, slot)| slot.records);
        slots.map(|(at, slot)| Moved(at, slot.before, slot.is_mixed)).collect()
    }

    /// The ring of `slots` slots in which new connections go to the servers in `dealt`, and of
    /// which those have `moved`. `None` if they are not its slots.
    pub(crate) fn resume(dealt: &[u16], slots: usize, moved: &[Moved]) -> Option<Self> {
        let mut ring = match dealt {
            [] => Self { slots: vec![Slot::steady(NOBODY); slots.min(SLOTS)] },
            dealt => Self::new(dealt),
        };
        for &Moved(at, before, is_mixed) in moved {
            let slot = ring.slots.get_mut(at as usize)?;
            *slot = Slot { before, records: true, is_mixed, ..*slot };
        }
        Some(ring)
    }

    /// The ring once new connections go to the servers in `dealt`, while those that `lives` says
    /// have connections or may have.
    pub(crate) fn next(&self, dealt: &[u16], lives: impl Fn(u16) -> bool) -> Self {
        if dealt.is_empty() {
            // Nobody takes new ones. What is there stays where it is.
            let slots = self.slots.iter().map(|slot| slot.next(NOBODY, &lives));
            return Self { slots: slots.collect() };
        }
        if self.slots.len() != dealt.len() {
            return Self::new(dealt);
        }
        let slots = self.slots.iter().zip(dealt).map(|(slot, now)| slot.next(*now, &lives));
        Self { slots: slots.collect() }
    }

    /// The ring once all connections of slots that record are recorded, or forgotten.
    pub(crate) fn settled(&self) -> Self {
        let settled = |slot: &Slot| match slot.records {
            true => Slot { before: slot.now, is_mixed: true, ..*slot },
            false => *slot,
        };
        Self { slots: self.slots.iter().map(settled).collect() }
    }

    /// Whether a slot has another server before.
    pub(crate) fn has_moved(&self) -> bool {
        self.slots.iter().any(|slot| slot.before != slot.now)
    }

    /// Its slots.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// What the program does: where a packet of connection `number` goes. It is recorded if the
    /// slot records.
    fn goes(slot: Slot, records: &mut BTreeMap<u32, u16>, number: u32, is_new: bool) -> u16 {
        if !slot.records {
            return slot.now;
        }
        if is_new {
            records.insert(number, slot.now);
            return slot.now;
        }
        *records.entry(number).or_insert(slot.before)
    }

    proptest! {
        /// A model that knows where every connection is: as long as its server lives, each packet
        /// reaches it, whatever changes.
        #[test]
        fn a_connection_stays_at_its_server_while_that_lives(
            acts in prop::collection::vec((0u8..10, 1u16..5, 0u32..20), 1..200),
        ) {
            let mut slot = Slot::steady(1);
            let (mut at, mut records) = (BTreeMap::new(), BTreeMap::new());
            let mut living: BTreeSet<u16> = [1, 2].into();
            let mut next = 0;
            for (act, server, one) in acts {
                match act {
                    // The slot moves to another server that lives, or comes to life.
                    0..3 => {
                        living.insert(server);
                        slot = slot.next(server, |one| living.contains(&one));
                    }
                    // A server goes for good, and its connections with it.
                    3 => {
                        living.remove(&server);
                        at.retain(|_, now| *now != server);
                        let now = if slot.now == server {
                            living.first().copied().unwrap_or(NOBODY)
                        } else {
                            slot.now
                        };
                        slot = slot.next(now, |one| living.contains(&one));
                    }
                    // All have sent, and time has passed.
                    4 => {
                        for (number, server) in &at {
                            prop_assert_eq!(goes(slot, &mut records, *number, false), *server);
                        }
                        let ring = Ring { slots: vec![slot] }.settled();
                        slot = ring.slots()[0];
                    }
                    5..8 => {
                        let to = goes(slot, &mut records, next, true);
                        prop_assert!(to == NOBODY || living.contains(&to));
                        if to != NOBODY {
                            at.insert(next, to);
                        }
                        next += 1;
                    }
                    _ => {
                        if let Some(&server) = at.get(&one) {
                            prop_assert_eq!(goes(slot, &mut records, one, false), server);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_slot_is_steady_again_once_the_server_before_has_gone() {
        let both = |_: u16| true;
        let moved = Slot::steady(1).next(2, both);
        assert_eq!((moved.now, moved.before, moved.records), (2, 1, true));
        assert_eq!(moved.next(2, |one| one == 2), Slot::steady(2));
        let mixed = moved.next(3, both);
        assert_eq!((mixed.now, mixed.before, mixed.records), (3, 1, true));
        let without = mixed.next(3, |one| one != 1);
        assert_eq!((without.now, without.before, without.records), (3, 3, true), "2 has some, too");
    }

    #[test]
    fn a_slot_of_a_server_that_goes_at_once_begins_anew() {
        assert_eq!(Slot::steady(1).next(2, |one| one != 1), Slot::steady(2));
    }

    #[test]
    fn a_word_has_both_servers_and_whether_it_records() {
        assert_eq!(Slot::steady(7).word(), 7 << 16 | 7);
        assert_eq!(Slot::steady(7).next(9, |_| true).word(), 1 << 31 | 7 << 16 | 9);
    }
}
