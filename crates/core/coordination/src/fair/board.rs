//! The figures that meters publish: the fair half of `fair`.
//!
//! Each meter has a line that only it writes: its demand, until when that holds, and its weight.
//! Once every sync time *one* meter, the first to notice, reads all lines, computes the level and
//! writes it on a line that every meter reads. So a division reads each line once in total, and not
//! once per meter.
//!
//! Nothing needs these figures to be current or consistent: the ledger decides what may be sent in
//! all. A stale level is slightly unfair for a short while.
//!
//! Memory ordering: relaxed throughout. The words of a line may be seen at different times; each is
//! a plain figure, none guards other memory, and any mixture is one that a slower meter might have
//! written. A leader that is interrupted between claiming its turn and writing the level overwrites
//! a newer one; the next turn, a sync time later, corrects that.

use super::level::{Demand, fill};
use crate::line::Line;
use crate::sync::{AtomicU64, Ordering};
use narrows_qdisc::Weight;
use narrows_units::{Nanos, Rate};

pub(super) struct Board {
    head: Line<Head>,
    entries: Box<[Line<Entry>]>,
}

struct Head {
    /// When the rate is divided next, in common time.
    due: AtomicU64,
    /// The rate that a weight of one may use, in bits per second.
    level: AtomicU64,
}

struct Entry {
    /// In bits per second.
    demand: AtomicU64,
    /// The time until which that holds, in common time.
    until: AtomicU64,
    weight: AtomicU64,
}

impl Board {
    pub(super) fn new(meters: usize, rate: Rate) -> Self {
        let entry = || {
            Line(Entry {
                demand: AtomicU64::new(0),
                until: AtomicU64::new(0),
                weight: AtomicU64::new(u64::from(Weight::ONE.0)),
            })
        };
        Self {
            head: Line(Head { due: AtomicU64::new(0), level: AtomicU64::new(rate.bits_per_sec()) }),
            entries: (0..meters).map(|_| entry()).collect(),
        }
    }

    /// Publishes that `meter` wants to send at `demand`, valid until `until`; a standing queue has
    /// an unlimited demand.
    pub(super) fn tell(&self, meter: usize, demand: Rate, until: Nanos) {
        if let Some(entry) = self.entries.get(meter) {
            entry.demand.store(demand.bits_per_sec(), Ordering::Relaxed);
            entry.until.store(until.0, Ordering::Relaxed);
        }
    }

    pub(super) fn weigh(&self, meter: usize, weight: Weight) {
        if let Some(entry) = self.entries.get(meter) {
            entry.weight.store(u64::from(weight.0), Ordering::Relaxed);
        }
    }

    /// The rate that a weight of one may use.
    #[inline]
    pub(super) fn level(&self) -> u64 {
        self.head.level.load(Ordering::Relaxed)
    }

    /// Whether the caller now has the turn to divide the rate. The next turn is `sync_time` later.
    #[inline]
    pub(super) fn claim_turn(&self, now: Nanos, sync_time: Nanos) -> bool {
        let due = self.head.due.load(Ordering::Relaxed);
        now.0 >= due
            && self
                .head
                .due
                .compare_exchange(due, (now + sync_time).0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Makes a turn due at once.
    pub(super) fn make_due(&self) {
        self.head.due.store(0, Ordering::Relaxed);
    }

    /// Divides `rate` among the meters that demand something at `now`. `scratch` is overwritten.
    pub(super) fn divide(&self, rate: u64, now: Nanos, scratch: &mut Vec<Demand>) {
        scratch.clear();
        for entry in &self.entries {
            if entry.until.load(Ordering::Relaxed) > now.0 {
                scratch.push(Demand {
                    bits_per_sec: entry.demand.load(Ordering::Relaxed),
                    weight: Weight(entry.weight.load(Ordering::Relaxed) as u32),
                });
            }
        }
        self.head.level.store(fill(rate, scratch), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_demand_counts_until_it_ends() {
        let rate = Rate::from_bits_per_sec(100);
        let board = Board::new(2, rate);
        board.tell(0, rate, Nanos(10));
        board.tell(1, Rate::from_bits_per_sec(20), Nanos(20));
        let mut scratch = Vec::new();
        board.divide(100, Nanos(9), &mut scratch);
        assert_eq!(board.level(), 80);
        board.divide(100, Nanos(10), &mut scratch);
        assert_eq!(board.level(), 100);
    }

    #[test]
    fn a_turn_is_claimed_once_a_sync_time() {
        let board = Board::new(1, Rate::default());
        assert!(board.claim_turn(Nanos(5), Nanos(10)));
        assert!(!board.claim_turn(Nanos(14), Nanos(10)));
        assert!(board.claim_turn(Nanos(15), Nanos(10)));
        board.make_due();
        assert!(board.claim_turn(Nanos(16), Nanos(10)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;
    use std::sync::Arc;

    #[test]
    fn loom_one_meter_divides_and_the_level_is_one_that_some_demands_make() {
        loom::model(|| {
            let rate = Rate::from_bits_per_sec(100);
            let board = Arc::new(Board::new(2, rate));
            board.tell(0, rate, Nanos::MAX);
            let turn = |board: &Board| {
                let mine = board.claim_turn(Nanos(5), Nanos(10));
                if mine {
                    board.divide(100, Nanos(5), &mut Vec::new());
                }
                u32::from(mine)
            };
            let other = {
                let board = Arc::clone(&board);
                thread::spawn(move || {
                    board.tell(1, rate, Nanos::MAX);
                    turn(&board)
                })
            };
            let turns = turn(&board) + other.join().unwrap();
            assert_eq!(turns, 1);
            assert!([100, 50].contains(&board.level()), "{}", board.level());
        });
    }
}
